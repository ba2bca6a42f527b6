"""The site's reference: pages of Markdown, made from the package itself.

Sphinx calls `setup`, which writes them into the folder `reference` before it reads the
sources. `pages` returns them as text; nothing here is a second list of what exists.
"""

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from importlib.util import find_spec
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import TYPE_CHECKING, Never

import svc_notebook
from svc_notebook import errors, scores
from svc_notebook.api import frame_columns
from svc_notebook.cli import build_parser
from svc_notebook.endpoints import ENDPOINT_KEYS, KEY_VARIABLE, MODEL_KEYS
from svc_notebook.ledger.column_meanings import ADDED, ESTIMATES
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.magics.config_traits import SvcTraits
from svc_notebook.magics.conversation_commands import CONVERSATION_LIST
from svc_notebook.magics.models_command import MODEL_LIST
from svc_notebook.magics.options import OPTIONS
from svc_notebook.magics.settings_command import SETTING_LIST
from svc_notebook.magics.subcommands import COMMANDS
from svc_notebook.magics.tools_command import TOOL_LIST
from svc_notebook.pandas import EXPANDED, FrameAccessor
from svc_notebook.service.params import PARAMS
from svc_notebook.settings import ENV_NAMES, Settings
from svc_notebook.timeouts import Timeouts

if TYPE_CHECKING:  # the pages are made without it
    from sphinx.application import Sphinx

FOLDER = "reference"
LISTS = {
    "%svc models": MODEL_LIST,
    "%svc conversations": CONVERSATION_LIST,
    "%svc settings": SETTING_LIST,
    "%svc tools": TOOL_LIST,
}
PYTHON = {
    "Replies": (
        "Ask, stream a reply, or take a value out of a text",
        "complete stream extract last reply Completion CompletionStream Message",
    ),
    "Conversations and the panel": (
        "Keep a history, and chat next to your cells",
        "conversation panel conversations_df Conversation",
    ),
    "Sweeps": (
        "Ask every combination of prompts, rows, models and parameters",
        "sweep run runs_df replay dataset Run",
    ),
    "Scores and answers": (
        "Say which replies are right",
        """score read_answers scores.exact scores.fields scores.contains scores.regex
        scores.json_valid scores.json_schema scores.length""",
    ),
    "Comparisons": (
        "Say which model or prompt is better, and how sure that is",
        """compare contrast Contrast contrast_df Decision Judge Recheck summary_df
        trend plot ranking how_many agreement agreement_df repeats_df confusion_df""",
    ),
    "Frames and usage": (
        "See what was asked, and what it cost",
        "replies_df usage_df describe estimate_tokens Tokens",
    ),
    "Files": (
        "Write replies into files, and read those of other programs",
        "export read_parquet export_answers as_replies read_eval to_polars to_arrow",
    ),
    "Tools": ("Let the model call your functions", "tool Toolbox tool_calls_df"),
    "Session and emulator": (
        "Choose where requests go and what may be spent, or try it without a key",
        "use Emulator load_ipython_extension unload_ipython_extension",
    ),
    "Clients": (
        "Send requests from a program of your own",
        "Client AsyncClient AsyncCompletionStream",
    ),
}
"""A page for each task, with its public names; a name in none is on one more page."""
PURPOSES = {
    "magic": "Every option of a cell, every command, and the defaults of a kernel.",
    "pandas": "A column from a template: `df.svc.complete`.",
    "testing": "A fixture for pytest, and what a script of replies may say.",
    "columns": "What each column of each frame means, with its dtype and unit.",
    "parameters": "What a request may have, the ranges, and the service's defaults.",
    "settings": "Variables, time-outs, and the file of your own servers.",
    "errors": "The tree of errors, and what each of them carries.",
    "command": "`svc-notebook` in a shell: demo, lab, emulate and ledger.",
}
"""What a page is for that has no names of Python."""
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n", re.MULTILINE)
_ITEM = re.compile(r"^(\S[^:\n]*):[ \n]+(.*(?:\n(?:[ \t].*)?)*)", re.MULTILINE)
_SPAN = re.compile(r"(?<![`\[])`(?:svc\.)?(?:errors\.)?(\w+)`(?!`)")
_SHORT_CHARS = 76


def pages() -> dict[str, str]:
    """Return every page by its name, the index first, in the index's order."""
    tests, script = "svc_notebook.testing", "svc_notebook.emulator.script"
    commands = _parsed(build_parser())
    made = {
        "magic": _magic(),
        **_python(),
        "pandas": _pandas(),
        "testing": f"# The emulator in tests\n\n{_module_doc(tests)}\n\n"
        f"## Scripts\n\n{_module_doc(script)}\n",
        "columns": _columns(),
        "parameters": _parameters(),
        "settings": _settings(),
        "errors": _errors(),
        "command": "\n".join(["# The command `svc-notebook`\n", *commands]),
    }
    listed = "\n".join(made)
    purposes = PURPOSES | {_page(x): f"{does}." for x, (does, _) in PYTHON.items()}
    index = (
        "# Reference\n\n"
        "These pages are made from the package: from its docstrings, and from the "
        "tables that its parsers and frames use. In a notebook `svc.complete?`, "
        "`%svc help`, `%svc settings` and `svc.describe(df)` show the same. "
        "(doc: Limits) means that heading of the service's document.\n\n"
        + "".join(
            f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({name}.md): "
            f"{purposes.get(name, '')}\n"
            for name, text in made.items()
        )
        + f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n\n"
        + "\n".join(_by_task())
    )
    return {"index": index, **made}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a pipe in a cell is escaped, a line break is a blank."""
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([" ".join(c.split()).replace("|", "\\|") for c in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def code(text: object) -> str:
    """Return a text as code; an empty one stays empty."""
    return f"`{text}`" if str(text) else ""


def target(name: str, kind: str = "") -> str:
    """Return the label of a public name: labels ignore case, but `Run` is not `run`."""
    kind = kind or ("class" if name[0].isupper() else "function")
    return f"{kind}-{'-'.join(re.findall('[^_.% ]+', name)).lower()}"


def linked(text: str) -> str:
    """Link each public name that a text has as code."""
    public = {*public_names(), *error_classes()}

    def link(found: re.Match[str]) -> str:
        span, name = found[0], found[1]
        is_meant = name in public and (name[0].isupper() or "svc." in span)
        return f"[{span}](#{target(name)})" if is_meant else span

    return _SPAN.sub(link, text)


def items(body: str) -> list[tuple[str, str]]:
    """Return the names of a section of a docstring, each with what it says."""
    return [(name, " ".join(text.split())) for name, text in _ITEM.findall(body)]


def prose(doc: str) -> str:
    """Return a docstring as Markdown: its text, then its sections."""
    text, *parts = SECTION.split(doc)
    found = [linked(text.strip())]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        inner = dedent(body).strip()
        if head == "Example":
            said = f"```pycon\n{inner}\n```"
        elif head == "Returns":
            said = linked(inner)
        else:
            each = ((name.replace(", ", "`, `"), says) for name, says in items(inner))
            said = linked("\n".join(f"- `{name}`: {says}" for name, says in each))
        found += [f"**{head.replace('Args', 'Arguments')}**", said]
    return "\n\n".join(found) + "\n"


def signature(called: str, function: Callable[..., object], *, skips: int = 0) -> str:
    """Return how a function is called, with types; on several lines if it is long."""
    found = inspect.signature(function)
    shown: list[str] = []
    for each in list(found.parameters.values())[skips:]:
        if each.kind is each.KEYWORD_ONLY and not any(s[0] == "*" for s in shown):
            shown.append("*")
        shown.append("*" if each.annotation is Never else _plain(str(each)))
        shown += ["/"] * (each.kind is each.POSITIONAL_ONLY)  # one at most
    back = found.return_annotation
    has_end = back not in (found.empty, None) or not inspect.isclass(function)
    end = f" -> {_plain(inspect.formatannotation(back))}" if has_end else ""
    line = f"{called}({', '.join(shown)}){end}"
    if len(line) > _SHORT_CHARS:
        line = f"{called}(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"
    return f"```python\n{line}\n```\n"


def _plain(text: str) -> str:
    """Return a parameter or a type as people write it."""
    for pattern, instead in _SPELLINGS:
        text = re.sub(pattern, instead, text)
    return text


_SPELLINGS = (
    (r"\b(?:svc_notebook|collections|typing|pathlib|datetime)\.[a-z_.]*", ""),
    (r"(?:(?<=: )|^)'([^',]+)'", r"\1"),  # a name that is looked up later
    (r"<built-in function (\w+)>", r"\1"),
    (r"= .* at 0x.*", "= ..."),
    ("NoneType", "None"),
)


def entry(name: str, thing: Callable[..., object]) -> str:
    """Return the section of a public function or class, with what the class has."""
    head = f"({target(name)})=\n## `svc.{name}`\n\n{signature(f'svc.{name}', thing)}"
    parts = members(name, thing) if inspect.isclass(thing) else ()
    return "\n".join([head, prose(inspect.getdoc(thing) or ""), *parts])


def _public_members(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, also those it inherits."""
    ours = [each for each in cls.__mro__ if each.__module__.startswith("svc_notebook")]
    kinds = (property, staticmethod, classmethod, FunctionType)
    found = {key: each for base in ours[::-1] for key, each in vars(base).items()}
    for key, member in found.items():
        if not key.startswith("_") and isinstance(member, kinds):
            yield key, member


def members(name: str, cls: type) -> Iterator[str]:
    """Return a section for each public method and property of a class."""
    for key, member in _public_members(cls):
        head, call = f"### `{name}.{key}`\n\n", ""
        if not isinstance(member, property):
            skips = int(isinstance(member, FunctionType))  # self
            call = signature(f"{name}.{key}", getattr(cls, key), skips=skips) + "\n"
        yield head + call + prose(inspect.getdoc(member) or "")


def public_names() -> list[str]:
    """Return the functions and classes of the package, and the ready-made scores."""
    names = [*svc_notebook.__all__, *(f"scores.{name}" for name in scores.__all__)]
    known = {"errors", "scores", *error_classes()}
    return [name for name in names if name not in known]


def _page(title: str) -> str:
    return re.split(r"\W", title)[0].lower()


def _groups() -> dict[str, list[str]]:
    """Return the public names of each page of Python."""
    public = public_names()
    groups = {title: names.split() for title, (_, names) in PYTHON.items()}
    placed = {name for names in groups.values() for name in names}
    if rest := [name for name in public if name not in placed]:
        groups["More names"] = rest
    return {
        title: [name for name in names if name in public]
        for title, names in groups.items()
    }


def _python() -> dict[str, str]:
    made = {}
    for title, names in _groups().items():
        found = (entry(name, attrgetter(name)(svc_notebook)) for name in names)
        made[_page(title)] = "\n".join([f"# {title}\n", *found])
    return made


def _by_task() -> Iterator[str]:
    """Yield a table for each task: its functions, each with its first sentence."""
    yield "## Functions by task\n"
    for title, names in _groups().items():
        task, _ = PYTHON.get(title, (title, ""))
        things = ((name, attrgetter(name)(svc_notebook)) for name in names)
        rows = (
            (f"[`svc.{name}`](#{target(name)})", linked(_first_line(thing)))
            for name, thing in things
        )
        yield f"### {task}\n"
        yield table(("Name", "What it does"), rows)
    yield f"### What a [`svc.Run`](#{target('Run')}) can do\n"
    yield table(
        ("Name", "What it does"),
        (
            (code(f"run.{key}"), linked(_first_line(member)))
            for key, member in _public_members(svc_notebook.Run)
        ),
    )


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _module_doc(module: str) -> str:
    """Return the docstring of a module that may need an extra to be imported."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


def _pandas() -> str:
    call = signature("df.svc.complete", FrameAccessor.complete, skips=1)
    doc = prose(inspect.getdoc(FrameAccessor.complete) or "")
    columns = ", ".join(map(code, EXPANDED))
    return (
        f"# `df.svc` and `series.svc`\n\n{_module_doc('svc_notebook.pandas')}\n\n"
        f"## `df.svc.complete`, `series.svc.complete`\n\n{call}\n{doc}\n"
        f"The columns `EXPANDED` are {columns}; "
        "[the frame of replies](#frame-replies-df) says what they mean.\n"
    )


def error_classes() -> dict[str, type[BaseException]]:
    """Return the errors by name, in the order of their tree."""
    found = {n: each for n, each in vars(errors).items() if inspect.isclass(each)}
    return {n: each for n, each in found.items() if issubclass(each, BaseException)}


def _errors() -> str:
    parts = [f"# Errors\n\n{inspect.getdoc(errors)}\n"]
    for name, cls in error_classes().items():
        bases = " and ".join(code(base.__name__) for base in cls.__bases__)
        doc = prose(inspect.getdoc(cls) or "")
        head = f"({target(name)})=\n## `{name}`\n"
        parts.append(f"{head}\n{doc}\nA kind of {linked(bases)}.\n")
    return "\n".join(parts)


def _magic() -> str:
    parts = ["# `%%svc` and `%svc`\n\n## Options of the line\n"]
    for group, found in groupby(OPTIONS, key=lambda each: each.group):
        rows = ((code(each.usage), each.doc) for each in found)
        parts += [f"### {group}\n", table(("Option", "Meaning"), rows)]
    commands = ((code(each.usage), each.doc) for each in COMMANDS)
    parts += ["## Commands\n", table(("Command", "Meaning"), commands)]
    traits = SvcTraits.class_traits(config=True)
    defaults = (
        (code(f"%config SvcMagics.{name}"), trait.help, _default(trait.default_value))
        for name, trait in sorted(traits.items())
    )
    heads = ("Setting", "Meaning", "Default")
    return "\n".join([*parts, "## Defaults of this kernel\n", table(heads, defaults)])


def _default(value: object) -> str:
    is_plain = isinstance(value, (str, int, float)) and value != ""
    return code(value) if is_plain else ""


def _columns() -> str:
    intro = (
        "# Columns of the frames\n\n`svc.describe(df)` shows the same for a frame that "
        "you have. Dtypes are fixed, also without rows. `plan_df` and the `replies_df` "
        "of a run have the columns of `replies_df`.\n"
    )
    parts = [intro]
    for name, columns in {**frame_columns(), **LISTS}.items():
        parts += [f"({target(name, 'frame')})=\n## `{name}`\n", _described(columns)]
    added = {f"{first}NAME": says for first, says in ADDED.items()}
    added |= {f"NAME{last}": says for last, says in ESTIMATES.items()}
    rows = ((code(each), says.format("NAME")) for each, says in added.items())
    head = "## Columns that only some frames have\n"
    return "\n".join([*parts, head, table(("Column", "Meaning"), rows)])


def _described(columns: Iterable[Column]) -> str:
    rows = ((code(c.name), code(c.dtype), c.unit or "", c.doc) for c in columns)
    return table(("Column", "Dtype", "Unit", "Meaning"), rows)


def _parameters() -> str:
    rows = (
        (code(each.name), each.allowed, _default(each.default), each.doc)
        for each in PARAMS
    )
    return (
        "# Parameters of a request\n\nOne that you leave out is not sent, so the "
        "service's default applies. Only `max_tokens` differs: cells, panels, "
        "conversations and functions send `fit` unless you say otherwise.\n\n"
        + table(("Parameter", "Allowed", "Service's default", "Meaning"), rows)
    )


ALSO_READ = """Also read are `SVC_CONFIG` (the file of
[your own servers](../servers.md)), `SSL_CERT_FILE`, `HTTPS_PROXY`, `NO_PROXY`,
`XDG_DATA_HOME` and `XDG_CONFIG_HOME`."""


def _settings() -> str:
    said, waits = _attributes(Settings), _attributes(Timeouts)
    uses = inspect.signature(svc_notebook.use).parameters
    traits = SvcTraits.class_traits(config=True)
    defaults = {each.name: each.default for each in fields(Settings)}
    rows = [(code(KEY_VARIABLE), "The API key; it is never shown.", "", "`%svc login`")]
    for name, env in ENV_NAMES.items():
        ways = [code(f"svc.use({name}=...)")] * (name in uses)
        ways += [code(f"%config SvcMagics.{name}")] * (name in traits)
        default = _default(defaults[name])
        rows.append((code(env), linked(said[name]), default, ", ".join(ways)))
    seconds = (
        (code(each.name), waits[each.name], _default(each.default))
        for each in fields(Timeouts)
    )
    keys = ("Key", "Meaning")
    parts = (
        "# Settings\n\n`%svc settings` shows each one in force and where it was set.",
        "## Variables of the environment",
        table(("Variable", "Meaning", "Default", "In a notebook"), rows),
        ALSO_READ,
        f"## Time-outs: `{ENV_NAMES['timeouts']}`",
        (inspect.getdoc(Timeouts.from_text) or "").partition("\n\n")[2],
        table(("Name", "Meaning", "Default in seconds"), seconds),
        "## Your own servers: `svc_notebook.toml`",
        _module_doc("svc_notebook.endpoints"),
        "### `[NAME]`",
        table(keys, ((code(name), says) for name, says in ENDPOINT_KEYS.items())),
        '### `[NAME.models."MODEL"]`',
        table(keys, ((code(name), says) for name, says in MODEL_KEYS.items())),
    )
    return "\n\n".join(parts)


def _attributes(cls: type) -> dict[str, str]:
    """Return what the docstring of a class says of each attribute."""
    _, _, rest = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    body = inspect.cleandoc(SECTION.split(rest)[0])
    return {name: text for names, text in items(body) for name in names.split(", ")}


def _parsed(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return a section for a command and for each of its own commands."""
    yield f"## `{parser.prog}`\n\n{parser.description or ''}\n"
    rows: list[tuple[str, str]] = []
    inner: list[argparse.ArgumentParser] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            helps = {each.dest: each.help for each in action._get_subactions()}  # noqa: SLF001
            rows += [(code(name), helps.get(name) or "") for name in action.choices]
            inner += action.choices.values()
        else:
            value = str(action.metavar or action.dest.upper()) * (action.nargs != 0)
            said = f"{', '.join(action.option_strings)} {value}".strip()
            rows.append((code(said), action.help or ""))
    yield table(("Argument", "Meaning"), rows)
    for each in inner:
        yield from _parsed(each)


def write(folder: Path) -> None:
    """Write the pages that changed into a folder, and remove those that are no more."""
    folder.mkdir(exist_ok=True)
    made = {f"{name}.md": text for name, text in pages().items()}
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Let Sphinx make the pages before it reads the sources."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / FOLDER))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

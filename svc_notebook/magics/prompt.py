"""From a magic line and its cell to the request, with notes for the footer."""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from svc_notebook.completion import Completion
from svc_notebook.conversations.attachments import (
    Item,
    add_items,
    capped,
    find_item,
    prepared,
    to_item,
)
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.turn_requests import NextTurn
from svc_notebook.display.error_report import to_report, versions
from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import ParameterError, last_error
from svc_notebook.exchange import Attached, Origin
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.checks import did_you_mean, shorten
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.template import fill_marks, is_path, nested_marks, to_expression
from svc_notebook.tokens import MaxTokens, with_max_tokens
from svc_notebook.tools.results import is_pandas

from .options import SvcOptions
from .reply_cell import NO_VALUE
from .subcommands import EXPLAIN, FIX

MAX_FILE_BYTES = 1_000_000
_MARKS_CHARS = 100  # of those that are shown


def _find(name: str, names: Mapping[str, Any]) -> Item:
    """Find what `--with` names: a variable, In[3], Out[-1], Err or a text file."""
    if name in names:
        _has_value(name, names)
    if item := find_item(name, names, mark="--with "):
        return item
    path, is_file, is_folder, known = Path(name), False, False, list(names)
    with suppress(OSError, ValueError, RuntimeError):  # no file can have such a name
        path = path.expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
        if not name.isidentifier():
            known = [each.name for each in path.parent.iterdir()]
    if is_file:
        return _file(name, path)
    found = to_expression(name)
    root = re.split(r"[\[.]", name, maxsplit=1)[0].strip()
    if found and is_path(found) and root in names:
        raise ParameterError(
            f"--with {name}: it takes whole variables. For a part of one, write "
            f"{{{{{name}}}}} into the prompt.",
            param="with",
        )
    if is_folder:
        raise ParameterError(
            f"--with {name}: this is a folder. Name a text file in it.", param="with"
        )
    raise ParameterError(
        f"--with {name}: there is no such variable or file.{_near(path.name, known)} "
        "Give variables, In[3], Out[-1], Err and text files, separated by commas; this "
        f"kernel runs in {Path.cwd()}.",
        param="with",
    )


def _has_value(name: str, names: Mapping[str, Any]) -> object:
    if names[name] is NO_VALUE:
        raise ParameterError(
            f"{name}: the function's own {name} has no value here. Assign it in this "
            "function, above this line.",
            param="messages",
        )
    return names[name]


def _file(name: str, path: Path) -> Item:
    try:
        if path.stat().st_size <= MAX_FILE_BYTES:
            text = path.read_text("utf-8-sig").rstrip("\n")
            return Item(name=name, text=text, kind="file")
        why = f"is larger than {MAX_FILE_BYTES // 1_000_000} MB"
    except UnicodeDecodeError:
        why = "is not text in UTF-8"
    except OSError as problem:
        why = f"cannot be read ({problem.strerror})"
    raise ParameterError(
        f"--with {name}: {path.resolve()} {why}. Read the part that matters into a "
        "variable, and give its name.",
        param="with",
    )


TASKS = {
    FIX: "A notebook cell fails. Write the corrected cell as a whole, in one Python "
    "code block. Then say in one or two sentences what was wrong.",
    EXPLAIN: "A notebook cell fails. Explain the error: what it means, what causes it "
    "here, and how to correct it.",
}
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def error_prompt(
    task: str, names: Mapping[str, Any], *, context_tokens: int = BUDGET_TOKENS
) -> tuple[str, str]:
    """Write a question about the user's last error, "" without one, and a note on it.

    Besides cells and traceback, versions are all that is told of this machine. The
    failing cell is whole, and refused where it does not fit into the model's context.
    """
    error = last_error()
    if error is None:
        return "", f"No cell of this kernel has failed; nothing to {task}.\n"
    report = to_report(error)
    cells = [each for each in report.cells if each < len(names["In"])]
    sources = [names["In"][each].strip("\n") for each in cells]
    named = [f"Cell In[{each}]" for each in cells]
    named[:1] = [f"{each} (failed)" for each in named[:1]]
    items = [
        Item(name=name, text=source, kind="cell")
        for name, source in zip(named, sources, strict=True)
    ]
    items.append(Item(name="Traceback", text=report.text, kind="error"))
    items[bool(cells) :] = map(capped, items[bool(cells) :])
    n_tokens = sum(each.n_tokens for each in items)
    n_reply = items[0].n_tokens if cells and task == FIX else 0
    if n_tokens + n_reply > context_tokens:
        again = " twice, as the correction is as long," if n_reply else ""
        raise ParameterError(
            f"%svc {task}: the failing cell has about {items[0].n_tokens} tokens, and "
            f"with the error it does not fit{again} into {context_tokens}. Run the "
            f"part that fails in a cell of its own, then `%svc {task}`; or ask about "
            "the error alone: `%svc --with Err QUESTION`.",
            param="messages",
        )
    code = "\n".join(sources)
    values = (names.get(word) for word in set(re.findall(r"\w+", code)))
    used = {each.__name__ for each in values if isinstance(each, ModuleType)}
    modules = report.modules.union(_IMPORT.findall(code), used)
    where = f" of In[{cells[0]}]" if cells else ""
    note = f"the last error{where}: {type(error).__name__}"
    prompt, _ = add_items(TASKS[task], items)
    return f"{prompt}\n\nVersions: {versions(modules)}", note


class Filled(NamedTuple):
    """A template with values put in."""

    text: str
    items: tuple[Item, ...] = ()
    as_typed: tuple[str, ...] = ()  # marks that are not variables or parts of them


def interpolate(
    template: str, names: Mapping[str, object], *, hide: Callable[[str], str] = str
) -> Filled:
    """Replace marks such as `{{name}}` and `{{df.text[0]}}` by values without keys.

    Attributes and items are read, and nothing is called: a call is refused.
    """
    items: dict[str, Item] = {}
    as_typed: dict[str, None] = {}

    def text_of(inner: str) -> str | None:
        mark, name = f"{{{{{inner}}}}}", inner.strip()
        found = to_expression(inner)
        kinds = set(map(type, ast.walk(found or ast.Pass())))
        is_value = found is not None and is_path(found)
        if not is_value and ast.Call not in kinds:
            as_typed.update({mark: None} if name else {})
            return None
        if name not in items:
            value = _value(found, mark, names) if is_value else None
            is_method = inspect.ismethod(value) or inspect.isbuiltin(value)
            if is_method or not is_value:
                way = f"`value = {name}{'()' * is_method}`, then {{{{value}}}}"
                why = f"a prompt makes no calls. Assign it first ({way})"
                raise _refusal(mark, why)
            item = to_item(name, value)
            items[name] = replace(item, text=hide(item.text))
        return items[name].text

    refused: dict[str, ParameterError] = {}

    def try_text_of(inner: str) -> str | None:
        try:
            return text_of(inner)
        except ParameterError as error:
            refused.setdefault(f"{{{{{inner}}}}}", error)
            return None

    text = fill_marks(template, try_text_of)
    _check_marks(refused)
    return Filled(text, tuple(items.values()), (*as_typed, *nested_marks(template)))


def _check_marks(refused: Mapping[str, ParameterError]) -> None:
    if refused:
        first, *others = refused
        if others:
            refused[first].add_note(f"Refused as well: {', '.join(others)}.")
        raise refused[first]


def _value(found: Any, mark: str, names: Mapping[str, object]) -> object:  # noqa: ANN401 - a path
    """Look up a name, then its attributes and items."""
    if isinstance(found, ast.Name):
        if found.id in names:
            return _has_value(found.id, names)
        is_alone = mark[2:-2].strip().isidentifier()
        which = "such variable" if is_alone else f"variable {found.id}"
        near = _near(found.id, names)
        raise _refusal(mark, f"this notebook has no {which}.{near} Define it first")
    whole: Any = _value(found.value, mark, names)
    part: Any
    is_attribute = isinstance(found, ast.Attribute)
    if is_attribute:
        part = found.attr
    elif isinstance(found.slice, ast.Name):
        part = _value(found.slice, mark, names)
    else:
        part = ast.literal_eval(found.slice)
    try:
        return getattr(whole, part) if is_attribute else whole[part]
    except Exception as error:
        near = ""
        with suppress(Exception):  # a value may fail to list its parts
            has_keys = isinstance(whole, Mapping) or is_pandas(whole, "DataFrame")
            known = dir(whole) if is_attribute else whole if has_keys else ()
            near = _near(part, (each for each in known if each != part))
        why = f"{ast.unparse(found)} raised {type(error).__name__}.{near} Correct it"
        raise _refusal(mark, why) from error


def _refusal(mark: str, why: str) -> ParameterError:
    return ParameterError(
        f"{mark}: {why}, write \\{mark} for the plain text, or use --raw.",
        param="messages",
    )


def _near(name: str, names: Iterable[str]) -> str:
    return did_you_mean(name, (each for each in names if not each.startswith("_")))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPrompt:
    """What a cell asks for, with variables put in and defaults applied."""

    text: str
    attached: tuple[Attached, ...]  # where the text has what `--with` names
    system: str | None  # "" for none, None if not given
    model: str
    params: Mapping[str, Any]  # without max_tokens; `tools` are definitions
    max_tokens: MaxTokens
    notes: tuple[str, ...] = ()  # for the footer
    context_tokens: int = BUDGET_TOKENS  # that prompt and reply share
    as_typed: str = ""  # what to say at once of marks that were not filled in


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """A cell's request; `keep` takes its reply into the conversation, if any.

    `rest_of` is the reply whose rest it asks for, if it does.
    """

    request: CompletionRequest
    origin: Origin
    notes: tuple[str, ...] = ()  # for the footer
    keep: Callable[[Completion], None] = lambda _: None
    rest_of: Completion | None = None


def to_prompt(
    options: SvcOptions,
    cell: str,
    *,
    names: Mapping[str, object],
    defaults: Mapping[str, Any],
    hide: Callable[[str], str] = str,
) -> CellPrompt:
    """Read a line and its cell; `hide` hides the API key in what is put in."""
    system = defaults.get("system") if options.system is None else options.system
    read = Filled if options.is_raw else partial(interpolate, names=names, hide=hide)
    filled, filled_system = read(cell), read(system or "")
    apart = {"model", "system", "max_tokens"}
    given = {name: value for name, value in defaults.items() if name not in apart}
    asked = options.max_tokens
    context = dict.fromkeys(options.context)
    added = tuple(prepared(_find(name, names), hide) for name in context)
    put_in = ", ".join(dict.fromkeys(item.note for item in (*filled.items, *added)))
    text, attached = add_items(filled.text, added) if added else (filled.text, ())
    return CellPrompt(
        text=text,
        attached=attached,
        system=filled_system.text if system else system,
        model=options.model or defaults["model"],
        params={**given, **options.params},
        max_tokens=defaults.get("max_tokens") if asked is None else asked,
        notes=(f"put in: {put_in}",) if put_in else (),
        as_typed=_as_typed((*filled.as_typed, *filled_system.as_typed)),
    )


def _as_typed(marks: Sequence[str]) -> str:
    if not marks:
        return ""
    named = to_terminal(shorten(" ".join(", ".join(marks).split()), _MARKS_CHARS))
    filled = "variables, with .attribute and [index] parts"
    is_curly = re.search("[\u2018\u2019\u201c\u201d]", named) is not None
    hint = """; an index needs straight quotes: " or '""" * is_curly
    return f"Goes as typed: {named} (only {filled}, are filled in{hint})\n"


def single_request(prompt: CellPrompt) -> CellRequest:
    """Build the request of a cell without a conversation."""
    system = prompt.system or None
    request = build_request(
        prompt.text,
        model=prompt.model,
        system=system,
        params=prompt.params,
        context_of=lambda _: prompt.context_tokens,
    )
    return CellRequest(
        request=with_max_tokens(request, prompt.max_tokens),
        origin=Origin(kind="magic"),
        notes=prompt.notes,
    )


def conversation_request(
    prompt: CellPrompt, conversation: Conversation, *, place: str | None = None
) -> CellRequest:
    """Build the request of a cell that continues a conversation.

    `place` names the cell's turn, so that running the cell again asks it again. A
    system message is the conversation's once it was answered.
    """
    older = conversation.older_note()
    turn = conversation.next_turn(
        prompt.text,
        attached=prompt.attached,
        model=prompt.model,
        params=prompt.params,
        max_tokens=prompt.max_tokens,
        origin_kind="magic",
        place=place,
        system=prompt.system,
    )

    def keep(completion: Completion) -> None:
        if prompt.system is not None:
            conversation.system = prompt.system or None
        conversation.record(turn, completion)

    return CellRequest(
        request=turn.request,
        origin=turn.origin,
        notes=tuple(filter(None, (*_turn_notes(turn), older, *prompt.notes))),
        keep=keep,
    )


def _turn_notes(turn: NextTurn) -> tuple[str, ...]:
    """Note what a reader must know about a turn: asked again, stale, turns left out."""
    notes = [f"conversation {turn.origin.conversation}"]
    if turn.is_again:
        notes.append("asked again, the earlier answer is kept as a version")
    if turn.n_later:
        turns = "turn is" if turn.n_later == 1 else "turns are"
        notes.append(f"{turn.n_later} later {turns} now stale")
    return (*notes, turn.fitted.note)

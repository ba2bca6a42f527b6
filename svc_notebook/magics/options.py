"""The options of a magic line: one table, its parser and its help page.

Tab completion reads the same table. Values are checked where requests are built, so
that a flag, a trait and a keyword argument meet the same check.
"""

import keyword
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from textwrap import fill
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAMS, Param
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import MaxTokens

from .subcommands import ASK, COMMANDS, Command


@dataclass(frozen=True, slots=True, kw_only=True)
class SvcOptions:
    """What a magic line asks for.

    Attributes:
        model, system: None where the line does not say.
        params: Parameters by the document's names, as typed and converted.
        max_tokens: A number; `fit` for what is left of the budget; `service` to send
            none; None where the line does not say.
        conversation: Name of the conversation to continue, if any.
        output: Name of the variable that takes the Completion.
        is_streamed: Whether the reply is shown as it comes.
        is_raw: Whether `{{name}}` stays as it is.
        context: Names of what is added to the prompt, as typed.
        layout: How the reply is drawn, one of `LAYOUTS`; None for markdown.
        tools: Names of variables that hold the tools on offer; None where the line
            does not say, empty for none.
        max_rounds: Most requests where tools are run; None where it does not say.
        confirm_tools: Which calls ask first: marked, all or none; None where the line
            does not say.
        repeats: How many times each combination is asked.
        is_dry: Whether to show what would be sent, and send nothing.
        is_strict: Whether a cut reply is a failure.
        is_reused: Whether the ledger may answer an identical request.
        text: What follows the options on the line, as typed.
    """

    model: str | None = None
    system: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    max_tokens: MaxTokens = None
    conversation: str | None = None
    output: str | None = None
    is_streamed: bool = True
    is_raw: bool = False
    context: tuple[str, ...] = ()
    layout: str | None = None
    tools: tuple[str, ...] | None = None
    max_rounds: int | None = None
    confirm_tools: str | None = None
    repeats: int = 1
    is_dry: bool = False
    is_strict: bool = False
    is_reused: bool = False
    text: str = ""

    @property
    def is_several(self) -> bool:
        """Whether the line asks for more than one combination of values."""
        has_list = any(isinstance(value, list) for value in self.params.values())
        return has_list or self.repeats > 1 or "," in (self.model or "")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the line.

    Attributes:
        flags: Its spellings.
        group: Its heading in the help.
        field: What it sets: a field of `SvcOptions`, or a parameter of the request.
        value: What follows it, for the help; empty for a switch.
        doc: What it does.
        read: Makes a value of the text that follows; tuples are added up.
        is_param: Whether it sets a parameter.
    """

    flags: tuple[str, ...]
    group: str
    field: str
    value: str
    doc: str
    read: Callable[[str], object] = str
    is_param: bool = False

    def set(self, options: SvcOptions, text: str) -> SvcOptions:
        """Return the options with the value that a text means."""
        old: object = getattr(options, self.field, None)
        if self.is_param:
            old = options.params.get(self.field)
        value = self.read(text)
        if isinstance(old, tuple) and isinstance(value, tuple):
            value = (*old, *value)
        if self.is_param:
            return replace(options, params={**options.params, self.field: value})
        changes: dict[str, Any] = {self.field: value}
        return replace(options, **changes)


CONFIRMATIONS = ("marked", "all", "none")
LAYOUTS = ("markdown", "text", "code", "json", "html")
_SHORT = {"temperature": "-t", "n": "-n"}


def to_number(text: str) -> int | float | None:
    """Read a number as typed; None if the text is not a number."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def to_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; `none` stands for no names."""
    names = _names(text)
    return () if names == ("none",) else names


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _on(_: str) -> bool:
    return True


def _off(_: str) -> bool:
    return False


def _numbers(text: str) -> object:
    """Read a number, or several separated by commas; a wrong text is refused later."""
    parts = [part.strip() for part in text.split(",")]
    found = [to_number(part) for part in parts]
    values = [
        part if number is None else number
        for part, number in zip(parts, found, strict=True)
    ]
    return values if len(values) > 1 else values[0]


def _integer(name: str, *, at_least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = to_number(text)
        if isinstance(number, int) and number >= at_least:
            return number
        raise ParameterError(
            f"--{name.replace('_', '-')} {text} is not allowed; it takes an integer of "
            f"at least {at_least}.",
            param=name,
        )

    return read


def _max_tokens(text: str) -> object:
    number = to_number(text)
    if text in {"fit", "service"}:
        return text
    if isinstance(number, int):
        return number
    raise ParameterError(
        f"--max-tokens {text} is not allowed; it takes an integer from 1 to 8192, fit "
        "(what the prompt leaves of 8192) or service (send none).",
        param="max_tokens",
    )


def _variable(text: str) -> str:
    is_word = keyword.iskeyword(text)
    if text.isidentifier() and not is_word:
        return text
    why = "a word of Python" if is_word else "not a variable's name"
    raise ParameterError(
        f"-o {text!r} is {why}; use letters, digits and underscores, as in -o answer.",
        param="output",
    )


def _confirmation(text: str) -> str:
    if text in CONFIRMATIONS:
        return text
    raise ParameterError(
        f"--confirm-tools {text!r} is not allowed; it takes marked (calls of tools "
        "made with confirm=True ask first), all or none.",
        param="confirm_tools",
    )


def _layout(text: str) -> str:
    if text in LAYOUTS:
        return text
    raise ParameterError(
        f"--format {text!r} is not a way to draw a reply; use one of "
        f"{', '.join(LAYOUTS)}.",
        param="format",
    )


def _param_option(param: Param) -> Option:
    short = (_SHORT[param.name],) if param.name in _SHORT else ()
    flag = () if param.name == "n" else (param.flag,)
    default = "" if param.default is None else f" (service: {param.default:g})"
    if param.name == "max_tokens":
        doc = "most tokens of the reply; fit takes what 8192 leaves, service sends none"
        words, doc = "N|fit|service", doc + default
        return Option(flag, "Parameters", "max_tokens", words, doc, _max_tokens)
    readers: dict[str, Callable[[str], object]] = {
        "string": str,
        "stops": lambda text: (decode_escapes(text),),
    }
    return Option(
        flags=(*short, *flag),
        group="Parameters",
        field=param.name,
        value={"float": "X", "integer": "N"}.get(param.kind, "TEXT"),
        doc=param.doc + default,
        read=readers.get(param.kind, _numbers),
        is_param=True,
    )


_MODEL = "model to ask; `%svc models` lists the documented ones; a,b asks several"
_CONVERSATION = "continue this conversation; a cell stands alone without it"
_WITH = "add to the prompt: variables, In[3], Out[3], Err, separated by commas"
_RAW = "send the cell as it is, without {{name}}"
_REUSE = "give back the ledger's answer to this very request, if it has one"
_TOOLS = (
    "functions that the model may call: variables, separated by commas; `none` for none"
)
_ROUNDS = "most requests where tools are called; the last one offers none (8)"
_CONFIRM = "which calls ask you first; where nobody can be asked they are denied"
_REPEATS = "ask each combination so often; several values behind commas make a grid"
_FORMAT = (
    "how the reply is drawn; code puts its code into the next cell, html shows it in a "
    "sandboxed frame"
)
_WHOLE = "ask for the reply in one piece; the service then reports its usage"
_DRY = "show what would be sent, with its size; nothing is sent"

OPTIONS = (
    Option(("-m", "--model"), "Ask", "model", "ID", _MODEL),
    Option(("-s", "--system"), "Ask", "system", "TEXT", "system message in front"),
    Option(("-c", "--conversation"), "Ask", "conversation", "NAME", _CONVERSATION),
    Option(("--with",), "Ask", "context", "NAMES", _WITH, _names),
    Option(("--raw",), "Ask", "is_raw", "", _RAW, _on),
    Option(("--reuse",), "Ask", "is_reused", "", _REUSE, _on),
    Option(("--tools",), "Ask", "tools", "NAMES", _TOOLS, to_names),
    Option(
        ("--max-rounds",),
        "Ask",
        "max_rounds",
        "N",
        _ROUNDS,
        _integer("max_rounds", at_least=2),
    ),
    Option(
        ("--confirm-tools",),
        "Ask",
        "confirm_tools",
        "|".join(CONFIRMATIONS),
        _CONFIRM,
        _confirmation,
    ),
    *(_param_option(param) for param in PARAMS),
    Option(
        ("--repeats",),
        "Parameters",
        "repeats",
        "N",
        _REPEATS,
        _integer("repeats", at_least=1),
    ),
    Option(
        ("-o", "--output"),
        "Show",
        "output",
        "NAME",
        "variable that takes the Completion",
        _variable,
    ),
    Option(("-f", "--format"), "Show", "layout", "|".join(LAYOUTS), _FORMAT, _layout),
    Option(("--no-stream",), "Show", "is_streamed", "", _WHOLE, _off),
    Option(("--dry-run",), "Show", "is_dry", "", _DRY, _on),
    Option(("--strict",), "Show", "is_strict", "", "a cut reply is a failure", _on),
)


_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_LONG_FLAGS = {flag for flag in _BY_FLAG if flag.startswith("--")}
_REPEATABLE = {"--stop", "--with"}
_DASH = re.compile(
    "^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}"
    "\N{MINUS SIGN}-]+(?=([\\w-]+))"
)


def parse_options(line: str) -> SvcOptions:
    """Read a magic line by a shell's quoting rules, up to the first word.

    Args:
        line: What follows `%%svc` or `%svc`.

    Returns:
        The options; from the first word that is not an option, the rest is `text`.

    Raises:
        ParameterError: An option is unknown (the nearest is named), lacks its value,
            is given twice or follows the text, or a quote is not closed.
    """
    options, rest, taken = SvcOptions(), line.strip(), set[str]()
    if rest in {"-h", "--help"}:
        return replace(options, text="help")
    while rest and _is_flag(rest.split()[0]):
        options, rest = _take_option(options, rest, taken)
    is_asked, text = _split_ask(rest)
    while is_asked and text and _flag_of(text.split()[0]) in _BY_FLAG:
        options, text = _take_option(options, text, taken)
    if is_asked:
        rest = f"{ASK} {text}".rstrip()
    _check_text(rest)
    return replace(options, text=rest)


def _take_option(
    options: SvcOptions, rest: str, taken: set[str]
) -> tuple[SvcOptions, str]:
    """Take an option and its value off the line, into the options."""
    token, rest = _next_word(rest)
    flag, has_value, value = token.partition("=")
    option = _BY_FLAG.get(flag) or _refuse(flag)
    name = option.flags[-1]
    if name in taken and name not in _REPEATABLE:
        raise ParameterError(f"{name} is given twice; remove one.", param=flag)
    taken.add(name)
    if not option.value and has_value:
        raise ParameterError(f"{flag} is a switch and takes no value.", param=flag)
    if option.value and not has_value:
        value, rest = _next_value(rest, flag, option)
    return option.set(options, value), rest


def _flag_of(word: str) -> str:
    return word.partition("=")[0]


def _split_ask(rest: str) -> tuple[bool, str]:
    """Return whether the first word is `ask`, and what follows it."""
    first = rest.split(maxsplit=1)[:1]
    return first == [ASK], rest.removeprefix(ASK).lstrip()


def _check_text(text: str) -> None:
    """Refuse a text that was meant as options; `ask` sends what follows as typed."""
    words = text.split()
    if not words:
        return
    meant = _DASH.sub(_hyphens, words[0])
    if meant != words[0] and _flag_of(meant) in _BY_FLAG:
        raise ParameterError(
            f"{words[0]!r} begins with a long dash, as word processors write it. Type "
            f"{meant}.",
            param="line",
        )
    late = [word for word in words if _flag_of(word) in _LONG_FLAGS]
    if late and words[0] != ASK:
        raise ParameterError(
            f"{late[0]} comes after the text and would be sent with it. Nothing was "
            f"sent. Put options first; to send these words, write `%svc ask {text}`.",
            param="line",
        )


def _hyphens(dash: re.Match[str]) -> str:
    return "-" if len(dash[1]) == 1 else "--"


_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def _next_word(text: str) -> tuple[str, str]:
    """Split off a word by a shell's quoting rules."""
    found = _WORD.match(text)
    if found is None or not (
        text[found.end() :][:1].isspace() or found.end() == len(text)
    ):
        raise ParameterError(
            f"A quote is not closed: {text!r}; close it, or put a backslash before it.",
            param="line",
        )
    return "".join(shlex.split(found[0])), text[found.end() :].lstrip()


def _is_flag(token: str) -> bool:
    is_dashed = token.startswith("-") and token != "-"  # noqa: S105 - a lone dash
    return is_dashed and to_number(token) is None


def _next_value(rest: str, flag: str, option: Option) -> tuple[str, str]:
    first = rest.split(maxsplit=1)[0] if rest else ""
    if not first or (_is_flag(first) and first.partition("=")[0] in _BY_FLAG):
        raise ParameterError(
            f"{flag} needs a value: {flag} {option.value} ({option.doc}).", param=flag
        )
    return _next_word(rest)


def _refuse(flag: str) -> Option:
    near = get_close_matches(flag, _BY_FLAG, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ParameterError(
        f"{flag} is not an option; {hint}`%svc help` lists them all.", param=flag
    )


_OPENING = """\
%%svc [options]
prompt

Ask the service and stream its reply into the cell. {{name}} puts a variable in.
`%svc [options] question` asks in one line; `%svc ask ...` always asks."""
_EXAMPLES = """\
Examples
  %%svc -t 0.2 -o answer
  Explain server-sent events in two sentences.

  %%svc --model svc-v2-70b-instruct --system "Answer in Thai."
  Summarise for a child: {{article}}

  %%svc -n 3 --stop "\\n\\n" --max-tokens 60
  A name for a tea shop"""
_INDENT = 26
_WIDTH = 78  # fits a terminal of 80, and a notebook with an open side bar


def help_text(defaults: Mapping[str, object]) -> str:
    """Return the help page.

    Args:
        defaults: What applies where a line does not say, by option name.
    """
    groups = groupby(OPTIONS, key=lambda option: option.group)
    sections = [
        "\n".join([group, *(_option_entry(option, defaults) for option in options)])
        for group, options in groups
    ]
    commands = "\n".join(["Commands", *map(_command_entry, COMMANDS)])
    return "\n\n".join([_OPENING, *sections, commands, _EXAMPLES])


def _command_entry(command: Command) -> str:
    return _entry(command.usage, command.doc)


def _option_entry(option: Option, defaults: Mapping[str, object]) -> str:
    flags = ", ".join(option.flags) + (f" {option.value}" if option.value else "")
    now = defaults.get(option.flags[-1].lstrip("-").replace("-", "_"))
    # A blank that no line break replaces, so that the value stays with its word.
    text = option.doc + (f" [now:\N{NO-BREAK SPACE}{now}]" if now is not None else "")
    return _entry(flags, text)


def _entry(name: str, text: str) -> str:
    """Put a text next to its name, or below it if the name is long."""
    gap = " " * _INDENT
    has_room = len(name) <= _INDENT - 4
    head = f"  {name}".ljust(_INDENT) if has_room else gap
    filled = fill(text, _WIDTH, initial_indent=head, subsequent_indent=gap)
    filled = filled.replace("\N{NO-BREAK SPACE}", " ")
    return filled if has_room else f"  {name}\n{filled}"

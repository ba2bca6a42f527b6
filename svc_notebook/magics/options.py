"""The options of a magic line: one table and its parser.

Values of parameters are checked where requests are built, as everywhere.
"""

import keyword
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAMS, Param, did_you_mean, read_extra
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import WORDS, MaxTokens, allowed_max_tokens

from .config_traits import CONFIRMATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SvcOptions:
    """What a magic line asks for; None where the line does not say."""

    model: str | None = None  # as typed; `a,b` for several
    system: str | None = None
    params: dict[str, Any] = field(default_factory=dict)  # by the document's names
    max_tokens: MaxTokens = None
    conversation: str | None = None
    output: str | None = None  # name of the variable that takes the Completion
    type_name: str | None = None  # of the value to give, as typed
    is_streamed: bool = True
    is_raw: bool = False
    context: tuple[str, ...] = ()  # names of what is added to the prompt
    layout: str | None = None  # one of `LAYOUTS`
    tools: tuple[str, ...] | None = None  # names of variables; empty for `none`
    max_rounds: int | None = None
    confirm_tools: str | None = None  # one of `CONFIRMATIONS`
    repeats: int = 1
    is_dry: bool = False
    is_sent: bool = False  # without a look at it first
    is_strict: bool = False
    is_reused: bool | None = None  # None is what the settings say
    is_recorded: bool = True
    text: str = ""  # what follows the options, as typed

    @property
    def is_several(self) -> bool:
        """Whether the line asks for more than one combination of values."""
        has_list = any(isinstance(value, list) for value in self.params.values())
        return has_list or self.repeats > 1 or "," in (self.model or "")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the line."""

    usage: str  # its spellings and what follows, as the help shows them
    group: str  # its heading in the help
    field: str  # the field of `SvcOptions`, or the parameter, that it sets
    doc: str
    read: Callable[[str], object] = str  # makes a value; tuples are added up
    is_param: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Its spellings; the last one is the longest."""
        words = self.usage.replace(",", "").split()
        return tuple(word for word in words if word.startswith("-"))

    @property
    def value(self) -> str:
        """What follows it, such as `NAME`; empty for a switch."""
        return self.usage.partition(self.flags[-1])[2].strip()

    def set(self, options: SvcOptions, text: str) -> SvcOptions:
        """Return the options with the value that a text means."""
        if self.is_param:
            new = self._new(options.params.get(self.field), text)
            return replace(options, params={**options.params, self.field: new})
        changes: dict[str, Any] = {}
        changes[self.field] = self._new(getattr(options, self.field), text)
        return replace(options, **changes)

    def _new(self, old: object, text: str) -> object:
        if not self.value:
            return not self.flags[-1].startswith("--no-")
        value = self.read(text)
        has_more = isinstance(old, tuple) and isinstance(value, tuple)
        return (*old, *value) if has_more else value  # type: ignore[misc]  # just tested


LAYOUTS = ("markdown", "text", "code", "json", "html")


def to_number(text: str) -> int | float | None:
    """Read a number as typed; None if the text is not a number."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return None


def to_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; `none` means no names."""
    names = _names(text)
    return () if names == ("none",) else names


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> object:
    """Read a number, or several separated by commas; a wrong text is refused later."""
    parts = _names(text) or (text,)  # a comma at the end adds no value
    read = [(part, to_number(part)) for part in parts]
    values = [part if number is None else number for part, number in read]
    return values if len(values) > 1 else values[0]


def _not_allowed(flag: str, text: str, allowed: str) -> ParameterError:
    param = flag.lstrip("-").replace("-", "_")
    return ParameterError(f"{flag} must be {allowed}; got {text!r}.", param=param)


def _integer(flag: str, minimum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = to_number(text)
        if isinstance(number, int) and number >= minimum:
            return number
        raise _not_allowed(flag, text, f"an integer >= {minimum}")

    return read


def _one_of(flag: str, words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in words:
            return text
        raise _not_allowed(flag, text, f"{', '.join(words[:-1])} or {words[-1]}")

    return read


def _max_tokens(text: str) -> object:
    number = to_number(text)
    if isinstance(number, int) or text in WORDS:
        return text if number is None else number
    raise _not_allowed("--max-tokens", text, allowed_max_tokens())


def _variable(text: str) -> str:
    is_word = keyword.iskeyword(text)
    if text.isidentifier() and not is_word:
        return text
    why = "a Python keyword" if is_word else "not a variable name"
    raise ParameterError(
        f"-o {text!r} is {why}; use letters, digits and underscores, as in -o answer.",
        param="output",
    )


def _param_option(param: Param) -> Option:
    default = "" if param.default is None else f" (service: {param.default:g})"
    if param.name == "max_tokens":
        doc = "most tokens of the reply; fit takes what 8192 leaves, service sends none"
        usage, doc = f"{param.flag} N|fit|service", doc + default
        return Option(usage, "Parameters", "max_tokens", doc, _max_tokens)
    readers: dict[str, Callable[[str], object]] = {
        "string": str,
        "stops": lambda text: (decode_escapes(text),),
    }
    flags = {"n": "-n", "temperature": f"-t, {param.flag}"}.get(param.name, param.flag)
    value = {"float": "X", "integer": "N"}.get(param.kind, "TEXT")
    return Option(
        f"{flags} {value}",
        "Parameters",
        param.name,
        param.doc + default,
        readers.get(param.kind, _numbers),
        is_param=True,
    )


_MODEL = "model to ask; `%svc models` lists the documented ones; a,b asks several"
_CONVERSATION = "continue this conversation; other cells send no earlier turns"
_WITH = (
    "add to the prompt: variables, In[3], Out[-1], Err, text files such as notes.md, "
    "separated by commas"
)
_RAW = "send the cell as it is, without {{name}}"
_REUSE = "give back the ledger's answer to this very request, if it has one"
_FRESH = "ask again; for where SvcMagics.reuse or SVC_REUSE is on"
_NO_RECORD = "keep this exchange out of the ledger, and so of its frames and usage"
_TOOLS = (
    "functions that the model may call: variables, separated by commas; `none` for none"
)
_ROUNDS = "most requests where tools are called; the last one offers none (8)"
_CONFIRM = "which calls ask you first; where nobody can be asked they are denied"
_EXTRA = (
    "fields that the document does not show, such as '{\"seed\": 1}'; a list of them "
    "asks for each"
)
_REPEATS = "ask this many times; options with several values (0,1) make a grid"
_FORMAT = (
    "how the reply is drawn; code puts its code into the next cell, html shows it in a "
    "sandboxed frame"
)
_OUTPUT = "variable that takes the Completion, or the value of --as"
_AS = "give a value of this type, such as Invoice or list[Invoice]; see svc.extract"
_WHOLE = "ask for the reply in one piece; the service then reports its usage"
_DRY = "show what would be sent, with its size; nothing is sent"
_SEND = "of %svc fix and explain: send at once, without showing what"

OPTIONS = (
    Option("-m, --model ID", "Ask", "model", _MODEL),
    Option("-s, --system TEXT", "Ask", "system", "system message in front"),
    Option("-c, --conversation NAME", "Ask", "conversation", _CONVERSATION),
    Option("--with NAMES", "Ask", "context", _WITH, _names),
    Option("--raw", "Ask", "is_raw", _RAW),
    Option("--reuse", "Ask", "is_reused", _REUSE),
    Option("--fresh, --no-reuse", "Ask", "is_reused", _FRESH),
    Option("--no-record", "Ask", "is_recorded", _NO_RECORD),
    Option("--tools NAMES", "Ask", "tools", _TOOLS, to_names),
    Option("--max-rounds N", "Ask", "max_rounds", _ROUNDS, _integer("--max-rounds", 2)),
    Option(
        f"--confirm-tools {'|'.join(CONFIRMATIONS)}",
        "Ask",
        "confirm_tools",
        _CONFIRM,
        _one_of("--confirm-tools", CONFIRMATIONS),
    ),
    *(_param_option(param) for param in PARAMS),
    Option("--extra JSON", "Parameters", "extra", _EXTRA, read_extra, is_param=True),
    Option("--repeats N", "Parameters", "repeats", _REPEATS, _integer("--repeats", 1)),
    Option("-o, --output NAME", "Show", "output", _OUTPUT, _variable),
    Option(
        f"-f, --format {'|'.join(LAYOUTS)}",
        "Show",
        "layout",
        _FORMAT,
        _one_of("--format", LAYOUTS),
    ),
    Option("--as TYPE", "Show", "type_name", _AS),
    Option("--no-stream", "Show", "is_streamed", _WHOLE),
    Option("--dry-run", "Show", "is_dry", _DRY),
    Option("--send", "Show", "is_sent", _SEND),
    Option("--strict", "Show", "is_strict", "a cut reply is a failure"),
)


BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_LONG_FLAGS = [flag for flag in BY_FLAG if flag.startswith("--")]
_OTHER_FLAGS = {  # of other tools, or a value without its flag
    **dict.fromkeys(("--file", "--files", "--context"), "--with notes.md"),
    **{f"--{layout}": f"-f {layout}" for layout in LAYOUTS},
    "--seed": """--extra '{"seed": 1}'""",
    "--top-k": """--extra '{"top_k": 40}'""",
}
HELP = "help"
ASK, FIX, EXPLAIN, CONTINUE = "ask", "fix", "explain", "continue"
COMMANDS_WITH_OPTIONS = (ASK, FIX, EXPLAIN, CONTINUE)  # options may follow these
_GLUED = re.compile(r"(-[A-Za-z])(-?[\d.].*)")
_REPEATABLE = {"--stop", "--with"}
_DASH = re.compile(
    "^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}"
    "\N{MINUS SIGN}-]+(?=([A-Za-z-]+))"
)


def parse_options(line: str) -> SvcOptions:
    """Read a magic line by a shell's quoting rules.

    From the first word that is not an option, the rest is `text`.
    """
    options, rest, taken = SvcOptions(), line.strip(), set[str]()
    while rest and _is_flag(first := rest.split()[0]):
        if first in {"-h", "--help"}:
            return SvcOptions(text=HELP)
        options, rest = _take_option(options, rest, taken)
    first = rest.split(maxsplit=1)[0] if rest else ""
    if first in COMMANDS_WITH_OPTIONS:
        text = rest.removeprefix(first).lstrip()
        while text and _flag_of(text.split()[0]) in BY_FLAG:
            options, text = _take_option(options, text, taken)
        rest = f"{first} {text}".rstrip()
    _check_text(rest)
    return replace(options, text=rest)


def _take_option(
    options: SvcOptions, rest: str, taken: set[str]
) -> tuple[SvcOptions, str]:
    """Move an option and its value from the line into the options."""
    token, rest = _next_word(rest)
    flag, has_value, value = _split(token)
    option = BY_FLAG.get(flag) or _refuse(flag)
    name = option.flags[-1]
    if name in taken and name not in _REPEATABLE:
        raise ParameterError(f"{name} is given twice; remove one.", param=flag)
    taken.add(name)
    if not option.value and has_value:
        raise ParameterError(f"{flag} is a switch and takes no value.", param=flag)
    if option.value and not has_value:
        value, rest = _next_value(rest, flag, option)
    return option.set(options, value), rest


def _split(word: str) -> tuple[str, bool, str]:
    """Split `--top_p=1` or `-t0.2` into a flag, whether a value follows, and that."""
    if glued := _GLUED.fullmatch(word):
        return glued[1], True, glued[2]
    flag, has_value, value = word.partition("=")
    flag = flag.replace("_", "-") if flag.startswith("--") else flag
    return flag, bool(has_value), value


def _flag_of(word: str) -> str:
    return _split(word)[0]


def _check_text(text: str) -> None:
    """Refuse a text that looks like options; after `ask` it is sent as typed."""
    words = text.split()
    if not words:
        return
    meant = _DASH.sub(_hyphens, words[0])
    if meant != words[0] and _flag_of(meant) in BY_FLAG:
        raise ParameterError(
            f"{words[0]!r} begins with a long dash, which word processors insert. Type "
            f"{meant}.",
            param="line",
        )
    late = [word for word in words if _flag_of(word) in _LONG_FLAGS]
    if late and words[0] not in (ASK, "help"):
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
    word = _WORD.match(text)
    if word is None or not (
        text[word.end() :][:1].isspace() or word.end() == len(text)
    ):
        raise ParameterError(
            f"A quote is not closed: {text!r}; close it, or put a backslash before it.",
            param="line",
        )
    return "".join(shlex.split(word[0])), text[word.end() :].lstrip()


def _is_flag(token: str) -> bool:
    is_dashed = token.startswith("-") and token != "-"  # noqa: S105 - a lone dash
    return is_dashed and to_number(token) is None


def _next_value(rest: str, flag: str, option: Option) -> tuple[str, str]:
    first = rest.split(maxsplit=1)[0] if rest else ""
    if not first or (_is_flag(first) and _flag_of(first) in BY_FLAG):
        raise ParameterError(
            f"{flag} needs a value, {flag} {option.value}: {option.doc}.", param=flag
        )
    return _next_word(rest)


def _refuse(flag: str) -> Option:
    word = f"--{flag.lstrip('-').lower()}"
    known = _LONG_FLAGS if word != "--" else ()
    hint = did_you_mean(word, known, n=4, cutoff=0.7)
    if word in _OTHER_FLAGS:
        hint = f" Did you mean {_OTHER_FLAGS[word]}?"
    raise ParameterError(
        f"{flag} is not an option.{hint} `%svc help` lists them all.", param=flag
    )


def check_record(options: SvcOptions) -> None:
    """Refuse --no-record where the ledger would have the exchange all the same."""
    why = ""
    if options.conversation is not None:
        why = f"-c {options.conversation} sends it again, in turns that are recorded"
    elif options.is_several:
        why = "a grid is read back from the ledger"
    if why and not options.is_recorded:
        raise ParameterError(
            f"--no-record is for one question: {why}. Leave one of the two out.",
            param="record",
        )

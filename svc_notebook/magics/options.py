"""The options of a magic line: one table and its parser.

Values of parameters are checked later, when the request is built.
"""

import keyword
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAMS, Param, did_you_mean, read_extra
from svc_notebook.template import as_variable, decode_escapes
from svc_notebook.tokens import WORDS, MaxTokens, allowed_max_tokens

from .config_traits import CONFIRMATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SvcOptions:
    """The options of a magic line; None for those that the line does not set."""

    model: str | None = None  # as typed; `a,b` for several
    system: str | None = None
    params: dict[str, Any] = field(default_factory=dict)  # by the document's names
    max_tokens: MaxTokens = None
    conversation: str | None = None
    output: str | None = None  # name of the variable that takes the Completion
    type_name: str | None = None  # of the value to give, as typed
    is_streamed: bool = True
    is_raw: bool = False
    context: tuple[str, ...] = ()  # names of variables and files to add to the prompt
    layout: str | None = None  # one of `LAYOUTS`
    tools: tuple[str, ...] | None = None  # names of variables; empty for `none`
    max_rounds: int | None = None
    confirm_tools: str | None = None  # one of `CONFIRMATIONS`
    repeats: int = 1
    is_dry: bool = False
    is_sent: bool = False  # send at once, without showing the request first
    is_strict: bool = False
    is_reused: bool | None = None  # None: the settings decide
    is_recorded: bool = True
    text: str = ""  # what follows the options, as typed

    @property
    def is_several(self) -> bool:
        """Whether the line asks for more than one combination of values."""
        has_list = any(isinstance(value, list) for value in self.params.values())
        return has_list or self.repeats > 1 or "," in (self.model or "")


@dataclass(frozen=True)
class Option:
    """One option of the line."""

    usage: str  # its flags and its value, as the help shows them
    group: str  # its heading in the help
    field: str  # the field of `SvcOptions`, or the parameter, that it sets
    doc: str
    read: Callable[[str], object] = str  # parses a value; tuples are concatenated
    is_param: bool = False

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Its flags; the last one is the longest."""
        words = self.usage.replace(",", "").split()
        return tuple(word for word in words if word.startswith("-"))

    @cached_property
    def value(self) -> str:
        """The placeholder of its value, such as `NAME`; empty for a switch."""
        return self.usage.partition(self.flags[-1])[2].strip()

    def set(self, options: SvcOptions, text: str) -> SvcOptions:
        """Return the options with this option set to the value in a text."""
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
    names = _split_names(text)
    return () if names == ("none",) else names


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> object:
    """Read a number, or several separated by commas; other texts are refused later."""
    parts = _split_names(text) or (text,)  # a comma at the end adds no value
    numbers = [(part, to_number(part)) for part in parts]
    values = [part if number is None else number for part, number in numbers]
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


def _one_of(flag: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in choices:
            return text
        raise _not_allowed(flag, text, f"{', '.join(choices[:-1])} or {choices[-1]}")

    return read


def _max_tokens(text: str) -> object:
    number = to_number(text)
    if isinstance(number, int) or text in WORDS:
        return text if number is None else number
    raise _not_allowed("--max-tokens", text, allowed_max_tokens())


def _variable(text: str) -> str:
    is_word = keyword.iskeyword(text)
    if text.isidentifier() and not is_word:
        return as_variable(text)
    reason = "a Python keyword" if is_word else "not a variable name"
    raise ParameterError(
        f"-o {text!r} is {reason}; use letters, digits and underscores, as in -o "
        "answer.",
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
_SYSTEM = (
    "system message, in quotes; -s {{name}} sends a variable; for a file, first write "
    'name = pathlib.Path("FILE").read_text("utf-8")'
)
_CONVERSATION = (
    "continue this conversation, also one of an earlier kernel; other cells send no "
    "earlier turns"
)
_WITH = (
    "add to the prompt: variables, In[3], Out[-1], Err, text files such as notes.md, "
    "separated by commas"
)
_RAW = "send the cell as it is; {{name}} is not filled in"
_REUSE = "return the ledger's answer to an identical request, if it has one"
_FRESH = "ask again; also if SvcMagics.reuse or SVC_REUSE is on"
_NO_RECORD = "do not record this exchange: the ledger, frames and usage leave it out"
_TOOLS = (
    "functions that the model may call: variables, separated by commas; `none` for none"
)
_ROUNDS = "most requests of a reply with tool calls; the last one offers no tools (8)"
_CONFIRM = "which calls ask you first; they are denied if nobody can be asked"
_EXTRA = (
    "fields that the document does not show, such as '{\"seed\": 1}'; a list of them "
    "asks once for each"
)
_REPEATS = "ask this many times; options with several values (0,1) make a grid"
_FORMAT = (
    "how the reply is drawn; code puts its code into the next cell, html shows it in a "
    "sandboxed frame"
)
_OUTPUT = (
    "variable that gets the Completion, or the value of --as; of several replies, a "
    'run: NAME.reply(model="ID").text is one text'
)
_AS = "return a value of this type, such as Invoice or list[Invoice]; see svc.extract"
_WHOLE = "ask for the reply in one piece; the service then reports its usage"
_DRY = "show what would be sent, with its size; nothing is sent"
_SEND = "for %svc fix and explain: send at once, without showing the request first"

OPTIONS = (
    Option("-m, --model ID", "Ask", "model", _MODEL),
    Option("-s, --system TEXT", "Ask", "system", _SYSTEM),
    Option("-c, --conversation NAME", "Ask", "conversation", _CONVERSATION),
    Option("--with NAMES", "Ask", "context", _WITH, _split_names),
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
    Option("--strict", "Show", "is_strict", "raise an error if the reply is cut"),
)


BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_LONG_FLAGS = [flag for flag in BY_FLAG if flag.startswith("--")]
_OTHER_FLAGS = {  # flags of other tools, and values without their flag
    **dict.fromkeys(("--file", "--files", "--context"), "--with notes.md"),
    **{f"--{layout}": f"-f {layout}" for layout in LAYOUTS},
    "--seed": """--extra '{"seed": 1}'""",
    "--top-k": """--extra '{"top_k": 40}'""",
}
HELP = "help"
ASK, FIX, EXPLAIN, CONTINUE = "ask", "fix", "explain", "continue"
COMMANDS_WITH_OPTIONS = (ASK, FIX, EXPLAIN, CONTINUE)  # options may follow these
_GLUED = re.compile(r"(-[A-Za-z])(-?[\d.].*)")
_READS_LISTS = (_numbers, _split_names, to_names)
_REPEATABLE = {"--stop", "--with"}
_LATE_DASH = re.compile(r"(?<=\s)-(?=[a-z-])")
_UNQUOTED_SYSTEM = re.compile(r"(?:^|\s)(-s|--system)[\s=]+([^\s'\"]+)\s+$")
_CURLY_QUOTED = re.compile(
    "(--?[A-Za-z][A-Za-z_-]*)[\\s=]+"
    "([\N{LEFT SINGLE QUOTATION MARK}-\N{DOUBLE HIGH-REVERSED-9 QUOTATION MARK}"
    "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}"
    "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}])"
)
_USUAL_VALUES = {  # short options are also those of programs that a text is about
    "-m": r"[\w.:,-]*[\d/-][\w.:/,-]*",
    "-s": r".*\s.*",
    "-c": r"[\w-]+",
    "-t": r"[\d.,]+",
    "-n": r"\d+",
    "-o": r"[^\W\d]\w*",
    "-f": "|".join(LAYOUTS),
}
_DASH = re.compile(
    "^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}"
    "\N{MINUS SIGN}-]+(?=([A-Za-z-]+))"
)


def parse_options(line: str) -> SvcOptions:
    """Read a magic line with the quoting rules of a shell.

    `text` is everything from the first word that is not an option.
    """
    options, rest, seen_flags = SvcOptions(), line.strip(), set[str]()
    while rest and _is_flag(first := rest.split()[0]):
        if first in {"-h", "--help"}:
            return SvcOptions(text=HELP)
        options, rest = _take_option(options, rest, seen_flags)
    before = line.strip().removesuffix(rest)
    first = rest.split(maxsplit=1)[0] if rest else ""
    if first in COMMANDS_WITH_OPTIONS:
        text = rest.removeprefix(first).lstrip()
        while text and _flag_of(text.split()[0]) in BY_FLAG:
            options, text = _take_option(options, text, seen_flags)
        rest = f"{first} {text}".rstrip()
    _check_text(rest, before)
    return replace(options, text=rest)


def _take_option(
    options: SvcOptions, rest: str, seen_flags: set[str]
) -> tuple[SvcOptions, str]:
    """Move an option and its value from the line into the options."""
    typed = rest
    token, rest = _next_word(rest)
    flag, has_value, value = _split(token)
    option = BY_FLAG.get(flag) or _refuse_unknown(flag)
    name = option.flags[-1]
    if name in seen_flags and name not in _REPEATABLE:
        raise ParameterError(f"{name} is given twice; remove one.", param=flag)
    seen_flags.add(name)
    if not option.value and has_value:
        raise ParameterError(f"{flag} is a switch and takes no value.", param=flag)
    if option.value:
        _check_quotes(typed)
    if option.value and not has_value:
        value, rest = _next_value(rest, flag, option)
    is_list = option.field == "model" or option.read in _READS_LISTS
    if is_list and ((value.endswith(",") and rest) or rest.startswith(",")):
        raise _blank_after_comma(flag, option)
    return option.set(options, value), rest


def _check_quotes(typed: str) -> None:
    """Refuse a value in typographic quotes: the words behind the first would be text.

    Without blanks they are refused as well, since they would be part of the value.
    """
    if quoted := _CURLY_QUOTED.match(typed):
        raise ParameterError(
            f"{quoted[1]}: {quoted[2]} is a quote that word processors insert, and is "
            f'not one here. Type straight quotes: {quoted[1]} "...". To send '
            f"{quoted[2]} itself, put it in them as well.",
            param=quoted[1],
        )


def _blank_after_comma(flag: str, option: Option) -> ParameterError:
    """Return the error for several values with blanks between them."""
    example = "0,0.7" if option.read is _numbers else "a,b"
    return ParameterError(
        f"Several values have a comma and no blank between them: `{flag} {example}`.",
        param="line",
    )


def _split(word: str) -> tuple[str, bool, str]:
    """Split `--top_p=1` or `-t0.2` into flag, whether it has a value, and value."""
    if glued := _GLUED.fullmatch(word):
        return glued[1], True, glued[2]
    flag, has_value, value = word.partition("=")
    flag = flag.replace("_", "-") if flag.startswith("--") else flag
    return flag, bool(has_value), value


def _flag_of(word: str) -> str:
    return _split(word)[0]


def _check_text(text: str, before: str) -> None:
    """Refuse a text that contains options; after `ask`, any text is sent as typed.

    `before` are the options in front of it.
    """
    words = text.split()
    if not words:
        return
    with_hyphens = _DASH.sub(_hyphens, words[0])
    if with_hyphens != words[0] and _flag_of(with_hyphens) in BY_FLAG:
        raise ParameterError(
            f"{words[0]!r} begins with a long dash, which word processors insert. Type "
            f"{with_hyphens}.",
            param="line",
        )
    late = [word for word in words if _flag_of(word) in _LONG_FLAGS]
    if late and words[0] not in {ASK, HELP}:
        raise _late(late[0], text, before)


def check_question(text: str, line: str) -> None:
    """Refuse a question of a line that ends with options, also short ones."""
    at_end = _options_at_end(text)
    if at_end and text.split(maxsplit=1)[0] != ASK:
        before = line.removesuffix(text) if line.endswith(text) else ""
        raise _late(at_end.split()[0], text, before)


def _late(flag: str, text: str, before: str) -> ParameterError:
    at_end = _options_at_end(text)
    if unquoted := _UNQUOTED_SYSTEM.search(before):
        first_words = re.split(rf"(?<!\S){re.escape(flag)}", text, maxsplit=1)[0]
        words = f"{unquoted[2]} {first_words.strip()}"
        if '"' not in words:
            return ParameterError(
                f"{unquoted[1]} takes one word, or several in quotes: "
                f'`{unquoted[1]} "{words}"`. Nothing was sent. If {unquoted[2]} is all '
                f"of it, put {flag} before the question.",
                param="line",
            )
    way = f": `%svc {before}{at_end} {text.removesuffix(at_end).strip()}`"
    return ParameterError(
        f"{flag} comes after the text and would be sent with it. Nothing was sent. Put "
        f"options first{way * bool(at_end)}; to send these words, write `%svc {before}"
        f"ask {text}`.",
        param="line",
    )


def _options_at_end(text: str) -> str:
    """Return the options with which a text ends; "" if it does not."""
    ends = (text[dash.start() :] for dash in _LATE_DASH.finditer(text))
    return next(filter(_is_all_options, ends), "")


def _is_all_options(text: str) -> bool:
    """Say whether a text is only options, with values that are usual for them."""
    rest = text
    with suppress(ParameterError):
        while rest:
            token, rest = _next_word(rest)
            flag, has_value, value = _split(token)
            option = BY_FLAG.get(flag)
            if option and option.value and not has_value:
                value, rest = _next_value(rest, flag, option)
            usual = _USUAL_VALUES.get(flag, ".*")
            if option is None or not re.fullmatch(usual, value, re.DOTALL):
                return False
        return True
    return False


def _hyphens(dash: re.Match[str]) -> str:
    return "-" if len(dash[1]) == 1 else "--"


_PLAIN = re.compile(r"""[^'"\\]+""")  # a word without quotes
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def _next_word(text: str) -> tuple[str, str]:
    """Split off the first word, with the quoting rules of a shell."""
    word = _WORD.match(text)
    if word is None or not (
        text[word.end() :][:1].isspace() or word.end() == len(text)
    ):
        raise ParameterError(
            f"A quote is not closed: {text!r}; close it, or put a backslash before it.",
            param="line",
        )
    plain = word[0] if _PLAIN.fullmatch(word[0]) else "".join(shlex.split(word[0]))
    return plain, text[word.end() :].lstrip()


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


def _refuse_unknown(flag: str) -> Option:
    word = f"--{flag.lstrip('-').lower()}"
    known = _LONG_FLAGS if word != "--" else ()
    hint = did_you_mean(word, known, n=4, cutoff=0.7)
    if word in _OTHER_FLAGS:
        hint = f" Did you mean {_OTHER_FLAGS[word]}?"
    raise ParameterError(
        f"{flag} is not an option.{hint} `%svc help` lists them all.", param=flag
    )


def check_record(options: SvcOptions) -> None:
    """Refuse --no-record where the ledger is needed, or would get the prompt anyway."""
    reason = ""
    if options.conversation is not None:
        reason = f"-c {options.conversation} sends it again, in turns that are recorded"
    elif options.is_several:
        reason = "a grid is read back from the ledger"
    if reason and not options.is_recorded:
        raise ParameterError(
            f"--no-record is for one question: {reason}. Leave one of the two out.",
            param="record",
        )

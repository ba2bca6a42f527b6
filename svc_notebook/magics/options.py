"""The options of a magic line: one table.

The parser, the help and Tab completion read it. Rules: pure; values are checked
where requests are built (`service.request`), so that a flag, a trait and a keyword
argument meet the same check.
"""

import keyword
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAMS, Param
from svc_notebook.tokens import MaxTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SvcOptions:
    """What a magic line asks for.

    Attributes:
        model, system: None where the line does not say.
        params: Parameters by the document's names, as typed and converted.
        max_tokens: A number; `fit` for what is left of the budget; `service` to send
            none; None where the line does not say.
        conversation: Name of the conversation to continue; None to stand alone.
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
        text: What stood on the line behind the options, as typed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the line.

    Attributes:
        flags: Its spellings.
        group: The heading it stands under in the help.
        value: What follows it, for the help; empty for a switch.
        doc: What it does.
        take: Puts the value typed behind it into the options.
    """

    flags: tuple[str, ...]
    group: str
    value: str = ""
    doc: str
    take: Callable[[SvcOptions, str], SvcOptions]


CONFIRMATIONS = ("marked", "all", "none")
LAYOUTS = ("markdown", "text", "code", "json", "html")
_SHORT = {"temperature": "-t", "n": "-n"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def _param_option(param: Param) -> Option:
    short = (_SHORT[param.name],) if param.name in _SHORT else ()
    flag = () if param.name == "n" else (param.flag,)
    default = "" if param.default is None else f" (service: {param.default:g})"
    if param.name == "max_tokens":
        return Option(
            flags=flag,
            group="Parameters",
            value="N|fit|service",
            doc="most tokens of the reply; fit takes what 8192 leaves, service sends "
            f"none{default}",
            take=_take_max_tokens,
        )
    return Option(
        flags=(*short, *flag),
        group="Parameters",
        value={"float": "X", "integer": "N"}.get(param.kind, "TEXT"),
        doc=param.doc + default,
        take=_take_stop if param.kind == "stops" else _taker(param),
    )


def _taker(param: Param) -> Callable[[SvcOptions, str], SvcOptions]:
    def take(options: SvcOptions, text: str) -> SvcOptions:
        value = text if param.kind == "string" else _numbers(text)
        return replace(options, params={**options.params, param.name: value})

    return take


def _numbers(text: str) -> object:
    """Read a number, or several behind commas; the check refuses a wrong text."""
    parts = [part.strip() for part in text.split(",")]
    found = [to_number(part) for part in parts]
    values = [
        part if number is None else number
        for part, number in zip(parts, found, strict=True)
    ]
    return values if len(values) > 1 else values[0]


def _take_repeats(options: SvcOptions, text: str) -> SvcOptions:
    number = to_number(text)
    if not isinstance(number, int) or number < 1:
        raise ParameterError(
            f"--repeats {text} is not allowed; it takes an integer of at least 1.",
            param="repeats",
        )
    return replace(options, repeats=number)


def _take_stop(options: SvcOptions, text: str) -> SvcOptions:
    stops = (*options.params.get("stop", ()), decode_escapes(text))
    return replace(options, params={**options.params, "stop": stops})


def _take_max_tokens(options: SvcOptions, text: str) -> SvcOptions:
    if text in {"fit", "service"}:
        return replace(options, max_tokens=text)  # type: ignore[arg-type]  # just tested
    number = to_number(text)
    if not isinstance(number, int):
        raise ParameterError(
            f"--max-tokens {text} is not allowed; it takes an integer from 1 to 8192, "
            "fit (what 8192 leaves beside the prompt) or service (send none).",
            param="max_tokens",
        )
    return replace(options, max_tokens=number)


def _take_output(options: SvcOptions, text: str) -> SvcOptions:
    is_word = keyword.iskeyword(text)
    if is_word or not text.isidentifier():
        why = "a word of Python" if is_word else "not a variable's name"
        raise ParameterError(
            f"-o {text!r} is {why}; use letters, digits and underscores, as in "
            "-o answer.",
            param="output",
        )
    return replace(options, output=text)


def _take_context(options: SvcOptions, text: str) -> SvcOptions:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return replace(options, context=(*options.context, *names))


def to_names(text: str) -> tuple[str, ...]:
    """Read names behind commas; `none` is no name at all."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return () if names == ("none",) else names


def _take_max_rounds(options: SvcOptions, text: str) -> SvcOptions:
    number = to_number(text)
    if not isinstance(number, int):
        raise ParameterError(
            f"--max-rounds {text} is not allowed; it takes an integer of at least 2.",
            param="max_rounds",
        )
    return replace(options, max_rounds=number)


def _take_confirm(options: SvcOptions, text: str) -> SvcOptions:
    if text not in CONFIRMATIONS:
        raise ParameterError(
            f"--confirm-tools {text!r} is not allowed; it takes marked (calls of tools "
            "made with confirm=True ask first), all or none.",
            param="confirm_tools",
        )
    return replace(options, confirm_tools=text)


def _take_layout(options: SvcOptions, text: str) -> SvcOptions:
    if text not in LAYOUTS:
        raise ParameterError(
            f"--format {text!r} is not a way to draw a reply; use one of "
            f"{', '.join(LAYOUTS)}.",
            param="format",
        )
    return replace(options, layout=text)


OPTIONS = (
    Option(
        flags=("-m", "--model"),
        group="Ask",
        value="ID",
        doc="model to ask; `%svc models` lists the documented ones; a,b asks several",
        take=lambda options, text: replace(options, model=text),
    ),
    Option(
        flags=("-s", "--system"),
        group="Ask",
        value="TEXT",
        doc="system message in front",
        take=lambda options, text: replace(options, system=text),
    ),
    Option(
        flags=("-c", "--conversation"),
        group="Ask",
        value="NAME",
        doc="continue this conversation; a cell stands alone without it",
        take=lambda options, text: replace(options, conversation=text),
    ),
    Option(
        flags=("--with",),
        group="Ask",
        value="NAMES",
        doc="add to the prompt: variables, In[3], Out[3], Err, separated by commas",
        take=_take_context,
    ),
    Option(
        flags=("--raw",),
        group="Ask",
        doc="send the cell as it is, without {{name}}",
        take=lambda options, _: replace(options, is_raw=True),
    ),
    Option(
        flags=("--reuse",),
        group="Ask",
        doc="give back the ledger's answer to this very request, if it has one",
        take=lambda options, _: replace(options, is_reused=True),
    ),
    Option(
        flags=("--tools",),
        group="Ask",
        value="NAMES",
        doc="functions that the model may call: variables, separated by commas; `none` "
        "for none",
        take=lambda options, text: replace(options, tools=to_names(text)),
    ),
    Option(
        flags=("--max-rounds",),
        group="Ask",
        value="N",
        doc="most requests where tools are called; the last one offers none (8)",
        take=_take_max_rounds,
    ),
    Option(
        flags=("--confirm-tools",),
        group="Ask",
        value="|".join(CONFIRMATIONS),
        doc="which calls ask you first; where nobody can be asked they are denied",
        take=_take_confirm,
    ),
    *(_param_option(param) for param in PARAMS),
    Option(
        flags=("--repeats",),
        group="Parameters",
        value="N",
        doc="ask each combination so often; several values behind commas make a grid",
        take=_take_repeats,
    ),
    Option(
        flags=("-o", "--output"),
        group="Show",
        value="NAME",
        doc="variable that takes the Completion",
        take=_take_output,
    ),
    Option(
        flags=("-f", "--format"),
        group="Show",
        value="|".join(LAYOUTS),
        doc="how the reply is drawn; code puts its code into the next cell, html shows "
        "it in a sandboxed frame",
        take=_take_layout,
    ),
    Option(
        flags=("--no-stream",),
        group="Show",
        doc="ask for the reply in one piece; the service then reports its usage",
        take=lambda options, _: replace(options, is_streamed=False),
    ),
    Option(
        flags=("--dry-run",),
        group="Show",
        doc="show what would be sent, with its size; nothing is sent",
        take=lambda options, _: replace(options, is_dry=True),
    ),
    Option(
        flags=("--strict",),
        group="Show",
        doc="a cut reply is a failure",
        take=lambda options, _: replace(options, is_strict=True),
    ),
)


def to_number(text: str) -> int | float | None:
    """Read a number as typed; None if it is none."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def decode_escapes(text: str) -> str:
    r"""Turn \n, \t, \r and \\ as typed into what they stand for."""
    pieces = iter(text)
    return "".join(
        _ESCAPES.get(following := next(pieces, ""), "\\" + following)
        if piece == "\\"
        else piece
        for piece in pieces
    )

"""Request parameters: their table, and checks of arguments (doc: Request body, Limits).

Flags, help, Tab completion, columns of frames and fields of the panel are made from
`PARAMS`. A value that the document does not show is None. Parameters of other servers
go into `extra`. Messages never repeat a value that may be a key or a prompt: see
`shown`.
"""

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

import msgspec

from svc_notebook.errors import ParameterError

from .catalogue import BUDGET_TOKENS, DEFAULT_MAX_TOKENS, DOCUMENTED, ModelInfo

_SHOWN_CHARS = 24  # a longer text may be a key or a prompt
_SHOWN_BITS = 64  # of an integer
_BOOLEANS = frozenset({"bool", "bool_"})  # numpy's too, without importing it


def check_int(
    name: str,
    value: object,
    *,
    minimum: int | None = None,
    otherwise: str = "",
) -> int:
    """Return an argument if it is an integer, at least `minimum`.

    `otherwise` is what else the message allows, such as "or None to never ask".
    """
    number = as_int(value)
    if number is None or not is_within(number, minimum, None):
        allowed = range_text("an integer", minimum, None)
        raise must_be(name, allowed, value, otherwise=otherwise)
    return number


def check_positive(name: str, value: object, *, kind: str = "a number") -> int | float:
    """Return an argument if it is finite and greater than 0.

    `kind` is what it is, such as "a number of seconds".
    """
    number = as_number(value)
    if number is None or not is_within(number, None, None) or number <= 0:
        raise must_be(name, f"{kind} > 0", value)
    return number


def check_share(name: str, value: object) -> None:
    """Refuse what is not a number between 0 and 1, both excluded."""
    number = as_number(value)
    if number is None or not 0 < number < 1:
        raise must_be(name, "between 0 and 1, such as 0.95", value)


def check_flag(name: str, value: object) -> None:
    """Refuse a value that is neither True nor False, as any text would be true."""
    if type(value).__name__ not in _BOOLEANS:
        raise must_be(name, "True or False", value)


def must_be(
    name: str, allowed: str, value: object, *, otherwise: str = "", hint: str = ""
) -> ParameterError:
    """Build the error for an argument.

    Args:
        name: The argument.
        allowed: What is allowed, such as "an integer >= 1".
        value: The value that is not allowed; it is only named if it is harmless.
        otherwise: What else is allowed, such as "or None to never ask".
        hint: Another sentence.
    """
    alternative = f", {otherwise}" if otherwise else ""
    sentence = f" {hint}" if hint else ""
    return ParameterError(
        f"{name} must be {allowed}{alternative}; got {shown(value)}.{sentence}",
        param=name,
    )


def as_int(value: object) -> int | None:
    """Return an integer (numpy's as a plain int); None for any other value."""
    number = as_number(value)
    return number if isinstance(number, int) else None


def as_number(value: object) -> int | float | None:
    """Return a number (numpy's as a plain one); None for any other value.

    True and False are not numbers here; nan and infinity are.
    """
    if type(value).__name__ in _BOOLEANS:
        return None
    if type(value) in {int, float}:
        return value  # type: ignore[return-value]  # just tested, exactly
    item = getattr(value, "item", None)  # a numpy scalar, without importing numpy
    plain = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    is_number = isinstance(plain, (int, float)) and not isinstance(plain, bool)
    return plain if is_number else None


def is_within(number: float, minimum: float | None, maximum: float | None) -> bool:
    """Say whether a number is finite and within its bounds, both included."""
    if type(number) is float and not math.isfinite(number):
        return False
    is_large_enough = minimum is None or number >= minimum
    return is_large_enough and (maximum is None or number <= maximum)


def range_text(kind: str, minimum: float | None, maximum: float | None) -> str:
    """Return the allowed numbers as a text, such as "a number from 0 to 2"."""
    if minimum is not None and maximum is not None:
        return f"{kind} from {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f"{kind} >= {minimum:g}"
    return kind if maximum is None else f"{kind} <= {maximum:g}"


def shown(value: object) -> str:
    """Return the repr of a number or a short word; of other values only their kind."""
    if isinstance(value, str):
        is_number = value.lstrip("+-").replace(".", "", 1).isdigit()
        is_word = value.isalpha() or is_number or not value
        is_shown = is_word and len(value) <= _SHOWN_CHARS
        return repr(value) if is_shown else f"a text of {len(value)} characters"
    number = as_number(value)
    if isinstance(number, int) and number.bit_length() > _SHOWN_BITS:
        return f"an integer of {number.bit_length()} bits"
    is_plain = number is not None or isinstance(value, bool) or value is None
    return repr(value) if is_plain else f"a value of type {type(value).__name__}"


def near_names(
    name: str,
    known: Iterable[str],
    *,
    n: int = 3,
    cutoff: float = 0.6,
    least_chars: int | None = 2,
) -> list[str]:
    """Return the known names that begin with `name`, else the most similar ones.

    Beginnings are only compared if `name` has at least `least_chars` characters; never
    if that is None. `cutoff` is the lowest similarity, from 0 to 1 (see `difflib`).
    """
    names = list(known)
    is_long = least_chars is not None and len(name) >= least_chars
    with_prefix = [
        known_name for known_name in names if is_long and known_name.startswith(name)
    ]
    return (with_prefix or get_close_matches(name, names, n=n, cutoff=cutoff))[:n]


_LEAST_LETTERS = 3  # fewer are in most names


def did_you_mean(
    name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.6
) -> str:
    """Return " Did you mean a, b?" with similar known names; "" without any.

    Names that `name` shortens, as `tmp` does `temperature`, come before similar ones.
    """
    names = list(known)
    is_long = sum(map(str.isalnum, name)) >= _LEAST_LETTERS
    longer = [each for each in names if is_long and _is_short_for(name, each)]
    near = near_names(name, longer or names, n=n, cutoff=0.0 if longer else cutoff)
    return f" Did you mean {', '.join(near)}?" if near else ""


def _is_short_for(name: str, longer: str) -> bool:
    """Whether a name is another one with letters left out after the first."""
    letters = iter(longer)
    return name[:1] == longer[:1] and all(letter in letters for letter in name)


def shorten(text: str, n_chars: int) -> str:
    """Shorten a text to at most this many characters; "..." marks what is left out."""
    return text if len(text) <= n_chars else text[: n_chars - 3] + "..."


def check_text(text: str, *, param: str, name: str = "") -> str:
    """Return the text unchanged if UTF-8 can encode it; `name` is for the message."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        where = problem.start
    else:
        return text
    raise ParameterError(
        f"{name or param} contains half of a surrogate pair at position {where}, which "
        "UTF-8 cannot encode; remove it, for example with "
        "text.encode('utf-8', 'replace').decode().",
        param=param,
    )


_HOST = r"(localhost|\[[0-9a-f:]+\]|(\d+\.){3}\d+)"
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*:/|\S*/v1/?$"  # with a scheme, or with the path /v1
    rf"|{_HOST}(:\d+)?(/|$)"
    r"|[\w-]+(\.[\w-]+)*:\d{2,5}(/|$)",  # with a port; but `gemma:2` may be a model id
    re.IGNORECASE,
)


def has_address_form(text: str) -> bool:
    """Say whether a text looks like an address, even without a scheme."""
    return _ADDRESS.match(text.strip()) is not None


def printable(text: str) -> str:
    """Return the text with escapes for control and other invisible characters."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text.encode("utf-8", "replace").decode()
    )


def one_line(text: str, n_chars: int = 60) -> str:
    """Return a text as one printable line, cut if it is long."""
    return printable(shorten(text, n_chars))


HEAD_CHARS = 200  # of an unreadable body, in a message


def head_of(body: bytes) -> str:
    """Return the first characters of a body, made printable."""
    return printable(body[: 4 * HEAD_CHARS].decode("utf-8", "replace")[:HEAD_CHARS])


MAX_STOPS = 4  # doc: Limits, stop sequences

ParamKind = Literal["integer", "float", "string", "stops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One row of the document's request table; None if it shows no value.

    Both bounds are allowed values. `doc` is for help texts; `is_offered` says whether
    the panel has a field for the parameter.
    """

    name: str
    kind: ParamKind
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = None
    doc: str
    is_offered: bool = True

    @property
    def flag(self) -> str:
        """The option in a magic line."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """The allowed values, as a text."""
        if self.kind == "stops":
            return f"a text or up to {MAX_STOPS} texts"
        if self.kind == "string":
            return "a text"
        kind = "an integer" if self.kind == "integer" else "a number"
        return range_text(kind, self.minimum, self.maximum)


PARAMS = (
    Param(
        name="max_tokens",
        kind="integer",
        minimum=1,
        maximum=BUDGET_TOKENS,
        default=DEFAULT_MAX_TOKENS,
        doc="most tokens to generate; prompt and reply share 8192",
    ),
    Param(
        name="temperature",
        kind="float",
        minimum=0,
        maximum=2,
        default=0.7,
        doc="higher is more random, lower more deterministic",
    ),
    Param(
        name="top_p",
        kind="float",  # the document gives no range
        default=1,
        doc="nucleus sampling; change this or temperature, not both",
    ),
    Param(name="n", kind="integer", minimum=1, default=1, doc="number of choices"),
    Param(name="stop", kind="stops", doc="up to 4 sequences at which generation stops"),
    Param(
        name="presence_penalty",
        kind="float",
        minimum=-2,
        maximum=2,
        default=0,
        doc="positive values penalize tokens that have already appeared",
    ),
    Param(
        name="frequency_penalty",
        kind="float",
        minimum=-2,
        maximum=2,
        default=0,
        doc="positive values penalize tokens by how often they have appeared",
    ),
    Param(
        name="repetition_penalty",
        kind="float",
        minimum=1,
        maximum=2,
        default=1,
        doc="penalizes repeated tokens; 1.05 is suggested when output repeats",
    ),
    Param(
        name="user",
        kind="string",
        doc="identifier of the end user, for monitoring and abuse detection",
        is_offered=False,
    ),
)
PARAM_NAMES = tuple(param.name for param in PARAMS)


class OtherParams(TypedDict, total=False):
    """The parameters of a request by the document's names, without max_tokens.

    A parameter that is left out or None is not sent; the service's default applies.
    """

    temperature: float | None
    top_p: float | None
    n: int | None
    stop: str | Sequence[str] | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    user: str | None
    tools: Any  # definitions; the verbs take functions and toolboxes too
    extra: Mapping[str, Any] | None


class Params(OtherParams, total=False):
    """The parameters of a request (doc: Request body)."""

    max_tokens: int | None


_BY_NAME = {param.name: param for param in PARAMS}
_OTHER_NAMES = ("model", "messages", "system", "tools", "extra")
_PROMPT_FIRST = (
    "The prompt goes first, without a name: complete('...') or complete([...]) with "
    "messages."
)
_OTHER_ARGUMENTS = {
    "answer": "answer is for svc.sweep. One reply of your own type is "
    "svc.extract(TYPE, prompt).",
    "stream": "To stream a reply, use stream(...) instead of complete(...).",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
}


def check(name: str, value: object, info: ModelInfo = DOCUMENTED) -> object:
    """Return one parameter's value if the document allows it.

    The document's ranges apply to the service. For models of other servers, any number
    and any number of stop sequences is allowed, and max_tokens up to the context.

    Raises:
        ParameterError: The name is unknown (the message has the nearest name), or the
            value has another type or is out of range.
    """
    param = _BY_NAME.get(name)
    if param is None:
        raise unknown_param(name)
    if not info.is_documented:
        param = replace(param, minimum=None, maximum=None)
    if name == "max_tokens":
        param = replace(param, maximum=info.context_tokens)
    if param.kind == "stops":
        return _check_stops(param, value, info)
    if param.kind == "string":
        if not isinstance(value, str):
            raise _not_allowed(param, value)
        return check_text(value, param=name)
    number = as_int(value) if param.kind == "integer" else as_number(value)
    if number is None or not is_within(number, param.minimum, param.maximum):
        raise _not_allowed(param, value)
    return number


def beyond_document(params: Mapping[str, object]) -> tuple[str, ...]:
    """Return the parameters that the document does not allow, as "name=value"."""
    beyond = []
    for name, value in params.items():
        most = BUDGET_TOKENS if name != "max_tokens" else sys.maxsize
        info = msgspec.structs.replace(DOCUMENTED, context_tokens=most)
        try:
            check(name, value, info)
        except ParameterError:
            beyond.append(f"{name}={shown(value)}")
    return tuple(beyond)


def check_all(
    params: Mapping[str, object], info: ModelInfo = DOCUMENTED
) -> dict[str, object]:
    """Check every parameter; leave out those that are None."""
    checked: dict[str, object] = {}
    for name, value in params.items():
        if value is None and (name in _BY_NAME or name == "tools"):
            continue
        checked[name] = (
            _check_tools(value) if name == "tools" else check(name, value, info)
        )
    return checked


def unknown_param(name: str) -> ParameterError:
    """Build the error for an unknown parameter, with the nearest known name."""
    if name in _OTHER_ARGUMENTS:
        return ParameterError(_OTHER_ARGUMENTS[name], param=name)
    return ParameterError(
        f"{name!r} is not a parameter of the service."
        f"{did_you_mean(name, [*PARAM_NAMES, *_OTHER_NAMES], n=1)} The parameters are "
        f"{', '.join(PARAM_NAMES)}. To send a field that is not "
        f"documented, use extra={{{name!r}: ...}}.",
        param=name,
    )


def _check_stops(param: Param, value: object, info: ModelInfo) -> str | tuple[str, ...]:
    if isinstance(value, str) and value:
        return check_text(value, param="stop")
    most = MAX_STOPS if info.is_documented else sys.maxsize
    if isinstance(value, Sequence) and 1 <= len(value) <= most:
        stops: tuple[object, ...] = tuple(value)
        if all(isinstance(stop, str) and stop for stop in stops):
            return tuple(check_text(str(stop), param="stop") for stop in stops)
    raise _not_allowed(param, value)


def _check_tools(value: object) -> tuple[Mapping[str, Any], ...]:
    if callable(value):
        raise function_given()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ParameterError(
            f"tools is {type(value).__name__}; give a list of tool definitions.",
            param="tools",
        )
    return tuple(check_definition(tool) for tool in value)


_OWN_FIELDS = frozenset({"model", "messages", "stream", "tools", *PARAM_NAMES})


def check_extra(extra: object) -> dict[str, Any]:
    """Return fields that the document does not show, by name.

    A text is read as JSON; cells and panels pass texts.
    """
    if extra is None:
        return {}
    if isinstance(extra, str):
        extra = read_extra(extra)
    if not isinstance(extra, Mapping):
        allowed = "a mapping of names to values, such as extra={'name': 1}"
        raise must_be("extra", allowed, extra)
    own_names = [name for name in extra if name in _OWN_FIELDS]
    if own_names:
        raise ParameterError(
            f"extra contains {own_names[0]!r}, which is a parameter of the service. "
            f"Give it as {own_names[0]}=, so that it is checked.",
            param=own_names[0],
        )
    return dict(extra)


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    for name in (name for name in names if names.count(name) > 1):
        raise ParameterError(
            f"extra has the name {name!r} twice; give it once. Nothing was sent.",
            param="extra",
        )


def read_extra(text: str) -> dict[str, Any] | list[Any]:
    """Read typed JSON: an object, or a list of objects."""
    extra: object = None
    with suppress(msgspec.DecodeError, RecursionError):
        extra = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=_refuse_repeated_names)
    if isinstance(extra, (dict, list)):
        return extra
    allowed = 'a JSON object, such as {"seed": 1} (on a line, in single quotes)'
    raise must_be("extra", allowed, text)


def _not_allowed(param: Param, value: object) -> ParameterError:
    default = f", {param.default:g}" if param.default is not None else ""
    return must_be(
        param.name,
        param.allowed,
        value,
        hint=f"Leave it out for the service's default{default}.",
    )


_MODULES = re.compile(r"\b(?:\w+\.)+")
Verb = TypeVar("Verb", bound=Callable[..., object])


def with_params(verb: Verb) -> Verb:
    """Give a verb with `**params` a signature that lists them, for `?` and Tab.

    `**params` must be annotated `Unpack[Params]` or with another such class, or `Any`
    if a value may also be a list of values. Long types are shown without their modules.
    """
    signature = inspect.signature(verb)
    *own, last = signature.parameters.values()
    is_any = last.annotation is Any
    (params_class,) = (Params,) if is_any else get_args(last.annotation)
    param_arguments = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Any if is_any else hint,
        )
        for name, hint in get_type_hints(params_class).items()
        if name not in signature.parameters
    ]
    shown = [
        parameter.replace(annotation=_without_modules(parameter.annotation))
        for parameter in (*own, *param_arguments)
    ]
    verb.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect looks for
        parameters=shown,
        return_annotation=_without_modules(signature.return_annotation),
    )
    return verb


def _without_modules(annotation: object) -> object:
    text = inspect.formatannotation(annotation)
    is_long = "." in text and not isinstance(annotation, str)
    return _MODULES.sub("", text) if is_long else annotation


def function_given() -> ParameterError:
    """Build the error for a function where only definitions are allowed."""
    return ParameterError(
        "tools contains a function, but only definitions are allowed here. Give "
        "[svc.tool(...).definition]; or use `complete`, which runs functions, while "
        "streams do not.",
        param="tools",
    )


def check_definition(value: object) -> Mapping[str, Any]:
    """Return a tool definition if it has the fields that the document shows."""
    if isinstance(value, Mapping) and value.get("type") == "function":
        function = value.get("function")
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            return value
    if callable(value):
        raise function_given()
    raise ParameterError(
        "A tool definition is incomplete. Give it type='function', and a function with "
        "a name.",
        param="tools",
    )

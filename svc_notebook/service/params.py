"""The table of request parameters and their checks (doc: Request body, Limits).

Flags, help, completion, columns of frames and fields of the panel are read from
`PARAMS`. A value that the document does not show is None. Parameters of other servers
are in `extra`.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

import msgspec

from svc_notebook.errors import ParameterError

from .catalogue import BUDGET_TOKENS
from .checks import (
    as_int,
    as_number,
    check_text,
    did_you_mean,
    is_within,
    must_be,
    range_text,
)

MAX_STOPS = 4  # doc: Limits, stop sequences
DEFAULT_MAX_TOKENS = 150  # doc: Limits, max_tokens default

ParamKind = Literal["integer", "float", "string", "stops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One row of the document's request table; None where it shows no value.

    Both bounds are allowed values. `doc` is for help texts, and `is_offered` says
    whether the panel has a field for it.
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
        """The option's spelling in a magic line."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
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

    Leave one out, or give None, and it is not sent: the service's default applies.
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
_ELSEWHERE = {
    "stream": "To stream a reply, use stream(...) instead of complete(...).",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
}


def check(name: str, value: object, *, most_tokens: int = BUDGET_TOKENS) -> object:
    """Return one parameter's value if the document allows it.

    `most_tokens` is the largest max_tokens: a model of another server may have more
    tokens for prompt and reply, or fewer.

    Raises:
        ParameterError: The name is unknown (with the nearest name), or the value is
            of another type or outside the range.
    """
    param = _BY_NAME.get(name)
    if param is None:
        raise unknown_param(name)
    if name == "max_tokens":
        param = replace(param, maximum=most_tokens)
    if param.kind == "stops":
        return _check_stops(param, value)
    if param.kind == "string":
        if not isinstance(value, str):
            raise _refused(param, value)
        return check_text(value, param=name)
    number = as_int(value) if param.kind == "integer" else as_number(value)
    if number is None or not is_within(number, param.minimum, param.maximum):
        raise _refused(param, value)
    return number


def check_all(
    params: Mapping[str, object], *, most_tokens: int = BUDGET_TOKENS
) -> dict[str, object]:
    """Check every parameter that was given and drop those that are None."""
    checked: dict[str, object] = {}
    for name, value in params.items():
        if value is None and (name in _BY_NAME or name == "tools"):
            continue
        checked[name] = (
            _check_tools(value)
            if name == "tools"
            else check(name, value, most_tokens=most_tokens)
        )
    return checked


def unknown_param(name: str) -> ParameterError:
    """Build the error for a name that is not in the table, with the nearest one."""
    if name in _ELSEWHERE:
        return ParameterError(_ELSEWHERE[name], param=name)
    return ParameterError(
        f"{name!r} is not a parameter of the service."
        f"{did_you_mean(name, [*PARAM_NAMES, *_OTHER_NAMES], n=1)} The parameters are "
        f"{', '.join(PARAM_NAMES)}. To send a field that is not "
        f"documented, use extra={{{name!r}: ...}}.",
        param=name,
    )


def _check_stops(param: Param, value: object) -> str | tuple[str, ...]:
    if isinstance(value, str) and value:
        return check_text(value, param="stop")
    if isinstance(value, Sequence) and 1 <= len(value) <= MAX_STOPS:
        stops: tuple[object, ...] = tuple(value)
        if all(isinstance(stop, str) and stop for stop in stops):
            return tuple(check_text(str(stop), param="stop") for stop in stops)
    raise _refused(param, value)


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

    A text is read as JSON, as a cell and a panel have it.
    """
    if extra is None:
        return {}
    if isinstance(extra, str):
        extra = read_extra(extra)
    if not isinstance(extra, Mapping):
        allowed = "a mapping of names to values, such as extra={'name': 1}"
        raise must_be("extra", allowed, extra)
    hidden = [name for name in extra if name in _OWN_FIELDS]
    if hidden:
        raise ParameterError(
            f"extra contains {hidden[0]!r}, which is a parameter of the service; give "
            "it by its own name, so that it is checked.",
            param=hidden[0],
        )
    return dict(extra)


def _each_name_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    for name in (name for name in names if names.count(name) > 1):
        raise ParameterError(
            f"extra has the name {name!r} twice; give it once. Nothing was sent.",
            param="extra",
        )


def read_extra(text: str) -> dict[str, Any] | list[Any]:
    """Read JSON as it is typed: an object, or a list of them."""
    extra: object = None
    with suppress(msgspec.DecodeError, RecursionError):
        extra = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=_each_name_once)
    if isinstance(extra, (dict, list)):
        return extra
    allowed = 'a JSON object, such as {"seed": 1} (on a line, in single quotes)'
    raise must_be("extra", allowed, text)


def _refused(param: Param, value: object) -> ParameterError:
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
    """Give a verb that takes `**params` a signature that lists them, for `?` and Tab.

    It is annotated `Unpack[Params]`, or another such class; or `Any`, where a value may
    also be a list of values. Long types are shown without the modules they are from.
    """
    signature = inspect.signature(verb)
    *own, last = signature.parameters.values()
    is_any = last.annotation is Any
    (taken,) = (Params,) if is_any else get_args(last.annotation)
    listed = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Any if is_any else hint,
        )
        for name, hint in get_type_hints(taken).items()
        if name not in signature.parameters
    ]
    shown = [
        parameter.replace(annotation=_briefly(parameter.annotation))
        for parameter in (*own, *listed)
    ]
    verb.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect looks for
        parameters=shown, return_annotation=_briefly(signature.return_annotation)
    )
    return verb


def _briefly(annotation: object) -> object:
    said = inspect.formatannotation(annotation)
    is_long = "." in said and not isinstance(annotation, str)
    return _MODULES.sub("", said) if is_long else annotation


def function_given() -> ParameterError:
    """Build the error for a function where only definitions are allowed."""
    return ParameterError(
        "tools contains a function, but only definitions are allowed here; give "
        "[svc.tool(...).definition]. `complete` takes functions and runs them; streams "
        "run no tools.",
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
        "A tool definition is not complete; give it type='function' and a function "
        "with a name.",
        param="tools",
    )

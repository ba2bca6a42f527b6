"""Functions and types as JSON schemas, and JSON values as their Python objects.

What it is not: the kinds themselves are in `kinds` and `records`; what annotations
mean is in `annotations`.

Rules: parameters are offered by name, so what cannot be given by name is refused; what
a partial has set already is not offered (doc: Tool definition).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from svc_notebook.errors import ToolCallError, ToolSchemaError

from .annotations import Place, default_of, hints_of, kind_of, split_annotated
from .docs import Texts, texts_of
from .faults import Faults
from .kinds import Kind, Null, Schema
from .records import NO_DEFAULT, Field, Record
from .unions import OneOf

Value = TypeVar("Value")
_NONE = inspect.Parameter.empty


def parameters_of(function: Callable[..., object]) -> Schema:
    """Return the schema of a function's parameters (doc: Tool definition).

    Raises:
        ToolSchemaError: Something cannot be described; the reason and a remedy.
    """
    return record_of(function, _called(function), texts_of(inner(function))).schema


def schema_of(type_: Any) -> Schema:  # noqa: ANN401 - any type
    """Return the schema of a type: a dataclass, TypedDict, pydantic model and so on.

    Raises:
        ToolSchemaError: It cannot be described.
    """
    return kind_of(type_, Place(_named(type_))).schema


def build(type_: type[Value], value: object) -> Value:
    """Turn a JSON value into an object of a type.

    Args:
        type_: Whatever `schema_of` takes.
        value: As `json.loads` gives it.

    Raises:
        ToolCallError: It does not fit; every fault in words for the model.
        ToolSchemaError: The type cannot be described.
    """
    kind = kind_of(type_, Place(_named(type_)))
    return cast("Value", read(kind, value))


def read(kind: Kind, value: object) -> object:
    """Turn a JSON value into what a kind makes of it.

    Raises:
        ToolCallError: It does not fit.
    """
    faults = Faults()
    try:
        got = kind.read(value, "", faults)
    except RecursionError:
        faults.add("The value is nested too deep.")
    if faults:
        raise ToolCallError(" ".join(faults.told()), faults=faults.told())
    return got


def inner(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return what a partial, or an object that can be called, runs in the end."""
    while isinstance(function, functools.partial):
        function = function.func
    is_plain = inspect.isroutine(function) or isinstance(function, type)
    return function if is_plain else type(function).__call__


def record_of(function: Callable[..., object], name: str, texts: Texts) -> Record:
    """Read a function's parameters.

    Args:
        function: A function, method, partial or object that can be called.
        name: As the tool will be called, for errors.
        texts: What its docstring says.

    Raises:
        ToolSchemaError: Something cannot be described.
    """
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ToolSchemaError(
            f"{name} tells nothing of its parameters; write a function around it with "
            "annotations."
        ) from None
    is_set = _set_already(function)
    offered = [each for each in found.values() if each.name not in is_set]
    for each in offered:
        _check_parameter(each, name)
    hints = _hints(function, [each.name for each in offered], name)
    return Record(
        fields=tuple(_field(each, hints[each.name], name, texts) for each in offered)
    )


def _check_parameter(parameter: inspect.Parameter, name: str) -> None:
    place = Place(f"{name}: the parameter {parameter.name!r}")
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise place.refusal(
            f"takes any number of values ({stars}{parameter.name})",
            "name each one, or take a list or a dict[str, ...]",
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise place.refusal(
            "can only be given by position, and calls give values by name",
            "take the / out of the signature",
        )
    if parameter.annotation is _NONE and parameter.name in ("self", "cls"):
        raise place.refusal(
            "is the object of a method", "offer the method of an object: thing.method"
        )
    if parameter.annotation is _NONE:
        raise place.refusal(
            "has no annotation", f"say its type, as in {parameter.name}: str"
        )


def _field(
    parameter: inspect.Parameter, hint: object, name: str, texts: Texts
) -> Field:
    place = Place(f"{name}: the parameter {parameter.name!r}")
    annotation, text = split_annotated(hint, place)
    kind = kind_of(annotation, place)
    if parameter.default is None:  # `city: str = None` allows None
        kind = _or_null(kind)
    has_default = parameter.default is not _NONE
    return Field(
        name=parameter.name,
        kind=kind,
        is_required=not has_default,
        description=text or texts.params.get(parameter.name, ""),
        default=default_of(parameter.default) if has_default else NO_DEFAULT,
    )


def _or_null(kind: Kind) -> Kind:
    faults = Faults()
    kind.read(None, "", faults)
    return OneOf((kind, Null())) if faults else kind


def _set_already(function: Any) -> set[str]:  # noqa: ANN401 - any callable
    """Return the names that partials have set."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def _hints(function: object, names: list[str], name: str) -> Mapping[str, Any]:
    """Read the annotations of the parameters, and of nothing else.

    What a function returns is not offered, so its annotation may name anything.
    """
    written = inspect.unwrap(inner(function))
    annotations = getattr(written, "__annotations__", {})

    def stand_in() -> None: ...

    stand_in.__annotations__ = {
        each: annotations[each] for each in names if each in annotations
    }
    return hints_of(stand_in, Place(name), getattr(written, "__globals__", {}))


def _called(function: object) -> str:
    return str(getattr(inner(function), "__name__", type(function).__name__))


def _named(type_: object) -> str:
    return str(getattr(type_, "__name__", type_))

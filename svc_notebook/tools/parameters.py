"""The parameters of a function: their schema, and the check of a call's arguments.

A call gives arguments by name, so every parameter needs a name and a type. Arguments
that a partial has set already are not offered (doc: Tool definition).
"""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from svc_notebook.errors import ToolCallError, ToolSchemaError

from .schema import (
    Schema,
    Texts,
    TypeSchema,
    described,
    short,
    to_property,
    unknown_name,
)

_NONE = inspect.Parameter.empty


class Parameters:
    """The parameters of a function.

    Args:
        function: A function, method, partial or object with `__call__`.
        name: The tool's name, for errors.
        texts: The function's docstring.

    Attributes:
        schema: Their JSON schema, as it is sent.

    Raises:
        ToolSchemaError: A parameter cannot be described.
    """

    def __init__(
        self, function: Callable[..., object], name: str, texts: Texts
    ) -> None:
        offered = _offered(function, name)
        hints = _hints(function, list(offered), name)
        self._types: dict[str, TypeSchema] = {}
        properties: Schema = {}
        for each in offered.values():
            hint = hints[each.name]
            if each.default is None:  # `city: str = None` allows None
                hint = hint | None
            type_ = TypeSchema(hint, f"{name}: the parameter {each.name!r}")
            text = described(hints[each.name]) or texts.params.get(each.name, "")
            properties[each.name] = to_property(type_.schema, text, each.default)
            self._types[each.name] = type_
        self._required = [p.name for p in offered.values() if p.default is _NONE]
        self.schema: Schema = {
            "type": "object",
            "properties": properties,
            "required": self._required,
            "additionalProperties": False,
        }

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Convert a call's arguments to the types of the parameters.

        Raises:
            ToolCallError: They do not fit; the message has a sentence for each error.
        """
        got: dict[str, Any] = {}
        faults = [
            unknown_name("", name, self._types)
            for name in arguments
            if name not in self._types
        ]
        faults += [f"{n} is missing." for n in self._required if n not in arguments]
        for name in (each for each in self._types if each in arguments):
            try:
                got[name] = self._types[name].read(arguments[name], name)
            except ToolCallError as problem:
                faults.append(str(problem))
        if faults:
            raise ToolCallError(" ".join(faults), faults=tuple(faults))
        return got


def inner(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the function that a partial, or an object with `__call__`, runs."""
    while isinstance(function, functools.partial):
        function = function.func
    is_plain = inspect.isroutine(function) or isinstance(function, type)
    return function if is_plain else type(function).__call__


def _offered(
    function: Callable[..., object], name: str
) -> dict[str, inspect.Parameter]:
    """Return the parameters that a call can set."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ToolSchemaError(
            f"{name} has no readable signature; write a function with annotations that "
            "calls it."
        ) from None
    is_set: set[str] = set()
    each: Any = function
    while isinstance(each, functools.partial):
        is_set |= each.keywords.keys()
        each = each.func
    offered = {key: each for key, each in found.items() if key not in is_set}
    for each in offered.values():
        _check(each, f"{name}: the parameter {each.name!r}")
    return offered


def _check(parameter: inspect.Parameter, where: str) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolSchemaError(
            f"{where} takes any number of values ({stars}{name}); name each one, or "
            "take a list or a dict[str, ...]."
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolSchemaError(
            f"{where} can only be given by position, and calls give values by name; "
            "take the / out of the signature."
        )
    if parameter.annotation is _NONE and name in ("self", "cls"):
        raise ToolSchemaError(
            f"{where} is the object of a method; offer the method of an object: "
            "thing.method."
        )
    if parameter.annotation is _NONE:
        raise ToolSchemaError(
            f"{where} has no annotation; give its type, as in {name}: str."
        )


def _hints(function: object, names: list[str], name: str) -> dict[str, Any]:
    """Evaluate the annotations of the parameters, but not that of the result.

    The result is not described, so its annotation may be anything.
    """
    written = inspect.unwrap(inner(function))
    annotations = getattr(written, "__annotations__", {})

    def stand_in() -> None: ...

    stand_in.__annotations__ = {
        each: annotations[each] for each in names if each in annotations
    }
    names_known = getattr(written, "__globals__", {})
    try:
        return typing.get_type_hints(stand_in, names_known, include_extras=True)
    except Exception as problem:  # noqa: BLE001 - annotations are any expression
        reason = short(f"{type(problem).__name__}: {problem}", 200)
    raise ToolSchemaError(
        f"{name} has annotations that cannot be read ({reason}); define their "
        "types before it, outside functions and TYPE_CHECKING."
    )

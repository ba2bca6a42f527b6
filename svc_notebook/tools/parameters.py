"""The parameters of a tool: their schema, and the check of a call's arguments.

They come from a function, where every parameter needs a name and a type, or from a
ready-made definition, whose schema may only refer to itself: nothing is downloaded.
"""

import functools
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from svc_notebook.errors import ParameterError, ToolCallError, ToolSchemaError
from svc_notebook.service.params import check_definition

from .docstrings import Texts, described
from .schema import Schema, TypeSchema, short, to_property, unknown_name

MAX_FAULTS = 8
_FOREIGN = re.compile(r'"\$(?:dynamicR|r)ef": "([^#"][^"]*)"')
_NONE = inspect.Parameter.empty


class Parameters:
    """The parameters of a function, without those that a partial has set."""

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
        """Convert a call's arguments to the types of the parameters."""
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


def without_partials(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the callable inside all partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def inner(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the function that a partial, or an object with `__call__`, runs."""
    function = without_partials(function)
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
        ) from None


class ReadyParameters:
    """The parameters of a ready-made definition; without a schema, any fields."""

    def __init__(self, schema: Mapping[str, Any] | None, name: str) -> None:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to load
        from referencing import Registry  # noqa: PLC0415 - slow to load

        known = {"type": "object"} if schema is None else schema
        _check_schema(known, name)
        self._validator = Draft202012Validator(known, registry=Registry())

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return a copy of a call's arguments if they fit the schema."""
        try:
            copied: dict[str, Any] = json.loads(json.dumps(arguments, allow_nan=False))
            found = list(self._validator.iter_errors(copied))
        except Exception as problem:  # noqa: BLE001 - references, patterns of any kind
            reason = short(f"{type(problem).__name__}: {problem}", 200)
            raise ToolCallError(f"The arguments cannot be checked: {reason}.") from None
        faults = tuple(
            f"{each.json_path.removeprefix('$').removeprefix('.') or 'the arguments'}: "
            f"{short(each.message, 200)}."
            for each in found[:MAX_FAULTS]
        )
        if faults:
            raise ToolCallError(" ".join(faults), faults=faults)
        return copied


def read_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Check a ready-made definition and return a copy."""
    try:
        return sendable(dict(check_definition(definition)))
    except ParameterError as problem:
        raise ToolSchemaError(str(problem)) from None


def sendable(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a definition as it is sent."""
    try:
        text = json.dumps(definition, allow_nan=False, ensure_ascii=False)
        text.encode()
        copied: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as problem:
        reason = short(f"{type(problem).__name__}: {problem}", 200)
        raise ToolSchemaError(
            f"A tool definition cannot be sent as JSON ({reason}); use texts, numbers, "
            "lists and dicts."
        ) from None
    return copied


def _check_schema(schema: object, name: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow

    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolSchemaError(
            f"The parameters of {name} are not a schema of an object; give a mapping "
            "with type 'object' and properties."
        )
    try:
        Draft202012Validator.check_schema(schema)
        foreign = _FOREIGN.search(json.dumps(schema))
    except SchemaError as problem:
        reason = short(f"{'.'.join(map(str, problem.path))}: {problem.message}", 300)
    except RecursionError:
        reason = "it is nested too deep"
    else:
        if foreign is None:
            return
        reason = f"it refers to {short(foreign[1])}, which is not downloaded"
    raise ToolSchemaError(
        f"The parameters of {name} are not a valid JSON schema ({reason}); correct "
        "them."
    )

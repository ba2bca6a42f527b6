"""Converts types to JSON schemas, and JSON values to these types, with pydantic.

No value from a model is converted silently: "3" is not a number, and unknown names are
refused at any depth.
"""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.service.params import one_line

from .signature import (
    DocTexts,
    hints_of,
    settable_parameters,
    text_of_annotation,
    texts_of,
)
from .validation_errors import JsonSchema, coerced_values, join_names, validation_faults

Built = TypeVar("Built")
MAX_DEFAULT_CHARS = 200
"""A longer default is not sent, as the model does not need it."""

_DROPPED = ("$defs", "discriminator", "title")
_VALUES = ("default", "enum", "examples", "const")  # these hold values, not schemas
_JSON_TYPES = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
_SUPPORTED = (
    "str, int, float, bool, Decimal, Literal, Enum, date, time, datetime, UUID, Path, "
    "lists, tuples, sets and dict[str, ...] of these, Optional, Any, dataclasses, "
    "TypedDict or pydantic models"
)


class _RefusedTypeError(Exception):
    """A type has no JSON schema; the text is the reason and the remedy."""


class TypeSchema:
    """The JSON schema of a type, and the conversion of values to it.

    `where` says in errors what has the type: "weather: the parameter 'city'".
    """

    def __init__(self, annotation: Any, where: str) -> None:  # noqa: ANN401 - any type
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(_adapt_annotation(annotation))
            whole = self._adapter.json_schema(schema_generator=_SchemaGenerator)
            self.schema: JsonSchema = _inline_refs(whole, whole.get("$defs", {}), ())
        except Exception as problem:  # noqa: BLE001 - annotations are any expression
            raise ToolSchemaError(f"{where} {_why_refused(problem)}.") from None

    def read(self, value: object, at: str = "") -> object:
        """Convert a JSON value to the type; `at` is its path: "items[0].price"."""
        faults = tuple(coerced_values(self.schema, value, at))
        try:
            # As JSON text: only then does pydantic's strict mode accept dates and sets.
            text = json.dumps(value, allow_nan=False)
            built = self._adapter.validate_json(text, strict=True, extra="forbid")
        except ValidationError as problem:
            errors = problem.errors(include_url=False)
            faults = validation_faults(errors, self.schema, value, at)
        except Exception as problem:  # noqa: BLE001 - the user's class may raise anything
            reason = one_line(f"{type(problem).__name__}: {problem}", 300)
            faults = (f"{at or 'the value'}: cannot be used ({reason}).",)
        if faults:
            raise ToolCallError(" ".join(faults), faults=faults)
        return built


def _why_refused(problem: Exception) -> str:
    if isinstance(problem, _RefusedTypeError):
        return str(problem)
    # the first line says what is wrong; the others are links to pydantic's pages
    reason = str(problem).partition("\n")[0]
    if isinstance(problem, NameError):
        return (
            f"has a type that cannot be described ({reason}); define it at the top of "
            "a module"
        )
    reason = one_line(f"{type(problem).__name__}: {reason}", 300)
    return f"has a type that cannot be described ({reason}); use {_SUPPORTED}"


def schema_of(type_: Any) -> JsonSchema:  # noqa: ANN401 - any type
    """Return the JSON schema of a type: a dataclass, TypedDict, pydantic model etc."""
    return TypeSchema(type_, _type_name(type_)).schema


def build(type_: type[Built], value: object) -> Built:
    """Convert a JSON value to a type; the text of a ToolCallError is for the model."""
    try:
        schema = _schema_to_read(cast("Any", type_))
    except TypeError:  # an annotation that cannot be hashed
        schema = TypeSchema(type_, _type_name(type_))
    return cast("Built", schema.read(value))


@lru_cache(maxsize=64)
def _schema_to_read(type_: Any) -> TypeSchema:  # noqa: ANN401 - any type
    """Return the schema of a type, made once for all rows of a sweep."""
    return TypeSchema(type_, _type_name(type_))


def _type_name(type_: object) -> str:
    return str(getattr(type_, "__qualname__", type_))


class Parameters:
    """The parameters of a function, except those that a partial has set."""

    def __init__(
        self, function: Callable[..., object], name: str, texts: DocTexts
    ) -> None:
        parameters = settable_parameters(function, name)
        hints = hints_of(function, list(parameters), name)
        self._types: dict[str, TypeSchema] = {}
        properties: JsonSchema = {}
        for parameter in parameters.values():
            hint = hints[parameter.name]
            text = text_of_annotation(hint) or texts.params.get(parameter.name, "")
            if parameter.default is None:  # `city: str = None` allows None
                hint = hint | None
            type_ = TypeSchema(hint, f"{name}: the parameter {parameter.name!r}")
            description = {"description": text} if text else {}
            properties[parameter.name] = _to_document_form(
                {**type_.schema, **description, "default": parameter.default}
            )
            self._types[parameter.name] = type_
        self._required = [
            parameter.name
            for parameter in parameters.values()
            if parameter.default is parameter.empty
        ]
        self.schema: JsonSchema = {
            "type": "object",
            "properties": properties,
            "required": self._required,
            "additionalProperties": False,
        }

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Convert a call's arguments to the types of the parameters."""
        values: dict[str, Any] = {}
        faults = [
            f"{one_line(name)}: unknown name; expected {join_names(self._types)}."
            for name in arguments
            if name not in self._types
        ]
        faults += [f"{n} is missing." for n in self._required if n not in arguments]
        for name, type_ in self._types.items():
            if name in arguments:
                try:
                    values[name] = type_.read(arguments[name], name)
                except ToolCallError as problem:
                    faults += problem.faults
        if faults:
            raise ToolCallError(" ".join(faults), faults=tuple(faults))
        return values


# Types that pydantic does not read as people intend


def _adapt_annotation(annotation: Any) -> Any:  # noqa: ANN401 - any type
    if get_origin(annotation) is Iterable:  # pydantic would convert it to an iterator
        annotation = list[get_args(annotation)]  # type: ignore[misc]  # made here
    return annotation if sys.version_info >= (3, 12) else _with_new_dicts(annotation)


def _with_new_dicts(annotation: Any) -> Any:  # noqa: ANN401 - any type
    """Replace TypedDicts of `typing`, which pydantic refuses on Python 3.11.

    TypedDicts inside a dataclass are not replaced; pydantic's error says what to
    import.
    """
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _new_dict(annotation)
    inside = get_args(annotation)
    changed = tuple(map(_with_new_dicts, inside))
    if changed == inside:
        return annotation
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[changed[0], *annotation.__metadata__]
    if origin in (Union, types.UnionType):
        return Union[changed]  # noqa: UP007 - any number
    return origin[changed]


def _new_dict(old: Any) -> Any:  # noqa: ANN401 - a class
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(old, include_extras=True).items():
        wrapper, type_ = get_origin(hint), hint
        if wrapper in (typing.Required, typing.NotRequired):
            (type_,) = get_args(hint)
        else:
            is_required = name in old.__required_keys__
            wrapper = typing.Required if is_required else typing.NotRequired
        fields[name] = wrapper[_with_new_dicts(type_)]
    make: Any = typing_extensions.TypedDict
    new = make(old.__name__, fields)
    new.__doc__, new.__module__ = old.__doc__, old.__module__
    return new


# Schemas as the document shows them (doc: Tool definition)


class _SchemaGenerator(GenerateJsonSchema):
    """pydantic's schemas, with the texts of docstrings."""

    def decimal_schema(self, schema: Any) -> JsonSchema:  # noqa: ANN401 - pydantic's
        """Describe a Decimal as a text, because a JSON number may lose digits."""
        del schema
        return {"type": "string", "format": "decimal"}

    def dataclass_schema(self, schema: Any) -> JsonSchema:  # noqa: ANN401 - pydantic's
        """Describe a dataclass and the fields of its constructor."""
        written_schema = super().dataclass_schema(schema)
        for field in dataclasses.fields(schema["cls"]):
            if not field.init:
                written_schema["properties"].pop(field.name, None)
        return _with_texts(written_schema, schema["cls"])

    def typed_dict_schema(self, schema: Any) -> JsonSchema:  # noqa: ANN401 - pydantic's
        """Describe a TypedDict and its fields."""
        return _with_texts(super().typed_dict_schema(schema), schema["cls"])

    def emit_warning(self, kind: Any, detail: str) -> None:  # noqa: ANN401 - pydantic's
        """Ignore the warning about a default that is not JSON: it is not sent."""


def _with_texts(schema_of_class: JsonSchema, cls: type) -> JsonSchema:
    """Add the descriptions in the docstring and annotations of a class."""
    texts = texts_of(cls)
    schema_of_class.pop("description", None)  # the whole docstring
    if texts.description:
        schema_of_class["description"] = texts.description
    hints = typing.get_type_hints(cls, include_extras=True)
    for name, field in schema_of_class.get("properties", {}).items():
        if text := text_of_annotation(hints.get(name)) or texts.params.get(name, ""):
            field["description"] = text
    return schema_of_class


def _inline_refs(schema: Any, defs: JsonSchema, within: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Replace references by the schemas they name, as the document shows no references.

    `within` holds the names of the enclosing schemas.
    """
    if isinstance(schema, list):
        return [_inline_refs(item, defs, within) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in within:
            raise _RefusedTypeError(
                f"is recursive ({name} contains itself), so its schema would be "
                "endless; limit its depth, or pass JSON as a text"
            )
        siblings = {word: value for word, value in schema.items() if word != "$ref"}
        return _inline_refs({**defs[name], **siblings}, defs, (*within, name))
    inlined: JsonSchema = {}
    for word, value in schema.items():
        if word == "properties":  # its keys are field names, not words of JSON schema
            inlined[word] = {
                name: _inline_refs(field, defs, within) for name, field in value.items()
            }
        elif word not in _DROPPED:
            inlined[word] = (
                value if word in _VALUES else _inline_refs(value, defs, within)
            )
    return _to_document_form(inlined)


def _to_document_form(schema: JsonSchema) -> JsonSchema:
    """Return a schema in the document's form, with the type first."""
    schema = _with_items(_merged_with_null(schema))
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "enum" in schema and "type" not in schema:
        types = [_JSON_TYPES.get(type(value), "number") for value in schema["enum"]]
        types = list(dict.fromkeys(types))
        schema["type"] = types[0] if len(types) == 1 else types
    if "properties" in schema:
        schema["required"] = schema.get("required", [])
        schema["additionalProperties"] = False
    if "default" in schema:
        default = schema.pop("default")
        plain = default.value if isinstance(default, Enum) else default
        if _is_short_json(plain):
            schema["default"] = plain
    first = {word: schema[word] for word in ("type", "description") if word in schema}
    return first | schema


def _merged_with_null(schema: JsonSchema) -> JsonSchema:
    """Write `X | None` as a list of two types, if X has a single type."""
    types = [option.get("type") for option in schema.get("anyOf", ())]
    if types[1:] != ["null"] or not isinstance(types[0], str):
        return dict(schema)
    siblings = {word: value for word, value in schema.items() if word != "anyOf"}
    merged = {**schema["anyOf"][0], **siblings, "type": [types[0], "null"]}
    if "enum" in merged:
        merged["enum"] = [*merged["enum"], None]
    return merged


def _with_items(schema: JsonSchema) -> JsonSchema:
    """Give an array one type of items, as the document shows arrays."""
    if item_schemas := schema.pop("prefixItems", []):
        if any(item != item_schemas[0] for item in item_schemas):
            raise _RefusedTypeError(
                "is a tuple of different types, but an array has one type of items; "
                "use a dataclass with a name for each, or tuple[int, ...]"
            )
        schema["items"] = item_schemas[0]
    is_set = schema.get("uniqueItems", False)
    if is_set and schema.get("items", {}).get("type") in ("array", "object"):
        raise _RefusedTypeError(
            "is a set of arrays or objects; use a list, since a set holds simple values"
        )
    return schema


def _is_short_json(default: object) -> bool:
    """Return whether a default is sent: NaN and a lone surrogate are not JSON."""
    if default is None:  # the type "null" says enough
        return False
    with suppress(TypeError, ValueError):
        text = json.dumps(default, allow_nan=False, ensure_ascii=False)
        return len(text.encode()) <= MAX_DEFAULT_CHARS
    return False

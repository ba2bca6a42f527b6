"""Python types as JSON schemas, and JSON values as objects of these types.

msgspec checks Python's types, pydantic its models. This module writes schemas as the
document shows them, and refuses unknown fields at any depth.
"""

import dataclasses
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.service.checks import printable, shorten

from .docstrings import described, texts_of

Schema = dict[str, Any]
Value = TypeVar("Value")
MAX_DEFAULT_CHARS = 200
MAX_SHOWN_VALUES = 40
MAX_MODEL_DEPTH = 32
_SIMPLE: Mapping[type, Schema] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.NoneType: {"type": "null"},
    inspect.DateType: {"type": "string", "format": "date"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.TimeType: {"type": "string", "format": "time"},
    inspect.DecimalType: {"type": "string", "format": "decimal"},
    inspect.UUIDType: {"type": "string", "format": "uuid"},
    inspect.AnyType: {},
}
_NUMBER_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_SIZES = {f"{end}{word}" for end in ("min", "max") for word in ("Length", "Items")}
_CHECKED = {*_NUMBER_BOUNDS.values(), *_SIZES, "pattern", "anyOf"}
_UNIONS = (typing.Union, types.UnionType)
_BOUNDS = (*_NUMBER_BOUNDS, "min_length", "max_length", "pattern")
_JSON_TYPES = ((bool, "boolean"), (int, "integer"), (str, "string"))
_COMBINED = {"anyOf", "oneOf", "allOf", "not", "const"}  # apply to every type
_SUPPORTED = (
    "str, int, float, bool, Decimal, Literal, Enum, date, time, datetime, UUID, Path, "
    "lists, tuples, sets and dict[str, ...] of these, Optional, Any, dataclasses, "
    "TypedDict or pydantic models"
)
_DATES = {
    "Invalid RFC3339 encoded date": 'expected a date such as "2026-01-31"',
    "Invalid RFC3339 encoded datetime": (
        'expected a date and time such as "2026-01-31T09:30:00"'
    ),
    "Invalid decimal string": 'expected a decimal number such as "1.50"',
    "Invalid RFC3339 encoded time": 'expected a time such as "09:30:00"',
}
_TIMES = ("time", "date-time")
_NOT_FINITE = re.compile(r"\s*[+-]?(inf|s?nan)", re.IGNORECASE)
_NO_SECONDS = re.compile(r"((?:^|T)\d\d:\d\d)(?=$|[Z+-])")


class TypeSchema:
    """The JSON schema of a type, and the check of values.

    `where` is what has the type, for errors: "weather: the parameter 'city'".
    """

    def __init__(self, annotation: Any, where: str) -> None:  # noqa: ANN401 - any type
        if get_origin(annotation) is Iterable:
            annotation = list[get_args(annotation)]  # type: ignore[misc]  # made here
        try:
            annotation = _with_metas(annotation)
            self._decoder = msgspec.json.Decoder(annotation, dec_hook=_to_model)
            writer = _SchemaWriter(where, annotation)
            self.schema = writer.write(inspect.type_info(annotation))
            self._has_bounds = writer.has_bounds
        except ToolSchemaError:
            raise
        except Exception as problem:  # noqa: BLE001 - annotations are any expression
            raise ToolSchemaError(f"{where} {_why_refused(problem)}.") from None

    def read(self, value: object, at: str = "") -> object:
        """Convert a JSON value to the type; `at` is its path: "items[0].price"."""
        try:
            full = json.dumps(_in_full(self.schema, value), allow_nan=False)
            got: object = self._decoder.decode(full)
            fault = _unknown_name(self.schema, value, at)
            if self._has_bounds and not fault:
                fault = _bound_fault(self.schema, value, at)
        except msgspec.ValidationError as problem:
            fault = _fault(problem, at, self.schema)
        except Exception as problem:  # noqa: BLE001 - the user's class may raise anything
            reason = short(f"{type(problem).__name__}: {problem}", 300)
            fault = f"{at or 'the value'}: cannot be used ({reason})."
        if fault:
            raise ToolCallError(fault)
        return got


def _why_refused(problem: Exception) -> str:
    if isinstance(problem, NameError):
        return (
            f"has a type that cannot be described ({problem}); define it at the top of "
            "a module"
        )
    said = str(problem)
    if said.startswith("Can only set"):
        return (
            f"has the bound {said.split('`')[1]}, which is not checked for its type; "
            "numbers (int, float) have ge, gt, le, lt and multiple_of, texts and lists "
            "min_length and max_length, texts pattern. Check a Decimal in your code"
        )
    if "unions may not contain" in said:
        return (
            "is a union that JSON cannot tell apart, such as two classes, or a text "
            "and a date; use one of them, or a class with optional fields"
        )
    reason = short(f"{type(problem).__name__}: {said}", 300)
    return f"has a type that cannot be described ({reason}); use {_SUPPORTED}"


def schema_of(type_: Any) -> Schema:  # noqa: ANN401 - any type
    """Return the JSON schema of a type: a dataclass, TypedDict, pydantic model etc."""
    return TypeSchema(type_, _name(type_)).schema


def build(type_: type[Value], value: object) -> Value:
    """Convert a JSON value to a type; a ToolCallError is written for the model."""
    try:
        schema = _schema_to_read(cast("Any", type_))
    except TypeError:  # an annotation that cannot be hashed
        schema = TypeSchema(type_, _name(type_))
    return cast("Value", schema.read(value))


@lru_cache(maxsize=64)
def _schema_to_read(type_: Any) -> TypeSchema:  # noqa: ANN401 - any type
    """Return the schema of a type, made once for all rows of a sweep."""
    return TypeSchema(type_, _name(type_))


def _with_metas(annotation: Any) -> Any:  # noqa: ANN401 - any type
    """Write the bounds of pydantic and annotated_types as msgspec's, which checks them.

    Those in a class are checked by the schema: msgspec reads the fields by itself.
    """
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        type_, *notes = inside
        notes = [_to_meta(each) for each in notes]
        if get_origin(type_) not in _UNIONS:
            return Annotated[_with_metas(type_), *notes]
        return _union_of(  # the bounds are those of its members
            each if each is types.NoneType else Annotated[_with_metas(each), *notes]
            for each in get_args(type_)
        )
    changed = tuple(_with_metas(each) for each in inside)
    if changed == inside:
        return annotation
    return _union_of(changed) if origin in _UNIONS else origin[changed]


def _union_of(members: Iterable[Any]) -> Any:  # noqa: ANN401 - any types
    return typing.Union[tuple(members)]  # noqa: UP007 - any number


def _to_meta(note: object) -> object:
    bounds = _bounds_of(note)
    return msgspec.Meta(**bounds) if _is_foreign(note) and bounds else note


def _bounds_of(note: object) -> dict[str, Any]:
    """Return the bounds of a note by name; a Field of pydantic has several."""
    parts = getattr(note, "metadata", (note,))
    found = ((name, getattr(part, name, None)) for part in parts for name in _BOUNDS)
    return {name: value for name, value in found if value is not None}


def _is_foreign(note: object) -> bool:
    """Return whether a note is one that only pydantic understands."""
    owner = type(note).__module__.split(".")[0]
    has_effect = getattr(note, "metadata", True)  # a Field can be a text alone
    is_note = owner in ("pydantic", "annotated_types") and not isinstance(note, type)
    return bool(is_note and has_effect)


def to_property(
    schema: Schema, description: str, default: object = msgspec.NODEFAULT
) -> Schema:
    """Add a description and a default, if it is short, to the schema of a field."""
    about = description or schema.get("description")
    first: Schema = {"type": schema["type"]} if "type" in schema else {}
    last = {name: each for name, each in schema.items() if name != "description"}
    plain = default.value if isinstance(default, Enum) else default
    if isinstance(plain, str | int | float):
        with suppress(ValueError):  # NaN, a lone surrogate, thousands of digits
            text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
            if len(text.encode()) <= MAX_DEFAULT_CHARS:
                last["default"] = plain
    return first | ({"description": about} if about else {}) | last


class _SchemaWriter:
    """Writes the schema of an annotation that msgspec has read.

    `within` are the classes around it, to find one that contains itself.
    """

    def __init__(
        self,
        where: str,
        annotation: Any,  # noqa: ANN401 - any type
        within: tuple[object, ...] = (),
    ) -> None:
        self.has_bounds = False  # in classes, which msgspec does not see
        self._where = where
        self._within = within
        # msgspec sorts them; the schema has them in the order of the annotation.
        self._literals: list[Any] = []
        for part in _parts(annotation):
            if _is_foreign(part):
                raise self.refusal(
                    f"is annotated with {short(repr(part))}, which only a pydantic "
                    "model checks here",
                    "use a pydantic model, or write a text instead",
                )
            if get_origin(part) is Literal:
                self._literals += get_args(part)

    def write(self, found: Any) -> Schema:  # noqa: ANN401 - msgspec's types
        if type(found) in _SIMPLE:
            return {**_SIMPLE[type(found)], **_bounds_in(found, "Length")}
        write = _WRITERS.get(type(found), _SchemaWriter.refuse)
        return write(self, found)

    def literal(self, found: inspect.LiteralType) -> Schema:
        pairs = [(type(each), each) for each in self._literals]  # True is not 1
        place = {pair: index for index, pair in enumerate(pairs)}
        return _choice(sorted(found.values, key=lambda v: place.get((type(v), v), 0)))

    def union(self, found: inspect.UnionType) -> Schema:
        return _union([self.write(each) for each in found.types])

    def array(self, found: inspect.ListType | inspect.VarTupleType) -> Schema:
        items = self.write(found.item_type)
        return {"type": "array", "items": items, **_bounds_in(found, "Items")}

    def set_array(self, found: inspect.SetType | inspect.FrozenSetType) -> Schema:
        items = self.write(found.item_type)
        if items.get("type") in ("array", "object", None):
            raise self.refusal(
                "is a set of arrays or objects",
                "use a list, since a set holds simple values",
            )
        bounds = _bounds_in(found, "Items")
        return {"type": "array", "items": items, "uniqueItems": True, **bounds}

    def tuple_array(self, found: inspect.TupleType) -> Schema:
        items = [self.write(each) for each in found.item_types]
        if not items or any(each != items[0] for each in items):
            raise self.refusal(
                "is a tuple of different types, but an array has one type of items",
                "use a dataclass with a name for each, or tuple[int, ...]",
            )
        n = len(items)
        return {"type": "array", "items": items[0], "minItems": n, "maxItems": n}

    def dict_object(self, found: inspect.DictType) -> Schema:
        if not isinstance(found.key_type, inspect.StrType | inspect.AnyType):
            raise self.refusal(
                "has keys that are not texts, as JSON requires", "use dict[str, ...]"
            )
        return {
            "type": "object",
            "additionalProperties": self.write(found.value_type) or True,
            **_bounds_in(found, "Properties"),
        }

    def fields_object(
        self, found: inspect.DataclassType | inspect.TypedDictType
    ) -> Schema:
        cls = get_origin(found.cls) or found.cls
        if cls in self._within:
            raise self.refusal(
                f"is recursive ({_name(cls)} contains itself), so its schema would be "
                "endless",
                "limit its depth, or pass JSON as a text",
            )
        if hasattr(cls, "__pydantic_validator__"):
            raise self.refusal(
                f"is the pydantic dataclass {_name(cls)}, whose own checks would not "
                "run",
                "use a pydantic model or a plain dataclass",
            )
        texts = texts_of(cls)
        about = {"description": texts.description} if texts.description else {}
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = {each.name: each for each in found.fields}
        names = list(hints)
        if dataclasses.is_dataclass(cls):
            names = [each.name for each in dataclasses.fields(cls) if each.init]
        properties = {}
        for name in names:
            where = f"{self._where.removesuffix(',')}, field {name!r},"
            plain = hints[name]
            if get_origin(plain) in (typing.Required, typing.NotRequired):
                (plain,) = get_args(plain)
            hint = _with_metas(plain)
            is_bounded = hint != plain
            inside = _SchemaWriter(where, hint, (*self._within, cls))
            text = described(hints[name]) or texts.params.get(name, "")
            type_ = inspect.type_info(hint) if is_bounded else fields[name].type
            schema = inside.write(type_)
            self.has_bounds |= is_bounded or inside.has_bounds
            properties[name] = to_property(schema, text, fields[name].default)
        return {
            "type": "object",
            **about,
            "properties": properties,
            "required": [name for name in names if fields[name].required],
            "additionalProperties": False,
        }

    def model(self, found: inspect.CustomType) -> Schema:
        if _is_path(found.cls):
            return {"type": "string", "format": "path"}
        pydantic = sys.modules.get("pydantic")  # a model's class is not made without it
        if not issubclass(found.cls, getattr(pydantic, "BaseModel", ())):
            return self.refuse(found)
        try:
            whole = found.cls.model_json_schema()  # type: ignore[attr-defined]  # a model
            schema: Schema = _inlined(whole, whole.get("$defs", {}), MAX_MODEL_DEPTH)
            json.dumps(schema, allow_nan=False)
        except RecursionError:
            reason = "contains itself, so its schema would be endless"
        except Exception as problem:  # noqa: BLE001 - a model may raise anything
            reason = f"has no schema ({short(str(problem), 200)})"
        else:
            return schema
        raise self.refusal(
            f"is the model {_name(found.cls)}, which {reason}",
            "use fields of simple types",
        )

    def refuse(self, found: Any) -> Schema:  # noqa: ANN401 - msgspec's types
        kind = _name(getattr(found, "cls", type(found))).removesuffix("Type")
        name = kind if hasattr(found, "cls") else kind.lower()
        raise self.refusal(
            f"is of type {name}, which JSON does not have", f"use {_SUPPORTED}"
        )

    def refusal(self, reason: str, remedy: str) -> ToolSchemaError:
        return ToolSchemaError(f"{self._where} {reason}; {remedy}.")


_WRITERS: Mapping[type, Callable[[_SchemaWriter, Any], Schema]] = {
    inspect.Metadata: lambda writer, found: writer.write(found.type),
    inspect.LiteralType: _SchemaWriter.literal,
    inspect.EnumType: lambda _, found: _choice([each.value for each in found.cls]),
    inspect.UnionType: _SchemaWriter.union,
    inspect.ListType: _SchemaWriter.array,
    inspect.VarTupleType: _SchemaWriter.array,
    inspect.SetType: _SchemaWriter.set_array,
    inspect.FrozenSetType: _SchemaWriter.set_array,
    inspect.TupleType: _SchemaWriter.tuple_array,
    inspect.DictType: _SchemaWriter.dict_object,
    inspect.DataclassType: _SchemaWriter.fields_object,
    inspect.TypedDictType: _SchemaWriter.fields_object,
    inspect.CustomType: _SchemaWriter.model,
}


def _bounds_in(found: object, size: str) -> Schema:
    """Return the bounds that msgspec checks, in the words of JSON schema.

    `size` is what a length is called: Length, Items or Properties.
    """
    words = _NUMBER_BOUNDS | {"min_length": f"min{size}", "max_length": f"max{size}"}
    given = ((words.get(name, name), getattr(found, name, None)) for name in _BOUNDS)
    return {word: bound for word, bound in given if bound is not None}


def _parts(annotation: object) -> Iterator[object]:
    """Iterate over an annotation and everything inside its brackets."""
    yield annotation
    for each in get_args(annotation):
        yield from _parts(each)


def _choice(values: Iterable[object]) -> Schema:
    values = list(values)
    types = list(dict.fromkeys(_json_type(each) for each in values))
    return {"type": types[0] if len(types) == 1 else types, "enum": values}


def _json_type(value: object) -> str:
    return next((word for of, word in _JSON_TYPES if isinstance(value, of)), "null")


def _union(schemas: list[Schema]) -> Schema:
    """Return one schema with a list of types if that is as exact as `anyOf`."""
    types = [word for each in schemas for word in _types(each)]
    rest = [each for each in schemas if each.keys() != {"type"}]
    is_exact = len(types) == len(set(types)) and not {"integer", "number"} <= set(types)
    is_merged = len(rest) <= 1 and all(_types(each) for each in schemas)
    one = rest[0] if rest else {}
    if not (is_exact and is_merged) or one.keys() & _COMBINED:
        return {"anyOf": schemas}
    if "enum" not in one:
        return {**one, "type": types}
    # An enum applies to every type: null can be one of its values, others cannot.
    if set(types) - set(_types(one)) != {"null"}:
        return {"anyOf": schemas}
    return {**one, "type": types, "enum": [*one["enum"], None]}


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


# Values that do not fit


class _ModelError(ValueError):
    """A pydantic model refused a value; msgspec adds where the model is."""

    def __init__(self, at: str, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def _fault(problem: msgspec.ValidationError, at: str, schema: Schema) -> str:
    """Return msgspec's error as a sentence: path, expected, got."""
    said, _, path = str(problem).rpartition(" - at `$")
    said, path = (said, path.removesuffix("`")) if said else (path, "")
    path = path.replace("[...]", "[*]")  # any name of a dict
    cause = problem.__cause__
    if cause is not None:
        inner = cause.at if isinstance(cause, _ModelError) else ""
        return f"{_joined(at, path + inner)}: {short(str(cause), 300)}."
    allowed = _allowed_values(schema, path) if said.startswith("Invalid enum") else ""
    said = _DATES.get(said) or said.replace("`", "")
    return f"{_joined(at, path)}: {said[:1].lower()}{short(said[1:], 300)}{allowed}."


def _joined(at: str, path: str) -> str:
    return f"{at}{path}".removeprefix(".") or "the value"


def _allowed_values(schema: Schema, path: str) -> str:
    """Return the values that an Enum or Literal at a path allows, if known."""
    for step in path.replace("[", ".[").split(".")[1:]:
        name = "items" if step.startswith("[") and "items" in schema else ""
        inner = schema.get(name) or schema.get("properties", {}).get(step)
        schema = inner or schema.get("additionalProperties") or {}
    values = schema.get("enum", [])
    texts = [short(json.dumps(v, ensure_ascii=False)) for v in values]
    more = ["..."] if len(texts) > MAX_SHOWN_VALUES else []
    shown = ", ".join(texts[:MAX_SHOWN_VALUES] + more)
    return f"; expected one of {shown}" if shown else ""


def _in_full(schema: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Write "09:30" in full for msgspec, and "NaN" so that it refuses it."""
    if not isinstance(schema, dict):
        return value
    for each in schema.get("anyOf", ()):
        value = _in_full(each, value)
    if isinstance(value, list):
        return [_in_full(schema.get("items"), each) for each in value]
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return {n: _in_full(known.get(n, rest), each) for n, each in value.items()}
    form = schema.get("format") if isinstance(value, str) else None
    if form == "decimal":
        return "" if _NOT_FINITE.match(value) else value
    return _NO_SECONDS.sub(r"\1:00", value) if form in _TIMES else value


def _bound_fault(schema: Schema, value: object, at: str) -> str:
    """Return the error of a value outside of a bound in a class; empty if none."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to load

    for each in Draft202012Validator(schema).iter_errors(value):
        if each.validator in _CHECKED:
            place = _joined(at, each.json_path.removeprefix("$"))
            return f"{place}: {short(each.message, 300)}."
    return ""


def _unknown_name(schema: Schema, value: object, at: str) -> str:
    """Return the error of a field that the schema does not have; empty if none."""
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        word = "object" if isinstance(value, dict) else "array"
        fits = [each for each in options if word in each.get("type", word)]
        return min((_unknown_name(each, value, at) for each in fits), default="")
    inner: list[tuple[Any, object, str]] = []
    if isinstance(value, list):
        items = schema.get("items")
        inner = [(items, each, f"{at}[{i}]") for i, each in enumerate(value)]
    elif isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name, each in value.items():
            if name not in known and rest is False:
                return unknown_name(at, name, known)
            inner.append((known.get(name, rest), each, _joined(at, f".{name}")))
    faults = (_unknown_name(*each) for each in inner if isinstance(each[0], dict))
    return next(filter(None, faults), "")


def unknown_name(at: str, name: str, known: Iterable[str]) -> str:
    """Return the error of a name that a schema does not have."""
    allowed = ", ".join(known) or "no names"
    place = _joined(at, f".{short(name)}")
    return f"{place}: unknown name; expected {allowed}."


def short(text: str, n_chars: int = 60) -> str:
    """Return a text as one printable line, cut if it is long."""
    return printable(shorten(text, n_chars))


def _name(type_: object) -> str:
    return str(getattr(type_, "__qualname__", type_))


# paths and pydantic


def _is_path(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, PurePath)


def _to_model(model: Any, value: object) -> object:  # noqa: ANN401 - a class
    """Build a path or a model; strict, so that a text is not accepted as a number."""
    if _is_path(model):
        return model(msgspec.convert(value, str))
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValueError as problem:
        if not hasattr(problem, "errors"):
            raise
        first = problem.errors()[0]
        steps = [f"[{s}]" if isinstance(s, int) else f".{s}" for s in first["loc"]]
        raise _ModelError("".join(steps), first["msg"]) from None


def _inlined(schema: Any, known: dict[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON
    """Replace references by what they name, since the document shows none."""
    if depth <= 0:
        raise RecursionError
    if isinstance(schema, list):
        return [_inlined(each, known, depth - 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = known[schema["$ref"].rsplit("/", 1)[-1]]
        rest = {name: each for name, each in schema.items() if name != "$ref"}
        return _inlined({**named, **rest}, known, depth - 1)
    kept = {
        name: _inlined_word(name, each, known, depth)
        for name, each in schema.items()
        if name not in ("$defs", "discriminator", "title")
    }
    if kept.get("type") == "object" and "properties" in kept:
        kept.setdefault("required", [])
        kept.setdefault("additionalProperties", False)
    return kept


def _inlined_word(name: str, value: Any, known: dict[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON
    if name in ("default", "enum", "examples", "const"):  # values, not schemas
        return value
    if name == "properties":  # whose names may be words of JSON schema
        return {key: _inlined(each, known, depth - 1) for key, each in value.items()}
    return _inlined(value, known, depth - 1)

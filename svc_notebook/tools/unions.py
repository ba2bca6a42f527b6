"""Unions: a value of one of several kinds.

Rules: one schema with a list of types wherever that says it all, since the document
shows a `type` for every input; the strictest kind that takes a value reads it.
"""

from dataclasses import dataclass
from datetime import datetime

from .faults import Faults
from .kinds import Kind, Moment, Number, Schema, Text, type_word

_MERGEABLE = {
    "type",
    "description",
    "format",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "additionalProperties",
    "enum",
}


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value of one of several kinds."""

    members: tuple[Kind, ...]

    @property
    def wanted(self) -> str:
        """What it has to be."""
        return " or ".join(member.wanted for member in self.members)

    @property
    def schema(self) -> Schema:
        """The JSON schema of it; a list of types wherever that says it all."""
        schemas = [member.schema for member in self.members]
        return _merged(schemas) or {"anyOf": schemas}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Read the value as the first kind that takes it, the strictest first."""
        told = []
        for member in sorted(self.members, key=_laxity):
            inner = Faults()
            got = member.read(value, at, inner)
            if not inner:
                return got
            if _types(member.schema) & {type_word(value)} & {"object", "array"}:
                told.append(inner)
        if len(told) == 1:  # only one kind was meant: what it lacks helps most
            return faults.take(told[0])
        return faults.wrong(at, value, self.wanted)


def _laxity(kind: Kind) -> int:
    """Order kinds: a text takes any date and choice, a number any whole number."""
    return isinstance(kind, Text | Number) + (kind == Moment(datetime))


def _merged(schemas: list[Schema]) -> Schema | None:
    """Write kinds of different JSON types as one schema, if that is as exact."""
    plain = [schema for schema in schemas if schema.keys() == {"type"}]
    rest = [schema for schema in schemas if schema.keys() != {"type"}]
    types = [word for schema in (*plain, *rest) for word in _types(schema)]
    is_exact = len(types) == len(set(types)) and not {"integer", "number"} <= set(types)
    if len(rest) > 1 or not is_exact or any(not _is_mergeable(each) for each in rest):
        return None
    # An enum binds all types, so that null joins it and nothing else can.
    if rest and "enum" in rest[0]:
        if any(schema != {"type": "null"} for schema in plain):
            return None
        rest = [{**rest[0], "enum": [*rest[0]["enum"], None]}] if plain else rest
    in_order = [word for schema in schemas for word in _in_order(schema)]
    return {**(rest[0] if rest else {}), "type": in_order}


def _is_mergeable(schema: Schema) -> bool:
    """Say whether a schema's words leave values of other types alone, but for enum."""
    return "type" in schema and schema.keys() <= _MERGEABLE


def _in_order(schema: Schema) -> list[str]:
    words = schema.get("type", [])
    return [words] if isinstance(words, str) else list(words)


def _types(schema: Schema) -> set[str]:
    inner = [_types(each) for each in schema.get("anyOf", ())]
    return set(_in_order(schema)).union(*inner)

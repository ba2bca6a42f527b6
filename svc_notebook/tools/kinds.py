"""Kinds of values: what a schema says of each, and how its JSON becomes Python.

What it is not: no annotations here (`annotations` turns them into kinds), and no
JSON text (`arguments` parses it).

Rules: a kind's schema and its reading say the same; a boolean is not a number, a
whole number will do for any number; reading never raises, it adds to the faults and
then what it returns is not used (doc: Tool definition).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

from .faults import Faults, inside, listed

Schema = dict[str, Any]
MAX_EXACT = 2**53  # above it a float no longer tells whole numbers apart


class Kind(Protocol):
    """What a value may be."""

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""

    @property
    def wanted(self) -> str:
        """What it has to be, in words: "text"."""

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Turn a JSON value into Python's, or add what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text."""

    wanted = "text"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "string"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Take a text as it is."""
        if not isinstance(value, str):
            faults.wrong(at, value, self.wanted)
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    wanted = "true or false"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "boolean"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Take a boolean as it is."""
        if not isinstance(value, bool):
            faults.wrong(at, value, self.wanted)
        return value


@dataclass(frozen=True, slots=True)
class Null:
    """Nothing."""

    wanted = "null"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "null"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Take null."""
        if value is not None:
            faults.wrong(at, value, self.wanted)
        return None


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; 3.0 is one, as in JSON schema."""

    wanted = "a whole number"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "integer"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Take an integer."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        is_whole = isinstance(value, float) and value.is_integer()
        if is_whole and abs(value) <= MAX_EXACT:  # type: ignore[arg-type]  # a float
            return int(value)  # type: ignore[call-overload]  # a float
        return faults.wrong(at, value, self.wanted)


@dataclass(frozen=True, slots=True)
class Number:
    """Any number."""

    wanted = "a number"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "number"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Take a number as a float."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return faults.wrong(at, value, self.wanted)
        try:
            return float(value)
        except OverflowError:
            return faults.add(f"{at} is a number too large for a float.")


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, or a date with a time, as ISO 8601 writes it."""

    of: type[date]

    @property
    def wanted(self) -> str:
        """What it has to be."""
        if self.of is datetime:
            return 'a date and time as text, such as "2026-01-31T09:30:00"'
        return 'a date as text, such as "2026-01-31"'

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        is_timed = self.of is datetime
        return {"type": "string", "format": "date-time" if is_timed else "date"}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Read a date."""
        if isinstance(value, str):
            try:
                return self.of.fromisoformat(value)
            except ValueError:
                pass
        return faults.wrong(at, value, self.wanted)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values.

    Attributes:
        values: As JSON has them.
        objects: What each stands for in Python.
    """

    values: tuple[Any, ...]
    objects: tuple[object, ...]

    @property
    def wanted(self) -> str:
        """What it has to be."""
        return f"one of {listed(self.values)}"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        types = tuple(dict.fromkeys(map(type_word, self.values)))
        return {
            "type": types[0] if len(types) == 1 else list(types),
            "enum": list(self.values),
        }

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Find what a value stands for."""
        for each, stands_for in zip(self.values, self.objects, strict=True):
            # True == 1 in Python, not in JSON.
            if each == value and isinstance(each, bool) is isinstance(value, bool):
                return stands_for
        return faults.wrong(at, value, self.wanted)


@dataclass(frozen=True, slots=True)
class Many:
    """An array.

    Attributes:
        item: What each item may be.
        make: Turns the items into what the function wants.
        n_items: How many there are to be; None for any number.
        is_unique: Whether no item may come twice.
    """

    item: Kind
    make: Callable[[Iterable[Any]], object] = list
    n_items: int | None = None
    is_unique: bool = False

    @property
    def wanted(self) -> str:
        """What it has to be."""
        return "an array" if self.n_items is None else f"an array of {self.n_items}"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        schema: Schema = {"type": "array", "items": self.item.schema}
        if self.n_items is not None:
            schema |= {"minItems": self.n_items, "maxItems": self.n_items}
        return schema | ({"uniqueItems": True} if self.is_unique else {})

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Read every item."""
        if not isinstance(value, list):
            return faults.wrong(at, value, self.wanted)
        if self.n_items not in (None, len(value)):
            return faults.add(
                f"{at} has {len(value)} items; it has to be {self.wanted}."
            )
        inner = Faults()
        items = [
            self.item.read(each, f"{at}[{i}]", inner) for i, each in enumerate(value)
        ]
        if inner:
            return faults.take(inner)
        if self.is_unique and len(set(items)) < len(items):
            return faults.add(f"{at} holds an item twice; each may be there once.")
        return self.make(items)


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose names are free: `dict[str, T]`."""

    item: Kind
    wanted = "an object"

    @property
    def schema(self) -> Schema:
        """The JSON schema of it."""
        return {"type": "object", "additionalProperties": self.item.schema}

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Read every value."""
        if not isinstance(value, Mapping):
            return faults.wrong(at, value, self.wanted)
        return {
            name: self.item.read(each, inside(at, name), faults)
            for name, each in value.items()
        }


def type_word(value: object) -> str:
    """Name the JSON type of a value, as JSON schema does."""
    if value is None:
        return "null"
    for types, word in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, types):
            return word
    return "object"

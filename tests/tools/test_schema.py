"""Types as JSON schemas, and what cannot be described."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import pandas as pd
import pytest
from annotated_types import Gt, Predicate
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.tools.schema import build
from svc_notebook.tools.toolbox import tool


class Unit(Enum):
    """Degrees."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Level(IntEnum):
    """How much."""

    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place on Earth.

    Attributes:
        latitude: Degrees north.
        longitude: Degrees east.
    """

    latitude: float
    longitude: float = 0.0
    marks: list[str] = field(default_factory=list)
    n_seen: int = field(default=0, init=False)


class Order(TypedDict, total=False):
    """An order."""

    item: Required[str]
    amount: Annotated[int, "How many."]


class Paid(Order):
    """An order that was paid."""

    price: float
    note: NotRequired[str]


@dataclass
class Tree:
    """Holds itself."""

    name: str
    branches: "list[Tree]"


@pydantic_dataclass
class Bounded:
    """Has checks that only pydantic runs."""

    number: Annotated[int, Field(ge=1)]


@dataclass
class Ranged:
    """Has bounds of its fields."""

    number: Annotated[int, Field(ge=1)]
    words: list[Annotated[str, Field(min_length=2)]] | None = None


Item = TypeVar("Item")


@dataclass
class Box(Generic[Item]):
    """Holds anything."""

    item: Item


UserId = NewType("UserId", int)


def _properties(function: Callable[..., object]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tool(function).definition["function"][
        "parameters"
    ]["properties"]
    return found


def _property(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any type
    """Return the schema of one parameter of a type."""

    def asked(given: Any) -> None:  # noqa: ANN401 - replaced below
        """Ask."""

    asked.__annotations__["given"] = annotation
    return _properties(asked)["given"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (UserId, {"type": "integer"}),
        (time, {"type": "string", "format": "time"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string", "format": "path"}),
        (Path | None, {"type": ["string", "null"], "format": "path"}),
        (Any, {}),
        (Item, {}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (Annotated[int, Field(ge=1)], {"type": "integer", "minimum": 1}),
        (Annotated[float, Gt(0)], {"type": "number", "exclusiveMinimum": 0}),
        (
            Annotated[int | None, Field(le=5, description="How many.")],
            {
                "type": ["integer", "null"],
                "description": "How many.",
                "maximum": 5,
            },
        ),
        (
            Annotated[str, Field(description="A word.")],
            {
                "type": "string",
                "description": "A word.",
            },
        ),
        (
            list[Annotated[str, Field(min_length=2, pattern="^a")]],
            {
                "type": "array",
                "items": {"type": "string", "minLength": 2, "pattern": "^a"},
            },
        ),
        (
            Annotated[list[int], Field(max_length=3)],
            {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        ),
        (
            Level,
            {"type": "integer", "description": "How much.", "enum": [1, 2]},
        ),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"type": ["string", "integer"], "enum": ["a", 1]}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (
            set[str],
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        ),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[float, float],
            {
                "type": "array",
                "items": {"type": "number"},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Mapping[str, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045 - written so
        (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
        (
            Unit | None,
            {
                "type": ["string", "null"],
                "description": "Degrees.",
                "enum": ["celsius", "fahrenheit", None],
            },
        ),
        (
            Unit | int,
            {
                "anyOf": [
                    {
                        "type": "string",
                        "description": "Degrees.",
                        "enum": ["celsius", "fahrenheit"],
                    },
                    {"type": "integer"},
                ]
            },
        ),
        (int | float, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (
            Box[int],
            {
                "type": "object",
                "description": "Holds anything.",
                "properties": {"item": {"type": "integer"}},
                "required": ["item"],
                "additionalProperties": False,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "description": "A place on Earth.",
                "properties": {
                    "latitude": {"type": "number", "description": "Degrees north."},
                    "longitude": {
                        "type": "number",
                        "description": "Degrees east.",
                        "default": 0.0,
                    },
                    "marks": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["latitude"],
                "additionalProperties": False,
            },
        ),
        (
            Paid,
            {
                "type": "object",
                "description": "An order that was paid.",
                "properties": {
                    "item": {"type": "string"},
                    "amount": {"type": "integer", "description": "How many."},
                    "price": {"type": "number"},
                    "note": {"type": "string"},
                },
                "required": ["item", "price"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_types_become_schemas(annotation: object, schema: dict[str, Any]) -> None:
    """Each type that can be described has this schema."""
    assert _property(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "reason", "remedy"),
    [
        (pd.DataFrame, "DataFrame", "use str, int"),
        (set[Point], "a set of arrays or objects", "use a list"),
        (tuple[int, str], "a tuple of different types", "dataclass"),
        (Enum("Odd", {"A": object()}), "Enum", "use str, int"),
        (Tree, "Tree contains itself", "depth"),
        ("Missing", "cannot be read", "TYPE_CHECKING"),
        ("1 +", "cannot be read", "TYPE_CHECKING"),
    ],
)
def test_what_cannot_be_described_is_refused(
    annotation: object, reason: str, remedy: str
) -> None:
    """A type that JSON cannot carry is refused with the parameter and a remedy."""
    with pytest.raises(ToolSchemaError) as refused:
        _property(annotation)

    assert reason in str(refused.value)
    assert remedy in str(refused.value)
    assert "asked" in str(refused.value)


class Counts(TypedDict):
    """Has a bound on a field that may be left out."""

    number: NotRequired[Annotated[int, Field(ge=1)]]


@pytest.mark.parametrize(
    ("type_", "value", "fault"),
    [
        (Ranged, {"number": 0}, "number: input should be greater than or equal to 1"),
        (Bounded, {"number": 0}, "number: input should be greater than or equal to 1"),
        (
            list[Ranged],
            [{"number": 1, "words": ["an", "a"]}],
            "[0].words[1]: string should have at least 2 characters",
        ),
        (Counts, {"number": 0}, "number: input should be greater than or equal to 1"),
        (dict[str, Decimal], {"a": "-Infinity"}, "a: input should be a finite number"),
        (Decimal, "NaN", "the value: input should be a finite number"),
        (Annotated[Decimal, Field(ge=1)], "0.5", "the value: input should be greater"),
        (Annotated[int, Predicate(bool)], 0, "the value: predicate 'bool' failed"),
    ],
)
def test_bounds_are_checked(
    type_: Any,  # noqa: ANN401 - types
    value: object,
    fault: str,
) -> None:
    """A bound of a field or a type is checked, and a NaN is refused."""
    with pytest.raises(ToolCallError) as refused:
        build(type_, value)

    assert str(refused.value).startswith(fault)


def test_a_default_that_is_no_json_is_left_out() -> None:
    """The model need not know a default that it could not write."""

    def asked(
        a: float = float("nan"),
        b: int = 10**5000,
        c: str = "\ud800",
        d: str = "x" * 999,
    ) -> None:
        """Ask."""

    properties = _properties(asked)

    assert [each.keys() for each in properties.values()] == [{"type"}] * 4


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (Any, [{"a": 1}], [{"a": 1}]),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 1.5, Decimal("1.5")),
        (UUID, str(UUID(int=7)), UUID(int=7)),
        (Path, "a/b.csv", Path("a/b.csv")),
        (time, "09:30:00", time(9, 30)),
        (list, [1, "a"], [1, "a"]),
        (dict[str, Any], {"a": None}, {"a": None}),
        (Annotated[int, Field(ge=1)], 1, 1),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (date | str, "soon", "soon"),
        (Optional[Order], {"item": "tea"}, {"item": "tea"}),  # noqa: UP045 - written so
    ],
)
def test_values_become_objects_of_the_type(
    annotation: Any,  # noqa: ANN401 - any type
    value: object,
    read: object,
) -> None:
    """A function gets what its annotation says."""
    assert build(annotation, value) == read


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (Decimal, "many", "valid decimal"),
        (UUID, "7", "valid UUID"),
        (Path, 7, "valid string; got 7"),
        (time, "half past nine", "valid time format"),
        (list, "a", "valid array"),
        (Annotated[int, Field(ge=1)], 0, "greater than or equal to 1; got 0"),
        (list[Annotated[str, Field(min_length=2)]], ["a"], "[0]: string should have"),
        (int | list[int], ["a"], "valid integer"),
        (date, "1577836800", 'expected a date such as "2026-01-31"'),
        (list[datetime] | None, ["2026"], '[0]: expected a date such as "2026-01-31"'),
        (Level, True, "expected one of [1, 2]; got true"),
        (Point, {"latitude": 1, "n_seen": 2}, "n_seen: unknown name; expected latit"),
        (list[Point | Box[int]], [{}], "[0].latitude is missing."),
    ],
)
def test_values_that_do_not_fit_are_refused(
    annotation: Any,  # noqa: ANN401 - any type
    value: object,
    said: str,
) -> None:
    """The model reads what was expected; nothing is converted silently."""
    with pytest.raises(ToolCallError) as refused:
        build(annotation, value)

    assert said in str(refused.value)

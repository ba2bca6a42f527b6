"""What a function becomes, and what is refused when the tool is made."""

import functools
import typing
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime
from enum import Enum, IntEnum
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
    Union,
)

import pandas as pd
import pytest
from annotated_types import Gt

from svc_notebook.errors import ToolSchemaError
from svc_notebook.tools.schema import parameters_of, schema_of
from svc_notebook.tools.tool import Tool, tool


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


@dataclass
class Starting:
    """Wants something that it does not keep."""

    seed: InitVar[int]


Item = TypeVar("Item")


@dataclass
class Box(Generic[Item]):
    """Holds anything."""

    item: Item


UserId = NewType("UserId", int)


def _property(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any type
    """Return the schema of one parameter of a type."""

    def asked(given: Any) -> None:  # noqa: ANN401 - replaced below
        """Ask."""

    asked.__annotations__["given"] = annotation
    found: dict[str, Any] = parameters_of(asked)["properties"]["given"]
    return found


def weather(  # noqa: D417 - one parameter without a text
    city: str, days: list[str], *, unit: Unit = Unit.CELSIUS
) -> str:
    """Tell the weather of a city.

    It is a forecast.

    Args:
        city: The city's name,
            in any language.
        days: Dates.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit}"


def test_a_function_becomes_the_documents_definition() -> None:
    """Name, description, parameters and their texts are as the document shows them."""
    made = tool(weather)

    assert made.definition == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather of a city.\n\nIt is a forecast.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {
                        "type": "string",
                        "description": "The city's name, in any language.",
                    },
                    "days": {
                        "type": "array",
                        "description": "Dates.",
                        "items": {"type": "string"},
                    },
                    "unit": {
                        "type": "string",
                        "enum": ["celsius", "fahrenheit"],
                        "default": "celsius",
                    },
                },
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }


NUMPY = """Add.

Parameters
----------
left : int
    The first.
right : int
    The second.
"""
REST = """Add.

:param left: The first.
:param int right: The second.
:returns: The sum.
"""
GOOGLE = """Add.

Args:
    left (int): The first.
    right: The second.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings_of_three_styles_are_read(doc: str) -> None:
    """Google, NumPy and reST docstrings give the same definition."""

    def add(left: int, right: int) -> int:
        return left + right

    add.__doc__ = doc

    function = tool(add).definition["function"]

    assert function["description"] == "Add."
    assert function["parameters"]["properties"] == {
        "left": {"type": "integer", "description": "The first."},
        "right": {"type": "integer", "description": "The second."},
    }


@pytest.mark.parametrize(
    "doc", [None, "", "   ", "Args:\n  :::", "Args:\n----\n\ufeff:"]
)
def test_an_odd_docstring_is_no_error(doc: str | None) -> None:
    """Without a description that can be read, something is sent in its place."""

    def look_up() -> None: ...

    look_up.__doc__ = doc

    assert tool(look_up).description


def test_without_a_docstring_the_name_is_the_description() -> None:
    """The document shows a description always: the name stands in for it."""

    def look_up() -> None: ...

    assert tool(look_up).description == "look up"


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
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"type": ["string", "integer"], "enum": ["a", 1]}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (Collection[int], {"type": "array", "items": {"type": "integer"}}),
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
        (Union[int, str], {"type": ["integer", "string"]}),  # noqa: UP007 - written so
        (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
        (
            Unit | None,
            {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
        ),
        (
            Unit | int,
            {
                "anyOf": [
                    {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    {"type": "integer"},
                ]
            },
        ),
        (int | float, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
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


def test_a_type_alone_has_a_schema() -> None:
    """A dataclass has the same schema alone as it has as a parameter."""
    assert schema_of(Point) == _property(Point)


def test_a_default_of_none_allows_null() -> None:
    """`city: str = None` means that null will do."""

    def asked(city: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013 - as people write it
        """Ask."""

    assert parameters_of(asked)["properties"] == {"city": {"type": ["string", "null"]}}


class Clock:
    """Has methods to offer."""

    zone = "UTC"

    def now(self, format: str) -> str:  # noqa: A002 - any name
        """Tell the time."""
        return f"{self.zone} {format}"

    @staticmethod
    def day(number: int) -> int:
        """Tell the day."""
        return number

    @classmethod
    def month(cls, number: int) -> str:
        """Tell the month."""
        return f"{cls.zone} {number}"

    def __call__(self, year: int) -> int:
        """Tell the year."""
        return year


@pytest.mark.parametrize(
    ("function", "name", "description", "parameters"),
    [
        (Clock().now, "now", "Tell the time.", ["format"]),
        (Clock.day, "day", "Tell the day.", ["number"]),
        (Clock.month, "month", "Tell the month.", ["number"]),
        (Clock(), "Clock", "Tell the year.", ["year"]),
        (functools.partial(Clock().now), "now", "Tell the time.", ["format"]),
        (
            functools.partial(weather, unit=Unit.FAHRENHEIT),
            "weather",
            "Tell the weather of a city.\n\nIt is a forecast.",
            ["city", "days"],
        ),
        (
            functools.partial(weather, "Chiang Mai"),
            "weather",
            "Tell the weather of a city.\n\nIt is a forecast.",
            ["days", "unit"],
        ),
    ],
)
def test_methods_and_partials_are_functions(
    function: Callable[..., object], name: str, description: str, parameters: list[str]
) -> None:
    """What is bound or set already is not offered to the model."""
    made = tool(function)

    got = (made.name, made.description, list(made.parameter_names))
    assert got == (name, description, parameters)


def _stars(*numbers: int) -> None:
    """Take any number."""


def _names(**numbers: int) -> None:
    """Take any names."""


def _by_position(number: int, /) -> None:
    """Take by position."""


def _bare(number) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point
    """Say nothing of the type."""


def _yields(number: int) -> Iterator[int]:
    """Yield."""
    yield number


async def _yields_later(number: int) -> AsyncIterator[int]:
    """Yield later."""
    yield number


@pytest.mark.parametrize(
    ("function", "reason", "remedy"),
    [
        (_stars, "any number of values (*numbers)", "take a list"),
        (_names, "any number of values (**numbers)", "dict[str, ...]"),
        (_by_position, "only be given by position", "take the / out"),
        (_bare, "'number' has no annotation", "number: str"),
        (Clock.now, "the object of a method", "thing.method"),
        (_yields, "yields its results", "return a list"),
        (_yields_later, "yields its results", "return a list"),
        (Clock, "the class Clock", "write a function"),
        (3, "of type int", "write a function"),
        (lambda: None, "lambda", "def"),
        (print, "any number of values", "take a list"),
        (tool(weather), "is a tool already", "weather.function"),
    ],
)
def test_what_cannot_be_called_by_name_is_refused(
    function: Any,  # noqa: ANN401 - the point
    reason: str,
    remedy: str,
) -> None:
    """The refusal names the reason and the remedy when the tool is made."""
    with pytest.raises(ToolSchemaError) as refused:
        tool(function)

    assert reason in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "reason", "remedy"),
    [
        (Any, "Any", "use str, int"),
        (object, "object", "use str, int"),
        (Callable[[], int], "Callable", "use str, int"),
        (pd.DataFrame, "DataFrame", "use str, int"),
        (bytes, "bytes", "use str, int"),
        (complex, "complex", "use str, int"),
        (Item, "Item", "use str, int"),
        (Box[int], "Box", "use str, int"),
        (list, "a list of unsaid contents", "list[str]"),
        (dict, "a dict of unsaid contents", "dict[str, float]"),
        (list[object], "object", "use str, int"),
        (dict[int, str], "keys of type int", "dict[str, ...]"),
        (set[Point], "a set of an object", "use a list"),
        (tuple[int, str], "a tuple of different types", "dataclass"),
        (tuple[()], "a tuple of unsaid contents", "tuple[int, ...]"),
        (Sequence, "a Sequence of unsaid contents", "list[str]"),
        (typing.List, "a list of unsaid contents", "as in list[str]"),  # noqa: UP006 - as people write it
        (typing.Mapping, "a Mapping of unsaid contents", "dict[str, float]"),
        (Literal[b"x"], "b'x'", "texts, numbers or booleans"),
        (Enum("Odd", {"A": object()}), "not JSON", "texts, numbers or booleans"),
        (Enum("Nothing", {}), "allows no value", "at least one member"),
        (Tree, "holds Tree in itself", "depth"),
        (Starting, "InitVar", "plain fields"),
        ("Missing", "cannot be read", "TYPE_CHECKING"),
        ("1 +", "cannot be read", "TYPE_CHECKING"),
        (3, "3", "use str, int"),
        (Literal[2**2000], "not JSON", "texts, numbers or booleans"),
        (Annotated[int, Gt(0)], "only a pydantic model checks", "in a text"),
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


def test_texts_that_cannot_be_sent_are_refused() -> None:
    """Half of a surrogate pair in a text is found before anything is sent."""

    def asked(city: Annotated[str, "\ud800"]) -> None:
        """Ask."""

    with pytest.raises(ToolSchemaError, match="cannot be sent as JSON"):
        tool(asked)


def test_a_default_that_is_no_json_is_left_out() -> None:
    """The model need not know a default that it could not write."""

    def asked(
        a: float = float("nan"),
        b: int = 10**5000,
        c: str = "\ud800",
        d: str = "x" * 999,
    ) -> None:
        """Ask."""

    properties = parameters_of(asked)["properties"]

    assert [each.keys() for each in properties.values()] == [{"type"}] * 4


def test_what_a_function_returns_may_be_anything() -> None:
    """Only parameters are offered: the annotation of the result is not looked at."""

    def asked(city: "str") -> "NotLoaded":  # type: ignore[name-defined]  # noqa: F821 - the point
        """Ask."""

    assert tool(asked).parameter_names == ("city",)


@pytest.mark.parametrize("name", ["", " ", "two words", "line\n", 3, "\ud800"])
def test_a_blank_name_is_refused(name: Any) -> None:  # noqa: ANN401 - the point
    """A name that is empty, or has blanks, is refused; no pattern is invented."""
    with pytest.raises(ToolSchemaError):
        tool(weather, name=name)


@pytest.mark.parametrize("name", ["weather", "อากาศ", "a.b/c", "x" * 65])
def test_any_other_name_is_taken(name: str) -> None:
    """The document shows no pattern of names, so none is demanded."""
    assert tool(weather, name=name).definition["function"]["name"] == name


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("timeout_s", 0),
        ("timeout_s", -1.0),
        ("timeout_s", True),
        ("timeout_s", "5"),
        ("timeout_s", float("inf")),
        ("timeout_s", float("nan")),
        ("max_result_tokens", 0),
        ("max_result_tokens", 1.5),
        ("max_result_tokens", True),
        ("confirm", 1),
    ],
)
def test_a_setting_outside_its_range_is_refused(
    setting: str,
    value: Any,  # noqa: ANN401 - the point
) -> None:
    """The refusal names the setting and its value."""
    with pytest.raises(ToolSchemaError, match=f"{setting}="):
        tool(weather, **{setting: value})


def test_a_tool_can_be_called_like_its_function() -> None:
    """The decorator leaves a function that works, with its name and docstring."""

    @tool(confirm=True, timeout_s=5)
    def area(width: float, height: float) -> float:
        """Compute an area."""
        return width * height

    assert isinstance(area, Tool)
    assert area(2, height=3) == 6
    assert (area.__name__, area.__doc__) == ("area", "Compute an area.")  # type: ignore[attr-defined]  # copied
    assert repr(area) == "Tool(area(width, height), asks first)"


def test_async_functions_are_known() -> None:
    """A coroutine function, also in a partial or as `__call__`, is async."""

    async def later(city: str) -> str:
        """Wait."""
        return city

    class Later:
        async def __call__(self, city: str) -> str:
            """Wait."""
            return city

    functions: list[Any] = [later, functools.partial(later, "x"), Later(), weather]

    assert [tool(each).is_async for each in functions] == [True, True, True, False]

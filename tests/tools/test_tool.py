"""What a function becomes, and what is refused when the tool is made."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from typing import Annotated, Any

import pytest

from svc_notebook.errors import ToolSchemaError
from svc_notebook.tools.toolbox import Tool, Toolbox, tool


class Unit(Enum):
    """Degrees."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


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
                        "description": "Degrees.",
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
    ("doc", "description"),
    [
        (None, "look up"),
        ("   ", "look up"),
        ("Args:\n  :::", "Args:\n:::"),
        ("Args:\n----\n\ufeff:", "Args:\n----\n\ufeff:"),
    ],
)
def test_a_description_is_always_sent(doc: str | None, description: str) -> None:
    """Without a docstring that can be read, the name or the text is sent."""

    def look_up() -> None: ...

    look_up.__doc__ = doc

    assert tool(look_up).description == description


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
        (_by_position, "only be given by position", "remove the /"),
        (_bare, "'number' has no annotation", "number: str"),
        (_yields, "yields several results", "return a list"),
        (_yields_later, "yields several results", "return a list"),
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


class Shop:
    """Has tools in its body."""

    def __init__(self, price: int) -> None:
        self.price = price

    @tool
    def cost(self, n: int) -> int:
        """Tell what so many cost."""
        return n * self.price

    @tool(name="later")
    async def cost_later(self, n: int) -> int:
        """Tell it later."""
        return n * self.price


def test_a_method_is_a_tool_of_its_object() -> None:
    """In a class body a tool waits for its object, which is never offered."""
    one, other = Shop(2), Shop(3)
    box = Toolbox([one.cost, one.cost_later])

    assert [each.signature for each in box] == ["cost(n)", "later(n)"]
    assert [each.is_async for each in box] == [False, True]
    assert (one.cost(n=5), other.cost(5), Shop.cost(one, 1)) == (10, 15, 2)


@pytest.mark.parametrize("method", [Shop.cost, Clock.now])
def test_a_method_without_its_object_is_not_offered(method: Any) -> None:  # noqa: ANN401 - the point
    """The refusal says how the method is offered."""
    with pytest.raises(ToolSchemaError, match=r"object is missing; .* thing\.\w+"):
        Toolbox([method])


def test_texts_that_cannot_be_sent_are_refused() -> None:
    """Half of a surrogate pair in a text is found before anything is sent."""

    def asked(city: Annotated[str, "\ud800"]) -> None:
        """Ask."""

    with pytest.raises(ToolSchemaError, match="cannot be sent as JSON"):
        tool(asked)


@pytest.mark.parametrize("name", ["", " ", "two words", "line\n", 3, "\ud800"])
def test_a_blank_name_is_refused(name: Any) -> None:  # noqa: ANN401 - the point
    """A name that is empty, or has blanks, is refused; no pattern is invented."""
    with pytest.raises(ToolSchemaError):
        tool(weather, name=name)


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
    with pytest.raises(ToolSchemaError, match=f"{setting} must be .*{value}"):
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

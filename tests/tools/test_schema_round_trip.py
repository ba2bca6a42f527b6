"""Random types: definition, check and call agree."""

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import make_dataclass
from datetime import date, datetime
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typing_extensions import TypedDict

from svc_notebook.errors import ToolCallError
from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.tools.call import CheckedCall, check_call, parse_arguments, run_call
from svc_notebook.tools.toolbox import Tool, Toolbox, tool

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type, and a strategy for JSON values that it takes."""


class Colour(Enum):
    """Texts by value."""

    RED = "red"
    GREEN = "green"


def _ordered(items: list[int]) -> list[int]:
    """Put the items of a set in the order that results have."""
    return sorted(items, key=str)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WHOLE = st.integers(-(2**70), 2**70)
NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
SIMPLE: list[Typed] = [
    (str, TEXT),
    (int, WHOLE),
    (float, NUMBER),
    (bool, st.booleans()),
    (date, st.dates().map(date.isoformat)),
    (datetime, st.datetimes().map(datetime.isoformat)),
    (Literal["b", "a"], st.sampled_from(["a", "b"])),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Colour, st.sampled_from(["red", "green"])),
    (int | str, WHOLE | TEXT),
    (float | bool | None, NUMBER | st.booleans() | st.none()),
    (list[int] | str, st.lists(WHOLE, max_size=2) | TEXT),
    (Colour | int, st.sampled_from(["red", "green"]) | WHOLE),
    (set[int], st.lists(WHOLE, max_size=3, unique=True).map(_ordered)),
]
NUMBERED = count()


def _around(inner: Typed) -> st.SearchStrategy[Typed]:
    """Draw a type that holds one other type."""
    type_, values = inner
    several = st.lists(values, max_size=3)
    return st.sampled_from(
        [
            (list[type_], several),  # type: ignore[valid-type]  # made here
            (tuple[type_, ...], several),  # type: ignore[valid-type]  # made here
            (tuple[type_, type_], st.tuples(values, values).map(list)),  # type: ignore[valid-type]  # made here
            (dict[str, type_], st.dictionaries(TEXT, values, max_size=3)),  # type: ignore[valid-type]  # made here
            (type_ | None, st.none() | values),
            (Annotated[type_, "what it is"], values),
        ]
    )


def _dataclass(inner: list[Typed]) -> Typed:
    named = {f"f{at}": each for at, each in enumerate(inner)}
    pairs = [(name, each[0]) for name, each in named.items()]
    made = make_dataclass(f"Made{next(NUMBERED)}", pairs)
    return made, st.fixed_dictionaries({name: each[1] for name, each in named.items()})


def _typed_dict(inner: list[Typed]) -> Typed:
    named = {f"k{at}": each for at, each in enumerate(inner)}
    pairs = {name: each[0] for name, each in named.items()}
    made = TypedDict(f"Made{next(NUMBERED)}", pairs, total=False)  # type: ignore[misc]  # made here
    optional = {name: each[1] for name, each in named.items()}
    return made, st.fixed_dictionaries({}, optional=optional)


def _larger(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    fields = st.lists(inner, max_size=3)
    return inner.flatmap(_around) | fields.map(_dataclass) | fields.map(_typed_dict)


TYPES = st.recursive(st.sampled_from(SIMPLE), _larger, max_leaves=4)


def _function(types: list[Typed], n_required: int) -> Callable[..., Any]:
    """Make a function of parameters of some types; it returns what it was given."""

    def made(**given: Any) -> dict[str, Any]:  # noqa: ANN401 - any argument
        """Return what was given."""
        return given

    parameters = [
        inspect.Parameter(
            f"p{at}",
            inspect.Parameter.KEYWORD_ONLY,
            annotation=each[0],
            default=inspect.Parameter.empty if at < n_required else ...,
        )
        for at, each in enumerate(types)
    ]
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect reads
    made.__annotations__ = {each.name: each.annotation for each in parameters}
    return made


@st.composite
def tools(draw: st.DrawFn) -> tuple[Tool, st.SearchStrategy[dict[str, Any]]]:
    """Draw a tool of a random signature, and a strategy for its arguments."""
    types = draw(st.lists(TYPES, max_size=4))
    n_required = draw(st.integers(0, len(types)))
    values = [(f"p{at}", each[1]) for at, each in enumerate(types)]
    arguments = st.fixed_dictionaries(
        dict(values[:n_required]), optional=dict(values[n_required:])
    )
    return tool(_function(types, n_required), max_result_tokens=10**7), arguments


JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBER | TEXT | st.sampled_from(["a", "red"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["p0", "p1", "f0", "k0", "x"]), inner)
    ),
    max_leaves=6,
)
RANDOM = settings(
    deadline=None, max_examples=60, suppress_health_check=list(HealthCheck)
)


def _schema(made: Tool) -> dict[str, Any]:
    schema: dict[str, Any] = made.definition["function"]["parameters"]
    return schema


def _check(made: Tool, text: str) -> CheckedCall | None:
    call = ToolCall(id="1", function=FunctionCall(name=made.name, arguments=text))
    checked = check_call(Toolbox([made]), call)
    assert isinstance(checked, CheckedCall) or checked.error
    return checked if isinstance(checked, CheckedCall) else None


@pytest.mark.slow
@RANDOM
@given(st.data())
def test_what_a_type_takes_comes_back_equal(data: st.DataObject) -> None:
    """Values of the types fit the definition, and are equal after check and call."""
    made, strategy = data.draw(tools())
    arguments = data.draw(strategy)

    checked = _check(made, json.dumps(arguments))

    Draft202012Validator.check_schema(_schema(made))
    Draft202012Validator(_schema(made)).validate(arguments)
    assert checked is not None
    run = run_call(made, checked.call, checked.arguments)
    assert run.error is None
    assert json.loads(run.result) == arguments
    assert run.arguments == arguments


@pytest.mark.slow
@RANDOM
@given(tools(), JSON)
def test_what_the_definition_forbids_is_refused(
    drawn: tuple[Tool, object], value: object
) -> None:
    """No value passes the check that the definition does not allow."""
    made = drawn[0]
    schema = json.loads(json.dumps(_schema(made)).replace("uniqueItems", "x-unique"))

    is_allowed = Draft202012Validator(schema).is_valid(value)
    assert is_allowed or _check(made, json.dumps(value)) is None


@RANDOM
@given(st.text(st.sampled_from('{}[]",:\\u0d8eE+-.1tfnNaI '), max_size=30))
def test_no_text_makes_a_foreign_error(text: str) -> None:
    """Text that is nearly JSON is read, or refused with our own error."""
    with suppress(ToolCallError):
        assert isinstance(parse_arguments(text), dict)

"""Functions with random annotated signatures: schema, check and call agree."""

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import make_dataclass
from datetime import date, datetime
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal, TypedDict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from svc_notebook.errors import ToolCallError
from svc_notebook.service.tool import FunctionCall, ToolCall
from svc_notebook.tools.arguments import parse_arguments
from svc_notebook.tools.calling import Checked, check_call, run_call
from svc_notebook.tools.schema import read
from svc_notebook.tools.tool import Tool, tool
from svc_notebook.tools.toolbox import Toolbox

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type, and a strategy for JSON values that it takes."""


class Colour(Enum):
    """Texts by value."""

    RED = "red"
    GREEN = "green"


class Size(Enum):
    """Numbers by value."""

    S = 1
    M = 2.5


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
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Colour, st.sampled_from(["red", "green"])),
    (Size, st.sampled_from([1, 2.5])),
]
PLAIN_UNIONS: list[Typed] = [
    (int | str, WHOLE | TEXT),
    (float | bool | None, NUMBER | st.booleans() | st.none()),
    (list[int] | str, st.lists(WHOLE, max_size=2) | TEXT),
    (Colour | int, st.sampled_from(["red", "green"]) | WHOLE),
]
NUMBERED = count()


def _listed(inner: Typed) -> Typed:
    return list[inner[0]], st.lists(inner[1], max_size=3)  # type: ignore[valid-type]  # made here


def _tupled(inner: Typed) -> Typed:
    return tuple[inner[0], ...], st.lists(inner[1], max_size=3)  # type: ignore[valid-type]  # made here


def _paired(inner: Typed) -> Typed:
    return (
        tuple[inner[0], inner[0]],  # type: ignore[valid-type]  # made here
        st.lists(inner[1], min_size=2, max_size=2),
    )


def _mapped(inner: Typed) -> Typed:
    return dict[str, inner[0]], st.dictionaries(TEXT, inner[1], max_size=3)  # type: ignore[valid-type]  # made here


def _optional(inner: Typed) -> Typed:
    return inner[0] | None, st.none() | inner[1]


def _described(inner: Typed) -> Typed:
    return Annotated[inner[0], "what it is"], inner[1]


def _dataclass(inner: list[Typed]) -> Typed:
    names = [f"f{at}" for at in range(len(inner))]
    pairs = [(name, each[0]) for name, each in zip(names, inner, strict=True)]
    made = make_dataclass(f"Made{next(NUMBERED)}", pairs)
    return made, st.fixed_dictionaries(
        {name: each[1] for name, each in zip(names, inner, strict=True)}
    )


def _typed_dict(inner: list[Typed]) -> Typed:
    names = [f"k{at}" for at in range(len(inner))]
    pairs = {name: each[0] for name, each in zip(names, inner, strict=True)}
    made = TypedDict(f"Made{next(NUMBERED)}", pairs, total=False)  # type: ignore[misc]  # made here
    return made, st.fixed_dictionaries(
        {}, optional={name: each[1] for name, each in zip(names, inner, strict=True)}
    )


def _sets() -> st.SearchStrategy[Typed]:
    return st.sampled_from(SIMPLE[:4]).map(
        lambda each: (set[each[0]], st.lists(each[1], max_size=3, unique=True))  # type: ignore[valid-type]  # made here
    )


def _larger(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    alone = [_listed, _tupled, _paired, _mapped, _optional, _described]
    several = st.lists(inner, max_size=3)
    return st.one_of(
        *(inner.map(each) for each in alone),
        several.map(_dataclass),
        several.map(_typed_dict),
    )


TYPES = st.recursive(
    st.sampled_from(SIMPLE + PLAIN_UNIONS) | _sets(), _larger, max_leaves=4
)


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
    strategies = {f"p{at}": each[1] for at, each in enumerate(types)}
    required = {name: strategies[name] for name in list(strategies)[:n_required]}
    optional = {name: strategies[name] for name in list(strategies)[n_required:]}
    arguments = st.fixed_dictionaries(required, optional=optional)
    made = tool(_function(types, n_required), max_result_tokens=10**7)
    return made, arguments


JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBER | TEXT | st.sampled_from(["a", "red"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["p0", "p1", "f0", "k0", "x"]), inner)
    ),
    max_leaves=6,
)
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def _call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="call_1", function=FunctionCall(name=name, arguments=arguments))


def _sorted(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Write arrays in one order: a set has none."""
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items()}
    if isinstance(value, list):
        # Whole numbers and floats that are equal are the same in JSON.
        return sorted(
            map(_sorted, value),
            key=lambda each: json.dumps(_rounded(each), sort_keys=True),
        )
    return _rounded(value)


def _rounded(value: Any) -> Any:  # noqa: ANN401 - JSON
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _schemas(schema: object) -> Iterator[dict[str, Any]]:
    """Walk through a schema's schemas."""
    if isinstance(schema, dict):
        yield schema
        inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
        for each in (*inner, schema.get("items"), schema.get("additionalProperties")):
            yield from _schemas(each)


@SLOW
@given(tools())
def test_every_definition_has_the_documents_shape(drawn: tuple[Tool, object]) -> None:
    """A definition is a JSON schema of the fields that the document shows."""
    definition = drawn[0].definition

    assert definition.keys() == {"type", "function"}
    assert definition["function"].keys() == {"name", "description", "parameters"}
    parameters = definition["function"]["parameters"]
    Draft202012Validator.check_schema(parameters)
    assert json.loads(json.dumps(parameters)) == parameters
    for schema in _schemas(parameters):
        assert "type" in schema or "anyOf" in schema
        if "properties" in schema:
            assert schema["additionalProperties"] is False
            assert set(schema["required"]) <= schema["properties"].keys()


@SLOW
@given(st.data())
def test_valid_arguments_survive_the_round_trip(data: st.DataObject) -> None:
    """Arguments that fit are JSON, then checked, then given, and come back equal."""
    made, strategy = data.draw(tools())
    arguments = data.draw(strategy)
    call = _call(made.name, json.dumps(arguments))

    checked = check_call(Toolbox([made]), call)

    assert isinstance(checked, Checked), checked
    run = run_call(made, call, checked.arguments)
    assert run.error is None
    assert _sorted(json.loads(run.result)) == _sorted(arguments)
    assert run.sent_arguments == arguments


@SLOW
@given(tools(), JSON)
def test_the_check_and_the_schema_agree(
    drawn: tuple[Tool, object], value: object
) -> None:
    """What the check takes, the schema allows; what it refuses, it refuses in words."""
    schema = drawn[0].definition["function"]["parameters"]
    is_allowed = Draft202012Validator(schema).is_valid(value)
    is_taken = False
    faults: tuple[str, ...] = ("",)

    try:
        read(drawn[0].parameters, value)
        is_taken = True
    except ToolCallError as problem:
        faults = problem.faults

    # The schema's formats are notes; the check reads dates. A whole number larger
    # than a float holds is a float in JSON only.
    is_noted = "format" in json.dumps(schema)
    assert is_taken == is_allowed or (is_noted and not is_taken)
    assert is_taken or all(each.endswith((".", "?")) for each in faults)


@SLOW
@given(tools(), st.text(max_size=30) | JSON.map(json.dumps))
def test_any_text_of_arguments_is_answered(
    drawn: tuple[Tool, object], text: str
) -> None:
    """Whatever the model writes as arguments ends as a call or as an answer."""
    made = drawn[0]

    got = check_call(Toolbox([made]), _call(made.name, text))

    assert isinstance(got, Checked) or got.error


@SLOW
@given(st.text(st.sampled_from('{}[]",:\\u0d8eE+-.1tfnNaI '), max_size=30))
def test_no_text_makes_a_foreign_error(text: str) -> None:
    """Text that is nearly JSON is read, or refused with our own error."""
    with suppress(ToolCallError):
        assert isinstance(parse_arguments(text), dict)

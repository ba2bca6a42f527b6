"""Ready-made definitions and pydantic models: checked by their own schemas."""

import re
import sys
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, RootModel, field_validator

from svc_notebook.analysis.scorers import json_schema
from svc_notebook.errors import ConfigError, ToolCallError, ToolSchemaError
from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.tools.call import CheckedCall, ToolRun, check_call, run_call
from svc_notebook.tools.schema import build, schema_of
from svc_notebook.tools.toolbox import Toolbox, from_definition, tool


def _definition(parameters: object, **others: object) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": "find", "parameters": parameters, **others},
    }


FIND = _definition(
    {
        "type": "object",
        "properties": {
            "what": {"type": "string", "minLength": 2},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "required": ["what"],
        "additionalProperties": False,
    }
)


def _find(**given: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return given


def _call(arguments: str) -> ToolCall:
    return ToolCall(id="1", function=FunctionCall(name="find", arguments=arguments))


def test_a_ready_made_definition_is_sent_as_it_is() -> None:
    """A definition has no function, and nothing is added to it."""
    made = from_definition(FIND)

    assert made.definition == FIND
    assert made.function is None
    assert made.parameter_names == ("what", "kinds")
    with pytest.raises(ToolCallError, match="definition without a function"):
        made(what="x")


def test_a_function_can_have_a_ready_made_definition() -> None:
    """The function is called with the checked JSON, whatever its annotations."""
    made = tool(_find, definition=FIND)

    checked = check_call(Toolbox([made]), _call('{"what": "xy", "kinds": ["a"]}'))

    assert isinstance(checked, CheckedCall)
    run = run_call(made, checked.call, checked.arguments)
    assert run.result == '{"what":"xy","kinds":["a"]}'


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{}", "'what' is a required property"),
        ('{"what": 3}', "what: 3 is not of type 'string'"),
        ('{"what": "xy", "z": 1}', "'z' was unexpected"),
        ('{"what": "xy", "kinds": ["a", "c"]}', "kinds[1]: 'c' is not one of ['a', 'b"),
        ('{"what": "x"}', "what: 'x' is too short"),
    ],
)
def test_calls_are_checked_against_a_ready_made_schema(
    arguments: str, expected: str
) -> None:
    """The model reads the path and what the schema says."""
    run = check_call(Toolbox([FIND]), _call(arguments))

    assert isinstance(run, ToolRun)
    assert expected in str(run.error)


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "function"},
        {"type": "tool", "function": {"name": "x"}},
        {"type": "function", "function": {"name": ""}},
        _definition({"type": "array"}),
        _definition({"type": "object", "properties": []}),
        _definition({"type": "object", "properties": {"a": {"type": "text"}}}),
        _definition({"type": "object", "$ref": "https://example.org/schema"}),
        _definition({"type": "object", "properties": {"a": {"$ref": "file:///a"}}}),
        _definition({"type": "object", "default": float("nan")}),
        _definition({"type": "object", "default": {1, 2}}),
    ],
    ids=range(10),
)
def test_what_is_no_definition_is_refused(definition: dict[str, Any]) -> None:
    """Nothing that the document does not allow is taken; nothing is ever fetched."""
    with pytest.raises(
        ToolSchemaError, match=r"definition|parameters of find|cannot be called"
    ):
        from_definition(definition)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/nothing"},
        {"pattern": "("},
        {"$dynamicRef": "#nothing"},
    ],
    ids=["reference", "pattern", "dynamic"],
)
def test_a_schema_that_fails_while_checking_is_no_foreign_error(
    schema: dict[str, Any],
) -> None:
    """An error inside jsonschema is reported when the tool is made, or for the call."""
    definition = _definition({"type": "object", "properties": {"a": schema}})

    try:
        run = check_call(Toolbox([definition]), _call('{"a": "x"}'))
    except ToolSchemaError:
        return

    assert isinstance(run, ToolRun)
    assert run.error is not None
    assert "cannot be checked" in run.error


def test_without_jsonschema_only_ready_made_definitions_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the command that installs it; functions need no such check."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)

    with pytest.raises(ConfigError, match=r"pip install jsonschema$"):
        from_definition(FIND)
    with pytest.raises(ConfigError, match=r"pip install jsonschema$"):
        json_schema({"type": "object"})
    assert tool(_greet).name == "_greet"
    assert json_schema(dict[str, int])({"text": '{"a": 1}'}) is True


def _greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}."


class Line(BaseModel):
    """A line of an invoice."""

    title: str = Field(description="What was bought.")
    price: float = Field(ge=0)


class Invoice(BaseModel):
    """An invoice."""

    lines: list[Line]
    on: date
    kind: Literal["paid", "open"] = "open"
    first: Line | None = None

    @field_validator("lines")
    @classmethod
    def _is_not_empty(cls, lines: list[Line]) -> list[Line]:
        if not lines:
            raise ValueError("an invoice has lines")
        return lines


class Chain(BaseModel):
    """Holds itself."""

    next: "Chain | None" = None


def test_a_models_schema_has_the_documents_shape() -> None:
    """References are put in their places, titles left out, names never."""
    schema = schema_of(Invoice)

    line = {
        "description": "A line of an invoice.",
        "properties": {
            "title": {"description": "What was bought.", "type": "string"},
            "price": {"minimum": 0, "type": "number"},
        },
        "required": ["title", "price"],
        "type": "object",
        "additionalProperties": False,
    }
    assert schema == {
        "description": "An invoice.",
        "properties": {
            "lines": {"items": line, "type": "array"},
            "on": {"format": "date", "type": "string"},
            "kind": {"default": "open", "enum": ["paid", "open"], "type": "string"},
            "first": {**line, "type": ["object", "null"]},
        },
        "required": ["lines", "on"],
        "type": "object",
        "additionalProperties": False,
    }
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "the value: input should be an object; got 3."),
        ({"lines": [{"title": "tea", "price": 1}]}, "on is missing."),
        (
            {"lines": [{"title": "tea", "price": "3"}], "on": "2026-01-31"},
            'lines[0].price: input should be a valid number; got "3".',
        ),
        (
            {"lines": [{"title": "tea", "price": -1}], "on": "2026-01-31"},
            "lines[0].price: input should be greater than or equal to 0; got -1.",
        ),
        (
            {"lines": [{"title": "tea", "price": 1, "x": 2}], "on": "2026-01-31"},
            "lines[0].x: unknown name; expected title, price",
        ),
        ({"lines": [], "on": "2026-01-31"}, "lines: an invoice has lines."),
        (
            {"lines": [{"title": "tea", "price": 1}], "on": "soon"},
            "on: input should be a valid date",
        ),
    ],
)
def test_what_does_not_fit_a_model_is_refused(value: object, expected: str) -> None:
    """The path, what is expected and what came are for the model."""
    with pytest.raises(ToolCallError, match="^" + re.escape(expected)):
        build(Invoice, value)


def test_a_model_as_a_parameter_is_given_as_one() -> None:
    """The function gets the model, not the JSON."""
    given: list[object] = []

    def find(invoice: Invoice) -> str:
        """Find an invoice."""
        given.append(invoice)
        return invoice.kind

    made = tool(find)
    call = _call('{"invoice": {"lines": [{"title":"a","price":1}],"on":"2026-01-31"}}')

    checked = check_call(Toolbox([made]), call)

    assert isinstance(checked, CheckedCall)
    assert run_call(made, call, checked.arguments).result == "open"
    assert isinstance(given[0], Invoice)


@pytest.mark.parametrize("model", [Chain, dict[str, Chain]], ids=["alone", "within"])
def test_a_model_that_holds_itself_is_refused(model: Any) -> None:  # noqa: ANN401 - any type
    """A schema without references has to end."""
    with pytest.raises(ToolSchemaError, match="contains itself"):
        schema_of(model)


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    title: str = "Madam"


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    owner: dict[str, str] = {"title": "Sir"}


class Pet(RootModel[Annotated[Cat | Dog, Field(discriminator="kind")]]):
    """A cat or a dog."""


def test_unions_of_models_are_told_apart() -> None:
    """A union keeps its kinds beside null; defaults and names stay as they are."""

    def feed(pet: Pet | None) -> None:
        """Feed."""

    schema = tool(feed).definition["function"]["parameters"]["properties"]["pet"]

    cat, dog = schema["anyOf"][0]["oneOf"]
    assert schema["anyOf"][1] == {"type": "null"}
    assert cat["properties"]["title"] == {"type": "string", "default": "Madam"}
    assert dog["properties"]["owner"]["default"] == {"title": "Sir"}
    assert "discriminator" not in schema["anyOf"][0]
    assert build(Pet, {"kind": "dog"}) == Pet(Dog(kind="dog"))

"""Tool calls: which tools are called, with what, and the text about results."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.emulator.emulated_calls import calls_for
from svc_notebook.emulator.emulated_service import Service
from svc_notebook.emulator.http_values import Reply, RuleError
from svc_notebook.emulator.request_checks import ChatRequest, read_chat_request

Fields = Callable[..., dict[str, Any]]
MakeChat = Callable[..., ChatRequest]

CITY = "Chiang Mai"

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def _tool(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    function = {"name": name, "description": name}
    return {
        "type": "function",
        "function": function | ({"parameters": schema} if schema else {}),
    }


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Use get_weather for Chiang Mai", ["get_weather"]),
        ("Get weather and get_time!", ["get_weather", "get_time"]),
        ("What is GET_TIME?", ["get_time"]),
        ("Is 1 ++ 2 right?", ["++"]),
        ("forget_timeless things", []),
        ("Tell me about rain", []),
        ("ใช้ get_time ที่เชียงใหม่", ["get_time"]),
        ("อากาศที่เชียงใหม่เป็นอย่างไร", ["อากาศ"]),
    ],
)
def test_named_tools_are_called(
    make_chat: MakeChat, question: str, names: list[str]
) -> None:
    """A prompt that names offered tools is answered with calls, in their order."""
    tools = [_tool("get_weather", WEATHER), *map(_tool, ("get_time", "++", "อากาศ"))]

    calls = calls_for(make_chat(question, tools=tools))

    assert [call.name for call in calls] == names


def _fields(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_a_whole_number_is_written_without_a_fraction(make_chat: MakeChat) -> None:
    """As models write it, so that `250` is not shown as `250.0` later."""
    schema = _fields(baht={"type": "number"}, share={"type": "number"})
    tools = [_tool("refund", schema)]
    chat = make_chat("Run refund: 250 baht, a share of 0.5", tools=tools)

    (call,) = calls_for(chat)

    assert call.arguments == '{"baht": 250, "share": 0.5}'


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (WEATHER, {"city": "Chiang Mai"}),
        (_fields(q={"type": "string"}), {"q": "Chiang Mai"}),
        (
            _fields(a={"type": "integer"}, b={"type": "number"}),
            {"a": 3, "b": 4.5},
        ),
        (_fields(a={"type": "integer", "maximum": 2}), {"a": 2}),
        (_fields(a={"type": "integer", "exclusiveMinimum": 9}), {"a": 10}),
        (_fields(u={"enum": ["kelvin", "celsius"]}), {"u": "kelvin"}),
        (_fields(u={"const": "x"}), {"u": "x"}),
        (_fields(b={"type": "boolean"}), {"b": True}),
        (_fields(b={"type": ["null", "string"]}), {"b": None}),
        (_fields(n={"anyOf": [{"type": "string"}, {"type": "null"}]}), {"n": CITY}),
        (
            _fields(a={"type": "array", "minItems": 2, "items": {"type": "integer"}}),
            {"a": [3, 4]},
        ),
        (_fields(a={"type": "array", "maxItems": 0}), {"a": []}),
        (_fields(o=_fields(s={"type": "string", "maxLength": 2})), {"o": {"s": "Ch"}}),
        (_fields(), {}),
        (
            _fields(o={"$ref": "#/$defs/Place"})
            | {
                "$defs": {
                    "Place": _fields(u={"$ref": "#/$defs/Unit"}) | {"required": ["u"]},
                    "Unit": {"enum": ["kelvin", "celsius"]},
                }
            },
            {"o": {"u": "kelvin"}},
        ),
        (
            _fields(
                d={"type": "string", "format": "date"},
                t={"type": "string", "format": "date-time"},
            ),
            {"d": "2026-01-02", "t": "2026-01-02T03:04:05Z"},
        ),
        (
            _fields(
                days={"type": "string", "format": "decimal"},
                heat={"type": ["string", "null"], "format": "decimal"},
                more={"type": "string", "format": "decimal"},
            ),
            {"days": "3", "heat": "4.5", "more": "1"},
        ),
    ],
)
def test_arguments_satisfy_the_schema(
    make_chat: MakeChat, schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The prompt's names and numbers are used where they fit."""
    chat = make_chat(
        f"Run look_up for {CITY}, 3 days at 4.5 celsius",
        tools=[_tool("look_up", schema)],
    )

    (call,) = calls_for(chat)

    assert json.loads(call.arguments) == arguments
    jsonschema.validate(arguments, schema, format_checker=jsonschema.FormatChecker())


def test_a_schema_that_refers_to_itself_is_filled_in(
    make_chat: MakeChat,
) -> None:
    """A tree ends where nothing more is required of it."""
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree~1Node"}},
        "$defs": {
            "Tree/Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "leaves": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Tree~1Node"},
                    },
                },
                "required": ["name", "leaves"],
            }
        },
    }

    (call,) = calls_for(make_chat("look_up", tools=[_tool("look_up", schema)]))

    leaf = {"name": "made up", "leaves": []}
    assert json.loads(call.arguments) == {"tree": {"name": "made up", "leaves": [leaf]}}
    jsonschema.validate(json.loads(call.arguments), schema)


_WORDS = st.sampled_from(
    [
        *("type", "properties", "required", "items", "enum", "anyOf", "const"),
        *("minItems", "minLength", "maxLength", "minimum", "maximum"),
        *("$ref", "allOf", "multipleOf", "exclusiveMinimum", "uniqueItems", "format"),
        *("object", "array", "string", "integer", "number", "boolean", "null"),
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.dictionaries(_WORDS, _JSON, max_size=5))
def test_no_schema_breaks_the_filling_in(schema: dict[str, Any]) -> None:
    """Arguments are JSON text, whatever the schema says."""
    body = {
        "model": "svc-instruct",
        "messages": [{"role": "user", "content": "look_up 7"}],
        "tools": [
            _tool("look_up", {"type": "object", "properties": {"a": schema}}),
        ],
    }

    with suppress(RuleError):
        chat = read_chat_request(json.dumps(body).encode())

        assert isinstance(json.loads(calls_for(chat)[0].arguments), dict)


def test_wide_schemas_are_filled_in_quickly(
    make_chat: MakeChat,
) -> None:
    """Arrays of arrays of arrays do not grow without end."""
    wide: dict[str, Any] = {"type": "string"}
    for _ in range(7):
        wide = {"type": "array", "minItems": 16, "items": wide}
    schema = {"type": "object", "properties": {"a": wide}}

    (call,) = calls_for(make_chat("look_up", tools=[_tool("look_up", schema)]))

    assert len(call.arguments) < 50_000


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"properties": {"city": "string"}}, "properties"),
        ({"properties": {"city": ["string"]}}, "properties"),
        ({"properties": {}, "required": "city"}, "required"),
        ({"properties": {}, "required": [1]}, "required"),
    ],
)
def test_a_schema_of_another_shape_is_refused(
    fields: Fields, wrong: dict[str, Any], named: str
) -> None:
    """Properties are objects, and the required ones a list of names."""
    body = fields(tools=[_tool("look_up", {"type": "object"} | wrong)])

    with pytest.raises(RuleError) as caught:
        read_chat_request(json.dumps(body).encode())

    assert f"'tools[0].function.parameters.{named}'" in str(caught.value)


@pytest.mark.parametrize("max_tokens", range(1, 15))
@pytest.mark.parametrize("is_streamed", [False, True])
def test_calls_take_no_more_than_max_tokens(
    make_service: Callable[..., Service],
    post: Callable[..., Reply],
    fields: Fields,
    max_tokens: int,
    *,
    is_streamed: bool,
) -> None:
    """Calls that do not fit are cut like a text, and the reply says so."""
    asked = fields(
        "Use get_weather for Chiang Mai",
        tools=[_tool("get_weather", WEATHER)],
        max_tokens=max_tokens,
        stream=is_streamed,
    )
    whole = '{"city": "Chiang Mai"}'

    reply = post(make_service(), asked)

    if is_streamed:
        parts = [
            part
            for each in _streamed(reply)
            for part in each["delta"].get("tool_calls", [])
        ]
        arguments = "".join(part["function"]["arguments"] for part in parts)
        reason = _streamed(reply)[-1]["finish_reason"]
    else:
        (choice,) = _body(reply)["choices"]
        calls = choice["message"].get("tool_calls", [])
        arguments = "".join(call["function"]["arguments"] for call in calls)
        reason = choice["finish_reason"]
        assert _body(reply)["usage"]["completion_tokens"] <= max_tokens
    assert whole.startswith(arguments)
    assert reason == ("stop" if arguments == whole else "length")


def _streamed(reply: Reply) -> list[Any]:
    return [json.loads(piece.data[6:])["choices"][0] for piece in reply.body[:-1]]


def _body(reply: Reply) -> Any:  # noqa: ANN401 - JSON
    return json.loads(b"".join(piece.data for piece in reply.body))


def test_a_whole_flow_ends_in_an_answer_with_the_results(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """Calls come, results go back, and the answer tells them."""
    service = make_service()
    body = fields(
        "Use get_weather and get_time",
        tools=[_tool("get_weather", WEATHER), _tool("get_time")],
    )

    asked = _body(post(service, body))["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {at}"}
        for at, call in enumerate(asked["tool_calls"])
    ]
    history = [*body["messages"], asked, *results]
    answer = _body(post(service, body | {"messages": history}))["choices"][0]

    assert answer["message"]["content"].startswith(
        "get_weather answered: result 0. get_time answered: result 1. "
    )
    assert "tool_calls" not in answer["message"]


def test_streamed_calls_join_to_the_whole_ones(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """Pieces with the same index make the call that a whole reply holds."""
    service = make_service()
    body = fields("Use get_weather for Phuket", tools=[_tool("get_weather", WEATHER)])
    whole = _body(post(service, body))["choices"][0]["message"]["tool_calls"]

    deltas = [
        each["delta"] for each in _streamed(post(service, body | {"stream": True}))
    ]
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]

    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert {part["index"] for part in parts} == {0}
    assert parts[0]["function"]["name"] == whole[0]["function"]["name"]
    assert (
        "".join(part["function"]["arguments"] for part in parts)
        == whole[0]["function"]["arguments"]
    )

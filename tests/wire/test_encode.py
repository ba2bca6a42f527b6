"""Requests as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.service.request import build_request
from svc_notebook.wire.encode import encode

DOCUMENT = Path(__file__).parents[1] / "document"
REQUESTS = json.loads((DOCUMENT / "requests.json").read_text("utf-8"))["bodies"]
FLOW = json.loads((DOCUMENT / "tool_flow.json").read_text("utf-8"))
BODIES = [*REQUESTS.values(), FLOW["request"], FLOW["follow_up"]]


@pytest.mark.parametrize("body", BODIES)
def test_transcribed_requests(body: dict[str, Any]) -> None:
    """Every request that was transcribed from the document can be written."""
    rest = {name: value for name, value in body.items() if name not in _OWN}
    request = build_request(body["messages"], model=body["model"], params=rest)

    got = json.loads(encode(request, is_streamed=body.get("stream", False)))

    empty = {"stream": False, "tools": []}
    assert {**empty, **got} == {**empty, **body}


_OWN = {"model", "messages", "stream"}


def test_everything_there_is() -> None:
    """Every field travels under the document's name, tuples as arrays."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{ }"},
    }
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "r", "tool_call_id": "c1"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"a": (1,)}}}
    request = build_request(
        messages,
        model="m",
        params={
            "stop": ["a", "b"],
            "n": 2,
            "top_p": None,
            "tools": [tool],
            "extra": {"seed": 5, "deep": [{"x": None}, True, 1.5]},
        },
    )

    got = json.loads(encode(request, is_streamed=False))

    tool["function"]["parameters"] = {"a": [1]}  # type: ignore[index]  # a mapping
    assert got == {
        "model": "m",
        "messages": messages,
        "stop": ["a", "b"],
        "n": 2,
        "tools": [tool],
        "seed": 5,
        "deep": [{"x": None}, True, 1.5],
    }


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip))
def test_text_goes_unchanged(text: str) -> None:
    """Any text, NUL and U+2028 among it, arrives byte for byte."""
    request = build_request(text, model="m", system=text)

    got = json.loads(encode(request, is_streamed=False))["messages"]

    assert [each["content"] for each in got] == [text, text]


NO_JSON: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "surrogate": "\ud800",
    "object": object(),
    "bytes": b"x",
    "set": {1},
    "number name": {1: 2},
    "surrogate name": {"\ud800": 2},
}


@pytest.mark.parametrize("name", NO_JSON)
@pytest.mark.parametrize("deep", [False, True])
def test_what_json_cannot_carry(name: str, deep: bool) -> None:
    """A value without a JSON form is refused by its place, not sent as null."""
    value = {"a": [NO_JSON[name]]} if deep else NO_JSON[name]
    request = build_request("Hi", model="m", params={"extra": {"x": value}})

    with pytest.raises(ParameterError, match=r"extra\['x'\]") as caught:
        encode(request, is_streamed=False)

    assert caught.value.param == "extra"


def test_what_has_no_end() -> None:
    """A value that holds itself is refused."""
    endless: list[Any] = []
    endless.append(endless)
    tool = {"type": "function", "function": {"name": "f", "parameters": endless}}
    request = build_request("Hi", model="m", params={"tools": [tool]})

    with pytest.raises(ParameterError, match="nested deeper") as caught:
        encode(request, is_streamed=False)

    assert caught.value.param == "tools"

"""Tokens in a stream, where an endpoint reports them if it is asked to."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.client.sync_client import Client
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import Endpoint
from svc_notebook.settings import Settings

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def _chunk(text: str, tokens: int, reason: str | None = None) -> dict[str, Any]:
    delta = {"content": text} if text else {}
    usage = {**USAGE, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"choices": [choice], "usage": usage}


LAST = [{**_chunk("Hi", 1), "usage": None}, {**_chunk("", 2, "stop"), "usage": None}]
EVENTS = {
    "in the last chunk": [*LAST, {"choices": [], "usage": USAGE}],
    "in every chunk": [_chunk("H", 1), _chunk("i", 2), _chunk("", 2, "stop")],
    "in both": [
        _chunk("Hi", 1),
        _chunk("", 2, "stop"),
        {"choices": [], "usage": USAGE},
    ],
}


@pytest.fixture(params=EVENTS)
def emulator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    """A server that reports tokens in one of the ways that are known."""
    events = [*EVENTS[request.param], "[DONE]"]
    with Emulator(script=[{"events": events, "times": None}]) as running:
        yield running


def client(emulator: Emulator, **more: Any) -> Client:  # noqa: ANN401 - any setting
    """Return a client of an endpoint at the emulator."""
    endpoint = Endpoint(name="lab", base_url=emulator.base_url, **more)
    settings = Settings(base_url=emulator.base_url, endpoint=endpoint)
    return Client(settings, api_key=emulator.api_key, sinks=())


def test_it_is_asked_for_and_read(emulator: Emulator) -> None:
    """The endpoint's setting asks for it in streams alone; its last word counts."""
    with client(emulator, stream_usage=True) as lab:
        stream = lab.stream("Hello")
        assert "".join(stream) == "Hi"
        lab.complete("Hello")
        list(lab.stream("Hello", extra={"stream_options": {"x": 1}}))
        own = {"x": 1, "include_usage": False}
        list(lab.stream("Hello", extra={"stream_options": own}))

    asked = [each.json.get("stream_options") for each in emulator.requests]
    assert asked == [
        {"include_usage": True},
        None,
        {"include_usage": True, "x": 1},
        own,
    ]
    assert stream.completion.usage_source == "reported"
    assert stream.completion.usage.total_tokens == 7


def test_it_is_not_asked_for_otherwise(emulator: Emulator) -> None:
    """The service gets no field that its document does not show; `extra` may ask."""
    with client(emulator) as service:
        list(service.stream("Hello"))
        list(service.stream("Hello", extra={"stream_options": {"x": 1}}))

    asked = [each.json.get("stream_options") for each in emulator.requests]
    assert asked == [None, {"x": 1}]

"""What the service is sent, byte for byte: what other servers need changes nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.session import isolated
from tests.faults.server import RawServer

SENT = json.loads(Path(__file__).with_name("service_requests.json").read_text("utf-8"))
"""The lines and the body of each request, by the name of the function that asks."""


def _answer(message: dict[str, Any], reason: str) -> list[bytes]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps(reply | {"choices": [choice]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    return [head + b"%d\r\n\r\n" % len(body) + body]


CALLS = _answer(
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "It needs the tide.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "tide", "arguments": '{"day": "Monday"}'},
                "extra_content": {"google": {"thought_signature": "c2ln"}},
            }
        ],
    },
    "tool_calls",
)
TEXT = _answer({"role": "assistant", "content": "High."}, "stop")


def tide(day: str) -> str:
    """Return the tide of a day."""
    return f"high on {day}"


def plain() -> None:
    """Ask as a newcomer does."""
    svc.complete("What is a tide?")


def with_everything() -> None:
    """Ask with each parameter, and fields that the document does not show."""
    svc.complete(
        "Hi",
        model="svc-v2-70b-instruct",
        system="Be brief.",
        max_tokens=20,
        temperature=0.5,
        top_p=1,
        n=1,
        stop=["a", "b"],
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.05,
        user="me",
        extra={"seed": 1, "max_completion_tokens": 500},
    )


def fitted_with_extra() -> None:
    """Ask for what the prompt leaves, and name another limit too."""
    svc.complete("Hi", extra={"max_completion_tokens": 500, "tool_choice": "auto"})


def without_a_number() -> None:
    """Leave the reply's size to the service."""
    svc.complete("Hi", max_tokens=None)


def streamed() -> None:
    """Ask for a stream, which here comes in one piece."""
    "".join(svc.stream("Hi", extra={"stream_options": {"x": 1}}))


def in_rounds() -> None:
    """Let a tool run, with a choice that the document does not show."""
    svc.complete(
        "Tide?", tools=[tide], max_rounds=2, extra={"tool_choice": "auto"}, max_tokens=9
    )


def in_a_conversation() -> None:
    """Ask twice in a conversation."""
    talk = svc.conversation("tides")
    talk.ask("What is a tide?")
    talk.ask("And an ebb?", max_tokens=30)


def in_a_sweep() -> None:
    """Ask once for each row, in a sweep."""
    svc.sweep("About {{word}}", rows=[{"word": "tide"}], temperature=[0]).run()


def with_messages() -> None:
    """Send a history with calls and their results."""
    call = {"id": "1", "function": {"name": "tide", "arguments": "{}"}}
    svc.complete(
        [
            {"role": "user", "content": "Tide?"},
            {"role": "assistant", "tool_calls": [{"type": "function", **call}]},
            {"role": "tool", "content": "high", "tool_call_id": "1"},
        ]
    )


ASK: tuple[Callable[[], None], ...] = (
    *(plain, with_everything, fitted_with_extra, without_a_number, streamed),
    *(in_rounds, in_a_conversation, in_a_sweep, with_messages),
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    """The service, which calls a tool where it is offered one."""
    with closing(RawServer([TEXT])) as server:
        monkeypatch.setenv("SVC_BASE_URL", server.base_url)
        monkeypatch.setenv("SVC_API_KEY", "sk-of-the-service")
        monkeypatch.setenv("SVC_LEDGER", ":memory:")
        with isolated():
            yield server


def _sent(server: RawServer, ask: Callable[[], None]) -> list[list[str]]:
    """Return the lines and the body of each request, without what differs by run."""
    if ask is in_rounds:
        server.answer_in_turn([CALLS, TEXT])
    ask()
    requests = []
    for request in server.requests:
        head, _, body = request.decode().partition("\r\n\r\n")
        lines = [
            line for line in head.split("\r\n") if not line.startswith(("Host", "User"))
        ]
        requests.append([*lines, body])
    return requests


@pytest.mark.parametrize("ask", ASK, ids=lambda ask: ask.__name__)
def test_the_service_is_asked_as_its_document_says(
    service: RawServer, ask: Callable[[], None]
) -> None:
    """Its numbers, its form and nothing else are on the wire."""
    assert _sent(service, ask) == SENT[ask.__name__]

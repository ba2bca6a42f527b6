"""Requests and services for the emulator's tests."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.emulator.emulated_service import Service, Setup
from svc_notebook.emulator.http_values import Reply, Request
from svc_notebook.emulator.request_checks import ChatRequest, read_chat_request
from svc_notebook.emulator.script import Script

Fields = Callable[..., dict[str, Any]]


class SetClock:
    """A clock that does not move by itself."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.at_s


@pytest.fixture
def clock() -> SetClock:
    """A clock that a test moves."""
    return SetClock()


@pytest.fixture
def fields() -> Fields:
    """Make a request body from what differs from the least one."""

    def make(question: str = "Tell me about rain.", **more: object) -> dict[str, Any]:
        least = {
            "model": "svc-v2-8b-instruct",
            "messages": [{"role": "user", "content": question}],
        }
        return least | more

    return make


@pytest.fixture
def make_chat(fields: Fields) -> Callable[..., ChatRequest]:
    """Make a request that passed the rules."""

    def make(question: str = "Tell me about rain.", **more: object) -> ChatRequest:
        return read_chat_request(json.dumps(fields(question, **more)).encode())

    return make


@pytest.fixture
def make_service(clock: SetClock) -> Callable[..., Service]:
    """Make a service that does not wait."""

    def make(*, script: object = (), **changed: Any) -> Service:  # noqa: ANN401 - fields of Setup
        unlimited: dict[str, Any] = {"limits": {}, "clock": clock, "now": lambda: 1.7e9}
        setup = Setup(**unlimited | changed)
        return Service(setup, Script(script, seed=setup.seed))

    return make


@pytest.fixture
def post() -> Callable[..., Reply]:
    """Send a body to a service, as the document says unless told otherwise."""

    def send(
        service: Service,
        body: dict[str, Any] | bytes,
        *,
        key: str = "svc-emulator",
        **headers: str,
    ) -> Reply:
        return service.reply(
            Request(
                method="POST",
                path="/v1/chat/completions",
                headers={
                    "authorization": f"Bearer {key}",
                    "content-type": "application/json",
                }
                | headers,
                body=body if isinstance(body, bytes) else json.dumps(body).encode(),
            )
        )

    return send

"""A client that is driven by messages, as an actor of a cluster has it."""

import asyncio
from typing import Any

import pytest

from svc_notebook.client.retry import QUEUED
from svc_notebook.client.worker import (
    Asked,
    Ended,
    Worker,
    encode_asked,
    read_ended,
    said_by,
)
from svc_notebook.credentials import Key
from svc_notebook.emulator.server import Emulator
from svc_notebook.service.request import build_request
from svc_notebook.settings import Settings

BIG = 10**30  # no binary format of numbers has room for it
_RANGE = {"type": "object", "properties": {"n": {"type": "integer", "maximum": BIG}}}
TOOL = {"type": "function", "function": {"name": "count", "parameters": _RANGE}}


def _ended(emulator: Emulator, **given: Any) -> Ended:  # noqa: ANN401 - a parameter
    """Let a worker send a request, and return how it ended."""
    settings = Settings(base_url=emulator.base_url)
    key = Key(emulator.api_key, source="a test")
    request = build_request("Hi", model="svc-instruct", params=given)

    async def ask() -> list[bytes]:
        worker = Worker(settings, key=key, lease=None)
        worker.put(encode_asked([Asked(7, request, QUEUED)]))
        return await worker.take()

    (ended,) = asyncio.run(ask())
    return read_ended(ended)


def test_what_json_can_say_reaches_the_service() -> None:
    """A number of any size does; else the request would never come, nor end."""
    with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        ended = _ended(emulator, tools=[TOOL])
        (sent,) = emulator.requests

    assert (ended.number, ended.error, ended.is_unsent) == (7, None, False)
    assert sent.json["tools"] == [TOOL]


def test_a_wait_for_a_worker_ends_with_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing says of a call that it can no longer be answered."""
    monkeypatch.setattr("svc_notebook.client.worker.BEAT_S", 0.01)
    is_usable = iter([True, False])

    async def wait() -> None:
        await said_by(asyncio.Event().wait(), lambda: next(is_usable))

    with pytest.raises(ConnectionError):
        asyncio.run(wait())

"""A client that is driven by messages, as an actor of a cluster has it."""

import asyncio
import pickle
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from svc_notebook.client.remote_worker import (
    RemoteWorker,
    WorkerRequest,
    WorkerResponse,
    encode_requests,
    read_response,
    send_by_worker,
    wait_for_worker,
)
from svc_notebook.client.request_pipeline import RequestPipeline
from svc_notebook.client.retry import QUEUED, Policy
from svc_notebook.credentials import Key
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.settings import Settings

BIG = 10**30  # no binary format of numbers has room for it
_RANGE = {"type": "object", "properties": {"n": {"type": "integer", "maximum": BIG}}}
TOOL = {"type": "function", "function": {"name": "count", "parameters": _RANGE}}


def _ended(emulator: Emulator, **given: Any) -> WorkerResponse:  # noqa: ANN401 - a parameter
    """Let a worker send a request, and return how it ended."""
    settings = Settings(base_url=emulator.base_url)
    key = Key(emulator.api_key, source="a test")
    request = build_request("Hi", model="svc-instruct", params=given)

    async def ask() -> list[bytes]:
        worker = RemoteWorker(settings, key=key, lease=None)
        worker.put(encode_requests([WorkerRequest(7, request, QUEUED)]))
        return await worker.take()

    (ended,) = asyncio.run(ask())
    return read_response(ended)


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
    monkeypatch.setattr("svc_notebook.client.remote_worker.BEAT_S", 0.01)
    is_usable = iter([True, False])

    async def wait() -> None:
        await wait_for_worker(asyncio.Event().wait(), lambda: next(is_usable))

    with pytest.raises(ConnectionError):
        asyncio.run(wait())


REFUSAL = {"status": 429, "error": {"message": "Later."}, "times": 1}
BROKEN = {"status": 500, "error": {"message": "Oh."}, "times": 1}
INVALID = {"status": 400, "error": {"message": "No."}, "times": 1}


def _sent_by_worker(*script: dict[str, Any]) -> Exchange:
    """Let a request path send by a worker; return what it recorded."""
    recorded: list[Exchange] = []

    class Sink:
        def add(self, exchange: Exchange) -> None:
            recorded.append(exchange)

    async def ask(emulator: Emulator) -> None:
        settings = Settings(base_url=emulator.base_url)
        key = Key(emulator.api_key, source="a test")
        worker = RemoteWorker(settings, key=key, lease=None)

        async def send(
            request: CompletionRequest, policy: Policy
        ) -> tuple[Exchange | None, SvcError | None]:
            worker.put(encode_requests([WorkerRequest(1, request, policy)]))
            (response,) = map(read_response, await worker.take())
            error = response.error and pickle.loads(response.error)  # noqa: S301 - ours
            return response.exchange, error or None

        path = RequestPipeline(
            settings,
            key=key,
            sinks=(Sink(),),
            send=partial(send_by_worker, send=send),
        )
        request = build_request("Hi", model="svc-instruct")
        with suppress(SvcError):
            await path.begin(request, policy=QUEUED).run(lambda _: None)

    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(script)
    ) as emulator:
        asyncio.run(ask(emulator))
    (exchange,) = recorded
    return exchange


@pytest.mark.parametrize(
    ("script", "counts"),
    [
        ((), ("ok", None, 1, 0)),
        ((REFUSAL,), ("error", "RateLimitError", 1, 1)),
        ((INVALID,), ("error", "BadRequestError", 1, 0)),
        ((BROKEN,), ("ok", None, 2, 0)),
    ],
)
def test_the_driver_records_what_its_worker_did(
    script: tuple[dict[str, Any], ...], counts: tuple[str, str | None, int, int]
) -> None:
    """Tries and refusals are the worker's, counted once, and no request is retried."""
    exchange = _sent_by_worker(*script)

    failure = exchange.failure and exchange.failure.type
    got = (exchange.status, failure, exchange.n_attempts, exchange.n_refused)
    assert got == counts
    assert exchange.request.prompt == "Hi"
    assert exchange.is_emulated
    assert exchange.latency_s is not None

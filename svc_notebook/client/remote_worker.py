"""Sends requests for another process (the driver), which it gets as messages.

Requests arrive in batches and finished exchanges are returned, both as bytes. How the
processes exchange these bytes is up to the caller.
"""

import asyncio
import json
import pickle
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import msgspec

from svc_notebook.credentials import Key
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

from .exchange_record import internal_error
from .rate_lease import Leased, LeasedQuota
from .rate_limit import RateLimits
from .request_pipeline import Attempt, RequestPipeline
from .retry import FailedTry, Policy

GATHER_S = 0.01  # one call returns all that ended within this time; it takes 0.2 ms
BEAT_S = 1.0  # between checks whether a worker can still be reached


class WorkerRequest(msgspec.Struct, array_like=True, gc=False):
    """A request for a worker."""

    number: int
    request: CompletionRequest
    policy: Policy


class WorkerResponse(msgspec.Struct, array_like=True, gc=False):
    """An exchange that has ended, and its error, pickled.

    `is_unsent` says that no connection could be made, so another worker may try.
    """

    number: int
    exchange: Exchange | None = None
    error: bytes | None = None
    is_unsent: bool = False


_encode = msgspec.msgpack.Encoder().encode
# JSON, as the service gets it: msgpack has no integers above 64 bits
encode_requests = msgspec.json.Encoder(enc_hook=dict).encode
_read_requests = msgspec.json.Decoder(list[WorkerRequest]).decode
read_response = msgspec.msgpack.Decoder(WorkerResponse).decode
_read_exchange = msgspec.json.Decoder(Exchange).decode
# sent back instead of the request, which the driver knows
_NO_REQUEST = CompletionRequest(model="", messages=())

Lease = Callable[[str, int, list[int], list[int]], Awaitable[Leased]]
"""Reports on slots of a model, and leases more: see `QuotaLeases.lease`."""


class RemoteWorker:
    """Sends requests for a driver, on the event loop of its own process."""

    def __init__(self, settings: Settings, *, key: Key, lease: Lease | None) -> None:
        self._quotas: dict[str, LeasedQuota] = {}
        self._lease = lease
        self._path = RequestPipeline(
            replace(settings, traces="off"),  # the driver records the spans
            key=key,
            limits=RateLimits(
                clock=time.monotonic,
                limit_of=settings.endpoint.limit_of,
                others_of=self._quota_of,
            ),
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[bytes] = []
        self._has_ended = asyncio.Event()
        self._taken_s = -inf

    def put(self, batch: bytes) -> None:
        """Begin to send requests."""
        for message in _read_requests(batch):
            task = asyncio.get_running_loop().create_task(self._send(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def take(self) -> list[bytes]:
        """Wait until an exchange has ended, and return all that have."""
        await self._has_ended.wait()
        await asyncio.sleep(self._taken_s + GATHER_S - time.monotonic())
        self._taken_s = time.monotonic()
        ended, self._ended = self._ended, []
        self._has_ended.clear()
        return ended

    async def _send(self, message: WorkerRequest) -> None:
        quota = self._quota_of(message.request.model)
        if quota:
            quota.n_open += 1
        # the driver decides how many requests are in flight
        policy = replace(message.policy, limits_in_flight=True)
        error, exchange, is_unsent = None, None, False
        try:
            task = self._path.begin(message.request, policy=policy)
            try:
                exchange = await task.run(lambda _: None)
            except SvcError:
                exchange, is_unsent = task.exchange, task.is_unsent
                raise
        except Exception as problem:  # noqa: BLE001 - the driver waits for it
            svc_error = (
                problem if isinstance(problem, SvcError) else internal_error(problem)
            )
            svc_error.partial = None  # the exchange holds it, too
            vars(svc_error).pop("__notes__", None)  # the driver adds its own
            error = pickle.dumps(svc_error)
        finally:
            if quota:
                quota.end()
        self._ended.append(
            _encode_response(WorkerResponse(message.number, exchange, error, is_unsent))
        )
        self._has_ended.set()

    def _quota_of(self, model: str) -> LeasedQuota | None:
        if self._lease is None:
            return None
        if model not in self._quotas:
            self._quotas[model] = LeasedQuota(partial(self._lease, model))
        return self._quotas[model]


def _encode_response(ended: WorkerResponse) -> bytes:
    if ended.exchange is not None:
        ended.exchange = msgspec.structs.replace(ended.exchange, request=_NO_REQUEST)
    try:
        return _encode(ended)
    except UnicodeEncodeError:  # half a surrogate pair; the ledger replaces it, too
        text = json.dumps(msgspec.to_builtins(ended.exchange), ensure_ascii=False)
        ended.exchange = _read_exchange(text.encode("utf-8", "replace"))
        return _encode(ended)


async def wait_for_worker(call: Awaitable[Any], is_usable: Callable[[], bool]) -> Any:  # noqa: ANN401 - the worker's
    """Wait for the answer of a worker; raise ConnectionError once it is unusable."""
    answer = asyncio.ensure_future(call)
    try:
        while is_usable():
            if (await asyncio.wait([answer], timeout=BEAT_S))[0]:
                return await answer
    finally:
        answer.cancel()  # otherwise the call would go on
    raise ConnectionError


SendRemote = Callable[
    [CompletionRequest, Policy], Awaitable[tuple[Exchange | None, SvcError | None]]
]
"""Lets a worker send a request; returns its exchange and, if it failed, its error."""


async def send_by_worker(attempt: Attempt, *, send: SendRemote) -> FailedTry | None:
    """Let a worker send a request; this process waits, records and redacts."""
    record, key = attempt.record, attempt.context.key
    clock = attempt.context.runtime.clock
    record.send(clock())
    # handed to a worker counts as sent: if the worker is lost, it may have been billed
    attempt.on_sent()
    exchange, error = await send(record.at_start.request, attempt.policy)
    if exchange is not None:
        for name in ("n_attempts", "n_refused", "n_chunks", "retry_wait_s"):
            setattr(record, name, getattr(exchange, name))
        record.body = key.redact(exchange.body)
        record.is_emulated |= exchange.is_emulated
        record.emulator_note = key.redact(exchange.emulator_note)
        record.first_text_s = exchange.first_text_s
        record.queue_s += exchange.queue_s
        # the latency that the worker measured, without the way to the worker
        took_s = exchange.latency_s
        record.sent_s = None if took_s is None else clock() - took_s
    # lasting: the worker has already retried as often as the policy allows
    return None if error is None else FailedTry(error=error, is_lasting=True)

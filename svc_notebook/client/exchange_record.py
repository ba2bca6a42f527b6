"""The record of an exchange while it runs, and the sinks that store it at its end.

A latency never includes the wait for our own rate limit. The key is never recorded.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from svc_notebook import errors
from svc_notebook.completion import Completion
from svc_notebook.errors import (
    DocumentError,
    ServiceError,
    SvcError,
    warn,
)
from svc_notebook.exchange import Exchange, Failure, Origin, Sink, Status
from svc_notebook.service.chunk import CompletionBody, Delta, to_delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import Tokens, estimate_reply_tokens

from .clock import Runtime


@dataclass(slots=True)
class ExchangeRecord:
    """What is known of an exchange that has not ended.

    `at_start` holds what was known when the exchange began; its `ended_at` and `status`
    are placeholders. The fields after `prompt` are about the newest try or about all
    tries, as in `Exchange`. `sent_s` is when the newest try was sent, by the clock.
    """

    at_start: Exchange
    prompt: Tokens
    is_emulated: bool = False
    emulator_note: str | None = None
    body: CompletionBody | None = None
    n_attempts: int = 0
    n_refused: int = 0
    n_chunks: int = 0
    queue_s: float = 0.0
    retry_wait_s: float = 0.0
    first_text_s: float | None = None
    sent_s: float | None = None

    def send(self, now_s: float) -> None:
        """Note that a request is sent; text of an earlier try is dropped."""
        self.n_attempts += 1
        self.sent_s = now_s
        self.first_text_s = None
        self.body = None
        self.n_chunks = 0

    def text(self, now_s: float) -> None:
        """Note that text was shown."""
        if self.first_text_s is None and self.sent_s is not None:
            self.first_text_s = now_s - self.sent_s

    def exchange(
        self,
        *,
        status: Status,
        failure: Failure | None,
        now_s: float,
        ended_at: datetime,
    ) -> Exchange:
        """Return the finished exchange."""
        choices = self.body.choices if self.body else ()
        reply = estimate_reply_tokens(choices, max_tokens=self.at_start.max_tokens)
        total = self.prompt + reply
        return replace(
            self.at_start,
            is_emulated=self.at_start.is_emulated or self.is_emulated,
            emulator_note=self.emulator_note,
            body=self.body,
            status=status,
            failure=failure,
            n_attempts=self.n_attempts,
            n_refused=self.n_refused,
            n_chunks=self.n_chunks,
            queue_s=self.queue_s,
            retry_wait_s=self.retry_wait_s,
            first_text_s=self.first_text_s,
            latency_s=None if self.sent_s is None else now_s - self.sent_s,
            ended_at=ended_at,
            est_completion_tokens=reply.best,
            est_low_tokens=total.low,
            est_high_tokens=total.high,
        )


def to_failure(error: SvcError) -> Failure:
    """Return the record of an error."""
    failure = Failure(type=type(error).__name__, message=str(error))
    if isinstance(error, ServiceError):
        return replace(
            failure, http_status=error.status, code=error.code, param=error.param
        )
    if isinstance(error, DocumentError):
        return replace(failure, http_status=error.status or None)
    return failure


def internal_error(problem: Exception) -> SvcError:
    """Build the error for an exception that is a mistake in this package."""
    return errors.internal_error(
        problem, "The request was not retried because it may have been billed."
    )


def with_exchange(error: SvcError, exchange: Exchange) -> SvcError:
    """Add what is known of its exchange to an error, and remove its old frames."""
    error.n_attempts = exchange.n_attempts
    error.exchange_id = exchange.exchange_id
    error.partial = Completion(exchange) if exchange.choices else None
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


CANCELLED = Failure(
    type="Cancelled", message="Interrupted before the reply was complete."
)


# If another program holds the ledger, a reply waits this long for its row at most.
KEPT_WITHIN_S = 3.0


class Sinks:
    """The sinks of one client; if one fails, the reply is returned all the same."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._warned: set[str] = set()

    def add(self, exchange: Exchange) -> list["Future[None]"]:
        """Give an exchange to every sink; the futures end when it is stored."""
        receipts = []
        for sink in self._sinks:
            try:
                receipts.append(sink.add(exchange))
            except Exception as problem:  # noqa: BLE001 - the reply comes first
                self._warn(
                    f"An exchange could not be kept ({type(problem).__name__}: "
                    f"{problem}). Its reply is not lost, but it is missing from the "
                    "ledger and its frames."
                )
        return [receipt for receipt in receipts if receipt is not None]

    async def keep(self, exchange: Exchange) -> Exchange:
        """Give an exchange to every sink, and return it when they have stored it.

        The wait is at most `KEPT_WITHIN_S`.
        """
        for receipt in self.add(exchange):
            if not await _is_done(receipt, within_s=KEPT_WITHIN_S):
                self._warn(
                    f"An exchange is not in the ledger after {KEPT_WITHIN_S:.0f} s. It "
                    "is kept in memory until it can be written."
                )
            # a receipt may also hold an error: the ledger has reported it already
        return exchange

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)


_waiting: WeakKeyDictionary[
    asyncio.AbstractEventLoop, deque["asyncio.Future[None]"]
] = WeakKeyDictionary()


def _end_all(waiting: deque["asyncio.Future[None]"]) -> None:
    """End the waits for rows; one call for many rows wakes the loop once."""
    while waiting:
        ended = waiting.popleft()
        if not ended.done():
            ended.set_result(None)


async def _is_done(receipt: "Future[None]", *, within_s: float) -> bool:
    """Wait for a receipt; `asyncio.wrap_future` in `wait_for` costs twice as much."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wake(_: "Future[None]") -> None:
        waiting = _waiting.setdefault(loop, deque())
        waiting.append(ended)
        if len(waiting) == 1:  # otherwise the loop is already being woken
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_end_all, waiting)

    receipt.add_done_callback(wake)
    timer = loop.call_later(within_s, _end_all, deque([ended]))
    try:
        await ended
    finally:
        timer.cancel()
    return receipt.done()


Answerer = Callable[[CompletionRequest, Origin], Exchange | None]
"""Finds a recorded exchange for a request; None if the service is to be asked."""


class RecordedAnswer:
    """A recorded answer to a new request; `run` it once."""

    is_unsent = False  # nothing is sent

    def __init__(
        self,
        recorded: Exchange,
        *,
        request: CompletionRequest,
        origin: Origin,
        is_streamed: bool,
        sinks: Sinks,
        runtime: Runtime,
    ) -> None:
        self.exchange: Exchange | None = None
        self._sinks = sinks
        self._runtime = runtime
        now = runtime.now()
        self._answer = replace(
            recorded,
            exchange_id=runtime.new_id(),
            origin=origin,
            request=request,
            is_reused=True,
            is_streamed=is_streamed,
            n_attempts=0,
            n_refused=0,
            n_chunks=0,
            queue_s=0.0,
            retry_wait_s=0.0,
            first_text_s=None,
            latency_s=None,
            started_at=now,
            ended_at=now,
        )

    async def run(self, show: Callable[[Delta], None]) -> Exchange:
        """Show the answer, record it, and return it."""
        for choice in self._answer.choices:
            show(to_delta(choice))
        self.exchange = replace(self._answer, ended_at=self._runtime.now())
        return await self._sinks.keep(self.exchange)

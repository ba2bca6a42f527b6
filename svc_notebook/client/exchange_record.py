"""What happens to one exchange while it is under way, and the record it becomes.

What it is not: it decides nothing. Rules: the exchange is made once, at the end;
waiting for our own limit is never part of a latency; no key enters.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from svc_notebook.errors import (
    DocumentError,
    ServiceError,
    SvcError,
    warn,
)
from svc_notebook.exchange import Exchange, Failure, Origin, Sink, Status
from svc_notebook.service.chunk import CallPiece, Choice, CompletionBody, Delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_tokens

from .runtime import World
from .transport import Head


@dataclass(slots=True, kw_only=True)
class Journal:
    """Notes of one exchange under way.

    Attributes:
        exchange_id, request, origin, endpoint, is_streamed: Known from the start.
        started_at: When it was asked (aware, UTC).
        est_prompt_tokens: Estimated tokens of the prompt.
        others: As in `Exchange`; durations in seconds.
    """

    exchange_id: str
    request: CompletionRequest
    origin: Origin
    endpoint: str
    is_streamed: bool
    started_at: datetime
    est_prompt_tokens: int
    is_emulated: bool = False
    body: CompletionBody | None = None
    n_attempts: int = 0
    n_refused: int = 0
    n_chunks: int = 0
    queue_s: float = 0.0
    retry_wait_s: float = 0.0
    first_text_s: float | None = None
    sent_s: float | None = None

    def send(self, now_s: float) -> None:
        """Note that a request goes out; what came of an earlier one is dropped."""
        self.n_attempts += 1
        self.sent_s = now_s
        self.first_text_s = None
        self.body = None
        self.n_chunks = 0

    def answer(self, head: Head) -> None:
        """Note what the headers of an answer say."""
        self.is_emulated = self.is_emulated or head.is_emulated

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
        """Return the record of it all."""
        return Exchange(
            exchange_id=self.exchange_id,
            origin=self.origin,
            endpoint=self.endpoint,
            is_emulated=self.is_emulated,
            is_streamed=self.is_streamed,
            request=self.request,
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
            started_at=self.started_at,
            ended_at=ended_at,
            est_prompt_tokens=self.est_prompt_tokens,
            est_completion_tokens=_estimate(self.body),
        )


def to_failure(error: SvcError) -> Failure:
    """Return the record of an error."""
    failure = Failure(type=type(error).__name__, message=str(error))
    if isinstance(error, ServiceError):
        return replace(
            failure, http_status=error.status, code=error.code, param=error.param
        )
    if isinstance(error, DocumentError) and error.status:
        return replace(failure, http_status=error.status)
    return failure


CANCELLED = Failure(type="Cancelled", message="Interrupted before the reply's end.")


def _estimate(body: CompletionBody | None) -> int:
    if body is None:
        return 0
    return sum(
        estimate_tokens(choice.text or "")
        + sum(
            estimate_tokens(call.function.name + call.function.arguments)
            for call in choice.tool_calls
        )
        for choice in body.choices
    )


KEPT_WITHIN_S = 3.0


class Sinks:
    """The sinks of one client; whatever happens to them, the reply comes first."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._warned: set[str] = set()

    def add(self, exchange: Exchange) -> list["Future[None]"]:
        """Give an exchange to every sink; return what is done when it is kept."""
        receipts = []
        for sink in self._sinks:
            try:
                receipt = sink.add(exchange)
            except Exception as problem:  # noqa: BLE001 - the reply comes first
                self._warn(
                    f"An exchange could not be kept ({type(problem).__name__}: "
                    f"{problem}). Its reply is not lost, but it is missing from the "
                    "ledger and its frames."
                )
            else:
                if receipt is not None:
                    receipts.append(receipt)
        return receipts

    async def keep(self, exchange: Exchange) -> None:
        """Give an exchange to every sink, and wait until it is kept, but not long."""
        for receipt in self.add(exchange):
            if not await _is_done(receipt, within_s=KEPT_WITHIN_S):
                self._warn(
                    f"An exchange is not in the ledger after {KEPT_WITHIN_S:.0f} s. It "
                    "is kept in memory until it can be written."
                )
            # if it failed, the ledger has said why and keeps it in memory

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)


async def _is_done(receipt: "Future[None]", *, within_s: float) -> bool:
    """Wait for a receipt; `asyncio.wrap_future` in `wait_for` costs twice as much."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake(_: "Future[None]") -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(end)

    receipt.add_done_callback(wake)
    timer = loop.call_later(within_s, end)
    try:
        await ended
    finally:
        timer.cancel()
    return receipt.done()


Answerer = Callable[[CompletionRequest, Origin], Exchange | None]
"""Finds the recorded exchange that answers a request; None to ask the service."""


class Run(Protocol):
    """One exchange to run: asked of the service, or answered before."""

    exchange: Exchange | None

    async def run(self, show: Callable[[Delta], None]) -> Exchange:
        """Show what comes and return the record."""


class Answered:
    """A recorded answer to a new request; `run` it once.

    Args:
        recorded: The exchange that answers.
        request: What was asked now.
        origin: Who asks now.
        is_streamed: Whether a stream was asked for.
        sinks: Told about it.
        world: Where time and ids come from.
    """

    def __init__(
        self,
        recorded: Exchange,
        *,
        request: CompletionRequest,
        origin: Origin,
        is_streamed: bool,
        sinks: Sinks,
        world: World,
    ) -> None:
        self.exchange: Exchange | None = None
        self._sinks = sinks
        self._world = world
        now = world.now()
        self._answer = replace(
            recorded,
            exchange_id=world.new_id(),
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
            show(_to_delta(choice))
        self.exchange = replace(self._answer, ended_at=self._world.now())
        await self._sinks.keep(self.exchange)
        return self.exchange


def _to_delta(choice: Choice) -> Delta:
    return Delta(
        index=choice.index,
        text=choice.text,
        calls=tuple(
            CallPiece(
                index=at,
                id=call.id,
                name=call.function.name,
                arguments=call.function.arguments,
            )
            for at, call in enumerate(choice.tool_calls)
        ),
        finish_reason=choice.finish_reason,
    )

"""The request path: pace, send, receive, and retry or finish. There is no other.

What it is not: every decision is made elsewhere (`gates`, `retry`, `clocks`,
`reading`), and sockets are behind `transport`.

Rules for this file: an exchange reaches every sink once, however it ends; an error
is completed and raised in one place, without the frames in which it arose, because
those may hold what the service sent back; whatever is opened is closed.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from svc_notebook.completion import Completion
from svc_notebook.credentials import Key
from svc_notebook.errors import (
    NoConnectionError,
    RateLimitError,
    ServerFaultError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
)
from svc_notebook.exchange import Exchange, Failure, Status
from svc_notebook.service.chunk import Delta
from svc_notebook.settings import Timeouts

from .deadlines import Clocks, timed_out, with_earlier
from .exchange_record import CANCELLED, Journal, Sinks, to_failure
from .portal import ticking
from .rate_limit import Gates, Slot
from .redact import Hiding, hide_in_error, without_key
from .reply_reader import Receiving
from .retry import GiveUp, Policy, Wait, decide
from .runtime import World
from .transport import Lost, Transport


def unforeseen(problem: Exception) -> SvcError:
    """Build the error for something that should not have happened."""
    trace = problem.__traceback__
    place = ""
    while trace is not None:
        name = Path(trace.tb_frame.f_code.co_filename).name
        place = f" in {name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return SvcError(
        f"The package failed by itself ({type(problem).__name__}{place}). The request "
        "was not asked again, since it may have been paid for. Ask again; if it stays "
        "so, please report this line."
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """An exchange waits.

    Attributes:
        wait_s: Seconds, as far as is known now.
        reason: For people, such as "per-minute limit of svc-v2-70b-instruct".
    """

    wait_s: float
    reason: str


Watch = Callable[[Waiting], None]
"""Told about each wait; called on the loop's thread, and must return at once."""

SAID_S = 2.0
"""Shorter waits are not worth a line."""


def say(waiting: Waiting) -> None:
    """Write a line on stderr for a wait that somebody would wonder about."""
    if waiting.wait_s >= SAID_S:
        sys.stderr.write(f"waiting {waiting.wait_s:.0f} s: {waiting.reason}\n")


Show = Callable[[Delta], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all exchanges of a client share."""

    transport: Transport
    gates: Gates
    key: Key
    sinks: Sinks
    timeouts: Timeouts
    world: World


class Asking:
    """One exchange; `run` it once.

    It runs in one task from beginning to end and holds no suspended generator, so
    that cancelling the task is all it takes to stop it, also when a loop shuts down.

    Args:
        journal: The exchange's notes, as begun.
        body: The request as JSON.
        parts: What the client's exchanges share.
        policy: When to ask again.
        watch: Told about each wait.
    """

    def __init__(
        self,
        journal: Journal,
        body: bytes,
        *,
        parts: Parts,
        policy: Policy,
        watch: Watch | None,
    ) -> None:
        self.exchange: Exchange | None = None
        self._journal = journal
        self._body = body
        self._parts = parts
        self._policy = policy
        self._watch = watch
        self._world = parts.world
        self._gate = parts.gates.of(journal.request.model)
        self._clocks = Clocks(
            parts.timeouts,
            journal.request,
            is_streamed=journal.is_streamed,
            started_s=parts.world.clock(),
        )
        self._lost: Lost | None = None
        self._has_shown = False

    async def run(self, show: Show) -> Exchange:
        """Ask, show what comes, and record it when it has ended, however it ends.

        Args:
            show: Told each delta as it comes.

        Raises:
            SvcError: It failed; the error carries attempts, exchange and partial.
        """
        try:
            with ticking():
                await self._tries(show)
        except (asyncio.CancelledError, KeyboardInterrupt) as stop:
            self._parts.sinks.add(self._record("cancelled", CANCELLED))
            stopped: type[BaseException] | None = type(stop)
        except Exception as problem:  # noqa: BLE001 - nothing foreign reaches a user
            self._lost = Lost(error=unforeseen(problem))
            stopped = None
        else:
            stopped = None
        if stopped:  # anew, without the frames in which the reply came
            raise stopped
        error = self._lost.error if self._lost else None
        if error is None:
            return await self._kept(self._record("ok", None))
        hide_in_error(error, self._parts.key)
        exchange = await self._kept(self._record("error", to_failure(error)))
        raise _completed(error, exchange)

    async def _tries(self, show: Show) -> None:
        """Ask until it is over; `_lost` says how."""
        hiding = Hiding(self._parts.key)

        def noted(delta: Delta) -> None:
            self._note(delta)
            show(hiding.take(delta))

        while True:
            slot = await self._pace()
            self._lost = _after(self._lost, await self._try(slot, noted))
            for delta in hiding.flush():
                show(delta)
            wait_s = self._within_total(self._next_step(slot, self._lost))
            if wait_s is None:
                return
            await self._wait(wait_s)

    async def _pace(self) -> Slot:
        """Wait for a place among the model's requests."""
        slot = self._gate.reserve()
        began_s = self._world.clock()
        try:
            while (due := self._gate.try_pass(slot)).wait_s > 0:
                self._tell(Waiting(due.wait_s, due.reason))
                await self._world.sleep(due.wait_s)
        except BaseException:
            self._gate.give_back(slot)
            raise
        finally:
            self._journal.queue_s += self._world.clock() - began_s
            self._clocks.queue_s = self._journal.queue_s
        return slot

    async def _try(self, slot: Slot, show: Show) -> Lost | None:
        """Send once and receive the answer."""
        sent_s = self._world.clock()
        self._journal.send(sent_s)
        left = self._clocks.for_headers(sent_s)
        answer = await self._parts.transport.send(
            self._body,
            key=self._parts.key,
            is_streamed=self._journal.is_streamed,
            connect_s=max(
                min(self._parts.timeouts.connect_s, self._clocks.total_left_s(sent_s)),
                0.0,
            ),
            within_s=max(left.left_s, 0.0),
            on_sent=lambda: self._gate.sent(slot),
        )
        if answer is None or isinstance(answer, Lost):
            return answer or Lost(error=timed_out(left))
        self._journal.answer(answer.head)
        receiving = Receiving(
            answer,
            is_streamed=self._journal.is_streamed,
            n_choices=int(self._journal.request.params.get("n", 1)),
            clocks=self._clocks,
            clock=self._world.clock,
        )
        try:
            lost = await receiving.refusal(sent_s=sent_s)
            return lost or await receiving.receive(show, sent_s=sent_s)
        finally:
            self._journal.body = without_key(
                receiving.body(),
                self._parts.key,
                model=self._journal.request.model,
            )
            self._journal.n_chunks = receiving.n_chunks
            await receiving.close()

    def _note(self, delta: Delta) -> None:
        if delta.text or delta.calls:
            self._has_shown = True
            self._journal.text(self._world.clock())

    def _next_step(self, slot: Slot, lost: Lost | None) -> float | None:
        """Return the seconds until the next try, None if there is none."""
        if lost is None:
            self._gate.passed()
            return None
        step = decide(
            lost.error,
            attempt=self._journal.n_attempts,
            jitter=self._world.jitter(),
            has_shown=self._has_shown,
            is_lasting=lost.is_lasting,
            policy=self._policy,
        )
        if isinstance(lost.error, RateLimitError):
            self._journal.n_refused += 1
            self._gate.refused(slot, wait_s=_closed_s(lost.error, step))
        elif not lost.is_sent:
            self._gate.give_back(slot)
        return None if isinstance(step, GiveUp) else step.wait_s

    def _within_total(self, wait_s: float | None) -> float | None:
        """Return the wait, or None if the last deadline passes before its end."""
        left_s = self._clocks.total_left_s(self._world.clock())
        return None if wait_s is None or wait_s >= left_s else wait_s

    async def _wait(self, wait_s: float) -> None:
        """Wait between two tries."""
        began_s = self._world.clock()
        why = _WHY.get(type(self._lost.error), "a failure") if self._lost else ""
        self._tell(Waiting(wait_s, f"trying again after {why}"))
        try:
            await self._world.sleep(wait_s)
        finally:
            self._journal.retry_wait_s += self._world.clock() - began_s

    def _tell(self, waiting: Waiting) -> None:
        if self._watch is not None:
            self._watch(waiting)

    def _record(self, status: Status, failure: Failure | None) -> Exchange:
        """Make the record, once."""
        self.exchange = self._journal.exchange(
            status=status,
            failure=failure,
            now_s=self._world.clock(),
            ended_at=self._world.now(),
        )
        return self.exchange

    async def _kept(self, exchange: Exchange) -> Exchange:
        await self._parts.sinks.keep(exchange)
        return exchange


def _after(earlier: Lost | None, lost: Lost | None) -> Lost | None:
    """Return how a try ended, with what the one before it met."""
    if lost is None or earlier is None:
        return lost
    return replace(lost, error=with_earlier(lost.error, earlier.error))


_WHY: dict[type[SvcError], str] = {
    RateLimitError: "a 429: too many requests",
    ServerFaultError: "a fault of the service",
    NoConnectionError: "no connection",
    StreamBrokenError: "a broken connection",
    TimedOutError: "no answer in time",
}
_CLOSED_S = 1.0


def _closed_s(error: RateLimitError, step: Wait | GiveUp) -> float:
    """Return how long a refusal keeps the others of the model waiting."""
    if isinstance(step, Wait):
        return step.wait_s
    return _CLOSED_S if error.retry_after_s is None else error.retry_after_s


def _completed(error: SvcError, exchange: Exchange) -> SvcError:
    """Return the error with what is known of its exchange, and no old frames."""
    error.n_attempts = exchange.n_attempts
    error.exchange_id = exchange.exchange_id
    error.partial = Completion(exchange) if exchange.choices else None
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)

"""The request path: pace, send, receive, and retry or finish. It is the only one.

The decisions are made elsewhere (`rate_limit`, `retry`, `deadlines`, `reply_reader`).
An exchange reaches every sink once, however it ends. Errors are raised without the
frames in which they arose, because those may hold what the service sent back.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Protocol, Unpack

from svc_notebook.completion import warn_on_params
from svc_notebook.credentials import Key, find_key, keep_out_of_logs
from svc_notebook.errors import (
    NoConnectionError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    SettingsError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
)
from svc_notebook.exchange import Exchange, Failure, Origin, Sink, Status
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import Params
from svc_notebook.service.request import CompletionRequest, Prompt, build_request
from svc_notebook.settings import Settings, Timeouts
from svc_notebook.tokens import check_budget
from svc_notebook.wire.encode import encode

from .body import HttpAnswer
from .deadlines import REAL, Deadlines, Runtime, timed_out, with_earlier
from .exchange_record import (
    CANCELLED,
    Answerer,
    ExchangeRecord,
    RecordedAnswer,
    Sinks,
    completed,
    internal_error,
    to_failure,
)
from .portal import keep_awake
from .rate_limit import RateLimiter, RateLimits, shared_limits
from .rate_windows import Slot
from .reply_reader import Receiving
from .retry import INTERACTIVE, GiveUp, Lost, Policy, decide


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request waits.

    Attributes:
        wait_s: Seconds, as far as is known now.
        reason: For people, such as "per-minute limit of svc-v2-70b-instruct".
    """

    wait_s: float
    reason: str


Watch = Callable[[Waiting], None]
"""Called at each wait, on the loop's thread; it must return at once."""

SAID_S = 2.0
"""Shorter waits are not worth a line."""


def say(waiting: Waiting) -> None:
    """Write a line on stderr if a wait is long enough to be noticed."""
    if waiting.wait_s >= SAID_S:
        sys.stderr.write(f"waiting {waiting.wait_s:.0f} s: {waiting.reason}\n")


Show = Callable[[Delta], None]


class Transport(Protocol):
    """Sends one body and returns the answer to it.

    What goes wrong is a value, not an exception, so that no traceback keeps a frame in
    which the key was written into a header.
    """

    async def send(
        self,
        body: bytes,
        *,
        key: Key,
        is_streamed: bool,
        connect_s: float,
        within_s: float,
        on_sent: Callable[[], None] = lambda: None,
    ) -> HttpAnswer | Lost | None:
        """Send a body and wait for the headers of the answer.

        Args:
            body: JSON, whole.
            key: Written into the request's headers, and nowhere else.
            is_streamed: Whether a stream was asked for.
            connect_s: Seconds in which a connection must be made.
            within_s: Seconds until the headers, connecting not counted.
            on_sent: Called when the request begins to be written.

        Returns:
            The answer, what went wrong, or None when the time is over.
        """

    async def aclose(self) -> None:
        """Close the connections of the running loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeContext:
    """What all exchanges of a client share."""

    transport: Transport
    limits: RateLimits
    key: Key
    sinks: Sinks
    timeouts: Timeouts
    runtime: Runtime


class ExchangeTask:
    """One exchange; `run` it once.

    It runs in one task from beginning to end and holds no suspended generator, so
    that cancelling the task is all it takes to stop it, also when a loop shuts down.

    Args:
        record: Of the exchange, as begun.
        body: The request as JSON.
        context: What the client's exchanges share.
        policy: When to ask again.
        watch: Called at each wait.
    """

    def __init__(
        self,
        record: ExchangeRecord,
        body: bytes,
        *,
        context: ExchangeContext,
        policy: Policy,
        watch: Watch | None,
    ) -> None:
        self.exchange: Exchange | None = None
        self._record = record
        self._body = body
        self._context = context
        self._policy = policy
        self._watch = watch
        self._runtime = context.runtime
        self._limiter = context.limits.of(record.request.model)
        self._deadlines = Deadlines(
            context.timeouts,
            record.request,
            is_streamed=record.is_streamed,
            started_s=context.runtime.clock(),
        )
        self._lost: Lost | None = None
        self._has_shown = False

    async def run(self, show: Show) -> Exchange:
        """Ask, show what comes, and record it when it has ended, however it ends.

        Args:
            show: Called with each delta as it comes.

        Raises:
            SvcError: It failed; the error carries attempts, exchange and partial.
        """
        try:
            with keep_awake():
                await self._tries(show)
        except (asyncio.CancelledError, KeyboardInterrupt) as stop:
            self._context.sinks.add(self._end("cancelled", CANCELLED))
            stopped: type[BaseException] | None = type(stop)
        except Exception as problem:  # noqa: BLE001 - nothing foreign reaches a user
            self._lost = Lost(error=internal_error(problem))
            stopped = None
        else:
            stopped = None
        if stopped:  # a new one, without the frames that hold the reply
            raise stopped
        error = self._lost.error if self._lost else None
        if error is None:
            return await self._keep(self._end("ok", None))
        self._context.key.redact_error(error)
        exchange = await self._keep(self._end("error", to_failure(error)))
        raise completed(error, exchange)

    async def _tries(self, show: Show) -> None:
        """Ask until it is over; `_lost` says how."""

        def noted(delta: Delta) -> None:
            self._note(delta)
            show(delta)

        while True:
            slot = await self._pace()
            self._lost = _after(self._lost, await self._try(slot, noted))
            wait_s = self._within_total(self._next_step(slot, self._lost))
            if wait_s is None:
                return
            await self._wait(wait_s)

    async def _pace(self) -> Slot:
        """Wait for a place among the model's requests."""
        slot = self._limiter.reserve()
        began_s = self._runtime.clock()
        patience_s = self._policy.max_wait_s
        try:
            while (
                due := self._limiter.try_pass(slot, patience_s=patience_s)
            ).wait_s > 0:
                self._tell(Waiting(due.wait_s, due.reason))
                await self._runtime.sleep(due.wait_s)
        except BaseException:
            self._limiter.give_back(slot)
            raise
        finally:
            self._record.queue_s += self._runtime.clock() - began_s
            self._deadlines.queue_s = self._record.queue_s
        return slot

    async def _try(self, slot: Slot, show: Show) -> Lost | None:
        """Send once and receive the answer."""
        sent_s = self._runtime.clock()
        self._record.send(sent_s)
        left = self._deadlines.for_headers(sent_s)
        answer = await self._context.transport.send(
            self._body,
            key=self._context.key,
            is_streamed=self._record.is_streamed,
            connect_s=max(
                min(
                    self._context.timeouts.connect_s,
                    self._deadlines.total_left_s(sent_s),
                ),
                0.0,
            ),
            within_s=max(left.left_s, 0.0),
            on_sent=lambda: self._limiter.sent(slot),
        )
        if answer is None or isinstance(answer, Lost):
            return answer or Lost(error=timed_out(left))
        self._record.answer(answer.head)
        receiving = Receiving(
            answer,
            is_streamed=self._record.is_streamed,
            n_choices=int(self._record.request.params.get("n", 1)),
            deadlines=self._deadlines,
            clock=self._runtime.clock,
        )
        try:
            lost = await receiving.refusal(sent_s=sent_s)
            return lost or await receiving.receive(show, sent_s=sent_s)
        finally:
            self._record.body = self._context.key.redact(receiving.body())
            self._record.n_chunks = receiving.n_chunks
            await receiving.close()

    def _note(self, delta: Delta) -> None:
        if delta.text or delta.calls:
            self._has_shown = True
            self._record.text(self._runtime.clock())

    def _next_step(self, slot: Slot, lost: Lost | None) -> float | None:
        """Return the seconds until the next try, None if there is none."""
        if lost is None:
            self._limiter.answered()
            return None
        if isinstance(lost.error, RateLimitError):
            self._record.n_refused += 1
            self._limiter.refused(slot, retry_after_s=lost.error.retry_after_s)
        elif not lost.is_sent:
            self._limiter.give_back(slot)
        step = decide(
            lost.error,
            attempt=self._record.n_attempts,
            jitter=self._runtime.jitter(),
            has_shown=self._has_shown,
            is_lasting=lost.is_lasting,
            policy=self._policy,
        )
        return None if isinstance(step, GiveUp) else step.wait_s

    def _within_total(self, wait_s: float | None) -> float | None:
        """Return the wait, or None if the last deadline passes before its end."""
        left_s = self._deadlines.total_left_s(self._runtime.clock())
        return None if wait_s is None or wait_s >= left_s else wait_s

    async def _wait(self, wait_s: float) -> None:
        """Wait between two tries."""
        began_s = self._runtime.clock()
        why = _WHY.get(type(self._lost.error), "a failure") if self._lost else ""
        self._tell(Waiting(wait_s, f"trying again after {why}"))
        try:
            await self._runtime.sleep(wait_s)
        finally:
            self._record.retry_wait_s += self._runtime.clock() - began_s

    def _tell(self, waiting: Waiting) -> None:
        if self._watch is not None:
            self._watch(waiting)

    def _end(self, status: Status, failure: Failure | None) -> Exchange:
        """Make the record, once."""
        self.exchange = self._record.exchange(
            status=status,
            failure=failure,
            now_s=self._runtime.clock(),
            ended_at=self._runtime.now(),
        )
        return self.exchange

    async def _keep(self, exchange: Exchange) -> Exchange:
        await self._context.sinks.keep(exchange)
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


Task = ExchangeTask | RecordedAnswer
"""An exchange that is ready to `run`, by asking the service or from a record."""


def to_request(
    prompt: Prompt | CompletionRequest,
    *,
    default_model: str,
    given: Mapping[str, Any],
    stacklevel: int,
) -> CompletionRequest:
    """Check what is asked for and return the request.

    Args:
        prompt: A text or messages, or a request that is ready.
        default_model: Model id if `given` names none.
        given: The other arguments by name: `model`, `system`, and parameters.
        stacklevel: Whose line a warning names: 1 is the caller.

    Raises:
        ParameterError: Something is not allowed.
    """
    if isinstance(prompt, CompletionRequest):
        for name in (name for name, value in given.items() if value is not None):
            raise ParameterError(
                f"{name}= was given together with a CompletionRequest, which already "
                "holds the model, the messages and the parameters. Give the prompt "
                f"instead, or leave out {name}=.",
                param=name,
            )
        return prompt
    params = dict(given)
    model, system = params.pop("model", None), params.pop("system", None)
    extra = params.pop("extra", None)
    warn_on_params(params, stacklevel=stacklevel + 1)
    return build_request(
        prompt,
        model=default_model if model is None else model,
        system=system,
        extra=extra,
        params=params,
    )


class RequestPath:
    """Makes the exchanges of one client; it may be used from several threads.

    Args:
        settings: Where to, and how long things may take.
        key: The API key; found in the environment at the first request if None.
        sinks: Get each exchange when it has ended.
        limits: The rate limits to keep; those of this process if None.
        answers: Looks for an answer before anything is sent.
        runtime: Where time, chance and ids come from.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        key: Key | None = None,
        sinks: Sequence[Sink] = (),
        limits: RateLimits | None = None,
        answers: Answerer | None = None,
        runtime: Runtime = REAL,
    ) -> None:
        self.settings = settings
        self._key = key
        self._sinks = Sinks(sinks)
        self._limits = limits
        self._answers = answers
        self._runtime = runtime
        self._lock = Lock()
        self._transport: Transport | None = None

    def request(
        self,
        prompt: Prompt | CompletionRequest,
        *,
        model: str | None = None,
        system: str | None = None,
        **params: Unpack[Params],
    ) -> CompletionRequest:
        """Check what a caller of a client's verb asks for and return the request.

        Raises:
            ParameterError: Something is not allowed.
        """
        return to_request(
            prompt,
            default_model=self.settings.model,
            given={"model": model, "system": system, **params},
            stacklevel=3,
        )

    def begin(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool = False,
        origin: Origin | None = None,
        watch: Watch | None = None,
        policy: Policy = INTERACTIVE,
        answers: Answerer | None = None,
    ) -> Task:
        """Return an exchange that is ready to run; nothing is sent before it runs.

        Args:
            request: What to ask.
            is_streamed: Whether to have the reply streamed.
            origin: Who asks, for the record.
            watch: Called at each wait.
            policy: When to ask again.
            answers: Looks for an answer first, instead of the client's own.

        Raises:
            AskError: Something is not allowed.
            ConfigError: The API key or the base address is missing.
        """
        body = encode(request, is_streamed=is_streamed)
        origin = origin or Origin()
        look_up = answers or self._answers
        recorded = look_up(request, origin) if look_up else None
        if recorded is not None:
            return RecordedAnswer(
                recorded,
                request=request,
                origin=origin,
                is_streamed=is_streamed,
                sinks=self._sinks,
                runtime=self._runtime,
            )
        context = self._context()
        context.key.refuse_in(body)
        record = ExchangeRecord(
            exchange_id=self._runtime.new_id(),
            request=request,
            origin=origin,
            endpoint=self._base_url,
            is_streamed=is_streamed,
            is_emulated=self.settings.is_emulated,
            started_at=self._runtime.now(),
            est_prompt_tokens=check_budget(request),
        )
        return ExchangeTask(record, body, context=context, policy=policy, watch=watch)

    async def begin_on_loop(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool = False,
        origin: Origin | None = None,
        watch: Watch | None = None,
        policy: Policy = INTERACTIVE,
        answers: Answerer | None = None,
    ) -> Task:
        """Do as `begin`; the running loop goes on while an answer is looked for."""
        begin = partial(
            self.begin,
            request,
            is_streamed=is_streamed,
            origin=origin,
            watch=watch,
            policy=policy,
            answers=answers,
        )
        reads = answers is not None or self._answers is not None
        return await asyncio.to_thread(begin) if reads else begin()

    def limiter(self, model: str) -> RateLimiter:
        """Return what decides when a request to a model may go.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._context().limits.of(model)

    async def aclose(self) -> None:
        """Close the connections of the running loop; it can be used again."""
        if self._transport is not None:
            await self._transport.aclose()

    @property
    def _base_url(self) -> str:
        if self.settings.base_url is None:
            raise SettingsError(
                "There is no base address. Set SVC_BASE_URL to the service's address, "
                "such as https://HOST/v1, or try without a service: `%svc use "
                "emulator` starts an emulator for this kernel."
            )
        return self.settings.base_url

    def _context(self) -> ExchangeContext:
        base_url = self._base_url
        self._key = found = self._key or find_key()
        keep_out_of_logs(found)
        clock = self._runtime.clock
        return ExchangeContext(
            transport=self._open(base_url),
            limits=self._limits or shared_limits(base_url, found, clock=clock),
            key=found,
            sinks=self._sinks,
            timeouts=self.settings.timeouts,
            runtime=self._runtime,
        )

    def _open(self, base_url: str) -> Transport:
        from .http import HttpTransport  # noqa: PLC0415 - httpx at first use

        with self._lock:
            if self._transport is None:
                self._transport = HttpTransport(base_url, now=self._runtime.now)
            return self._transport

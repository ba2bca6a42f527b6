"""The pipeline of every completion request: wait for the rate limit, send, read, retry.

Every sink gets an exchange once, however it ends. Errors are raised without the frames
in which they arose, because those may contain the service's answer.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from msgspec import structs

from svc_notebook.completion import Completion, advice_on_params
from svc_notebook.credentials import (
    DeltaRedactor,
    Key,
    check_variables,
    find_key,
    hide_others,
    known_keys,
    make_known,
    name_refused_key,
)
from svc_notebook.display.front_end import write_note
from svc_notebook.endpoints import SERVICE, Endpoint, facts_of
from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    ParameterError,
    RateLimitError,
    ServiceError,
    SvcError,
    TimedOutError,
    UnknownModelError,
    warn,
)
from svc_notebook.exchange import Exchange, Failure, Origin, Sink, Status
from svc_notebook.service.catalogue import ModelInfo
from svc_notebook.service.chunk import Delta
from svc_notebook.service.error_messages import (
    UNAVAILABLE,
    name_address,
)
from svc_notebook.service.params import check_flag
from svc_notebook.service.request import CompletionRequest, Prompt, build_request
from svc_notebook.settings import Settings, no_address
from svc_notebook.timeouts import Deadlines, Timeouts, timed_out, with_earlier
from svc_notebook.tokens import check_budget, warn_if_over
from svc_notebook.tracing import Tracing, tracing_of
from svc_notebook.wire.encode import encode

from . import model_list
from .clock import REAL, Runtime
from .event_loop import keep_awake
from .exchange_record import (
    CANCELLED,
    Answerer,
    ExchangeRecord,
    RecordedAnswer,
    Sinks,
    internal_error,
    to_failure,
    with_exchange,
)
from .rate_limit import RateLimiter, RateLimits, shared_limits
from .rate_windows import Slot, Waiting
from .response import AnswerReader
from .retry import (
    INTERACTIVE,
    MAX_ASKED_S,
    FailedTry,
    Policy,
    reason_to_retry,
    retry_wait_s,
)

Watch = Callable[[Waiting], None]
"""Called at each wait, on the loop's thread; it must return at once. If it raises, a
warning is shown."""

_MIN_SHOWN_S = 2.0  # shorter waits are not worth a line


def print_wait(waiting: Waiting) -> None:
    """Write a note if a wait is long enough to be noticed."""
    if waiting.wait_s >= _MIN_SHOWN_S:
        write_note(f"waiting {waiting.wait_s:.0f} s: {waiting.reason}")


def call_watch(watch: Watch | None, waiting: Waiting) -> None:
    """Call `watch`; if it raises, the request goes on."""
    try:
        if watch is not None:
            watch(waiting)
    except Exception as problem:  # noqa: BLE001 - the reply comes first
        kind = type(problem).__name__
        warn(f"watch= raised {kind}. The request goes on; correct the function.")


ShowDelta = Callable[[Delta], None]


if TYPE_CHECKING:  # httpx loads at the first request
    import httpx

    from .connections import HttpTransport
    from .spending_limit import SpendingLimit  # loads when a limit is set


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeContext:
    """What all exchanges of a client share."""

    transport: "HttpTransport"
    key: Key
    endpoint: Endpoint
    sinks: Sinks
    timeouts: Timeouts
    spending: Callable[[], "SpendingLimit | None"]
    runtime: Runtime
    send: "SendOnce"
    tracing: Tracing | None


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One try of an exchange, with everything that is needed to send it.

    Attributes:
        record: Receives the reply and its times.
        body: The request as bytes.
        on_sent: Call it once the service may have read the request.
        show: Receives each delta.
    """

    record: ExchangeRecord
    body: bytes
    context: ExchangeContext
    policy: Policy
    deadlines: Deadlines
    on_sent: Callable[[], None]
    show: ShowDelta


SendOnce = Callable[[Attempt], Awaitable[FailedTry | None]]
"""Makes one try from this process, or all tries of the policy on a worker."""


async def send_once(attempt: Attempt) -> FailedTry | None:
    """Send a request from this process and receive the answer."""
    failure = await _send(attempt)
    if failure is not None and isinstance(failure.error, RateLimitError):
        attempt.record.n_refused += 1
    return failure


async def _send(attempt: Attempt) -> FailedTry | None:
    record, context, deadlines = attempt.record, attempt.context, attempt.deadlines
    clock, at_start = context.runtime.clock, record.at_start
    sent_s = clock()
    record.send(sent_s)
    left = deadlines.for_headers(sent_s)
    total_s = deadlines.total_left_s(sent_s)
    answer = await context.transport.send(
        attempt.body,
        key=context.key,
        is_streamed=at_start.is_streamed,
        connect_s=max(min(context.timeouts.connect_s, total_s), 0.0),
        within_s=max(left.left_s, 0.0),
        on_sent=attempt.on_sent,
    )
    if answer is None or isinstance(answer, FailedTry):
        return answer or FailedTry(error=timed_out(left))
    record.is_emulated |= answer.head.is_emulated
    record.emulator_note = context.key.redact(answer.head.emulator_note) or None
    reader = AnswerReader(
        answer,
        is_streamed=at_start.is_streamed,
        n_choices=int(at_start.request.params.get("n", 1)),
        deadlines=deadlines,
        clock=clock,
        sent_s=sent_s,
    )
    redactor = DeltaRedactor(context.key)
    try:
        return await reader.read(lambda delta: attempt.show(redactor.feed(delta)))
    finally:
        for delta in redactor.end():
            attempt.show(delta)
        record.body = context.key.redact(reader.reply.body())
        record.n_chunks = reader.reply.n_chunks
        await reader.close()


class ExchangeTask:
    """One exchange; `run` it once.

    It runs in one task and holds no suspended generator, so that cancelling the task
    stops it completely, also when the event loop shuts down.
    """

    def __init__(
        self,
        record: ExchangeRecord,
        body: bytes,
        *,
        context: ExchangeContext,
        limiter: RateLimiter,
        policy: Policy,
        watch: Watch | None,
    ) -> None:
        self.exchange: Exchange | None = None
        self._record = record
        self._body = body
        self._context = context
        self._policy = policy
        self._watch = watch
        self._spending = context.spending()
        self._runtime = context.runtime
        self._limiter = limiter
        self._failure: FailedTry | None = None
        self._has_shown = False

    @property
    def is_unsent(self) -> bool:
        """Whether the last try failed without a connection."""
        return self._failure is not None and not self._failure.is_sent

    async def run(self, show: ShowDelta) -> Exchange:
        """Send the request, show each delta, and record the exchange at its end.

        An error has `n_attempts`, `exchange_id` and `partial`.
        """
        tracing = self._context.tracing
        if tracing is None:
            return await self._run(show)
        span = tracing.begin(self._record.at_start, self._context.endpoint.name)
        try:
            return await self._run(show)
        finally:
            tracing.end(span, self.exchange)

    async def _run(self, show: ShowDelta) -> Exchange:
        stopped: type[BaseException] | None = None
        self._start()
        if self._spending:
            self._spending.begin(self._record.at_start, self._record.prompt.high)
        try:
            with keep_awake():
                await self._tries(show)
        except (asyncio.CancelledError, KeyboardInterrupt) as stop:
            self._context.sinks.add(self._end("cancelled", CANCELLED))
            stopped = type(stop)
        except Exception as problem:  # noqa: BLE001 - users only see our errors
            self._failure = FailedTry(error=internal_error(problem))
        if stopped:  # a new exception, without the frames that hold the reply
            raise stopped
        error = self._failure.error if self._failure else None
        if error is None:
            return await self._context.sinks.keep(self._end("ok", None))
        self._context.key.redact_error(error)
        self._add_remedy(error)
        exchange = self._end("error", to_failure(error))
        raise with_exchange(error, await self._context.sinks.keep(exchange))

    def _start(self) -> None:
        """Start the deadlines now: a stream may be made long before it is read."""
        record, runtime = self._record, self._runtime
        record.at_start = structs.replace(record.at_start, started_at=runtime.now())
        self._deadlines = Deadlines(
            self._context.timeouts,
            record.at_start.request,
            is_streamed=record.at_start.is_streamed,
            started_s=runtime.clock(),
        )

    def _add_remedy(self, error: SvcError) -> None:
        """Add to an error what to do with this key, model or endpoint."""
        from svc_notebook.learnt_from_refusals import learn, name_unknown_model  # noqa: PLC0415 - rare

        endpoint = self._context.endpoint
        if isinstance(error, AuthError):
            key = self._context.key
            name_refused_key(
                error,
                source=key.source,
                address=self._record.at_start.endpoint,
                is_sent=bool(key.authorization()),
                is_documented=endpoint.is_documented,
            )
        elif isinstance(error, UnknownModelError):
            name_unknown_model(error, endpoint, self._record.at_start.request.model)
        elif isinstance(error, BadRequestError):
            at_start = self._record.at_start
            learnt = learn(
                endpoint,
                error,
                request=at_start.request,
                prompt=self._record.prompt,
            )
            error.remedy = learnt or error.remedy
        elif isinstance(error, DocumentError) and not endpoint.is_documented:
            name_address(error, self._record.at_start.endpoint)

    async def _tries(self, show: ShowDelta) -> None:
        """Try until a try succeeds or none is left; `_failure` is from the last try."""

        def show_and_note(delta: Delta) -> None:
            if delta.text or delta.calls:
                self._has_shown = True
                self._record.text(self._runtime.clock())
            show(delta)

        while (slot := await self._pace()) is not None:
            try:
                failure = await self._context.send(self._attempt(slot, show_and_note))
            except BaseException:
                if slot.is_sent:
                    self._limiter.failed(slot)
                else:  # cancelled while it was connecting
                    self._limiter.give_back(slot)
                raise
            if failure and self._failure:
                error = with_earlier(failure.error, self._failure.error)
                failure = replace(failure, error=error)
            self._failure = failure
            wait_s = self._end_try(slot, failure)
            if wait_s is None:
                return
            await self._wait(wait_s)

    def _drops_usage(self, error: SvcError) -> bool:
        """Say whether to try again without asking a stream for its usage.

        Some servers refuse `stream_options`; a first try shows which.
        """
        at_start, endpoint = self._record.at_start, self._context.endpoint
        if not isinstance(error, ServiceError) or endpoint.stream_usage is not None:
            return False
        from svc_notebook.learnt_from_refusals import refuses_stream_usage  # noqa: PLC0415 - rare

        if not at_start.is_streamed or not refuses_stream_usage(error):
            return False
        facts_of(endpoint.base_url or "").takes_stream_usage = False
        before, self._body = self._body, encode(at_start.request, is_streamed=True)
        return self._body != before

    def _attempt(self, slot: Slot, show: ShowDelta) -> Attempt:
        return Attempt(
            record=self._record,
            body=self._body,
            context=self._context,
            policy=self._policy,
            deadlines=self._deadlines,
            on_sent=partial(self._limiter.sent, slot),
            show=show,
        )

    async def _pace(self) -> Slot | None:
        """Wait until a request may be sent; None if that would be too late."""
        slot = self._limiter.reserve(is_own=self._policy.limits_in_flight)
        began_s = self._runtime.clock()
        due_of = partial(self._limiter.try_pass, patience_s=MAX_ASKED_S)
        has_place = asyncio.Event()
        slot.wake = partial(_wake, asyncio.get_running_loop(), has_place)
        try:
            while (due := due_of(slot)).wait_s > 0:
                left_s = self._wait_left_s()
                if due.wait_s >= left_s:
                    self._limiter.give_back(slot)
                    self._failure = self._failure or _too_late(due, self._context)
                    return None
                call_watch(self._watch, due)
                if due.is_for_place:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(left_s, _MAX_TIMEOUT_S)):
                            await has_place.wait()
                    has_place.clear()  # the place may be lost again
                else:
                    await self._runtime.sleep(due.wait_s)
        except BaseException:
            self._limiter.give_back(slot)
            raise
        finally:
            slot.wake = None  # the slot is kept for a minute, but no longer waits
            self._record.queue_s += self._runtime.clock() - began_s
            if not self._policy.is_limit_in_total:
                self._deadlines.queue_s = self._record.queue_s
        return slot

    def _wait_left_s(self) -> float:
        """Return how long the request may wait for a rate limit."""
        if not self._policy.is_limit_in_total:
            return math.inf
        return self._deadlines.total_left_s(self._runtime.clock())

    def _end_try(self, slot: Slot, failure: FailedTry | None) -> float | None:
        """Free the slot; return the seconds until the next try, None without one."""
        if failure is None:
            self._limiter.answered(slot)
            return None
        error, closed_s = failure.error, 0.0
        if self._drops_usage(error):
            self._limiter.failed(slot)
            return 0.0
        if isinstance(error, RateLimitError):
            closed_s = self._limiter.refused(
                slot,
                retry_after_s=error.retry_after_s,
                spread=self._runtime.jitter(),
            )
        elif not failure.is_sent:
            self._limiter.give_back(slot)
        elif isinstance(error, ServiceError) and error.status == UNAVAILABLE:
            self._limiter.overloaded(slot)
        else:
            self._limiter.failed(slot)
        wait_s = retry_wait_s(
            failure,
            attempt=self._record.n_attempts,
            jitter=self._runtime.jitter(),
            has_shown=self._has_shown,
            closed_s=closed_s,
            policy=self._policy,
        )
        left_s = self._deadlines.total_left_s(self._runtime.clock())
        return None if wait_s is None or wait_s >= left_s else wait_s

    async def _wait(self, wait_s: float) -> None:
        """Wait between two tries."""
        began_s = self._runtime.clock()
        call_watch(self._watch, Waiting(wait_s, reason_to_retry(self._failure)))
        if self._context.tracing and self._failure:
            self._context.tracing.retry(self._failure.error, wait_s)
        try:
            await self._runtime.sleep(wait_s)
        finally:
            self._record.retry_wait_s += self._runtime.clock() - began_s

    def _end(self, status: Status, failure: Failure | None) -> Exchange:
        self.exchange = self._record.exchange(
            status=status,
            failure=failure,
            now_s=self._runtime.clock(),
            ended_at=self._runtime.now(),
        )
        if self._spending:
            self._spending.end(self.exchange)
        return self.exchange


_MAX_TIMEOUT_S = 1e6  # an event loop cannot wait for infinity


def _too_late(due: Waiting, context: ExchangeContext) -> FailedTry:
    """Return the failure of a request that would wait too long for a rate limit."""
    total_s = context.timeouts.total_s or 0.0
    error = TimedOutError(
        f"The request would wait {due.wait_s:.0f} s ({due.reason}), longer than "
        f"total_s allows ({total_s:g} s in all). It was not sent. Ask again later, "
        "allow more time (SVC_TIMEOUTS, total_s=none for no end), or ask for many "
        "replies with a sweep, which waits.",
        deadline="total",
        deadline_s=total_s,
    )
    return FailedTry(error=error, is_sent=False)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event from any thread."""
    with suppress(RuntimeError):  # the loop is closed, and its tasks are over
        loop.call_soon_threadsafe(event.set)


Task = ExchangeTask | RecordedAnswer
"""An exchange to `run`: it asks the service, or returns a recorded answer."""


def to_request(
    prompt: Prompt | CompletionRequest,
    *,
    default_model: str,
    arguments: Mapping[str, Any],
    info_of: Callable[[str], ModelInfo] = SERVICE.info_of,
) -> CompletionRequest:
    """Check the arguments of a verb and return the request.

    Args:
        prompt: The prompt, in any form that the verb accepts.
        default_model: Model id if `arguments` has none.
        arguments: The other arguments by name: `model`, `system`, and parameters.
        info_of: Returns what is known of a model.
    """
    if isinstance(prompt, CompletionRequest):
        for name in (name for name, value in arguments.items() if value is not None):
            raise ParameterError(
                f"{name}= was given together with a CompletionRequest, which already "
                "holds the model, the messages and the parameters. Give the prompt "
                f"instead, or leave out {name}=.",
                param=name,
            )
        return prompt
    params = dict(arguments)
    model, system = params.pop("model", None), params.pop("system", None)
    if (advice := advice_on_params(params)) is not None:
        warn(advice, UserWarning)
    return build_request(
        prompt,
        model=default_model if model is None else model,
        system=system,
        params=params,
        info_of=info_of,
    )


SendRequest = Callable[[CompletionRequest, Origin], Completion]


class RunTools(Protocol):
    """Sends a request, runs the tools that are called, and returns the last reply."""

    def __call__(
        self,
        request: CompletionRequest,
        origin: Origin,
        ask: SendRequest,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Completion:
        """Run the rounds; `check_stop` is called often, and raises to stop them."""


def take_no_tools(_: dict[str, Any], *, run_tools: bool = True) -> None:
    """Leave the tools in the arguments: a plain client does not run functions."""
    del run_tools


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `RequestPipeline.begin`."""

    is_streamed: bool
    origin: Origin | None
    watch: Watch | None
    policy: Policy
    answers: Answerer | None


def _look_up(
    look_up: Answerer, request: CompletionRequest, origin: Origin, *, body: bytes
) -> Exchange | None:
    """Look for a recorded answer, unless the request contains a key."""
    for (
        key
    ) in known_keys():  # the ledger would keep the prompt, and an error could quote it
        key.refuse_in(body)
    return look_up(request, origin)


class RequestPipeline:
    """Makes the exchanges of one client; for the arguments see `AsyncClient`.

    Several threads may use it. `send` makes one try of a request.
    """

    def __init__(  # noqa: PLR0913 - each argument replaces one part
        self,
        settings: Settings,
        *,
        key: Key | None = None,
        sinks: Sequence[Sink] = (),
        limits: RateLimits | None = None,
        answers: Answerer | None = None,
        spending: Callable[[], "SpendingLimit | None"] = lambda: None,
        take_tools: Callable[..., RunTools | None] = take_no_tools,
        runtime: Runtime = REAL,
        transport: "httpx.AsyncBaseTransport | None" = None,
        send: SendOnce = send_once,
    ) -> None:
        self.settings = settings
        self._send = send
        self._transport = transport
        self._key = key if key is None else make_known(key)
        self._sinks = Sinks(sinks)
        self._limits = limits
        self._answers = answers
        self._spending = spending
        self._take_tools = take_tools
        self._runtime = runtime
        self._lock = Lock()
        self._shared_context: ExchangeContext | None = None

    def request(
        self, prompt: Prompt | CompletionRequest, arguments: Mapping[str, Any]
    ) -> CompletionRequest:
        """Check the arguments of a client's verb and return the request."""
        model = self.settings.model
        info_of = self.settings.endpoint.info_of
        return to_request(
            prompt, default_model=model, arguments=arguments, info_of=info_of
        )

    def tool_runner(
        self, arguments: dict[str, Any], *, run_tools: bool
    ) -> RunTools | None:
        """Take the functions out of a verb's `tools`, and return what runs them.

        None if there are no functions to run.
        """
        check_flag("run_tools", run_tools)
        return self._take_tools(arguments, run_tools=run_tools)

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

        For arguments and errors see `AsyncClient.stream`; `policy` says when to try
        again.
        """
        info = structs.replace(self.settings.endpoint.info_of(request.model), extra={})
        if request.info != info:  # it was built for another endpoint
            request = structs.replace(request, info=info)
        body = encode(
            request,
            is_streamed=is_streamed,
            wants_usage=self.settings.endpoint.wants_usage,
        )
        origin = origin or Origin()
        look_up = answers or self._answers
        if look_up and (recorded := _look_up(look_up, request, origin, body=body)):
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
        prompt = check_budget(request)
        if spending := context.spending():
            spending.check(request, prompt.high)
        warn_if_over(request, prompt.best)
        now = self._runtime.now()
        at_start = Exchange(
            exchange_id=self._runtime.new_id(),
            request=request,
            origin=origin,
            endpoint=self._base_url,
            is_streamed=is_streamed,
            is_emulated=self.settings.is_emulated,
            started_at=now,
            ended_at=now,
            est_prompt_tokens=prompt.best,
        )
        record = ExchangeRecord(at_start, prompt)
        return ExchangeTask(
            record,
            body,
            context=context,
            limiter=self.limiter(request.model),
            policy=policy,
            watch=watch,
        )

    async def begin_on_loop(
        self, request: CompletionRequest, **options: Unpack[TaskOptions]
    ) -> Task:
        """Call `begin`, on another thread if it looks for a recorded answer."""
        begin = partial(self.begin, request, **options)
        reads = options.get("answers") or self._answers
        return await asyncio.to_thread(begin) if reads else begin()

    def limiter(self, model: str) -> RateLimiter:
        """Return what decides when a request to a model may go."""
        context = self._context()
        limits = self._limits or shared_limits(
            self._base_url,
            context.key,
            clock=self._runtime.clock,
            endpoint=self.settings.endpoint,
        )
        return limits.of(model)

    async def list_models(self) -> None:
        """Ask the server for its models: see `model_list`."""
        context, base_url = self._context(), self._base_url
        from .connections import HttpTransport  # noqa: PLC0415 - httpx at first use

        transport = HttpTransport(
            base_url,
            now=self._runtime.now,
            operation=model_list.OPERATION,
            through=self._transport,
            endpoint=self.settings.endpoint,
        )
        try:
            await model_list.ask_for_models(transport, context.key, base_url)
        finally:
            await transport.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running loop; they open again when needed."""
        if self._shared_context is not None:
            await self._shared_context.transport.aclose()

    @property
    def _base_url(self) -> str:
        if self.settings.base_url is None:
            raise no_address()
        return self.settings.base_url

    def _context(self) -> ExchangeContext:
        if self._shared_context is not None:
            return self._shared_context
        base_url, runtime = self._base_url, self._runtime
        key = self._key or find_key(base_url=base_url, endpoint=self.settings.endpoint)
        check_variables(self.settings.endpoint)
        hide_others(key)  # a request or a reply may contain the key of another address
        from .connections import HttpTransport, keep_out_of_logs  # noqa: PLC0415 - httpx at first use

        if self._transport:
            keep_out_of_logs(key)
        with self._lock:
            if self._shared_context is None:
                self._shared_context = ExchangeContext(
                    transport=HttpTransport(
                        base_url,
                        now=runtime.now,
                        through=self._transport,
                        endpoint=self.settings.endpoint,
                    ),
                    key=key,
                    endpoint=self.settings.endpoint,
                    sinks=self._sinks,
                    timeouts=self.settings.timeouts,
                    spending=self._spending,
                    runtime=runtime,
                    send=self._send,
                    tracing=tracing_of(self.settings.traces),
                )
            return self._shared_context

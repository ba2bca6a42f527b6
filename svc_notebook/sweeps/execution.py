"""Sends the missing requests of a run, from this process or from a Ray cluster.

Nothing is sent before the run is locked, its endpoint is checked, and the user has
confirmed a large number of requests. After the first interrupt nothing more is sent,
and replies of the next seconds are kept; the second interrupt cancels them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, RLock
from typing import TYPE_CHECKING, cast

from svc_notebook.client.event_loop import BackgroundTask, portal
from svc_notebook.client.exchange_record import to_failure
from svc_notebook.client.rate_lease import LONGEST_S, SendAges, sent_lately
from svc_notebook.client.rate_limit import RateLimiter, shared_limits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.client.request_pipeline import RequestPipeline, Task, Watch, send_once
from svc_notebook.client.retry import QUEUED, Policy
from svc_notebook.credentials import known_keys
from svc_notebook.display.front_end import Screen, find_screen, is_terminal, write_note
from svc_notebook.errors import (
    AuthError,
    ConfigError,
    DocumentError,
    Interrupted,
    LedgerError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    SpendingLimitError,
    SvcError,
    TransportError,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.chunk import Delta
from svc_notebook.service.error_messages import UNAUTHORIZED
from svc_notebook.service.params import check_int
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Context, Session

from .estimate import Speed, ask_before_sending, forecast
from .grid import Trial
from .plan import OwnLimits, Plan, keep_plan, stored_manifest
from .progress import BACKGROUND_GAP_S, Bars, progress_of
from .resume import (
    Settled,
    TrialFailure,
    TrialKey,
    check_endpoint,
    check_unplanned,
    settled_of,
)
from .row_files import check_same_files
from .run_lock import RunLock, held_here, lock_run
from .run_outcome import RunResult
from .run_scores import RunScores, ScoringPass
from .scheduler import (
    Answered,
    Failed,
    Outcome,
    PendingTrials,
    Refused,
    Scheduler,
    Stop,
    most_in_flight,
    pending_at,
    pending_of,
    pilot_of,
)
from .sweep_tools import TrialRounds

if TYPE_CHECKING:
    from .ray_cluster import Cluster

DRAIN_S = 2.5  # wait for replies in flight after the first interrupt
TICK_S = 0.1  # an interrupt is noticed within this time
ANNOUNCED_S = 60.0  # a wait of this length or more is printed

KEPT = "what arrived is kept"
INTERRUPTED = f"(interrupted - {KEPT}; call this again on the same run for the rest)"
ALL_SENT = f"(interrupted - {KEPT}; nothing is left to send)"
NOT_SENT = "(interrupted while the workers were starting; nothing more was sent)"

# after many of these errors in a row, a model is given up
_OF_SERVICE = (TransportError, ServerFaultError, AuthError, DocumentError)

Tick = Callable[[], None]
ShowPiece = Callable[[Trial, Delta], None]
"""Called with each piece of a reply as it arrives, on the thread of the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How one pass over a run is sent; see `Run.run`, `retry` and `start`.

    If `places` are given, only these trials are sent: pairs of combination and repeat.
    `bars` are drawn in the background. `on` is the cluster whose workers send the
    requests, and `workers` their number; None for this process. With `is_confirmed`
    the user is not asked.

    Raises:
        ParameterError: The cluster, or the number of workers, is not possible.
    """

    is_retried: bool = False
    include_refused: bool = False
    first: int | None = None
    places: Sequence[tuple[int, int]] | None = None
    is_confirmed: bool = False
    watch: Watch | None = None
    show: ShowPiece | None = None
    bars: Bars | None = None
    on: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        """Check where the requests are to be sent from."""
        if self.on is None:
            if self.workers is None:
                return
            raise ParameterError(
                "workers is for a run on a cluster; give on='ray', too.",
                param="workers",
            )
        from .ray_cluster import check_address  # noqa: PLC0415 - where one is used

        # the class is frozen, but blanks around the address are removed
        object.__setattr__(self, "on", check_address(self.on))
        if self.show is not None:
            raise ParameterError(
                "show is called with pieces of replies, which workers of a cluster do "
                "not send. Leave out show or on.",
                param="show",
            )
        if self.workers is not None:
            check_int("workers", self.workers, minimum=1, otherwise="or None to choose")


@dataclass(kw_only=True, eq=False)
class Execution:
    """One pass that sends what is missing of a run, on the background thread.

    Nothing is sent before `begin`, which is called once. At the end the client is
    closed, and `on_over` is called at least once.

    Attributes:
        plan: What is sent.
        todo: The trials to send, by model.
        options: How they are sent.
        client: Sends their requests; the ledger is its sink.
        failures: Why trials have no reply, if the ledger does not say it; the execution
            adds to it.
        limit_of: Returns the limit of a model, if one is known.
        is_paced: Whether requests wait for limits; False if a file answers them.
        rounds: Sends trials whose tools are run.
        scores: Scores replies as they come.
        has_budget: Returns whether a limit on tokens or cost is set now.
        on_over: Called when it has ended.
        scheduler: Decides when each trial is sent.
        error: The error that ended it early, if any.
    """

    plan: Plan
    todo: Mapping[str, PendingTrials]
    options: SendOptions
    client: RequestPipeline
    ledger: Ledger
    failures: dict[TrialKey, TrialFailure]
    limit_of: Callable[[str], Limit | None]
    is_paced: bool
    rounds: TrialRounds | None
    scores: ScoringPass
    has_budget: Callable[[], bool]
    on_over: Tick
    scheduler: Scheduler = field(init=False)
    error: BaseException | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Make the scheduler, which sends nothing yet."""
        self._ended = Event()
        self._budget_line = asyncio.Lock()  # first come, first served
        self._one_ended = asyncio.Event()
        self._n_running = 0  # requests whose tokens are reserved
        self._over_budget: SpendingLimitError | None = None
        self.scheduler = Scheduler(
            self.todo,
            self,
            in_flight=self.plan.in_flight,
            own_limits=self.plan.own_limits,
            limit_of=self.limit_of,
            keeps_together=self.has_budget,
            clock=time.monotonic,
            watch=self.options.watch or _announce,
        )
        if self.rounds is not None:
            self.rounds.may_go = self.scheduler.until_next_round

    def begin(self) -> None:
        """Begin to send the trials, on the background thread."""
        self._job: BackgroundTask[None] = portal().submit(self._main())

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def draw(self, bars: Bars, *, is_last: bool = False) -> None:
        """Draw the progress of each model."""
        scheduler = self.scheduler
        state = "paused" if scheduler.is_paused else ""
        progress = progress_of(
            scheduler.queues,
            now_s=time.monotonic(),
            now_at=datetime.now().astimezone(),
            state="stopped" if scheduler.is_over else state,
            labels=self.plan.grid.model_labels,
            replies=self.scores.so_far,
        )
        bars.show(progress, is_last=is_last or self.is_over)

    def wait(self, tick: Tick) -> None:
        """Wait for the end, calling `tick` meanwhile; raise the error that ended it."""
        try:
            self._wait(tick)
        except KeyboardInterrupt:
            self.stop(tick)
            self.error = Interrupted(message=self._interrupted())
        if self.error is not None:
            raise self.error

    async def until_over(self, tick: Tick) -> None:
        """Like `wait`, without blocking the event loop."""
        try:
            while not self.is_over:
                tick()
                # in short waits, because a long one cannot be interrupted in a notebook
                await asyncio.sleep(TICK_S)
        except asyncio.CancelledError as stopped:
            self.stop()
            # re-raised as it is, because `asyncio.timeout` expects a CancelledError
            shown = Interrupted(message=self._interrupted())._render_traceback_
            setattr(stopped, "_render_traceback_", shown)  # noqa: B010 - it has no such field
            raise
        except BaseException:
            self.stop()
            raise
        tick()
        if self.error is not None:
            raise self.error

    def _interrupted(self) -> str:
        """Return the line of an interrupt, which says whether anything is left."""
        queues = self.scheduler.queues
        is_left = any(queue.n_ok + queue.n_failed < queue.n_trials for queue in queues)
        return INTERRUPTED if is_left else ALL_SENT

    def stop(self, tick: Tick = lambda: None) -> None:
        """Send nothing more, wait some seconds for replies, then cancel the others.

        Streamed replies are cancelled at once, because their text so far is kept.
        """
        is_streamed = self.options.show is not None
        with suppress(KeyboardInterrupt):  # the second one ends the wait
            self.scheduler.stop()
            self._wait(tick, within_s=0.0 if is_streamed else DRAIN_S)
        self._job.cancel()
        self._end()  # `_main` does not run if it is cancelled before it begins

    def _wait(self, tick: Tick, *, within_s: float = float("inf")) -> None:
        left_s = within_s
        # in short waits, so that bars are drawn and an interrupt is noticed
        while left_s > 0 and not self._ended.wait(TICK_S):
            left_s -= TICK_S
            tick()
        tick()

    async def _main(self) -> None:
        bars = self.options.bars
        drawing = None
        if bars is not None:
            drawing = asyncio.create_task(self._keep_drawing(bars))
        try:
            async with aclosing(self.client):
                self.error = await self.scheduler.run()
            await self.scores.finish()
        except asyncio.CancelledError:
            stopped = SvcError("The run was stopped before it was complete.")
            self.error = self.error or stopped
            raise
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            self.error = problem
        finally:
            self.scores.stop()
            if drawing is not None:
                drawing.cancel()
            if bars is not None:
                self.draw(bars, is_last=True)
            self._end()

    async def _keep_drawing(self, bars: Bars) -> None:
        while True:
            await asyncio.sleep(BACKGROUND_GAP_S)
            self.draw(bars)

    def _end(self) -> None:
        self.on_over()
        self._ended.set()

    # The scheduler calls these, on the thread of the event loop

    def limiter(self, model: str) -> RateLimiter | None:
        """Return the rate limiter of a model; None if requests do not wait."""
        return self.client.limiter(model) if self.is_paced else None

    async def send_trial(self, trial: Trial) -> Outcome:
        """Send a trial, in rounds if its tools are run, and return its outcome."""
        origin = self.plan.origin_of(trial)
        try:
            if self.rounds is None:
                exchange = await self._send(trial, trial.request, origin)
                n_tokens = exchange.n_tokens
            else:
                exchange, n_tokens = await self.rounds.send(trial, origin, self._send)
        except SvcError as error:
            return self._outcome_of(trial, error)
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        self.failures.pop(trial.key, None)
        self.scores.put(trial, exchange)
        return Answered(n_tokens=n_tokens)

    async def _send(
        self,
        trial: Trial,
        request: CompletionRequest,
        origin: Origin,
        policy: Policy = QUEUED,
    ) -> Exchange:
        """Send a request of a trial, and return the exchange."""
        show, plan = self.options.show, self.plan
        most = plan.own_limits.get(trial.model, OwnLimits()).in_flight or plan.in_flight
        if most is not None:
            policy = replace(policy, limits_in_flight=True)
        begin = partial(
            self.client.begin_on_loop,
            request,
            is_streamed=show is not None,
            origin=origin,
            watch=self.options.watch,
            policy=policy,
        )
        task = await self._within_budget(begin)
        # nothing awaits between the check of the budget and here
        self._n_running += 1
        try:
            return await task.run(
                lambda delta: None if show is None else show(trial, delta)
            )
        finally:
            self._n_running -= 1
            self._one_ended.set()

    async def _within_budget(self, begin: Callable[[], Awaitable[Task]]) -> Task:
        """Begin a request; if the budget may not allow it, wait for other replies.

        They usually use less than was reserved for them. Requests wait in one line, so
        that a cheap model does not get all that is left.
        """
        if not self._budget_line.locked():
            with suppress(SpendingLimitError):
                return await begin()
        async with self._budget_line:
            while self._over_budget is None:
                if self.scheduler.is_over:
                    raise asyncio.CancelledError
                try:
                    return await begin()
                except SpendingLimitError as error:
                    if self._n_running == 0:
                        self._over_budget = error
                        raise
                self._one_ended.clear()
                await self._one_ended.wait()
            raise self._over_budget

    def _outcome_of(self, trial: Trial, error: SvcError) -> Outcome:
        """Return what an error means for the run: stop, send again, or a failure."""
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        is_key_invalid = isinstance(error, AuthError) and error.status == UNAUTHORIZED
        if is_key_invalid or isinstance(error, (ConfigError, LedgerError)):
            return Stop(error)
        self.failures[trial.key] = TrialFailure(to_failure(error), trial.model)
        if isinstance(error, RateLimitError):
            return Refused(error)
        return Failed(error=error, is_of_service=isinstance(error, _OF_SERVICE))


def limiter_of(context: Context, model: str) -> RateLimiter | None:
    """Return the rate limiter of a model; None without an address or a key."""
    settings = context.settings
    with suppress(SvcError):
        if settings.base_url is not None:
            limits = shared_limits(
                settings.base_url,
                context.key(),
                clock=time.monotonic,
                endpoint=settings.endpoint,
            )
            return limits.of(model)
    return None


def speed_of(result: RunResult, context: Context) -> Speed:
    """Return what determines how fast a run is sent."""
    plan, endpoint = result.plan, context.settings.endpoint

    def held_of(model: str) -> Sequence[float]:
        limiter = limiter_of(context, model)
        return limiter.held_s() if limiter else ()

    def in_flight_of(model: str) -> int:
        most = plan.own_limits.get(model, OwnLimits()).in_flight or plan.in_flight
        return most_in_flight(plan.limit(model, endpoint), most)

    return Speed(
        held_of=held_of,
        limit_for=lambda model: plan.limit(model, endpoint),
        limit_of=endpoint.limit_of,
        in_flight_of=in_flight_of,
        seen=result.status().seen,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The checks before an execution: count the requests, check them, ask the user.

    All of it uses one context. `svc.use` may change the session meanwhile, and the key
    of one endpoint must never be sent to the address of another.
    """

    result: RunResult
    options: SendOptions
    context: Context

    @property
    def plan(self) -> Plan:
        """What is sent."""
        return self.result.plan

    @property
    def is_answered(self) -> bool:
        """Whether a file answers the requests, so that nothing is sent."""
        return self.context.settings.answers is not None

    def settled(self) -> Settled:
        """Return the trials that are not sent in this pass."""
        return settled_of(
            self.result.status(),
            is_retried=self.options.is_retried,
            include_refused=self.options.include_refused,
        )

    def n_todo(self) -> int:
        """Return how many requests are left to send."""
        # without making trials, which takes long
        if self.options.first is None and self.options.places is None:
            return len(self.plan.grid) - len(self.settled())
        return sum(trials.n_trials for trials in self.todo().values())

    def todo(self) -> dict[str, PendingTrials]:
        """Return what is left to send to each model."""
        plan, settled, first = self.plan, self.settled(), self.options.first
        if self.options.places is not None:
            return pending_at(plan.grid, settled, self.options.places)
        if first is None:
            return pending_of(plan.grid, settled, seed=plan.seed)
        return pilot_of(plan.grid, settled, seed=plan.seed, first=first)

    def check_texts(self) -> None:
        """Refuse a name or a label that contains an API key: both are recorded."""
        grid = self.plan.grid
        texts = [str(label) for name in grid.labels for label in grid.values_of(name)]
        texts.append(self.plan.run_id)
        if any(key.redact(texts) != texts for key in known_keys()):
            raise ParameterError(
                "The name of the run or a label contains the API key, and both are "
                "recorded. Give another one; nothing was sent.",
                param="name",
            )

    def check_endpoint(self) -> None:
        """Refuse to continue a run at another address than the one where it began."""
        if not self.is_answered:
            first = self.result.status().first
            check_endpoint(first, self.context.settings, n_todo=self.n_todo())

    def check_settings(self) -> None:
        """Raise the error of a client that cannot be made from the settings."""
        _ = self.context.client

    def choose_ledger(self) -> Ledger:
        """Return the ledger of the run's earlier requests, or else the session's."""
        ledger = self.result.ledger or self.context.ledger
        # without an address or a file nothing is sent, and the error comes later
        if self.context.settings.base_url is not None or self.is_answered:
            ledger.check()
            self.result.ledger = ledger
        return ledger

    def must_ask(self) -> bool:
        """Return whether so many requests are missing that the user may be asked."""
        above = None if self.options.is_confirmed else self.plan.confirm_above
        return above is not None and not self.is_answered and self.n_todo() > above

    def is_confirmed(self) -> bool:
        """Ask the user, unless the ledger answers enough; return whether they agree."""
        n_left = self._n_left()
        n_requests, result = n_left.total(), self.result
        if n_requests <= (self.plan.confirm_above or 0):
            return True
        lasts_s = forecast(n_left, speed_of(result, self.context))[0].last_sent_s
        return ask_before_sending(result.size, n_requests, lasts_s=lasts_s)

    def _n_left(self) -> Counter[str]:
        """Count the requests to each model that the ledger does not answer."""
        plan, todo = self.plan, self.todo()
        n_left = Counter({model: trials.n_trials for model, trials in todo.items()})
        if not plan.is_reusing:
            return n_left
        return n_left - Counter(
            trial.model
            for trials in todo.values()
            for trial in trials.pull
            if trial is not None
            and self.context.reused(trial.request, plan.origin_of(trial))
        )

    def rounds(self, ledger: Ledger) -> TrialRounds | None:
        """Return what sends trials in tool rounds; None if no tools are run."""
        plan = self.plan
        if plan.run_tools is None:
            return None
        if plan.tools is None:
            raise ParameterError(
                "This run runs tools, and the ledger has only their definitions. "
                "Nothing was sent. To continue it, call the same svc.sweep again, with "
                "its functions in tools=[...] and its name.",
                param="tools",
            )
        return TrialRounds(plan.tools, ledger=ledger, hide=self.context.key_hider())

    def _sent_lately(self, ledger: Ledger) -> SendAges:
        """Return when requests went to the run's models in the last minute."""
        now = datetime.now(UTC)
        exchanges = ledger.read(
            texts=False,
            scope="all",
            since=now - timedelta(seconds=LONGEST_S),
            model=list(self.plan.grid.n_by_model),
        )
        base_url = self.context.settings.base_url or ""
        return sent_lately(exchanges, base_url=base_url, now=now)

    def start_cluster(self, ledger: Ledger) -> "Cluster | None":
        """Start workers on a cluster; None if this process sends the requests."""
        if self.options.on is None or self.is_answered:
            return None
        from .ray_cluster import Cluster  # noqa: PLC0415 - where a cluster is used

        cluster = Cluster(
            self.options.on,
            settings=self.context.settings,
            key=self.context.key(),
            models=self.plan.grid.n_by_model,
            n_workers=self.options.workers,
            sent_lately=partial(self._sent_lately, ledger),
        )
        with suppress(KeyboardInterrupt):
            cluster.start()
            return cluster
        # raised here, because the frames of Ray in the traceback have the key
        raise Interrupted(message=NOT_SENT)

    def client(self, ledger: Ledger, cluster: "Cluster | None") -> RequestPipeline:
        """Return what sends the requests, with the ledger as its sink."""
        context = self.context
        session, from_file = context.session, context.answers
        from_ledger = partial(context.reused, recorded=from_file)
        return RequestPipeline(
            context.settings,
            key=context.key() if from_file is None else None,
            sinks=(ledger,),
            answers=from_ledger if self.plan.is_reusing else from_file,
            spending=lambda: session.spending,
            send=send_once if cluster is None else cluster.send_once,
        )


class Executor:
    """Begins the executions of one run, one after the other.

    It sets the ledger of the result when it sends the first request.

    Attributes:
        execution: The newest execution, if there is one.
    """

    def __init__(
        self, result: RunResult, scores: RunScores, *, session: Session
    ) -> None:
        self.execution: Execution | None = None
        self._result = result
        self._scores = scores
        self._session = session
        self._is_own = True  # False if another `Run` of this name began `execution`
        self._is_bound = False  # whether the ledger was searched for the run's name
        self._guard = RLock()  # so that two threads do not both begin an execution

    @property
    def _plan(self) -> Plan:
        return self._result.plan

    @property
    def is_running(self) -> bool:
        """Whether requests are being sent."""
        return self.execution is not None and not self.execution.is_over

    @property
    def is_answered(self) -> bool:
        """Whether a file answers the requests, so that nothing is sent."""
        return self._session.settings.answers is not None

    def found_limits(self) -> dict[str, Limit | None]:
        """Return the limits that were measured where none are documented, by model."""
        context = self._session.context()
        limiters = {
            model: limiter_of(context, model) for model in self._plan.grid.n_by_model
        }
        return {
            model: None if limiter is None else limiter.met_limit
            for model, limiter in limiters.items()
        }

    def speed(self) -> Speed:
        """Return what determines how fast the run is sent."""
        return speed_of(self._result, self._session.context())

    def bind(self, ledger: Ledger | None = None) -> None:
        """Continue with the exchanges that a ledger has under the name of this run.

        If `ledger` is None, it is the ledger of the session.
        """
        result, ledger = self._result, ledger or self._session.ledger
        read = partial(ledger.read, scope="all", run=self._plan.run_id)
        has_sent = bool(result.sent(ledger).trials)
        if has_sent:
            self._check_files(ledger)
        try:
            check_unplanned(
                self._plan,
                result.unplanned,
                read,
                lambda: [*map(stored_manifest, ledger.plans(self._plan.run_id))],
            )
        except ParameterError:
            self._check_files(ledger, has_same_texts=False)
            raise
        result.unplanned_when_bound = result.unplanned
        if has_sent:
            result.ledger, self._is_bound = ledger, True

    def _check_files(self, ledger: Ledger, *, has_same_texts: bool = True) -> None:
        """Refuse to go on if the files of the rows have changed since the run began."""
        rows = self._plan.grid.rows
        if rows is None or rows.files is None:
            return
        for stored in ledger.plans(self._plan.run_id)[-1:]:
            before = stored_manifest(stored).files
            if before is not None:
                now = rows.files.listed
                check_same_files(before, now, has_same_texts=has_same_texts)

    def start(self, options: SendOptions, *, is_drawn: bool) -> None:
        """Begin to send what is missing, and return at once."""
        # bars would disturb the line that a user types in a terminal
        bars = self.bars() if is_drawn and not is_terminal() else None
        with self._guard:
            if self.execution is not None and self.is_running:
                self.execution.scheduler.is_paused = False
                return
            self.execution = self._begin(replace(options, bars=bars))
            if bars is not None and self.execution is not None:
                self.execution.draw(bars)

    def is_confirmed(self, options: SendOptions) -> bool:
        """Ask the user if many requests are missing; return whether to send them."""
        preflight = Preflight(
            result=self._result, options=options, context=self._session.context()
        )
        return not preflight.must_ask() or preflight.is_confirmed()

    def run(
        self, options: SendOptions, *, tick: Callable[[Execution], None] | None = None
    ) -> Execution | None:
        """Send what is missing, and wait.

        If another `Run` of this name is sending in this kernel, wait for that first.

        Args:
            options: How it is sent.
            tick: Called again and again while it waits; None draws bars instead.

        Returns:
            The execution, which has ended; None if nothing was missing, or if the user
            did not agree.
        """
        while execution := self._resume_or_begin(options):
            with self._drawing(execution, tick) as tick_once:
                execution.wait(tick_once)
            if self._is_own:
                break
        return execution

    async def run_async(self, options: SendOptions) -> Execution | None:
        """Like `run`, without blocking the event loop."""
        while execution := self._resume_or_begin(options):
            with self._drawing(execution) as tick:
                await execution.until_over(tick)
            if self._is_own:
                break
        return execution

    @contextmanager
    def _drawing(
        self, execution: Execution, tick: Callable[[Execution], None] | None = None
    ) -> Iterator[Tick]:
        """Yield a function that draws the progress, and draw it once more at the end.

        The function does nothing if bars are drawn in the background already, or if
        they cannot be shown.
        """
        if tick is not None:
            yield partial(tick, execution)
            return
        bars = None if execution.options.bars is not None else self.bars()
        if bars is None:
            yield lambda: None
            return
        try:
            yield partial(execution.draw, bars)
        finally:
            execution.draw(bars, is_last=True)

    def bars(self) -> Bars | None:
        """Return bars for the progress; None if they cannot be shown."""
        screen = find_screen(self._session.settings.display)
        return None if screen is Screen.NONE else Bars(screen)

    def _resume_or_begin(self, options: SendOptions) -> Execution | None:
        """Return the execution in progress, without a pause, or begin one."""
        with self._guard:
            if not self.is_running:
                self.execution = self._begin(options)
            if self.execution is not None:
                self.execution.scheduler.is_paused = False
            return self.execution

    def _begin(self, options: SendOptions) -> Execution | None:
        """Begin an execution, or join that of another `Run` of this name.

        Return None if nothing is missing, or if the user does not agree.
        """
        preflight = Preflight(
            result=self._result, options=options, context=self._session.context()
        )
        if (ledger := self._result.ledger) is not None:
            ledger.flush()
            if ledger.problem is not None:
                raise ledger.problem
            self._bind_again(preflight)
        # nothing is sent for a complete run, so its address is not checked
        if preflight.n_todo() == 0:
            self._store_plan()
            return None
        preflight.check_endpoint()
        preflight.check_settings()
        preflight.check_texts()  # only now, because the key may come from the keyring
        ledger = preflight.choose_ledger()
        held = held_here(ledger, self._plan.run_id)
        self._is_own = held is None or held.execution is None or held.execution.is_over
        if held is not None and not self._is_own:
            return cast("Execution", held.execution)
        if preflight.must_ask():
            # Before the question, refuse a run that another kernel is sending. The lock
            # is not held while the user thinks.
            self._lock(ledger).release()
            self._bind_again(preflight)
            if not preflight.is_confirmed():
                write_note("Nothing was sent. run() asks again.")
                return None
        return self._begin_locked(preflight, ledger)

    def _begin_locked(self, preflight: Preflight, ledger: Ledger) -> Execution | None:
        """Lock the run and begin; return None if another kernel has sent the rest."""
        lock = self._lock(ledger)
        try:
            self._bind_again(preflight)
            self._is_bound = self._plan.name is not None
            if preflight.n_todo() > 0:
                execution = self._make_execution(
                    preflight, ledger, release=lock.release
                )
                execution.begin()
                lock.execution = execution
        finally:
            if lock.execution is None:
                lock.release()
        return cast("Execution | None", lock.execution)

    def _lock(self, ledger: Ledger) -> RunLock:
        plan = self._plan
        return lock_run(ledger, plan.run_id, is_named=plan.name is not None)

    def _store_plan(self) -> None:
        """Store the plan of a complete run: its labels and columns may be new."""
        if (ledger := self._result.ledger) is not None:
            with suppress(LedgerError):  # the ledger may be read-only
                ledger.check()
                self._write_plan(ledger)

    def take_rows(self) -> bool:
        """Store the plan if replies have other rows now; return whether they have."""
        if (ledger := self._result.ledger) is not None:
            with suppress(LedgerError):  # the ledger may be read-only
                ledger.check()
                if self._is_newest() and self._scores.take_rows(ledger):
                    self._keep_plan(ledger)
                    return True
        return False

    def _write_plan(self, ledger: Ledger) -> None:
        if self._is_newest():
            self._scores.take_rows(ledger)
            self._keep_plan(ledger)

    def _is_newest(self) -> bool:
        """Return whether no newer plan of this name has sent other trials."""
        result = self._result
        return result.unplanned.keys() <= result.unplanned_when_bound.keys()

    def _keep_plan(self, ledger: Ledger) -> None:
        has_unplanned = bool(self._result.unplanned)
        keep_plan(self._plan, ledger, has_unplanned=has_unplanned)

    def _bind_again(self, preflight: Preflight) -> None:
        """Read what others sent under the name of this run since it was planned."""
        if self._plan.name is None or self._is_bound:
            return
        try:
            self.bind(preflight.context.ledger)
            preflight.check_endpoint()
        except SvcError:
            self._result.ledger = None  # its exchanges belong to another grid
            raise

    def _make_execution(
        self, preflight: Preflight, ledger: Ledger, *, release: Tick
    ) -> Execution:
        """Make an execution of what is missing, once the run is locked."""
        settled, failures = preflight.settled(), self._result.failures
        for key in [key for key in failures if key not in settled]:
            del failures[key]  # these trials are sent again
        self._write_plan(ledger)
        rounds, todo = preflight.rounds(ledger), preflight.todo()
        cluster = preflight.start_cluster(ledger)

        def end() -> None:
            if cluster is not None:
                cluster.close()
            release()

        return Execution(
            plan=self._plan,
            todo=todo,
            options=preflight.options,
            client=preflight.client(ledger, cluster),
            ledger=ledger,
            failures=failures,
            limit_of=preflight.context.settings.endpoint.limit_of,
            is_paced=not preflight.is_answered,
            rounds=rounds,
            scores=self._scores.begin(),
            has_budget=self._has_budget,
            on_over=end,
        )

    def _has_budget(self) -> bool:
        spending = self._session.spending
        return spending is not None and spending.is_set


def _announce(waiting: Waiting) -> None:
    """Print a wait, if it is long."""
    if waiting.wait_s >= ANNOUNCED_S:
        write_note(
            f"The run waits {waiting.wait_s:.0f} s: {waiting.reason}. Interrupt to "
            "stop it; run() continues later."
        )

"""Sends what is missing of a run, on the background thread.

Nothing is sent before the run is locked, its endpoint is checked and a large number of
requests is confirmed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import Event, RLock
from typing import TYPE_CHECKING, Any, cast

from svc_notebook.client.attempts import ExchangeTask, RequestPath, Watch
from svc_notebook.client.portal import Job, portal
from svc_notebook.client.rate_limit import RateLimiter, shared_limits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.client.worker import RemoteTask
from svc_notebook.credentials import known_keys
from svc_notebook.display.output import find_screen, is_terminal
from svc_notebook.errors import (
    Interrupted,
    LedgerError,
    ParameterError,
    SvcError,
    write_line,
)
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.checks import check_int
from svc_notebook.session import Session

from .describe import Speed, duration, forecast
from .dimensions import Pace, kept_manifest, read_manifest
from .grid import RunPlan
from .order import Trials, pilot_of, todo_of
from .progress import Bars, progress_of
from .resume import Settled, check_endpoint, check_strays
from .row_files import check_same
from .run_lock import held_here, lock_run
from .run_view import RunView
from .scheduler import Scheduler, Show, TrialRunner, most_in_flight

if TYPE_CHECKING:
    from .ray_cluster import Cluster
    from .tool_rounds import TrialRounds

DRAIN_S = 2.5
TICK_S = 0.1
BEAT_S = 0.5
ANNOUNCED_S = 60.0

INTERRUPTED = "(interrupted - what arrived is kept)"
NOT_SENT = "(interrupted while the workers were starting - nothing more was sent)"

Tick = Callable[[], None]


class RunTask:
    """Sends requests on the background thread; it begins at once.

    The bars are drawn now and then. At the end the runner's client is closed, and
    `on_over` is called once or more.

    Attributes:
        error: What ended it early; None if nothing did.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: TrialRunner,
        *,
        bars: Bars | None = None,
        on_over: Tick = lambda: None,
    ) -> None:
        self.scheduler = scheduler
        self.error: BaseException | None = None
        self._runner = runner
        self._bars = bars
        self._on_over = on_over
        self._ended = Event()
        self._job: Job[None] = portal().submit(self._main())

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    @property
    def is_shown(self) -> bool:
        """Whether bars show its progress by themselves."""
        return self._bars is not None and self._bars.is_shown

    def draw(self, bars: Bars, *, is_last: bool = False) -> None:
        """Draw the progress of each model."""
        scheduler = self.scheduler
        state = "paused" if scheduler.is_paused else ""
        parts = progress_of(
            scheduler.queues,
            now_s=time.monotonic(),
            now_at=datetime.now().astimezone(),
            state="stopped" if scheduler.is_over else state,
            labels=self._runner.plan.grid.model_labels,
        )
        bars.show(parts, is_last=is_last or self.is_over)

    def wait(self, tick: Tick) -> None:
        """Wait for the end, calling `tick` again and again; raise what ended it."""
        try:
            self._wait(tick)
        except KeyboardInterrupt:
            self.stop(tick)
            self.error = Interrupted(message=INTERRUPTED)
        if self.error is not None:
            raise self.error

    async def until_over(self, tick: Tick) -> None:
        """Like `wait`, without blocking the event loop."""
        try:
            while not self.is_over:
                tick()
                # a wait without an end could not be interrupted in a notebook
                await asyncio.sleep(TICK_S)
        except asyncio.CancelledError as stopped:
            self.stop()
            # no class of our own: `asyncio.timeout` takes this very class only
            setattr(stopped, "_render_traceback_", lambda: [INTERRUPTED])  # noqa: B010 - it has no such field
            raise
        except BaseException:
            self.stop()
            raise
        tick()
        if self.error is not None:
            raise self.error

    def stop(self, tick: Tick = lambda: None) -> None:
        """Send nothing more, wait some seconds for the rest, then cancel it."""
        with suppress(KeyboardInterrupt):  # the second one ends the wait
            self.scheduler.stop()
            self._wait(tick, within_s=DRAIN_S)
        self._job.cancel()
        self._end()  # also if it was stopped before it could begin

    def _wait(self, tick: Tick, *, within_s: float = float("inf")) -> None:
        left_s = within_s
        while left_s > 0 and not self._ended.wait(TICK_S):
            left_s -= TICK_S
            tick()
        tick()

    async def _main(self) -> None:
        beat = None if self._bars is None else asyncio.create_task(self._beat())
        try:
            async with aclosing(self._runner.client):
                self.error = await self.scheduler.run()
        except asyncio.CancelledError:
            stopped = SvcError("The run was stopped before it was complete.")
            self.error = self.error or stopped
            raise
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            self.error = problem
        finally:
            if beat is not None:
                beat.cancel()
            if self._bars is not None:
                self.draw(self._bars, is_last=True)
            self._end()

    async def _beat(self) -> None:
        while self._bars is not None:
            await asyncio.sleep(BEAT_S)
            self.draw(self._bars)

    def _end(self) -> None:
        self._on_over()
        self._ended.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How requests are sent; see `Run`. `bars` are drawn until `wait`.

    `on` is the cluster whose workers send them, `n_workers` how many; None for this
    process.
    """

    in_flight: int | None = None
    confirm_above: int | None = None
    is_reusing: bool = False
    is_retried: bool = False
    include_refused: bool = False
    first: int | None = None
    watch: Watch | None = None
    show: Show | None = None
    bars: Bars | None = None
    on: str | None = None
    n_workers: int | None = None


def place_of(on: object, workers: object, *, is_shown: bool = False) -> dict[str, Any]:
    """Check where a run is to be sent from; return it as `SendOptions` has it."""
    if on is workers is None:
        return {}
    if on is None:
        raise ParameterError(
            "workers is for a run on a cluster; give on='ray', too.", param="workers"
        )
    from .ray_cluster import checked_place  # noqa: PLC0415 - where a cluster is used

    place = checked_place(on)
    if is_shown:
        raise ParameterError(
            "show is called with pieces of replies, which workers of a cluster do not "
            "send. Leave out show or on.",
            param="show",
        )
    if workers is not None:
        check_int("workers", workers, minimum=1, otherwise="or None to choose")
    return {"on": place, "n_workers": workers}


class Execution:
    """Sends what is missing of one run, each time it is started.

    It sets the ledger of the view when it sends the first request.
    """

    def __init__(self, view: RunView, *, session: Session) -> None:
        self.task: RunTask | None = None  # the newest
        self._view = view
        self._session = session
        self._is_own = True
        self._is_bound = False
        self._guard = RLock()

    @property
    def _plan(self) -> RunPlan:
        return self._view.plan

    @property
    def is_running(self) -> bool:
        """Whether requests are being sent."""
        return self.task is not None and not self.task.is_over

    @property
    def is_answered(self) -> bool:
        """Whether a file answers, so that nothing is sent."""
        return self._session.settings.answers is not None

    def held_of(self, model: str) -> Sequence[float]:
        """Return what a model's limit holds now; nothing without address and key."""
        limiter = self._limiter(model)
        return limiter.held_s() if limiter else ()

    def found_limits(self) -> dict[str, Limit | None]:
        """Return what was found of limits that are not known, by model."""
        limiters = {model: self._limiter(model) for model in self._plan.grid.n_by_model}
        return {
            model: None if each is None else each.found
            for model, each in limiters.items()
        }

    def _limiter(self, model: str) -> RateLimiter | None:
        session = self._session
        with suppress(SvcError):
            if (base_url := session.settings.base_url) is not None:
                limits = shared_limits(
                    base_url,
                    session.key(),
                    clock=time.monotonic,
                    endpoint=session.settings.endpoint,
                )
                return limits.of(model)
        return None

    def speed(self, in_flight: int | None) -> Speed:
        """Return what determines how fast the run goes."""
        paces, endpoint = self._plan.paces, self._session.settings.endpoint

        def at_once(model: str) -> int:
            own = paces.get(model, Pace()).in_flight or in_flight
            return most_in_flight(self._plan.limit(model, endpoint), own)

        return Speed(
            held_of=self.held_of,
            limit_for=lambda model: self._plan.limit(model, endpoint),
            limit_of=endpoint.limit_of,
            in_flight_of=at_once,
            seen=self._view.status().seen,
        )

    def bind(self) -> None:
        """Continue with the exchanges that the ledger has under this run's name."""
        view, ledger = self._view, self._session.ledger
        read = partial(ledger.read, scope="all", run=self._plan.run_id)
        sent = view.sent(ledger).trials
        if sent:
            self._check_files(ledger)
        check_strays(self._plan, view.strays, read)
        view.bound_strays = view.strays
        if sent:
            view.ledger, self._is_bound = ledger, True

    def _check_files(self, ledger: Ledger) -> None:
        """Refuse rows in files that have changed since this run was sent."""
        source = self._plan.grid.source
        if source is None or source.files is None:
            return
        for kept in ledger.plans(self._plan.run_id)[-1:]:
            before = read_manifest(kept_manifest(kept)).files
            if before is not None:
                check_same(before, source.files.found)

    def start(self, options: SendOptions, *, is_drawn: bool) -> None:
        """Begin to send what is missing, and return at once."""
        # a terminal's line is the user's while they type
        bars = self._bars() if is_drawn and not is_terminal() else None
        with self._guard:
            if self.is_running:
                return
            self.task = self._begin(replace(options, bars=bars))
            if bars is not None and self.task is not None:
                self.task.draw(bars)

    def run(self, options: SendOptions) -> RunTask | None:
        """Send what is missing, wait, and return the task; None if nothing is missing.

        If another `Run` of this name is sending in this kernel, wait for that first.
        """
        while task := self._begun(options):
            task.scheduler.is_paused = False
            with self._drawn(task) as tick:
                task.wait(tick)
            if self._is_own:
                break
        return task

    async def run_async(self, options: SendOptions) -> RunTask | None:
        """Like `run`, without blocking the event loop."""
        while task := self._begun(options):
            with self._drawn(task) as tick:
                await task.until_over(tick)
            if self._is_own:
                break
        return task

    @contextmanager
    def _drawn(self, task: RunTask) -> Iterator[Tick]:
        """Give what draws the progress of a task, and draw it at the end.

        What `start` draws is not drawn twice.
        """
        if task.is_shown:
            yield lambda: None
            return
        bars = self._bars()
        try:
            yield partial(task.draw, bars)
        finally:
            task.draw(bars, is_last=True)

    def _bars(self) -> Bars:
        return Bars(find_screen(self._session.settings.display))

    def _begun(self, options: SendOptions) -> RunTask | None:
        """Return the task that runs, or begin one; None if nothing is missing."""
        with self._guard:
            if not self.is_running:
                self.task = self._begin(options)
            return self.task

    def _begin(self, options: SendOptions) -> RunTask | None:
        """Begin a task, or join the one that another `Run` of this name began."""
        if (ledger := self._view.ledger) is not None:
            ledger.flush()
            if ledger.problem is not None:
                raise ledger.problem
            if self._plan.name is not None and not self._is_bound:
                self._bind_again(len(self._plan.grid))  # it waited for another `Run`
        # a complete run is never sent again, so its address makes no difference
        n_todo = self._n_todo(options)
        if n_todo == 0:
            self._keep_plan()
            return None
        plan = self._plan
        ledger = self._settle(n_todo)
        held = held_here(ledger, plan.run_id)
        self._is_own = held is None or held.task is None or held.task.is_over
        if held is not None and not self._is_own:
            return cast("RunTask", held.task)
        lock = lock_run(ledger, plan.run_id, is_named=plan.name is not None)
        try:
            if plan.name is not None and not self._is_bound:
                self._bind_again(n_todo)
                self._is_bound = True
            lock.task = self._task(ledger, options, on_over=lock.release)
        finally:
            if lock.task is None:
                lock.release()
        return cast("RunTask | None", lock.task)

    def _keep_plan(self) -> None:
        """Keep the plan of a complete run: labels and columns may be new."""
        if (ledger := self._view.ledger) is not None:
            with suppress(LedgerError):  # it can only be read
                ledger.check()
                self._view.keep_plan(ledger)

    def _settle(self, n_todo: int) -> Ledger:
        """Choose ledger and endpoint, once for all requests of the run."""
        settings, view = self._session.settings, self._view
        grid = self._plan.grid
        texts = [
            each for name in grid.labels for each in map(str, grid.values_of(name))
        ]
        texts.append(self._plan.run_id)
        if any(key.redact(texts) != texts for key in known_keys()):
            raise ParameterError(
                "The name of the run or a label contains the API key, and both are "
                "recorded. Give another one; nothing was sent.",
                param="name",
            )
        self._check_endpoint(n_todo)
        _ = self._session.client  # refuses settings that cannot be used
        ledger = view.ledger or self._session.ledger
        if settings.base_url is not None or self.is_answered:
            ledger.check()
            view.ledger = ledger
        return ledger

    def _bind_again(self, n_todo: int) -> None:
        """Read what another kernel sent under this name since it was planned."""
        try:
            self.bind()
            self._check_endpoint(n_todo)
        except SvcError:
            self._view.ledger = None  # those are another grid's
            raise

    def _check_endpoint(self, n_todo: int) -> None:
        if not self.is_answered:
            first = self._view.status().first
            check_endpoint(first, self._session.settings, n_todo=n_todo)

    def _task(
        self, ledger: Ledger, options: SendOptions, *, on_over: Tick
    ) -> RunTask | None:
        """Begin a task, once the run is locked; None if nothing is to be sent."""
        settled = self._settled(options)
        if self._n_todo(options) == 0 or not self._is_confirmed(options):
            return None
        for key in [each for each in self._view.failures if each not in settled]:
            del self._view.failures[key]
        self._view.keep_plan(ledger)
        session, recorded = self._session, self._session.answers
        reused = partial(session.reused, recorded=recorded)
        rounds, todo = self._rounds(ledger), self._todo(options)
        cluster = self._cluster(options) if recorded is None else None
        runner = TrialRunner(
            plan=self._plan,
            client=RequestPath(
                session.settings,
                key=session.key() if recorded is None else None,
                sinks=(ledger,),
                answers=reused if options.is_reusing else recorded,
                spending=lambda: session.spending,
                task_type=ExchangeTask
                if cluster is None
                else partial(RemoteTask, ask=cluster.ask),
            ),
            ledger=ledger,
            failures=self._view.failures,
            watch=options.watch,
            show=options.show,
            is_paced=recorded is None,
            in_flight=options.in_flight,
            ask_rounds=None if rounds is None else rounds.ask,
        )
        scheduler = Scheduler(
            todo,
            runner,
            in_flight=options.in_flight,
            paces=self._plan.paces,
            limit_of=self._session.settings.endpoint.limit_of,
            clock=time.monotonic,
            watch=options.watch or _announce,
        )
        if rounds is not None:
            rounds.may_go = scheduler.until_next_round

        def end() -> None:
            if cluster is not None:
                cluster.close()
            on_over()

        return RunTask(scheduler, runner, bars=options.bars, on_over=end)

    def _cluster(self, options: SendOptions) -> "Cluster | None":
        """Start workers on a cluster; None if this process sends the requests."""
        if options.on is None:
            return None
        from .ray_cluster import Cluster  # noqa: PLC0415 - where a cluster is used

        cluster = Cluster(
            options.on,
            settings=self._session.settings,
            key=self._session.key(),
            models=self._plan.grid.n_by_model,
            n_workers=options.n_workers,
        )
        with suppress(KeyboardInterrupt):
            cluster.start()
            return cluster
        raise Interrupted(message=NOT_SENT)  # without Ray's frames, which have the key

    def _rounds(self, ledger: Ledger) -> "TrialRounds | None":
        """Return what asks in rounds, if tools are run."""
        if self._plan.run_tools is None:
            return None
        if self._plan.tools is None:
            raise ParameterError(
                "This run runs tools, and only their definitions were kept. Nothing "
                "was sent. To continue it, give the same svc.sweep again, with its "
                "functions in tools=[...], run_tools=True and its name.",
                param="tools",
            )
        from .tool_rounds import TrialRounds  # noqa: PLC0415 - where tools are run

        return TrialRounds(
            self._plan.tools, ledger=ledger, hide=self._session.key_hider()
        )

    def _settled(self, options: SendOptions) -> Settled:
        return self._view.status().settled(
            is_retried=options.is_retried, include_refused=options.include_refused
        )

    def _n_todo(self, options: SendOptions) -> int:
        """Return how many requests are left to ask."""
        if options.first is None:  # without a look at each
            return len(self._plan.grid) - len(self._settled(options))
        return sum(each.n_trials for each in self._todo(options).values())

    def _todo(self, options: SendOptions) -> dict[str, Trials]:
        """Return what is left to ask of each model."""
        plan, settled = self._plan, self._settled(options)
        if options.first is None:
            return todo_of(plan.grid, settled, seed=plan.seed)
        return pilot_of(plan.grid, settled, seed=plan.seed, first=options.first)

    def _is_confirmed(self, options: SendOptions) -> bool:
        """Ask the user, if need be, and say whether they agree."""
        session, above = self._session, options.confirm_above
        if above is None or self.is_answered or self._n_todo(options) <= above:
            return True
        todo = self._todo(options)
        n_left = Counter({model: each.n_trials for model, each in todo.items()})
        if options.is_reusing:
            n_left -= Counter(
                trial.model
                for each in todo.values()
                for trial in each.pull
                if trial is not None
                and session.reused(trial.request, self._plan.origin_of(trial))
            )
        if (n_todo := n_left.total()) <= above:
            return True
        lasts_s = forecast(n_left, self.speed(options.in_flight))[0].last_sent_s
        how_long = f", which takes about {duration(lasts_s)}" if lasts_s else ""
        requests = "request" if n_todo == 1 else "requests"
        question = f"This sends {n_todo} {requests}{how_long}. Continue?"
        try:
            return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
        except (EOFError, NotImplementedError):  # IPython's refusal is the latter
            pass
        raise ParameterError(
            f"{question} No input is possible here, so nothing was sent; give a "
            "larger confirm_above, or None to never ask.",
            param="confirm_above",
        )


def _announce(waiting: Waiting) -> None:
    """Print that the run waits, if it waits for long."""
    if waiting.wait_s >= ANNOUNCED_S:
        write_line(
            f"The run waits {waiting.wait_s:.0f} s: {waiting.reason}. Interrupt to "
            "stop it; run() continues later."
        )

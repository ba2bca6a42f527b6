"""The scheduler: decides when each trial of a run is sent, with one queue per model.

The order is shuffled, but is always the same for a seed. A trial is made only when the
rate limit of its model allows to send it, so a million trials need no memory. After a
429 a trial goes back to the front of its queue.
"""

import asyncio
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, zip_longest
from random import Random
from typing import Protocol

from svc_notebook.client.aimd import FIRST_LEVEL
from svc_notebook.client.clock import Clock
from svc_notebook.client.rate_limit import RateLimiter
from svc_notebook.client.rate_windows import UNLIMITED, Waiting, Windows
from svc_notebook.client.request_pipeline import Watch, call_watch
from svc_notebook.client.retry import Refusals
from svc_notebook.errors import (
    BadRequestError,
    RateLimitError,
    SvcError,
    UnknownModelError,
)
from svc_notebook.service.catalogue import Limit, limit_of

from .estimate import last_sent_s
from .grid import Grid, Trial
from .plan import LimitsByModel, OwnLimits
from .resume import Settled, TrialKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTrials:
    """The trials that are still to be sent to a model, and their number."""

    # makes each trial when it is pulled; None stands for a settled one
    pull: Iterator[Trial | None]
    n_trials: int
    n_before: int = 0  # ended in an earlier `run.run()`


def by_model(grid: Grid) -> Mapping[str, Sequence[int]]:
    """Return the combinations of each model, in the order of the plan."""
    combinations: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    for combination in range(grid.n_combinations):
        combinations[grid.model_of(combination)].append(combination)
    return combinations


def blocks(
    combinations: Sequence[int],
    *,
    repeats: int,
    seed: int,
    model: str,
    row_of: Callable[[int], int] = lambda _: 0,
    block_of: Callable[[int], int] = lambda _: 0,
) -> Iterator[tuple[int, int]]:
    """Yield combination and repeat of each trial of a model, in the order of sending.

    In each repeat the rows are shuffled, in the same way for all models, and the
    settings of a row are sent one after the other. So if a run is stopped early, most
    rows that were sent have replies of all models and settings. Rows in files are
    shuffled only within the blocks that are read together.
    """
    for repeat in range(repeats):
        # Random hashes a text by its content, so the order is the same in every process
        of_rows = Random(f"{seed}/{repeat}")  # noqa: S311 - no secret
        of_settings = Random(f"{seed}/{repeat}/{model}")  # noqa: S311 - no secret
        n_drawn = 0
        for _, of_block in groupby(combinations, key=block_of):
            block, starts, draws = array("Q"), array("Q"), array("d")
            for row, of_row in groupby(of_block, key=row_of):
                # a row has the same draw, even if this model has no rows before it
                for _ in range(row - n_drawn):
                    of_rows.random()
                n_drawn = row + 1
                draws.append(of_rows.random())
                starts.append(len(block))
                block.extend(of_row)
            starts.append(len(block))
            # an array needs less memory than the list
            order = array("Q", sorted(range(len(draws)), key=draws.__getitem__))
            del draws
            for place in order:
                settings = block[starts[place] : starts[place + 1]]
                of_settings.shuffle(settings)
                yield from ((setting, repeat) for setting in settings)


def pending_of(grid: Grid, settled: Settled, *, seed: int) -> dict[str, PendingTrials]:
    """Return what is still to be sent to each model."""

    def pull(model: str, combinations: Sequence[int]) -> Iterator[Trial | None]:
        for combination, repeat in blocks(
            combinations,
            repeats=grid.repeats,
            seed=seed,
            model=model,
            row_of=lambda combination: grid.place_of(combination)[0],
            block_of=grid.block_of,
        ):
            trial = grid.trial(combination, repeat)
            yield None if trial.key in settled else trial

    return {
        model: PendingTrials(
            pull=pull(model, combinations),
            n_trials=len(combinations) * grid.repeats - settled.n_by_model[model],
            n_before=settled.n_by_model[model],
        )
        for model, combinations in by_model(grid).items()
    }


_GOLDEN = (5**0.5 - 1) / 2  # fractional parts of its multiples are spread evenly


def pilot_order(grid: Grid, *, seed: int) -> Iterator[tuple[int, int]]:
    """Yield combination and repeat of all trials; the first ones are balanced.

    Conditions take turns, on the same row as far as possible. The first rows are spread
    over all rows, and no row is repeated before every row was sent once.
    """
    random = Random(f"{seed}/pilot")  # noqa: S311 - no secret
    start = random.random()

    def spread(combination: int) -> float:
        return (grid.place_of(combination)[0] * _GOLDEN + start) % 1

    by_condition: dict[int, list[int]] = {}
    for combination in sorted(range(grid.n_combinations), key=spread):
        condition = grid.place_of(combination)[1]
        by_condition.setdefault(condition, []).append(combination)
    for repeat in range(grid.repeats):
        for combinations in zip_longest(*by_condition.values()):
            turn = [number for number in combinations if number is not None]
            random.shuffle(turn)
            yield from ((number, repeat) for number in turn)


def pilot_of(
    grid: Grid, settled: Settled, *, seed: int, first: int
) -> dict[str, PendingTrials]:
    """Return what is still to be sent of the first trials in a balanced order."""
    return pending_at(grid, settled, [*islice(pilot_order(grid, seed=seed), first)])


def pending_at(
    grid: Grid, settled: Settled, places: Sequence[tuple[int, int]]
) -> dict[str, PendingTrials]:
    """Return what is still to be sent of these combinations and repeats."""
    pending: defaultdict[str, list[Trial]] = defaultdict(list)
    # made in the order of the plan, because rows in files are read in that order
    trials = {numbers: grid.trial(*numbers) for numbers in sorted(places)}
    for trial in map(trials.__getitem__, places):
        if trial.key not in settled:
            pending[trial.model].append(trial)
    return {
        model: PendingTrials(pull=iter(of_model), n_trials=len(of_model))
        for model, of_model in pending.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The service answered; `n_tokens` are those of prompt and reply."""

    n_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The trial failed, and its row says why."""

    error: SvcError
    is_of_service: bool = False  # the next trial may fail for the same reason


@dataclass(frozen=True, slots=True)
class Refused:
    """A limit of the service was exceeded (429): the trial is sent again later."""

    error: RateLimitError


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more can be sent, such as without a key or a ledger."""

    error: SvcError


Outcome = Answered | Failed | Refused | Stop

# 429s in a row after which a model is given up: about seven minutes of waiting
REFUSALS_IN_A_ROW = 14
# failures of the service, or equal refusals (400), after which a model is given up
FAILURES_IN_A_ROW = 10
# trials by which a model may be ahead of the others if they are kept together
MOST_AHEAD = 4
MOST_IN_FLIGHT = 64  # requests to one model, if its limit would allow more


def most_in_flight(limit: Limit | None, in_flight: int | None) -> int:
    """Return how many requests are sent to a model at once."""
    if in_flight or limit is None:
        return in_flight or FIRST_LEVEL  # then the limiter finds the best number
    # as many as are allowed in a minute, so that slow replies do not waste the limit
    return limit.in_flight or min(limit.per_minute or UNLIMITED, MOST_IN_FLIGHT)


class ModelQueue:
    """The trials of one model that are still to be sent.

    At most `in_flight` requests are sent at once. If it is None, the `known` limit of
    the model determines their number, or the limiter finds it.

    Attributes:
        limiter: Decides when a request may be sent; None sends at once.
        own: The windows of the user's own limits for this run, if there are any.
        n_trials: How many trials there are in all.
        n_before: How many others ended in an earlier `run.run()`.
        n_ok, n_failed, n_in_flight: How many succeeded, failed, or are being sent.
        n_tokens: Tokens of prompts and replies so far, reported or else estimated.
        waits_for: What the next request waits for, and how long.
        behind: The model that it waits for, if the models are kept together.
        given_up: The last error, if the model was given up.
        is_dry: Whether there are no more trials to pull.
    """

    def __init__(  # noqa: PLR0913 - limits, a clock and a callback
        self,
        model: str,
        trials: PendingTrials,
        *,
        in_flight: int | None = None,
        known: Limit | None = None,
        own_limits: OwnLimits = OwnLimits(),  # noqa: B008 - it cannot change
        clock: Clock = time.monotonic,
        watch: Watch = lambda _: None,
    ) -> None:
        self.model = model
        self.limiter: RateLimiter | None = None
        limit = own_limits.limit(known)
        self.own_in_flight = own_limits.in_flight or in_flight
        is_own = limit is not None and limit != known
        self.own = Windows(limit, clock=clock) if limit and is_own else None
        self._own_limit = limit if is_own else None
        self.n_trials, self.n_before = trials.n_trials, trials.n_before
        self.n_ok = self.n_failed = self.n_in_flight = self.n_tokens = 0
        self.waits_for = Waiting(0.0)
        self.behind: str | None = None
        self.given_up: SvcError | None = None
        self.is_dry = False
        self._watch: Watch = watch
        self._pull = trials.pull
        self._next: deque[Trial] = deque()
        self._n_pulled = 0
        self._most_in_flight = most_in_flight(limit, self.own_in_flight)
        self._began_s: float | None = None
        self._held_s: Sequence[float] = ()  # requests in the windows when it began
        self._n_sent = 0
        self._sent_s: dict[TrialKey, float] = {}  # when trials in flight were sent
        self._took_s = 0.0  # all replies together
        # in a row: 429s, failures of the service, equal refusals (400)
        self._n_refusals = self._n_failures = self._n_equal = 0
        self._refusal = ""  # the message of the last one
        self._refused_s: float | None = None  # the last 429 that was counted
        self._announced_until_s = float("-inf")
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether a request must end before the next one can be sent."""
        return self.n_in_flight >= self.most_in_flight

    @property
    def most_in_flight(self) -> int:
        """Most requests in flight, by the user, by the limiter, or by the limit."""
        learned = self.limiter.in_flight if self.limiter else None
        if self.own_in_flight or learned is None:
            return self._most_in_flight
        return learned

    @property
    def is_finished(self) -> bool:
        """Whether every trial has ended."""
        return self.is_dry and not self._next and self.n_in_flight == 0

    def share_sent(self, n_more: int = 0) -> float:
        """Return which part of all trials was sent, and so many more.

        The rows have one order for all models, so it shows which model is ahead.
        """
        n_sent = self._n_pulled - len(self._next) + n_more
        return n_sent / max(self.n_before + self.n_trials, 1)

    def pull(self) -> bool:
        """Make the next trial; return False if it is settled, or if there is none."""
        if self._next:
            return True
        try:
            trial = next(self._pull)
        except StopIteration:
            self.is_dry = True
            return False
        self._n_pulled += 1
        if trial is not None:
            self._next.append(trial)
        return trial is not None

    def take(self, now_s: float) -> Trial:
        """Return the next trial, which is sent now."""
        if self._began_s is None:
            self._began_s = now_s
            self._held_s = self.limiter.held_s() if self.limiter else ()
        self._n_sent += 1
        self.n_in_flight += 1
        self.count_sent()
        trial = self._next.popleft()
        self._sent_s[trial.key] = now_s
        return trial

    def count_sent(self) -> None:
        """Count a request that is sent now, in the windows of the user's own limits."""
        if self.own is not None:
            slot = self.own.reserve()
            self.own.try_pass(slot)
            self.own.sent(slot)

    def end(self, trial: Trial, outcome: Outcome | None, now_s: float) -> None:
        """Count a trial that has ended; the outcome is None if it was cancelled."""
        self.n_in_flight -= 1
        took_s = now_s - self._sent_s.pop(trial.key)
        if isinstance(outcome, (Answered, Failed)):
            self._took_s += took_s
        match outcome:
            case Answered(n_tokens=n_tokens):
                self.n_ok += 1
                self.n_tokens += n_tokens
                self._n_refusals = self._n_failures = self._n_equal = 0
            case Failed(error=error, is_of_service=is_of_service):
                self.n_failed += 1
                self._n_refusals = 0
                self._n_failures += is_of_service
                self._count_equal(error)
                is_model = isinstance(
                    error, UnknownModelError
                )  # then all trials would fail
                n_in_row = max(self._n_failures, self._n_equal)
                if is_model or n_in_row >= FAILURES_IN_A_ROW:
                    self.given_up = self.given_up or error
            case Refused(error=error):
                self._next.appendleft(trial)
                self._n_sent -= 1
                self._count_refusal(error)
        self._changed.set()

    def _count_equal(self, error: SvcError) -> None:
        """Count equal refusals in a row, after which the next one would be the same."""
        before, self._refusal = self._refusal, ""
        if isinstance(error, BadRequestError):
            self._refusal = str(error)
        is_equal = self._refusal and self._refusal == before
        self._n_equal = self._n_equal + 1 if is_equal else bool(self._refusal)

    async def until_changed(self) -> None:
        """Wait until a trial has ended."""
        self._changed.clear()
        await self._changed.wait()

    def ends_after_s(self, now_s: float) -> float | None:
        """Return the seconds until the last reply is expected.

        It is estimated from the limits, the most requests in flight, and how long
        replies took so far; None before the first reply.
        """
        n_ended = self.n_ok + self.n_failed
        if not n_ended:
            return None
        mean_s = self._took_s / n_ended
        sent_s = self._sent_s.copy().values()  # the loop may change it meanwhile
        busy_s = [max(at_s + mean_s - now_s, 0.0) for at_s in sent_s]
        n_left = self.n_trials - n_ended - self.n_in_flight
        if n_left <= 0:
            return max(busy_s, default=0.0)
        free_s = sorted([0.0] * (self.most_in_flight - len(busy_s)) + busy_s)
        n_rounds, last = divmod(n_left - 1, len(free_s))
        last_s = max(free_s[last] + n_rounds * mean_s, self._sent_after_s(now_s))
        return last_s + mean_s

    def _sent_after_s(self, now_s: float) -> float:
        """Return the seconds until the limits allow to send the last request."""
        if self.limiter is None or self._began_s is None:
            return 0.0
        limit = self._own_limit or self.limiter.limit
        n_left = self.n_trials - self.n_ok - self.n_failed - self.n_in_flight
        so_far_s = last_sent_s(self._n_sent, limit, self._held_s)
        late_s = max(now_s - self._began_s - so_far_s, 0.0)
        whole_s = last_sent_s(self._n_sent + n_left, limit, self._held_s)
        # a delay is not made up for later, because the windows slide
        next_s = last_sent_s(self._n_sent + 1, limit, self._held_s) - so_far_s
        by_limit_s = self._began_s + whole_s + max(late_s - next_s, 0.0) - now_s
        return max(by_limit_s, self.waits_for.wait_s)

    def announce(self, due: Waiting, now_s: float) -> None:
        """Announce a wait of the next request, and again if it gets longer."""
        until_s, announced_s = now_s + due.wait_s, self._announced_until_s
        if due.wait_s > 0 and (now_s >= announced_s or until_s > announced_s + LOOK_S):
            self._announced_until_s = until_s
            call_watch(self._watch, due)

    def _count_refusal(self, error: RateLimitError) -> None:
        newest_s = self._refusals().newest_s
        if newest_s == self._refused_s:
            return  # 429s of requests that were in flight together count once
        self._refused_s = newest_s
        self._n_refusals += 1
        if self._n_refusals >= REFUSALS_IN_A_ROW:
            self.given_up = error

    def _refusals(self) -> Refusals:
        return self.limiter.refusals if self.limiter else Refusals()


SKIPPED_AT_ONCE = 20  # settled trials that are skipped before other tasks may run
LOOK_S = 0.5  # a pause, a stop or a changed limit is noticed within this time

Sleep = Callable[[float], Awaitable[None]]


class TrialSender(Protocol):
    """Sends one trial, and knows the rate limiter of each model."""

    def limiter(self, model: str) -> RateLimiter | None:
        """Return the rate limiter of a model; None if requests do not wait."""

    async def send_trial(self, trial: Trial) -> Outcome:
        """Send a trial, and return its outcome; only a cancellation is raised."""


class Scheduler:
    """Sends all trials of one execution of a run; `watch` is called at each wait.

    While `keeps_together` returns true, no model is far ahead of the others, so that
    rows have the replies of all models if the run ends early. Else a slow model does
    not hold up the others.

    Any thread may call `stop`, after which nothing more is sent, or set `is_paused`.
    """

    def __init__(  # noqa: PLR0913 - limits, a clock and a callback
        self,
        trials: Mapping[str, PendingTrials],
        sender: TrialSender,
        *,
        in_flight: int | None = None,
        own_limits: LimitsByModel | None = None,
        limit_of: Callable[[str], Limit | None] = limit_of,
        keeps_together: Callable[[], bool] = lambda: False,
        watch: Watch = lambda _: None,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.queues = tuple(
            ModelQueue(
                model,
                todo,
                in_flight=in_flight,
                known=limit_of(model),
                own_limits=(own_limits or {}).get(model, OwnLimits()),
                clock=clock,
                watch=watch,
            )
            for model, todo in trials.items()
        )
        self.is_paused = False
        self._sender = sender
        self._keeps_together = keeps_together
        self._driven = set(self.queues)  # those that may still send
        self._moved = asyncio.Event()
        self._clock = clock
        self._sleep = sleep
        self._stop: SvcError | None = None
        self._is_stopping = False

    async def run(self) -> SvcError | None:
        """Send every trial; return the error that stopped it early, if any."""
        for queue in self.queues:
            queue.limiter = self._sender.limiter(queue.model)
        try:
            async with asyncio.TaskGroup() as group:
                for queue in self.queues:
                    group.create_task(self._drive(queue, group))
        except ExceptionGroup as problems:
            # the first error says what happened; a group would hide it
            raise problems.exceptions[0] from None
        given_up = [queue.given_up for queue in self.queues]
        return self._stop or (given_up[0] if given_up and all(given_up) else None)

    def stop(self) -> None:
        """Send nothing more; requests in flight are completed."""
        self._is_stopping = True

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be sent."""
        return self._is_stopping or self._stop is not None

    async def _drive(self, queue: ModelQueue, group: asyncio.TaskGroup) -> None:
        """Send the trials of a model one by one, each when the limits allow it."""
        try:
            while await self._until_next(queue) and await self._until_free(queue):
                trial = queue.take(self._clock())
                self._moved.set()
                group.create_task(self._send(queue, trial))
                # the request reserves its slot before the next trial looks at the limit
                await asyncio.sleep(0)
        finally:
            self._driven.discard(queue)
            self._moved.set()

    async def _until_next(self, queue: ModelQueue) -> bool:
        """Wait until there is a trial to send; return False if there will be none."""
        n_skipped = 0
        while not (self.is_over or queue.given_up):
            if queue.pull():
                return True
            if queue.is_finished:
                return False
            if queue.is_dry:
                await queue.until_changed()
            elif (n_skipped := n_skipped + 1) % SKIPPED_AT_ONCE == 0:
                await asyncio.sleep(0)  # other tasks may run
        return False

    async def _until_free(self, queue: ModelQueue) -> bool:
        """Wait until a request may be sent; return False if nothing more is sent."""
        await self._until_together(queue)
        while queue.is_full and not (self.is_over or queue.given_up):
            await queue.until_changed()
        return await self._until_due(queue)

    async def _until_together(self, queue: ModelQueue) -> None:
        """Wait while the model is too far ahead of another one."""
        self._moved.set()  # it may have skipped settled trials
        while not (self.is_over or queue.given_up):
            last = min(self._driven, key=ModelQueue.share_sent)
            is_ahead = queue.share_sent(1 - MOST_AHEAD) > last.share_sent()
            if last is queue or not is_ahead or not self._keeps_together():
                break
            queue.behind = last.model
            self._moved.clear()
            await self._moved.wait()
        queue.behind = None

    async def until_next_round(self, model: str) -> bool:
        """Wait until a trial may send its next round; return False if it must not."""
        (queue,) = (queue for queue in self.queues if queue.model == model)
        if is_due := await self._until_due(queue):
            queue.count_sent()
        return is_due

    async def _until_due(self, queue: ModelQueue) -> bool:
        while not (self.is_over or queue.given_up):
            queue.waits_for = due = self._due(queue)
            if due.wait_s <= 0:
                return True
            await self._sleep(min(due.wait_s, LOOK_S))
        return False

    def _due(self, queue: ModelQueue) -> Waiting:
        """Return how long the next trial waits; `RateLimiter` says who paces what."""
        if self.is_paused:
            return Waiting(LOOK_S, "paused")
        due = queue.limiter.due() if queue.limiter else Waiting(0.0)
        if queue.limiter and queue.own:
            own = queue.own.due()
            if own.wait_s > due.wait_s:
                due = Waiting(own.wait_s, f"your {own.reason} of {queue.model}")
        queue.announce(due, self._clock())
        return due

    async def _send(self, queue: ModelQueue, trial: Trial) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._sender.send_trial(trial)
        finally:
            queue.end(trial, outcome, self._clock())
        if isinstance(outcome, Stop):
            self._stop = self._stop or outcome.error

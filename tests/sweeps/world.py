"""A clock that tests turn, and trials asked under the real rate limits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.client.rate_limit import RateLimiter, RateLimits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.errors import SvcError
from svc_notebook.ledger.prices import Prices
from svc_notebook.session import Session
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import LimitsByModel, build_grid, make_plan
from svc_notebook.sweeps.run import Run
from svc_notebook.sweeps.scheduler import (
    Answered,
    Outcome,
    PendingTrials,
    Refused,
    Scheduler,
)

Answer = Callable[["World", Trial], Awaitable[Outcome]]


@dataclass
class World:
    """A clock that jumps to the next sleeper when nobody has anything to do.

    Attributes:
        now_s: What the clock shows.
        log: What was asked, and when.
        n_in_flight, most_in_flight: Requests of each model, now and at most.
        is_own: Whether the user said how many may be in flight.
    """

    now_s: float = 0.0
    log: list[tuple[float, str]] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    n_in_flight: dict[str, int] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    scheduler: Scheduler | None = None
    is_own: bool = False
    _sleepers: list[tuple[float, int, "asyncio.Future[None]"]] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        """Make the rate limits, which look at this clock."""
        self.limits = RateLimits(clock=lambda: self.now_s)

    async def sleep(self, wait_s: float) -> None:
        """Wait until the clock has gone on by so much."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + wait_s, len(self._sleepers), future))
        await future

    async def turn(self, until: "asyncio.Task[SvcError | None]") -> None:
        """Turn the clock until a task is done."""
        while not until.done():
            for _ in range(200):
                await asyncio.sleep(0)
            if self._sleepers and not until.done():
                self._sleepers.sort(key=lambda each: each[:2])
                self.now_s, _, future = self._sleepers.pop(0)
                future.set_result(None)

    def run(
        self,
        trials: Sequence[Trial],
        answer: Answer,
        *,
        in_flight: int | None = 8,
        own_limits: LimitsByModel | None = None,
        keeps_together: bool = False,
    ) -> SvcError | None:
        """Ask trials in this world."""
        self.is_own = in_flight is not None

        async def main() -> SvcError | None:
            self.scheduler = Scheduler(
                by_model(trials),
                Sender(self, answer),
                in_flight=in_flight,
                own_limits=own_limits,
                keeps_together=lambda: keeps_together,
                watch=self.waits.append,
                clock=lambda: self.now_s,
                sleep=self.sleep,
            )
            task = asyncio.create_task(self.scheduler.run())
            await self.turn(task)
            return task.result()

        return asyncio.run(main())


class Sender:
    """Sends in a world, under the real rate limits."""

    def __init__(self, world: World, answer: Answer) -> None:
        self._world = world
        self._answer = answer

    def limiter(self, model: str) -> RateLimiter:
        """Return what decides when a request to a model may go."""
        return self._world.limits.of(model)

    async def send_trial(self, trial: Trial) -> Outcome:
        """Answer a trial as the test says, and note when it was asked."""
        world = self._world
        limiter = world.limits.of(trial.model)
        slot = limiter.reserve(is_own=world.is_own)
        freed = asyncio.Event()
        slot.wake = freed.set
        while (due := limiter.try_pass(slot)).is_for_place:
            await freed.wait()
        assert due.wait_s <= 0, "a request had to queue"
        limiter.sent(slot)
        world.log.append((world.now_s, trial.request.prompt))
        n_now = world.n_in_flight[trial.model] = (
            world.n_in_flight.get(trial.model, 0) + 1
        )
        most = world.most_in_flight.get(trial.model, 0)
        world.most_in_flight[trial.model] = max(most, n_now)
        try:
            outcome = await self._answer(world, trial)
            if isinstance(outcome, Refused):
                limiter.refused(slot, retry_after_s=outcome.error.retry_after_s)
            else:
                limiter.answered(slot)
            return outcome
        finally:
            world.n_in_flight[trial.model] -= 1


def by_model(trials: Sequence[Trial]) -> dict[str, PendingTrials]:
    """Return the queue of each model."""
    models = dict.fromkeys(trial.model for trial in trials)
    return {
        model: PendingTrials(
            pull=iter([trial for trial in trials if trial.model == model]),
            n_trials=sum(trial.model == model for trial in trials),
        )
        for model in models
    }


def conditions_of(n_prompts: int, models: Sequence[str] = ("m",)) -> tuple[Trial, ...]:
    """Return so many trials for each of some models."""
    prompts = [str(number) for number in range(n_prompts)]
    return tuple(build_grid(prompts, varied={"model": list(models)}))


async def at_once(_world: World, _trial: Trial) -> Outcome:
    """Answer at once."""
    return Answered()


async def in_a_second(world: World, _trial: Trial) -> Outcome:
    """Answer after a second of this world."""
    await world.sleep(1.0)
    return Answered()


def priced_run(session: Session, prices: Prices, prompt: object, **how: Any) -> Run:  # noqa: ANN401 - as `svc.sweep`
    """Plan a run with a price table that is in no file."""
    plan = make_plan(session, prompt, **how)
    return Run(replace(plan, prices=prices), session=session)

"""Trials asked side by side: each once, in order, none held up by another."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.client.rate_windows import Waiting
from svc_notebook.errors import RateLimitError, ServerFaultError
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import OwnLimits
from svc_notebook.sweeps.scheduler import (
    MOST_AHEAD,
    Answered,
    Failed,
    Outcome,
    PendingTrials,
    Refused,
    Scheduler,
)
from tests.sweeps.world import World, at_once, conditions_of, in_a_second


@pytest.mark.slow
def test_a_model_that_another_request_closed_is_waited_for() -> None:
    """A 429 of anything else with this key pauses the model too, and that is said."""
    world = World()
    limiter = world.limits.of("m")
    limiter.refused(limiter.reserve(), retry_after_s=90.0)

    world.run(conditions_of(2), at_once)

    assert world.log[0] == (90.0, "0")
    assert world.waits[0] == Waiting(90.0, "m refuses more requests for now (429)")


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["ended", "refused"]), max_size=60),
    st.integers(1, 9),
    st.integers(1, 12),
)
def test_every_trial_ends_in_every_order(
    outcomes: list[str], n_trials: int, in_flight: int
) -> None:
    """Whatever is refused, and in whatever order things end, each trial ends once."""
    script = list(outcomes)
    ended = []

    async def answer(world: World, trial: Trial) -> Outcome:
        outcome = script.pop() if script else "ended"
        await world.sleep(len(script) % 3)
        if outcome == "refused" and script.count("ended"):
            return Refused(RateLimitError())
        ended.append(trial.key)
        return Answered()

    trials = conditions_of(n_trials, ["m", "o"])
    stopped = World().run(trials, answer, in_flight=in_flight)

    if stopped is None:
        assert sorted(ended) == sorted(trial.key for trial in trials)
    assert len(set(ended)) == len(ended)


@pytest.mark.slow
def test_a_million_trials_are_no_million_tasks() -> None:
    """Trials are made when there is room for them, and not before."""
    n_made = n_ended = most_ahead = 0
    [trial] = conditions_of(1)

    def made() -> Iterator[Trial]:
        nonlocal n_made, most_ahead
        while n_made < 20_000:
            n_made += 1
            most_ahead = max(most_ahead, n_made - n_ended)
            yield trial

    class Counting:
        def limiter(self, _model: str) -> None:
            pass  # goes at once

        async def send_trial(self, _trial: Trial) -> Outcome:
            nonlocal n_ended
            n_ended += 1
            return Answered()

    scheduler = Scheduler(
        {"m": PendingTrials(pull=made(), n_trials=20_000)},
        Counting(),
        clock=lambda: 0.0,
    )
    asyncio.run(scheduler.run())

    assert (n_made, n_ended) == (20_000, 20_000)
    assert most_ahead <= 8


def test_a_slow_model_holds_up_no_other() -> None:
    """While one model takes its time, all of another one's trials are asked."""

    async def answer(world: World, trial: Trial) -> Outcome:
        await world.sleep(100.0 if trial.model == "slow" else 1.0)
        world.log.append((world.now_s, f"{trial.model} ended"))
        return Answered()

    world = World()
    world.run(conditions_of(16, ["slow", "quick"]), answer, in_flight=2)

    quick = [at for at, what in world.log if what == "quick ended"]
    assert max(quick) == pytest.approx(8.0)


@pytest.mark.slow
def test_a_refused_model_holds_up_no_other() -> None:
    """A 429 of one model pauses no other."""

    async def answer(world: World, trial: Trial) -> Outcome:
        if trial.model == "m" and world.now_s < 60:
            return Refused(RateLimitError(retry_after_s=60.0))
        world.log.append((world.now_s, f"{trial.model} ended"))
        return Answered()

    world = World()
    world.run(conditions_of(3, ["m", "o"]), answer)

    assert [at for at, what in world.log if what == "o ended"] == [0.0] * 3
    m_ended = [at for at, what in world.log if what == "m ended"]
    assert m_ended == pytest.approx([60.0, 61.08, 62.16])


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.floats(0.0, 90.0), min_size=1, max_size=5),
    st.lists(st.sampled_from(["ended", "ended", "failed", "refused"]), max_size=10),
    st.integers(2, 9),
    st.integers(1, 3),
)
def test_models_are_kept_together(
    took_s: list[float], outcomes: list[str], per_minute: int, in_flight: int
) -> None:
    """At each moment no model that goes on is ahead by more than a few trials."""
    world = World()
    n_sent = {"slow": 0, "quick": 0}
    most_ahead = 0

    async def answer(world: World, trial: Trial) -> Outcome:
        nonlocal most_ahead
        n_sent[trial.model] += 1
        most_ahead = max(most_ahead, n_sent["quick"] - n_sent["slow"])
        if trial.model == "quick":
            return Answered()
        await world.sleep(took_s[n_sent["slow"] % len(took_s)])
        outcome = outcomes.pop() if outcomes else "ended"
        if outcome == "refused":
            n_sent["slow"] -= 1
            return Refused(RateLimitError(retry_after_s=70.0))
        if outcome == "failed":
            return Failed(error=ServerFaultError("gone"))
        return Answered()

    stopped = world.run(
        conditions_of(12, ["slow", "quick"]),
        answer,
        in_flight=in_flight,
        own_limits={"slow": OwnLimits(per_minute=per_minute)},
        keeps_together=True,
    )

    assert stopped is None
    assert n_sent["quick"] == 12
    # requests in flight may be refused, and go back
    assert most_ahead <= MOST_AHEAD + in_flight


def test_a_model_at_its_limit_holds_up_the_others() -> None:
    """With a budget a model waits for one that waits for its minute limit."""
    world = World()
    world.run(
        conditions_of(20, ["slow", "quick"]),
        in_a_second,
        own_limits={"slow": OwnLimits(per_minute=8)},
        keeps_together=True,
    )

    n_in_first_minute = sum(at_s < 60 for at_s, _ in world.log)
    assert n_in_first_minute == 8 + 8 + MOST_AHEAD


def test_a_model_that_is_given_up_holds_up_no_other() -> None:
    """Models are kept together only as long as they are asked."""

    async def answer(_world: World, trial: Trial) -> Outcome:
        if trial.model == "dead":
            return Failed(error=ServerFaultError("gone"), is_of_service=True)
        return Answered()

    world = World()
    world.run(conditions_of(50, ["dead", "alive"]), answer, keeps_together=True)

    assert world.scheduler is not None
    _, alive = world.scheduler.queues
    assert alive.n_ok == 50

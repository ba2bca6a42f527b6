"""Trials asked side by side: as fast as the limits let them, and no faster."""

import asyncio

import pytest

from svc_notebook.emulator.emulated_rate_limits import Quota
from svc_notebook.errors import RateLimitError
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.sweeps.estimate import last_sent_s
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.scheduler import Answered, Outcome, Refused
from tests.sweeps.world import World, at_once, conditions_of


@pytest.mark.slow
@pytest.mark.parametrize("reply_s", [0.005, 0.1, 3.0])
def test_a_level_that_is_found_finds_limits_too(reply_s: float) -> None:
    """Where nothing is given, 300 requests end near the optimum, after few refusals."""
    world = World()
    quota = Quota({"m": (20, 150)}, lambda: world.now_s)
    n_refused = 0

    async def answer(world: World, _trial: Trial) -> Outcome:
        nonlocal n_refused
        await world.sleep(0.002)
        if quota.take("m"):
            n_refused += 1
            return Refused(RateLimitError())
        await world.sleep(reply_s)
        return Answered()

    world.run(conditions_of(300), answer, in_flight=None)

    found = world.limits.of("m").met_limit
    optimum_s = last_sent_s(300, Limit(per_second=20, per_minute=150)) + reply_s
    assert world.now_s <= 1.15 * optimum_s
    assert n_refused <= 60
    assert found is not None
    assert (found.per_second, found.per_minute) == (20, 150)


@pytest.mark.slow
def test_three_models_take_the_time_of_one() -> None:
    """Three models of 200 trials at 50 a minute end in about 189 s, not 568."""
    models = ["svc-v1.5x-70b-instruct", "svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    world = World()

    world.run(conditions_of(200, models), at_once, in_flight=None)

    assert len(world.log) == 600
    assert world.now_s == pytest.approx(189, abs=1.5)
    assert {wait.reason for wait in world.waits} == {
        f"per-{window} limit of {model}"
        for model in models
        for window in ("second", "minute")
    }


@pytest.mark.slow
@pytest.mark.parametrize("n_trials", [1, 5, 6, 50, 51, 151, 301])
@pytest.mark.parametrize("model", ["svc-v2-8b-instruct", "svc-v1.5-instruct"])
def test_ends_when_it_was_computed_to_end(model: str, n_trials: int) -> None:
    """The last request goes when the forecast says, and not before."""
    limit = limit_of(model)
    assert limit is not None
    world = World()

    world.run(conditions_of(n_trials, [model]), at_once, in_flight=None)

    assert world.log[-1][0] == pytest.approx(last_sent_s(n_trials, limit), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "in_flight", "ends_s"),
    [
        ("m", 16, 240),  # six rounds
        ("svc-v2-8b-instruct", 16, 240),
        ("svc-v2-8b-instruct", None, 109),  # the last one is sent after 69 s
    ],
)
def test_the_end_is_known_from_the_first_reply_on(
    model: str, in_flight: int | None, ends_s: float
) -> None:
    """With replies of 40 s each announced end is that of the last reply."""
    announced = []

    async def answer(world: World, _trial: Trial) -> Outcome:
        await world.sleep(40.0)
        if world.now_s > 50 and world.scheduler is not None:
            left_s = world.scheduler.queues[0].ends_after_s(world.now_s)
            announced.append(world.now_s + (left_s or 0.0))
        return Answered()

    world = World()
    world.run(conditions_of(96, [model]), answer, in_flight=in_flight)

    assert world.now_s == pytest.approx(ends_s, rel=0.03)
    assert announced == pytest.approx([world.now_s] * len(announced), rel=0.05)


def test_pauses_and_goes_on() -> None:
    """A pause sends nothing more; after it the rest is asked."""
    world = World()

    async def answer(world: World, trial: Trial) -> Outcome:
        assert world.scheduler is not None
        if trial.request.prompt == "4":
            world.scheduler.is_paused = True
            asyncio.get_running_loop().create_task(_later(world))
        return Answered()

    async def _later(world: World) -> None:
        await world.sleep(30.0)
        assert world.scheduler is not None
        assert world.scheduler.is_paused
        world.scheduler.is_paused = False

    world.run(conditions_of(10), answer, in_flight=1)

    assert [at for at, _ in world.log[:5]] == [0.0] * 5
    assert min(at for at, _ in world.log[5:]) == pytest.approx(30, abs=1)

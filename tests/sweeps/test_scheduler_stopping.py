"""Trials asked side by side: what ends the asking, and what does not."""

import pytest

from svc_notebook.errors import (
    LedgerError,
    RateLimitError,
    ServerFaultError,
)
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.scheduler import (
    FAILURES_IN_A_ROW,
    REFUSALS_IN_A_ROW,
    Answered,
    Failed,
    Outcome,
    Refused,
    Stop,
)
from tests.sweeps.world import World, conditions_of


@pytest.mark.slow
def test_refusals_for_ever_end() -> None:
    """A model that refuses again and again ends the run with its error."""

    async def answer(_world: World, _trial: Trial) -> Outcome:
        return Refused(RateLimitError("no"))

    world = World()
    stopped = world.run(conditions_of(20), answer)

    assert isinstance(stopped, RateLimitError)
    assert len(world.log) == REFUSALS_IN_A_ROW
    assert world.now_s < 600


def test_a_stop_ends_what_has_not_begun() -> None:
    """After a stop nothing more is sent; requests in flight are completed."""
    ended = []

    async def answer(world: World, trial: Trial) -> Outcome:
        if trial.request.prompt == "1":
            return Stop(LedgerError("full"))
        await world.sleep(1.0)
        ended.append(trial.request.prompt)
        return Answered()

    world = World()
    stopped = world.run(conditions_of(9), answer, in_flight=3)

    assert str(stopped) == "full"
    assert ended == ["0"]
    assert [prompt for _, prompt in world.log] == ["0", "1"]


def test_a_model_that_answers_between_failures_is_asked_on() -> None:
    """An answer sets the count of failures back to zero."""

    async def answer(_world: World, trial: Trial) -> Outcome:
        if int(trial.request.prompt) % FAILURES_IN_A_ROW:
            return Failed(error=ServerFaultError("now and then"), is_of_service=True)
        return Answered()

    world = World()
    stopped = world.run(conditions_of(5 * FAILURES_IN_A_ROW), answer, in_flight=1)

    assert stopped is None
    assert len(world.log) == 5 * FAILURES_IN_A_ROW


def test_a_dead_model_is_given_up() -> None:
    """After failures in a row the rest of a model is not asked; others go on."""

    async def answer(_world: World, trial: Trial) -> Outcome:
        if trial.model == "dead":
            return Failed(error=ServerFaultError("gone"), is_of_service=True)
        return Answered()

    world = World()
    stopped = world.run(conditions_of(100, ["dead", "alive"]), answer, in_flight=1)

    assert world.scheduler is not None
    dead, alive = world.scheduler.queues
    assert stopped is None
    assert (dead.n_failed, alive.n_ok) == (FAILURES_IN_A_ROW, 100)
    assert str(dead.given_up) == "gone"

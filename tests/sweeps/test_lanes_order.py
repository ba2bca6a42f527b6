"""Cells asked side by side: each once, in order, none held up by another."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.attempts import Waiting
from svc_notebook.client.rate_limit import Due
from svc_notebook.errors import RateLimitError, ServerFaultError
from svc_notebook.sweeps.grid import Cell
from svc_notebook.sweeps.scheduler import (
    Answered,
    Cells,
    Failed,
    Lanes,
    Outcome,
    Refused,
)
from tests.sweeps.world import World, at_once, cells_of, in_a_second


def test_asks_every_cell_once() -> None:
    """Every cell is asked once, in the order of the plan."""
    world = World()

    stopped = world.run(cells_of(30), in_a_second)

    assert stopped is None
    assert [prompt for _, prompt in world.log] == [str(number) for number in range(30)]


def test_nothing_to_ask_ends_at_once() -> None:
    """No cells, no wait."""
    assert World().run((), at_once) is None


def test_a_refused_cell_is_asked_again() -> None:
    """A refused cell comes back to the front, after the wait that was asked for."""
    refused: set[str] = set()

    async def answer(_world: World, cell: Cell) -> Outcome:
        if cell.request.prompt == "1" and "1" not in refused:
            refused.add("1")
            return Refused(RateLimitError(retry_after_s=7.0))
        return Answered()

    world = World()
    stopped = world.run(cells_of(4), answer, in_flight=1)

    assert stopped is None
    assert world.log == [(0.0, "0"), (0.0, "1"), (7.0, "1"), (7.0, "2"), (7.0, "3")]
    assert world.waits == [Waiting(7.0, "m refuses more requests for now (429)")]


@given(
    st.lists(st.sampled_from(["ended", "refused"]), max_size=60),
    st.integers(1, 9),
    st.integers(1, 12),
)
def test_every_cell_ends_in_every_order(
    outcomes: list[str], n_cells: int, in_flight: int
) -> None:
    """Whatever is refused, and in whatever order things end, each cell ends once."""
    script = list(outcomes)
    ended = []

    async def answer(world: World, cell: Cell) -> Outcome:
        outcome = script.pop() if script else "ended"
        await world.sleep(len(script) % 3)
        if outcome == "refused" and script.count("ended"):
            return Refused(RateLimitError())
        ended.append(cell.key)
        return Answered()

    cells = cells_of(n_cells, ["m", "o"])
    stopped = World().run(cells, answer, in_flight=in_flight)

    if stopped is None:
        assert sorted(ended) == sorted(cell.key for cell in cells)
    assert len(set(ended)) == len(ended)


def test_a_million_cells_are_no_million_tasks() -> None:
    """Cells are made when there is room for them, and not before."""
    n_made = n_ended = most_ahead = 0
    [cell] = cells_of(1)

    def made() -> Iterator[Cell]:
        nonlocal n_made, most_ahead
        while n_made < 20_000:
            n_made += 1
            most_ahead = max(most_ahead, n_made - n_ended)
            yield cell

    class Counting:
        def due(self, _model: str) -> Due:
            return Due(0.0)

        async def ask(self, _cell: Cell) -> Outcome:
            nonlocal n_ended
            n_ended += 1
            return Answered()

    lanes = Lanes(
        {"m": Cells(pull=made(), n_cells=20_000)}, Counting(), clock=lambda: 0.0
    )
    asyncio.run(lanes.run())

    assert (n_made, n_ended) == (20_000, 20_000)
    assert most_ahead <= 8


def test_a_slow_model_holds_up_no_other() -> None:
    """While one model takes its time, all of another one's cells are asked."""

    async def answer(world: World, cell: Cell) -> Outcome:
        await world.sleep(100.0 if cell.model == "slow" else 1.0)
        world.log.append((world.now_s, f"{cell.model} ended"))
        return Answered()

    world = World()
    world.run(cells_of(16, ["slow", "quick"]), answer, in_flight=2)

    quick = [at for at, what in world.log if what == "quick ended"]
    assert max(quick) == pytest.approx(8.0)


def test_a_refused_model_holds_up_no_other() -> None:
    """The gate of one model leaves the others open."""

    async def answer(world: World, cell: Cell) -> Outcome:
        if cell.model == "m" and world.now_s < 60:
            return Refused(RateLimitError(retry_after_s=60.0))
        world.log.append((world.now_s, f"{cell.model} ended"))
        return Answered()

    world = World()
    world.run(cells_of(3, ["m", "o"]), answer)

    assert [at for at, what in world.log if what == "o ended"] == [0.0] * 3
    assert [at for at, what in world.log if what == "m ended"] == [60.0] * 3


def test_a_cell_that_never_answers_holds_up_no_other() -> None:
    """While one cell takes until its time-out, all others are asked."""

    async def answer(world: World, cell: Cell) -> Outcome:
        if cell.request.prompt == "3":
            await world.sleep(60.0)
            return Failed(error=ServerFaultError("late"), is_of_service=True)
        return Answered()

    world = World()
    stopped = world.run(cells_of(40), answer, in_flight=2)

    assert stopped is None
    assert len(world.log) == 40
    assert world.log[-1][0] == 0.0

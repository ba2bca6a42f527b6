"""Lanes: cells asked side by side, on a clock that tests turn."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.gates import Gates
from svc_notebook.client.limits import Due
from svc_notebook.client.waiting import Waiting
from svc_notebook.errors import (
    LedgerError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    SvcError,
)
from svc_notebook.service.catalogue import limit_of
from svc_notebook.sweeps.building import build_grid
from svc_notebook.sweeps.cell import Cell
from svc_notebook.sweeps.forecast import last_sent_s
from svc_notebook.sweeps.lane import (
    FAILURES_IN_A_ROW,
    LONGEST_WAIT_S,
    REFUSALS_IN_A_ROW,
    Cells,
    wait_after,
)
from svc_notebook.sweeps.lanes import Lanes
from svc_notebook.sweeps.outcome import Answered, Failed, Outcome, Refused, Stop

Answer = Callable[["World", Cell], Awaitable[Outcome]]


@dataclass
class World:
    """A clock that jumps to the next sleeper when nobody has anything to do.

    Attributes:
        now_s: What the clock shows.
        log: What was asked, and when.
        n_in_flight, most_in_flight: Requests of each model, now and at most.
    """

    now_s: float = 0.0
    log: list[tuple[float, str]] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    n_in_flight: dict[str, int] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    lanes: Lanes | None = None
    _sleepers: list[tuple[float, int, "asyncio.Future[None]"]] = field(
        default_factory=list
    )

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
        self, cells: Sequence[Cell], answer: Answer, *, in_flight: int | None = 8
    ) -> SvcError | None:
        """Ask cells in this world."""

        async def main() -> SvcError | None:
            self.lanes = Lanes(
                _by_model(cells),
                _Asker(self, answer),
                in_flight=in_flight,
                watch=self.waits.append,
                clock=lambda: self.now_s,
                sleep=self.sleep,
            )
            task = asyncio.create_task(self.lanes.run())
            await self.turn(task)
            return task.result()

        return asyncio.run(main())


class _Asker:
    """Asks in a world, under the limits of the real gates."""

    def __init__(self, world: World, answer: Answer) -> None:
        self._world = world
        self._answer = answer
        self._gates = Gates(clock=lambda: world.now_s)

    def due(self, model: str) -> Due:
        return self._gates.of(model).due()

    async def ask(self, cell: Cell) -> Outcome:
        world = self._world
        gate = self._gates.of(cell.model)
        slot = gate.reserve()
        assert gate.try_pass(slot).wait_s <= 0, "a request had to queue"
        gate.sent(slot)
        world.log.append((world.now_s, cell.request.prompt))
        n_now = world.n_in_flight[cell.model] = world.n_in_flight.get(cell.model, 0) + 1
        most = world.most_in_flight.get(cell.model, 0)
        world.most_in_flight[cell.model] = max(most, n_now)
        try:
            return await self._answer(world, cell)
        finally:
            world.n_in_flight[cell.model] -= 1


def _by_model(cells: Sequence[Cell]) -> dict[str, Cells]:
    models = dict.fromkeys(cell.model for cell in cells)
    return {
        model: Cells(
            pull=iter([cell for cell in cells if cell.model == model]),
            n_cells=sum(cell.model == model for cell in cells),
        )
        for model in models
    }


def _cells(n_prompts: int, models: Sequence[str] = ("m",)) -> tuple[Cell, ...]:
    prompts = [str(number) for number in range(n_prompts)]
    return tuple(build_grid(prompts, varied={"model": list(models)}))


async def _at_once(_world: World, _cell: Cell) -> Outcome:
    return Answered()


async def _in_a_second(world: World, _cell: Cell) -> Outcome:
    await world.sleep(1.0)
    return Answered()


def test_asks_every_cell_once() -> None:
    """Every cell is asked once, in the order of the plan."""
    world = World()

    stopped = world.run(_cells(30), _in_a_second)

    assert stopped is None
    assert [prompt for _, prompt in world.log] == [str(number) for number in range(30)]


def test_nothing_to_ask_ends_at_once() -> None:
    """No cells, no wait."""
    assert World().run((), _at_once) is None


def test_keeps_so_many_in_flight_and_no_more() -> None:
    """Each model has at most so many requests in flight, and makes use of them."""
    world = World()

    world.run(_cells(30, ["m", "o"]), _in_a_second, in_flight=4)

    assert world.most_in_flight == {"m": 4, "o": 4}
    assert world.now_s == pytest.approx(8.0)


def test_a_slow_model_holds_up_no_other() -> None:
    """While one model takes its time, all of another one's cells are asked."""

    async def answer(world: World, cell: Cell) -> Outcome:
        await world.sleep(100.0 if cell.model == "slow" else 1.0)
        world.log.append((world.now_s, f"{cell.model} ended"))
        return Answered()

    world = World()
    world.run(_cells(16, ["slow", "quick"]), answer, in_flight=2)

    quick = [at for at, what in world.log if what == "quick ended"]
    assert max(quick) == pytest.approx(8.0)


def test_a_refused_cell_is_asked_again() -> None:
    """A refused cell comes back to the front, after the wait that was asked for."""
    refused: set[str] = set()

    async def answer(_world: World, cell: Cell) -> Outcome:
        if cell.request.prompt == "1" and "1" not in refused:
            refused.add("1")
            return Refused(RateLimitError(retry_after_s=7.0))
        return Answered()

    world = World()
    stopped = world.run(_cells(4), answer, in_flight=1)

    assert stopped is None
    assert world.log == [(0.0, "0"), (0.0, "1"), (7.0, "1"), (7.0, "2"), (7.0, "3")]
    assert world.waits == [Waiting(7.0, "m refuses more requests for now (429)")]


def test_a_refused_model_holds_up_no_other() -> None:
    """The gate of one model leaves the others open."""

    async def answer(world: World, cell: Cell) -> Outcome:
        if cell.model == "m" and world.now_s < 60:
            return Refused(RateLimitError(retry_after_s=60.0))
        world.log.append((world.now_s, f"{cell.model} ended"))
        return Answered()

    world = World()
    world.run(_cells(3, ["m", "o"]), answer)

    assert [at for at, what in world.log if what == "o ended"] == [0.0] * 3
    assert [at for at, what in world.log if what == "m ended"] == [60.0] * 3


def test_refusals_lower_what_is_in_flight() -> None:
    """After refusals fewer requests are in flight, but never none."""

    async def answer(world: World, _cell: Cell) -> Outcome:
        if world.n_in_flight["m"] > 2:
            return Refused(RateLimitError())
        await world.sleep(1.0)
        return Answered()

    world = World()
    stopped = world.run(_cells(20), answer, in_flight=8)

    assert stopped is None
    assert world.n_in_flight == {"m": 0}
    late = Counter(int(at) for at, _ in world.log if at > 4)
    assert max(late.values()) <= 3


def test_refusals_for_ever_end() -> None:
    """A model that refuses again and again ends the run with its error."""

    async def answer(_world: World, _cell: Cell) -> Outcome:
        return Refused(RateLimitError("no"))

    world = World()
    stopped = world.run(_cells(20), answer)

    assert isinstance(stopped, RateLimitError)
    assert len(world.waits) == REFUSALS_IN_A_ROW - 1
    assert world.now_s < 600


def test_a_stop_ends_what_has_not_begun() -> None:
    """After a stop nothing more is asked, and what is in flight comes to its end."""
    ended = []

    async def answer(world: World, cell: Cell) -> Outcome:
        if cell.request.prompt == "1":
            return Stop(LedgerError("full"))
        await world.sleep(1.0)
        ended.append(cell.request.prompt)
        return Answered()

    world = World()
    stopped = world.run(_cells(9), answer, in_flight=3)

    assert str(stopped) == "full"
    assert ended == ["0"]
    assert [prompt for _, prompt in world.log] == ["0", "1"]


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

    cells = _cells(n_cells, ["m", "o"])
    stopped = World().run(cells, answer, in_flight=in_flight)

    if stopped is None:
        assert sorted(ended) == sorted(cell.key for cell in cells)
    assert len(set(ended)) == len(ended)


@given(st.integers(1, 10**6), st.none() | st.floats(0, 1e4))
def test_never_waits_less_than_was_asked_for(
    n_refusals: int, retry_after_s: float | None
) -> None:
    """A wait is at least what the service asked for, and else bounded."""
    wait_s = wait_after(n_refusals, retry_after_s)

    assert wait_s >= max(retry_after_s or 0.0, 0.5)
    assert wait_s <= max(retry_after_s or 0.0, LONGEST_WAIT_S)


def test_three_models_take_the_time_of_one() -> None:
    """Three models of 200 cells at 50 a minute end in about 189 s, not 568."""
    models = ["svc-v1.5x-70b-instruct", "svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    world = World()

    world.run(_cells(200, models), _at_once, in_flight=None)

    assert len(world.log) == 600
    assert world.now_s == pytest.approx(189, abs=1.5)
    assert world.waits == []


@pytest.mark.parametrize("n_cells", [1, 5, 6, 50, 51, 151, 301])
@pytest.mark.parametrize("model", ["svc-v2-8b-instruct", "svc-v1.5-instruct"])
def test_ends_when_it_was_computed_to_end(model: str, n_cells: int) -> None:
    """The last request goes when the forecast says, and not before."""
    limit = limit_of(model)
    assert limit is not None
    world = World()

    world.run(_cells(n_cells, [model]), _at_once, in_flight=None)

    assert world.log[-1][0] == pytest.approx(last_sent_s(n_cells, limit), abs=0.01)


def test_slow_replies_do_not_hold_the_limit_up() -> None:
    """With replies of 20 s a model is asked as fast as its limit allows."""

    async def answer(world: World, _cell: Cell) -> Outcome:
        await world.sleep(20.0)
        return Answered()

    world = World()
    world.run(_cells(100, ["svc-v2-8b-instruct"]), answer, in_flight=None)

    assert world.log[-1][0] == pytest.approx(69.8, abs=0.5)


def test_a_cell_that_never_answers_holds_up_no_other() -> None:
    """While one cell takes until its time-out, all others are asked."""

    async def answer(world: World, cell: Cell) -> Outcome:
        if cell.request.prompt == "3":
            await world.sleep(60.0)
            return Failed(error=ServerFaultError("late"), is_of_service=True)
        return Answered()

    world = World()
    stopped = world.run(_cells(40), answer, in_flight=2)

    assert stopped is None
    assert len(world.log) == 40
    assert world.log[-1][0] == 0.0


def test_a_dead_model_is_given_up() -> None:
    """After failures in a row the rest of a model is not asked; others go on."""

    async def answer(_world: World, cell: Cell) -> Outcome:
        if cell.model == "dead":
            return Failed(error=ServerFaultError("gone"), is_of_service=True)
        return Answered()

    world = World()
    stopped = world.run(_cells(100, ["dead", "alive"]), answer, in_flight=1)

    assert world.lanes is not None
    dead, alive = world.lanes.lanes
    assert stopped is None
    assert (dead.n_failed, alive.n_ok) == (FAILURES_IN_A_ROW, 100)
    assert str(dead.given_up) == "gone"


def test_a_dead_service_ends_the_run() -> None:
    """When every model was given up, the run ends with the error."""

    async def answer(_world: World, _cell: Cell) -> Outcome:
        return Failed(error=ServerFaultError("gone"), is_of_service=True)

    stopped = World().run(_cells(100, ["a", "b"]), answer)

    assert str(stopped) == "gone"


def test_failures_of_cells_give_no_model_up() -> None:
    """A model whose cells are refused one by one is asked to the end."""

    async def answer(_world: World, _cell: Cell) -> Outcome:
        return Failed(error=ParameterError("no"))

    world = World()
    stopped = world.run(_cells(50), answer)

    assert stopped is None
    assert len(world.log) == 50


def test_a_million_cells_are_no_million_tasks() -> None:
    """Cells are made when there is room for them, and not before."""
    n_made = n_ended = most_ahead = 0
    [cell] = _cells(1)

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


def test_pauses_and_goes_on() -> None:
    """A pause sends nothing more; after it the rest is asked."""
    world = World()

    async def answer(world: World, cell: Cell) -> Outcome:
        assert world.lanes is not None
        if cell.request.prompt == "4":
            world.lanes.pause()
            asyncio.get_running_loop().create_task(_later(world))
        return Answered()

    async def _later(world: World) -> None:
        await world.sleep(30.0)
        assert world.lanes is not None
        assert world.lanes.is_paused
        world.lanes.resume()

    world.run(_cells(10), answer, in_flight=1)

    assert [at for at, _ in world.log[:5]] == [0.0] * 5
    assert min(at for at, _ in world.log[5:]) == pytest.approx(30, abs=1)


def test_a_stop_from_outside_keeps_what_is_in_flight() -> None:
    """Stopped, it asks nothing more, and what is in flight comes to its end."""
    ended = []

    async def answer(world: World, cell: Cell) -> Outcome:
        assert world.lanes is not None
        if len(world.log) == 4:
            world.lanes.stop()
        await world.sleep(5.0)
        ended.append(cell.request.prompt)
        return Answered()

    world = World()
    stopped = world.run(_cells(20), answer, in_flight=4)

    assert stopped is None
    assert ended == ["0", "1", "2", "3"]

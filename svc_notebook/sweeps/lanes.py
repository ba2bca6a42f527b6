"""Lanes: the cells of a run asked side by side, a lane for each model.

What it is not: it knows neither the client nor the ledger; it is given something
that asks one cell. Rules: cells are pulled when there is room for them, so that a
million are no million tasks; a slow model holds up no other; a request is sent when
the model's limit lets it, and not queued before; a refused cell goes back to the
front of its lane and uses up no try; a model that only fails is given up, and one
outcome may stop everything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from svc_notebook.client.limits import Due
from svc_notebook.client.waiting import Watch
from svc_notebook.errors import SvcError

from .cell import Cell
from .lane import Cells, Lane
from .outcome import Outcome, Stop

SKIPPED_AT_ONCE = 20
LOOK_S = 0.5  # a pause, a stop and a limit that moved are seen after so long

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


class Asks(Protocol):
    """Asks one cell, and knows what holds a model up."""

    def due(self, model: str) -> Due:
        """Say how long a request to a model would have to wait now, and for what."""

    async def ask(self, cell: Cell) -> Outcome:
        """Ask a cell; it raises nothing but cancellation."""


class Lanes:
    """The lanes of one go at a run.

    `stop`, `pause` and `resume` may be called from any thread.

    Args:
        cells: What to ask of each model, in order; None stands for a cell that needs
            no asking.
        asker: Asks.
        in_flight: Most requests in flight for one model; by its limit if None.
        watch: Told when a lane closes.
        clock: Seconds, monotonic.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        cells: Mapping[str, Cells],
        asker: Asks,
        *,
        in_flight: int | None = None,
        watch: Watch = lambda _: None,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.lanes = tuple(
            Lane(model, todo, in_flight=in_flight, watch=watch)
            for model, todo in cells.items()
        )
        self._asker = asker
        self._clock = clock
        self._sleep = sleep
        self._stop: SvcError | None = None
        self._is_stopping = False
        self._is_paused = False

    async def run(self) -> SvcError | None:
        """Ask every cell; return what stopped it before its end, if anything."""
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self.lanes:
                    group.create_task(self._drive(lane, group))
        except ExceptionGroup as problems:
            # from a caller's own `watch`; they know it by its own name
            raise problems.exceptions[0] from None
        if (
            self._stop is None
            and self.lanes
            and all(each.given_up for each in self.lanes)
        ):
            return self.lanes[0].given_up
        return self._stop

    def stop(self) -> None:
        """Send nothing more; what is in flight comes to its end."""
        self._is_stopping = True

    def pause(self) -> None:
        """Send nothing more until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False

    @property
    def is_paused(self) -> bool:
        """Whether it was paused."""
        return self._is_paused

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be sent."""
        return self._is_stopping or self._stop is not None

    async def _drive(self, lane: Lane, group: asyncio.TaskGroup) -> None:
        """Send a lane's cells, one after the other, each when there is room for it."""
        while await self._until_next(lane) and await self._until_free(lane):
            cell = lane.take(self._clock())
            group.create_task(self._ask(lane, cell))
            # The request takes its place in the limit's window before the next looks.
            await asyncio.sleep(0)

    async def _until_next(self, lane: Lane) -> bool:
        """Wait until there is a cell to ask; False if there will be none."""
        n_skipped = 0
        while not (self.is_over or lane.given_up):
            if lane.pull():
                return True
            if lane.is_through:
                return False
            if lane.is_dry:
                await lane.until_changed()
            elif (n_skipped := n_skipped + 1) % SKIPPED_AT_ONCE == 0:
                await asyncio.sleep(0)  # others may go
        return False

    async def _until_free(self, lane: Lane) -> bool:
        """Wait until a request may be sent; False if none will be."""
        while not (self.is_over or lane.given_up):
            if lane.is_full:
                await lane.until_changed()
                continue
            lane.waits_for = due = self._due(lane)
            if due.wait_s <= 0:
                return True
            await self._sleep(min(due.wait_s, LOOK_S))
        return False

    def _due(self, lane: Lane) -> Due:
        if self._is_paused:
            return Due(LOOK_S, "paused")
        closed = lane.closed(self._clock())
        return closed if closed.wait_s > 0 else self._asker.due(lane.model)

    async def _ask(self, lane: Lane, cell: Cell) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._asker.ask(cell)
        finally:
            lane.end(cell, outcome, now_s=self._clock())
        if isinstance(outcome, Stop):
            self._stop = self._stop or outcome.error

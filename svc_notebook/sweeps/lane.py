"""One lane: the queue of one model, its counts, and what it learnt.

What it is not: it neither sends nor sleeps. Rules: every cell that is taken ends
once, or goes back; refusals close the lane for a while, longer each time; failures
of the service in a row, without an answer between, give the lane up.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from svc_notebook.client.limits import Due
from svc_notebook.client.waiting import Waiting, Watch
from svc_notebook.errors import RateLimitError, SvcError
from svc_notebook.service.catalogue import limit_of

from .cell import Cell
from .forecast import last_sent_s
from .outcome import Answered, Failed, Outcome, Refused

IN_FLIGHT = 8
"""Most requests in flight for a model whose limit the document does not show."""
MOST_IN_FLIGHT = 64
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
REFUSALS_IN_A_ROW = 20  # over eight minutes of waiting: this is no passing limit
FAILURES_IN_A_ROW = 10
_N_CALM = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What a lane has to ask.

    Attributes:
        pull: The cells, made when they are pulled; None for one that needs no asking.
        n_cells: How many there are to ask.
    """

    pull: Iterator[Cell | None]
    n_cells: int


def wait_after(n_refusals: int, retry_after_s: float | None) -> float:
    """Return how long a lane stays closed, in seconds.

    Args:
        n_refusals: Refusals of this model without an answer between, from 1.
        retry_after_s: What the service asked for; the wait is never shorter.
    """
    doubled_s = FIRST_WAIT_S * 2.0 ** min(max(n_refusals - 1, 0), 16)
    backoff_s = min(doubled_s, LONGEST_WAIT_S)
    return max(retry_after_s or 0.0, backoff_s)


class Lane:
    """The queue of one model.

    Args:
        model: Its id.
        cells: What to ask.
        in_flight: Most requests in flight; by the model's limit if None.
        watch: Told when it closes.

    Attributes:
        n_cells: How many there were to ask.
        n_ok, n_failed, n_in_flight: How many of them are where.
        n_tokens: Of prompts and replies so far, reported or else estimated.
        waits_for: What the next request waits for.
        given_up: The last error, if it was given up.
        is_dry: Whether there are no more cells to pull.
    """

    def __init__(
        self,
        model: str,
        cells: Cells,
        *,
        in_flight: int | None = None,
        watch: Watch = lambda _: None,
    ) -> None:
        self.model = model
        self.n_cells = cells.n_cells
        self.n_ok = self.n_failed = self.n_in_flight = self.n_tokens = 0
        self.waits_for = Due(0.0)
        self.given_up: SvcError | None = None
        self.watch: Callable[[Waiting], None] = watch
        self._pull = cells.pull
        self._next: deque[Cell] = deque()
        self.is_dry = False
        self._most = self._allowed = in_flight or _in_flight_of(model)
        self._began_s: float | None = None
        self._n_sent = 0
        self._opens_s = float("-inf")
        self._n_refusals = self._n_failures = self._n_calm = 0
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether nothing can be sent before something ends."""
        return self.n_in_flight >= self._allowed

    @property
    def is_through(self) -> bool:
        """Whether every cell has ended."""
        return self.is_dry and not self._next and self.n_in_flight == 0

    def pull(self) -> bool:
        """Have the next cell ready; False if it needs no asking, or there is none."""
        if self._next:
            return True
        try:
            cell = next(self._pull)
        except StopIteration:
            self.is_dry = True
            return False
        if cell is not None:
            self._next.append(cell)
        return cell is not None

    def take(self, now_s: float) -> Cell:
        """Return the next cell, which is asked now."""
        self._began_s = now_s if self._began_s is None else self._began_s
        self._n_sent += 1
        self.n_in_flight += 1
        return self._next.popleft()

    def end(self, cell: Cell, outcome: Outcome | None, *, now_s: float) -> None:
        """Count a cell that has ended; None if it was stopped."""
        self.n_in_flight -= 1
        match outcome:
            case Answered(n_tokens=n_tokens):
                self.n_ok += 1
                self.n_tokens += n_tokens
                self._n_refusals = self._n_failures = 0
                self._calm_down()
            case Failed(error=error, is_of_service=is_of_service):
                self.n_failed += 1
                self._n_refusals = 0
                self._n_failures += is_of_service
                if self._n_failures >= FAILURES_IN_A_ROW:
                    self.given_up = error
            case Refused(error=error):
                self._next.appendleft(cell)
                self._n_sent -= 1
                self._close(error, now_s)
        self._changed.set()

    def closed(self, now_s: float) -> Due:
        """Say how long it stays closed."""
        return Due(self._opens_s - now_s, "refused by the service (429)")

    async def until_changed(self) -> None:
        """Wait until a cell has ended."""
        self._changed.clear()
        await self._changed.wait()

    def ends_after_s(self, now_s: float) -> float | None:
        """Return the seconds until the last request can be sent, by the limits."""
        limit = limit_of(self.model)
        n_left = self.n_cells - self.n_ok - self.n_failed - self.n_in_flight
        if limit is None:
            return None
        if n_left <= 0:
            return 0.0
        if self._began_s is None:
            return last_sent_s(n_left, limit)
        so_far_s = last_sent_s(self._n_sent, limit)
        late_s = max(now_s - self._began_s - so_far_s, 0.0)
        whole_s = last_sent_s(self._n_sent + n_left, limit)
        # what was late is not made up for: the windows slide
        next_s = last_sent_s(self._n_sent + 1, limit) - so_far_s
        return max(self._began_s + whole_s + max(late_s - next_s, 0.0) - now_s, 0.0)

    def _close(self, error: RateLimitError, now_s: float) -> None:
        is_new = self._opens_s <= now_s
        # those that were in flight when the lane closed tell nothing new
        self._n_refusals += is_new
        wait_s = wait_after(self._n_refusals, error.retry_after_s)
        self._opens_s = max(self._opens_s, now_s + wait_s)
        if not is_new:
            return
        self._n_calm = 0
        self._allowed = max(self._allowed * 3 // 4, 1)
        if self._n_refusals >= REFUSALS_IN_A_ROW:
            self.given_up = error
        else:
            self.watch(
                Waiting(wait_s, f"{self.model} refuses more requests for now (429)")
            )

    def _calm_down(self) -> None:
        self._n_calm += 1
        if self._n_calm >= _N_CALM and self._allowed < self._most:
            self._n_calm = 0
            self._allowed += 1


def _in_flight_of(model: str) -> int:
    # as many as a minute lets out, so that slow replies do not hold the limit up
    limit = limit_of(model)
    return IN_FLIGHT if limit is None else min(limit.per_minute, MOST_IN_FLIGHT)

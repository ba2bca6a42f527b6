"""Decides when a model's next request may be sent (doc: Rate limits per model).

Nothing here sleeps: the caller decides how long it waits. `rate_windows` keeps the
documented limits; `Refusals` decides what a 429 means.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from threading import Lock

from svc_notebook.credentials import Key
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.settings import default_ledger

from .rate_windows import Clock, Due, Room, SharedQuota, Slot, Windows

FIRST_CLOSED_S = 0.5
LONGEST_CLOSED_S = 30.0  # our own choice; the service may ask for more
FIRST_GAP_S = 0.2
LONGEST_GAP_S = 12.0
N_CALM = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """What the 429s of a model mean for its next requests. Pure: callers pass the time.

    Attributes:
        newest_s: When the newest one came that said something new.
        n_in_a_row: How many such came without an answer between them.
        closed_until_s: No request is sent before.
        gap_s: Seconds between two requests, where no limit is known.
        n_answers: Answers since the newest one, or since the gap changed.
    """

    newest_s: float = -inf
    n_in_a_row: int = 0
    closed_until_s: float = -inf
    gap_s: float = 0.0
    n_answers: int = 0

    def refused(
        self, *, sent_s: float, now_s: float, retry_after_s: float | None
    ) -> "Refusals":
        """Return the state after one more 429.

        Args:
            sent_s: When its request was sent. If that was before the newest refusal
                came, it says nothing new.
            now_s: When it came.
            retry_after_s: Seconds the service asked to wait; never cut short.
        """
        until_s = max(self.closed_until_s, now_s + (retry_after_s or 0.0))
        if sent_s <= self.newest_s:
            return replace(self, closed_until_s=until_s)
        n_in_a_row = self.n_in_a_row + 1
        doubled_s = FIRST_CLOSED_S * 2.0 ** min(n_in_a_row - 1, 16)
        return Refusals(
            newest_s=now_s,
            n_in_a_row=n_in_a_row,
            closed_until_s=max(until_s, now_s + min(doubled_s, LONGEST_CLOSED_S)),
            gap_s=min(max(self.gap_s * 2, FIRST_GAP_S), LONGEST_GAP_S),
        )

    def answered(self) -> "Refusals":
        """Return the state after a request that was not refused."""
        n_answers, gap_s = self.n_answers + 1, self.gap_s
        if n_answers >= N_CALM:
            n_answers, gap_s = 0, gap_s / 2 if gap_s > FIRST_GAP_S else 0.0
        return replace(self, n_in_a_row=0, n_answers=n_answers, gap_s=gap_s)


class RateLimiter:
    """Decides when the next request of one model may be sent.

    Args:
        model: Id of the model.
        limit: Its documented limit, if it has one.
        clock: Seconds that only grow.
        others: The count shared with other kernels, if there is one.

    Attributes:
        refusals: What its 429s mean now.
    """

    def __init__(
        self,
        model: str,
        limit: Limit | None,
        *,
        clock: Clock,
        others: SharedQuota | None = None,
    ) -> None:
        self.refusals = Refusals()
        self._model = model
        self._clock = clock
        self._windows = limit and Windows(
            per_second=limit.per_second,
            per_minute=limit.per_minute,
            clock=clock,
            others=others,
        )
        self._lock = Lock()
        self._free_at_s = -inf

    def reserve(self) -> Slot:
        """Take a place in the model's queue."""
        if self._windows:
            return self._windows.reserve()
        with self._lock:
            return self._placed(Slot(-inf))

    def try_pass(self, slot: Slot, *, patience_s: float = inf) -> Due:
        """Let a place's request go now, or return how long it has to wait, and why.

        Args:
            slot: As reserved. Ask again after waiting: a request in front may have
                gone out late, which moves the ones behind it.
            patience_s: If a 429 closed the model for longer than this, the request
                goes out anyway, and the caller gets the service's own answer at once.
        """
        closed = self._closed()
        if 0 < closed.wait_s <= patience_s:
            return closed
        if self._windows:
            return self._named(self._windows.try_pass(slot))
        with self._lock:
            if self.refusals.gap_s and slot.at_s < self.refusals.newest_s:
                self._placed(slot)  # requests that waited for a 429 go one by one
            due = self._gap_until(slot.at_s)
            if due.wait_s <= 0:
                slot.is_out = True
            return due

    def due(self) -> Due:
        """Return how long a request would have to wait now; no place is taken."""
        closed = self._closed()
        if closed.wait_s > 0:
            return closed
        if self._windows:
            return self._named(self._windows.due())
        return self._gap_until(self._free_at_s)

    def room(self) -> Room | None:
        """Return how many requests may be sent now; None if no limit is known."""
        return self._windows.room() if self._windows else None

    def sent(self, slot: Slot) -> None:
        """Note that a place's request is being written now."""
        if self._windows:
            self._windows.sent(slot)

    def give_back(self, slot: Slot) -> None:
        """Free a place whose request was not sent."""
        if self._windows:
            self._windows.give_back(slot)
            return
        with self._lock:
            if self._free_at_s == slot.at_s + self.refusals.gap_s:  # the last place
                self._free_at_s = slot.at_s

    def refused(self, slot: Slot, *, retry_after_s: float | None) -> None:
        """Note a 429: the place is free again, and the model closed for a while.

        Args:
            slot: Of the request.
            retry_after_s: Seconds the service asked to wait.
        """
        self.give_back(slot)
        with self._lock:
            self.refusals = self.refusals.refused(
                sent_s=slot.at_s, now_s=self._clock(), retry_after_s=retry_after_s
            )

    def answered(self) -> None:
        """Note an answer that is not a 429."""
        with self._lock:
            self.refusals = self.refusals.answered()

    def _closed(self) -> Due:
        wait_s = self.refusals.closed_until_s - self._clock()
        return Due(wait_s, f"{self._model} refuses more requests for now (429)")

    def _named(self, due: Due) -> Due:
        return Due(due.wait_s, due.reason and f"{due.reason} of {self._model}")

    def _placed(self, slot: Slot) -> Slot:
        slot.at_s = max(self._clock(), self._free_at_s)
        self._free_at_s = slot.at_s + self.refusals.gap_s
        return slot

    def _gap_until(self, at_s: float) -> Due:
        wait_s = max(at_s - self._clock(), 0.0)
        return Due(wait_s, f"slower requests to {self._model} after a 429")


class RateLimits:
    """The rate limiters of one key at one address, by model.

    Args:
        clock: Seconds that only grow.
        limit_of: Returns the limit of a model; None if it is not known.
        others_of: Returns the count that other kernels share; None without one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_of: Callable[[str], Limit | None] = limit_of,
        others_of: Callable[[str], SharedQuota | None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._others_of = others_of
        self._lock = Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def of(self, model: str) -> RateLimiter:
        """Return the limiter of a model."""
        with self._lock:
            limiter = self._limiters.get(model)
            if limiter is None:
                limiter = self._limiters[model] = RateLimiter(
                    model,
                    self._limit_of(model),
                    clock=self._clock,
                    others=self._others_of(model),
                )
            return limiter


_limits: dict[tuple[int, str, str, Clock], RateLimits] = {}


def shared_limits(base_url: str, key: Key, *, clock: Clock) -> RateLimits:
    """Return the rate limits of a key at an address, shared in this process."""
    digest = key.digest(base_url)
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only this clock shows the same time in every kernel.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{(base_url, digest)}\n{model}", clock=clock)

    # A forked process gets new ones: a lock may have been held at the fork.
    place = (os.getpid(), base_url, digest, clock)
    return _limits.setdefault(place, RateLimits(clock=clock, others_of=others_of))

"""Decides when a model's next request may be sent (doc: Rate limits per model).

Nothing here sleeps. `rate_windows` keeps the limits; `Refusals` decides what a 429
means, and what the limits are if the document does not show them.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from threading import Lock

from svc_notebook.credentials import Key
from svc_notebook.fork import Forkable, leave_to_parent
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.settings import default_ledger

from .rate_windows import (
    MARGIN_S,
    MINUTE_S,
    SECOND_S,
    UNLIMITED,
    Clock,
    Room,
    SharedQuota,
    Slot,
    Waiting,
    Windows,
)

CLOSED_S = SECOND_S + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """What the 429s of a model mean for its next requests. Pure: callers pass the time.

    A 429 closes the model for a second. If nothing was accepted since the 429 before
    it, the minute is full, and the model stays closed until a minute has passed. What
    was accepted before a 429 is the limit from then on; it grows while there is none.

    Attributes:
        newest_s, sent_s: When the newest one came that said something new, and when
            its request was sent.
        previous_s: When the one before it came.
        closed_until_s: No request is sent before.
        is_settled: Whether what it teaches is known: others sent with it come later.
        per_second, per_minute: Most requests, as far as 429s have shown.
        before: `per_second` before the newest one.
        n_calm: Minutes without one.
    """

    newest_s: float = -inf
    sent_s: float = -inf
    previous_s: float = -inf
    closed_until_s: float = -inf
    is_settled: bool = True
    per_second: int = UNLIMITED
    per_minute: int = UNLIMITED
    before: int = UNLIMITED
    n_calm: int = 0

    def refused(
        self, *, sent_s: float, now_s: float, retry_after_s: float | None
    ) -> "Refusals":
        """Return the state after a 429 that came at `now_s`.

        The wait that the service asks for is never cut short.
        """
        until_s = max(self.closed_until_s, now_s + (retry_after_s or 0.0))
        if sent_s < self.closed_until_s:  # let out before the newest: nothing new
            return replace(self, closed_until_s=until_s)
        return replace(
            self,
            newest_s=now_s,
            sent_s=sent_s,
            # the service's own hint says which window is full
            previous_s=-inf if retry_after_s else self.newest_s,
            closed_until_s=max(until_s, now_s + CLOSED_S),
            is_settled=False,
            n_calm=0,
        )

    def settled(self, times_s: Sequence[float]) -> "Refusals":
        """Return the state when the model would open again after a 429.

        `times_s` has when the requests of the last minute were sent, oldest first,
        without those that were refused.
        """
        minute = [at_s for at_s in times_s if at_s > self.sent_s - MINUTE_S]
        is_minute_full = self.previous_s > self.newest_s - MINUTE_S and not any(
            at_s > self.previous_s for at_s in minute
        )
        if not is_minute_full:
            second = [at_s for at_s in minute if at_s > self.sent_s - SECOND_S]
            return replace(
                self,
                is_settled=True,
                per_second=max(_most_in_a_second(second), 1),
                before=self.per_second,
            )
        full_s = minute[0] if minute else self.newest_s
        until_s = max(self.closed_until_s, full_s + MINUTE_S + MARGIN_S)
        closed = replace(self, is_settled=True, closed_until_s=until_s)
        if not minute:  # somebody else filled it
            return closed
        # it was not the second that was full
        return replace(closed, per_second=self.before, per_minute=len(minute))

    def answered(self, now_s: float) -> "Refusals":
        """Return the state after a request that was not refused."""
        is_unlimited = self.per_second == self.per_minute == UNLIMITED
        if is_unlimited or now_s < self.closed_until_s + MINUTE_S * (self.n_calm + 1):
            return self
        step = 4**self.n_calm  # small at first: the limit is probably still the same
        return replace(
            self,
            per_second=min(self.per_second + step, UNLIMITED),
            per_minute=min(self.per_minute + step, UNLIMITED),
            n_calm=self.n_calm + 1,
        )


def _most_in_a_second(times_s: Sequence[float]) -> int:
    ends = (bisect_left(times_s, at_s + SECOND_S) for at_s in times_s)
    return max((end - at for at, end in enumerate(ends)), default=0)


class RateLimiter:
    """Decides when the next request of one model may be sent.

    Its `limit` is the documented one, or what 429s have shown of it; `others` is the
    count shared with other kernels.
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
        self._is_known = limit is not None
        self.limit = limit or Limit(per_second=UNLIMITED, per_minute=UNLIMITED)
        self._windows = Windows(
            self.limit, clock=clock, others=others if self._is_known else None
        )
        self._lock = Lock()

    def reserve(self) -> Slot:
        """Take a place in the model's queue."""
        return self._windows.reserve()

    def try_pass(self, slot: Slot, *, patience_s: float = inf) -> Waiting:
        """Let a place's request go now, or return how long it has to wait, and why.

        Ask again after waiting: a request in front may have gone out late, which moves
        the ones behind it. If a 429 closed the model for longer than `patience_s`, the
        request goes out anyway, and the caller gets the service's own answer at once.
        """
        closed = self._closed()
        if 0 < closed.wait_s <= patience_s:
            return closed
        return self._named(self._windows.try_pass(slot))

    def due(self) -> Waiting:
        """Return how long a request would have to wait now; no place is taken."""
        closed = self._closed()
        return closed if closed.wait_s > 0 else self._named(self._windows.due())

    def room(self) -> Room | None:
        """Return how many requests may be sent now; None if no limit is known."""
        return self._windows.room() if self._is_known else None

    def held_s(self) -> Sequence[float]:
        """Return when the requests in the windows went: see `Windows.held_s`."""
        return self._windows.held_s() if self._is_known else ()

    def sent(self, slot: Slot) -> None:
        """Note that a place's request is being written now."""
        self._windows.sent(slot)

    def give_back(self, slot: Slot) -> None:
        """Free a place whose request was not sent."""
        self._windows.give_back(slot)

    def refused(self, slot: Slot, *, retry_after_s: float | None) -> None:
        """Note a 429: the place is free again, and the model closed for a while."""
        self.give_back(slot)
        with self._lock:
            self.refusals = self.refusals.refused(
                sent_s=slot.at_s, now_s=self._clock(), retry_after_s=retry_after_s
            )

    def answered(self) -> None:
        """Note an answer that is not a 429."""
        with self._lock:
            self._learn(self.refusals.answered(self._clock()))

    def _closed(self) -> Waiting:
        with self._lock:
            now_s = self._clock()
            newest = self.refusals
            if not newest.is_settled and now_s >= newest.closed_until_s:
                self._learn(newest.settled(self._windows.sent_s()))
            wait_s = self.refusals.closed_until_s - now_s
        return Waiting(wait_s, f"{self._model} refuses more requests for now (429)")

    def _learn(self, refusals: Refusals) -> None:
        if refusals is self.refusals:
            return
        self.refusals = refusals
        if not self._is_known:
            self.limit = Limit(
                per_second=refusals.per_second, per_minute=refusals.per_minute
            )
            self._windows.allow(self.limit)

    def _named(self, due: Waiting) -> Waiting:
        kind = "" if self._is_known else "estimated "
        return Waiting(
            due.wait_s, due.reason and f"{kind}{due.reason} of {self._model}"
        )


class RateLimits:
    """The rate limiters of one key at one address, by model.

    `others_of` returns the count that other kernels share; None without one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        others_of: Callable[[str], SharedQuota | None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._others_of = others_of
        self._lock = Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def of(self, model: str) -> RateLimiter:
        """Return the limiter of a model."""
        with self._lock:
            if model not in self._limiters:
                self._limiters[model] = RateLimiter(
                    model,
                    limit_of(model),
                    clock=self._clock,
                    others=self._others_of(model),
                )
            return self._limiters[model]


class _Shared(Forkable):
    """The rate limits of this process."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str, Clock], RateLimits] = {}
        self.watch_forks()

    def after_in_child(self) -> None:
        """Begin with new ones: a lock may have been held at the fork."""
        leave_to_parent(self.limits)
        self.limits = {}


_shared = _Shared()


def shared_limits(base_url: str, key: Key, *, clock: Clock) -> RateLimits:
    """Return the rate limits of a key at an address, shared in this process."""
    digest = key.digest(base_url)
    place = (base_url, digest, clock)
    if (found := _shared.limits.get(place)) is not None:
        return found
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only this clock shows the same time in every kernel.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{(base_url, digest)}\n{model}", clock=clock)

    return _shared.limits.setdefault(
        place, RateLimits(clock=clock, others_of=others_of)
    )

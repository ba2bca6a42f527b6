"""Decides when a model's next request may be sent (doc: Rate limits per model).

Nothing here sleeps. `rate_windows` keeps the limits; `Refusals` decides what a 429
means, and what the limits are if nobody knows them; `Concurrency` finds how many
requests may be in flight.
"""

import os
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from threading import Lock

from svc_notebook.credentials import Key
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.fork import Forkable, leave_to_parent
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.settings import default_ledger

from .adaptive_limit import Concurrency
from .rate_windows import (
    MARGIN_S,
    MINUTE_S,
    SECOND_S,
    UNLIMITED,
    Clock,
    Quota,
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
        before: `per_second` before the newest one that taught it.
        is_odd: Whether the newest one came though the learnt rate was kept. If the next
            request is accepted, it was for the number of requests in flight, and
            the rate was learnt by mistake: `if_odd` is the one before.
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
    is_odd: bool = False
    if_odd: int = UNLIMITED
    n_calm: int = 0

    def refused(
        self,
        *,
        sent_s: float,
        now_s: float,
        retry_after_s: float | None,
        is_odd: bool = False,
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
            is_odd=is_odd,
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
        if self.is_odd and not is_minute_full:
            return replace(
                self, is_settled=True, before=self.per_second, if_odd=self.before
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
        closed = replace(self, is_settled=True, is_odd=False, closed_until_s=until_s)
        if not minute:  # somebody else filled it
            return closed
        # it was not the second that was full
        return replace(closed, per_second=self.before, per_minute=len(minute))

    def answered(self, now_s: float, *, sent_s: float) -> "Refusals":
        """Return the state after a request that was not refused."""
        if self.is_odd and self.is_settled and sent_s > self.newest_s:
            most = self.if_odd
            return replace(self, is_odd=False, per_second=most, before=most)
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

    @property
    def limit(self) -> Limit:
        """What was learnt, as a limit."""
        second, minute = (
            None if most == UNLIMITED else most
            for most in (self.per_second, self.per_minute)
        )
        return Limit(per_second=second, per_minute=minute)


def _most_in_a_second(times_s: Sequence[float]) -> int:
    ends = (bisect_left(times_s, at_s + SECOND_S) for at_s in times_s)
    return max((end - at for at, end in enumerate(ends)), default=0)


NO_LIMIT = Limit(per_second=None, per_minute=None)
KEPT_EVERY_S = 1.0  # writing the file takes a millisecond or two
PLACE_S = 0.5  # nobody knows when a place becomes free; this is for people


class RateLimiter:
    """Decides when the next request of one model may be sent.

    Its `limit` is the known one, or what 429s have shown of it. If nothing is known of
    the requests in flight either, their level is found: see `Concurrency`. `others` is
    the count shared with other kernels.
    """

    def __init__(
        self,
        model: str,
        limit: Limit | None,
        *,
        clock: Clock,
        others: Quota | None = None,
    ) -> None:
        self.refusals = Refusals()
        self._model = model
        self._clock = clock
        self._is_known = limit is not None
        self._concurrency = Concurrency() if limit in {None, NO_LIMIT} else None
        self._others = others if self._concurrency else None
        self._kept_s = -inf
        self._kept = NO_LIMIT
        self.limit = limit or NO_LIMIT
        if self._others and (found := self._others.found()):
            self._begin_with(found)
        self._windows = Windows(
            self.limit, clock=clock, others=others if self._is_known else None
        )
        self._n_placed = 0
        self._waiting: OrderedDict[Slot, None] = OrderedDict()  # for a place
        self._lock = Lock()

    @property
    def in_flight(self) -> int | None:
        """Most requests in flight now; None if their number is not limited."""
        found = self._concurrency
        return self.limit.in_flight if found is None else found.level

    @property
    def found(self) -> Limit | None:
        """What was found of limits that are not known; None if nothing was."""
        concurrency = self._concurrency
        if concurrency is None:
            return None
        windows = NO_LIMIT if self._is_known else self.limit
        found = replace(windows, in_flight=concurrency.found)
        return None if found == NO_LIMIT else found

    def reserve(self, *, is_own: bool = False) -> Slot:
        """Take a place in the model's queue.

        `is_own` is for a caller that limits its requests in flight itself: the level
        that was found does not hold it up.
        """
        slot = self._windows.reserve()
        slot.is_own = is_own
        return slot

    def try_pass(self, slot: Slot, *, patience_s: float = inf) -> Waiting:
        """Let a place's request go now, or return how long it has to wait, and why.

        Ask again after waiting: a request in front may have gone out late, which moves
        the ones behind it. If a 429 closed the model for longer than `patience_s`, the
        request goes out anyway, and the caller gets the service's own answer at once.
        """
        closed = self._closed()
        if 0 < closed.wait_s <= patience_s:
            self._free(slot)
            return closed
        if (full := self._full(slot)) is not None:
            return full
        due = self._windows.try_pass(slot)
        if due.wait_s > 0:
            self._free(slot)  # those that may go before it need the place
        elif self._concurrency:
            with self._lock:
                slot.out_s = self._clock()
                self._concurrency = self._concurrency.began(slot.out_s)
        return self._named(due)

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
        self._leave(slot, Concurrency.ended)

    def refused(self, slot: Slot, *, retry_after_s: float | None) -> None:
        """Note a 429: the place is free again, and the model closed for a while."""
        self._windows.give_back(slot)
        with self._lock:
            before, now_s = self.refusals, self._clock()
            is_odd = not self._is_for_rate(now_s)
            self.refusals = before.refused(
                sent_s=slot.at_s,
                now_s=now_s,
                retry_after_s=retry_after_s,
                is_odd=is_odd,
            )
            is_new = self.refusals.newest_s != before.newest_s
        if is_odd and is_new:
            self.overloaded(slot)
        else:
            self._leave(slot, Concurrency.ended)

    def overloaded(self, slot: Slot) -> None:
        """Note that the server could not take the request (503)."""
        # not when it was written: what was let out together is refused together
        self._leave(slot, partial(Concurrency.refused, sent_s=slot.out_s or 0.0))

    def answered(self, slot: Slot) -> None:
        """Note a reply."""
        with self._lock:
            answered = self.refusals.answered
            self._learn(answered(self._clock(), sent_s=slot.at_s))
        self._leave(slot, Concurrency.answered)

    def failed(self, slot: Slot) -> None:
        """Note that a request that was sent ended in another way."""
        self._leave(slot, Concurrency.ended)

    def _is_for_rate(self, now_s: float) -> bool:
        """Say whether a 429 was probably not for the number of requests in flight.

        The first one teaches how many a second are allowed. When another comes though
        fewer were sent in the last second, there were too many at once.
        """
        if self._is_known or self.limit.per_second is None:
            return self._concurrency is None or not self._is_known
        sent_s = self._windows.sent_s()
        n_sent = len(sent_s) - bisect_left(sent_s, now_s - SECOND_S)
        return n_sent + 1 >= self.limit.per_second  # with the one that was refused

    def _full(self, slot: Slot) -> Waiting | None:
        """Take a place among the requests in flight; return the wait for one."""
        with self._lock:
            most = self.in_flight
            if slot.has_place or most is None:
                return None
            is_own = slot.is_own and self._concurrency is not None
            if is_own or self._n_placed < most:
                slot.has_place = True
                self._n_placed += 1
                return None
            self._waiting.setdefault(slot)
            reason = f"{most} requests to {self._model} are in flight"
            return Waiting(PLACE_S, reason, is_for_place=True)

    def _leave(
        self, slot: Slot, then: Callable[[Concurrency, float], Concurrency]
    ) -> None:
        """End a request, which says something about the requests in flight."""
        self._free(slot, then)
        self._keep(self._clock())

    def _free(
        self,
        slot: Slot,
        then: Callable[[Concurrency, float], Concurrency] = Concurrency.ended,
    ) -> None:
        """Free the place of a request, and hand free places to those that wait.

        A place is only for a request in flight, or one that is about to go: one that
        waits for anything else could wait for those that wait for its place.
        """
        with self._lock:
            if not slot.has_place:
                self._waiting.pop(slot, None)
                return
            slot.has_place = False
            self._n_placed -= 1
            if self._concurrency and slot.out_s is not None:
                self._concurrency = then(self._concurrency, self._clock())
                slot.out_s = None
            woken = []
            while self._waiting and self._n_placed < (self.in_flight or UNLIMITED):
                first, _ = self._waiting.popitem(last=False)
                woken.append(first)
                first.has_place = True  # nobody else gets it meanwhile
                self._n_placed += 1
        for each in woken:
            if wake := each.wake:
                wake()

    def _begin_with(self, found: Limit) -> None:
        """Begin with what this or another kernel has found in the last hour."""
        if found.in_flight:
            self._concurrency = Concurrency.at(found.in_flight)
        if not self._is_known:
            self.limit = replace(found, in_flight=None)
            per_second = found.per_second or UNLIMITED
            self.refusals = Refusals(
                per_second=per_second,
                per_minute=found.per_minute or UNLIMITED,
                before=per_second,
                closed_until_s=self._clock(),
            )

    def _keep(self, now_s: float) -> None:
        """Keep what was found, for other kernels, if it is new."""
        if self._others is None or now_s < self._kept_s + KEPT_EVERY_S:
            return
        self._kept_s = now_s
        if (found := self.found) is not None and found != self._kept:
            self._kept = found
            self._others.keep_found(found)

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
            self.limit = refusals.limit
            self._windows.allow(self.limit)

    def _named(self, due: Waiting) -> Waiting:
        kind = "" if self._is_known else "estimated "
        return Waiting(
            due.wait_s, due.reason and f"{kind}{due.reason} of {self._model}"
        )


class RateLimits:
    """The rate limiters of one key at one address, by model.

    `limit_of` returns the known limit of a model, None if it has to be found;
    `others_of` returns the count that other kernels share; None without one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_of: Callable[[str], Limit | None] = limit_of,
        others_of: Callable[[str], Quota | None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._others_of = others_of
        self._lock = Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def of(self, model: str) -> RateLimiter:
        """Return the limiter of a model."""
        with self._lock:
            if model not in self._limiters:
                self._limiters[model] = RateLimiter(
                    model,
                    self._limit_of(model),
                    clock=self._clock,
                    others=self._others_of(model),
                )
            return self._limiters[model]


class _Shared(Forkable):
    """The rate limits of this process."""

    def __init__(self) -> None:
        self.limits: dict[tuple[object, ...], RateLimits] = {}
        self.watch_forks()

    def after_in_child(self) -> None:
        """Begin with new ones: a lock may have been held at the fork."""
        leave_to_parent(self.limits)
        self.limits = {}


_shared = _Shared()


def shared_limits(
    base_url: str, key: Key, *, clock: Clock, endpoint: Endpoint = SERVICE
) -> RateLimits:
    """Return the rate limits of a key at an address, shared in this process."""
    digest = key.digest(base_url)
    # limits that were changed in the file apply at once
    place = (base_url, digest, clock, endpoint.models, endpoint.limit)
    if (found := _shared.limits.get(place)) is not None:
        return found
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only this clock shows the same time in every kernel.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{(base_url, digest)}\n{model}", clock=clock)

    return _shared.limits.setdefault(
        place,
        RateLimits(clock=clock, limit_of=endpoint.limit_of, others_of=others_of),
    )

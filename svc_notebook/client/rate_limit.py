"""Decides when a model's next request may be sent (doc: Rate limits per model).

A documented limit is kept by sliding windows (`rate_windows`); a limit that is not
documented is learnt by AIMD (`aimd`). In both cases a 429 closes the model for a while.
So a request waits until its model is open, it has a place among the requests in flight,
and the windows have room. If a 429 closed the model for longer than `patience_s`, the
request is sent anyway. Nothing here sleeps.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from threading import Lock

from svc_notebook.credentials import Key
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.fork import Forkable, leave_to_parent
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.settings import default_ledger

from .aimd import Concurrency, LearntLimits
from .clock import Clock
from .rate_windows import (
    MINUTE_S,
    NO_LIMIT,
    UNLIMITED,
    QuotaStore,
    Room,
    SharedQuota,
    Slot,
    Waiting,
    Windows,
)
from .retry import Refusals

# Nobody knows when a request in flight ends; this estimate is only shown to people.
PLACE_S = 0.5


class RateLimiter:
    """Decides when the next request of one model may be sent.

    It has two callers. `ExchangeTask` calls it for every request: it reserves a slot
    and waits until the slot may pass. The `Scheduler` of a run waits before that: it
    reads `due`, which takes no slot, so that it starts a trial only when its request
    can be sent, and so that a paused run starts none. The limits that a user sets for
    one run are the scheduler's own: windows, and the most requests in flight.

    `limit` is the documented limit, or the one learnt from 429s. `others` is the count
    shared with other kernels.
    """

    def __init__(
        self,
        model: str,
        limit: Limit | None,
        *,
        clock: Clock,
        others: QuotaStore | None = None,
    ) -> None:
        self.refusals = Refusals()
        self.limit = limit or NO_LIMIT
        self._model = model
        self._clock = clock
        self._is_known = limit is not None
        self._learnt: LearntLimits | None = None
        if limit in {None, NO_LIMIT}:
            self._learnt = LearntLimits(learns_rate=not self._is_known, store=others)
        if self._learnt and self._learnt.rate.limit != NO_LIMIT:
            self.limit = self._learnt.rate.limit  # as another kernel has learnt it
            self.refusals = Refusals(closed_until_s=clock())
        self._windows = Windows(
            self.limit, clock=clock, others=others if self._is_known else None
        )
        self._n_placed = 0
        self._waiting: OrderedDict[Slot, None] = OrderedDict()  # for a place
        self._lock = Lock()

    @property
    def in_flight(self) -> int | None:
        """Most requests in flight now; None if their number is not limited."""
        learnt = self._learnt
        return self.limit.in_flight if learnt is None else learnt.concurrency.level

    @property
    def met_limit(self) -> Limit | None:
        """The limits that were met; None if none was, or if they are documented."""
        return self._learnt.met_limit if self._learnt else None

    def reserve(self, *, is_own: bool = False) -> Slot:
        """Take a slot in the model's queue.

        `is_own` says that the caller limits its requests in flight itself, so that the
        learnt number does not hold it up.
        """
        slot = self._windows.reserve()
        slot.is_own = is_own
        return slot

    def try_pass(self, slot: Slot, *, patience_s: float = inf) -> Waiting:
        """Let a slot's request go now, or return how long it has to wait, and why.

        Call it again after the wait: if an earlier request was sent late, the wait gets
        longer. If a 429 closed the model for longer than `patience_s`, the request is
        sent anyway, so that the caller gets the service's own answer at once.
        """
        closed = self._closed_wait()
        if 0 < closed.wait_s <= patience_s:
            self._free(slot)
            return closed
        if (place_wait := self._take_place(slot)) is not None:
            return place_wait
        due = self._windows.try_pass(slot)
        if due.wait_s > 0:
            self._free(slot)  # requests that may be sent earlier need the place
        elif self._learnt:
            with self._lock:
                slot.out_s = self._clock()
                self._learnt.concurrency = self._learnt.concurrency.began(slot.out_s)
        return self._with_model_name(due)

    def due(self) -> Waiting:
        """Return how long a request would have to wait now; no slot is taken."""
        closed = self._closed_wait()
        return (
            closed if closed.wait_s > 0 else self._with_model_name(self._windows.due())
        )

    def room(self) -> Room | None:
        """Return how many requests may be sent now; None if no limit is known."""
        return self._windows.room() if self._is_known else None

    def held_s(self) -> Sequence[float]:
        """Return when the requests in the windows were sent: see `Windows.held_s`."""
        return self._windows.held_s() if self._is_known else ()

    def sent(self, slot: Slot) -> None:
        """Note that a slot's request is being written now."""
        self._windows.sent(slot)

    def give_back(self, slot: Slot) -> None:
        """Free a slot whose request was not sent."""
        self._windows.give_back(slot)
        self._leave(slot, Concurrency.ended)

    def refused(
        self, slot: Slot, *, retry_after_s: float | None, spread: float = 0.0
    ) -> float:
        """Note a 429: the slot is free again, and the model is closed for a while.

        `spread`, from 0 to 1, lengthens our own wait. Return the seconds it is closed.
        """
        self._windows.give_back(slot)  # the service does not count what it refuses
        is_for_concurrency = False
        with self._lock:
            before, now_s = self.refusals, self._clock()
            self.refusals = before.refused(
                sent_s=slot.at_s,
                now_s=now_s,
                retry_after_s=retry_after_s,
                spread=spread,
            )
            closed_s = self.refusals.closed_until_s - now_s
            if self._learnt and self.refusals.newest_s != before.newest_s:
                sent_s = self._windows.sent_s()
                is_for_concurrency = self._learnt.refused(now_s, sent_s)
        if is_for_concurrency:
            self.overloaded(slot)
        else:
            self._leave(slot, Concurrency.ended)
        return closed_s

    def overloaded(self, slot: Slot) -> None:
        """Note that the server could not take the request (503)."""
        # when it was let out, not written: such requests are refused together
        self._leave(slot, partial(Concurrency.refused, sent_s=slot.out_s or 0.0))

    def answered(self, slot: Slot) -> None:
        """Note a reply."""
        if self._learnt:
            with self._lock:
                self._learnt.answered(
                    self._clock(),
                    sent_s=slot.at_s,
                    refused_s=self.refusals.newest_s,
                    closed_until_s=self.refusals.closed_until_s,
                )
                self._allow_learnt()
        self._leave(slot, Concurrency.answered)

    def failed(self, slot: Slot) -> None:
        """Note that a sent request ended without a reply, a 429 or a 503."""
        self._leave(slot, Concurrency.ended)

    def _take_place(self, slot: Slot) -> Waiting | None:
        """Take a place among the requests in flight; None if taken, else the wait."""
        with self._lock:
            most = self.in_flight
            if slot.has_place or most is None:
                return None
            is_own = slot.is_own and self._learnt is not None
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
        """End a request; `then` updates the learnt number of requests in flight."""
        self._free(slot, then)
        if self._learnt:
            self._learnt.keep(self._clock())

    def _free(
        self,
        slot: Slot,
        then: Callable[[Concurrency, float], Concurrency] = Concurrency.ended,
    ) -> None:
        """Free the place of a request, and hand free places to waiting requests.

        Only a request that is in flight or is about to be sent has a place. If one kept
        its place while it waits for its window, it could block the very requests that
        it waits for.
        """
        with self._lock:
            if not slot.has_place:
                self._waiting.pop(slot, None)
                return
            slot.has_place = False
            self._n_placed -= 1
            if self._learnt and slot.out_s is not None:
                state = then(self._learnt.concurrency, self._clock())
                self._learnt.concurrency = state
                slot.out_s = None
            woken = []
            while self._waiting and self._n_placed < (self.in_flight or UNLIMITED):
                first, _ = self._waiting.popitem(last=False)
                woken.append(first)
                first.has_place = True  # so that no other request takes it meanwhile
                self._n_placed += 1
        for waiter in woken:  # outside the lock: it runs the caller's code
            if wake := waiter.wake:
                wake()

    def _closed_wait(self) -> Waiting:
        """Return how long the model is closed by a 429."""
        with self._lock:
            now_s = self._clock()
            newest = self.refusals
            if not newest.is_settled and now_s >= newest.closed_until_s:
                self._settle()
            wait_s = self.refusals.closed_until_s - now_s
        return Waiting(wait_s, f"{self._model} refuses more requests for now (429)")

    def _settle(self) -> None:
        """Evaluate the newest 429 before the model opens again.

        By then, the answers to requests sent at the same time have arrived.
        """
        newest = self.refusals
        sent_s = self._windows.sent_s()
        minute_s = [at_s for at_s in sent_s if at_s > newest.sent_s - MINUTE_S]
        if self._learnt:
            is_full = newest.is_minute_full(minute_s, is_known=self._is_known)
            self._learnt.settled(
                minute_s,
                refused_s=newest.sent_s,
                is_minute_full=is_full,
                is_repeated=newest.is_repeated(minute_s),
            )
            self._allow_learnt()
        self.refusals = newest.settled(minute_s, is_known=self._is_known)

    def _allow_learnt(self) -> None:
        """Apply the learnt limits to the windows."""
        if self._learnt and not self._is_known:
            learnt = self._learnt.rate.limit
            if learnt != self.limit:
                self.limit = learnt
                self._windows.allow(learnt)

    def _with_model_name(self, due: Waiting) -> Waiting:
        kind = "" if self._is_known else "estimated "
        return Waiting(
            due.wait_s, due.reason and f"{kind}{due.reason} of {self._model}"
        )


class RateLimits:
    """The rate limiters of one key at one address, by model.

    `limit_of` returns the documented limit of a model, None if it has to be learnt;
    `others_of` returns the count shared with other kernels, None without one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_of: Callable[[str], Limit | None] = limit_of,
        others_of: Callable[[str], QuotaStore | None] = lambda _: None,
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
        """Begin with new limiters: at the fork, another thread may have held a lock."""
        leave_to_parent(self.limits)
        self.limits = {}


_shared = _Shared()


def shared_limits(
    base_url: str, key: Key, *, clock: Clock, endpoint: Endpoint = SERVICE
) -> RateLimits:
    """Return the rate limits of a key at an address, shared in this process."""
    digest = key.digest(base_url)
    # with the limits in it, a change in the user's file applies at once
    quota_key = (base_url, digest, clock, endpoint.models, endpoint.limit)
    if (limits := _shared.limits.get(quota_key)) is not None:
        return limits
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only the monotonic clock shows the same time in every kernel of a machine.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{(base_url, digest)}\n{model}", clock=clock)

    return _shared.limits.setdefault(
        quota_key,
        RateLimits(clock=clock, limit_of=endpoint.limit_of, others_of=others_of),
    )

"""One rate limit for several machines: `QuotaLeases` leases its slots, in blocks.

Each machine's limiter uses a `LeasedQuota` as its store and lets a request go when it
has leased a slot. How the two exchange messages is up to the caller.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from math import inf
from secrets import randbits

from svc_notebook.exchange import Exchange
from svc_notebook.service.catalogue import Limit

from .rate_windows import (
    FLIGHT_S,
    MARGIN_S,
    MINUTE_S,
    NO_LIMIT,
    Slot,
    Waiting,
    Window,
    Windows,
)

Leased = tuple[list[int], float]
"""The numbers of the leased slots, and the seconds to wait before asking for more."""
SendAges = Mapping[str, Sequence[float]]
"""For each model, how many seconds ago the requests of the last minute were sent."""

LONGEST_S = 600.0  # requests that began earlier are not searched in a ledger
USE_S = 5.0  # a leased slot can be used for so long after it was asked for
TALK_S = 0.02  # everything that happens within this time is reported in one call
AGAIN_S = 1.0  # a worker asks again after this, as another may have given slots back


def sent_lately(
    exchanges: Iterable[Exchange], *, base_url: str, now: datetime
) -> dict[str, list[float]]:
    """Return how many seconds ago requests were sent, by model, in the last minute.

    The times are the latest possible ones: a request without a reply may have been sent
    just before it ended, and each of several tries as late as the last one. Requests
    that were refused with a 429 are not counted.
    """
    history = defaultdict[str, list[float]](list)
    for exchange in exchanges:
        if exchange.endpoint == base_url and not exchange.is_reused:
            took_s = (exchange.latency_s or 0.0) if exchange.status == "ok" else 0.0
            age_s = (now - exchange.ended_at).total_seconds() + took_s
            if age_s < MINUTE_S + MARGIN_S:
                n_sent = exchange.n_attempts - exchange.n_refused
                history[exchange.request.model] += [max(age_s, 0.0)] * n_sent
    return history


class QuotaLeases:
    """Leases the slots of each model's windows to workers, in blocks.

    `history` holds when requests were sent before this began. If `is_restarted`, it
    replaces a process that died, and leases nothing until `recall` has told it what was
    sent under that process.

    A leased slot counts as sent now, until its worker reports when it was sent. If the
    worker died before, the slot counts as sent when its lease ended.
    """

    def __init__(
        self,
        limit_of: Callable[[str], Limit | None],
        *,
        history: SendAges | None = None,
        is_restarted: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._windows: dict[str, Windows] = {}  # by model, made at its first request
        # random start: workers may still give back slots of the process that died
        self._numbers = count(randbits(62))
        self._leased: dict[int, tuple[float, int, str, Slot]] = {}
        # Which slots the process that died had leased is not known. They may be used
        # for USE_S more; without a `recall`, the limit is free a minute after that.
        self._usable_s = clock() + USE_S + MARGIN_S if is_restarted else -inf
        self._closed_until_s = self._usable_s + MINUTE_S
        if not is_restarted:
            self._count(history or {})

    def has_forgotten(self) -> bool:
        """Say whether it waits for `recall` before it leases slots again.

        By then, leases of the process that died have ended.
        """
        return self._usable_s <= self._clock() < self._closed_until_s

    def recall(self, history: SendAges) -> None:
        """Count the requests sent before the restart, and lease again."""
        if self.has_forgotten():
            self._closed_until_s = -inf
            self._count(history)

    def _count(self, history: SendAges) -> None:
        now_s = self._clock()
        for model, ages_s in history.items():
            self._windows_of(model).count(now_s - age_s for age_s in ages_s)

    def lease(
        self,
        worker: int,
        model: str,
        n: int,
        sent: Sequence[int],
        unused: Sequence[int],
    ) -> Leased:
        """Lease up to `n` slots; `sent` and `unused` report on slots leased before."""
        now_s = self._clock()
        self._end_old_leases(now_s)
        windows = self._windows_of(model)
        for number in sent:
            if number in self._leased:
                windows.sent(self._leased[number][3])
        for number in unused:
            if number in self._leased:
                windows.give_back(self._leased.pop(number)[3])
        if now_s < self._closed_until_s:
            return [], self._closed_until_s - now_s
        granted: list[int] = []
        while len(granted) < n:
            slot = windows.reserve()
            if (due := windows.try_pass(slot)).wait_s > 0:
                windows.give_back(slot)
                return granted, due.wait_s
            number = next(self._numbers)
            self._leased[number] = now_s, worker, model, slot
            granted.append(number)
        return granted, 0.0

    def _windows_of(self, model: str) -> Windows:
        if model not in self._windows:
            limit = self._limit_of(model) or NO_LIMIT
            self._windows[model] = Windows(limit, clock=self._clock)
        return self._windows[model]

    def end(self, worker: int) -> None:
        """End the leases of a worker that died; their slots count as sent."""
        for _, owner, model, slot in self._leased.values():
            if owner == worker and not slot.is_sent:
                self._windows[model].sent(slot)

    def _end_old_leases(self, now_s: float) -> None:
        """Drop leases older than `FLIGHT_S`; unreported slots count as sent now."""
        while self._leased:
            number, (leased_s, _, model, slot) = next(iter(self._leased.items()))
            if now_s < leased_s + FLIGHT_S:
                return
            if not slot.is_sent:
                self._windows[model].sent(slot)
            del self._leased[number]


class LeasedQuota:
    """A worker's leased slots of one model: the `QuotaStore` of its limiter.

    Attributes:
        n_open: Requests of the worker that have not ended.
    """

    stamp_s = -inf  # report every request: `QuotaLeases` has another clock

    def __init__(
        self,
        lease: Callable[[int, list[int], list[int]], Awaitable[Leased]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.n_open = 0
        self._lease = lease
        self._clock = clock
        self._n_out = 0  # open requests that have their slot
        self._free: deque[tuple[int, float]] = deque()  # slots, and when they expire
        self._sent: list[int] = []
        self._unused: list[int] = []
        self._is_short = False
        self._again_s = -inf
        self._report_task: asyncio.Task[None] | None = None

    def take(self, now_s: float, windows: Sequence[Window]) -> Waiting | int | None:
        """Return the number of a slot, or the wait for one."""
        while self._free:
            slot, until_s = self._free.popleft()
            if now_s < until_s:
                self._n_out += 1
                return slot
            self._unused.append(slot)
        self._is_short = True
        if now_s >= self._again_s:
            self._begin_report()
        return Waiting(max(self._again_s - now_s, TALK_S), windows[-1].name)

    def end(self) -> None:
        """Note that a request has ended."""
        self.n_open -= 1
        self._n_out = min(max(self._n_out - 1, 0), self.n_open)

    def times(self) -> Sequence[float]:
        """Return nothing: only `QuotaLeases` knows."""
        return ()

    def stamp(self, ticket: int, _: float) -> None:
        """Note that a request is being sent."""
        self._sent.append(ticket)
        self._begin_report()

    def drop(self, ticket: int) -> None:
        """Give a slot back."""
        self._unused.append(ticket)
        self._begin_report()

    def learnt_limit(self) -> Limit | None:
        """Return None: leased limits are documented."""
        return None

    def keep_learnt_limit(self, limit: Limit) -> None:
        """Do nothing: leased limits are documented."""

    def _begin_report(self) -> None:
        if self._report_task is None or self._report_task.done():
            self._report_task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        """Report on slots and lease more; events of `TALK_S` share one call."""
        await asyncio.sleep(TALK_S)
        while self._is_short or self._sent or self._unused:
            n_waiting = self.n_open - self._n_out - len(self._free)
            n = max(n_waiting, 1) if self._is_short and self.n_open else 0
            sent, self._sent = self._sent, []
            unused, self._unused = self._unused, []
            self._is_short = False
            asked_s = self._clock()
            try:
                granted, wait_s = await self._lease(n, sent, unused)
            except Exception:  # noqa: BLE001 - the other side is being restarted
                self._sent, self._unused = sent + self._sent, unused + self._unused
                self._is_short, granted, wait_s = True, [], AGAIN_S
            self._free.extend((slot, asked_s + USE_S) for slot in granted)
            self._again_s = self._clock() + min(wait_s, AGAIN_S)
            await asyncio.sleep(max(min(wait_s, AGAIN_S), TALK_S))
            if not self.n_open:  # nobody needs them any more
                self._unused.extend(slot for slot, _ in self._free)
                self._free.clear()

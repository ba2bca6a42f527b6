"""Requests allowed per second and per minute (doc: Rate limits per model).

What it is not: it does not sleep. Rules: a slot is taken at once, in one step, so
that no two callers get the same one; the windows slide, because nothing in the
document says that they begin at full seconds; a request counts from when its bytes
were written, because one that had to connect first arrives late and one that did not
arrives at once; a margin stands between ours and the service's clock; a slot that was
not used up is given back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias

from svc_notebook.service.catalogue import Limit, limit_of

Clock: TypeAlias = Callable[[], float]

MARGIN_S = 0.08
SECOND_S = 1.0
MINUTE_S = 60.0
STAMP_S = 0.01  # a smaller delay is within the margin, and telling costs time
FLIGHT_S = 30.0  # who was let out so long ago has been sent, told or not


class Window(NamedTuple):
    """So many requests in so many seconds, and what that is called."""

    n_allowed: int
    length_s: float
    name: str


@dataclass(slots=True, eq=False)
class Slot:
    """A place in the queue of one model.

    Attributes:
        at_s: When its request may be sent, by the clock; then when it was.
        is_out: Whether it was let out.
        is_sent: Whether its request was written since.
        ticket: Its mark in the count that kernels share; None if they share none.
    """

    at_s: float
    is_out: bool = False
    is_sent: bool = False
    ticket: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """How long a slot has to wait still, and for what."""

    wait_s: float
    reason: str = ""


class Room(NamedTuple):
    """How many requests may still be sent now, in each window."""

    in_second: int
    in_minute: int


class Others(Protocol):
    """What the other kernels of this machine sent, with the same key."""

    def times(self) -> Sequence[float]:
        """Return when the requests of the last minute were sent, by all kernels."""

    def take(self, now_s: float, windows: Sequence[Window]) -> Due | int | None:
        """Count a request that is let out now, or say how long it has to wait.

        Returns:
            The wait; or the request's ticket; or None if nothing can be shared.
        """

    def stamp(self, ticket: int, at_s: float) -> None:
        """Note when a request was really sent."""

    def drop(self, ticket: int) -> None:
        """Count a request no longer."""


class Windows:
    """Allow at most so many requests in any second and in any minute.

    Args:
        per_second: Most requests in any 1 s.
        per_minute: Most requests in any 60 s.
        clock: Seconds that only grow.
        margin_s: Added to each window.
        others: The count shared with other kernels, if there is one.
    """

    def __init__(
        self,
        *,
        per_second: int,
        per_minute: int,
        clock: Clock,
        margin_s: float = MARGIN_S,
        others: Others | None = None,
    ) -> None:
        self._windows = (
            Window(per_minute, MINUTE_S + margin_s, "per-minute limit"),
            Window(per_second, SECOND_S + margin_s, "per-second limit"),
        )
        self._others = others
        self._held_until_s, self._held_by = float("-inf"), ""
        self._keep_s = MINUTE_S + margin_s
        self._clock = clock
        self._lock = Lock()
        self._slots: list[Slot] = []

    def reserve(self) -> Slot:
        """Take the next free slot; `try_pass` says how long it has to wait."""
        with self._lock:
            now_s = self._clock()
            self._drop_old(now_s)
            slot = Slot(now_s)
            self._slots.append(slot)
            slot.at_s = max(now_s, self._earliest(len(self._slots) - 1, now_s)[0])
            return slot

    def try_pass(self, slot: Slot) -> Due:
        """Let a slot's request out if it may go now, or say how long it has to wait.

        Who was let out says `sent` when its request is written, or gives the slot
        back. Ask again after waiting: a request in front may have gone out late,
        which moves the ones behind it.
        """
        with self._lock:
            now_s = self._clock()
            # Who could have gone and has not is behind all who went.
            self._slots.sort(key=lambda each: (_gone_s(each, now_s), not each.is_out))
            at_s, reason = self._earliest(self._slots.index(slot), now_s)
            slot.at_s = max(slot.at_s, at_s)
            if slot.at_s > now_s:
                return Due(slot.at_s - now_s, reason)
            due = self._ask_others(slot, now_s)
            if due.wait_s <= 0:
                slot.at_s, slot.is_out = now_s, True
            return due

    def sent(self, slot: Slot) -> None:
        """Note that a slot's request is being written now."""
        with self._lock:
            late_s = self._clock() - slot.at_s
            slot.at_s += late_s
            slot.is_sent = True
        if self._others and slot.ticket is not None and late_s > STAMP_S:
            self._others.stamp(slot.ticket, slot.at_s)

    def give_back(self, slot: Slot) -> None:
        """Free a slot whose request was not sent, or was refused."""
        with self._lock:
            if slot in self._slots:
                self._slots.remove(slot)
            ticket, slot.ticket = slot.ticket, None
        if self._others and ticket is not None:
            self._others.drop(ticket)

    def room(self) -> Room:
        """Say how many requests may still be sent now, by what all kernels sent."""
        others = self._others.times() if self._others else ()
        with self._lock:
            now_s = self._clock()
            own = [_gone_s(slot, now_s) for slot in self._slots]
        minute, second = (
            window.n_allowed
            - max(_n_in(window, own, now_s), _n_in(window, others, now_s))
            for window in self._windows
        )
        return Room(max(second, 0), max(minute, 0))

    def _ask_others(self, slot: Slot, now_s: float) -> Due:
        if self._others is None:
            return Due(0.0)
        if now_s < self._held_until_s:  # known already, and asking costs time
            return Due(self._held_until_s - now_s, self._held_by)
        found = self._others.take(now_s, self._windows)
        if isinstance(found, Due):
            self._held_until_s, self._held_by = now_s + found.wait_s, found.reason
            return found
        slot.ticket = found
        return Due(0.0)

    def _earliest(self, at: int, now_s: float) -> tuple[float, str]:
        """Return when the slot at this position may be sent, and what holds it."""
        earliest_s, reason = float("-inf"), ""
        for n_allowed, length_s, name in self._windows:
            if at < n_allowed:
                continue
            gone_s = _gone_s(self._slots[at - n_allowed], now_s)
            if gone_s + length_s > earliest_s:
                earliest_s, reason = gone_s + length_s, name
        return earliest_s, reason

    def _drop_old(self, now_s: float) -> None:
        """Forget what no window reaches back to; slots still waiting stay."""
        n_old = 0
        for slot in self._slots:
            if slot.at_s + self._keep_s > now_s or not slot.is_out:
                break
            n_old += 1
        del self._slots[:n_old]


def _n_in(window: Window, times_s: Sequence[float], now_s: float) -> int:
    return sum(at_s + window.length_s > now_s for at_s in times_s)


def _gone_s(slot: Slot, now_s: float) -> float:
    """Return when a request went out, at the earliest, as far as can be known now."""
    is_known = slot.is_sent or (slot.is_out and now_s > slot.at_s + FLIGHT_S)
    return slot.at_s if is_known else max(slot.at_s, now_s)


MAX_CLOSED_S = 60.0
_FIRST_GAP_S = 0.2
_MAX_GAP_S = 12.0
_N_CALM = 20


class RateLimiter:
    """What one request of a model has to pass before it is sent.

    Args:
        model: Id of the model.
        limit: Its limit, None where none is shown.
        clock: Seconds that only grow.
        others: The count shared with other kernels, if there is one.
    """

    def __init__(
        self,
        model: str,
        limit: Limit | None,
        *,
        clock: Clock,
        others: Others | None = None,
    ) -> None:
        self._model = model
        self._clock = clock
        self._windows = limit and Windows(
            per_second=limit.per_second,
            per_minute=limit.per_minute,
            clock=clock,
            others=others,
        )
        self._lock = Lock()
        self._closed_until_s = float("-inf")
        self._gap_s = 0.0
        self._free_at_s = float("-inf")
        self._careful_since_s = float("-inf")
        self._n_calm = 0

    def reserve(self) -> Slot:
        """Take a place in the model's queue."""
        if self._windows:
            return self._windows.reserve()
        with self._lock:
            slot = Slot(max(self._clock(), self._free_at_s))
            self._free_at_s = slot.at_s + self._gap_s
            return slot

    def try_pass(self, slot: Slot) -> Due:
        """Let a place's request out now, or say how long it has to wait, for what."""
        closed_s = self._closed_until_s - self._clock()
        if closed_s > 0:
            return Due(closed_s, f"rate limit of {self._model}")
        if self._windows:
            due = self._windows.try_pass(slot)
            return Due(due.wait_s, f"{due.reason} of {self._model}")
        wait_s = self._place_anew(slot) - self._clock()
        if wait_s > 0:
            return Due(wait_s, f"caution after a refusal of {self._model}")
        slot.is_out = True
        return Due(0.0)

    def sent(self, slot: Slot) -> None:
        """Note that a place's request is being written now."""
        if self._windows:
            self._windows.sent(slot)

    def _place_anew(self, slot: Slot) -> float:
        """Return when a place may go; who waited behind a refusal goes one by one."""
        with self._lock:
            if self._gap_s and slot.at_s < self._careful_since_s:
                slot.at_s = max(self._clock(), self._free_at_s)
                self._free_at_s = slot.at_s + self._gap_s
            return slot.at_s

    def due(self) -> Due:
        """Say how long a place taken now would have to wait; none is taken."""
        slot = self.reserve()
        try:
            return self.try_pass(slot)
        finally:
            self.give_back(slot)

    def room(self) -> Room | None:
        """Say how many requests may still be sent now; None where no limit is known."""
        return self._windows.room() if self._windows else None

    def give_back(self, slot: Slot) -> None:
        """Free a place whose request was not sent."""
        if self._windows:
            self._windows.give_back(slot)
            return
        with self._lock:
            if self._free_at_s == slot.at_s + self._gap_s:  # nobody is behind it
                self._free_at_s = slot.at_s

    def refused(self, slot: Slot, *, wait_s: float) -> None:
        """Note a 429: close for a while; an unlisted model becomes careful.

        Args:
            slot: Its place, which is free again.
            wait_s: Seconds to stay closed; above a minute the gate stays open, so
                that the next caller hears the service's own answer at once.
        """
        self.give_back(slot)
        with self._lock:
            now_s = self._clock()
            if wait_s <= MAX_CLOSED_S:
                self._closed_until_s = max(self._closed_until_s, now_s + wait_s)
            self._n_calm = 0
            # Those refused together teach the same thing, once.
            if slot.at_s > self._careful_since_s:
                self._gap_s = min(max(self._gap_s * 2, _FIRST_GAP_S), _MAX_GAP_S)
                self._careful_since_s = now_s

    def passed(self) -> None:
        """Note an answer that was no refusal; care wears off."""
        with self._lock:
            self._n_calm += 1
            if self._n_calm >= _N_CALM:
                self._n_calm = 0
                self._gap_s = self._gap_s / 2 if self._gap_s > _FIRST_GAP_S else 0.0


class RateLimits:
    """The gates of one key at one address, by model.

    Args:
        clock: Seconds that only grow.
        limit_of: The limit of a model, None where none is known.
        others_of: The count of a model shared with other kernels, if there is one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_of: Callable[[str], Limit | None] = limit_of,
        others_of: Callable[[str], Others | None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._others_of = others_of
        self._lock = Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def of(self, model: str) -> RateLimiter:
        """Return the gate of a model."""
        with self._lock:
            gate = self._limiters.get(model)
            if gate is None:
                gate = self._limiters[model] = RateLimiter(
                    model,
                    self._limit_of(model),
                    clock=self._clock,
                    others=self._others_of(model),
                )
            return gate

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

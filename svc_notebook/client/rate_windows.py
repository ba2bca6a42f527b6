"""Documented limits as sliding windows, which this machine's kernels share.

Nothing here sleeps. A slot is taken in one step under a lock, so that two callers never
get the same slot; an unused slot is given back.
"""

import platform
import sqlite3
import sys
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import takewhile
from math import inf
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from svc_notebook.service.catalogue import Limit

from .clock import Clock

# Our windows are this much longer than the service's, because two requests may need
# different times to reach it.
MARGIN_S = 0.08
SECOND_S = 1.0  # doc: Rate limits per model
MINUTE_S = 60.0
UNLIMITED = sys.maxsize
NO_LIMIT = Limit(per_second=None, per_minute=None)
_MINUTE, _SECOND = "per-minute limit", "per-second limit"
STAMP_S = 0.01  # smaller delays are not noted: the margin covers them
FLIGHT_S = 30.0  # a request let out earlier counts as sent, even if nobody noted it


class Window(NamedTuple):
    """A number of requests in a number of seconds, and the limit's name."""

    n_allowed: int
    length_s: float
    name: str


@dataclass(slots=True, eq=False)
class Slot:
    """One request in the queue of its model."""

    at_s: float  # when its request may be sent, then when it was sent, by the clock
    is_out: bool = False  # whether its request was let out
    is_sent: bool = False  # whether its request was written
    ticket: int | None = None  # its row in the count that kernels share
    is_own: bool = False  # whether the caller limits the requests in flight
    has_place: bool = False  # whether it counts among the requests in flight
    out_s: float | None = None  # when it was let out
    wake: Callable[[], None] | None = None  # called when a place in flight is free


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a request has to wait, as far as is known now, and why."""

    wait_s: float
    reason: str = ""
    is_for_place: bool = False  # until another request ends: see `Slot.wake`


class Room(NamedTuple):
    """How many requests may still be sent now, in each window."""

    in_second: int
    in_minute: int


def longest_wait(
    times_s: Sequence[float], windows: Sequence[Window], now_s: float
) -> Waiting:
    """Return the longest wait of all windows; `times_s` is newest first."""
    waits = [
        Waiting(times_s[window.n_allowed - 1] + window.length_s - now_s, window.name)
        for window in windows
        if len(times_s) >= window.n_allowed
    ]
    return max(waits, key=lambda due: due.wait_s, default=Waiting(0.0))


class QuotaStore(Protocol):
    """A count of one model's requests that several limiters share.

    Attributes:
        stamp_s: If a request is written more than this many seconds after it was let
            out, `stamp` is called.
    """

    stamp_s: float

    def take(self, now_s: float, windows: Sequence[Window]) -> Waiting | int | None:
        """Count a request that is sent now.

        Returns:
            Its ticket; the wait if it may not be sent yet; None without a count.
        """

    def times(self) -> Sequence[float]:
        """Return when the requests of the last minute were sent, as far as known."""

    def stamp(self, ticket: int, at_s: float) -> None:
        """Note when a request was really sent."""

    def drop(self, ticket: int) -> None:
        """Stop counting a request."""

    def learnt_limit(self) -> Limit | None:
        """Return the limits that another limiter has learnt."""

    def keep_learnt_limit(self, limit: Limit) -> None:
        """Keep limits that were learnt."""


class Windows:
    """Limits the requests in any second and in any minute.

    The windows slide, because the document does not say that they begin at full
    seconds. A request counts from when its bytes were written, since it may have to
    open a connection first. `others` is the count shared with other kernels.
    """

    def __init__(
        self, limit: Limit, *, clock: Clock, others: QuotaStore | None = None
    ) -> None:
        self.allow(limit)
        self._others = others
        self._held_until_s, self._held_by = -inf, ""
        self._clock = clock
        self._lock = Lock()
        self._sent_s = array("d")  # sorted; many thousands of times in a minute
        self._slots: list[Slot] = []  # slots that wait, or were sent after `_sent_s`

    def allow(self, limit: Limit) -> None:
        """Apply this limit from now on."""
        self._windows = (
            Window(limit.per_minute or UNLIMITED, MINUTE_S + MARGIN_S, _MINUTE),
            Window(limit.per_second or UNLIMITED, SECOND_S + MARGIN_S, _SECOND),
        )

    def sent_s(self) -> list[float]:
        """Return when the accepted requests of the last minute were sent."""
        with self._lock:
            self._drop_old(self._clock())
            out_s = (slot.at_s for slot in self._slots if slot.is_out)
            return sorted((*self._sent_s, *out_s))

    def reserve(self) -> Slot:
        """Take the next free slot; `try_pass` says how long it has to wait."""
        with self._lock:
            now_s = self._clock()
            self._drop_old(now_s)
            slot = Slot(max(now_s, self._earliest(self._n_slots, now_s)[0]))
            self._slots.append(slot)
            return slot

    def try_pass(self, slot: Slot) -> Waiting:
        """Let a slot's request go now, or return how long it has to wait."""
        with self._lock:
            now_s = self._clock()
            if self._windows[0].n_allowed == UNLIMITED == self._windows[1].n_allowed:
                self._compact()
                slot.at_s, slot.is_out = now_s, True
                return Waiting(0.0)
            at_s, reason = self._earliest(self._position_of(slot, now_s), now_s)
            slot.at_s = max(slot.at_s, at_s)
            if slot.at_s > now_s:
                return Waiting(slot.at_s - now_s, reason)
            due = self._take_shared(slot, now_s)
            if due.wait_s <= 0:
                slot.at_s, slot.is_out = now_s, True
            return due

    def due(self) -> Waiting:
        """Return how long a slot taken now would have to wait."""
        with self._lock:
            now_s = self._clock()
            at_s, reason = self._earliest(self._n_slots, now_s)
            if max(at_s, self._held_until_s) > now_s:
                own, held = Waiting(at_s - now_s, reason), self._held_until_s - now_s
                return own if own.wait_s >= held else Waiting(held, self._held_by)
        times_s = self._others.times() if self._others else ()
        return longest_wait(times_s, self._windows, now_s)

    def count(self, times_s: Iterable[float]) -> None:
        """Count requests that were sent before; the times are of the same clock."""
        with self._lock:
            for at_s in times_s:
                insort(self._sent_s, at_s)

    def sent(self, slot: Slot) -> None:
        """Note that a slot's request is being written now."""
        with self._lock:
            if slot.is_sent and self._forget(slot):  # sent again on a new connection
                self._slots.append(slot)
            late_s = self._clock() - slot.at_s
            slot.at_s += late_s
            slot.is_sent = True
        others = self._others
        if others and slot.ticket is not None and late_s > others.stamp_s:
            others.stamp(slot.ticket, slot.at_s)

    def give_back(self, slot: Slot) -> None:
        """Free a slot whose request was not sent, or was refused."""
        with self._lock:
            self._forget(slot)
            ticket, slot.ticket = slot.ticket, None
        if self._others and ticket is not None:
            self._others.drop(ticket)

    def room(self) -> Room:
        """Return how many requests may be sent now, counting those of all kernels."""
        others_s = self._others.times() if self._others else ()
        with self._lock:
            now_s = self._clock()
            own_s = self._sent_times_s(now_s)
        minute, second = (
            window.n_allowed
            - max(_n_in(window, own_s, now_s), _n_in(window, others_s, now_s))
            for window in self._windows
        )
        return Room(max(second, 0), max(minute, 0))

    def held_s(self) -> list[float]:
        """Return when the requests of the last minute were sent, in seconds from now.

        Requests of all kernels count, oldest first. A positive time means a request
        that still waits.
        """
        others = self._others.times() if self._others else ()
        with self._lock:
            now_s = self._clock()
            own = self._sent_times_s(now_s)
        since_s = now_s - self._windows[0].length_s
        own, others = (
            [at_s for at_s in times_s if at_s > since_s] for times_s in (own, others)
        )
        return sorted(at_s - now_s for at_s in max(own, others, key=len))

    def _position_of(self, slot: Slot, now_s: float) -> int:
        """Sort the slots, and return the position of this slot."""
        # A request that was let out but not sent comes after all that were sent.
        self._slots.sort(
            key=lambda other: (_earliest_sent_s(other, now_s), not other.is_out)
        )
        self._compact()
        return len(self._sent_s) + self._slots.index(slot)

    def _compact(self) -> None:
        """Keep only the times of the oldest sent slots: 8 bytes each, not 160."""
        n_sent = sum(1 for _ in takewhile(lambda slot: slot.is_sent, self._slots))
        for slot in self._slots[:n_sent]:
            insort(self._sent_s, slot.at_s)
        del self._slots[:n_sent]

    def _forget(self, slot: Slot) -> bool:
        """Drop a slot, and say whether it was there."""
        if slot in self._slots:
            self._slots.remove(slot)
            return True
        is_there = slot.is_sent and slot.at_s in self._sent_s
        if is_there:
            self._sent_s.remove(slot.at_s)
        return is_there

    @property
    def _n_slots(self) -> int:
        return len(self._sent_s) + len(self._slots)

    def _sent_times_s(self, now_s: float) -> list[float]:
        return [*self._sent_s, *(_earliest_sent_s(slot, now_s) for slot in self._slots)]

    def _take_shared(self, slot: Slot, now_s: float) -> Waiting:
        if self._others is None:
            return Waiting(0.0)
        if now_s < self._held_until_s:  # known already; reading the file is slow
            return Waiting(self._held_until_s - now_s, self._held_by)
        taken = self._others.take(now_s, self._windows)
        if isinstance(taken, Waiting):
            self._held_until_s, self._held_by = now_s + taken.wait_s, taken.reason
            return taken
        slot.ticket = taken
        return Waiting(0.0)

    def _earliest(self, at: int, now_s: float) -> tuple[float, str]:
        """Return when the slot at a position may be sent, and which limit delays it."""
        earliest_s, reason = -inf, ""
        for n_allowed, length_s, name in self._windows:
            if at < n_allowed:
                continue
            at_sent = at - n_allowed
            if at_sent < len(self._sent_s):
                sent_s = self._sent_s[at_sent]
            else:
                sent_s = _earliest_sent_s(
                    self._slots[at_sent - len(self._sent_s)], now_s
                )
            if sent_s + length_s > earliest_s:
                earliest_s, reason = sent_s + length_s, name
        return earliest_s, reason

    def _drop_old(self, now_s: float) -> None:
        """Drop slots sent before the longest window began; waiting slots stay."""
        old_s = now_s - self._windows[0].length_s
        if self._sent_s and self._sent_s[0] <= old_s:
            del self._sent_s[: bisect_right(self._sent_s, old_s)]
        while self._slots and self._slots[0].is_out and self._slots[0].at_s <= old_s:
            del self._slots[0]


def _n_in(window: Window, times_s: Sequence[float], now_s: float) -> int:
    return sum(at_s + window.length_s > now_s for at_s in times_s)


def _earliest_sent_s(slot: Slot, now_s: float) -> float:
    """Return when a request was sent, or the earliest time at which it can be."""
    is_known = slot.is_sent or (slot.is_out and now_s > slot.at_s + FLIGHT_S)
    return slot.at_s if is_known else max(slot.at_s, now_s)


BUSY_S = 0.02  # one wait for another kernel that uses the file
MAX_BUSY_S = 1.0  # a kernel that holds the file for longer has probably been stopped
PAUSE_S = 5.0  # after a failure, the file is not used for this long
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sent (
  ticket INTEGER PRIMARY KEY AUTOINCREMENT, quota TEXT NOT NULL, at_s REAL NOT NULL
)"""
_LEARNT_SCHEMA = """
CREATE TABLE IF NOT EXISTS found (
  quota TEXT PRIMARY KEY, at_s REAL NOT NULL,
  per_second INTEGER, per_minute INTEGER, in_flight INTEGER
)"""
LEARNT_S = 3600.0  # after that the limit may have changed, and is learnt again
# Rows of other keys may be of another clock, so their age says nothing: only this many
# of the newest rows are kept.
_MAX_ROWS = 2000
_UNUSABLE = (sqlite3.OperationalError, sqlite3.NotSupportedError, OSError)

Result = TypeVar("Result")


class SharedQuota:
    """The count that the kernels of this machine share for one address, key and model.

    The service counts requests by key (doc: Rate limits per model), so notebooks with
    the same key must count together. A SQLite file holds the times of the last minute
    and a hash, but no key, prompt or address. It is opened for each step and closed
    after it, so that a killed kernel or a fork blocks nothing. If the file fails, the
    kernel uses its own count. `quota` identifies address, key and model; `clock` must
    show the same time in all kernels.
    """

    stamp_s = STAMP_S

    def __init__(self, path: Path, quota: str, *, clock: Clock) -> None:
        self._path = path
        # The clock is only valid on this machine, but machines may share a home folder.
        marked = f"{_clock_id()}\n{quota}".encode()
        self._quota = blake2b(marked, digest_size=16).hexdigest()
        self._clock = clock
        self._paused_until_s = -inf
        self._busy_since_s: float | None = None

    def take(self, now_s: float, windows: Sequence[Window]) -> Waiting | int | None:
        """Count a request that is sent now: its ticket or wait; None if that fails."""
        taken = self._step(lambda file: _take(file, self._quota, now_s, windows))
        is_busy = taken is None and self._busy_since_s is not None
        return Waiting(BUSY_S, windows[-1].name) if is_busy else taken

    def times(self) -> Sequence[float]:
        """Return when the requests of the last minute were sent, by all kernels."""
        times_s = self._step(lambda file: _times(file, self._quota)) or ()
        latest_s = self._clock() + 1  # a later one is from before a restart
        return [at_s for at_s in times_s if at_s <= latest_s]

    def stamp(self, ticket: int, at_s: float) -> None:
        """Note when a request was really sent."""
        sql = "UPDATE sent SET at_s=? WHERE ticket=?"
        self._step(lambda file: file.execute(sql, (at_s, ticket)))

    def drop(self, ticket: int) -> None:
        """Stop counting a request."""
        sql = "DELETE FROM sent WHERE ticket=?"
        self._step(lambda file: file.execute(sql, (ticket,)))

    def learnt_limit(self) -> Limit | None:
        """Return the limits that a kernel has learnt in the last hour."""
        if not self._path.exists():  # a look does not create the file
            return None
        return self._step(lambda file: _learnt_limit(file, self._quota, self._clock()))

    def keep_learnt_limit(self, limit: Limit) -> None:
        """Keep limits that were learnt, for an hour."""
        self._step(
            lambda file: _keep_learnt_limit(file, self._quota, self._clock(), limit)
        )

    def _step(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Open the file and do the work in one transaction; None if that fails."""
        if self._clock() < self._paused_until_s:
            return None
        try:
            with closing(self._open()) as file:
                # A power cut may lose the commit, but then the last minute is over
                # anyway.
                file.execute("PRAGMA synchronous=OFF")
                file.execute("BEGIN IMMEDIATE")
                file.execute(_SCHEMA)
                result = work(file)
                file.execute("COMMIT")
                self._busy_since_s = None
                return result
        except _UNUSABLE as problem:
            if self._is_busy(problem):
                return None
        except sqlite3.DatabaseError:
            with suppress(OSError):  # not a database: the next step makes a new one
                self._path.unlink()
        self._busy_since_s = None
        self._paused_until_s = self._clock() + PAUSE_S
        return None

    def _is_busy(self, problem: Exception) -> bool:
        """Say whether another kernel uses the file, for less than `MAX_BUSY_S`."""
        if getattr(problem, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
            return False
        now_s = self._clock()
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        return now_s < self._busy_since_s + MAX_BUSY_S

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.touch(mode=0o600)
        return sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)


@cache
def _clock_id() -> str:
    """Return an id of the clock: it differs between machines and after a restart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:  # not Linux
        return platform.node()


def _times(file: sqlite3.Connection, quota: str) -> list[float]:
    rows = file.execute(
        "SELECT at_s FROM sent WHERE quota=? ORDER BY at_s DESC", (quota,)
    )
    return [at_s for (at_s,) in rows]


def _learnt_limit(file: sqlite3.Connection, quota: str, now_s: float) -> Limit | None:
    file.execute(_LEARNT_SCHEMA)
    row = file.execute(
        "SELECT per_second, per_minute, in_flight FROM found "
        "WHERE quota=? AND at_s>? AND at_s<=?",
        (quota, now_s - LEARNT_S, now_s + 1),
    ).fetchone()
    if row is None or not all(n is None or (type(n) is int and n > 0) for n in row):
        return None
    return Limit(per_second=row[0], per_minute=row[1], in_flight=row[2])


def _keep_learnt_limit(
    file: sqlite3.Connection, quota: str, now_s: float, limit: Limit
) -> None:
    file.execute(_LEARNT_SCHEMA)
    # times in the future are from before this machine was restarted
    file.execute(
        "DELETE FROM found WHERE at_s<=? OR at_s>?", (now_s - LEARNT_S, now_s + 1)
    )
    file.execute(
        "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?, ?)",
        (quota, now_s, limit.per_second, limit.per_minute, limit.in_flight),
    )


def _take(
    file: sqlite3.Connection, quota: str, now_s: float, windows: Sequence[Window]
) -> Waiting | int | None:
    keep_s = max(window.length_s for window in windows)
    # Times in the future are from before this machine was restarted.
    file.execute(
        "DELETE FROM sent WHERE quota=? AND (at_s<=? OR at_s>?)",
        (quota, now_s - keep_s, now_s + 1),
    )
    longest = longest_wait(_times(file, quota), windows, now_s)
    if longest.wait_s > 0:
        return longest
    added = file.execute("INSERT INTO sent (quota, at_s) VALUES (?, ?)", (quota, now_s))
    file.execute(
        "DELETE FROM sent WHERE ticket<=?", ((added.lastrowid or 0) - _MAX_ROWS,)
    )
    return added.lastrowid

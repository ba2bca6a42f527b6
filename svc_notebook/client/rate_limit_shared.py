"""The count of requests that the kernels of this machine share, without a server.

The service counts by key (doc: Rate limits per model), so two notebooks with one key
must count together. A small SQLite file beside the ledger holds the times of the
last minute, under a one-way mark of address, key and model.

What it is not: a record; it holds no key, no prompt and no address. Rules for this
file: it is opened for each step and closed after it, so that nothing is stuck when a
kernel is killed and nothing is carried over a fork; whatever goes wrong with it, a
kernel goes on with its own count; a step takes about a millisecond, and never waits
long for another kernel's.
"""

import os
import platform
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TypeVar

from svc_notebook.credentials import Key
from svc_notebook.settings import default_ledger

from .rate_limit import Clock, Due, RateLimits, Window

BUSY_S = 0.02
MAX_BUSY_S = 1.0  # a kernel that holds the file longer has been stopped
PAUSE_S = 5.0  # after a failure the others are not asked for a while
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sent (
  ticket INTEGER PRIMARY KEY AUTOINCREMENT, quota TEXT NOT NULL, at_s REAL NOT NULL
)"""
_STAMP = "UPDATE sent SET at_s=? WHERE ticket=?"
_DROP = "DELETE FROM sent WHERE ticket=?"
_UNUSABLE = (sqlite3.OperationalError, sqlite3.NotSupportedError, OSError)

Result = TypeVar("Result")


class SharedQuota:
    """The shared count for one address, key and model; see `limits.Others`.

    Args:
        path: The file; its folder is made if need be.
        quota: A mark for address, key and model.
        clock: Seconds since this machine began, the same in all its kernels.
    """

    def __init__(self, path: Path, quota: str, *, clock: Callable[[], float]) -> None:
        self._path = path
        # The clock is this machine's; a home folder may be on several.
        marked = f"{platform.node()}\n{quota}".encode()
        self._quota = blake2b(marked, digest_size=16).hexdigest()
        self._clock = clock
        self._paused_until_s = float("-inf")
        self._busy_since_s: float | None = None

    def take(self, now_s: float, windows: Sequence[Window]) -> Due | int | None:
        """Count a request that is let out now; see `limits.Others`."""
        found = self._step(lambda file: _take(file, self._quota, now_s, windows))
        is_busy = found is None and self._busy_since_s is not None
        return Due(BUSY_S, windows[-1].name) if is_busy else found

    def times(self) -> Sequence[float]:
        """Return when those of the last minute were sent; see `limits.Others`."""
        found = self._step(lambda file: _times(file, self._quota)) or ()
        latest_s = self._clock() + 1  # a later one is of before this machine began anew
        return [at_s for at_s in found if at_s <= latest_s]

    def stamp(self, ticket: int, at_s: float) -> None:
        """Note when a request was really sent."""
        self._step(lambda file: file.execute(_STAMP, (at_s, ticket)))

    def drop(self, ticket: int) -> None:
        """Count a request no longer."""
        self._step(lambda file: file.execute(_DROP, (ticket,)))

    def _step(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Open the file, do something in one transaction; None if that fails."""
        if self._clock() < self._paused_until_s:
            return None
        try:
            with closing(self._open()) as file:
                result = work(file)
                file.execute("COMMIT")
                self._busy_since_s = None
                return result
        except _UNUSABLE as problem:
            if self._is_busy(problem):
                return None
        except sqlite3.DatabaseError:
            with suppress(OSError):  # garbage: the next step begins a new one
                self._path.unlink()
        self._busy_since_s = None
        self._paused_until_s = self._clock() + PAUSE_S
        return None

    def _is_busy(self, problem: Exception) -> bool:
        """Say whether another kernel has the file, and not for too long."""
        if getattr(problem, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
            return False
        now_s = self._clock()
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        return now_s < self._busy_since_s + MAX_BUSY_S

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.touch(mode=0o600)
        file = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            # A power cut may lose it: after one, a minute's count is stale anyway.
            file.execute("PRAGMA synchronous=OFF")
            file.execute("BEGIN IMMEDIATE")
            file.execute(_SCHEMA)
        except BaseException:
            file.close()
            raise
        return file


def _times(file: sqlite3.Connection, quota: str) -> list[float]:
    rows = file.execute(
        "SELECT at_s FROM sent WHERE quota=? ORDER BY at_s DESC", (quota,)
    )
    return [at_s for (at_s,) in rows]


def _take(
    file: sqlite3.Connection, quota: str, now_s: float, windows: Sequence[Window]
) -> Due | int | None:
    keep_s = max(window.length_s for window in windows)
    # A time of the future is of before this machine began anew.
    file.execute(
        "DELETE FROM sent WHERE at_s<=? OR at_s>?", (now_s - keep_s, now_s + 1)
    )
    times = _times(file, quota)
    waits = [
        Due(times[window.n_allowed - 1] + window.length_s - now_s, window.name)
        for window in windows
        if len(times) >= window.n_allowed
    ]
    longest = max(waits, key=lambda due: due.wait_s, default=Due(0.0))
    if longest.wait_s > 0:
        return longest
    added = file.execute("INSERT INTO sent (quota, at_s) VALUES (?, ?)", (quota, now_s))
    return added.lastrowid


class _Shared:
    """The gates of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.gates: dict[tuple[str, str, Clock], RateLimits] = {}


_shared = _Shared()
_renew: Callable[[], None] = _shared.__init__  # type: ignore[misc]  # a fresh start
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew)


def shared_limits(base_url: str, key: Key, *, clock: Clock) -> RateLimits:
    """Return the gates for a key at an address, the same for all who ask.

    Args:
        base_url: The service's base address.
        key: Whose requests are counted.
        clock: Seconds that only grow; another clock has other gates.
    """
    place = (base_url, key.digest(base_url), clock)
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only this clock shows the same time in every kernel.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{place[:2]}\n{model}", clock=clock)

    with _shared.lock:
        return _shared.gates.setdefault(
            place, RateLimits(clock=clock, others_of=others_of)
        )

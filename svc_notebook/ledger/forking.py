"""A fork waits for every ledger, so that the child's copy is whole.

What it is not: it closes nothing and opens nothing. Of a ledger in memory the child
goes on with its copy. Of a file it opens another connection; but in the middle of a
statement it would find SQLite's own locks held by a thread that it does not have,
and wait for ever.
Rules: every lock that is taken before a fork is given back on both sides of it.
"""

import os
from threading import RLock
from typing import Protocol
from weakref import WeakSet


class Guarded(Protocol):
    """What one lock guards."""

    def guard(self) -> RLock:
        """Return the lock in force."""


_watched: WeakSet[Guarded] = WeakSet()
_taken: list[RLock] = []


def wait_at_forks(guarded: Guarded) -> None:
    """Let no fork of this process happen while something is being done with it."""
    _watched.add(guarded)


def _take() -> None:
    for guarded in tuple(_watched):
        lock = guarded.guard()
        lock.acquire()
        _taken.append(lock)


def _give_back() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_take, after_in_parent=_give_back, after_in_child=_give_back
    )

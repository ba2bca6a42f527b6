"""A fork waits for a ledger in memory, so that the child's copy is whole.

What it is not: a file's ledger needs none of it, since a child opens the file anew.
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

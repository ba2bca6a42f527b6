"""Forks: a child process must not use the threads and locks of its parent."""

import os
from weakref import WeakSet


class Forkable:
    """Has methods that are called at a fork of this process, after `watch_forks`."""

    def watch_forks(self) -> None:
        """Have the methods below called, as long as this object lives."""
        _watching.add(self)

    def before_fork(self) -> None:
        """Take the locks that another thread might hold during the fork."""

    def after_in_parent(self) -> None:
        """Release the locks that `before_fork` took."""

    def after_in_child(self) -> None:
        """Replace locks, and pass objects of the parent to `leave_to_parent`."""


def leave_to_parent(thing: object) -> None:
    """Keep an object of the parent alive: the child must neither use nor close it."""
    _left.append(thing)


_watching: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []  # whose `before_fork` ran: they get the second call
_left: list[object] = []


def _before() -> None:
    _forking.extend(_watching)
    for forkable in _forking:
        forkable.before_fork()


def _in_parent() -> None:
    while _forking:
        _forking.pop().after_in_parent()


def _in_child() -> None:
    while _forking:
        _forking.pop().after_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before, after_in_parent=_in_parent, after_in_child=_in_child
    )

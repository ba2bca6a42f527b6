"""What happens at a fork: a child must not use the threads and locks of its parent."""

import os
from weakref import WeakSet


class Forkable:
    """Is told when this process forks, after `watch_forks`."""

    def watch_forks(self) -> None:
        """Ask to be told, for as long as it lives."""
        _watching.add(self)

    def before_fork(self) -> None:
        """Take the locks that a child could otherwise find held."""

    def after_in_parent(self) -> None:
        """Release what `before_fork` took."""

    def after_in_child(self) -> None:
        """Replace locks, and hand what the parent uses to `leave_to_parent`."""


def leave_to_parent(thing: object) -> None:
    """Keep what a child must neither use nor close: its parent goes on with it."""
    _left.append(thing)


_watching: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []  # those that were told of a fork are told of its end
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

"""A tick that lets an interrupt into a loop that waits for the network.

A kernel's handler of interrupts cancels the cell's task but does not wake the loop,
so the cell would end only when the next bytes come. Rules: ticks on loops of the main
thread only, where interrupts arrive; one tick a loop, however many requests it has;
none when no request is under way.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from weakref import WeakKeyDictionary

TICK_S = 0.25


class _Tick:
    """The tick of one loop, and how many requests need it."""

    def __init__(self) -> None:
        self._n_requests = 0
        self._next: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take note of a request."""
        self._n_requests += 1
        if self._next is None:
            self._again(loop)

    def end(self) -> None:
        """Take note that a request is over."""
        self._n_requests -= 1
        if self._n_requests == 0 and self._next is not None:
            self._next.cancel()
            self._next = None

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = loop.call_later(TICK_S, self._again, loop)


_ticks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Tick] = WeakKeyDictionary()


@contextmanager
def ticking() -> Iterator[None]:
    """Keep the running loop awake while a request is under way."""
    if current_thread() is not main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    tick = _ticks.setdefault(loop, _Tick())
    tick.begin(loop)
    try:
        yield
    finally:
        tick.end()

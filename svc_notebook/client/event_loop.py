"""The portal: one event loop on a background thread, for code that cannot await.

Jupyter runs cells inside a running loop, so `Client` cannot start a loop there; it
hands its work to the portal and waits. Each process has one portal, opened at first
use, also after a fork. An interrupted wait cancels the work, which gets a moment to
clean up.
"""

import asyncio
import atexit
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from svc_notebook.errors import SvcError
from svc_notebook.fork import Forkable, leave_to_parent

CLEAN_UP_S = 2.0  # to close connections and record stopped exchanges
LOOK_S = 0.5  # on some systems, only a wait with a timeout can be interrupted
STOPPED = "The request was stopped before it was complete."
_SHUTTING_DOWN = "Python is shutting down; no more requests can be sent."

Result = TypeVar("Result")


class BackgroundTask(Generic[Result]):
    """Work that runs on the portal."""

    def __init__(self, portal: "Portal") -> None:
        self._portal = portal
        self.ended = Event()
        self._task: asyncio.Task[Result] | None = None
        self._is_cancelled = False

    def start(self, work: Coroutine[Any, Any, Result]) -> None:
        """Start the work; called on the loop's thread."""
        self._task = self._portal.loop.create_task(work)
        self._task.add_done_callback(self._end)
        if self._is_cancelled:
            self._task.cancel()

    @property
    def is_left_behind(self) -> bool:
        """Whether it runs in the parent process, from which this one was forked."""
        return not self._portal.is_here

    def stop(self) -> None:
        """Stop the work without waiting for its end."""
        self._is_cancelled = True
        if self.is_left_behind or self.ended.is_set():
            return  # do not wake the loop for nothing
        with suppress(RuntimeError):  # the loop may be closed, which has ended the work
            self._portal.loop.call_soon_threadsafe(self._stop)

    def cancel(self) -> bool:
        """Stop the work and wait up to `CLEAN_UP_S`; return whether it has ended."""
        self.stop()
        can_wait = not (self.is_left_behind or self._portal.is_own_thread)
        return can_wait and self.ended.wait(CLEAN_UP_S)

    def wait(self) -> Result:
        """Wait for the end and return the result; an interrupt cancels the work."""
        try:
            while not self.ended.wait(LOOK_S):
                pass
        except BaseException:
            self.cancel()
            raise
        if self._task is None or self._task.cancelled():
            raise SvcError(STOPPED)
        return self._task.result()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled():
            task.exception()  # asyncio warns about an exception that nobody reads
        self.ended.set()


class Portal:
    """An event loop on a daemon thread.

    Attributes:
        is_here: Whether it runs in this process; False in a child after a fork.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.is_here = True
        self._thread = Thread(
            target=self.loop.run_forever, name="svc_notebook", daemon=True
        )
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether it accepts work."""
        return self.is_here and not self.loop.is_closed()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the portal's thread, which must not wait for itself."""
        return current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, Result]) -> BackgroundTask[Result]:
        """Start some work and return at once."""
        task: BackgroundTask[Result] = BackgroundTask(self)
        try:
            self.loop.call_soon_threadsafe(task.start, work)
        except KeyboardInterrupt:
            task.stop()
            raise
        except RuntimeError:
            work.close()
            raise SvcError(_SHUTTING_DOWN) from None
        return task

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do some work and wait for its result; not on the portal's own thread."""
        if self.is_own_thread:
            work.close()
            raise SvcError(
                "Client cannot be used in a callback of a running request. Use "
                "AsyncClient there, or send the next request afterwards."
            )
        return self.submit(work).wait()

    def settle(self) -> None:
        """Stop all work and wait up to `CLEAN_UP_S` until it is recorded."""
        if self.is_open and not self.is_own_thread:
            with suppress(SvcError):
                self.submit(_end_tasks()).ended.wait(CLEAN_UP_S)

    def close(self) -> None:
        """Stop everything, close every connection, and end the thread."""
        if not self.is_open:
            return
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.create_task, _end_tasks_and_stop())
            self._thread.join(CLEAN_UP_S)
        if not self._thread.is_alive():
            self.loop.close()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    with suppress(Exception):
        async with asyncio.timeout(CLEAN_UP_S / 2):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _end_tasks_and_stop() -> None:
    loop = asyncio.get_running_loop()
    await _end_tasks()
    with suppress(Exception):
        async with asyncio.timeout(CLEAN_UP_S / 2):
            await loop.shutdown_asyncgens()
    loop.stop()


class _Process(Forkable):
    """The portal of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.portal: Portal | None = None
        self.is_over = False
        self.watch_forks()

    def after_in_child(self) -> None:
        """Drop the portal: a child has neither its thread nor its loop."""
        if self.portal is not None:
            self.portal.is_here = False
        leave_to_parent(self.portal)
        self.lock = Lock()
        self.portal = None


_process = _Process()


def portal() -> Portal:
    """Return this process's portal, opened at the first call."""
    with _process.lock:
        if _process.portal is None or not _process.portal.is_open:
            if _process.is_over:
                raise SvcError(_SHUTTING_DOWN)
            _process.portal = Portal()
            # atexit runs the newest function first: registered again, this one runs
            # before the ledger's, so that nothing is written to a ledger being closed
            atexit.unregister(_settle)
            atexit.register(_settle)
        return _process.portal


def open_portal() -> Portal | None:
    """Return this process's portal if it is open; else None."""
    current = _process.portal
    return current if current is not None and current.is_open else None


def _settle() -> None:
    if _process.portal is not None:
        _process.portal.settle()


def _close() -> None:
    _process.is_over = True
    if _process.portal is not None:
        _process.portal.close()


atexit.register(_close)  # at import, so that it runs after those of its users


# The SIGINT handler of ipykernel does not wake its own loop. With a timer, an interrupt
# of a cell that awaits a reply is noticed at the next tick.
TICK_S = 0.25


class _Tick:
    """The timer of one loop, and how many requests need it."""

    n_requests = 0
    timer: asyncio.TimerHandle

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer, and set it again each time it ends."""
        self.timer = loop.call_later(TICK_S, self.start, loop)


_ticks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Tick] = WeakKeyDictionary()


@contextmanager
def keep_awake() -> Iterator[None]:
    """Keep the running loop awake during a request, so that interrupts get in."""
    if current_thread() is not main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    tick = _ticks.setdefault(loop, _Tick())
    if tick.n_requests == 0:
        tick.start(loop)
    tick.n_requests += 1
    try:
        yield
    finally:
        tick.n_requests -= 1
        if tick.n_requests == 0:
            tick.timer.cancel()

"""Runs tools on threads, so that time limits and interrupts take effect at once.

Python cannot stop a thread: a plain function that was stopped keeps running on a daemon
thread, which ends with the kernel.
"""

import atexit
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from svc_notebook.client.portal import Job, Portal

_POLL_S = 0.05  # on some systems only a wait with a limit can be interrupted
_HERE = str(Path(__file__).parent)


@dataclass(slots=True)
class Work:
    """A function on a thread, and the value that it returned or the error it raised."""

    run: Callable[[], Any]
    value: Any = None
    problem: BaseException | None = None
    has_ended: Event = field(default_factory=Event)
    thread: Thread | None = None

    def start(self, *, name: str) -> None:
        """Start it on a thread with this name."""
        run = copy_context().run
        self.thread = Thread(target=run, args=(self._do,), name=name, daemon=True)
        self.thread.start()

    def wait(
        self, limit_s: float | None, check_stop: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait until it ends, at most this long; return whether it has ended.

        `check_stop` is called often meanwhile; what it raises ends the wait.
        """
        end = None if limit_s is None else monotonic() + limit_s
        while not self.has_ended.is_set():
            check_stop()
            left_s = _POLL_S if end is None else min(end - monotonic(), _POLL_S)
            if left_s <= 0:
                return False
            self.has_ended.wait(left_s)
        return True

    def where(self) -> str:
        """Return its current stack as a traceback shows it; empty if it has ended."""
        thread = self.thread
        if thread is None or thread.ident is None:
            return ""
        frame = sys._current_frames().get(thread.ident)  # noqa: SLF001 - documented so
        if frame is None:
            return ""
        steps = traceback.extract_stack(frame)
        of_user = [each for each in steps if not _is_ours(each.filename)]
        while of_user and of_user[0].filename.endswith("threading.py"):
            del of_user[0]
        return "".join(traceback.format_list(of_user))

    def _do(self) -> None:
        try:
            self.value = self.run()
        except BaseException as problem:  # noqa: BLE001 - raised in the caller
            self.problem = problem
        finally:
            self.has_ended.set()


def traceback_of(problem: BaseException) -> str:
    """Return the traceback of an error, from the user's code on."""
    trace = problem.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(problem), problem, trace))
    except Exception:  # noqa: BLE001 - the error's own text may raise anything
        return f"{type(problem).__name__}, whose text cannot be read\n"


def _is_ours(filename: str) -> bool:
    return str(Path(filename).parent) == _HERE


class _ToolLoop:
    """The event loop of async tools, on its own thread; one per process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._portal: Portal | None = None
        atexit.register(self.close)

    def submit(self, work: Coroutine[Any, Any, Any]) -> Job[Any]:
        with self._lock:
            if self._portal is None or not self._portal.is_open:
                self._portal = Portal()
            portal = self._portal
        return portal.submit(work)

    def close(self) -> None:
        if self._portal is not None:
            self._portal.close()


submit_coroutine = _ToolLoop().submit
"""Starts a coroutine on the tools' event loop."""

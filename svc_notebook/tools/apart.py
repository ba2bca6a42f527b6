"""Work on a thread of its own, so that a time limit and an interrupt act at once.

What it is not: it cannot stop the work; Python has no way to end a thread. What does
not end is left behind on a daemon thread, which ends with the kernel.

Rules: the waiting thread can be interrupted at any moment; context variables are
those of the caller, so that what the work prints finds its cell.
"""

import sys
import traceback
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

_LOOK_S = 0.5  # on some systems only a wait with an end lets an interrupt in
_HERE = str(Path(__file__).parent)


@dataclass(slots=True)
class Work:
    """Something that runs apart, and what has come of it.

    Attributes:
        run: What is done.
        value: What it returned.
        problem: What it raised instead; None if nothing.
        has_ended: Set when it is over.
    """

    run: Callable[[], Any]
    value: Any = None
    problem: BaseException | None = None
    has_ended: Event = field(default_factory=Event)
    thread: Thread | None = None

    @classmethod
    def start(cls, run: Callable[[], Any], *, name: str) -> "Work":
        """Begin some work on a thread of that name.

        Raises:
            RuntimeError: There can be no more threads.
        """
        work = cls(run)
        work.begin(name=name)
        return work

    def begin(self, *, name: str) -> None:
        """Begin, on a thread of that name.

        Raises:
            RuntimeError: There can be no more threads.
        """
        run = copy_context().run
        self.thread = Thread(target=run, args=(self._do,), name=name, daemon=True)
        self.thread.start()

    def wait(self, limit_s: float | None) -> bool:
        """Wait until it is over or the limit has passed; say which: True, over.

        Raises:
            KeyboardInterrupt: The user stopped the waiting.
        """
        end = None if limit_s is None else monotonic() + limit_s
        while not self.has_ended.is_set():
            left_s = _LOOK_S if end is None else min(end - monotonic(), _LOOK_S)
            if left_s <= 0:
                return False
            self.has_ended.wait(left_s)
        return True

    def where(self) -> str:
        """Show where it is now, as a traceback does; empty if it is over."""
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
        except BaseException as problem:  # noqa: BLE001 - told to whoever waits
            self.problem = problem
        finally:
            self.has_ended.set()


def traceback_of(problem: BaseException) -> str:
    """Write a traceback that begins where the user's own code does."""
    trace = problem.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(problem), problem, trace))
    except Exception:  # noqa: BLE001 - the error's own text may raise anything
        return f"{type(problem).__name__}, which cannot be shown\n"


def _is_ours(filename: str) -> bool:
    return str(Path(filename).parent) == _HERE

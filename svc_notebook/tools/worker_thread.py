"""Tools on a thread, so that a time limit and an interrupt act at once.

Python cannot end a thread: a plain function that was stopped keeps running on a
daemon thread, which ends with the kernel.
"""

import asyncio
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

from .tool import Tool
from .toolbox import Toolbox

_LOOK_S = 0.5  # on some systems only a wait with an end lets an interrupt in
_STOP_LOOK_S = 0.05
_HERE = str(Path(__file__).parent)


@dataclass(slots=True)
class Work:
    """A function that runs on a thread, and its outcome.

    Attributes:
        run: The function.
        value: What it returned.
        problem: What it raised; None if nothing.
        has_ended: Set when it is over.
    """

    run: Callable[[], Any]
    value: Any = None
    problem: BaseException | None = None
    has_ended: Event = field(default_factory=Event)
    thread: Thread | None = None

    @classmethod
    def start(cls, run: Callable[[], Any], *, name: str) -> "Work":
        """Start a function on a thread with that name.

        Raises:
            RuntimeError: There can be no more threads.
        """
        work = cls(run)
        work.begin(name=name)
        return work

    def begin(self, *, name: str) -> None:
        """Start, on a thread with that name.

        Raises:
            RuntimeError: There can be no more threads.
        """
        run = copy_context().run
        self.thread = Thread(target=run, args=(self._do,), name=name, daemon=True)
        self.thread.start()

    def wait(self, limit_s: float | None) -> bool:
        """Wait until it ends or the limit has passed; True if it ended.

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
        """Return the current stack as in a traceback; empty if it has ended."""
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
        except BaseException as problem:  # noqa: BLE001 - given to the caller
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
        return f"{type(problem).__name__}, whose text cannot be read\n"


def _is_ours(filename: str) -> bool:
    return str(Path(filename).parent) == _HERE


def stoppable(toolbox: Toolbox, check_stop: Callable[[], None]) -> Toolbox:
    """Return the same tools, each of which can be stopped from another thread.

    Args:
        toolbox: What is offered.
        check_stop: Raises a KeyboardInterrupt to stop them; called often.
    """
    return Toolbox([_stoppable(tool, check_stop) for tool in toolbox])


def _stoppable(tool: Tool, check_stop: Callable[[], None]) -> Tool:
    function = tool.function
    if function is None:
        return tool

    def call(**arguments: Any) -> object:  # noqa: ANN401 - the tool's own
        work = Work.start(lambda: function(**arguments), name=f"tool {tool.name}")
        while not work.wait(_STOP_LOOK_S):
            check_stop()
        if work.problem is not None:
            raise work.problem
        if inspect.isawaitable(work.value):
            return _awaited(work.value, check_stop)
        return work.value

    return replace(tool, function=call)


async def _awaited(returned: Awaitable[Any], check_stop: Callable[[], None]) -> object:
    task = asyncio.ensure_future(returned)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_STOP_LOOK_S)
            check_stop()
    finally:
        task.cancel()
    return task.result()

"""Runs tools on threads, so that time limits and interrupts take effect at once.

Python cannot stop a thread: a plain function that was stopped keeps running on a daemon
thread, which ends with the kernel.
"""

import asyncio
import atexit
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from svc_notebook.client.portal import Portal

from .tool import Tool
from .toolbox import Toolbox

_POLL_S = 0.5  # on some systems only a wait with a limit can be interrupted
_STOP_POLL_S = 0.05
_HERE = str(Path(__file__).parent)


@dataclass(slots=True)
class Work:
    """A function on a thread, and its result.

    Attributes:
        run: The function.
        value: What it returned.
        problem: What it raised; None without an error.
        has_ended: Set when it has ended.
        thread: Where it runs.
    """

    run: Callable[[], Any]
    value: Any = None
    problem: BaseException | None = None
    has_ended: Event = field(default_factory=Event)
    thread: Thread | None = None

    def start(self, *, name: str) -> None:
        """Start it on a thread with this name.

        Raises:
            RuntimeError: There are too many threads, or Python is ending.
        """
        run = copy_context().run
        self.thread = Thread(target=run, args=(self._do,), name=name, daemon=True)
        self.thread.start()

    def wait(self, limit_s: float | None) -> bool:
        """Wait until it ends, at most this long; return whether it has ended."""
        end = None if limit_s is None else monotonic() + limit_s
        while not self.has_ended.is_set():
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

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - a tool's
        with self._lock:
            if self._portal is None or not self._portal.is_open:
                self._portal = Portal()
            portal = self._portal
        return portal.run(work)

    def close(self) -> None:
        if self._portal is not None:
            self._portal.close()


run_coroutine = _ToolLoop().run
"""Runs a coroutine on the tools' event loop, and waits for its result."""


def stoppable(toolbox: Toolbox, check_stop: Callable[[], None]) -> Toolbox:
    """Return the same tools, made so that another thread can stop them.

    Args:
        toolbox: The tools.
        check_stop: Called often while a tool runs; raises a KeyboardInterrupt to stop.
    """
    return Toolbox([_stoppable(tool, check_stop) for tool in toolbox])


def _stoppable(tool: Tool, check_stop: Callable[[], None]) -> Tool:
    function = tool.function
    if function is None:
        return tool

    def call(**arguments: Any) -> object:  # noqa: ANN401 - the tool's own
        work = Work(lambda: function(**arguments))
        work.start(name=f"tool {tool.name}")
        while not work.wait(_STOP_POLL_S):
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
            await asyncio.wait({task}, timeout=_STOP_POLL_S)
            check_stop()
    finally:
        task.cancel()
    return task.result()

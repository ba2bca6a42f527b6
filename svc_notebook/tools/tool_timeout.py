"""The time limit of a tool: each call runs on a new thread.

Time limits and interrupts take effect at once for the caller. But Python cannot stop a
thread: a plain function keeps running on its daemon thread, which ends with the kernel.
An async function is cancelled on the tools' event loop.
"""

import asyncio
import atexit
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from svc_notebook.client.event_loop import BackgroundTask, Portal

from .tool_errors import FailedError, is_ours, one_line_of, traceback_of
from .toolbox import Tool

TOOL_TIMEOUT_S = 60.0  # for tools without their own limit
CLEAN_UP_S = 2.0
"""Seconds that an async tool gets to clean up after its time limit."""
_POLL_S = 0.05  # on some systems only a wait with a limit can be interrupted


@dataclass(slots=True)
class ToolThread:
    """A function on a thread, and the value that it returned or the error it raised."""

    run: Callable[[], Any]
    value: Any = None
    problem: BaseException | None = None
    has_ended: Event = field(default_factory=Event)
    thread: Thread | None = None

    def start(self, *, name: str) -> None:
        """Start it on a thread with this name."""
        run = copy_context().run
        self.thread = Thread(target=run, args=(self._run,), name=name, daemon=True)
        self.thread.start()

    def wait(
        self, limit_s: float | None, check_stop: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait up to `limit_s` until it ends; return whether it has ended.

        `check_stop` is called often during the wait; if it raises, the wait ends.
        """
        end = None if limit_s is None else monotonic() + limit_s
        while not self.has_ended.is_set():
            check_stop()
            left_s = _POLL_S if end is None else min(end - monotonic(), _POLL_S)
            if left_s <= 0:
                return False
            self.has_ended.wait(left_s)
        return True

    def stack_text(self) -> str:
        """Return its current stack as a traceback; empty if it has ended."""
        thread = self.thread
        if thread is None or thread.ident is None:
            return ""
        frame = sys._current_frames().get(thread.ident)  # noqa: SLF001 - documented under this name
        if frame is None:
            return ""
        steps = traceback.extract_stack(frame)
        of_user = [step for step in steps if not is_ours(step.filename)]
        while of_user and of_user[0].filename.endswith("threading.py"):
            del of_user[0]
        return "".join(traceback.format_list(of_user))

    def _run(self) -> None:
        try:
            self.value = self.run()
        except BaseException as problem:  # noqa: BLE001 - raised in the caller
            self.problem = problem
        finally:
            self.has_ended.set()


class _ToolLoop:
    """The event loop of async tools, on its own thread; one per process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._portal: Portal | None = None
        atexit.register(self.close)

    def submit(self, work: Coroutine[Any, Any, Any]) -> BackgroundTask[Any]:
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


class _CarriedError(Exception):
    """Carries an exception out of the event loop, which it would otherwise end."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.problem = problem


@dataclass(slots=True)
class TimedCall:
    """One call of a function, on a worker thread."""

    tool: Tool
    limit_s: float | None
    check_stop: Callable[[], None]
    job: BackgroundTask[Any] | None = None
    is_awaited: bool = False
    is_over: bool = False

    def value(self, arguments: dict[str, Any]) -> object:
        """Return what the function returns, or raise a FailedError."""
        function = self.tool.function
        if function is None:
            raise FailedError(f"{self.tool.name} is a definition without a function.")

        def run() -> object:
            returned = function(**arguments)
            if not inspect.isawaitable(returned):
                return returned
            self.is_awaited = True
            return self._wait_for(returned)

        tool_thread = ToolThread(run)
        try:  # started inside `try`, as an interrupt can come at any time
            self._start(tool_thread)
            has_ended = tool_thread.wait(self.limit_s, self.check_stop)
            if not has_ended:
                self._stop(tool_thread)
        except KeyboardInterrupt as problem:
            self._stop(tool_thread)
            if not tool_thread.has_ended.is_set():
                problem.add_note(_still_running_note(self.tool.name))
            raise
        if not has_ended:
            raise self._timeout_error(tool_thread)
        return self._value_or_error(tool_thread)

    def _start(self, tool_thread: ToolThread) -> None:
        try:
            tool_thread.start(name=f"svc_notebook tool {self.tool.name}")
        except RuntimeError as problem:  # too many threads, or Python is ending
            error = f"{self.tool.name} cannot be run: {problem}."
            raise FailedError(error, error) from None

    def _wait_for(self, returned: Awaitable[Any]) -> object:
        try:
            self.job = submit_coroutine(_await_and_carry(returned))
            if self.is_over:
                self.job.stop()
            return self.job.wait()
        except _CarriedError as carried:
            problem = carried.problem
        finally:
            if (
                inspect.iscoroutine(returned)
                and inspect.getcoroutinestate(returned) == inspect.CORO_CREATED
            ):
                returned.close()  # otherwise Python warns that it was never awaited
        raise problem

    def _stop(self, tool_thread: ToolThread) -> None:
        """Cancel an async tool, and give it a moment to clean up."""
        self.is_over = True
        if self.job is not None:
            self.job.stop()
        if self.is_awaited or self.tool.is_async:
            tool_thread.wait(CLEAN_UP_S)

    def _timeout_error(self, tool_thread: ToolThread) -> FailedError:
        limit_s = round(self.limit_s or 0, 2)
        error = f"{self.tool.name} gave no result within {limit_s:g} s."
        if tool_thread.has_ended.is_set():
            return FailedError(error, error)
        text = f"{error} {_still_running_note(self.tool.name)}"
        return FailedError(error, f"{tool_thread.stack_text()}{text}")

    def _value_or_error(self, tool_thread: ToolThread) -> object:
        problem = tool_thread.problem
        if problem is None:
            return tool_thread.value
        if isinstance(problem, KeyboardInterrupt):
            raise problem
        raise FailedError(one_line_of(problem), traceback_of(problem)) from None


async def _await_and_carry(returned: Awaitable[Any]) -> object:
    task = asyncio.current_task()
    try:
        return await returned
    except (KeyboardInterrupt, SystemExit) as problem:
        raise _CarriedError(problem) from None
    except asyncio.CancelledError as problem:
        if task is None or task.cancelling():
            raise
        raise _CarriedError(problem) from None  # raised by the tool itself


def _still_running_note(name: str) -> str:
    return (
        f"{name} is still running in the background, since Python cannot stop a "
        "thread; it ends when it returns, or with the kernel."
    )

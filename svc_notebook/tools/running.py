"""One call under way: a function run within a time limit, whatever it does.

What it is not: it reads no arguments and writes no results (`calling`).

Rules: a plain function runs on a thread of its own, an async one on the loop that was
given, where it can be cancelled; a KeyboardInterrupt passes through, everything else
becomes words for the model and a traceback for the user.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from .apart import Work, traceback_of
from .tool import Tool

Submit = Callable[[Coroutine[Any, Any, Any]], Any]
CLEAN_UP_S = 2.0
"""Seconds an async tool has to clean up once its time is over."""


class FailedError(Exception):
    """How a call failed: for the model and for the user."""

    def __init__(self, told: str, traceback: str) -> None:
        super().__init__(told)
        self.told = told
        self.traceback = traceback


class _CarriedError(Exception):
    """What would end an event loop, carried out of it; stays in this file."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.problem = problem


class Running:
    """One call under way, on a thread of its own."""

    def __init__(self, tool: Tool, limit_s: float | None) -> None:
        self.tool = tool
        self.limit_s = limit_s
        self.cancel: Callable[[], object] = lambda: None
        self.is_awaited = tool.is_async
        self.is_over = False

    def value(self, arguments: dict[str, Any], submit: Submit) -> object:
        """Return what the tool returned, or say how it failed."""
        function = self.tool.function
        if function is None:
            raise FailedError(
                f"{self.tool.name} cannot be run here; its calls are handed back.", ""
            )

        def run() -> object:
            returned = function(**arguments)
            if not inspect.isawaitable(returned):
                return returned
            self.is_awaited = True
            return self._submitted(returned, submit)

        work = Work(run)
        try:  # an interrupt can come before the thread has begun, too
            self._start(work)
            has_ended = work.wait(self.limit_s)
            if not has_ended:
                self._stop(work)
        except KeyboardInterrupt as problem:
            self._leave(work, problem)
            raise
        if not has_ended:
            raise self._late(work)
        return self._outcome(work)

    def _start(self, work: Work) -> None:
        try:
            work.begin(name=f"svc_notebook tool {self.tool.name}")
        except RuntimeError as problem:  # too many threads, or Python is ending
            told = f"{self.tool.name} cannot be run: {problem}."
        else:
            return
        raise FailedError(told, told)

    def _submitted(self, returned: Awaitable[Any], submit: Submit) -> object:
        try:
            return submit(self._awaited(returned))
        except _CarriedError as carried:
            problem = carried.problem
        finally:
            if inspect.iscoroutine(returned) and _is_waiting(returned):
                returned.close()  # else Python says that it was never awaited
        raise problem

    async def _awaited(self, returned: Awaitable[Any]) -> object:
        """Await a result as a task that can be cancelled from another thread."""
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if task is not None:
            self.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.is_over:
            raise asyncio.CancelledError
        try:
            return await returned
        except (KeyboardInterrupt, SystemExit) as problem:
            raise _CarriedError(problem) from None
        except asyncio.CancelledError as problem:
            if task is None or task.cancelling():
                raise
            raise _CarriedError(problem) from None  # the tool's own, nobody stopped it

    def _stop(self, work: Work) -> None:
        """Stop what is awaited, and give it a moment to clean up."""
        self.is_over = True
        if self.is_awaited:
            with suppress(RuntimeError):  # the loop may be closed, which ends it too
                self.cancel()
            work.wait(CLEAN_UP_S)

    def _leave(self, work: Work, problem: KeyboardInterrupt) -> None:
        """Stop what can be stopped, and say of the rest that it goes on."""
        self._stop(work)
        if not work.has_ended.is_set():
            problem.add_note(_left_behind(self.tool.name))

    def _late(self, work: Work) -> FailedError:
        limit_s = round(self.limit_s or 0, 2)
        told = f"{self.tool.name} gave no result within {limit_s:g} s."
        if work.has_ended.is_set():
            return FailedError(told, told)
        left = f"{told} {_left_behind(self.tool.name)}"
        return FailedError(told, f"{work.where()}{left}")

    def _outcome(self, work: Work) -> object:
        problem = work.problem
        if problem is None:
            return work.value
        if isinstance(problem, KeyboardInterrupt):
            raise problem
        raise FailedError(words_of(problem), traceback_of(problem)) from None


def _is_waiting(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _left_behind(name: str) -> str:
    return (
        f"{name} is still running on a thread of its own, which Python cannot stop; "
        "it ends by itself or with the kernel."
    )


def words_of(problem: BaseException) -> str:
    """Say in short what was raised."""
    name = type(problem).__name__
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - an error's own text may raise anything
        text = ""
    return f"{name}: {text}" if text.strip() else name

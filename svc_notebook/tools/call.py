"""Tool calls: checked against the offered tools, run once, and answered with a text.

Every error of a call becomes a text for the model, without a traceback. Only a
KeyboardInterrupt is raised. Tools run on threads, so that time limits and interrupts
take effect at once. Python cannot stop a thread: a plain function that was stopped
keeps running on a daemon thread, which ends with the kernel.
"""

import asyncio
import atexit
import inspect
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from svc_notebook.client.portal import Job, Portal
from svc_notebook.completion import Completion
from svc_notebook.errors import CutError, ToolCallError
from svc_notebook.service.request import Message, ToolCall
from svc_notebook.tokens import more_room

from .results import MAX_RESULT_TOKENS, fit_text, to_result_text
from .schema import short
from .toolbox import Tool, Toolbox

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


MAX_ERROR_TOKENS = 300
MAX_DEPTH = 100
MAX_EXACT = 2**53  # larger floats are not exact integers
CLEAN_UP_S = 2.0
"""Seconds that an async tool has to clean up after its time limit."""


def parse_arguments(text: str, *, takes_none: bool = False) -> dict[str, Any]:
    """Read a call's arguments: strict JSON of an object (doc: Tool call).

    A float without a fraction becomes an integer, since 3.0 is both in JSON schema. If
    the tool has no parameters (`takes_none`), the text may be empty.
    """
    if takes_none and not text.strip():
        return {}
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_not_json,
            parse_float=_number,
        )
        json.dumps(value, ensure_ascii=False).encode()
        _check_depth(value, MAX_DEPTH)
    except UnicodeEncodeError:
        reason = "are not text: they contain half of a surrogate pair"
    except (ValueError, RecursionError) as problem:
        reason = f"are not JSON ({short(str(problem), 200)})"
    else:
        if isinstance(value, dict):
            return value
        reason = "are not an object"
    raise ToolCallError(
        f"The arguments {reason}. Write the arguments as one JSON object."
    )


def check_whole(completion: Completion) -> None:
    """Refuse the calls of a reply that was cut in the middle of one (CutError)."""
    for call in completion.tool_calls if completion.is_cut else ():
        try:
            parse_arguments(call.function.arguments)
        except ToolCallError:
            what = f"in the middle of a call of {short(call.function.name)}"
            raise cut_error(completion, f"{what}, which was not run") from None


def cut_error(completion: Completion, where: str) -> CutError:
    """Build the error for a reply that was cut, with what to pass."""
    error = CutError(f"The reply was cut {where}. {more_room(completion.request)}.")
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return found


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{short(text)} is too large")
    is_whole = number.is_integer() and abs(number) <= MAX_EXACT
    return int(number) if is_whole else number


def _check_depth(value: object, n_left: int) -> None:
    """Refuse deep nesting, which later readers of the value could not handle."""
    if n_left <= 0:
        raise RecursionError("nested too deep")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, n_left - 1)


class _FailedError(Exception):
    """A call failed; the error is for the model, the traceback for the user."""

    def __init__(self, error: str, traceback: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.traceback = traceback


class _CarriedError(Exception):
    """Carries an exception out of an event loop that it would end."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.problem = problem


@dataclass(slots=True)
class _Execution:
    """One call of a function, on a worker thread."""

    tool: Tool
    limit_s: float | None
    check_stop: Callable[[], None]
    job: Job[Any] | None = None
    is_awaited: bool = False
    is_over: bool = False

    def value(self, arguments: dict[str, Any]) -> object:
        function = self.tool.function
        if function is None:
            raise _FailedError(f"{self.tool.name} is a definition without a function.")

        def run() -> object:
            returned = function(**arguments)
            if not inspect.isawaitable(returned):
                return returned
            self.is_awaited = True
            return self._wait_for(returned)

        work = Work(run)
        try:  # an interrupt can also come before the thread has started
            self._start(work)
            has_ended = work.wait(self.limit_s, self.check_stop)
            if not has_ended:
                self._stop(work)
        except KeyboardInterrupt as problem:
            self._stop(work)
            if not work.has_ended.is_set():
                problem.add_note(_left_behind(self.tool.name))
            raise
        if not has_ended:
            raise self._late(work)
        return self._outcome(work)

    def _start(self, work: Work) -> None:
        try:
            work.start(name=f"svc_notebook tool {self.tool.name}")
        except RuntimeError as problem:  # too many threads, or Python is ending
            error = f"{self.tool.name} cannot be run: {problem}."
            raise _FailedError(error, error) from None

    def _wait_for(self, returned: Awaitable[Any]) -> object:
        try:
            self.job = submit_coroutine(_awaited(returned))
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
                returned.close()  # else Python warns that it was never awaited
        raise problem

    def _stop(self, work: Work) -> None:
        """Cancel an async tool, and give it a moment to clean up."""
        self.is_over = True
        if self.job is not None:
            self.job.stop()
        if self.is_awaited or self.tool.is_async:
            work.wait(CLEAN_UP_S)

    def _late(self, work: Work) -> _FailedError:
        limit_s = round(self.limit_s or 0, 2)
        error = f"{self.tool.name} gave no result within {limit_s:g} s."
        if work.has_ended.is_set():
            return _FailedError(error, error)
        text = f"{error} {_left_behind(self.tool.name)}"
        return _FailedError(error, f"{work.where()}{text}")

    def _outcome(self, work: Work) -> object:
        problem = work.problem
        if problem is None:
            return work.value
        if isinstance(problem, KeyboardInterrupt):
            raise problem
        raise _FailedError(_words_of(problem), traceback_of(problem)) from None


async def _awaited(returned: Awaitable[Any]) -> object:
    task = asyncio.current_task()
    try:
        return await returned
    except (KeyboardInterrupt, SystemExit) as problem:
        raise _CarriedError(problem) from None
    except asyncio.CancelledError as problem:
        if task is None or task.cancelling():
            raise
        raise _CarriedError(problem) from None  # raised by the tool itself


def _left_behind(name: str) -> str:
    return (
        f"{name} is still running in the background, since Python cannot stop a "
        "thread; it ends when it returns, or with the kernel."
    )


def _words_of(problem: BaseException) -> str:
    """Return an exception as one line."""
    name = type(problem).__name__
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - an error's own text may raise anything
        text = ""
    return f"{name}: {text}" if text.strip() else name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """One call of a tool and its result.

    Attributes:
        call_id: The call's id from the model.
        name: The tool's name, as the model wrote it.
        arguments: As the model wrote them, byte for byte.
        sent_arguments: The arguments that the tool got; None if it did not run.
        result: The content of the tool message.
        value: What the tool returned; None after an error.
        error: The error message for the model; None without an error.
        traceback: The error's details for the user; None if there are none.
        seconds_s: How long the tool ran.
        is_approved: Whether the user allowed it; None if the user was not asked.
        n_cut_tokens: Estimated tokens of the result that were left out.
        printed: What it printed, if that was not shown at once.
    """

    call_id: str
    name: str
    arguments: str
    sent_arguments: dict[str, Any] | None = None
    result: str = ""
    value: Any = field(default=None, repr=False)
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    seconds_s: float = 0.0
    is_approved: bool | None = None
    n_cut_tokens: int = 0
    printed: str = ""

    @property
    def message(self) -> Message:
        """The tool message that answers the call (doc: Message)."""
        return Message(role="tool", content=self.result, tool_call_id=self.call_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A call of an offered tool with arguments that fit."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]


def check_call(toolbox: Toolbox, call: ToolCall) -> Checked | ToolRun:
    """Find a call's tool and check its arguments; a run says what is wrong."""
    try:
        tool = toolbox.tool(call.function.name)
        arguments = parse_arguments(
            call.function.arguments, takes_none=not tool.parameter_names
        )
        tool.parameters.read(arguments)
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    return Checked(tool=tool, call=call, arguments=arguments)


def failed_run(
    call: ToolCall,
    error: str,
    *,
    traceback: str | None = None,
    is_approved: bool | None = None,
) -> ToolRun:
    """Answer a call that failed or was not run; the error is for the model."""
    fitted, _ = fit_text(error, max_tokens=MAX_ERROR_TOKENS)
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=f"Error: {fitted}",
        error=fitted,
        traceback=traceback,
        is_approved=is_approved,
    )


def run_call(  # noqa: PLR0913 - the limits of a call
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    *,
    timeout_s: float | None = None,
    within_s: float | None = None,
    max_result_tokens: int | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> ToolRun:
    """Run a call once and answer it, even if it fails.

    Args:
        tool: The tool.
        call: The call as the model made it.
        arguments: The arguments as JSON, perhaps edited by the user.
        timeout_s: Time limit if the tool has none.
        within_s: Time limit in any case.
        max_result_tokens: The most estimated tokens of the result in any case.
        check_stop: Called often while it runs; raises a KeyboardInterrupt to stop it.
    """
    try:
        ready = tool.parameters.read(arguments)  # a copy: the tool may change it
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    limits = [tool.timeout_s or timeout_s, within_s]
    limit_s = min((s for s in limits if s is not None), default=None)
    if limit_s is not None and limit_s <= 0:
        return failed_run(call, f"No time is left; {tool.name} was not run.")
    started_s = monotonic()
    try:
        value = _Execution(tool, limit_s, check_stop).value(ready)
    except _FailedError as problem:
        run = failed_run(call, problem.error, traceback=problem.traceback)
    else:
        run = _to_run(call, value, tool, max_result_tokens)
    return replace(run, sent_arguments=arguments, seconds_s=monotonic() - started_s)


def _to_run(
    call: ToolCall, value: object, tool: Tool, max_result_tokens: int | None
) -> ToolRun:
    max_tokens = tool.max_result_tokens or MAX_RESULT_TOKENS
    if max_result_tokens is not None:
        max_tokens = min(max_tokens, max_result_tokens)
    try:
        result, n_cut_tokens = to_result_text(value, max_tokens=max_tokens)
    except ToolCallError as problem:
        return failed_run(call, str(problem), traceback=str(problem))
    except Exception as problem:  # noqa: BLE001 - a value's own methods
        error = f"The result cannot be written as text: {_words_of(problem)}"
        return failed_run(call, error, traceback=traceback_of(problem))
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=result,
        value=value,
        n_cut_tokens=n_cut_tokens,
    )

"""Calls: checked against what was offered, run once, answered with a text.

Every fault of a call becomes a text for the model, without a traceback. A
KeyboardInterrupt passes through, and a call ends at its time limit.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from time import monotonic
from typing import Any

from svc_notebook.errors import ToolCallError
from svc_notebook.service.message import Message
from svc_notebook.service.tool import ToolCall

from .results import MAX_RESULT_TOKENS, fit_text, to_result_text
from .schema import short
from .tool import Tool
from .toolbox import Toolbox
from .worker_thread import Work, traceback_of

MAX_ERROR_TOKENS = 300
MAX_DEPTH = 100
MAX_EXACT = 2**53  # above it a float no longer tells integers apart


def parse_arguments(text: str, *, takes_none: bool = False) -> dict[str, Any]:
    """Read a call's arguments: strict JSON of an object (doc: Tool call).

    A float without a fraction becomes an integer: 3.0 is both in JSON schema.

    Args:
        text: As the model wrote it.
        takes_none: Whether the tool has no parameters; then an empty text will do.

    Raises:
        ToolCallError: It is not the JSON of an object.
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
        json.dumps(value, ensure_ascii=False).encode()  # no half of a character
        _check_depth(value, MAX_DEPTH)
    except (ValueError, RecursionError) as problem:
        reason = f"are not JSON ({short(str(problem), 200)})"
    else:
        if isinstance(value, dict):
            return value
        reason = "are not an object"
    raise ToolCallError(
        f"The arguments {reason}. Write the arguments as one JSON object."
    )


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
    """Refuse depth that later readers could not follow."""
    if n_left <= 0:
        raise RecursionError("nested too deep")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, n_left - 1)


Submit = Callable[[Coroutine[Any, Any, Any]], Any]
CLEAN_UP_S = 2.0
"""Seconds an async tool has to clean up once its time is over."""


class _FailedError(Exception):
    """How a call failed.

    Args:
        error: For the model.
        traceback: For the user.
    """

    def __init__(self, error: str, traceback: str) -> None:
        super().__init__(error)
        self.error = error
        self.traceback = traceback


class _CarriedError(Exception):
    """Carries an exception that would end an event loop out of it."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.problem = problem


class _Execution:
    """One call of a function, on a worker thread."""

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
            raise _FailedError(
                f"{self.tool.name} is a definition without a function.", ""
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
            error = f"{self.tool.name} cannot be run: {problem}."
        else:
            return
        raise _FailedError(error, error)

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
        """Stop what can be stopped; add a note if the tool is still running."""
        self._stop(work)
        if not work.has_ended.is_set():
            problem.add_note(_left_behind(self.tool.name))

    def _late(self, work: Work) -> _FailedError:
        limit_s = round(self.limit_s or 0, 2)
        error = f"{self.tool.name} gave no result within {limit_s:g} s."
        if work.has_ended.is_set():
            return _FailedError(error, error)
        left = f"{error} {_left_behind(self.tool.name)}"
        return _FailedError(error, f"{work.where()}{left}")

    def _outcome(self, work: Work) -> object:
        problem = work.problem
        if problem is None:
            return work.value
        if isinstance(problem, KeyboardInterrupt):
            raise problem
        raise _FailedError(_words_of(problem), traceback_of(problem)) from None


def _is_waiting(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _left_behind(name: str) -> str:
    return (
        f"{name} is still running in the background, since Python cannot stop a "
        "thread; it ends when it returns, or with the kernel."
    )


def _words_of(problem: BaseException) -> str:
    """Write what was raised on one line."""
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
        call_id: The id that the model gave the call.
        name: The tool's name, as the model wrote it.
        arguments: As the model wrote them, byte for byte.
        sent_arguments: What the tool was called with, as JSON; None if it was not.
        result: The content of the tool message.
        value: What the tool returned; None after an error.
        error: What went wrong, in words for the model; None if nothing.
        traceback: What went wrong, for the user; None if there is nothing to show.
        seconds_s: How long the tool ran.
        is_approved: Whether the user allowed it; None where nobody was asked.
        n_cut_tokens: Estimated tokens of the result that were left out.
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

    @property
    def message(self) -> Message:
        """The tool message that answers the call (doc: Message)."""
        return Message(role="tool", content=self.result, tool_call_id=self.call_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A call that may run: of an offered tool, with arguments that fit."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]


def check_call(toolbox: Toolbox, call: ToolCall) -> Checked | ToolRun:
    """Find a call's tool and check its arguments.

    Returns:
        The call, ready to run; or, if it does not fit, the answer that says why.
    """
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
    """Answer a call that was not run.

    Args:
        call: The call.
        error: Why, in words for the model.
        traceback: More for the user.
        is_approved: False where the user did not allow it.
    """
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


def run_call(  # noqa: PLR0913 - a limit each
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    *,
    timeout_s: float | None = None,
    within_s: float | None = None,
    max_result_tokens: int | None = None,
    submit: Submit | None = None,
) -> ToolRun:
    """Run a call once, and answer it whatever happens.

    Args:
        tool: The tool.
        call: The call as the model made it.
        arguments: What to call it with, as JSON; checked here again, since a user
            may have edited them.
        timeout_s: Seconds it may take where the tool sets no limit of its own.
        within_s: Seconds it may take whatever the tool sets; None for any number.
        max_result_tokens: The most estimated tokens of the result, whatever the tool
            sets; None for any number.
        submit: Runs a coroutine on an event loop and returns its result; by
            default asyncio.run.

    Raises:
        KeyboardInterrupt: The user stopped it; a plain function is left running.
    """
    try:
        ready = tool.parameters.read(arguments)  # a copy: the tool may change it
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    limits = [tool.timeout_s or timeout_s, within_s]
    limit_s = min((s for s in limits if s is not None), default=None)
    if limit_s is not None and limit_s <= 0:
        return failed_run(call, f"No time is left; {tool.name} was not run.")
    execution = _Execution(tool, limit_s)
    begun = monotonic()
    try:
        value = execution.value(ready, submit or asyncio.run)
    except _FailedError as problem:
        run = failed_run(call, problem.error, traceback=problem.traceback)
    else:
        run = _answered(call, value, tool, max_result_tokens)
    return replace(run, sent_arguments=arguments, seconds_s=monotonic() - begun)


def refitted(run: ToolRun, *, max_tokens: int) -> ToolRun:
    """Return a run whose result has at most so many estimated tokens."""
    value = run.result if run.error is not None else run.value
    try:
        result, n_cut_tokens = to_result_text(value, max_tokens=max_tokens)
    except ToolCallError:  # changed since
        result, n_cut_tokens = fit_text(run.result, max_tokens=max_tokens)
    return replace(run, result=result, n_cut_tokens=n_cut_tokens)


def _answered(
    call: ToolCall, value: object, tool: Tool, max_result_tokens: int | None
) -> ToolRun:
    own = tool.max_result_tokens or MAX_RESULT_TOKENS
    room = own if max_result_tokens is None else min(own, max_result_tokens)
    try:
        result, n_cut_tokens = to_result_text(value, max_tokens=room)
    except ToolCallError as problem:
        return failed_run(call, str(problem), traceback=str(problem))
    except Exception as problem:  # noqa: BLE001 - a value's own methods
        said = f"The result cannot be written as text: {_words_of(problem)}"
        return failed_run(call, said, traceback=traceback_of(problem))
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=result,
        value=value,
        n_cut_tokens=n_cut_tokens,
    )

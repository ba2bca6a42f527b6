"""Calls: checked against what was offered, run once, answered with a text.

What it is not: it asks nobody for consent (`consent`), sends nothing, and knows no
rounds of calls.

Rules: nothing runs but an offered tool with checked arguments; every fault of a call
becomes a text for the model, without a traceback; a KeyboardInterrupt passes through;
a call ends at its time limit whatever it does (doc: Tool call, Tool-calling flow).
"""

import asyncio
import copy
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from svc_notebook.errors import ToolCallError
from svc_notebook.service.message import Message
from svc_notebook.service.tool import ToolCall

from .apart import traceback_of
from .arguments import parse_arguments
from .results import MAX_RESULT_TOKENS, fit_text, to_result_text
from .running import FailedError, Running, Submit, words_of
from .schema import read
from .tool import Tool
from .toolbox import Toolbox

MAX_ERROR_TOKENS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """One call of a tool and what came of it.

    Attributes:
        call_id: The id that the model gave the call.
        name: The tool's name, as the model wrote it.
        arguments: As the model wrote them, byte for byte.
        sent_arguments: What the tool was called with, as JSON; None if it was not.
        result: The content of the tool message.
        value: What the tool returned; None after an error.
        error: What went wrong, in words for the model; None if nothing.
        traceback: What went wrong, for the user; None if nothing is to be seen.
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
        read(tool.parameters, arguments)
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
    told, _ = fit_text(error, max_tokens=MAX_ERROR_TOKENS)
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=f"Error: {told}",
        error=told,
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
    """Run a call, once, and answer it whatever happens.

    Args:
        tool: The tool.
        call: The call as the model made it.
        arguments: What to call it with, as JSON; checked here again, since a user
            may have edited them.
        timeout_s: Seconds it may take where the tool sets no limit of its own.
        within_s: Seconds it may take whatever the tool sets; None for any number.
        max_result_tokens: The most estimated tokens of the result, whatever the tool
            sets; None for any number.
        submit: Runs a coroutine on a loop that lives on, and returns its result; a
            loop of its own if not given.

    Raises:
        KeyboardInterrupt: The user stopped it; a plain function is left running.
    """
    try:
        # A copy, since the tool may change what it is given.
        ready = read(tool.parameters, copy.deepcopy(arguments))
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    limits = [tool.timeout_s or timeout_s, within_s]
    limit_s = min((s for s in limits if s is not None), default=None)
    if limit_s is not None and limit_s <= 0:
        return failed_run(call, f"No time is left; {tool.name} was not run.")
    running = Running(tool, limit_s)
    begun = monotonic()
    try:
        value = running.value(dict(ready), submit or asyncio.run)  # type: ignore[call-overload]  # a record of names
    except FailedError as problem:
        run = failed_run(call, problem.told, traceback=problem.traceback)
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
        said = f"The result cannot be written as text: {words_of(problem)}"
        return failed_run(call, said, traceback=traceback_of(problem))
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=result,
        value=value,
        n_cut_tokens=n_cut_tokens,
    )

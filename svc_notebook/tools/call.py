"""Tool calls: checked against the offered tools, run once, and answered with a text.

Every error of a call becomes a text for the model, without a traceback. Only a
KeyboardInterrupt is raised.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from svc_notebook.errors import ToolCallError
from svc_notebook.service.request import Message, ToolCall

from .arguments import parse_arguments
from .results import MAX_RESULT_TOKENS, fit_text, to_result_text
from .tool_timeout import FailedError, TimedCall, traceback_of, words_of
from .toolbox import Tool, Toolbox

MAX_ERROR_TOKENS = 300


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
        value = TimedCall(tool, limit_s, check_stop).value(ready)
    except FailedError as problem:
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
        error = f"The result cannot be written as text: {words_of(problem)}"
        return failed_run(call, error, traceback=traceback_of(problem))
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        result=result,
        value=value,
        n_cut_tokens=n_cut_tokens,
    )

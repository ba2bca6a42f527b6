"""Runs tool calls: checks a call against the offered tools, runs it once, answers it.

Every error of a call becomes a text for the model, without a traceback. Only a
KeyboardInterrupt is raised.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from time import monotonic
from typing import Any

from svc_notebook.completion import Completion
from svc_notebook.errors import CutError, ToolCallError
from svc_notebook.service.params import one_line
from svc_notebook.service.request import Message, ToolCall
from svc_notebook.service.written_float import WrittenFloat
from svc_notebook.tokens import more_room

from .decimal_digits import with_digits
from .results import MAX_RESULT_TOKENS, fit_text, to_result_text
from .tool_errors import FailedError, one_line_of, traceback_of
from .tool_timeout import TimedCall
from .toolbox import Tool, Toolbox

MAX_ERROR_TOKENS = 300
MAX_DEPTH = 100  # of the arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """One call of a tool and its result.

    Attributes:
        call_id: The call's id from the model.
        name: The tool's name, as the model wrote it.
        arguments: The arguments that the tool ran with; None if it did not run.
        asked_arguments: What the model asked for, byte for byte. The user may have
            changed it.
        result: The content of the tool message.
        value: What the tool returned; None after an error.
        error: The error message for the model; None without an error.
        traceback: The error's details for the user; None if there are none.
        seconds_s: How long the tool ran.
        is_approved: Whether the user allowed it; None if the user was not asked.
        n_cut_tokens: Estimated tokens of the result that were left out.
        printed: What the tool printed, if that was not shown at once.
    """

    call_id: str
    name: str
    asked_arguments: str
    arguments: dict[str, Any] | None = None
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
class CheckedCall:
    """A call of an offered tool whose arguments fit the tool's schema."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]


def check_call(toolbox: Toolbox, call: ToolCall) -> CheckedCall | ToolRun:
    """Find a call's tool and check its arguments; a failed run says what is wrong."""
    try:
        tool = toolbox.tool(call.function.name)
        arguments = parse_arguments(
            call.function.arguments,
            schema=tool.parameter_schema,
            takes_none=not tool.parameter_names,
        )
        tool.parameters.read(arguments)
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    return CheckedCall(tool=tool, call=call, arguments=arguments)


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
        asked_arguments=call.function.arguments,
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
        arguments: The arguments as JSON values; the user may have edited them.
        timeout_s: Time limit for a tool without its own; None for no limit.
        within_s: Time limit for any tool, in seconds; None for no limit.
        max_result_tokens: Most estimated tokens of the result, for any tool.
        check_stop: Called often while the tool runs; it raises a KeyboardInterrupt to
            stop the call.
    """
    try:
        values = tool.parameters.read(arguments)  # a copy: the tool may change it
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    limits = [tool.timeout_s or timeout_s, within_s]
    limit_s = min((s for s in limits if s is not None), default=None)
    if limit_s is not None and limit_s <= 0:
        return failed_run(call, f"No time is left; {tool.name} was not run.")
    started_s = monotonic()
    try:
        value = TimedCall(tool, limit_s, check_stop).value(values)
    except FailedError as problem:
        run = failed_run(call, problem.error, traceback=problem.traceback)
    else:
        run = _to_run(call, value, tool, max_result_tokens)
    return replace(run, arguments=arguments, seconds_s=monotonic() - started_s)


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
    except Exception as problem:  # noqa: BLE001 - methods of the value may raise anything
        error = f"The result cannot be written as text: {one_line_of(problem)}"
        return failed_run(call, error, traceback=traceback_of(problem))
    return ToolRun(
        call_id=call.id,
        name=call.function.name,
        asked_arguments=call.function.arguments,
        result=result,
        value=value,
        n_cut_tokens=n_cut_tokens,
    )


# Arguments as the model writes them


def parse_arguments(
    text: str, *, schema: Mapping[str, Any] | None = None, takes_none: bool = False
) -> dict[str, Any]:
    """Read a call's arguments: strict JSON of an object (doc: Tool call).

    A float without a fraction becomes an integer, since 3.0 is both in JSON schema. A
    number for a Decimal of the `schema` becomes a text with the same digits. If the
    tool has no parameters (`takes_none`), the text may be empty.
    """
    if takes_none and not text.strip():
        return {}
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_unique_members,
            parse_constant=_not_json,
            parse_float=_finite_float,
            parse_int=_whole_number,
        )
        json.dumps(value, ensure_ascii=False).encode()
        _check_depth(value, MAX_DEPTH)
    except UnicodeEncodeError:
        reason = "are not text: they contain half of a surrogate pair"
    except (ValueError, RecursionError) as problem:
        reason = f"are not JSON ({one_line(str(problem), 200)})"
    else:
        if isinstance(value, dict):
            arguments: dict[str, Any] = with_digits(value, schema or {})
            return arguments
        reason = "are not an object"
    raise ToolCallError(
        f"The arguments {reason}. Write the arguments as one JSON object."
    )


def check_whole(completion: Completion) -> None:
    """Refuse the calls of a reply that was cut in the middle of a call (CutError)."""
    for call in completion.tool_calls if completion.is_cut else ():
        try:
            parse_arguments(call.function.arguments)
        except ToolCallError:
            where = f"in the middle of a call of {one_line(call.function.name)}"
            raise cut_error(completion, f"{where}, which was not run") from None


def cut_error(completion: Completion, where: str) -> CutError:
    """Build the error for a reply that was cut; it says how to allow more tokens."""
    error = CutError(f"The reply was cut {where}. {more_room(completion.request)}.")
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return members


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _finite_float(text: str) -> WrittenFloat:
    number = WrittenFloat(text)
    if not isfinite(number):
        raise ValueError(f"{one_line(text)} is too large")
    return number


def _whole_number(text: str) -> int:
    number = int(text)
    if abs(number) > sys.float_info.max:  # it would be infinity as a float
        raise ValueError(f"{one_line(text)} is too large")
    return number


def _check_depth(value: object, n_left: int) -> None:
    """Refuse deep nesting, which later readers of the value could not handle."""
    if n_left <= 0:
        raise RecursionError("nested too deep")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, n_left - 1)

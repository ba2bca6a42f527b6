"""Tool calls and tool definitions as they are sent (doc: Tool call, Tool definition).

Arguments stay the model's text, byte for byte, because the assistant message is sent
back unchanged (doc: Tool-calling flow).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The name of the tool to use and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a tool that the model asks for (doc: Tool call).

    Attributes:
        id: Matches the result to the call.
        type: Always `function`.
        function: The tool's name and its arguments.
    """

    id: str
    type: str = "function"
    function: FunctionCall

    @classmethod
    def from_json(cls, value: object) -> "ToolCall":
        """Read a call from a mapping."""
        if isinstance(value, ToolCall):
            return value
        try:
            return msgspec.convert(value, ToolCall)
        except msgspec.ValidationError as problem:
            reason = str(problem)
        raise ParameterError(
            f"A tool call is not as documented: {reason}. It needs id, type and "
            "function with name and arguments.",
            param="messages",
        )


def with_own_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Number the ids that a reply uses twice, since results are matched by id.

    The document has calls sent back unchanged, but a history in which two calls share
    an id is refused (doc: Tool-calling flow).
    """
    taken: set[str] = set()
    own = []
    for call in calls:
        call_id, n = call.id, 1
        while call_id in taken:
            n += 1
            call_id = f"{call.id or 'call'}-{n}"
        taken.add(call_id)
        is_same = call_id == call.id
        own.append(call if is_same else msgspec.structs.replace(call, id=call_id))
    return tuple(own)


def function_given() -> ParameterError:
    """Build the error for a function where only definitions are allowed."""
    return ParameterError(
        "tools contains a function, but only definitions are allowed here; give "
        "[svc.tool(...).definition], in a sweep a list of such lists. svc.complete "
        "takes functions and runs them, and so does a client's `complete` with "
        "run_tools=True; streams run no tools.",
        param="tools",
    )


def check_definition(value: object) -> Mapping[str, Any]:
    """Return a tool definition if it has the fields that the document shows."""
    if isinstance(value, Mapping) and value.get("type") == "function":
        function = value.get("function")
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            return value
    if callable(value):
        raise function_given()
    raise ParameterError(
        "A tool definition is not complete; give it type='function' and a function "
        "with a name.",
        param="tools",
    )

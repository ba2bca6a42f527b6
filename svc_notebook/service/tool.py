"""Tool calls and tool definitions as they travel (doc: Tool call, Tool definition).

Rules: arguments stay the text that the model wrote, byte for byte, because the
assistant message goes back unchanged (doc: Tool-calling flow).
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
        """Read a call out of a history that a user kept as plain mappings.

        Raises:
            ParameterError: It is not a call as the document shows it.
        """
        if isinstance(value, ToolCall):
            return value
        try:
            return msgspec.convert(value, ToolCall)
        except msgspec.ValidationError as problem:
            reason = str(problem)
        raise ParameterError(
            f"A tool call is not as documented: {reason}. It needs id, type and "
            "function with name and arguments (doc: Tool call).",
            param="messages",
        )


def function_given() -> ParameterError:
    """Build the error for a function where definitions are sent as they are."""
    return ParameterError(
        "tools holds a function, and only definitions are sent here; give "
        "[svc.tool(...).definition], in a sweep a list of such lists. svc.complete "
        "takes functions and runs them (doc: Tool definition).",
        param="tools",
    )


def check_definition(value: object) -> Mapping[str, Any]:
    """Return a ready-made tool definition if it has the document's outline.

    Raises:
        ParameterError: It is not a mapping with type `function` and a function name.
    """
    if isinstance(value, Mapping) and value.get("type") == "function":
        function = value.get("function")
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            return value
    if callable(value):
        raise function_given()
    raise ParameterError(
        "A tool definition lacks something; give it type='function' and a function "
        "with a name "
        "(doc: Tool definition).",
        param="tools",
    )

"""What a door was given as `tools`: ready-made definitions, or things that can run.

Rules: pure; ready-made definitions alone go as they are and their calls are handed
back; with one function among them the rounds are run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.tools.toolbox import Toolbox, to_toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is offered in a request.

    Attributes:
        definitions: As they are sent; None to send none.
        toolbox: What can run; None where all calls are handed back.
    """

    definitions: Any = None
    toolbox: Toolbox | None = None


def to_offer(tools: object, *, run_tools: bool = True) -> Offer:
    """Read what a door was given as `tools`.

    Args:
        tools: Functions, tools, a toolbox, definitions, or a list of these.
        run_tools: Whether calls are run; else they are handed back.

    Raises:
        ToolSchemaError: Something in it cannot be offered.
        ParameterError: It is no list of these.
    """
    if tools is None or _is_ready(tools):
        return Offer(definitions=tools)
    if isinstance(tools, (str, bytes)) or not (
        callable(tools) or isinstance(tools, Iterable)
    ):
        raise ParameterError(
            f"tools is {type(tools).__name__}; give a list of functions, or of tool "
            "definitions (doc: Tool definition).",
            param="tools",
        )
    toolbox = to_toolbox(tools)
    definitions = list(toolbox.definitions) or None
    can_run = any(tool.function is not None for tool in toolbox)
    if definitions is None or not (run_tools and can_run):
        return Offer(definitions=definitions)
    return Offer(definitions=definitions, toolbox=toolbox)


def _is_ready(tools: object) -> bool:
    """Say whether these are ready-made definitions alone."""
    is_list = isinstance(tools, (list, tuple))
    return is_list and all(isinstance(each, Mapping) for each in tools)  # type: ignore[attr-defined]  # just tested

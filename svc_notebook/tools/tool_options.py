"""What a Python caller allows rounds: who consents, how many, for how long.

What it is not: it runs nothing. Rules: everything is checked when it is said, also
where no tools are offered, so that no wrong value goes unnoticed.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import Params

from .consent import Consent
from .consent_prompt import Confirm, to_consent
from .rounds import MAX_ROUNDS, TOOL_TIMEOUT_S, TOTAL_S, Rounds
from .toolbox import Toolbox, to_toolbox


class ToolParams(Params, total=False):
    """The parameters of a request, and what is allowed to rounds."""

    confirm: Confirm
    max_rounds: int | None
    tool_timeout_s: float | None
    total_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What is allowed.

    Attributes:
        confirm: As `to_consent` takes it.
        rounds: How far they may go, and which calls want consent.
    """

    confirm: Confirm = None
    rounds: Rounds = field(default_factory=Rounds)

    def consent(self, whom: Consent) -> Consent:
        """Say who decides on a call, given whom to ask."""
        return to_consent(self.confirm, whom)[0]


def to_permit(
    *,
    confirm: Confirm = None,
    max_rounds: int | None = None,
    tool_timeout_s: float | None = None,
    total_s: float | None = None,
) -> Permit:
    """Read what a caller allows; None is as usual.

    Raises:
        ParameterError: One of them is not allowed.
    """
    _, ask_for = to_consent(confirm)
    rounds = Rounds(
        max_rounds=MAX_ROUNDS if max_rounds is None else max_rounds,
        tool_timeout_s=TOOL_TIMEOUT_S if tool_timeout_s is None else tool_timeout_s,
        total_s=TOTAL_S if total_s is None else total_s,
        ask_for=ask_for,
    )
    return Permit(confirm=confirm, rounds=rounds)


def take_permit(params: MutableMapping[str, Any]) -> Permit:
    """Take what a caller allows out of what it gave; the parameters are left.

    Raises:
        ParameterError: One of them is not allowed.
    """
    names = ToolParams.__annotations__.keys() - Params.__annotations__.keys()
    return to_permit(**{name: params.pop(name, None) for name in names})


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

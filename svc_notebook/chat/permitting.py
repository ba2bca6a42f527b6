"""What a Python caller allows rounds: who consents, how many, for how long.

What it is not: it runs nothing. Rules: everything is checked when it is said, also
where no tools are offered, so that no wrong value goes unnoticed.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from svc_notebook.service.params import Params
from svc_notebook.tools.consent import Consent

from .consenting import Confirm, to_consent
from .loop import MAX_ROUNDS, TOOL_TIMEOUT_S, TOTAL_S, Rounds


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

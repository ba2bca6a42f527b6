"""Consent: whether a call may run, as a user decides.

What it is not: it shows nothing; each door asks in its own way.

Rules: where nobody can be asked, nothing is allowed unless that was said before.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .calling import Checked

Verdict = Literal["approve", "deny", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A call that waits for consent.

    Attributes:
        call_id: The id that the model gave the call.
        name: The tool's name.
        arguments: What it would be called with, checked.
        about: What the tool does, in plain text.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    about: str

    @classmethod
    def of(cls, checked: Checked) -> "Proposal":
        """Propose a checked call."""
        return cls(
            call_id=checked.call.id,
            name=checked.tool.name,
            arguments=copy.deepcopy(checked.arguments),  # whoever decides may edit it
            about=checked.tool.description,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a user decided.

    Attributes:
        verdict: "always" approves this call and every later one of the tool.
        arguments: What to call it with instead; None to leave them.
    """

    verdict: Verdict
    arguments: dict[str, Any] | None = None


Consent = Callable[[Proposal], Decision]


def deny_all(proposal: Proposal) -> Decision:
    """Allow nothing: where nobody can be asked."""
    del proposal
    return Decision(verdict="deny")


def approve_all(proposal: Proposal) -> Decision:
    """Allow everything: where a user said so before."""
    del proposal
    return Decision(verdict="approve")


class Remembered:
    """Asks, and keeps what is always allowed, for as long as this object lives.

    Args:
        ask: Whom to ask of a tool that is not always allowed.
        beside: Shares what is always allowed; None to keep it apart.
    """

    def __init__(self, ask: Consent, *, beside: "Remembered | None" = None) -> None:
        self._ask = ask
        self._always: set[str] = set() if beside is None else beside._always  # noqa: SLF001 - of its own class

    @property
    def always(self) -> tuple[str, ...]:
        """The names of the tools that are always allowed."""
        return tuple(sorted(self._always))

    def forget(self, name: str | None = None) -> None:
        """Ask again of the tool of this name, or of every tool if None."""
        if name is None:
            self._always.clear()
        self._always.discard(str(name))

    def __call__(self, proposal: Proposal) -> Decision:
        """Decide, without asking where the user said "always" before."""
        if proposal.name in self._always:
            return Decision(verdict="approve")
        decision = self._ask(proposal)
        if decision.verdict == "always":
            self._always.add(proposal.name)
        return decision

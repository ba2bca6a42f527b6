"""Consent at the prompt: somebody reads a call and says yes, no, or something else.

What it is not: the panel's cards. Rules: what the model wrote is shown printable and
whole; no answer is a yes by itself; where nobody can be asked, nothing is allowed,
and that is counted, so that it can be said.
"""

import inspect
import json
import warnings
from collections.abc import Callable
from typing import Any, Literal

from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import ParameterError

from .consent import Consent, Decision, Proposal, approve_all, deny_all

AskFor = Literal["marked", "all", "none"]
Confirm = bool | Callable[[Proposal], Decision | bool] | None
"""None asks for tools that want it, True for all, False for none; or a function."""

_QUESTION = "Run it? [y]es, [n]o, [e]dit the arguments, [a]lways: "
_EDIT = "The arguments as JSON: "
_MAX_TRIES = 5
_PACKAGE = "svc_notebook."
_ANSWERS: dict[str, Literal["approve", "deny", "always", "edit"]] = {
    "y": "approve",
    "yes": "approve",
    "n": "deny",
    "no": "deny",
    "a": "always",
    "always": "always",
    "e": "edit",
    "edit": "edit",
}


class AtPrompt:
    """Asks whoever sits at this kernel or terminal.

    Args:
        read: Asks a question and returns the answer, as `input` does.
    """

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read
        self.n_unasked = 0

    def __call__(self, proposal: Proposal) -> Decision:
        """Ask; deny where nobody answers, or nobody says yes in a few tries."""
        try:
            return self._decision(proposal)
        except (EOFError, NotImplementedError, OSError):  # nobody can be asked
            self.n_unasked += 1
            return Decision(verdict="deny")

    def _decision(self, proposal: Proposal) -> Decision:
        question = f"{proposal_text(proposal)}\n{_QUESTION}"
        for _ in range(_MAX_TRIES):
            answer = _ANSWERS.get(self._asked(question).strip().lower())
            if answer == "edit":
                edited = _to_arguments(self._asked(_EDIT))
                if edited is not None:
                    return Decision(verdict="approve", arguments=edited)
                question = f"These are not the JSON of an object. {_QUESTION}"
            elif answer is not None:
                return Decision(verdict=answer)
            else:
                question = _QUESTION
        return Decision(verdict="deny")

    def _asked(self, question: str) -> str:
        read = self._read or input  # IPython puts its own in that place
        return read(question)


def warn_of_denied(n_denied: int) -> None:
    """Say that calls were denied for want of anybody to ask, and what allows them.

    The warning names the line outside this package that asked.
    """
    calls = "1 tool call was" if n_denied == 1 else f"{n_denied} tool calls were"
    warnings.warn(
        f"{calls} denied, since nobody could be asked; confirm=False, or a function "
        "that decides, allows them.",
        RuntimeWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """Return the stack level, for who calls this, of the first frame outside."""
    level, frame = 0, inspect.currentframe()
    while frame and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def proposal_text(proposal: Proposal) -> str:
    """Write a call out in full, one argument a line, safe to print."""
    lines = [f"The model calls {proposal.name}"]
    lines += [f"  {name} = {_json(each)}" for name, each in proposal.arguments.items()]
    about = " ".join(proposal.about.split())
    return to_terminal("\n".join([*lines, f"  ({about})"] if about else lines))


def to_consent(
    confirm: Confirm, at_prompt: Consent = deny_all
) -> tuple[Consent, AskFor]:
    """Read what a door was told about consent.

    Args:
        confirm: None asks for tools that want it, True for every call, False allows
            every call; a function decides on every call, by a bool or a Decision.
        at_prompt: Whom to ask.

    Raises:
        ParameterError: It is none of these.
    """
    if confirm is None:
        return at_prompt, "marked"
    if confirm is True:
        return at_prompt, "all"
    if confirm is False:
        return approve_all, "none"
    if _takes_one(confirm):
        return _decided_by(confirm), "all"
    raise ParameterError(
        f"confirm={confirm!r} is not allowed; give True to be asked before every call, "
        "False for none, or a function that takes one Proposal, with its `name` and "
        "`arguments`, and says True or False.",
        param="confirm",
    )


def _takes_one(function: object) -> bool:
    """Say whether it can be called with one argument, where that can be known."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return True
    return True


def _decided_by(decide: Callable[[Proposal], Decision | bool]) -> Consent:
    def decision(proposal: Proposal) -> Decision:
        said = decide(proposal)
        if isinstance(said, Decision):
            return said
        return Decision(verdict="approve" if said is True else "deny")

    return decision


def _to_arguments(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

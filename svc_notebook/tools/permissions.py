"""What tool calls may do: who consents, how many rounds, which tools are offered.

Everything is checked when it is given, also where no tools are offered.
"""

import copy
import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal

from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import Params
from svc_notebook.tokens import MaxTokens

from .call import Checked
from .toolbox import Toolbox, to_toolbox

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
            arguments=copy.deepcopy(checked.arguments),  # the user may edit it
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
    """Allow nothing, as where nobody can be asked."""
    del proposal
    return Decision(verdict="deny")


def approve_all(proposal: Proposal) -> Decision:
    """Allow everything, as a user said before."""
    del proposal
    return Decision(verdict="approve")


class Remembered:
    """Asks, and remembers which tools are always allowed.

    Args:
        ask: Called for a tool that is not always allowed.
        beside: Shares what is always allowed with another; None for an own set.
    """

    def __init__(self, ask: Consent, *, beside: "Remembered | None" = None) -> None:
        self._ask = ask
        self._always: set[str] = set() if beside is None else beside._always  # noqa: SLF001 - of its own class

    @property
    def always(self) -> tuple[str, ...]:
        """The names of the tools that are always allowed."""
        return tuple(sorted(self._always))

    def forget(self, name: str | None = None) -> None:
        """Ask again about the tool with this name, or about all tools if None."""
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


MIN_ROUNDS = 2  # one to call and one to answer (doc: Tool-calling flow)
MAX_ROUNDS = 8
TOOL_TIMEOUT_S = 60.0
TOTAL_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How far rounds may go.

    Attributes:
        max_rounds: Most requests, the one that brings the answer included.
        tool_timeout_s: Longest time of a call whose tool has no limit of its own.
        total_s: Longest time of all rounds; no request and no call begins after it.
        max_tokens: As asked for; `fit` is found anew for each request.
        ask_for: Which calls need consent: those of tools that are marked with
            `confirm`, all, or none.
    """

    max_rounds: int = MAX_ROUNDS
    tool_timeout_s: float = TOOL_TIMEOUT_S
    total_s: float = TOTAL_S
    max_tokens: MaxTokens = None
    ask_for: Literal["marked", "all", "none"] = "marked"

    def __post_init__(self) -> None:
        if not _is_whole(self.max_rounds) or self.max_rounds < MIN_ROUNDS:
            raise ParameterError(
                f"max_rounds={self.max_rounds!r} is not allowed; it takes an integer "
                "of at least 2, one round to call and one to answer "
                "(doc: Tool-calling flow).",
                param="max_rounds",
            )
        for name in ("tool_timeout_s", "total_s"):
            value = getattr(self, name)
            if not _is_positive(value):
                raise ParameterError(
                    f"{name}={value!r} is not allowed; it takes seconds above 0.",
                    param=name,
                )


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


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")  # type: ignore[operator]  # just tested

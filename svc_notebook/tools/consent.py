"""Consent to tool calls: which calls are asked about, and who decides.

`confirm=` is checked even if no tools are offered.
"""

import ast
import copy
import inspect
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import (
    Output,
    Screen,
    find_screen,
    fitted_to_terminal,
)
from svc_notebook.display.html_styles import verbatim_html
from svc_notebook.display.tool_runs import (
    CHANGED_NOTE,
    arguments_line,
    call_line,
    to_arguments,
)
from svc_notebook.errors import ParameterError, warn
from svc_notebook.service.written_float import WrittenFloat

from .call import CheckedCall
from .results import fit_text

ConsentVerdict = Literal["approve", "deny", "always"]
AskFor = Literal["marked", "all", "none"]
_CHOICES = "[y]es, [n]o, [e]dit, [a]lways: "
_ARGUMENTS_CHARS = 30  # of long arguments in the question, which stays in the cell
HOW_TO_EDIT = "what changes as name=value, with a comma between several, or all as JSON"
_EDIT = f"Type {HOW_TO_EDIT}; Enter changes nothing: "
_UNREADABLE = "That is neither name=value nor JSON, so nothing has changed. "
# the start of another change, after a comma; a value as a text of words, or quoted
_NEXT_CHANGE = re.compile(r",\s*(?=\w+\s*=)")
_CHANGE = re.compile(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^"'=()\[\]{}]+)""")
_MAX_TRIES = 5  # to answer the question
MAX_EDITS = 3  # of one call's arguments; it is denied after them
MAX_CHANGED_TOKENS = 200  # of the changed arguments that the model is shown
DENIED = "This call was not allowed. Go on without it."
UNDECIDED = "Nobody could decide on this call; it was not run."
_Answer = Literal["approve", "deny", "always", "edit"]
_WORDS: dict[str, _Answer] = {
    "yes": "approve",
    "no": "deny",
    "edit": "edit",
    "always": "always",
}
_ANSWERS = _WORDS | {word[0]: answer for word, answer in _WORDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A call that waits for consent: its arguments, and the tool's description.

    Attributes:
        problem: Why the arguments to which the user changed it do not fit, if so.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    about: str
    problem: str = ""
    function: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, checked: CheckedCall) -> "Proposal":
        """Return the proposal of a checked call."""
        return cls(
            call_id=checked.call.id,
            name=checked.tool.name,
            arguments=copy.deepcopy(checked.arguments),  # the user may edit it
            about=checked.tool.description,
            function=checked.tool.function,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentDecision:
    """The user's decision about a call.

    Attributes:
        verdict: "always" approves this call and every later call of the tool, until
            its function is defined again.
        arguments: Replaces the arguments; None keeps them.
    """

    verdict: ConsentVerdict
    arguments: dict[str, Any] | None = None


Consent = Callable[[Proposal], ConsentDecision]
Confirm = bool | Callable[[Proposal], ConsentDecision | bool] | None
"""None asks about tools with `confirm`, True about all, False about none."""


def deny_all(_: Proposal) -> ConsentDecision:
    """Deny a call, if no user can be asked."""
    return ConsentDecision(verdict="deny")


def approve_all(_: Proposal) -> ConsentDecision:
    """Approve a call."""
    return ConsentDecision(verdict="approve")


class Remembered:
    """Asks for consent, and remembers which functions are always allowed.

    If a tool is defined again, it is another function, and consent is asked for again.
    `shared_with` is another object that has the same allowed tools.
    """

    def __init__(
        self, ask: Consent, *, shared_with: "Remembered | None" = None
    ) -> None:
        self._ask = ask
        self._always: dict[str, object] = shared_with._always if shared_with else {}  # noqa: SLF001 - the same class

    @property
    def always(self) -> tuple[str, ...]:
        """The names of the tools that are always allowed."""
        return tuple(sorted(self._always))

    def allows(self, name: str, function: object) -> bool:
        """Return whether a tool with this function is always allowed."""
        # `==`, not `is`: each access to `thing.method` makes a new object.
        return function is not None and self._always.get(name) == function

    def forget(self, name: str | None = None) -> None:
        """Ask again about the tool with this name; about all tools if None."""
        if name is None:
            self._always.clear()
        self._always.pop(str(name), None)

    def __call__(self, proposal: Proposal) -> ConsentDecision:
        """Approve a call of an always allowed tool; ask about other calls."""
        if self.allows(proposal.name, proposal.function):
            return ConsentDecision(verdict="approve")
        decision = self._ask(proposal)
        if decision.verdict == "always":
            self._always[proposal.name] = proposal.function
        return decision


class AtPrompt:
    """Asks the user at the prompt of the cell or terminal, with `read` or `input`."""

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read
        self.n_unasked = 0  # denied because no user could be asked

    def __call__(self, proposal: Proposal) -> ConsentDecision:
        """Ask; deny the call without a prompt, or without a clear answer."""
        try:
            return self._decision(proposal)
        except (EOFError, NotImplementedError, OSError):  # there is no prompt
            self.n_unasked += 1
            return ConsentDecision(verdict="deny")

    def _decision(self, proposal: Proposal) -> ConsentDecision:
        name, arguments = proposal.name, proposal.arguments
        call = call_line(name, arguments, _ARGUMENTS_CHARS)
        is_whole = call == f"{name}({arguments_line(arguments)})"
        details = "" if is_whole else fitted_to_terminal(proposal_text(proposal))
        question = f"Run {to_terminal(call)}? {_CHOICES}"
        is_edit = bool(proposal.problem)  # of an edit, which goes on
        for _ in range(_MAX_TRIES):
            answer = "edit" if is_edit else self._answer(question, details)
            is_edit = False
            if answer == "edit":
                edited = self._edit(proposal)
                if edited is not None:
                    return ConsentDecision(verdict="approve", arguments=edited)
            elif answer is not None:
                return ConsentDecision(verdict=answer)
        return ConsentDecision(verdict="deny")

    def _answer(self, question: str, details: str) -> _Answer | None:
        return _ANSWERS.get(self._ask(question, details).strip().lower())

    def _edit(self, proposal: Proposal) -> dict[str, Any] | None:
        """Ask for changes until they can be read; None keeps the arguments."""
        problem = fitted_to_terminal(to_terminal(" ".join(proposal.problem.split())))
        details = "\n".join(filter(None, (problem, _sent(proposal))))
        question = _EDIT
        while typed := self._ask(question, details).strip():
            edited = edited_arguments(proposal.arguments, typed)
            if edited is not None:
                return edited
            question, details = f"{_UNREADABLE}{_EDIT}", _sent(proposal)
        return None

    def _ask(self, question: str, details: str) -> str:
        """Ask a question below its details, which a notebook shows until the answer."""
        read = self._read or input  # looked up now: IPython replaces `input`
        question = fitted_to_terminal(question)
        if not details:
            return read(question)
        if find_screen() is not Screen.NOTEBOOK:
            return read(f"{details}\n{question}")
        display_id = uuid4().hex
        html = verbatim_html(to_text(details))
        Output().publish({"text/html": html, "text/plain": details}, display_id)
        try:
            return read(question)
        finally:
            Output().update({"text/html": "", "text/plain": ""}, display_id)


def edited_arguments(arguments: dict[str, Any], typed: str) -> dict[str, Any] | None:
    """Return the arguments as a user changed them; None if that cannot be read.

    They type what changes as `name=value`, or all arguments as JSON.
    """
    whole = to_arguments(typed)
    if whole is not None:
        return whole
    changes = _literals(typed) or _words(typed)
    return arguments | changes if changes else None


def _words(typed: str) -> dict[str, Any]:
    """Return changes such as `name=Ann Lee, n=2`, whose texts need no quotes."""
    changes = [_CHANGE.fullmatch(part.strip()) for part in _NEXT_CHANGE.split(typed)]
    if None in changes:
        return {}
    return {match[1]: _word(match[2].strip()) for match in changes if match}


def _word(text: str) -> Any:  # noqa: ANN401 - a JSON value
    with suppress(ValueError, SyntaxError, TypeError):
        return _typed_value(text, text)
    return text


def _literals(typed: str) -> dict[str, Any]:
    """Return changes whose values are written as in JSON or as in Python."""
    source = f"f({typed})"
    try:
        call = ast.parse(source, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return {}
        changes = {
            str(keyword.arg): _typed_value(
                ast.get_source_segment(source, keyword.value) or "", keyword.value
            )
            for keyword in call.keywords
        }
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return {}
    return {} if call.args or "None" in changes else changes


def _typed_value(text: str, python: str | ast.expr) -> Any:  # noqa: ANN401 - a JSON value
    """Return a value that is typed as in JSON or as in Python, as a JSON value."""
    with suppress(ValueError):
        return json.loads(text, parse_float=WrittenFloat)
    value = ast.literal_eval(python)
    if isinstance(value, float):  # such as .50 or 1_000.50
        return WrittenFloat("".join(text.replace("_", "").split()))
    return json.loads(json.dumps(value))


def warn_of_denied(n_denied: int) -> None:
    """Warn that calls were denied; the warning points to the user's own line."""
    calls = "1 tool call was" if n_denied == 1 else f"{n_denied} tool calls were"
    warn(
        f"{calls} denied, because there was no prompt to ask for consent. Allow calls "
        "with confirm=False, or with a function that decides."
    )


def proposal_text(proposal: Proposal) -> str:
    """Return a call with its arguments, one per line, without control characters."""
    lines = [f"The model calls {proposal.name}"]
    for name, value in proposal.arguments.items():
        lines.append(f"  {name} = {json.dumps(value, ensure_ascii=False)}")
    about = " ".join(proposal.about.split())
    return to_terminal("\n".join([*lines, f"  ({about})"] if about else lines))


def _sent(proposal: Proposal) -> str:
    """Return the arguments as JSON to copy, safe to print."""
    return to_terminal(json.dumps(proposal.arguments, ensure_ascii=False))


def to_consent(
    confirm: Confirm, at_prompt: Consent = deny_all
) -> tuple[Consent, AskFor]:
    """Return the function that decides on calls, and which calls it decides on."""
    if confirm is None:
        return at_prompt, "marked"
    if confirm is True:
        return at_prompt, "all"
    if confirm is False:
        return approve_all, "none"
    if _accepts_one_argument(confirm):
        return _to_consent_function(confirm), "all"
    raise ParameterError(
        "confirm must be True (ask before every call), False (never ask), None (ask "
        "about tools made with confirm=True), or a function that takes one Proposal "
        f"(with `name` and `arguments`) and returns True or False; got {confirm!r}.",
        param="confirm",
    )


def _accepts_one_argument(function: object) -> bool:
    """Return whether a function can be called with one argument, or may be."""
    try:
        inspect.signature(function).bind(None)  # type: ignore[arg-type]  # else TypeError
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        pass
    return True


def _to_consent_function(
    decide: Callable[[Proposal], ConsentDecision | bool],
) -> Consent:
    def decision(proposal: Proposal) -> ConsentDecision:
        answer = decide(proposal)
        if isinstance(answer, ConsentDecision):
            return answer
        return ConsentDecision(verdict="approve" if answer is True else "deny")

    return decision


def changed_note(arguments: dict[str, Any]) -> str:
    """Tell the model that the call was run with other arguments."""
    text = json.dumps(arguments, ensure_ascii=False)
    shown, _ = fit_text(text, max_tokens=MAX_CHANGED_TOKENS)
    return CHANGED_NOTE.format(arguments=shown)

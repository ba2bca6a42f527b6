"""Answering one tool call: checked, allowed, run, fitted, told and kept.

What it is not: the rounds (see `loop`). Rules: whatever is wrong with a call becomes
a text for the model; a call that somebody changed says so in its result; a call is
told and kept once, also one that was refused, denied or left over.
"""

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from svc_notebook.completion import Completion
from svc_notebook.exchange import Exchange
from svc_notebook.service.tool import ToolCall
from svc_notebook.tools.calling import (
    Checked,
    ToolRun,
    check_call,
    failed_run,
    run_call,
)
from svc_notebook.tools.consent import Consent, Decision, Proposal
from svc_notebook.tools.results import fit_text
from svc_notebook.tools.toolbox import Toolbox

MAX_EDITS = 3
MAX_CHANGED_TOKENS = 200
DENIED = "This call was not allowed. Go on without it."
Left = Callable[[], float]
Submit = Callable[[Coroutine[Any, Any, Any]], Any]


@dataclass(slots=True, kw_only=True)
class Answering:
    """What is needed to answer calls.

    Attributes:
        toolbox, consent, ask_for, told, keep, submit, hide: As `loop.run_rounds`.
        timeout_s: Longest time of a call whose tool has no limit of its own.
        waited_s: How long somebody was asked for consent, all together.
    """

    toolbox: Toolbox
    consent: Consent
    ask_for: Literal["marked", "all", "none"]
    told: Callable[[ToolCall | ToolRun], None] | None
    keep: Callable[[Exchange, ToolRun], None] | None
    submit: Submit
    timeout_s: float
    hide: Callable[[str], str] = str
    clock: Callable[[], float] = time.monotonic
    waited_s: float = field(default=0.0, init=False)

    def hands_back(self, completion: Completion) -> bool:
        """Say whether a reply calls a tool that has no function here."""
        bare = {tool.name for tool in self.toolbox if tool.function is None}
        return any(call.function.name in bare for call in completion.tool_calls)

    def answer(
        self, call: ToolCall, exchange: Exchange, *, within_s: Left, max_tokens: int
    ) -> ToolRun:
        """Answer one call.

        Args:
            call: As the model made it.
            exchange: Whose reply held it.
            within_s: Says, when the tool is run, how long it may take.
            max_tokens: What its result may have.
        """
        self._tell(call)
        run = _hidden(self._run(call, within_s, max_tokens), self.hide)
        self._end(run, exchange)
        return run

    def leave(self, call: ToolCall, exchange: Exchange, reason: str) -> ToolRun:
        """Answer a call that is not run any more."""
        run = failed_run(call, reason)
        self._end(run, exchange)
        return run

    def _run(self, call: ToolCall, within_s: Left, max_tokens: int) -> ToolRun:
        checked = check_call(self.toolbox, call)
        if isinstance(checked, ToolRun):
            return checked
        is_asked = self.ask_for == "all" or (
            checked.tool.confirm and self.ask_for == "marked"
        )
        allowed = self._allowed(checked) if is_asked else checked
        if allowed is None:
            return failed_run(call, DENIED, is_approved=False)
        run = run_call(
            allowed.tool,
            call,
            allowed.arguments,
            timeout_s=self.timeout_s,
            within_s=within_s(),
            max_result_tokens=max_tokens,
            submit=self.submit,
        )
        if allowed.arguments != checked.arguments:
            run = replace(run, result=_changed(allowed.arguments) + run.result)
        return replace(run, is_approved=True if is_asked else None)

    def _allowed(self, checked: Checked) -> Checked | None:
        """Ask for consent; None if it is denied, else the call, perhaps changed.

        Arguments that somebody changed are checked like the model's; what is wrong
        with them is said, and consent is asked for again.
        """
        proposal = Proposal.of(checked)
        for _ in range(MAX_EDITS):
            decision = self._decide(proposal)
            if decision.verdict == "deny":
                return None
            if decision.arguments is None:
                return checked
            edited = _edited(checked.call, decision.arguments)
            found = check_call(self.toolbox, edited)
            if isinstance(found, Checked):
                return found
            about = f"The changed arguments do not fit. {found.error}"
            proposal = replace(proposal, about=about)
        return None

    def _decide(self, proposal: Proposal) -> Decision:
        begun_s = self.clock()
        try:
            return self.consent(proposal)
        finally:
            self.waited_s += self.clock() - begun_s

    def _tell(self, what: ToolCall | ToolRun) -> None:
        if self.told is not None:
            self.told(what)

    def _end(self, run: ToolRun, exchange: Exchange) -> None:
        if self.keep is not None:
            self.keep(exchange, run)
        self._tell(run)


def _hidden(run: ToolRun, hide: Callable[[str], str]) -> ToolRun:
    """Return a run whose texts hold no key, should a tool have read it."""
    arguments, value = run.sent_arguments, run.value
    if arguments is not None:
        text = json.dumps(arguments, ensure_ascii=False)
        arguments = arguments if hide(text) == text else json.loads(hide(text))
    result = hide(run.result)
    return replace(
        run,
        sent_arguments=arguments,
        result=result,
        value=value if result == run.result else result,
        error=None if run.error is None else hide(run.error),
        traceback=None if run.traceback is None else hide(run.traceback),
    )


def _edited(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    text = json.dumps(arguments, ensure_ascii=False)
    function = msgspec.structs.replace(call.function, arguments=text)
    return msgspec.structs.replace(call, function=function)


def _changed(arguments: dict[str, Any]) -> str:
    """Say in a result that the call was not the one the model made."""
    text = json.dumps(arguments, ensure_ascii=False)
    shown, _ = fit_text(text, max_tokens=MAX_CHANGED_TOKENS)
    return f"(The user changed the arguments to {shown}.)\n"

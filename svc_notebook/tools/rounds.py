"""Rounds: ask, run the tools the model calls, send the results, ask again.

What it is not: it sends nothing itself and shows nothing; the door does, which gives
`send` and is `told`. Rules: nothing that a model sends is run but a call to an offered
tool with checked arguments; each call is answered once, by its id, in order; the
assistant's message goes back as it came; tools are offered in every request but the
last permitted one (doc: Tool-calling flow); however it ends, the messages so far can
be sent; a call that was run is never run again.
"""

import atexit
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal, NoReturn

import msgspec

from svc_notebook.budget import (
    MaxTokens,
    check_parts,
    in_force,
    room_for_reply,
    room_for_results,
)
from svc_notebook.client.portal import Portal
from svc_notebook.completion import Completion
from svc_notebook.errors import (
    BadRequestError,
    Interrupted,
    OverBudgetError,
    ParameterError,
    SvcError,
    ToolLoopError,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.message import Message
from svc_notebook.service.request import CompletionRequest
from svc_notebook.service.tool import ToolCall
from svc_notebook.tokens import estimate_prompt_tokens

from .calling import Checked, ToolRun, check_call, failed_run, run_call
from .consent import Consent, Decision, Proposal, deny_all
from .results import fit_text
from .toolbox import Toolbox

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


class _ToolLoop:
    """The loop of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.portal: Portal | None = None


_loop = _ToolLoop()


def submit(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - a tool's
    """Run a coroutine and wait for its result; on a thread that may wait."""
    with _loop.lock:
        if _loop.portal is None or not _loop.portal.is_open:
            _loop.portal = Portal()
        portal = _loop.portal
    return portal.run(work)


def _close() -> None:
    if _loop.portal is not None:
        _loop.portal.close()


atexit.register(_close)


Send = Callable[[CompletionRequest, Origin], Completion]
"""Asks once, in the door's own way, and returns the whole reply."""
Told = Callable[[ToolCall | ToolRun], None]
"""Told each call before it is run, and each run when it has ended."""
Keep = Callable[[Exchange, ToolRun], None]
"""Takes each run when it has ended, with the exchange whose reply held the call."""

INTERRUPTED = "The user interrupted this call; it gave no result."
TIME_OVER = "The time for all calls is over; this one was not run."
_REFUSED = (ParameterError, OverBudgetError, BadRequestError)  # and would be again
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What rounds came to.

    Attributes:
        completion: The final one; it may hold calls that are handed back.
        tool_runs: Every call that was answered, in order.
        messages: What came after the request's own: the assistant's messages with
            their calls, tool messages, and the final answer.
    """

    completion: Completion
    tool_runs: tuple[ToolRun, ...]
    messages: tuple[Message, ...]


def run_rounds(  # noqa: PLR0913 - the seams of a door
    request: CompletionRequest,
    origin: Origin,
    *,
    toolbox: Toolbox,
    send: Send,
    consent: Consent = deny_all,
    rounds: Rounds | None = None,
    told: Told | None = None,
    keep: Keep | None = None,
    submit: Submit = submit,
    hide: Callable[[str], str] = str,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Ask until the model answers without calling a tool.

    Args:
        request: The first; its tools are the toolbox's definitions.
        origin: Who asks.
        toolbox: What may be called. A call to a definition without a function ends
            the rounds: the completion hands its calls back, none of them run.
        send: Sends a request; it records and shows as the door does.
        consent: Asked for tools that want it; denies if nobody says otherwise.
        rounds: Limits.
        told: Told about each call.
        keep: Takes each run for the record.
        submit: Runs async tools.
        hide: Blots the API key out of a text, should a tool give it away.
        clock: Seconds that only grow.

    Raises:
        ParameterError: More than one choice is asked for.
        ToolLoopError: The rounds or the time are used up; `partial`, `messages` and
            `tool_runs` hold what there is.
        OverBudgetError: A request does not fit; the part that is large is named.
        SvcError: A request failed; `messages` holds the history, which can be sent.
        Interrupted: The user stopped it while a tool ran or consent was asked for;
            the calls left over are answered in `messages` by saying so.
    """
    limits = rounds or Rounds()
    if request.params.get("n", 1) != 1:
        raise ParameterError(
            "n asks for several choices, and tools are run for one; leave n out, or "
            "have the calls handed back with run_tools=False (doc: Tool-calling flow).",
            param="n",
        )
    answering = Answering(
        toolbox=toolbox,
        consent=consent,
        ask_for=limits.ask_for,
        told=told,
        keep=keep,
        submit=submit,
        hide=hide,
        timeout_s=limits.tool_timeout_s,
        clock=clock,
    )
    return _Loop(request, origin, send, limits, answering).run()


class _Loop:
    """One run of rounds; it holds what there is so far."""

    def __init__(
        self,
        request: CompletionRequest,
        origin: Origin,
        send: Send,
        rounds: Rounds,
        answering: Answering,
    ) -> None:
        tools = answering.toolbox.definitions
        self._request = msgspec.structs.replace(request, tools=tools)
        self._origin = origin
        self._send = send
        self._rounds = rounds
        self._answering = answering
        self._begun_s = answering.clock()
        self._messages: tuple[Message, ...] = ()
        self._trail: tuple[ToolRun, ...] = ()

    def run(self) -> Outcome:
        """Ask, answer, and ask again."""
        for _ in range(self._rounds.max_rounds - 1):
            completion = self._ask(is_last=False)
            if not completion.tool_calls or self._answering.hands_back(completion):
                return self._outcome(completion)
            self._answer(completion)
        completion = self._ask(is_last=True)
        if completion.tool_calls:
            self._stop(completion, _rounds_over(self._rounds.max_rounds))
        return self._outcome(completion)

    def _ask(self, *, is_last: bool) -> Completion:
        request = msgspec.structs.replace(
            self._request,
            messages=self._whole(),
            tools=() if is_last else self._request.tools,
        )
        try:
            request = self._fitted(request)
            check_parts(request)
            return self._send(request, self._origin)
        except (SvcError, KeyboardInterrupt) as error:
            self._leave_history(error)
            raise

    def _fitted(self, request: CompletionRequest) -> CompletionRequest:
        """Find max_tokens anew where it is what the budget leaves."""
        if self._rounds.max_tokens != "fit":
            return request
        n_tokens = estimate_prompt_tokens(request.messages, request.tools)
        params = {**request.params, "max_tokens": in_force("fit", n_tokens)}
        return msgspec.structs.replace(request, params=params)

    def _answer(self, completion: Completion) -> None:
        """Answer the calls of a reply, and take both into the history."""
        self._check_room(completion)
        reply = completion.reply
        results: list[Message] = []
        try:
            room = self._room(reply)
            for call in reply.tool_calls:
                if self._left_s() <= 0:
                    break
                run = self._answering.answer(
                    call, completion.exchange, within_s=self._left_s, max_tokens=room
                )
                self._trail = (*self._trail, run)
                results.append(run.message)
        except KeyboardInterrupt as stop:
            self._take(completion, results, INTERRUPTED)
            raise Interrupted(
                completion.with_trail(self._trail),
                messages=self._whole(),
                tool_runs=self._trail,
            ) from stop
        self._take(completion, results, TIME_OVER)
        if self._left_s() <= 0:
            self._stop(completion, _time_over(self._rounds.total_s))

    def _check_room(self, completion: Completion) -> None:
        """Run nothing whose result could not be sent: the calls alone are too large."""
        asked = {} if self._rounds.max_tokens == "fit" else self._request.params
        request = msgspec.structs.replace(
            self._request, messages=(*self._whole(), completion.reply), params=asked
        )
        try:
            check_parts(request)
        except OverBudgetError as error:
            error.partial = completion
            error.add_note("The tools that the last reply calls were not run.")
            self._leave_history(error)
            raise

    def _room(self, reply: Message) -> int:
        """Say how many tokens each result may have."""
        messages = (*self._whole(), reply)
        request = msgspec.structs.replace(self._request, messages=messages)
        asked = self._rounds.max_tokens or request.params.get("max_tokens")
        return room_for_results(
            request,
            n_calls=len(reply.tool_calls),
            reply_tokens=room_for_reply(asked),
        )

    def _left_s(self) -> float:
        """Say how long it may still take; waiting for consent does not count."""
        answering = self._answering
        spent_s = answering.clock() - self._begun_s - answering.waited_s
        return self._rounds.total_s - spent_s

    def _take(
        self, completion: Completion, results: list[Message], reason: str
    ) -> None:
        """Take a reply and its results; calls left over are answered by the reason."""
        reply = completion.reply
        for call in reply.tool_calls[len(results) :]:
            run = self._answering.leave(call, completion.exchange, reason)
            self._trail = (*self._trail, run)
            results.append(run.message)
        self._messages = (*self._messages, reply, *results)

    def _whole(self) -> tuple[Message, ...]:
        return (*self._request.messages, *self._messages)

    def _outcome(self, completion: Completion) -> Outcome:
        return Outcome(
            completion=completion.with_trail(self._trail),
            tool_runs=self._trail,
            messages=(*self._messages, completion.reply),
        )

    def _stop(self, completion: Completion, reason: str) -> NoReturn:
        error = ToolLoopError(reason, messages=self._whole(), tool_runs=self._trail)
        error.partial = completion.with_trail(self._trail)
        error.exchange_id = completion.exchange.exchange_id
        raise error

    def _leave_history(self, error: SvcError | KeyboardInterrupt) -> None:
        """Keep what the tools gave on what stopped a later request."""
        if not self._trail:
            return
        error.messages = self._whole()  # type: ignore[union-attr]  # as ToolLoopError
        error.tool_runs = self._trail  # type: ignore[union-attr]  # as ToolLoopError
        partial = getattr(error, "partial", None)
        if isinstance(partial, Completion):
            error.partial = partial.with_trail(self._trail)  # type: ignore[union-attr]  # it has one
        n_calls = len(self._trail)
        use = (
            "which has to be changed before it can be sent."
            if isinstance(error, _REFUSED)
            else "and sending them goes on without running a tool again."
        )
        error.add_note(
            f"{n_calls} tool call{'s were' if n_calls > 1 else ' was'} answered "
            f"before this; the error's `messages` are the history until then, {use}"
        )


def _rounds_over(max_rounds: int) -> str:
    return (
        f"The model still calls tools after {max_rounds} rounds, the last of which "
        "offered none. The error's `messages` are the history until then; allow more "
        "with max_rounds, or say in the prompt when to stop (doc: Tool-calling flow)."
    )


def _time_over(total_s: float) -> str:
    return (
        f"The tools and rounds took more than {total_s:g} s together. The error's "
        "`messages` are the history until then, which can be sent; allow more with "
        "total_s."
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")  # type: ignore[operator]  # just tested

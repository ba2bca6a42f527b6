"""Tool rounds: ask, run the called tools, send the results, ask again; their record.

Each call is run once and in order; the last request offers no tools (doc: Tool-calling
flow). However the rounds end, the messages so far can be sent.
"""

import json
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from itertools import takewhile
from typing import Any

import msgspec

from svc_notebook.client.request_pipeline import SendRequest
from svc_notebook.completion import Completion
from svc_notebook.errors import (
    BadRequestError,
    CutError,
    Interrupted,
    OverBudgetError,
    ParameterError,
    SvcError,
    ToolLoopError,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.tool_calls import tool_row_of
from svc_notebook.service.params import OtherParams, check_int, check_number
from svc_notebook.service.request import CompletionRequest, Message, ToolCall
from svc_notebook.tokens import check_budget, refitted, room_for_reply, room_for_results
from svc_notebook.tracing import rounds_span, tool_span

from .call import Checked, ToolRun, check_call, check_whole, failed_run, run_call
from .consent import (
    DENIED,
    MAX_EDITS,
    UNDECIDED,
    AskFor,
    Confirm,
    Consent,
    ConsentDecision,
    Proposal,
    changed_note,
    deny_all,
    to_consent,
)
from .tool_timeout import TOOL_TIMEOUT_S
from .toolbox import Toolbox

MAX_ROUNDS = 8
TOTAL_S = 600.0
INTERRUPTED = "The user interrupted this call; it gave no result."
TIME_OVER = "The time limit for all calls was reached; this call was not run."
# these would be refused again
_REFUSED = (ParameterError, OverBudgetError, BadRequestError)

WatchCalls = Callable[[ToolCall | ToolRun], None]
"""Called with each call before it is run, and with its run afterwards."""
RunSink = Callable[[Exchange, ToolRun], None]
"""Records a run, with the exchange whose reply made the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """The limits of rounds, and which calls need consent."""

    max_rounds: int = MAX_ROUNDS  # requests, the last one included
    tool_timeout_s: float = TOOL_TIMEOUT_S  # of a call whose tool has no limit
    total_s: float = TOTAL_S  # of all rounds; no request and no call starts after it
    ask_for: AskFor = "marked"  # those of tools made with `confirm`

    def __post_init__(self) -> None:
        # One round to call and one to answer (doc: Tool-calling flow).
        check_int("max_rounds", self.max_rounds, minimum=2)
        for name in ("tool_timeout_s", "total_s"):
            check_number(name, getattr(self, name), above=0, kind="a number of seconds")


class ToolParams(OtherParams, total=False):
    """The other parameters of a request, with consent and the limits of rounds."""

    confirm: Confirm
    max_rounds: int | None
    tool_timeout_s: float | None
    total_s: float | None


LIMITS = ToolParams.__annotations__.keys() - OtherParams.__annotations__.keys()
"""The names of the arguments that only mean something where tools are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """Consent, as `to_consent` takes it, and limits for tool calls."""

    confirm: Confirm = None
    rounds: RoundLimits = field(default_factory=RoundLimits)

    def consent(self, at_prompt: Consent) -> Consent:
        """Return what decides on calls; `at_prompt` asks the user."""
        return to_consent(self.confirm, at_prompt)[0]


def take_permit(params: MutableMapping[str, Any]) -> Permit:
    """Remove consent and limits from parameters, and check them."""
    taken = {name: params.pop(name, None) for name in LIMITS}
    limits = {name: value for name, value in taken.items() if value is not None}
    confirm = limits.pop("confirm", None)
    _, ask_for = to_consent(confirm)
    return Permit(confirm=confirm, rounds=RoundLimits(**limits, ask_for=ask_for))


def run_rounds(  # noqa: PLR0913 - the parts that callers differ in
    request: CompletionRequest,
    origin: Origin,
    *,
    toolbox: Toolbox,
    send: SendRequest,
    consent: Consent = deny_all,
    rounds: RoundLimits | None = None,
    watch: WatchCalls | None = None,
    keep: RunSink | None = None,
    hide: Callable[[str], str] = str,
    check_stop: Callable[[], None] = lambda: None,
    printed: StringIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Completion:
    """Ask until the model answers without calling a tool.

    A call to a definition without a function ends the rounds: none of the reply's calls
    are run, and the caller gets them. `hide` removes the API key from a text, in case a
    tool has read it; `check_stop` is called often while a tool runs, and raises an
    Interrupted to stop. With `printed`, what a tool prints goes there and to its run,
    and is not shown.

    Returns:
        The last completion, with all runs in `tool_runs`, and calls left to the caller.

    Raises:
        ParameterError: The request asks for more than one choice.
        ToolLoopError: The rounds or the time are used up, or `consent` raised an error.
        SvcError: A request failed, does not fit, or its reply was cut in a call.
        Interrupted: The user stopped it while a tool ran or consent was asked for.
            Like the other errors it has the `messages` until then, which can be sent.
    """
    if request.params.get("n", 1) != 1:
        raise ParameterError(
            "Tools can be run for one choice only; leave n out, or run the calls "
            "yourself with run_tools=False.",
            param="n",
        )
    runner = _CallRunner(
        toolbox=toolbox,
        consent=consent,
        limits=rounds or RoundLimits(),
        watch=watch,
        keep=keep,
        hide=hide,
        check_stop=check_stop,
        printed=printed,
        clock=clock,
    )
    request = msgspec.structs.replace(request, tools=toolbox.definitions)
    with rounds_span():
        return _ToolRounds(request, origin, send, runner).run()


@dataclass(slots=True)
class _ToolRounds:
    """The requests of one run of rounds, and the history so far."""

    _request: CompletionRequest
    _origin: Origin
    _send: SendRequest
    _runner: "_CallRunner"
    _new_messages: tuple[Message, ...] = ()
    _tool_runs: tuple[ToolRun, ...] = ()

    def run(self) -> Completion:
        max_rounds = self._runner.limits.max_rounds
        for _ in range(max_rounds - 1):
            completion = self._ask(is_last=False)
            if not completion.tool_calls or self._runner.has_bare_call(completion):
                return completion.with_tool_runs(self._tool_runs)
            self._answer_calls(completion)
        completion = self._ask(is_last=True)
        if completion.tool_calls:
            error = ToolLoopError(
                f"The model still calls tools after {max_rounds} rounds, the last of "
                "which offered none. The error's `messages` are the history until "
                "then; allow more with max_rounds, or say in the prompt when to stop."
            )
            raise self._completed(error, completion)
        return completion.with_tool_runs(self._tool_runs)

    @property
    def _messages(self) -> tuple[Message, ...]:
        return (*self._request.messages, *self._new_messages)

    def _ask(self, *, is_last: bool) -> Completion:
        request = msgspec.structs.replace(
            self._request,
            messages=self._messages,
            tools=() if is_last else self._request.tools,
            extra=_without_tools(self._request) if is_last else self._request.extra,
        )
        try:
            request = refitted(request)
            check_budget(request)
            return self._send(request, self._origin)
        except (SvcError, KeyboardInterrupt) as error:
            self._add_history(error)
            raise

    def _answer_calls(self, completion: Completion) -> None:
        """Answer the calls of a reply, and add both to the history."""
        self._check_calls(completion)
        reply = completion.reply
        results: list[Message] = []
        try:
            max_tokens = self._max_result_tokens(reply)
            for call in reply.tool_calls:
                if self._runner.left_s() <= 0:
                    break
                run = self._runner.run(call, completion.exchange, max_tokens)
                self._tool_runs = (*self._tool_runs, run)
                results.append(run.message)
        except KeyboardInterrupt as stop:
            self._add_round(completion, results, INTERRUPTED)
            raise Interrupted(
                completion.with_tool_runs(self._tool_runs),
                messages=self._messages,
                tool_runs=self._tool_runs,
            ) from stop
        except ToolLoopError as error:  # consent could not be asked for
            self._add_round(completion, results, UNDECIDED)
            self._completed(error, completion)
            raise
        self._add_round(completion, results, TIME_OVER)
        if self._runner.left_s() <= 0:
            total_s = self._runner.limits.total_s
            time_over = ToolLoopError(
                f"The rounds took more than {total_s:g} s. The error's `messages` are "
                "the history until then, which can be sent; allow more with total_s."
            )
            raise self._completed(time_over, completion)

    def _check_calls(self, completion: Completion) -> None:
        """Refuse calls that were cut, or are too large to be sent back with results."""
        params = {} if self._request.is_fitted else self._request.params
        messages = (*self._messages, completion.reply)
        try:
            check_whole(completion)
            check_budget(
                msgspec.structs.replace(self._request, messages=messages, params=params)
            )
        except (CutError, OverBudgetError) as error:
            if isinstance(error, OverBudgetError):
                error.partial = completion
                error.add_note("The tools that the last reply calls were not run.")
            self._add_history(error)
            raise

    def _max_result_tokens(self, reply: Message) -> int:
        messages = (*self._messages, reply)
        request = msgspec.structs.replace(self._request, messages=messages)
        return room_for_results(
            request,
            n_calls=len(reply.tool_calls),
            reply_tokens=room_for_reply(request.asked_params.get("max_tokens")),
        )

    def _add_round(
        self, completion: Completion, results: list[Message], reason: str
    ) -> None:
        """Add a reply and its results; calls that were not run get the reason."""
        reply = completion.reply
        for call in reply.tool_calls[len(results) :]:
            run = self._runner.skip(call, completion.exchange, reason)
            self._tool_runs = (*self._tool_runs, run)
            results.append(run.message)
        self._new_messages = (*self._new_messages, reply, *results)

    def _completed(self, error: ToolLoopError, completion: Completion) -> ToolLoopError:
        error.messages, error.tool_runs = self._messages, self._tool_runs
        error.partial = completion.with_tool_runs(self._tool_runs)
        error.exchange_id = completion.exchange.exchange_id
        return error

    def _add_history(self, error: Any) -> None:  # noqa: ANN401 - any error takes attributes
        """Add the history to an error, so that the results of tools are not lost."""
        if not self._tool_runs:
            return
        error.messages, error.tool_runs = self._messages, self._tool_runs
        partial = getattr(error, "partial", None)
        if isinstance(partial, Completion):
            error.partial = partial.with_tool_runs(self._tool_runs)
        n_calls = len(self._tool_runs)
        use = (
            "which has to be changed before it can be sent."
            if isinstance(error, _REFUSED)
            else "and sending them continues without running a tool again."
        )
        error.add_note(
            f"{n_calls} tool call{'s were' if n_calls > 1 else ' was'} answered "
            f"before this; the error's `messages` are the history until then, {use}"
        )


_OF_TOOLS = ("tool_choice", "parallel_tool_calls")


def _without_tools(request: CompletionRequest) -> dict[str, Any]:
    """Return `extra` without the fields that other servers refuse without tools."""
    if request.info.is_documented:
        return request.extra
    extra = request.extra
    return {name: extra[name] for name in extra if name not in _OF_TOOLS}


@dataclass(slots=True, kw_only=True)
class _CallRunner:
    """Answers single calls: checks them, asks for consent, runs and records them."""

    toolbox: Toolbox
    consent: Consent
    limits: RoundLimits
    watch: WatchCalls | None
    keep: RunSink | None
    hide: Callable[[str], str]
    check_stop: Callable[[], None]
    printed: StringIO | None
    clock: Callable[[], float]
    ends_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends_s = self.clock() + self.limits.total_s

    def left_s(self) -> float:
        """Return the seconds left for all rounds, without the waiting for consent."""
        return self.ends_s - self.clock()

    def has_bare_call(self, completion: Completion) -> bool:
        """Whether a reply calls a tool that has no function here."""
        bare = {tool.name for tool in self.toolbox if tool.function is None}
        return any(call.function.name in bare for call in completion.tool_calls)

    def run(self, call: ToolCall, exchange: Exchange, max_tokens: int) -> ToolRun:
        """Answer a call of an exchange; its result has at most so many tokens."""
        if self.watch is not None:
            self.watch(call)
        with tool_span(call, exchange) as span:
            run = _without_key(self._run(call, max_tokens), self.hide)
            span.end(run)
        return self._recorded(run, exchange)

    def skip(self, call: ToolCall, exchange: Exchange, reason: str) -> ToolRun:
        return self._recorded(failed_run(call, reason), exchange)

    def _recorded(self, run: ToolRun, exchange: Exchange) -> ToolRun:
        if self.keep is not None:
            self.keep(exchange, run)
        if self.watch is not None:
            self.watch(run)
        return run

    def _run(self, call: ToolCall, max_tokens: int) -> ToolRun:
        checked = check_call(self.toolbox, call)
        if isinstance(checked, ToolRun):
            return checked
        ask_for = self.limits.ask_for
        is_asked = ask_for == "all" or (checked.tool.confirm and ask_for == "marked")
        allowed = self._allowed(checked) if is_asked else checked
        if allowed is None:
            return failed_run(call, DENIED, is_approved=False)
        with ExitStack() as redirected:
            if self.printed is not None:
                self.printed.seek(self.printed.truncate(0))
                redirected.enter_context(redirect_stdout(self.printed))
                redirected.enter_context(redirect_stderr(self.printed))
            run = run_call(
                allowed.tool,
                call,
                allowed.arguments,
                timeout_s=self.limits.tool_timeout_s,
                within_s=self.left_s(),
                max_result_tokens=max_tokens,
                check_stop=self.check_stop,
            )
        if self.printed is not None:
            run = replace(run, printed=self.printed.getvalue())
        if allowed.arguments != checked.arguments:
            run = replace(run, result=changed_note(allowed.arguments) + run.result)
        return replace(run, is_approved=True if is_asked else None)

    def _allowed(self, checked: Checked) -> Checked | None:
        """Ask for consent; return the call, perhaps changed, or None if denied.

        Arguments that the user changed are checked too; if they do not fit, consent is
        asked for again, with the reason.
        """
        proposal = Proposal.of(checked)
        for _ in range(MAX_EDITS):
            decision = self._decide(proposal)
            if decision.verdict == "deny":
                return None
            if decision.arguments is None:
                return checked
            edited = _with_arguments(checked.call, decision.arguments)
            checked_again = check_call(self.toolbox, edited)
            if isinstance(checked_again, Checked):
                return checked_again
            about = f"The changed arguments do not fit. {checked_again.error}"
            proposal = replace(proposal, about=about)
        return None

    def _decide(self, proposal: Proposal) -> ConsentDecision:
        started_s = self.clock()
        try:
            return self.consent(proposal)
        except Exception as problem:
            raise ToolLoopError(
                f"confirm raised {type(problem).__name__}: {problem}. The call of "
                f"{proposal.name} was not run. The error's `messages` are the history "
                "until then, which can be sent; let confirm return True or False."
            ) from problem
        finally:
            self.ends_s += self.clock() - started_s


def _without_key(run: ToolRun, hide: Callable[[str], str]) -> ToolRun:
    arguments, value = run.sent_arguments, run.value
    if arguments is not None:
        text = _to_json(arguments)
        arguments = arguments if hide(text) == text else json.loads(hide(text))
    result = hide(run.result)
    return replace(
        run,
        sent_arguments=arguments,
        result=result,
        value=value if result == run.result else result,
        printed=hide(run.printed),
        error=None if run.error is None else hide(run.error),
        traceback=None if run.traceback is None else hide(run.traceback),
    )


def _with_arguments(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    text = _to_json(arguments)
    function = msgspec.structs.replace(call.function, arguments=text)
    return msgspec.structs.replace(call, function=function)


_to_json = partial(json.dumps, ensure_ascii=False)


MAX_NEWEST = 200


class ToolRecord:
    """Adds each tool run to the ledger in use, and keeps the newest in memory."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger
        self._newest: deque[tuple[str, ToolRun]] = deque(maxlen=MAX_NEWEST)

    def __call__(self, exchange: Exchange, run: ToolRun) -> None:
        """Take a run that has ended, with the exchange whose reply made the call."""
        self._newest.append((exchange.exchange_id, replace(run, value=None)))
        sent = run.sent_arguments
        row = tool_row_of(
            exchange,
            call_id=run.call_id,
            name=run.name,
            arguments=run.arguments,
            sent_arguments=None if sent is None else _to_json(sent),
            result=run.result,
            error=run.error,
            is_approved=run.is_approved,
            n_cut_tokens=run.n_cut_tokens,
            seconds_s=run.seconds_s,
            created_at=datetime.now(UTC),
        )
        self._ledger().add_tool_run(row, started_at=exchange.started_at)

    def runs_of(self, exchange: Exchange) -> tuple[ToolRun, ...]:
        """Return the newest runs that belong to an exchange, the last of its rounds."""
        newest = tuple(self._newest)  # tools run on other threads
        own = [run for held_by, run in newest if held_by == exchange.exchange_id]
        others = [run for held_by, run in newest if held_by != exchange.exchange_id]
        before: list[ToolRun] = []
        for message in takewhile(_is_of_rounds, reversed(exchange.request.messages)):
            results = [run.message for run in others]
            if message in results:
                index = len(results) - 1 - results[::-1].index(message)
                before.insert(0, others[index])
                del others[index:]
        return (*before, *own)


def _is_of_rounds(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)

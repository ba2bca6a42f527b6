"""Tool rounds: ask, run the called tools, send the results, ask again; their record.

Calls are run once and in order; the last request offers no tools (doc: Tool-calling
flow). However the rounds end, the messages so far can be sent again.
"""

import json
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
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
from svc_notebook.service.params import OtherParams, check_int, check_positive
from svc_notebook.service.request import CompletionRequest, Message, ToolCall
from svc_notebook.tokens import check_budget, refitted, room_for_reply, room_for_results
from svc_notebook.tracing import rounds_span, tool_span

from .call import CheckedCall, ToolRun, check_call, check_whole, failed_run, run_call
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
from .decimal_digits import with_digits
from .tool_timeout import TOOL_TIMEOUT_S
from .toolbox import Toolbox

MAX_ROUNDS = 8
TOTAL_S = 600.0
INTERRUPTED = "The user interrupted this call; it gave no result."
TIME_OVER = "The time limit for all calls was reached; this call was not run."
# after these errors, the same messages would be refused again
_REFUSED = (ParameterError, OverBudgetError, BadRequestError)

WatchCalls = Callable[[ToolCall | ToolRun], None]
"""Called with each call, again once the user allows it, and with its `ToolRun`."""
RunSink = Callable[[Exchange, ToolRun], None]
"""Records a tool run, with the exchange whose reply made the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """The limits of rounds, and which calls need consent."""

    max_rounds: int = MAX_ROUNDS  # requests, the last one included
    tool_timeout_s: float = TOOL_TIMEOUT_S  # for tools without their own limit
    total_s: float = TOTAL_S  # for all rounds; then no request or call is started
    ask_for: AskFor = "marked"  # marked: tools made with `confirm=True`

    def __post_init__(self) -> None:
        # One round to call and one to answer (doc: Tool-calling flow).
        check_int("max_rounds", self.max_rounds, minimum=2)
        for name in ("tool_timeout_s", "total_s"):
            check_positive(name, getattr(self, name), kind="a number of seconds")


class ToolParams(OtherParams, total=False):
    """The other parameters of a request, with consent and the limits of rounds."""

    confirm: Confirm
    max_rounds: int | None
    tool_timeout_s: float | None
    total_s: float | None


LIMITS = ToolParams.__annotations__.keys() - OtherParams.__annotations__.keys()
"""The names of the arguments that only matter if tools are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """Consent, as `to_consent` takes it, and limits for tool calls."""

    confirm: Confirm = None
    rounds: RoundLimits = field(default_factory=RoundLimits)

    def consent(self, at_prompt: Consent) -> Consent:
        """Return the function that decides on calls; `at_prompt` asks the user."""
        return to_consent(self.confirm, at_prompt)[0]


def take_permit(params: MutableMapping[str, Any]) -> Permit:
    """Remove consent and limits from parameters, and return them checked."""
    arguments = {name: params.pop(name, None) for name in LIMITS}
    limits = {name: value for name, value in arguments.items() if value is not None}
    confirm = limits.pop("confirm", None)
    _, ask_for = to_consent(confirm)
    return Permit(confirm=confirm, rounds=RoundLimits(**limits, ask_for=ask_for))


def run_rounds(  # noqa: PLR0913 - callers differ in each of them
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

    A call of a definition without a function ends the rounds: no call of this reply is
    run, and the caller gets them all. `hide` removes API keys from texts, in case a
    tool has read one. `check_stop` is called often while a tool runs, and raises
    Interrupted to stop the rounds. With `printed`, the prints of a tool are written
    there and to its run, and are not shown.

    Returns:
        The last completion, with all runs in `tool_runs`; its `tool_calls` are the
        calls left to the caller.

    Raises:
        ParameterError: The request asks for more than one choice.
        ToolLoopError: The rounds or the time are used up, or `consent` raised an error.
        SvcError: A request failed or was too long, or a reply was cut within a call.
        Interrupted: The user interrupted a tool or a question for consent. Like the
            other errors, it has the `messages` so far, which can be sent again.
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
    """The requests of one series of rounds, and the messages so far."""

    _request: CompletionRequest
    _origin: Origin
    _send: SendRequest
    _runner: "_CallRunner"
    _new_messages: tuple[Message, ...] = ()
    _tool_runs: tuple[ToolRun, ...] = ()
    _newest: Completion | None = None

    def run(self) -> Completion:
        max_rounds = self._runner.limits.max_rounds
        for _ in range(max_rounds - 1):
            completion = self._send_next(is_last=False)
            if not completion.tool_calls or self._runner.has_call_without_function(
                completion
            ):
                return completion.with_tool_runs(self._tool_runs)
            self._answer_calls(completion)
        completion = self._send_next(is_last=True)
        if completion.tool_calls:
            error = ToolLoopError(
                f"The model still calls tools after {max_rounds} rounds, although the "
                "last request offered none. The error's `messages` are the history "
                "so far. Allow more with max_rounds, or say in the prompt when to stop."
            )
            raise self._with_state(error, completion)
        return completion.with_tool_runs(self._tool_runs)

    @property
    def _messages(self) -> tuple[Message, ...]:
        return (*self._request.messages, *self._new_messages)

    def _send_next(self, *, is_last: bool) -> Completion:
        request = msgspec.structs.replace(
            self._request,
            messages=self._messages,
            tools=() if is_last else self._request.tools,
            extra=_without_tools(self._request) if is_last else self._request.extra,
        )
        try:
            request = refitted(request)
            check_budget(request)
            sent = self._send(request, follow_on(self._origin, self._newest))
        except (SvcError, KeyboardInterrupt) as error:
            self._add_history(error)
            raise
        self._newest = completion = sent.following(self._newest)
        return completion

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
            self._with_state(error, completion)
            raise
        self._add_round(completion, results, TIME_OVER)
        if self._runner.left_s() <= 0:
            total_s = self._runner.limits.total_s
            time_over = ToolLoopError(
                f"The rounds took more than {total_s:g} s. The error's `messages` are "
                "the history so far, which can be sent; allow more with total_s."
            )
            raise self._with_state(time_over, completion)

    def _check_calls(self, completion: Completion) -> None:
        """Refuse calls that were cut, or are too large to send back with results."""
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
                error.add_note("The tools that the last reply called were not run.")
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
        """Add a reply and its results; `reason` is the result of calls not run."""
        reply = completion.reply
        for call in reply.tool_calls[len(results) :]:
            run = self._runner.skip(call, completion.exchange, reason)
            self._tool_runs = (*self._tool_runs, run)
            results.append(run.message)
        self._new_messages = (*self._new_messages, reply, *results)

    def _with_state(
        self, error: ToolLoopError, completion: Completion
    ) -> ToolLoopError:
        error.messages, error.tool_runs = self._messages, self._tool_runs
        error.partial = completion.with_tool_runs(self._tool_runs)
        error.exchange_id = completion.exchange.exchange_id
        return error

    def _add_history(self, error: Any) -> None:  # noqa: ANN401 - any error takes attributes
        """Add the messages so far to an error: results of tools must not be lost."""
        if self._newest is None or not self._tool_runs:
            return
        error.messages, error.tool_runs = self._messages, self._tool_runs
        partial = getattr(error, "partial", None)
        if isinstance(partial, Completion):
            if partial.exchange is not self._newest.exchange:
                partial = partial.following(self._newest)
            error.partial = partial.with_tool_runs(self._tool_runs)
        n_calls = len(self._tool_runs)
        advice = (
            "which must be changed before they can be sent."
            if isinstance(error, _REFUSED)
            else "and sending them continues without running a tool again."
        )
        error.add_note(
            f"{n_calls} tool call{'s were' if n_calls > 1 else ' was'} answered "
            f"before this; the error's `messages` are the history so far, {advice}"
        )


def follow_on(origin: Origin, before: Completion | None) -> Origin:
    """Return the origin of the next round or try, which names the one before it."""
    if before is None:
        return origin
    return msgspec.structs.replace(origin, follows=before.exchange.exchange_id)


_TOOL_FIELDS = ("tool_choice", "parallel_tool_calls")


def _without_tools(request: CompletionRequest) -> dict[str, Any]:
    """Return `extra` without fields that some servers refuse without tools."""
    if request.info.is_documented:
        return request.extra
    extra = request.extra
    return {name: extra[name] for name in extra if name not in _TOOL_FIELDS}


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
        """Return the seconds left for all rounds; waits for consent do not count."""
        return self.ends_s - self.clock()

    def has_call_without_function(self, completion: Completion) -> bool:
        """Whether a reply calls a tool that has no function here."""
        definitions_only = {tool.name for tool in self.toolbox if tool.function is None}
        return any(
            call.function.name in definitions_only for call in completion.tool_calls
        )

    def run(self, call: ToolCall, exchange: Exchange, max_tokens: int) -> ToolRun:
        """Answer a call of an exchange, with at most `max_tokens` in its result."""
        if self.watch is not None:
            self.watch(call)
        with tool_span(call, exchange) as span:
            run = _hide_keys(self._run(call, max_tokens), self.hide)
            span.end(run)
        return self._record(run, exchange)

    def skip(self, call: ToolCall, exchange: Exchange, reason: str) -> ToolRun:
        return self._record(failed_run(call, reason), exchange)

    def _record(self, run: ToolRun, exchange: Exchange) -> ToolRun:
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
        allowed = self._ask_for_consent(checked) if is_asked else checked
        if allowed is None:
            return failed_run(call, DENIED, is_approved=False)
        if is_asked and self.watch is not None:
            self.watch(allowed.call)
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

    def _ask_for_consent(self, checked: CheckedCall) -> CheckedCall | None:
        """Ask for consent; return the call, perhaps changed, or None if denied.

        Arguments that the user changed are checked, too; if they do not fit, the user
        is asked again, with the reason.
        """
        proposal = Proposal.of(checked)
        for _ in range(MAX_EDITS):
            decision = self._decide(proposal)
            if decision.verdict == "deny":
                return None
            if decision.arguments is None:
                return checked
            edited = _with_arguments(checked, decision.arguments)
            checked_again = check_call(self.toolbox, edited)
            if isinstance(checked_again, CheckedCall):
                return checked_again
            problem = f"The changed arguments do not fit. {checked_again.error}"
            proposal = replace(proposal, problem=problem)
        return None

    def _decide(self, proposal: Proposal) -> ConsentDecision:
        started_s = self.clock()
        try:
            return self.consent(proposal)
        except Exception as problem:
            raise ToolLoopError(
                f"confirm raised {type(problem).__name__}: {problem}. The call of "
                f"{proposal.name} was not run. The error's `messages` are the history "
                "so far, which can be sent. Make confirm return True or False."
            ) from problem
        finally:
            # the user's time to decide does not count
            self.ends_s += self.clock() - started_s


def _hide_keys(run: ToolRun, hide: Callable[[str], str]) -> ToolRun:
    arguments, value = run.arguments, run.value
    if arguments is not None:
        text = _to_json(arguments)
        arguments = arguments if hide(text) == text else json.loads(hide(text))
    result = hide(run.result)
    return replace(
        run,
        arguments=arguments,
        result=result,
        value=value if result == run.result else result,
        printed=hide(run.printed),
        error=None if run.error is None else hide(run.error),
        traceback=None if run.traceback is None else hide(run.traceback),
    )


def _with_arguments(checked: CheckedCall, arguments: dict[str, Any]) -> ToolCall:
    with suppress(RecursionError):  # what is too deep is refused by `check_call`
        arguments = with_digits(arguments, checked.tool.parameter_schema)
    text = _to_json(arguments)
    function = msgspec.structs.replace(checked.call.function, arguments=text)
    return msgspec.structs.replace(checked.call, function=function)


_to_json = partial(json.dumps, ensure_ascii=False)


MAX_NEWEST = 200  # tool runs kept in memory


class ToolRecord:
    """Adds each tool run to the ledger in use, and keeps the newest in memory."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger
        self._newest: deque[tuple[str, ToolRun]] = deque(maxlen=MAX_NEWEST)

    def __call__(self, exchange: Exchange, run: ToolRun) -> None:
        """Record a run that has ended, with the exchange whose reply made the call."""
        self._newest.append((exchange.exchange_id, replace(run, value=None)))
        row = tool_row_of(
            exchange,
            call_id=run.call_id,
            name=run.name,
            arguments=run.arguments,
            asked_arguments=run.asked_arguments,
            result=run.result,
            error=run.error,
            is_approved=run.is_approved,
            n_cut_tokens=run.n_cut_tokens,
            seconds_s=run.seconds_s,
            created_at=datetime.now(UTC),
        )
        self._ledger().add_tool_run(row, started_at=exchange.started_at)

    def runs_of(self, exchange: Exchange) -> tuple[ToolRun, ...]:
        """Return the runs that belong to an exchange and to the rounds before it."""
        newest = tuple(self._newest)  # a copy: other threads may add runs
        own = [
            run for exchange_id, run in newest if exchange_id == exchange.exchange_id
        ]
        earlier_runs = [
            run for exchange_id, run in newest if exchange_id != exchange.exchange_id
        ]
        before: list[ToolRun] = []
        for message in takewhile(
            _belongs_to_rounds, reversed(exchange.request.messages)
        ):
            results = [run.message for run in earlier_runs]
            if message in results:
                index = len(results) - 1 - results[::-1].index(message)
                before.insert(0, earlier_runs[index])
                del earlier_runs[index:]
        return (*before, *own)


def _belongs_to_rounds(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)

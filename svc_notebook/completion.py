"""The Completion that the verbs return, and advice about a reply."""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from svc_notebook.credentials import ANY_VARIABLE, shell_headers, variable_at
from svc_notebook.display.escape import to_terminal
from svc_notebook.display.markdown import read_json
from svc_notebook.display.reply_display import Final
from svc_notebook.display.reply_footer import (
    cut_mark,
    estimate_hint,
    footer,
    marks,
    other_model,
)
from svc_notebook.display.tool_runs import Step
from svc_notebook.endpoints import OPERATION
from svc_notebook.errors import SvcError
from svc_notebook.exchange import (
    Charge,
    Exchange,
    UsageSource,
    is_cut,
    is_empty,
)
from svc_notebook.service.chunk import Choice, Usage
from svc_notebook.service.params import as_number, shorten
from svc_notebook.service.request import (
    CompletionRequest,
    Message,
    ToolCall,
    with_own_ids,
)
from svc_notebook.settings import query_at
from svc_notebook.wire.request_code import to_curl, to_python

_REPR_CHARS = 60


class Completion:
    """A reply of the service, complete or (after a failure) partial.

    `str()` gives the text; a cell renders it as safe Markdown.

    Example:
        >>> svc.complete("Say hello.").finish_reason
        'stop'
    """

    __slots__ = ("_last_request", "_notes", "charge", "exchange", "tool_runs")

    charge: Charge  # of all rounds, tries and parts of the reply
    exchange: Exchange
    tool_runs: tuple[Step, ...]  # tool calls that were run for this reply, in order
    _notes: tuple[str, ...]
    _last_request: CompletionRequest | None  # if the reply took several requests

    def __init__(
        self,
        exchange: Exchange,
        tool_runs: tuple[Step, ...] = (),
        notes: tuple[str, ...] = (),
        last_request: CompletionRequest | None = None,
        charge: Charge | None = None,
    ) -> None:
        charge = charge or Charge.of(exchange)
        object.__setattr__(self, "charge", charge)
        object.__setattr__(self, "exchange", exchange)
        object.__setattr__(self, "tool_runs", tool_runs)
        object.__setattr__(self, "_notes", notes)
        object.__setattr__(self, "_last_request", last_request)

    if not TYPE_CHECKING:  # a type checker is to see wrong names

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse an attribute, with the way to a key of that name in the JSON."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            # a copy has no fields at first
            if not name.startswith("_") and name not in Completion.__slots__:
                with suppress(ValueError):
                    value = read_json(self.text)
                    if isinstance(value, dict) and name in value:
                        message += f". The reply's JSON has it: .json()[{name!r}]"
            raise AttributeError(message, name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Completion is read-only; {name} cannot be set.")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the request, such as turns left out, and on a reply without text."""
        notes = _undocumented_note(self.request), _reasoning_only_note(self.exchange)
        return (*self._notes, *filter(None, notes))

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices by index (doc: Completion)."""
        return self.exchange.choices

    @property
    def text(self) -> str:
        """The text of the first choice; "" if there is none."""
        return (self.choices[0].text or "") if self.choices else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of every choice, in order."""
        return tuple(choice.text or "" for choice in self.choices)

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of the text, or of the only code block in it.

        Raises:
            SvcError: The text is not JSON.
        """
        try:
            return read_json(self.text)
        except ValueError as error:
            reason = f"The reply is {error}."
        raise SvcError(
            reason,
            remedy="Its text is in .text. svc.extract and `%%svc --as TYPE` give a "
            "value of a type, and ask again if a reply does not fit.",
        )

    @property
    def reasoning(self) -> str:
        """The reasoning that the server sent with the first choice; "" without one.

        It is not a part of the text and is never sent back. The service's document
        does not show it; some servers do, as `reasoning_content`.
        """
        return self.choices[0].reasoning if self.choices else ""

    @property
    def finish_reason(self) -> str | None:
        """The first choice's finish reason, verbatim; None if there is none."""
        return self.choices[0].finish_reason if self.choices else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the first choice, each with its own id (doc: Tool call)."""
        calls = self.choices[0].tool_calls if self.choices else ()
        return with_own_ids(calls) if calls else ()

    @property
    def reply(self) -> Message:
        """The first choice as a message that can be sent back (doc: Message)."""
        text = self.choices[0].text if self.choices else None
        calls = self.tool_calls
        content = text if calls else text or ""
        other = self._fields_to_send_back() if calls else {}
        return Message(role="assistant", content=content, tool_calls=calls, other=other)

    def _fields_to_send_back(self) -> dict[str, Any]:
        """Return the fields that another server needs back with the tool calls."""
        if self.request.info.is_documented:
            return {}
        other = dict(self.choices[0].other)
        if other.get(
            "reasoning_content"
        ):  # the server sent the reasoning in this field
            other["reasoning_content"] = self.reasoning
        return other

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history: the request, the reply, and the results of its tool calls.

        Interrupted tools have a result, too, so that the history can be sent again. If
        it ends with tool calls, none was run: add a `tool` message for each call before
        you send it (doc: Tool-calling flow).
        """
        sent = list(self.request.messages)
        results: list[Message] = []
        for run in self.tool_runs:
            result = Message(role="tool", content=run.result, tool_call_id=run.call_id)
            if result in sent:  # of an earlier round
                sent.remove(result)
            else:
                results.append(result)
        return (*self.request.messages, self.reply, *results)

    @property
    def usage(self) -> Usage:
        """Tokens, reported by the service or estimated: see `usage_source`."""
        return self.exchange.usage

    @property
    def usage_source(self) -> UsageSource:
        """Whether usage is reported, estimated or missing."""
        return self.exchange.usage_source

    @property
    def model(self) -> str:
        """The model in the request."""
        return self.exchange.request.model

    @property
    def request(self) -> CompletionRequest:
        """The request that was sent."""
        return self.exchange.request

    @property
    def latency_s(self) -> float | None:
        """Seconds from sending to the end, without the wait for our own rate limit."""
        return self.exchange.latency_s

    @property
    def first_text_s(self) -> float | None:
        """Seconds from sending to the first text."""
        return self.exchange.first_text_s

    @property
    def is_cut(self) -> bool:
        """Whether any choice was cut, because it reached its token limit.

        A reply that was interrupted is not cut, but `is_partial`.
        """
        return any(is_cut(self.exchange, choice) for choice in self.choices)

    @property
    def can_go_on(self) -> bool:
        """Whether it has one choice, with text that was cut or interrupted."""
        is_text = bool(self.text) and len(self.choices) == 1 and not self.tool_calls
        is_broken = self.is_partial and self.finish_reason is None
        return is_text and (self.is_cut or is_broken)

    @property
    def is_partial(self) -> bool:
        """Whether the exchange failed or was interrupted before its end."""
        return self.exchange.status != "ok"

    @property
    def is_emulated(self) -> bool:
        """Whether the emulator answered, not the service."""
        return self.exchange.is_emulated

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def __reduce__(self) -> tuple[type["Completion"], tuple[Any, ...]]:
        tool_runs = tuple(map(_without_value, self.tool_runs))
        parts = (self.exchange, tool_runs, self._notes, self._last_request, self.charge)
        return Completion, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Completion) and self.exchange == other.exchange

    def __hash__(self) -> int:
        return hash(self.exchange.exchange_id)

    def __repr__(self) -> str:
        text = self.text
        parts = [footer(self.exchange, self.charge)]
        answered = self.exchange.body.model if self.exchange.body else None
        parts += filter(None, [other_model(self.model, answered)])
        if self.exchange.status == "ok" and is_empty(self.exchange):
            parts += filter(None, (cut_mark(self.exchange), "empty"))
        line = to_terminal(" · ".join(parts))  # it contains the service's text
        return f"<Completion {shorten(text, _REPR_CHARS)!r} · {line}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return self.final().bundle()

    def as_python(self) -> str:
        """Return the request as Python to keep: `svc.complete` or `svc.stream`.

        It has exactly the options that were sent, and tools as definitions. Address and
        key come from your settings, as for any request. If the reply took several
        requests (tools, or a continued reply), it is the last one.
        """
        exchange = self.exchange
        note = f"sent to {exchange.endpoint!r}; your settings say where it goes now"
        request = self._last_request or self.request
        is_streamed, notes = exchange.is_streamed, (note, *self._parts_note)
        return to_python(request, is_streamed=is_streamed, notes=notes)

    def as_curl(self) -> str:
        """Return the request as a curl command for a POSIX shell.

        It has the address that was used, and takes the key from the environment
        variable of that address, such as `SVC_API_KEY` for the service. If no variable
        is known, it uses `API_KEY`, which you set; if no key is needed, it has none.
        """
        exchange = self.exchange
        request = self._last_request or self.request
        url = f"{exchange.endpoint}/{OPERATION}{query_at(exchange.endpoint)}"
        is_streamed, notes = exchange.is_streamed, self._parts_note
        variable = variable_at(exchange.endpoint)
        if variable == ANY_VARIABLE:
            notes = (f"set {ANY_VARIABLE} to the key of {exchange.endpoint!r}", *notes)
        return to_curl(
            request,
            is_streamed=is_streamed,
            url=url,
            headers=shell_headers(exchange.endpoint),
            notes=notes,
        )

    @property
    def _parts_note(self) -> tuple[str, ...]:
        is_last = "the text took two requests or more; this is the last one"
        return (is_last,) if self._last_request else ()

    def with_tool_runs(self, tool_runs: tuple[Step, ...]) -> "Completion":
        """Return the same completion with these tool runs."""
        return self._with(tool_runs=tool_runs)

    def with_notes(self, *notes: str) -> "Completion":
        """Return the same completion with more notes, which its footer shows."""
        return self._with(notes=(*self._notes, *notes))

    def following(self, before: "Completion | None") -> "Completion":
        """Return the same completion, charged for the rounds or tries before it."""
        own = Charge.of(self.exchange)
        return self._with(charge=own if before is None else before.charge + own)

    def _with(self, **changes: Any) -> "Completion":  # noqa: ANN401 - an argument's value
        unchanged = {
            "tool_runs": self.tool_runs,
            "notes": self._notes,
            "last_request": self._last_request,
            "charge": self.charge,
        }
        return Completion(self.exchange, **{**unchanged, **changes})

    def final(self) -> Final:
        """Return the final form in which a cell shows the reply."""
        return Final(
            texts=self.texts,
            reasonings=tuple(choice.reasoning for choice in self.choices),
            footer=footer(self.exchange, self.charge),
            hint=estimate_hint(self.charge),
            marks=marks(self.exchange),
            tool_runs=(*self.tool_runs, *self._calls_not_run()),
        ).with_notes(*self.notes)

    def _calls_not_run(self) -> tuple[Step, ...]:
        answered = {step.call_id for step in self.tool_runs}
        reason = "the reply was cut" if self.is_cut else "the call was handed back"
        reason = "the reply broke off" if self.is_partial else reason
        calls = (call for call in self.tool_calls if call.id not in answered)
        return tuple(CallNotRun(call, reason) for call in calls)


class CallNotRun:
    """A tool call that was not run; it is shown among the tool runs."""

    seconds_s = 0.0
    traceback = None
    is_approved = None
    arguments = None
    printed = ""

    def __init__(self, call: ToolCall, reason: str) -> None:
        self.error = reason
        self.result = f"not run: {reason}"
        self.call_id = call.id
        self.name = call.function.name
        self.asked_arguments = call.function.arguments


def _without_value(step: Step) -> Step:
    """Leave out the value of a tool run: it may be large or not picklable."""
    shown_step: Any = step
    return replace(shown_step, value=None) if hasattr(shown_step, "value") else step


def _undocumented_note(request: CompletionRequest) -> str:
    """Return a note on undocumented fields that were sent; "" if there are none."""
    names = ", ".join(request.undocumented)
    return f"sent as it is: {names}" if names else ""


def _reasoning_only_note(exchange: Exchange) -> str:
    """Return a note on why a reply with only reasoning is empty; "" for others."""
    has_reasoning = any(choice.reasoning for choice in exchange.choices)
    if exchange.status != "ok" or not has_reasoning or not is_empty(exchange):
        return ""
    if cut_mark(exchange):
        return "all tokens went into the reasoning; allow more with max_tokens"
    return "there is reasoning, but no answer"


_BOTH_CHANGED = (
    "temperature and top_p are both changed; the document advises changing only "
    "one of them"
)
_REPEATS = "the reply repeats itself; --repetition-penalty 1.05 may help"
_MIN_CHARS = 12
_TIMES = 4
_PIECE = re.compile(r"[^.!?\n。ฯ]+[.!?\n。ฯ]*")


def advice_on_params(params: Mapping[str, object]) -> str | None:
    """Return the document's advice about these parameters, if it has any."""
    both = (params.get("temperature"), params.get("top_p"))
    return None if any(value is None for value in both) else _BOTH_CHANGED


def advice_on_reply(text: str, params: Mapping[str, object]) -> str | None:
    """Return the document's advice about a reply that repeats itself, else None.

    There is none with a repetition penalty above 1.
    """
    has_penalty = (as_number(params.get("repetition_penalty")) or 0) > 1
    pieces = (piece.strip() for piece in _PIECE.findall(text))
    counts = Counter(piece for piece in pieces if len(piece) >= _MIN_CHARS)
    is_repeated = max(counts.values(), default=0) >= _TIMES
    return _REPEATS if is_repeated and not has_penalty else None

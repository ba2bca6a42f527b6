"""Traces: OpenTelemetry spans for requests and tools, and events for scores.

Names follow its conventions for generative AI (`gen_ai.*`); `svc.*` are our own. Spans
go to the providers that the program has set up. OpenTelemetry is imported when traces
are switched on. No attribute contains a key.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from svc_notebook.credentials import known_keys
from svc_notebook.display.front_end import write_warning
from svc_notebook.errors import SvcError, import_extra
from svc_notebook.exchange import Exchange
from svc_notebook.service.chunk import Choice
from svc_notebook.service.request import Message, ToolCall

OFF, ON, CONTENT = "off", "on", "content"
PACKAGE = "opentelemetry-sdk"
_NAME = "svc_notebook"
_MAX_SPANS = 20_000  # newest replies for which scores can still be sent
_PARAMS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "stop": "stop_sequences",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "n": "choice.count",
}
"""Request parameters, and their names in the conventions."""
_NO_PROVIDER = (
    "Traces are on, but this process has no OpenTelemetry provider, so no span is "
    "exported. Set one with opentelemetry.trace.set_tracer_provider(...), or switch "
    "traces off with svc.use(traces='off')."
)


def tracing_of(traces: str) -> "Tracing | None":
    """Return the maker of spans; None if traces are off.

    Raises:
        ConfigError: OpenTelemetry is not installed; the message names the command.
    """
    return None if traces == OFF else _tracing(has_content=traces == CONTENT)


@lru_cache
def _tracing(*, has_content: bool) -> "Tracing":
    return Tracing(has_content=has_content)


class _RequestSpan(NamedTuple):
    """The span of a request, the parent of its tools' spans and its scores' events."""

    tracing: "Tracing"
    span: Any
    response_id: str | None


_request_spans: OrderedDict[str, _RequestSpan] = OrderedDict()
"""The spans of the newest requests, by exchange id."""


@dataclass(slots=True)
class _Rounds:
    """The span around all requests and tool calls of a block; None before the first."""

    span: Any = None


_rounds: ContextVar[_Rounds | None] = ContextVar("svc_notebook_rounds", default=None)


@contextmanager
def rounds_span() -> Iterator[None]:
    """Put the requests and tool calls inside the block into one span, if traced."""
    rounds = _Rounds()
    token = _rounds.set(rounds)
    try:
        yield
    except BaseException as problem:
        if rounds.span is not None:
            rounds.span.set_attribute("error.type", type(problem).__name__)
        raise
    finally:
        _rounds.reset(token)
        if rounds.span is not None:
            rounds.span.end()


class CalledTool(Protocol):
    """The result of a tool call: see `ToolRun`."""

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments that the tool ran with; None if it did not run."""

    @property
    def error(self) -> str | None:
        """The error message for the model."""

    @property
    def result(self) -> str:
        """The content of the tool message."""


class ToolSpan:
    """The span of a tool call; call `end` with the run when the tool has ended."""

    def __init__(self, sent: _RequestSpan | None, span: Any = None) -> None:  # noqa: ANN401 - OpenTelemetry's
        self._sent = sent
        self._span = span

    def end(self, run: CalledTool) -> None:
        """Add the result or the error of the call."""
        if self._sent is None:
            return
        tracing = self._sent.tracing
        if run.error is not None:
            tracing.fail(self._span, "ToolError", run.error)
        if not tracing.has_content:
            return
        if run.arguments is not None:  # the user may have changed them
            arguments = json.dumps(run.arguments, ensure_ascii=False)
            self._span.set_attribute("gen_ai.tool.call.arguments", _redact(arguments))
        self._span.set_attribute("gen_ai.tool.call.result", _redact(run.result))


@contextmanager
def tool_span(call: ToolCall, exchange: Exchange) -> Iterator[ToolSpan]:
    """Make a span for a tool call of an exchange, if the exchange has a span."""
    sent = _request_spans.get(exchange.exchange_id)
    if sent is None:
        yield ToolSpan(None)
        return
    with sent.tracing.tool(call, sent) as span:
        yield ToolSpan(sent, span)


class GivenScore(Protocol):
    """A score in the ledger."""

    @property
    def exchange_id(self) -> str:
        """The exchange of the scored reply."""

    @property
    def name(self) -> str:
        """The name of the score."""

    @property
    def value(self) -> int | float | str | None:
        """The value of the score; None if it was removed."""


def send_scores(scores: Sequence[GivenScore]) -> None:
    """Send an event for each score of a reply that this kernel has traced."""
    for score in scores if _request_spans else ():
        sent = _request_spans.get(score.exchange_id)
        if sent is not None and score.value is not None:
            sent.tracing.score(score, sent)


@dataclass(slots=True)
class ChatSpan:
    """The span of a request, and the token that restores the previous current span."""

    span: Any
    token: Any = field(repr=False)


class Tracing:
    """Makes spans and events; `has_content` says whether they include the texts."""

    def __init__(self, *, has_content: bool) -> None:
        self.has_content = has_content
        self._trace = import_extra(
            "opentelemetry.trace", "Traces need", install=PACKAGE
        )
        self._context = import_extra("opentelemetry.context", "Traces need")
        self._logs = import_extra("opentelemetry._logs", "Traces need", install=PACKAGE)
        self._tracer = self._trace.get_tracer(_NAME)
        self._is_checked = False

    def begin(self, exchange: Exchange, provider: str) -> ChatSpan:
        """Start the span of a request, as a child of the current span."""
        self._check_provider()
        attributes = _request_attributes(exchange, provider)
        parent = self._parent(exchange, attributes)
        span = self._tracer.start_span(
            f"chat {exchange.request.model}",
            context=parent,
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
        )
        within = self._trace.set_span_in_context(span, parent)
        return ChatSpan(span, self._context.attach(within))

    def end(self, chat: ChatSpan, exchange: Exchange | None) -> None:
        """End the span of a request; without an exchange, nothing was sent."""
        self._context.detach(chat.token)
        if exchange is None:
            chat.span.end()
            return
        chat.span.set_attributes(_reply_attributes(exchange))
        if self.has_content:
            chat.span.set_attributes(_content_attributes(exchange))
        if exchange.failure is not None:
            self.fail(chat.span, exchange.failure.type, exchange.failure.message)
        response_id = exchange.body.id if exchange.body else None
        _request_spans[exchange.exchange_id] = _RequestSpan(
            self, chat.span, response_id
        )
        if len(_request_spans) > _MAX_SPANS:
            _request_spans.popitem(last=False)
        chat.span.end(_nanoseconds(exchange.ended_at))

    def retry(self, error: SvcError, wait_s: float) -> None:
        """Note in the current span that a request is retried."""
        attributes = {"error.type": type(error).__name__, "svc.wait_s": wait_s}
        self._trace.get_current_span().add_event("svc.retry", attributes)

    @contextmanager
    def tool(self, call: ToolCall, sent: _RequestSpan) -> Iterator[Any]:
        """Make the span of a tool call the current one inside the block."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.function.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id,
        }
        if self.has_content:
            attributes["gen_ai.tool.call.arguments"] = call.function.arguments
        rounds = _rounds.get()
        parent_span = rounds.span if rounds and rounds.span is not None else sent.span
        with self._tracer.start_as_current_span(
            f"execute_tool {call.function.name}",
            context=self._trace.set_span_in_context(parent_span),
            attributes=_redact_all(attributes),
            record_exception=False,
        ) as span:
            yield span

    def score(self, score: GivenScore, sent: _RequestSpan) -> None:
        """Send the event of a score, as a child of the reply's span."""
        is_label = isinstance(score.value, str)
        attributes: dict[str, Any] = {
            "gen_ai.evaluation.name": score.name,
            "gen_ai.response.id": sent.response_id,
            "svc.exchange_id": score.exchange_id,
        }
        if is_label:
            attributes["gen_ai.evaluation.score.label"] = score.value
        else:
            attributes["gen_ai.evaluation.score.value"] = float(score.value or 0)
        record = self._logs.LogRecord(
            context=self._trace.set_span_in_context(sent.span),
            event_name="gen_ai.evaluation.result",
            attributes=_redact_all(attributes),
        )
        self._logs.get_logger(_NAME).emit(record)

    def fail(self, span: Any, kind: str, message: str) -> None:  # noqa: ANN401 - OpenTelemetry's
        """Mark a span as failed; a message may quote texts, so it counts as content."""
        span.set_attribute("error.type", kind)
        description = _redact(message) if self.has_content else None
        span.set_status(self._trace.StatusCode.ERROR, description)

    def _parent(self, exchange: Exchange, attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a context, or None
        """Return the context of a request's parent span; None for the current span."""
        rounds = _rounds.get()
        if rounds is None:
            return None
        if rounds.span is None:
            shared = ("gen_ai.provider.name", "gen_ai.conversation.id", "svc.run")
            shared_attributes = {
                name: attributes[name] for name in shared if name in attributes
            }
            rounds.span = self._tracer.start_span(
                "invoke_agent",
                attributes={
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.request.model": exchange.request.model,
                    **shared_attributes,
                },
            )
        return self._trace.set_span_in_context(rounds.span)

    def _check_provider(self) -> None:
        """Write once if no provider exports the spans."""
        if not self._is_checked:
            self._is_checked = True
            provider = self._trace.get_tracer_provider()
            if isinstance(provider, self._trace.ProxyTracerProvider):
                write_warning(_NO_PROVIDER)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6) * 1000


def _redact(text: str) -> str:
    for key in known_keys():
        text = key.redact(text)
    return text


def _redact_all(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value, with keys redacted."""
    return {
        name: _redact(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }


def _request_attributes(exchange: Exchange, provider: str) -> dict[str, Any]:
    request, origin = exchange.request, exchange.origin
    address = urlsplit(exchange.endpoint)
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider or address.hostname,
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": exchange.is_streamed,
        "gen_ai.conversation.id": origin.conversation,
        "server.address": address.hostname,
        "server.port": address.port or {"http": 80, "https": 443}.get(address.scheme),
        "svc.exchange_id": exchange.exchange_id,
        "svc.origin": origin.kind,
        "svc.run": origin.run,
        "svc.repeat": origin.repeat,
        "svc.is_emulated": exchange.is_emulated,
    }
    for name, convention_name in _PARAMS.items():
        value = request.params.get(name)
        if name == "stop" and value is not None:
            value = [_redact(stop) for stop in _to_list(value)]
        attributes[f"gen_ai.request.{convention_name}"] = value
    return _redact_all(attributes)


def _to_list(value: Any) -> list[str]:  # noqa: ANN401 - a text, or several
    return [value] if isinstance(value, str) else list(value)


def _reply_attributes(exchange: Exchange) -> dict[str, Any]:
    body = exchange.body
    attributes: dict[str, Any] = {
        "svc.n_attempts": exchange.n_attempts,
        "svc.queue_s": exchange.queue_s,
        "svc.is_emulated": exchange.is_emulated,
        "gen_ai.response.time_to_first_chunk": exchange.first_text_s,
    }
    if exchange.failure is not None:
        attributes["http.response.status_code"] = exchange.failure.http_status
    if body is not None:
        attributes |= {
            "gen_ai.response.id": body.id,
            "gen_ai.response.model": body.model,
            "gen_ai.response.finish_reasons": [
                _redact(choice.finish_reason or "") for choice in body.choices
            ],
        }
    if body is not None and body.usage is not None:  # estimates are not usage
        attributes |= {
            "gen_ai.usage.input_tokens": body.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": body.usage.completion_tokens,
        }
    return _redact_all(attributes)


def _content_attributes(exchange: Exchange) -> dict[str, Any]:
    """Return the texts in the conventions' form: JSON of messages with parts."""
    messages = [_message(message) for message in exchange.request.messages]
    replies = [_reply(choice) for choice in exchange.choices]
    return {
        "gen_ai.input.messages": _redact(json.dumps(messages, ensure_ascii=False)),
        "gen_ai.output.messages": _redact(json.dumps(replies, ensure_ascii=False)),
    }


def _message(message: Message) -> dict[str, Any]:
    if message.tool_call_id is not None:
        answer = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.content or "",
        }
        return {"role": message.role, "parts": [answer]}
    return {
        "role": message.role,
        "parts": _parts(message.content, message.tool_calls),
    }


def _reply(choice: Choice) -> dict[str, Any]:
    return {
        "role": "assistant",
        "parts": _parts(choice.text, choice.tool_calls),
        "finish_reason": choice.finish_reason or "",
    }


def _parts(text: str | None, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if text is not None:
        parts.append({"type": "text", "content": text})
    for call in calls:
        function = call.function
        parts.append(
            {
                "type": "tool_call",
                "id": call.id,
                "name": function.name,
                "arguments": function.arguments,
            }
        )
    return parts

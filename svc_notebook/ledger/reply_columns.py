"""The columns of `replies_df`, which has one row per choice.

Numbers of a request (the part `first`) are on the row of its first choice only, so
that sums and means over rows are those over requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Literal

import msgspec

from svc_notebook.completion import is_cut
from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.service.chunk import Choice
from svc_notebook.service.params import DEFAULT_MAX_TOKENS, PARAMS, Param
from svc_notebook.service.request import CompletionRequest

from .columns import (
    Batch,
    Column,
    Dtype,
    as_json,
)
from .prices import Prices, cost_of

RowStatus = Literal["planned", "ok", "error", "cancelled", "not_run"]


class ReplyRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row: a choice of an exchange, or a trial of a sweep that has none.

    Rows with the status planned or not_run have no exchange. `is_first` marks the row
    that has the numbers of the request.
    """

    request: CompletionRequest
    origin: Origin
    status: RowStatus
    exchange: Exchange | None = None
    choice: Choice | None = None
    failure: Failure | None = None
    is_first: bool = True
    est_prompt_tokens: int | None = None

    @property
    def first(self) -> Exchange | None:
        """The exchange, on its first row only."""
        return self.exchange if self.is_first else None


def to_replies(
    exchange: Exchange, columns: dict[str, Any] | None = None
) -> Iterator[ReplyRow]:
    """Return the rows of an exchange: one per choice, or one without a choice.

    `columns`, if there are any, replace its template columns.
    """
    origin = exchange.origin
    if columns:
        origin = msgspec.structs.replace(origin, columns=columns)
    choices: tuple[Choice | None, ...] = exchange.choices or (None,)
    for position, choice in enumerate(choices):
        is_first = position == 0
        yield ReplyRow(
            request=exchange.request,
            origin=origin,
            status=exchange.status,
            exchange=exchange,
            choice=choice,
            failure=exchange.failure,
            is_first=is_first,
            est_prompt_tokens=exchange.est_prompt_tokens if is_first else None,
        )


def exchange_batch(
    exchanges: Sequence[Exchange],
    prices: Prices | None = None,
    *,
    is_by_choice: bool = True,
    parts: Mapping[str, Sequence[Any]] | None = None,
) -> Batch:
    """Return the rows of exchanges, to be read column by column.

    `is_by_choice=False` gives one row per exchange, for its first choice. `parts` are
    not in the exchanges, or replace what is there.
    """
    known = {"exchange": exchanges, "first": exchanges, **(parts or {})}
    batch = Batch(exchanges, known)
    bodies = batch.part("exchange.body")
    choices = [(body and body.choices) or _NO_CHOICE for body in bodies]
    if is_by_choice and max(map(len, choices), default=0) > 1:
        several = _several(exchanges, choices)
        for name, values in (parts or {}).items():
            rows = map(repeat, values, map(len, choices))
            several.parts[name] = list(chain.from_iterable(rows))
        return _priced(several, prices)
    batch.parts["choice"] = [row_choices[0] for row_choices in choices]
    batch.parts["choices"] = choices
    batch.parts["first.body"] = bodies
    batch.parts["first.body.usage"] = batch.part("exchange.body.usage")
    return _priced(batch, prices)


_NO_CHOICE = (None,)


def _several(
    exchanges: Sequence[Exchange], choices_by_exchange: Sequence[Sequence[Any]]
) -> Batch:
    """Return the rows of exchanges some of which have several choices."""
    lengths = list(map(len, choices_by_exchange))
    rows = list(chain.from_iterable(map(repeat, exchanges, lengths)))
    firsts = chain.from_iterable(
        (exchange, *repeat(None, length - 1))
        for exchange, length in zip(exchanges, lengths, strict=True)
    )
    choices = list(chain.from_iterable(choices_by_exchange))
    batch = Batch(rows, {"exchange": rows, "choice": choices, "first": list(firsts)})
    batch.parts["est_prompt_tokens"] = batch.part("first.est_prompt_tokens")
    return batch


def _priced(batch: Batch, prices: Prices | None) -> Batch:
    batch.parts["cost"] = (
        [None] * len(batch.rows)
        if prices is None
        else batch.map_part("first", lambda exchange: cost_of(exchange, prices))
    )
    return batch


def _choice_index(batch: Batch) -> list[int]:
    return [index or 0 for index in batch.part("choice.index")]


def cut_flags(batch: Batch) -> list[bool | None]:
    """Return whether each choice was cut; None where there is no choice."""
    rows = zip(
        batch.part("exchange"),
        batch.part("choice"),
        batch.part("choice.finish_reason"),
        batch.part("exchange.body.usage.completion_tokens"),
        [DEFAULT_MAX_TOKENS if n is None else n for n in _sent(batch, "max_tokens")],
        strict=True,
    )
    return [
        False  # the usual case, and faster
        if reason == "stop" and n_tokens is not None and n_tokens < limit
        else choice and is_cut(exchange, choice)
        for exchange, choice, reason, n_tokens, limit in rows
    ]


def _system(batch: Batch) -> list[str | None]:
    return [
        messages[0].content if messages[0].role == "system" else None
        for messages in batch.part("request.messages")
    ]


def _prompt(batch: Batch) -> Sequence[str]:
    lasts = [messages[-1] for messages in batch.part("request.messages")]
    if {last.role for last in lasts} != {"user"}:
        return batch.part("request.prompt")
    return [last.content or "" for last in lasts]  # the usual case, and faster


def usage_source(batch: Batch) -> Sequence[str | None]:
    """Return where the token counts of each exchange come from."""
    if None not in batch.part("exchange.body.usage"):
        return ["reported"] * len(batch.rows)  # the usual case, and faster
    return batch.part("exchange.usage_source")


def _sent(batch: Batch, name: str) -> list[Any]:
    """Return a parameter of each request; most parameters are sent by none."""
    params = batch.part("request.params")
    if "params sent" not in batch.parts:
        batch.parts["params sent"] = list(set[str]().union(*params))
    if name not in batch.parts["params sent"]:
        return [None] * len(params)
    return [sent.get(name) for sent in params]


def _param(param: Param) -> Column:
    if param.kind == "stops":
        doc = "as sent, as JSON text; missing = not sent"
        return Column(param.name, "string", lambda batch: _stops(batch, param), doc)
    doc = "as sent; missing = not sent, so the service's default applied"
    dtype = _DTYPES[param.kind]
    return Column(param.name, dtype, lambda batch: _sent(batch, param.name), doc)


def _stops(batch: Batch, param: Param) -> list[str | None]:
    values = _sent(batch, param.name)
    return [
        None if value is None else msgspec.json.encode(value).decode()
        for value in values
    ]


_DTYPES: dict[str, Dtype] = {
    "integer": "Int64",
    "float": "Float64",
    "string": "string",
}


_FIRST = ("temperature", "top_p")
_INSTANT: Dtype = "datetime64[us, UTC]"
_REPORTED = "as the service reported it, else missing"
_ESTIMATED = "estimated for all, also where tokens were reported"


def _unread(batch: Batch) -> list[None]:
    return [None] * len(batch.rows)  # `analysis.typed_answers` fills them in


ANSWER = Column("answer", "string", _unread, "read from the reply, as its type")
ANSWERS = (
    ANSWER,
    Column("answer_ok", "boolean", _unread, "whether the reply has an answer"),
    Column("answer_error", "string", _unread, "why it has none"),
)
"""Answers in replies; fields of a structured answer come after the first."""
FACTORS = (
    Column("model", "string", "request.model", "model id asked for"),
    # the document's table begins with max_tokens, frames with temperature and top_p
    *map(_param, sorted(PARAMS, key=lambda param: param.name not in _FIRST)),
    Column("system", "string", _system, "the system message, if there is one"),
    Column("prompt", "string", _prompt, "the newest user message"),
    Column("repeat", "Int64", "origin.repeat", "repetition of the trial, from 0"),
    Column("choice_index", "Int64", _choice_index, "position of the choice"),
)
REPLY = (
    Column("text", "string", "choice.text", 'the reply, also partial; "" is empty'),
    *ANSWERS,
    Column("finish_reason", "string", "choice.finish_reason", "stop is a normal end"),
    Column(
        "is_cut", "boolean", cut_flags, "finish reason `length`, or max_tokens reached"
    ),
    Column(
        "n_tool_calls",
        "Int64",
        lambda batch: batch.map_part("choice.tool_calls", len),
        "tool calls in the reply",
    ),
    Column(
        "tool_calls",
        "string",
        as_json("choice.tool_calls"),
        "the tool calls, as JSON text",
    ),
    Column(
        "n_rounds",
        "Int64",
        "origin.tool_round.n_rounds",
        "requests up to this reply, where a sweep runs tools",
    ),
    Column(
        "n_tool_runs",
        "Int64",
        "origin.tool_round.n_tool_runs",
        "tool calls answered before it, where a sweep runs tools",
    ),
    Column(
        "status",
        "string",
        "status",
        "planned, ok, error, cancelled, or not_run (in a run, but not asked)",
    ),
    Column("error_type", "string", "failure.type", "our error class; missing when ok"),
    Column("http_status", "Int64", "failure.http_status", "status of the error"),
    Column("error_code", "string", "failure.code", "the error body's code"),
    Column("error_param", "string", "failure.param", "the error body's param"),
    Column("error_message", "string", "failure.message", "our error's message"),
    Column(
        "n_attempts",
        "Int64",
        "first.n_attempts",
        "requests sent in this exchange; after a 429 a run begins another one",
    ),
    Column(
        "n_refused",
        "Int64",
        "first.n_refused",
        "429s in this exchange; usage_df counts all of a run",
    ),
)
NUMBERS = (
    Column("prompt_tokens", "Int64", "first.body.usage.prompt_tokens", _REPORTED),
    Column(
        "completion_tokens", "Int64", "first.body.usage.completion_tokens", _REPORTED
    ),
    Column("total_tokens", "Int64", "first.body.usage.total_tokens", _REPORTED),
    Column("est_prompt_tokens", "Int64", "est_prompt_tokens", _ESTIMATED),
    Column("est_completion_tokens", "Int64", "first.est_completion_tokens", _ESTIMATED),
    Column(
        "est_low_tokens",
        "Int64",
        "first.est_low_tokens",
        "lower end of the estimate of prompt and reply together",
    ),
    Column("est_high_tokens", "Int64", "first.est_high_tokens", "its upper end"),
    Column(
        "usage_source",
        "string",
        usage_source,
        "reported, estimated (none was reported) or missing (no reply)",
    ),
    Column(
        "cost",
        "Float64",
        "cost.amount",
        "by your price table, in its currency; missing = unknown, or nothing paid",
    ),
    Column(
        "cost_source",
        "string",
        "cost.source",
        "reported or estimated tokens, and the price table with its date",
    ),
    Column(
        "latency_s",
        "Float64",
        "first.latency_s",
        "from sending the last attempt to its end, without any wait",
    ),
    Column(
        "first_text_s",
        "Float64",
        "first.first_text_s",
        "from sending the last attempt to the first text",
    ),
    Column("queue_s", "Float64", "first.queue_s", "wait for our own rate limit"),
    Column("retry_wait_s", "Float64", "first.retry_wait_s", "wait between attempts"),
    Column("n_chunks", "Int64", "first.n_chunks", "chunks of a stream, else 0"),
    Column("started_at", _INSTANT, "exchange.started_at", "start, before any wait"),
    Column("ended_at", _INSTANT, "exchange.ended_at", "end"),
)
IDS = (
    Column("origin", "string", "origin.kind", "magic, panel, sweep, frame or python"),
    Column("conversation", "string", "origin.conversation", "its name, if part of one"),
    Column("run", "string", "origin.run", "the sweep's run, if any"),
    Column("endpoint", "string", "exchange.endpoint", "base address it was sent to"),
    Column("is_emulated", "boolean", "exchange.is_emulated", "emulator answered"),
    Column(
        "emulator_note",
        "string",
        "exchange.emulator_note",
        "what it says of its answer: made up, or its script's note",
    ),
    Column("is_reused", "boolean", "exchange.is_reused", "a recorded answer"),
    Column("is_streamed", "boolean", "exchange.is_streamed", "asked as a stream"),
    Column("model_returned", "string", "exchange.body.model", "as the service says"),
    Column("created_at", _INSTANT, "exchange.body.created", "as the service says"),
    Column(
        "request_key",
        "string",
        "origin.request_key",
        "hash of all that affects the reply; equal for repeats",
    ),
    Column("exchange_id", "string", "exchange.exchange_id", "our id; sorts by time"),
    Column("completion_id", "string", "exchange.body.id", "the service's id"),
    Column("continues", "string", "origin.continues", "exchange_id of the text before"),
)
REPLIES = (*FACTORS, *REPLY, *NUMBERS, *IDS)
"""All columns of `replies_df`, in its order. Template columns come before them, scores
after `ANSWERS`."""

TEXTS = frozenset(
    {"system", "prompt", "text", "tool_calls", *(column.name for column in ANSWERS)}
)
"""Columns that a frame without texts does not have."""

"""The one schema of replies: a row a choice, for the ledger and for sweeps.

What it is not: the rows (see `reply`), or the frame (see `frames`). Rules: column
names are API; numbers of the request stand on its first choice only, so that sums
and means are both right; reported tokens are the service's alone, estimates never
mix with them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

import msgspec

from svc_notebook.exchange import CUT_REASONS, Exchange, Failure, Origin
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.service.params import PARAMS as REQUEST_PARAMS
from svc_notebook.service.request import CompletionRequest

from .columns import Batch, Column, Dtype, Scalar, to_instant

RowStatus = Literal["planned", "ok", "error", "cancelled", "not_run"]


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row: a choice of an exchange, or a cell of a sweep that has none.

    Without the garbage collector's notice, since frames make very many and a row
    holds nothing that holds it.

    Attributes:
        request: What was, or will be, sent.
        origin: Who asks.
        status: planned and not_run are rows without an exchange.
        exchange: None if nothing was sent.
        choice: None if none came.
        failure: Why there is no whole answer.
        choice_index: Position of the choice; 0 if none came.
        is_first: Whether this row carries the numbers of the request.
        est_prompt_tokens: Estimated for the request; on its first row only.
        of_request: The exchange, on its first row only.
        body: What came back, if anything did.
        usage: As reported, on the first row of the exchange only.
    """

    request: CompletionRequest
    origin: Origin
    status: RowStatus
    exchange: Exchange | None = None
    choice: Choice | None = None
    failure: Failure | None = None
    choice_index: int = 0
    is_first: bool = True
    est_prompt_tokens: int | None = None
    of_request: Exchange | None = None
    body: CompletionBody | None = None
    usage: Usage | None = None


def to_replies(exchange: Exchange) -> Iterator[Reply]:
    """Return the rows of an exchange: one a choice, or one if no choice came."""
    choices: tuple[Choice | None, ...] = exchange.choices or (None,)
    body = exchange.body
    for position, choice in enumerate(choices):
        is_first = position == 0
        yield Reply(
            request=exchange.request,
            origin=exchange.origin,
            status=exchange.status,
            exchange=exchange,
            choice=choice,
            failure=exchange.failure,
            choice_index=choice.index if choice else 0,
            is_first=is_first,
            est_prompt_tokens=exchange.est_prompt_tokens if is_first else None,
            of_request=exchange if is_first else None,
            body=body,
            usage=body.usage if body and is_first else None,
        )


class ExchangeBatch(Batch):
    """The rows of exchanges of one choice at most: parts without the rows.

    Args:
        exchanges: Of which none has several choices.
        bodies: Theirs.
        choices: Theirs.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        bodies: Sequence[CompletionBody | None],
        choices: Sequence[Choice | None],
    ) -> None:
        super().__init__(exchanges)
        self._once |= {
            "exchange": exchanges,
            "of_request": exchanges,
            "body": bodies,
            "choice": choices,
            "choice_index": [each.index if each else 0 for each in choices],
        }

    @property
    def rows(self) -> Sequence[Reply]:
        """The rows, made if they are needed one by one."""
        return self.once("rows", lambda: list(all_replies(self._rows)))

    def _part(self, name: str) -> list[Any]:
        whole = _PARTS.get(name)
        return super()._part(name if whole is None else f"{whole}.{name}")


_PARTS = {
    **dict.fromkeys(("request", "origin", "status", "failure"), "exchange"),
    "est_prompt_tokens": "exchange",
    "usage": "body",
}
"""Where the parts of a row are found that are parts of an exchange's."""


def to_batch(exchanges: Sequence[Exchange]) -> Batch:
    """Return the rows of exchanges for reading column by column."""
    bodies = [exchange.body for exchange in exchanges]
    found = [body.choices if body else () for body in bodies]
    if max(map(len, found), default=0) > 1:
        return Batch(list(all_replies(exchanges)))
    return ExchangeBatch(
        exchanges, bodies, [each[0] if each else None for each in found]
    )


def all_replies(exchanges: Iterable[Exchange]) -> Iterator[Reply]:
    """Return the rows of exchanges, in their order."""
    return chain.from_iterable(map(to_replies, exchanges))


def is_cut(row: Reply) -> bool | None:
    """Say whether a row's choice was cut; None without one."""
    exchange, choice = row.exchange, row.choice
    return None if exchange is None or choice is None else exchange.is_cut(choice)


def cuts(batch: Batch) -> list[Scalar]:
    """Return `is_cut` of all rows; few are near the limit and have to be asked."""
    rows = zip(
        batch.part("exchange"),
        batch.part("choice"),
        batch.part("body.usage.completion_tokens"),
        batch.part("exchange.est_completion_tokens"),
        sent(batch, "max_tokens"),
        strict=True,
    )
    return [
        choice
        and (
            choice.finish_reason in CUT_REASONS
            or (
                (estimated if counted is None else counted)
                >= (DEFAULT_MAX_TOKENS if allowed is None else allowed)
                and exchange.is_cut(choice)
            )
        )
        for exchange, choice, counted, estimated, allowed in rows
    ]


def call_counts(batch: Batch) -> list[Scalar]:
    """Return how many tool calls each choice asks for."""
    return batch.of_part("choice.tool_calls", len)


def calls(batch: Batch) -> list[Scalar]:
    """Return the tool calls as text; most choices have none."""
    if not any(batch.part("choice.tool_calls")):
        return [None] * batch.n_rows
    return batch.of_part("choice", calls_text)


def calls_text(choice: Choice) -> str | None:
    """Return the tool calls of a choice as JSON text; None if it has none."""
    return _to_json(choice.tool_calls) if choice.tool_calls else None


def systems(batch: Batch) -> list[Scalar]:
    """Return the system messages."""
    firsts = [messages[0] for messages in batch.part("request.messages")]
    return [each.content if each.role == "system" else None for each in firsts]


def prompts(batch: Batch) -> list[Scalar]:
    """Return the newest user messages, nearly always the last message."""
    lasts = [messages[-1] for messages in batch.part("request.messages")]
    if any(last.role != "user" for last in lasts):
        return batch.of_part("request", attrgetter("prompt"))
    return [last.content or "" for last in lasts]


def usage_sources(batch: Batch) -> list[Scalar]:
    """Return where token counts come from, often one place for all."""
    if None not in batch.part("body.usage"):
        return ["reported"] * batch.n_rows
    return batch.of_part("exchange", attrgetter("usage_source"))


def unknown(batch: Batch) -> list[Scalar]:
    """Return a missing value for each row."""
    return [None] * batch.n_rows


def stop_text(stop: Any) -> str | None:  # noqa: ANN401 - a parameter
    """Return `stop` as JSON text; None if it was not sent."""
    return None if stop is None else _to_json(stop)


def _to_json(value: Any) -> str:  # noqa: ANN401 - anything that JSON knows
    return msgspec.json.encode(value).decode()


def sent(batch: Batch, name: str) -> list[Scalar]:
    """Return a parameter as sent; most are not sent by any of many requests."""
    params = batch.part("request.params")
    names = batch.once("names sent", lambda: set[str]().union(*params))
    return [each.get(name) for each in params] if name in names else unknown(batch)


def _of_row(name: str, dtype: Dtype, part: str, doc: str) -> Column[Reply]:
    """Make a column of a part of a row as it is."""
    return Column(
        name=name,
        dtype=dtype,
        unit=_unit(name, dtype),
        read=attrgetter(part),
        doc=doc,
        read_all=lambda batch: batch.part(part),
    )


def _of_part(
    name: str,
    dtype: Dtype,
    read: Callable[[Any], Scalar],
    doc: str,
    part: str,
) -> Column[Reply]:
    """Make a column of one part of a row; it is missing where the part is."""
    part_of = attrgetter(part)

    def value_of(row: Reply) -> Scalar:
        found = part_of(row)
        return read(found) if found else None

    return Column(
        name=name,
        dtype=dtype,
        unit=_unit(name, dtype),
        read=value_of,
        doc=doc,
        read_all=lambda batch: batch.of_part(part, read),
    )


def _unit(name: str, dtype: Dtype) -> str | None:
    if name.endswith("_tokens"):
        return "tokens"
    if name.endswith("_s"):
        return "s"
    return "UTC" if dtype.startswith("datetime") else None


def _of_exchange(
    name: str, dtype: Dtype, read: Callable[[Exchange], Scalar], doc: str
) -> Column[Reply]:
    return _of_part(name, dtype, read, doc, "exchange")


def _number(
    name: str, dtype: Dtype, read: Callable[[Exchange], Scalar], doc: str
) -> Column[Reply]:
    """Make a column of numbers of the request: on its first row only."""
    return _of_part(name, dtype, read, doc, "of_request")


def _param(name: str, dtype: Dtype) -> Column[Reply]:
    def value_of(row: Reply) -> Scalar:
        value: Any = row.request.params.get(name)
        return float(value) if dtype == "Float64" and value is not None else value

    return Column(
        name=name,
        dtype=dtype,
        unit=_unit(name, dtype),
        read=value_of,
        doc="as sent; missing = not sent, so the service's default applied",
        read_all=lambda batch: sent(batch, name),
    )


def _of_choice(
    name: str, dtype: Dtype, read: Callable[[Choice], Scalar], doc: str
) -> Column[Reply]:
    return _of_part(name, dtype, read, doc, "choice")


def _of_failure(
    name: str, dtype: Dtype, read: Callable[[Failure], Scalar], doc: str
) -> Column[Reply]:
    return _of_part(name, dtype, read, doc, "failure")


def _usage(name: str) -> Column[Reply]:
    doc = "as the service reported it, else missing"
    return _of_part(name, "Int64", attrgetter(name), doc, "usage")


def _of_body(
    name: str, dtype: Dtype, read: Callable[[CompletionBody], Scalar], doc: str
) -> Column[Reply]:
    return _of_part(name, dtype, read, doc, "body")


IDENTITY: tuple[Column[Reply], ...] = (
    _of_exchange(
        "exchange_id", "string", attrgetter("exchange_id"), "ours, sorts by time"
    ),
    _of_body(
        "completion_id",
        "string",
        attrgetter("id"),
        "the service's identifier of the completion",
    ),
    _of_row(
        "origin",
        "string",
        "origin.kind",
        "who asked: magic, panel, sweep, frame or python",
    ),
    _of_row(
        "conversation",
        "string",
        "origin.conversation",
        "name of the conversation, if it was part of one",
    ),
    _of_row("run", "string", "origin.run", "the sweep's run, if any"),
    _of_row(
        "request_key",
        "string",
        "origin.request_key",
        "hash of all that affects the reply: the same combination has the same one",
    ),
    _of_row("repeat", "Int64", "origin.repeat", "repetition of the cell, from 0"),
    _of_row("choice_index", "Int64", "choice_index", "position of the choice"),
)
SOURCE: tuple[Column[Reply], ...] = (
    _of_exchange("endpoint", "string", attrgetter("endpoint"), "base address asked"),
    _of_exchange(
        "is_emulated", "boolean", attrgetter("is_emulated"), "answered by the emulator"
    ),
    _of_exchange(
        "is_reused",
        "boolean",
        attrgetter("is_reused"),
        "read from the ledger, not asked",
    ),
    _of_exchange(
        "is_streamed", "boolean", attrgetter("is_streamed"), "asked as a stream"
    ),
)
MODEL: tuple[Column[Reply], ...] = (
    _of_row("model", "string", "request.model", "model id asked for"),
    _of_body(
        "model_returned",
        "string",
        attrgetter("model"),
        "model id that the service says it used",
    ),
    Column(
        name="created_at",
        dtype="datetime64[us, UTC]",
        unit="UTC",
        read=lambda row: to_instant(row.body.created) if row.body else None,
        doc="creation time that the service says",
        read_all=lambda batch: batch.of_part("body", attrgetter("created")),
    ),
)
_DTYPES: dict[str, Dtype] = {"float": "Float64", "integer": "Int64"}
_LEADING = ("temperature", "top_p")  # the other parameters in the table's order


def _param_columns() -> Iterator[Column[Reply]]:
    """Make a column of each parameter of the one table."""
    for param in sorted(REQUEST_PARAMS, key=lambda each: each.name not in _LEADING):
        if param.kind != "stops":
            yield _param(param.name, _DTYPES.get(param.kind, "string"))
            continue
        yield Column(
            name="stop",
            dtype="string",
            read=lambda row: stop_text(row.request.params.get("stop")),
            doc="as sent, as JSON text; missing = not sent",
            read_all=lambda batch: list(map(stop_text, sent(batch, "stop"))),
        )


PARAMS: tuple[Column[Reply], ...] = tuple(_param_columns())
PROMPT: tuple[Column[Reply], ...] = (
    Column(
        name="system",
        dtype="string",
        read=attrgetter("request.system"),
        doc="the system message, if the first message is one",
        read_all=systems,
    ),
    Column(
        name="prompt",
        dtype="string",
        read=attrgetter("request.prompt"),
        doc="the newest user message",
        read_all=prompts,
    ),
)
ANSWER: tuple[Column[Reply], ...] = (
    _of_choice(
        "text",
        "string",
        attrgetter("text"),
        'the reply, a partial one too; "" is an empty reply, missing is none',
    ),
    _of_choice(
        "finish_reason",
        "string",
        attrgetter("finish_reason"),
        "as sent; `stop` is a normal end",
    ),
    Column(
        name="is_cut",
        dtype="boolean",
        read=is_cut,
        doc="ended for want of tokens: finish reason `length`, or max_tokens reached",
        read_all=cuts,
    ),
    Column(
        name="n_tool_calls",
        dtype="Int64",
        read=lambda row: len(row.choice.tool_calls) if row.choice else None,
        doc="tool calls asked for",
        read_all=call_counts,
    ),
    Column(
        name="tool_calls",
        dtype="string",
        read=lambda row: calls_text(row.choice) if row.choice else None,
        doc="the tool calls, as JSON text",
        read_all=calls,
    ),
)
OUTCOME: tuple[Column[Reply], ...] = (
    _of_row(
        "status",
        "string",
        "status",
        "planned, ok, error, cancelled, or not_run (in a run, but not asked)",
    ),
    _of_failure(
        "error_type",
        "string",
        attrgetter("type"),
        "class of our error; missing when ok",
    ),
    _of_failure(
        "http_status", "Int64", attrgetter("http_status"), "status of the error"
    ),
    _of_failure("error_code", "string", attrgetter("code"), "the error body's code"),
    _of_failure("error_param", "string", attrgetter("param"), "the error body's param"),
    _of_failure(
        "error_message", "string", attrgetter("message"), "our error's message"
    ),
    _number("n_attempts", "Int64", attrgetter("n_attempts"), "requests sent for it"),
    _number("n_refused", "Int64", attrgetter("n_refused"), "of these, answered by 429"),
)
USAGE: tuple[Column[Reply], ...] = (
    _usage("prompt_tokens"),
    _usage("completion_tokens"),
    _usage("total_tokens"),
    _of_row(
        "est_prompt_tokens",
        "Int64",
        "est_prompt_tokens",
        "estimated for every request, also where tokens were reported",
    ),
    _number(
        "est_completion_tokens",
        "Int64",
        attrgetter("est_completion_tokens"),
        "estimated for every reply, also where tokens were reported",
    ),
    Column(
        name="usage_source",
        dtype="string",
        read=lambda row: row.exchange.usage_source if row.exchange else None,
        doc="reported, estimated (none was reported) or missing (nothing came)",
        read_all=usage_sources,
    ),
)
TIMES: tuple[Column[Reply], ...] = (
    _number("queue_s", "Float64", attrgetter("queue_s"), "waited for our own limit"),
    _number(
        "retry_wait_s", "Float64", attrgetter("retry_wait_s"), "waited for retries"
    ),
    _number("first_text_s", "Float64", attrgetter("first_text_s"), "to the first text"),
    _number(
        "latency_s",
        "Float64",
        attrgetter("latency_s"),
        "from sending the last attempt to its end; no waiting for limits in it",
    ),
    _number("n_chunks", "Int64", attrgetter("n_chunks"), "chunks of a stream, else 0"),
    _of_exchange(
        "started_at", "datetime64[us, UTC]", attrgetter("started_at"), "asked at"
    ),
    _of_exchange("ended_at", "datetime64[us, UTC]", attrgetter("ended_at"), "ended at"),
)
COST: tuple[Column[Reply], ...] = (
    Column(
        name="cost",
        dtype="Float64",
        read=lambda _: None,
        doc="by your price table, in its currency; missing = unknown, or nothing paid",
        read_all=unknown,
    ),
    Column(
        name="cost_source",
        dtype="string",
        read=lambda _: None,
        doc="of reported or estimated tokens, and by which price table of what date",
        read_all=unknown,
    ),
)
BEFORE_TEMPLATE = (*IDENTITY, *SOURCE, *MODEL, *PARAMS, *PROMPT)
REPLIES = (*BEFORE_TEMPLATE, *ANSWER, *OUTCOME, *USAGE, *TIMES, *COST)
"""Every column of `replies_df`, in order; template columns come after `prompt`."""

TEXTS = frozenset({"system", "prompt", "text", "tool_calls"})
"""Columns that need the texts; a frame read without texts does not have them."""

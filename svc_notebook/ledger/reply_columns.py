"""Columns of frames, and the batches of rows that they read, without pandas.

`REPLIES` are the columns of `replies_df`, which has one row per choice. Numbers of a
request (the part `first`) are on the row of its first choice only, so that sums and
means over rows are those over requests.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import astuple

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Failure, Origin, is_cut
from svc_notebook.service.catalogue import DEFAULT_MAX_TOKENS
from svc_notebook.service.chunk import Choice
from svc_notebook.service.params import (
    PARAMS,
    Param,
    did_you_mean,
)
from svc_notebook.service.request import CompletionRequest

from .prices import Prices, cost_of

Scalar = str | int | float | bool | datetime | None
Dtype = Literal[
    "string",
    "Int64",
    "Float64",
    "boolean",
    "datetime64[us]",  # days of answers; all other times are instants
    "datetime64[us, UTC]",
    "object",
]

AnyRow = TypeVar("AnyRow")
CHUNK_ROWS = 256  # few enough to stay in the processor's cache until they are read


def chunks(rows: Iterable[AnyRow], n_rows: int = CHUNK_ROWS) -> Iterator[list[AnyRow]]:
    """Return rows in lists of limited length."""
    source = iter(rows)
    while chunk := list(islice(source, n_rows)):
        yield chunk
        del chunk  # frees its memory for the next chunk


class Batch:
    """Some rows of one kind, and their parts that columns read; each is read once.

    `parts` holds parts that are known already or that rows do not have: one value per
    row.
    """

    def __init__(
        self, rows: Sequence[Any], parts: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        self.rows = rows
        self.parts: dict[str, Sequence[Any]] = dict(parts or {})
        self._n_missing: dict[str, int] = {}
        self._structs: dict[int, tuple[Any, Mapping[str, Sequence[Any]]]] = {}

    def part(self, path: str) -> Sequence[Any]:
        """Return a part of each row, such as `body.usage`; None where it is missing."""
        if path not in self.parts:
            whole, _, name = path.rpartition(".")
            fields = self._fields(self.part(whole) if whole else self.rows)
            self.parts[path] = (
                fields[name]
                if name in fields
                else self.map_part(whole, attrgetter(name))
                if whole
                else list(map(attrgetter(name), self.rows))
            )
        return self.parts[path]

    def _fields(self, rows: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
        """Return the fields of rows that are structs of one kind, which is faster."""
        if id(rows) not in self._structs:
            kinds = set(map(type, rows))
            kind = kinds.pop() if len(kinds) == 1 else None
            names = getattr(kind, "__struct_fields__", ())
            values = zip(*map(astuple, rows), strict=True) if names else ()
            self._structs[id(rows)] = rows, dict(zip(names, values, strict=True))
        return self._structs[id(rows)][1]

    def map_part(self, path: str, read: Callable[[Any], Any]) -> list[Any]:
        """Apply a function to a part of each row; None where the part is missing."""
        parts = self.part(path)
        if path not in self._n_missing:
            self._n_missing[path] = parts.count(None)
        if not self._n_missing[path]:
            return list(map(read, parts))
        if self._n_missing[path] == len(parts):
            return [None] * len(parts)
        return [None if part is None else read(part) for part in parts]


ReadColumn = Callable[[Batch], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame; its name includes the unit.

    Its source is a part of a row, such as `exchange.endpoint`, or a function of a
    batch. Instants may be whole seconds since 1970.
    """

    name: str
    dtype: Dtype
    source: str | ReadColumn
    doc: str

    @property
    def unit(self) -> str | None:
        """The unit, from the name or the dtype: tokens, s, UTC or None."""
        if self.name.endswith("_tokens"):
            return "tokens"
        if self.name.endswith("_s"):
            return "s"
        return "UTC" if self.dtype == _INSTANT else None

    def read(self, batch: Batch) -> Sequence[Any]:
        """Return the values of a batch, one per row; None is a missing value."""
        source = self.source
        return batch.part(source) if isinstance(source, str) else source(batch)


def as_json(path: str) -> ReadColumn:
    """Return a source that gives a part as JSON text; None where the part is empty."""
    return lambda batch: [
        msgspec.json.encode(value).decode() if value else None
        for value in batch.part(path)
    ]


def to_instant(seconds: int | None) -> datetime | None:
    """Return the instant of a Unix time; None if the calendar does not have it."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def pick(
    columns: Sequence[Column], names: str | Iterable[str], *, param: str = "by"
) -> tuple[Column, ...]:
    """Return the columns with these names, each once, in the order of the names."""
    known = {column.name: column for column in columns}
    wanted = as_names(names)
    for name in wanted:
        if name not in known:
            raise ParameterError(
                f"{name!r} is not a column of replies."
                f"{did_you_mean(str(name), known)}{_own_columns(known)} "
                "list(svc.replies_df()) has all names.",
                param=param,
            )
    return tuple(known[name] for name in wanted)


def _own_columns(names: Iterable[str]) -> str:
    """Say which of the names are not columns of every frame, such as those of rows."""
    own = [name for name in names if name not in {column.name for column in REPLIES}]
    return f" The columns of the rows are {', '.join(own)}." if own else ""


def as_names(names: object) -> list[Any]:
    """Return one name or several as a list, each once, unchecked."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(dict.fromkeys(names))


EXTRA = "extra_"
LATER = ("score_", "answer_", EXTRA)
"""Prefixes of columns that a frame can get later."""


def extra_columns(extras: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return a column for each field of `extra`, in order of first appearance.

    `extras` has the part `request.extra` of each row.
    """
    values = _by_name(extras)
    return tuple(
        _extra_column(name, dtype_of(of_name)) for name, of_name in values.items()
    )


def _by_name(dicts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each name, in order of first appearance."""
    rows = list(dicts)
    return {
        name: [row[name] for row in rows if name in row]
        for name in dict.fromkeys(chain.from_iterable(rows))
    }


def _extra_column(name: str, dtype: Dtype) -> Column:
    def read(batch: Batch) -> list[Any]:
        values = [extra.get(name) for extra in batch.part("request.extra")]
        if dtype != "string":
            return values
        return [
            value
            if value is None or isinstance(value, str)
            else msgspec.json.encode(value).decode()
            for value in values
        ]

    doc = f"the field {name!r} of extra, as sent; missing = not sent"
    return Column(f"{EXTRA}{name}", dtype, read, doc)


def template_columns(
    dicts: Iterable[Mapping[str, Any]], taken: Iterable[str]
) -> tuple[Column, ...]:
    """Return a column for each template column, in order of first appearance.

    `dicts` has the part `origin.columns` of each row. `taken` has the names of the
    other columns. A name that is taken gets the prefix `var_`, and so does one that a
    score or a field of an answer could get later.
    """
    values = _by_name(dicts)
    taken = frozenset(taken)
    names = {*taken, *values}
    columns = []
    for name, of_name in values.items():
        free_name = name
        while (
            free_name in taken
            or free_name.startswith(LATER)
            or (free_name != name and free_name in names)
        ):
            free_name = "var_" + free_name
        names.add(free_name)
        columns.append(_template_column(name, free_name, dtype_of(of_name)))
    return tuple(columns)


def _template_column(name: str, column_name: str, dtype: Dtype) -> Column:
    def read(batch: Batch) -> list[Any]:
        values = [columns.get(name) for columns in batch.part("origin.columns")]
        if dtype != "string":
            return values
        return [None if value is None else str(value) for value in values]

    doc = f"template column {name!r}, as in the source"
    return Column(column_name, dtype, read, doc)


def dtype_of(values: Collection[object]) -> Dtype:
    """Return the dtype that can hold all values; `string` for mixed or other ones."""
    if set(map(type, values)) == {str}:
        return "string"  # the usual case, and faster
    kinds = {_dtype_of_one(value) for value in values if value is not None}
    if kinds == {"Int64", "Float64"}:
        return "Float64"
    return kinds.pop() if len(kinds) == 1 else "string"


def _dtype_of_one(value: object) -> Dtype:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "Int64"
    if isinstance(value, float):
        return "Float64"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return "datetime64[us, UTC]"
    return "string"


RowStatus = Literal["planned", "ok", "error", "cancelled", "not_run"]


class ReplyRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row: a choice of an exchange, or a trial of a sweep without an exchange.

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
    exchange: Exchange, columns: dict[str, Any] | None
) -> Iterator[ReplyRow]:
    """Return the rows of an exchange: one per choice, or one without a choice.

    `columns` replace its template columns, unless they are empty.
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

    `is_by_choice=False` gives one row per exchange, for its first choice. `parts` holds
    parts that the exchanges do not have, or that replace theirs.
    """
    known = {"exchange": exchanges, "first": exchanges, **(parts or {})}
    batch = Batch(exchanges, known)
    bodies = batch.part("exchange.body")
    choices = [(body and body.choices) or _NO_CHOICE for body in bodies]
    # most exchanges have one choice: then exchanges are rows, and nothing is copied
    if is_by_choice and max(map(len, choices), default=0) > 1:
        several = _with_choices(exchanges, choices)
        for name, values in (parts or {}).items():
            rows = map(repeat, values, map(len, choices))
            several.parts[name] = list(chain.from_iterable(rows))
        return _with_costs(several, prices)
    batch.parts["choice"] = [row_choices[0] for row_choices in choices]
    batch.parts["choices"] = choices
    batch.parts["first.body"] = bodies
    batch.parts["first.body.usage"] = batch.part("exchange.body.usage")
    return _with_costs(batch, prices)


_NO_CHOICE = (None,)


def _with_choices(
    exchanges: Sequence[Exchange], choices_by_exchange: Sequence[Sequence[Any]]
) -> Batch:
    """Return one row per choice of exchanges, some of which have several choices."""
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


def _with_costs(batch: Batch, prices: Prices | None) -> Batch:
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
        [
            DEFAULT_MAX_TOKENS if n is None else n
            for n in _param_values(batch, "max_tokens")
        ],
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


def _param_values(batch: Batch, name: str) -> list[Any]:
    """Return the value of a parameter in each request; None where it was not sent."""
    params = batch.part("request.params")
    # most parameters are in no request, which is found out once per batch
    if "params sent" not in batch.parts:
        batch.parts["params sent"] = list(set[str]().union(*params))
    if name not in batch.parts["params sent"]:
        return [None] * len(params)
    return [request_params.get(name) for request_params in params]


def _param_column(param: Param) -> Column:
    if param.kind == "stops":
        doc = "as sent, as JSON text; missing = not sent"
        return Column(param.name, "string", lambda batch: _stops(batch, param), doc)
    doc = "as sent; missing = not sent, so the service's default applied"
    dtype = _DTYPES[param.kind]
    return Column(
        param.name, dtype, lambda batch: _param_values(batch, param.name), doc
    )


def _stops(batch: Batch, param: Param) -> list[str | None]:
    values = _param_values(batch, param.name)
    return [
        None if value is None else msgspec.json.encode(value).decode()
        for value in values
    ]


_DTYPES: dict[str, Dtype] = {
    "integer": "Int64",
    "float": "Float64",
    "string": "string",
}


_FIRST = "temperature"  # the parameter that is varied most
_INSTANT: Dtype = "datetime64[us, UTC]"
_REPORTED = "as the service reported it; missing if it did not"
_ESTIMATED = (
    "estimated in every row, also where tokens were reported; rounded here, while "
    "usage_df rounds sums"
)


def _no_answers(batch: Batch) -> list[None]:
    return [None] * len(batch.rows)  # `analysis.read_answers` fills them in


ANSWER = Column(
    "answer", "string", _no_answers, "the answer that was read from the reply"
)
ANSWERS = (
    ANSWER,
    Column("answer_ok", "boolean", _no_answers, "whether the reply has an answer"),
    Column("answer_error", "string", _no_answers, "why the reply has no answer"),
)
"""Columns of answers; the fields of a structured answer come after the first one."""
ASKED = (
    Column("model", "string", "request.model", "model id asked for"),
    *(_param_column(param) for param in PARAMS if param.name == _FIRST),
)
REPLY = (
    Column("text", "string", "choice.text", 'the reply, also partial; "" is empty'),
    *ANSWERS,
)
SENT = (
    Column("prompt", "string", _prompt, "the newest user message"),
    Column("system", "string", _system, "the system message, if there is one"),
    *(_param_column(param) for param in PARAMS if param.name != _FIRST),
    Column("repeat", "Int64", "origin.repeat", "repetition of the trial, from 0"),
    Column("choice_index", "Int64", _choice_index, "position of the choice"),
)
TOOLS = (
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
        "reasoning",
        "string",
        lambda batch: batch.map_part("choice.reasoning", lambda text: text or None),
        "the model's reasoning, if the server sends it separately; never in `text`",
    ),
    Column(
        "n_rounds",
        "Int64",
        "origin.tool_round.n_rounds",
        "requests up to and with this reply, where a sweep runs tools",
    ),
    Column(
        "n_tool_runs",
        "Int64",
        "origin.tool_round.n_tool_runs",
        "tool calls answered before this reply, where a sweep runs tools",
    ),
)
FAILURE = (
    Column("error_type", "string", "failure.type", "our error class; missing when ok"),
    Column("http_status", "Int64", "failure.http_status", "HTTP status of the error"),
    Column("error_code", "string", "failure.code", "the error body's code"),
    Column("error_param", "string", "failure.param", "the error body's param"),
    Column("error_message", "string", "failure.message", "our error's message"),
    Column(
        "n_attempts",
        "Int64",
        "first.n_attempts",
        "requests sent in this exchange; after a 429 a run begins another exchange",
    ),
    Column(
        "n_refused",
        "Int64",
        "first.n_refused",
        "429s in this exchange; usage_df counts those of a whole run",
    ),
)
IDS = (
    Column("origin", "string", "origin.kind", "magic, panel, sweep, frame or python"),
    Column(
        "conversation",
        "string",
        "origin.conversation",
        "name of its conversation, if any",
    ),
    Column("run", "string", "origin.run", "the sweep's run, if any"),
    Column("endpoint", "string", "exchange.endpoint", "base address it was sent to"),
    Column(
        "is_emulated",
        "boolean",
        "exchange.is_emulated",
        "whether the emulator answered",
    ),
    Column(
        "emulator_note",
        "string",
        "exchange.emulator_note",
        "what the emulator says about its answer, such as written by hand",
    ),
    Column(
        "is_reused",
        "boolean",
        "exchange.is_reused",
        "whether a recorded answer was used",
    ),
    Column("is_streamed", "boolean", "exchange.is_streamed", "whether it was streamed"),
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
    Column(
        "continues",
        "string",
        "origin.continues",
        "exchange_id of the reply that this one continues",
    ),
)
ESTIMATES_AND_TIMES = (
    Column("est_prompt_tokens", "Int64", "est_prompt_tokens", _ESTIMATED),
    Column("est_completion_tokens", "Int64", "first.est_completion_tokens", _ESTIMATED),
    Column(
        "est_low_tokens",
        "Int64",
        "first.est_low_tokens",
        "lower end of the estimate of prompt and reply together",
    ),
    Column(
        "est_high_tokens",
        "Int64",
        "first.est_high_tokens",
        "upper end of that estimate",
    ),
    Column(
        "usage_source",
        "string",
        usage_source,
        "reported, estimated (none was reported) or missing (no reply)",
    ),
    Column(
        "cost_source",
        "string",
        "cost.source",
        "reported or estimated tokens, and the price table with its date",
    ),
    Column(
        "first_text_s",
        "Float64",
        "first.first_text_s",
        "from sending the last attempt to the first text",
    ),
    Column("queue_s", "Float64", "first.queue_s", "wait for our own rate limit"),
    Column("retry_wait_s", "Float64", "first.retry_wait_s", "wait between attempts"),
    Column(
        "n_chunks", "Int64", "first.n_chunks", "chunks of a stream; 0 for a whole reply"
    ),
    Column(
        "started_at",
        _INSTANT,
        "exchange.started_at",
        "when it started, before any wait",
    ),
    Column("ended_at", _INSTANT, "exchange.ended_at", "when it ended"),
)
END = (
    Column(
        "status",
        "string",
        "status",
        "planned, ok, error, cancelled, or not_run (in a run, but not sent)",
    ),
    Column("finish_reason", "string", "choice.finish_reason", "stop is a normal end"),
    Column(
        "is_cut",
        "boolean",
        cut_flags,
        "finish reason `length`, or max_tokens was reached",
    ),
)
USAGE = (
    Column("prompt_tokens", "Int64", "first.body.usage.prompt_tokens", _REPORTED),
    Column(
        "completion_tokens", "Int64", "first.body.usage.completion_tokens", _REPORTED
    ),
    Column("total_tokens", "Int64", "first.body.usage.total_tokens", _REPORTED),
    Column(
        "cost",
        "Float64",
        "cost.amount",
        "by your price table, in its currency; missing = unknown, or nothing was paid",
    ),
    Column(
        "latency_s",
        "Float64",
        "first.latency_s",
        "from sending the last attempt to its end, without any wait",
    ),
)
NUMBERS = (*ESTIMATES_AND_TIMES, *USAGE)
"""Numbers of a request."""
REPLIES = (
    # pandas shows the first ten columns and the last ten
    *ASKED,
    *REPLY,
    *SENT,
    *TOOLS,
    *FAILURE,
    *IDS,
    *ESTIMATES_AND_TIMES,
    *END,
    *USAGE,
)
"""All columns of `replies_df`, in its order. Template columns come before them, scores
come after the answer."""

_COMPARED = frozenset(
    {
        *(column.name for column in (*ASKED, *REPLY, *SENT)),
        *("n_tool_calls", "reasoning", "error_type", "conversation", "run"),
        *("started_at", "status", "finish_reason", "is_cut"),
        *("prompt_tokens", "completion_tokens", "cost", "latency_s"),
    }
)
DETAILS = frozenset({column.name for column in REPLIES} - _COMPARED)
"""Columns that people seldom compare, such as ids, estimates and waits."""

TEXTS = frozenset(
    {
        *("system", "prompt", "text", "reasoning", "tool_calls"),
        *(column.name for column in ANSWERS),
    }
)
"""Columns that a frame without texts does not have."""

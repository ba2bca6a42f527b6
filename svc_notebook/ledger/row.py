"""Rows of the ledger: exchanges, tool calls, and marks of a conversation's turns.

An exchange has its record as JSON, and the columns that filters use. A row that was
changed by hand is refused. So is a filter that cannot match: an empty frame would look
like a true answer. A tool call repeats what filters need of its exchange, which may be
in another ledger. Turns have one row each if they were picked, pinned, hidden, deleted
or undone; a newer row replaces it.
"""

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, date, datetime, time
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, TypedDict, get_args

import msgspec

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin, OriginKind, Status
from svc_notebook.service.checks import check_text, must_be
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import CompletionRequest, Message

from .columns import Column, Dtype

_SKIPPED = "-"  # a name that is in no record, so that the decoder skips the field

_READ = {
    "exchange_id": "exchange_id",
    "origin": "origin.kind",
    "conversation": "origin.conversation",
    "run": "origin.run",
    "request_key": "origin.request_key",
    "repeat": "origin.repeat",
    "model": "request.model",
    "endpoint": "endpoint",
    "status": "status",
    "is_emulated": "is_emulated",
    "is_reused": "is_reused",
    "usage_source": "usage_source",
}
_read = attrgetter(*_READ.values())
KEYS = (*_READ, "session_id", "started_at", "record", "record_crc32")


def to_row(exchange: Exchange, session_id: str) -> dict[str, Any]:
    """Return the row of an exchange, by the names in `KEYS` and in their order."""
    record = _to_bytes(exchange)
    return {
        **dict(zip(_READ, _read(exchange), strict=True)),
        "session_id": session_id,
        "started_at": to_sortable(exchange.started_at),
        "record": record.decode(),
        "record_crc32": zlib.crc32(record),
    }


def to_sortable(instant: datetime) -> str:
    """Return an instant as text of fixed width, so that texts sort like instants."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")[:26] + "Z"


_PART = "svc_part"
_SHORT_CHARS = 32  # not worth a reference


def _with_parts(exchange: Exchange) -> Exchange:
    """Replace long texts of template columns by their place in a message.

    The prompt was filled from them, so that each would be in the record twice.
    """
    places: dict[str, Any] = {}
    for name, text in exchange.origin.columns.items():
        if isinstance(text, str) and len(text) > _SHORT_CHARS:
            for at, message in enumerate(exchange.request.messages):
                start = (message.content or "").find(text)
                if start >= 0:
                    places[name] = {_PART: (at, start, start + len(text))}
                    break
    if not places:
        return exchange
    columns = {**exchange.origin.columns, **places}
    origin = msgspec.structs.replace(exchange.origin, columns=columns)
    return msgspec.structs.replace(exchange, origin=origin)


def _fill_parts(exchange: Exchange) -> None:
    """Put the texts back that `_with_parts` replaced."""
    columns = exchange.origin.columns
    for name, value in columns.items():
        if isinstance(value, dict) and value.keys() == {_PART}:
            at, start, end = value[_PART]
            columns[name] = (exchange.request.messages[at].content or "")[start:end]


def _to_bytes(exchange: Exchange) -> bytes:
    exchange = _with_parts(exchange) if exchange.origin.columns else exchange
    try:
        return _ENCODER.encode(exchange)
    except (TypeError, UnicodeEncodeError):
        # a template column with keys that are not texts, or half a surrogate pair
        columns = mended(exchange.origin.columns)
        origin = msgspec.structs.replace(exchange.origin, columns=columns)
        changed = msgspec.structs.replace(exchange, origin=origin)
        plain = msgspec.to_builtins(changed, enc_hook=_to_plain)
        return msgspec.json.encode(mended(plain))


def from_row(
    record: bytes, crc32: int, exchange_id: bytes, place: str, *, texts: bool = True
) -> Exchange:
    """Read an exchange from its record, or refuse one that was changed.

    `exchange_id` and `place`, the ledger's file, are for the message. `texts=False`
    returns an `Outline`.
    """
    if zlib.crc32(record) != crc32:
        raise _unreadable(exchange_id, place, "its checksum differs")
    try:
        exchange = (_DECODER if texts else _OUTLINES).decode(record)
    except msgspec.DecodeError as problem:
        reason = str(problem)
    else:
        params = exchange.request.params
        if "stop" in params and isinstance(params["stop"], list):  # a tuple, in JSON
            params["stop"] = tuple(params["stop"])
        if dict in map(type, exchange.origin.columns.values()):
            _fill_parts(exchange)
        return exchange
    raise _unreadable(exchange_id, place, reason)


class _OutlineChoice(Choice, frozen=True, kw_only=True):
    text: str | None = msgspec.field(default=None, name=_SKIPPED)
    reasoning: str = msgspec.field(default="", name="-reasoning")


class _OutlineBody(CompletionBody, frozen=True, kw_only=True):
    choices: tuple[_OutlineChoice, ...]


class _OutlineRequest(CompletionRequest, frozen=True, kw_only=True):
    messages: tuple[Message, ...] = msgspec.field(default=(), name=_SKIPPED)
    tools: tuple[dict[str, Any], ...] = msgspec.field(default=(), name="-tools")


class _OutlineOrigin(Origin, frozen=True, kw_only=True):
    columns: dict[str, Any] = msgspec.field(default_factory=dict, name=_SKIPPED)


class Outline(Exchange, frozen=True, kw_only=True):
    """An exchange without messages, reply texts and template columns.

    It is for counting and summing only: its texts are empty, although the exchange
    has some.
    """

    origin: _OutlineOrigin
    request: _OutlineRequest
    body: _OutlineBody | None = None


_DECODER = msgspec.json.Decoder(Exchange)
_OUTLINES = msgspec.json.Decoder(Outline)


def _unreadable(exchange_id: bytes, place: str, reason: str) -> LedgerError:
    name = exchange_id.decode(errors="replace")
    return LedgerError(
        f"The exchange {name} in the ledger {place} cannot be read: {reason}. "
        "The file was damaged or changed by hand; it was not changed now. Restore a "
        "backup, or set SVC_LEDGER to another file."
    )


def _to_plain(value: object) -> object:
    """Return a template column's value as JSON can hold it."""
    if type(value).__name__ in {"NAType", "NaTType"}:  # pandas' missing values
        return None
    item = getattr(value, "item", None)  # a numpy scalar, without importing numpy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, datetime):  # a subclass, such as pandas' Timestamp
        return value.isoformat()
    return str(value)


def mended(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return plain values whose texts and names UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {mended(str(key)): mended(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [mended(each) for each in value]
    return value


_ENCODER = msgspec.json.Encoder(enc_hook=_to_plain)


class KeptPlan(NamedTuple):
    """The plan of a run, as the table `manifests` has it, in compressed JSON."""

    run: str
    part: int
    name: str | None
    n_trials: int
    digest: str
    manifest: bytes = b""


def to_json(value: object) -> bytes:
    """Return a value as JSON; what JSON does not have becomes a text."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, UnicodeEncodeError):  # as in `_to_bytes`
        plain = msgspec.to_builtins(value, enc_hook=_to_plain, str_keys=True)
        return msgspec.json.encode(mended(plain))


Scope = Literal["session", "all"]
Wanted = str | Collection[str] | None
"""A value, several, or None for any."""


class Filters(TypedDict, total=False):
    """Which exchanges to read: see `Ledger.read`."""

    scope: Scope
    since: date | str | None
    conversation: Wanted
    run: Wanted
    model: Wanted


class ReadFilters(Filters, total=False):
    """The filters of `Ledger.read` that frames do not have."""

    request_key: Wanted
    origin: Wanted
    status: Wanted


class Where(NamedTuple):
    """A condition and the values it binds; `since` is the part about time alone."""

    sql: str
    values: tuple[Any, ...]
    since: str = "1"
    since_values: tuple[Any, ...] = ()

    @property
    def in_sequence(self) -> str:
        """The condition for rows in the order of `seq`: no index of times is used."""
        return self.sql.replace("started_at >=", "+started_at >=")


_ALLOWED = {"origin": get_args(OriginKind), "status": get_args(Status)}
_SINCE_SESSION = (
    "started_at >= (SELECT first_started_at FROM sessions WHERE session_id = ?)"
)
_SINCE_RUN = (  # of a run whose name was forgotten, all rows are looked at
    "started_at >= coalesce((SELECT min(first_started_at) FROM runs WHERE {}), '')"
)


def where(
    session_id: str,
    *,
    scope: str = "session",
    since: date | str | None = None,
    **wanted: Wanted,
) -> Where:
    """Return the condition for filters, if they can match: see `Ledger.read`."""
    if scope not in get_args(Scope):
        allowed = "'session' (what this kernel asked) or 'all' (the whole ledger)"
        raise must_be("scope", allowed, scope)
    times, times_values = list[str](), list[Any]()
    if scope == "session":
        wanted["session_id"] = session_id
        times.append(_SINCE_SESSION)  # the index has the instant, not the session
        times_values.append(session_id)
    parts, values = list[str](), list[Any]()
    for column, want in wanted.items():
        if want is not None:
            these = _several(column, want)
            one_of = f"{column} IN ({', '.join('?' * len(these))})"
            parts.append(one_of)
            values += these
            if column == "run":  # not in the index either
                times.append(_SINCE_RUN.format(one_of))
                times_values += these
    if since is not None:
        times.append("started_at >= ?")
        times_values.append(since_sql(since))
    return Where(
        " AND ".join(["1", *times, *parts]),
        (*times_values, *values),
        " AND ".join(["1", *times]),
        tuple(times_values),
    )


def _several(column: str, want: Any) -> list[str]:  # noqa: ANN401 - numbers come too
    is_one = isinstance(want, (str, bytes)) or not isinstance(want, Iterable)
    found: list[Any] = [want] if is_one else list(want)
    allowed = _ALLOWED.get(column, found)
    for each in found:
        if not isinstance(each, str):
            raise must_be(column, "a name or a list of names", each)
        if each not in allowed:
            raise must_be(column, f"one of {', '.join(allowed)}", each)
        check_text(each, param=column)
    return found


def since_sql(instant: date | str, *, name: str = "since") -> str:
    """Return an instant as `started_at` holds it, or refuse what is not one.

    Text is ISO 8601; it is local time without a zone. `name` is for the message.
    """
    try:
        return to_sortable(_to_datetime(instant))
    except (AttributeError, TypeError, ValueError, OverflowError):
        allowed = "a datetime, or text such as '2026-01-31' or '2026-01-31T09:00+00:00'"
        raise must_be(name, allowed, instant) from None


def _to_datetime(instant: Any) -> datetime:  # noqa: ANN401 - what a user gives
    if isinstance(instant, str):
        return datetime.fromisoformat(instant)
    if not isinstance(instant, datetime):
        return datetime.combine(instant, time())
    # pandas' own kind of datetime does not take this machine's zone by itself
    return datetime.combine(instant.date(), instant.timetz())


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool, which is drawn like a `ToolRun`: see `TOOL_CALLS`."""

    exchange_id: str
    origin: str = "python"
    conversation: str | None = None
    run: str | None = None
    model: str = ""
    call_id: str
    name: str
    arguments: str
    sent_arguments: str | None = None
    result: str
    error: str | None = None
    is_approved: bool | None = None
    n_cut_tokens: int = 0
    seconds_s: float = 0.0
    created_at: datetime
    traceback: ClassVar[None] = None  # is not kept
    printed: ClassVar[str] = ""


_TOOL_KEYS = (*ToolRow.__struct_fields__, "session_id", "started_at")
_TOOL_VALUES = {key: f":{key}" for key in _TOOL_KEYS} | {
    # the conversation may have been renamed since the exchange was written
    "conversation": "coalesce((SELECT conversation FROM exchanges WHERE started_at = "
    ":started_at AND exchange_id = :exchange_id), :conversation)"
}
INSERT_TOOL_RUN = (
    f"INSERT INTO tool_runs ({', '.join(_TOOL_VALUES)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(_TOOL_VALUES.values())})"
)
_SELECT_TOOL_RUNS = (
    f"SELECT {', '.join(ToolRow.__struct_fields__)} FROM tool_runs WHERE "  # noqa: S608 - our own names
)


def tool_row_of(exchange: Exchange, **fields: Any) -> ToolRow:  # noqa: ANN401 - of ToolRow
    """Return the row of a call in an exchange's reply; `fields` are the call's own."""
    origin = exchange.origin
    return ToolRow(
        exchange_id=exchange.exchange_id,
        origin=origin.kind,
        conversation=origin.conversation,
        run=origin.run,
        model=exchange.request.model,
        **fields,
    )


def to_tool_values(
    row: ToolRow, *, session_id: str, started_at: datetime
) -> dict[str, Any]:
    """Return what `INSERT_TOOL_RUN` binds; `started_at` is of the exchange."""
    return {
        **mended(msgspec.structs.asdict(row)),
        "created_at": to_sortable(row.created_at),
        "session_id": session_id,
        "started_at": to_sortable(started_at),
    }


def select_tool_runs(
    connection: sqlite3.Connection, condition: Where
) -> Iterator[ToolRow]:
    """Read rows in the order in which the calls were run."""
    sql = f"{_SELECT_TOOL_RUNS} {condition.sql} ORDER BY seq"
    for values in connection.execute(sql, condition.values).fetchall():
        fields = dict(zip(ToolRow.__struct_fields__, values, strict=True))
        is_approved = fields["is_approved"]
        fields["is_approved"] = None if is_approved is None else bool(is_approved)
        fields["created_at"] = datetime.fromisoformat(fields["created_at"])
        yield ToolRow(**fields)


def _tool_column(name: str, dtype: Dtype, doc: str) -> Column:
    return Column(name, dtype, name, doc)


TOOL_CALLS = (
    _tool_column("exchange_id", "string", "the exchange whose reply made the call"),
    _tool_column("origin", "string", "who asked: magic, panel, sweep or python"),
    _tool_column("conversation", "string", "its name, if it was part of one"),
    _tool_column("run", "string", "the sweep's run, if any"),
    _tool_column("model", "string", "model id asked for"),
    _tool_column("call_id", "string", "the call's id, which its result answers"),
    _tool_column("name", "string", "the tool, as the model wrote it"),
    _tool_column("arguments", "string", "as the model wrote them"),
    _tool_column(
        "sent_arguments", "string", "as JSON; missing if the tool was not run"
    ),
    _tool_column("result", "string", "the text for the model"),
    _tool_column("error", "string", "why there is no result; missing if there is one"),
    _tool_column("is_approved", "boolean", "the user's answer; missing if not asked"),
    _tool_column("n_cut_tokens", "Int64", "estimated tokens left out of the result"),
    _tool_column("seconds_s", "Float64", "duration of the tool's run"),
    _tool_column("created_at", "datetime64[us, UTC]", "when the call ended"),
)
"""Every column of `tool_calls_df`, in order."""


_MARKS_KEYS = ("conversation", "turn_id", "marks", "marked_at")
INSERT_MARKS = (
    f"INSERT INTO turn_marks ({', '.join(_MARKS_KEYS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(':' + key for key in _MARKS_KEYS)}) "
    "ON CONFLICT (conversation, turn_id) "
    "DO UPDATE SET marks = excluded.marks, marked_at = excluded.marked_at"
)
INSERT_SCORE = (
    "INSERT INTO scores (exchange_id, choice_index, name, value, scored_at) "
    "VALUES (:exchange_id, :choice_index, :name, :value, :scored_at) "
    "ON CONFLICT (exchange_id, choice_index, name) "
    "DO UPDATE SET value = excluded.value, scored_at = excluded.scored_at"
)
PICKED = "picked"
"""The score of replies that a user has picked, or not: 1 or 0."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was asked for beside others."""

    label: str  # its model, or its temperature
    exchange_id: str = ""  # "" if nothing came
    problem: str = ""  # why nothing, or not all, came


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Replies to a turn that stand side by side, in the order of their columns."""

    replies: tuple[Compared, ...]
    is_blind: bool = False  # the labels are hidden until one is picked
    picked: str = ""  # its exchange_id

    @property
    def ids(self) -> tuple[str, ...]:
        """The exchange_id of each reply that came."""
        return tuple(each.exchange_id for each in self.replies if each.exchange_id)


class TurnMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What a user changed in one turn; versions are named by their exchange_id."""

    is_deleted: bool = False
    is_pinned: bool = False
    is_hidden: bool = False
    chosen: str = ""  # the version that is sent, unless a newer one is added
    newest: str = ""  # the newest version at that time; ids sort by time
    picked: dict[str, int] = msgspec.field(default_factory=dict)  # the choice's index
    gone: frozenset[str] = frozenset()  # versions that were undone, or deleted
    comparisons: tuple[Comparison, ...] = ()


Marks = dict[tuple[str, str], TurnMarks]
"""By the conversation's name and the turn's id."""


def to_mark_values(conversation: str, turn_id: str, marks: TurnMarks) -> dict[str, Any]:
    """Return what `INSERT_MARKS` binds."""
    return {
        "conversation": conversation,
        "turn_id": turn_id,
        "marks": msgspec.json.encode(marks).decode(),
        "marked_at": to_sortable(datetime.now(UTC)),
    }


def to_pick_values(
    exchange_id: str, choice_index: int, value: int | None
) -> dict[str, Any]:
    """Return what `INSERT_SCORE` binds; the value None takes the score back."""
    return {
        "exchange_id": exchange_id,
        "choice_index": choice_index,
        "name": PICKED,
        "value": value,
        "scored_at": to_sortable(datetime.now(UTC)),
    }


def select_marks(connection: sqlite3.Connection) -> Marks:
    """Read all marks."""
    sql = "SELECT conversation, turn_id, marks FROM turn_marks ORDER BY marked_at"
    return {
        (name, turn_id): msgspec.json.decode(marks, type=TurnMarks)
        for name, turn_id, marks in connection.execute(sql).fetchall()
    }

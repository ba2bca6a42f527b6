"""Exchanges and marks of turns as rows of a ledger, and the filters that choose rows.

A row that was edited by hand is refused.
"""

import re
import sqlite3
import zlib
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, time, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import msgspec

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin, OriginKind, Status
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.params import check_text, must_be
from svc_notebook.service.request import CompletionRequest, Message


def to_sortable(instant: datetime) -> str:
    """Return an instant as text of fixed width, so that texts sort like instants."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")[:26] + "Z"


Scope = Literal["session", "all"]
Wanted = str | Collection[str] | None
"""One value, several values, or None for any value."""


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


class RowFilter(NamedTuple):
    """A condition and the values it binds; `since` is its part about time only."""

    sql: str
    values: tuple[Any, ...]
    since: str = "1"
    since_values: tuple[Any, ...] = ()

    @property
    def in_sequence(self) -> str:
        """The condition for rows in the order of `seq`.

        The + keeps SQLite from using the index of times, which has another order.
        """
        return self.sql.replace("started_at >=", "+started_at >=")


_ALLOWED = {"origin": get_args(OriginKind), "status": get_args(Status)}
_SINCE_SESSION = (
    "started_at >= (SELECT first_started_at FROM sessions WHERE session_id = ?)"
)
_SINCE_RUN = (  # if the start of the run is unknown, all rows are searched
    "started_at >= coalesce((SELECT min(first_started_at) FROM runs WHERE {}), '')"
)


def where(
    session_id: str,
    *,
    scope: str = "session",
    since: date | str | None = None,
    **wanted: Wanted,
) -> RowFilter:
    """Return the condition for filters, if they can match: see `Ledger.read`."""
    if scope not in get_args(Scope):
        allowed = "'session' (what this kernel asked) or 'all' (the whole ledger)"
        raise must_be("scope", allowed, scope)
    times, times_values = list[str](), list[Any]()
    if scope == "session":
        wanted["session_id"] = session_id
        # there is an index of times only, so begin where the session began
        times.append(_SINCE_SESSION)
        times_values.append(session_id)
    parts, values = list[str](), list[Any]()
    for column, choice in wanted.items():
        if choice is not None:
            chosen = _checked_values(column, choice)
            is_chosen = f"{column} IN ({', '.join('?' * len(chosen))})"
            parts.append(is_chosen)
            values += chosen
            if column == "run":  # there is no index of runs either
                times.append(_SINCE_RUN.format(is_chosen))
                times_values += chosen
    if since is not None:
        times.append("started_at >= ?")
        times_values.append(since_sql(since))
    return RowFilter(
        " AND ".join(["1", *times, *parts]),
        (*times_values, *values),
        " AND ".join(["1", *times]),
        tuple(times_values),
    )


def _checked_values(column: str, choice: Any) -> list[str]:  # noqa: ANN401 - numbers come too
    """Return the values of a filter as a list, or refuse one that cannot match."""
    is_one = isinstance(choice, (str, bytes)) or not isinstance(choice, Iterable)
    values: list[Any] = [choice] if is_one else list(choice)
    allowed = _ALLOWED.get(column, values)
    for value in values:
        if not isinstance(value, str):
            raise must_be(column, "a name or a list of names", value)
        if value not in allowed:
            raise must_be(column, f"one of {', '.join(allowed)}", value)
        check_text(value, param=column)
    return values


def since_sql(instant: date | str, *, name: str = "since") -> str:
    """Return an instant as the column `started_at` has it, or refuse other values.

    Text is ISO 8601, in local time without a zone, how long ago: `30d`, `12h`; or
    `today`, from midnight.
    `name` is for the message.
    """
    try:
        return to_sortable(_to_datetime(instant))
    except (AttributeError, TypeError, ValueError, OverflowError):
        allowed = (
            "a datetime, or text such as '2026-01-31', '2026-01-31T09:00+00:00', "
            "'30d', '12h' or 'today'"
        )
        raise must_be(name, allowed, instant) from None


_AGO = re.compile(r"([0-9]{1,6}) ?([mhdw])")
_AGO_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _to_datetime(instant: Any) -> datetime:  # noqa: ANN401 - what a user gives
    if instant == "today":
        return datetime.combine(datetime.now().astimezone().date(), time())
    if isinstance(instant, str):
        if ago := _AGO.fullmatch(instant.strip()):
            span = timedelta(**{_AGO_UNITS[ago[2]]: int(ago[1])})
            return datetime.now(UTC) - span
        return datetime.fromisoformat(instant)
    if not isinstance(instant, datetime):
        return datetime.combine(instant, time())
    # a Timestamp of pandas without a zone cannot be converted; a datetime is local time
    return datetime.combine(instant.date(), instant.timetz())


_SKIPPED = "-"  # no record has this name, so the decoder skips the field

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


_PART = "svc_part"
_SHORT_CHARS = 32  # texts up to this length are stored as they are


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
        # a template column has keys that are not text, or half a surrogate pair
        columns = replace_surrogates(exchange.origin.columns)
        origin = msgspec.structs.replace(exchange.origin, columns=columns)
        changed = msgspec.structs.replace(exchange, origin=origin)
        plain = msgspec.to_builtins(changed, enc_hook=_to_plain)
        return msgspec.json.encode(replace_surrogates(plain))


def from_row(
    record: bytes, crc32: int, exchange_id: bytes, place: str, *, texts: bool = True
) -> Exchange:
    """Read an exchange from its record, or refuse a record that was edited.

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
        if "stop" in params and isinstance(params["stop"], list):  # JSON has no tuples
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

    It is only for counting and summing: its texts are empty, even if the exchange has
    some.
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
        "The file is damaged, or was edited by hand; nothing was changed now. Restore "
        "a backup, or set SVC_LEDGER to another file."
    )


def _to_plain(value: object) -> object:
    """Return a value of a template column in a form that JSON has."""
    if type(value).__name__ in {"NAType", "NaTType"}:  # pandas' missing values
        return None
    item = getattr(value, "item", None)  # a numpy scalar, without importing numpy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, datetime):  # a subclass, such as pandas' Timestamp
        return value.isoformat()
    return str(value)


def replace_surrogates(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return plain values with `?` for what UTF-8 cannot hold, in texts and names."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {
            replace_surrogates(str(key)): replace_surrogates(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [replace_surrogates(item) for item in value]
    return value


_ENCODER = msgspec.json.Encoder(enc_hook=_to_plain)


class KeptPlan(NamedTuple):
    """A row of the table `manifests`: the plan of a run, in compressed JSON."""

    run: str
    part: int
    name: str | None
    n_trials: int
    digest: str
    manifest: bytes = b""


def to_json(value: object) -> bytes:
    """Return a value as JSON; values that JSON does not have become texts."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, UnicodeEncodeError):  # as in `_to_bytes`
        plain = msgspec.to_builtins(value, enc_hook=_to_plain, str_keys=True)
        return msgspec.json.encode(replace_surrogates(plain))


_MARKS_KEYS = ("conversation", "turn_id", "marks", "marked_at")
INSERT_MARKS = (
    f"INSERT INTO turn_marks ({', '.join(_MARKS_KEYS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(':' + key for key in _MARKS_KEYS)}) "
    "ON CONFLICT (conversation, turn_id) "
    "DO UPDATE SET marks = excluded.marks, marked_at = excluded.marked_at"
)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One of several replies to a turn, of which a user picks one."""

    label: str  # the model or temperature that the reply is from
    exchange_id: str = ""  # "" if there is no reply
    problem: str = ""  # why there is no reply, or only a part of it


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Replies to a turn of which a user picks one, in the order of their columns."""

    replies: tuple[Compared, ...]
    is_side_by_side: bool = True  # False: one of the versions was preferred later
    is_blind: bool = False  # the labels are hidden until a reply is picked
    picked: str = ""  # exchange_id of the reply that was picked

    @property
    def ids(self) -> tuple[str, ...]:
        """The exchange_id of each reply that there is."""
        return tuple(reply.exchange_id for reply in self.replies if reply.exchange_id)


class TurnMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What a user changed in one turn; a version is identified by its exchange_id."""

    is_deleted: bool = False
    is_pinned: bool = False
    is_hidden: bool = False
    chosen: str = ""  # the version that is sent, unless a newer one is added
    newest: str = ""  # the newest version when `chosen` was set; ids sort by time
    picked: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # index of the choice, by version
    gone: frozenset[str] = frozenset()  # versions that were undone or deleted; or turns
    comparisons: tuple[Comparison, ...] = ()
    # of a series to which others were added: the ids of its turns in order, each with
    # those of the turns of other series whose answers it has
    seen: tuple[tuple[str, ...], ...] = ()


Marks = dict[tuple[str, str], TurnMarks]
"""Marks of turns, by the name of the conversation and the id of the turn."""


def to_mark_values(conversation: str, turn_id: str, marks: TurnMarks) -> dict[str, Any]:
    """Return the values for `INSERT_MARKS`."""
    return {
        "conversation": conversation,
        "turn_id": turn_id,
        "marks": msgspec.json.encode(marks).decode(),
        "marked_at": to_sortable(datetime.now(UTC)),
    }


def select_marks(connection: sqlite3.Connection) -> Marks:
    """Read all marks."""
    sql = "SELECT conversation, turn_id, marks FROM turn_marks ORDER BY marked_at"
    return {
        (name, turn_id): msgspec.json.decode(marks, type=TurnMarks)
        for name, turn_id, marks in connection.execute(sql).fetchall()
    }

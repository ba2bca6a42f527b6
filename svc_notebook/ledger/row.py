"""One exchange as one row: the whole as JSON, and the columns that filters use.

What is read back equals what was added. A checksum finds rows that something else has
changed; they are refused.
"""

import zlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.message import Message
from svc_notebook.service.request import CompletionRequest

_SKIPPED = "-"  # a name that is in no record, so that the decoder skips the field

KEYS = (
    "exchange_id",
    "session_id",
    "origin",
    "conversation",
    "run",
    "request_key",
    "repeat",
    "model",
    "endpoint",
    "status",
    "is_emulated",
    "is_reused",
    "usage_source",
    "started_at",
    "record",
    "record_crc32",
)


def to_row(exchange: Exchange, session_id: str) -> dict[str, Any]:
    """Return the row of an exchange, by the names in `KEYS` and in their order."""
    record = _to_bytes(exchange)
    origin = exchange.origin
    return {
        "exchange_id": exchange.exchange_id,
        "session_id": session_id,
        "origin": origin.kind,
        "conversation": origin.conversation,
        "run": origin.run,
        "request_key": origin.request_key,
        "repeat": origin.repeat,
        "model": exchange.request.model,
        "endpoint": exchange.endpoint,
        "status": exchange.status,
        "is_emulated": int(exchange.is_emulated),
        "is_reused": int(exchange.is_reused),
        "usage_source": exchange.usage_source,
        "started_at": to_sortable(exchange.started_at),
        "record": record.decode(),
        "record_crc32": zlib.crc32(record),
    }


def to_sortable(instant: datetime) -> str:
    """Return an instant as text of one width, so that texts sort as instants do."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")[:26] + "Z"


def to_json(exchange: Exchange) -> str:
    """Return the whole exchange as JSON text."""
    return _to_bytes(exchange).decode()


def _to_bytes(exchange: Exchange) -> bytes:
    try:
        return _ENCODER.encode(exchange)
    except (TypeError, UnicodeEncodeError):
        # a template column with odd keys, or a surrogate half in some text
        columns = mended(exchange.origin.columns)
        origin = msgspec.structs.replace(exchange.origin, columns=columns)
        changed = msgspec.structs.replace(exchange, origin=origin)
        plain = msgspec.to_builtins(changed, enc_hook=_to_plain)
        return msgspec.json.encode(mended(plain))


def from_row(
    record: bytes, crc32: int, *, exchange_id: str, place: str, texts: bool = True
) -> Exchange:
    """Read an exchange back.

    Args:
        record: The JSON text as UTF-8.
        crc32: Its checksum when it was written.
        exchange_id: For the message.
        place: The ledger's file, for the message.
        texts: Whether to read messages, replies and template columns too; without
            them the exchange is an `Outline`.

    Raises:
        LedgerError: The row is not what was written.
    """
    if zlib.crc32(record) != crc32:
        raise _unreadable(exchange_id, place, "its checksum differs")
    try:
        exchange = (_DECODER if texts else _OUTLINES).decode(record)
    except msgspec.DecodeError as problem:
        reason = str(problem)
    else:
        return _with_tuples(exchange)
    raise _unreadable(exchange_id, place, reason)


class _OutlineChoice(Choice, frozen=True, kw_only=True):
    text: str | None = msgspec.field(default=None, name=_SKIPPED)


class _OutlineBody(CompletionBody, frozen=True, kw_only=True):
    choices: tuple[_OutlineChoice, ...]


class _OutlineRequest(CompletionRequest, frozen=True, kw_only=True):
    messages: tuple[Message, ...] = msgspec.field(default=(), name=_SKIPPED)
    tools: tuple[dict[str, Any], ...] = msgspec.field(default=(), name="-tools")


class _OutlineOrigin(Origin, frozen=True, kw_only=True):
    columns: dict[str, Any] = msgspec.field(default_factory=dict, name=_SKIPPED)


class Outline(Exchange, frozen=True, kw_only=True):
    """An exchange without its texts: no messages, no replies, no template columns.

    For counting and summing; its texts are empty, not missing, so it must never be
    shown as what was said.
    """

    origin: _OutlineOrigin
    request: _OutlineRequest
    body: _OutlineBody | None = None


_DECODER = msgspec.json.Decoder(Exchange)
_OUTLINES = msgspec.json.Decoder(Outline)


def _with_tuples(exchange: Exchange) -> Exchange:
    """Give the one parameter that may be a tuple its type back; JSON has lists."""
    params = exchange.request.params
    if isinstance(params.get("stop"), list):
        params["stop"] = tuple(params["stop"])  # just decoded: nobody else holds it
    return exchange


def _unreadable(exchange_id: str, place: str, reason: str) -> LedgerError:
    return LedgerError(
        f"The exchange {exchange_id} in the ledger {place} cannot be read: {reason}. "
        "The file was damaged or changed by hand; it was left as it is. Put a copy "
        "of it back, or name another file with SVC_LEDGER."
    )


def _to_plain(value: object) -> object:
    """Turn a template column's value into something JSON knows."""
    if type(value).__name__ in {"NAType", "NaTType"}:  # pandas' missing values
        return None
    item = getattr(value, "item", None)  # a numpy scalar, without importing numpy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, datetime):  # a subclass, such as pandas' Timestamp
        return value.isoformat()
    return str(value)


def mended(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return plain values with text that JSON can hold, in texts and names."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {mended(str(key)): mended(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [mended(each) for each in value]
    return value


_ENCODER = msgspec.json.Encoder(enc_hook=_to_plain)

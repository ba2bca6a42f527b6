"""Tool calls in the ledger: one row a call, with its arguments and its result.

A row names its exchange, and repeats what filters need of it, since the exchange may be
in another ledger. Texts are kept as they are, as far as UTF-8 can hold them.
"""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from svc_notebook.exchange import Exchange

from .columns import Column, Dtype
from .row import Where, mended, to_sortable


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool.

    Attributes:
        exchange_id: The exchange whose reply held the call.
        origin, conversation, run, model: Of that exchange.
        call_id: The call's id in the reply.
        name: Of the tool, as the model wrote it.
        arguments: As the model wrote them.
        sent_arguments: JSON of what the tool was called with; None if it was not.
        result: What the model was told.
        error: Why there is no result, in words for the model; None if there is one.
        is_approved: What somebody said who was asked; None if nobody was.
        n_cut_tokens: Estimated tokens of the result that were left out.
        seconds_s: From the call of the function to its end.
        created_at: When it had ended (aware, UTC).
    """

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


_KEYS = (*ToolRow.__struct_fields__, "session_id", "started_at")
INSERT_TOOL_RUN = (
    f"INSERT INTO tool_runs ({', '.join(_KEYS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(':' + key for key in _KEYS)})"
)
_SELECT = f"SELECT {', '.join(ToolRow.__struct_fields__)} FROM tool_runs WHERE "  # noqa: S608 - our own names


def row_of(exchange: Exchange, **fields: Any) -> ToolRow:  # noqa: ANN401 - of ToolRow
    """Return the row of a call that an exchange's reply held.

    Args:
        exchange: Whose reply held the call.
        **fields: The call's own fields.
    """
    origin = exchange.origin
    return ToolRow(
        exchange_id=exchange.exchange_id,
        origin=origin.kind,
        conversation=origin.conversation,
        run=origin.run,
        model=exchange.request.model,
        **fields,
    )


def to_values(row: ToolRow, *, session_id: str, started_at: datetime) -> dict[str, Any]:
    """Return what `INSERT_TOOL_RUN` binds.

    Args:
        row: A call.
        session_id: Whose it is.
        started_at: When its exchange was asked, which filters look at.
    """
    return {
        **mended(msgspec.structs.asdict(row)),
        "created_at": to_sortable(row.created_at),
        "session_id": session_id,
        "started_at": to_sortable(started_at),
    }


def select(connection: sqlite3.Connection, condition: Where) -> Iterator[ToolRow]:
    """Read rows, the call that was run first coming first."""
    sql = f"{_SELECT} {condition.sql} ORDER BY seq"
    for values in connection.execute(sql, condition.values).fetchall():
        fields = dict(zip(ToolRow.__struct_fields__, values, strict=True))
        is_approved = fields["is_approved"]
        fields["is_approved"] = None if is_approved is None else bool(is_approved)
        fields["created_at"] = datetime.fromisoformat(fields["created_at"])
        yield ToolRow(**fields)


def _column(name: str, dtype: Dtype, doc: str) -> Column:
    return Column(name, dtype, name, doc)


TOOL_CALLS = (
    _column("exchange_id", "string", "the exchange whose reply held the call"),
    _column("origin", "string", "who asked: magic, panel, frame or python"),
    _column("conversation", "string", "its name, if it was part of one"),
    _column("run", "string", "the sweep's run, if any"),
    _column("model", "string", "model id asked for"),
    _column("call_id", "string", "the call's id, which its result answers"),
    _column("name", "string", "the tool, as the model wrote it"),
    _column("arguments", "string", "as the model wrote them"),
    _column(
        "sent_arguments",
        "string",
        "JSON of what the tool was called with; missing if it was not called",
    ),
    _column("result", "string", "what the model was told"),
    _column("error", "string", "why there is no result; missing if there is one"),
    _column(
        "is_approved", "boolean", "what was said when asked; missing if nobody was"
    ),
    _column("n_cut_tokens", "Int64", "of the result left out, estimated"),
    _column("seconds_s", "Float64", "from the call of the function to its end"),
    _column("created_at", "datetime64[us, UTC]", "when the call had ended"),
)
"""Every column of `tool_calls_df`, in order."""

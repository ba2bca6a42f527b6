"""Tool calls: rows of the table `tool_runs`, and the columns of `tool_calls_df`.

A row repeats the fields of its exchange that filters need: the exchange may be in
another ledger.
"""

import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import msgspec

from svc_notebook.exchange import Exchange

from .exchange_rows import RowFilter, replace_surrogates, to_sortable
from .reply_columns import Batch, Column, Dtype


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call, with the fields of `TOOL_CALLS`; it is shown like a `ToolRun`."""

    exchange_id: str
    origin: str = "python"
    conversation: str | None = None
    run: str | None = None
    model: str = ""
    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    asked_arguments: str
    result: str
    error: str | None = None
    is_approved: bool | None = None
    n_cut_tokens: int = 0
    seconds_s: float = 0.0
    created_at: datetime
    traceback: ClassVar[None] = None  # not kept, like what the tool printed
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
    """Return the row of a call that a reply made; `fields` are those of the call."""
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
    """Return the values for `INSERT_TOOL_RUN`; `started_at` is that of the exchange."""
    arguments = row.arguments
    return {
        **replace_surrogates(
            {
                **msgspec.structs.asdict(row),
                "arguments": None if arguments is None else _to_json(arguments),
            }
        ),
        "created_at": to_sortable(row.created_at),
        "session_id": session_id,
        "started_at": to_sortable(started_at),
    }


def select_tool_runs(
    connection: sqlite3.Connection, condition: RowFilter
) -> Iterator[ToolRow]:
    """Read rows in the order in which the calls were run."""
    sql = f"{_SELECT_TOOL_RUNS} {condition.sql} ORDER BY seq"
    for values in connection.execute(sql, condition.values).fetchall():
        fields = dict(zip(ToolRow.__struct_fields__, values, strict=True))
        is_approved = fields["is_approved"]
        fields["is_approved"] = None if is_approved is None else bool(is_approved)
        arguments = fields["arguments"]
        fields["arguments"] = None if arguments is None else json.loads(arguments)
        fields["created_at"] = datetime.fromisoformat(fields["created_at"])
        yield ToolRow(**fields)


_to_json = partial(json.dumps, ensure_ascii=False)


def _arguments_as_json(batch: Batch) -> list[str | None]:
    return [
        None if arguments is None else _to_json(arguments)
        for arguments in batch.part("arguments")
    ]


def _tool_column(name: str, dtype: Dtype, doc: str) -> Column:
    return Column(name, dtype, name, doc)


TOOL_CALLS = (
    _tool_column("exchange_id", "string", "the exchange whose reply made the call"),
    _tool_column("origin", "string", "who asked: magic, panel, sweep or python"),
    _tool_column("conversation", "string", "name of its conversation, if any"),
    _tool_column("run", "string", "the sweep's run, if any"),
    _tool_column("model", "string", "model id asked for"),
    _tool_column("call_id", "string", "id of the call, to which its result refers"),
    _tool_column("name", "string", "the tool, as the model wrote it"),
    Column(
        "arguments",
        "string",
        _arguments_as_json,
        "with which the tool ran, as JSON; missing if it was not run",
    ),
    _tool_column(
        "asked_arguments",
        "string",
        "for which the model asked, as it wrote them; the user may have changed them",
    ),
    _tool_column("result", "string", "the text for the model"),
    _tool_column("error", "string", "why there is no result; missing if there is one"),
    _tool_column("is_approved", "boolean", "the user's answer; missing if not asked"),
    _tool_column("n_cut_tokens", "Int64", "estimated tokens left out of the result"),
    _tool_column("seconds_s", "Float64", "duration of the tool's run"),
    _tool_column("created_at", "datetime64[us, UTC]", "when the call ended"),
)
"""Every column of `tool_calls_df`, in order."""

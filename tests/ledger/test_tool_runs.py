"""Tool calls in the ledger: one row a call, typed, filtered."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import tool_calls_df
from svc_notebook.ledger.tool_calls import ToolRow, tool_row_of

MakeExchange = Callable[..., Exchange]
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = {
    "exchange_id": "string",
    "origin": "string",
    "conversation": "string",
    "run": "string",
    "model": "string",
    "call_id": "string",
    "name": "string",
    "arguments": "string",
    "asked_arguments": "string",
    "result": "string",
    "error": "string",
    "is_approved": "boolean",
    "n_cut_tokens": "Int64",
    "seconds_s": "Float64",
    "created_at": "datetime64[us, UTC]",
}


def add(ledger: Ledger, exchange: Exchange, **fields: object) -> ToolRow:
    """Add an exchange and a call that its reply held."""
    wanted = {
        "call_id": "c1",
        "name": "weather",
        "asked_arguments": '{"city": "ภูเก็ต"}',
        "result": "31",
        "created_at": AT,
        **fields,
    }
    row = tool_row_of(exchange, **wanted)
    ledger.add(exchange)
    ledger.add_tool_run(row, started_at=exchange.started_at)
    return row


def test_calls_come_back_as_they_were_added(ledger: Ledger, make: MakeExchange) -> None:
    """Every field, in the order in which they were run."""
    first = add(ledger, make(1), arguments={"city": "ภูเก็ต"}, seconds_s=0.25)
    second = add(ledger, make(0), error="denied", is_approved=False, n_cut_tokens=5)

    assert ledger.tool_runs() == [first, second]


def test_the_frame_has_fixed_types_also_without_rows(
    ledger: Ledger, make: MakeExchange
) -> None:
    """No rows give the same columns and dtypes as many."""
    empty = tool_calls_df(ledger)
    add(ledger, make())
    one = tool_calls_df(ledger)

    assert {name: str(empty[name].dtype) for name in empty.columns} == SCHEMA
    assert {name: str(one[name].dtype) for name in one.columns} == SCHEMA
    assert (one["name"][0], one["result"][0]) == ("weather", "31")


def test_calls_are_filtered_like_replies(ledger: Ledger, make: MakeExchange) -> None:
    """By conversation, name, model, instant and session."""
    add(ledger, make(0, origin=Origin(conversation="plan")), call_id="a")
    add(ledger, make(60), call_id="b", name="lookup")

    def ids(**wanted: object) -> list[str]:
        return list(tool_calls_df(ledger, **wanted)["call_id"])  # type: ignore[arg-type]  # filters

    assert ids(conversation="plan") == ["a"]
    assert ids(name=["lookup", "other"]) == ["b"]
    assert ids(model="svc-v2-8b-instruct") == ["a", "b"]
    assert ids(since="2026-01-01T00:00:30+00:00") == ["b"]
    with pytest.raises(ParameterError, match="scope"):
        ids(scope="mine")

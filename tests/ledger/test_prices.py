"""Costs come from the user's own price table, and from nothing else."""

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.errors import SettingsError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.ledger.reply_frames import replies_frame
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request

MakeExchange = Callable[..., Exchange]

MODEL = "svc-v2-8b-instruct"
TABLE: dict[str, Any] = {
    "as_of": "2026-01-31",
    "currency": "USD",
    "models": {MODEL: {"prompt": 1, "completion": 2.5}},
}
PRICES = Prices(
    models={MODEL: Price(prompt=1.0, completion=2.5)},
    currency="USD",
    as_of=date(2026, 1, 31),
    source="given table",
)
TOML = """
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 1
completion = 2.5
"""


@pytest.mark.parametrize("as_of", [date(2026, 1, 31), datetime(2026, 1, 31, 9)])  # noqa: DTZ001 - as TOML gives it
def test_takes_a_day_in_any_form(as_of: object) -> None:
    """The day may be a date, or an instant of that day."""
    assert Prices.from_mapping({**TABLE, "as_of": as_of}) == PRICES


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("name", ["prices.toml", "prices.json"])
def test_reads_a_file(tmp_path: Path, name: str, encoding: str) -> None:
    """TOML and JSON files are read, and give the table its name."""
    text = TOML
    if name.endswith("json"):
        text = str(TABLE).replace("'", '"')
    (tmp_path / name).write_text(text, encoding=encoding)

    prices = Prices.from_file(tmp_path / name)

    assert prices.models == PRICES.models
    assert prices.stamp == f"{name}, USD, 2026-01-31"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"as_of": None}, r"\$.as_of"),
        ({"as_of": "soon"}, r"\$.as_of"),
        ({"currency": " "}, r"\$.currency"),
        ({"models": []}, r"\$.models"),
        ({"model": {}}, "unknown field `model`"),
        ({"models": {"m": {"prompt": 1}}}, "missing required field `completion`"),
        ({"models": {"m": {"prompt": 1, "completion": 1, "n": 1}}}, "unknown field"),
        ({"models": {"m": 3}}, r"\$.models"),
        ({"models": {"m": {"prompt": -1, "completion": 1}}}, "prompt"),
        ({"models": {"m": {"prompt": 1, "completion": "x"}}}, "completion"),
        ({"models": {"m": {"prompt": 1, "completion": True}}}, "completion"),
        ({"models": {"m": {"prompt": 1, "completion": float("nan")}}}, "completion"),
        ({"models": {"m": {"prompt": 1, "completion": float("inf")}}}, "completion"),
    ],
)
def test_refuses_a_table_that_is_not_one(changes: dict[str, Any], reason: str) -> None:
    """A table that lacks or doubles something is refused, and a right one shown."""
    with pytest.raises(SettingsError, match=reason) as caught:
        Prices.from_mapping({**TABLE, **changes})

    assert "as_of = 2026-01-31" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("p.toml", b"a = ", "not TOML"),
        ("p.json", b"{", "not JSON"),
        ("p.toml", b"\xff", "not TOML"),
        ("p.toml", None, "cannot be read"),
    ],
)
def test_refuses_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    """A broken or missing file is named with the reason."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SettingsError, match=reason):
        Prices.from_file(path)


def _streamed(make: MakeExchange) -> Exchange:
    return make(body=CompletionBody(choices=(Choice(text="Hi"),)))


def test_costs_are_those_of_reported_or_else_estimated_tokens(
    make: MakeExchange,
) -> None:
    """Tokens cost what a million of them cost, in proportion, and say their source."""
    frame = replies_frame([make(), _streamed(make)], prices=PRICES)

    assert frame["cost"].tolist() == pytest.approx([15e-6, 15.5e-6])
    assert frame["cost_source"].tolist() == [
        "reported tokens; given table, USD, 2026-01-31",
        "estimated tokens; given table, USD, 2026-01-31",
    ]
    assert str(frame["cost"].dtype) == "Float64"


@pytest.mark.parametrize(
    "changes",
    [
        {"is_emulated": True},
        {"is_reused": True},
        {"body": None, "status": "error"},
        {"request": build_request("Hi", model="other")},
        {"body": CompletionBody(choices=(), usage=Usage(total_tokens=3))},
    ],
)
def test_what_is_unknown_or_not_paid_has_no_cost(
    make: MakeExchange, changes: dict[str, Any]
) -> None:
    """Without payment, tokens or a price there is no cost, not a cost of nothing."""
    frame = replies_frame([make(**changes)], prices=PRICES)

    assert frame[["cost", "cost_source"]].isna().all(axis=None)

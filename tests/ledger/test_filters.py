"""Filters: what may be meant, and what is refused."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger

MakeExchange = Callable[..., Exchange]


@pytest.fixture
def _in_bangkok(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this machine in another zone."""
    monkeypatch.setitem(os.environ, "TZ", "Asia/Bangkok")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


BANGKOK = timezone(timedelta(hours=7))


@pytest.mark.usefixtures("_in_bangkok")
@pytest.mark.parametrize(
    ("since", "wanted"),
    [
        ("2026-01-31", "2026-01-30T17:00:00.000000Z"),
        (date(2026, 1, 31), "2026-01-30T17:00:00.000000Z"),
        (datetime(2026, 1, 31), "2026-01-30T17:00:00.000000Z"),  # noqa: DTZ001 - meant
        (pd.Timestamp("2026-01-31"), "2026-01-30T17:00:00.000000Z"),
        (pd.Timestamp("2026-01-31", tz="UTC"), "2026-01-31T00:00:00.000000Z"),
        ("2026-01-31T09:00:00+00:00", "2026-01-31T09:00:00.000000Z"),
        ("2026-01-31T09:00:00Z", "2026-01-31T09:00:00.000000Z"),
        (datetime(2026, 1, 31, 7, tzinfo=BANGKOK), "2026-01-31T00:00:00.000000Z"),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00.000000Z"),
    ],
)
def test_an_instant_is_meant_in_its_zone_or_this_machines(
    ledger: Ledger, make: MakeExchange, since: date | str, wanted: str
) -> None:
    """Days and instants without a zone are this machine's; others are their own."""
    started_at = datetime.fromisoformat(wanted)
    ledger.add(make(0, started_at=started_at - timedelta(microseconds=1)))
    ledger.add(make(1, started_at=started_at))

    found = [exchange.exchange_id for exchange in ledger.read(since=since)]

    assert found == ["x0001"]


@pytest.mark.parametrize(
    ("since", "hours"), [("90m", 1.5), ("12h", 12), ("30d", 720), (" 2w ", 336)]
)
def test_how_long_ago_is_counted_from_now(
    ledger: Ledger, make: MakeExchange, since: str, hours: float
) -> None:
    """`30d` is the last thirty days."""
    begin = datetime.now(UTC) - timedelta(hours=hours)
    ledger.add(make(0, started_at=begin - timedelta(minutes=5)))
    ledger.add(make(1, started_at=begin + timedelta(minutes=5)))

    found = [exchange.exchange_id for exchange in ledger.read(since=since)]

    assert found == ["x0001"]


@pytest.mark.parametrize(
    "since",
    [
        "",
        "yesterday",
        "30 days",
        "-3d",
        "9999999d",
        "999999w",
        "31.01.2026",
        5,
        pd.NaT,
        timedelta(days=1),
        [],
        b"2026",
    ],
)
def test_what_is_not_an_instant_is_refused(ledger: Ledger, since: Any) -> None:  # noqa: ANN401 - on purpose
    """What cannot be an instant is named, and how one looks."""
    with pytest.raises(ParameterError, match="since must be a datetime"):
        ledger.read(since=since)


@pytest.mark.parametrize("model", [5, b"svc", [5], [None], ["a", 1.5], pd.NA])
def test_a_name_that_is_not_text_is_refused(ledger: Ledger, model: Any) -> None:  # noqa: ANN401 - on purpose
    """A filter must be a name or names, since nothing else could match."""
    with pytest.raises(ParameterError, match="must be a name or a list of names"):
        ledger.read(model=model)


@pytest.mark.parametrize(
    "wrong", [{"scope": "mine"}, {"status": "good"}, {"origin": ["magic", "cell"]}]
)
def test_a_word_that_cannot_match_is_refused(
    ledger: Ledger, wrong: dict[str, Any]
) -> None:
    """Where only some words are possible, the error lists them."""
    with pytest.raises(ParameterError, match=r"must be .*'?(session|ok|magic)"):
        ledger.read(**wrong)

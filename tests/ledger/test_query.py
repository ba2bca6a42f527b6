"""Filters: what may be meant, and what is refused."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.query import Where, since_sql, where


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
    since: date | str, wanted: str
) -> None:
    """Days and instants without a zone are this machine's; others are their own."""
    assert since_sql(since) == wanted


@pytest.mark.parametrize(
    "since", ["", "yesterday", "31.01.2026", 5, pd.NaT, timedelta(days=1), [], b"2026"]
)
def test_what_is_no_instant_is_refused(since: object) -> None:
    """What cannot be an instant is named, and how one looks."""
    with pytest.raises(ParameterError, match="is not an instant"):
        since_sql(since)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("model", [5, b"svc", [5], [None], ["a", 1.5], pd.NA])
def test_a_name_that_is_no_text_is_refused(model: object) -> None:
    """A filter must be a name or names, since no other could ever be met."""
    with pytest.raises(ParameterError, match="is not text"):
        where(scope="all", session_id="s", model=model)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("model", [["a", "b"], ("a", "b"), pd.Series(["a", "b"])])
def test_several_names_may_come_in_any_collection(model: list[str]) -> None:
    """Lists, tuples and Series name several."""
    found = where(scope="all", session_id="s", model=model)

    assert found == Where("1 AND model IN (?, ?)", ("a", "b"))

"""Frames read from a ledger: filters, texts only where they are needed."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger import reply_frames
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import TEXTS
from svc_notebook.ledger.reply_frames import replies_df, to_array
from svc_notebook.ledger.reply_frames import replies_frame as frame_of
from svc_notebook.ledger.token_calibration import MIN_ROWS
from svc_notebook.ledger.usage import usage_df
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request

MakeExchange = Callable[..., Exchange]


def _fill(ledger: Ledger, make: MakeExchange) -> list[Exchange]:
    streamed = CompletionBody(choices=(Choice(text="สวัสดี", finish_reason="stop"),))
    asked = [
        make(0, origin=Origin(conversation="plan", columns={"a": 1})),
        make(1, body=streamed, is_streamed=True),
        make(2, origin=Origin(kind="sweep", run="r")),
        make(3, request=build_request("Hi", model="other", system="Be brief.")),
        make(4, body=None, status="cancelled"),
    ]
    for exchange in asked:
        ledger.add(exchange)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"conversation": "plan"}, [0]),
        ({"run": ["r", "s"]}, [2]),
        ({"model": "other"}, [3]),
        ({"since": "2026-01-01T00:00:02+00:00"}, [2, 3, 4]),
        ({"scope": "all"}, [0, 1, 2, 3, 4]),
    ],
)
def test_filters(
    ledger: Ledger, make: MakeExchange, filters: dict[str, Any], expected: list[int]
) -> None:
    """Filters narrow both frames alike."""
    asked = _fill(ledger, make)

    frame = replies_df(ledger, **filters)
    usage = usage_df(ledger, by=(), **filters)

    assert_frame_equal(frame, frame_of([asked[each] for each in expected]))
    assert usage["n_requests"].tolist() == [len(expected)]


def test_without_texts_the_rest_is_the_same(ledger: Ledger, make: MakeExchange) -> None:
    """texts=False gives the same frame without the columns of texts."""
    _fill(ledger, make)

    whole, rest = replies_df(ledger), replies_df(ledger, texts=False)

    assert_frame_equal(rest, whole.drop(columns=[*TEXTS, "a"]))


def test_estimates_by_what_the_whole_ledger_reported(
    ledger: Ledger, make: MakeExchange
) -> None:
    """A stream is estimated by what other sessions had reported for its model."""
    usage = Usage(prompt_tokens=8, completion_tokens=25)
    body = CompletionBody(choices=(Choice(text="x" * 100),), usage=usage)
    with Ledger(ledger.path, session_id="there") as other:
        for number in range(MIN_ROWS):
            other.add(make(number, body=body))
    streamed = CompletionBody(choices=(Choice(text="x" * 400),))
    ledger.add(make(99, body=streamed))

    frame = usage_df(ledger, by=())

    assert frame["n_requests"].tolist() == [1]
    assert 99 <= frame["estimated_completion_tokens"][0] <= 106
    assert frame["estimated_low_tokens"][0] >= 75


def test_is_the_same_without_pyarrow(
    make: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pyarrow is not installed frames have the same dtypes and values."""
    asked = [make(0), make(1, body=None, status="error"), make(2, latency_s=None)]
    expected = frame_of(asked)
    monkeypatch.setattr(reply_frames, "arrow", None)

    assert_frame_equal(frame_of(asked), expected)


@pytest.mark.slow
@given(st.lists(st.datetimes(timezones=st.just(UTC)), max_size=3))
def test_instants_are_exact(instants: list[datetime]) -> None:
    """Every instant is in its column to the microsecond, whenever it is."""
    array = to_array(instants, "datetime64[us, UTC]")

    assert [each.to_pydatetime() for each in array] == instants

"""Scores of replies: kept beside them, and joined to every frame of them."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.deletion import forget
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.ledger.scores import keep_scores
from svc_notebook.service.chunk import Choice, CompletionBody

MakeExchange = Callable[..., Exchange]
TWO = CompletionBody(
    id="c", created=1, model="m", choices=(Choice(text="a"), Choice(index=1, text="b"))
)


@pytest.fixture
def replies(ledger: Ledger, make: MakeExchange) -> pd.DataFrame:
    """The rows of a ledger that holds two exchanges, one of them with two choices."""
    ledger.add(make(0))
    ledger.add(make(1, body=TWO))
    return replies_df(ledger)


def test_scores_are_columns_after_the_answer(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """Each reply has its own; one dtype a name; what was not scored is missing."""
    replies["score_right"] = [True, False, None]
    replies["score_tone"] = ["warm", None, "cold"]
    replies["score_rouge"] = [0.5, 1, 0.25]

    assert keep_scores(ledger, replies) == 7

    found = replies_df(ledger)
    here = list(found).index("answer") + 1
    assert list(found)[here : here + 4] == [*list(replies)[-3:], "answer_ok"]
    expected = pd.DataFrame(
        {
            "score_right": pd.array([1, 0, None], dtype="Int64"),
            "score_tone": pd.array(["warm", None, "cold"], dtype="string"),
            "score_rouge": pd.array([0.5, 1.0, 0.25], dtype="Float64"),
        }
    )
    pd.testing.assert_frame_equal(found[list(expected)], expected)


def test_what_is_forgotten_has_no_scores(ledger: Ledger, replies: pd.DataFrame) -> None:
    """Scores go with their replies."""
    keep_scores(ledger, replies.assign(score_right=[1, 1, 1]))

    forget(ledger.path)

    with ledger.opened() as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchone() == (0,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "begins with 'score_'"),
        ({"score_": 1}, "begins with 'score_'"),
        ({"score_a": [[1], [2], [3]]}, "score_a holds a list"),
        ({"score_a": pd.Timestamp(0)}, "score_a holds a Timestamp"),
        (
            {"score_a": pd.Series([True, "no", None], dtype=object)},
            "text in 1 of 2 replies, such as 'no', and a number",
        ),
        ({"score_a": 1, "exchange_id": "other"}, "1 of these replies are not in the"),
        (
            {"score_a": pd.Series(["a", "b\ud83d", "c"], dtype=object)},
            "score_a of row 1 contains half of a surrogate pair",
        ),
        ({"score_a": 1, "exchange_id": None}, "score for a row without a reply"),
    ],
)
def test_what_is_no_score_is_refused(
    ledger: Ledger, replies: pd.DataFrame, changes: dict[str, Any], said: str
) -> None:
    """Nothing is kept of a frame of which something cannot be."""
    with pytest.raises(ParameterError) as caught:
        keep_scores(ledger, replies.assign(**changes))

    assert said in str(caught.value)
    assert list(replies_df(ledger)) == list(replies)

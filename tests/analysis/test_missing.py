"""What figures do not stand on is counted in words."""

from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.analysis.missing import missing_lines
from svc_notebook.analysis.summary import summary_df
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _asked(n_rows: int = 14, **of_row: Any) -> pd.DataFrame:  # noqa: ANN401 - functions of a row
    """Return rows, half of them Thai, asked of two models; columns by row and model."""
    return replies(
        (
            {"row": row, "model": model, "lang": "th" if row % 2 else "en"}
            | {"score_right": row % 3 == 0}
            | {name: value(row, model) for name, value in of_row.items()}
            for row in range(n_rows)
            for model in (SMALL, LARGE)
        ),
        middle=["lang"],
    )


def _failing(is_failed: Any) -> pd.DataFrame:  # noqa: ANN401 - a function of a row
    frame = _asked(status=lambda *at: "error" if is_failed(*at) else "ok")
    is_ok = frame["status"] == "ok"
    return frame.assign(score_right=frame["score_right"].astype("boolean").where(is_ok))


def test_failures_are_counted_where_they_are() -> None:
    """A line names the model that failed, and how often the others did."""
    frame = _failing(lambda row, model: model == LARGE and row < 10)

    assert missing_lines(frame, on="right") == [
        (
            f"10 of 14 replies of {LARGE} failed, and 0 of 14 others; the "
            "figures leave them out."
        )
    ]


def test_failures_of_some_rows_are_counted() -> None:
    """Figures without Thai are not about Thai, and nothing is said to be random."""
    frame = _failing(lambda row, _: row in {1, 3, 5, 7})

    assert missing_lines(frame, on="right") == [
        (
            "8 of 14 replies with lang=th failed, and 0 of 14 others; the "
            "figures leave them out, and with them 4 of 14 rows."
        )
    ]


def test_failures_of_the_hard_rows_are_counted() -> None:
    """All models fail on the same rows, which nothing tells from the others."""
    frame = _failing(lambda row, _: row in {1, 2, 7, 8})

    assert missing_lines(frame, on="right") == [
        (
            "8 of 28 replies failed; the figures leave them out, and with them "
            "4 of 14 rows."
        )
    ]


def test_one_failure_is_counted() -> None:
    """Any gap is said, also the smallest."""
    frame = _failing(lambda row, model: (row, model) == (3, SMALL))

    assert missing_lines(frame, on="right") == [
        "1 of 28 replies failed; the figures leave it out."
    ]


def test_missing_scores_are_counted() -> None:
    """A score that one model's replies lack is as misleading as a failure."""
    frame = _asked(score_right=lambda row, model: None if model == LARGE else row > 3)

    assert missing_lines(frame, on="right") == [
        (
            f"14 of 14 replies of {LARGE} have no score `right`, and 0 of 14 "
            "others; the figures leave them out."
        )
    ]


def test_scores_with_the_same_gap_share_a_line() -> None:
    """Scores that a pilot has, and the rest of the run has not, are said at once."""
    frame = _asked(
        score_a=lambda row, _: 1.0 if row < 4 else None,
        score_b=lambda row, _: 0.5 if row < 4 else None,
    )

    assert missing_lines(frame, on=["a", "b"], missing="bounds") == [
        (
            "20 of 28 replies have no score `a` and score `b`; low counts all "
            "of them as wrong, and high as right."
        )
    ]


def test_a_gap_of_some_scores_is_not_one_of_all() -> None:
    """A line says that only the figures of these scores leave replies out."""
    frame = _asked(
        score_right=lambda *_: True,
        score_a=lambda row, _: 1.0 if row < 4 else None,
        score_b=lambda row, _: 0.5 if row < 4 else None,
        score_c=lambda row, model: None if (row, model) == (0, SMALL) else 1.0,
    )

    assert missing_lines(frame, on=["right", "a", "b", "c"]) == [
        (
            "20 of 28 replies have no score `a` and score `b`; their figures leave "
            "them out, and are over 4 of 14 rows."
        ),
        "1 of 28 replies has no score `c`; its figures leave it out.",
    ]


def test_what_was_not_sent_is_counted() -> None:
    """A run that was stopped has figures about its first rows."""
    frame = _asked(status=lambda row, _: "ok" if row < 10 else "not_run")

    assert missing_lines(frame, on="right", missing="wrong") == [
        (
            "8 of 28 requests were not sent; the figures leave them out, and "
            "with them 4 of 14 rows."
        )
    ]


def test_a_complete_run_has_no_line() -> None:
    """Nothing is missing, so nothing is said; a plan has nothing yet."""
    assert missing_lines(_asked(), on="right") == []
    assert missing_lines(_asked(status=lambda *_: "planned")) == []


def test_seconds_are_of_requests() -> None:
    """A second choice has no seconds of its own, and nothing is missing."""
    frame = replies(
        {"row": row, "choice_index": choice, "latency_s": None if choice else 1.0}
        for row in range(4)
        for choice in range(2)
    )

    assert missing_lines(frame, on="latency_s") == []


def test_cuts_that_depend_on_a_model_are_counted() -> None:
    """A cut reply has a score, so it is said only where one model has them."""
    some = _asked(is_cut=lambda row, _: row == 3)
    many = _asked(is_cut=lambda row, model: row < 9 and model == SMALL)

    assert missing_lines(some, on="right") == []
    assert missing_lines(many, on="right") == [
        f"9 of 14 replies of {SMALL} were cut, and 0 of 14 others."
    ]


@pytest.mark.slow
def test_seconds_are_neither_wrong_nor_right() -> None:
    """What a failed request took does not count as 0 seconds."""
    frame = _failing(lambda row, _: row < 3)
    is_ok = frame["status"] == "ok"
    frame["latency_s"] = frame["latency_s"].fillna(0.5).where(is_ok)

    chart = svc.plot(frame, "right", against="latency_s", missing="bounds")

    assert "latency_s 0.5, 11 rows" in str(chart)
    with pytest.raises(ParameterError, match="latency_s is not a score"):
        summary_df(frame, on="latency_s", missing="wrong")

"""Replies are summed up by group, and what is missing is said."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.summary import (
    SUMMARY,
    intervals_df,
    missing_lines,
    summary_df,
)
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _studied(n_prompts: int = 8, n_repeats: int = 2, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "lang": "th" if row % 2 else "en",
                "model": model,
                "repeat": repeat,
                "score_right": bool(rng.random() < 0.7),
                "text": str(rng.choice(["spam", "ham"])),
                "total_tokens": 10 + row,
                "latency_s": float(row),
                "cost": cost,
            }
            for row in range(n_prompts)
            for model, cost in ((SMALL, 0.01), (LARGE, 0.07))
            for repeat in range(n_repeats)
        ),
        middle=["lang"],
    )


def test_groups_are_what_varies() -> None:
    """Without `by` there is a row for each model, in the order of the frame."""
    found = summary_df(_studied())

    assert found["model"].tolist() == [SMALL, LARGE]
    assert found[["n_cells", "n_prompts", "n_ok", "n_replies"]].to_numpy().tolist() == [
        [16, 8, 16, 16],
        [16, 8, 16, 16],
    ]
    assert found["total_tokens"].tolist() == [216, 216]
    assert found["latency_p50_s"].tolist() == [3.5, 3.5]


def test_scores_are_rates_with_intervals() -> None:
    """A score has its name, its interval, and what one that is right costs."""
    frame = _studied()
    expected = frame.groupby("model", sort=False)["score_right"].agg(["mean", "sum"])

    found = summary_df(frame)

    assert found["right"].tolist() == expected["mean"].tolist()
    assert (found["right_low"] < found["right"]).all()
    assert (found["right_high"] > found["right"]).all()
    assert found["cost_per_reply"].tolist() == pytest.approx([0.01, 0.07])
    assert found["cost_per_right"].tolist() == pytest.approx(
        [0.16 / expected["sum"].iloc[0], 1.12 / expected["sum"].iloc[1]]
    )


def test_failures_refusals_and_cuts_are_rates() -> None:
    """What was refused failed, too; cuts are a share of the replies."""
    frame = replies(
        [
            {"status": "ok", "is_cut": True},
            {"status": "ok", "is_cut": False},
            {"status": "error", "error_type": "BadRequestError", "is_cut": None},
            {"status": "error", "error_type": "TimedOutError", "is_cut": None},
            {"status": "not_run", "is_cut": None},
        ]
    )

    found = summary_df(frame).iloc[0]

    assert found[["n_cells", "n_ok", "n_failed", "n_cut"]].tolist() == [5, 2, 2, 1]
    assert found[["failed_rate", "refused_rate", "cut_rate"]].tolist() == [
        0.5,
        0.25,
        0.5,
    ]


@pytest.mark.slow
def test_other_columns_can_be_measured() -> None:
    """`on` takes any column of numbers, and then only that."""
    found = summary_df(_studied(), on="latency_s")

    assert found["latency_s"].tolist() == [3.5, 3.5]
    assert found["latency_s_low"].notna().all()
    assert "right" not in found


def test_repeats_are_compared_within_one_condition() -> None:
    """Repeats that are equal agree, also where the group has several conditions."""
    frame = replies(
        {"row": row, "temperature": t, "repeat": repeat, "text": f"{row} {t}"}
        for row in range(3)
        for t in (0.0, 1.0)
        for repeat in range(2)
    )

    found = summary_df(frame, by="model").iloc[0]

    assert found[["repeats_equal", "repeats_distinct", "repeats_alpha"]].tolist() == [
        1.0,
        0.5,
        1.0,
    ]


@pytest.mark.slow
def test_longer_texts_have_no_alpha() -> None:
    """Agreement beyond chance is for labels; texts have shares only."""
    frame = _studied().assign(text="It depends. " * 10)

    found = summary_df(frame)

    assert found["repeats_equal"].tolist() == [1.0, 1.0]
    assert found["repeats_alpha"].isna().all()


def test_a_column_that_does_not_exist_has_near_names() -> None:
    """The error names a near one."""
    with pytest.raises(ParameterError, match="Did you mean lang"):
        summary_df(_studied(), by="langs")


@pytest.mark.slow
def test_two_prompts_have_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer than 3 prompts have numbers without intervals, and a line says why."""
    found = summary_df(_studied(n_prompts=2))

    assert found["right"].notna().all()
    assert found["right_low"].isna().all()
    assert "at least 3 prompts" in capsys.readouterr().err


def test_without_scipy_all_but_intervals_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals are missing, and one line names the command."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    found = summary_df(_studied())

    assert found["right"].notna().all()
    assert found[["right_low", "right_high"]].isna().all(axis=None)
    assert capsys.readouterr().err == (
        "low and high need SciPy: python -m pip install 'svc-notebook[stats]'.\n"
    )


@pytest.mark.slow
def test_failures_that_depend_on_a_column_are_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """3 of 7 Thai rows failed and no English one: figures are not about Thai."""
    frame = replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "lang": "th" if row < 7 else "en",
                "status": "error" if row < 3 else "ok",
            }
            for row in range(14)
        ),
        middle=["lang"],
    )

    summary_df(frame)

    assert capsys.readouterr().err == (
        "Missing is not at random: with lang=th, 3 of 7 prompts have a reply that "
        "failed, otherwise 0 of 7. Figures are about the rest.\n"
    )


def test_failures_by_chance_are_not_said() -> None:
    """Failures that are spread evenly are not a pattern."""
    frame = replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "lang": "th" if row % 2 else "en",
                "status": "error" if row in {3, 4, 9, 10} else "ok",
            }
            for row in range(40)
        ),
        middle=["lang"],
    )

    assert missing_lines(frame) == []


def test_missing_scores_that_depend_on_a_model_are_said() -> None:
    """A score that one model's replies lack is as misleading as a failure."""
    frame = _studied()
    is_lost = (frame["model"] == LARGE) & (frame["row"] < 4)
    frame["score_right"] = frame["score_right"].astype("boolean").mask(is_lost)

    (line,) = missing_lines(frame, on="right")

    assert f"model={LARGE}, 4 of 8 prompts have a reply that has no right" in line


@pytest.mark.slow
def test_hostile_labels_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Escape codes in a value are made visible before a line is written."""
    frame = _studied().assign(lang="en")
    frame["lang"] = frame["lang"].mask(frame["row"] < 4, "\x1b[2Jth")
    frame["status"] = frame["status"].mask(frame["row"] < 3, "error")

    summary_df(frame)

    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.slow
def test_no_replies_have_the_same_columns() -> None:
    """A frame without rows gives no rows, with the dtypes of others."""
    frame = _studied()

    none, some = summary_df(frame.iloc[:0], on="right"), summary_df(frame)

    assert none.empty
    assert none.dtypes.to_dict().items() <= some.dtypes.to_dict().items()


@pytest.mark.slow
def test_a_comparison_of_texts_says_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Side by side, replies that are missing for a reason mislead as well."""
    frame = _studied()
    is_lost = (frame["model"] == LARGE) & (frame["row"] < 4)
    frame["status"] = frame["status"].mask(is_lost, "error")

    svc.compare(frame)

    assert "4 of 8 prompts have a reply that failed" in capsys.readouterr().err


@pytest.mark.slow
def test_every_column_has_a_meaning() -> None:
    """`svc.describe` knows what summaries and contrasts consist of."""
    summary = summary_df(_studied())[[column.name for column in SUMMARY]]
    contrast = svc.contrast_df(_studied(), "model")

    for frame in (summary, contrast):
        meaning = svc.describe(frame)["meaning"]
        assert not meaning.str.startswith("a column of your own").any()


def test_intervals_are_one_row_a_group() -> None:
    """A plot reads value, low and high by group."""
    found = intervals_df(_studied(), "right", by=["lang", "model"])

    assert found.columns.tolist() == [
        *("lang", "model"),
        *("value", "low", "high", "n_prompts"),
    ]
    assert len(found) == 4


def _sorted(frame: pd.DataFrame) -> Any:  # noqa: ANN401 - nested lists
    return frame.sort_values("model").reset_index(drop=True)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_makes_no_difference(seed: int, order: Any) -> None:  # noqa: ANN401 - of hypothesis
    """The same replies in another order, and with another index, are the same sums."""
    frame = _studied(n_prompts=5, seed=seed)
    rows = list(range(len(frame)))
    order.shuffle(rows)

    shuffled = summary_df(frame.iloc[rows])

    expected = _sorted(summary_df(frame))
    pd.testing.assert_frame_equal(_sorted(shuffled), expected, rtol=1e-9)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), shift=st.integers(1, 10**6))
def test_what_prompts_are_called_makes_no_difference(seed: int, shift: int) -> None:
    """Rows with other numbers and texts are the same prompts."""
    frame = _studied(n_prompts=5, seed=seed)
    renamed = frame.assign(row=frame["row"] * 7 + shift, prompt=frame["prompt"] + "!")

    pd.testing.assert_frame_equal(summary_df(renamed), summary_df(frame))

"""Replies are summed up by group, and what is missing is said."""

import sys
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.summary import SUMMARY, intervals_df, summary_df
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


def test_scores_are_next_to_their_groups() -> None:
    """A frame that is shown leaves out columns in the middle, never the scores."""
    summary = summary_df(_studied(), ["lang", "model"])

    groups, score = ["lang", "model"], ["right", "right_low", "right_high"]
    assert list(summary.columns[:6]) == [*groups, *score, "n_cells"]


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
    assert "at least 3 rows" in capsys.readouterr().err


def test_without_scipy_all_but_intervals_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals are missing, and one line names the command."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    found = summary_df(_studied())

    assert found["right"].notna().all()
    assert found[["right_low", "right_high"]].isna().all(axis=None)
    assert capsys.readouterr().err == (
        "low and high need SciPy: python -m pip install scipy.\n"
    )


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

    assert capsys.readouterr().err == (
        f"8 of 16 replies of {LARGE} failed, and 0 of 16 others.\n"
    )


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
        *("value", "low", "high", "n_prompts", "n_units"),
    ]
    assert len(found) == 4


def _repeated_unevenly() -> pd.DataFrame:
    """Return ten rows: five that are always right, asked 9 times, and five never."""
    return replies(
        {"row": row, "repeat": repeat, "score_right": row < 5}
        for row in range(10)
        for repeat in range(9 if row < 5 else 1)
    )


def test_prompts_count_the_same_however_often_they_are_asked() -> None:
    """Easy rows that are repeated more do not raise a rate; asked for, they do."""
    frame = _repeated_unevenly()

    by_prompt = summary_df(frame, by="model").iloc[0]
    by_reply = summary_df(frame, by="model", weight="replies").iloc[0]
    interval = intervals_df(frame, "right", by="model").iloc[0]

    assert by_prompt["right"] == interval["value"] == 0.5
    assert by_reply["right"] == 0.9
    assert by_prompt[["n_prompts", "n_scored"]].tolist() == [10, 50]


def test_a_summary_and_a_contrast_show_one_rate() -> None:
    """Both weigh prompts alike where easy rows were repeated more."""
    other = _repeated_unevenly().assign(model=LARGE)
    frame = pd.concat([_repeated_unevenly(), other[other["repeat"] < 3]])

    summary = summary_df(frame, by="model").set_index("model")["right"]
    contrast = svc.contrast_df(frame, "model", "right").iloc[0]

    assert contrast["mean"] == summary[contrast["level"]]
    assert contrast["mean_against"] == summary[contrast["against"]]


def _of_documents(n_documents: int = 6, n_rows: int = 5) -> pd.DataFrame:
    """Return rows whose scores are nearly those of their document."""
    return replies(
        (
            {"row": row, "document": f"d{row // n_rows}", "customer": row // 7}
            | {"score_right": (row // n_rows) % 2 == 0 or row == n_rows}
            | {"score_depth": 1.0 + row // n_rows + row % 2 / 10}
            for row in range(n_documents * n_rows)
        ),
        middle=["document", "customer"],
    )


def test_rows_of_one_document_belong_together() -> None:
    """With `unit` values stay, and intervals are over documents: longer ones."""
    frame = _of_documents()

    alone = summary_df(frame).iloc[0]
    together = summary_df(frame, unit="document").iloc[0]

    assert together[["n_prompts", "n_units"]].tolist() == [30, 6]
    for name in ("right", "depth"):
        assert together[name] == pytest.approx(alone[name])
        assert together[f"{name}_low"] < alone[f"{name}_low"]
        assert together[f"{name}_high"] > alone[f"{name}_high"]


def test_documents_of_one_size_are_compared_by_students_t() -> None:
    """The interval of a mean is that of the documents' means, which have no skew."""
    frame = _of_documents(n_rows=4)
    by_document = frame.groupby("document")["score_depth"].mean()
    stats = pytest.importorskip("scipy.stats")
    expected = stats.t.interval(0.95, 5, by_document.mean(), stats.sem(by_document))

    found = intervals_df(frame, "depth", by="model", unit="document").iloc[0]

    assert (found["low"], found["high"]) == pytest.approx(expected)


def test_what_belongs_together_can_be_several_columns() -> None:
    """Rows of one document and one customer are a unit."""
    found = summary_df(_of_documents(), unit=["document", "customer"]).iloc[0]

    assert found["n_units"] == 10


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model", "has several values for one of the rows"),
        ("documents", "Did you mean document"),
        ("gap", "gap is missing in 1 of 60 replies"),
    ],
)
def test_a_unit_says_where_each_row_belongs(name: str, said: str) -> None:
    """What differs within a row, is missing or does not exist is no unit."""
    frame = pd.concat([_of_documents(), _of_documents().assign(model=LARGE)])
    frame["gap"] = ["x"] * 59 + [None]

    with pytest.raises(ParameterError, match=said):
        summary_df(frame, unit=name)


def test_a_figure_says_on_how_many_scores_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pilot was scored and the run went on: the figures are about the pilot."""
    frame = _studied(n_prompts=8, n_repeats=3)
    frame["score_right"] = frame["score_right"].astype("boolean")
    frame.loc[frame["row"] > 1, "score_right"] = pd.NA

    found = summary_df(frame)

    assert found["n_scored"].tolist() == [6, 6]
    assert found["n_prompts"].tolist() == [2, 2]
    assert found["n_ok"].tolist() == [24, 24]
    assert capsys.readouterr().err.splitlines()[0] == (
        "36 of 48 replies have no score `right`; the figures leave them out, and "
        "with them 6 of 8 rows."
    )


def test_a_score_with_other_counts_says_them_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A few ratings by hand say nothing about how many rows another score is over."""
    frame = _studied()
    is_rated = frame["row"] < 3
    frame["score_rated_good"] = is_rated.astype("boolean").where(is_rated)

    found = summary_df(frame)

    counts = ["n_prompts", "n_units", "n_scored"]
    assert found[counts].to_numpy().tolist() == [[8, 8, 16]] * 2
    names = [*map(str, found)]
    assert names[names.index("rated_good_high") + 1 :][:2] == [
        "n_units_rated_good",
        "n_scored_rated_good",
    ]
    assert found["n_units_rated_good"].tolist() == [3, 3]
    assert found["n_scored_rated_good"].tolist() == [6, 6]
    assert {str(found[name].dtype) for name in names if name.startswith("n_")} == {
        "Int64"
    }
    assert not [name for name in names if name.endswith("_right") and name[:2] == "n_"]
    assert capsys.readouterr().err == (
        "20 of 32 replies have no score `rated_good`; its figures leave them out, and "
        "are over 3 of 8 rows.\n"
    )


def test_scores_over_the_same_replies_have_one_count() -> None:
    """Two scores of all replies add no counts to the summary."""
    found = summary_df(_studied().assign(score_brief=True))

    assert [
        name for name in map(str, found) if name.startswith(("n_units", "n_scored"))
    ] == [
        "n_units",
        "n_scored",
    ]


def test_counts_of_prompts_and_units_of_a_score_are_apart() -> None:
    """Of 2 documents with 3 scored rows, a score has 3 prompts and 2 units."""
    frame = _studied().assign(doc=lambda df: df["row"] // 2)
    is_rated = frame["row"] < 3
    frame["score_good"] = is_rated.astype("boolean").where(is_rated)

    found = summary_df(frame, unit="doc").iloc[0]

    assert found[["n_prompts", "n_units"]].tolist() == [8, 4]
    assert found[["n_prompts_good", "n_units_good"]].tolist() == [3, 2]
    meaning = svc.describe(summary_df(frame, unit="doc")).set_index("name")["meaning"]
    assert meaning["n_units_good"].startswith("number of units the interval of 'good'")


def _scored_in_part(shares: list[int], seed: int) -> pd.DataFrame:
    """Return a frame whose replies differ in cost, where some have no score."""
    frame = _studied(n_prompts=len(shares), n_repeats=1, seed=seed)
    frame["cost"] = np.random.default_rng(seed).uniform(1, 9, len(frame))
    is_scored = np.repeat(np.array(shares, dtype=bool), 2)
    return frame.assign(
        score_right=frame["score_right"].astype("boolean").where(is_scored)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 1), min_size=3, max_size=12).filter(any),
    st.integers(0, 99),
)
def test_a_right_reply_costs_what_it_does_among_the_scored(
    shares: list[int], seed: int
) -> None:
    """It costs what it would if there were only the replies with a score."""
    frame = _scored_in_part(shares, seed)
    alone = frame[frame["score_right"].notna()]

    part, whole = (summary_df(df, "model", "right") for df in (frame, alone))

    names = ["right", "cost_per_right", "n_units", "n_scored"]
    pd.testing.assert_frame_equal(part[names], whole[names])


def test_the_replies_that_are_scored_do_not_change_what_a_right_one_costs() -> None:
    """Over all choices of 2 of 6 rows, the mean is near the cost with all scores."""
    frame = _studied(n_prompts=6, n_repeats=1).assign(score_right=True)
    frame["cost"] = np.arange(12, dtype=float)
    whole = summary_df(frame, "model")["cost_per_right"].to_numpy(float)
    parts = [
        summary_df(
            frame.assign(
                score_right=frame["score_right"]
                .astype("boolean")
                .where(frame["row"].isin(rows))
            ),
            "model",
        )["cost_per_right"].to_numpy(float)
        for rows in combinations(range(6), 2)
    ]

    assert np.mean(parts, axis=0) == pytest.approx(whole)


def test_failures_are_a_part_of_what_a_right_reply_costs() -> None:
    """A quarter of the replies has a score, so a quarter of the failures counts."""
    usual = {"cost": 1.0, "status": "ok"}
    rows = [{**usual, "row": row, "score_right": row < 1 or None} for row in range(4)]
    frame = replies([*rows, {"row": 9, "cost": 8.0, "status": "error", "text": None}])

    drop, wrong = (
        summary_df(frame, "model", "right", missing=missing)["cost_per_right"].item()
        for missing in ("drop", "wrong")
    )

    assert (drop, wrong) == (3.0, 12.0)


def test_choices_share_what_their_request_costs() -> None:
    """One of two choices is scored and right, so it costs half of the request."""
    frame = replies(
        {
            "row": row,
            "exchange_id": f"x{row}",
            "choice_index": choice,
            "cost": 4.0 if choice == 0 else None,
            "score_right": True if choice == row % 2 else None,
        }
        for row in range(4)
        for choice in (0, 1)
    )

    assert summary_df(frame, "model", "right")["cost_per_right"].tolist() == [2.0]


def test_missing_replies_may_count_as_wrong_or_as_either() -> None:
    """Failed and unscored replies count 0, or widen the interval both ways."""
    frame = replies(
        {"row": row, "status": "error" if row < 4 else "ok"}
        | {"score_right": None if row < 6 else row % 2 == 0}
        for row in range(20)
    )
    frame["score_right"] = frame["score_right"].astype("boolean")
    right, low, high = "right", "right_low", "right_high"

    drop = summary_df(frame).iloc[0]
    wrong = summary_df(frame, missing="wrong").iloc[0]
    bounds = summary_df(frame, missing="bounds").iloc[0]

    assert drop[right] == bounds[right] == 0.5
    assert wrong[right] == 7 / 20
    assert bounds[low] == wrong[low] < drop[low]
    assert bounds[high] > drop[high] > wrong[high]
    assert drop["n_scored"] == wrong["n_scored"] == bounds["n_scored"] == 14


def test_only_scores_within_0_and_1_have_a_worst_case() -> None:
    """What is missing cannot count as 0 where other values are possible."""
    frame = _of_documents()

    with pytest.raises(ParameterError, match=r"values from 1 to 6\.1"):
        summary_df(frame, on="depth", missing="bounds")
    with pytest.raises(ParameterError, match="'drop', 'wrong' or 'bounds'"):
        summary_df(frame, missing="worst")  # type: ignore[arg-type]  # a slip
    with pytest.raises(ParameterError, match="'prompts' or 'replies'"):
        summary_df(frame, weight="rows")  # type: ignore[arg-type]  # a slip


def test_equal_values_have_no_interval() -> None:
    """A rounding error is no spread: 25 times 0.3 is known no better for it."""
    frame = replies({"row": row, "score_f1": 0.1 + 0.2} for row in range(25))
    frame.loc[:11, "score_f1"] = 0.3

    found = summary_df(frame).iloc[0]

    assert found["f1"] == pytest.approx(0.3)
    assert found[["f1_low", "f1_high"]].isna().all()


def test_intervals_stay_within_what_is_possible() -> None:
    """Shares are not above 1, and seconds not below 0."""
    frame = replies(
        {"row": row, "score_f1": value, "latency_s": 1 - value, "score_gain": value - 1}
        for row, value in enumerate([1.0, 1.0, 1.0, 0.99, 0.5])
    )

    share = intervals_df(frame, "f1", by="model").iloc[0]
    seconds = intervals_df(frame, "latency_s", by="model").iloc[0]
    gain = intervals_df(frame, "gain", by="model").iloc[0]

    assert share["high"] == 1.0
    assert seconds["low"] == 0.0
    assert gain["high"] > 0


def test_scores_do_not_take_each_others_columns() -> None:
    """The scores `x` and `x_low` are both there, whichever was made first."""
    frame = replies(
        {"row": row, "score_x_low": row * 10.0, "score_x": row * 1.0}
        for row in range(8)
    )

    found = summary_df(frame).iloc[0]
    swapped = summary_df(frame, on=["x", "x_low"]).iloc[0]

    for row in (found, swapped):
        assert (row["x"], row["score_x_low"]) == (3.5, 35.0)
        assert row["x_low"] < 3.5 < row["x_high"] < row["score_x_low_low"] < 35


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

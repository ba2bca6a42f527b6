"""Scores of all replies are corrected by the labels of a few."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.differences import Figure, StudentEstimate
from svc_notebook.analysis.prediction_powered import parts_of, powered
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies
from tests.benchmarks.labels_bench import JUDGES, simulated

PAGE = Path(__file__).parents[2] / "notebooks" / "statistics.md"
Floats = Any  # arrays of numpy


def _figure(values: Floats, n_units: int) -> Figure:
    n = len(values)
    return Figure.mean(np.asarray(values, float), np.ones(n), np.arange(n), n_units)


def _powered(labels: Floats, scores: Floats) -> tuple[Figure, float]:
    """Return the corrected mean; the first units have the labels."""
    n, n_units = len(labels), len(scores)
    return powered(
        _figure(labels, n_units), _figure(scores[:n], n_units), _figure(scores, n_units)
    )


def _ends(figure: Figure) -> tuple[float, float]:
    return StudentEstimate.of(figure, largest=10.0).ends(0.025)


def _studied(n: int = 200, n_labels: int = 40, *, wrong: float = 0.1) -> pd.DataFrame:
    """Return a judge's scores of two models, and labels of the first rows."""
    rng = np.random.default_rng(5)
    rows = []
    for model, rate in ((SMALL, 0.5), (LARGE, 0.8)):
        truth = rng.random(n) < rate
        judged = np.where(rng.random(n) < wrong, ~truth, truth)
        rows += [
            {
                "row": row,
                "prompt": f"Say {row}",
                "model": model,
                "score_judge": bool(judged[row]),
                "score_rated": bool(truth[row]) if row < n_labels else None,
                "document": row // 4,
            }
            for row in range(n)
        ]
    df = replies(rows, middle=["document"])
    return df.assign(score_rated=df["score_rated"].astype("boolean"))


NUMBERS = st.lists(st.integers(-4, 4), min_size=12, max_size=40)


@pytest.mark.slow
@given(labels=NUMBERS, n_more=st.integers(1, 60), score=st.integers(-3, 3))
def test_a_useless_score_leaves_the_labels_alone(
    labels: list[int], n_more: int, score: int
) -> None:
    """A score that is always the same gives the very interval of the labels."""
    assume(len(set(labels)) > 1)
    scores = np.full(len(labels) + n_more, float(score))

    figure, weight = _powered(np.array(labels), scores)

    assert weight == 0
    assert _ends(figure) == _ends(_figure(labels, len(scores)))


@pytest.mark.slow
@given(scores=NUMBERS, n_labels=st.integers(4, 11))
def test_a_perfect_score_counts_as_if_all_had_labels(
    scores: list[int], n_labels: int
) -> None:
    """Scores that equal the labels give the interval that labels of all would give."""
    assume(len(set(scores[:n_labels])) > 1)

    figure, weight = _powered(np.array(scores[:n_labels]), np.array(scores))

    assert weight == pytest.approx(1)
    assert _ends(figure) == pytest.approx(_ends(_figure(scores, len(scores))))


@pytest.mark.slow
@given(scores=NUMBERS, scale=st.floats(0.1, 10), shift=st.floats(-5, 5))
def test_the_scale_of_a_score_does_not_matter(
    scores: list[int], scale: float, shift: float
) -> None:
    """A score of 1 to 5 corrects like the same score of 0 to 1."""
    labels = np.array(scores[:8]) + np.array([0, 1, 0, -1, 0, 0, 1, 0])
    assume(len(set(scores[:8])) > 1 and len(set(labels)) > 1)
    own, moved = np.array(scores), np.array(scores) * scale + shift

    assert _ends(_powered(labels, moved)[0]) == pytest.approx(
        _ends(_powered(labels, own)[0])
    )


@pytest.mark.slow
@given(
    scores=NUMBERS,
    noise=st.lists(st.integers(-2, 2), min_size=10, max_size=10),
    n_copies=st.integers(3, 8),
)
def test_the_parts_of_an_error_give_the_error(
    scores: list[int], noise: list[int], n_copies: int
) -> None:
    """What a plan says of so many labels and scores is what they then give."""
    labels = np.tile(np.array(scores[:10]) + np.array(noise), n_copies)
    all_scores = np.concatenate([np.tile(scores[:10], n_copies), np.tile(scores, 9)])
    n, n_units = len(labels), len(all_scores)
    parts = parts_of(
        _figure(labels, n_units),
        _figure(all_scores[:n], n_units),
        _figure(all_scores, n_units),
    )
    assume(parts.residual_variance > 0.01)

    estimate = StudentEstimate.of(_powered(labels, all_scores)[0])

    assert parts.error(n, n_units) == pytest.approx(estimate.error, rel=0.05)
    if parts.slope:
        assert parts.freedom(n, n_units) == pytest.approx(estimate.freedom, rel=0.15)
    assert 0 <= parts.correlation <= 1


LABELS = [1, 0, 1, 1, 0, -1, 1, 0, 0, 1, 1, 0]
SCORES = [1, 0, 0, 1, 0, -1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1, -1, 0, 1, 0, 0, 1, 1]


def test_with_one_weight_the_estimate_is_that_of_another_package() -> None:
    """ppi-python 0.2.3 has the same estimate for the same weight.

    pip install ppi-python==0.2.3, and with `LABELS` and `SCORES` as arrays y and f of
    floats: ppi_py.ppi_mean_pointestimate(y, f[:12], f[12:], lam=5 / 14). Its weight is
    of the 12 other scores, and ours, 5 / 7, is of all 24.
    """
    figure, weight = _powered(np.array(LABELS), np.array(SCORES))

    assert weight == pytest.approx(5 / 7)
    assert figure.value == pytest.approx(0.44642857)


def test_the_interval_is_near_that_of_another_package() -> None:
    """With its own weight and normal quantiles, ppi-python 0.2.3 is a little narrower.

    ppi_py.ppi_mean_ci(y, f[:100], f[100:], alpha=0.05) with y and f from here.
    """
    rng = np.random.default_rng(3)
    truth = rng.integers(-1, 2, 500).astype(float)
    scores = np.where(rng.random(500) < 0.2, rng.integers(-1, 2, 500), truth)

    ends = _ends(_powered(truth[:100], scores)[0])

    assert ends == pytest.approx((-0.14534004, 0.07278871), abs=0.003)
    assert ends[1] - ends[0] > 0.07278871 + 0.14534004


def test_a_sentence_says_what_a_corrected_difference_is_made_of() -> None:
    """It is of the labels, counts scores and labels, and asks for a random sample."""
    compared = svc.contrast(_studied(), "model", "judge", labels="rated")

    [said], shown = compared.says, repr(compared)
    assert "rated is true more often for 70b than for 8b" in said
    assert "from 400 scores of judge, corrected by 80 labels." in said
    assert "difference in rated, by judge and labels" in shown
    assert "drawn at random" in compared.notes[0]
    row = compared.df.iloc[0]
    assert row[["on", "labels", "n_labels", "n_scored", "n_units"]].tolist() == [
        "judge",
        "rated",
        80,
        400,
        200,
    ]
    assert 0 < row["score_weight"] < 1


def test_a_good_judge_makes_the_labels_surer() -> None:
    """The interval is narrower than that of the labels alone."""
    df = _studied()
    corrected = svc.contrast_df(df, "model", "judge", labels="rated").iloc[0]
    alone = svc.contrast_df(df, "model", "rated").iloc[0]

    widths = [row["high"] - row["low"] for row in (corrected, alone)]

    assert widths[0] < 0.8 * widths[1]


def test_a_judge_that_favours_one_model_is_corrected() -> None:
    """A judge that calls all of one model good changes nothing of the difference."""
    df = _studied()
    df.loc[df["model"] == LARGE, "score_judge"] = True

    corrected = svc.contrast_df(df, "model", "judge", labels="rated").iloc[0]
    believed = svc.contrast_df(df, "model", "judge").iloc[0]

    assert corrected["low"] <= 0.3 <= corrected["high"]
    assert believed["low"] > 0.35


@pytest.mark.parametrize("unit", [None, "document"])
def test_a_useless_judge_says_so(unit: str | None) -> None:
    """The numbers are those of the labels, and the sentence names the labels alone."""
    df = _studied().assign(score_judge=True)

    corrected = svc.contrast_df(df, "model", "judge", labels="rated", unit=unit).iloc[0]
    alone = svc.contrast_df(df, "model", "rated", unit=unit).iloc[0]

    numbers = ["mean", "mean_against", "difference", "low", "high", "p", "n_units"]
    assert corrected[numbers].tolist() == alone[numbers].tolist()
    assert "from 80 labels alone: judge adds nothing to them" in corrected["says"]


def test_a_judge_that_never_erred_yet_is_not_trusted_wholly() -> None:
    """Where judge and labels never differ, one row more might: it is wider than all."""
    df = _studied(wrong=0.0)

    corrected = svc.contrast_df(df, "model", "judge", labels="rated").iloc[0]
    judged = svc.contrast_df(df, "model", "judge").iloc[0]

    assert corrected["difference"] == pytest.approx(judged["difference"])
    assert corrected["high"] - corrected["low"] > judged["high"] - judged["low"]


def test_labels_of_one_reply_of_a_pair_are_counted_and_left_out() -> None:
    """Differences need both labels of a row."""
    df = _studied()
    df.loc[(df["model"] == LARGE) & (df["row"] < 10), "score_rated"] = pd.NA

    row = svc.contrast_df(df, "model", "judge", labels="rated").iloc[0]

    assert row["n_labels"] == 60
    assert (
        "Left out: 10 labels of replies whose counterpart has no label."
        in (row["says"])
    )


def test_scores_that_are_missing_are_counted_and_labels_are_not() -> None:
    """A reply without a verdict is left out and named; most have no label anyway."""
    df = _studied()
    df["score_judge"] = df["score_judge"].astype("boolean")
    df.loc[df["row"] == 150, "score_judge"] = pd.NA

    row = svc.contrast_df(df, "model", "judge", labels="rated").iloc[0]

    assert row["n_prompts"] == 199
    assert "1 of 200 replies of 70b has no score `judge`" in row["says"]
    assert "no score `rated" not in row["says"]


def test_subgroups_and_units_are_corrected_too() -> None:
    """A unit may have rows with labels and others: it counts once."""
    df = _studied().assign(
        language=lambda frame: np.where(frame["row"] % 2, "th", "en"),
        score_rated=lambda frame: frame["score_rated"].where(frame["row"] % 4 < 3),
    )

    compared = svc.contrast(
        df, "model", "judge", labels="rated", by="language", unit="document"
    )

    assert compared.df["n_units"].tolist() == [50, 50, 50]
    assert compared.df["n_labels"].tolist() == [40, 20, 60]
    assert compared.df["low"].notna().all()


def test_two_labels_are_too_few() -> None:
    """Below three labelled rows there is no interval, and the sentence says why."""
    [said] = svc.contrast(_studied(n_labels=2), "model", "judge", labels="rated").says

    assert "at least 3 rows with labels are needed" in said


def test_a_plan_has_rows_and_labels() -> None:
    """What a new run would need is both."""
    df = _studied(40, 8, wrong=0.3)

    [said] = svc.contrast(df, "model", "judge", labels="rated").says

    assert said.startswith("Cannot tell yet")
    assert re.search(r"a new run with \d+ rows, \d+ of them with labels, would", said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "judge"}, "also compared in on"),
        ({"labels": "ratd"}, "labels='ratd' is not a score"),
        ({"labels": "none"}, "none has no value"),
        ({"labels": "rated", "paired": False}, "leave paired out"),
        ({"labels": "rated", "weight": "replies"}, "leave weight out"),
        ({"labels": "rated", "missing": "wrong"}, "leave missing out"),
        ({"labels": "rated", "looks": "any"}, "leave looks out"),
    ],
)
def test_what_labels_cannot_correct_is_refused(
    options: dict[str, Any], message: str
) -> None:
    """The message names what to leave out."""
    df = _studied().assign(score_none=None)

    with pytest.raises(ParameterError, match=message):
        svc.contrast(df, "model", "judge", **options)


@pytest.mark.slow
@pytest.mark.parametrize("judge", list(JUDGES)[::3])
def test_studies_with_a_judge_are_right_as_often_as_they_say(judge: str) -> None:
    """Few intervals miss the truth, and none is wider than that of labels alone."""
    seen = simulated(judge, 30, 40)

    assert seen.held >= 0.8
    assert seen.width <= 1.02


def test_the_page_has_every_judge() -> None:
    """The table of the page has the judges of the benchmark."""
    rows = re.findall(
        r"^\| (0\.\d+, 0\.\d+(?:, biased)?) \|", PAGE.read_text("utf-8"), re.MULTILINE
    )

    assert rows == list(JUDGES)

"""Values of a factor are compared in pairs, over the prompts that have both."""

import itertools
import math
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.analysis.contrast import contrast, contrast_df
from svc_notebook.analysis.differences import flip_tail
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies, right_replies


def _graded(
    grades: dict[Any, list[float]],
    *,
    factor: str = "model",
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return one reply for each prompt and level, with its score."""
    return replies(
        {"row": row, "prompt": f"Say {row}", factor: level, "score_grade": grade} | more
        for level, found in grades.items()
        for row, grade in enumerate(found)
    )


def test_a_few_prompts_do_not_claim_to_find_the_impossible() -> None:
    """Where even a difference of 100 points would be missed, the sentence says so."""
    frame = right_replies({SMALL: 2, LARGE: 3}, n_prompts=4)

    [said] = contrast_df(frame, "model", "right")["says"]

    assert "with so few rows no difference could have been found" in said
    assert "100)" in said


def test_a_comparison_needs_a_factor() -> None:
    """An empty list of factors is refused."""
    with pytest.raises(ParameterError, match="factor must name a column"):
        contrast_df(right_replies({SMALL: 2, LARGE: 3}), [], "right")


def test_replies_that_stand_twice_in_a_frame_are_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run that is concatenated with itself is counted, and a line says how often."""
    frame = right_replies({SMALL: 2, LARGE: 3}, 3, repeat=0)
    frame["exchange_id"] = [str(n) for n in range(6)]

    contrast_df(frame, "model", "right")
    assert "already in the frame" not in capsys.readouterr().err

    contrast_df(pd.concat([frame, frame]), "model", "right")
    assert "6 rows repeat a reply that is already in the frame" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_values_are_written_as_they_were_asked() -> None:
    """A temperature of 0 is no 0.0, and a missing answer was never to be sent."""
    frame = _graded({0.0: [1.0, 2.0, 4.0], 0.7: [3.0, 5.0, 5.0]}, factor="temperature")
    answered = _graded({"tea": [1.0, 2.0, 4.0], None: [3.0, 5.0, 5.0]}, factor="drink")

    assert "temperature=0:" in contrast_df(frame, "temperature", "grade")["says"][0]
    assert "drink=missing" in contrast_df(answered, "drink", "grade")["says"][0]


LOW, HIGH = [2.0, 3.5, 3.0, 4.0, 2.5, 3.0], [2.5, 4.5, 3.0, 5.0, 3.0, 3.5]


def test_pairs_are_compared_by_students_t() -> None:
    """Difference, interval and p are those of SciPy's paired test."""
    stats = pytest.importorskip("scipy.stats")  # 2 s: not for all who collect
    expected = stats.ttest_rel(HIGH, LOW)
    ends = expected.confidence_interval()

    found = contrast_df(_graded({SMALL: LOW, LARGE: HIGH}), "model", "grade").iloc[0]

    assert found[["level", "against", "n_prompts"]].tolist() == [LARGE, SMALL, 6]
    assert found[["difference", "low", "high", "p"]].tolist() == pytest.approx(
        [np.mean(HIGH) - np.mean(LOW), *ends, expected.pvalue]
    )


def test_a_clear_difference_is_a_plain_sentence() -> None:
    """It names the better model first, both rates, the interval and the price."""
    found = contrast_df(right_replies({SMALL: 71, LARGE: 88}), "model", on="right")

    assert found["says"][0] == (
        "70b is right more often than 8b: 88 % against 71 %, difference 17 points "
        "(10 to 24); 70b costs 7 times as much."
    )


def test_a_doubtful_difference_says_what_would_tell() -> None:
    """Without a clear answer the sentence has the prompts that would give one."""
    found = contrast_df(right_replies({SMALL: 71, LARGE: 74}), "model")

    assert found["says"][0] == (
        "Cannot tell yet whether 70b is right more often than 8b: 74.0 % against "
        "71.0 %, difference 3.0 points (-0.4 to 6.4); 3 of 100 rows differ, all 3 for "
        "70b: too few to be sure; if it is that large, a new run with 260 rows would "
        "tell; 70b costs 7 times as much."
    )


def _paired(n_first: int, n_second: int, n_rows: int) -> pd.DataFrame:
    """Return rows of which only one of two models gets so many right."""
    return replies(
        {"row": row, "prompt": f"Say {row}", "model": model, "score_right": is_right}
        for row in range(n_rows)
        for model, is_right in (
            (SMALL, n_first <= row < n_first + n_second),
            (LARGE, row < n_first),
        )
    )


def test_four_rows_that_differ_are_too_few() -> None:
    """The sentence says how few differ, and the interval does not exclude 0."""
    found = contrast_df(_paired(4, 0, 12), "model").iloc[0]

    assert found["says"].startswith("Cannot tell yet whether 70b is right more often")
    assert "; 4 of 12 rows differ, all 4 for 70b: too few to be sure; " in found["says"]
    assert (found["low"], found["p"]) == (0.0, 0.125)


def test_six_rows_that_differ_alike_are_enough() -> None:
    """The exact test finds a difference, so the sentence says it."""
    found = contrast_df(_paired(6, 0, 12), "model").iloc[0]

    assert found["says"].startswith("70b is right more often than 8b")
    assert found["low"] > 0
    assert found["p"] == pytest.approx(2 / 2**6)


@settings(max_examples=60)
@given(
    n_first=st.integers(0, 40),
    n_second=st.integers(0, 40),
    n_same=st.integers(3, 60),
    level=st.sampled_from([0.8, 0.95, 0.99]),
)
def test_a_rate_is_never_clearer_than_by_the_exact_test(
    n_first: int, n_second: int, n_same: int, level: float
) -> None:
    """Neither p nor the interval says more than McNemar's exact test; they agree."""
    frame = _paired(n_first, n_second, n_first + n_second + n_same)
    n = n_first + n_second
    tail = sum(math.comb(n, k) for k in range(min(n_first, n_second) + 1)) / 2**n

    found = contrast_df(frame, "model", level=level).iloc[0]

    assert found["p"] >= min(2 * tail, 1.0) * (1 - 1e-9)
    is_clear = not found["low"] <= 0 <= found["high"]
    assert is_clear == (found["p"] < 1 - level)
    assert found["low"] <= found["difference"] <= found["high"]


@settings(max_examples=60)
@given(
    moves=st.lists(st.integers(-3, 3), min_size=3, max_size=12),
    scale=st.sampled_from([1.0, 1 / 3, 0.1]),
)
def test_repeats_are_compared_by_exchanging_signs(
    moves: list[int], scale: float
) -> None:
    """With few units that differ, the tail counts all combinations of their signs."""
    values = [move * scale for move in moves if move]
    sums = [
        sum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in itertools.product((-1, 1), repeat=len(values))
    ]
    n_far = sum(total >= abs(sum(values)) - 1e-9 for total in sums)
    expected = min(n_far / len(sums), 0.5) if values else 0.0

    tail = flip_tail(np.array([move * scale for move in moves]))

    assert tail == pytest.approx(expected)


def test_no_difference_says_how_large_it_may_be() -> None:
    """Equal rates are no proof; the sentence says what the interval leaves open."""
    (says,) = contrast_df(right_replies({SMALL: 71, LARGE: 71}), "model")["says"]

    assert says.startswith(
        "No difference in right is seen between 70b and 8b: 71 % against 71 %, "
        "difference 0 points (-2 to 2), so it may be up to 2 points either way; "
    )


def test_the_cheaper_one_may_be_better() -> None:
    """The price is said of the better one."""
    (says,) = contrast_df(right_replies({SMALL: 88, LARGE: 71}), "model")["says"]

    assert says.startswith("8b is right more often than 70b")
    assert says.endswith("8b costs 86 % less.")


@pytest.mark.slow
def test_all_pairs_are_corrected_alike() -> None:
    """By Bonferroni each p of three rows is three times that of its pair alone."""
    grades = {SMALL: LOW, LARGE: HIGH, "o": [2.0, 5.0, 3.5, 4.0, 4.0, 3.0]}
    alone = contrast_df(_graded({SMALL: LOW, LARGE: HIGH}), "model", "grade")

    found = contrast_df(_graded(grades), "model", "grade", correct="bonferroni")

    assert len(found) == 3
    assert found["p"][0] == pytest.approx(3 * alone["p"][0])
    assert found["low"][0] < alone["low"][0]
    assert ((found["p"] < 0.05) == ((found["low"] > 0) | (found["high"] < 0))).all()


def test_a_baseline_is_compared_with_each() -> None:
    """`against` leaves out the other pairs, and corrects for fewer."""
    grades = {SMALL: LOW, LARGE: HIGH, "o": HIGH[::-1]}

    found = contrast_df(_graded(grades), "model", "grade", against=LARGE)

    assert found["level"].tolist() == [SMALL, "o"]
    assert found["against"].tolist() == [LARGE, LARGE]


def test_only_prompts_with_both_count() -> None:
    """A prompt that one model failed on is left out of the other's mean, too."""
    frame = _graded({SMALL: LOW, LARGE: HIGH})
    frame["score_grade"] = frame["score_grade"].mask(
        (frame["model"] == LARGE) & (frame["row"] == 0)
    )

    found = contrast_df(frame, "model", "grade").iloc[0]

    assert found["n_prompts"] == 5
    assert found["mean_against"] == pytest.approx(np.mean(LOW[1:]))


@pytest.mark.slow
def test_other_factors_are_kept_equal() -> None:
    """What one model was asked at one temperature only is not compared with another."""
    cold = _graded({SMALL: LOW, LARGE: HIGH}, temperature=0.0)
    hot = _graded({SMALL: [9.0] * 6}, temperature=1.0)

    found = contrast_df(pd.concat([cold, hot]), "model", "grade").iloc[0]

    assert found["difference"] == pytest.approx(np.mean(HIGH) - np.mean(LOW))


@pytest.mark.slow
def test_factors_that_never_vary_alone_are_said() -> None:
    """If each model has a temperature of its own, the difference may be due to it."""
    frame = pd.concat(
        [
            _graded({SMALL: LOW}, temperature=0.0),
            _graded({LARGE: HIGH}, temperature=1.0),
        ]
    )

    found = contrast_df(frame, "model", "grade")

    assert found["n_prompts"].tolist() == [6]
    assert "model varies only together with temperature" in found["says"][0]


@pytest.mark.slow
def test_a_factor_that_always_varies_along_leaves_the_others_paired() -> None:
    """Of two checks of two models, each model is compared with itself."""
    frame = pd.concat(
        [
            _graded({SMALL: LOW, LARGE: HIGH}, run=run, max_tokens=max_tokens)
            for run, max_tokens in (("old", 20), ("new", 21))
        ]
    )
    frame["score_good"] = frame["score_grade"] > 3

    said = str(contrast(frame, "run", "good"))

    # three replies of each run are good, of the small model two, of the large one four
    assert "both in 5 of 12 pairs" in " ".join(said.split())
    assert "Where repeats differ" not in said
    assert "the runs differ in max_tokens (20 in old, 21 in new)" in " ".join(
        said.split()
    )


def test_not_sent_is_a_level() -> None:
    """A parameter that was not sent is compared with one that was."""
    frame = _graded({None: LOW, 0.7: HIGH}, factor="temperature")

    found = contrast_df(frame, "temperature", "grade")

    assert found["level"].dtype == "Float64"
    assert (
        "higher for temperature=0.7 than for temperature=not sent" in found["says"][0]
    )


def test_labels_stand_for_their_factor() -> None:
    """Prompts with labels are compared by them."""
    frame = replies(
        {
            "row": row,
            "prompt": f"{label} {row}",
            "prompt_template": f"{label} {{{{text}}}}",
            "prompt_label": label,
            "score_grade": grade,
        }
        for label, grades in (("terse", LOW), ("polite", HIGH))
        for row, grade in enumerate(grades)
    )

    found = contrast_df(frame, "prompt", "grade")

    assert found["factor"].tolist() == ["prompt_label"]
    assert found["says"][0].startswith("grade is higher for polite than for terse")


def test_two_prompts_have_numbers_and_no_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fewer than 3 rows have no interval, and a line says why."""
    found = contrast_df(_graded({SMALL: LOW[:2], LARGE: HIGH[:2]}), "model").iloc[0]

    assert found["difference"] == pytest.approx(0.75)
    assert found[["low", "high", "p"]].isna().all()
    assert found["says"].startswith("Too early to say whether grade is higher for 70b")
    assert "at least 3 rows" in capsys.readouterr().err


def test_without_scipy_the_difference_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means and difference need no SciPy; a line names the command for the rest."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    found = contrast_df(_graded({SMALL: LOW, LARGE: HIGH}), "model").iloc[0]

    assert found["difference"] == pytest.approx(np.mean(HIGH) - np.mean(LOW))
    assert found[["low", "high", "p"]].isna().all()
    assert "python -m pip install scipy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("modle",), "Did you mean model"),
        (("temperature",), "has only not sent, but a comparison needs at least two"),
        (("row",), "paired by row, so it cannot be the factor"),
        (("model", "grad"), "Did you mean grade"),
        (("model", "text"), "so it has no mean"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: tuple[str, ...], said: str
) -> None:
    """Wrong factors and scores are refused with what is allowed."""
    with pytest.raises(ParameterError, match=said):
        contrast_df(_graded({SMALL: LOW, LARGE: HIGH}), *arguments)


def test_a_column_of_the_rows_has_no_pairs() -> None:
    """Prompts in two languages are other prompts; the error names what to do."""
    frame = _graded({SMALL: LOW, LARGE: HIGH})
    frame = frame.assign(lang=frame["row"] % 2)

    with pytest.raises(ParameterError, match="give paired=False"):
        contrast_df(frame, "lang")


def test_a_level_without_scores_is_said() -> None:
    """If no prompt has a score of both, the sentence says so."""
    frame = _graded({SMALL: LOW, LARGE: [float("nan")] * 6})

    (says,) = contrast_df(frame, "model")["says"]

    assert says.startswith("No row has a score `grade` for both 70b and 8b.")


def test_a_baseline_that_is_no_level_is_refused() -> None:
    """The error has the values of the factor."""
    with pytest.raises(ParameterError, match=r"Its values are svc-v2-8b-instruct, "):
        contrast_df(_graded({SMALL: LOW, LARGE: HIGH}), "model", against="8b")


def test_several_scores_need_a_name() -> None:
    """Without `on` there must be one score."""
    frame = _graded({SMALL: LOW, LARGE: HIGH}).assign(score_right=True)

    with pytest.raises(ParameterError, match="the scores are grade, right"):
        contrast_df(frame, "model")


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    grades=st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=3, max_size=12
    ),
    order=st.randoms(use_true_random=False),
)
def test_order_and_names_make_no_difference(
    grades: list[tuple[int, int]],
    order: Any,  # noqa: ANN401 - of hypothesis
) -> None:
    """Rows in another order are the same comparison; swapped levels mirror it."""
    low, high = ([float(each) for each in found] for found in zip(*grades, strict=True))
    frame = _graded({SMALL: low, LARGE: high})
    rows = list(range(len(frame)))
    order.shuffle(rows)
    names = ["difference", "low", "high", "p"]

    found = contrast_df(frame, "model", against=SMALL)[names].iloc[0].tolist()
    other = contrast_df(frame.iloc[rows], "model", against=SMALL)[names].iloc[0]
    mirrored = contrast_df(frame, "model", against=LARGE)[names].iloc[0].tolist()

    assert other.isna().tolist() == [each is pd.NA for each in found]
    if found[1] is not pd.NA:
        assert other.tolist() == pytest.approx(found)
        assert mirrored == pytest.approx([-found[0], -found[2], -found[1], found[3]])


def test_runs_with_templates_of_their_own_have_no_pairs() -> None:
    """The error says that each text is a prompt, and how to compare templates."""
    frame = replies(
        {"row": row, "run": run, "prompt": f"{run} {row}", "model": model}
        | {"score_right": True}
        for run, model in (("first", SMALL), ("second", LARGE))
        for row in range(4)
    )

    with pytest.raises(ParameterError, match="each text counts as a separate prompt"):
        contrast_df(frame, "model", "right")


def test_a_contrast_is_read_as_its_sentences() -> None:
    """It shows what it says, and its frame is that of `contrast_df`."""
    frame = right_replies({SMALL: 71, LARGE: 88})

    compared = contrast(frame, "model", on="right")

    assert " ".join(repr(compared).split()).startswith(compared.says[0])
    assert compared.says == compared.df["says"].tolist()
    assert (compared.factors, compared.scores) == (["model"], ["score_right"])
    assert compared.unit == ["row"]
    pd.testing.assert_frame_equal(compared.df, contrast_df(frame, "model", "right"))


def test_rows_that_only_one_has_are_counted() -> None:
    """A run that was interrupted has few rows in common, and its sentence says so."""
    half = right_replies({SMALL: 20, LARGE: 30}, 40)
    is_kept = (half["row"] < 25) | (half["model"] == LARGE)

    some, whole = (contrast(df, "model", on="right") for df in (half[is_kept], half))

    says = " ".join(str(some).split())
    both = "Only 25 rows have a score `right` for both; 15 have it for one of them."
    assert both in says
    assert "for both;" not in str(whole)

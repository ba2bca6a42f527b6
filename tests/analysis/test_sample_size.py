"""A pilot says how many prompts and repeats a study needs."""

import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import svc_notebook as svc
from svc_notebook.analysis.rounding import round_up
from svc_notebook.analysis.sample_size import Needed, how_many
from svc_notebook.errors import ConfigError, ParameterError
from tests.analysis.make import LARGE, SMALL, replies, right_replies


def _graded(
    differences: list[float],
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return two models whose grades differ by so much, prompt by prompt."""
    return replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "model": model,
                "score_grade": grade,
                "document": f"text {row // 2}",
                **more,
            }
            for row, difference in enumerate(differences)
            for model, grade in ((SMALL, 5.0), (LARGE, 5.0 + difference))
        ),
        middle=["document"],
    )


def _power(n: int, effect: float, *, level: float = 0.95, sides: int = 2) -> float:
    """Return the power of a paired t-test, by SciPy's noncentral distribution."""
    quantile = stats.t.ppf(1 - (1 - level) / 2, n - 1)
    test = stats.nct(n - 1, effect * n**0.5)
    return float(test.sf(quantile) + (test.cdf(-quantile) if sides > 1 else 0.0))


# the mean is 0 and the standard deviation 1
STEADY = (np.array([-3, -2, -1, 0, 1, 2, 3]) / (28 / 6) ** 0.5).tolist()


@pytest.mark.parametrize(
    ("effect", "power", "n"), [(0.5, 0.8, 34), (0.2, 0.8, 199), (0.5, 0.9, 44)]
)
def test_sample_sizes_are_the_published_ones(
    effect: float, power: float, n: int
) -> None:
    """They are those of G*Power (Faul et al. 2007), TTestPower, and SciPy's test."""
    needed = svc.how_many(effect, pilot=_graded(STEADY), power=power)

    assert needed.n_prompts == n
    assert _power(n, effect) >= power > _power(n - 1, effect)


def test_a_margin_looks_at_one_side() -> None:
    """It is ruled out by the lower end alone, at the level of `contrast`'s interval."""
    pilot = _graded(STEADY)

    needed = svc.how_many(0.9, pilot=pilot, margin=True, level=0.9, power=0.9)

    n = needed.n_prompts
    assert _power(n, 0.9, level=0.9, sides=1) >= 0.9
    assert _power(n - 1, 0.9, level=0.9, sides=1) < 0.9
    assert str(needed).startswith(
        "To show that a value of model is at most 0.9 worse in grade, 9 of 10 times if"
    )


def test_labels_of_a_factor_go_by_its_name() -> None:
    """Where values have labels, the sentence names the factor, not their column."""
    pilot = _graded([0.1, 0.4, -0.2, 0.3])
    labelled = pilot.assign(model_label=pilot["model"].map({SMALL: "a", LARGE: "b"}))

    said = str(svc.how_many(0.3, pilot=labelled))

    assert "between values of model " in said


def test_a_pilot_of_ten_rows_knows_it_roughly() -> None:
    """The interval is that of chi-square for the variance; it is in the sentence."""
    rng = np.random.default_rng(3)
    differences = rng.normal(0, 1, 10)

    needed = svc.how_many(0.3, pilot=_graded(differences.tolist()))

    spread = differences.std(ddof=1)
    low, high = spread * np.sqrt(9 / stats.chi2.ppf([0.975, 0.025], 9))
    for n, end in (
        (needed.n_prompts_low, low),
        (needed.n_prompts, spread),
        (needed.n_prompts_high, high),
    ):
        assert _power(n, 0.3 / end) >= 0.8 > _power(n - 1, 0.3 / end)
    assert "A pilot of 10 rows knows this roughly: it may be " in str(needed)
    assert "Plan a new run" in str(needed)


def test_the_interval_of_rates_is_about_the_share_that_differs() -> None:
    """Three of ten prompts differ, which Wilson's interval says is 0.1 to 0.6."""
    pilot = right_replies({SMALL: 5, LARGE: 8}, n_prompts=10)

    needed = svc.how_many(0.1, pilot=pilot)

    assert 15 < needed.n_prompts_low < needed.n_prompts / 2
    assert 1.5 * needed.n_prompts < needed.n_prompts_high < 3 * needed.n_prompts


def test_no_difference_in_a_pilot_is_no_certainty() -> None:
    """Ten prompts that both got right may hide that a third would differ."""
    needed = svc.how_many(
        0.1, pilot=right_replies({SMALL: 10, LARGE: 10}, n_prompts=10)
    )

    assert needed.n_prompts_low == 3
    assert needed.n_prompts_high > 200


def test_fewer_comparisons_need_fewer_prompts() -> None:
    """Against one of four values there are three pairs to correct for, not six."""
    pilot = right_replies({"a": 4, "b": 6, "c": 7, "d": 9}, n_prompts=20)

    every = svc.how_many(0.1, pilot=pilot)
    one = svc.how_many(0.1, pilot=pilot, against="a")

    assert one.n_prompts < every.n_prompts
    assert one.n_requests == 4 * one.n_prompts


def test_rows_of_a_document_need_more_of_them() -> None:
    """Where both rows of a document differ alike, twice as many rows are needed."""
    rng = np.random.default_rng(1)
    pilot = _graded(np.repeat(rng.normal(0, 1, 20), 2).tolist())

    alone = svc.how_many(0.2, pilot=pilot)
    together = svc.how_many(0.2, pilot=pilot, unit="document")

    assert together.n_prompts == pytest.approx(2 * alone.n_prompts, rel=0.05)
    assert "values of document" in str(together)
    assert "A pilot of 20 values of document" in str(together)


@pytest.mark.parametrize("n_repeats", [1, 3])
@pytest.mark.parametrize("unit", [None, "document"])
def test_another_factor_is_no_repeat(n_repeats: int, unit: str | None) -> None:
    """With a second factor, too, the plan is that of the sentence of `contrast`."""
    rng = np.random.default_rng(4)
    pilot = replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "model": model,
                "temperature": temperature,
                "repeat": repeat,
                "score_right": bool(rng.random() < rate),
                "document": f"text {row // 4}",
            }
            for row in range(60)
            for model, rate in ((SMALL, 0.6), (LARGE, 0.65))
            for temperature in (0.0, 1.0)
            for repeat in range(n_repeats)
        ),
        middle=["document"],
    )
    compared = svc.contrast(pilot, "model", unit=unit)
    seen = abs(float(compared.df["difference"][0]))

    needed = svc.how_many(seen, pilot=pilot, factor="model", unit=unit)

    found = re.search(r"a new run with ([\d,]+) ", compared.says[0])
    assert found is not None
    said = int(found[1].replace(",", "")) * (4 if unit else 1)
    assert round_up(needed.options[n_repeats]) == pytest.approx(said, abs=3)
    assert needed.n_requests == 4 * needed.n_prompts * min(needed.options)
    assert "with every temperature" in str(needed)


def test_a_pilot_says_how_many_prompts() -> None:
    """A smaller difference needs more prompts, four times as many for half of it."""
    pilot = right_replies({SMALL: 14, LARGE: 16}, n_prompts=20)

    large, small = (how_many(each, pilot, None, None) for each in (0.2, 0.1))

    assert small.n_prompts == pytest.approx(4 * large.n_prompts, rel=0.1)
    assert small.n_requests == 2 * small.n_prompts
    assert repr(small).startswith("To find a difference of 10 points in right between")


def _labelled(
    n_rows: int,
    n_labelled: int,
    *,
    wrong: float = 0.1,
    seed: int = 5,
    n_repeats: int = 1,
) -> pd.DataFrame:
    """Return verdicts on two models, good for 50 % and 60 %, and labels of some."""
    rng = np.random.default_rng(seed)
    df = replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "model": model,
                "repeat": repeat,
                "is_good": bool(rng.random() < rate),
                "document": row // 4,
            }
            for model, rate in ((SMALL, 0.5), (LARGE, 0.6))
            for row in range(n_rows)
            for repeat in range(n_repeats)
        ),
        middle=["document", "is_good"],
    )
    is_good = df.pop("is_good").astype("boolean")
    return df.assign(
        score_judge=is_good ^ (rng.random(len(df)) < wrong),
        score_rated=is_good.where(df["row"] < n_labelled),
    )


def _plan(
    pilot: pd.DataFrame,
    difference: float = 0.1,
    **more: Any,  # noqa: ANN401 - any option
) -> Needed:
    return svc.how_many(
        difference, pilot=pilot, factor="model", on="judge", labels="rated", **more
    )


@pytest.mark.parametrize(
    ("n_labelled", "unit"), [(40, None), (60, None), (60, "document")]
)
def test_a_plan_with_labels_ends_in_the_plan_of_labels_alone(
    n_labelled: int, unit: str | None
) -> None:
    """With fewer labels it takes more rows; the last option is that without a judge."""
    pilot = _labelled(200, n_labelled)

    needed = _plan(pilot, unit=unit)
    alone = svc.how_many(0.1, pilot=pilot, factor="model", on="rated", unit=unit)

    labelled, prompts = (needed.df[name].tolist() for name in needed.df)
    assert [labelled[-1], prompts[-1]] == [alone.n_prompts, alone.n_prompts]
    assert labelled == sorted(labelled)
    assert prompts == sorted(prompts, reverse=True)
    assert needed.options[needed.n_labelled] == needed.n_prompts
    assert needed.n_labelled < alone.n_prompts < needed.n_prompts <= 2 * alone.n_prompts
    assert needed.n_prompts_low < needed.n_prompts < needed.n_prompts_high
    assert needed.n_requests == 2 * needed.n_prompts


def test_a_plan_with_labels_says_what_both_would_take() -> None:
    """Rows, those of them with labels, and what labels alone would take."""
    said = str(_plan(_labelled(200, 40)))

    about, number = "10 times, you need about ", r"[\d,]+"
    assert re.search(
        rf"{about}{number} rows with judge, {number} of them also with rated "
        rf"\({number} labels\), or {number} rows that all have rated\. ",
        said,
    )
    assert "correlate by 0.7" in said
    assert "Its 40 rows with labels know this roughly" in said
    assert "Draw the rows with labels at random. Plan a new run" in said


def test_a_pilot_whose_replies_all_have_labels_plans_as_well() -> None:
    """What a judge saves is seen also where it saved nothing in the pilot."""
    part, whole = _plan(_labelled(60, 59)), _plan(_labelled(60, 60))

    assert whole.n_labelled == pytest.approx(part.n_labelled, rel=0.2)
    assert whole.n_labelled < list(whole.options)[-1]


def test_a_useless_judge_saves_no_labels() -> None:
    """One that guesses leaves the plan of the labels alone, and its interval."""
    pilot = _labelled(200, 60).assign(score_judge=True)

    needed = _plan(pilot)
    alone = svc.how_many(0.1, pilot=pilot, factor="model", on="rated")

    assert needed.options == {alone.n_prompts: alone.n_prompts}
    assert needed[:4] == alone[:4]
    assert "judge would not save enough of them" in str(needed)


def test_a_judge_that_never_erred_may_still_err() -> None:
    """The plan allows for one more row on which judge and label differ."""
    needed = _plan(_labelled(200, 40, wrong=0.0))

    assert needed.n_labelled >= 30
    assert needed.n_prompts_high > 1.5 * needed.n_prompts


def test_labels_of_repeats_are_planned_as_in_the_pilot() -> None:
    """Each prompt is asked as often again, and all its replies get labels."""
    needed = _plan(_labelled(60, 40, n_repeats=3))

    assert needed.n_requests == 6 * needed.n_prompts
    labels = re.search(
        r"([\d,]+) of them also with rated \(([\d,]+) labels", str(needed)
    )
    assert labels is not None
    n_labelled, n_labels = (int(number.replace(",", "")) for number in labels.groups())
    assert n_labels == pytest.approx(6 * n_labelled, rel=0.1)


@pytest.mark.slow
@given(
    difference=st.floats(0.03, 0.5),
    power=st.floats(0.3, 0.95),
    wrong=st.floats(0, 0.5),
    is_margin=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_fewer_labels_never_take_fewer_rows(
    difference: float, power: float, wrong: float, *, is_margin: bool
) -> None:
    """Whatever is planned, options are in order, and none has more labels than rows."""
    pilot = _labelled(60, 40, wrong=wrong)

    needed = _plan(pilot, difference, power=power, margin=is_margin)

    rows = list(needed.options.values())
    assert rows == sorted(rows, reverse=True)
    assert all(n <= n_rows for n, n_rows in needed.options.items())
    assert needed.n_prompts_low <= needed.n_prompts <= needed.n_prompts_high
    assert list(needed.df.columns) == ["n_labelled", "n_prompts"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [("judge", "is also compared in on"), ("ratd", "labels='ratd' is not a score")],
)
def test_labels_that_cannot_be_planned_with_are_refused(
    labels: str, message: str
) -> None:
    """They are another score than that which they correct."""
    with pytest.raises(ParameterError, match=message):
        svc.how_many(
            0.1, pilot=_labelled(9, 9), factor="model", on="judge", labels=labels
        )


def test_two_rows_with_labels_are_no_pilot() -> None:
    """The message counts the rows with labels, not all of them."""
    with pytest.raises(ParameterError, match=r"better 30, .* with labels, .* has 2\."):
        _plan(_labelled(50, 2))


@pytest.mark.slow
def test_a_planned_study_finds_the_difference_as_often_as_it_says() -> None:
    """A judge and labels as planned find 10 points in 8 of 10 studies or nearly so."""
    needed = _plan(_labelled(4000, 4000))

    p = [
        svc.contrast(
            _labelled(needed.n_prompts, needed.n_labelled, seed=seed),
            "model",
            "judge",
            labels="rated",
        ).df["p"][0]
        for seed in range(100)
    ]

    assert 0.7 <= np.mean(np.array(p) < 0.05) <= 0.9


@pytest.mark.slow
def test_a_pilot_says_how_roughly_it_knows() -> None:
    """The rows that such a share of labels really takes are nearly always within."""
    truth = _plan(_labelled(4000, 4000)).df.to_numpy(float)
    shares, rows = truth[:, 0] / truth[:, 1], np.log(truth[:, 1])

    plans = [_plan(_labelled(200, 40, seed=seed)) for seed in range(100)]

    need = [np.exp(np.interp(p.n_labelled / p.n_prompts, shares, rows)) for p in plans]
    held = [
        plan.n_prompts_low <= n <= plan.n_prompts_high
        for plan, n in zip(plans, need, strict=True)
    ]
    assert np.mean(held) >= 0.85


@pytest.mark.slow
def test_repeats_save_prompts_where_replies_vary() -> None:
    """With repeats in the pilot each number of repeats has its number of prompts."""
    rng = np.random.default_rng(1)
    pilot = pd.concat(
        [
            right_replies({SMALL: 0, LARGE: 0}, 20, repeat=repeat).assign(
                score_right=rng.random(40) < 0.7
            )
            for repeat in range(3)
        ]
    )

    options = how_many(0.05, pilot, "model", "right").options

    assert list(options) == [1, 2, 3, 5, 10]
    assert options[10] < options[1] / 4


@pytest.mark.slow
def test_planning_needs_scipy_and_a_sound_pilot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Differences must be possible; without SciPy the command is named."""
    pilot = right_replies({SMALL: 1, LARGE: 2}, n_prompts=4)

    with pytest.raises(ParameterError, match="difference must be a number > 0"):
        how_many(0, pilot, None, None)
    with pytest.raises(ParameterError, match=r"0\.05 for 5 points"):
        how_many(5, pilot, None, None)
    with pytest.raises(ParameterError, match="power must be between 0 and 1"):
        how_many(0.1, pilot, None, None, power=80)
    with pytest.raises(ParameterError, match="level must be between 0 and 1"):
        how_many(0.1, pilot, None, None, level=95)
    with pytest.raises(ParameterError, match="margin must be True or False"):
        how_many(0.1, pilot, None, None, margin=0.03)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ParameterError, match="not a column of the frame"):
        how_many(0.1, pilot, None, None, unit="documents")
    with pytest.raises(ParameterError, match="Name the factor"):
        how_many(0.1, pilot[pilot["model"] == SMALL], None, None)
    with pytest.raises(ParameterError, match="needs at least 3"):
        how_many(0.1, pilot[pilot["row"] < 2], None, None)
    with pytest.raises(ParameterError, match="differences that vary"):
        how_many(0.1, pilot.assign(score_right=3.0), None, None)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ConfigError, match="Sample sizes need scipy"):
        how_many(0.1, pilot, None, None)

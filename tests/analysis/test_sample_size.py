"""A pilot says how many prompts and repeats a study needs."""

import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import svc_notebook as svc
from svc_notebook.analysis.rounding import round_up
from svc_notebook.analysis.sample_size import how_many
from svc_notebook.errors import ConfigError, ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _right(
    rates: dict[str, int],
    n_prompts: int = 100,
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return models that are right for the first so many of the prompts."""
    cost = {SMALL: 0.01, LARGE: 0.07}
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "model": model,
            "score_right": row < n_right,
            "cost": cost.get(model, 0.02),
            **more,
        }
        for model, n_right in rates.items()
        for row in range(n_prompts)
    )


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
    pilot = _right({SMALL: 5, LARGE: 8}, n_prompts=10)

    needed = svc.how_many(0.1, pilot=pilot)

    assert 15 < needed.n_prompts_low < needed.n_prompts / 2
    assert 1.5 * needed.n_prompts < needed.n_prompts_high < 3 * needed.n_prompts


def test_no_difference_in_a_pilot_is_no_certainty() -> None:
    """Ten prompts that both got right may hide that a third would differ."""
    needed = svc.how_many(0.1, pilot=_right({SMALL: 10, LARGE: 10}, n_prompts=10))

    assert needed.n_prompts_low == 3
    assert needed.n_prompts_high > 200


def test_fewer_comparisons_need_fewer_prompts() -> None:
    """Against one of four values there are three pairs to correct for, not six."""
    pilot = _right({"a": 4, "b": 6, "c": 7, "d": 9}, n_prompts=20)

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
    pilot = _right({SMALL: 14, LARGE: 16}, n_prompts=20)

    large, small = (how_many(each, pilot, None, None) for each in (0.2, 0.1))

    assert small.n_prompts == pytest.approx(4 * large.n_prompts, rel=0.1)
    assert small.n_requests == 2 * small.n_prompts
    assert repr(small).startswith("To find a difference of 10 points in right between")


@pytest.mark.slow
def test_repeats_save_prompts_where_replies_vary() -> None:
    """With repeats in the pilot each number of repeats has its number of prompts."""
    rng = np.random.default_rng(1)
    pilot = pd.concat(
        [
            _right({SMALL: 0, LARGE: 0}, 20, repeat=repeat).assign(
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
    pilot = _right({SMALL: 1, LARGE: 2}, n_prompts=4)

    with pytest.raises(ParameterError, match="difference must be a number > 0"):
        how_many(0, pilot, None, None)
    with pytest.raises(ParameterError, match=r"0\.05 for 5 points"):
        how_many(5, pilot, None, None)
    with pytest.raises(ParameterError, match="power must be a share < 1"):
        how_many(0.1, pilot, None, None, power=80)
    with pytest.raises(ParameterError, match="level must be a share < 1"):
        how_many(0.1, pilot, None, None, level=95)
    with pytest.raises(ParameterError, match="margin must be True or False"):
        how_many(0.1, pilot, None, None, margin=0.03)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ParameterError, match="not a column of the frame"):
        how_many(0.1, pilot, None, None, unit="documents")
    with pytest.raises(ParameterError, match="factor is needed"):
        how_many(0.1, pilot[pilot["model"] == SMALL], None, None)
    with pytest.raises(ParameterError, match="needs at least 3"):
        how_many(0.1, pilot[pilot["row"] < 2], None, None)
    with pytest.raises(ParameterError, match="different differences"):
        how_many(0.1, pilot.assign(score_right=3.0), None, None)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ConfigError, match="Sample sizes need scipy"):
        how_many(0.1, pilot, None, None)

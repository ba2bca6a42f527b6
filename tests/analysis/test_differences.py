"""Differences of figures: their intervals and p are SciPy's where it has them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.analysis.differences import (
    Correction,
    Figure,
    RatesEstimate,
    Shape,
    StudentEstimate,
    corrected,
    p_value,
    units_needed,
)
from svc_notebook.analysis.statistics import Floats, Prompts

FIRST = np.array([3.0, 4.5, 4.0, 5.0, 3.5, 2.0, 4.0])
SECOND = np.array([2.5, 4.5, 3.0, 4.0, 3.0, 2.5])
TAIL = 0.025
Codes = np.ndarray[tuple[int], np.dtype[np.int64]]


def _mean(values: Floats, unit: Codes | None = None, n_units: int = 20) -> Figure:
    unit = np.arange(len(values)) if unit is None else unit
    return Figure.mean(values, np.ones(len(values)), unit, n_units)


def test_figures_over_other_units_are_compared_by_welch() -> None:
    """Interval and p are those of SciPy's test for unequal variances."""
    stats = pytest.importorskip("scipy.stats")
    expected = stats.ttest_ind(FIRST, SECOND, equal_var=False)

    figure = _mean(FIRST) - _mean(SECOND, 10 + np.arange(len(SECOND)))
    estimate = StudentEstimate.of(figure)

    assert p_value(estimate) == pytest.approx(expected.pvalue)
    assert estimate.ends(TAIL) == pytest.approx(tuple(expected.confidence_interval()))


def test_units_of_one_size_are_compared_by_their_means() -> None:
    """Four rows of each of six documents are six values, as Student has it."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    document = np.repeat(np.arange(6), 4)
    values = rng.normal(0.5, 1, 6)[document] + rng.normal(0, 0.3, 24)
    expected = stats.ttest_1samp(values.reshape(6, 4).mean(axis=1), 0)

    estimate = StudentEstimate.of(_mean(values, document))

    assert estimate.n_units == 6
    assert estimate.freedom == pytest.approx(5)
    assert p_value(estimate) == pytest.approx(expected.pvalue)
    assert estimate.ends(TAIL) == pytest.approx(tuple(expected.confidence_interval()))


def test_rates_are_compared_by_newcombe() -> None:
    """His example: 56 of 70 against 48 of 80 is 0.20 (0.0524 to 0.3339)."""
    right = np.array([True] * 56 + [False] * 14 + [True] * 48 + [False] * 32)
    group = np.repeat([0, 1], [70, 80])

    estimate = RatesEstimate(Prompts.of(right.astype(float), np.arange(150), group, 2))

    assert estimate.value == pytest.approx(0.2)
    # Student's t is a little wider than the normal distribution
    assert estimate.ends(TAIL) == pytest.approx((0.0524, 0.3339), abs=0.004)
    assert p_value(estimate) == pytest.approx(0.0086, abs=0.002)


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(
        st.tuples(st.floats(0.1, 30), st.floats(0.1, 30)), min_size=4, max_size=12
    ),
    null=st.sampled_from([-1.0, 2.0]),
)
def test_an_interval_ends_where_p_says(
    seconds: list[tuple[float, float]], null: float
) -> None:
    """The interval of the level 1 - p ends at the null; of seconds, if it is 0."""
    one, other = (_mean(np.array(values)) for values in zip(*seconds, strict=True))
    for shape, tested in ((None, null), (Shape.of(one, other), 0.0)):
        estimate = StudentEstimate.of(one - other, largest=30, shape=shape)
        p = p_value(estimate, tested)
        if 1e-9 < p < 1:
            low, high = estimate.ends(p / 2)
            near = min(abs(low - tested), abs(high - tested))
            assert near == pytest.approx(0, abs=1e-4 * (high - low) + 1e-9)


def test_equal_means_of_seconds_are_compared_by_student() -> None:
    """The correction for skew makes no false alarms: p of no difference is plain."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(2)
    one, other = rng.lognormal(0, 1, (2, 12))
    figures = _mean(one), _mean(other)

    estimate = StudentEstimate.of(figures[0] - figures[1], shape=Shape.of(*figures))

    assert p_value(estimate) == pytest.approx(stats.ttest_rel(one, other).pvalue)


def test_holm_finds_what_bonferroni_does_and_more() -> None:
    """Corrected p are those that are published; NaN stays and is not counted."""
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])

    holm = corrected(p)
    bonferroni = corrected(p, correct="bonferroni")

    assert holm.p == pytest.approx([0.03, np.nan, 0.06, 0.06, 0.02], nan_ok=True)
    assert bonferroni.p == pytest.approx([0.04, np.nan, 0.16, 0.12, 0.02], nan_ok=True)
    assert corrected(p, correct=None).p is p


@settings(max_examples=30, deadline=None)
@given(
    shifts=st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    correct=st.sampled_from(["holm", "bonferroni", None]),
    level=st.sampled_from([0.8, 0.95]),
)
def test_p_is_low_exactly_where_the_interval_leaves_out_zero(
    shifts: list[float], correct: Correction | None, level: float
) -> None:
    """So it is for each correction of a family."""
    estimates = [StudentEstimate.of(_mean(FIRST - 4 + shift)) for shift in shifts]
    known = corrected(
        np.array([p_value(one) for one in estimates]), level=level, correct=correct
    )

    for estimate, p, tail in zip(estimates, known.p, known.tail, strict=True):
        low, high = estimate.ends(tail)
        if abs(p - (1 - level)) > 1e-9:
            assert (p < 1 - level) == (low > 0 or high < 0)


def test_a_rounding_error_is_no_spread() -> None:
    """25 rows of 0.1 against 0.3 tell nothing about other rows."""
    figure = _mean(np.array([0.3] * 25), n_units=25) - _mean(
        np.array([0.1] * 25), n_units=25
    )
    noisy = _mean(np.array([0.3, 0.1 + 0.2] * 9)) - _mean(np.array([0.1] * 18))

    for one in (figure, noisy):
        assert np.isnan(StudentEstimate.of(one, largest=0.3).error)


def test_shares_differ_by_one_at_most() -> None:
    """An interval of shares stays in what is possible."""
    estimate = StudentEstimate.of(_mean(np.array([0.9, 1.0, 0.2])), most=1.0)

    assert estimate.ends(TAIL)[1] == 1.0


def _coverage(draw: Callable[[], StudentEstimate], truth: float) -> float:
    """Return how often an interval holds what is true."""
    n_runs = 1000
    ends = [draw().ends(TAIL) for _ in range(n_runs)]
    return sum(low <= truth <= high for low, high in ends) / n_runs


@pytest.mark.slow
def test_documents_of_other_sizes_are_covered() -> None:
    """15 documents of 1 to 30 rows: as rows they are held in half of the studies."""
    rng = np.random.default_rng(7)
    unit = np.repeat(np.arange(15), np.linspace(1, 30, 15).astype(int))

    def draw() -> StudentEstimate:
        values = rng.normal(0, 1, 15)[unit] + rng.normal(0, 0.5, len(unit))
        return StudentEstimate.of(_mean(values, unit, 15))

    assert _coverage(draw, 0) == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("times", "plain"), [(1, 0.96), (4, 0.90)])
def test_differences_of_seconds_are_covered(times: float, plain: float) -> None:
    """10 rows, where one model takes 4 times as long, are held in 0.90 by plain t."""
    rng = np.random.default_rng(8)

    def draw(*, is_skewed: bool) -> StudentEstimate:
        both = rng.normal(0, 0.5, 10) + rng.normal(0, 0.5, (2, 10)) - 0.25
        slow, quick = (_mean(values) for values in np.exp(both) * [[times], [1]])
        shape = Shape.of(slow, quick) if is_skewed else None
        return StudentEstimate.of(slow - quick, shape=shape)

    without = _coverage(lambda: draw(is_skewed=False), times - 1)
    assert without == pytest.approx(plain, abs=0.02)
    assert _coverage(lambda: draw(is_skewed=True), times - 1) > 0.93


def test_a_larger_difference_never_needs_more_units() -> None:
    """From 0.05 to 20 standard deviations the number falls to the least one."""
    sizes = np.geomspace(0.05, 20, 200)

    n_units = [units_needed(1.0, float(size), tail=0.025) for size in sizes]

    assert n_units == sorted(n_units, reverse=True)
    assert n_units[-1] == 3

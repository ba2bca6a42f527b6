"""Confidence sequences: what they hold, whenever one looks."""

from fractions import Fraction
from math import log, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.analysis.sequential import (
    MIN_UNITS,
    BettingSequence,
    NormalSequence,
    sequence_of,
)

STAKES = [0.02 * 50 ** (n / 15) for n in range(16)]
units_between = st.lists(
    st.integers(-10, 10).map(lambda tenths: tenths / 10), min_size=1, max_size=40
)
tails = st.sampled_from([0.025, 0.005, 0.1])


def capital(units: list[float], null: float) -> float:
    """Bet one unit after the other against a mean, with exact fractions."""
    exact, mean = [Fraction(unit) for unit in units], Fraction(null)
    totals = [
        prod(1 + Fraction(stake) / (1 + mean) * (unit - mean) for unit in exact)
        for stake in STAKES
    ]
    return float(sum(totals) / len(totals))


@pytest.mark.slow
@given(units_between, st.sampled_from([-0.5, -0.03, 0.0, 0.03, 0.4]))
def test_capital_is_what_bets_in_turn_make_of_it(
    units: list[float], null: float
) -> None:
    """The chances are those of a gambler who bets unit by unit, in exact fractions."""
    above, below = BettingSequence.of(np.array(units)).chances(null)

    mirrored = [-unit for unit in units]
    assert above == pytest.approx(1 / max(capital(units, null), 1.0), rel=1e-6)
    assert below == pytest.approx(1 / max(capital(mirrored, -null), 1.0), rel=1e-6)


@pytest.mark.slow
def test_fair_bets_keep_their_mean() -> None:
    """Over all outcomes of fair coins, capital is 1 on average: nothing is won."""
    outcomes = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T

    mean = np.mean([capital(outcome.tolist(), 0.0) for outcome in outcomes])

    assert mean == pytest.approx(1.0)


def test_the_asymptotic_width_is_the_published_one() -> None:
    """At 100 units it is the two-sided normal mixture that confseq's tests state."""
    sequence = NormalSequence(0.0, 1.0, 100)

    low, high = sequence.ends(0.025)

    assert 100 * high == pytest.approx(30.35209, abs=1e-4)
    assert low == -high
    # their log of the mixture for a sum of 10, from which p follows
    assert log(NormalSequence(0.1, 1.0, 100).p()) == pytest.approx(0.0)
    assert log(NormalSequence(0.4, 1.0, 100).p()) == pytest.approx(
        log((100 + 12.60056) / 12.60056) / 2 - 40**2 / (2 * 112.60056)
    )


@pytest.mark.slow
@given(units_between, tails)
def test_an_interval_ends_where_p_is_its_level(units: list[float], tail: float) -> None:
    """An end has the p of both tails, and the mean itself has 1."""
    sequence = BettingSequence.of(np.array(units))

    low, high = sequence.ends(tail)

    assert -1 <= low <= sequence.value <= high <= 1
    for end in (low, high):
        if -0.999 < end < 0.999:
            assert sequence.p(end) == pytest.approx(2 * tail, rel=1e-4)
    assert sequence.p(sequence.value) == 1.0


@pytest.mark.slow
@given(units_between)
def test_the_order_of_units_does_not_matter(units: list[float]) -> None:
    """The same units in another order have the same interval."""
    one, other = (
        BettingSequence.of(np.array(order)).ends(0.025)
        for order in (units, sorted(units))
    )

    assert one == other


@pytest.mark.slow
@given(units_between)
def test_both_sides_are_alike(units: list[float]) -> None:
    """Differences the other way round have the mirrored interval."""
    low, high = BettingSequence.of(np.array(units)).ends(0.025)
    other = BettingSequence.of(-np.array(units)).ends(0.025)

    assert other == pytest.approx((-high, -low))


@pytest.mark.parametrize("is_bounded", [True, False])
def test_as_many_as_would_tell_do_tell(is_bounded: bool) -> None:
    """Units like those seen leave a mean out at the number that is said, not before."""
    units = np.array([1.0, 0.0, 0.0, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0] * 4)

    n = sequence_of(units, is_bounded=is_bounded).n_would_tell(0.0, 0.025)

    assert n is not None
    few, many = (
        sequence_of(np.tile(units[:10], times), is_bounded=is_bounded).ends(0.025)[0]
        for times in (n // 10 - 1, n // 10 + 2)
    )
    assert few < 0 < many


def test_what_will_never_tell_has_no_number() -> None:
    """Without any difference no number of units tells it from 0."""
    assert BettingSequence.of(np.zeros(50)).n_would_tell(0.0, 0.025) is None
    assert NormalSequence.of(np.tile([-1.0, 1.0], 20)).n_would_tell(0.0, 0.025) is None


def test_units_that_never_differ_still_narrow_the_interval() -> None:
    """300 units without a difference rule out a mean difference of 3 points."""
    low, high = BettingSequence.of(np.zeros(300)).ends(0.025)

    assert -0.03 < low < 0 < high < 0.03


def test_no_units_know_nothing() -> None:
    """Without units there is no interval, and no p."""
    sequence = BettingSequence.of(np.zeros(0))

    assert np.isnan([*sequence.ends(0.025), sequence.p(), sequence.value]).all()


def test_numbers_without_bounds_need_twenty_units() -> None:
    """With fewer units, or units that are all alike, there is no interval."""
    units = np.arange(MIN_UNITS, dtype=float)

    few, enough = (NormalSequence.of(units[:n]).ends(0.025) for n in (19, 20))

    assert np.isnan(few).all()
    assert enough[0] < units.mean() < enough[1]
    assert np.isnan(NormalSequence.of(np.full(30, 0.3)).ends(0.025)).all()


@pytest.mark.slow
def test_an_interval_holds_at_all_looks_at_once() -> None:
    """Of 400 studies with a look at each unit, few are ever wrong about the mean."""
    chance = np.random.default_rng(7)
    studies = chance.choice([-1.0, 0.0, 1.0], p=[0.1, 0.75, 0.15], size=(400, 300))

    n_wrong = sum(
        any(
            BettingSequence.of(units[:n]).p(0.05) < 0.05
            for n in range(10, len(units) + 1, 10)
        )
        for units in studies
    )

    assert n_wrong / len(studies) <= 0.05

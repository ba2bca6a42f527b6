"""Shares over prompts: their intervals are Wilson's, and hold what was planted."""

import numpy as np
import pytest
from scipy import stats

from svc_notebook.analysis.statistics import Ratios, wilson

RIGHT = np.array([1.0] * 7 + [0.0] * 3)
ONCE = np.ones(10)
UNIT = np.arange(10)
GROUP = np.zeros(10, dtype=int)


def test_a_share_of_single_replies_is_wilsons() -> None:
    """Seven of ten independent replies have Wilson's interval, with t of 9."""
    share = Ratios.of(RIGHT, ONCE, UNIT, GROUP, 1).share()

    assert share.value[0] == pytest.approx(0.7)
    assert (share.low[0], share.high[0]) == pytest.approx(
        wilson(0.7, 10, stats.t.ppf(0.975, 9))
    )


def test_nothing_wrong_still_has_an_interval() -> None:
    """Ten of ten units have Wilson's interval for ten, however large the units are."""
    few = Ratios.of(ONCE, ONCE, UNIT, GROUP, 1).share()
    large = Ratios.of(ONCE * 5, ONCE * 5, UNIT, GROUP, 1).share()

    assert few.low[0] == pytest.approx(wilson(1.0, 10, stats.t.ppf(0.975, 9))[0])
    assert large.low[0] == pytest.approx(few.low[0])


def test_rows_of_a_unit_that_are_all_equal_count_once() -> None:
    """Four rows of each of ten documents tell as much as one, if they are all alike."""
    once = Ratios.of(RIGHT, ONCE, UNIT, GROUP, 1).share()

    codes = np.repeat(UNIT, 4)
    rows = Ratios.of(np.repeat(RIGHT, 4), np.ones(40), codes, codes * 0, 1).share()

    assert rows.low[0] == pytest.approx(once.low[0])


def test_a_mean_of_one_share_is_that_share() -> None:
    """The macro average of a single label has the label's own interval."""
    ratios = Ratios.of(RIGHT, ONCE, UNIT, GROUP, 1)

    share, mean = ratios.share(), ratios.mean(np.zeros(1, dtype=int), 1)

    assert mean.value[0] == share.value[0]
    assert (mean.low[0], mean.high[0]) == pytest.approx((share.low[0], share.high[0]))


def test_two_units_have_no_interval() -> None:
    """Fewer than three units have a share and no interval; none have nothing."""
    share = Ratios.of(RIGHT[:2], ONCE[:2], UNIT[:2], GROUP[:2], 2).share()

    assert share.value[0] == 1.0
    assert np.isnan([share.low[0], share.value[1], share.low[1]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_units", [20, 50])
def test_what_was_planted_is_held(n_units: int) -> None:
    """Of 3000 studies 93 to 99 of 100 intervals hold a precision, also of documents."""
    rng, shape = np.random.default_rng(1), (3000, n_units)
    is_spam = rng.random(shape) < 0.4
    chance = np.where(is_spam, rng.beta(2.4, 0.6, shape), rng.beta(0.6, 2.4, shape))
    said = rng.binomial(3, chance) / 3  # of three replies to a prompt
    n_rows = rng.integers(1, 10, shape)  # of a document
    n_right = rng.binomial(n_rows, rng.beta(1.4, 0.6, shape))
    study = np.repeat(np.arange(3000), n_units)
    unit = np.tile(np.arange(n_units), 3000)

    for right, counted, truth in (
        (said * is_spam, said, 0.4 * 0.8 / (0.4 * 0.8 + 0.6 * 0.2)),
        (n_right, n_rows, 0.7),
    ):
        share = Ratios.of(
            right.ravel().astype(float),
            counted.ravel().astype(float),
            unit,
            study,
            3000,
        ).share()
        held = (share.low <= truth) & (truth <= share.high)

        assert 0.93 <= held.mean() <= 0.99

"""Statistics agree with published worked examples, and hold what was planted."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

from svc_notebook.analysis.differences import paired, shares
from svc_notebook.analysis.statistics import (
    Estimates,
    Prompts,
    means,
    rates,
    t_quantile,
    wilson,
)
from svc_notebook.errors import ConfigError

# Extra hours of sleep of ten patients under two drugs: Student (1908), "The probable
# error of a mean", Biometrika 6, table on p. 20.
FIRST = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SECOND = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_paired_differences_are_students() -> None:
    """Student's sleep data have p = 0.00283 and 0.70 to 2.46 (R's t.test)."""
    found = paired(SECOND - FIRST)

    assert found.value == pytest.approx(1.58)
    assert found.low == pytest.approx(0.7001142, abs=1e-7)
    assert found.high == pytest.approx(2.4598858, abs=1e-7)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert found.spread == pytest.approx(1.229995, abs=1e-6)


def _mean(values: np.ndarray) -> tuple[float, float, float]:
    found = means(Prompts.of(values, np.arange(len(values)), np.zeros(len(values)), 1))
    return float(found.value[0]), float(found.low[0]), float(found.high[0])


def test_a_mean_without_repeats_is_students() -> None:
    """1 to 9 have the mean 5, the standard error 0.9129 and t(8) = 2.306."""
    expected = (5.0, 5 - 2.306004 * 0.912871, 5 + 2.306004 * 0.912871)

    assert _mean(np.arange(1.0, 10.0)) == pytest.approx(expected, abs=1e-5)


def test_a_skewed_mean_reaches_further_to_its_tail() -> None:
    """Hall's cubic, solved for the ends, gives Student's t back."""
    values = np.array([1.0, 1.0, 1.2, 1.5, 1.7, 2.0, 2.5, 3.0, 3.2, 4.6])
    mean, low, high = _mean(values)

    stats = pytest.importorskip("scipy.stats")
    spread, skew = values.std(ddof=1), stats.skew(values, bias=False)
    for end, sign in ((low, 1), (high, -1)):
        w = (mean - end) / spread
        cubic = w + skew * w**2 / 3 + skew**2 * w**3 / 27 + skew / 60
        assert cubic * 10**0.5 == pytest.approx(sign * 2.262157)
    assert high - mean > mean - low


def test_repeats_of_a_prompt_are_no_further_prompts() -> None:
    """Asked three times with the same outcome, the interval is as long as for once."""
    once = means(Prompts.of(FIRST, np.arange(10), np.zeros(10, dtype=int), 1))

    codes = np.repeat(np.arange(10), 3)
    thrice = means(Prompts.of(np.repeat(FIRST, 3), codes, codes * 0, 1))

    assert thrice.low[0] == pytest.approx(once.low[0])


def test_wilsons_interval() -> None:
    """81 of 263 have 0.2553 to 0.3662: Newcombe (1998), Stat. Med. 17, table I."""
    low, high = wilson(81 / 263, 263, 1.959964)

    assert (low, high) == (
        pytest.approx(0.2553, abs=5e-5),
        pytest.approx(0.3662, abs=5e-5),
    )


def test_no_success_still_has_an_interval() -> None:
    """0 of 20 have 0 to 0.1611, and 1 of 29 0.0061 to 0.1718: Newcombe, table I."""
    assert wilson(0.0, 20, 1.959964)[1] == pytest.approx(0.1611, abs=5e-5)
    assert wilson(1 / 29, 29, 1.959964) == (
        pytest.approx(0.0061, abs=5e-5),
        pytest.approx(0.1718, abs=5e-5),
    )


def test_repeats_that_are_all_equal_count_once() -> None:
    """Ten equal repeats tell hardly more about a rate than one, strangers much more."""
    prompt = np.repeat(np.arange(40), 10)
    group = np.zeros(400, dtype=int)
    equal = np.repeat(np.arange(40) % 2, 10).astype(float)
    strangers = np.tile([1.0, 0.0], 200)
    once = rates(Prompts.of(equal[::10], prompt[::10], group[::10], 1))

    alike = rates(Prompts.of(equal, prompt, group, 1))
    mixed = rates(Prompts.of(strangers, prompt, group, 1))

    assert alike.low[0] == pytest.approx(once.low[0], abs=0.02)
    assert mixed.low[0] > once.low[0] + 0.08


def test_p_and_interval_agree_however_many_comparisons() -> None:
    """The p is below 0.05 exactly where the interval leaves out 0."""
    rng = np.random.default_rng(1)
    for n_comparisons in (1, 3, 10):
        for shift in rng.uniform(0, 1.5, 100):
            found = paired(rng.normal(shift, 1, 12), n_comparisons=n_comparisons)

            assert (found.p < 0.05) == (found.low > 0 or found.high < 0)


def test_rates_that_never_differed_have_an_interval() -> None:
    """Ten prompts that both models got right do not show that they are the same."""
    found = paired(np.zeros(10), share=1.0)

    assert (found.value, found.p) == (0.0, 1.0)
    assert 0.15 < found.high < 0.35


def test_repeats_that_differ_make_an_interval_of_rates_shorter() -> None:
    """Prompts that differ by a tenth tell more where repeats vary than where not."""
    differences = np.array([0.1, -0.1] * 5)

    steady = paired(differences, share=1.0)
    noisy = paired(differences, share=0.5)

    assert noisy.high < steady.high / 2


def test_a_share_is_of_a_reply() -> None:
    """Equal repeats have the share 1, strangers 1/n, and a single reply has 1."""
    prompt = np.repeat(np.arange(40), 10)
    found = [
        shares(Prompts.of(values, prompt[: len(values)], prompt[: len(values)] * 0, 1))
        for values in (
            np.repeat(np.arange(40) % 2, 10).astype(float),
            np.tile([1.0, 0.0], 200),
        )
    ]
    once = shares(Prompts.of(np.array([1.0, 0.0, 1.0]), np.arange(3), np.zeros(3), 1))

    assert found == [pytest.approx(1.0), pytest.approx(0.1)]
    assert once == pytest.approx(1.0)


def test_a_mean_of_few_prompts_stays_near_them() -> None:
    """One short text among four does not take the interval below all that is seen."""
    mean, low, high = _mean(np.array([215.0, 364.0, 368.0, 371.0]))

    assert mean == pytest.approx(329.5)
    assert 100 < low < 215
    assert 371 < high < 460


def test_rates_differ_by_less_than_everything() -> None:
    """The interval of a difference of rates ends at 1 and -1."""
    found = paired(np.array([1.0, 0.0, 0.0, 0.0]), share=1.0)

    assert -1 < found.low < found.value
    assert found.high == 1.0


def test_two_prompts_have_no_interval() -> None:
    """Fewer than three prompts have a difference and no interval."""
    found = paired(np.array([0.5, 0.4]))

    assert found.value == pytest.approx(0.45)
    assert np.isnan([found.low, found.high, found.p]).all()


def test_without_scipy_there_are_no_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, what needs it is missing; planning names the command."""
    from svc_notebook.analysis.statistics import need_scipy  # noqa: PLC0415

    monkeypatch.setitem(sys.modules, "scipy.special", None)

    assert np.isnan(t_quantile(0.975, 9))
    assert np.isnan(paired(SECOND - FIRST).p)
    with pytest.raises(ConfigError, match="pip install scipy"):
        need_scipy()


@pytest.mark.slow
@pytest.mark.parametrize("n_repeats", [1, 3, 10])
def test_what_was_planted_is_held(n_repeats: int) -> None:
    """Of 2000 studies 93 to 99 of 100 intervals of rates and differences hold it."""
    from tests.benchmarks.coverage_bench import COVERED, share  # noqa: PLC0415

    held = [
        share(COVERED[name], 20, n_repeats, 2000)
        for name in ("rate 0.7", "0.8 against 0.7", "0.95 against 0.9")
    ]

    assert min(held) >= 0.93
    assert max(held) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("n_repeats", [3, 10])
def test_few_prompts_with_repeats_are_not_held_always(n_repeats: int) -> None:
    """Rates near 1 of 10 prompts are held by at most 99 of 100 intervals."""
    from tests.benchmarks.coverage_bench import COVERED, share  # noqa: PLC0415

    assert 0.96 <= share(COVERED["0.95 against 0.9"], 10, n_repeats, 4000) <= 0.99


@pytest.mark.slow
def test_one_reply_of_ten_prompts_cannot_be_held_less_often() -> None:
    """No interval of a fair test misses rates near 1 more often than 3 of 1000."""
    from tests.benchmarks.coverage_bench import least_held  # noqa: PLC0415

    assert least_held((0.95, 0.9), 10) == pytest.approx(0.997, abs=5e-4)


def test_a_unit_counts_as_one_prompt_with_its_mean() -> None:
    """Ten units of three prompts have the interval of ten prompts with their means."""
    values = FIRST[:, None] + np.array([-0.5, 0.1, 0.4])
    prompt = np.arange(30)
    expected = means(Prompts.of(values.mean(axis=1), prompt[:10], prompt[:10] * 0, 1))

    found = means(Prompts.of(values.ravel(), prompt, prompt * 0, 1, unit=prompt // 3))

    assert found.n_units[0] == 10
    for estimate, other in zip(found[:3], expected[:3], strict=True):
        assert estimate[0] == pytest.approx(other[0])


def test_prompts_of_a_unit_that_are_alike_tell_as_much_as_one() -> None:
    """Rates of 40 units of ten equal prompts are known as well as those of 40."""
    prompt = np.arange(400)
    unit = prompt // 10
    equal = (unit % 2).astype(float)
    alone = rates(Prompts.of(equal, prompt, prompt * 0, 1))
    once = rates(Prompts.of(equal[::10], unit[::10], unit[::10] * 0, 1))

    together = rates(Prompts.of(equal, prompt, prompt * 0, 1, unit=unit))

    assert together.low[0] == pytest.approx(once.low[0], abs=0.01)
    assert alone.low[0] > once.low[0] + 0.08


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[5] * 15, [1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 15, 20]])
def test_intervals_over_units_hold_what_was_planted(sizes: list[int]) -> None:
    """Rows of a document are alike: 92 to 98 of 100 intervals hold, not 55 to 85."""
    rng, n_runs = np.random.default_rng(7), 2000
    unit = np.repeat(np.arange(len(sizes)), sizes)
    of_unit = rng.normal(size=(n_runs, len(sizes)))[:, unit]
    depth = of_unit + 0.5 * rng.normal(size=of_unit.shape)
    group = np.repeat(np.arange(n_runs), len(unit))
    prompt = np.tile(np.arange(len(unit)), n_runs)

    def share(
        tell: Callable[[Prompts], Estimates], values: np.ndarray, *, is_alone: bool
    ) -> float:
        codes = None if is_alone else np.tile(unit, n_runs)
        flat = values.ravel().astype(float)
        found = tell(Prompts.of(flat, prompt, group, n_runs, unit=codes))
        truth = 0.0 if tell is means else 0.5
        return float(np.mean((found.low <= truth) & (truth <= found.high)))

    for tell, values in ((means, depth), (rates, depth > 0)):
        assert 0.92 <= share(tell, values, is_alone=False) <= 0.98
        assert share(tell, values, is_alone=True) < 0.85


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [(8, 1), (8, 2)])
def test_easy_prompts_that_are_repeated_more_do_not_mislead(
    repeats: tuple[int, int],
) -> None:
    """93 to 97 of 100 intervals hold the rate; weighing replies, under a half."""
    rng, n_runs, n_prompts = np.random.default_rng(7), 2000, 50
    chance = rng.beta(1.4, 0.6, (n_runs, n_prompts))
    n = np.where(chance > 0.7, *repeats).ravel()
    prompt = np.repeat(np.tile(np.arange(n_prompts), n_runs), n)
    group = np.repeat(np.repeat(np.arange(n_runs), n_prompts), n)
    values = (rng.random(len(prompt)) < np.repeat(chance.ravel(), n)).astype(float)

    found = rates(Prompts.of(values, prompt, group, n_runs))
    pooled = rates(Prompts.of(values, prompt, group, n_runs, weight="replies"))

    assert 0.93 <= np.mean((found.low <= 0.7) & (found.high >= 0.7)) <= 0.97
    assert np.mean((pooled.low <= 0.7) & (pooled.high >= 0.7)) < 0.5

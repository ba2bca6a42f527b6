"""Differences between groups of replies: their intervals, p and required sample size.

Units are the sample: prompts, or groups of prompts that belong together. A figure keeps
the contribution of each unit to its error (the influence function). So subtracting
figures over the same units makes a paired comparison, and subtracting figures over
different units makes one of independent samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from .sequential import ConfidenceSequence
from .statistics import (
    LEVEL,
    MIN_PROMPTS,
    MOST_BEND,
    NEGLIGIBLE,
    Floats,
    Prompts,
    rates,
    special,
    t_quantile,
    unskewed,
)

POWER = 0.8
Correction = Literal["holm", "bonferroni"]
"""How the chance of a false alarm is limited for all comparisons of a call together."""
# the exponent with which the floor fades, by simulation: with 1 the intervals of noisy
# rates covered 0.999, with 4 those of steady rates only 0.92
_FADE = 3
_FARTHEST = 8.0  # in standard deviations: the smallest p is 1e-15
_HALVINGS = 60  # of the search for p
_STEPS = 40  # of the iteration that corrects an interval for skew
_MOST_UNITS = 10**9
_MOST_FLIPPED = 12  # units whose signs are all exchanged: 4,096 combinations
# in `share_of_unit`: a prior of half a unit whose differences are all equal
_PSEUDO_UNITS = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """Units that are independent of those of another sample.

    Attributes:
        influence: Shape (unit codes,): the contribution of each unit to the error of
            the figure; 0 for units that are not in the sample.
        share: Shape (unit codes,): the weight of each unit in the figure; the sum is 1.
        floor: A lower bound of the sum of squared influences.
    """

    influence: Floats
    share: Floats
    floor: float = 0.0

    @property
    def n_units(self) -> int:
        """The number of units in the sample."""
        return int(np.count_nonzero(self.share))

    @property
    def freedom(self) -> float:
        """Degrees of freedom: n - 1 if all units have equal weights, else fewer.

        n is the effective number of units by Kish's design effect (Carter, Schnepel and
        Steigerwald 2017, Rev. Econ. Stat. 99).
        """
        return float(1 / (self.share**2).sum()) - 1

    @property
    def variance(self) -> float:
        """The jackknife variance: from how far the figure moves without each unit.

        If all units have equal weights, it is the variance of Student's t.
        """
        m = self.n_units
        moves = self.influence / (1 - self.share)
        return (m - 1) / m * max(float((moves**2).sum()), self.floor)


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean, or a difference of means, with its samples."""

    value: float
    samples: tuple[Sample, ...]

    @classmethod
    def mean(cls, values: Floats, weights: Floats, unit: Any, n_units: int) -> "Figure":  # noqa: ANN401 - codes
        """Return a weighted mean; NaN if there are no values.

        Args:
            values: One for each prompt, or for each prompt and condition.
            weights: The weight of each value.
            unit: The code of the unit of each value.
            n_units: The number of unit codes.
        """
        total = float(weights.sum())
        if not total:
            return cls(np.nan, ())
        shares_of_values = weights / total
        value = float((shares_of_values * values).sum())
        influence, share = (
            np.bincount(unit, contributions, n_units).astype(float)
            for contributions in (shares_of_values * (values - value), shares_of_values)
        )
        return cls(value, (Sample(influence, share),))

    def __sub__(self, other: "Figure") -> "Figure":
        negative = (replace(x, influence=-x.influence) for x in other.samples)
        samples = (*self.samples, *negative)
        is_shared = np.sum([sample.share > 0 for sample in samples], axis=0) > 1
        if np.any(is_shared):  # paired: one sample, whose influences are differences
            influence = np.sum([sample.influence for sample in samples], axis=0)
            share = np.mean([sample.share for sample in samples], axis=0)
            floor = sum(sample.floor for sample in samples)
            samples = (Sample(influence, share, floor),)
        return Figure(self.value - other.value, samples)

    def with_floor(self, share: float) -> "Figure":
        """Return the figure with a variance as if at least one prompt differed.

        If all prompts are equal, one that differs may just not have occurred yet: in
        simulations, intervals of rates near 1 covered 0.5 to 0.9 without this floor. If
        repeats of a prompt differ, most prompts differ a little, so the floor fades.

        Args:
            share: For rates, the mean of their `shares`, from 0 to 1.
        """
        samples = tuple(
            replace(
                sample,
                floor=share**_FADE / max(sample.n_units - 1, 1) ** 2,
            )
            for sample in self.samples
        )
        return replace(self, samples=samples)

    @property
    def n_units(self) -> int:
        """The number of units in all samples."""
        return sum(sample.n_units for sample in self.samples)

    @property
    def moves(self) -> Floats:
        """By how much each unit moves a difference from 0; their sum is the value.

        Empty if the difference is not one of pairs.
        """
        if len(self.samples) != 1:
            return np.zeros(0)
        [sample] = self.samples
        moves = self.by_unit * sample.share[sample.share > 0]
        moves[np.abs(moves) <= NEGLIGIBLE] = 0.0
        return moves

    @property
    def by_unit(self) -> Floats:
        """The value of each unit; the figure must have a single sample."""
        if not self.samples:
            return np.zeros(0)
        [sample] = self.samples
        is_used = sample.share > 0
        values: Floats = sample.influence[is_used] / sample.share[is_used]
        return self.value + values


def flip_tail(moves: Floats) -> float:
    """Return the exact chance of such a difference in this direction, if there is none.

    Without a difference, each unit that differs is as likely to differ the other way.
    If all of them count the same, this is the sign test, or McNemar's exact test (1947,
    Psychometrika 12), else Fisher's randomization test. For many units that differ by
    unequal amounts it is 0: Student's t is good enough for them.

    Args:
        moves: The `moves` of a paired difference.
    """
    functions = special()
    moves = moves[moves != 0]
    if functions is None or not len(moves):
        return 0.0
    sizes = np.abs(moves)
    if np.ptp(sizes) <= NEGLIGIBLE:
        n_fewer = min(int((moves > 0).sum()), int((moves < 0).sum()))
        return min(float(functions.bdtr(n_fewer, len(moves), 0.5)), 0.5)
    if len(moves) > _MOST_FLIPPED:
        return 0.0
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return min(float((sums >= abs(moves.sum()) - NEGLIGIBLE).mean()), 0.5)


@dataclass(frozen=True, slots=True)
class Shape:
    """The common skew of two groups of seconds, tokens or costs.

    Both groups are assumed to have the same distribution up to its scale, so the
    difference of equal means has no skew. If the skew were estimated from the
    differences themselves, it would be mostly noise: it caused 9 % of false alarms in
    simulations.

    Attributes:
        middle: The mean of the two means.
        single: The third central moment of a mean, scaled to a mean of 1.
        joint: The mixed third central moment of both means, scaled likewise; 0 if they
            have no units in common.
    """

    middle: float
    single: float
    joint: float

    @classmethod
    def of(cls, first: Figure, second: Figure) -> "Shape | None":
        """Return the shape of two means; None unless both are > 0 and have units."""
        means, samples = (first.value, second.value), (*first.samples, *second.samples)
        n_units = [sample.n_units for sample in samples]
        if not min(means) > 0 or min(n_units) < MIN_PROMPTS:
            return None
        a, b = (
            sample.influence / mean for sample, mean in zip(samples, means, strict=True)
        )
        single = (_unbiased(a**3, n_units[0]) + _unbiased(b**3, n_units[1])) / 2
        joint = _unbiased((a**2 * b + a * b**2) / 2, min(n_units))
        return cls(sum(means) / 2, single, joint)

    def third_moment(self, difference: Floats) -> Floats:
        """Return the third central moment of the estimate if this is the difference."""
        first, second = (
            np.maximum(self.middle + side * difference / 2, 0) for side in (1, -1)
        )
        between = first**2 * second - first * second**2
        moment: Floats = self.single * (first**3 - second**3) - 3 * self.joint * between
        return moment


def _unbiased(cubes: Floats, m: int) -> float:
    """Return the sum of cubes without the bias of a third moment from m units."""
    return float(cubes.sum()) * m**2 / ((m - 1) * (m - 2))


class Estimate(Protocol):
    """A difference with an interval at any level."""

    @property
    def value(self) -> float:
        """The difference."""

    @property
    def error(self) -> float:
        """Its standard error; NaN if it is not known."""

    @property
    def n_units(self) -> int:
        """The number of units."""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval whose chance of error on each side is `tail`."""


@dataclass(frozen=True, slots=True)
class StudentEstimate:
    """A difference by Student's t over units, or by Welch's t over two samples.

    Attributes:
        shape: The skew that the interval is corrected for, if any.
        most: The largest possible distance from 0: 1 for rates.
        exact_tail: The `flip_tail` of rates in pairs: an interval whose chance of error
            on each side is not larger contains 0. Where few units differ, Student's t
            alone would exclude it too early.
    """

    value: float
    error: float
    freedom: float
    n_units: int
    shape: Shape | None = None
    most: float = np.inf
    exact_tail: float = 0.0

    @classmethod
    def of(
        cls,
        figure: Figure,
        *,
        largest: float = 0.0,
        shape: Shape | None = None,
        most: float = np.inf,
        exact_tail: float = 0.0,
    ) -> "StudentEstimate":
        """Return the estimate of a figure.

        Means of seconds and tokens are skewed, which is corrected for (Hall 1992, J. R.
        Stat. Soc. B 54): with 50 rows or fewer, uncorrected intervals at 0.95 covered
        0.87 to 0.92.

        Args:
            figure: A difference.
            largest: The largest value; an error that is tiny next to it is a rounding
                error, and counts as not known.
            shape: The shape of the two means, if they are skewed.
            most: As the attribute.
            exact_tail: As the attribute.
        """
        n_units = [sample.n_units for sample in figure.samples]
        if min(n_units, default=0) < MIN_PROMPTS:
            return cls(figure.value, np.nan, np.nan, sum(n_units))
        variances = np.array([sample.variance for sample in figure.samples])
        freedoms = np.array([sample.freedom for sample in figure.samples])
        error = float(np.sqrt(variances.sum()))
        if error <= NEGLIGIBLE * max(largest, abs(figure.value)):
            return cls(figure.value, np.nan, np.nan, sum(n_units))
        # Welch (1947); with one sample, this is the freedom of that sample
        freedom = float(variances.sum() ** 2 / (variances**2 / freedoms).sum())
        return cls(
            figure.value,
            error,
            freedom,
            sum(n_units),
            shape=shape,
            most=most,
            exact_tail=exact_tail,
        )

    def has_formula(self, null: float) -> bool:
        """Return whether p is a formula, so that no search is needed."""
        return not (null and (self.shape or self.exact_tail))

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval whose chance of error on each side is `tail`."""
        reach = -float(t_quantile(tail, self.freedom))
        reaches = np.array([reach, -reach])
        ends = self.value - self.error * reaches
        if self.shape is not None and reach:
            bend = MOST_BEND / reach
            for _ in range(_STEPS):  # the skew depends on the end, and the end on it
                skew = self.shape.third_moment(ends) / self.error**3
                skew = np.clip(skew, -bend, bend)
                moved = self.value - self.error * unskewed(reaches, skew, np.ones(2))
                ends = (ends + moved) / 2
        low, high = ends.tolist()
        if tail <= self.exact_tail:
            low, high = min(low, 0.0), max(high, 0.0)
        return max(low, -self.most), min(high, self.most)


@dataclass(frozen=True, slots=True)
class RatesEstimate:
    """The difference of the rates of two groups (Newcombe 1998, method 10).

    Attributes:
        prompts: The prompts of two groups with their values; no unit is in both.
    """

    prompts: Prompts

    @property
    def value(self) -> float:
        """The difference."""
        first, second = rates(self.prompts).value
        return float(first - second)

    @property
    def error(self) -> float:
        """Its standard error, from the width of the interval at 0.95."""
        low, high = self.ends((1 - LEVEL) / 2)
        return (high - low) / 2 / float(t_quantile((1 + LEVEL) / 2, self.freedom))

    @property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.prompts.units().n.sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""
        return self.n_units - 2

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval whose chance of error on each side is `tail`."""
        value, low, high, *_ = rates(self.prompts, 1 - 2 * tail)
        down = np.hypot(value[0] - low[0], high[1] - value[1])
        up = np.hypot(high[0] - value[0], value[1] - low[1])
        difference = float(value[0] - value[1])
        return difference - float(down), difference + float(up)


@dataclass(frozen=True, slots=True)
class BoundsEstimate:
    """A difference that is only known to lie between two others (Manski 2003)."""

    lower: Estimate
    upper: Estimate

    @property
    def value(self) -> float:
        """The middle of both."""
        return (self.lower.value + self.upper.value) / 2

    @property
    def error(self) -> float:
        """The larger standard error of both."""
        return max(self.lower.error, self.upper.error)

    @property
    def n_units(self) -> int:
        """The number of units."""
        return self.lower.n_units

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""
        return self.lower.freedom

    def ends(self, tail: float) -> tuple[float, float]:
        """Return an interval whose chance of error on each side is at most `tail`."""
        return self.lower.ends(tail)[0], self.upper.ends(tail)[1]


def p_value(estimate: Estimate, null: float = 0.0) -> float:
    """Return the two-sided p: the interval at the level 1 - p ends at `null`.

    NaN if there is no interval.
    """
    if isinstance(estimate, ConfidenceSequence):
        return estimate.p(null)
    functions = special()
    if functions is None or not estimate.error > 0:
        return np.nan
    if isinstance(estimate, StudentEstimate) and estimate.has_formula(null):
        far = abs(estimate.value - null) / estimate.error
        tail = float(functions.stdtr(estimate.freedom, -far))
        return 2 * (tail if null else max(tail, estimate.exact_tail))
    near, far = 0.0, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        low, high = estimate.ends(float(functions.ndtr(-middle)))
        near, far = (middle, far) if null < low or null > high else (near, middle)
    return min(2 * float(functions.ndtr(-near)), 1.0)


class Corrected(NamedTuple):
    """Several comparisons, corrected together.

    Attributes:
        p: The corrected p of each; NaN stays NaN.
        tail: The chance of error on each side of the interval of each.
    """

    p: Floats
    tail: Floats


def corrected(
    p: Floats, *, level: float = LEVEL, correct: Correction | None = "holm"
) -> Corrected:
    """Correct a family of comparisons, so that each interval agrees with its p.

    That is, p is below 1 - level exactly where the interval excludes 0. With Holm
    (1979) the chance of any false alarm is at most 1 - level, as with Bonferroni, but
    the power is higher. The interval of each comparison has the level of its step in
    Holm's procedure: each interval alone contains the true difference at least as often
    as `level` says. With Bonferroni, all intervals together do.
    """
    tail = np.full(len(p), (1 - level) / 2)
    known = np.flatnonzero(~np.isnan(p))
    m = len(known)
    if correct is None or not m:
        return Corrected(p, tail)
    order = known[np.argsort(p[known], kind="stable")]
    steps = m - np.arange(m) if correct == "holm" else np.full(m, m)
    by_order = np.minimum(np.maximum.accumulate(p[order] * steps), 1.0)
    n_found = int((by_order < 1 - level).sum())
    corrected_p = p.copy()
    corrected_p[order] = by_order
    tail[order] /= steps[np.minimum(np.arange(m), min(n_found, m - 1))]
    return Corrected(corrected_p, tail)


class Difference(NamedTuple):
    """The mean difference of two groups; NaN is not known.

    Attributes:
        spread: The standard deviation of the units' differences.
        p: Corrected for the number of comparisons, as is the interval.
        smallest: The smallest difference that would be found with `POWER`.
        tail: The chance of error on each side of the interval.
    """

    value: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    smallest: float = np.nan
    spread: float = np.nan
    tail: float = np.nan


def spread_of(estimate: Estimate) -> float:
    """Return the standard deviation of the units' differences."""
    return float(estimate.error * np.sqrt(estimate.n_units))


def difference_of(estimate: Estimate, *, tail: float, p: float) -> Difference:
    """Return the difference of an estimate, with a corrected p and tail."""
    spread = spread_of(estimate)
    if isinstance(estimate, ConfidenceSequence):
        ends = estimate.ends(tail)
        return Difference(estimate.value, *ends, p, spread=spread, tail=tail)
    if special() is None or np.isnan(estimate.error):
        return Difference(estimate.value, spread=spread)
    low, high = estimate.ends(tail)
    quantiles = t_quantile(1 - tail, estimate.freedom)
    quantiles = float(quantiles + t_quantile(POWER, estimate.freedom))
    smallest = quantiles * estimate.error
    return Difference(estimate.value, low, high, p, smallest, spread, tail)


def units_needed(
    spread: float,
    difference: float,
    *,
    tail: float,
    power: float = POWER,
    is_one_sided: bool = False,
) -> int:
    """Return the smallest number of units that finds a difference with this power.

    By Student's t and its noncentral distribution, as TTestPower of statsmodels and
    G*Power.

    Args:
        spread: The standard deviation of the units' differences.
        difference: The difference to find, or with a margin to rule out.
        tail: The chance of error on each side of the interval.
        power: The chance of finding it, from 0 to 1.
        is_one_sided: Whether only one end of the interval matters.
    """

    def is_enough(n: int) -> bool:
        return has_power(
            difference / spread * np.sqrt(n) if spread else np.inf,
            n - 1,
            tail=tail,
            power=power,
            is_one_sided=is_one_sided,
        )

    return least(is_enough)


def has_power(
    shift: float, freedom: float, *, tail: float, power: float, is_one_sided: bool
) -> bool:
    """Return whether a study finds a difference with this power, by Student's t.

    Args:
        shift: The difference divided by its standard error.
        freedom: Degrees of freedom.
        tail: The chance of error on each side of the interval.
        power: The chance of finding it, from 0 to 1.
        is_one_sided: Whether only one end of the interval matters.
    """
    functions, quantile = special(), float(t_quantile(1 - tail, freedom))
    if shift > 2 * quantile + 10:  # the power is 1, and SciPy's range is exceeded
        return True
    chance = 1 - functions.nctdtr(freedom, shift, quantile)
    if not is_one_sided:
        # SciPy returns NaN for a chance that is almost 0
        chance += np.nan_to_num(functions.nctdtr(freedom, shift, -quantile))
    return bool(chance >= power)


def least(is_enough: Callable[[int], bool], low: int = MIN_PROMPTS - 1) -> int:
    """Return the least number above `low` that is enough, by bisection.

    All numbers above one that is enough must be enough as well.
    """
    high = low + 1
    while high < _MOST_UNITS and not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def paired(
    differences: Floats, *, n_comparisons: int = 1, share: float | None = None
) -> Difference:
    """Compare by Student's t on the differences of prompts (Student 1908).

    Rates must also pass the exact test: see `flip_tail`. Bonferroni's correction is
    applied to the interval and to p.

    Args:
        differences: Shape (prompts,): the mean difference of each prompt.
        n_comparisons: How many comparisons are made at once.
        share: For rates, the `share` of `Figure.with_floor`.
    """
    m = len(differences)
    figure = Figure.mean(differences, np.ones(m), np.arange(m), m)
    if share is not None:
        figure = figure.with_floor(share)
    estimate = StudentEstimate.of(
        figure,
        largest=float(np.abs(differences).max(initial=0)),
        most=np.inf if share is None else 1.0,
        exact_tail=0.0 if share is None else flip_tail(figure.moves),
    )
    p = min(p_value(estimate) * n_comparisons, 1.0)
    return difference_of(estimate, tail=(1 - LEVEL) / 2 / n_comparisons, p=p)


def share_of_unit(differences: Floats, unit: Any) -> float:  # noqa: ANN401 - codes
    """Return the variance of a unit's mean difference as a share of a single row's.

    It is 1 if all differences of a unit are equal, and 1/n if its n differences vary as
    much as those of different units. Where differences are rare, they seem to be
    independent of the unit; a pseudo-count of half a unit whose differences are all
    equal keeps the result from being too small then.

    Args:
        differences: Several for each unit, such as those of its rows.
        unit: The code of the unit of each difference.
    """
    _, place, n = np.unique(unit, return_inverse=True, return_counts=True)
    if len(n) == len(differences):
        return 1.0
    deviations = differences - (np.bincount(place, differences) / n)[place]
    within = float((deviations**2).sum()) / (len(differences) - len(n))
    alike = 1 - within / (float(differences.var()) + _PSEUDO_UNITS / len(n))
    alike = min(max(alike, 0.0), 1.0)
    return alike + (1 - alike) * float((1 / n).mean())


def shares(prompts: Prompts) -> Floats:
    """Return the variance of a prompt's rate as a share of a single reply's, by group.

    It is 1 if the repeats of a prompt are all equal, and 1/n if its n repeats vary as
    much as replies to different prompts.
    """
    icc = prompts.icc()
    return icc + (1 - icc) * prompts.sum(1 / prompts.n) / np.maximum(prompts.sum(1), 1)

"""Differences between groups of replies: their interval, and whether it is chance.

Units are the sample: prompts, or what holds several of them together. A figure keeps
what each unit adds to its error, so that figures over the same units are paired when
they are subtracted, and those over different units are independent.
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
"""How the chance of a false alarm is kept for all comparisons of a call together."""
_FADE = 3  # by simulation: 1 covered 0.999 of noisy rates, 4 only 0.92 of steady ones
_FARTHEST = 8.0  # in standard deviations: a p of 1e-15 is the least
_HALVINGS = 60
_STEPS = 40
_MOST_UNITS = 10**9
_PSEUDO = 0.5  # units that differ as a whole, behind what is seen


@dataclass(frozen=True, slots=True)
class Sample:
    """Units that are independent of those of another sample.

    Attributes:
        influence: What each unit adds to the error of the figure, by the unit's code; 0
            for units that are not in the sample.
        share: How much of the figure each unit is; the sum is 1.
        floor: The least sum of squared influences that is believed.
    """

    influence: Floats
    share: Floats
    floor: float = 0.0

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return int(np.count_nonzero(self.share))

    @property
    def freedom(self) -> float:
        """Degrees of freedom: n - 1 for units of one size, less for unequal ones.

        They are those that are left after Kish's design effect (Carter, Schnepel and
        Steigerwald 2017, Rev. Econ. Stat. 99).
        """
        return float(1 / (self.share**2).sum()) - 1

    @property
    def variance(self) -> float:
        """The variance of the figure by the jackknife: how far it moves without a unit.

        For units of one size it is that of Student's t.
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
        """Return a weighted mean; NaN without values.

        Args:
            values: Of each prompt, or of each prompt with other conditions.
            weights: How much each counts.
            unit: The code of the unit that each belongs to.
            n_units: How many codes there are.
        """
        total = float(weights.sum())
        if not total:
            return cls(np.nan, ())
        part = weights / total
        value = float((part * values).sum())
        influence, share = (
            np.bincount(unit, of_prompt, n_units).astype(float)
            for of_prompt in (part * (values - value), part)
        )
        return cls(value, (Sample(influence, share),))

    def __sub__(self, other: "Figure") -> "Figure":
        negative = (replace(one, influence=-one.influence) for one in other.samples)
        samples = (*self.samples, *negative)
        is_shared = np.sum([one.share > 0 for one in samples], axis=0) > 1
        if np.any(is_shared):
            influence = np.sum([one.influence for one in samples], axis=0)
            share = np.mean([one.share for one in samples], axis=0)
            floor = sum(one.floor for one in samples)
            samples = (Sample(influence, share, floor),)
        return Figure(self.value - other.value, samples)

    def with_floor(self, share: float) -> "Figure":
        """Return it with the spread of at least one prompt that differs.

        It may just not have come up yet: without this floor intervals of rates near 1
        covered 0.5 to 0.9. Where repeats differ, so do most prompts, by little, and the
        floor fades.

        Args:
            share: For rates, the mean of their `shares`.
        """
        samples = tuple(
            replace(
                one,
                floor=share**_FADE / max(one.n_units - 1, 1) ** 2,
            )
            for one in self.samples
        )
        return replace(self, samples=samples)

    @property
    def n_units(self) -> int:
        """How many units it is over."""
        return sum(one.n_units for one in self.samples)

    @property
    def by_unit(self) -> Floats:
        """Return the value of each unit, where all are of one sample."""
        if not self.samples:
            return np.zeros(0)
        [sample] = self.samples
        is_used = sample.share > 0
        values: Floats = sample.influence[is_used] / sample.share[is_used]
        return self.value + values


@dataclass(frozen=True, slots=True)
class Shape:
    """The skew that seconds and the like of two groups share, at their two scales.

    Values that are n times as large are taken to be n times as skewed, so that equal
    means have a difference without skew. Taken from the differences themselves, the
    skew is mostly noise, and 9 % of false alarms came from it.

    Attributes:
        middle: The mean of both means.
        own: The third central moment of a mean of the scale 1.
        joint: The same of both together, where the units are the same.
    """

    middle: float
    own: float
    joint: float

    @classmethod
    def of(cls, first: Figure, second: Figure) -> "Shape | None":
        """Return the shape of two means; None if they are not above 0."""
        means, samples = (first.value, second.value), (*first.samples, *second.samples)
        if not min(means) > 0 or min(one.n_units for one in samples) < MIN_PROMPTS:
            return None
        one, other = (
            sample.influence / mean for sample, mean in zip(samples, means, strict=True)
        )
        n_units = [sample.n_units for sample in samples]
        own = (_unbiased(one**3, n_units[0]) + _unbiased(other**3, n_units[1])) / 2
        joint = _unbiased((one**2 * other + one * other**2) / 2, min(n_units))
        return cls(sum(means) / 2, own, joint)

    def third_moment(self, difference: Floats) -> Floats:
        """Return the third central moment of the difference if it is so large."""
        first, second = (
            np.maximum(self.middle + side * difference / 2, 0) for side in (1, -1)
        )
        between = first**2 * second - first * second**2
        moment: Floats = self.own * (first**3 - second**3) - 3 * self.joint * between
        return moment


def _unbiased(cubes: Floats, m: int) -> float:
    return float(cubes.sum()) * m**2 / ((m - 1) * (m - 2))


class Estimate(Protocol):
    """A difference with an interval for each level."""

    @property
    def value(self) -> float:
        """The difference."""

    @property
    def error(self) -> float:
        """Its standard error; NaN if nothing is known of it."""

    @property
    def n_units(self) -> int:
        """How many units it is over."""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval that leaves out so much on each side."""


@dataclass(frozen=True, slots=True)
class StudentEstimate:
    """A difference by Student's t over units, or by Welch's over two samples of them.

    Attributes:
        shape: Where the skew comes from that is corrected for, if any.
        most: It cannot be farther from 0: 1 for rates.
    """

    value: float
    error: float
    freedom: float
    n_units: int
    shape: Shape | None = None
    most: float = np.inf

    @classmethod
    def of(
        cls,
        figure: Figure,
        *,
        largest: float = 0.0,
        shape: Shape | None = None,
        most: float = np.inf,
    ) -> "StudentEstimate":
        """Return the estimate of a figure.

        Means of seconds and tokens are skewed, which is corrected for (Hall 1992, J. R.
        Stat. Soc. B 54): for 50 rows or fewer plain t covers 0.87 to 0.92 of them. The
        skew is that of the difference which is tested.

        Args:
            figure: A difference.
            largest: The largest value, which says what is a rounding error.
            shape: Of the two means, if they are skewed.
            most: As the attribute.
        """
        n_units = [sample.n_units for sample in figure.samples]
        if min(n_units, default=0) < MIN_PROMPTS:
            return cls(figure.value, np.nan, np.nan, sum(n_units))
        variances = np.array([sample.variance for sample in figure.samples])
        freedoms = np.array([sample.freedom for sample in figure.samples])
        error = float(np.sqrt(variances.sum()))
        if error <= NEGLIGIBLE * max(largest, abs(figure.value)):
            return cls(figure.value, np.nan, np.nan, sum(n_units))
        # Welch (1947); of one sample it is its own
        freedom = float(variances.sum() ** 2 / (variances**2 / freedoms).sum())
        return cls(
            figure.value,
            error,
            freedom,
            sum(n_units),
            shape=shape,
            most=most,
        )

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval that leaves out so much on each side."""
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
        return max(low, -self.most), min(high, self.most)


@dataclass(frozen=True, slots=True)
class RatesEstimate:
    """The difference of the rates of two groups (Newcombe 1998, method 10).

    Attributes:
        prompts: What the prompts of two groups got; no unit is in both.
    """

    prompts: Prompts

    @property
    def value(self) -> float:
        """The difference."""
        first, second = rates(self.prompts).value
        return float(first - second)

    @property
    def error(self) -> float:
        """Its standard error, as the interval of 0.95 has it."""
        low, high = self.ends((1 - LEVEL) / 2)
        return (high - low) / 2 / float(t_quantile((1 + LEVEL) / 2, self.freedom))

    @property
    def n_units(self) -> int:
        """How many units it is over."""
        return int(self.prompts.units().n.sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""
        return self.n_units - 2

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval that leaves out so much on each side."""
        value, low, high, *_ = rates(self.prompts, 1 - 2 * tail)
        down = np.hypot(value[0] - low[0], high[1] - value[1])
        up = np.hypot(high[0] - value[0], value[1] - low[1])
        difference = float(value[0] - value[1])
        return difference - float(down), difference + float(up)


@dataclass(frozen=True, slots=True)
class BoundsEstimate:
    """A difference that is only known to be between two others (Manski 2003)."""

    lower: Estimate
    upper: Estimate

    @property
    def value(self) -> float:
        """The middle."""
        return (self.lower.value + self.upper.value) / 2

    @property
    def error(self) -> float:
        """The larger standard error."""
        return max(self.lower.error, self.upper.error)

    @property
    def n_units(self) -> int:
        """How many units it is over."""
        return self.lower.n_units

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""
        return self.lower.freedom

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval that leaves out so much on each side, at worst."""
        return self.lower.ends(tail)[0], self.upper.ends(tail)[1]


def p_value(estimate: Estimate, null: float = 0.0) -> float:
    """Return the p of a difference: its interval of the level 1 - p ends at `null`.

    NaN without an interval.
    """
    if isinstance(estimate, ConfidenceSequence):
        return estimate.p(null)
    functions = special()
    if functions is None or not estimate.error > 0:
        return np.nan
    if isinstance(estimate, StudentEstimate) and not (estimate.shape and null):
        far = abs(estimate.value - null) / estimate.error  # the same, quickly
        return 2 * float(functions.stdtr(estimate.freedom, -far))
    near, far = 0.0, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        low, high = estimate.ends(float(functions.ndtr(-middle)))
        near, far = (middle, far) if null < low or null > high else (near, middle)
    return min(2 * float(functions.ndtr(-near)), 1.0)


class Corrected(NamedTuple):
    """What is left of p if several comparisons are made at once.

    Attributes:
        p: Corrected; NaN stays.
        tail: What the interval of each leaves out on each side.
    """

    p: Floats
    tail: Floats


def corrected(
    p: Floats, *, level: float = LEVEL, correct: Correction | None = "holm"
) -> Corrected:
    """Correct a family of comparisons: p is below 1 - level where 0 is left out.

    By Holm (1979) the chance that any of them finds what is not there is 1 - level, as
    by Bonferroni, but more of what is there is found. The interval of each comparison
    is that of its own step, so that it agrees with its p: each alone holds the truth at
    least as often as `level` says. By Bonferroni all do so at once.
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
        spread: Standard deviation of the units' differences.
        p: Corrected for the comparisons, as is the interval.
        smallest: The smallest difference that would be found with `POWER`.
        tail: What the interval leaves out on each side.
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


def concluded(estimate: Estimate, *, tail: float, p: float) -> Difference:
    """Return what is known of a difference, with a corrected p and tail."""
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
    """Return how many units find a difference: the smallest number with the power.

    It is that of Student's t, by the noncentral distribution (as TTestPower of
    statsmodels, and G*Power).

    Args:
        spread: Standard deviation of the units' differences.
        difference: What is to be found, or with a margin to be ruled out.
        tail: What the interval leaves out on each side.
        power: How often it is to be found.
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
    """Return whether a study finds a difference so often, by Student's t.

    Args:
        shift: The difference by its standard error.
        freedom: Degrees of freedom.
        tail: As in `units_needed`, like the others.
        power: How often.
        is_one_sided: Whether only one end of the interval matters.
    """
    functions, quantile = special(), float(t_quantile(1 - tail, freedom))
    if shift > 2 * quantile + 10:  # surely, and out of range
        return True
    chance = 1 - functions.nctdtr(freedom, shift, quantile)
    if not is_one_sided:
        # SciPy has NaN for what is next to nothing
        chance += np.nan_to_num(functions.nctdtr(freedom, shift, -quantile))
    return bool(chance >= power)


def least(is_enough: Callable[[int], bool], low: int = MIN_PROMPTS - 1) -> int:
    """Return the least number above `low` that is enough, as all larger ones are."""
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

    Bonferroni's correction widens the interval and raises p alike.

    Args:
        differences: The mean difference of each prompt.
        n_comparisons: How many are made at once.
        share: For rates, as in `Figure.with_floor`.
    """
    m = len(differences)
    figure = Figure.mean(differences, np.ones(m), np.arange(m), m)
    if share is not None:
        figure = figure.with_floor(share)
    estimate = StudentEstimate.of(
        figure,
        largest=float(np.abs(differences).max(initial=0)),
        most=np.inf if share is None else 1.0,
    )
    p = min(p_value(estimate) * n_comparisons, 1.0)
    return concluded(estimate, tail=(1 - LEVEL) / 2 / n_comparisons, p=p)


def share_of_unit(differences: Floats, unit: Any) -> float:  # noqa: ANN401 - codes
    """Return the variance of a unit's mean difference as a share of a single one's.

    It is 1 where all differences of a unit are equal, and 1/n where n of them differ as
    much as those of different units. Half a unit that differs as a whole keeps rare
    differences, which seem to come one by one, from being taken for that.

    Args:
        differences: Several of each unit, such as those of its rows.
        unit: The code of the unit of each.
    """
    _, place, n = np.unique(unit, return_inverse=True, return_counts=True)
    if len(n) == len(differences):
        return 1.0
    rest = differences - (np.bincount(place, differences) / n)[place]
    within = float((rest**2).sum()) / (len(differences) - len(n))
    alike = 1 - within / (float(differences.var()) + _PSEUDO / len(n))
    alike = min(max(alike, 0.0), 1.0)
    return alike + (1 - alike) * float((1 / n).mean())


def shares(prompts: Prompts) -> Floats:
    """Return, by group, the variance of a prompt's rate as a share of one reply's.

    It is 1 where the repeats of a prompt are all equal, and 1/n where n repeats differ
    as much as replies to different prompts.
    """
    icc = prompts.icc()
    return icc + (1 - icc) * prompts.sum(1 / prompts.n) / np.maximum(prompts.sum(1), 1)

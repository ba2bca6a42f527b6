"""Means, rates and ratios with intervals, for repeats that are not independent.

Prompts are the sample: repeats of a prompt say something about that prompt only, so to
pool all replies would give intervals that are far too short. Prompts of one unit, such
as the questions about one document, belong together likewise. All functions take
arrays; `tests/benchmarks/coverage_bench.py` measures how often intervals contain the
true value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from svc_notebook.errors import import_extra

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEVEL = 0.95
MIN_PROMPTS = 3
"""With fewer prompts there is no interval: it would contain nearly everything."""
NEGLIGIBLE = 1e-9
"""A spread smaller than this share of the largest value is a rounding error."""
_NO_SKEW = 1e-6  # with less skew the correction would divide by nearly 0
# the largest skew times reach: at 1 Hall's cubic is flat, and beyond it the correction
# is not defined
MOST_BEND = 0.9
# pseudo-counts: half a prompt that is always right, and half one that is always wrong
_PSEUDO = 0.5


def special() -> Any:  # noqa: ANN401 - a module that may be missing
    """Return SciPy's functions; None if the extra `stats` is not installed."""
    try:
        import scipy.special  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return scipy.special


def need_scipy() -> None:
    """Raise ConfigError if SciPy is missing; it names the command to install it."""
    import_extra("scipy.special", "Sample sizes need")


HOW_TO_INSTALL = "need SciPy: python -m pip install scipy"


def t_quantile(share: Any, df: Any) -> Any:  # noqa: ANN401 - a number or an array
    """Return quantiles of Student's t; NaN without SciPy or degrees of freedom."""
    df = np.asarray(df, dtype=float)
    scipy_special = special()
    if scipy_special is None:
        return np.full(df.shape, np.nan)[()]
    with np.errstate(all="ignore"):
        return np.where(
            df > 0, scipy_special.stdtrit(np.maximum(df, 1), share), np.nan
        )[()]


Weight = Literal["prompts", "replies"]
"""Whether each prompt or each reply counts the same in a mean."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The replies to each prompt in each group: how many, their mean and variance.

    Arrays have the shape (prompts,), with a prompt once for each of its groups.

    Attributes:
        group: The number of the group, from 0.
        n: The number of replies with a value, at least 1.
        mean: The mean of these replies.
        variance: Their variance, with n - 1; NaN for one reply.
        n_groups: The number of groups.
        unit: The number of the unit, such as a document; prompts of one unit are not
            independent. If None, each prompt is a unit.
        weight: The weight of the prompt in the mean; if None, all are equal.
    """

    group: Any
    n: Floats
    mean: Floats
    variance: Floats
    n_groups: int
    unit: Any = None
    weight: Floats | None = None

    @classmethod
    def of(
        cls,
        values: Floats,
        prompt: Any,  # noqa: ANN401 - codes
        group: Any,  # noqa: ANN401 - codes
        n_groups: int,
        *,
        unit: Any = None,  # noqa: ANN401 - codes
        weight: Weight = "prompts",
    ) -> "Prompts":
        """Gather values by the codes of their prompt and group; NaN is left out."""
        is_known = ~np.isnan(values)
        values = values[is_known]
        key = group[is_known].astype(np.int64) * (prompt.max(initial=0) + 1)
        key, firsts, cell = np.unique(
            key + prompt[is_known], return_index=True, return_inverse=True
        )
        n = np.bincount(cell, minlength=len(key)).astype(float)
        mean = np.bincount(cell, values, len(key)) / n
        squares = np.bincount(cell, (values - mean[cell]) ** 2, len(key))
        return cls(
            group=key // (prompt.max(initial=0) + 1),
            n=n,
            mean=mean,
            variance=np.where(n > 1, squares / np.maximum(n - 1, 1), np.nan),
            n_groups=n_groups,
            unit=None if unit is None else unit[is_known][firsts],
            weight=n if weight == "replies" else None,
        )

    def sum(self, values: Any) -> Floats:  # noqa: ANN401 - an array or a number
        """Return the sum of one value for each prompt, by group."""
        return _sums(self.group, values, self.n_groups)

    def average(self) -> Floats:
        """Return the weighted mean of the prompts, by group; NaN without prompts."""
        weight = 1.0 if self.weight is None else self.weight
        with np.errstate(all="ignore"):
            average: Floats = self.sum(weight * self.mean) / self.sum(weight)
        return average

    def icc(self) -> Floats:
        """Return the intraclass correlation of repeats, by group; for 0 and 1 only.

        It is 1 if the repeats of a prompt are always equal, and 0 if they differ as
        much as replies to different prompts. Without repeats it is 1, the conservative
        assumption.
        """
        repeated = ~np.isnan(self.variance)
        within = self.sum(np.nan_to_num(self.variance))
        within = within / np.maximum(self.sum(repeated), 1)
        return np.clip(1 - within / self.variance_of_a_reply(), 0.0, 1.0)

    def variance_of_a_reply(self) -> Floats:
        """Return the variance of a single reply, right or wrong, by group.

        Pseudo-counts keep the rate from being exactly 0 or 1 in a small sample.
        """
        rate = (self.sum(self.mean) + _PSEUDO) / (self.sum(1) + 2 * _PSEUDO)
        return rate * (1 - rate)

    def units(self) -> "Units":
        """Return the units, with the weight of each in the mean of its group."""
        weight = np.ones(len(self.group)) if self.weight is None else self.weight
        unit = np.arange(len(self.group)) if self.unit is None else self.unit
        key = self.group * (unit.max(initial=0) + 1) + unit
        key, place = np.unique(key, return_inverse=True)
        group = key // (unit.max(initial=0) + 1)
        with np.errstate(all="ignore"):
            part = weight / self.sum(weight)[self.group]
        share: Floats = np.bincount(place, part, len(key)).astype(float)
        return Units(group, place, part, share, _sums(group, 1, self.n_groups))


def _sums(group: Any, values: Any, n_groups: int) -> Floats:  # noqa: ANN401 - arrays
    """Return sums by group."""
    addends = np.broadcast_to(values, group.shape).astype(float)
    total: Floats = np.bincount(group, addends, n_groups).astype(float)
    return total


class Units(NamedTuple):
    """Units of prompts.

    Attributes:
        group: Shape (units,): the group of each unit.
        place: Shape (prompts,): the position of each prompt's unit.
        part: Shape (prompts,): the weight of each prompt in its group's mean; the
            weights of a group add up to 1.
        share: Shape (units,): the sum of these weights over each unit.
        n: Shape (groups,): the number of units.
    """

    group: Any
    place: Any
    part: Floats
    share: Floats
    n: Floats

    def freedom(self) -> Floats:
        """Return degrees of freedom, by group: n - 1 for units of the same size.

        For units of different sizes, n is their effective number by Kish's design
        effect (Carter, Schnepel and Steigerwald 2017, Rev. Econ. Stat. 99). With the
        plain number, intervals over 15 documents of 1 to 30 rows covered only 0.90.
        """
        with np.errstate(all="ignore"):
            effective: Floats = 1 / _sums(self.group, self.share**2, len(self.n)) - 1
        return effective


class Estimates(NamedTuple):
    """A mean or rate for each group, with its interval; NaN where there is none.

    Attributes:
        value: The mean or rate.
        low: The lower end of its interval.
        high: The upper end of its interval.
        n_prompts: The number of prompts with a value.
        n_units: The number of units in the interval.
    """

    value: Floats
    low: Floats
    high: Floats
    n_prompts: Floats
    n_units: Floats


class _Mean(NamedTuple):
    """A mean for each group, with the moments that its interval needs.

    Attributes:
        value: The mean.
        spread: The standard deviation of units; NaN if they do not differ.
        skew: The skewness of units, reduced if there are few effective units.
        n_units: The number of units.
        freedom: Degrees of freedom.
    """

    value: Floats
    spread: Floats
    skew: Floats
    n_units: Floats
    freedom: Floats


def _mean(prompts: Prompts) -> _Mean:
    """Return means with a jackknife variance over units (Bell and McCaffrey 2002).

    That is, from how far the mean moves without each unit. A large unit draws the mean
    towards itself, so plain squared deviations are too small: with few large units,
    their intervals covered 0.87. For units of the same size both are the same.
    """
    units = prompts.units()
    m = units.n
    with np.errstate(all="ignore"):
        value = prompts.average()
        deviation = units.part * (prompts.mean - value[prompts.group])
        deviation = np.bincount(units.place, deviation, len(units.group))
        deviation = deviation * m[units.group]
        moves = deviation / (1 - units.share) * ((m - 1) / m)[units.group]
        spread = np.sqrt(_sums(units.group, moves**2, len(m)) / (m - 1))
        largest = np.zeros(len(m))
        np.maximum.at(largest, prompts.group, np.abs(prompts.mean))
        spread = np.where(spread > NEGLIGIBLE * largest, spread, np.nan)
        cubes = _sums(units.group, deviation**3, len(m))
        skew = m * cubes / ((m - 1) * (m - 2) * spread**3)
        # the skew of a few large units says little about others
        skew *= (units.freedom() + 1) / m
    return _Mean(value, spread, skew, m, units.freedom())


def means(
    prompts: Prompts,
    level: float = LEVEL,
    *,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> Estimates:
    """Return the mean of each group, with Student's t over prompts, or units of them.

    The interval is corrected for skew, which seconds and tokens have (Hall 1992, J. R.
    Stat. Soc. B 54): with ten prompts, plain t covers 0.90 of such means, this covers
    0.94. With few prompts the skew is estimated badly, so it is limited to the range
    where the correction is defined.

    Args:
        prompts: The values by prompt and group.
        level: How often an interval contains the true mean, from 0 to 1.
        limits: The range of possible means, such as 0 and 1 for shares.
    """
    mean = _mean(prompts)
    with np.errstate(all="ignore"):
        reach = t_quantile((1 + level) / 2, mean.freedom) / np.sqrt(mean.n_units)
        skew = np.clip(mean.skew, -MOST_BEND / reach, MOST_BEND / reach)
        ends = [
            mean.value - mean.spread * unskewed(end, skew, mean.n_units)
            for end in (reach, -reach)
        ]
    low, high = (
        np.where(mean.n_units >= MIN_PROMPTS, np.clip(end, *limits), np.nan)
        for end in ends
    )
    return Estimates(mean.value, low, high, prompts.sum(1), mean.n_units)


def unskewed(reach: Floats, skew: Floats, m: Floats) -> Any:  # noqa: ANN401 - an array
    """Solve Hall's cubic: return the deviation that it maps to `reach`."""
    small = np.abs(skew) < _NO_SKEW
    skew = np.where(small, 1.0, skew)
    deviation = 3 / skew * (np.cbrt(1 + skew * (reach - skew / (6 * m))) - 1)
    return np.where(small, reach, deviation)


def rates(prompts: Prompts, level: float = LEVEL) -> Estimates:
    """Return the rate of each group, with Wilson's interval for the effective n.

    That is the number of independent replies with the same variance, after the design
    effects of repeats and of units (Kish 1965). Student's t replaces the normal
    quantile (Korn and Graubard 1998).
    """
    # variance = sum(part**2 * variance of a prompt)
    #          + sum(part * part of another prompt of its unit) * their covariance
    units, variance = prompts.units(), _prompt_variance(prompts)
    squares = prompts.sum(units.part**2)
    products = _sums(units.group, units.share**2, prompts.n_groups) - squares
    covariance = _unit_covariance(prompts, units, variance)
    with np.errstate(all="ignore"):
        value = prompts.average()
        n = 1 / (prompts.sum(units.part**2 * variance) + products * covariance)
        low, high = wilson(value, n, t_quantile((1 + level) / 2, units.freedom()))
    is_enough = units.n >= MIN_PROMPTS
    low, high = (np.where(is_enough, end, np.nan) for end in (low, high))
    return Estimates(value, low, high, prompts.sum(1), units.n)


def _prompt_variance(prompts: Prompts) -> Floats:
    """Return the variance of each prompt's rate, as a share of that of one reply.

    It is scaled up to at least the variance that is observed between prompts: if easy
    prompts are repeated more, the repeats alone give too small a variance, and
    intervals covered 0.91.
    """
    icc, group, n = prompts.icc(), prompts.group, prompts.sum(1)
    with np.errstate(all="ignore"):
        by_repeats = icc[group] + (1 - icc[group]) / prompts.n
        rate = prompts.sum(prompts.mean) / n
        observed = prompts.sum((prompts.mean - rate[group]) ** 2) / (n - 1)
        observed = np.nan_to_num(observed / prompts.variance_of_a_reply())
        factor = np.maximum(observed * n / prompts.sum(by_repeats), 1.0)
    return np.asarray(np.minimum(by_repeats * factor[group], 1.0))


def _unit_covariance(prompts: Prompts, units: Units, variance: Floats) -> Floats:
    """Return the covariance of two prompts of one unit, by group.

    It is the variance of prompts less their variance within units; all as a share of
    the variance of one reply.
    """
    size = np.bincount(units.place, minlength=len(units.group))
    mean = np.bincount(units.place, prompts.mean, len(units.group)) / size
    within = prompts.sum((prompts.mean - mean[units.place]) ** 2)
    n_more = _sums(units.group, size - 1, prompts.n_groups)
    mean_variance = prompts.sum(variance) / np.maximum(prompts.sum(1), 1)
    within = within / np.maximum(n_more, 1) / prompts.variance_of_a_reply()
    return np.clip(mean_variance - within, 0.0, mean_variance)


def wilson(rate: Any, n: Any, quantile: Any) -> tuple[Any, Any]:  # noqa: ANN401 - numbers or arrays
    """Return Wilson's interval (1927) of a rate seen in n independent replies."""
    squared = quantile**2 / n
    middle = (rate + squared / 2) / (1 + squared)
    reach = (
        quantile / (1 + squared) * np.sqrt(rate * (1 - rate) / n + squared / (4 * n))
    )
    return np.maximum(middle - reach, 0.0), np.minimum(middle + reach, 1.0)


class Share(NamedTuple):
    """A share for each group; NaN where there is none."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Ratios:
    """A ratio of two sums over units for each group.

    For the variance, pseudo-counts are added: half a unit that is all right and half a
    unit that is all wrong. So a share of 0 or 1 has an interval, too.

    Attributes:
        value: Shape (groups,), as are the next four: the ratio without pseudo-counts;
            NaN where there are no units.
        steady: The ratio with pseudo-counts.
        prior: The variance that the pseudo-counts add.
        n_units: The number of units.
        freedom: Degrees of freedom: the effective number of units less one.
        unit, group: Shape (units,), as is `move`: the codes of each unit and its group.
        move: The contribution of the unit to the error of the ratio.
    """

    value: Floats
    steady: Floats
    prior: Floats
    n_units: Floats
    freedom: Floats
    unit: Any
    group: Any
    move: Floats

    @classmethod
    def of(
        cls,
        right: Floats,
        counted: Floats,
        unit: Any,  # noqa: ANN401 - codes
        group: Any,  # noqa: ANN401 - codes
        n_groups: int,
    ) -> "Ratios":
        """Add up numerators and denominators by unit and group.

        Args:
            right: Shape (rows,): the numerators, from 0 to `counted`.
            counted: Shape (rows,): the denominators. Rows with 0 are left out.
            unit: Shape (rows,): the code of the unit, such as a prompt.
            group: Shape (rows,): the code of the group.
            n_groups: The number of groups.
        """
        is_counted = counted > 0
        size = int(unit.max(initial=0)) + 1
        key = group[is_counted].astype(np.int64) * size + unit[is_counted]
        key, place = np.unique(key, return_inverse=True)
        part = np.bincount(place, right[is_counted], len(key))
        whole = np.bincount(place, counted[is_counted], len(key))
        group = key // size

        def total(values: Any) -> Floats:  # noqa: ANN401 - an array
            sums: Floats = np.bincount(group, values, n_groups).astype(float)
            return sums

        with np.errstate(all="ignore"):
            all_counted = total(whole)
            usual = total(whole**2) / all_counted  # the mean size, weighted by size
            steady = (total(part) + _PSEUDO * usual) / (all_counted + usual)
            prior = _PSEUDO * usual**2 * (steady**2 + (1 - steady) ** 2)
            return cls(
                value=total(part) / all_counted,
                steady=steady,
                prior=prior / (all_counted + usual) ** 2,
                n_units=total(np.ones(len(key))),
                freedom=all_counted / usual - 1,
                unit=key % size,
                group=group,
                move=(part - steady[group] * whole) / (all_counted + usual)[group],
            )

    def share(self, level: float = LEVEL) -> Share:
        """Return the ratios with Wilson's interval for the effective number of units.

        That is the number of independent units with the same variance (Kish 1965);
        Student's t replaces the normal quantile (Korn and Graubard 1998).
        """
        variance = np.bincount(self.group, self.move**2, len(self.value)) + self.prior
        return _wilson_of_ratio(
            self.value, self.steady, variance, self.freedom, self.n_units, level
        )

    def mean(
        self,
        groups: Any,  # noqa: ANN401 - codes
        n_means: int,
        *,
        scale: Callable[[Floats], Floats] = np.array,
        slope: Callable[[Floats], Floats] = np.ones_like,
        level: float = LEVEL,
    ) -> Share:
        """Return unweighted means of several ratios (macro averages).

        A unit may be in several ratios, so its moves are added up before they are
        squared (linearisation; Takahashi et al. 2022, Appl. Intell. 52, for F1).

        Args:
            groups: The code of the mean that each ratio belongs to; -1 is none.
            n_means: The number of means.
            scale: The function of a ratio, from 0 to 1, that is averaged.
            slope: The derivative of `scale`.
            level: How often an interval contains the true value, from 0 to 1.
        """
        is_part = (groups >= 0) & ~np.isnan(self.value)
        into = np.where(is_part, groups, n_means)
        n = np.bincount(into, minlength=n_means + 1).astype(float)

        def average(values: Floats) -> Floats:
            sums = np.bincount(into, np.where(is_part, values, 0.0), n_means + 1)
            averages: Floats = (sums / n)[:n_means]
            return averages

        size = int(self.unit.max(initial=0)) + 1
        key = into[self.group] * size + self.unit
        key, place = np.unique(key, return_inverse=True)
        with np.errstate(all="ignore"):
            bend = slope(self.steady)
            moves = (bend / n[into])[self.group] * self.move
            moved = np.bincount(place, moves, len(key)) ** 2
            of_mean = key // size
            priors = average(bend**2 * self.prior / n[into])
            variance = np.bincount(of_mean, moved, n_means + 1)[:n_means] + priors
            n_units = np.bincount(of_mean, minlength=n_means + 1)[:n_means]
            return _wilson_of_ratio(
                average(scale(self.value)),
                average(scale(self.steady)),
                variance,
                n_units - 1.0,
                n_units,
                level,
            )


def _wilson_of_ratio(
    value: Floats,
    steady: Floats,
    variance: Any,  # noqa: ANN401 - an array
    freedom: Any,  # noqa: ANN401 - an array
    n_units: Any,  # noqa: ANN401 - an array
    level: float,
) -> Share:
    with np.errstate(all="ignore"):
        # as many independent replies have this variance, without the pseudo-counts
        n = np.maximum(steady * (1 - steady) / variance - 2 * _PSEUDO, 1.0)
        low, high = wilson(value, n, t_quantile((1 + level) / 2, freedom))
    is_enough = n_units >= MIN_PROMPTS
    return Share(value, *(np.where(is_enough, end, np.nan) for end in (low, high)))

"""Means, rates and ratios, where repeats of a prompt are not independent.

Prompts are the sample: repeats of one prompt tell about that prompt, so that pooling
them as rows would give intervals that are far too short. Prompts of one unit, such as
the questions about one document, belong together likewise. All functions take arrays;
`tests/benchmarks/coverage_bench.py` measures how often the intervals hold the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from svc_notebook.errors import import_extra

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEVEL = 0.95
MIN_PROMPTS = 3
"""With fewer prompts there is no interval: it would hold nearly everything."""
NEGLIGIBLE = 1e-9
"""A spread that is less, by the largest value, is a rounding error: none."""
_NO_SKEW = 1e-6  # with less skew the correction would divide by nearly 0
# at 1 Hall's cubic is flat, and beyond it the correction is not defined
MOST_BEND = 0.9
_PSEUDO = 0.5  # prompts that are always right, and always wrong, behind a rate


def special() -> Any:  # noqa: ANN401 - a module that may be missing
    """Return SciPy's functions; None if the extra `stats` is not installed."""
    try:
        import scipy.special  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return scipy.special


def need_scipy(what: str) -> None:
    """Refuse what cannot be had without SciPy, naming the command that installs it."""
    import_extra("scipy.special", f"{what} need")


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
"""What counts the same in a mean: each prompt, or each reply."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """What each prompt got in each group: how many replies, their mean and spread.

    Attributes:
        group: The number of the group, from 0, of each prompt.
        n: Replies with a value; at least 1.
        mean: Their mean.
        variance: Their variance, with n - 1; NaN for one reply.
        unit: The number of the unit, such as a document, that each prompt belongs to:
            prompts of one unit are not independent. Each is its own unit if None.
        weight: How much each prompt counts in the mean; all the same if None.
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
        is_there = ~np.isnan(values)
        values = values[is_there]
        key = group[is_there].astype(np.int64) * (prompt.max(initial=0) + 1)
        key, firsts, cell = np.unique(
            key + prompt[is_there], return_index=True, return_inverse=True
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
            unit=None if unit is None else unit[is_there][firsts],
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
        """Return, by group, how alike the repeats of a prompt are: the ICC.

        It is 1 if the repeats of a prompt are always equal, and 0 if they differ as
        much as replies to different prompts (intraclass correlation).

        Only for values of 0 and 1. Without repeats it is 1, which is the careful
        answer.
        """
        repeated = ~np.isnan(self.variance)
        within = self.sum(np.nan_to_num(self.variance))
        within = within / np.maximum(self.sum(repeated), 1)
        return np.clip(1 - within / self.variance_of_a_reply(), 0.0, 1.0)

    def variance_of_a_reply(self) -> Floats:
        """Return, by group, the variance of a rate's single reply.

        Half a prompt that is always right and half a one that is always wrong keep the
        rate from being 0 or 1 by accident.
        """
        rate = (self.sum(self.mean) + _PSEUDO) / (self.sum(1) + 2 * _PSEUDO)
        return rate * (1 - rate)

    def units(self) -> "Units":
        """Return the units of prompts, and what part of its group's mean each is."""
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
        group: The group of each unit.
        place: The unit of each prompt.
        part: How much of its group's mean each prompt is; they add up to 1.
        share: The same of each unit.
        n: Units, by group.
    """

    group: Any
    place: Any
    part: Floats
    share: Floats
    n: Floats

    def freedom(self) -> Floats:
        """Return degrees of freedom, by group: n - 1 for units of the same size.

        Of very different sizes, few tell about all: they count as many as are left
        after Kish's design effect (Carter, Schnepel and Steigerwald 2017, Rev. Econ.
        Stat. 99). With n - 1, intervals of 15 documents of 1 to 30 rows covered 0.90.
        """
        with np.errstate(all="ignore"):
            effective: Floats = 1 / _sums(self.group, self.share**2, len(self.n)) - 1
        return effective


class Estimates(NamedTuple):
    """A mean or rate for each group; NaN where there is none.

    Attributes:
        n_prompts: Prompts with a value.
        n_units: What the interval is over: prompts, or units of them.
    """

    value: Floats
    low: Floats
    high: Floats
    n_prompts: Floats
    n_units: Floats


class _Mean(NamedTuple):
    """A mean for each group, and what tells how far it may be off.

    Attributes:
        spread: Standard deviation of a unit's part; NaN if nothing differs.
        skew: Of the units, as far as it is known.
        freedom: Degrees of freedom.
    """

    value: Floats
    spread: Floats
    skew: Floats
    n_units: Floats
    freedom: Floats


def _mean(prompts: Prompts) -> _Mean:
    """Return means whose variance is that of a ratio of sums over units.

    A unit counts by how far the mean moves without it (the jackknife; Bell and
    McCaffrey 2002), since few large units hide their own deviation in the mean: plain
    sums covered 0.87 there. For units of the same size this is Student's.
    """
    units = prompts.units()
    m = units.n
    with np.errstate(all="ignore"):
        value = prompts.average()
        rest = units.part * (prompts.mean - value[prompts.group])
        rest = np.bincount(units.place, rest, len(units.group)) * m[units.group]
        moves = rest / (1 - units.share) * ((m - 1) / m)[units.group]
        spread = np.sqrt(_sums(units.group, moves**2, len(m)) / (m - 1))
        largest = np.zeros(len(m))
        np.maximum.at(largest, prompts.group, np.abs(prompts.mean))
        spread = np.where(spread > NEGLIGIBLE * largest, spread, np.nan)
        cubes = _sums(units.group, rest**3, len(m))
        skew = m * cubes / ((m - 1) * (m - 2) * spread**3)
        skew *= (units.freedom() + 1) / m  # that of few large units is their own
    return _Mean(value, spread, skew, m, units.freedom())


def means(
    prompts: Prompts,
    level: float = LEVEL,
    *,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> Estimates:
    """Return the mean of each group, with Student's t over prompts, or units of them.

    Skew, which seconds and tokens have, is corrected for (Hall 1992, J. R. Stat. Soc. B
    54): for ten prompts plain t covers 0.90 of such means, this 0.94. With few prompts
    the skew is hardly known, so it counts only as far as the correction is defined.

    Args:
        prompts: What each prompt got.
        level: How often an interval holds the truth.
        limits: What a mean cannot be beyond, such as 0 and 1 for shares.
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

    The replies count as many as are left after the design effect of repeats and of
    units (Kish 1965), and Student's t replaces the normal quantile (Korn and Graubard
    1998).
    """
    units, own = prompts.units(), _own(prompts)
    alone = prompts.sum(units.part**2)
    together = _sums(units.group, units.share**2, prompts.n_groups) - alone
    with np.errstate(all="ignore"):
        value = prompts.average()
        n = 1 / (
            prompts.sum(units.part**2 * own) + together * _alike(prompts, units, own)
        )
        low, high = wilson(value, n, t_quantile((1 + level) / 2, units.freedom()))
    is_enough = units.n >= MIN_PROMPTS
    low, high = (np.where(is_enough, end, np.nan) for end in (low, high))
    return Estimates(value, low, high, prompts.sum(1), units.n)


def _own(prompts: Prompts) -> Floats:
    """Return the variance of each prompt's rate, as a share of that of one reply.

    Prompts vary at least as much as is seen: where easy ones are repeated more, the
    repeats alone promise too little, and intervals covered 0.91.
    """
    icc, group, n = prompts.icc(), prompts.group, prompts.sum(1)
    with np.errstate(all="ignore"):
        own = icc[group] + (1 - icc[group]) / prompts.n
        rate = prompts.sum(prompts.mean) / n
        seen = prompts.sum((prompts.mean - rate[group]) ** 2) / (n - 1)
        seen = np.nan_to_num(seen / prompts.variance_of_a_reply())
        more = np.maximum(seen * n / prompts.sum(own), 1.0)
    return np.asarray(np.minimum(own * more[group], 1.0))


def _alike(prompts: Prompts, units: Units, own: Floats) -> Floats:
    """Return, by group, the covariance of two prompts of one unit, on `own`'s scale.

    It is what the prompts of a unit vary less than all prompts do.
    """
    size = np.bincount(units.place, minlength=len(units.group))
    mean = np.bincount(units.place, prompts.mean, len(units.group)) / size
    within = prompts.sum((prompts.mean - mean[units.place]) ** 2)
    n_more = _sums(units.group, size - 1, prompts.n_groups)
    own = prompts.sum(own) / np.maximum(prompts.sum(1), 1)
    within = within / np.maximum(n_more, 1)
    return np.clip(own - within / prompts.variance_of_a_reply(), 0.0, own)


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

    Half a unit that is all right and half a one that is all wrong are added before the
    spread is taken, so that a share of 0 or 1 has an interval, too.

    Attributes:
        value: The ratio, without these; NaN where nothing counts.
        steady: The ratio with them.
        prior: What they add to its variance.
        n_units: Units that count.
        freedom: Degrees of freedom: units as far as they have the same size, less one.
        unit, group: The codes of each unit, and of the group it counts in.
        move: How far the unit moves the ratio from its value.
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
        """Add up what is right and what counts, by unit and group.

        Args:
            right: At least 0, and at most as large as `counted`.
            counted: What it is a part of. Rows of 0 do not count.
            unit: The code of each row's unit: a prompt, or what it belongs to.
            group: The code of its group.
            n_groups: How many groups there are.
        """
        counts = counted > 0
        size = int(unit.max(initial=0)) + 1
        key = group[counts].astype(np.int64) * size + unit[counts]
        key, place = np.unique(key, return_inverse=True)
        part = np.bincount(place, right[counts], len(key))
        whole = np.bincount(place, counted[counts], len(key))
        group = key // size

        def total(values: Any) -> Floats:  # noqa: ANN401 - an array
            sums: Floats = np.bincount(group, values, n_groups).astype(float)
            return sums

        with np.errstate(all="ignore"):
            all_counted = total(whole)
            usual = total(whole**2) / all_counted  # the size of a unit, large ones more
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
        """Return means of several ratios, which count the same (the macro average).

        A unit may count in several ratios, so its moves are added up before they are
        squared (linearisation; Takahashi et al. 2022, Appl. Intell. 52, for F1).

        Args:
            groups: The code of the mean that each ratio is part of; -1 is none.
            n_means: How many means there are.
            scale: What is averaged: a function of a ratio, from 0 to 1.
            slope: The derivative of `scale`.
            level: How often an interval holds the truth.
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
        n = np.maximum(steady * (1 - steady) / variance - 2 * _PSEUDO, 1.0)
        low, high = wilson(value, n, t_quantile((1 + level) / 2, freedom))
    is_enough = n_units >= MIN_PROMPTS
    return Share(value, *(np.where(is_enough, end, np.nan) for end in (low, high)))

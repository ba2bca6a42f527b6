"""Shares over prompts, such as precision, recall and agreement, with their intervals.

Each is a sum over prompts divided by another sum: of what was right, by all that
counts. Prompts, or units of them, are the sample, as in `statistics`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .statistics import LEVEL, MIN_PROMPTS, Floats, t_quantile, wilson

_PSEUDO = 0.5  # units that are always right, and always wrong, behind a share


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
        return _interval(
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
            return _interval(
                average(scale(self.value)),
                average(scale(self.steady)),
                variance,
                n_units - 1.0,
                n_units,
                level,
            )


def _interval(
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

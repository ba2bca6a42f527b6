"""Confidence sequences: intervals of a mean that are valid at any number of looks.

An interval for a fixed number of units is wrong more often with each further look.
These hold at all looks at once, so a study may stop at any of them. They depend on the
units seen so far, but not on their order. Only NumPy is needed.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .statistics import NEGLIGIBLE, Floats

MIN_UNITS = 20
"""The fewest units for numbers without bounds, where the sequence is asymptotic."""
# The best stake is the difference divided by its variance, so small differences need
# small stakes: the stakes are spread evenly on a logarithmic scale.
_STAKES = np.geomspace(0.02, 1.0, 16)
# the parameter that makes the asymptotic sequence narrowest at 100 units (level 0.95)
_MIXTURE = 12.60056
_HALVINGS = 40
_MOST_TIMES = 64.0  # a study is not extrapolated beyond this many times its units
_SAME = 1e-9  # values closer than this count as equal
_LARGEST_LOG, _SMALLEST_LOG = 700.0, -1e300  # exp() of these is finite, and 0


class Chances(NamedTuple):
    """One-sided always-valid p: of the mean being at most, and at least, the null."""

    above: float
    below: float


@dataclass(frozen=True, slots=True)
class BettingSequence:
    """A mean of units between -1 and 1, by betting (Waudby-Smith and Ramdas 2024).

    A gambler bets at fair odds that the mean is not a given one. If it is, the chance
    that the capital ever grows to k times is at most 1/k, so a large capital rules that
    mean out. Half of the capital bets that the mean is higher and half that it is lower
    (hedged); each half is divided over a set of stakes (grid Kelly), so that no stake
    needs to be guessed.

    Attributes:
        values: Shape (kinds,): the different values.
        counts: Shape (kinds,): how often each value was seen.
    """

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, units: Floats) -> "BettingSequence":
        """Return the sequence for the means, or differences, of units."""
        values, counts = np.unique(
            np.clip(np.round(units / _SAME) * _SAME, -1, 1), return_counts=True
        )
        return cls(values, counts.astype(float))

    @property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.counts.sum())

    @property
    def value(self) -> float:
        """The mean; NaN without units."""
        n = self.n_units
        return float(self.counts @ self.values) / n if n else np.nan

    @property
    def spread(self) -> float:
        """The standard deviation of the units; NaN for fewer than two."""
        n = self.n_units
        if n < 2:  # noqa: PLR2004 - the least that have a spread
            return np.nan
        squares = float(self.counts @ (self.values - self.value) ** 2)
        return float(np.sqrt(squares / (n - 1)))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.spread / float(np.sqrt(self.n_units)) if self.n_units else np.nan

    @property
    def freedom(self) -> float:
        """Degrees of freedom."""
        return self.n_units - 1

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval; each end is wrong with a chance of at most `tail`."""
        if not self.n_units:
            return np.nan, np.nan
        return self._lowest(1, tail), -self._lowest(-1, tail)

    def chances(self, null: float = 0.0) -> Chances:
        """Return the one-sided p: of the mean being at most, and at least, `null`.

        Args:
            null: A mean, between -1 and 1.
        """
        logs = np.array([self._log_capital(1, null), self._log_capital(-1, null)])
        above, below = np.exp(-logs.clip(0.0, _LARGEST_LOG)).tolist()
        return Chances(above, below)

    def p(self, null: float = 0.0) -> float:
        """Return the always-valid p: the interval at the level 1 - p ends at `null`."""
        if not self.n_units:
            return np.nan
        return min(2 * min(self.chances(null)), 1.0)

    def n_would_tell(self, null: float, tail: float) -> int | None:
        """Return how many units would rule out `null`, if further units are like these.

        Returns:
            The number in all; None if it is more than 64 times the present number.
        """
        if not self.n_units:
            return None
        side, wanted = 1 if self.value > null else -1, -np.log(tail)
        low, high = 0.0, _MOST_TIMES
        if self._log_capital(side, null, times=high) < wanted:
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_enough = self._log_capital(side, null, times=middle) >= wanted
            low, high = (low, middle) if is_enough else (middle, high)
        return int(np.ceil(high * self.n_units))

    def _lowest(self, side: int, tail: float) -> float:
        """Return the lowest mean that bets on a higher mean do not rule out.

        The higher the mean that is bet against, the smaller the capital of each stake.
        So there is exactly one such mean, and bisection finds it.

        Args:
            side: 1, or -1 for the mean of the negated values.
            tail: The largest chance that the true mean is ruled out.
        """
        low, high, wanted = -1.0, side * self.value, -np.log(tail)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_out = self._log_capital(side, side * middle) >= wanted
            low, high = (middle, high) if is_out else (low, middle)
        return low

    def _log_capital(self, side: int, null: float, *, times: float = 1.0) -> float:
        """Return the logarithm of the capital after bets on one side of a mean.

        Args:
            side: 1 bets that the mean is above `null`, -1 that it is below.
            null: The mean that is bet against.
            times: Pretend that all units were seen this many times.
        """
        gains, most = side * (self.values - null), 1 + side * null
        if most <= 0:  # null is -1 or 1: the mean is that only if all units are
            return np.inf if gains.any() else 0.0
        with np.errstate(divide="ignore"):
            by_stake = np.log1p(np.outer(gains / most, _STAKES).clip(-1))
        logs = times * self.counts @ by_stake
        largest = logs.max(initial=_SMALLEST_LOG)
        return float(largest + np.log(np.exp(logs - largest).mean()))


@dataclass(frozen=True, slots=True)
class NormalSequence:
    """A mean of units without bounds, from 20 units on (asymptotic).

    The interval uses a mixture of normal distributions (Waudby-Smith, Arbour, Sinha,
    Kennedy and Ramdas 2024, Ann. Stat. 52; the boundary is that of Howard, Ramdas,
    McAuliffe and Sekhon 2021, Ann. Stat. 49). It is narrowest near 100 units.

    Attributes:
        value: The mean.
        spread: The standard deviation of the units; NaN is not known.
        n_units: The number of units.
    """

    value: float
    spread: float
    n_units: int

    @classmethod
    def of(cls, units: Floats) -> "NormalSequence":
        """Return the sequence for the means, or differences, of units."""
        n = len(units)
        value = float(units.mean()) if n else np.nan
        spread = float(units.std(ddof=1)) if n >= MIN_UNITS else np.nan
        largest = float(np.abs(units).max(initial=0.0))
        # if all units are equal, nothing is known about how others vary
        is_unknown = not spread > NEGLIGIBLE * largest
        return cls(value, np.nan if is_unknown else spread, n)

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN is not known."""
        return self.spread / float(np.sqrt(self.n_units)) if self.n_units else np.nan

    @property
    def freedom(self) -> float:
        """Degrees of freedom."""
        return self.n_units - 1

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval; each end is wrong with a chance of at most `tail`."""
        reach = self._reach(self.n_units, tail)
        return self.value - reach, self.value + reach

    def p(self, null: float = 0.0) -> float:
        """Return the always-valid p: the interval at the level 1 - p ends at `null`."""
        n = self.n_units
        # 1 / the mixture of likelihood ratios, for the sum in standard deviations
        total = n * (self.value - null) / self.spread
        scale = np.sqrt((n + _MIXTURE) / _MIXTURE)
        return float(
            np.minimum(scale * np.exp(-(total**2) / (2 * (n + _MIXTURE))), 1.0)
        )

    def n_would_tell(self, null: float, tail: float) -> int | None:
        """Return how many units would rule out `null`, if further units are like these.

        Returns:
            The number in all; None if it is more than 64 times the present number.
        """
        distance = abs(self.value - null)
        low, high = 0, int(_MOST_TIMES * self.n_units)
        if not self._reach(high, tail) < distance:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            is_enough = self._reach(middle, tail) < distance
            low, high = (low, middle) if is_enough else (middle, high)
        return max(high, MIN_UNITS)

    def _reach(self, n: int, tail: float) -> float:
        if n < MIN_UNITS:
            return np.nan
        log = np.log((n + _MIXTURE) / _MIXTURE) - 2 * np.log(2 * tail)
        return float(self.spread * np.sqrt((n + _MIXTURE) * log) / n)


Looks = Literal["one", "any"]
"""How often a study is looked at: only once, at its end, or at any time."""
ConfidenceSequence = BettingSequence | NormalSequence
"""A mean with an interval at any level, valid at any time."""


def sequence_of(units: Floats, *, is_bounded: bool) -> ConfidenceSequence:
    """Return the confidence sequence of the mean difference.

    Args:
        units: Shape (units,): the difference of each unit.
        is_bounded: Whether all differences are within -1 to 1, as those of shares are.
    """
    return (BettingSequence if is_bounded else NormalSequence).of(units)

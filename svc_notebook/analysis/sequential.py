"""Confidence sequences: intervals of a mean that may be looked at again and again.

An interval of a fixed number of units is wrong more often with each look. These hold
at all looks at once, so a study may stop at any of them. They depend on the units seen
and not on their order. Arrays in, numbers out; numpy alone.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .statistics import NEGLIGIBLE, Floats

MIN_UNITS = 20
"""The least units for numbers without bounds, where the sequence is asymptotic."""
# Bets are spread evenly over the logarithm of the stake: the best stake is the
# difference by its variance, so small differences need small ones.
_STAKES = np.geomspace(0.02, 1.0, 16)
# what makes the asymptotic sequence the narrowest at 100 units with the level 0.95
_MIXTURE = 12.60056
_HALVINGS = 40
_MOST_TIMES = 64.0  # as many units as were seen; what needs more is not said
_WHOLE = 1e-9  # differences closer than this are the same one
_SURE, _NOTHING = 700.0, -1e300  # logarithms of what is as good as sure, and as 0


class Chances(NamedTuple):
    """Always-valid p of one side each: that the mean is not above, and not below."""

    above: float
    below: float


@dataclass(frozen=True, slots=True)
class BettingSequence:
    """A mean of units between -1 and 1, by betting (Waudby-Smith and Ramdas 2024).

    A gambler bets against a mean at fair odds. Capital that has grown k times is
    seen, at any time at all, with a chance of at most 1/k if the mean is that one. Half
    of the capital bets that the mean is higher and half that it is lower (hedged), each
    half with all of a set of stakes at once (grid Kelly), so that none must be guessed.

    Attributes:
        values: The different values.
        counts: How often each was seen.
    """

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, units: Floats) -> "BettingSequence":
        """Return the sequence of the means, or differences, of units."""
        values, counts = np.unique(
            np.clip(np.round(units / _WHOLE) * _WHOLE, -1, 1), return_counts=True
        )
        return cls(values, counts.astype(float))

    @property
    def n_units(self) -> int:
        """How many units it is over."""
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
        """Return the interval that leaves out so much on each side, over all looks."""
        if not self.n_units:
            return np.nan, np.nan
        return self._lowest(1, tail), -self._lowest(-1, tail)

    def chances(self, null: float = 0.0) -> Chances:
        """Return how likely capital grows so far if the mean is at most, or at least.

        Args:
            null: That mean, between -1 and 1.
        """
        logs = np.array([self._log_capital(1, null), self._log_capital(-1, null)])
        above, below = np.exp(-logs.clip(0.0, _SURE)).tolist()
        return Chances(above, below)

    def p(self, null: float = 0.0) -> float:
        """Return the always-valid p of a mean: the interval of 1 - p ends at it."""
        if not self.n_units:
            return np.nan
        return min(2 * min(self.chances(null)), 1.0)

    def n_would_tell(self, null: float, tail: float) -> int | None:
        """Return how many units would leave `null` out, if more are like these.

        Returns:
            The number in all; None if it is more than 64 times as many.
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
        """Return the lowest mean that the bets on a higher one do not rule out.

        The capital of each stake, which is a share of the largest one that cannot go
        below 0, falls with the mean that is bet against: one step leads to one end.

        Args:
            side: 1, or -1 for the mean of the values with the other sign.
            tail: How likely it is at most that it rules out the true one.
        """
        low, high, wanted = -1.0, side * self.value, -np.log(tail)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_out = self._log_capital(side, side * middle) >= wanted
            low, high = (middle, high) if is_out else (low, middle)
        return low

    def _log_capital(self, side: int, null: float, *, times: float = 1.0) -> float:
        """Return the logarithm of what 1 has become by bets on one side of a mean.

        Args:
            side: 1 bets that the mean is above `null`, -1 that it is below.
            null: The mean that is bet against.
            times: How often all units were seen.
        """
        gains, most = side * (self.values - null), 1 + side * null
        if most <= 0:  # a mean that only units of this value have
            return np.inf if gains.any() else 0.0
        with np.errstate(divide="ignore"):
            by_stake = np.log1p(np.outer(gains / most, _STAKES).clip(-1))
        logs = times * self.counts @ by_stake
        largest = logs.max(initial=_NOTHING)
        return float(largest + np.log(np.exp(logs - largest).mean()))


@dataclass(frozen=True, slots=True)
class NormalSequence:
    """A mean of units that have no bounds, from 20 units on (asymptotic).

    Its width is that of a mixture of normal distributions (Waudby-Smith, Arbour, Sinha,
    Kennedy and Ramdas 2024, Ann. Stat. 52; the boundary is that of Howard, Ramdas,
    McAuliffe and Sekhon 2021, Ann. Stat. 49), which is the narrowest near 100 units.

    Attributes:
        value: The mean.
        spread: The standard deviation of the units; NaN is not known.
        n_units: How many units it is over.
    """

    value: float
    spread: float
    n_units: int

    @classmethod
    def of(cls, units: Floats) -> "NormalSequence":
        """Return the sequence of the means, or differences, of units."""
        n = len(units)
        value = float(units.mean()) if n else np.nan
        spread = float(units.std(ddof=1)) if n >= MIN_UNITS else np.nan
        largest = float(np.abs(units).max(initial=0.0))
        is_none = not spread > NEGLIGIBLE * largest  # then nothing is known of others
        return cls(value, np.nan if is_none else spread, n)

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN is not known."""
        return self.spread / float(np.sqrt(self.n_units)) if self.n_units else np.nan

    @property
    def freedom(self) -> float:
        """Degrees of freedom."""
        return self.n_units - 1

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the interval that leaves out so much on each side, over all looks."""
        reach = self._reach(self.n_units, tail)
        return self.value - reach, self.value + reach

    def p(self, null: float = 0.0) -> float:
        """Return the always-valid p of a mean: the interval of 1 - p ends at it."""
        n = self.n_units
        away = n * (self.value - null) / self.spread
        p = np.sqrt((n + _MIXTURE) / _MIXTURE)
        return float(np.minimum(p * np.exp(-(away**2) / (2 * (n + _MIXTURE))), 1.0))

    def n_would_tell(self, null: float, tail: float) -> int | None:
        """Return how many units would leave `null` out, if more are like these.

        Returns:
            The number in all; None if it is more than 64 times as many.
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
"""How often a study is looked at: once, at its end, or whenever one likes."""
ConfidenceSequence = BettingSequence | NormalSequence
"""A mean with an interval for each level, valid at any time."""


def sequence_of(units: Floats, *, is_bounded: bool) -> ConfidenceSequence:
    """Return the sequence of differences of units.

    Args:
        units: A difference each.
        is_bounded: Whether none can be outside of -1 to 1, as those of shares.
    """
    return (BettingSequence if is_bounded else NormalSequence).of(units)

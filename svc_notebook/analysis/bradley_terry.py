"""Strengths from comparisons in pairs: Bradley and Terry, with Davidson's ties (1970).

A candidate wins against another in proportion to exp(strength); a tie is in proportion
to the geometric mean of both.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .statistics import Floats

Ints = npt.NDArray[np.int64]
# keeps strengths finite that the verdicts do not determine (such as those of candidates
# that were never compared); too small to change a digit that is shown
_RIDGE = 1e-6
_LARGEST_STEP = 1.0  # far from the maximum a full Newton step may overshoot
_MOST_STEPS = 100
_TOLERANCE = 1e-8  # a step as small as this ends the iteration


@dataclass(frozen=True, slots=True)
class PairVerdicts:
    """The outcome of each comparison of two candidates, and the unit it belongs to.

    Attributes:
        n_candidates: The number of candidates; they are numbered from 0.
        outcome: Shape (verdicts,): the position of the pair in `pairs` if its first
            candidate won; plus the number of pairs if its second won; plus twice the
            number of pairs for a tie.
        unit: Shape (verdicts,): the number of the unit, from 0 without gaps.
    """

    n_candidates: int
    outcome: Ints
    unit: Ints

    @classmethod
    def of(
        cls,
        n_candidates: int,
        sides: Ints,
        outcome: Ints,
        unit: Ints,
    ) -> "PairVerdicts":
        """Encode verdicts.

        Args:
            n_candidates: The number of candidates.
            sides: Shape (verdicts, 2): two different candidates for each verdict.
            outcome: Shape (verdicts,): 0 if the first of them won, 1 if the second did,
                2 for a tie.
            unit: Shape (verdicts,): the number of the unit, from 0 without gaps.
        """
        first, second = pairs(n_candidates).T
        place = np.zeros((n_candidates, n_candidates), dtype=np.int64)
        place[first, second] = place[second, first] = np.arange(len(first))
        is_swapped = (sides[:, 0] > sides[:, 1]) & (outcome < 2)  # noqa: PLR2004 - a tie
        outcome = np.where(is_swapped, 1 - outcome, outcome)
        number = outcome * len(first) + place[sides[:, 0], sides[:, 1]]
        return cls(n_candidates, number, unit)

    @property
    def counts(self) -> Floats:
        """How often each outcome occurred, shape (3 * pairs,)."""
        n_outcomes = 3 * len(pairs(self.n_candidates))
        return np.bincount(self.outcome, minlength=n_outcomes).astype(np.float64)

    @property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.unit.max(initial=-1)) + 1

    def beats(self) -> npt.NDArray[np.bool_]:
        """Return whether the row's candidate won or tied against the column's."""
        first, second = pairs(self.n_candidates).T
        won, lost, tied = self.counts.reshape(3, -1)
        beats = np.zeros((self.n_candidates, self.n_candidates), dtype=bool)
        beats[first, second] = (won + tied) > 0
        beats[second, first] = (lost + tied) > 0
        return beats

    def half_won(self) -> Floats:
        """Return the counts of a made-up unit of average size.

        In it each candidate wins half of the verdicts of each pair that was compared.
        """
        compared = self.counts.reshape(3, -1).sum(axis=0)
        share = (compared > 0) / max(int((compared > 0).sum()), 1)
        half = share * compared.sum() / max(self.n_units, 1) / 2
        return np.concatenate([half, half, np.zeros_like(half)])


def pairs(n_candidates: int) -> Ints:
    """Return all pairs of candidates, the smaller number first."""
    listed = list(combinations(range(n_candidates), 2))
    return np.array(listed, dtype=np.int64).reshape(-1, 2)


def reachable(edges: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return whether the column's candidate can be reached from the row's along edges.

    Shape (candidates, candidates); each candidate reaches itself.
    """
    # squaring the matrix doubles the length of the paths that are followed
    reached = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges)):
        reached = (reached.astype(np.int64) @ reached.astype(np.int64)) > 0
    return reached


def strengths(n_candidates: int, counts: Floats) -> Floats:
    """Fit strengths, as natural logarithms with mean 0.

    Args:
        n_candidates: The number of candidates.
        counts: Shape (3 * pairs,): how often each outcome occurred, as in
            `PairVerdicts`.

    Returns:
        Shape (candidates,).
    """
    values = _fit(_features(n_candidates), counts).values[:n_candidates]
    centred: Floats = values - values.mean()
    return centred


def covariance(verdicts: PairVerdicts) -> Floats:
    """Return the covariance of the strengths, robust to clusters (a sandwich).

    Verdicts of one unit may depend on each other: one pick among four candidates makes
    three verdicts. Resampling units (bootstrap) allows for that as well, but with 20 or
    30 units its intervals were too short in simulated studies.

    The made-up unit of `half_won` is always added here. So a candidate that never won
    has a finite error, too, and errors are not too small where there are few units.

    Returns:
        Shape (candidates, candidates).
    """
    n_candidates, half = verdicts.n_candidates, verdicts.half_won()
    features = _features(n_candidates)
    fit = _fit(features, verdicts.counts + half)
    # the gradient of the log likelihood: of each outcome, then summed over each unit
    gradient = (features - fit.mean).reshape(-1, features.shape[2])
    by_unit = np.zeros((verdicts.n_units, features.shape[2]))
    np.add.at(by_unit, verdicts.unit, gradient[verdicts.outcome])
    meat = by_unit.T @ by_unit + gradient.T @ (gradient * half[:, None])
    # the sandwich: information^-1 @ meat @ information^-1
    sandwich = np.linalg.solve(
        fit.information, np.linalg.solve(fit.information, meat).T
    )
    # only differences of strengths are determined, so their mean is taken out
    centre = np.eye(n_candidates) - 1 / n_candidates
    centred: Floats = centre @ sandwich[:n_candidates, :n_candidates] @ centre
    return centred


class _Fit(NamedTuple):
    values: Floats  # the strengths, then how likely ties are; all as logarithms
    mean: Floats  # the expected features of each pair
    information: Floats  # minus the second derivatives of the log likelihood


def _fit(features: Floats, counts: Floats) -> _Fit:
    """Fit by Newton's method."""
    by_pair = counts.reshape(3, -1)
    may_tie = by_pair[2].any()  # without ties, their parameter would go to -inf
    values = np.zeros(features.shape[2])
    ridge = _RIDGE * np.eye(len(values))
    for _ in range(_MOST_STEPS):
        chance = np.exp(features @ values)
        chance[2] *= may_tie
        chance /= chance.sum(axis=0)
        expected = by_pair.sum(axis=0) * chance
        # o: outcome of a pair, p: pair, d and e: parameter
        mean = np.einsum("op,opd->pd", chance, features)
        centred = features - mean
        information = np.einsum("op,opd,ope->de", expected, centred, centred) + ridge
        gradient = np.einsum("op,opd->d", by_pair - expected, features)
        gradient -= _RIDGE * values
        step = np.linalg.solve(information, gradient)
        largest = float(np.abs(step).max())
        if largest < _TOLERANCE:
            break
        values += step * min(1.0, _LARGEST_STEP / largest)
    return _Fit(values, mean, information)


def _features(n_candidates: int) -> Floats:
    """Return the weight of each parameter in the logarithm of each outcome's chance.

    Shape (3, pairs, candidates + 1): win of the first, win of the second, tie.
    """
    first, second = pairs(n_candidates).T
    pair = np.arange(len(first))
    features = np.zeros((3, len(first), n_candidates + 1))
    features[0, pair, first] = features[1, pair, second] = 1.0
    features[2, pair, first] = features[2, pair, second] = 0.5  # the geometric mean
    features[2, :, -1] = 1.0
    return features

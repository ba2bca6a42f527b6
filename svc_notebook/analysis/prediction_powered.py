"""A difference in labels of people, from scores of all replies and a few labels.

Prediction-powered inference with a tuned weight (Angelopoulos, Duchi and Zrnic 2023,
PPI++): the scores say how large the difference is, and where there are labels, how
wrong the scores are on average is subtracted. It has no bias, whatever the scores do,
if the labels are a random sample. Figures in, a figure out.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .differences import Figure, Sample
from .statistics import MIN_PROMPTS, NEGLIGIBLE, Floats


class Powered(NamedTuple):
    """A figure of labels that scores make surer.

    Attributes:
        figure: With what each unit adds to its error, through labels and scores.
        weight: How much the scores count; with 0 the labels are alone.
    """

    figure: Figure
    weight: float


def powered(labels: Figure, scored: Figure, all_scored: Figure) -> Powered:
    """Correct the mean score of all units by those that have labels, too.

    Args:
        labels: The mean label, or a difference of two.
        scored: The same of the scores, over what has labels.
        all_scored: The same of all scores.
    """
    weight = _weight(labels, scored, all_scored)
    if not weight:
        return Powered(labels, 0.0)
    [label], [of_labelled], [of_all] = (
        figure.samples for figure in (labels, scored, all_scored)
    )
    # the slope was fitted to the same labels, which takes a degree of freedom
    fitted = np.sqrt(label.freedom / max(label.freedom - 1, 1.0))
    wrong = fitted * (label.influence - weight * of_labelled.influence)
    right = weight * of_all.influence
    errors, spread = max(_squares(wrong), label.floor), _squares(right)
    # as many degrees of freedom as the part has that adds the most to the error
    part = errors / (errors + spread) if errors + spread else 1.0
    sample = Sample(
        influence=wrong + right,
        share=part * label.share + (1 - part) * of_all.share,
        floor=label.floor + spread if label.floor else 0.0,
    )
    value = labels.value + weight * (all_scored.value - scored.value)
    return Powered(replace(labels, value=value, samples=(sample,)), weight)


class Parts(NamedTuple):
    """What makes a corrected figure unsure: what scores say of labels, and the rest.

    Attributes:
        rest: What the scores do not say of the label of each unit that has one.
        wrong: The variance of that.
        right: The variance of what they do say.
        slope: Of the labels on the scores, which takes a degree of freedom; or 0.
    """

    rest: Floats
    wrong: float
    right: float
    slope: float

    @property
    def correlation(self) -> float:
        """How scores and labels go together: 0 is not at all, and 1 is wholly."""
        variance = self.wrong + self.right
        return float(np.sqrt(self.right / variance)) if variance else 0.0

    def error(self, n_labelled: float, n_units: float) -> float:
        """Return the standard error with so many units, and labels of some of them."""
        return float(np.sqrt(sum(self._variances(n_labelled, n_units))))

    def freedom(self, n_labelled: float, n_units: float) -> float:
        """Return degrees of freedom of Student's t, as `powered` has them."""
        errors, spread = self._variances(n_labelled, n_units)
        part = errors / (errors + spread) if errors + spread else 1.0
        return 1 / (part**2 / n_labelled + (1 - part**2) / n_units) - 1

    def _variances(self, n_labelled: float, n_units: float) -> tuple[float, float]:
        fitted = (n_labelled - 1) / (n_labelled - 2) if self.slope else 1.0
        return fitted * self.wrong / n_labelled, self.right / n_units


def parts_of(labels: Figure, scored: Figure, all_scored: Figure) -> Parts:
    """Return what a pilot says of both parts of the error; arguments as `powered`.

    As many units as have labels may hide one that differs, as `Figure.with_floor` says.
    """
    slope, n, n_all = _slope(labels, scored), labels.n_units, all_scored.n_units
    if n < MIN_PROMPTS:
        return Parts(np.zeros(n), np.nan, np.nan, 0.0)
    label, score, of_all = (
        figure.samples[0] for figure in (labels, scored, all_scored)
    )
    rest = label.influence - slope * score.influence
    is_used = label.share > 0
    return Parts(
        rest=rest[is_used] / label.share[is_used],
        wrong=max(_squares(rest), label.floor) * n * n / (n - (2 if slope else 1)),
        right=slope**2 * _squares(of_all.influence) * n_all * n_all / (n_all - 1),
        slope=slope,
    )


def _weight(labels: Figure, scored: Figure, all_scored: Figure) -> float:
    is_more = all_scored.n_units > scored.n_units
    return _slope(labels, scored) if is_more else 0.0


def _slope(labels: Figure, scored: Figure) -> float:
    """Return the slope of labels on scores, which makes the error the smallest.

    Scores that run against the labels count nothing: in few labels it is chance.
    """
    if labels.n_units < MIN_PROMPTS:
        return 0.0
    label, score = labels.samples[0].influence, scored.samples[0].influence
    squares = _squares(score)
    if np.sqrt(squares) <= NEGLIGIBLE * abs(scored.value):  # a rounding error
        return 0.0
    return max(float(label @ score) / squares, 0.0) if squares else 0.0


def _squares(influence: Floats) -> float:
    return float(influence @ influence)

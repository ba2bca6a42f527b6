"""Prediction-powered inference: a difference in labels, from all scores and few labels.

With a tuned weight (PPI++: Angelopoulos, Duchi and Zrnic 2023). The difference is
estimated from the scores of all replies, and corrected by the mean error of the scores
on the replies that have labels. If the labels are a random sample, the result has no
bias, however wrong the scores are.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .differences import Figure, Sample
from .statistics import MIN_PROMPTS, NEGLIGIBLE, Floats


class Powered(NamedTuple):
    """A figure of labels, made more precise by scores.

    Attributes:
        figure: The figure, with the contribution of each unit's labels and scores to
            its error.
        weight: The weight of the scores; with 0 only the labels count.
    """

    figure: Figure
    weight: float


def powered(labels: Figure, scored: Figure, all_scored: Figure) -> Powered:
    """Correct the mean score of all units by the units that also have labels.

    Args:
        labels: The mean label, or a difference of two means.
        scored: The same figure of the scores, over the units with labels.
        all_scored: The same figure of the scores, over all units.
    """
    weight = _weight(labels, scored, all_scored)
    if not weight:
        return Powered(labels, 0.0)
    [label], [of_labelled], [of_all] = (
        figure.samples for figure in (labels, scored, all_scored)
    )
    # the weight was fitted to the same labels, which takes a degree of freedom
    fitted = np.sqrt(label.freedom / max(label.freedom - 1, 1.0))
    # value = (mean label - weight * mean score of labelled) + weight * mean of all
    residual = fitted * (label.influence - weight * of_labelled.influence)
    predicted = weight * of_all.influence
    residual_squares = max(_squares(residual), label.floor)
    predicted_squares = _squares(predicted)
    # the degrees of freedom are weighted by how much each part adds to the error
    squares = residual_squares + predicted_squares
    part = residual_squares / squares if squares else 1.0
    sample = Sample(
        influence=residual + predicted,
        share=part * label.share + (1 - part) * of_all.share,
        floor=label.floor + predicted_squares if label.floor else 0.0,
    )
    value = labels.value + weight * (all_scored.value - scored.value)
    return Powered(replace(labels, value=value, samples=(sample,)), weight)


class Parts(NamedTuple):
    """The two parts of the variance of a corrected figure, from a pilot.

    Attributes:
        residuals: Shape (labelled units,): the label less its prediction from scores.
        residual_variance: The variance of the residuals.
        predicted_variance: The variance of the predictions.
        slope: The slope of labels on scores; 0 if the scores do not count. Unless it is
            0, fitting it takes a degree of freedom.
    """

    residuals: Floats
    residual_variance: float
    predicted_variance: float
    slope: float

    @property
    def correlation(self) -> float:
        """The correlation of scores and labels, from 0 to 1."""
        variance = self.residual_variance + self.predicted_variance
        return float(np.sqrt(self.predicted_variance / variance)) if variance else 0.0

    def error(self, n_labelled: float, n_units: float) -> float:
        """Return the standard error for these numbers of labels and units."""
        return float(np.sqrt(sum(self._variances(n_labelled, n_units))))

    def freedom(self, n_labelled: float, n_units: float) -> float:
        """Return the degrees of freedom of Student's t, as in `powered`."""
        residual, predicted = self._variances(n_labelled, n_units)
        part = residual / (residual + predicted) if residual + predicted else 1.0
        return 1 / (part**2 / n_labelled + (1 - part**2) / n_units) - 1

    def _variances(self, n_labelled: float, n_units: float) -> tuple[float, float]:
        fitted = (n_labelled - 1) / (n_labelled - 2) if self.slope else 1.0
        residual = fitted * self.residual_variance / n_labelled
        return residual, self.predicted_variance / n_units


def parts_of(labels: Figure, scored: Figure, all_scored: Figure) -> Parts:
    """Return both parts of the variance in a pilot; the arguments are as in `powered`.

    The residual variance has the floor of `Figure.with_floor`, since a unit that
    differs may just not have been labelled yet.
    """
    slope, n, n_all = _slope(labels, scored), labels.n_units, all_scored.n_units
    if n < MIN_PROMPTS:
        return Parts(np.zeros(n), np.nan, np.nan, 0.0)
    label, score, of_all = (
        figure.samples[0] for figure in (labels, scored, all_scored)
    )
    residual = label.influence - slope * score.influence
    is_used = label.share > 0
    squares = max(_squares(residual), label.floor)
    predicted_squares = slope**2 * _squares(of_all.influence)
    return Parts(
        residuals=residual[is_used] / label.share[is_used],
        residual_variance=squares * n * n / (n - (2 if slope else 1)),
        predicted_variance=predicted_squares * n_all * n_all / (n_all - 1),
        slope=slope,
    )


def _weight(labels: Figure, scored: Figure, all_scored: Figure) -> float:
    # if all units have labels, scores add nothing
    has_unlabelled = all_scored.n_units > scored.n_units
    return _slope(labels, scored) if has_unlabelled else 0.0


def _slope(labels: Figure, scored: Figure) -> float:
    """Return the slope of labels on scores, the weight with the smallest error.

    A negative slope counts as 0: with few labels, it occurs by chance.
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

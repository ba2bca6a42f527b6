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


def _weight(labels: Figure, scored: Figure, all_scored: Figure) -> float:
    """Return the slope of labels on scores, which makes the error the smallest.

    Scores that run against the labels count nothing: in few labels it is chance.
    """
    is_more = all_scored.n_units > scored.n_units
    if labels.n_units < MIN_PROMPTS or not is_more:
        return 0.0
    label, score = labels.samples[0].influence, scored.samples[0].influence
    squares = _squares(score)
    if np.sqrt(squares) <= NEGLIGIBLE * abs(scored.value):  # a rounding error
        return 0.0
    return max(float(label @ score) / squares, 0.0) if squares else 0.0


def _squares(influence: Floats) -> float:
    return float(influence @ influence)

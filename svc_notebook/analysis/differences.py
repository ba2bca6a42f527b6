"""Differences between two groups of replies: their interval, and whether it is chance.

Prompts are the sample, as in `statistics`.
"""

from math import ceil
from typing import NamedTuple

import numpy as np

from .statistics import LEVEL, MIN_PROMPTS, Floats, Prompts, special, t_quantile

POWER = 0.8
_FADE = 3  # by simulation: 1 covered 0.999 of noisy rates, 4 only 0.92 of steady ones


class Difference(NamedTuple):
    """The mean difference over paired prompts; NaN is not known.

    Attributes:
        spread: Standard deviation of the prompts' differences.
        p: Corrected for the comparisons, as is the interval.
        smallest: The smallest difference that would be found with `POWER`.
    """

    value: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    smallest: float = np.nan
    spread: float = np.nan


def paired(
    differences: Floats, *, n_comparisons: int = 1, share: float | None = None
) -> Difference:
    """Compare by Student's t on the differences of prompts (Student 1908).

    Bonferroni's correction widens the interval and raises p alike, so p is below 0.05
    exactly where the interval leaves out 0.

    Args:
        differences: The mean difference of each prompt.
        n_comparisons: How many are made at once.
        share: For rates, the mean of their `shares`. The spread is at least that of
            one prompt that differs, which may just not have come up yet: without this
            floor intervals of rates near 1 covered 0.5 to 0.9. Where repeats differ,
            so do most prompts, by little, and the floor fades.
    """
    m = len(differences)
    value = float(differences.mean()) if m else np.nan
    if m < MIN_PROMPTS:
        return Difference(value)
    squares = float(((differences - value) ** 2).sum())
    if share is not None:
        squares = max(squares, share**_FADE)
    spread = float(np.sqrt(squares / (m - 1)))
    error, tail = spread / np.sqrt(m), (1 - LEVEL) / 2 / n_comparisons
    functions = special()
    if functions is None or not error:
        return Difference(value, spread=spread)
    quantile = float(t_quantile(1 - tail, m - 1))
    p = 2 * float(functions.stdtr(m - 1, -abs(value) / error)) * n_comparisons
    most = np.inf if share is None else 1.0  # rates cannot differ by more
    return Difference(
        value,
        low=max(value - quantile * error, -most),
        high=min(value + quantile * error, most),
        p=min(p, 1.0),
        smallest=(quantile + float(t_quantile(POWER, m - 1))) * error,
        spread=spread,
    )


def shares(prompts: Prompts) -> Floats:
    """Return, by group, the variance of a prompt's rate as a share of one reply's.

    It is 1 where the repeats of a prompt are all equal, and 1/n where n repeats differ
    as much as replies to different prompts.
    """
    icc = prompts.icc()
    return icc + (1 - icc) * prompts.sum(1 / prompts.n) / np.maximum(prompts.sum(1), 1)


def prompts_needed(difference: float, spread: float, *, n_comparisons: int = 1) -> int:
    """Return how many prompts find a difference with `POWER`: see `paired`."""
    tail, m = (1 - LEVEL) / 2 / n_comparisons, MIN_PROMPTS
    # t depends on the number of prompts: repeat until the number stays the same
    for _ in range(100):
        quantiles = t_quantile(1 - tail, m - 1) + t_quantile(POWER, m - 1)
        wanted = max(ceil((quantiles * spread / difference) ** 2), MIN_PROMPTS)
        if wanted == m:
            break
        m = wanted if wanted > m else max((m + wanted) // 2, wanted)
    return m

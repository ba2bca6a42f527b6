"""How far raters agree: Krippendorff's alpha, with an interval.

Alpha is 1 - D_o / D_e: D_o (observed) is how much the ratings of one reply differ, D_e
(expected) how much the ratings of any two replies differ. It allows for any number of
raters, and for replies that some did not rate. Krippendorff, Content Analysis (2004),
chapter 11.

The interval is that of D_o, with D_e taken as known. A bootstrap over replies would be
too narrow: if raters nearly always agree, few replies show how often they disagree.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words

from .rounding import number_with_interval
from .statistics import MIN_PROMPTS, Ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterAgreement:
    """How far raters agree.

    Attributes:
        alpha: 1 is full agreement, 0 is agreement by chance; NaN if all ratings are
            equal.
        low, high: Its interval at 0.95, over replies; NaN for fewer than 3 replies, and
            without SciPy.
        n_items: How many replies have two ratings or more.
        n_raters: How many people rated at least one of them.
        agree: Of the pairs of ratings of the same reply, the share that are equal.
    """

    alpha: float
    low: float
    high: float
    n_items: int
    n_raters: int
    agree: float

    @property
    def says(self) -> str:
        """The agreement as a sentence."""
        head = (
            f"{self.n_raters} raters gave {count_in_words(self.n_items, 'replies')} "
            f"the same value in {100 * self.agree:.0f} % of cases"
        )
        if np.isnan(self.alpha):
            return f"{head}, always the same one, so alpha is not defined."
        alpha = number_with_interval(self.alpha, self.low, self.high)
        return f"{head}; Krippendorff's alpha is {alpha}."

    def __str__(self) -> str:
        return self.says


def rater_agreement(
    items: Sequence[Hashable], raters: Sequence[str], values: Sequence[Any]
) -> RaterAgreement | None:
    """Return how far raters agree; None if no item has two ratings.

    Args:
        items: The item of each rating, such as a reply.
        raters: The rater of each rating.
        values: The value of each rating. Numbers other than 0 and 1 differ by the
            square of their distance; other values are equal or not.
    """
    number_of = {item: number for number, item in enumerate(dict.fromkeys(items))}
    numbers = [number_of[item] for item in items]
    df = pd.DataFrame({"item": numbers, "rater": raters, "value": values})
    df = df[df["value"].notna()]
    df = df[df.groupby("item")["rater"].transform("nunique") > 1]
    if df.empty:
        return None
    categories = sorted(
        df["value"].unique(), key=lambda value: (str(type(value)), value)
    )
    distance = _distances(categories)
    codes = df["value"].map({value: code for code, value in enumerate(categories)})
    counts = pd.crosstab(df["item"], codes).to_numpy(dtype=float)
    coincidences = _coincidences(counts)
    total = coincidences.sum(axis=0)
    n_of_value = total.sum(axis=1)
    n = n_of_value.sum()
    by_chance = (np.outer(n_of_value, n_of_value) * distance).sum() / n / (n - 1)
    alpha = low = high = float("nan")
    if by_chance > 0:
        alpha, low, high = (
            float(1 - (1 - share) * distance.max() / by_chance)
            for share in _similarity(coincidences, distance)
        )
    return RaterAgreement(
        alpha=alpha,
        low=low,
        high=high,
        n_items=len(counts),
        n_raters=int(df["rater"].nunique()),
        agree=float(np.trace(total) / n),
    )


def _similarity(coincidences: Any, distance: Any) -> tuple[float, float, float]:  # noqa: ANN401 - arrays
    """Return 1 - D_o / (the largest distance), from 0 to 1, with its interval."""
    n = coincidences.sum(axis=(1, 2))
    similar = n - (coincidences * distance).sum(axis=(1, 2)) / distance.max()
    items, group = np.arange(len(n)), np.zeros(len(n), dtype=np.int64)
    share = Ratios.of(similar, n, items, group, 1).share()
    value, low, high = (float(end[0]) for end in share)
    if len(n) < MIN_PROMPTS:
        low = high = float("nan")
    return value, low, high


def _distances(categories: Sequence[Any]) -> Any:  # noqa: ANN401 - an array
    """Return the distance of each two values: squared for numbers, else 0 or 1."""
    is_number = not any(isinstance(value, str) for value in categories)
    if is_number and not set(categories) <= {0, 1}:
        numbers = np.array(categories, dtype=float)
        return (numbers[:, None] - numbers[None, :]) ** 2
    return 1.0 - np.eye(len(categories))


def _coincidences(counts: Any) -> Any:  # noqa: ANN401 - arrays
    """Return the coincidence matrix of each item: shape (items, values, values).

    It counts the pairs of ratings by their two values, divided by n - 1, so that its
    sum is the item's number of ratings n.
    """
    n = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :]
    same = np.arange(counts.shape[1])
    pairs[:, same, same] -= counts  # a rating makes no pair with itself
    return pairs / (n - 1)[:, None, None]

"""How far raters agree: Krippendorff's alpha, with an interval.

Alpha is 1 - D_o / D_e: how much the ratings of one reply differ, by how much ratings of
any two replies do. It takes any number of raters, and replies that some did not rate.
Krippendorff, Content Analysis (2004), chapter 11.

The interval is that of D_o, with D_e as it is. Drawing the replies again and again
would not do: where raters nearly always agree, few replies show how often they do not.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .reply_factors import in_number
from .rounding import number_with_interval
from .statistics import MIN_PROMPTS, Ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterAgreement:
    """How far raters agree.

    Attributes:
        alpha: 1 is agreement, 0 is what chance gives; NaN if all said the same.
        low, high: Its interval at 0.95, over replies; NaN for fewer than 3, and
            without SciPy.
        n_items: How many replies have two ratings or more.
        n_raters: How many people rated one of them.
        agree: Share of the pairs of ratings of one reply that are equal.
    """

    alpha: float
    low: float
    high: float
    n_items: int
    n_raters: int
    agree: float

    @property
    def says(self) -> str:
        """The same as a sentence."""
        head = (
            f"{self.n_raters} raters gave {in_number(self.n_items, 'replies')} the "
            f"same value in {100 * self.agree:.0f} % of cases"
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
        items: What was rated, one for each rating.
        raters: Who rated it.
        values: What they said. Numbers other than 0 and 1 differ by how far they are
            apart, and others differ or do not.
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
    codes = df["value"].map({value: at for at, value in enumerate(categories)})
    counts = pd.crosstab(df["item"], codes).to_numpy(dtype=float)
    met = _coincidences(counts)
    total = met.sum(axis=0)
    of_value = total.sum(axis=1)
    n = of_value.sum()
    by_chance = (np.outer(of_value, of_value) * distance).sum() / n / (n - 1)
    alpha = low = high = float("nan")
    if by_chance > 0:
        alpha, low, high = (
            float(1 - (1 - share) * distance.max() / by_chance)
            for share in _similar(met, distance)
        )
    return RaterAgreement(
        alpha=alpha,
        low=low,
        high=high,
        n_items=len(counts),
        n_raters=int(df["rater"].nunique()),
        agree=float(np.trace(total) / n),
    )


def _similar(met: Any, distance: Any) -> tuple[float, float, float]:  # noqa: ANN401 - arrays
    """Return how alike the ratings of an item are, from 0 to 1, with its interval."""
    n = met.sum(axis=(1, 2))
    alike = n - (met * distance).sum(axis=(1, 2)) / distance.max()
    items, group = np.arange(len(n)), np.zeros(len(n), dtype=np.int64)
    share = Ratios.of(alike, n, items, group, 1).share()
    value, low, high = (float(end[0]) for end in share)
    if len(n) < MIN_PROMPTS:
        low = high = float("nan")
    return value, low, high


def _distances(categories: Sequence[Any]) -> Any:  # noqa: ANN401 - an array
    """Return how far apart values are: the square for numbers, else 0 or 1."""
    is_number = not any(isinstance(value, str) for value in categories)
    if is_number and not set(categories) <= {0, 1}:
        numbers = np.array(categories, dtype=float)
        return (numbers[:, None] - numbers[None, :]) ** 2
    return 1.0 - np.eye(len(categories))


def _coincidences(counts: Any) -> Any:  # noqa: ANN401 - arrays
    """Return how often two values meet in each item: items, values, values."""
    n = counts.sum(axis=1)
    met = counts[:, :, None] * counts[:, None, :]
    same = np.arange(counts.shape[1])
    met[:, same, same] -= counts
    return met / (n - 1)[:, None, None]

"""How far raters agree: Krippendorff's alpha, with an interval.

Alpha is 1 - D_o / D_e: how much the ratings of one reply differ, by how much ratings of
any two replies do. It takes any number of raters, and replies that some did not rate.
Krippendorff, Content Analysis (2004), chapter 11.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

N_DRAWS = 2000
MIN_ITEMS = 10  # below, an interval says nothing
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterAgreement:
    """How far raters agree.

    Attributes:
        alpha: 1 is agreement, 0 is what chance gives; NaN if all said the same.
        low, high: Its interval at 0.95, over replies; NaN below 10 of them.
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
        replies = "reply" if self.n_items == 1 else "replies"
        head = (
            f"{self.n_raters} raters gave {self.n_items} {replies} the same value in "
            f"{self.agree:.0%} of cases"
        )
        if np.isnan(self.alpha):
            return f"{head}, always the same one, so alpha is not defined."
        interval = "" if np.isnan(self.low) else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{head}; Krippendorff's alpha is {self.alpha:.2f}{interval}."

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
    by_item = _coincidences(counts)
    total = by_item.sum(axis=0)
    rng = np.random.default_rng(_SEED)
    low = high = np.nan
    if len(counts) >= MIN_ITEMS:
        shares = np.full(len(counts), 1 / len(counts))
        weights = rng.multinomial(len(counts), shares, size=N_DRAWS)
        drawn = np.tensordot(weights, by_item, axes=1)
        alphas = np.array([_alpha(one, distance) for one in drawn])
        if np.isfinite(alphas).any():
            low, high = np.nanquantile(alphas, [0.025, 0.975])
    return RaterAgreement(
        alpha=_alpha(total, distance),
        low=float(low),
        high=float(high),
        n_items=len(counts),
        n_raters=int(df["rater"].nunique()),
        agree=float(np.trace(total) / total.sum()),
    )


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


def _alpha(met: Any, distance: Any) -> float:  # noqa: ANN401 - arrays
    of_value = met.sum(axis=1)
    n = of_value.sum()
    by_chance = (np.outer(of_value, of_value) * distance).sum() / (n - 1)
    if by_chance == 0:
        return float("nan")
    return float(1 - (met * distance).sum() / by_chance)

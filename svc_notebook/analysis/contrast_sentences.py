"""A comparison of two values as a sentence."""

from math import ceil
from typing import Any

import numpy as np

from .contrast_study import Pair, Study
from .statistics import LEVEL, MIN_PROMPTS

ADJECTIVES = frozenset({"right", "correct", "wrong", "valid", "exact", "cut"})
_MOST_MORE = 20  # times as many prompts would be no advice
_ALIKE = 0.05  # costs that differ less are the same in words


def sentence(study: Study, result: Pair, first: str, second: str) -> str:
    """Say what a comparison found, the higher one first."""
    value, low, high, *_ = result.difference
    (mean, other), ratio = result.means, result.cost_ratio
    if not result.n_prompts:
        return f"no prompt has {study.name} for both {first} and {second}."
    if value < 0:
        first, second, mean, other = second, first, other, mean
        value, low, high, ratio = -value, -high, -low, 1 / ratio
    show = points if study.is_rate else number
    seen = f"{_more(study, first, second)}: {show(mean)} against {show(other)}, "
    seen += f"difference {show(value, is_difference=True)}"
    cost = _cost(first, ratio)
    if np.isnan(low):
        return f"too early to say whether {seen}; {_why(result)}{cost}."
    seen += f" ({show(low, unit='')} to {show(high, unit='')})"
    if result.difference.p < 1 - LEVEL:
        return f"{seen}{cost}."
    return f"cannot tell yet whether {seen}; {_what_would(result, show)}{cost}."


def _more(study: Study, first: str, second: str) -> str:
    if not study.is_rate:
        return f"{study.name} is higher for {first} than for {second}"
    if study.name in ADJECTIVES:
        return f"{first} is {study.name} more often than {second}"
    return f"{study.name} is true more often for {first} than for {second}"


def _cost(first: str, ratio: float) -> str:
    if np.isnan(ratio) or not ratio:
        return ""
    if abs(ratio - 1) < _ALIKE:
        return "; both cost the same"
    if ratio > 1:
        return f"; {first} costs {ratio:.2g} times as much"
    return f"; {first} costs {100 * (1 - ratio):.2g} % less"


def _what_would(result: Pair, show: Any) -> str:  # noqa: ANN401 - a function
    """Return how many more prompts would tell, or what this many could have found."""
    seen, smallest = abs(result.difference.value), result.difference.smallest
    if seen * np.sqrt(_MOST_MORE) > smallest:
        n = ceil(result.n_prompts * ((smallest / seen) ** 2 - 1))
        more = f"{round_up(n)} more prompt{'s'[: n != 1]}"
        return f"if it is that large, about {more} would tell"
    if result.share is not None and smallest > 1:
        return "with so few prompts no difference could have been found"
    least = show(smallest, is_difference=True)
    return f"this run would have found a difference of {least}"


def round_up(n: int) -> int:
    """Round a number of prompts up to two digits."""
    step: int = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def _why(result: Pair) -> str:
    if result.n_prompts < MIN_PROMPTS:
        return f"{MIN_PROMPTS} prompts are the least that could tell"
    if not result.difference.spread:
        return "all prompts differ by the same amount, so nothing is known about others"
    return "only SciPy could tell whether it is chance"


def points(
    share: float, *, is_difference: bool = False, unit: str | None = None
) -> str:
    """Return a share in percent, or a difference of shares in points."""
    text = f"{100 * share:.0f}"
    if text in {"0", "-0"}:
        text = f"{100 * share:.1f}".replace("-0.0", "0").replace("0.0", "0")
    if unit is None:
        unit = " %" if not is_difference else " point" if text == "1" else " points"
    return text + unit


def number(value: float, **_: object) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"

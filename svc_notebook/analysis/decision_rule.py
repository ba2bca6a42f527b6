"""When a study that is looked at again and again may end, and with which value.

A value that is clearly worse than another is no longer asked. The study ends when one
is left, or one is at most `margin` worse than all that are left and none of these is
cheaper. What is certain comes from intervals that hold at all looks at once.
"""

from collections.abc import Callable, Collection, Mapping

IsAbove = Callable[[int, int, float], bool]
"""Whether the first value less the second is certainly above a number."""
SAME_COST = 0.005
"""Costs that differ by less, as a share, are the same."""


def unbeaten(asked: Collection[int], is_above: IsAbove) -> list[int]:
    """Return the values that none of the others is clearly better than."""
    return [
        value
        for value in asked
        if not any(is_above(other, value, 0.0) for other in asked if other != value)
    ]


def chosen(
    asked: Collection[int],
    is_above: IsAbove,
    *,
    margin: float | None,
    costs: Mapping[int, float],
    means: Mapping[int, float],
) -> int | None:
    """Return the value to use; None if that is not clear yet.

    Args:
        asked: The values that are left.
        is_above: What is certain of each two of them.
        margin: How much worse a value may be; None is not at all.
        costs: What a request costs, by value; NaN is not known.
        means: The mean score, by value: of several that would do, and cost the same,
            the better one is chosen.
    """
    fit = [value for value in asked if _is_fit(value, asked, is_above, margin, costs)]
    if not fit:
        return None
    return min(fit, key=lambda value: (_known(costs[value]), -means[value]))


def _is_fit(
    value: int,
    asked: Collection[int],
    is_above: IsAbove,
    margin: float | None,
    costs: Mapping[int, float],
) -> bool:
    """Say whether no other value is much better, or would do and is cheaper."""
    others = [other for other in asked if other != value]
    if margin is None and others:
        return False
    return all(
        is_above(value, other, -(margin or 0.0))
        and not costs[other] < costs[value] * (1 - SAME_COST)
        for other in others
    )


def _known(cost: float) -> float:
    return cost if cost == cost else 0.0  # noqa: PLR0124 - NaN

"""Numbers in sentences: with as many digits as their interval supports.

A value and the ends of its interval have the same decimals, so that rounding never
puts the value outside. A share is not rounded to all or none.
"""

from collections.abc import Iterable
from math import ceil, floor, isnan, log10

_DIGITS = 3  # of a number without an interval
_MOST_DECIMALS = 12
_MOST_OF_PERCENT = 3


def number(value: float) -> str:
    """Return a number with three digits, or all before the point: 0.0123, 1,850."""
    text = _text(value, _decimals(abs(value), _DIGITS - 1))
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """Return a share in percent, such as 67 % or 99.6 %."""
    return f"{_text(100 * share, _decimals_of_percent([share], 1.0))} %"


def number_with_interval(value: float, low: float, high: float) -> str:
    """Return a number with its interval in brackets, if there is one."""
    if isnan(low) or isnan(high):
        return number(value)
    n_decimals = _decimals((high - low) / 2, 1)
    return _with_interval(value, low, high, n_decimals=n_decimals)


def percent_with_interval(value: float, low: float, high: float) -> str:
    """Return a share in percent with its interval in brackets, if there is one."""
    if isnan(low) or isnan(high):
        return percent(value)
    n_decimals = _decimals_of_percent([value], 100 * (high - low) / 2)
    return _with_interval(
        100 * value, 100 * low, 100 * high, n_decimals=n_decimals, unit=" %"
    )


def points_with_interval(value: float, low: float, high: float) -> str:
    """Return a difference of shares in points, with its interval if there is one."""
    is_known = not (isnan(low) or isnan(high))
    reach = 100 * (high - low) / 2 if is_known else 1.0
    n_decimals = min(_decimals(reach, 0), _MOST_OF_PERCENT)
    unit = " point" if _text(100 * value, n_decimals) == "1" else " points"
    if not is_known:
        return _text(100 * value, n_decimals) + unit
    return _with_interval(
        100 * value, 100 * low, 100 * high, n_decimals=n_decimals, unit=unit
    )


def _with_interval(
    value: float, low: float, high: float, *, n_decimals: int, unit: str = ""
) -> str:
    shown, *ends = (_text(amount, n_decimals) for amount in (value, low, high))
    return f"{shown}{unit} ({ends[0]} to {ends[1]})"


def _text(value: float, n_decimals: int) -> str:
    text = f"{value:,.{n_decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _decimals(size: float, n_more: int) -> int:
    """Return the decimals that show a size with this many digits after its first."""
    if not size:
        return 0
    return min(max(n_more - floor(log10(size)), 0), _MOST_DECIMALS)


def _decimals_of_percent(shares: Iterable[float], reach: float) -> int:
    """Return decimals for a reach in points: more where a share would be 0 or 1."""
    gaps = [min(share, 1 - share) for share in shares if 0 < share < 1]
    fine = [ceil(-log10(200 * gap)) for gap in gaps]  # at half a point it is 1
    return min(max(_decimals(reach, 0), *fine, 0), _MOST_OF_PERCENT)

"""Numbers in sentences and charts, with as many digits as their interval supports.

A value and the ends of its interval have the same number of decimals, so that rounding
never puts the value outside, and an end that is not 0 is never shown as 0. Two means
and their difference have the same number of decimals, enough to show it. A share that
is not 0 or 1 is not shown as 0 % or 100 %. Halves are rounded away from 0, as people do
it.
"""

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import floor, inf, isfinite, isnan, log10

from .statistics import LEVEL, NEGLIGIBLE

_DIGITS = 3  # of a number without an interval
_MOST_DECIMALS = 12
_MOST_OF_PERCENT = 3
_MOST_OF_SECONDS = 3
_MILLISECOND = 0.001
_MOST_OF_POINTS = 4
_MORE_DECIMALS = 3  # at most so many more, if rounding would hide a difference
# half of the last digit, a little more, so that rounding errors do not decide
_HALF = 0.5 * (1 + NEGLIGIBLE)
_EXACT = 1e15  # larger floats have no decimals


def number(value: float) -> str:
    """Return a number with three digits, or all before the point: 0.0123, 1,850."""
    return _trimmed(value, _decimals(abs(value), _DIGITS - 1))


def seconds(value: float) -> str:
    """Return seconds with at most three digits and to the millisecond: 1.24, 0.006."""
    decimals = min(_decimals(value, _DIGITS - 1), _MOST_OF_SECONDS)
    return "under 0.001" if 0 < value < _MILLISECOND else _trimmed(value, decimals)


def percent(share: float) -> str:
    """Return a share in percent, such as 67 % or 99.6 %."""
    return f"{_text(100 * share, _decimals_of_percent([share], 1.0))} %"


def number_with_interval(value: float, low: float, high: float) -> str:
    """Return a number with its interval in parentheses, if there is one."""
    if isnan(low) or isnan(high):
        return number(value)
    n_decimals = _decimals((high - low) / 2, 1)
    return _with_interval([value, low, high], n_decimals)


def percent_with_interval(value: float, low: float, high: float) -> str:
    """Return a share in percent with its interval in parentheses, if there is one."""
    if isnan(low) or isnan(high):
        return percent(value)
    n_decimals = _decimals_of_percent([value], 100 * (high - low) / 2)
    return _with_interval([100 * value, 100 * low, 100 * high], n_decimals, unit=" %")


def difference(value: float, *, is_rate: bool) -> str:
    """Return a difference without its interval; a difference of rates is in points."""
    if not is_rate:
        return number(value)
    text = _text(100 * value, _decimals_of_difference([100 * value]))
    return text + _points(text)


def difference_with_interval(
    amounts: Sequence[float],
    *,
    is_rate: bool,
    means: Sequence[float] = (),
    level: float = LEVEL,
) -> str:
    """Return a difference with its interval, such as "4 points (1 to 7)".

    Args:
        amounts: Its value, and the ends of its interval; NaN if there is none.
        is_rate: Whether it is a difference of shares.
        means: The two means that are subtracted; the difference has as many decimals
            as they have.
        level: The level of the interval, which is stated unless it is 0.95.
    """
    amounts, n_decimals = _scaled(amounts, means, is_rate=is_rate)
    unit = _points(_text(amounts[0], n_decimals)) if is_rate else ""
    return _with_interval(amounts, n_decimals, unit=unit, level=level)


def means_with_difference(
    means: Sequence[float],
    amounts: Sequence[float],
    *,
    is_rate: bool,
    level: float = LEVEL,
) -> str:
    """Return "92 % against 88 %, difference 4 points (1 to 7)".

    All have the same number of decimals, with which subtracting the means gives the
    difference that is shown. Where no number of decimals does so, as for 2/3 and 1/3,
    it is wrong by one in the last decimal.

    Args:
        means: The two means.
        amounts: Their difference, with the ends of its interval.
        is_rate: Whether they are shares.
        level: As in `difference_with_interval`.
    """
    first, second = means_of_difference(means, amounts, is_rate=is_rate)
    difference_text = difference_with_interval(
        amounts, is_rate=is_rate, means=means, level=level
    )
    return f"{first} against {second}, difference {difference_text}"


def means_of_difference(
    means: Sequence[float],
    amounts: Sequence[float],
    *,
    is_rate: bool,
    is_of_differences: bool = False,
) -> list[str]:
    """Return two means with enough decimals to show their difference.

    Args:
        means: The two means.
        amounts: Their difference, with the ends of its interval.
        is_rate: Whether they are shares.
        is_of_differences: Whether they are differences themselves, so that shares are
            in points instead of percent.
    """
    _, n_decimals = _scaled(amounts, means, is_rate=is_rate)
    scaled_means = [100 * mean for mean in means] if is_rate else [*means]
    texts = [_text(mean, n_decimals) for mean in scaled_means]
    if not is_rate:
        return texts
    return [text + (_points(text) if is_of_differences else " %") for text in texts]


def points(amounts: Sequence[float], *, margin: float = 0.0) -> list[str]:
    """Return shares in points, rounded so that none crosses 0 or a margin."""
    exact = [100 * amount for amount in amounts]
    marks = (0.0, 100 * margin, -100 * margin)
    texts: list[str] = []
    for n in range(_MOST_OF_POINTS):
        texts = [f"{point:.{n}f}" for point in exact]
        shown = [float(text) for text in texts]
        if all(
            _side(rounded - mark) == _side(point - mark)
            for rounded, point in zip(shown, exact, strict=True)
            for mark in marks
        ):
            break
    return [text if text.strip("-0.") else text.lstrip("-") for text in texts]


def _side(gap: float) -> int:
    """Return the sign of a number; what only a rounding error makes not 0 is 0."""
    rounded = round(gap, 9)
    return (rounded > 0) - (rounded < 0)


def is_shown_as_none(
    amounts: Sequence[float], *, is_rate: bool, means: Sequence[float]
) -> bool:
    """Say whether `difference_with_interval` shows the difference as 0."""
    amounts, n_decimals = _scaled(amounts, means, is_rate=is_rate)
    return not _rounded(amounts[0], n_decimals)


def round_up(n: int) -> int:
    """Round a number of prompts up to two digits."""
    step: int = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def _scaled(
    amounts: Sequence[float], means: Sequence[float], *, is_rate: bool
) -> tuple[list[float], int]:
    """Return a difference and its ends, for rates in points, and their decimals.

    The means have the same decimals.
    """
    scale = 100 if is_rate else 1
    amounts = [scale * amount for amount in amounts]
    least = 0 if is_rate else _decimals_of_numbers([*amounts, *means])
    n_decimals = _decimals_of_difference(amounts, least=least)
    if not means:
        return amounts, n_decimals
    if is_rate:
        n_decimals = max(n_decimals, _decimals_of_percent(means, 1.0))
    scaled_means = [scale * mean for mean in means]
    return amounts, n_decimals + (not _agree(scaled_means, amounts[0], n_decimals))


def _decimals_of_numbers(numbers: Sequence[float]) -> int:
    """Return the decimals that give the largest number three digits; 0 if all whole."""
    known = [abs(number) for number in numbers if isfinite(number)]
    if all(number == int(number) for number in known):
        return 0
    return _decimals(max(known), _DIGITS - 1)


def _decimals_of_difference(amounts: Sequence[float], least: int = 0) -> int:
    """Return the decimals with which no amount is shown as 0 unless it is 0."""
    known = [abs(amount) for amount in amounts if not isnan(amount)]
    negligible = 10.0**-_MORE_DECIMALS * max(known, default=0.0)
    smallest = min((x for x in known if x > negligible), default=inf)
    places = range(least, least + _MORE_DECIMALS)
    is_enough = (n for n in places if smallest > _HALF * 10.0**-n)
    return next(is_enough, least + _MORE_DECIMALS)


def _agree(means: Sequence[float], value: float, n: int) -> bool:
    """Say whether two means with n decimals have the difference that is shown."""
    return _rounded(means[0], n) - _rounded(means[1], n) == _rounded(value, n)


def _with_interval(
    amounts: Sequence[float], n_decimals: int, *, unit: str = "", level: float = LEVEL
) -> str:
    value, *ends = (_text(amount, n_decimals) for amount in amounts)
    if any(isnan(amount) for amount in amounts):
        return value + unit
    level_text = "" if level == LEVEL else f", {100 * level:g} %"
    return f"{value}{unit} ({ends[0]} to {ends[1]}{level_text})"


def _points(text: str) -> str:
    return " point" if text in {"1", "-1"} else " points"


def _trimmed(value: float, n_decimals: int) -> str:
    """Return a number with so many decimals, without zeros at the end."""
    text = _text(value, n_decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text(value: float, n_decimals: int) -> str:
    if not isfinite(value):
        return f"{value:g}"
    text = f"{_rounded(value, n_decimals):,.{n_decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _rounded(value: float, n_decimals: int) -> Decimal:
    """Round a number as people read it: 12 digits, without a float's binary error."""
    exact = Decimal(f"{float(value):.12g}")
    if not exact.is_finite() or abs(exact) >= _EXACT:
        return exact
    return exact.quantize(Decimal(1).scaleb(-n_decimals), ROUND_HALF_UP)


def _decimals(size: float, n_more: int) -> int:
    """Return the decimals that show a size with `n_more` digits after its first."""
    if not size or isnan(size):
        return 0
    return min(max(n_more - floor(log10(size)), 0), _MOST_DECIMALS)


def _decimals_of_percent(shares: Iterable[float], reach: float) -> int:
    """Return the decimals for shares in percent that are uncertain by `reach` points.

    There are more where a share would be shown as 0 % or 100 % though it is not.
    """
    gaps = [min(share, 1 - share) for share in shares]
    gaps = [gap for gap in gaps if gap > NEGLIGIBLE]
    fine = [1 + floor(-log10(200 * gap)) for gap in gaps]  # 1 for half a point
    return min(max(_decimals(reach, 0), *fine, 0), _MOST_OF_PERCENT)

"""Numbers in sentences have the digits that their interval supports."""

import re
from decimal import Decimal
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.analysis.rounding import (
    means_of_difference,
    means_with_difference,
    number,
    number_with_interval,
    percent,
    percent_with_interval,
    seconds,
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1853.2, "1,853"),
        (1_000_000.0, "1,000,000"),
        (0.0000197, "0.0000197"),
        (3.0, "3"),
        (-5.5, "-5.5"),
        (0.0, "0"),
    ],
)
def test_numbers_have_no_powers_of_ten(value: float, said: str) -> None:
    """Tokens are read as 1,853 and not as 1.85e+03."""
    assert number(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.00638, "0.006"),
        (0.0004, "under 0.001"),
        (0.0, "0"),
        (0.51234, "0.512"),
        (1.2, "1.2"),
        (12.345, "12.3"),
    ],
)
def test_seconds_end_with_milliseconds(value: float, said: str) -> None:
    """Nobody needs a hundredth of a millisecond of a reply."""
    assert seconds(value) == said


def test_an_interval_sets_the_digits() -> None:
    """Two digits of what is not known are enough."""
    assert number_with_interval(1853.2, 1650.1, 2050.9) == "1,853 (1,650 to 2,051)"
    assert percent_with_interval(0.672, 0.508, 0.802) == "67 % (51 to 80)"
    assert percent_with_interval(0.953, 0.948, 0.959) == "95.3 % (94.8 to 95.9)"


def test_nearly_all_is_not_all() -> None:
    """Only what is always right is said to be right in 100 %."""
    assert (percent(1.0), percent(0.996), percent(0.004)) == (
        "100 %",
        "99.6 %",
        "0.4 %",
    )


@given(st.tuples(*[st.floats(0, 1)] * 3).map(sorted))
def test_the_value_is_within_its_rounded_interval(numbers: list[float]) -> None:
    """Rounding keeps the order of the ends and the value."""
    low, value, high = numbers

    value_said, ends = percent_with_interval(value, low, high).split(" % (")
    low_said, high_said = ends.removesuffix(")").split(" to ")

    assert float(low_said) <= float(value_said) <= float(high_said)


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ((0.925, 0.875), "93 % against 88 %, difference 5 points"),
        ((0.924, 0.876), "92.4 % against 87.6 %, difference 4.8 points"),
        ((1.0, 0.995), "100.0 % against 99.5 %, difference 0.5 points"),
        ((2 / 3, 1 / 3), "66.7 % against 33.3 %, difference 33.3 points"),
        ((1.0, 0.875), "100.0 % against 87.5 %, difference 12.5 points"),
        ((0.65, 0.65), "65 % against 65 %, difference 0 points"),
    ],
)
def test_means_show_their_difference(means: tuple[float, float], said: str) -> None:
    """Halves are rounded away from 0, and where that is not enough all are longer."""
    amounts = (means[0] - means[1], nan, nan)

    assert means_with_difference(means, amounts, is_rate=True) == said


@given(st.tuples(*[st.floats(0, 1)] * 2), st.floats(0.001, 0.3))
def test_a_reader_can_subtract_what_is_shown(
    means: tuple[float, float], reach: float
) -> None:
    """All have the same decimals; a tenth of a point may get lost in rounding."""
    value = means[0] - means[1]
    amounts = (value, value - reach, value + reach)

    said = means_with_difference(means, amounts, is_rate=True)

    first, second, difference = re.findall(r"(-?[\d.]+) (?:%|points?)", said)
    lengths = {len(text.partition(".")[2]) for text in (first, second, difference)}
    assert len(lengths) == 1
    gap = abs(Decimal(first) - Decimal(second) - Decimal(difference))
    assert gap <= (Decimal("0.1") if "." in difference else 0)


@given(st.floats(-1e12, 1e12), st.integers(0, 6))
def test_no_rounded_number_is_a_negative_zero(value: float, n: int) -> None:
    """What rounds to 0 has no sign, and digits are grouped by thousands."""
    said = number_with_interval(value, value - 10.0**n, value + 10.0**n)

    assert not re.search(r"(^|[( ])-0(\.0+)?( |$)", said)


def test_differences_show_their_difference() -> None:
    """Those of two subgroups are in points, with the decimals that show it."""
    means, amounts = (11 / 30, 1 / 30), (1 / 3, -0.15, 0.82)

    said = means_of_difference(means, amounts, is_rate=True, is_of_differences=True)

    assert said == ["36.7 points", "3.3 points"]

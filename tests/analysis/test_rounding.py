"""Numbers in sentences have the digits that their interval supports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.analysis.rounding import (
    number,
    number_with_interval,
    percent,
    percent_with_interval,
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

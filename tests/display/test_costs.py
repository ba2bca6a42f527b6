"""Costs in words, which people read without counting an exponent."""

import pytest

from svc_notebook.display.costs import cost_in_words


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (0, "0"),
        (0.00006282, "0.0000628"),
        (0.0000099996, "0.00001"),
        (0.0067, "0.0067"),
        (0.48, "0.48"),
        (4.0, "4"),
        (1234.5, "1,234.5"),
        (12_345.678, "12,345.68"),
        (float("inf"), "inf"),
    ],
)
def test_a_cost_has_three_digits_or_hundredths(cost: float, words: str) -> None:
    """A small one has as many decimals as it needs, a large one separators."""
    assert cost_in_words(cost) == words

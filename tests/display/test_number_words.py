"""Numbers in words, as people read them."""

import pytest

from svc_notebook.display.number_words import cost_in_words, count_in_words


@pytest.mark.parametrize(
    ("n", "nouns", "words"),
    [
        (0, "rows", "0 rows"),
        (1, "rows", "1 row"),
        (1, "more replies", "1 more reply"),
        (1, "values of status", "1 value of status"),
        (1200.0, "replies of these rows", "1,200 replies of these rows"),
    ],
)
def test_a_count_has_its_noun(n: float, nouns: str, words: str) -> None:
    """In the singular for 1, and with separators if it is large."""
    assert count_in_words(n, nouns) == words


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

"""The simulated checks of the benchmark, a few of each."""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.benchmarks.recheck_bench import (
    N_LATER,
    N_OF_LATER,
    N_OF_WEEK,
    N_WEEKS,
    REPEATS,
    SPREADS,
    is_alarmed,
    name_of,
    series,
)

PAGE = Path(__file__).parents[2] / "notebooks" / "statistics.md"
N_SERIES = 20  # of 5 % false ones, more than 4 are seen once in 300 times


@pytest.mark.slow
def test_a_model_that_did_not_change_is_seldom_called_changed() -> None:
    """Not in more than 5 % of series of 50 weekly checks of 40 rows."""
    same = series(3.0, 1, N_OF_WEEK, 0.0)

    n_false = sum(
        is_alarmed(next(same), N_WEEKS, is_drop=False) for _ in range(N_SERIES)
    )

    assert n_false <= 4


@pytest.mark.slow
def test_a_drop_is_found_by_the_third_check() -> None:
    """Of 10 points with 80 rows, where replies to a row seldom differ."""
    worse = series(6.0, 1, N_OF_LATER, 0.1)

    n_found = sum(
        is_alarmed(next(worse), N_LATER, is_drop=True) for _ in range(N_SERIES)
    )

    assert n_found >= 0.8 * N_SERIES


@pytest.mark.slow
def test_the_page_has_every_world() -> None:
    """The table of the page is that of the benchmark."""
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (two differ.*?) \|", page, re.MULTILINE)

    assert rows == [name_of(*world) for world in product(SPREADS, REPEATS)]

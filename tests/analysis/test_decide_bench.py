"""The simulated decisions of the benchmark, a few of each."""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.benchmarks.decide_bench import (
    ROWS_OF_UNIT,
    VALUES,
    cell,
    n_fixed,
    name_of,
)

PAGE = Path(__file__).parents[2] / "notebooks" / "statistics.md"
N_STUDIES = 30  # of 5 % false ones, more than 5 are seen once in 300 times


@pytest.mark.slow
@pytest.mark.parametrize("rows_of_unit", [1, 5])
def test_decisions_are_seldom_false_and_come_soon(rows_of_unit: int) -> None:
    """Looks do not add false alarms, and half of a fixed plan is enough."""
    seen = cell(3, rows_of_unit, N_STUDIES)

    assert seen.equal * N_STUDIES <= 5
    assert seen.at_the_margin * N_STUDIES <= 5
    assert seen.found >= 0.8
    assert seen.n_median <= seen.n_fixed / 2


@pytest.mark.slow
def test_the_page_has_every_case() -> None:
    """The table of the page is that of the benchmark, with its fixed plans."""
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (\d values.*?) \|.* of ([\d,]+) \|$", page, re.MULTILINE)

    assert rows == [
        (name_of(n_values, rows), f"{n_fixed(n_values, rows):,}")
        for rows, n_values in product(ROWS_OF_UNIT, VALUES)
    ]

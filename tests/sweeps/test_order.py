"""The order of asking."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.sweeps.plan import seed_of
from svc_notebook.sweeps.scheduler import blocks


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 4), st.integers())
def test_one_repeat_of_all_comes_before_the_next(
    n_combinations: int, repeats: int, seed: int
) -> None:
    """Each block holds every combination once, so that a stopped run is balanced."""
    numbers = range(n_combinations)

    order = list(blocks(numbers, repeats=repeats, seed=seed, model="m"))

    assert [repeat for _, repeat in order] == [
        repeat for repeat in range(repeats) for _ in numbers
    ]
    assert Counter(order) == Counter(
        (number, repeat) for number in numbers for repeat in range(repeats)
    )


def test_the_order_stays_what_it_is() -> None:
    """A seed means the same order tomorrow, and in another process."""
    order = list(blocks(range(6), repeats=2, seed=7, model="m"))

    assert order == list(blocks(range(6), repeats=2, seed=7, model="m"))
    assert [number for number, _ in order] == [4, 5, 1, 2, 3, 0, 1, 2, 4, 0, 5, 3]
    assert seed_of("spam-1") == 4223999601


def test_all_models_are_sent_the_same_rows_first() -> None:
    """A model that `where` leaves rows out of has the others in the same order."""
    by_row = partial(blocks, repeats=2, seed=1, row_of=lambda number: number // 4)
    of_model = [number for number in range(80) if number % 4 < 2]
    of_other = [number for number in range(80) if number % 4 > 1 and number > 9]

    rows, others = (
        [(number // 4, repeat) for number, repeat in by_row(numbers, model=model)]
        for numbers, model in ((of_model, "m"), (of_other, "o"))
    )

    assert rows[::2] == rows[1::2]  # both settings of a row follow each other
    known = set(others)
    assert [row for row in rows if row in known] == others
    assert rows[:40:2] != sorted(rows[:40:2])
    assert rows[:40:2] != [(row, 0) for row, _ in rows[40::2]]


def test_blocks_and_models_have_orders_of_their_own() -> None:
    """The second block, another model, and another seed are shuffled otherwise."""
    order = list(blocks(range(50), repeats=2, seed=1, model="m"))
    other = list(blocks(range(50), repeats=1, seed=1, model="o"))
    third = list(blocks(range(50), repeats=1, seed=2, model="m"))

    orders = [
        [number for number, _ in block]
        for block in (order[:50], order[50:], other, third)
    ]
    assert len({tuple(order) for order in orders}) == 4

"""Numbers kept by hash are those of a dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.sweeps.source import HashedNumbers

KEYS = st.one_of(st.integers(0, 300), st.tuples(st.text(max_size=2), st.integers(0, 2)))


@pytest.mark.slow
@given(st.lists(st.tuples(KEYS, st.integers(0, 2**32 - 2)), max_size=400))
def test_keeps_the_newest_number_of_each_key(
    pairs: list[tuple[int | tuple[str, int], int]],
) -> None:
    """Whatever is put in which order, each key has the number it was given last."""
    numbers = HashedNumbers()

    for key, number in pairs:
        numbers.put(key, number)

    expected = dict(pairs)
    assert {key: numbers.get(key) for key in expected} == expected
    assert len(numbers) == len(expected)


def test_a_key_that_was_not_put_has_none() -> None:
    """Neither in an empty table nor in a full one; a copy is a table of its own."""
    numbers = HashedNumbers()
    for key in range(0, 20_000, 2):
        numbers.put(key, key)
    other = numbers.copy()
    other.put(1, 5)

    assert numbers.get(1) is HashedNumbers().get(0) is None
    assert (other.get(1), other.get(19_998), numbers.get(19_998)) == (5, 19_998, 19_998)

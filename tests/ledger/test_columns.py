"""Columns as values."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.ledger.columns import dtype_of, template_columns

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "string"),
        ([None], "string"),
        ([1, None], "Int64"),
        ([1, 0.5], "Float64"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        ([2**63], "string"),
        ([NOON], "datetime64[us, UTC]"),
        ([NOON.replace(tzinfo=None)], "string"),
        (["a", 1], "string"),
        ([[1, 2]], "string"),
    ],
)
def test_states_one_dtype_for_all_values(values: list[object], expected: str) -> None:
    """A dtype that holds every value unchanged, or else text."""
    assert dtype_of(values) == expected


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text(), st.integers())), st.sets(st.text()))
def test_template_columns_never_share_a_name(
    found: list[dict[str, int]], taken: set[str]
) -> None:
    """However they are called, template columns clash with no other column."""
    columns = template_columns(found, taken)

    names = [column.name for column in columns]
    assert len({*names, *taken}) == len(names) + len(taken)
    assert len(columns) == len({name for each in found for name in each})

"""Rows to sweep over."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.sweeps.source import is_missing, source_of

FRAME = pd.DataFrame({"text": ["a", "b"], "n": [1, 2]}, index=["x", "x"])


@pytest.mark.parametrize(
    ("rows", "columns", "labels"),
    [
        (FRAME, {"text": ["a", "b"], "n": [1, 2]}, ["x", "x"]),
        (FRAME["text"], {"text": ["a", "b"]}, ["x", "x"]),
        (pd.Series(["a"]), {"text": ["a"]}, [0]),
        (pd.Series(["a"], name=0), {"text": ["a"]}, [0]),
        (pd.Series(["a"], name="my col"), {"text": ["a"]}, [0]),
        ([{"a": 1}, {"b": 2}], {"a": [1, None], "b": [None, 2]}, [0, 1]),
        (["a", "b"], {"text": ["a", "b"]}, [0, 1]),
        (iter(["a"]), {"text": ["a"]}, [0]),
    ],
)
def test_reads_rows(rows: object, columns: dict[str, Any], labels: list[Any]) -> None:
    """A frame, a series, mappings and texts are rows, kept by column."""
    source = source_of(rows)

    assert ({k: list(v) for k, v in source.columns.items()}, list(source.labels)) == (
        columns,
        labels,
    )


def test_values_are_plain() -> None:
    """A frame's numbers become Python's own."""
    row = source_of(FRAME).row(1)

    assert row == {"text": "b", "n": 2}
    assert type(row["n"]) is int


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("text", "rows is str"),
        (5, "rows is int"),
        ({"a": 1}, "rows is dict"),
        (pd.DataFrame(index=[1]), "rows has no column"),
        ([{}], "rows has no column"),
        ([1, 2], "one of the rows is int"),
    ],
)
def test_refuses_what_are_no_rows(rows: object, said: str) -> None:
    """What cannot be read as rows is refused, saying what can."""
    with pytest.raises(ParameterError) as caught:
        source_of(rows)

    assert said in str(caught.value)
    assert "Give a DataFrame" in str(caught.value)


@pytest.mark.parametrize("value", [None, np.nan, pd.NA, pd.NaT])
def test_knows_what_is_missing(value: object) -> None:
    """None, NaN, NaT and NA are missing; an empty text is not."""
    assert is_missing(value)
    assert not is_missing("")

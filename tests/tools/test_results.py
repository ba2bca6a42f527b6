"""Results: what a tool returned, as text."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from svc_notebook.errors import ToolCallError
from svc_notebook.tokens import most_tokens
from svc_notebook.tools.results import fit_text, to_result_text


class Unit(Enum):
    """Degrees."""

    C = "celsius"


@dataclass
class Place:
    """A place."""

    name: str
    unit: Unit = Unit.C


class Model(BaseModel):
    """A model."""

    number: int


def _circle() -> list[object]:
    around: list[object] = []
    around.append(around)
    return around


def _depth() -> list[object]:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        ({"a": [1, None], "b": "ก"}, '{"a":[1,null],"b":"ก"}'),
        (
            {2: "x", None: "y", True: "z", Unit.C: 0},
            '{"2":"x","null":"y","true":"z","celsius":0}',
        ),
        ([float("inf"), float("nan")], '["inf","nan"]'),
        ({3, 1, 2}, "[1,2,3]"),
        ((1, "a"), '[1,"a"]'),
        (Unit.C, "celsius"),
        (Place("Nan"), '{"name":"Nan","unit":"celsius"}'),
        (Model(number=3), '{"number":3}'),
        (date(2026, 1, 31), "2026-01-31"),
        ([datetime(2026, 1, 31, 9, 30)], '["2026-01-31T09:30:00"]'),  # noqa: DTZ001 - as users have them
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("a/b"), "a/b"),
        (np.int64(3), "3"),
        (np.array([1.5, 2.5]), "[1.5,2.5]"),
        ({"at": pd.Timestamp("2026-01-31")}, '{"at":"2026-01-31T00:00:00"}'),
        ([pd.NA], '["<NA>"]'),
        (1 + 2j, "(1+2j)"),
    ],
    ids=range(24),
)
def test_values_become_texts(value: object, text: str) -> None:
    """Texts go as they are, the rest as JSON; dates and paths as they are written."""
    assert to_result_text(value) == (text, 0)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"x", "bytes"),
        (bytearray(b"x"), "bytearray"),
        ([1, {"a": b"x"}], "bytes"),
        (object(), "object"),
        ((each for each in "a"), "generator"),
        (len, "builtin_function_or_method"),
        (Place, "type"),
        (json, "module"),
        (_circle(), "list"),
        (_depth(), "list"),
        (10**5000, "int"),
    ],
    ids=range(11),
)
def test_what_has_no_text_is_refused_by_name(value: object, kind: str) -> None:
    """The error names the kind and says what to return."""
    with pytest.raises(ToolCallError, match=f"returned {kind}, which .*; .*"):
        to_result_text(value)


@pytest.mark.slow
@given(st.text(max_size=300), st.integers(60, 200))
def test_a_fitted_text_fits(text: str, max_tokens: int) -> None:
    """Whatever the script, the text is within its tokens, and whole if it can be."""
    got, n_cut_tokens = fit_text(text, max_tokens=max_tokens)

    assert most_tokens(got) <= max_tokens
    assert (got == text) == (n_cut_tokens == 0)


def test_a_frame_is_a_compact_table() -> None:
    """A DataFrame states its shape; a cell of two lines is one row."""
    frame = pd.DataFrame({"a": ["x\ny", 'q,"r', None], "b": [1.5, 2, 3]})

    assert to_result_text(frame) == (
        'DataFrame, 3 rows x 2 columns:\n,a,b\n0,"x\ny",1.5\n1,"q,""r",2.0\n2,,3.0',
        0,
    )
    assert to_result_text(pd.Series([1, 2], name="n")) == (
        "Series, 2 rows:\n,n\n0,1\n1,2",
        0,
    )


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_a_frame_of_another_library_is_the_same_table(
    make: Callable[[dict[str, list[Any]]], object],
) -> None:
    """One of Polars or Arrow reads like one of pandas, also within other values."""
    frame = make({"a": ["ชา", None], "b": [1, 2]})
    text = "DataFrame, 2 rows x 2 columns:\n,a,b\n0,ชา,1\n1,,2"

    assert to_result_text(frame) == (text, 0)
    assert to_result_text(pl.Series("n", [1]))[0] == "Series, 1 row:\n,n\n0,1"
    assert json.loads(to_result_text({"table": frame})[0]) == {"table": text}


def test_a_large_frame_is_cut_by_rows() -> None:
    """The first rows stay, and the text says how many of how many."""
    frame = pd.DataFrame({"a": range(100_000), "b": "some words"})

    got, n_cut_tokens = to_result_text(frame, max_tokens=300)

    head, _, rows = got.partition("\n")
    n_shown = len(rows.splitlines()) - 1
    assert head == (
        f"DataFrame, 100000 rows x 2 columns; the first {n_shown} rows follow:"
    )
    assert n_shown > 10
    assert most_tokens(got) <= 300
    assert n_cut_tokens > 100_000


def test_a_large_array_is_not_written_whole() -> None:
    """Its shape and first values are told; the rest of millions is not looked at."""
    text, n_cut_tokens = to_result_text(np.zeros((3000, 3000)))

    assert text.startswith("array of shape (3000, 3000); its first values follow: [0.0")
    assert n_cut_tokens > 0


def test_keys_that_become_one_text_are_refused() -> None:
    """None of the values is lost without a word."""
    with pytest.raises(ToolCallError, match="two keys that become the same text"):
        to_result_text({1: "a", "1": "b"})

"""Texts in a spreadsheet: none is a formula, none is cut without a word."""

import csv
import importlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.ledger.frame_export import export

openpyxl: Any = pytest.importorskip("openpyxl")

MAX_UNITS = 32_767
FORMULAS = [
    "=1+1",
    "+cmd|'/c calc'!A0",
    "-2+3+cmd",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "  =1",
    "\u00a0=1",
    "\u3000=1",
    "\u200b=1",
    "\ufeff=1",
    "\x00=1",
    "\uff1d1+1",
    "\uff0b1+cmd",
    "\uff0dcmd",
    "\uff20SUM(A1)",
    " \t\uff1d1",
    "\ufe66SUM",
    "=",
    "-",
    "-5 apples",
    "+66 81 234 5678",
]
PLAIN = [
    "",
    "a=b",
    "สวัสดี",
    "'=1",
    "5",
    "-5",
    "+5",
    "-0.5",
    "+.5e-3",
    "-12%",
    "1=1",
    " ",
    "\u200bx",
    "— a dash",
]


def _in_csv(folder: Path, texts: list[str]) -> list[str]:
    path = export(pd.DataFrame({"a": texts, "b": 1}), folder / "t.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


def _in_workbook(folder: Path, text: str) -> str:
    path = export(pd.DataFrame({"a": [text]}), folder / "t.xlsx")
    value = openpyxl.load_workbook(path)["svc"]["A2"].value
    return str(importlib.import_module("openpyxl.utils.escape").unescape(value))


def test_a_formula_gets_a_quote(tmp_path: Path) -> None:
    """What a spreadsheet might reckon with or run is made a text."""
    assert _in_csv(tmp_path, FORMULAS) == ["'" + text for text in FORMULAS]


def test_other_text_is_left_alone(tmp_path: Path) -> None:
    """Ordinary text, and what is only a number, stays as it is."""
    assert _in_csv(tmp_path, PLAIN) == PLAIN


@pytest.mark.slow
@given(st.text(" \u200b\t", max_size=3), st.sampled_from("=+-@"), st.text(max_size=9))
def test_no_sign_after_blanks_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory, before: str, sign: str, after: str
) -> None:
    """Whatever follows the sign, the written text begins harmlessly."""
    text = before + sign + "a" + after.replace("\r", "").replace("\0", "")

    assert _in_csv(tmp_path_factory.mktemp("csv"), [text]) == ["'" + text]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * (MAX_UNITS + 1), MAX_UNITS),
        ("👩" * (MAX_UNITS // 2 + 1), MAX_UNITS // 2),
        ("ก" * (MAX_UNITS + 1), MAX_UNITS),
    ],
)
def test_a_longer_text_is_cut_between_characters(
    tmp_path: Path, text: str, kept: int
) -> None:
    """What a cell cannot hold is cut, with a warning."""
    with pytest.warns(UserWarning, match=r"in a \(1\)"):
        found = _in_workbook(tmp_path, text)

    assert found == text[:kept]


@pytest.mark.parametrize(
    "text",
    ["plain ไทย\n\ttext", "\x00\x1b[31m", "a\r\nb", "_x0041_", "_x41_", "\ufffe"],
)
def test_a_workbook_carries_what_xml_cannot(tmp_path: Path, text: str) -> None:
    """Control characters come back as a workbook writes them."""
    assert _in_workbook(tmp_path, text) == text

"""Texts in a spreadsheet: none is a formula, none is cut without a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.ledger.exports import (
    MAX_CELL_CHARS,
    cut,
    for_xml,
    is_cut,
    is_formula,
    n_units,
    neutralised,
)

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


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_a_quote(text: str) -> None:
    """What a spreadsheet might reckon with or run is made a text."""
    assert neutralised(text) == "'" + text


@pytest.mark.parametrize("text", PLAIN)
def test_other_text_is_left_alone(text: str) -> None:
    """Ordinary text, and what is only a number, stays as it is."""
    assert neutralised(text) == text


@given(st.text(max_size=10), st.sampled_from("=+-@"), st.text(max_size=10))
def test_nothing_that_was_neutralised_is_a_formula(
    before: str, sign: str, after: str
) -> None:
    """Whatever stands around the sign, the written text begins harmlessly."""
    written = neutralised(before + sign + after)

    assert not is_formula(written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * MAX_CELL_CHARS, False),
        ("a" * (MAX_CELL_CHARS + 1), True),
        ("👩" * (MAX_CELL_CHARS // 2), False),
        ("👩" * (MAX_CELL_CHARS // 2 + 1), True),
        ("ก" * (MAX_CELL_CHARS + 1), True),
    ],
)
def test_knows_what_a_cell_can_hold(text: str, expected: bool) -> None:
    """A cell holds so many UTF-16 units; a character beyond the first plane has two."""
    assert is_cut(text) is expected
    assert n_units(cut(text)) <= MAX_CELL_CHARS
    assert text.startswith(cut(text))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain ไทย\n\ttext", "plain ไทย\n\ttext"),
        ("\x00\x1b[31m", "_x0000__x001B_[31m"),
        ("a\r\nb", "a_x000D_\nb"),
        ("_x0041_", "_x005F_x0041_"),
        ("_x41_", "_x41_"),
        ("\ufffe", "_xFFFE_"),
    ],
)
def test_writes_what_xml_cannot_carry(text: str, written: str) -> None:
    """Control characters are written as a workbook writes them."""
    assert for_xml(text) == written

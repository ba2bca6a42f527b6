"""Texts as cells of a spreadsheet: never a formula, never cut without a word.

Rules: pure; a text that a spreadsheet would take for a formula is made a text, also
where the sign stands behind blanks or is written in full width; what is only a
number is left alone.
"""

import re
import unicodedata

MAX_CELL_CHARS = 32_767  # of Excel and its kin, in UTF-16 units
_SIGNS = "=+-@"
_BREAKS = "\t\r\n"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ESCAPES = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def neutralised(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: a quote in front."""
    return "'" + text if is_formula(text) else text


def is_formula(text: str) -> bool:
    """Say whether a spreadsheet might take a text for a formula or a command."""
    if not text or _NUMBER.fullmatch(text):
        return False
    if text[0] in _BREAKS:
        return True
    first = next((letter for letter in text if not _is_blank(letter)), "")
    # full-width signs are those of ASCII in another form
    return unicodedata.normalize("NFKC", first)[:1] in tuple(_SIGNS)


def _is_blank(letter: str) -> bool:
    """Say whether a reader sees nothing: blanks, controls, joiners, marks of order."""
    return letter.isspace() or unicodedata.category(letter) in {"Cc", "Cf"}


def is_cut(text: str) -> bool:
    """Say whether a text is longer than a spreadsheet's cell can hold."""
    return len(text) > MAX_CELL_CHARS // 2 and n_units(text) > MAX_CELL_CHARS


def n_units(text: str) -> int:
    """Return how long a text is as a spreadsheet counts."""
    return len(text.encode("utf-16-le", "replace")) // 2


def cut(text: str) -> str:
    """Return what a cell can hold of a text, no character halved."""
    kept = text.encode("utf-16-le", "replace")[: MAX_CELL_CHARS * 2]
    return kept.decode("utf-16-le", "ignore")


def for_xml(text: str) -> str:
    """Return a text for a workbook: what XML cannot carry as `_xHHHH_`.

    Spreadsheets turn it back; so what already looks like it is written so that it
    stays. A carriage return is written so too, since XML would make it a line feed.
    """
    text = _ESCAPES.sub("_x005F_", text)
    text = _CONTROLS.sub(lambda found: f"_x{ord(found[0]):04X}_", text)
    return text.replace("\r", "_x000D_")

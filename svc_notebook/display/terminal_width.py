"""The width of texts in a terminal, in columns; Thai marks take none."""

import re
import unicodedata
from collections.abc import Sequence

_BEHIND_DOT = re.compile("(?<= ·) ")


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes; marks take none."""
    return sum(map(_letter_width, text))


def padded(text: str, n_columns: int) -> str:
    """Fill a text with spaces up to this width; a longer one is not changed."""
    return text + " " * (n_columns - width(text))


def wrapped(text: str, n_columns: int) -> str:
    """Break a line behind a middle dot, or else at a blank.

    A terminal breaks it anywhere, also within words.
    """
    parts = _filled(_BEHIND_DOT.split(text), n_columns)
    return "\n".join(
        line for part in parts for line in _filled(part.split(" "), n_columns)
    )


def _filled(words: Sequence[str], n_columns: int) -> list[str]:
    """Join words into lines that fit; a longer word has its own line."""
    lines = [words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if width(longer) > n_columns:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def fitted(text: str, n_columns: int) -> str:
    """Cut a text that is too wide in its middle, since names often differ at the end.

    Marks are not separated from their letter.
    """
    if width(text) <= n_columns:
        return text
    room = n_columns - 1
    head = _head(text, room - room // 2)
    tail = text[len(text) - len(_head(text[::-1], room // 2)) :]
    while tail and not _letter_width(tail[0]):  # a mark whose letter is left out
        tail = tail[1:]
    return f"{head}…{tail}"


def _head(text: str, n_columns: int) -> str:
    """Return the first letters that fit, with their marks."""
    n_used = 0
    for position, letter in enumerate(text):
        n_used += _letter_width(letter)
        if n_used > n_columns:
            return text[:position]
    return text


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1

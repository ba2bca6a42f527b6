"""The width of texts in a terminal, in columns; Thai marks take none."""

import re
import unicodedata
from collections.abc import Sequence

_BEHIND_DOT = re.compile("(?<= ·) ")
_BLANK = re.compile(" (?!·)")  # a dot does not begin a line


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes; marks take none."""
    return sum(map(_letter_width, text))


def padded(text: str, n_columns: int) -> str:
    """Fill a text with spaces up to this width; a longer one is not changed."""
    return text + " " * (n_columns - width(text))


def wrapped(text: str, n_columns: int) -> str:
    """Break a line behind a middle dot, or else at a blank.

    A terminal breaks it anywhere, also within words. All lines begin in one column.
    """
    unindented = text.lstrip(" ")
    indent = text.removesuffix(unindented)
    room = n_columns - len(indent)
    return "\n".join(
        indent + line
        for part in _filled(_BEHIND_DOT.split(unindented), room)
        for line in _filled(_BLANK.split(part), room)
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


_FENCES = ("```", "~~~")
_START_CHARS = 3
_TAB = 8


class WordWrap:
    """Breaks lines at blanks while a text is printed in pieces, each of them at once.

    A word that turns out not to fit is erased and begins the next line. One of more
    than half a line, such as an address or Thai, goes on to the edge, and the terminal
    breaks it. So it does in a block of code, which can then be copied.
    """

    def __init__(self) -> None:
        self._start = ""  # of the line
        self._word = ""  # what was printed of it
        self._column = 0
        self._is_first = True  # the word is the first in its row
        self._is_code = False

    def add(self, piece: str, n_columns: int) -> str:
        """Return what is to be printed for the next piece of a text."""
        return "".join(self._letters(piece, n_columns))

    def _letters(self, piece: str, n_columns: int) -> list[str]:
        shown: list[str] = []
        n_fresh = 0  # letters of the word that are in `shown`, not yet printed
        for letter in piece:
            if letter == "\n":
                self._end_line()
            elif letter in " \t":
                self._word, self._is_first, n_fresh = "", False, 0
                if not self._is_code and self._column >= n_columns - 1:
                    continue  # the row is full; what follows begins the next one
                n_more = 1 if letter == " " else _TAB - self._column % _TAB
                self._column += n_more
            else:
                if self._must_move(letter, n_columns):
                    n_printed = len(self._word) - n_fresh
                    del shown[len(shown) - n_fresh :]
                    n_erased = width(self._word[:n_printed])
                    shown += ["\b" * n_erased, " " * n_erased, "\n", *self._word]
                    self._column, self._is_first = width(self._word), True
                    n_fresh = len(self._word)
                self._print(letter, n_columns)
                n_fresh = min(n_fresh + 1, len(self._word))
                shown.append(letter)
                continue
            n_fresh = 0
            shown.append(letter)
        return shown

    def _must_move(self, letter: str, n_columns: int) -> bool:
        if self._is_first or self._is_code:
            return False
        is_over = self._column + _letter_width(letter) >= n_columns
        return is_over and width(self._word) <= n_columns // 2

    def _print(self, letter: str, n_columns: int) -> None:
        self._start = (self._start + letter)[:_START_CHARS]
        self._word += letter
        self._column += _letter_width(letter)
        if self._column > n_columns:  # the terminal has broken the row
            self._word, self._column, self._is_first = "", _letter_width(letter), True

    def _end_line(self) -> None:
        self._is_code ^= self._start.startswith(_FENCES)
        self._start, self._word, self._column, self._is_first = "", "", 0, True

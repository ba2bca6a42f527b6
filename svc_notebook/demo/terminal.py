"""How the demo looks in a terminal: a gutter that says who answered, and colours.

What it is not: it knows no kernel and writes nothing; it turns text into text.
Rules: every line of an answer stands behind its mark; text may come in pieces of
any size; what it is given is already free of control characters.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_HELD_BACK = 16
"""A word of so many letters may still grow; a longer one, or one of a script that
puts no blanks between words, is shown without waiting for its end."""
_MIN_COLUMNS = 20
_NEVER_FIRST = "ะาำๅๆฯ"  # Thai vowels and signs that belong to the letter before,
_NEVER_LAST = "เแโใไ"  # and those that belong to the letter behind


@dataclass(frozen=True, slots=True)
class Palette:
    """The few looks that the demo uses; all empty where colour is not wanted."""

    dim: str = ""
    bold: str = ""
    mark: str = ""
    wrong: str = ""
    off: str = ""

    def dimmed(self, text: str) -> str:
        """Return the text as something beside the point."""
        return f"{self.dim}{text}{self.off}"

    def strong(self, text: str) -> str:
        """Return the text as a heading."""
        return f"{self.bold}{text}{self.off}"

    def bad(self, text: str) -> str:
        """Return the text as something that went wrong."""
        return f"{self.wrong}{text}{self.off}"


PLAIN = Palette()
COLOURED = Palette(
    dim="\x1b[2m", bold="\x1b[1m", mark="\x1b[36m", wrong="\x1b[31m", off="\x1b[0m"
)


class Gutter:
    """Text that grows, behind a mark on every line, broken between words.

    Args:
        mark: What stands in front of each line, such as `emulator`.
        columns: The width of the terminal, the mark included.
        bar: What divides mark and text.
        palette: The mark's look.
    """

    def __init__(
        self,
        mark: str,
        *,
        columns: int,
        bar: str = "│",
        palette: Palette = PLAIN,
    ) -> None:
        self._front = f"  {palette.mark}{mark} {bar}{palette.off} "
        self.room = max(columns - len(f"  {mark} {bar} ") - 1, _MIN_COLUMNS)
        self._column: int | None = None
        self._blanks = 0
        self._indent = 0
        self._word = ""

    def feed(self, text: str) -> str:
        """Return what can be shown now that this text has come."""
        shown = "".join(self._pieces(text))
        may_grow = self._word.isascii() and len(self._word) < _HELD_BACK
        return shown if may_grow else shown + self._flush()

    def close(self) -> str:
        """Return what was held back, and the end of the line if one is open."""
        shown = self._flush()
        self._blanks = 0
        if self._column is not None:
            shown += "\n"
            self._column = None
        return shown

    def _pieces(self, text: str) -> Iterator[str]:
        for letter in text:
            if letter == "\n":
                yield self._flush() + self._break()
            elif letter.isspace():
                yield self._flush()
                self._blanks += 1
            else:
                self._word += letter

    def _break(self) -> str:
        shown = "\n" if self._column is not None else f"{self._front.rstrip()}\n"
        self._column = None
        self._blanks = 0
        return shown

    def _flush(self) -> str:
        if not self._word:
            return ""
        word, self._word = self._word, ""
        wide = self._blanks + width(word)
        shown = ""
        if self._column is None:
            self._indent = self._blanks
        elif self._column and self._column + wide > self.room >= width(word):
            shown = self._break()
            # What goes on stands as far in as its line; not where room is short.
            is_roomy = self._indent + width(word) <= self.room
            self._blanks = self._indent if is_roomy else 0
        # Blanks wait for the word behind them: none is left at the end of a line.
        word = " " * self._blanks + word
        self._blanks = 0
        return shown + "".join(map(self._unbroken, _clusters(word)))

    def _unbroken(self, letters: str) -> str:
        wide = width(letters)
        shown = ""
        if self._column is not None and self._column + wide > self.room:
            shown = self._break()
        if self._column is None:
            shown += self._front
            self._column = 0
        self._column += wide
        return shown + letters


def _clusters(word: str) -> list[str]:
    """Divide a word into letters, each with what no line may part from it."""
    found: list[str] = []
    for letter in word:
        is_tied = letter in _NEVER_FIRST or _letter_width(letter) == 0
        if found and (is_tied or found[-1][-1] in _NEVER_LAST):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def width(text: str) -> int:
    """Return how many columns a terminal gives to a text (marks on letters: none)."""
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1

"""Streamed text in a terminal: a mark before every line, breaks between words."""

from collections.abc import Iterator

from svc_notebook.display.terminal_width import width

_HELD_BACK = 16
"""A word of so many letters may still grow; a longer one, or one of a script that
puts no blanks between words, is shown without waiting for its end."""
_MIN_COLUMNS = 20  # of text, also in a narrower terminal
_NEVER_FIRST = "ะาำๅๆฯ"  # Thai vowels and signs that belong to the letter before,
_NEVER_LAST = "เแโใไ"  # and those that belong to the next letter
_CYAN = 36


def styled(text: str, style: int, *, is_coloured: bool) -> str:
    """Give a text an ANSI style, unless colours are off."""
    return f"\x1b[{style}m{text}\x1b[0m" if is_coloured else text


class MarkedLines:
    """Streamed text with a mark before every line, broken between words.

    Args:
        mark: The word before each line, such as `emulator`.
        columns: The width of the terminal, the mark included.
        bar: The sign between mark and text.
        is_coloured: Whether the mark has a colour.
    """

    def __init__(
        self, mark: str, *, columns: int, bar: str = "│", is_coloured: bool = False
    ) -> None:
        front = styled(f"{mark} {bar}", _CYAN, is_coloured=is_coloured)
        self._front = f"  {front} "
        self.room = max(columns - len(f"  {mark} {bar} ") - 1, _MIN_COLUMNS)
        self._column: int | None = None
        self._blanks = 0
        self._indent = 0
        self._word = ""

    def feed(self, text: str) -> str:
        """Add text; return what can be shown now."""
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
            # The rest of a line is indented like its beginning, if there is room.
            is_roomy = self._indent + width(word) <= self.room
            self._blanks = self._indent if is_roomy else 0
        # Blanks wait for the next word, so that no line ends with one.
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
    """Split a word into letters, each with the signs that belong to it."""
    clusters: list[str] = []
    for letter in word:
        is_tied = letter in _NEVER_FIRST or width(letter) == 0
        if clusters and (is_tied or clusters[-1][-1] in _NEVER_LAST):
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters

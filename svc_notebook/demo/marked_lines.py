"""Streamed text in a terminal: a mark before every line, lines broken between words."""

from collections.abc import Iterator

from svc_notebook.display.terminal_width import width

_HELD_BACK = 16
"""A shorter word is held back until it is complete. Longer words, and scripts without
blanks between words, are shown without waiting."""
_MIN_COLUMNS = 20  # of text, even in a narrower terminal
_NEVER_FIRST = "ะาำๅๆฯ"  # Thai vowels and signs that belong to the previous letter
_NEVER_LAST = "เแโใไ"  # Thai vowels that belong to the next letter
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
        n_columns = self._blanks + width(word)
        shown = ""
        if self._column is None:
            self._indent = self._blanks
        elif self._column and self._column + n_columns > self.room >= width(word):
            shown = self._break()
            # continued lines are indented like the first, if there is room
            is_roomy = self._indent + width(word) <= self.room
            self._blanks = self._indent if is_roomy else 0
        # blanks are written with the next word, so that no line ends with a blank
        word = " " * self._blanks + word
        self._blanks = 0
        return shown + "".join(map(self._unbroken, _clusters(word)))

    def _unbroken(self, letters: str) -> str:
        n_columns = width(letters)
        shown = ""
        if self._column is not None and self._column + n_columns > self.room:
            shown = self._break()
        if self._column is None:
            shown += self._front
            self._column = 0
        self._column += n_columns
        return shown + letters


def _clusters(word: str) -> list[str]:
    """Split a word into letters together with their vowels and signs."""
    clusters: list[str] = []
    for letter in word:
        is_tied = letter in _NEVER_FIRST or width(letter) == 0
        if clusters and (is_tied or clusters[-1][-1] in _NEVER_LAST):
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters

"""A frame that a cell shows as a sentence and a narrow table of its main columns."""

from collections.abc import Sequence
from itertools import zip_longest

import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import Output, fitted_to_terminal
from svc_notebook.display.html_styles import message_html, quiet_html
from svc_notebook.display.terminal_width import padded, width, wrapped

_BETWEEN = "  "  # columns, in a terminal
_LEFT = ' style="text-align:left"'  # notebook hosts align cells to the right


class Listing(pd.DataFrame):
    """A frame that is shown as a summary; frames made from it are ordinary frames.

    `summary` holds a sentence, a note for below the table, and the table, whose first
    row are the heads.
    """

    _metadata = ["summary"]  # noqa: RUF012 - pandas asks for this list
    summary: tuple[str, str, Sequence[Sequence[str]]]

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        sentence, note, table = self.summary
        above, below = map(fitted_to_terminal, map(to_terminal, (sentence, note)))
        cells = [list(map(to_terminal, row)) for row in table if table[1:]]
        return "\n\n".join(filter(None, (above, _in_columns(cells), below)))

    def _repr_html_(self) -> str:
        sentence, note, table = self.summary
        drawn = [
            "".join(f"<{tag}{_LEFT}>{to_text(value)}</{tag}>" for value in row)
            for tag, row in zip(["th", *["td"] * len(table)], table, strict=False)
        ]
        rows = "".join(f"<tr>{row}</tr>" for row in drawn if table[1:])
        below = quiet_html(message_html(note)) if note else ""
        return f"<div><p>{message_html(sentence)}</p><table>{rows}</table>{below}</div>"


def _in_columns(table: Sequence[Sequence[str]]) -> str:
    """Draw a table; in a terminal, wide columns break at blanks until it fits."""
    columns = list(zip(*table, strict=True))
    widths = [max(map(width, column)) for column in columns]
    least = [max(map(width, " ".join(column).split())) for column in columns]
    room = Output().columns() - 1 - len(_BETWEEN) * (len(columns) - 1)
    while 0 < room < sum(widths):
        narrower = [
            [*widths[:at], widths[at] - 1, *widths[at + 1 :]]
            for at in range(len(widths))
            if widths[at] > least[at]
        ]
        if not narrower:
            break
        # the one with the fewest lines, and of these the one with the widest column cut
        widths = min(
            narrower,
            key=lambda some: (len(_lines(table, some)), sorted(some, reverse=True)),
        )
    return "\n".join(_lines(table, widths))


def _lines(table: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Return the lines of a table whose columns have these widths."""
    return [
        _BETWEEN.join(map(padded, parts, widths)).rstrip()
        for row in table
        for parts in zip_longest(
            *(wrapped(*cell).split("\n") for cell in zip(row, widths, strict=True)),
            fillvalue="",
        )
    ]


def listing(
    frame: pd.DataFrame,
    sentence: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    note: str = "",
) -> Listing:
    """Return a frame that is shown as a sentence and a table without empty columns."""
    used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    shown = Listing(frame)
    shown.summary = sentence, note, [[row[at] for at in used] for row in (heads, *rows)]
    return shown

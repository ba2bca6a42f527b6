"""A frame that a cell shows as a sentence and a narrow table of its main columns."""

from collections.abc import Sequence

import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.html_styles import message_html, quiet_html

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
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(map(str.ljust, row, widths)).rstrip()
            for row in table
            if table[1:]
        )
        above, below = map(fitted_to_terminal, map(to_terminal, (sentence, note)))
        shown = (above, to_terminal("\n".join(lines)), below)
        return "\n\n".join(filter(None, shown))

    def _repr_html_(self) -> str:
        sentence, note, table = self.summary
        drawn = [
            "".join(f"<{tag}{_LEFT}>{to_text(value)}</{tag}>" for value in row)
            for tag, row in zip(["th", *["td"] * len(table)], table, strict=False)
        ]
        rows = "".join(f"<tr>{row}</tr>" for row in drawn if table[1:])
        below = quiet_html(message_html(note)) if note else ""
        return f"<div><p>{message_html(sentence)}</p><table>{rows}</table>{below}</div>"


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

"""Tables of pandas as compact text: for prompts and for results of tools.

Rules: pandas need not be loaded to know that a value is none of its own; a table
states its shape and what was cut.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from svc_notebook.tokens import estimate_tokens

MAX_COLUMNS = 40
MAX_LINE_CHARS = 1000
_WORDS_TOKENS = 60  # the line above the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table cut to size.

    Attributes:
        kind: DataFrame or Series.
        shape: In words.
        cut: What is shown where it is not all, in words; else empty.
        lines: Comma-separated, the header first.
        n_cut_tokens: Estimated tokens of the rows left out.
    """

    kind: str
    shape: str
    cut: str
    lines: tuple[str, ...]
    n_cut_tokens: int


def is_pandas(value: object, *names: str) -> bool:
    """Look at the type's name: pandas need not be loaded to know it is not this."""
    return any(
        each.__name__ in names and each.__module__.split(".")[0] == "pandas"
        for each in type(value).__mro__
    )


def to_table(value: object, *, cap_tokens: int) -> tuple[str, int]:
    """Write a DataFrame or Series as text.

    Returns:
        The text, and the estimated tokens of the rows left out.
    """
    table = cut_table(value, max(cap_tokens - _WORDS_TOKENS, 1))
    cut = f"; {table.cut} follow" if table.cut else ""
    head = f"{table.kind}, {table.shape}{cut}:"
    return "\n".join([head, *table.lines]), table.n_cut_tokens


def cut_table(value: Any, cap_tokens: int) -> Table:  # noqa: ANN401 - a frame
    """Write a DataFrame or Series as lines within so many estimated tokens."""
    frame = value.to_frame() if is_pandas(value, "Series") else value
    n_rows, n_columns = frame.shape
    shape = (
        f"{n_rows} rows x {n_columns} columns" if n_columns > 1 else f"{n_rows} rows"
    )
    shown = frame.iloc[: max(cap_tokens // 2, 1), :MAX_COLUMNS]
    kept = _within(_rows(shown.to_csv(lineterminator="\n")), cap_tokens)
    n_shown = max(len(kept) - 1, 0)
    cuts = [
        f"the first {n_shown} rows" if n_shown < n_rows else "",
        f"the first {MAX_COLUMNS} columns" if n_columns > MAX_COLUMNS else "",
    ]
    a_row = sum(map(estimate_tokens, kept)) / max(len(kept), 1)
    return Table(
        kind=type(value).__name__,
        shape=shape,
        cut=" and ".join(each for each in cuts if each),
        lines=tuple(kept),
        n_cut_tokens=round(a_row * max(n_rows - n_shown, 0)),
    )


def _rows(text: str) -> Iterator[str]:
    """Take a table apart by rows, of which one can have several lines."""
    for row in csv.reader(StringIO(text, newline="")):
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        yield _short(line.getvalue().removesuffix("\n"))


def _short(line: str) -> str:
    """Return a row's line, a very long one with what was cut stated."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}[... of {len(line)} characters]"


def _within(lines: Iterable[str], cap_tokens: int) -> list[str]:
    kept: list[str] = []
    room = cap_tokens
    for line in lines:
        room -= estimate_tokens(line) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return kept

"""Frames and columns as text for a model: rows of CSV, cut to a number of tokens.

Prompts, attached values and the results of tools are all written this way.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from svc_notebook.ledger.frame_interchange import is_interchangeable, to_pandas
from svc_notebook.tokens import estimate_tokens, most_tokens

MAX_COLUMNS = 40
MAX_LINE_CHARS = 1000
HEAD_TOKENS = 60  # the line above the table


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTable:
    """A table that was shortened to a number of tokens."""

    kind: str  # DataFrame or Series
    shape: str  # such as "10 rows x 3 columns"
    cut: str  # the part that is shown, such as "the first 5 rows"; empty if all
    lines: tuple[str, ...]  # comma-separated rows, the header first
    n_cut_tokens: int  # estimated tokens of the rows that were left out


def is_pandas(value: object, *names: str) -> bool:
    """Return whether a value is of a pandas class, without loading pandas."""
    return any(
        cls.__name__ in names and cls.__module__.split(".")[0] == "pandas"
        for cls in type(value).__mro__
    )


def is_table(value: object) -> bool:
    """Return whether it is a frame or a column, of pandas, Polars, Arrow or others."""
    return is_pandas(value, "DataFrame", "Series") or is_interchangeable(value)


def to_table(value: object, *, cap_tokens: int) -> tuple[str, int]:
    """Convert a frame or a column to text; also return the tokens left out."""
    table = cut_table(value, max(cap_tokens - HEAD_TOKENS, 1))
    cut = f"; {table.cut} follow" if table.cut else ""
    head = f"{table.kind}, {table.shape}{cut}:"
    return "\n".join([head, *table.lines]), table.n_cut_tokens


def cut_table(
    value: Any,  # noqa: ANN401 - a frame
    cap_tokens: int,
    *,
    size: Callable[[str], float] = most_tokens,
) -> CutTable:
    """Convert a frame or a column to rows, up to a number of tokens.

    `size` returns the tokens of a row: if left out, the most that it can have.
    """
    value = to_pandas(value)
    frame = value.to_frame() if is_pandas(value, "Series") else value
    n_rows, n_columns = frame.shape
    shape = f"{n_rows} row{'s'[: n_rows != 1]}"
    shape += f" x {n_columns} columns" if n_columns > 1 else ""
    shown = frame.iloc[: max(cap_tokens // 2, 1), :MAX_COLUMNS]
    lines = _first_that_fit(_rows(shown.to_csv(lineterminator="\n")), cap_tokens, size)
    n_shown = max(len(lines) - 1, 0)
    cuts = [
        f"the first {n_shown} row{'s'[: n_shown != 1]}" if n_shown < n_rows else "",
        f"the first {MAX_COLUMNS} columns" if n_columns > MAX_COLUMNS else "",
    ]
    tokens_per_row = sum(estimate_tokens(row).mean for row in lines) / max(
        len(lines), 1
    )
    return CutTable(
        kind=type(value).__name__,
        shape=shape,
        cut=" and ".join(part for part in cuts if part),
        lines=tuple(lines),
        n_cut_tokens=round(tokens_per_row * max(n_rows - n_shown, 0)),
    )


def _rows(text: str) -> Iterator[str]:
    """Split a table into rows; a row can have several lines."""
    for row in csv.reader(StringIO(text, newline="")):
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        yield _shorten_row(line.getvalue().removesuffix("\n"))


def _shorten_row(line: str) -> str:
    """Cut a very long row, with a note."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}[... of {len(line)} characters]"


def _first_that_fit(
    lines: Iterable[str], cap_tokens: int, size: Callable[[str], float]
) -> list[str]:
    fitting: list[str] = []
    room: float = cap_tokens
    for line in lines:
        room -= size(line) + 1
        if room < 0 and fitting:
            break
        fitting.append(line)
    return fitting

"""The columns of a source beside its replies, with the kinds they have there.

Loads pandas. What it is not: which row belongs to which reply is told by the column
`row`. Rules: a column that came in a DataFrame keeps its dtype, whatever that is,
and so does its index; the frame is changed in place, its other columns are not.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from svc_notebook.ledger.replies import PROMPT

from .grid import Grid
from .source import ROW, Source
from .summary import final_names


def join(frame: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Give the columns of the rows their own dtypes, in a frame of replies.

    Args:
        frame: One row a reply, with the number of its row.
        grid: What the replies are of.
    """
    if grid.source is None:
        return frame
    names = final_names(grid)
    if frame.empty:
        at = frame.columns.tolist().index(PROMPT[-1].name) + 1
        for offset, (key, name) in enumerate(names.items()):
            kind = "Int64" if key == ROW else "string"
            frame.insert(at + offset, name, pd.Series([], dtype=kind))
    joined = set(names.values())
    here = frame.columns.tolist().index(PROMPT[-1].name) + 1
    before, after = frame.columns[:here], frame.columns[here:]
    rest = [name for name in after if name not in joined]
    # in one order, whichever column the first rows happen to have
    frame = frame[[*before, *(n for n in names.values() if n in after), *rest]]
    positions = frame[names[ROW]].to_numpy(dtype="int64")
    retype(frame, grid.source, names, positions)
    return frame


def retype(
    frame: pd.DataFrame,
    source: Source,
    names: dict[str, str],
    positions: Iterable[int],
) -> None:
    """Replace columns that came from a DataFrame by its own.

    Args:
        frame: Whose columns are replaced, those it has.
        source: The rows.
        names: What each of their columns is called there.
        positions: The row of the source for each row of the frame.
    """
    rows = list(positions)
    for key, values in _own(source):
        if names[key] in frame.columns:
            frame[names[key]] = values.take(rows).array


def _own(source: Source) -> Iterator[tuple[str, Any]]:
    if source.frame is None:
        return
    index = source.frame.index
    keys: Sequence[str] = list(source.shown)
    for level, key in enumerate(keys[: len(source.index)]):
        yield key, index.get_level_values(level)
    for position, key in enumerate(keys[len(source.index) :]):
        yield key, source.frame.iloc[:, position]

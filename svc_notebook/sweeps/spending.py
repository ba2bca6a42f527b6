"""What a run used, summed up by columns of its replies or of its own rows.

Loads pandas. What it is not: the sums (see `ledger.usage`). Rules: every request
counts, repeated ones too; a column of the rows keeps the dtype it has there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from msgspec.structs import replace

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import Column, pick
from svc_notebook.ledger.frames import usage_df
from svc_notebook.ledger.replies import REPLIES
from svc_notebook.ledger.reply import Reply, to_replies

from .grid import Grid
from .joining import retype
from .rows import key_of
from .source import ROW
from .summary import final_names, reply_columns


def usage_of(
    exchanges: Iterable[Exchange],
    grid: Grid,
    *,
    by: str | Sequence[str],
    **rules: Any,  # noqa: ANN401 - as `ledger.frames.usage_df`
) -> pd.DataFrame:
    """Sum up what a run used.

    Args:
        exchanges: Of the run.
        grid: What was asked.
        by: Columns of the run's replies to group by, those of its rows included.
        **rules: What counts, and how tokens are estimated and priced: as for
            `ledger.frames.usage_df`.

    Raises:
        ParameterError: `by` names what is no column, or is summed up.
    """
    known = reply_columns((), names=grid.column_names)
    if set(pick(known, by)) <= set(REPLIES):
        return usage_df(exchanges, by=by, **rules)
    found = _with_columns(exchanges, grid)
    firsts = [next(to_replies(each)) for each in found]
    columns = reply_columns(firsts, names=grid.column_names)
    frame = usage_df(found, by=by, columns=columns, **rules)
    if grid.source is not None:
        rows = _rows_of(firsts, pick(columns, by))
        retype(frame, grid.source, final_names(grid), rows)
    return frame


def _with_columns(exchanges: Iterable[Exchange], grid: Grid) -> list[Exchange]:
    """Give exchanges all columns that their cells have in a frame of replies."""
    cells = {cell.key: grid.source_columns(cell) for cell in grid}
    return [
        replace(each, origin=replace(each.origin, columns=cells[key_of(each)]))
        for each in exchanges
        if key_of(each) in cells
    ]


def _rows_of(firsts: Iterable[Reply], by: Sequence[Column[Reply]]) -> list[int]:
    """Return the row of the source that the first request of each group was of."""
    rows: dict[tuple[object, ...], int] = {}
    for each in firsts:
        key = tuple(column.read(each) for column in by)
        rows.setdefault(key, each.origin.columns.get(ROW, 0))
    return list(rows.values())

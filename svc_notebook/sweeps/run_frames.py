"""Frames of a run: its replies and sums, with the columns of its rows.

The columns that come from a DataFrame keep its dtypes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import Column, pick, template_columns
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import BEFORE_TEMPLATE, REPLIES, Reply

from .grid import Grid
from .resume import key_of
from .source import ROW

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


def columns_of(rows: Iterable[Reply | Exchange], grid: Grid) -> tuple[Column, ...]:
    """Return the columns of these rows: of replies, then those of the grid."""
    found = (dict.fromkeys(grid.column_names), *(row.origin.columns for row in rows))
    return (*REPLIES, *template_columns(found, [column.name for column in REPLIES]))


def final_names(grid: Grid) -> dict[str, str]:
    """Return what each column of the grid is called in a frame of replies."""
    columns = columns_of((), grid)[len(REPLIES) :]
    names = (column.name for column in columns)
    return dict(zip(grid.column_names, names, strict=True))


def source_names(grid: Grid) -> dict[str, str]:
    """Return what each column of the rows is called in a frame of replies."""
    if grid.source is None:
        return {}
    names, source = final_names(grid), grid.source
    keys = list(source.shown)[len(source.index) :]
    return {name: names[key] for name, key in zip(source.columns, keys, strict=True)}


def replies_frame(
    rows: Iterable[Reply], grid: Grid, *, prices: Prices | None = None
) -> "pd.DataFrame":
    """Make the frame of the rows of a run: see `Run.replies_df`."""
    from svc_notebook.ledger.frames import rows_frame  # noqa: PLC0415 - loads pandas

    frame = rows_frame(rows, prices=prices)
    if grid.source is None:
        return frame
    names = final_names(grid)
    if frame.empty:
        for offset, (key, name) in enumerate(names.items()):
            values = frame["repeat" if key == ROW else "model"]  # none, of its dtype
            frame.insert(len(BEFORE_TEMPLATE) + offset, name, values)
    # in one order, whichever columns the first rows happen to have
    own = [name for name in names.values() if name in frame.columns]
    rest = [name for name in frame.columns if name not in own]
    here = len(BEFORE_TEMPLATE)
    frame = frame[[*rest[:here], *own, *rest[here:]]]
    _retype(frame, grid, frame[names[ROW]].tolist())
    return frame


def summary_frame(
    rows: Sequence[Reply], grid: Grid, by: str | Sequence[str]
) -> "pd.DataFrame":
    """Sum up the trials of a run: see `Run.summary_df`."""
    from svc_notebook.ledger import groups  # noqa: PLC0415 - loads pandas

    frame, firsts = groups.summary_frame(rows, pick(columns_of(rows, grid), by))
    _retype(frame, grid, _source_rows(rows, firsts))
    return frame


def usage_frame(
    exchanges: Iterable[Exchange],
    grid: Grid,
    *,
    by: str | Sequence[str],
    **rules: Any,  # noqa: ANN401 - of `ledger.groups.usage_frame`
) -> "pd.DataFrame":
    """Sum up what a run used: see `Run.usage_df`."""
    from svc_notebook.ledger import groups  # noqa: PLC0415 - loads pandas

    columns = pick(columns_of((), grid), by)
    if set(columns) <= set(REPLIES):
        return groups.usage_frame(exchanges, columns, **rules).frame
    found = list(_with_columns(exchanges, grid))
    columns = pick(columns_of(found, grid), by)
    frame, firsts = groups.usage_frame(found, columns, **rules)
    _retype(frame, grid, _source_rows(found, firsts))
    return frame


def _with_columns(exchanges: Iterable[Exchange], grid: Grid) -> Iterator[Exchange]:
    """Give exchanges all columns that their trials have in a frame of replies."""
    trials = {trial.key: grid.source_columns(trial) for trial in grid}
    for each in exchanges:
        if (columns := trials.get(key_of(each))) is not None:
            yield replace(each, origin=replace(each.origin, columns=columns))


def _source_rows(
    rows: Sequence[Reply | Exchange], positions: Iterable[int]
) -> list[int]:
    return [rows[each].origin.columns.get(ROW, 0) for each in positions]


def _retype(frame: "pd.DataFrame", grid: Grid, rows: Sequence[int]) -> None:
    """Replace columns that came from a DataFrame by its own, of these rows."""
    if grid.source is None or grid.source.frame is None:
        return
    source, n_levels = grid.source.frame, len(grid.source.index)
    names = final_names(grid)
    for position, key in enumerate(grid.source.shown):
        if names[key] in frame.columns:
            if position < n_levels:
                values = source.index.get_level_values(position)
            else:
                values = source.iloc[:, position - n_levels]
            frame[names[key]] = values.take(rows).array

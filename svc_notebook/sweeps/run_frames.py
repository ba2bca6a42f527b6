"""Frames of a run that are made with pandas: joined with its rows, and its usage."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from msgspec.structs import replace

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import Column, pick
from svc_notebook.ledger.frames import usage_df
from svc_notebook.ledger.reply_columns import PROMPT, REPLIES, Reply, to_replies

from .grid import Grid
from .groups import final_names, reply_columns
from .resume import key_of
from .source import ROW, Source


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
    """Give exchanges all columns that their trials have in a frame of replies."""
    trials = {trial.key: grid.source_columns(trial) for trial in grid}
    return [
        replace(each, origin=replace(each.origin, columns=trials[key_of(each)]))
        for each in exchanges
        if key_of(each) in trials
    ]


def _rows_of(firsts: Iterable[Reply], by: Sequence[Column[Reply]]) -> list[int]:
    """Return the row of the source that the first request of each group was of."""
    rows: dict[tuple[object, ...], int] = {}
    for each in firsts:
        key = tuple(column.read(each) for column in by)
        rows.setdefault(key, each.origin.columns.get(ROW, 0))
    return list(rows.values())

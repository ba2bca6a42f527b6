"""DataFrames of exchanges: replies, usage, and what their columns mean.

Loads pandas. Rules: dtypes are stated, never inferred, so that no rows give the
same dtypes as many; there are no object columns; rows are taken in as they come, so
that a frame of very many needs the memory of the frame; nothing here reads a file.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pandas as pd

from svc_notebook.exchange import Exchange

from .arrays import to_array
from .columns import Batch, Column, Row, pick, template_columns
from .cost import priced_columns
from .estimate import Estimates
from .prices import Prices
from .replies import PROMPT, REPLIES, TEXTS
from .reply import Reply, all_replies
from .usage import USAGE, key_columns, to_tallies

CHUNK_ROWS = 4096


def to_frame(rows: Iterable[Row], columns: Sequence[Column[Row]]) -> pd.DataFrame:
    """Make a frame: one row a row, one column a column, dtypes as stated."""
    pieces = [_piece(chunk, columns) for chunk in _chunks(rows)]
    if not pieces:
        return _piece([], columns)
    return pieces[0] if len(pieces) == 1 else pd.concat(pieces, ignore_index=True)


def describe(columns: Sequence[Column[Any]] = REPLIES) -> pd.DataFrame:
    """Say what columns mean.

    Args:
        columns: Such as `REPLIES` or `USAGE`.

    Returns:
        One row a column, in their order: name, dtype, unit, doc.
    """
    return to_frame(columns, _DESCRIPTION)


def replies_df(
    exchanges: Iterable[Exchange],
    *,
    columns: Sequence[Column[Reply]] | None = None,
    texts: bool = True,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """List the replies of exchanges.

    Args:
        exchanges: In the order wanted, such as `ledger.read()`; with texts=False such
            as `ledger.read(texts=False)`.
        columns: The columns wanted; template columns are put after `prompt`, and
            are left out if that is not among them. All if None.
        texts: False leaves out the columns that hold texts (`TEXTS`).
        prices: The price table for `cost`; unknown without one.

    Returns:
        One row a choice, in the order of the exchanges; an exchange that no choice
        came for has one row. Columns `REPLIES`: see `describe()`.
    """
    wanted = priced_columns(prices) if columns is None else columns
    if not texts:
        wanted = [column for column in wanted if column.name not in TEXTS]
    return rows_df(all_replies(exchanges), columns=wanted)


def rows_df(
    rows: Iterable[Reply], *, columns: Sequence[Column[Reply]] = REPLIES
) -> pd.DataFrame:
    """List rows of replies, cells of a sweep that have none included."""
    names = [column.name for column in columns]
    if PROMPT[-1].name not in names:
        return to_frame(rows, columns)
    templates: list[dict[str, Any]] = []
    frame = to_frame(_noting(rows, templates), columns)
    if not any(templates):
        return frame
    found = template_columns(templates, lambda row: row, names)
    here = names.index(PROMPT[-1].name) + 1
    before, after = frame.iloc[:, :here], frame.iloc[:, here:]
    return pd.concat([before, to_frame(templates, found), after], axis="columns")


def usage_df(
    exchanges: Iterable[Exchange],
    *,
    by: str | Sequence[str] = ("model",),
    include_emulated: bool = False,
    include_reused: bool = False,
    estimates: Estimates | None = None,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """Sum up what exchanges used.

    Args:
        exchanges: Such as `ledger.read(texts="estimated")`.
        by: Columns of `REPLIES` to group by; none for one row over all.
        include_emulated: Count answers of the emulator, which cost nothing.
        include_reused: Count replies that were read from the ledger.
        estimates: The rules to estimate tokens by; the fixed rule if None.
        prices: The price table for `cost`; unknown without one.

    Returns:
        One row a group, in the order in which they first come: the columns grouped
        by, then `USAGE` (see `describe(USAGE)`). Groups whose requests are all left
        out are there with n_requests 0 and their number in n_left_out.

    Raises:
        ParameterError: `by` names what is no column of replies.
    """
    tallies = to_tallies(
        exchanges,
        by=pick(REPLIES, by),
        include_emulated=include_emulated,
        include_reused=include_reused,
        estimates=estimates,
        prices=prices,
    )
    return to_frame(tallies, (*key_columns(by), *USAGE))


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    source = iter(rows)
    while chunk := list(islice(source, CHUNK_ROWS)):
        yield chunk


def _piece(rows: list[Row], columns: Sequence[Column[Row]]) -> pd.DataFrame:
    batch = Batch(rows)
    arrays = {
        column.name: to_array(batch.values(column), column.dtype) for column in columns
    }
    return pd.DataFrame(arrays, index=pd.RangeIndex(len(rows)), copy=False)


def _noting(rows: Iterable[Reply], templates: list[dict[str, Any]]) -> Iterator[Reply]:
    """Pass rows on and keep their template columns, whose dtype all of them decide."""
    for row in rows:
        templates.append(row.origin.columns or _NO_COLUMNS)
        yield row


_NO_COLUMNS: dict[str, Any] = {}  # one for all: a million empty ones take 60 MB

_DESCRIPTION: tuple[Column[Column[Any]], ...] = (
    Column(name="name", dtype="string", read=lambda c: c.name, doc="of the column"),
    Column(name="dtype", dtype="string", read=lambda c: c.dtype, doc="of the column"),
    Column(name="unit", dtype="string", read=lambda c: c.unit, doc="if it has one"),
    Column(name="doc", dtype="string", read=lambda c: c.doc, doc="what it means"),
)

"""DataFrames of exchanges: replies, usage, and what their columns mean.

Loads pandas. Rules: dtypes are stated, never inferred, so that no rows give the
same dtypes as many; there are no object columns; rows are taken in as they come, so
that a frame of very many needs the memory of the frame; nothing here reads a file.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pandas as pd
from pandas.api.extensions import ExtensionArray

from svc_notebook.exchange import Exchange

from .arrays import joined, to_array
from .columns import Batch, Column, Row, pick, template_columns
from .prices import Prices, priced_columns
from .reply_columns import PROMPT, REPLIES, TEXTS, Reply, to_batch
from .token_estimates import Estimates
from .usage import USAGE, key_columns, to_tallies

CHUNK_ROWS = 8192


def to_frame(rows: Iterable[Row], columns: Sequence[Column[Row]]) -> pd.DataFrame:
    """Make a frame: one row a row, one column a column, dtypes as stated."""
    return _joined(map(Batch, _chunks(rows)), columns)


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
    return _with_templates(map(to_batch, _chunks(exchanges)), wanted)


def rows_df(
    rows: Iterable[Reply], *, columns: Sequence[Column[Reply]] = REPLIES
) -> pd.DataFrame:
    """List rows of replies, cells of a sweep that have none included."""
    return _with_templates(map(Batch, _chunks(rows)), columns)


def usage_df(  # noqa: PLR0913 - what counts, and how
    exchanges: Iterable[Exchange],
    *,
    by: str | Sequence[str] = ("model",),
    columns: Sequence[Column[Reply]] = REPLIES,
    include_emulated: bool = False,
    include_reused: bool = False,
    estimates: Estimates | None = None,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """Sum up what exchanges used.

    Args:
        exchanges: Such as `ledger.read(texts="estimated")`.
        by: Names of columns to group by; none for one row over all.
        columns: Those that there are.
        include_emulated: Count answers of the emulator, which cost nothing.
        include_reused: Count replies that were read from the ledger.
        estimates: The rules to estimate tokens by; the fixed rule if None.
        prices: The price table for `cost`; unknown without one.

    Returns:
        One row a group, in the order in which they first come: the columns grouped
        by, then `USAGE` (see `describe(USAGE)`). Groups whose requests are all left
        out are there with n_requests 0 and their number in n_left_out.

    Raises:
        ParameterError: `by` names what is no column of replies, or one of `USAGE`.
    """
    wanted = pick(columns, by)
    keys = key_columns(wanted)
    tallies = to_tallies(
        exchanges,
        by=wanted,
        include_emulated=include_emulated,
        include_reused=include_reused,
        estimates=estimates,
        prices=prices,
    )
    return to_frame(tallies, (*keys, *USAGE))


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    source = iter(rows)
    while chunk := list(islice(source, CHUNK_ROWS)):
        yield chunk


def _joined(batches: Iterable[Batch], columns: Sequence[Column[Any]]) -> pd.DataFrame:
    pieces: list[list[ExtensionArray]] = [[] for _ in columns]
    n_rows = 0
    for batch in batches:
        n_rows += batch.n_rows
        for column, found in zip(columns, pieces, strict=True):
            found.append(to_array(batch.values(column), column.dtype))
    arrays = {
        column.name: joined(found or [to_array([], column.dtype)])
        for column, found in zip(columns, pieces, strict=True)
    }
    return pd.DataFrame(arrays, index=pd.RangeIndex(n_rows), copy=False)


def _with_templates(
    batches: Iterable[Batch], columns: Sequence[Column[Reply]]
) -> pd.DataFrame:
    """Make a frame of replies, with the template columns after the prompt."""
    names = [column.name for column in columns]
    if PROMPT[-1].name not in names:
        return _joined(batches, columns)
    templates: list[dict[str, Any]] = []
    frame = _joined(_noting(batches, templates), columns)
    if not any(templates):
        return frame
    found = template_columns(templates, lambda row: row, names)
    here = names.index(PROMPT[-1].name) + 1
    before, after = frame.iloc[:, :here], frame.iloc[:, here:]
    return pd.concat([before, to_frame(templates, found), after], axis="columns")


def _noting(
    batches: Iterable[Batch], templates: list[dict[str, Any]]
) -> Iterator[Batch]:
    """Pass rows on and keep their template columns, whose dtype all of them decide."""
    for batch in batches:
        found = batch.part("origin.columns")
        templates += [each or _NO_COLUMNS for each in found]
        yield batch


_NO_COLUMNS: dict[str, Any] = {}  # one for all: a million empty ones take 60 MB

_DESCRIPTION: tuple[Column[Column[Any]], ...] = (
    Column(name="name", dtype="string", read=lambda c: c.name, doc="of the column"),
    Column(name="dtype", dtype="string", read=lambda c: c.dtype, doc="of the column"),
    Column(name="unit", dtype="string", read=lambda c: c.unit, doc="if it has one"),
    Column(name="doc", dtype="string", read=lambda c: c.doc, doc="what it means"),
)

"""DataFrames of replies and tool calls, built from columns in chunks of rows.

dtypes are stated, never inferred, so that a frame without rows has the same dtypes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar, Unpack

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from svc_notebook.exchange import Exchange

from .columns import (
    Batch,
    Column,
    Dtype,
    Scalar,
    dtype_of,
    template_columns,
    to_instant,
)
from .prices import Prices
from .reply_columns import (
    BEFORE_TEMPLATE,
    REPLIES,
    TEXTS,
    Reply,
    exchange_batch,
    reply_batch,
)
from .row import Filters, Wanted
from .scores import PREFIX, read_scores
from .store import Ledger
from .tool_runs import TOOL_CALLS

Row = TypeVar("Row")
CHUNK_ROWS = 8192


def replies_df(
    ledger: Ledger,
    *,
    texts: bool = True,
    prices: Prices | None = None,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """List the replies in a ledger: see `svc.replies_df`.

    Without `prices`, costs are unknown; `filters` are those of `Ledger.read`.
    """
    exchanges = ledger.read(texts=texts, **filters)
    frame = replies_frame(exchanges, texts=texts, prices=prices)
    return with_scores(frame, ledger)


def tool_calls_df(
    ledger: Ledger, *, name: Wanted = None, **filters: Unpack[Filters]
) -> pd.DataFrame:
    """List the tool calls in a ledger: see `svc.tool_calls_df`."""
    return to_frame(ledger.tool_runs(name=name, **filters), TOOL_CALLS)


def describe(columns: Sequence[Column] = REPLIES) -> pd.DataFrame:
    """Return one row per column, such as those in `USAGE`: name, dtype, unit, doc."""
    return to_frame(columns, _DESCRIPTION)


_DESCRIPTION = (
    Column("name", "string", "name", "of the column"),
    Column("dtype", "string", "dtype", "of the column"),
    Column("unit", "string", "unit", "if it has one"),
    Column("doc", "string", "doc", "what it means"),
)


def replies_frame(
    exchanges: Iterable[Exchange],
    *,
    texts: bool = True,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """Return the frame of the replies of exchanges, without scores.

    It has one row per choice, or one for an exchange without choices. The columns are
    `REPLIES`, with template columns after `prompt`; `texts=False` leaves out `TEXTS`
    and template columns.
    """
    batches = (exchange_batch(each, prices) for each in chunks(exchanges))
    if not texts:
        return assembled(batches, [each for each in REPLIES if each.name not in TEXTS])
    return _with_templates(batches)


def rows_frame(rows: Iterable[Reply], *, prices: Prices | None = None) -> pd.DataFrame:
    """Return the frame of rows of replies, also of trials without a reply."""
    return _with_templates(reply_batch(each, prices) for each in chunks(rows))


def to_frame(rows: Iterable[Any], columns: Sequence[Column]) -> pd.DataFrame:
    """Return a frame of any rows."""
    return assembled(map(Batch, chunks(rows)), columns)


def with_scores(frame: pd.DataFrame, ledger: Ledger | None) -> pd.DataFrame:
    """Add the scores of a frame's replies to it: one column per name, the last ones.

    The frame is changed in place. The ledger is None if nothing was asked yet.
    """
    scores = [] if ledger is None or frame.empty else read_scores(ledger)
    if not scores:
        return frame
    exchange_ids = frame["exchange_id"].fillna("")
    keys = list(zip(exchange_ids, frame["choice_index"].fillna(0), strict=True))
    here = set(exchange_ids)
    found: dict[str, dict[tuple[str, int], Any]] = {}
    for score in scores:
        if score.exchange_id in here:
            values = found.setdefault(score.name, {})
            values[score.exchange_id, score.choice_index] = score.value
    for name, values in found.items():
        column = [values.get(key) for key in keys]
        frame[PREFIX + name] = to_array(column, dtype_of(values.values()))
    return frame


def chunks(rows: Iterable[Row], n_rows: int = CHUNK_ROWS) -> Iterator[list[Row]]:
    """Return rows in lists of limited length."""
    source = iter(rows)
    while chunk := list(islice(source, n_rows)):
        yield chunk


def assembled(batches: Iterable[Batch], columns: Sequence[Column]) -> pd.DataFrame:
    """Return the frame of batches, each read once."""
    pieces: list[list[ExtensionArray]] = [[] for _ in columns]
    n_rows = 0
    for batch in batches:
        n_rows += len(batch.rows)
        for column, found in zip(columns, pieces, strict=True):
            found.append(to_array(column.read(batch), column.dtype))
    arrays = {
        column.name: _joined(found or [to_array([], column.dtype)])
        for column, found in zip(columns, pieces, strict=True)
    }
    return pd.DataFrame(arrays, index=pd.RangeIndex(n_rows), copy=False)


def _with_templates(batches: Iterable[Batch]) -> pd.DataFrame:
    """Return a frame of replies, with the template columns after the prompt."""
    templates: list[dict[str, Any]] = []

    def noted() -> Iterator[Batch]:  # all rows together decide the dtypes
        for batch in batches:
            templates.extend(each or _NONE for each in batch.part("origin.columns"))
            yield batch

    frame = assembled(noted(), REPLIES)
    if not any(templates):
        return frame
    found = template_columns(templates, [column.name for column in REPLIES])
    middle = assembled([Batch(templates, {"origin.columns": templates})], found)
    here = len(BEFORE_TEMPLATE)
    before, after = frame.iloc[:, :here], frame.iloc[:, here:]
    return pd.concat([before, middle, after], axis="columns")


_NONE: dict[str, Any] = {}  # one for all: a million empty ones take 60 MB


arrow: Any = None  # pyarrow, in which pandas keeps texts if it is installed
with suppress(ImportError):  # an extra
    arrow = import_module("pyarrow")

_INT64 = np.iinfo("int64")
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999
_EXACT_S = 4e9  # up to the year 2096 a float of seconds holds every microsecond


def to_array(values: Sequence[Scalar], dtype: Dtype) -> ExtensionArray:
    """Return the values as an array; None is a missing value.

    Instants may also be whole seconds since 1970; those after year 9999 are missing.
    """
    given = values if isinstance(values, list) else list(values)
    if given and given[0] is None and given.count(None) == len(given):
        return _missing(len(given), dtype)
    return _MAKERS[dtype](given)


def _joined(arrays: Sequence[ExtensionArray]) -> ExtensionArray:
    if len(arrays) == 1:
        return arrays[0]
    kind: Any = type(arrays[0])  # the stubs lack the method
    found: ExtensionArray = kind._concat_same_type(arrays)  # noqa: SLF001 - pandas' interface of arrays
    return found


def _missing(n: int, dtype: Dtype) -> ExtensionArray:
    if dtype == "string" and arrow is not None:
        return pd.arrays.ArrowStringArray(arrow.nulls(n, arrow.large_string()))
    stated: Any = dtype  # the stubs know each name alone, not their union
    nothing: Any = pd.NaT if dtype.startswith("datetime") else pd.NA
    array: ExtensionArray = pd.Series(nothing, index=range(n), dtype=stated).array
    return array


def _floats(values: list[Any]) -> ExtensionArray:
    numbers = np.array(values, dtype="float64")
    return pd.arrays.FloatingArray(numbers, np.isnan(numbers))


def _integers(values: list[Any]) -> ExtensionArray:
    if (numbers := _plain(values)).dtype in {_INT64.dtype, np.dtype(bool)}:
        numbers = numbers.astype("int64", copy=False)
        return pd.arrays.IntegerArray(numbers, np.zeros(len(numbers), dtype=bool))
    return pd.array([x if _fits(x) else None for x in values], dtype="Int64")


def _plain(values: list[Any]) -> "np.ndarray":
    """Return the values as numpy takes them, faster if all are the same."""
    first = values[0] if values else None
    if isinstance(first, (int, float)) and _is_constant(values):
        return np.full(len(values), first)
    return np.array(values)


def _is_constant(values: list[Any]) -> bool:
    """Return whether all values are equal, as numbers of requests often are."""
    first = values[0]
    is_likely = first == values[-1] and first == values[len(values) // 2]
    return is_likely and values.count(first) == len(values)


def _fits(value: object) -> bool:
    return isinstance(value, int) and _INT64.min <= value <= _INT64.max


def _flags(values: list[Any]) -> ExtensionArray:
    if None in values:
        return pd.array(values, dtype="boolean")
    flags = np.array(values, dtype=bool)
    return pd.arrays.BooleanArray(flags, np.zeros(len(flags), dtype=bool))


def _texts(values: list[Any]) -> ExtensionArray:
    if arrow is None:
        return pd.array(_whole(values), dtype="string")
    if values and values[0] is not None and _is_constant(values):
        found = arrow.repeat(_to_arrow(values[:1])[0], len(values))
    else:
        found = _to_arrow(values)
    return pd.arrays.ArrowStringArray(found)


def _to_arrow(values: list[Any]) -> Any:  # noqa: ANN401 - a package without types
    try:
        return arrow.array(values, arrow.large_string())
    except UnicodeEncodeError:
        return arrow.array(_whole(values), arrow.large_string())


def _whole(values: list[Any]) -> list[Any]:
    """Return texts that UTF-8 can hold; half a surrogate pair becomes `?`."""
    try:
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        return [x and x.encode("utf-8", "replace").decode() for x in values]
    return values


def _instants(values: list[Any]) -> ExtensionArray:
    kinds = set(map(type, values))
    if kinds == {int} and min(values) >= _FIRST_S and max(values) <= _LAST_S:
        return _of_microseconds(np.array(values, dtype="int64") * 1_000_000)
    if kinds == {datetime}:
        seconds = np.fromiter(map(datetime.timestamp, values), "float64", len(values))
        if np.abs(seconds).max() < _EXACT_S:
            return _of_microseconds(np.rint(seconds * 1e6))
    found = [to_instant(x) if isinstance(x, int) else x for x in values]
    return pd.array(found, dtype="datetime64[us, UTC]")


def _of_microseconds(numbers: "np.ndarray") -> ExtensionArray:
    instants = pd.Series(numbers.astype("datetime64[us]"))
    array: ExtensionArray = instants.dt.tz_localize("UTC").array
    return array


_MAKERS: dict[Dtype, Callable[[list[Any]], ExtensionArray]] = {
    "string": _texts,
    "Int64": _integers,
    "Float64": _floats,
    "boolean": _flags,
    "datetime64[us, UTC]": _instants,
    "object": lambda values: pd.array(values, dtype="object"),  # estimates to be added
}

"""DataFrames of replies and tool calls, built in chunks and with fixed dtypes."""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from itertools import takewhile
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.service.params import did_you_mean

from .exchange_rows import Filters, Wanted
from .ledger import Ledger
from .prices import Prices
from .reply_columns import (
    DETAILS,
    REPLIES,
    TEXTS,
    Batch,
    Column,
    Dtype,
    Scalar,
    as_names,
    chunks,
    dtype_of,
    exchange_batch,
    extra_columns,
    template_columns,
    to_instant,
)
from .scores import PREFIX, read_scores
from .tool_calls import TOOL_CALLS

arrow: Any = None  # pyarrow, if it is installed: pandas then keeps texts in it

_INT64 = np.iinfo("int64")
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # Unix times of years 1 to 9999
_FEW_EXCHANGES = 2_000  # up to so many, scores are read by id; for more, all are read
_EXACT_S = 4e9  # up to the year 2096 a float of seconds holds every microsecond


def to_array(values: Sequence[Scalar], dtype: Dtype) -> ExtensionArray:
    """Convert values to an array; None is a missing value.

    Instants may also be whole seconds since 1970; those after year 9999 are missing.
    """
    listed = values if isinstance(values, list) else list(values)
    if listed and listed[0] is None and listed.count(None) == len(listed):
        return _missing_array(len(listed), dtype)
    return _MAKERS[dtype](listed)


def _missing_array(n: int, dtype: Dtype) -> ExtensionArray:
    if dtype == "string" and arrow is not None:
        return pd.arrays.ArrowStringArray(arrow.nulls(n, arrow.large_string()))
    if dtype in _MASKED:
        kind, number = _MASKED[dtype]
        masked: ExtensionArray = kind(np.ones(n, number), np.ones(n, bool))
        return masked
    stated: Any = dtype  # pandas' stubs accept each name, but not a union of them
    nothing: Any = pd.NaT if dtype.startswith("datetime") else pd.NA
    array: ExtensionArray = pd.Series(nothing, index=range(n), dtype=stated).array
    return array


_MASKED: dict[Dtype, tuple[Any, str]] = {
    "Int64": (pd.arrays.IntegerArray, "int64"),
    "Float64": (pd.arrays.FloatingArray, "float64"),
    "boolean": (pd.arrays.BooleanArray, "bool"),
}


def _float_array(values: list[Any]) -> ExtensionArray:
    numbers = np.array(values, dtype="float64")
    return pd.arrays.FloatingArray(numbers, np.isnan(numbers))


def _integer_array(values: list[Any]) -> ExtensionArray:
    if (numbers := _numpy_array(values)).dtype in {_INT64.dtype, np.dtype(bool)}:
        numbers = numbers.astype("int64", copy=False)
        return pd.arrays.IntegerArray(numbers, np.zeros(len(numbers), dtype=bool))
    return pd.array(
        [value if _fits_int64(value) else None for value in values], dtype="Int64"
    )


def _numpy_array(values: list[Any]) -> "np.ndarray":
    """Convert values to an array of numpy; equal values are converted once."""
    first = values[0] if values else None
    if isinstance(first, (int, float)) and _is_constant(values):
        return np.full(len(values), first)
    return np.array(values)


def _is_constant(values: list[Any]) -> bool:
    """Return whether all values are equal, as they often are in a column of a sweep."""
    first = values[0]
    is_likely = first == values[-1] and first == values[len(values) // 2]
    return is_likely and values.count(first) == len(values)


def _fits_int64(value: object) -> bool:
    return isinstance(value, int) and _INT64.min <= value <= _INT64.max


def _boolean_array(values: list[Any]) -> ExtensionArray:
    if None in values:
        return pd.array(values, dtype="boolean")
    flags = np.array(values, dtype=bool)
    return pd.arrays.BooleanArray(flags, np.zeros(len(flags), dtype=bool))


def _string_array(values: list[Any]) -> ExtensionArray:
    if arrow is None:
        return pd.array(_replace_surrogates(values), dtype="string")
    if values and values[0] is not None and _is_constant(values):
        texts = arrow.repeat(_arrow_array(values[:1])[0], len(values))
    else:
        texts = _arrow_array(values)
    return pd.arrays.ArrowStringArray(texts)


def _arrow_array(values: list[Any]) -> Any:  # noqa: ANN401 - a package without types
    try:
        return arrow.array(values, arrow.large_string())
    except UnicodeEncodeError:
        return arrow.array(_replace_surrogates(values), arrow.large_string())


def _replace_surrogates(values: list[Any]) -> list[Any]:
    """Return texts with `?` for half a surrogate pair, which UTF-8 cannot hold."""
    try:  # all at once: hardly any text needs it
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        return [text and text.encode("utf-8", "replace").decode() for text in values]
    return values


def _instant_array(values: list[Any]) -> ExtensionArray:
    kinds = set(map(type, values))
    if kinds == {int} and min(values) >= _FIRST_S and max(values) <= _LAST_S:
        return _array_of_microseconds(np.array(values, dtype="int64") * 1_000_000)
    if kinds == {datetime}:
        seconds = np.fromiter(map(datetime.timestamp, values), "float64", len(values))
        if np.abs(seconds).max() < _EXACT_S:
            return _array_of_microseconds(np.rint(seconds * 1e6))
    instants = [
        to_instant(value) if isinstance(value, int) else value for value in values
    ]
    return pd.array(instants, dtype="datetime64[us, UTC]")


def _array_of_microseconds(numbers: "np.ndarray") -> ExtensionArray:
    instants = pd.Series(numbers.astype("datetime64[us]"))
    array: ExtensionArray = instants.dt.tz_localize("UTC").array
    return array


def _day_array(values: list[Any]) -> ExtensionArray:
    instants = pd.Series(_instant_array(values))
    array: ExtensionArray = instants.dt.tz_localize(None).array
    return array


_MAKERS: dict[Dtype, Callable[[list[Any]], ExtensionArray]] = {
    "string": _string_array,
    "Int64": _integer_array,
    "Float64": _float_array,
    "boolean": _boolean_array,
    "datetime64[us]": _day_array,
    "datetime64[us, UTC]": _instant_array,
    "object": lambda values: pd.array(
        values, dtype="object"
    ),  # estimates, which `usage` adds up
}


ReadKept = Callable[[pd.DataFrame, Sequence[str | None]], pd.DataFrame]
"""Takes a frame and the stored type of answers of each row; fills in the answers."""

JoinExchanges = Callable[[Ledger, Iterable[Exchange]], Iterable[Exchange]]
"""Gives exchanges the columns of their rows, which only the plans of runs have."""


def unchanged(_: Ledger, exchanges: Iterable[Exchange]) -> Iterable[Exchange]:
    """Return exchanges as they are."""
    return exchanges


def replies_df(
    ledger: Ledger,
    *,
    texts: bool = True,
    prices: Prices | None = None,
    joined: JoinExchanges = unchanged,
    answers: ReadKept | None = None,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """List the replies in a ledger: see `svc.replies_df`.

    Without `prices`, costs are unknown. `joined` adds the columns of the rows of runs,
    `answers` reads answers whose type is stored, and `filters` are those of
    `Ledger.read`.
    """
    exchanges: Iterable[Exchange] = ledger.read(texts=texts, **filters)
    if texts:
        exchanges = joined(ledger, exchanges)
    frame = replies_frame(exchanges, texts=texts, prices=prices, answers=answers)
    return with_scores(frame, ledger)


def tool_calls_df(
    ledger: Ledger, *, name: Wanted = None, **filters: Unpack[Filters]
) -> pd.DataFrame:
    """List the tool calls in a ledger: see `svc.tool_calls_df`."""
    return to_frame(ledger.tool_runs(name=name, **filters), TOOL_CALLS)


_ALWAYS = frozenset({"answer", "answer_error"})  # in narrow frames, unless empty
_N_IN_FRONT = 5  # of the columns of rows: with the score they are the first ten


def select_columns(
    frame: pd.DataFrame, columns: Literal["narrow"] | Sequence[str] | None
) -> pd.DataFrame:
    """Return a frame with the named columns, or with those that differ; all if None.

    `narrow` leaves out columns that are empty, and ids, waits and other `DETAILS`.
    Estimated tokens stay if none was reported. If there are several rows, it also
    leaves out columns with one value, but never the text, answers and scores.
    """
    if columns is None:
        return _with_reply_in_front(frame)
    if isinstance(columns, str) and columns == "narrow":
        reported = ("prompt_tokens", "completion_tokens")
        hidden = DETAILS - {
            f"est_{name}"
            for name in reported
            if name in frame.columns and frame[name].isna().all()
        }
        names = [
            name
            for name in frame.columns
            if name not in hidden and _is_informative(frame[name])
        ]
        return _with_reply_in_front(frame[names])
    for name in (names := as_names(columns)):
        if name not in frame.columns:
            raise ParameterError(
                f"{name!r} is not a column of the frame."
                f"{did_you_mean(str(name), map(str, frame.columns))} columns takes a "
                "list of names, or 'narrow' for what differs; list(run.replies_df()) "
                "has all names.",
                param="columns",
            )
    return frame[names]


def _with_reply_in_front(frame: pd.DataFrame) -> pd.DataFrame:
    """Move columns of rows behind the scores if there are many.

    pandas shows the first ten columns, and the text and a score are to be among them.
    The labels of conditions and the first columns of the rows stay in front.
    """
    names = list(map(str, frame.columns))
    if not {"model", "text"} <= {*names} or names.index("model") <= _N_IN_FRONT:
        return frame
    of_rows = names[: names.index("model")]
    labels = [name for name in of_rows if name.endswith("_label")]
    n_first = max(_N_IN_FRONT - len(labels), 1)
    first = [name for name in of_rows if name not in labels][:n_first] + labels
    behind = [name for name in of_rows if name not in first]
    rest = names[len(of_rows) :]
    replies = list(takewhile(_is_of_reply, rest))
    return frame[[*first, *replies, *behind, *rest[len(replies) :]]]


def _is_of_reply(name: str) -> bool:
    is_one = name in {"model", "temperature", "text", "answer"}
    return is_one or name.startswith(("answer_", PREFIX))


def _is_informative(values: pd.Series) -> bool:
    """Return whether a narrow frame has a column with these values."""
    name = str(values.name)
    if name == "text":
        return True
    if not values.notna().any():
        return False
    if len(values) == 1 or name in _ALWAYS or name.startswith(PREFIX):
        return True
    first = values.iloc[0]
    return bool(pd.isna(first) or not (values == first).fillna(value=False).all())


def replies_frame(
    exchanges: Iterable[Exchange],
    *,
    texts: bool = True,
    prices: Prices | None = None,
    answers: ReadKept | None = None,
) -> pd.DataFrame:
    """Return the frame of the replies of exchanges, without scores.

    It has one row per choice, or one row for an exchange without choices. The columns
    are template columns and `REPLIES`, with the fields of `extra` after the parameters.
    `texts=False` leaves out `TEXTS` and template columns.
    """
    batches = (exchange_batch(chunk, prices) for chunk in chunks(exchanges))
    if not texts:
        known = [column for column in REPLIES if column.name not in TEXTS]
        return _replies_with_added_columns(batches, known, [])
    answer_types: list[str | None] = []
    frame = _replies_with_added_columns(batches, REPLIES, answer_types)
    return (
        answers(frame, answer_types)
        if answers is not None and any(answer_types)
        else frame
    )


def trials_frame(batches: Iterable[Batch]) -> pd.DataFrame:
    """Return the frame of the rows of trials, sorted by the part `trial`.

    If a trial occurs several times, only the rows with its last `turn` are kept.
    """
    return _replies_with_added_columns(batches, REPLIES, [])


def to_frame(rows: Iterable[Any], columns: Sequence[Column]) -> pd.DataFrame:
    """Return a frame of rows of any kind."""
    return assemble_frame(map(Batch, chunks(rows)), columns)


def with_scores(frame: pd.DataFrame, ledger: Ledger | None) -> pd.DataFrame:
    """Add the scores of a frame's replies to it: one column per name, after answers.

    The frame is changed in place. The ledger is None if nothing was sent yet. If the
    scores of a name are texts and numbers, the column is text.
    """
    if ledger is None or frame.empty:
        return frame
    exchange_ids = frame["exchange_id"].fillna("")
    own_ids = set(exchange_ids)
    scores = read_scores(ledger, own_ids if len(own_ids) <= _FEW_EXCHANGES else None)
    if not scores:
        return frame
    keys = list(zip(exchange_ids, frame["choice_index"].fillna(0), strict=True))
    values_by_name: dict[str, dict[tuple[str, int], Any]] = {}
    for score in scores:
        if score.exchange_id in own_ids:
            values = values_by_name.setdefault(score.name, {})
            values[score.exchange_id, score.choice_index] = score.value
    for name, values in values_by_name.items():
        dtype = dtype_of(values.values())
        column = [values.get(key) for key in keys]
        if dtype == "string":  # several runs may have texts and numbers under a name
            column = [None if value is None else str(value) for value in column]
        put_score(frame, PREFIX + name, to_array(column, dtype))
    return frame


def put_score(frame: pd.DataFrame, name: str, array: Any) -> None:  # noqa: ANN401 - as below
    """Replace a score, or insert it after the answer and the scores that are there."""
    names = list(map(str, frame.columns))
    if name not in names and "answer" in names:
        first = names.index("answer") + 1
        n_scores = len([*takewhile(lambda x: x.startswith(PREFIX), names[first:])])
        frame.insert(first + n_scores, name, array)
    else:
        put(frame, name, array, before="repeat")


def put(
    frame: pd.DataFrame,
    name: str,
    array: Any,  # noqa: ANN401 - the stubs of pandas take no array to insert
    *,
    before: str = "prompt",
) -> None:
    """Replace a column, or insert it before another one, or else at the end."""
    if name in frame.columns or before not in frame.columns:
        frame[name] = array
    else:
        frame.insert(list(frame.columns).index(before), name, array)


def assemble_frame(batches: Iterable[Batch], columns: Sequence[Column]) -> pd.DataFrame:
    """Return the frame of batches; each batch is read once."""
    values: list[list[Scalar]] = [[] for _ in columns]
    pieces: list[list[ExtensionArray]] = [[] for _ in columns]
    n_rows = n_converted = 0

    def convert() -> None:
        for column, of_column, arrays in zip(columns, values, pieces, strict=True):
            arrays.append(to_array(of_column, column.dtype))
            of_column.clear()

    with _collector_paused():
        for batch in batches:
            n_rows += len(batch.rows)
            for column, of_column in zip(columns, values, strict=True):
                of_column.extend(column.read(batch))
            if n_rows - n_converted >= _ARRAY_ROWS:
                convert()
                n_converted = n_rows
            del batch  # frees its memory before the next one is read
        convert()
    arrays = {
        column.name: _concatenate(pieces_of_column)
        for column, pieces_of_column in zip(columns, pieces, strict=True)
    }
    return pd.DataFrame(arrays, index=pd.RangeIndex(n_rows), copy=False)


_ARRAY_ROWS = 8192  # values are Python objects until so many are converted at once


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _replies_with_added_columns(
    batches: Iterable[Batch], columns: Sequence[Column], answer_types: list[str | None]
) -> pd.DataFrame:
    """Return a frame of replies with the columns that its rows add.

    Template columns come first. The types of answers are added to `answer_types`.
    """
    templates: list[dict[str, Any]] = []
    extras: list[dict[str, Any]] = []
    trials: list[int] = []
    turns: list[int] = []

    def collected() -> Iterator[Batch]:
        # the dtypes of added columns depend on all rows, so these come last
        for batch in batches:
            templates.extend(_share_empty(batch.part("origin.columns")))
            extras.extend(_share_empty(batch.part("request.extra")))
            trials.extend(trial := batch.parts.get("trial", ()))
            turns.extend(batch.parts.get("turn", trial))
            answer_types.extend(batch.part("origin.answer"))
            yield batch
            del batch

    frame = assemble_frame(collected(), columns)
    order = _plan_order(trials, turns)
    if len(order) < len(trials) or (order[1:] < order[:-1]).any():
        frame = frame.take(order).reset_index(drop=True)
        templates = [templates[position] for position in order.tolist()]
        extras = [extras[position] for position in order.tolist()]
    names = [column.name for column in columns]
    # after the last parameter, which is `user`
    after = names[names.index("user") + 1]
    added = Batch(extras, {"request.extra": extras})
    for column in extra_columns(extras):
        array = to_array(column.read(added), column.dtype)
        put(frame, column.name, array, before=after)
    if not any(templates):
        return frame
    columns_in_front = template_columns(templates, names)
    first = assemble_frame(
        [Batch(templates, {"origin.columns": templates})], columns_in_front
    )
    return pd.concat([first, frame], axis="columns")


def _plan_order(trials: list[int], turns: list[int]) -> "np.ndarray":
    """Return the order of rows by trial, with only the last turn of each trial."""
    if not trials:
        return np.array([], dtype="int64")
    trial, turn = np.array(trials), np.array(turns)
    last = np.empty(trial.max() + 1, dtype="int64")
    last[trial] = turn  # if a trial occurs again, the later turn stays
    last_turns = np.flatnonzero(last[trial] == turn)
    return last_turns.take(np.argsort(trial[last_turns], kind="stable"))


def _share_empty(dicts: Sequence[Any]) -> Sequence[Any]:
    """Return dicts; all empty ones are the same, since a million would take 60 MB."""
    if not any(dicts):
        return [_EMPTY] * len(dicts)
    return [row or _EMPTY for row in dicts]


_EMPTY: dict[str, Any] = {}
with suppress(ImportError):  # an extra
    arrow = import_module("pyarrow")


def _concatenate(arrays: Sequence[ExtensionArray]) -> ExtensionArray:
    if len(arrays) == 1:
        return arrays[0]
    kind: Any = type(arrays[0])  # the stubs lack the method
    whole: ExtensionArray = kind._concat_same_type(arrays)  # noqa: SLF001 - pandas' interface of arrays
    return whole

"""Converts frames of Polars, Arrow and other libraries to pandas, and back.

Any object with Arrow's PyCapsule interface (`__arrow_c_stream__`) is a frame. pyarrow
reads it, so no other library of frames is needed or imported here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from svc_notebook.errors import ParameterError, import_extra

if TYPE_CHECKING:  # pandas must not load with the package
    import pandas as pd

_NEEDED_FOR = "Frames of Polars and Arrow need"
_STREAMS = ("__arrow_c_stream__", "__arrow_c_array__")


def to_pandas(frame: Any) -> Any:  # noqa: ANN401 - of any library
    """Convert a frame or a series to pandas; other values are returned unchanged.

    The dtypes follow from the types, not from the values: numbers, flags and texts get
    pandas' dtypes with missing values (`Int64`, `boolean`, `string`); NaN is missing.
    Dictionaries and enums are categories. Dates, times, decimals, lists and structs
    keep the type that Arrow has for them. A frame of pandas is not changed or copied.
    """
    if not is_interchangeable(frame):
        _refuse_query(frame)
        return frame
    arrow = _arrow()
    try:
        table, name = arrow.table(frame), ""
    except (TypeError, ValueError):  # it is a column; Arrow's errors derive from these
        name = getattr(frame, "name", None) or "0"
        table = arrow.table({name: arrow.chunked_array(frame)})
    plain = [_plain_column(column) for column in table.columns]
    columns = dict(enumerate(map(_to_series, plain)))
    if name:
        return columns[0].rename(None if name == "0" else name)
    return _pandas().DataFrame(columns).set_axis(table.column_names, axis="columns")


def is_interchangeable(value: object) -> bool:
    """Return whether a value is a frame or a column of another library than pandas."""
    if hasattr(value, "iloc") or isinstance(value, type):
        return False
    return any(hasattr(value, name) for name in _STREAMS)


def _refuse_query(value: object) -> None:
    """Refuse a query that was not run, such as Polars' LazyFrame."""
    if hasattr(type(value), "collect") and not hasattr(value, "iloc"):
        raise ParameterError(
            f"A {type(value).__name__} is a query without rows, but a DataFrame is "
            "needed. Call .collect() first.",
            param="frame",
        )


def _arrow() -> Any:  # noqa: ANN401 - a module
    return import_extra("pyarrow", _NEEDED_FOR)


def _pandas() -> Any:  # noqa: ANN401 - a module
    import pandas  # noqa: ICN001, PLC0415 - loads at the first frame

    return pandas


def _plain_column(column: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a column with a type that pandas can read, and with nulls for NaN."""
    arrow, compute = _arrow(), import_extra("pyarrow.compute", _NEEDED_FOR)
    plain_type = _plain_type(column.type)
    if plain_type != column.type:
        column = column.cast(plain_type)
    if arrow.types.is_dictionary(
        plain_type
    ):  # its chunks may have different dictionaries
        return column.unify_dictionaries()
    if arrow.types.is_floating(plain_type):
        missing = arrow.scalar(None, plain_type)
        column = compute.if_else(compute.is_nan(column), missing, column)
    return column


def _plain_type(kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a type without views, which pandas does not know, also in nested types."""
    arrow = _arrow()
    if arrow.types.is_dictionary(kind):
        value_type = _plain_type(kind.value_type)
        # older versions of pyarrow cannot convert unsigned indices to pandas
        return arrow.dictionary(arrow.int64(), value_type, kind.ordered)
    if arrow.types.is_nested(kind):
        return _plain_nested(kind)
    texts = dict.fromkeys(("string_view", "null"), arrow.large_string())
    others = {"binary_view": arrow.large_binary(), "halffloat": arrow.float32()}
    return {**texts, **others}.get(str(kind), kind)


def _plain_nested(kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    arrow, types = _arrow(), _arrow().types
    if types.is_struct(kind):
        return arrow.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return arrow.map_(_plain_type(kind.key_type), _plain_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return arrow.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_union(kind):
        return kind
    list_of = arrow.large_list if str(kind).startswith("large") else arrow.list_
    return list_of(_plain_field(kind.value_field))


def _plain_field(field: Any) -> Any:  # noqa: ANN401 - pyarrow's
    return field.with_type(_plain_type(field.type))


def _to_series(column: Any) -> Any:  # noqa: ANN401 - of pyarrow, and of pandas
    """Convert a column to a series whose dtype follows from the column's type."""
    kind, types, pd = column.type, _arrow().types, _pandas()
    if types.is_integer(kind) or types.is_floating(kind):
        names = {"halffloat": "Float32", "float": "Float32", "double": "Float64"}
        name = names.get(str(kind)) or str(kind).replace("int", "Int")
        dtype = pd.api.types.pandas_dtype(name.replace("uI", "UI"))
    elif types.is_boolean(kind):
        dtype = pd.BooleanDtype()
    elif types.is_string(kind) or types.is_large_string(kind):
        dtype = pd.StringDtype()
    elif types.is_dictionary(kind) or str(kind).startswith(("timestamp", "duration")):
        return column.to_pandas()
    else:
        dtype = pd.ArrowDtype(kind)
    return column.to_pandas(types_mapper=lambda _: dtype)


def to_arrow(frame: Any) -> Any:  # noqa: ANN401 - a table of pyarrow
    """Convert a frame to a table of Arrow: see `svc.to_arrow`."""
    flat = _flat_frame(frame)
    columns = (flat.iloc[:, position] for position in range(flat.shape[1]))
    names = [str(name) for name in flat.columns]
    return _arrow().table([_to_array(column) for column in columns], names=names)


def to_polars(frame: Any) -> Any:  # noqa: ANN401 - a DataFrame of Polars
    """Convert a frame to a DataFrame of Polars: see `svc.to_polars`."""
    polars = import_extra("polars", "to_polars needs")
    table = to_arrow(frame)
    polars_frame = polars.from_arrow(table)
    if not isinstance(polars_frame, polars.DataFrame):  # a Series, of one column
        polars_frame = polars_frame.to_frame()
    enums = {
        field.name: polars.Enum(_categories(table.column(field.name)))
        for field in table.schema
        if _arrow().types.is_dictionary(field.type) and field.type.ordered
        if _arrow().types.is_large_string(field.type.value_type)
    }
    return polars_frame.cast(enums)


def _categories(column: Any) -> Sequence[str]:  # noqa: ANN401 - pyarrow's
    return [] if not column.num_chunks else column.chunk(0).dictionary.to_pylist()


def replies_of(frame: Any) -> Any:  # noqa: ANN401 - a frame of any library, or a run
    """Return the replies of a run; anything else as it is."""
    return frame.replies_df() if hasattr(frame, "replies_df") else frame


def _flat_frame(frame: Any) -> Any:  # noqa: ANN401 - a frame of any library
    """Return a DataFrame of pandas whose index, if it has one, is in its columns."""
    frame = to_pandas(replies_of(frame))
    if not isinstance(frame, _pandas().DataFrame):
        raise ParameterError(
            "frame must be a DataFrame such as run.replies_df(), or a run; got a value "
            f"of type {type(frame).__name__}.",
            param="frame",
        )
    flat = with_index(frame)
    check_names(flat)
    return flat


def _to_array(column: Any) -> Any:  # noqa: ANN401 - of pandas, and of pyarrow
    """Convert a column to an array of Arrow, as in a Parquet file.

    Lists and dicts stay nested if Arrow keeps them unchanged; else they are JSON text.
    """
    arrow = _arrow()
    try:
        array = arrow.array(column, from_pandas=True)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        array = None
    if column.dtype == object and (array is None or _is_changed(column, array)):
        texts = as_json(column)
        array = array if texts is None else arrow.array(texts, arrow.large_string())
    if array is None:
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise ParameterError(
            f"Column {str(column.name)!r} holds {', '.join(kinds)}, but all values of "
            "a column must have one type in Arrow. Make it text with "
            f"frame[{column.name!r}].map(str).",
            param="frame",
        )
    return array.cast(_large_type(array.type))


def _is_changed(column: Any, array: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether Arrow changed lists or dicts: it gives all dicts the same keys."""
    if not _arrow().types.is_nested(array.type):
        return False
    return bool(array.to_pylist() != list(column.where(column.notna(), None)))


def _large_type(kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a type with the large type of texts, whichever type pandas chose."""
    arrow, types = _arrow(), _arrow().types
    if types.is_string(kind):
        return arrow.large_string()
    if types.is_dictionary(kind) and (
        types.is_string(kind.value_type) or types.is_null(kind.value_type)
    ):
        return arrow.dictionary(kind.index_type, arrow.large_string(), kind.ordered)
    return kind


def check_names(frame: "pd.DataFrame") -> None:
    """Refuse two columns with the same name."""
    names = [str(name) for name in frame.columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ParameterError(
            f"Two columns of the frame are called {twice[0]!r}. Rename one of them, "
            "or the index.",
            param="frame",
        )


def with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame with its index as first columns; a plain count is left out.

    Names of columns become text, because some kinds of column index cannot take others.
    """
    index = frame.index
    if index.names == [None] and index.equals(_pandas().RangeIndex(len(frame))):
        return frame
    names = [str(name) for name in frame.columns]
    return frame.set_axis(names, axis="columns").reset_index(allow_duplicates=True)


def as_json(column: "pd.Series") -> "pd.Series | None":
    """Return a column as JSON texts; None if none is nested, or JSON changes one."""
    values = list(column.where(column.notna(), None))
    if not any(isinstance(value, (list, dict)) for value in values):
        return None
    try:
        texts = [
            None if value is None else msgspec.json.encode(value).decode()
            for value in values
        ]
        is_same = [from_json(text) for text in texts] == values
    except (TypeError, ValueError, RecursionError):
        return None
    return (
        _pandas().Series(texts, index=column.index, dtype="string") if is_same else None
    )


def from_json(text: Any) -> Any:  # noqa: ANN401 - what JSON holds
    """Return the value of a JSON text; None for anything that is not a text."""
    return msgspec.json.decode(text) if isinstance(text, str) else None

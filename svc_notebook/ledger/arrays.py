"""Values of one column as an array of its stated dtype.

Loads pandas. Rules: the dtype is stated, never inferred; what a column cannot hold
is mended or left out, since a service may say anything; the usual cases take the
short way, and the result is the same either way.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from .columns import Dtype, Scalar, to_instant


def found_arrow() -> Any:  # noqa: ANN401 - a package without types
    """Return pyarrow, in which pandas keeps texts where it is installed."""
    try:
        return import_module("pyarrow")
    except ImportError:  # an extra
        return None


arrow = found_arrow()

_INT64 = np.iinfo("int64")
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999
_EXACT_S = 4e9  # up to the year 2096 a float of seconds holds every microsecond


def to_array(values: Sequence[Scalar], dtype: Dtype) -> ExtensionArray:
    """Return the values as an array; None is a missing value.

    Instants may also be whole seconds since 1970; those of no calendar are missing.
    """
    given = values if isinstance(values, list) else list(values)
    if given and given[0] is None and given.count(None) == len(given):
        return _missing(len(given), dtype)
    return _MAKERS[dtype](given)


def joined(arrays: Sequence[ExtensionArray]) -> ExtensionArray:
    """Return arrays of one dtype, one after another."""
    if len(arrays) == 1:
        return arrays[0]
    kind: Any = type(arrays[0])  # the stubs leave out what follows
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
    if (numbers := _plain(values)).dtype == _INT64.dtype:
        return pd.arrays.IntegerArray(numbers, np.zeros(len(numbers), dtype=bool))
    return pd.array([x if _fits(x) else None for x in values], dtype="Int64")


def _plain(values: list[Any]) -> "np.ndarray":
    """Return the values as numpy takes them, fast where all are the same."""
    first = values[0] if values else None
    if isinstance(first, (int, float)) and _is_constant(values):
        return np.full(len(values), first)
    return np.array(values)


def _is_constant(values: list[Any]) -> bool:
    """Say whether many values are one, as those of a request's numbers often are."""
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


def _to_arrow(values: list[Any]) -> Any:  # noqa: ANN401 - as `arrow`
    try:
        return arrow.array(values, arrow.large_string())
    except UnicodeEncodeError:
        return arrow.array(_whole(values), arrow.large_string())


def _whole(values: list[Any]) -> list[Any]:
    """Return texts that UTF-8 can hold; half of a surrogate pair is mended."""
    return [x and x.encode("utf-8", "replace").decode() for x in values]


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
}

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

from .columns import Dtype, Scalar


def found_arrow() -> Any:  # noqa: ANN401 - a package without types
    """Return pyarrow, in which pandas keeps texts where it is installed."""
    try:
        return import_module("pyarrow")
    except ImportError:  # an extra
        return None


arrow = found_arrow()

_INT64 = np.iinfo("int64")
_EXACT_S = 4e9  # up to the year 2096 a float of seconds holds every microsecond


def to_array(values: Sequence[Scalar], dtype: Dtype) -> ExtensionArray:
    """Return the values as an array; None is a missing value."""
    given = list(values)
    n_missing = given.count(None)
    if given and n_missing == len(given):
        return _missing(len(given), dtype)
    return _MAKERS[dtype](given, n_missing)


def _missing(n: int, dtype: Dtype) -> ExtensionArray:
    stated: Any = dtype  # the stubs know each name alone, not their union
    nothing: Any = pd.NaT if dtype.startswith("datetime") else pd.NA
    array: ExtensionArray = pd.Series(nothing, index=range(n), dtype=stated).array
    return array


def _floats(values: list[Any], _: int) -> ExtensionArray:
    numbers = np.array(values, dtype="float64")
    return pd.arrays.FloatingArray(numbers, np.isnan(numbers))


def _integers(values: list[Any], n_missing: int) -> ExtensionArray:
    if not n_missing and (numbers := np.array(values)).dtype == _INT64.dtype:
        return pd.arrays.IntegerArray(numbers, np.zeros(len(numbers), dtype=bool))
    return pd.array([x if _fits(x) else None for x in values], dtype="Int64")


def _fits(value: object) -> bool:
    return isinstance(value, int) and _INT64.min <= value <= _INT64.max


def _flags(values: list[Any], n_missing: int) -> ExtensionArray:
    if n_missing:
        return pd.array(values, dtype="boolean")
    flags = np.array(values, dtype=bool)
    return pd.arrays.BooleanArray(flags, np.zeros(len(flags), dtype=bool))


def _texts(values: list[Any], n_missing: int) -> ExtensionArray:
    texts = [x for x in values if x is not None] if n_missing else values
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        values = [x and x.encode("utf-8", "replace").decode() for x in values]
    if arrow is None:
        return pd.array(values, dtype="string")
    return pd.arrays.ArrowStringArray(arrow.array(values, arrow.large_string()))


def _instants(values: list[Any], n_missing: int) -> ExtensionArray:
    if not n_missing:
        seconds = np.fromiter(map(datetime.timestamp, values), "float64", len(values))
        if len(values) and np.abs(seconds).max() < _EXACT_S:
            instants = np.rint(seconds * 1e6).astype("datetime64[us]")
            array: ExtensionArray = pd.Series(instants).dt.tz_localize("UTC").array
            return array
    return pd.array(values, dtype="datetime64[us, UTC]")


_MAKERS: dict[Dtype, Callable[[list[Any], int], ExtensionArray]] = {
    "string": _texts,
    "Int64": _integers,
    "Float64": _floats,
    "boolean": _flags,
    "datetime64[us, UTC]": _instants,
}

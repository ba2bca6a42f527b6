"""Columns: what a frame is made of, as values.

What it is not: it makes no frame and loads no pandas (see `frames`). Rules: a
column states its dtype, nothing is inferred from what it holds; its name is the
one used everywhere, units included; renaming one breaks its users.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from svc_notebook.errors import ParameterError

Row = TypeVar("Row")
Found = TypeVar("Found")
Row_contra = TypeVar("Row_contra", contravariant=True)
Scalar = str | int | float | bool | datetime | None
Dtype = Literal["string", "Int64", "Float64", "boolean", "datetime64[us, UTC]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row_contra]):
    """One column of a frame.

    Attributes:
        name: In the frame, units included.
        dtype: Of the frame's column, also when it is empty.
        unit: s, tokens, UTC or None.
        read: Takes the value out of a row; None is a missing value.
        doc: What it means.
        read_all: The same for many rows at once, where that is faster; instants may
            also be whole seconds since 1970, which `to_instant` understands.
    """

    name: str
    dtype: Dtype
    unit: str | None = None
    read: Callable[[Row_contra], Scalar]
    doc: str
    read_all: Callable[["Batch"], list[Scalar]] | None = None


class Batch:
    """Some rows, and the parts of them that many columns read, taken out once.

    Args:
        rows: Of one frame.
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        self.n_rows = len(rows)
        self._rows = rows
        self._once: dict[str, Any] = {}

    @property
    def rows(self) -> Sequence[Any]:
        """The rows, one by one."""
        return self._rows

    def values(self, column: Column[Any]) -> list[Scalar]:
        """Return what the rows hold in a column, one value a row."""
        if column.read_all is not None:
            return column.read_all(self)
        return list(map(column.read, self.rows))

    def part(self, name: str) -> list[Any]:
        """Return a part of each row; None where it, or what it is part of, is missing.

        Args:
            name: An attribute of a row, or with dots one of a part.
        """
        return self.once(name, lambda: self._part(name))

    def of_part(self, name: str, read: Callable[[Any], Scalar]) -> list[Scalar]:
        """Read a part of each row; where the part is missing, so is the value.

        Args:
            name: As for `part`.
            read: Takes the value out of the part.
        """
        return _each(self.part(name), read, self._n_none(name))

    def once(self, name: str, make: Callable[[], Found]) -> Found:
        """Return what several columns read, made for the first of them.

        Args:
            name: Of what is made.
            make: Makes it.
        """
        if name not in self._once:
            self._once[name] = make()
        found: Found = self._once[name]
        return found

    def _part(self, name: str) -> list[Any]:
        whole, _, last = name.rpartition(".")
        if not whole:
            return list(map(attrgetter(last), self.rows))
        return _each(self.part(whole), attrgetter(last), self._n_none(whole))

    def _n_none(self, name: str) -> int:
        return self.once(f"missing {name}", lambda: self.part(name).count(None))


def _each(
    parts: Sequence[Any], read: Callable[[Any], Any], n_missing: int
) -> list[Any]:
    if not n_missing:
        return list(map(read, parts))
    if n_missing == len(parts):
        return [None] * n_missing
    return [None if part is None else read(part) for part in parts]


def to_instant(seconds: int | None) -> datetime | None:
    """Return the instant of a Unix time; None for one outside the calendar."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def pick(
    columns: Sequence[Column[Row]], names: str | Iterable[str]
) -> tuple[Column[Row], ...]:
    """Return the columns of these names, in the order of the names.

    Args:
        columns: To pick from.
        names: One name or several.

    Raises:
        ParameterError: A name is unknown (with the nearest one).
    """
    given: Any = names  # None and numbers come too
    wanted = list(given) if isinstance(given, Iterable) else [given]
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(wanted))
    known = {column.name: column for column in columns}
    for name in wanted:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ParameterError(
                f"{name!r} is not a column of replies; {hint}The columns are "
                f"{', '.join(known)}.",
                param="by",
            )
    return tuple(known[name] for name in wanted)


def template_columns(
    found: Iterable[dict[str, Any]],
    read: Callable[[Row], dict[str, Any]],
    taken: Iterable[str],
) -> tuple[Column[Row], ...]:
    """Return a column for each template column, in the order they first come.

    Args:
        found: The template columns of each row.
        read: Takes them out of a row.
        taken: Names of the other columns; a clash gets `var_` in front.
    """
    values: dict[str, list[Any]] = {}
    for each in found:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    names = {*taken, *values}
    columns = []
    for name, seen in values.items():
        shown = name
        while shown in taken or (shown != name and shown in names):
            shown = "var_" + shown
        names.add(shown)
        columns.append(_template_column(name, shown, seen, read))
    return tuple(columns)


def _template_column(
    name: str, shown: str, seen: Sequence[object], read: Callable[[Row], dict[str, Any]]
) -> Column[Row]:
    dtype = dtype_of(seen)

    def value_of(row: Row) -> Scalar:
        value = read(row).get(name)
        is_plain = isinstance(value, (str, int, float, bool, datetime))
        if value is None or (is_plain and dtype != "string"):
            return value
        return value if isinstance(value, str) else str(value)

    return Column(
        name=shown,
        dtype=dtype,
        read=value_of,
        doc=f"template column {name!r}, as in the source",
    )


def dtype_of(values: Iterable[object]) -> Dtype:
    """Return the one dtype that holds all of these values unchanged.

    Booleans, integers, numbers and aware instants have their own; anything else,
    and any mixture, is text.
    """
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"Int64", "Float64"}:
        return "Float64"
    return kinds.pop() if len(kinds) == 1 else "string"


def _kind(value: object) -> Dtype:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "Int64"
    if isinstance(value, float):
        return "Float64"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return "datetime64[us, UTC]"
    return "string"


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

"""Columns: what a frame is made of, as values.

What it is not: it makes no frame and loads no pandas (see `frames`). Rules: a
column states its dtype, nothing is inferred from what it holds; its name is the
one used everywhere, units included; renaming one breaks its users.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

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

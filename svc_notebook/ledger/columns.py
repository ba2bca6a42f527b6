"""Columns of frames, and the batches of rows they are read from, without pandas."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import astuple

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean

Scalar = str | int | float | bool | datetime | None
Dtype = Literal[
    "string", "Int64", "Float64", "boolean", "datetime64[us, UTC]", "object"
]

AnyRow = TypeVar("AnyRow")
CHUNK_ROWS = 256  # their parts stay in the processor's cache until they are read


def chunks(rows: Iterable[AnyRow], n_rows: int = CHUNK_ROWS) -> Iterator[list[AnyRow]]:
    """Return rows in lists of limited length."""
    source = iter(rows)
    while chunk := list(islice(source, n_rows)):
        yield chunk
        del chunk  # its memory is used again for the next one


class Batch:
    """Some rows of one kind, and the parts of them that columns read, each read once.

    `parts` has those that are already known or not in the rows: one value per row.
    """

    def __init__(
        self, rows: Sequence[Any], parts: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        self.rows = rows
        self.parts: dict[str, Sequence[Any]] = dict(parts or {})
        self._n_missing: dict[str, int] = {}
        self._structs: dict[int, tuple[Any, Mapping[str, Sequence[Any]]]] = {}

    def part(self, path: str) -> Sequence[Any]:
        """Return a part of each row, such as `body.usage`; None where it is missing."""
        if path not in self.parts:
            whole, _, name = path.rpartition(".")
            fields = self._fields(self.part(whole) if whole else self.rows)
            self.parts[path] = (
                fields[name]
                if name in fields
                else self.map_part(whole, attrgetter(name))
                if whole
                else list(map(attrgetter(name), self.rows))
            )
        return self.parts[path]

    def _fields(self, rows: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
        """Return all fields at once of structs of one kind, which is faster."""
        if id(rows) not in self._structs:
            kinds = set(map(type, rows))
            kind = kinds.pop() if len(kinds) == 1 else None
            names = getattr(kind, "__struct_fields__", ())
            values = zip(*map(astuple, rows), strict=True) if names else ()
            self._structs[id(rows)] = rows, dict(zip(names, values, strict=True))
        return self._structs[id(rows)][1]

    def map_part(self, path: str, read: Callable[[Any], Any]) -> list[Any]:
        """Apply a function to a part of each row; None where the part is missing."""
        parts = self.part(path)
        if path not in self._n_missing:
            self._n_missing[path] = parts.count(None)
        if not self._n_missing[path]:
            return list(map(read, parts))
        if self._n_missing[path] == len(parts):
            return [None] * len(parts)
        return [None if part is None else read(part) for part in parts]


ReadColumn = Callable[[Batch], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame; its name includes the unit.

    Its source is a part of a row, such as `exchange.endpoint`, or a function of a
    batch. Instants may be whole seconds since 1970.
    """

    name: str
    dtype: Dtype
    source: str | ReadColumn
    doc: str

    @property
    def unit(self) -> str | None:
        """The unit, from the name or the dtype: tokens, s, UTC or None."""
        if self.name.endswith("_tokens"):
            return "tokens"
        if self.name.endswith("_s"):
            return "s"
        return "UTC" if self.dtype.startswith("datetime") else None

    def read(self, batch: Batch) -> Sequence[Any]:
        """Return the values of a batch, one per row; None is a missing value."""
        source = self.source
        return batch.part(source) if isinstance(source, str) else source(batch)


def as_json(path: str) -> ReadColumn:
    """Return a source that writes a part as JSON text; None where it is empty."""
    return lambda batch: [
        msgspec.json.encode(value).decode() if value else None
        for value in batch.part(path)
    ]


def to_instant(seconds: int | None) -> datetime | None:
    """Return the instant of a Unix time; None if the calendar does not have it."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def pick(
    columns: Sequence[Column], names: str | Iterable[str], *, param: str = "by"
) -> tuple[Column, ...]:
    """Return the columns with these names, each once, in the order of the names."""
    known = {column.name: column for column in columns}
    wanted = as_names(names)
    for name in wanted:
        if name not in known:
            raise ParameterError(
                f"{name!r} is not a column of replies."
                f"{did_you_mean(str(name), known, n=1)} The columns are "
                f"{', '.join(known)}.",
                param=param,
            )
    return tuple(known[name] for name in wanted)


def as_names(names: object) -> list[Any]:
    """Return one name or several as a list, each once, unchecked."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(dict.fromkeys(names))


EXTRA = "extra_"
LATER = ("score_", "answer_", EXTRA)
"""How the names of columns begin that a frame can get later."""


def extra_columns(extras: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return a column for each field of `extra`, in order of first appearance.

    `extras` has the part `request.extra` of each row.
    """
    values = _by_name(extras)
    return tuple(_extra_column(name, dtype_of(seen)) for name, seen in values.items())


def _by_name(dicts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each name, in order of first appearance."""
    rows = list(dicts)
    return {
        name: [row[name] for row in rows if name in row]
        for name in dict.fromkeys(chain.from_iterable(rows))
    }


def _extra_column(name: str, dtype: Dtype) -> Column:
    def read(batch: Batch) -> list[Any]:
        values = [extra.get(name) for extra in batch.part("request.extra")]
        if dtype != "string":
            return values
        return [
            value
            if value is None or isinstance(value, str)
            else msgspec.json.encode(value).decode()
            for value in values
        ]

    doc = f"the field {name!r} of extra, as sent; missing = not sent"
    return Column(f"{EXTRA}{name}", dtype, read, doc)


def template_columns(
    dicts: Iterable[Mapping[str, Any]], taken: Iterable[str]
) -> tuple[Column, ...]:
    """Return a column for each template column, in order of first appearance.

    `dicts` has the part `origin.columns` of each row. `taken` has the names of the
    other columns; `var_` in front avoids a clash, also with scores and with fields of
    answers, which can come later.
    """
    values = _by_name(dicts)
    taken = frozenset(taken)
    names = {*taken, *values}
    columns = []
    for name, seen in values.items():
        shown = name
        while (
            shown in taken
            or shown.startswith(LATER)
            or (shown != name and shown in names)
        ):
            shown = "var_" + shown
        names.add(shown)
        columns.append(_template_column(name, shown, dtype_of(seen)))
    return tuple(columns)


def _template_column(name: str, shown: str, dtype: Dtype) -> Column:
    def read(batch: Batch) -> list[Any]:
        values = [columns.get(name) for columns in batch.part("origin.columns")]
        if dtype != "string":
            return values
        return [None if value is None else str(value) for value in values]

    return Column(shown, dtype, read, f"template column {name!r}, as in the source")


def dtype_of(values: Collection[object]) -> Dtype:
    """Return the dtype that holds all values: text for mixtures and other kinds."""
    if set(map(type, values)) == {str}:
        return "string"  # the usual case, and faster
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

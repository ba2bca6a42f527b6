"""The rows that a sweep goes over: a DataFrame, a Series, or a list.

What it is not: templates (see `filling`). Rules: pure, and pandas is not imported to
recognise its own; values are plain Python ones; rows are told apart by their
position, and named to people by their label.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError

DEFAULT_COLUMN = "text"
_MISSING = frozenset({"NAType", "NaTType"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows, kept by column.

    Attributes:
        columns: Values of each column, by its name, in order.
        labels: What people call each row.
    """

    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, position: int) -> dict[str, Any]:
        """Return one row: value by column."""
        return {name: values[position] for name, values in self.columns.items()}


def source_of(rows: object) -> Source:
    """Read rows.

    Args:
        rows: A DataFrame; a Series, whose name is the column, or `text` if it has
            none; a list of mappings; or a list of texts, which are the column `text`.

    Raises:
        ParameterError: They are none of these, there is none, or two columns have
            one name.
    """
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        return _of_frame(rows)
    if hasattr(rows, "to_list") and hasattr(rows, "name"):
        values = rows.to_list()
        column = DEFAULT_COLUMN if rows.name is None else str(rows.name)
        return _checked({column: values}, _labels_of(rows, len(values)))
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _refused(f"rows is {type(rows).__name__}")
    return _of_list(list(rows))


def is_missing(value: object) -> bool:
    """Say whether a value is None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN


def _of_frame(frame: Any) -> Source:  # noqa: ANN401 - a DataFrame, without pandas
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _refused(f"two columns are called {twice[0]!r}")
    columns = {
        name: frame.iloc[:, position].tolist() for position, name in enumerate(names)
    }
    return _checked(columns, _labels_of(frame, len(frame)))


def _labels_of(rows: Any, n_rows: int) -> Sequence[Any]:  # noqa: ANN401 - as above
    index = getattr(rows, "index", None)
    to_list = getattr(index, "tolist", None)
    return to_list() if callable(to_list) else range(n_rows)


def _of_list(rows: list[Any]) -> Source:
    if all(isinstance(row, str) for row in rows):
        return _checked({DEFAULT_COLUMN: rows}, range(len(rows)))
    wrong = [row for row in rows if not isinstance(row, Mapping)]
    if wrong:
        raise _refused(f"one of the rows is {type(wrong[0]).__name__}")
    names = dict.fromkeys(str(name) for row in rows for name in row)
    plain = [{str(name): value for name, value in row.items()} for row in rows]
    columns = {name: [row.get(name) for row in plain] for name in names}
    return _checked(columns, range(len(rows)))


def _checked(columns: Mapping[str, Sequence[Any]], labels: Sequence[Any]) -> Source:
    if not labels or not columns:
        raise _refused("rows is empty, so there would be nothing to ask")
    return Source(columns=columns, labels=labels)


def _refused(reason: str) -> ParameterError:
    return ParameterError(
        f"{reason}. Give a DataFrame, a Series, a list of mappings or a list of texts.",
        param="rows",
    )

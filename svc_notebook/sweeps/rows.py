"""The rows of a sweep, and prompts with `{{name}}`, which the values of a row fill.

Rows are a DataFrame, a Series, mappings, texts or files. pandas is not imported: its
objects are recognised by their methods, and frames of other libraries are converted to
pandas. Values are converted to plain Python values. A row is identified by its
position; messages name it by its label.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from functools import cached_property
from numbers import Number
from pathlib import PurePath
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from svc_notebook.credentials import refuse_keys
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.service.params import check_text, did_you_mean
from svc_notebook.template import fill, names_in, unclosed_names, wrong_marks

from .row_files import (
    FileColumn,
    RowFiles,
    is_path_of_csv,
    is_path_of_files,
    read_csv,
    refuse_paths,
)

_NO_IDENTIFIER = (
    "A prompt uses a column by a name that is an identifier; rename the columns, for "
    "example with {called}.rename(columns=...)."
)


def columns_in(prompt: object) -> tuple[str, ...]:
    """Return the columns that a prompt uses: a text, messages, or None."""
    names = (name for text in _texts(prompt) for name in names_in(text))
    return tuple(dict.fromkeys(names))


def _texts(prompt: object) -> Iterator[str]:
    texts = [prompt] if isinstance(prompt, str) else map(_content, _messages(prompt))
    return (text for text in texts if isinstance(text, str))


def size_and_end(prompt: object) -> tuple[int, str]:
    """Return how many messages a prompt has, and the newest text of the user."""
    if isinstance(prompt, str):
        return 1, prompt
    messages = _messages(prompt)
    of_user = [message for message in messages if _field(message, "role") == "user"]
    return len(messages), str(_content(of_user[-1])) if of_user else ""


def fill_prompt(prompt: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - text or messages
    """Return a prompt with each `{{name}}` replaced by its value."""
    if isinstance(prompt, str):
        return fill(prompt, lambda name: to_text(values[name]))
    if prompt is None:
        return None
    return [_filled_message(message, values) for message in _messages(prompt)]


def to_text(value: object) -> str:
    """Return a value of a row as a text for a prompt."""
    # for a member of `class Label(str, Enum)`, str() would return 'Label.NAME'
    return value if isinstance(value, str) else str(value)


def check_columns(
    prompts: Iterable[object], columns: Iterable[str], *, called: str
) -> None:
    """Refuse prompts and systems with a `{{name}}` that is not a column."""
    known = list(columns)
    for prompt in prompts:
        for text in _texts(prompt):
            for mark in wrong_marks(text):
                raise _not_a_mark(mark, known, called)
            for name in set(unclosed_names(text)) & {*known}:
                raise _not_closed(name, called)
        for name in columns_in(prompt):
            if name not in known:
                raise _unknown_column(name, known, called)


def _messages(prompt: object) -> Sequence[Any]:
    if isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes)):
        return prompt
    return ()


def _content(message: object) -> object:
    return _field(message, "content")


def _field(message: object, name: str) -> object:
    if isinstance(message, Mapping):
        return message.get(name)
    return getattr(message, name, None)


def _filled_message(message: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - both kinds
    content = _content(message)
    if not isinstance(content, str):
        return message
    text = fill_prompt(content, values)
    if isinstance(message, Mapping):
        return {**message, "content": text}
    return replace(message, content=text)


def _not_a_mark(mark: str, known: Sequence[str], called: str) -> ParameterError:
    inner = mark[2:-2].strip()
    hint = "Put what you compute into a column first."
    if inner.isidentifier():
        hint = f"Did you mean {{{{{inner}}}}}?"
    elif inner in known:
        hint = _NO_IDENTIFIER.format(called=called)
    return ParameterError(
        f"{mark} is not a column: between the braces there may only be its name, "
        f"without spaces. {hint} {_plain_text_hint(mark, called)}",
        param="prompt",
    )


def _not_closed(name: str, called: str) -> ParameterError:
    return ParameterError(
        f"{{{{{name} is not closed. Write {{{{{name}}}}} where the column goes. "
        f"{_plain_text_hint(f'{{{{{name}', called)}",
        param="prompt",
    )


def _unknown_column(name: str, known: Sequence[str], called: str) -> ParameterError:
    problem = "means a column, but no rows were given."
    if known:
        are = "the column is" if len(known) == 1 else "the columns are"
        problem = f"is not a column; {are} {', '.join(known)}."
        if not any(map(str.isidentifier, known)):
            problem += f" {_NO_IDENTIFIER.format(called=called)}"
    mark = f"{{{{{name}}}}}"
    hint = did_you_mean(name, known)
    return ParameterError(
        f"{mark} {problem}{hint} {_plain_text_hint(mark, called)}", param="prompt"
    )


def _plain_text_hint(mark: str, called: str) -> str:
    raw = ", or use raw=True" if called == "rows" else ""
    return f"For the plain text write \\{mark}{raw}. Nothing was sent."


DEFAULT_COLUMN = "text"
ROW = "row"
"""The column of a frame with the position of the row, from 0."""
_MISSING = frozenset({"NAType", "NaTType"})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a sweep, stored by column.

    Attributes:
        columns: The values of each column, by name, in order.
        labels: The label of each row, for messages.
        index: The values of each index level, by name; empty for a plain count.
        frame: The DataFrame that the rows came in, if any; it is never written to.
        called: The name of the rows in messages: `df` or `series` for `df.svc`.
        duplicates: The names that two columns had; no prompt may use them.
        files: The files that the rows are read from, a block at a time; None if the
            rows are in memory.
        csv: The name of the CSV file that the rows came from; "" if none.
    """

    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any]
    index: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    frame: Any = None
    called: str = "rows"
    duplicates: frozenset[str] = frozenset()
    files: RowFiles | None = None
    csv: str = ""

    def __post_init__(self) -> None:
        called = self.called
        for name in self.columns:
            check_text(name, param=called, name=f"The name {name!r} in {called}")

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, position: int) -> dict[str, Any]:
        """Return the values of one row, by column."""
        return {name: values[position] for name, values in self.columns.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column of a DataFrame; none for other rows."""
        dtypes = () if self.frame is None else self.frame.dtypes
        return dict(zip(self.columns, map(str, dtypes), strict=False))

    @property
    def categories(self) -> dict[str, dict[str, Any]]:
        """The categories of each categorical column of a DataFrame."""
        dtypes = () if self.frame is None else self.frame.dtypes
        return {
            name: {
                "values": dtype.categories.tolist(),
                "is_ordered": bool(dtype.ordered),
            }
            for name, dtype in zip(self.columns, dtypes, strict=False)
            if hasattr(dtype, "categories")
        }

    def joined(self, position: int) -> dict[str, Any]:
        """Return one row as in a frame of replies: its position, index and values."""
        if self.files is not None:
            row = {name: values[position] for name, values in self.shown.items()}
            return {ROW: position, **without_missing(row)}
        known = self._shown_without_missing.items()
        return {ROW: position, **{name: values[position] for name, values in known}}

    @cached_property
    def _shown_without_missing(self) -> dict[str, Sequence[Any]]:
        """The index and the columns, with None for missing values."""
        return {
            name: [None if is_missing(value) else value for value in values]
            for name, values in self.shown.items()
        }

    @cached_property
    def shown(self) -> dict[str, Sequence[Any]]:
        """The index and the columns, renamed where needed so that all names differ."""
        index = {
            _free_name(name, (ROW, *self.columns)): values
            for name, values in self.index.items()
        }
        own = {
            _free_name(name, (ROW,)): values for name, values in self.columns.items()
        }
        return {**index, **own}

    def frame_of(self, rows: Sequence[int]) -> tuple[Any, Sequence[int]]:
        """Return a DataFrame that has these rows, if any, and their positions in it."""
        if self.files is not None:
            return self.files.frame(rows), range(len(rows))
        return self.frame, rows

    def repeated(self, columns: tuple[str, ...]) -> Mapping[int, int]:
        """Return how many earlier rows have the same texts, for rows where any have."""
        if columns not in self._repeated_by_columns:
            self._repeated_by_columns[columns] = self._count_repeated(columns)
        return self._repeated_by_columns[columns]

    @cached_property
    def _repeated_by_columns(self) -> dict[tuple[str, ...], Mapping[int, int]]:
        return {}

    def _count_repeated(self, columns: Sequence[str]) -> Mapping[int, int]:
        values = [self.columns[name] for name in columns if name in self.columns]
        if not values:  # the prompt uses no column, so all rows are the same
            return {row: row for row in range(1, len(self))}
        n_seen, repeated = Counter[int](), dict[int, int]()
        for row, cells in enumerate(zip(*values, strict=True)):
            # Hashes instead of texts, so that a million rows are not in memory twice.
            # Two of a million rows have the same hash in one of 30 million cases.
            texts_hash = hash(tuple(map(str, cells)))
            if n_before := n_seen[texts_hash]:
                repeated[row] = n_before
            n_seen[texts_hash] = n_before + 1
        return repeated


def without_missing(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for missing values."""
    return {name: None if is_missing(value) else value for name, value in row.items()}


def read_rows(rows: object, *, called: str = "rows") -> Rows:
    """Read a DataFrame or a Series, a list of mappings or texts, or files.

    Texts become the column `text`, and so does a Series whose name a prompt cannot use.
    `called` is the name of the argument, for messages.
    """
    if isinstance(rows, Rows):
        return rows
    if called == "rows" and is_path_of_csv(rows):
        path = str(rows)
        frame = _of_frame(read_csv(path), called)
        return dataclasses.replace(frame, csv=PurePath(path).name)
    rows = to_pandas(rows)
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        return _of_frame(rows, called)
    if hasattr(rows, "to_list") and hasattr(rows, "to_frame") and hasattr(rows, "name"):
        is_usable = isinstance(rows.name, str) and rows.name.isidentifier()
        name = rows.name if is_usable else DEFAULT_COLUMN
        return _of_frame(rows.to_frame(name), called)
    if called == "rows" and is_path_of_files(rows):
        rows = RowFiles(str(rows))
    if isinstance(rows, RowFiles):
        return _of_files(rows, called)
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _unusable_rows(f"{called} is {type(rows).__name__}", called)
    return _of_list(list(rows), called)


def _is_before_pandas_3() -> bool:
    import pandas as pd  # noqa: PLC0415 - only where rows are a DataFrame

    return int(pd.__version__.partition(".")[0]) < 3  # noqa: PLR2004 - a version


def typed(
    rows: Sequence[Mapping[str, Any]],
    dtypes: Mapping[str, Any],
    index: Mapping[str, Sequence[Any]],
    categories: Mapping[str, Mapping[str, Any]],
) -> object:
    """Return rows as a DataFrame with these dtypes, as far as the values allow it."""
    import pandas as pd  # noqa: PLC0415 - only where rows were a DataFrame

    frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in dtypes})
    if index:
        levels = [pd.Index(values, name=name) for name, values in index.items()]
        frame.index = pd.MultiIndex.from_arrays(levels) if levels[1:] else levels[0]
    for name, dtype in dtypes.items():
        # pandas cannot read some Arrow types by their names
        with suppress(TypeError, ValueError, NotImplementedError):
            own_dtype = dtype
            if known := categories.get(name):
                own_dtype = pd.CategoricalDtype(known["values"], known["is_ordered"])
            frame[name] = frame[name].astype(own_dtype)
    return frame


_TEXTUAL = (str, Number, date, time, timedelta, UUID, PurePath)
_TEXTUAL_NAMES = frozenset(
    {"Period", "Interval", "bool", "bool_", "datetime64", "timedelta64"}
)


def is_text(value: object) -> bool:
    """Return whether a value can fill a prompt: a text, number, date, id or path."""
    return isinstance(value, _TEXTUAL) or type(value).__name__ in _TEXTUAL_NAMES


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN


def _of_frame(frame: Any, called: str) -> Rows:  # noqa: ANN401 - a DataFrame, without pandas
    frame_names = [str(name) for name in frame.columns]
    names: list[str] = []
    for name in frame_names:
        names.append(_free_name(name, names))
    duplicates = frozenset(name for name in frame_names if frame_names.count(name) > 1)
    if duplicates and called == "conditions":
        raise _duplicate_column(min(duplicates), called)
    if len(frame) and not names:
        raise _unusable_rows(f"{called} has no columns", called)
    # From pandas 3 on, a shallow copy does not change when the user changes the frame.
    return Rows(
        columns={
            name: frame.iloc[:, position].tolist()
            for position, name in enumerate(names)
        },
        labels=frame.index.tolist(),
        index=_index_of(frame.index),
        frame=frame.copy(deep=_is_before_pandas_3()),
        called=called,
        duplicates=duplicates,
    )


def _of_files(files: RowFiles, called: str) -> Rows:
    index = files.index_names
    columns = {name: FileColumn(files, name) for name in files.names}
    own = {name: values for name, values in columns.items() if name not in index}
    if not own:
        raise _unusable_rows(f"{called} has no columns", called)
    return Rows(
        columns=own,
        labels=range(len(files)),
        index={level: columns[name] for name, level in index.items()},
        called=called,
        files=files,
    )


def _index_of(index: Any) -> dict[str, Sequence[Any]]:  # noqa: ANN401 - as above
    """Return the levels of an index, by the names that `reset_index` gives them."""
    is_count = type(index).__name__ == "RangeIndex" and index.name is None
    if is_count and (index.start, index.step) == (0, 1):
        return {}
    levels = {}
    for number, name in enumerate(index.names):
        default = "index" if index.nlevels == 1 else f"level_{number}"
        key = default if name is None else str(name)
        levels[key] = index.get_level_values(number).tolist()
    return levels


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"var_{name}"
    return name


def _of_list(rows: list[Any], called: str) -> Rows:
    if called == "rows":
        refuse_paths(rows)
    if rows and all(isinstance(row, str) for row in rows):
        return Rows(columns={DEFAULT_COLUMN: rows}, labels=range(len(rows)))
    wrong = [row for row in rows if not isinstance(row, Mapping)]
    if wrong:
        raise _unusable_rows(
            f"one of the {called} is {type(wrong[0]).__name__}", called
        )
    names = dict.fromkeys(str(name) for row in rows for name in row)
    if rows and not names:
        raise _unusable_rows(f"{called} has no columns", called)
    by_text = [{str(name): value for name, value in row.items()} for row in rows]
    columns = {name: [row.get(name) for row in by_text] for name in names}
    return Rows(columns=columns, labels=range(len(rows)), called=called)


_OR_FILES = ", or the path of a CSV file or of Parquet files"


def _unusable_rows(reason: str, called: str) -> ParameterError:
    return ParameterError(
        f"{reason}. Give a DataFrame, a Series, a list of mappings or a list of texts"
        f"{_OR_FILES if called == 'rows' else ''}.",
        param=called,
    )


_SHOWN_ROWS = 5


def check_rows(rows: Rows, names: Iterable[str]) -> None:
    """Refuse rows in which a value of these columns is missing or not a text."""
    for name in names:
        if name in rows.duplicates:
            raise _duplicate_column(name, rows.called)
        gaps, wrong = [], []
        for label, value in zip(rows.labels, rows.columns[name], strict=True):
            if is_missing(value):
                gaps.append(label)
            elif not is_text(value):
                wrong.append(label)
        if gaps:
            raise _missing_values(rows, name, gaps)
        if wrong:
            raise _not_text(rows, name, wrong)
        refuse_keys(
            _checked_texts(rows, name), of=f"The column {name!r} of {rows.called}"
        )


def _checked_texts(rows: Rows, name: str) -> Iterator[str]:
    for label, value in zip(rows.labels, rows.columns[name], strict=True):
        yield check_text(to_text(value), param=f"{name} of row {label!r}")


def check_not_blank(rows: Rows, prompts: Iterable[object]) -> None:
    """Refuse rows for which one of these prompts would be empty."""
    for prompt in prompts:
        if not isinstance(prompt, str) or fill(prompt, lambda _: "").strip():
            continue
        columns = [rows.columns.get(name, ()) for name in names_in(prompt)]
        if not columns or not all(columns):
            continue
        cells = zip(rows.labels, *columns, strict=True)
        blank = [
            label for label, *texts in cells if not "".join(map(to_text, texts)).strip()
        ]
        if blank:
            raise ParameterError(
                f"The prompt is empty for {_rows_in_words(blank)}. Fill the gaps in "
                f"{rows.called}, or leave out what has no text. Nothing was sent.",
                param="prompt",
            )


def _duplicate_column(name: str, called: str) -> ParameterError:
    return ParameterError(
        f"Two columns of {called} are called {name!r}. Rename one of them.",
        param=called,
    )


def _missing_values(rows: Rows, name: str, labels: Sequence[object]) -> ParameterError:
    where, called = _rows_in_words(labels), rows.called
    subset = "" if called == "series" else f"subset=[{name!r}]"
    return ParameterError(
        f"The column {name!r} has no value in {where}, and the prompt uses it. Fill "
        f"the gaps or leave the {where.split()[0]} out, for example with "
        f"{called}.dropna({subset}). Nothing was sent.",
        param=called,
    )


def _not_text(rows: Rows, name: str, labels: Sequence[object]) -> ParameterError:
    value = rows.columns[name][list(rows.labels).index(labels[0])]
    called = rows.called
    column = called if called == "series" else f"{called}[{name!r}]"
    return ParameterError(
        f"The column {name!r} has {type(value).__name__} in "
        f"{_rows_in_words(labels)}, and a prompt takes texts, numbers and dates. "
        "Convert the values to text first, for "
        f"example with {column}.map(your_function). Nothing was sent.",
        param=called,
    )


def _rows_in_words(labels: Sequence[object]) -> str:
    """Return the labels of some rows in words, such as "rows 1, 2"."""
    shown = ", ".join(map(repr, labels[:_SHOWN_ROWS]))
    n_more = len(labels) - _SHOWN_ROWS
    rest = f" and {n_more} more" if n_more > 0 else ""
    return f"row{'s' * (len(labels) > 1)} {shown}{rest}"

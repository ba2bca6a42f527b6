"""The rows that a sweep goes over, and the prompts that they fill.

pandas is not imported: its objects are recognised by their methods. Values become
plain Python ones. A row is identified by its position and named by its label. Many
rows and trials are counted by `HashedNumbers`: a million take 25 MB, not 200. Only 64
bits of a key are kept: two of a million share them once in 30 million times.
"""

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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
from svc_notebook.service.checks import check_text, did_you_mean
from svc_notebook.template import fill, names_in, wrong_marks

from .row_files import FileColumn, RowFiles, is_place, refuse_places

_LEAST_SLOTS = 64
_MASK = 2**64 - 1


class HashedNumbers:
    """A number from 0 for each key; a key without one has None."""

    def __init__(self) -> None:
        self._n = 0
        self._make(_LEAST_SLOTS)

    def __len__(self) -> int:
        return self._n

    def get(self, key: Hashable) -> int | None:
        """Return the number of a key."""
        found = self._numbers[self._slot(hash(key) & _MASK)]
        return found - 1 if found else None

    def put(self, key: Hashable, number: int) -> None:
        """Keep the number of a key."""
        mark = hash(key) & _MASK
        slot = self._slot(mark)
        if not self._numbers[slot]:
            self._n += 1
            if self._n * 3 > len(self._numbers) * 2:
                self._grow()
                slot = self._slot(mark)
        self._marks[slot] = mark
        self._numbers[slot] = number + 1

    def copy(self) -> "HashedNumbers":
        """Return a copy."""
        found = HashedNumbers()
        found._n, found._marks = self._n, self._marks[:]
        found._numbers = self._numbers[:]
        return found

    def _make(self, n_slots: int) -> None:
        self._marks = array("Q", bytes(8 * n_slots))
        self._numbers = array("I", bytes(4 * n_slots))  # 0 is a free slot

    def _slot(self, mark: int) -> int:
        """Return where a hash is, or the free slot where it goes."""
        marks, numbers = self._marks, self._numbers
        last = len(numbers) - 1
        slot = (mark ^ (mark >> 32)) & last  # hashes of integers are these themselves
        while numbers[slot] and marks[slot] != mark:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        marks, numbers = self._marks, self._numbers
        self._make(2 * len(numbers))
        for mark, number in zip(marks, numbers, strict=True):
            if number:
                slot = self._slot(mark)
                self._marks[slot], self._numbers[slot] = mark, number


DEFAULT_COLUMN = "text"
ROW = "row"
"""The column of a frame with the position of the row, from 0."""
_MISSING = frozenset({"NAType", "NaTType"})


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows, stored by column.

    Attributes:
        columns: The values of each column, by name, in order.
        labels: The label of each row, for messages.
        index: The values of each index level, by name; empty for a plain count.
        frame: The DataFrame they came in, if it was one; never written to.
        called: What messages call the rows: `df` and `series` for `df.svc`.
        doubled: The names of columns that were there twice; no prompt may use them.
        files: Where the rows are read from, a block at a time; None if they are here.
    """

    columns: Mapping[str, Sequence[Any]]
    labels: Sequence[Any]
    index: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    frame: Any = None
    called: str = "rows"
    doubled: frozenset[str] = frozenset()
    files: RowFiles | None = None

    def __post_init__(self) -> None:
        called = self.called
        for name in self.columns:
            check_text(name, param=called, name=f"The name {name!r} in {called}")

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, position: int) -> dict[str, Any]:
        """Return one row: value by column."""
        return {name: values[position] for name, values in self.columns.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column of a DataFrame; none for other rows."""
        dtypes = () if self.frame is None else self.frame.dtypes
        return dict(zip(self.columns, map(str, dtypes), strict=False))

    @property
    def categories(self) -> dict[str, dict[str, Any]]:
        """The categories of each column of a DataFrame that has some."""
        dtypes = () if self.frame is None else self.frame.dtypes
        return {
            name: {"values": each.categories.tolist(), "is_ordered": bool(each.ordered)}
            for name, each in zip(self.columns, dtypes, strict=False)
            if hasattr(each, "categories")
        }

    def joined(self, position: int) -> dict[str, Any]:
        """Return one row as a frame of replies has it: position, index, values."""
        if self.files is not None:
            values = {name: each[position] for name, each in self.shown.items()}
            return {ROW: position, **plain(values)}
        known = self._known.items()
        return {ROW: position, **{name: values[position] for name, values in known}}

    @cached_property
    def _known(self) -> dict[str, Sequence[Any]]:
        """Index and columns, with None for what is missing."""
        return {
            name: [None if is_missing(each) else each for each in values]
            for name, values in self.shown.items()
        }

    @cached_property
    def shown(self) -> dict[str, Sequence[Any]]:
        """Index and columns, renamed where needed so that no two names are the same."""
        index = {
            _free(name, (ROW, *self.columns)): each for name, each in self.index.items()
        }
        own = {_free(name, (ROW,)): each for name, each in self.columns.items()}
        return {**index, **own}

    def frame_of(self, rows: Sequence[int]) -> tuple[Any, Sequence[int]]:
        """Return a DataFrame with these rows and where it has them; None without."""
        if self.files is not None:
            return self.files.frame(rows), range(len(rows))
        return self.frame, rows

    def repeated(self, columns: tuple[str, ...]) -> Mapping[int, int]:
        """Return how many earlier rows have the same texts, for rows where some do."""
        if columns not in self._repeated:
            self._repeated[columns] = self._find_repeated(columns)
        return self._repeated[columns]

    @cached_property
    def _repeated(self) -> dict[tuple[str, ...], Mapping[int, int]]:
        return {}

    def _find_repeated(self, columns: Sequence[str]) -> Mapping[int, int]:
        n_seen, found = HashedNumbers(), dict[int, int]()
        values = [self.columns[name] for name in columns if name in self.columns]
        if not values:
            return {row: row for row in range(1, len(self))}
        for row, each in enumerate(zip(*values, strict=True)):
            # hashes, not texts: a million rows must not be held twice
            texts = tuple(map(str, each))
            if n_before := n_seen.get(texts) or 0:
                found[row] = n_before
            n_seen.put(texts, n_before + 1)
        return found


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for what is missing."""
    return {name: None if is_missing(each) else each for name, each in row.items()}


def source_of(rows: object, *, called: str = "rows") -> Source:
    """Read a DataFrame, a Series, a list of mappings or texts, or a Source.

    Rows may also be the place of Parquet files.

    Texts are the column `text`; so is a Series whose name a prompt cannot use.
    `called` is the argument's name, for messages.
    """
    if isinstance(rows, Source):
        return rows
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        return _of_frame(rows, called)
    if hasattr(rows, "to_list") and hasattr(rows, "to_frame") and hasattr(rows, "name"):
        is_usable = isinstance(rows.name, str) and rows.name.isidentifier()
        name = rows.name if is_usable else DEFAULT_COLUMN
        return _of_frame(rows.to_frame(name), called)
    if called == "rows" and is_place(rows):
        rows = RowFiles(str(rows))
    if isinstance(rows, RowFiles):
        return _of_files(rows, called)
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _refused(f"{called} is {type(rows).__name__}", called)
    rows = list(rows)
    if called == "rows":
        refuse_places(rows)
    return _of_list(rows, called)


def typed(
    rows: Sequence[Mapping[str, Any]],
    dtypes: Mapping[str, Any],
    index: Mapping[str, Sequence[Any]],
    categories: Mapping[str, Mapping[str, Any]],
) -> object:
    """Return rows as a DataFrame of these dtypes, as far as the values allow it."""
    import pandas as pd  # noqa: PLC0415 - only where rows were a DataFrame

    frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in dtypes})
    if index:
        levels = [pd.Index(values, name=name) for name, values in index.items()]
        several = pd.MultiIndex.from_arrays(levels) if levels[1:] else levels[0]
        frame.index = several
    for name, dtype in dtypes.items():
        with suppress(TypeError, ValueError):
            stated = dtype
            if each := categories.get(name):
                stated = pd.CategoricalDtype(each["values"], each["is_ordered"])
            frame[name] = frame[name].astype(stated)
    return frame


_TEXTUAL = (str, Number, date, time, timedelta, UUID, PurePath)
_TEXTUAL_NAMES = frozenset(
    {"Period", "Interval", "bool", "bool_", "datetime64", "timedelta64"}
)


def is_text(value: object) -> bool:
    """Say whether a prompt may have a value: a text, number, date, id or path."""
    return isinstance(value, _TEXTUAL) or type(value).__name__ in _TEXTUAL_NAMES


def is_missing(value: object) -> bool:
    """Say whether a value is None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN


def _of_frame(frame: Any, called: str) -> Source:  # noqa: ANN401 - a DataFrame, without pandas
    given = [str(name) for name in frame.columns]
    names: list[str] = []
    for name in given:
        names.append(_free(name, names))
    doubled = frozenset(name for name in given if given.count(name) > 1)
    if doubled and called == "conditions":
        raise _doubled(min(doubled), called)
    if len(frame) and not names:
        raise _refused(f"{called} has no columns", called)
    # a shallow copy is pandas' own way to keep what may be written to later
    return Source(
        columns={name: frame.iloc[:, at].tolist() for at, name in enumerate(names)},
        labels=frame.index.tolist(),
        index=_index_of(frame.index),
        frame=frame.copy(deep=False),
        called=called,
        doubled=doubled,
    )


def _of_files(files: RowFiles, called: str) -> Source:
    index = files.index_names
    columns = {name: FileColumn(files, name) for name in files.names}
    own = {name: each for name, each in columns.items() if name not in index}
    if not own:
        raise _refused(f"{called} has no columns", called)
    return Source(
        columns=own,
        labels=range(len(files)),
        index={level: columns[name] for name, level in index.items()},
        called=called,
        files=files,
    )


def _index_of(index: Any) -> dict[str, Sequence[Any]]:  # noqa: ANN401 - as above
    """Return the levels of an index by the names `reset_index` would give them."""
    is_count = type(index).__name__ == "RangeIndex" and index.name is None
    if is_count and (index.start, index.step) == (0, 1):
        return {}
    found = {}
    for level, name in enumerate(index.names):
        default = "index" if index.nlevels == 1 else f"level_{level}"
        key = default if name is None else str(name)
        found[key] = index.get_level_values(level).tolist()
    return found


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"var_{name}"
    return name


def _of_list(rows: list[Any], called: str) -> Source:
    if rows and all(isinstance(row, str) for row in rows):
        return Source(columns={DEFAULT_COLUMN: rows}, labels=range(len(rows)))
    wrong = [row for row in rows if not isinstance(row, Mapping)]
    if wrong:
        raise _refused(f"one of the {called} is {type(wrong[0]).__name__}", called)
    names = dict.fromkeys(str(name) for row in rows for name in row)
    if rows and not names:
        raise _refused(f"{called} has no columns", called)
    plain = [{str(name): value for name, value in row.items()} for row in rows]
    columns = {name: [row.get(name) for row in plain] for name in names}
    return Source(columns=columns, labels=range(len(rows)), called=called)


def _refused(reason: str, called: str) -> ParameterError:
    return ParameterError(
        f"{reason}. Give a DataFrame, a Series, a list of mappings or a list of texts"
        f"{', or the path of Parquet files' if called == 'rows' else ''}.",
        param=called,
    )


_SHOWN_ROWS = 5
_NO_IDENTIFIER = (
    "A prompt uses a column by a name that is an identifier; rename the columns, for "
    "example with {called}.rename(columns=...)."
)


def columns_in(prompt: object) -> tuple[str, ...]:
    """Return the columns that a prompt uses: a text, messages, or None."""
    found = (name for text in _texts(prompt) for name in names_in(text))
    return tuple(dict.fromkeys(found))


def _texts(prompt: object) -> Iterator[str]:
    texts = [prompt] if isinstance(prompt, str) else map(_content, _messages(prompt))
    return (text for text in texts if isinstance(text, str))


def size_and_end(prompt: object) -> tuple[int, str]:
    """Return how many messages a prompt has, and the newest text of the user."""
    if isinstance(prompt, str):
        return 1, prompt
    messages = _messages(prompt)
    asked = [each for each in messages if _part(each, "role") == "user"]
    return len(messages), str(_content(asked[-1])) if asked else ""


def filled(prompt: Any, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - text or messages
    """Return a prompt with its `{{name}}` replaced by a row's values."""
    if isinstance(prompt, str):
        return fill(prompt, lambda name: to_text(row[name]))
    if prompt is None:
        return None
    return [_filled_message(message, row) for message in _messages(prompt)]


def to_text(value: object) -> str:
    """Return a value of a row as a text for a prompt."""
    return value if isinstance(value, str) else str(value)


def check_columns(
    prompts: Iterable[object], columns: Iterable[str], *, called: str = "rows"
) -> None:
    """Refuse `{{name}}` in a prompt or system if it is not a column."""
    known = list(columns)
    for prompt in prompts:
        for text in _texts(prompt):
            for mark in wrong_marks(text):
                raise _no_mark(mark, known, called)
        for name in columns_in(prompt):
            if name not in known:
                raise _unknown(name, known, called)


def check_rows(source: Source, names: Iterable[str]) -> None:
    """Refuse rows where a value in one of these columns is missing or not a text."""
    for name in names:
        if name in source.doubled:
            raise _doubled(name, source.called)
        values = source.columns[name]
        gaps, wrong = [], []
        for label, value in zip(source.labels, values, strict=True):
            if is_missing(value):
                gaps.append(label)
            elif not is_text(value):
                wrong.append(label)
        if gaps:
            raise _incomplete(source, name, gaps)
        if wrong:
            raise _no_text(source, name, wrong)
        refuse_keys(
            _checked_texts(source, name), of=f"The column {name!r} of {source.called}"
        )


def _checked_texts(source: Source, name: str) -> Iterator[str]:
    for label, value in zip(source.labels, source.columns[name], strict=True):
        yield check_text(to_text(value), param=f"{name} of row {label!r}")


def check_not_blank(source: Source, prompts: Iterable[object]) -> None:
    """Refuse rows that make an empty prompt of one of these."""
    for prompt in prompts:
        if not isinstance(prompt, str) or fill(prompt, lambda _: "").strip():
            continue
        columns = [source.columns.get(name, ()) for name in names_in(prompt)]
        if not columns or not all(columns):
            continue
        rows = zip(source.labels, *columns, strict=True)
        blank = [at for at, *each in rows if not "".join(map(to_text, each)).strip()]
        if blank:
            raise ParameterError(
                f"The prompt is empty for {_named(blank)}. Fill the gaps in "
                f"{source.called}, or leave out what has no text. Nothing was sent.",
                param="prompt",
            )


def _messages(prompt: object) -> Sequence[Any]:
    if isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes)):
        return prompt
    return ()


def _content(message: object) -> object:
    return _part(message, "content")


def _part(message: object, name: str) -> object:
    if isinstance(message, Mapping):
        return message.get(name)
    return getattr(message, name, None)


def _filled_message(message: Any, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - both kinds
    content = _content(message)
    if not isinstance(content, str):
        return message
    text = filled(content, row)
    if isinstance(message, Mapping):
        return {**message, "content": text}
    return replace(message, content=text)


def _no_mark(mark: str, known: Sequence[str], called: str) -> ParameterError:
    inner = mark[2:-2].strip()
    hint = "Put what you compute into a column first."
    if inner.isidentifier():
        hint = f"Did you mean {{{{{inner}}}}}?"
    elif inner in known:
        hint = _NO_IDENTIFIER.format(called=called)
    return ParameterError(
        f"{mark} is not a column: between the braces there may only be its name, "
        f"without spaces. {hint} {_as_text(mark, called)}",
        param="prompt",
    )


def _unknown(name: str, known: Sequence[str], called: str) -> ParameterError:
    where = "means a column, but no rows were given."
    if known:
        are = "the column is" if len(known) == 1 else "the columns are"
        where = f"is not a column; {are} {', '.join(known)}."
        if not any(map(str.isidentifier, known)):
            where += f" {_NO_IDENTIFIER.format(called=called)}"
    mark = f"{{{{{name}}}}}"
    return ParameterError(
        f"{mark} {where}{did_you_mean(name, known)} {_as_text(mark, called)}",
        param="prompt",
    )


def _as_text(mark: str, called: str) -> str:
    raw = ", or use raw=True" if called == "rows" else ""
    return f"For the plain text write \\{mark}{raw}. Nothing was sent."


def _doubled(name: str, called: str) -> ParameterError:
    return ParameterError(
        f"Two columns of {called} are called {name!r}. Rename one of them.",
        param=called,
    )


def _incomplete(source: Source, name: str, labels: Sequence[object]) -> ParameterError:
    where, called = _named(labels), source.called
    subset = "" if called == "series" else f"subset=[{name!r}]"
    return ParameterError(
        f"The column {name!r} has no value in {where}, and the prompt uses it. Fill "
        f"the gaps or leave the {where.split()[0]} out, for example with "
        f"{called}.dropna({subset}). Nothing was sent.",
        param=called,
    )


def _no_text(source: Source, name: str, labels: Sequence[object]) -> ParameterError:
    value = source.columns[name][list(source.labels).index(labels[0])]
    called = source.called
    column = called if called == "series" else f"{called}[{name!r}]"
    return ParameterError(
        f"The column {name!r} has {type(value).__name__} in {_named(labels)}, and a "
        "prompt takes texts, numbers and dates. Convert the values to text first, for "
        f"example with {column}.map(your_function). Nothing was sent.",
        param=called,
    )


def _named(labels: Sequence[object]) -> str:
    """Return the names of some rows, such as "rows 1, 2"."""
    shown = ", ".join(map(repr, labels[:_SHOWN_ROWS]))
    n_more = len(labels) - _SHOWN_ROWS
    rest = f" and {n_more} more" if n_more > 0 else ""
    return f"row{'s' * (len(labels) > 1)} {shown}{rest}"

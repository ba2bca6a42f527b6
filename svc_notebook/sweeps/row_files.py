"""The rows of Parquet files, read a block at a time, so that they need no memory.

A row is identified by its position; the files are known by their names, sizes and
numbers of rows. They must not change while a run uses them.
"""

import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, zip_longest
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, overload

import msgspec

from svc_notebook.errors import ParameterError, import_extra

SUFFIX = ".parquet"
BLOCK_ROWS = 2048
N_BLOCKS = 8  # kept: the models of a run are at different places
N_READERS = 4  # kept, so that the next block is read without those before it
BUFFER_BYTES = 2**18


class RowFile(msgspec.Struct, frozen=True):
    """What a file of rows is known by."""

    name: str
    n_bytes: int
    n_rows: int


class FoundFiles(msgspec.Struct, frozen=True):
    """Files of rows, as a manifest has them."""

    path: str
    found: tuple[RowFile, ...]


class _Block(NamedTuple):
    """Which rows a block has: those of a row group of a file, from `first` on."""

    file: int
    group: int
    number: int  # in its row group
    n_rows: int


@dataclass(slots=True, eq=False)
class _Reader:
    """Reads the blocks of one row group, one after the other."""

    file: int
    group: int
    next: int
    source: Any
    batches: Iterator[Any]


@dataclass(slots=True, eq=False)
class _Rows:
    """The rows of a block; the values of a column are made when they are needed."""

    batch: Any
    values: dict[str, list[Any]] = field(default_factory=dict)

    def of(self, name: str) -> list[Any]:
        """Return the values of a column."""
        if name not in self.values:
            column = self.batch.column(name)
            # as in a DataFrame, whose texts of durations are other ones
            is_duration = str(column.type).startswith("duration")
            found = column.to_pandas() if is_duration else column
            self.values[name] = found.tolist()
        return self.values[name]


class RowFiles:
    """The rows of some Parquet files, in the order of the files' names.

    Attributes:
        path: As given, made absolute: a file, a folder or a pattern.
        files: The files that were found.
        names: The columns; those of an index are in `index_names`, too.
        n_read: How many blocks were read; more than there are if some were read again.
    """

    def __init__(self, path: str) -> None:
        self._parquet = import_extra("pyarrow.parquet", "Rows in Parquet files")
        self.path = str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111 - no error without a home
        self._folder = _folder_of(self.path)
        self._places = _files_at(self.path, self._folder, path)
        self._stamps: list[tuple[int, int]] = []
        self._lock = RLock()
        self._kept: OrderedDict[int, _Rows] = OrderedDict()
        self._readers: list[_Reader] = []
        self._blocks: list[_Block] = []
        self._has_gaps: set[str] = set()
        self.n_read = 0
        self._schema: Any = None
        self.files = tuple(map(self._look, range(len(self._places))))
        self._ends = [*accumulate(each.n_rows for each in self._blocks)]
        self.names = self._names()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _names(self) -> list[str]:
        return [str(name) for name in self._schema.names]

    @property
    def found(self) -> FoundFiles:
        """What the files are known by."""
        return FoundFiles(self.path, self.files)

    @property
    def folders(self) -> set[Path]:
        """The folders that the files are in."""
        return {each.resolve().parent for each in self._places}

    @cached_property
    def index_names(self) -> dict[str, str]:
        """The columns that pandas wrote as an index, with the names of its levels."""
        known = self._schema.pandas_metadata or {}
        levels = [each for each in known.get("index_columns", ()) if each in self.names]
        only = len(levels) == 1
        return {
            name: ("index" if only else f"level_{at}")
            if name.startswith("__index_level_")
            else name
            for at, name in enumerate(levels)
        }

    @property
    def in_words(self) -> str:
        """Say how many files there are, after the number of rows."""
        n = len(self.files)
        return f" in {n} Parquet file{'' if n == 1 else 's'}"

    def block_of(self, position: int) -> int:
        """Return the number of the block that a row is in."""
        return bisect_right(self._ends, position)

    def value(self, name: str, position: int) -> Any:  # noqa: ANN401 - a cell's value
        """Return a value of a row."""
        block = self.block_of(position)
        n_before = self._ends[block] - self._blocks[block].n_rows
        return self._rows(block).of(name)[position - n_before]

    def values(self, name: str) -> Iterator[Any]:
        """Return all values of a column, in order."""
        for block in range(len(self._blocks)):
            yield from self._rows(block).of(name)

    def frame(self, rows: Sequence[int]) -> Any:  # noqa: ANN401 - a DataFrame
        """Return some rows, in this order, as a DataFrame with an index of its own."""
        arrow = import_extra("pyarrow", "Rows in Parquet files")
        blocks = sorted({self.block_of(row) for row in rows})
        starts = [self._ends[each] - self._blocks[each].n_rows for each in blocks]
        places, n_taken = dict[int, int](), 0
        for block, start in zip(blocks, starts, strict=True):
            places[block] = n_taken - start
            n_taken += self._blocks[block].n_rows
        batches = [self._rows(block).batch for block in blocks]
        table = arrow.Table.from_batches(batches, schema=self._plain_schema)
        numbers = [places[self.block_of(row)] + row for row in rows]
        return self._to_pandas(table.take(arrow.array(numbers, type="int64")))

    def _to_pandas(self, table: Any) -> Any:  # noqa: ANN401 - of pyarrow, and of pandas
        """Return a DataFrame whose dtypes do not depend on the rows that it has."""
        import pandas as pd  # noqa: PLC0415 - where a frame is asked for

        frame = pd.DataFrame(
            {
                name: table.column(name).to_pandas(
                    types_mapper=_nullable if name in self._has_gaps else None
                )
                for name in self.names
            }
        )
        if self.index_names:
            frame = frame.set_index([*self.index_names])
            frame.index = frame.index.set_names([*self.index_names.values()])
        return frame

    @cached_property
    def _plain_schema(self) -> Any:  # noqa: ANN401 - pyarrow's
        return self._plain(self._schema)

    def _plain(self, schema: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """Return a schema with one type for all texts, categories included.

        Which one a file has depends on what wrote it.
        """
        arrow = import_extra("pyarrow", "Rows in Parquet files")
        plain = []
        for each in schema:
            is_category = arrow.types.is_dictionary(each.type)
            kind = each.type.value_type if is_category else each.type
            kind = arrow.string() if str(kind) in _TEXTS else kind
            plain.append(arrow.field(each.name, kind))
        return arrow.schema(plain)

    def _look(self, number: int) -> RowFile:
        """Read what a file says of its rows, without them."""
        place = self._places[number]
        try:
            stat = place.stat()
            with self._parquet.ParquetFile(place) as opened:
                about, schema = opened.metadata, opened.schema_arrow
        except (OSError, ValueError) as problem:  # pyarrow's are these, too
            raise _unreadable(place, problem) from None
        self._stamps.append((stat.st_size, stat.st_mtime_ns))
        if self._schema is None:
            self._schema = schema
        elif difference := _difference(self._plain(schema), self._plain_schema):
            raise ParameterError(
                f"{place.name} and {self._places[0].name} have different columns: "
                f"{difference}. Files of rows must have the same columns, in the same "
                "order and of the same types. Give those that belong together. "
                "Nothing was sent.",
                param="rows",
            )
        self._check_names(place)
        for group in range(about.num_row_groups):
            self._blocks += self._blocks_of(number, group, about.row_group(group))
        name = place.relative_to(self._folder).as_posix()
        return RowFile(name, stat.st_size, about.num_rows)

    def _check_names(self, place: Path) -> None:
        if twice := [name for name, n in Counter(self._names()).items() if n > 1]:
            raise ParameterError(
                f"{place.name} has two columns called {twice[0]!r}. Rename one of "
                "them. Nothing was sent.",
                param="rows",
            )

    def _blocks_of(self, file: int, group: int, about: Any) -> Iterator[_Block]:  # noqa: ANN401 - pyarrow's
        for at in range(about.num_columns):
            column = about.column(at)
            known = column.statistics
            if known is None or not known.has_null_count or known.null_count:
                self._has_gaps.add(column.path_in_schema)
        for number, start in enumerate(range(0, about.num_rows, BLOCK_ROWS)):
            n_rows = min(about.num_rows - start, BLOCK_ROWS)
            yield _Block(file, group, number, n_rows)

    def _rows(self, block: int) -> _Rows:
        with self._lock:
            if block in self._kept:
                self._kept.move_to_end(block)
            else:
                self.n_read += 1
                self._kept[block] = _Rows(self._read(self._blocks[block]))
                if len(self._kept) > N_BLOCKS:
                    self._kept.popitem(last=False)
            return self._kept[block]

    def _read(self, block: _Block) -> Any:  # noqa: ANN401 - pyarrow's
        try:
            reader = self._reader(block)
            while reader.next < block.number:
                next(reader.batches)
                reader.next += 1
            batch = next(reader.batches)
            reader.next += 1
            return batch.cast(self._plain_schema)
        except FileNotFoundError:
            name = self._places[block.file].name
            raise _changed(f"{name} was moved or deleted since it was read") from None
        except (OSError, ValueError, StopIteration) as problem:
            raise _unreadable(self._places[block.file], problem) from None

    def _reader(self, block: _Block) -> _Reader:
        """Return a reader that has not come to a block yet."""
        place = self._places[block.file]
        stat = place.stat()
        if (stat.st_size, stat.st_mtime_ns) != self._stamps[block.file]:
            raise _changed(f"{place.name} was changed since this run was planned")
        known = [
            each
            for each in self._readers
            if (each.file, each.group) == block[:2] and each.next <= block.number
        ]
        if known:
            return max(known, key=lambda each: each.next)
        source = self._parquet.ParquetFile(place, buffer_size=BUFFER_BYTES)
        batches = source.iter_batches(BLOCK_ROWS, row_groups=[block.group])
        found = _Reader(block.file, block.group, 0, source, batches)
        self._readers.append(found)
        if len(self._readers) > N_READERS:
            self._readers.pop(0).source.close()
        return found


class FileColumn(Sequence[Any]):
    """A column of files of rows."""

    def __init__(self, files: RowFiles, name: str) -> None:
        self._files = files
        self._name = name

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Any]:
        return self._files.values(self._name)

    @overload
    def __getitem__(self, at: int) -> Any: ...  # noqa: ANN401 - a cell's value
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._files.value(self._name, at)


def is_place(rows: object) -> bool:
    """Say whether rows are given as the place of Parquet files."""
    if not isinstance(rows, (str, os.PathLike)):
        return False
    text = str(rows)
    if isinstance(rows, os.PathLike) or text.lower().endswith(SUFFIX):
        return True
    return text.strip() != "" and os.path.isdir(os.path.expanduser(text))  # noqa: PTH111, PTH112 - a text of any length, without an error


def refuse_places(rows: Sequence[object]) -> None:
    """Refuse a list of the paths of files: its texts would be taken as prompts."""
    if (
        rows
        and all(_is_named(each) for each in rows)
        and any(os.path.isfile(os.path.expanduser(str(each))) for each in rows)  # noqa: PTH111, PTH113 - no error for a name that is too long
    ):
        raise ParameterError(
            "rows is a list of Parquet files. Give one path: a folder that has them, "
            "or a pattern such as 'folder/*.parquet'. To send the paths themselves, "
            "give [{'text': path}, ...]. Nothing was sent.",
            param="rows",
        )


def _is_named(place: object) -> bool:
    is_path = isinstance(place, (str, os.PathLike))
    return is_path and str(place).lower().endswith(SUFFIX)


def check_same(kept: FoundFiles, now: FoundFiles) -> None:
    """Refuse files that are not those of a run that goes on."""
    before = {each.name: each for each in kept.found}
    after = {each.name: each for each in now.found}
    changes = [f"{name} is missing" for name in before.keys() - after.keys()]
    changes += [f"{name} is new" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        was, is_now = before[name], after[name]
        if was.n_rows != is_now.n_rows:
            changes.append(f"{name} had {was.n_rows} rows and has {is_now.n_rows}")
        elif was.n_bytes != is_now.n_bytes:
            changes.append(f"{name} had {was.n_bytes} bytes and has {is_now.n_bytes}")
    if changes:
        raise _changed("; ".join(sorted(changes)))


def _folder_of(place: str) -> Path:
    """Return the folder that the names of the files begin in."""
    path = Path(place)
    if os.path.isdir(path):  # noqa: PTH112 - no error for a name that is too long
        return path
    return next(
        each for each in path.parents if each.is_dir() or _MAGIC.isdisjoint(str(each))
    )


_MAGIC = frozenset("*?[")  # of patterns
_TEXTS = {"string", "large_string", "string_view"}  # types of pyarrow


def _difference(found: Any, expected: Any) -> str:  # noqa: ANN401 - pyarrow's
    """Say where a schema differs first; "" if it does not."""
    for now, was in zip_longest(found, expected):
        if now is None or was is None:
            side = "first" if now is not None else "second"
            return f"only the {side} has {(now or was).name!r}"
        if now.name != was.name:
            return f"{now.name!r} comes where the second has {was.name!r}"
        if now.type != was.type:
            return f"{now.name!r} is {now.type} in the first, {was.type} in the second"
    return ""


def _files_at(place: str, folder: Path, given: object) -> list[Path]:
    path = Path(place)
    found: list[Path] = []
    # a name that is too long, and `**` next to other characters, find nothing
    with suppress(OSError, ValueError):
        if path.is_file():
            found = [path]
        elif path.is_dir():
            found = [each for each in path.iterdir() if each.suffix.lower() == SUFFIX]
        else:
            found = [*folder.glob(str(path.relative_to(folder)))]
    found = [each for each in found if not each.name.startswith((".", "_"))]
    if not found:
        raise ParameterError(
            f"There is no Parquet file at {str(given)!r}. Give a file, a folder that "
            "has some, or a pattern such as 'folder/*.parquet'.",
            param="rows",
        )
    return sorted(found)


def _nullable(kind: Any) -> Any:  # noqa: ANN401 - a type of pyarrow, and a dtype
    """Return the dtype that holds integers, or flags, with gaps; None for others."""
    import pandas as pd  # noqa: PLC0415 - where a frame is asked for

    text = str(kind)
    if text == "bool":
        return pd.BooleanDtype()
    is_int = text.lstrip("u").startswith("int")
    return pd.api.types.pandas_dtype(_NULLABLE[text]) if is_int else None


_NULLABLE = {f"int{n}": f"Int{n}" for n in (8, 16, 32, 64)}
_NULLABLE |= {f"uint{n}": f"UInt{n}" for n in (8, 16, 32, 64)}


def _unreadable(place: Path, problem: Exception) -> ParameterError:
    reason = getattr(problem, "strerror", None) or str(problem) or "it has fewer rows"
    return ParameterError(
        f"{place} cannot be read as Parquet: {reason.splitlines()[0].rstrip('.')}. "
        "Give Parquet files that this kernel can read.",
        param="rows",
    )


def _changed(what: str) -> ParameterError:
    return ParameterError(
        f"The files of the rows are not as they were: {what}. Their rows are known by "
        "their positions, so nothing more was sent. Restore the files, or plan the "
        "sweep under another name.",
        param="rows",
    )

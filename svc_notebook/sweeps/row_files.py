"""The rows of Parquet files, read a block at a time, so that they need little memory.

A row is identified by its position, a file by its name and number of rows. Files must
not change while a run uses them. A digest tells whether they did since an earlier plan.
"""

import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b, file_digest
from itertools import accumulate, islice, zip_longest
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, overload

import msgspec
from msgspec import structs

from svc_notebook.errors import ParameterError, import_extra

SUFFIX = ".parquet"
CSV = ".csv"
BLOCK_ROWS = 2048
"""Rows are shuffled within blocks, so that blocks are read one after the other."""
N_BLOCKS = 8  # in memory, because the models of a run are at different blocks
N_READERS = 4  # open readers, so that the next block is read without those before it
BUFFER_BYTES = 2**18  # read at once; without a buffer, whole column chunks are read
_NEEDED_FOR = "Rows in Parquet files need"


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows, as a manifest identifies it."""

    name: str
    n_bytes: int
    n_rows: int
    digest: str = ""  # of its bytes; "" until a manifest needs it


class RowFileList(msgspec.Struct, frozen=True):
    """The files of the rows of a run, as its manifest stores them."""

    path: str
    files: tuple[RowFile, ...]


class _Block(NamedTuple):
    """The place of some rows: the `number`-th block in a row group of a file."""

    file: int
    group: int
    number: int
    n_rows: int


@dataclass(slots=True, eq=False)
class _BlockRows:
    """The rows of a block; a column is converted when its values are needed."""

    batch: Any
    values: dict[str, list[Any]] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        if name not in self.values:
            column = self.batch.column(name)
            # durations as pandas' Timedelta, whose text differs from that of timedelta
            is_duration = str(column.type).startswith("duration")
            self.values[name] = (column.to_pandas() if is_duration else column).tolist()
        return self.values[name]


class RowFiles:
    """The rows of some Parquet files, in the order of the files' names.

    Attributes:
        path: The absolute path of a file, of a folder, or with wildcards.
        files: The files, in the order of their names.
        names: The columns, including those of an index (see `index_names`).
    """

    def __init__(self, path: str) -> None:
        self._parquet = import_extra("pyarrow.parquet", _NEEDED_FOR)
        self._arrow = import_extra("pyarrow", _NEEDED_FOR)
        self.path = str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111 - no error without a home
        self._folder = _folder_of(self.path)
        self._paths = _find_files(self.path, self._folder, path)
        self._stamps: list[tuple[int, int]] = []  # size and time of each file
        self._blocks: list[_Block] = []
        self._has_gaps: set[str] = set()  # names of columns with missing values
        self._schema: Any = None
        self.files = tuple(map(self._read_metadata, range(len(self._paths))))
        self._ends = [*accumulate(block.n_rows for block in self._blocks)]
        self.names = self._names()
        self._lock = RLock()
        # each by the number of the block that it returns next
        self._readers: OrderedDict[int, Iterator[Any]] = OrderedDict()
        self._load_cached = lru_cache(maxsize=N_BLOCKS)(self._load)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _names(self) -> list[str]:
        return [str(name) for name in self._schema.names]

    @cached_property
    def listed(self) -> RowFileList:
        """The files, as a manifest stores them."""
        files = zip(self.files, self._paths, strict=True)
        return RowFileList(
            self.path,
            tuple(structs.replace(file, digest=_digest(path)) for file, path in files),
        )

    @property
    def folders(self) -> set[Path]:
        """The folders that the files are in."""
        return {path.resolve().parent for path in self._paths}

    @cached_property
    def index_names(self) -> dict[str, str]:
        """The columns that pandas wrote as an index, with the names of the levels."""
        written = (self._schema.pandas_metadata or {}).get("index_columns", ())
        # a plain count is written as a mapping and not as a column
        levels = [name for name in written if name in self.names]
        return {
            name: ("index" if len(levels) == 1 else f"level_{number}")
            if name.startswith("__index_level_")
            else name
            for number, name in enumerate(levels)
        }

    def block_of(self, position: int) -> int:
        """Return the number of the block that a row is in."""
        return bisect_right(self._ends, position)

    def file_of(self, position: int) -> int:
        """Return the number of the file that a row is in."""
        return self._blocks[self.block_of(position)].file

    def value(self, name: str, position: int) -> Any:  # noqa: ANN401 - a cell's value
        """Return a value of a row."""
        block = self.block_of(position)
        start = self._ends[block] - self._blocks[block].n_rows
        return self._rows(block).column(name)[position - start]

    def values(self, name: str) -> Iterator[Any]:
        """Return all values of a column, in order."""
        for block in range(len(self._blocks)):
            yield from self._rows(block).column(name)

    def frame(self, rows: Sequence[int]) -> Any:  # noqa: ANN401 - a DataFrame
        """Return some rows, in this order, as a DataFrame."""
        blocks = sorted({self.block_of(row) for row in rows})
        # what to add to the position of a row to get its position in the table
        offsets, n_taken = dict[int, int](), 0
        for block in blocks:
            n_rows = self._blocks[block].n_rows
            offsets[block] = n_taken - (self._ends[block] - n_rows)
            n_taken += n_rows
        batches = [self._rows(block).batch for block in blocks]
        table = self._arrow.Table.from_batches(batches, schema=self._plain_schema)
        numbers = [offsets[self.block_of(row)] + row for row in rows]
        return self._to_pandas(table.take(self._arrow.array(numbers, type="int64")))

    def _to_pandas(self, table: Any) -> Any:  # noqa: ANN401 - of pyarrow, and of pandas
        """Convert a table to a DataFrame whose dtypes do not depend on its rows."""
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
        """Return a schema with one type for all texts and categories.

        Which type of text a file has depends on the program that wrote it.
        """
        fields = []
        for column in schema:
            is_category = self._arrow.types.is_dictionary(column.type)
            kind = column.type.value_type if is_category else column.type
            kind = self._arrow.string() if str(kind) in _TEXT_TYPES else kind
            fields.append(self._arrow.field(column.name, kind))
        return self._arrow.schema(fields)

    def _read_metadata(self, number: int) -> RowFile:
        """Read the metadata of a file, without its rows."""
        path = self._paths[number]
        try:
            stat = path.stat()
            with self._parquet.ParquetFile(path) as opened:
                metadata, schema = opened.metadata, opened.schema_arrow
        except (OSError, ValueError) as problem:  # pyarrow's errors are kinds of these
            raise _unreadable(path, problem) from None
        self._stamps.append((stat.st_size, stat.st_mtime_ns))
        if self._schema is None:
            self._schema = schema
            self._check_names(path)
        elif difference := _difference(self._plain(schema), self._plain_schema):
            raise ParameterError(
                f"{path.name} and {self._paths[0].name} have different columns: "
                f"{difference}. Files of rows must have the same columns, in the same "
                "order and with the same types. Give only files that belong together. "
                "Nothing was sent.",
                param="rows",
            )
        for group in range(metadata.num_row_groups):
            self._add_blocks(number, group, metadata.row_group(group))
        name = path.relative_to(self._folder).as_posix()
        return RowFile(name, stat.st_size, metadata.num_rows)

    def _check_names(self, path: Path) -> None:
        if twice := [name for name, n in Counter(self._names()).items() if n > 1]:
            raise ParameterError(
                f"{path.name} has two columns called {twice[0]!r}. Rename one of "
                "them. Nothing was sent.",
                param="rows",
            )

    def _add_blocks(self, file: int, group: int, metadata: Any) -> None:  # noqa: ANN401 - pyarrow's
        """Add the blocks of a row group, and note which columns have missing values."""
        for position in range(metadata.num_columns):
            column = metadata.column(position)
            # a column without statistics may have missing values
            statistics = column.statistics
            if (
                statistics is None
                or not statistics.has_null_count
                or statistics.null_count
            ):
                self._has_gaps.add(column.path_in_schema)
        self._blocks += (
            _Block(file, group, number, min(metadata.num_rows - start, BLOCK_ROWS))
            for number, start in enumerate(range(0, metadata.num_rows, BLOCK_ROWS))
        )

    def _rows(self, block: int) -> _BlockRows:
        with self._lock:  # frames and requests are made on different threads
            return self._load_cached(block)

    def _load(self, number: int) -> _BlockRows:
        block = self._blocks[number]
        path = self._paths[block.file]
        try:
            stat = path.stat()
            if (stat.st_size, stat.st_mtime_ns) != self._stamps[block.file]:
                raise _files_changed(
                    f"{path.name} was changed since this run was planned"
                )
            return _BlockRows(self._next_batch(number).cast(self._plain_schema))
        except FileNotFoundError:
            raise _moved(path) from None
        except ParameterError:
            raise
        except (OSError, ValueError, StopIteration) as problem:
            raise _unreadable(path, problem) from None

    def _next_batch(self, number: int) -> Any:  # noqa: ANN401 - pyarrow's
        """Read a block with the nearest open reader before it, or with a new one.

        `pyarrow.dataset` would keep a whole row group in memory, and pandas writes a
        file as one row group. `iter_batches` reads only as far as needed.
        """
        block = self._blocks[number]
        first = number - block.number  # the first block of its row group
        near = [start for start in self._readers if first <= start <= number]
        if near:
            start = max(near)
            batches = self._readers.pop(start)
        else:
            path, start = self._paths[block.file], first
            opened = self._parquet.ParquetFile(path, buffer_size=BUFFER_BYTES)
            batches = opened.iter_batches(BLOCK_ROWS, row_groups=[block.group])
        batch = next(islice(batches, number - start, None))
        if number + 1 < len(self._blocks) and self._blocks[number + 1].number:
            self._readers[number + 1] = batches
            if len(self._readers) > N_READERS:
                self._readers.popitem(last=False)
        return batch


class FileColumn(Sequence[Any]):
    """A column of Parquet files, read a block at a time."""

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
            return [self[position] for position in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._files.value(self._name, at)


def is_path_of_csv(rows: object) -> bool:
    """Return whether rows are given as the path of a CSV file."""
    return isinstance(rows, (str, os.PathLike)) and str(rows).lower().endswith(CSV)


def read_csv(path: str) -> Any:  # noqa: ANN401 - a DataFrame
    """Read a CSV file as `pandas.read_csv` does; its rows are then stored as a frame's.

    Raises:
        ParameterError: There is no such file, or pandas cannot read it.
    """
    import pandas as pd  # noqa: PLC0415 - where rows are in a file

    try:
        # a Path, because pandas would fetch a text that looks like a URL
        return pd.read_csv(Path(os.path.expanduser(path)))  # noqa: PTH111 - no error without a home
    except (OSError, ValueError) as problem:  # the errors of pandas are kinds of these
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ParameterError(
            f"{path} cannot be read as CSV: {reason.splitlines()[0].rstrip('.')}. Give "
            "the path of a CSV file in UTF-8, or read it with other options: "
            f"rows=pandas.read_csv({path!r}, encoding=..., sep=...). Nothing was sent.",
            param="rows",
        ) from None


def is_path_of_files(rows: object) -> bool:
    """Return whether rows are given as a path of Parquet files."""
    if not isinstance(rows, (str, os.PathLike)):
        return False
    text = str(rows)
    if isinstance(rows, os.PathLike) or text.lower().endswith(SUFFIX):
        return True
    return text.strip() != "" and os.path.isdir(os.path.expanduser(text))  # noqa: PTH111, PTH112 - a text of any length, without an error


def refuse_paths(rows: Sequence[object]) -> None:
    """Refuse a list of paths, which would be sent as texts."""
    if (
        rows
        and all(_is_file_name(row) for row in rows)
        and any(os.path.isfile(os.path.expanduser(str(row))) for row in rows)  # noqa: PTH111, PTH113 - no error for a name that is too long
    ):
        raise ParameterError(
            "rows is a list of Parquet files. Give one path: a folder that has them, "
            "or a pattern such as 'folder/*.parquet'. To send the paths themselves, "
            "give [{'text': path}, ...]. Nothing was sent.",
            param="rows",
        )


def _is_file_name(row: object) -> bool:
    return isinstance(row, (str, os.PathLike)) and str(row).lower().endswith(SUFFIX)


def check_same_files(
    planned: RowFileList, now: RowFileList, *, has_same_texts: bool = True
) -> None:
    """Refuse files with other rows than those with which a run began.

    Other values are allowed if the texts that were sent are the same.
    """
    before = {file.name: file for file in planned.files}
    after = {file.name: file for file in now.files}
    changes = [f"{name} is missing" for name in before.keys() - after.keys()]
    changes += [f"{name} is new" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        was, is_now = before[name], after[name]
        if was.n_rows != is_now.n_rows:
            changes.append(f"{name} had {was.n_rows:,} rows and has {is_now.n_rows:,}")
        elif was.digest != is_now.digest and not has_same_texts:
            changes.append(f"{name} has other contents")
    if changes:
        raise _files_changed("; ".join(sorted(changes)))


_WILDCARDS = frozenset("*?[")
_TEXT_TYPES = {"string", "large_string", "string_view"}  # of pyarrow


def _folder_of(path: str) -> Path:
    """Return the folder to which the names of files are relative."""
    if os.path.isdir(path):  # noqa: PTH112 - no error for a name that is too long
        return Path(path)
    return next(
        folder
        for folder in Path(path).parents
        if folder.is_dir() or _WILDCARDS.isdisjoint(str(folder))
    )


def _find_files(path: str, folder: Path, rows: object) -> list[Path]:
    paths: list[Path] = []
    # too long a name, or `**` next to other characters, raises: no file has that name
    with suppress(OSError, ValueError):
        if Path(path).is_file():
            paths = [Path(path)]
        elif Path(path).is_dir():
            paths = [file for file in folder.iterdir() if _is_file_name(file)]
        else:
            paths = [*folder.glob(str(Path(path).relative_to(folder)))]
    paths = [file for file in paths if not file.name.startswith((".", "_"))]
    if not paths:
        raise ParameterError(
            f"There is no Parquet file at {str(rows)!r}. Give a file, a folder that "
            "has some, or a pattern such as 'folder/*.parquet'.",
            param="rows",
        )
    return sorted(paths)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=8)).hexdigest()
    except FileNotFoundError:
        raise _moved(path) from None
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _difference(schema: Any, expected: Any) -> str:  # noqa: ANN401 - pyarrow's
    """Say where two schemas differ first; "" if they are equal."""
    for now, was in zip_longest(schema, expected):
        if now is None or was is None:
            side = "first" if now is not None else "second"
            return f"only the {side} has {(now or was).name!r}"
        if now.name != was.name:
            return f"{now.name!r} comes where the second has {was.name!r}"
        if now.type != was.type:
            return f"{now.name!r} is {now.type} in the first, {was.type} in the second"
    return ""


def _nullable(kind: Any) -> Any:  # noqa: ANN401 - a type of pyarrow, and a dtype
    """Return the nullable dtype of integers or flags; None for other types."""
    import pandas as pd  # noqa: PLC0415 - where a frame is asked for

    text = str(kind)
    if text == "bool":
        return pd.BooleanDtype()
    if not text.removeprefix("u").startswith("int"):
        return None
    # int64 becomes Int64, uint64 becomes UInt64
    return pd.api.types.pandas_dtype(text.replace("int", "Int").replace("u", "U"))


def _unreadable(path: Path, problem: Exception) -> ParameterError:
    reason = getattr(problem, "strerror", None) or str(problem) or "it has fewer rows"
    return ParameterError(
        f"{path} cannot be read as Parquet: {reason.splitlines()[0].rstrip('.')}. "
        "Give Parquet files that this kernel can read.",
        param="rows",
    )


def _moved(path: Path) -> ParameterError:
    return _files_changed(f"{path.name} was moved or deleted since it was read")


def _files_changed(change: str) -> ParameterError:
    return ParameterError(
        f"The files of the rows have changed: {change}. Rows are identified by their "
        "positions, so nothing more was sent. Restore the files, or plan the sweep "
        "under another name.",
        param="rows",
    )

"""Frames as Parquet, CSV, Excel and JSON lines; a file is written whole or not at all.

In CSV and Excel no text is a formula, and a warning names texts that a cell cannot
hold.
"""

import csv
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Hashable, Iterator
from datetime import date, datetime, time, timedelta
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pandas as pd

from svc_notebook.errors import (
    ParameterError,
    SvcError,
    import_extra,
    internal_error,
    warn,
)
from svc_notebook.service.params import check_text
from svc_notebook.settings import to_path

from .frame_interchange import (
    as_json,
    check_names,
    from_json,
    to_pandas,
    with_index,
)


def export(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame into a file whose suffix is the format: see `svc.export`."""
    frame = to_pandas(frame)
    if not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            f"export takes a DataFrame such as svc.replies_df(), not "
            f"{type(frame).__name__}.",
            param="frame",
        )
    is_path = isinstance(path, (str, PathLike))
    suffix = Path(path).suffix.lower() if is_path else ""
    write = _WRITERS.get(suffix)
    if write is None:
        raise ParameterError(
            f"{str(path)!r} does not name a format; end it with one of "
            f"{', '.join(_WRITERS)}.",
            param="path",
        )
    shown = frame if suffix == ".parquet" else with_index(frame)
    check_names(shown)

    def written(file: Path) -> None:
        try:
            write(shown, file)
        except (RuntimeError, TypeError, ValueError):
            _check_texts(shown)
            raise

    return write_whole(path, written)


def _check_texts(frame: pd.DataFrame) -> None:
    """Refuse the first text that no file can hold."""
    for at, name in enumerate(frame.columns):
        check_text(str(name), param="frame", name=f"The column {str(name)!r}")
        for label, value in zip(frame.index, frame.iloc[:, at], strict=True):
            where = f"{name} of row {label!r}"
            try:
                msgspec.json.encode(value, enc_hook=str)
            except UnicodeEncodeError as problem:
                check_text(str(problem.object), param="frame", name=where)
            except (TypeError, ValueError, RecursionError):
                continue


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a Parquet file of `export`, or of pandas itself: see `svc.read_parquet`."""
    import_extra("pyarrow", "Parquet files need")
    path = to_path("path", path)
    try:
        frame = pd.read_parquet(Path(path).expanduser(), engine="pyarrow")
    except FileNotFoundError:  # pyarrow's, whose text is the path alone
        reason = "there is no such file"
    except (OSError, RuntimeError, TypeError, ValueError) as problem:  # pyarrow's too
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        reason = reason.rstrip(".")
    else:
        return _unfolded(_with_arrow(frame, Path(path).expanduser()))
    raise ParameterError(
        f"{str(path)!r} cannot be read: {reason}. Name a Parquet file, such as one "
        "that svc.export wrote.",
        param="path",
    )


def write_whole(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Write a file under another name, and rename it when it is complete.

    `write` writes the file that it is given. `~` in `path` is the user's home.
    """
    path = to_path("path", path)
    try:
        place = Path(path).expanduser()
        part = place.with_name(f".{place.name}.{uuid4().hex[:8]}.part")
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            _write(part, write)
            if place.exists():
                part.chmod(place.stat().st_mode & 0o777)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    # There may be no home, and a name may have a NUL.
    except (OSError, RuntimeError, ValueError) as problem:
        if isinstance(problem, SvcError):
            raise
        reason = getattr(problem, "strerror", None) or str(problem)
    else:
        return place
    raise ParameterError(
        f"{str(path)!r} cannot be written: {reason}. Nothing was changed. Name a file "
        "in a folder that exists and that you can write to.",
        param="path",
    )


def _write(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file; what fails for another reason than the file is not its place."""
    try:
        write(file)
    except (OSError, SvcError):
        raise
    except Exception as problem:
        raise internal_error(problem, "Nothing was changed.") from problem


# Parquet


def _to_parquet(frame: pd.DataFrame, file: Path) -> None:
    arrow = import_extra("pyarrow", "Parquet files need")
    try:
        folded = _folded(frame)
        schema = None
        if names := folded.attrs.get(_ARROW_NAMES):
            schema = arrow.Schema.from_pandas(folded)
            folded = folded.astype(dict.fromkeys(names, object))
        folded.to_parquet(file, engine="pyarrow", schema=schema)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        _check_kinds(frame)
        raise


_JSON_NAMES = "svc_notebook.json"
"""The frame attribute that lists the columns of JSON text."""
_ARROW_NAMES = "svc_notebook.arrow"
"""The attribute for columns of Arrow's types whose names pandas cannot read back."""


def _folded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with lists and dicts as JSON text, which Parquet can hold."""
    shown, names = frame.copy(deep=False), []
    if isinstance(frame.columns, pd.CategoricalIndex):  # pandas cannot read these back
        shown.columns = frame.columns.astype(frame.columns.categories.dtype)
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        text = as_json(column) if column.dtype == object else None
        if text is not None:
            shown.isetitem(at, text.array)
            names.append(str(name))
    of_arrow = [str(name) for name, dtype in frame.dtypes.items() if _is_unnamed(dtype)]
    lists = {_JSON_NAMES: names, _ARROW_NAMES: of_arrow}
    added: dict[Hashable, Any] = {
        name: listed for name, listed in lists.items() if listed
    }
    shown.attrs = {**frame.attrs, **added} if added else frame.attrs
    return shown


def _is_unnamed(dtype: object) -> bool:
    """Say whether pandas cannot read the name of a dtype, such as a list of Arrow's."""
    if not isinstance(dtype, pd.ArrowDtype):
        return False
    try:
        pd.api.types.pandas_dtype(str(dtype))
    except (TypeError, ValueError, NotImplementedError):
        return True
    return False


def _with_arrow(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Give columns the types of Arrow that they had when they were written."""
    names = frame.attrs.pop(_ARROW_NAMES, ())
    if names and set(names) <= {*frame.columns}:
        parquet = import_extra("pyarrow.parquet", "Parquet files need")
        table = parquet.read_table(path, columns=names)
        for name in names:
            column = table.column(name)
            array = pd.arrays.ArrowExtensionArray(column)
            frame[name] = pd.Series(array, index=frame.index)
    return frame


def _unfolded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame as it was before `_folded`."""
    names = frame.attrs.pop(_JSON_NAMES, ())
    for name in names if isinstance(names, list) else ():
        if name in frame:
            values = [from_json(text) for text in frame[name]]
            frame[name] = pd.Series(values, index=frame.index, dtype=object)
    return frame


def _check_kinds(frame: pd.DataFrame) -> None:
    """Refuse the first column that a Parquet file cannot hold."""
    to_arrow = import_module("pyarrow").array
    for name in frame:
        column = frame[name]
        try:
            to_arrow(column, from_pandas=True)
            continue
        except (RuntimeError, TypeError, ValueError, OverflowError):
            kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise ParameterError(
            f"Column {str(name)!r} holds {', '.join(kinds)}, but all values of a "
            f"column in a Parquet file have one type. Make it text with "
            f"frame[{name!r}].map(str), or name a file that ends with .jsonl.",
            param="frame",
        )


# CSV and JSON lines


def _to_csv(frame: pd.DataFrame, file: Path) -> None:
    """Write CSV: UTF-8 with a byte order mark, so that Excel shows Thai."""
    _warn_of_cuts(frame, "a spreadsheet will cut them; the file has them in full")
    with file.open("w", encoding="utf-8-sig", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\r\n")
        writer.writerow([_neutralised(str(name)) for name in frame.columns])
        for row in _rows(frame):
            writer.writerow([_neutralised(_shown(value)) for value in row])


def _neutralised(value: Any) -> Any:  # noqa: ANN401 - what a spreadsheet takes
    """Put a quote in front of a text that a spreadsheet might take for a formula."""
    return "'" + value if isinstance(value, str) and _is_formula(value) else value


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)


def _is_formula(text: str) -> bool:
    """Return whether a spreadsheet might take a text for a formula or a command."""
    if not text or _NUMBER.fullmatch(text):
        return False
    if text[0] in "\t\r\n":
        return True
    first = next((letter for letter in text if not _is_invisible(letter)), "")
    # full-width signs are those of ASCII in another form
    return unicodedata.normalize("NFKC", first)[:1] in tuple("=+-@")


def _is_invisible(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) in {"Cc", "Cf"}


def _to_jsonl(frame: pd.DataFrame, file: Path) -> None:
    """Write one object per row, with unchanged values."""
    names = [str(name) for name in frame.columns]
    with file.open("wb") as opened:
        for row in _rows(frame):
            line = dict(zip(names, row, strict=True))
            opened.write(msgspec.json.encode(line, enc_hook=str) + b"\n")


def _rows(frame: pd.DataFrame) -> Iterator[list[Any]]:
    """Return the rows as plain values; None is a missing one."""
    columns = [
        frame.iloc[:, at].astype(object).where(frame.iloc[:, at].notna(), None)
        for at in range(frame.shape[1])
    ]
    for row in zip(*columns, strict=True):
        yield [_plain(value) for value in row]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()  # of numpy, one value or many
    return value


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    """Return a value for a spreadsheet: lists and dicts as JSON, others as text."""
    if isinstance(value, (list, dict, tuple)):
        try:
            return msgspec.json.encode(value, enc_hook=str).decode()
        except (TypeError, ValueError, RecursionError):  # keys that JSON cannot hold
            return str(value)
    is_plain = isinstance(value, (str, bool, int, float, date, time, timedelta))
    return value if value is None or is_plain else str(value)


# Excel

_MAX_CELL_BYTES = 2 * 32_767  # of UTF-16, in Excel and others
_SAFE_INTEGER = 2**53  # a spreadsheet's numbers are floats
_FIRST_YEAR = 1900  # of a workbook's calendar
_MAX_ROWS = 1_048_576  # of a sheet, with the names of the columns
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ESCAPES = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def _to_excel(frame: pd.DataFrame, file: Path) -> None:
    if len(frame) >= _MAX_ROWS:
        raise ParameterError(
            f"The frame has {len(frame):,} rows, and a sheet of Excel takes "
            f"{_MAX_ROWS - 1:,} below the names. Write a part of it, or name a file "
            "that ends with .parquet, .csv or .jsonl.",
            param="frame",
        )
    openpyxl = import_extra("openpyxl", "Excel workbooks need")
    _check_texts(frame)  # openpyxl writes half a surrogate pair into a broken file
    _warn_of_cuts(frame, "they were cut; Parquet, CSV and JSON lines keep them whole")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("svc")
    cell_of = import_module("openpyxl.cell").WriteOnlyCell
    for row in ([str(name) for name in frame.columns], *_rows(frame)):
        sheet.append([_to_cell(sheet, cell_of, value) for value in row])
    book.save(file)


def _to_cell(sheet: Any, cell_of: Any, value: Any) -> Any:  # noqa: ANN401 - openpyxl's
    is_too_much = _is_beyond_a_cell(value)
    if isinstance(value, datetime) and not is_too_much:
        # in UTC, since a workbook has no time zones
        zone_free = value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
        cell = cell_of(sheet, zone_free)
        cell.number_format = "yyyy-mm-dd hh:mm:ss"
        return cell
    value = str(value) if is_too_much else _shown(value)
    if not isinstance(value, str):
        return cell_of(sheet, value)
    cell = cell_of(sheet, _for_xml(_cut(value)))
    cell.data_type = "s"  # openpyxl takes what begins with = for a formula
    if _is_formula(value):
        cell.quotePrefix = True  # it remains a text when it is edited
    return cell


def _is_beyond_a_cell(value: Any) -> bool:  # noqa: ANN401 - whatever a frame holds
    """Return whether a cell would change a value, so that it is written as text."""
    if isinstance(value, date):
        return value.year < _FIRST_YEAR
    if isinstance(value, int):
        return abs(value) > _SAFE_INTEGER
    return isinstance(value, float) and not abs(value) <= sys.float_info.max


def _cut(text: str) -> str:
    """Return the part of a text that a cell can hold, in whole characters."""
    if len(text) <= _MAX_CELL_BYTES // 4:
        return text
    start = text.encode("utf-16-le", "replace")[:_MAX_CELL_BYTES]
    return start.decode("utf-16-le", "ignore")


def _for_xml(text: str) -> str:
    """Return a text with `_xHHHH_` for characters that XML cannot hold.

    Spreadsheets decode this, so a text that already looks like it is escaped. XML
    would turn a carriage return into a line feed.
    """
    text = _ESCAPES.sub("_x005F_", text)
    text = _CONTROLS.sub(lambda control: f"_x{ord(control[0]):04X}_", text)
    return text.replace("\r", "_x000D_")


def _warn_of_cuts(frame: pd.DataFrame, what: str) -> None:
    is_text = pd.api.types.is_string_dtype  # also for columns of objects
    long = {
        str(name): n
        for name, column in frame.items()
        if is_text(column.dtype)
        and (n := sum(isinstance(cell, str) and _cut(cell) != cell for cell in column))
    }
    if long:
        columns = ", ".join(f"{name} ({n})" for name, n in long.items())
        warn(
            f"Texts too long for a spreadsheet's cell in {columns}: {what}.",
            UserWarning,
        )


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".parquet": _to_parquet,
    ".csv": _to_csv,
    ".jsonl": _to_jsonl,
    ".xlsx": _to_excel,
}

"""Frames as Parquet, CSV, Excel and JSON lines; a file is written whole or not at all.

In CSV and Excel no text becomes a formula, and a warning counts the texts that are too
long for a cell.
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

from svc_notebook.display.terminal_width import width
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
    replies_of,
    to_pandas,
    with_index,
)


def export(frame: Any, path: str | Path) -> Path:  # noqa: ANN401 - or a run
    """Write a frame into a file whose suffix is the format: see `svc.export`."""
    frame = to_pandas(replies_of(frame))
    if not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            "export takes a DataFrame such as svc.replies_df(), or a run, not "
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

    def write_checked(file: Path) -> None:
        try:
            write(shown, file)
        except (RuntimeError, TypeError, ValueError):
            _check_texts(shown)  # its error names the row
            raise

    return write_whole(path, write_checked)


def _check_texts(frame: pd.DataFrame) -> None:
    """Refuse the first text that no file can hold."""
    for position, name in enumerate(frame.columns):
        check_text(str(name), param="frame", name=f"The column {str(name)!r}")
        for label, value in zip(frame.index, frame.iloc[:, position], strict=True):
            where = f"{name} of row {label!r}"
            try:
                msgspec.json.encode(value, enc_hook=str)
            except UnicodeEncodeError as problem:
                check_text(str(problem.object), param="frame", name=where)
            except (TypeError, ValueError, RecursionError):
                continue


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a Parquet file that `export` or pandas wrote: see `svc.read_parquet`."""
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
        return _from_json_columns(_with_arrow(frame, Path(path).expanduser()))
    raise ParameterError(
        f"{str(path)!r} cannot be read: {reason}. Name a Parquet file, such as one "
        "that svc.export wrote.",
        param="path",
    )


def write_whole(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Write a file under another name, and rename it when it is complete.

    `write` is called with the path of the file to write. `~` in `path` is the user's
    home.
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
    # RuntimeError: there is no home folder; ValueError: the name has a NUL
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
    """Write a file; an error that is not about the file is an internal error."""
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
        encoded = _with_json_columns(frame)
        schema = None
        # pandas would write a type that it cannot read: state it as Arrow's
        if names := encoded.attrs.get(_ARROW_NAMES):
            schema = arrow.Schema.from_pandas(encoded)
            encoded = encoded.astype(dict.fromkeys(names, object))
        encoded.to_parquet(file, engine="pyarrow", schema=schema)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        _check_kinds(frame)
        raise


_JSON_NAMES = "svc_notebook.json"
"""The attribute of a frame that lists its columns of JSON text."""
_ARROW_NAMES = "svc_notebook.arrow"
"""The attribute that lists columns whose Arrow types pandas cannot read back."""


def _with_json_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with lists and dicts as JSON text, which Parquet can hold."""
    encoded, json_names = frame.copy(deep=False), []
    if isinstance(frame.columns, pd.CategoricalIndex):  # pandas cannot read these back
        encoded.columns = frame.columns.astype(frame.columns.categories.dtype)
    for position, name in enumerate(frame.columns):
        column = frame.iloc[:, position]
        text = as_json(column) if column.dtype == object else None
        if text is not None:
            encoded.isetitem(position, text.array)
            json_names.append(str(name))
    arrow_names = [
        str(name) for name, dtype in frame.dtypes.items() if _is_unnamed(dtype)
    ]
    lists = {_JSON_NAMES: json_names, _ARROW_NAMES: arrow_names}
    added: dict[Hashable, Any] = {name: names for name, names in lists.items() if names}
    encoded.attrs = {**frame.attrs, **added} if added else frame.attrs
    return encoded


def _is_unnamed(dtype: object) -> bool:
    """Return whether pandas cannot read a dtype by its name, such as Arrow's lists."""
    if not isinstance(dtype, pd.ArrowDtype):
        return False
    try:
        pd.api.types.pandas_dtype(str(dtype))
    except (TypeError, ValueError, NotImplementedError):
        return True
    return False


def _with_arrow(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Give columns back the Arrow types that they had when they were written."""
    names = frame.attrs.pop(_ARROW_NAMES, ())
    if names and set(names) <= {*frame.columns}:
        parquet = import_extra("pyarrow.parquet", "Parquet files need")
        table = parquet.read_table(path, columns=names)
        for name in names:
            column = table.column(name)
            array = pd.arrays.ArrowExtensionArray(column)
            frame[name] = pd.Series(array, index=frame.index)
    return frame


def _from_json_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Undo `_with_json_columns`."""
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
        writer.writerow([_quote_formula(str(name)) for name in frame.columns])
        for row in _rows(frame):
            writer.writerow([_quote_formula(_cell_value(value)) for value in row])


def _quote_formula(value: Any) -> Any:  # noqa: ANN401 - what a spreadsheet takes
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
    """Return the rows with plain Python values; None is a missing value."""
    columns = [
        column.astype(object).where(column.notna(), None)
        for column in (frame.iloc[:, position] for position in range(frame.shape[1]))
    ]
    for row in zip(*columns, strict=True):
        yield [_plain_value(value) for value in row]


def _plain_value(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()  # a scalar or an array of numpy
    return value


def _cell_value(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    """Return a value as a spreadsheet can hold it: lists and dicts as JSON text."""
    if isinstance(value, (list, dict, tuple)):
        try:
            return msgspec.json.encode(value, enc_hook=str).decode()
        except (TypeError, ValueError, RecursionError):  # keys that JSON cannot hold
            return str(value)
    is_plain = isinstance(value, (str, bool, int, float, date, time, timedelta))
    return value if value is None or is_plain else str(value)


# Excel

_MAX_CELL_BYTES = 2 * 32_767  # as UTF-16, in Excel and other spreadsheets
_SAFE_INTEGER = 2**53  # a spreadsheet's numbers are floats, exact up to here
_FIRST_YEAR = 1900  # a workbook's calendar begins here
_MAX_ROWS = 1_048_576  # of a sheet, including the header
# characters that XML 1.0 cannot hold
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# what Excel would decode as an escaped character
_ESCAPES = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def _to_excel(frame: pd.DataFrame, file: Path) -> None:
    if len(frame) >= _MAX_ROWS:
        raise ParameterError(
            f"The frame has {len(frame):,} rows, and a sheet of Excel takes "
            f"{_MAX_ROWS - 1:,} below its header. Write a part of the frame, or name a "
            "file that ends with .parquet, .csv or .jsonl.",
            param="frame",
        )
    openpyxl = import_extra("openpyxl", "Excel workbooks need")
    _check_texts(frame)  # openpyxl writes half a surrogate pair into a broken file
    _warn_of_cuts(frame, "they were cut; Parquet, CSV and JSON lines keep them whole")
    styles = import_module("openpyxl.styles")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("svc")
    cell_of = import_module("openpyxl.cell").WriteOnlyCell
    rows = [[str(name) for name in frame.columns], *_rows(frame)]
    _lay_out(sheet, rows)
    bold = styles.Font(bold=True)
    top = styles.Alignment(vertical="top", wrap_text=True)
    for number, row in enumerate(rows):
        cells = [_to_cell(sheet, cell_of, value) for value in row]
        for cell in cells:
            if number == 0:
                cell.font = bold
            elif cell.value is not None:
                cell.alignment = top
        sheet.append(cells)
    book.save(file)


_WIDTHS = (8, 60)
"""The least and the most characters that a column is wide."""
_MEASURED_ROWS = 1_000
_MEASURED_CHARS = 500  # of a text


def _lay_out(sheet: Any, rows: list[list[Any]]) -> None:  # noqa: ANN401 - openpyxl's
    """Make columns as wide as what they hold, and keep the heading in sight."""
    letter_of = import_module("openpyxl.utils").get_column_letter
    least, most = _WIDTHS
    for number, values in enumerate(zip(*rows[:_MEASURED_ROWS], strict=True), 1):
        filled = max(_width(value) for value in values)
        heading = _width(values[0]) + 3  # a button of the filter stands on it
        column = sheet.column_dimensions[letter_of(number)]
        column.width = min(max(least, filled + 2, heading), most)
    sheet.freeze_panes = "A2"
    if rows[0]:
        sheet.auto_filter.ref = f"A1:{letter_of(len(rows[0]))}{len(rows)}"


def _width(value: Any) -> int:  # noqa: ANN401 - whatever a frame holds
    """Return the width of a value's longest line, in characters."""
    if isinstance(value, datetime):
        return len("2026-01-01 00:00:00")
    text = "" if value is None else str(_cell_value(value))
    lines = text[:_MEASURED_CHARS].split("\n")
    return max(len(line) if line.isascii() else width(line) for line in lines)


def _to_cell(sheet: Any, cell_of: Any, value: Any) -> Any:  # noqa: ANN401 - openpyxl's
    is_changed = _is_changed_by_cell(value)
    if isinstance(value, datetime) and not is_changed:
        # a workbook has no time zones: its instants are in UTC
        in_utc = value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
        cell = cell_of(sheet, in_utc)
        cell.number_format = "yyyy-mm-dd hh:mm:ss"
        return cell
    value = str(value) if is_changed else _cell_value(value)
    if not isinstance(value, str):
        return cell_of(sheet, value)
    cell = cell_of(sheet, _for_xml(_cut_to_cell(value)))
    cell.data_type = "s"  # openpyxl takes what begins with = for a formula
    if _is_formula(value):
        cell.quotePrefix = True  # so that it stays a text when a user edits it
    return cell


def _is_changed_by_cell(value: Any) -> bool:  # noqa: ANN401 - whatever a frame holds
    """Return whether a cell would change a value, which is then written as text."""
    if isinstance(value, date):
        return value.year < _FIRST_YEAR
    if isinstance(value, int):
        return abs(value) > _SAFE_INTEGER
    return isinstance(value, float) and not abs(value) <= sys.float_info.max


def _cut_to_cell(text: str) -> str:
    """Return the part of a text that a cell can hold, in whole characters."""
    if len(text) <= _MAX_CELL_BYTES // 4:  # a character takes at most 4 bytes
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


def _warn_of_cuts(frame: pd.DataFrame, consequence: str) -> None:
    """Warn of texts that are too long for a cell, with their number per column."""
    is_text = pd.api.types.is_string_dtype  # also for columns of objects
    long = {
        str(name): n
        for name, column in frame.items()
        if is_text(column.dtype)
        and (
            n := sum(
                isinstance(cell, str) and _cut_to_cell(cell) != cell for cell in column
            )
        )
    }
    if long:
        columns = ", ".join(f"{name} ({n})" for name, n in long.items())
        warn(
            f"Texts too long for a spreadsheet's cell in {columns}: {consequence}.",
            UserWarning,
        )


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".parquet": _to_parquet,
    ".csv": _to_csv,
    ".jsonl": _to_jsonl,
    ".xlsx": _to_excel,
}

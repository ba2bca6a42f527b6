"""Frames as files: Parquet to read back, CSV and Excel to look at, JSON lines.

Loads pandas. Rules: Parquet comes back identical, dtypes included; in CSV and Excel
no text is a formula, Thai and line ends stay, and a cell that a spreadsheet would
cut is warned about; JSON lines hold every value as it is, since nothing evaluates
them; a file is written whole or not at all; a missing package is named.
"""

import csv
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import msgspec
import pandas as pd

from svc_notebook.errors import ConfigError, ParameterError, SvcError

from .groups import USAGE
from .reply_columns import REPLIES

MAX_CELL_CHARS = 32_767  # of Excel and its kin, in UTF-16 units
_SIGNS = "=+-@"
_BREAKS = "\t\r\n"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ESCAPES = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def neutralised(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: a quote in front."""
    return "'" + text if is_formula(text) else text


def is_formula(text: str) -> bool:
    """Say whether a spreadsheet might take a text for a formula or a command."""
    if not text or _NUMBER.fullmatch(text):
        return False
    if text[0] in _BREAKS:
        return True
    first = next((letter for letter in text if not _is_blank(letter)), "")
    # full-width signs are those of ASCII in another form
    return unicodedata.normalize("NFKC", first)[:1] in tuple(_SIGNS)


def _is_blank(letter: str) -> bool:
    """Say whether a reader sees nothing: blanks, controls, joiners, marks of order."""
    return letter.isspace() or unicodedata.category(letter) in {"Cc", "Cf"}


def is_cut(text: str) -> bool:
    """Say whether a text is longer than a spreadsheet's cell can hold."""
    return len(text) > MAX_CELL_CHARS // 2 and n_units(text) > MAX_CELL_CHARS


def n_units(text: str) -> int:
    """Return how long a text is as a spreadsheet counts."""
    return len(text.encode("utf-16-le", "replace")) // 2


def cut(text: str) -> str:
    """Return what a cell can hold of a text, no character halved."""
    kept = text.encode("utf-16-le", "replace")[: MAX_CELL_CHARS * 2]
    return kept.decode("utf-16-le", "ignore")


def for_xml(text: str) -> str:
    """Return a text for a workbook: what XML cannot carry as `_xHHHH_`.

    Spreadsheets turn it back; so what already looks like it is written so that it
    stays. A carriage return is written so too, since XML would make it a line feed.
    """
    text = _ESCAPES.sub("_x005F_", text)
    text = _CONTROLS.sub(lambda found: f"_x{ord(found[0]):04X}_", text)
    return text.replace("\r", "_x000D_")


_NAMES = "svc_notebook.json"
"""Where a file says which columns are JSON text."""


def folded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame that Parquet holds whole; `unfolded` makes it the same again."""
    texts: dict[int, Any] = {}
    for at in range(frame.shape[1]):
        column = frame.iloc[:, at]
        text = _as_json(column) if column.dtype == object else None
        if text is not None:
            texts[at] = text
    if not texts:
        return frame
    shown = frame.copy(deep=False)
    for at, text in texts.items():
        shown.isetitem(at, text)
    shown.attrs = {**frame.attrs, _NAMES: [str(frame.columns[at]) for at in texts]}
    return shown


def unfolded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame that was folded."""
    found = frame.attrs.pop(_NAMES, ())
    for name in found if isinstance(found, list) else ():
        if name in frame:
            values = [_from_json(text) for text in frame[name]]
            frame[name] = pd.Series(values, index=frame.index, dtype=object)
    return frame


def refuse_unfit(frame: pd.DataFrame) -> None:
    """Say which column no Parquet file can hold; nothing if all of them can go in.

    Raises:
        ParameterError: It names the column, and what to do.
    """
    to_arrow = import_module("pyarrow").array
    for name in frame:
        column = frame[name]
        try:
            to_arrow(column, from_pandas=True)
            continue
        except (RuntimeError, TypeError, ValueError, OverflowError):
            kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise ParameterError(
            f"Column {str(name)!r} cannot go into a Parquet file, which takes one kind "
            f"of value a column; it holds {', '.join(kinds)}. Make it text first, with "
            f"frame[{name!r}].map(str), or name a file that ends with .jsonl.",
            param="frame",
        )


def _as_json(column: pd.Series) -> pd.Series | None:
    """Return JSON texts; None if there is nothing nested, or JSON would change it."""
    values = list(column.where(column.notna(), None))
    if not any(isinstance(value, (list, dict)) for value in values):
        return None
    try:
        texts = [None if v is None else msgspec.json.encode(v).decode() for v in values]
        is_same = [_from_json(text) for text in texts] == values
    except (TypeError, ValueError, RecursionError):
        return None
    return pd.Series(texts, index=column.index, dtype="string") if is_same else None


def _from_json(text: Any) -> Any:  # noqa: ANN401 - what JSON holds
    return msgspec.json.decode(text) if isinstance(text, str) else None


def write_whole(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Have a file written, and put it in its place when it is complete.

    Args:
        path: Its place; `~` is the user's home.
        write: Writes the file that it is given.

    Returns:
        The place.

    Raises:
        ParameterError: The file cannot be written.
    """
    try:
        place = Path(path).expanduser()
        part = place.with_name(f".{place.name}.{uuid4().hex[:8]}.part")
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            write(part)
            if place.exists():
                part.chmod(place.stat().st_mode & 0o777)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except SvcError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    else:
        return place
    raise ParameterError(
        f"{str(path)!r} cannot be written: {reason}. What was there is as it was; name "
        "a file in a folder that exists and that you can write.",
        param="path",
    )


_KINDS: dict[str, Any] = {
    **{column.name: column.dtype for column in REPLIES},
    **{column.name: column.dtype for column in USAGE},
}
_SAFE_INTEGER = 2**53
"""A spreadsheet's numbers are floats: a larger integer is written as text."""

_FIRST_YEAR = 1900
"""A workbook has no earlier days: one is written as text."""

_NO_TIME = timedelta(0)
_OF_A_CELL = (str, bool, int, float, date, time, timedelta)


def to_parquet(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame into a Parquet file; `read_parquet` gives it back identical.

    Lists and dicts go in as JSON text, which other readers see.

    Args:
        frame: Such as `svc.replies_df()`.
        path: The file; replaced if there is one.

    Raises:
        ConfigError: pyarrow is not installed.
        ParameterError: The file cannot be written, or a column holds what Parquet
            cannot.
    """
    _needed("pyarrow", "Parquet files")

    def write(file: Path) -> None:
        try:
            folded(frame).to_parquet(file, engine="pyarrow")
        except (RuntimeError, TypeError, ValueError, OverflowError):
            refuse_unfit(frame)
            raise

    return write_whole(path, write)


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a frame that was written by `to_parquet`, or by pandas itself.

    Args:
        path: The file.

    Returns:
        The frame; columns of ours have the dtypes of `describe()`.

    Raises:
        ConfigError: pyarrow is not installed.
        ParameterError: The file cannot be read.
    """
    _needed("pyarrow", "Parquet files")
    try:
        place = Path(path).expanduser()
        frame = pd.read_parquet(place, engine="pyarrow")
    except (OSError, RuntimeError, TypeError, ValueError) as problem:  # pyarrow's too
        reason = getattr(problem, "strerror", None) or str(problem)
    else:
        return unfolded(frame.astype(_dtypes(frame)))
    raise ParameterError(
        f"{str(path)!r} cannot be read: {reason}. Name a Parquet file, such as "
        "svc.export wrote.",
        param="path",
    )


def to_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame into a CSV file that a spreadsheet opens rightly.

    UTF-8 with a mark in front, so that Thai is Thai in Excel too. A text that looks
    like a formula gets a quote (') in front; numbers are left alone.

    Args:
        frame: Such as `svc.replies_df()`.
        path: The file; replaced if there is one.

    Warns:
        UserWarning: A text is longer than a spreadsheet's cell; the file has it all.

    Raises:
        ParameterError: The file cannot be written.
    """
    _warn_of_cuts(frame, "a spreadsheet will cut it; the file holds it whole")

    def write(file: Path) -> None:
        with file.open("w", encoding="utf-8-sig", newline="") as opened:
            writer = csv.writer(opened, lineterminator="\r\n")
            writer.writerow([neutralised(str(name)) for name in frame.columns])
            writer.writerows(map(_as_texts, _rows(frame)))

    return write_whole(path, write)


def to_jsonl(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame as JSON lines: an object a row, every value as it is.

    Args:
        frame: Such as `svc.replies_df()`.
        path: The file; replaced if there is one.

    Raises:
        ParameterError: The file cannot be written.
    """
    names = [str(name) for name in frame.columns]

    def write(file: Path) -> None:
        with file.open("wb") as opened:
            for row in _rows(frame):
                line = dict(zip(names, row, strict=True))
                opened.write(msgspec.json.encode(line, enc_hook=str) + b"\n")

    return write_whole(path, write)


def to_excel(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame into an Excel workbook, texts as texts.

    Instants are written in UTC, since a workbook knows no zones.

    Args:
        frame: Such as `svc.replies_df()`.
        path: The file; replaced if there is one.

    Warns:
        UserWarning: A text is longer than a cell and was cut; Parquet, CSV and JSON
            lines hold it whole.

    Raises:
        ConfigError: openpyxl is not installed.
        ParameterError: The file cannot be written.
    """
    openpyxl = _needed("openpyxl", "Excel workbooks")
    _warn_of_cuts(frame, "it was cut; Parquet, CSV and JSON lines hold it whole")

    def write(file: Path) -> None:
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("svc")
        cell_of = import_module("openpyxl.cell").WriteOnlyCell
        for row in ([str(name) for name in frame.columns], *_rows(frame)):
            sheet.append([_to_cell(sheet, cell_of, value) for value in row])
        book.save(file)

    return write_whole(path, write)


_WRITERS: dict[str, Callable[[pd.DataFrame, str | Path], Path]] = {
    ".parquet": to_parquet,
    ".csv": to_csv,
    ".jsonl": to_jsonl,
    ".xlsx": to_excel,
}


def export(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame into a file of the kind that its name says.

    Args:
        frame: Such as `svc.replies_df()`.
        path: Ends with .parquet, .csv, .jsonl or .xlsx; replaced if there is one.

    Returns:
        The file.

    Raises:
        ConfigError: A package is missing; the message names the command.
        ParameterError: The name says no kind, or the file cannot be written.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            f"What is to be exported is no DataFrame but {type(frame).__name__}; give "
            "one such as svc.replies_df().",
            param="frame",
        )
    is_path = isinstance(path, (str, PathLike))
    write = _WRITERS.get(Path(path).suffix.lower()) if is_path else None
    if write is None:
        raise ParameterError(
            f"{str(path)!r} names no kind of file; end it with one of "
            f"{', '.join(_WRITERS)}.",
            param="path",
        )
    return write(frame, path)


def _needed(package: str, what: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError:
        pass  # the error below says it, without a foreign one behind it
    raise ConfigError(
        f"{what} need {package}, which is not installed. Install it with: "
        "python -m pip install 'svc-notebook[files]'"
    )


def _dtypes(frame: pd.DataFrame) -> dict[Any, Any]:
    """Return the dtypes to give a frame that pandas read."""
    found: dict[Any, Any] = {}
    for name, dtype in frame.dtypes.items():
        if name in _KINDS:
            found[name] = _KINDS[name]
        elif isinstance(dtype, pd.StringDtype):
            found[name] = "string"
    return found


def _rows(frame: pd.DataFrame) -> Iterator[list[Any]]:
    """Return the rows as plain values; what is missing is None."""
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


def _as_texts(row: list[Any]) -> list[Any]:
    shown = map(_shown, row)
    return [neutralised(each) if isinstance(each, str) else each for each in shown]


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    """Return what a spreadsheet takes; lists and dicts as JSON, others as text."""
    if isinstance(value, (list, dict, tuple)):
        return _to_json(value)
    return value if value is None or isinstance(value, _OF_A_CELL) else str(value)


def _to_json(value: Any) -> str:  # noqa: ANN401 - whatever a frame holds
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):  # keys that JSON cannot hold
        return str(value)


def _to_cell(sheet: Any, cell_of: Any, value: Any) -> Any:  # noqa: ANN401 - openpyxl's
    if isinstance(value, datetime) and not _is_beyond_a_cell(value):
        zone_free = value.replace(tzinfo=None) - (value.utcoffset() or _NO_TIME)
        cell = cell_of(sheet, zone_free)
        cell.number_format = "yyyy-mm-dd hh:mm:ss"
        return cell
    value = _shown(value)
    if _is_beyond_a_cell(value):
        value = str(value)
    if not isinstance(value, str):
        return cell_of(sheet, value)
    cell = cell_of(sheet, for_xml(cut(value)))
    cell.data_type = "s"  # openpyxl takes what begins with = for a formula
    if is_formula(value):
        cell.quotePrefix = True  # so that it stays a text when it is edited
    return cell


def _is_beyond_a_cell(value: Any) -> bool:  # noqa: ANN401 - whatever a frame holds
    """Say whether a workbook has no number for it: a cell would show another value."""
    if isinstance(value, date):
        return value.year < _FIRST_YEAR
    is_number = isinstance(value, (int, float))
    return is_number and not abs(value) <= (
        _SAFE_INTEGER if isinstance(value, int) else sys.float_info.max
    )


def _warn_of_cuts(frame: pd.DataFrame, what: str) -> None:
    texts = frame.select_dtypes(["string", "str", "object"])
    long = {
        str(name): n
        for name in texts.columns
        if (n := sum(isinstance(x, str) and is_cut(x) for x in texts[name]))
    }
    if long:
        columns = ", ".join(f"{name} ({n})" for name, n in long.items())
        warnings.warn(
            f"Texts too long for a spreadsheet's cell in {columns}: {what}.",
            UserWarning,
            stacklevel=3,
        )

"""Frames as files: Parquet to read back, CSV and Excel to look at, JSON lines.

Loads pandas. Rules: Parquet comes back identical, dtypes included; in CSV and Excel
no text is a formula, Thai and line ends stay, and a cell that a spreadsheet would
cut is warned about; JSON lines hold every value as it is, since nothing evaluates
them; a file is written whole or not at all; a missing package is named.
"""

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pandas as pd

from svc_notebook.errors import ConfigError, ParameterError

from .cells import cut, for_xml, is_cut, is_formula, neutralised
from .nested import folded, refuse_unfit, unfolded
from .replies import REPLIES
from .usage import USAGE
from .writing import write_whole

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

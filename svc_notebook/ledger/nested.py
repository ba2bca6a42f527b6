"""Columns of lists and dicts in a Parquet file: JSON text there, values for our reader.

What it is not: it reads and writes no file. Loads pandas. Rules: Parquet has one kind
of value a column and would fill each dict up with the keys of the others, so a column
whose lists and dicts JSON holds unchanged goes in as text and is named in the file;
what cannot go in at all is said by name, with a remedy.
"""

from importlib import import_module
from typing import Any

import msgspec
import pandas as pd

from svc_notebook.errors import ParameterError

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

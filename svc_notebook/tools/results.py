"""Converts the value that a tool returned to the text of a tool message.

A text stays as it is, a DataFrame becomes a compact table, and everything else JSON. In
a long text the middle is cut out, and a note says how much.
"""

import dataclasses
import inspect
import json
from datetime import date, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from svc_notebook.errors import ToolCallError
from svc_notebook.tokens import estimate_tokens, most_tokens

from .dataframe_for_model import is_table, to_table

MAX_RESULT_TOKENS = 1500
"""Estimated tokens of a result: 8192 has room for a few of them and a reply."""

MAX_ARRAY_VALUES = 10_000
"""Most values of an array that are written: a large array would take minutes."""

_CHARS_PER_TOKEN = 8  # the most that `most_tokens` assumes, for blanks
_HEAD_SHARE = 2 / 3
_AS_TEXT = (Decimal, PurePath, UUID)


def to_result_text(
    value: object, *, max_tokens: int = MAX_RESULT_TOKENS
) -> tuple[str, int]:
    """Convert a tool's value to text; also return the tokens that were left out.

    The upper bound of the text's tokens is at most `max_tokens`. Bytes, generators and
    modules cannot be converted (ToolCallError).
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return fit_text(value, max_tokens=max_tokens)
    if is_table(value):
        text, n_cut_tokens = to_table(value, cap_tokens=max_tokens)
        fitted, n_more_tokens = fit_text(text, max_tokens=max_tokens)
        return fitted, n_cut_tokens + n_more_tokens
    return fit_text(_to_json(value), max_tokens=max_tokens)


def fit_text(text: str, *, max_tokens: int) -> tuple[str, int]:
    """Keep the head and the tail of a text; also return the tokens that were left out.

    Lone surrogates become U+FFFD, since UTF-8 cannot encode them.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if most_tokens(text) <= max_tokens:
        return text, 0
    low, high = 0, min(len(text) - 1, max(max_tokens, 0) * _CHARS_PER_TOKEN)
    while low < high:  # the most characters that fit
        middle = (low + high + 1) // 2
        if most_tokens(_cut_middle(text, middle)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    fitted = _cut_middle(text, low)
    return fitted, max(estimate_tokens(text).best - estimate_tokens(fitted).best, 1)


def _cut_middle(text: str, n_chars: int) -> str:
    n_head = round(n_chars * _HEAD_SHARE)
    n_tail = n_chars - n_head
    note = f"[... {len(text) - n_chars} of {len(text)} characters left out ...]"
    tail = text[len(text) - n_tail :]
    return "\n".join(part for part in (text[:n_head], note, tail) if part)


def _to_json(value: object) -> str:
    try:
        plain = _to_plain(value, ())
        if isinstance(plain, str):  # such as a date or a path: no quotes are needed
            return plain
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        reason = "is nested too deep"
    except ValueError as problem:  # an integer of thousands of digits
        reason = f"cannot be written ({problem})"
    raise _conversion_error(value, reason)


def _to_plain(value: Any, around: tuple[int, ...]) -> Any:  # noqa: ANN401 - anything
    """Convert a value to JSON values."""
    if id(value) in around:
        raise _conversion_error(value, "contains itself")
    around = (*around, id(value))
    if isinstance(value, dict):
        plain = {_to_key(name): _to_plain(item, around) for name, item in value.items()}
        if len(plain) < len(value):
            raise _conversion_error(
                value, "has two keys that become the same text in JSON"
            )
        return plain
    if isinstance(value, list | tuple):
        return [_to_plain(item, around) for item in value]
    if isinstance(value, set | frozenset):
        return [_to_plain(item, around) for item in sorted(value, key=str)]
    if isinstance(value, Enum):
        return _to_plain(value.value, ())
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has neither NaN nor Infinity
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else _object_to_plain(value, around)


def _object_to_plain(value: Any, around: tuple[int, ...]) -> Any:  # noqa: ANN401 - anything
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {
            field.name: _to_plain(getattr(value, field.name), around)
            for field in fields
        }
    if is_table(value):
        return to_table(value, cap_tokens=MAX_RESULT_TOKENS)[0]
    if _is_large_array(value):
        head = _to_plain(value.ravel()[:MAX_ARRAY_VALUES], around)
        return f"array of shape {value.shape}; its first values follow: {head}"
    return _other_object_to_plain(value, around)


def _other_object_to_plain(value: Any, around: tuple[int, ...]) -> Any:  # noqa: ANN401 - anything
    """Convert an object of another library, or of the user, to JSON values."""
    for method in ("model_dump", "tolist", "to_dict"):  # pydantic, NumPy, and others
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return _to_plain(convert(), around)
    if _has_text(value):
        return str(value)
    raise _conversion_error(value, "cannot be written as text")


def _is_large_array(value: Any) -> bool:  # noqa: ANN401 - anything
    size = getattr(value, "size", None)
    is_array = hasattr(value, "ravel") and hasattr(value, "shape")
    return is_array and isinstance(size, int) and size > MAX_ARRAY_VALUES


def _has_text(value: object) -> bool:
    """Return whether `str` gives more than the type and the memory address."""
    kind = type(value)
    has_default_text = (
        kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    )
    is_code = isinstance(value, type) or inspect.isroutine(value)
    is_running = inspect.isgenerator(value) or inspect.isawaitable(value)
    is_raw = isinstance(value, bytes | bytearray | memoryview)
    is_module = inspect.ismodule(value) or inspect.isasyncgen(value)
    return not (has_default_text or is_code or is_running or is_raw or is_module)


def _to_key(name: object) -> str:
    plain = name.value if isinstance(name, Enum) else name
    if isinstance(plain, str):
        return plain
    if plain is None or isinstance(plain, bool):
        return json.dumps(plain)
    return str(plain)


def _conversion_error(value: object, reason: str) -> ToolCallError:
    kind = type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        remedy = "decode it, for example with .decode('utf-8')"
    else:
        remedy = "return a text, a number, a list, a dict or a DataFrame"
    return ToolCallError(f"The tool returned {kind}, which {reason}; {remedy}.")

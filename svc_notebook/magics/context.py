"""How a notebook's variables look in a prompt.

Rules: texts go in as they are; a DataFrame or Series as a compact table that states
its shape and what was cut; functions and classes as written; everything else by
`str`; each is named with its estimated tokens, so that the footer can list what was
put in. Nothing is put in that the user did not name.
"""

import inspect
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from svc_notebook.tokens import estimate_tokens

CAP_TOKENS = 1500
"""The most estimated tokens of one table: room for a few beside a reply in 8192."""

MAX_COLUMNS = 40
MAX_LINE_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that was put into a prompt.

    Attributes:
        name: As the user named it.
        text: As it goes in.
        kind: What it is, in words.
        n_tokens: Estimated.
    """

    name: str
    text: str
    kind: str

    @property
    def n_tokens(self) -> int:
        """Estimated tokens of the text."""
        return estimate_tokens(self.text)

    @property
    def note(self) -> str:
        """What the footer says of it."""
        return f"{self.name} ({self.kind}, about {self.n_tokens} tokens)"


def to_item(name: str, value: object, *, cap_tokens: int = CAP_TOKENS) -> Item:
    """Turn a variable into text.

    Args:
        name: As the user named it.
        value: Any object.
        cap_tokens: The most estimated tokens of a table.
    """
    if isinstance(value, str):
        return Item(name=name, text=value, kind="text")
    if _is_pandas(value, "DataFrame"):
        return _table(name, value, value, cap_tokens)
    if _is_pandas(value, "Series"):
        return _table(name, value, value.to_frame(), cap_tokens)  # type: ignore[attr-defined]  # a Series
    return Item(name=name, text=_source(value), kind=type(value).__name__)


def _source(value: object) -> str:
    """Return a function or class as it was written, anything else by `str`."""
    if inspect.isfunction(value) or inspect.isclass(value):
        with suppress(OSError, TypeError):
            return inspect.getsource(value)
    return str(value)


def _is_pandas(value: object, name: str) -> bool:
    """Look at the type's name: pandas need not be loaded to know it is not this."""
    return any(
        each.__name__ == name and each.__module__.split(".")[0] == "pandas"
        for each in type(value).__mro__
    )


def _table(name: str, value: object, frame: Any, cap_tokens: int) -> Item:  # noqa: ANN401 - a frame
    n_rows, n_columns = frame.shape
    kind = type(value).__name__
    shape = (
        f"{n_rows} rows x {n_columns} columns" if n_columns > 1 else f"{n_rows} rows"
    )
    shown = frame.iloc[: cap_tokens // 2, :MAX_COLUMNS]
    lines = [_short(line) for line in shown.to_csv(lineterminator="\n").split("\n")]
    kept = _within([line for line in lines if line], cap_tokens)
    n_shown = max(len(kept) - 1, 0)
    cuts = [
        f"the first {n_shown} rows" if n_shown < n_rows else "",
        f"the first {MAX_COLUMNS} columns" if n_columns > MAX_COLUMNS else "",
    ]
    cut = " and ".join(each for each in cuts if each)
    head = f"{kind} {name}, {shape}{'; ' + cut + ' follow' if cut else ''}:"
    return Item(
        name=name,
        text="\n".join([head, *kept]),
        kind=f"{kind} {shape}{', cut to ' + cut if cut else ''}",
    )


def _short(line: str) -> str:
    """Return a row's line, a very long one with what was cut stated."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}[... of {len(line)} characters]"


def _within(lines: Iterable[str], cap_tokens: int) -> list[str]:
    kept: list[str] = []
    room = cap_tokens
    for line in lines:
        room -= estimate_tokens(line) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return kept

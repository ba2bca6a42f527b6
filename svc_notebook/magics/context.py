"""How a notebook's variables look in a prompt.

Rules: texts go in as they are; a DataFrame or Series as a compact table that states
its shape and what was cut; functions and classes as written; everything else by
`str`; each is named with its estimated tokens, so that the footer can list what was
put in. Nothing is put in that the user did not name.
"""

import inspect
from contextlib import suppress
from dataclasses import dataclass

from svc_notebook.errors import ParameterError
from svc_notebook.tokens import estimate_tokens
from svc_notebook.tools.tables import cut_table, is_pandas

CAP_TOKENS = 1500
"""The most estimated tokens of one table: room for a few beside a reply in 8192."""


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
        plural = "s"[: self.n_tokens != 1]
        return f"{self.name} ({self.kind}, about {self.n_tokens} token{plural})"


def to_item(name: str, value: object, *, cap_tokens: int = CAP_TOKENS) -> Item:
    """Turn a variable into text.

    Args:
        name: As the user named it.
        value: Any object.
        cap_tokens: The most estimated tokens of a table.

    Raises:
        ParameterError: The object cannot be written as text.
    """
    try:
        return _written(name, value, cap_tokens)
    except Exception as error:  # noqa: BLE001 - an object's own code may raise anything
        reason = f"{type(error).__name__} in its own code"
        problem = error
    refused = ParameterError(
        f"{name} cannot be put into a prompt: writing this {type(value).__name__} as "
        f"text failed with {reason}. Put in a text made of it instead.",
        param="messages",
    )
    raise refused from problem


def _written(name: str, value: object, cap_tokens: int) -> Item:
    if isinstance(value, str):
        return Item(name=name, text=value, kind="text")
    if is_pandas(value, "DataFrame", "Series"):
        return _table(name, value, cap_tokens)
    return Item(name=name, text=_source(value), kind=type(value).__name__)


def _source(value: object) -> str:
    """Return a function or class as it was written, anything else by `str`."""
    if inspect.isfunction(value) or inspect.isclass(value):
        with suppress(OSError, TypeError):
            return inspect.getsource(value)
    return str(value)


def _table(name: str, value: object, cap_tokens: int) -> Item:
    table = cut_table(value, cap_tokens)
    cut = f"; {table.cut} follow" if table.cut else ""
    head = f"{table.kind} {name}, {table.shape}{cut}:"
    return Item(
        name=name,
        text="\n".join([head, *table.lines]),
        kind=f"{table.kind} {table.shape}{', cut to ' + table.cut if cut else ''}",
    )

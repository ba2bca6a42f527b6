"""A fault as it is played, and what a user must see of it.

The tables of this folder are lists of `Case`; `player` plays them and `page` writes
them down. A case says everything that is expected, so that a reader of the
table needs nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Literal

from svc_notebook.errors import SvcError

Step = bytes | float | Callable[[], object] | Literal["reset", "silence", "keep"]
"""Bytes to send, seconds to wait, a function to call, or one of: reset the connection;
send nothing until the other side leaves; wait for the next request on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """The expected error.

    Attributes:
        kind: Its class, exactly.
        says: What its message holds.
        partial: The text that is kept; None if nothing came, ... for any text.
        has: Attributes and their values.
    """

    kind: type[SvcError]
    says: Sequence[str] = ()
    partial: str | EllipsisType | None = None
    has: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault.

    Attributes:
        section: A to F, as in the page's headings.
        fault: What goes wrong, for the page.
        answers: The steps for each request; the last are given again and again.
        ends: The text of the reply, or the error.
        verbs: What is called.
        params: Parameters of the request.
        timeouts: Deadlines that differ from the player's.
        n_requests: Requests that reach the server.
        n_attempts: Tries that the record counts, if not the same.
        to: Another base address, with {port} for the server's.
        waits_s: What all waits together must at least be, in (virtual) seconds.
        check: A further look at the completion or the error.
    """

    section: str
    fault: str
    answers: Sequence[Sequence[Step]] = ()
    ends: str | Fails = "Hello."
    verbs: Sequence[str] = ("stream",)
    prompt: Any = "Hi"
    params: Mapping[str, Any] = field(default_factory=dict)
    timeouts: Mapping[str, float] = field(default_factory=dict)
    n_requests: int = 1
    n_attempts: int | None = None
    to: str = ""
    waits_s: float = 0.0
    check: Callable[[Any], bool] | None = None

    @property
    def seen(self) -> str:
        """What the user sees, in words."""
        asked = "" if self.n_requests == 1 else f", {self.n_requests} requests"
        if isinstance(self.ends, str):
            return f"the reply{asked}"
        kept = ", what came is kept" if self.ends.partial else ""
        sent = ", nothing sent" if self.n_requests == 0 else asked
        return f"`{self.ends.kind.__name__}`{kept}{sent}"

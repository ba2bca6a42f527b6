"""The seam between the request path and sockets.

What it is not: an HTTP library. `http` fills it with httpx; another file could
fill it with something else. Rules: what goes wrong is a value, not an exception,
so that no traceback keeps a frame in which the key was written into a header.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from svc_notebook.credentials import Key
from svc_notebook.errors import SvcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Something went wrong on the way.

    Attributes:
        error: What to tell the user.
        is_lasting: Whether asking again at once would meet the same.
        is_sent: Whether the service may have read the request.
    """

    error: SvcError
    is_lasting: bool = False
    is_sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the headers of an answer say.

    Attributes:
        status: HTTP status.
        content_type: As sent, "" if there was none.
        retry_after_s: Seconds the service asked to wait, if it did.
        is_emulated: Whether the emulator says it is one.
        location: Where a redirect points to.
    """

    status: int
    content_type: str = ""
    retry_after_s: float | None = None
    is_emulated: bool = False
    location: str = ""


class Answer(Protocol):
    """An answer whose headers are in and whose body is being read."""

    @property
    def head(self) -> Head:
        """What the headers say."""

    async def read(self, *, within_s: float) -> bytes | Lost | None:
        """Return the next bytes, b"" at the end, None when the time is over."""

    async def close(self, *, within_s: float = 0.0) -> None:
        """Let go of the answer; its connection lives on if its end comes in time."""


class Transport(Protocol):
    """Sends one body and returns the answer to it."""

    async def send(
        self,
        body: bytes,
        *,
        key: Key,
        is_streamed: bool,
        connect_s: float,
        within_s: float,
        on_sent: Callable[[], None] = lambda: None,
    ) -> Answer | Lost | None:
        """Send a body and wait for the headers of the answer.

        Args:
            body: JSON, whole.
            key: Written into the request's headers, and nowhere else.
            is_streamed: Whether a stream was asked for.
            connect_s: Seconds until a connection has to stand.
            within_s: Seconds until the headers, connecting not counted.
            on_sent: Told when the request begins to be written.

        Returns:
            The answer, what went wrong, or None when the time is over.
        """

    async def aclose(self) -> None:
        """Close the connections of the running loop."""

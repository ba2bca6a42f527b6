"""Server-sent events, by the rules of the HTML standard (doc: Response, streamed).

An event is given out as soon as its last byte is in.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from svc_notebook.errors import DocumentError
from svc_notebook.service.checks import head_of

MAX_EVENT_BYTES = 64 * 1024 * 1024  # an event without an end must not fill the memory
_FIELD = re.compile(rb"[\w-]+")


_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its data lines joined by LF, and its type ("" if none was named)."""

    data: str
    type: str = ""


class SseDecoder:
    """Turns bytes, however they are split, into events."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._start: bytes | None = b""  # held while it may still become a BOM
        self._rest: list[bytes] = []  # pieces of the line that has not ended
        self._is_after_cr = False
        self._data: list[str] = []
        self._type = ""
        self._n_held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Take the next bytes and return the events that they complete.

        Events before an error are given first. Iterate to the end.
        """
        if self._start is not None:
            piece = self._without_bom(piece)
        if self._is_after_cr and piece:
            self._is_after_cr = False
            piece = piece.removeprefix(b"\n")
        if not piece:
            return
        self._is_after_cr = piece.endswith(b"\r")
        *ended, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        yield from self._take_lines(ended)
        if rest:
            self._rest.append(rest)
            self._hold(len(rest))

    def _without_bom(self, piece: bytes) -> bytes:
        start = (self._start or b"") + piece
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _take_lines(self, ended: list[bytes]) -> Iterator[ServerSentEvent]:
        for piece in ended:
            line = piece
            if self._rest:
                line = b"".join((*self._rest, piece))
                self._rest.clear()
            if line:
                self._take_field(line)
                continue
            if self._data:
                yield ServerSentEvent("\n".join(self._data), self._type)
            self._data, self._type, self._n_held_bytes = [], "", 0

    def _take_field(self, line: bytes) -> None:
        """Read one line; comments and unknown fields are ignored."""
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            self._hold(len(value))
        elif name == b"event":
            self._type = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name and not _FIELD.fullmatch(name):
            # Stricter than the standard: with a control character before the name
            # the line may be damaged data, which would be missing from the reply.
            head = head_of(line)
            raise DocumentError(
                f"The stream contains a damaged line: {head}\nAsk again; if it "
                "happens again, check that no proxy changes what is sent.",
                head=head,
            )

    def _hold(self, n_bytes: int) -> None:
        self._n_held_bytes += n_bytes
        if self._n_held_bytes > self._max_event_bytes:
            self._data, self._rest = [], []
            raise DocumentError(
                f"An event of the stream is larger than {self._max_event_bytes} bytes; "
                "the service sends no such events. Check that the "
                "base address is the service's."
            )

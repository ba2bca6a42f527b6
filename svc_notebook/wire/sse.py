"""Server-sent events out of bytes, by the standard's rules (doc: Events).

What it is not: it knows neither JSON nor what an event means. The rules are the
ones of the HTML standard's event stream: lines end with CR, LF or CRLF and with
nothing else; a BOM at the very start is dropped; an event is what a blank line
ends, and one without data is none. One rule is stricter: a name that no field can
have, such as one with a control character in it, is a damaged line and not an
unknown field, since what it held would be missing from the reply.

Rules for this file: an event is out as soon as its last byte is in, so a CR ends
its line at once and the LF that may follow is dropped later; every byte is looked
at a bounded number of times; what is kept is bounded.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from svc_notebook.errors import DocumentError

from .text import head_of

MAX_EVENT_BYTES = 64 * 1024 * 1024
_FIELD = re.compile(rb"[\w-]+")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its data lines joined by LF, and its type ("" if none was named)."""

    data: str
    type: str = ""


class Decoder:
    """Turns bytes, however they are split, into events.

    Args:
        max_event_bytes: Most bytes that one unfinished event may hold.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._start: bytes | None = b""  # held while it may still become a BOM
        self._rest: list[bytes] = []  # pieces of the line that has not ended
        self._is_after_cr = False
        self._data: list[str] = []
        self._type = ""
        self._n_held_bytes = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes and return the events that are whole with them.

        Raises:
            DocumentError: As for `events`.
        """
        return list(self.events(piece))

    def events(self, piece: bytes) -> Iterator[Event]:
        """Take the next bytes, and give the events that are whole with them.

        Those before what is wrong are given first. Take them all.

        Raises:
            DocumentError: An event is larger than anything the document allows, or a
                line is damaged.
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

    @property
    def has_rest(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest or self._data or self._start)

    def _without_bom(self, piece: bytes) -> bytes:
        start = (self._start or b"") + piece
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _take_lines(self, ended: list[bytes]) -> Iterator[Event]:
        for piece in ended:
            line = piece
            if self._rest:
                line = b"".join((*self._rest, piece))
                self._rest.clear()
            if line:
                self._take_field(line)
                continue
            if self._data:
                yield Event("\n".join(self._data), self._type)
            self._data, self._type, self._n_held_bytes = [], "", 0

    def _take_field(self, line: bytes) -> None:
        """Read one line; comments and fields nobody asked for leave no trace."""
        name, _, value = line.partition(b":")
        if name not in {b"data", b"event"}:
            if name and not _FIELD.fullmatch(name):
                raise _no_field(line)
            return
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"event":
            self._type = text
            return
        self._data.append(text)
        self._hold(len(value))

    def _hold(self, n_bytes: int) -> None:
        self._n_held_bytes += n_bytes
        if self._n_held_bytes > self._max_event_bytes:
            self._data, self._rest = [], []
            raise DocumentError(
                f"An event of the stream is larger than {self._max_event_bytes} bytes; "
                "the service sends no such events (doc: Stream chunk). Check that the "
                "base address is the service's."
            )


def _no_field(line: bytes) -> DocumentError:
    head = head_of(line)
    return DocumentError(
        f"The stream holds a line that is no part of an event: {head}\nAsk again; if "
        "it stays so, check that no proxy changes what the service sends "
        "(doc: Response, streamed).",
        head=head,
    )

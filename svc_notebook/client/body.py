"""An answer whose body comes off a connection: timed, opened, bounded.

What it is not: it knows neither httpx nor what the body means. Rules: no read waits
longer than it may; what is not read is never left half read, because a suspended
reader would keep its connection; foreign exceptions end here.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from svc_notebook.wire.text import not_documented

from .retry import Lost

PIECE_BYTES = 256 * 1024
_ANY_HEADER = zlib.MAX_WBITS | 32  # gzip or zlib, told by the first bytes
_GZIP = b"\x1f\x8b"
_NO_HEADER = -zlib.MAX_WBITS
_START_BYTES = 64 * 1024  # by then a body has shown what it is


class InflateError(Exception):
    """The body is not what its Content-Encoding says; stays in this folder."""


class Inflater(Protocol):
    """Opens one body."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take the next bytes and return what they hold."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing at the end."""


class Plain:
    """A body that is not compressed."""

    is_whole = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return the bytes as they are."""
        yield piece


class Zipped:
    """A body in gzip or deflate, of one or several members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_ANY_HEADER)
        self._n_in_bytes = 0
        self._is_over = False
        self._start: bytes | None = b""  # what came while nothing was opened yet

    @property
    def is_whole(self) -> bool:
        """Whether the end of the compressed body was seen."""
        return self._member.eof or self._n_in_bytes == 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return what the next bytes hold, in bounded pieces.

        Raises:
            InflateError: They are not compressed as they should be.
        """
        rest = piece
        while rest and not self._is_over:
            if self._member.eof:
                if not _GZIP.startswith(rest[: len(_GZIP)]):
                    self._is_over = True  # padding: what came is whole
                    return
                self._member = zlib.decompressobj(_ANY_HEADER)
            before = self._member.copy()
            try:
                opened = self._open(rest)
            except InflateError:
                rescued = b"".join(_rescued(before, rest))
                if rescued:
                    yield rescued
                raise
            self._n_in_bytes += len(rest)
            if opened:
                yield opened
            rest = self._member.unconsumed_tail or self._member.unused_data

    def _open(self, rest: bytes) -> bytes:
        if self._start is not None:
            self._start += rest
        try:
            opened = self._member.decompress(rest, PIECE_BYTES)
        except zlib.error:
            opened = self._open_headless()
        if opened or self._start is None or len(self._start) > _START_BYTES:
            self._start = None
        return opened

    def _open_headless(self) -> bytes:
        """Begin anew: some servers send deflate without its header."""
        start, self._start = self._start, None
        if start is None:
            raise InflateError
        self._member = zlib.decompressobj(_NO_HEADER)
        with suppress(zlib.error):
            return self._member.decompress(start, PIECE_BYTES)
        raise InflateError


def _rescued(member: "zlib._Decompress", rest: bytes) -> Iterator[bytes]:
    """Return what came before the place where a body is broken."""
    with suppress(zlib.error):
        for at in range(len(rest)):
            yield member.decompress(rest[at : at + 1], PIECE_BYTES)


def inflater_of(encoding: str) -> Inflater:
    """Return what opens a body with this Content-Encoding.

    Raises:
        InflateError: We did not ask for that encoding and cannot open it.
    """
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return Plain()
    if name in {"gzip", "x-gzip", "deflate"}:
        return Zipped()
    raise InflateError


MAX_BODY_BYTES = 64 * 1024 * 1024


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


class HttpAnswer:
    """An answer whose headers are in and whose body is being read.

    Args:
        head: What the headers say.
        pieces: The body as it comes, still encoded.
        encoding: The Content-Encoding.
        broken: What to say when the body breaks off.
        is_framed: Whether HTTP itself tells where the body ends, so that an end is
            no break.
        release: Called once at the end, with whether the whole body was read.
    """

    def __init__(
        self,
        head: Head,
        pieces: AsyncIterator[bytes],
        *,
        encoding: str,
        broken: Callable[[], Lost],
        is_framed: bool,
        release: Callable[[bool], Awaitable[None]],
    ) -> None:
        self.head = head
        self._pieces = pieces
        self._encoding = encoding
        self._broken = broken
        self._is_framed = is_framed
        self._release = release
        self._inflater: Inflater | None = None
        self._opened: Iterator[bytes] = iter(())
        self._n_bytes = 0
        self._is_ended = False
        self._is_closed = False

    async def read(self, *, within_s: float) -> bytes | Lost | None:
        """Return the next bytes, b"" at the end, None when the time is over."""
        deadline_at = asyncio.get_running_loop().time() + within_s
        try:
            while not (piece := next(self._opened, b"")):
                left_s = deadline_at - asyncio.get_running_loop().time()
                found = await self._take(left_s)
                if not found or isinstance(found, Lost):
                    return self._end() if found == b"" else found
                self._inflater = self._inflater or inflater_of(self._encoding)
                self._opened = self._inflater.feed(found)
        except InflateError:
            return self._refused("with a body that cannot be decompressed", b"")
        self._n_bytes += len(piece)
        if self._n_bytes > MAX_BODY_BYTES:
            return self._refused(f"with more than {MAX_BODY_BYTES} bytes", piece)
        return piece

    async def close(self, *, within_s: float = 0.0) -> None:
        """Let go of the answer; its connection lives on if its end comes in time."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline_at = asyncio.get_running_loop().time() + within_s
        is_open = not self._is_ended
        try:
            while is_open:
                left_s = deadline_at - asyncio.get_running_loop().time()
                found = await self._take(left_s)
                is_open = bool(found) and isinstance(found, bytes)
        finally:
            await self._release(self._is_ended)

    async def _take(self, within_s: float) -> bytes | Lost | None:
        """Take bytes off the connection; a time-out closes the reader for good."""
        try:
            async with asyncio.timeout(max(within_s, 0.0)):
                found = await anext(self._pieces, b"")
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            is_cancelled = True
        except Exception:  # noqa: BLE001 - whatever it is, the reply has broken off
            is_cancelled = False
        else:
            self._is_ended = not found
            return found
        if is_cancelled:  # raised anew, without the frames in which headers are
            raise asyncio.CancelledError
        return self._broken()

    def _end(self) -> bytes | Lost:
        is_whole = self._inflater is None or self._inflater.is_whole
        if is_whole:
            return b""
        if self._is_framed:
            return self._refused("with a body that cannot be decompressed whole", b"")
        return self._broken()

    def _refused(self, reason: str, body: bytes) -> Lost:
        error = not_documented(
            reason,
            body,
            status=self.head.status,
            content_type=self.head.content_type,
        )
        return Lost(error=error, is_lasting=True)

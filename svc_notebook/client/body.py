"""Reads and decompresses the body of an answer, within limits of time and size.

Each read ends before the next begins, because a suspended reader would keep its
connection.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from svc_notebook.errors import DocumentError
from svc_notebook.wire.decode import not_documented

from .retry import FailedTry

PIECE_BYTES = 256 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_ANY_HEADER = zlib.MAX_WBITS | 32  # gzip or zlib, as the first bytes say
_GZIP = b"\x1f\x8b"


class InflateError(Exception):
    """The body or its encoding is not what was asked for; users never see this."""


class Inflater:
    """Decompresses one body; gzip and deflate may have several members."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        self._is_plain = name in {"", "identity"}
        if not self._is_plain and name not in {"gzip", "x-gzip", "deflate"}:
            raise InflateError
        self._member = zlib.decompressobj(_ANY_HEADER)
        self._is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether the end of the compressed body was seen."""
        return self._is_plain or self._member.eof

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return what the next bytes contain, in bounded pieces."""
        if self._is_plain:
            yield piece
            return
        rest = piece
        while rest and not self._is_over:
            if self._member.eof:
                if not _GZIP.startswith(rest[: len(_GZIP)]):
                    self._is_over = True  # padding after the end
                    return
                self._member = zlib.decompressobj(_ANY_HEADER)
            try:
                opened = self._member.decompress(rest, PIECE_BYTES)
            except zlib.error:
                raise InflateError from None
            if opened:
                yield opened
            rest = self._member.unconsumed_tail or self._member.unused_data


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the headers of an answer say."""

    status: int
    content_type: str = ""
    retry_after_s: float | None = None
    is_emulated: bool = False
    emulator_note: str = ""  # what its script says of the answer
    location: str = ""  # where a redirect points to

    def not_documented(self, reason: str, body: bytes) -> DocumentError:
        """Build the error for a body that the document does not allow."""
        return not_documented(
            reason, body, status=self.status, content_type=self.content_type
        )


class HttpAnswer:
    """An answer whose headers are in and whose body is being read.

    `read` is `Connection.read`, of what is still compressed; `broken` makes the failure
    of a lost connection; `is_framed` says whether HTTP says where the body ends;
    `release` is called once at the end, with whether the whole body was read.
    """

    def __init__(
        self,
        head: Head,
        read: Callable[[float], Awaitable[bytes]],
        *,
        encoding: str,
        broken: Callable[[], FailedTry],
        is_framed: bool,
        release: Callable[[bool], Awaitable[None]],
    ) -> None:
        self.head = head
        self._read = read
        self._encoding = encoding
        self._broken = broken
        self._is_framed = is_framed
        self._release = release
        self._inflater: Inflater | None = None
        self._opened: Iterator[bytes] = iter(())
        self._n_bytes = 0
        self._is_ended = False
        self._is_closed = False

    async def read(self, *, within_s: float) -> bytes | FailedTry | None:
        """Return the next bytes, b"" at the end, None when the time is over."""
        deadline_s = asyncio.get_running_loop().time() + within_s
        try:
            while not (piece := next(self._opened, b"")):
                found = await self._take(deadline_s)
                if not found or isinstance(found, FailedTry):
                    return self._end() if found == b"" else found
                self._inflater = self._inflater or Inflater(self._encoding)
                self._opened = self._inflater.feed(found)
        except InflateError:
            return self._refused("with a body that cannot be decompressed", b"")
        self._n_bytes += len(piece)
        if self._n_bytes > MAX_BODY_BYTES:
            return self._refused(f"with more than {MAX_BODY_BYTES} bytes", piece)
        return piece

    async def close(self, *, within_s: float = 0.0) -> None:
        """Release the connection; it is used again if the body ends in time."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline_s = asyncio.get_running_loop().time() + within_s
        is_open = not self._is_ended
        try:
            while is_open:
                found = await self._take(deadline_s)
                is_open = bool(found) and isinstance(found, bytes)
        finally:
            await self._release(self._is_ended)

    async def _take(self, deadline_s: float) -> bytes | FailedTry | None:
        """Take bytes off the connection; a time-out closes the reader for good."""
        try:
            found = await self._read(deadline_s)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            is_cancelled = True
        except Exception:  # noqa: BLE001 - whatever it is, the connection is lost
            is_cancelled = False
        else:
            self._is_ended = not found
            return found
        if is_cancelled:  # raised again without the frames that hold headers
            raise asyncio.CancelledError
        return self._broken()

    def _end(self) -> bytes | FailedTry:
        if self._inflater is None or self._inflater.is_whole:
            return b""
        if not self._is_framed:
            return self._broken()
        return self._refused("with a body that cannot be decompressed to its end", b"")

    def _refused(self, reason: str, body: bytes) -> FailedTry:
        return FailedTry(error=self.head.not_documented(reason, body), is_lasting=True)

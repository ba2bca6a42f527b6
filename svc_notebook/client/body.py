"""An answer whose body comes off a connection: timed, opened, bounded.

What it is not: it knows neither httpx nor what the body means. Rules: no read waits
longer than it may; what is not read is never left half read, because a suspended
reader would keep its connection; foreign exceptions end here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from svc_notebook.wire.answer import not_documented

from .inflate import InflateError, Inflater, inflater_of
from .transport import Head, Lost

MAX_BODY_BYTES = 64 * 1024 * 1024


class HttpAnswer:
    """An answer being read; see `transport.Answer`.

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

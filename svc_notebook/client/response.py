"""Reads one HTTP response within its deadlines: decompresses and decodes it.

Size and time are limited. No generator is suspended between two reads, because it would
hold the connection.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from svc_notebook.errors import DocumentError, StreamBrokenError, SvcError
from svc_notebook.service.chunk import Assembly, CompletionBody, Delta, to_delta
from svc_notebook.service.error_messages import MOVED, WRONG_ADDRESS, Fault, to_error
from svc_notebook.service.params import HEAD_CHARS, printable
from svc_notebook.timeouts import Deadlines, Left, timed_out
from svc_notebook.wire.decode import (
    ChunkDecoder,
    ServerSentEvent,
    SseDecoder,
    decode_completion,
    decode_fault,
    not_documented,
)

from .retry import FailedTry

PIECE_BYTES = 256 * 1024  # most bytes decompressed at once: see `Inflater`
MAX_BODY_BYTES = 64 * 1024 * 1024  # decompressed; far more than any reply needs
_ANY_HEADER = zlib.MAX_WBITS | 32  # gzip or zlib, detected by the first bytes
_GZIP = b"\x1f\x8b"


class InflateError(Exception):
    """The body cannot be decompressed; this error never reaches users."""


class Inflater:
    """Decompresses one body in bounded pieces, so that a zip bomb is noticed early.

    A gzip body may consist of several members.
    """

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
        """Decompress the next bytes, in pieces of at most `PIECE_BYTES`."""
        if self._is_plain:
            yield piece
            return
        compressed = piece
        while compressed and not self._is_over:
            if self._member.eof:
                if not _GZIP.startswith(compressed[: len(_GZIP)]):
                    self._is_over = True  # padding after the end
                    return
                self._member = zlib.decompressobj(_ANY_HEADER)
            try:
                piece_of_body = self._member.decompress(compressed, PIECE_BYTES)
            except zlib.error:
                raise InflateError from None
            if piece_of_body:
                yield piece_of_body
            compressed = self._member.unconsumed_tail or self._member.unused_data


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """What the headers of an answer say."""

    status: int
    content_type: str = ""
    retry_after_s: float | None = None
    is_emulated: bool = False
    emulator_note: str = ""  # the emulator's note on its answer
    location: str = ""  # where a redirect points to

    def not_documented(self, reason: str, body: bytes) -> DocumentError:
        """Build the error for a body that the document does not allow."""
        return not_documented(
            reason, body, status=self.status, content_type=self.content_type
        )


class HttpAnswer:
    """An answer whose headers are in and whose body is being read.

    `read` is `Connection.read` and returns compressed bytes; `to_failure` turns an
    exception of `read` into a failure. `is_framed` says whether headers mark the end of
    the body. `release` is called once at the end; its argument says whether all was
    read.
    """

    def __init__(
        self,
        head: ResponseHead,
        read: Callable[[float], Awaitable[bytes]],
        *,
        encoding: str,
        to_failure: Callable[[Exception], FailedTry],
        is_framed: bool,
        release: Callable[[bool], Awaitable[None]],
    ) -> None:
        self.head = head
        self._read = read
        self._encoding = encoding
        self._to_failure = to_failure
        self._is_framed = is_framed
        self._release = release
        self._inflater: Inflater | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._n_bytes = 0
        self._is_ended = False
        self._is_closed = False

    async def read(self, *, within_s: float) -> bytes | FailedTry | None:
        """Return the next bytes; b"" at the end, None when `within_s` is over."""
        deadline_s = asyncio.get_running_loop().time() + within_s
        try:
            while not (piece := next(self._pieces, b"")):
                compressed = await self._take(deadline_s)
                if not compressed or isinstance(compressed, FailedTry):
                    return self._end() if compressed == b"" else compressed
                self._inflater = self._inflater or Inflater(self._encoding)
                self._pieces = self._inflater.feed(compressed)
        except InflateError:
            return self._refused("with a body that cannot be decompressed", b"")
        self._n_bytes += len(piece)
        if self._n_bytes > MAX_BODY_BYTES:
            return self._refused(f"with more than {MAX_BODY_BYTES} bytes", piece)
        return piece

    async def close(self, *, within_s: float = 0.0) -> None:
        """Release the connection; it is reused if the body ends within `within_s`."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline_s = asyncio.get_running_loop().time() + within_s
        is_open = not self._is_ended
        try:
            while is_open:
                compressed = await self._take(deadline_s)
                is_open = bool(compressed) and isinstance(compressed, bytes)
        finally:
            await self._release(self._is_ended)

    async def _take(self, deadline_s: float) -> bytes | FailedTry | None:
        """Read compressed bytes; None when the time is over."""
        try:
            compressed = await self._read(deadline_s)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            failure = None
        except Exception as problem:  # noqa: BLE001 - after any error nothing more arrives
            failure = self._to_failure(problem)
        else:
            self._is_ended = not compressed
            return compressed
        if failure is None:  # raised again without the frames that hold headers
            raise asyncio.CancelledError
        return failure

    def _end(self) -> bytes | FailedTry:
        if self._inflater is None or self._inflater.is_whole:
            return b""
        if not self._is_framed:
            return self._to_failure(ConnectionResetError())
        return self._refused("with a body that cannot be decompressed to its end", b"")

    def _refused(self, reason: str, body: bytes) -> FailedTry:
        return FailedTry(error=self.head.not_documented(reason, body), is_lasting=True)


_OK = 200
_STREAM_TYPE = "text/event-stream"
_PAGE_TYPE = "text/html"
_BLANK = b" \t\r\n\xef\xbb\xbf"  # white space and a byte-order mark
_NOT_EVENT_STARTS = b'{["<'  # JSON or a page
_DONE = "[DONE]"  # doc: Response, streamed
_STREAM_EVENTS = frozenset({"", "message", "error"})  # "message" is SSE's default name


class ReplyReader:
    """Reads the body of a reply: events, or JSON in one piece.

    The first bytes and the content type decide which of the two it is, because a
    service may answer a request for a stream with one piece, or the other way round.
    """

    def __init__(
        self, head: ResponseHead, *, is_streamed: bool, n_choices: int
    ) -> None:
        self.error: SvcError | None = None
        self.is_done = False  # whether nothing more has to be read
        self.n_events = 0  # comments do not count; JSON in one piece has no events
        self._is_streamed = is_streamed
        self._head = head
        self._kind = head.content_type.lower()
        self._n_choices = n_choices
        self._is_events: bool | None = None  # None until the first byte
        self._pieces: list[bytes] = []  # all of JSON, but only the first of events
        self._events = SseDecoder()
        self._chunks = ChunkDecoder(content_type=head.content_type)
        self._assembly = Assembly()
        self._whole: CompletionBody | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        """Decode the next bytes and return the deltas in them."""
        if self._is_events is None:
            piece = piece.lstrip(_BLANK)
            if not piece:
                return []
            self._is_events = self._looks_like_events(piece[:1])
            self._pieces.append(piece)
        elif not self._is_events:
            self._pieces.append(piece)
        return self._take_events(piece) if self._is_events else []

    def end(self) -> Sequence[Delta]:
        """Note the end of the body and return the deltas that were held back."""
        if not (self._is_streamed if self._is_events is None else self._is_events):
            return self._read_whole()
        is_other = self._kind and _STREAM_TYPE not in self._kind
        if self.n_events == 0 and self._pieces and is_other:
            self.error = self._head.not_documented(
                "with text that is not a stream", b"".join(self._pieces)
            )
        return self._end_stream()

    @property
    def is_finished(self) -> bool:
        """Whether every requested choice has its finish reason."""
        has_all = self._assembly.n_choices >= self._n_choices
        return has_all and self._assembly.is_finished

    @property
    def n_chunks(self) -> int:
        """Chunks so far."""
        return self._assembly.n_chunks

    def body(self) -> CompletionBody | None:
        """Return the reply so far; None if no choice has begun."""
        if self._assembly.n_choices:
            return self._assembly.body()
        return self._whole

    def _looks_like_events(self, first: bytes) -> bool:
        is_stream = self._is_streamed or _STREAM_TYPE in self._kind
        is_page = _PAGE_TYPE in self._kind
        return is_stream and not is_page and first not in _NOT_EVENT_STARTS

    def _take_events(self, piece: bytes) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event in self._events.feed(piece):
                if self.is_done:
                    break
                if _is_keep_alive(event):
                    continue
                self.n_events += 1
                deltas += self._take(event)
        except DocumentError as problem:
            self.error, self.is_done = problem, True
        return deltas

    def _take(self, event: ServerSentEvent) -> Sequence[Delta]:
        if event.data.strip() == _DONE:
            return self._end_stream(has_done=True)
        chunk = self._chunks.decode(event)
        if isinstance(chunk, Fault):
            self.error = to_error(chunk, status=_OK)
            return self._end_stream()
        for delta in chunk.deltas:
            if (delta.text or delta.calls) and self._assembly.has_ended(delta.index):
                reason = "with more text after the end of a choice"
                raise self._head.not_documented(reason, event.data.encode())
        self._assembly.add(chunk)
        return chunk.deltas

    def _end_stream(self, *, has_done: bool = False) -> Sequence[Delta]:
        """End a stream, and set `error` if it is incomplete."""
        chunk = self._chunks.flush()
        if chunk.deltas:
            self._assembly.add(chunk)
        self.is_done = True
        if self.error is None:
            self.error = self._error_of_stream(has_done=has_done)
        return chunk.deltas

    def _error_of_stream(self, *, has_done: bool) -> SvcError | None:
        if self.is_finished:
            return _service_failure(self._assembly.body())
        if has_done and self._assembly.is_finished:
            return self._too_few(self._assembly.n_choices)
        return StreamBrokenError(_CUT_SHORT if self._assembly.n_choices else _EMPTY)

    def _read_whole(self) -> list[Delta]:
        """Read JSON in one piece (doc: Completion)."""
        self.is_done = True
        body = b"".join(self._pieces)
        try:
            whole = decode_completion(
                body, status=self._head.status, content_type=self._head.content_type
            )
        except DocumentError as problem:
            self.error = problem
            return []
        if isinstance(whole, Fault):
            self.error = to_error(whole, status=self._head.status)
            return []
        self._whole = whole
        if len(whole.choices) < self._n_choices:
            self.error = self._too_few(len(whole.choices))
        elif not all(choice.finish_reason for choice in whole.choices):
            self.error = self._incomplete(_UNFINISHED)
        else:
            self.error = _service_failure(whole)
        return [to_delta(choice) for choice in whole.choices]

    def _too_few(self, n_received: int) -> DocumentError:
        n_asked = self._n_choices
        return self._incomplete(
            f"The service sent {n_received} of the {n_asked} choices that were "
            f"requested (n={n_asked}). svc.last() holds them. Ask again with a "
            f"smaller n, or ask {n_asked} times."
        )

    def _incomplete(self, message: str) -> DocumentError:
        return DocumentError(
            message, status=self._head.status, content_type=self._head.content_type
        )


def _is_keep_alive(event: ServerSentEvent) -> bool:
    """Say whether an event only keeps the connection open, as an `event: ping` does.

    The service's events are data-only (doc: Response, streamed), so an event with
    another name belongs to the reply only if it looks like a chunk.
    """
    start = event.data.lstrip()[:1]
    return not start or (event.type not in _STREAM_EVENTS and start not in "{[")


def _service_failure(body: CompletionBody) -> SvcError | None:
    """Return the error for a reply that ended because the service failed."""
    if all(choice.finish_reason != "error" for choice in body.choices):
        return None
    fault = Fault(message="the reply ends with finish_reason 'error'")
    return to_error(fault, status=_OK)


_UNFINISHED = """\
The service sent a reply without a finish reason, so it may be cut short. \
svc.last() holds the reply so far; ask again for a complete one."""
_EMPTY = """\
The service sent an empty reply: a stream without text and without a finish reason. \
Ask again."""
_CUT_SHORT = """\
The reply was cut short: the stream ended without a finish reason. \
svc.last() holds the reply so far; ask again for a complete one."""

DRAIN_S = 0.05  # to read the end after [DONE], so that the connection can be reused
AFTER_FINISH_S = 2.0  # for usage and [DONE] after the last finish reason
MAX_FAULT_BYTES = 2 * 1024 * 1024  # of an error body; a message shows only a part of it
_FAULT_S = 5.0  # to read an error body: the status already says what matters
_END_OF_SUCCESS = 300


class AnswerReader:
    """Reads one answer, whose headers are in, within the deadlines of its exchange.

    The request was sent at `sent_s` by the clock; `reply` reads the body.
    """

    def __init__(
        self,
        answer: HttpAnswer,
        *,
        is_streamed: bool,
        n_choices: int,
        deadlines: Deadlines,
        clock: Callable[[], float],
        sent_s: float,
    ) -> None:
        self._answer = answer
        self._deadlines = deadlines
        self._clock = clock
        self._sent_s = sent_s
        self._event_s = clock()
        self._finished_s: float | None = None
        self.reply = ReplyReader(
            answer.head, is_streamed=is_streamed, n_choices=n_choices
        )

    async def read(self, show: Callable[[Delta], None]) -> FailedTry | None:
        """Read the answer to its end and show each delta; return a failure, if any."""
        if self._answer.head.status >= _END_OF_SUCCESS:
            return await self._read_fault()
        reader = self.reply
        while not reader.is_done:
            left = self._left()
            piece = await self._answer.read(within_s=max(left.left_s, 0.0))
            if piece is None or isinstance(piece, FailedTry):
                if not reader.is_finished:
                    return piece or FailedTry(error=timed_out(left))
                piece = b""
            n_events = reader.n_events
            for delta in reader.feed(piece) if piece else reader.end():
                show(delta)
            if reader.n_events > n_events:
                self._event_s = self._clock()
        if reader.error is not None:
            return FailedTry(error=reader.error, is_lasting=True)
        return None

    async def _read_fault(self) -> FailedTry:
        """Return the failure for an answer with an error status."""
        head = self._answer.head
        if head.status in _REDIRECTS:
            return FailedTry(error=_redirected(head), is_lasting=True)
        fault = decode_fault(await self._fault_body())
        error = to_error(fault, status=head.status, retry_after_s=head.retry_after_s)
        return FailedTry(error=error)

    async def close(self) -> None:
        """Release the connection."""
        is_whole = self.reply.is_done or self._answer.head.status >= _END_OF_SUCCESS
        await self._answer.close(within_s=DRAIN_S if is_whole else 0.0)

    def _left(self) -> Left:
        """Return the time left for the next bytes, and the deadline that limits it."""
        now_s = self._clock()
        left = self._deadlines.for_body(
            now_s, sent_s=self._sent_s, event_s=self._event_s
        )
        if not self.reply.is_finished:
            return left
        if self._finished_s is None:
            self._finished_s = now_s
        left_s = self._finished_s + AFTER_FINISH_S - now_s
        return Left(min(left_s, left.left_s), left.name, AFTER_FINISH_S)

    async def _fault_body(self) -> bytes:
        """Read as much of an error body as arrives within `_FAULT_S`."""
        body = bytearray()
        until_s = self._clock() + min(self._left().left_s, _FAULT_S)
        while len(body) < MAX_FAULT_BYTES:
            piece = await self._answer.read(within_s=until_s - self._clock())
            if not isinstance(piece, bytes) or not piece:
                break
            body += piece
        return bytes(body)


_REDIRECTS = range(300, 400)  # the document shows no redirects
_NOT_MODIFIED = 304


def _redirected(head: ResponseHead) -> DocumentError:
    """Build the error for a redirect, which is not followed (it would send the key)."""
    if head.location:
        message = (
            f"The service answered with a redirect (status {head.status}) to "
            f"{_location_text(head.location)}. It was not followed: neither the API "
            "key nor the prompt is sent to another address."
        )
    else:
        is_unchanged = head.status == _NOT_MODIFIED
        description = (
            "not modified" if is_unchanged else "a redirect without an address"
        )
        message = (
            f"The service answered with status {head.status} ({description}) instead "
            "of a reply."
        )
    return DocumentError(
        message,
        status=head.status,
        content_type=head.content_type,
        remedy=MOVED if head.location else WRONG_ADDRESS,
    )


def _location_text(location: str) -> str:
    """Return the target of a redirect without password, query and unprintable text."""
    try:
        parts = urlsplit(location)
        _ = parts.port  # raises if a password with a slash is taken for a port
    except ValueError:
        return "an address that cannot be read"
    host, path = parts.netloc.rpartition("@")[2], parts.path
    if not host:
        path = path.rpartition("@")[2]
    scheme = f"{parts.scheme}:" if parts.scheme else ""
    server = f"{scheme}//{host}" if host else ""
    return printable(f"{server}{path}"[:HEAD_CHARS]) or "an empty address"

"""Receiving one answer: its body is read against the clock, delta by delta.

Rules: silence is counted in events; an answer whose choices are all finished is not
spoilt by what its connection does afterwards; what had come is kept, whatever went
wrong.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from svc_notebook.errors import DocumentError, SvcError
from svc_notebook.service.chunk import CallPiece, CompletionBody, Delta
from svc_notebook.service.fault import Fault, to_error
from svc_notebook.service.message import printable
from svc_notebook.wire.decode import decode_completion, decode_refusal
from svc_notebook.wire.faults import decode_fault
from svc_notebook.wire.text import HEAD_CHARS, not_documented

from .body import Head, HttpAnswer
from .deadlines import Deadlines, Left, timed_out
from .retry import Lost
from .stream_reader import StreamReading, from_zero, no_reply, too_few, unfinished

_STREAM_TYPE = "text/event-stream"
_PAGE_TYPE = "text/html"
_BLANK = b" \t\r\n\xef\xbb\xbf"
_LOOK_BYTES = 1024
_WHOLE_STARTS = b'{["<'


class WholeReading:
    """Reads a reply in one piece (doc: Completion).

    Attributes:
        error, is_done: As for a stream.
        n_events: Always 0, since a piece of JSON tells nothing until it is whole.
    """

    n_events = 0
    n_chunks = 0
    is_finished = False

    def __init__(
        self, *, status: int = 200, content_type: str = "", n_choices: int = 1
    ) -> None:
        self.error: SvcError | None = None
        self.is_done = False
        self._n_choices = n_choices
        self._status = status
        self._content_type = content_type
        self._pieces: list[bytes] = []
        self._body: CompletionBody | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes; nothing can be shown yet."""
        self._pieces.append(piece)
        return []

    def end(self) -> list[Delta]:
        """Read the whole and return its choices as deltas."""
        self.is_done = True
        body = b"".join(self._pieces)
        self._pieces.clear()
        try:
            found = decode_completion(
                body,
                status=self._status,
                content_type=self._content_type,
            )
        except DocumentError as problem:
            self.error = problem
            return []
        if isinstance(found, Fault):
            self.error = to_error(found, status=self._status)
            return []
        self._body = self._numbered(found, refusal=decode_refusal(body))
        return list(_deltas_of(self._body))

    def _numbered(self, found: CompletionBody, *, refusal: str) -> CompletionBody:
        """Return the reply, counted from 0; note what it lacks."""
        n_came = len(found.choices)
        if n_came < self._n_choices:
            self.error = too_few(
                n_came, self._n_choices, self._content_type, status=self._status
            )
            return found
        if not all(each.finish_reason for each in found.choices):
            self.error = unfinished(self._content_type, status=self._status)
        else:
            self.error = no_reply(found, self._content_type, refusal=refusal)
        return from_zero(found)

    def body(self) -> CompletionBody | None:
        """Return the reply; None before its end."""
        return self._body


def _deltas_of(body: CompletionBody) -> Iterator[Delta]:
    for choice in body.choices:
        yield Delta(
            index=choice.index,
            text=choice.text,
            calls=tuple(
                CallPiece(
                    index=at,
                    id=call.id,
                    name=call.function.name,
                    arguments=call.function.arguments,
                )
                for at, call in enumerate(choice.tool_calls)
            ),
            finish_reason=choice.finish_reason,
        )


class BodyReading:
    """Reads a body, and finds out by its first bytes what it is.

    Args:
        is_streamed: Whether a stream was asked for.
        status: HTTP status.
        content_type: As sent.
        n_choices: Choices that were asked for.
    """

    def __init__(
        self, *, is_streamed: bool, status: int, content_type: str, n_choices: int
    ) -> None:
        self._is_streamed = is_streamed
        self._status = status
        self._content_type = content_type
        self._is_stream_type = _STREAM_TYPE in content_type.lower()
        self._stream = StreamReading(content_type=content_type, n_choices=n_choices)
        self._whole = WholeReading(
            status=status, content_type=content_type, n_choices=n_choices
        )
        self._start = b""
        self._chosen: StreamReading | WholeReading | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add."""
        if self._chosen is not None:
            return self._chosen.feed(piece)
        self._start += piece
        first = self._start.lstrip(_BLANK)[:1]
        if not first:  # one blank stands for many
            self._start = self._start[-_LOOK_BYTES:]
            return []
        self._chosen = self._choose(first)
        return self._chosen.feed(self._start)

    def end(self) -> list[Delta]:
        """Take note that the body has ended and return what was held back."""
        deltas = self._reading.end()
        if self._is_no_stream():
            self._stream.error = not_documented(
                "with something that is no stream",
                self._start,
                status=self._status,
                content_type=self._content_type,
            )
        return deltas

    def _is_no_stream(self) -> bool:
        """Say whether a text without events came, under another label."""
        is_read_as_stream = self._reading is self._stream
        has_text = bool(self._start.strip(_BLANK))
        is_labelled = bool(self._content_type) and not self._is_stream_type
        has_events = self._stream.n_events > 0
        return is_read_as_stream and is_labelled and has_text and not has_events

    @property
    def _reading(self) -> StreamReading | WholeReading:
        if self._chosen is not None:
            return self._chosen
        return self._stream if self._is_streamed else self._whole

    def _choose(self, first: bytes) -> StreamReading | WholeReading:
        is_stream = self._is_streamed or self._is_stream_type
        is_page = _PAGE_TYPE in self._content_type.lower()
        is_whole = is_page or (bool(first) and first in _WHOLE_STARTS)
        return self._stream if is_stream and not is_whole else self._whole

    @property
    def error(self) -> SvcError | None:
        """What went wrong; None so far."""
        return self._reading.error

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to read."""
        return self._reading.is_done

    @property
    def is_finished(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        return self._reading.is_finished

    @property
    def n_events(self) -> int:
        """Events so far; comments are none, and JSON in one piece has none."""
        return self._reading.n_events

    @property
    def n_chunks(self) -> int:
        """Chunks so far."""
        return self._reading.n_chunks

    def body(self) -> CompletionBody | None:
        """Return what has come so far; None if no choice has begun."""
        return self._reading.body()


_REDIRECTS = range(300, 400)
_NOT_MODIFIED = 304


def is_redirect(status: int) -> bool:
    """Say whether a status sends the asker elsewhere."""
    return status in _REDIRECTS


def redirected(head: Head) -> DocumentError:
    """Build the error for a redirect."""
    return DocumentError(
        _to_nowhere(head.status) if not head.location else _to(head),
        status=head.status,
        content_type=head.content_type,
    )


def _to(head: Head) -> str:
    return (
        f"The service answered with a redirect (status {head.status}) to "
        f"{_shown(head.location)}. It was not followed: neither the API key nor the "
        "prompt is sent to another address. If that address is right, set SVC_BASE_URL "
        "to it, with https and ending with /v1 (doc: Versioning)."
    )


def _to_nowhere(status: int) -> str:
    what = (
        "with status 304 (not modified), as if a stored copy had been asked about"
        if status == _NOT_MODIFIED
        else f"with a redirect (status {status}) that names no address"
    )
    return (
        f"The service answered {what}. No reply came. Check that SVC_BASE_URL is the "
        "service's address, ending with /v1, and that no proxy or cache answers in its "
        "place (doc: Errors)."
    )


def _shown(location: str) -> str:
    """Return where a redirect leads, without its query or anything unprintable."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "an address that cannot be read"
    place = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    return printable(f"{place}{parts.path}"[:HEAD_CHARS]) or "nowhere"


DRAIN_S = 0.05  # for the end after [DONE], so that the connection can be used again
AFTER_FINISH_S = 2.0  # for usage and [DONE] after the last finish reason
MAX_FAULT_BYTES = 2 * 1024 * 1024
_FAULT_S = 5.0  # the status says what matters; its words are not waited for longer
_END_OF_SUCCESS = 300


class Receiving:
    """One answer being received.

    Args:
        answer: Its headers are in.
        is_streamed: Whether a stream was asked for.
        n_choices: Choices that were asked for.
        deadlines: Of the exchange.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        answer: HttpAnswer,
        *,
        is_streamed: bool,
        n_choices: int,
        deadlines: Deadlines,
        clock: Callable[[], float],
    ) -> None:
        self._answer = answer
        self._deadlines = deadlines
        self._clock = clock
        self._event_s = clock()
        self._finished_s: float | None = None
        self._reading = BodyReading(
            is_streamed=is_streamed,
            status=answer.head.status,
            content_type=answer.head.content_type,
            n_choices=n_choices,
        )

    async def receive(
        self, show: Callable[[Delta], None], *, sent_s: float
    ) -> Lost | None:
        """Read the body to its end, and show what comes.

        Args:
            show: Told each delta.
            sent_s: When the request was sent, by the clock.

        Returns:
            What went wrong, if anything did.
        """
        reading = self._reading
        while not reading.is_done:
            left = self._left(sent_s)
            piece = await self._answer.read(within_s=max(left.left_s, 0.0))
            if piece is None or isinstance(piece, Lost):
                if not reading.is_finished:
                    return piece or Lost(error=timed_out(left))
                piece = b""
            n_events = reading.n_events
            for delta in reading.feed(piece) if piece else reading.end():
                show(delta)
            if reading.n_events > n_events:
                self._event_s = self._clock()
        if reading.error is not None:
            return Lost(error=reading.error, is_lasting=True)
        return None

    async def refusal(self, *, sent_s: float) -> Lost | None:
        """Read the error that a status stands for; None if it is a success.

        Args:
            sent_s: When the request was sent, by the clock.
        """
        head = self._answer.head
        if head.status < _END_OF_SUCCESS:
            return None
        if is_redirect(head.status):
            return Lost(error=redirected(head), is_lasting=True)
        within_s = min(self._left(sent_s).left_s, _FAULT_S)
        fault = decode_fault(await self._fault_body(within_s))
        error = to_error(fault, status=head.status, retry_after_s=head.retry_after_s)
        return Lost(error=error)

    async def close(self) -> None:
        """Let go of the answer."""
        is_whole = self._reading.is_done or self._answer.head.status >= _END_OF_SUCCESS
        await self._answer.close(within_s=DRAIN_S if is_whole else 0.0)

    @property
    def n_chunks(self) -> int:
        """Chunks so far."""
        return self._reading.n_chunks

    def body(self) -> CompletionBody | None:
        """Return what has come so far; None if no choice has begun."""
        return self._reading.body()

    def _left(self, sent_s: float) -> Left:
        now_s = self._clock()
        left = self._deadlines.for_body(now_s, sent_s=sent_s, event_s=self._event_s)
        if not self._reading.is_finished:
            return left
        if self._finished_s is None:
            self._finished_s = now_s
        left_s = self._finished_s + AFTER_FINISH_S - now_s
        return Left(min(left_s, left.left_s), left.name, AFTER_FINISH_S)

    async def _fault_body(self, within_s: float) -> bytes:
        """Read an error body as far as it can be read in a short time."""
        pieces: list[bytes] = []
        n_bytes = 0
        until_s = self._clock() + within_s
        while n_bytes < MAX_FAULT_BYTES:
            piece = await self._answer.read(within_s=until_s - self._clock())
            if not isinstance(piece, bytes) or not piece:
                break
            pieces.append(piece)
            n_bytes += len(piece)
        return b"".join(pieces)

"""An answer's body as it is read, whichever way it came.

What it is not: no sockets and no clock; `receiving` feeds it. How a body is read
follows from what came, not from what was asked for: a stream may be answered by one
piece of JSON, or by a page of HTML. A reply in one piece is whole like a stream: when
each choice that was asked for has its finish reason (doc: Completion, choices).
"""

from collections.abc import Iterator

from svc_notebook.errors import DocumentError, SvcError
from svc_notebook.service.chunk import CallPiece, Delta
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.fault import Fault, to_error
from svc_notebook.wire.answer import not_documented
from svc_notebook.wire.decode import decode_completion, decode_refusal

from .numbering import from_zero, no_reply, too_few, unfinished
from .streamed import StreamReading

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

"""A streamed answer as it is read: from bytes to deltas, and to the whole.

What it is not: no sockets and no clock. Rules for this file: what went wrong is kept
beside what came before it, so that nothing that arrived is lost; nothing after [DONE]
is looked at; a stream is whole only when a finish reason was seen on every choice
(doc: Response, streamed).
"""

import msgspec

from svc_notebook.errors import DocumentError, StreamBrokenError, SvcError
from svc_notebook.service.chunk import Assembly, CallPiece, Chunk, Delta
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.fault import Fault, to_error
from svc_notebook.wire.decode import decode_event
from svc_notebook.wire.sse import Decoder, Event
from svc_notebook.wire.surrogates import Joiner

_DONE = "[DONE]"  # doc: Response, streamed


class StreamReading:
    """Reads server-sent events (doc: Stream chunk).

    Attributes:
        error: What went wrong; None so far.
        is_done: Whether there is nothing more to read.
        n_events: Events so far; comments are none.
    """

    def __init__(self, *, content_type: str = "", n_choices: int = 1) -> None:
        self.error: SvcError | None = None
        self.is_done = False
        self.n_events = 0
        self._content_type = content_type
        self._n_choices = n_choices
        self._decoder = Decoder()
        self._joiner = Joiner()
        self._assembly = Assembly()
        self._seen: set[int] = set()

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add."""
        deltas: list[Delta] = []
        try:
            for event in self._decoder.feed(piece):
                if self.is_done:
                    break
                self.n_events += 1
                deltas += self._take(event)
        except DocumentError as found:
            self._fail(found)
        return deltas

    def end(self) -> list[Delta]:
        """Take note that the body has ended and return what was held back."""
        return self._close(is_whole=self.is_finished)

    @property
    def is_finished(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        return self._assembly.is_finished and len(self._seen) >= self._n_choices

    @property
    def n_chunks(self) -> int:
        """Chunks read so far."""
        return self._assembly.n_chunks

    def body(self) -> CompletionBody | None:
        """Return what has come so far; None if no choice has begun."""
        return self._assembly.body() if self._seen else None

    def _take(self, event: Event) -> list[Delta]:
        if event.data.strip() == _DONE:
            # A service may give fewer choices than were asked for, if it says so.
            return self._close(is_whole=self._assembly.is_finished)
        found = decode_event(event, content_type=self._content_type)
        if isinstance(found, Fault):
            self._fail(to_error(found, status=200))
            return self._flush()
        deltas = tuple(self._joined(delta) for delta in found.deltas)
        self._add(msgspec.structs.replace(found, deltas=deltas))
        return list(deltas)

    def _close(self, *, is_whole: bool) -> list[Delta]:
        deltas = self._flush()
        self.is_done = True
        if self.error is None and not is_whole:
            self.error = _cut_short(has_text=bool(self._seen))
        return deltas

    def _add(self, chunk: Chunk) -> None:
        self._seen.update(delta.index for delta in chunk.deltas)
        self._assembly.add(chunk)

    def _joined(self, delta: Delta) -> Delta:
        """Join halves of characters that the stream cut in two."""
        text = delta.text
        if text:
            text = self._joiner.join((delta.index, "text"), text)
        calls = tuple(
            msgspec.structs.replace(
                call,
                arguments=self._joiner.join((delta.index, call.index), call.arguments),
            )
            for call in delta.calls
        )
        return msgspec.structs.replace(delta, text=text, calls=calls)

    def _flush(self) -> list[Delta]:
        deltas = []
        for (index, part), text in self._joiner.flush().items():
            if isinstance(part, str):
                deltas.append(Delta(index=index, text=text))
            else:
                call = CallPiece(index=part, arguments=text)
                deltas.append(Delta(index=index, calls=(call,)))
        if deltas:
            self._add(Chunk(deltas=tuple(deltas)))
        return deltas

    def _fail(self, error: SvcError) -> None:
        self.error = error
        self.is_done = True


def _cut_short(*, has_text: bool) -> StreamBrokenError:
    if not has_text:
        return StreamBrokenError(
            "The service sent an empty reply: a stream without any text and without a "
            "finish reason. Ask again (doc: Response, streamed)."
        )
    return StreamBrokenError(
        "The reply was cut short: the stream ended without a finish reason. What had "
        "come is kept as the error's `partial`; ask again for a whole reply "
        "(doc: Response, streamed)."
    )

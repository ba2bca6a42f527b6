"""A streamed answer as it is read: from bytes to deltas, and to the whole.

What it is not: no sockets and no clock. Rules for this file: what went wrong is kept
beside what came before it, so that nothing that arrived is lost; nothing after [DONE]
is looked at; a stream is whole only when a finish reason was seen on every choice
that was asked for (doc: Response, streamed); where one choice was asked for, the one
that comes is choice 0, whatever its index says.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from svc_notebook.errors import DocumentError, ServiceError, StreamBrokenError, SvcError
from svc_notebook.service.chunk import (
    Assembly,
    CallPiece,
    Choice,
    Chunk,
    CompletionBody,
    Delta,
)
from svc_notebook.service.fault import Fault, to_error
from svc_notebook.service.message import printable
from svc_notebook.wire.decode import decode_event
from svc_notebook.wire.sse import Decoder, Event
from svc_notebook.wire.text import Joiner, mend, not_documented


class Agreement:
    """What the chunks so far have settled."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._ended: set[int] = set()

    def problem_of(self, chunk: Chunk) -> str | None:
        """Say what is wrong with the next chunk's place in the reply, if anything.

        Returns:
            The end of the sentence "The service answered ...", None if all is well.
        """
        if not chunk.deltas and not chunk.wholes:
            return None  # usage and pings may come under any id
        if chunk.id and self._id and chunk.id != self._id:
            return "with chunks of two replies: the identifier changes in the stream"
        self._id = self._id or chunk.id
        indices = [each.index for each in chunk.deltas]
        if len(set(indices)) < len(indices):
            return "with two choices of one index in one event"
        if any(each.index in self._ended and _adds(each) for each in chunk.deltas):
            return "with more text behind the end of a choice"
        self._end(chunk.deltas)
        return None

    def settled(self, whole: Delta, so_far: Choice | None) -> Delta | None:
        """Return what a choice's whole message adds to what its deltas said.

        Args:
            whole: The message.
            so_far: The choice as far as it has come; None if it has not begun.

        Returns:
            What it adds, often only a finish reason; None if it contradicts them.
        """
        said = Choice() if so_far is None else so_far
        text, calls = mend(whole.text or ""), _calls_of(whole)
        has_said = bool(said.text or said.tool_calls)
        if has_said or whole.index in self._ended:
            is_same = text in {"", said.text or ""} and calls in ([], _called(said))
            if not is_same:
                return None
            added = replace(whole, text=None, calls=())
        else:
            added = whole
        if _adds(whole):  # nothing can be added to what was said whole
            self._ended.add(whole.index)
        self._end([whole])
        return added

    def _end(self, deltas: Sequence[Delta]) -> None:
        self._ended.update(each.index for each in deltas if each.finish_reason)


def _adds(delta: Delta) -> bool:
    calls = delta.calls
    return bool(delta.text) or any(each.name or each.arguments for each in calls)


def _calls_of(whole: Delta) -> list[tuple[str, str]]:
    return [(each.name or "", mend(each.arguments)) for each in whole.calls]


def _called(choice: Choice) -> list[tuple[str, str]]:
    return [(each.function.name, each.function.arguments) for each in choice.tool_calls]


_OK = 200
Problem = DocumentError | ServiceError | None


def from_zero(body: CompletionBody) -> CompletionBody:
    """Return a whole reply whose lowest choice is choice 0."""
    lowest = body.choices[0].index if body.choices else 0
    if lowest == 0:
        return body
    choices = tuple(
        msgspec.structs.replace(each, index=each.index - lowest)
        for each in body.choices
    )
    return msgspec.structs.replace(body, choices=choices)


def too_few(
    n_came: int, n_asked: int, content_type: str, *, status: int = _OK
) -> DocumentError:
    """Build the error for fewer choices than were asked for (doc: Request body, n)."""
    return DocumentError(
        f"The service gave {n_came} of the {n_asked} choices that were asked for "
        f"(n={n_asked}). What came is kept as the error's `partial`. Ask again with a "
        f"smaller n, or ask {n_asked} times (doc: Request body).",
        status=status,
        content_type=content_type,
    )


_CALLING = frozenset({"tool_calls", "function_call"})
_SHOWN_CHARS = 700


def no_reply(body: CompletionBody, content_type: str, *, refusal: str) -> Problem:
    """Build the error for a whole reply that is none; None if it is one.

    Args:
        body: The reply, with a finish reason on every choice.
        content_type: As sent.
        refusal: The words of a field of its own in which it declines, "" if none.
    """
    if refusal:
        return _declined(refusal, content_type)
    if any(each.finish_reason == "error" for each in body.choices):
        said = Fault(message="the reply ends with finish_reason 'error'")
        return to_error(said, status=_OK)
    if any(
        each.finish_reason in _CALLING and not each.text and not each.tool_calls
        for each in body.choices
    ):
        return _lost_calls(content_type)
    return None


def _lost_calls(content_type: str) -> DocumentError:
    return DocumentError(
        "The service gave a reply that ends by calling tools and holds neither a call "
        "nor text. Ask again; if it stays so, check that the base address speaks this "
        "interface (doc: Tool call).",
        status=_OK,
        content_type=content_type,
    )


def _declined(refusal: str, content_type: str) -> DocumentError:
    return DocumentError(
        "The service declined to answer, in a field that is no part of the reply's "
        f"text: {printable(refusal[:_SHOWN_CHARS])[:_SHOWN_CHARS]}\nWhat text came is "
        "kept as the error's `partial`. Change the prompt, or ask another model "
        "(doc: Completion, choices).",
        status=_OK,
        content_type=content_type,
    )


def unfinished(content_type: str, *, status: int = _OK) -> DocumentError:
    """Build the error for a reply in one piece that has no finish reason.

    The document shows one on every choice of such a reply, so nothing says that a
    reply without it came to its end.
    """
    return DocumentError(
        "The service gave a reply without a finish reason, so it may have been cut "
        "short. What came is kept as the error's `partial`; ask again for a whole "
        "reply (doc: Completion, choices).",
        status=status,
        content_type=content_type,
    )


_DONE = "[DONE]"  # doc: Response, streamed
_OURS = frozenset({"", "message", "error"})


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
        self._agreement = Agreement()
        self._seen: set[int] = set()
        self._refusal: list[str] = []
        self._first: int | None = None  # index of what came first

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add."""
        deltas: list[Delta] = []
        try:
            for event in self._decoder.events(piece):
                if self.is_done:
                    break
                if _is_ping(event):
                    continue
                self.n_events += 1
                deltas += self._take(event)
        except DocumentError as found:
            self._fail(found)
        return deltas

    def end(self) -> list[Delta]:
        """Take note that the body has ended and return what was held back."""
        return self._close(has_done=False)

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
        if not self._seen:
            return None
        body = self._assembly.body()
        return from_zero(body) if self.is_finished else body

    def _take(self, event: Event) -> list[Delta]:
        if _is_done(event, is_finished=self.is_finished):
            return self._close(has_done=True)
        found = decode_event(event, content_type=self._content_type)
        if isinstance(found, Fault):
            self._fail(to_error(found, status=200))
            return self._flush()
        chunk = self._numbered(found)
        reason = self._agreement.problem_of(chunk)
        if reason:
            raise self._contradiction(reason, event)
        deltas = tuple(self._joined(delta) for delta in chunk.deltas)
        self._add(msgspec.structs.replace(chunk, deltas=deltas, wholes=()))
        return [*deltas, *self._settle(chunk.wholes, event)]

    def _settle(self, wholes: Sequence[Delta], event: Event) -> list[Delta]:
        """Take whole messages, which may say again what the deltas said."""
        added = []
        for whole in wholes:
            found = self._agreement.settled(whole, self._choice(whole.index))
            if found is None:
                reason = "with a whole message that is not what its deltas said"
                raise self._contradiction(reason, event)
            added.append(self._joined(found))
            self._add(Chunk(deltas=(added[-1],)))
        return added

    def _choice(self, index: int) -> Choice | None:
        choices = self._assembly.body().choices
        return next((each for each in choices if each.index == index), None)

    def _numbered(self, chunk: Chunk) -> Chunk:
        """Return a chunk in which the one choice that was asked for is choice 0."""
        deltas = (*chunk.deltas, *chunk.wholes)
        if self._n_choices > 1 or not deltas:
            return chunk
        if self._first is None:
            self._first = deltas[0].index
        if self._first == 0:
            return chunk
        swapped = {self._first: 0, 0: self._first}
        return msgspec.structs.replace(
            chunk,
            deltas=tuple(_renumbered(each, swapped) for each in chunk.deltas),
            wholes=tuple(_renumbered(each, swapped) for each in chunk.wholes),
        )

    def _contradiction(self, reason: str, event: Event) -> DocumentError:
        return not_documented(
            reason, event.data.encode(), status=200, content_type=self._content_type
        )

    def _close(self, *, has_done: bool) -> list[Delta]:
        deltas = self._flush()
        self.is_done = True
        if self.error is None and self.is_finished:
            self.error = no_reply(
                self._assembly.body(),
                self._content_type,
                refusal="".join(self._refusal),
            )
        elif self.error is None:
            is_ended = has_done and self._assembly.is_finished
            self.error = (
                too_few(len(self._seen), self._n_choices, self._content_type)
                if is_ended
                else _cut_short(has_text=bool(self._seen))
            )
        return deltas

    def _add(self, chunk: Chunk) -> None:
        self._seen.update(delta.index for delta in chunk.deltas)
        self._refusal += [delta.refusal for delta in chunk.deltas if delta.refusal]
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


def _is_done(event: Event, *, is_finished: bool) -> bool:
    """Say whether an event is the last, behind a whole reply also if ill written."""
    data = event.data.strip()
    return data == _DONE or (is_finished and data.strip('"').upper() == _DONE)


def _is_ping(event: Event) -> bool:
    """Say whether an event only keeps the connection alive; it is as good as none.

    Events are data-only (doc: Response, streamed), so a named one is not the reply's
    unless it looks like a chunk.
    """
    start = event.data.lstrip()[:1]
    return not start or (event.type not in _OURS and start not in "{[")


def _renumbered(delta: Delta, numbers: dict[int, int]) -> Delta:
    index = numbers.get(delta.index, delta.index)
    return msgspec.structs.replace(delta, index=index)


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

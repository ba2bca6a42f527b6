"""Keeps keys out of a reply while it streams; the completion has them out already.

A server may echo a key over several chunks, in a text, a thought or the arguments of a
tool call.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from svc_notebook.credentials import Key, StreamRedactor
from svc_notebook.service.chunk import CallPiece, Delta

Part = Literal["text", "reasoning"] | int | None
"""A text of a choice that comes in pieces: `int` or None is the index of a call."""


class DeltaRedactor:
    """Redacts the deltas of one reply; each may end in the start of a key."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._streams: dict[tuple[int, Part], StreamRedactor] = {}

    def feed(self, delta: Delta) -> Delta:
        """Return what can be shown of a delta now, all of it where a choice ends."""
        if delta.finish_reason and not self._streams:  # a reply in one piece
            return self._key.redact(delta)
        changes: dict[str, object] = {}
        text, thought, is_end = delta.text or "", delta.reasoning, delta.finish_reason
        if (text or is_end) and (shown := self._feed(delta, "text", text)) != text:
            changes["text"] = shown
        if thought or is_end:
            changes["reasoning"] = self._feed(delta, "reasoning", thought)
        if delta.calls:
            changes["calls"] = tuple(self._call(delta, piece) for piece in delta.calls)
        if is_end:
            changes["finish_reason"] = self._key.redact(is_end)
        return replace(delta, **changes) if changes else delta

    def end(self) -> Iterator[Delta]:
        """Return what was held back, at the end of the reply."""
        for (index, part), stream in self._streams.items():
            if held := stream.end():
                yield _delta(index, part, held)

    def _call(self, delta: Delta, piece: CallPiece) -> CallPiece:
        arguments = self._feed(delta, piece.index, piece.arguments)
        return replace(self._key.redact(piece), arguments=arguments)

    def _feed(self, delta: Delta, part: Part, piece: str) -> str:
        stream = self._streams.get((delta.index, part))
        if stream is None:
            stream = self._streams[delta.index, part] = StreamRedactor(self._key)
        shown = stream.feed(piece)
        return shown + stream.end() if delta.finish_reason else shown


def _delta(index: int, part: Part, held: str) -> Delta:
    if part == "text":
        return Delta(index=index, text=held)
    if part == "reasoning":
        return Delta(index=index, reasoning=held)
    return Delta(index=index, calls=(CallPiece(index=part, arguments=held),))

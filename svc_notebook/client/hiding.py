"""Keeps the key out of a reply while it comes, also where it is cut in pieces.

What it is not: it does not know how a key is found in a text (see `credentials`),
nor what is recorded (see `echoes`). Rules: what is shown, joined, is what is
recorded; only an end that may become the key is held back, and it is out when the
next piece shows that it does not, or when its text ends.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from svc_notebook.credentials import Key
from svc_notebook.service.chunk import CallPiece, Delta

Place = tuple[int, int | None]
"""A choice's index, and a tool call's."""


class Hiding:
    """Hides one key in the deltas of one answer.

    Args:
        key: The key at hand.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._texts: dict[int, str] = {}
        self._arguments: dict[Place, str] = {}
        self._call_ids: dict[Place, str] = {}

    def take(self, delta: Delta) -> Delta:
        """Return what can be shown of a delta."""
        held = self._texts.pop(delta.index, "") if self._texts else ""
        text = delta.text
        if held or text:
            text, held = self._key.hide_so_far(held + (text or ""))
            if held:
                self._texts[delta.index] = held
        calls = tuple(self._calls(delta)) if delta.calls else ()
        if text is delta.text and not calls and not delta.finish_reason:
            return delta
        shown = replace(delta, text=text, calls=calls)
        return self._ended(shown) if delta.finish_reason else shown

    def flush(self) -> Iterator[Delta]:
        """Return what was held back, at the answer's end."""
        for index in sorted({*self._texts, *(place[0] for place in self._arguments)}):
            yield self._flushed(Delta(index=index))

    def _ended(self, delta: Delta) -> Delta:
        reason = self._key.hide(delta.finish_reason or "")
        return self._flushed(replace(delta, finish_reason=reason))

    def _flushed(self, delta: Delta) -> Delta:
        text = self._texts.pop(delta.index, "")
        places = [place for place in self._arguments if place[0] == delta.index]
        return replace(
            delta,
            text=(delta.text or "") + text if text else delta.text,
            calls=(
                *delta.calls,
                *(_rest(place, self._arguments.pop(place)) for place in places),
            ),
        )

    def _calls(self, delta: Delta) -> Iterator[CallPiece]:
        for call in delta.calls:
            place = (delta.index, call.index)
            held = self._arguments.pop(place, "")
            before = self._call_ids.get(place, call.id)
            if held and call.id and call.id != before:  # another call of this index
                yield _rest(place, held)
                held = ""
            if call.id:
                self._call_ids[place] = call.id
            arguments, held = self._key.hide_so_far(held + call.arguments)
            if held:
                self._arguments[place] = held
            yield replace(
                call,
                id=None if call.id is None else self._key.hide_whole(call.id),
                name=None if call.name is None else self._key.hide_whole(call.name),
                arguments=arguments,
            )


def _rest(place: Place, arguments: str) -> CallPiece:
    return CallPiece(index=place[1], arguments=arguments)

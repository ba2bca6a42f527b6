"""Whether the chunks of a stream are of one reply, and say one thing.

What it is not: it does not put the reply together (see `service.chunk`). Rules:
pure; what would make another text than the service meant is refused, since a wrong
text must never pass for a whole reply: two replies glued together, text behind a
choice's end, a whole message that is not what its deltas said.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from svc_notebook.service.chunk import Chunk, Delta
from svc_notebook.service.completion import Choice
from svc_notebook.wire.surrogates import mend


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

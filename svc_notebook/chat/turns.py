"""The turns of a conversation: an immutable history (words: turn, version).

What it is not: it asks nothing and knows no names. "Changing" a history returns
another one. Rules: a turn is a user's message and the versions of its answer, one
of which feeds later turns; whatever happens to a turn, `messages` can be sent.
"""

from dataclasses import dataclass, replace

from svc_notebook.service.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One answer to a turn.

    Attributes:
        exchange_id: The exchange in the ledger that brought it.
        replies: The assistant's message, with the tool messages before it, if any.
        is_partial: Whether it was interrupted or broke off.
    """

    exchange_id: str
    replies: tuple[Message, ...]
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a user said, and the answers to it.

    Attributes:
        turn_id: Stays the same when the turn is asked again.
        prompt: The user's message.
        versions: Oldest first, at least one.
        chosen: Index of the version that feeds later turns.
        is_pinned: Never left out for want of room.
        is_hidden: Never sent.
        is_stale: Answered before an earlier turn was changed.
    """

    turn_id: str
    prompt: Message
    versions: tuple[Version, ...]
    chosen: int = 0
    is_pinned: bool = False
    is_hidden: bool = False
    is_stale: bool = False

    @property
    def version(self) -> Version:
        """The chosen version."""
        return self.versions[self.chosen]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The user's message and the chosen answer."""
        return (self.prompt, *self.version.replies)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The turns of a conversation, oldest first.

    Attributes:
        system: A system message in front of every request; None for none.
        turns: Oldest first.
    """

    system: str | None = None
    turns: tuple[Turn, ...] = ()

    def place_of(self, turn_id: str) -> int | None:
        """Return the position of a turn; None if it is not there."""
        ids = [turn.turn_id for turn in self.turns]
        return ids.index(turn_id) if turn_id in ids else None

    def before(self, turn_id: str) -> tuple[Turn, ...]:
        """Return the turns that a request for this turn builds on."""
        place = self.place_of(turn_id)
        return self.turns if place is None else self.turns[:place]

    def answered(self, turn_id: str, prompt: Message, version: Version) -> "History":
        """Return the history with an answer more.

        A turn that is new comes last. One that is there keeps its place and its
        older versions; the turns after it are stale from now on.
        """
        place = self.place_of(turn_id)
        if place is None:
            turn = Turn(turn_id=turn_id, prompt=prompt, versions=(version,))
            return replace(self, turns=(*self.turns, turn))
        old = self.turns[place]
        turn = replace(
            old,
            prompt=prompt,
            versions=(*old.versions, version),
            chosen=len(old.versions),
            is_stale=False,
        )
        return self._with(place, turn)

    def choosing(self, number: int, version: int) -> "History":
        """Return the history with another version of a turn; later ones are stale.

        Args:
            number: The turn, from 1.
            version: The version, from 1.

        Raises:
            IndexError: There is no such turn or version.
        """
        turn = self.turns[_index(number, len(self.turns))]
        chosen = _index(version, len(turn.versions))
        if chosen == turn.chosen:
            return self
        return self._with(number - 1, replace(turn, chosen=chosen))

    def toggled(
        self, number: int, *, pin: bool = False, hide: bool = False
    ) -> "History":
        """Return the history with a turn pinned or hidden, or no longer so.

        Raises:
            IndexError: There is no such turn.
        """
        place = _index(number, len(self.turns))
        turn = self.turns[place]
        changed = replace(
            turn, is_pinned=turn.is_pinned ^ pin, is_hidden=turn.is_hidden ^ hide
        )
        turns = (*self.turns[:place], changed, *self.turns[place + 1 :])
        return replace(self, turns=turns)

    def _with(self, place: int, turn: Turn) -> "History":
        stale = (replace(later, is_stale=True) for later in self.turns[place + 1 :])
        return replace(self, turns=(*self.turns[:place], turn, *stale))


def _index(number: int, length: int) -> int:
    if not 1 <= number <= length:
        raise IndexError(number)
    return number - 1

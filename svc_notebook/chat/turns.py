"""The turns of a conversation: an immutable history (words: turn, version, choice).

What it is not: it asks nothing and knows no names. "Changing" a history returns
another one. Rules: a turn is what a user said and the versions of its answer, one
of which feeds later turns; a version keeps the prompt that it answers and every
choice that came; whatever happens to a turn, `messages` can be sent.
"""

from dataclasses import dataclass, replace

from svc_notebook.display.trail import Step
from svc_notebook.service.message import Message

from .places import NotThereError, place_of, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One answer to a turn.

    Attributes:
        exchange_id: The exchange in the ledger that brought it, or its newest part.
        prompt: The user's message that it answers.
        replies: The assistant's message, with the tool rounds before it, if any.
        choices: Every choice that came, where there were several; else empty.
        picked: Index of the choice that stands in `replies`.
        is_partial: Whether it was interrupted or broke off.
        is_cut: Whether it ended for want of tokens.
        is_open: Whether it asked for tools whose results are not in it yet.
        footer: One quiet line: model, finish reason, tokens, seconds.
        marks: What must not be overlooked, such as "cut".
        trail: The tool calls that were answered for it, where they are still known.
    """

    exchange_id: str
    prompt: Message
    replies: tuple[Message, ...]
    choices: tuple[Message, ...] = ()
    picked: int = 0
    is_partial: bool = False
    is_cut: bool = False
    is_open: bool = False
    footer: str = ""
    marks: tuple[str, ...] = ()
    trail: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The text of the answer, without its tool rounds."""
        return self.replies[-1].content or ""

    @property
    def can_go_on(self) -> bool:
        """Whether it stopped before its end, with some text to go on from."""
        return bool(self.text) and (self.is_partial or self.is_cut)

    def picking(self, choice: int) -> "Version":
        """Return the version with another of its choices, counted from 1.

        Raises:
            NotThereError: There is no such choice.
        """
        picked = place_of(choice, max(len(self.choices), 1), "choice")
        if not self.choices:  # it came alone
            return self
        replies = (*self.replies[:-1], self.choices[picked])
        return replace(self, replies=replies, picked=picked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a user said, and the answers to it.

    Attributes:
        turn_id: Stays the same when the turn is asked again.
        versions: Oldest first, at least one.
        chosen: Index of the version that feeds later turns.
        is_pinned: Never left out for want of room.
        is_hidden: Never sent.
        is_stale: Answered before an earlier turn was changed.
    """

    turn_id: str
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
    def prompt(self) -> Message:
        """The user's message, as the chosen version answers it."""
        return self.version.prompt

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

    def number_of(self, turn: int | str) -> int:
        """Return a turn's number, from 1.

        Args:
            turn: Its number, or its id.

        Raises:
            NotThereError: There is no such turn.
        """
        if not isinstance(turn, str):
            return place_of(turn, len(self.turns), "turn") + 1
        place = self.place_of(turn)
        if place is None:
            raise NotThereError("turn", turn, len(self.turns))
        return place + 1

    def turn(self, turn: int | str) -> Turn:
        """Return a turn by its number or its id.

        Raises:
            NotThereError: There is no such turn.
        """
        return self.turns[self.number_of(turn) - 1]

    def before(self, turn_id: str) -> tuple[Turn, ...]:
        """Return the turns that a request for this turn builds on."""
        place = self.place_of(turn_id)
        return self.turns if place is None else self.turns[:place]

    def answered(self, turn_id: str, version: Version) -> "History":
        """Return the history with an answer more.

        A turn that is new comes last. One that is there keeps its place and its
        older versions; the turns after it are stale from now on.
        """
        place = self.place_of(turn_id)
        if place is None:
            turn = Turn(turn_id=turn_id, versions=(version,))
            return replace(self, turns=(*self.turns, turn))
        old = self.turns[place]
        turn = replace(
            old,
            versions=(*old.versions, version),
            chosen=len(old.versions),
            is_stale=False,
        )
        return self._with(place, turn)

    def replacing(self, turn_id: str, index: int, version: Version) -> "History":
        """Return the history with an answer that has grown in its place.

        Args:
            turn_id: A turn that is there.
            index: Which version of it, from 0; it is chosen from now on.
            version: What the answer is now.
        """
        place = self.number_of(turn_id) - 1
        old = self.turns[place]
        versions = (*old.versions[:index], version, *old.versions[index + 1 :])
        return self._with(place, replace(old, versions=versions, chosen=index))

    def choosing(self, turn: int | str, version: int) -> "History":
        """Return the history with another version of a turn; later ones are stale.

        Args:
            turn: Its number, from 1, or its id.
            version: The version, from 1.

        Raises:
            NotThereError: There is no such turn or version.
        """
        place = self.number_of(turn) - 1
        old = self.turns[place]
        with within(place + 1):
            chosen = place_of(version, len(old.versions), "version")
        if chosen == old.chosen:
            return self
        return self._with(place, replace(old, chosen=chosen))

    def picking(self, turn: int | str, choice: int) -> "History":
        """Return the history with another choice of a turn's chosen version.

        Args:
            turn: Its number, from 1, or its id.
            choice: The choice, from 1.

        Raises:
            NotThereError: There is no such turn or choice.
        """
        place = self.number_of(turn) - 1
        old = self.turns[place]
        with within(place + 1):
            version = old.version.picking(choice)
        if version == old.version:
            return self
        return self.replacing(old.turn_id, old.chosen, version)

    def deleting(self, turn: int | str) -> "History":
        """Return the history without a turn; later ones are stale.

        Raises:
            NotThereError: There is no such turn.
        """
        return self._with(self.number_of(turn) - 1)

    def toggled(
        self, turn: int | str, *, pin: bool = False, hide: bool = False
    ) -> "History":
        """Return the history with a turn pinned or hidden, or no longer so.

        Raises:
            NotThereError: There is no such turn.
        """
        place = self.number_of(turn) - 1
        old = self.turns[place]
        changed = replace(
            old, is_pinned=old.is_pinned ^ pin, is_hidden=old.is_hidden ^ hide
        )
        turns = (*self.turns[:place], changed, *self.turns[place + 1 :])
        return replace(self, turns=turns)

    def _with(self, place: int, *turn: Turn) -> "History":
        stale = (replace(later, is_stale=True) for later in self.turns[place + 1 :])
        return replace(self, turns=(*self.turns[:place], *turn, *stale))

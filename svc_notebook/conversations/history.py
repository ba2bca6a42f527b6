"""The turns of a conversation: an immutable history (words: turn, version, choice).

What it is not: it asks nothing and knows no names. "Changing" a history returns
another one. Rules: a turn is what a user said and the versions of its answer, one
of which feeds later turns; a version keeps the prompt that it answers and every
choice that came; whatever happens to a turn, `messages` can be sent.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import RLock
from typing import Literal, NamedTuple
from uuid import uuid4

from svc_notebook.display.reply import Step
from svc_notebook.errors import ParameterError
from svc_notebook.service.message import Message

What = Literal["turn", "version", "choice"]


class NotThereError(IndexError):
    """There is no such turn, version or choice.

    Attributes:
        what: Which of them.
        asked: The number or id that was given.
        n_there: How many there are.
        turn: The number of the turn whose version or choice it would be.
    """

    def __init__(self, what: What, asked: object, n_there: int) -> None:
        super().__init__(f"There is no {what} {asked!r} of {n_there}.")
        self.what: What = what
        self.asked = asked
        self.n_there = n_there
        self.turn: int | None = None


def place_of(number: object, n_there: int, what: What) -> int:
    """Return the index of a number that counts from 1.

    Raises:
        NotThereError: There are not so many, or it is no whole number.
    """
    try:
        return range(1, n_there + 1).index(number)  # type: ignore[arg-type]  # else it is not in it
    except ValueError:
        raise NotThereError(what, number, n_there) from None


@contextmanager
def within(turn: int) -> Iterator[None]:
    """Note whose versions and choices are looked through here."""
    try:
        yield
    except NotThereError as missing:
        missing.turn = turn
        raise


@contextmanager
def said_of(name: str) -> Iterator[None]:
    """Refuse what is not there in the words of the conversation of this name.

    Raises:
        ParameterError: Something is not there.
    """
    try:
        yield
    except NotThereError as missing:
        raise ParameterError(_words(name, missing), param="turn") from None


def _words(name: str, missing: NotThereError) -> str:
    what, n_there = missing.what, missing.n_there
    if what == "turn":
        whose = f"The conversation {name!r}"
        if not n_there:
            return f"{whose} has no turns yet."
    else:
        whose = f"Turn {missing.turn} of {name!r}"
    return (
        f"{whose} has {n_there} {what}{'s'[: n_there != 1]} and no {what} "
        f"{missing.asked!r}; `%svc history {name}` lists them with their versions."
    )


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
        tool_runs: The tool calls that were answered for it, where they are still known.
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
    tool_runs: tuple[Step, ...] = ()

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


MAX_STEPS = 100
_log = logging.getLogger(__name__)

Change = Callable[[History], History]


class State(NamedTuple):
    """What can be undone.

    Attributes:
        history: The turns; histories share them, so that many cost little.
        series: What the ids of new turns begin with; a reset begins another.
    """

    history: History
    series: str


class Holding:
    """A history that several threads change.

    Args:
        name: Of the conversation, for the log.
        system: The system message.
    """

    def __init__(self, name: str, system: str | None) -> None:
        self._name = name
        self._lock = RLock()
        self._state = State(History(system=system), new_series())
        self._past: deque[State] = deque(maxlen=MAX_STEPS)
        self._listeners: list[Callable[[], object]] = []

    @property
    def state(self) -> State:
        """The history in force, with its series."""
        return self._state

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._past)

    def change(self, change: Change, *, series: str | None = None) -> None:
        """Change the history in a step that can be undone; no change is no step.

        Args:
            change: Gives the new history.
            series: What it is meant for; another series is left as it is. Any if None.

        Raises:
            NotThereError: As `change` does; then nothing is changed.
        """
        with self._lock:
            before = self._state
            if series not in (None, before.series):
                return
            after = before._replace(history=change(before.history))
            if after == before:
                return
            self._past.append(before)
            self._state = after
        self.tell()

    def say_system(self, text: str | None) -> None:
        """Put another system message in front; that is no step.

        Raises:
            ParameterError: It is no text.
        """
        if text is not None:
            Message(role="system", content=text)  # it checks what it is given
        with self._lock:
            before = self._state
            history = replace(before.history, system=text)
            self._state = before._replace(history=history)
        if history != before.history:
            self.tell()

    def begin_anew(self) -> None:
        """Forget all turns; a step."""
        with self._lock:
            self._past.append(self._state)
            system = self._state.history.system
            self._state = State(History(system=system), new_series())
        self.tell()

    def put(self, state: State) -> None:
        """Put a history that was read somewhere in place; no step."""
        with self._lock:
            self._state = state
        self.tell()

    def undo(self) -> bool:
        """Take the newest step back, but for the system message; say if there was."""
        with self._lock:
            if not self._past:
                return False
            was, system = self._past.pop(), self._state.history.system
            self._state = was._replace(history=replace(was.history, system=system))
        self.tell()
        return True

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have a function called after each change; return what ends this."""
        self._listeners.append(callback)

        def stop() -> None:
            with suppress(ValueError):  # it was ended before
                self._listeners.remove(callback)

        return stop

    def tell(self) -> None:
        """Call every listener."""
        for callback in tuple(self._listeners):
            try:
                callback()
            except Exception:  # noqa: BLE001 - whatever listens, asking goes on
                _log.exception("A listener of the conversation %r failed.", self._name)


def new_series() -> str:
    """Return what the ids of a new series of turns begin with."""
    return uuid4().hex[:12]

"""The turns of a conversation as immutable values, and undo and redo of changes.

A turn is a prompt with the versions of its answer; later requests send the chosen
version. After any change, the `messages` of a turn can be sent.
"""

import logging
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest
from threading import RLock
from typing import NamedTuple, TypeVar
from uuid import uuid4

from svc_notebook.display.escape import in_a_line
from svc_notebook.display.tool_runs import Step
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import NO_CHARGE, Attached, Charge
from svc_notebook.ledger.exchange_rows import Comparison
from svc_notebook.service.params import shorten
from svc_notebook.service.request import Message, ToolCall

from .attachments import PromptItem, split_items

STALE = "stale: the turns above have changed"
_T = TypeVar("_T")
_SYSTEM_CHARS = 30  # of a system message, below a reply
_CHARS_BEFORE = 12  # before the part that is its own, if others begin like it


def fingerprint(messages: Iterable[Message]) -> bytes:
    """Return 8 bytes for each message, to compare messages within this process.

    The system message is left out: a change of it makes no answer stale.
    """
    hashes = (hash(message) for message in messages if message.role != "system")
    return b"".join(value.to_bytes(8, "big", signed=True) for value in hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One answer to a turn."""

    exchange_id: str  # of the answer, or of its newest part; "" for imported turns
    session_id: str = ""  # of the kernel that asked; "" for copied and imported turns
    prompt: Message
    replies: tuple[Message, ...]  # messages of tool rounds, if any, and the final reply
    choices: tuple[Message, ...] = ()  # of the final reply, if there are several
    picked: int = 0  # index of the choice that is in `replies`
    is_picked: bool = False  # the user has picked this choice
    indexes: tuple[int, ...] = (0,)  # the choices' indexes in the exchange
    first_id: str = ""  # exchange of its first part, if the reply was continued
    is_partial: bool = False  # the reply was interrupted or the connection broke
    is_cut: bool = False  # the reply ended at the token limit
    is_open: bool = False  # it ends with tool calls, so it has no answer yet
    unsent_calls: tuple[ToolCall, ...] = ()  # the last ones, if results are missing
    limit: str = ""  # the limit that cut the reply, as a text
    footer: str = ""  # model, finish reason, tokens and seconds
    # the parameters that its request set, such as "top_p 0.9"; None: not known
    settings: str | None = ""
    system: str | None = None  # the system message that was sent; None: not known
    charge: Charge = NO_CHARGE  # of all its rounds and parts
    first_text_s: float | None = None  # seconds until its first text
    marks: tuple[str, ...] = ()  # warnings about the reply, such as "cut"
    tool_runs: tuple[Step, ...] = ()  # if this kernel ran them
    attached: tuple[Attached, ...] = ()  # where the prompt contains attachments
    reasonings: tuple[str, ...] = ()  # one for each choice; never sent
    context: bytes = field(default=b"", repr=False)  # see `fingerprint`
    # derived: see `History.with_stale_marks`
    is_stale: bool = field(default=False, compare=False)
    # when it was asked, and answered; None for copied and imported turns
    asked_at: datetime | None = field(default=None, compare=False, repr=False)
    ended_at: datetime | None = field(default=None, compare=False, repr=False)

    @property
    def typed(self) -> str:
        """The prompt without its attachments."""
        text = self.prompt.content or ""
        return split_items(text, self.attached)[0] if self.attached else text

    @property
    def items(self) -> tuple[PromptItem, ...]:
        """The attachments of the prompt."""
        text = self.prompt.content or ""
        return split_items(text, self.attached)[1] if self.attached else ()

    @property
    def text(self) -> str:
        """The text of the final reply; "" if it ends with the results of tools."""
        last = self.replies[-1]
        return last.content or "" if last.role == "assistant" else ""

    @property
    def all_text(self) -> str:
        """The texts of all rounds, those before tool calls too, as paragraphs."""
        replies = (reply for reply in self.replies if reply.role == "assistant")
        return "\n\n".join(reply.content for reply in replies if reply.content)

    @property
    def model(self) -> str:
        """The model that was asked, as the footer says."""
        return self.footer.partition(" · ")[0]

    @property
    def scored_id(self) -> str:
        """The exchange that has its scores; a continuation does not change it."""
        return self.first_id or self.exchange_id

    def score_key(self, choice: int) -> tuple[str, int]:
        """Return the exchange id and index that scores of a choice have."""
        is_known = choice < len(self.indexes)
        return self.scored_id, self.indexes[choice] if is_known else choice

    @property
    def is_empty(self) -> bool:
        """Whether it has neither text nor tool calls, so that it is not sent."""
        return not any(reply.content or reply.tool_calls for reply in self.replies)

    @property
    def can_go_on(self) -> bool:
        """Whether the reply has text, but was cut or interrupted."""
        is_text = bool(self.text) and not self.is_open
        return is_text and (self.is_partial or self.is_cut)

    @property
    def calls(self) -> list[tuple[ToolCall, str | None, Step | None]]:
        """The tool calls of all rounds, each with its result and its run, if known.

        An id may be used again in another round: results and runs are in order.
        """
        calls = [call for message in self.replies for call in message.tool_calls]
        results: list[tuple[str | None, str]]
        results = [(m.tool_call_id, m.content or "") for m in self.replies]
        runs: list[tuple[str | None, Step]]
        runs = [(run.call_id, run) for run in self.tool_runs]
        return [
            (call, _take(results, call.id), _take(runs, call.id))
            for call in (*calls, *self.unsent_calls)
        ]


def _take(values: list[tuple[str | None, _T]], call_id: str) -> _T | None:
    """Remove and return the first value of a call; None if there is none."""
    at = next((at for at, (id_, _) in enumerate(values) if id_ == call_id), None)
    return None if at is None else values.pop(at)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A prompt and its answers."""

    turn_id: str  # stays the same when the turn is asked again
    versions: tuple[Version, ...]  # oldest first, at least one
    chosen: int = 0  # index of the version that later requests send
    is_pinned: bool = False  # always sent, even if older turns are left out
    is_hidden: bool = False  # never sent
    # "pin" and "hide", if the user has changed them in this kernel
    set_here: frozenset[str] = field(default=frozenset(), compare=False)
    comparisons: tuple[Comparison, ...] = ()  # versions that were compared side by side

    @property
    def version(self) -> Version:
        """The chosen version."""
        return self.versions[self.chosen]

    @property
    def is_stale(self) -> bool:
        """Whether the chosen version is stale: see `History.with_stale_marks`."""
        return self.version.is_stale

    @property
    def comparison(self) -> Comparison | None:
        """The comparison side by side of the chosen version; None if there is none."""
        return self.comparison_of(self.version)

    def comparison_of(self, version: Version) -> Comparison | None:
        """Return the comparison side by side of a version; None if there is none."""
        group = self.group_of(version)
        return group if group and group.is_side_by_side else None

    def group_of(self, version: Version) -> Comparison | None:
        """Return the versions from which a version is, or can be, picked; or None."""
        groups = (group for group in self.comparisons if version.scored_id in group.ids)
        return next(groups, None)

    @property
    def is_undecided(self) -> bool:
        """Whether replies were compared and none is picked yet."""
        return self.comparison is not None and not self.comparison.picked

    @property
    def places(self) -> tuple[int, ...]:
        """The versions to step through; compared versions count as one."""
        by_place: dict[object, int] = {}
        for at, version in enumerate(self.versions):
            if comparison := self.comparison_of(version):
                by_place[comparison.ids] = self.used_of(comparison)
            else:
                by_place[at] = at
        if self.comparison:
            by_place[self.comparison.ids] = self.chosen
        return tuple(by_place.values())

    def used_of(self, group: Comparison) -> int:
        """Return the index of the compared version to use: the picked one, if any.

        Else the first that finished. Of a blind comparison it is the first column, as
        speed tells models apart; whole replies come first in any case.
        """

        def rank(at: int) -> tuple[bool, bool, float]:
            version = self.versions[at]
            ended = None if group.is_blind else version.ended_at
            return (
                version.scored_id != group.picked,
                version.is_partial,
                ended.timestamp() if ended else 0.0,
            )

        members = (
            at for at, each in enumerate(self.versions) if each.scored_id in group.ids
        )
        return min(members, key=rank)

    @property
    def prompt(self) -> Message:
        """The user's message in the chosen version."""
        return self.version.prompt

    @property
    def messages(self) -> tuple[Message, ...]:
        """The user's message and the chosen answer."""
        return (self.prompt, *self.version.replies)

    @property
    def footer(self) -> str:
        """The footer without the model; with settings, if those of versions differ."""
        version = self.version
        _, _, footer = version.footer.partition(" · ")
        if not footer:
            return ""
        parts = [footer]
        is_same = len({other.settings for other in self.versions}) == 1
        if not is_same and version.settings is not None:
            parts.append(version.settings or "default parameters")
        if self.differing_system is not None:
            others = (version.system for version in self.versions)
            parts.append(system_words(self.differing_system, others))
        return " · ".join(parts)

    @property
    def differing_system(self) -> str | None:
        """The chosen version's system message; None if all have the same."""
        is_same = len({version.system for version in self.versions}) == 1
        return None if is_same else self.version.system

    @property
    def marks(self) -> list[str]:
        """Short texts on the state of the turn, such as "pinned", and its answer."""
        marks = {
            "pinned": self.is_pinned,
            "hidden": self.is_hidden,
            STALE: self.is_stale,
        }
        marked = (mark for mark, is_set in marks.items() if is_set)
        return [*marked, *self.answer_marks]

    @property
    def answer_marks(self) -> list[str]:
        """Short texts on the chosen answer, such as "cut"."""
        version = self.version
        group = None if self.comparison else self.group_of(version)
        marks = {
            "picked": group is not None and group.picked == version.scored_id,
            "tool results missing, not sent": version.is_empty and version.is_open,
            "stopped after tool calls": version.is_open and not version.is_empty,
        }
        ended = version.marks or (("interrupted",) if version.is_partial else ())
        return [*(mark for mark, is_set in marks.items() if is_set), *ended]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The turns of a conversation, oldest first. Changing it returns another history.

    The methods take a turn by its number, from 1, or by its id, and raise a
    ParameterError if there is no such turn, version or choice.
    """

    name: str = ""
    system: str | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def is_given(self) -> bool:
        """Whether none of its turns was asked: it is empty, or was imported."""
        return not any(turn.version.exchange_id for turn in self.turns)

    def begins_with(self, other: "History") -> bool:
        """Whether it begins with the messages of all turns of another history."""
        own, others = ([turn.messages for turn in h.turns] for h in (self, other))
        return own[: len(others)] == others

    def find(self, turn_id: str) -> int | None:
        """Return the index of the turn with this id; None if there is none."""
        ids = [turn.turn_id for turn in self.turns]
        return ids.index(turn_id) if turn_id in ids else None

    def index_of(self, turn: int | str) -> int:
        """Return the index of a turn."""
        owner = f"The conversation {self.name!r}"
        if not self.turns:
            raise ParameterError(f"{owner} has no turns yet.", param="turn")
        index = self.find(turn) if isinstance(turn, str) else None
        if index is not None:
            return index
        return self._index_of_number(owner, "turn", turn, len(self.turns))

    def turn(self, turn: int | str) -> Turn:
        """Return a turn."""
        return self.turns[self.index_of(turn)]

    def before(self, turn_id: str) -> tuple[Turn, ...]:
        """Return the turns before the one with this id; all turns for a new id."""
        return self.turns[: self.find(turn_id)]

    def id_of_key(self, series: str, key: str) -> str:
        """Return the id of the turn with a key, of this series first; else a new id."""
        own_id = f"{series}/{key}"
        ids = [turn.turn_id for turn in self.turns if key_of(turn.turn_id) == key]
        return own_id if own_id in ids or not ids else ids[-1]

    def with_answer(self, turn_id: str, version: Version) -> "History":
        """Add an answer as a new turn, or as a version of the turn with this id."""
        index = self.find(turn_id)
        if index is None:
            turn = Turn(turn_id=turn_id, versions=(version,))
            return replace(self, turns=(*self.turns, turn))
        old = self.turns[index]
        versions = (*old.versions, version)
        turn = replace(old, versions=versions, chosen=len(old.versions))
        return self._replace_turn(index, turn)

    def with_version(self, turn: int | str, at: int, version: Version) -> "History":
        """Replace and choose the version at this index."""
        index = self.index_of(turn)
        old = self.turns[index]
        versions = (*old.versions[:at], version, *old.versions[at + 1 :])
        return self._replace_turn(index, replace(old, versions=versions, chosen=at))

    def with_chosen(self, turn: int | str, version: int) -> "History":
        """Choose a version, counted from 1."""
        index = self.index_of(turn)
        old = self.turns[index]
        owner = f"Turn {index + 1} of {self.name!r}"
        chosen = self._index_of_number(owner, "version", version, len(old.versions))
        if chosen == old.chosen:
            return self
        return self._replace_turn(index, replace(old, chosen=chosen))

    def with_picked(self, turn: int | str, choice: int) -> "History":
        """Pick a choice of the chosen version, counted from 1."""
        index = self.index_of(turn)
        old = self.turns[index]
        choices = old.version.choices or old.version.replies[-1:]
        owner = f"Turn {index + 1} of {self.name!r}"
        picked = self._index_of_number(owner, "choice", choice, len(choices))
        replies = (*old.version.replies[:-1], choices[picked])
        is_picked = bool(old.version.choices)
        version = replace(
            old.version, replies=replies, picked=picked, is_picked=is_picked
        )
        versions = (*old.versions[: old.chosen], version)
        versions += old.versions[old.chosen + 1 :]
        return self.with_turn(replace(old, versions=versions))

    def without(self, turn: int | str) -> "History":
        """Delete a turn."""
        return self._replace_turn(self.index_of(turn))

    def with_pin(self, turn: int | str, *, is_pinned: bool = True) -> "History":
        """Pin a turn or unpin it; nothing changes if it is so already."""
        old = self.turn(turn)
        if old.is_pinned == is_pinned:
            return self
        set_here = old.set_here | {"pin"}
        return self.with_turn(replace(old, is_pinned=is_pinned, set_here=set_here))

    def with_hidden(self, turn: int | str, *, is_hidden: bool = True) -> "History":
        """Hide a turn or show it again; nothing changes if it is so already."""
        old = self.turn(turn)
        if old.is_hidden == is_hidden:
            return self
        set_here = old.set_here | {"hide"}
        return self.with_turn(replace(old, is_hidden=is_hidden, set_here=set_here))

    def with_turn(self, turn: Turn) -> "History":
        """Replace a turn."""
        return self._replace_turn(self.index_of(turn.turn_id), turn)

    def with_stale_marks(self) -> "History":
        """Mark the versions that answer on something else than is chosen now.

        A version is stale if a turn that its request sent is now different or deleted.
        A turn that was not sent does not matter: it was hidden, empty, or left out to
        fit. But turns that its kernel did not have make it stale: those of a series
        that was added later, those that another kernel asked meanwhile, and those that
        had no answer yet.
        """
        above = _TurnsAbove()
        by_kernel: dict[tuple[str, str], _Known] = {}  # by series and session_id
        for turn in self.turns:
            series = series_of(turn.turn_id)
            others = {  # what these were built on, later turns need not know
                at: above.is_changed_for(version, series, dict(by_kernel))
                for at, version in enumerate(turn.versions)
                if at != turn.chosen
            }
            chosen = above.is_changed_for(turn.version, series, by_kernel)
            marks = [others.get(at, chosen) for at in range(len(turn.versions))]
            marked = turn
            if marks != [version.is_stale for version in turn.versions]:
                versions = (
                    replace(version, is_stale=mark)
                    for version, mark in zip(turn.versions, marks, strict=True)
                )
                marked = replace(turn, versions=tuple(versions))
            above.add(marked)
        return replace(self, turns=tuple(above.turns))

    def _replace_turn(self, index: int, *turn: Turn) -> "History":
        """Replace or delete the turn at an index."""
        turns = (*self.turns[:index], *turn, *self.turns[index + 1 :])
        return replace(self, turns=turns)

    def _index_of_number(self, owner: str, kind: str, number: object, n: int) -> int:
        """Return the index of a number from 1 to n."""
        try:
            integer = None if isinstance(number, (bool, float)) else number
            return range(1, n + 1).index(integer)  # type: ignore[arg-type]  # else ValueError
        except ValueError:
            raise ParameterError(
                f"{owner} has {n} {kind}{'s'[: n != 1]} and no {kind} {number!r}; "
                f"`%svc history {in_a_line(self.name)}` lists them with their "
                "versions.",
                param=kind,
            ) from None


@dataclass(slots=True)
class _Known:
    """What a kernel knew of the turns above its own ones in a series."""

    all_series: set[str]  # its own, and those of which it has sent turns
    until: int | None = None  # it had the turns of other kernels up to this place


class _TurnsAbove:
    """The turns above another one, and whether that one was answered on them."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.messages = b""  # the fingerprint of all
        self._parts: list[bytes] = []  # that of each turn
        self._begins: dict[str, int] = {}  # place of the first shown turn of a series
        self._first_ends: list[tuple[int, datetime]] = []  # of answers, with the place
        self._newest_end: datetime | None = None  # of these

    def add(self, turn: Turn) -> None:
        """Add a turn below these."""
        self._parts.append(fingerprint(turn.messages))
        self.messages += self._parts[-1]
        if _is_shown(turn):
            self._begins.setdefault(series_of(turn.turn_id), len(self.turns))
            ends = [version.ended_at for version in turn.versions if version.ended_at]
            if len(ends) == len(turn.versions):
                self._first_ends.append((len(self.turns), min(ends)))
                self._newest_end = max(min(ends), self._newest_end or min(ends))
        self.turns.append(turn)

    def is_changed_for(
        self,
        version: Version,
        series: str,
        by_kernel: dict[tuple[str, str], _Known],
    ) -> bool:
        """Return whether a version of a turn of this series is stale.

        What its kernel knew and has sent is added to `by_kernel`.
        """
        key = series, version.session_id
        old = by_kernel.get(key, _Known(set()))
        # a new one, as a copy of `by_kernel` shares the old one
        known = by_kernel[key] = _Known({series, *old.all_series}, old.until)
        # one kernel had all turns, though the oldest may have been left out
        is_one = len(by_kernel) == 1 and self.messages.endswith(version.context)
        if is_one or version.context == self.messages:
            known.until = len(self.turns)
            known.all_series.update(name for name, _ in by_kernel)
        elif not self.were_sent(version, known):  # with some of the turns only
            return True
        return self.has_later(version)

    def were_sent(self, version: Version, known: _Known) -> bool:
        """Return whether they still have all messages that an answer was built on.

        What the answer's kernel knew of other series and kernels is in `known`; what it
        has sent is added.
        """
        sent, unsent, n_above, is_whole = self._split(version.context)
        known.all_series.update(series_of(self.turns[at].turn_id) for at in sent)
        of_others = [
            at
            for at in sent
            if self._is_of_other(at, version) and not self.turns[at].is_pinned
        ]
        if known.until is None:  # a kernel goes on with all turns that there are
            known.until = max(of_others, default=len(self.turns))
        known.until = until = max([known.until, *of_others])
        unsent = [at for at in unsent if _is_shown(self.turns[at])]
        all_series = {name for name in self._begins if self._begins[name] < n_above}
        all_series.update(series_of(self.turns[at].turn_id) for at in unsent)
        unsent += filter(
            lambda at: _is_shown(self.turns[at]), range(until + 1, n_above)
        )
        has_missed = any(at > until and self._is_of_other(at, version) for at in unsent)
        return is_whole and all_series <= known.all_series and not has_missed

    def has_later(self, version: Version) -> bool:
        """Return whether a turn that was not sent had no answer yet."""
        asked_at = version.asked_at
        if not (asked_at and self._newest_end and self._newest_end > asked_at):
            return False
        later = {at for at, ended in self._first_ends if ended > asked_at}
        _, unsent, n_above, _ = self._split(version.context)
        return not later.isdisjoint((*range(n_above), *unsent))

    def _split(self, context: bytes) -> tuple[list[int], list[int], int, bool]:
        """Return the places of the turns that were sent, and of those that were not.

        Also how many turns are above these, which were not sent either, and whether all
        that was sent is still here.
        """
        sent, unsent = list[int](), list[int]()
        at = len(self.turns)
        while context and at > 0:  # the oldest turns are left out first
            at -= 1
            is_sent = context.endswith(self._parts[at])
            (sent if is_sent else unsent).append(at)
            context = context[: -len(self._parts[at])] if is_sent else context
        return sent, unsent, at, not context

    def _is_of_other(self, at: int, version: Version) -> bool:
        """Return whether another kernel asked the turn at this place."""
        return self.turns[at].version.session_id not in {"", version.session_id}


def _is_shown(turn: Turn) -> bool:
    """Return whether later requests send a turn, if it fits."""
    return not (turn.is_hidden or turn.version.is_empty)


def system_words(system: str, others: Iterable[str | None]) -> str:
    """Return the first words of a system message, or those that others do not have."""
    text, *rest = (" ".join((one or "").split()) for one in (system, *others))
    if not text:
        return "no system prompt"
    differ_at = (_first_difference(text, other) for other in {*rest} - {text})
    start = max(differ_at, default=0)
    is_in_sight = len(text) <= _SYSTEM_CHARS or start < _SYSTEM_CHARS // 2
    start = 0 if is_in_sight else max(0, start - _CHARS_BEFORE)
    if start:
        start = text.find(" ", start, start + _CHARS_BEFORE) + 1 or start
    while unicodedata.category(text[start]) == "Mn":  # a mark belongs to a letter
        start -= 1
    words = shorten(text[start:], _SYSTEM_CHARS)
    return f"system prompt “{'...' * bool(start)}{words}”"


def _first_difference(text: str, other: str) -> int:
    """Return the index of the first character that two texts do not share."""
    pairs = enumerate(zip_longest(text, other))
    return next((at for at, (one, two) in pairs if one != two), len(text))


def new_series() -> str:
    """Return the name of a new series."""
    return uuid4().hex[:12]


def series_of(turn_id: str | None) -> str:
    """Return the series of a turn; all turns between two resets have the same."""
    return (turn_id or "").partition("/")[0]


def key_of(turn_id: str) -> str:
    """Return the key of a turn in its series; of a cell's turn, it names the cell."""
    return turn_id.partition("/")[2]


# Copied turns have no exchange of their own in the ledger. Their ids are numbered back
# from the first turn that was asked, so that a restore gives them the same ids again.
COPIED = "copied-"


def is_copied(turn_id: str) -> bool:
    """Whether a turn was copied or imported, so that its place is its key."""
    return key_of(turn_id).startswith(COPIED)


MAX_UNDO = 100  # steps that can be undone; the oldest ones are forgotten

_log = logging.getLogger(__name__)


class HistoryState(NamedTuple):
    """One state that undo can return to."""

    history: History  # states share their turns, so many states cost little
    series: str  # prefix of the ids of new turns; a reset starts a new one
    before: str = ""  # the series before a restore; its late answers are still added
    added: frozenset[str] = frozenset()  # ids of turns that were added from the ledger

    def takes(self, turn_id: str) -> bool:
        """Whether it has this turn, or the turn belongs to one of its series."""
        is_known = self.history.find(turn_id) is not None
        return is_known or series_of(turn_id) in {self.series, self.before}

    @property
    def all_series(self) -> set[str]:
        """The series of all its turns, and of turns that may still be added."""
        ids = self.added.union(turn.turn_id for turn in self.history.turns)
        return ({*map(series_of, ids), self.series, self.before}) - {""}


class UndoableHistory:
    """A history that several threads change, with undo, redo and listeners."""

    def __init__(self, name: str) -> None:
        self._lock = RLock()
        self._state = HistoryState(History(name=name), new_series())
        self._past: deque[HistoryState] = deque(maxlen=MAX_UNDO)
        self._undone: deque[HistoryState] = deque(maxlen=MAX_UNDO)  # newest last
        self._listeners: list[Callable[[], object]] = []

    @property
    def state(self) -> HistoryState:
        """The current history and its series."""
        return self._state

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        """Whether there is an undone step to redo."""
        return bool(self._undone)

    def change(
        self,
        change: Callable[[History], History],
        *,
        turn_id: str | None = None,
        added: Iterable[str] = (),
    ) -> None:
        """Change the history in one step that can be undone.

        If `change` raises, the history stays as it is. With `turn_id`, it is only
        changed if it has this turn or its series. `added` are the ids of turns that
        are added from the ledger.
        """
        with self._lock:
            before = self._state
            if turn_id is not None and not before.takes(turn_id):
                return
            history = change(before.history).with_stale_marks()
            if history == before.history:
                return
            after = before._replace(history=history, added=before.added.union(added))
            self._past.append(before)
            self._undone.clear()
            self._state = after
        self._notify()

    def set_system(self, text: str | None) -> None:
        """Change the system message; undo does not change it back."""
        if text is not None:
            Message(role="system", content=text)  # checks the text
        with self._lock:
            before = self._state
            history = replace(before.history, system=text)
            self._state = before._replace(history=history)
        if history != before.history:
            self._notify()

    def rename(self, name: str) -> None:
        """Change the name; undo does not change it back."""
        with self._lock:
            history = replace(self._state.history, name=name)
            self._state = self._state._replace(history=history)
        self._notify()

    def reset(self) -> None:
        """Remove all turns and start a new series; can be undone."""
        with self._lock:
            self._past.append(self._state)
            self._undone.clear()
            history = replace(self._state.history, turns=())
            self._state = HistoryState(history, new_series())
        self._notify()

    def put(self, state: HistoryState) -> None:
        """Replace the history; cannot be undone."""
        with self._lock:
            self._undone.clear()
            history = state.history.with_stale_marks()
            self._state = state._replace(history=history)
        self._notify()

    def undo(self) -> bool:
        """Undo the newest step; return whether there was one."""
        return self._move(self._past, self._undone)

    def redo(self) -> bool:
        """Redo the step that was undone last; return whether there was one."""
        return self._move(self._undone, self._past)

    def _move(self, source: deque[HistoryState], target: deque[HistoryState]) -> bool:
        with self._lock:
            if not source:
                return False
            step, current = source.pop(), self._state
            target.append(current)
            name, system = current.history.name, current.history.system
            history = replace(step.history, name=name, system=system)
            self._state = step._replace(history=history)
        self._notify()
        return True

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each change; return a function that stops the calls."""
        self._listeners.append(callback)

        def stop() -> None:
            with suppress(ValueError):  # stopped already
                self._listeners.remove(callback)

        return stop

    def _notify(self) -> None:
        for callback in tuple(self._listeners):
            try:
                callback()
            except Exception:  # noqa: BLE001 - a listener must not stop a request
                name = self._state.history.name
                _log.exception("A listener of the conversation %r failed.", name)

"""Rebuilds the turns of a conversation from the ledger, for `restore`.

Each kernel, and each reset, begins a series of turns. A series is restored as a whole,
together with picks, pins, hidden and deleted turns, and undone changes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec

from svc_notebook.display.escape import in_a_line, to_terminal
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.exchange_rows import TurnMarks
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.tool_calls import ToolRow
from svc_notebook.service.params import shorten
from svc_notebook.service.request import Message

from .history import (
    COPIED,
    History,
    HistoryState,
    Turn,
    Version,
    fingerprint,
    is_copied,
    key_of,
    series_of,
)
from .history_changes import turns_words
from .merge import merge, share_turns
from .picks import in_columns_order
from .turn_request import add_answer

# Sweeps and data frames have no conversations.
_ORIGINS = ("magic", "panel", "python")

Rows = tuple[tuple[str, ...], ...]  # see `TurnMarks.seen`

_PROMPT_CHARS = 40  # of the first prompt, in the list that `%svc restore NAME` shows


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SavedTurns:
    """A series of turns in the ledger."""

    number: int  # among the series of the conversation, by their begin, from 1
    series: str
    history: History  # the turns, and the system message of the newest
    started_at: datetime  # of its first request (aware, UTC)
    ended_at: datetime  # start of its last request (aware, UTC)
    is_own: bool  # whether this kernel asked some of its turns
    is_newest: bool  # whether it was seen last: asked, or restored by hand
    newest_id: str  # of the exchanges of the conversation, as the ledger sorts them
    panel_ids: frozenset[str]  # ids of the turns that only panels asked
    asked: Mapping[str, frozenset[str]]  # ids of the exchanges of each turn, by its id
    # what a panel asked last, alone: compared replies have other settings
    panel_exchange: Exchange | None = None
    # with the turns of other series that were added to it; None if there are none
    as_seen: "SavedTurns | None" = None
    is_as_seen: bool = False  # whether a new kernel begins with just these turns

    def is_in(self, history: History) -> bool:
        """Whether a history has all of its turns and versions."""
        return merge(history, self.history) == history

    def n_missing(self, history: History) -> int:
        """Count the turns that a history does not have."""
        return len(merge(history, self.history).turns) - len(history.turns)

    @property
    def all_series(self) -> set[str]:
        """The series whose turns it has."""
        return {self.series, *map(series_of, self.asked)}

    @property
    def exchange_ids(self) -> frozenset[str]:
        """The ids of all exchanges of its turns."""
        return frozenset().union(*self.asked.values())

    def begins_with(self, turn_key: str | None, prompt: str) -> bool:
        """Whether a cell asked the first turn: the same cell, or the same prompt."""
        first = self.history.turns[0]
        prompts = (version.prompt.content for version in first.versions)
        return key_of(first.turn_id) == (turn_key or None) or prompt in prompts

    def __str__(self) -> str:
        first = self.history.turns[0].prompt.content or ""
        prompt = shorten(to_terminal(" ".join(first.split())), _PROMPT_CHARS)
        kernel = "this kernel" if self.is_own else "another kernel"
        return (
            f"{self.number}  {self.started_at.astimezone():%Y-%m-%d %H:%M}, {kernel}, "
            f"{n_turns(len(self.history.turns))}: {prompt}"
        )

    def __repr__(self) -> str:
        return f"<SavedTurns {self}>"


def n_turns(n: int) -> str:
    """Return a number of turns as a text, such as "2 turns"."""
    return f"{n} turn{'s'[: n != 1]}"


def lost_marks(before: History, merged: History) -> dict[str, list[Turn]]:
    """Return the turns that are pinned or hidden only since a merge."""
    here = {turn.turn_id: turn for turn in before.turns}
    turns = [turn for turn in merged.turns if turn.turn_id in here]
    marks = {
        "pinned": [t for t in turns if t.is_pinned > here[t.turn_id].is_pinned],
        "hidden": [t for t in turns if t.is_hidden > here[t.turn_id].is_hidden],
    }
    return {mark: marked for mark, marked in marks.items() if marked}


def marks_words(
    marks: Mapping[str, list[Turn]], history: History, verbs: tuple[str, str]
) -> str:
    """Return which turns are pinned or hidden, with their numbers in a history."""
    parts = []
    for mark, turns in marks.items():
        numbered = {history.index_of(turn.turn_id) + 1: turn for turn in turns}
        verb = verbs[len(turns) > 1]
        parts.append(f"{turns_words(numbered)} {verb} {mark}")
    return " and ".join(parts)


def read_saved(
    ledger: Ledger, name: str | None = None
) -> dict[str, tuple[SavedTurns, ...]]:
    """Read the turns of one conversation or of all, by the conversation's name."""
    by_name: dict[str, list[Exchange]] = {}
    for exchange in ledger.read(scope="all", conversation=name, origin=_ORIGINS):
        if exchange.origin.conversation:
            by_name.setdefault(exchange.origin.conversation, []).append(exchange)
    rows: dict[str, tuple[ToolRow, ...]] = {}
    for row in ledger.tool_runs(scope="all", conversation=name):
        rows[row.exchange_id] = (*rows.get(row.exchange_id, ()), row)
    kernels = _Kernels(ledger.session_id, ledger.sessions(name))
    marks: dict[str, dict[str, TurnMarks]] = {}
    for (key, turn_id), mark in ledger.marks().items():
        marks.setdefault(key, {})[turn_id] = mark
    series = {
        key: _rebuild(key, exchanges, rows, kernels, marks.get(key, {}))
        for key, exchanges in by_name.items()
    }
    return {key: saved for key, saved in series.items() if saved}


def older_note(name: str, n: int, *, kind: str = "turn", owner: str = "") -> str:
    """Return a note on how many turns a restore brings back; "" if it has none.

    Or how many of another kind, such as versions, if their owner is no conversation.
    """
    if not n:
        return ""
    return (
        f"the ledger has {n} older {kind}{'s'[: n != 1]} of {owner or name}, not sent "
        f"here; `%svc restore {in_a_line(name)}` brings {'it' if n == 1 else 'them'} "
        "back"
    )


def pick_saved(
    saved: tuple[SavedTurns, ...], name: str, number: int | str | None
) -> SavedTurns:
    """Return the series with a number, or what was seen last, with what was added."""
    if not saved:
        raise ParameterError(
            f"The ledger has no turns of {name!r}.", param="conversation"
        )
    if number is None:
        newest = next(
            (series for series in saved if series.is_newest),
            max(saved, key=lambda series: series.ended_at),
        )
        return replace(newest.as_seen or newest, is_as_seen=True)
    if type(number) is int and 0 < number <= len(saved):
        return saved[number - 1]
    raise ParameterError(
        f"{number!r} is not a number in the list of `%svc restore {in_a_line(name)}`; "
        f"choose a number from 1 to {len(saved)}.",
        param="number",
    )


def joined(first: SavedTurns, others: Iterable[SavedTurns]) -> SavedTurns:
    """Merge the turns of other series, as seen, into one, whose answers stay shown."""
    newest_first = sorted(others, key=attrgetter("number"), reverse=True)
    if not newest_first:
        return first.as_seen or first
    series = [each.as_seen or each for each in (first, *newest_first)]
    history = series[0].history
    for each in series[1:]:
        history = merge(history, each.history)
    return replace(
        series[0],
        history=history,
        panel_ids=frozenset().union(*(each.panel_ids for each in series)),
        asked={key: ids for each in series for key, ids in each.asked.items()},
        panel_exchange=last_in_panel(series),
        is_as_seen=False,
    )


def related(
    history: History, names: Collection[str], saved: Iterable[SavedTurns]
) -> list[SavedTurns]:
    """Return the series that belong to a history of other series: its earlier runs.

    They have a turn in common with it, or the turns of one were added to the other.
    """
    names, found = set(names), list[SavedTurns]()
    rest = [each for each in saved if each.series not in names]
    n_before = -1
    while len(found) > n_before:
        n_before = len(found)
        for each in tuple(rest):
            seen = each.as_seen or each
            if not names.isdisjoint(seen.all_series) or share_turns(
                history, seen.history
            ):
                rest.remove(each)
                found.append(each)
                names |= seen.all_series
                history = merge(history, seen.history)
    return sorted(found, key=attrgetter("number"))


class _Kernels(NamedTuple):
    """Which kernel asked each exchange."""

    own_id: str  # the session_id of this kernel
    sessions: Mapping[str, str]  # session_id, by exchange_id

    def is_own(self, exchange: Exchange) -> bool:
        """Return whether this kernel asked."""
        return self.sessions.get(exchange.exchange_id) == self.own_id


def _rebuild(
    name: str,
    exchanges: list[Exchange],
    tool_rows: Mapping[str, tuple[ToolRow, ...]],
    kernels: _Kernels,
    marks: Mapping[str, TurnMarks],
) -> tuple[SavedTurns, ...]:
    """Rebuild the turns of a conversation: one item for each series that has turns.

    Series and turns are in the order of the ledger, not by time: a clock may have been
    set back.
    """
    answered = [
        exchange
        for exchange in exchanges
        if exchange.origin.turn_id
        and any(choice.text or choice.tool_calls for choice in exchange.choices)
    ]
    by_series: dict[str, list[Exchange]] = {}
    for exchange in answered:
        by_series.setdefault(series_of(exchange.origin.turn_id), []).append(exchange)
    newest = _seen_last(by_series, exchanges, marks)

    def read(series: str, seen: TurnMarks) -> SavedTurns:
        rows = seen.seen
        names = {series, *(series_of(turn_id) for row in rows for turn_id in row)}
        answers = [
            exchange
            for exchange in answered
            if series_of(exchange.origin.turn_id) in names
        ]
        history = _to_history(
            name, _not_undone(answers, marks), rows, tool_rows, kernels.sessions
        )
        copied = [
            _turns_before(asked[0], history)
            for key, asked in by_series.items()
            if key in names
        ]
        turns = _in_order((*chain(*copied), *history.turns), seen, marks)
        ids: dict[str, set[str]] = {}
        for exchange in answers:
            turn_id = exchange.origin.turn_id or ""
            ids.setdefault(turn_id, set()).add(exchange.exchange_id)
        return SavedTurns(
            number=0,
            series=series,
            history=replace(history, turns=turns),
            started_at=answers[0].started_at,
            ended_at=answers[-1].started_at,
            is_own=any(map(kernels.is_own, answers)),
            is_newest=series == newest,
            newest_id=exchanges[-1].exchange_id,
            panel_ids=frozenset(ids)
            - {
                exchange.origin.turn_id
                for exchange in answers
                if exchange.origin.kind != "panel"
            },
            asked={key: frozenset(some) for key, some in ids.items()},
            panel_exchange=_panel_exchange(answers, marks),
        )

    restored: list[SavedTurns] = []
    for series in by_series:
        saved = read(series, TurnMarks())
        if (mark := marks.get(mark_id(series))) and mark.seen:
            seen = read(series, mark)
            saved = replace(saved if saved.history.turns else seen, as_seen=seen)
        if saved.history.turns:
            restored.append(replace(saved, number=len(restored) + 1))
    return tuple(restored)


def _in_order(
    turns: Iterable[Turn], seen: TurnMarks, marks: Mapping[str, TurnMarks]
) -> tuple[Turn, ...]:
    """Apply marks; order turns as they were seen, before those that came later."""
    by_id = {turn.turn_id: turn for turn in turns}
    same = {row[0]: row[1:] for row in seen.seen}
    later = {
        key: turn
        for key, turn in by_id.items()
        if not (key in seen.gone or (same and is_copied(key)))
    }
    ordered = {key: by_id[key] for key in same if key in by_id}
    marked = []
    for key, turn in (ordered | later).items():
        gone = [marks[other].gone for other in same.get(key, ()) if other in marks]
        marked.append(_with_marks(turn, marks.get(key), frozenset().union(*gone)))
    return tuple(turn for turn in marked if turn)


def mark_id(series: str) -> str:
    """Return the id under which a series itself has marks; no turn has it."""
    return f"{series}/"


def _seen_last(
    by_series: Mapping[str, list[Exchange]],
    exchanges: list[Exchange],
    marks: Mapping[str, TurnMarks],
) -> str:
    """Return the series that was asked last, or restored by hand since."""
    numbers = {exchange.exchange_id: at for at, exchange in enumerate(exchanges)}
    seen = {
        series: (numbers[answers[-1].exchange_id], 0)
        for series, answers in by_series.items()
    }
    for at, (turn_id, mark) in enumerate(marks.items(), start=1):  # the newest last
        series = series_of(turn_id)
        if turn_id == mark_id(series) and series in seen:
            seen[series] = max(seen[series], (numbers.get(mark.newest, -1), at))
    return max(seen, key=lambda series: seen[series], default="")


def last_in_panel(saved: Iterable[SavedTurns]) -> Exchange | None:
    """Return what a panel asked last in these series; None if it asked nothing."""
    asked = filter(None, (each.panel_exchange for each in saved))
    return max(asked, key=attrgetter("exchange_id"), default=None)  # ids sort by time


def _panel_exchange(
    answers: list[Exchange], marks: Mapping[str, TurnMarks]
) -> Exchange | None:
    groups = (group for mark in marks.values() for group in mark.comparisons)
    compared = {
        exchange_id
        for group in groups
        if group.is_side_by_side
        for exchange_id in group.ids
    }
    for exchange in reversed(answers):
        origin = exchange.origin
        is_alone = exchange.exchange_id not in compared and not origin.continues
        if origin.kind == "panel" and is_alone:
            return exchange
    return None


def _to_history(
    name: str,
    exchanges: list[Exchange],
    seen: Rows,
    rows: Mapping[str, tuple[ToolRow, ...]],
    sessions: Mapping[str, str],
) -> History:
    one_id = {turn_id: row[0] for row in seen for turn_id in row}
    history = History(name=name, system=exchanges[-1].request.system)
    runs: dict[str | None, tuple[ToolRow, ...]] = {}  # by turn, of its newest answer
    for exchange in exchanges:
        turn_id = exchange.origin.turn_id or ""
        turn_id = one_id.get(turn_id, turn_id)
        is_later_round = exchange.request.messages[-1].role == "tool"
        before = runs.get(turn_id, ()) if is_later_round else ()
        runs[turn_id] = (*before, *rows.get(exchange.exchange_id, ()))
        history = add_answer(
            history,
            exchange,
            msgspec.structs.replace(exchange.origin, turn_id=turn_id),
            runs[turn_id],
            session_id=sessions.get(exchange.exchange_id, ""),
        )
    return history


def _turns_before(exchange: Exchange, history: History) -> tuple[Turn, ...]:
    """Return the copied turns of a series, which come before its own turns.

    Turns of other series that were added before its first request are not copied ones.
    """
    series = series_of(exchange.origin.turn_id)
    added = {
        (version.prompt, *version.replies)
        for turn in history.turns
        if series_of(turn.turn_id) != series
        for version in turn.versions
    }
    sent = [
        message for message in exchange.request.messages if message.role != "system"
    ]
    starts = [at for at, message in enumerate(sent) if message.role == "user"]
    if exchange.origin.continues:
        starts = starts[:-1]  # the last one asks for the rest
    turns = []
    for at, end in pairwise(starts):
        replies: tuple[Message, ...] = tuple(sent[at + 1 : end])
        if replies and (sent[at], *replies) not in added:
            version = Version(
                exchange_id=exchange.exchange_id, prompt=sent[at], replies=replies
            )
            turns.append(Turn(turn_id="", versions=(version,)))
    return to_copied(turns, series)


def to_copied(turns: Sequence[Turn], series: str) -> tuple[Turn, ...]:
    """Give copied turns ids, numbered back from the newest, as a restore does.

    They count as answered on the copied turns before them: a restore knows only these.
    """
    copied: list[Turn] = []
    context = b""
    for at, turn in enumerate(turns):
        versions = tuple(
            replace(
                version, session_id="", context=context, asked_at=None, ended_at=None
            )
            for version in turn.versions
        )
        turn_id = f"{series}/{COPIED}{len(turns) - at}"
        copied.append(replace(turn, turn_id=turn_id, versions=versions))
        context += fingerprint(turn.messages)
    return tuple(copied)


def changed_marks(
    before: HistoryState, after: HistoryState, known: Mapping[str, set[str]]
) -> Iterator[tuple[str, TurnMarks]]:
    """Return the id and the new marks of each turn that a change has altered.

    `known` holds the ids of all exchanges of each turn. A deleted turn is also deleted
    in the series from which it has answers.
    """
    was, is_now = (
        {turn.turn_id: turn for turn in state.history.turns}
        for state in (before, after)
    )
    moved = before.added ^ after.added  # from the ledger to here, or back by an undo
    for turn_id in {**was, **is_now}:
        old, new = was.get(turn_id), is_now.get(turn_id)
        if old == new:
            continue
        if turn_id not in moved and not (old and new):
            for other in same_turns(new or was[turn_id], known):
                yield other, to_marks(new, known[other])
        if new or turn_id not in moved:
            yield turn_id, to_marks(new, known.get(turn_id, set()))


def same_turns(turn: Turn, known: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return the ids of the other turns from which a turn has answers."""
    if is_copied(turn.turn_id):
        return ()
    answers = {each.exchange_id for each in turn.versions}
    answers.update(each.scored_id for each in turn.versions)
    others = (key for key, ids in known.items() if not answers.isdisjoint(ids))
    return tuple(key for key in others if key != turn.turn_id)


def to_marks(turn: Turn | None, known: set[str]) -> TurnMarks:
    """Return the marks of a turn with all of its exchanges; None if it was deleted."""
    if turn is None:
        newest = max(known, default="")
        return TurnMarks(is_deleted=True, newest=newest, gone=frozenset(known))
    newest = max([*known, *(version.exchange_id for version in turn.versions)])
    return TurnMarks(
        is_pinned=turn.is_pinned,
        is_hidden=turn.is_hidden,
        chosen=turn.version.exchange_id,
        newest=newest,
        picked={
            version.exchange_id: version.picked
            for version in turn.versions
            if version.is_picked
        },
        gone=frozenset(known - {version.exchange_id for version in turn.versions}),
        comparisons=turn.comparisons,
    )


def _not_undone(
    exchanges: list[Exchange], marks: Mapping[str, TurnMarks]
) -> list[Exchange]:
    """Leave out continuations that were undone, so that the text before them remains.

    A continuation is kept if a later continuation builds on it.
    """
    gone = {exchange_id for turn in marks.values() for exchange_id in turn.gone}
    remaining: list[Exchange] = []
    needed: set[str | None] = set()
    for exchange in reversed(exchanges):
        is_gone = exchange.exchange_id in gone and exchange.exchange_id not in needed
        if not (is_gone and exchange.origin.continues):
            remaining.append(exchange)
        if not is_gone:
            needed.add(exchange.origin.continues)
    return remaining[::-1]


def _with_marks(
    turn: Turn, marks: TurnMarks | None, others_gone: frozenset[str]
) -> Turn | None:
    """Apply its marks to a turn from the ledger; None if it was deleted.

    `others_gone` are the answers that are gone from the same turns of other series.
    """
    if marks is None:
        return turn
    if marks.is_deleted and is_copied(turn.turn_id):
        return None  # the check of ids below fails: it has the id of a later exchange
    remaining = (
        _with_picked(version, marks.picked.get(version.exchange_id, -1))
        for version in turn.versions
        if version.exchange_id not in marks.gone | others_gone
    )
    versions = in_columns_order(remaining, marks.comparisons)
    if not versions:
        return None
    ids = [version.exchange_id for version in versions]
    newest = max(ids)  # asked or continued last
    is_chosen = newest <= marks.newest and marks.chosen in ids
    return replace(
        turn,
        versions=versions,
        chosen=ids.index(marks.chosen if is_chosen else newest),
        is_pinned=marks.is_pinned,
        is_hidden=marks.is_hidden,
        comparisons=marks.comparisons,
    )


def _with_picked(version: Version, picked: int) -> Version:
    if not 0 <= picked < len(version.choices):
        return version
    replies = (*version.replies[:-1], version.choices[picked])
    return replace(version, replies=replies, picked=picked, is_picked=True)

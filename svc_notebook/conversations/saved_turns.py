"""Conversations in the ledger: their list, and the turns that `restore` brings back.

Kernels, and resets, begin a series of turns each; a series is restored as a whole,
with what was picked, pinned, hidden, deleted or undone. A search looks at names,
prompts and replies. One damaged exchange does not hide others.
"""

import sqlite3
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

import msgspec

from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import LedgerError, ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import Column
from svc_notebook.ledger.row import ToolRow, TurnMarks, from_row
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.checks import check_text, must_be, shorten
from svc_notebook.service.request import Message

from .history import History, Turn, Version, series_of
from .turn_requests import add_answer

_ORIGINS = ("magic", "panel", "python")
_PROMPT_CHARS = 40
_COPIED = "copied-"

Pair = tuple[Message, Message]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SavedTurns:
    """A series of turns in the ledger."""

    number: int  # among those of the conversation, by their begin, from 1
    series: str
    history: History  # the turns, and the system message of the newest
    started_at: datetime  # when it was first asked (aware, UTC)
    ended_at: datetime  # when it was last asked
    is_own: bool  # this kernel asked some of it
    is_newest: bool  # it was the last that was asked
    sent: Mapping[str, frozenset[Pair]]  # messages of each request, by exchange_id
    asked: Mapping[str, frozenset[str]]  # ids of the exchanges of each turn, by its id

    def is_in(self, history: History) -> bool:
        """Whether a history has all of its turns."""
        return all(
            history.find(turn.turn_id) is not None for turn in self.history.turns
        )

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


def n_turns(n: int, what: str = "") -> str:
    """Write a number of turns."""
    return f"{n} {what}turn{'s'[: n != 1]}"


def read_saved(
    ledger: Ledger, name: str | None = None
) -> dict[str, tuple[SavedTurns, ...]]:
    """Read the turns of one conversation or of all, by the conversation's name."""
    by_name: dict[str, list[Exchange]] = {}
    for each in ledger.read(scope="all", conversation=name, origin=_ORIGINS):
        if each.origin.conversation:
            by_name.setdefault(each.origin.conversation, []).append(each)
    rows: dict[str, tuple[ToolRow, ...]] = {}
    for row in ledger.tool_runs(scope="all", conversation=name):
        rows[row.exchange_id] = (*rows.get(row.exchange_id, ()), row)
    own = ledger.read(conversation=name, origin=_ORIGINS, texts=False)
    ids = {each.exchange_id for each in own}
    marks: dict[str, dict[str, TurnMarks]] = {}
    for (key, turn_id), mark in ledger.marks().items():
        marks.setdefault(key, {})[turn_id] = mark
    found = {
        key: _rebuild(key, asked, rows, ids, marks.get(key, {}))
        for key, asked in by_name.items()
    }
    return {key: saved for key, saved in found.items() if saved}


def older_note(ledger: Ledger, name: str) -> str:
    """Say how many turns a ledger has, and how to see them; "" for none."""
    asked = ledger.read(scope="all", conversation=name, origin=_ORIGINS, texts=False)
    n = len({each.origin.turn_id for each in asked if each.status == "ok"})
    if not n:
        return ""
    return (
        f"the ledger has {n_turns(n, 'older ')} of {name}, not sent here: see "
        f"`%svc restore {name}`"
    )


def pick_saved(
    saved: tuple[SavedTurns, ...], name: str, number: int | str | None
) -> SavedTurns:
    """Return the series of this number, or the newest with what it was built on."""
    if not saved:
        raise ParameterError(
            f"The ledger has no turns of {name!r}.", param="conversation"
        )
    if number is None:
        newest = next((each for each in saved if each.is_newest), saved[-1])
        return _with_others_sent(newest, saved)
    if type(number) is int and 0 < number <= len(saved):
        return saved[number - 1]
    raise ParameterError(
        f"{number!r} is not a number of the list that `%svc restore {name}` shows; "
        f"choose a number from 1 to {len(saved)}.",
        param="number",
    )


def _with_others_sent(newest: SavedTurns, saved: tuple[SavedTurns, ...]) -> SavedTurns:
    """Add the other series that requests of the newest sent, after a restore there."""
    history = newest.history
    own = {pair for turn in history.turns for pair in _pairs(turn)}
    for each in saved:
        theirs = {pair for turn in each.history.turns for pair in _pairs(turn)} - own
        with_it = {id_ for id_, sent in newest.sent.items() if theirs & sent}
        if with_it:
            before = {turn.turn_id: turn.is_stale for turn in history.turns}
            history = history.merged(each.history)
            turns = (
                replace(turn, is_stale=before.get(turn.turn_id, turn.is_stale))
                if turn.version.exchange_id in with_it
                else turn
                for turn in history.turns
            )
            history = replace(history, turns=tuple(turns))
    return replace(newest, history=history)


def _pairs(turn: Turn) -> list[Pair]:
    """Return the prompt of each version with the reply to it."""
    return [(each.prompt, each.replies[0]) for each in turn.versions]


def _rebuild(
    name: str,
    exchanges: list[Exchange],
    tool_rows: Mapping[str, tuple[ToolRow, ...]],
    session_ids: Container[str],
    marks: Mapping[str, TurnMarks],
) -> tuple[SavedTurns, ...]:
    """Rebuild the turns of a conversation, one item for each series that has some.

    Both orders are those of the ledger: the clock may have been set back.
    """
    by_series: dict[str, list[Exchange]] = {}
    newest = ""
    for exchange in exchanges:
        if exchange.origin.turn_id and any(
            each.text or each.tool_calls for each in exchange.choices
        ):
            newest = series_of(exchange.origin.turn_id)
            by_series.setdefault(newest, []).append(exchange)
    found: list[SavedTurns] = []
    for series, asked in by_series.items():
        by_turn: dict[str, set[str]] = {}
        for each in asked:
            by_turn.setdefault(each.origin.turn_id or "", set()).add(each.exchange_id)
        history = _to_history(name, _not_undone(asked, marks), tool_rows)
        turns = (_marked(turn, marks.get(turn.turn_id)) for turn in history.turns)
        history = replace(history, turns=tuple(turn for turn in turns if turn))
        if history.turns:
            saved = SavedTurns(
                number=len(found) + 1,
                series=series,
                history=history,
                started_at=asked[0].started_at,
                ended_at=asked[-1].started_at,
                is_own=any(each.exchange_id in session_ids for each in asked),
                is_newest=series == newest,
                sent={
                    each.exchange_id: frozenset(pairwise(each.request.messages))
                    for each in asked
                },
                asked={key: frozenset(found) for key, found in by_turn.items()},
            )
            found.append(saved)
    return tuple(found)


def _to_history(
    name: str, exchanges: list[Exchange], rows: Mapping[str, tuple[ToolRow, ...]]
) -> History:
    history = History(name=name, system=exchanges[-1].request.system)
    runs: dict[str | None, tuple[ToolRow, ...]] = {}  # by turn, of its newest answer
    for exchange in exchanges:
        origin = exchange.origin
        is_later_round = exchange.request.messages[-1].role == "tool"
        before = runs.get(origin.turn_id, ()) if is_later_round else ()
        runs[origin.turn_id] = (*before, *rows.get(exchange.exchange_id, ()))
        answered = add_answer(history, exchange, origin, runs[origin.turn_id])
        if answered.turns and not history.turns:
            turns = (*_turns_before(exchange), *answered.turns)
            answered = replace(answered, turns=turns)
        history = answered
    return history


def _turns_before(exchange: Exchange) -> tuple[Turn, ...]:
    """Return the turns that a copied conversation had before its first own one."""
    sent = [each for each in exchange.request.messages if each.role != "system"]
    starts = [at for at, message in enumerate(sent) if message.role == "user"]
    if exchange.origin.continues:
        starts = starts[:-1]  # the last one asks for the rest
    turns = []
    for at, end in pairwise(starts):
        replies: tuple[Message, ...] = tuple(sent[at + 1 : end])
        if replies:
            version = Version(
                exchange_id=exchange.exchange_id, prompt=sent[at], replies=replies
            )
            turns.append(Turn(turn_id="", versions=(version,)))
    return to_copied(turns, series_of(exchange.origin.turn_id))


def to_copied(turns: Sequence[Turn], series: str) -> tuple[Turn, ...]:
    """Give turns ids in a series, from the newest, so that a restore finds the same."""
    n = len(turns)
    return tuple(
        replace(turn, turn_id=f"{series}/{_COPIED}{n - at}")
        for at, turn in enumerate(turns)
    )


def changed_marks(
    before: History, after: History, known: Mapping[str, set[str]]
) -> Iterator[tuple[str, TurnMarks]]:
    """Return the id and the marks of each turn that differs in two histories.

    `known` has the ids of all exchanges of each turn.
    """
    was, is_now = ({turn.turn_id: turn for turn in h.turns} for h in (before, after))
    for turn_id in {**was, **is_now}:
        old, new = was.get(turn_id), is_now.get(turn_id)
        if old is None or new is None or replace(old, is_stale=new.is_stale) != new:
            yield turn_id, _to_marks(new, known.get(turn_id, set()))


def _to_marks(turn: Turn | None, known: set[str]) -> TurnMarks:
    newest = max(known, default="")
    if turn is None:
        return TurnMarks(is_deleted=True, newest=newest, gone=frozenset(known))
    return TurnMarks(
        is_pinned=turn.is_pinned,
        is_hidden=turn.is_hidden,
        chosen=turn.version.exchange_id,
        newest=newest,
        picked={
            each.exchange_id: each.picked for each in turn.versions if each.is_picked
        },
        gone=frozenset(known - {each.exchange_id for each in turn.versions}),
        comparisons=turn.comparisons,
    )


def _not_undone(
    asked: list[Exchange], marks: Mapping[str, TurnMarks]
) -> list[Exchange]:
    """Leave out continuations that were undone, so that the text before them is left.

    A continuation that a later one builds on is kept.
    """
    gone = {exchange_id for each in marks.values() for exchange_id in each.gone}
    kept: list[Exchange] = []
    needed: set[str | None] = set()
    for each in reversed(asked):
        is_gone = each.exchange_id in gone and each.exchange_id not in needed
        if not (is_gone and each.origin.continues):
            kept.append(each)
        if not is_gone:
            needed.add(each.origin.continues)
    return kept[::-1]


def _marked(turn: Turn, marks: TurnMarks | None) -> Turn | None:
    """Return a turn of the ledger as it was left; None if it was deleted."""
    if marks is None:
        return turn
    if marks.is_deleted and turn.turn_id.partition("/")[2].startswith(_COPIED):
        return None  # its version has the id of the first exchange after it
    versions = tuple(
        _picked(each, marks.picked.get(each.exchange_id, -1))
        for each in turn.versions
        if each.exchange_id not in marks.gone
    )
    if not versions:
        return None
    ids = [each.exchange_id for each in versions]
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


def _picked(version: Version, picked: int) -> Version:
    if not 0 <= picked < len(version.choices):
        return version
    replies = (*version.replies[:-1], version.choices[picked])
    return replace(version, replies=replies, picked=picked, is_picked=True)


_LISTED_PROMPT_CHARS = 120
_TURNS = (  # of a conversation: those that brought something
    "conversation IS NOT NULL AND usage_source != 'missing' "
    "AND origin IN ('magic', 'panel', 'python')"
)
# The record is JSON, so that a word may be in it only as the name of a field: the texts
# themselves are looked at where the whole record has it.
_HAS_TEXT = r"""
    CASE
        WHEN conversation LIKE :text ESCAPE '\' THEN 1
        WHEN record NOT LIKE :json ESCAPE '\' OR NOT json_valid(record) THEN 0
        WHEN json_extract(record, '$.request.messages[#-1].content')
            LIKE :text ESCAPE '\' THEN 1
        ELSE EXISTS (
            SELECT 1 FROM json_each(record, '$.request.messages')
            WHERE json_extract(value, '$.role') IN ('user', 'assistant')
            AND json_extract(value, '$.content') LIKE :text ESCAPE '\'
        ) OR EXISTS (
            SELECT 1 FROM json_each(record, '$.body.choices')
            WHERE json_extract(value, '$.text') LIKE :text ESCAPE '\'
        )
    END
"""
_NEWEST = (
    f"SELECT conversation, max(seq) FROM exchanges WHERE {_TURNS} GROUP BY 1 "  # noqa: S608 - our own words
    "HAVING {} ORDER BY 2 DESC"
)
_RECORD = (
    "SELECT CAST(record AS BLOB), record_crc32, CAST(exchange_id AS BLOB), started_at "
    "FROM exchanges WHERE seq = ?"
)
_EACH = (
    "SELECT CASE WHEN json_valid(record) THEN json_extract(record, '$.origin.turn_id') "  # noqa: S608 - our own words
    f"END, model FROM exchanges WHERE {_TURNS} AND conversation = ? ORDER BY seq"
)
_DELETED = (
    "SELECT turn_id FROM turn_marks WHERE conversation = ? "
    "AND json_extract(marks, '$.is_deleted')"
)


class Listed(NamedTuple):
    """A conversation of the list."""

    name: str
    n_turns: int
    models: tuple[str, ...]  # the newest last
    asked_at: datetime
    prompt: str  # the beginning of the newest


def read_list(
    ledger: Ledger, search: str = "", *, n: int | None = None
) -> tuple[list[Listed], int]:
    """Return the conversations, the one asked last first, and how many there are.

    Args:
        ledger: Where they are kept.
        search: Only those whose name, prompts or replies have this text; small and
            capital letters of ASCII are the same.
        n: The most to return; all if None.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    given: object = search
    if not isinstance(given, str):
        raise must_be("search", "a text", search)
    text = check_text(given.strip(), param="search")
    json = msgspec.json.encode(text).decode()[1:-1]
    values = {"text": _like(text), "json": _like(json)}
    having = f"max({_HAS_TEXT})" if text else "1"
    with ledger.opened() as connection:
        found = connection.execute(_NEWEST.format(having), values).fetchall()
        shown = [_listed(connection, *row, place=ledger.path) for row in found[:n]]
    return shown, len(found)


def _like(text: str) -> str:
    """Return the pattern for LIKE that finds a text anywhere."""
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def _listed(
    connection: sqlite3.Connection, name: str, seq: int, *, place: str
) -> Listed:
    record, crc32, id_, asked_at = connection.execute(_RECORD, (seq,)).fetchone()
    prompt = "(cannot be read)"
    with suppress(LedgerError):
        newest = from_row(record, crc32, id_, place)
        prompt = shorten(" ".join(_prompt(newest).split()), _LISTED_PROMPT_CHARS)
    each = connection.execute(_EACH, (name,)).fetchall()
    deleted = connection.execute(_DELETED, (name,)).fetchall()
    turns = {turn_id for turn_id, _ in each} - {turn_id for (turn_id,) in deleted}
    return Listed(
        name=name,
        n_turns=len(turns - {None}),
        models=tuple(dict.fromkeys(model for _, model in each)),
        asked_at=datetime.fromisoformat(asked_at),
        prompt=prompt,
    )


def _prompt(newest: Exchange) -> str:
    """Return the newest prompt of a user; that of a continuation is our own."""
    said = [m.content or "" for m in newest.request.messages if m.role == "user"]
    if newest.origin.continues:
        said.pop()
    return said[-1] if said else ""


CONVERSATIONS = (
    Column("conversation", "string", "name", "its name"),
    Column("n_turns", "Int64", "n_turns", "turns that were not deleted"),
    Column(
        "models",
        "string",
        lambda batch: [", ".join(each) for each in batch.part("models")],
        "those that answered",
    ),
    Column("asked_at", "datetime64[us, UTC]", "asked_at", "when it was last asked"),
    Column("prompt", "string", "prompt", "the beginning of the newest prompt"),
)
"""Every column of `conversations_df`, in order."""

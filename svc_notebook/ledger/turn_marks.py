"""Marks of a conversation's turns: what was picked, pinned, hidden, deleted or undone.

One row per turn that was changed by hand; a newer one replaces it. What was picked is a
score of the replies, too.
"""

import sqlite3
from datetime import UTC, datetime
from typing import Any

import msgspec

from .row import to_sortable

_KEYS = ("conversation", "turn_id", "marks", "marked_at")
INSERT_MARKS = (
    f"INSERT INTO turn_marks ({', '.join(_KEYS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(':' + key for key in _KEYS)}) "
    "ON CONFLICT (conversation, turn_id) "
    "DO UPDATE SET marks = excluded.marks, marked_at = excluded.marked_at"
)
INSERT_SCORE = (
    "INSERT INTO scores (exchange_id, choice_index, name, value, scored_at) "
    "VALUES (:exchange_id, :choice_index, :name, :value, :scored_at) "
    "ON CONFLICT (exchange_id, choice_index, name) "
    "DO UPDATE SET value = excluded.value, scored_at = excluded.scored_at"
)
PICKED = "picked"
"""The score of replies that a user has picked, or not: 1 or 0."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was asked for beside others."""

    label: str  # its model, or its temperature
    exchange_id: str = ""  # "" if nothing came
    problem: str = ""  # why nothing, or not all, came


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Replies to a turn that stand side by side, in the order of their columns."""

    replies: tuple[Compared, ...]
    is_blind: bool = False  # the labels are hidden until one is picked
    picked: str = ""  # its exchange_id

    @property
    def ids(self) -> tuple[str, ...]:
        """The exchange_id of each reply that came."""
        return tuple(each.exchange_id for each in self.replies if each.exchange_id)


class TurnMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What a user changed in one turn; versions are named by their exchange_id."""

    is_deleted: bool = False
    is_pinned: bool = False
    is_hidden: bool = False
    chosen: str = ""  # the version that is sent, unless a newer one is added
    newest: str = ""  # the newest version at that time; ids sort by time
    picked: dict[str, int] = msgspec.field(default_factory=dict)  # the choice's index
    gone: frozenset[str] = frozenset()  # versions that were undone, or deleted
    comparisons: tuple[Comparison, ...] = ()


Marks = dict[tuple[str, str], TurnMarks]
"""By the conversation's name and the turn's id."""


def to_values(conversation: str, turn_id: str, marks: TurnMarks) -> dict[str, Any]:
    """Return what `INSERT_MARKS` binds."""
    return {
        "conversation": conversation,
        "turn_id": turn_id,
        "marks": msgspec.json.encode(marks).decode(),
        "marked_at": to_sortable(datetime.now(UTC)),
    }


def to_pick_values(
    exchange_id: str, choice_index: int, value: int | None
) -> dict[str, Any]:
    """Return what `INSERT_SCORE` binds; the value None takes the score back."""
    return {
        "exchange_id": exchange_id,
        "choice_index": choice_index,
        "name": PICKED,
        "value": value,
        "scored_at": to_sortable(datetime.now(UTC)),
    }


def select_marks(connection: sqlite3.Connection) -> Marks:
    """Read all marks."""
    sql = "SELECT conversation, turn_id, marks FROM turn_marks ORDER BY marked_at"
    return {
        (name, turn_id): msgspec.json.decode(marks, type=TurnMarks)
        for name, turn_id, marks in connection.execute(sql).fetchall()
    }

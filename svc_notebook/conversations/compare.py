"""Replies to one turn that stand side by side, and which of them a user has picked.

A pick is a score, `picked`: 1 for the reply that was picked, 0 for the others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from svc_notebook.ledger.row import Compared, Comparison

from .history import History, Turn, Version

BLIND = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Key = tuple[str, int]
"""The exchange_id and the index of a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A reply beside others, as it may be shown."""

    label: str
    version: int = 0  # its number among the turn's versions; 0 if nothing came
    text: str = ""
    problem: str = ""  # why nothing, or not all, came
    footer: str = ""  # tokens and seconds
    marks: tuple[str, ...] = ()
    is_picked: bool = False
    is_used: bool = False  # later requests send it
    status: str = ""  # what it waits for, while it is written
    until_ms: int | None = None


def with_comparison(
    history: History, turn_id: str, comparison: Comparison, used: str
) -> History:
    """Note that versions of a turn stand side by side; later requests send one."""
    if not comparison.ids or history.find(turn_id) is None:
        return history
    turn = history.turn(turn_id)
    ids = [each.scored_id for each in turn.versions]
    comparisons = (*turn.comparisons, comparison)
    chosen = ids.index(used)
    return history.with_turn(replace(turn, comparisons=comparisons, chosen=chosen))


def preferred(history: History, turn: int | str, version: int) -> History:
    """Choose a version, counted from 1, and note that it was picked among others.

    The others are those it was compared with; else all that answer the same prompt.
    """
    found = history.with_chosen(turn, version).turn(turn)
    picked = found.version
    group = found.comparison or _to_comparison(found)
    others = (each for each in found.comparisons if each.ids != group.ids)
    group = msgspec.structs.replace(group, picked=picked.scored_id)
    return history.with_turn(replace(found, comparisons=(*others, group)))


def _to_comparison(turn: Turn) -> Comparison:
    same = [
        (number, each)
        for number, each in enumerate(turn.versions, start=1)
        if each.prompt == turn.prompt and not turn.comparison_of(each)
    ]
    models = [each.model for _, each in same]
    replies = (
        Compared(
            label=each.model if models.count(each.model) == 1 else f"version {number}",
            exchange_id=each.scored_id,
        )
        for number, each in same
    )
    return Comparison(replies=tuple(replies))


def picks(turn: Turn) -> dict[Key, int]:
    """Return the scores of a turn's replies among which a user has picked."""
    found: dict[Key, int] = {}
    for each in turn.versions:
        if each.is_picked:
            for at in range(len(each.choices)):
                found[each.score_key(at)] = int(at == each.picked)
        if (group := turn.comparison_of(each)) and group.picked:
            is_it = each.scored_id == group.picked
            found[each.score_key(each.picked)] = int(is_it)
    return {key: value for key, value in found.items() if key[0]}


def changed_picks(
    before: History, after: History
) -> Iterator[tuple[str, int, int | None]]:
    """Return the scores that a change has brought, or taken back: None.

    Deleting a turn takes nothing back.
    """
    was = {turn.turn_id: turn for turn in before.turns}
    for turn in after.turns:
        if (old := was.get(turn.turn_id)) in {None, turn}:
            continue
        given, now = picks(old), picks(turn)
        for key in {**given, **now}:
            if given.get(key) != now.get(key):
                yield *key, now.get(key)


def to_columns(turn: Turn) -> tuple[Column, ...]:
    """Return the replies beside the chosen one, itself too; none if it is alone.

    As long as nothing is picked in a blind comparison, nothing of it tells a name.
    """
    group = turn.comparison
    if group is None:
        return ()
    by_id = {each.scored_id: n for n, each in enumerate(turn.versions)}
    is_hidden = group.is_blind and not group.picked
    labels = blind_labels(group)
    columns: list[Column] = []
    for label, reply in zip(labels, group.replies, strict=True):
        column = Column(label=label, problem=reply.problem)
        if is_hidden:
            column = replace(column, problem=without_names(reply.problem, group))
        if (at := by_id.get(reply.exchange_id)) is not None:
            column = _with_version(column, turn, at, is_hidden=is_hidden)
            is_picked = group.picked == reply.exchange_id
            column = replace(column, is_picked=is_picked)
        columns.append(column)
    return tuple(columns)


def _with_version(column: Column, turn: Turn, at: int, *, is_hidden: bool) -> Column:
    version = turn.versions[at]
    model, _, footer = version.footer.partition(" · ")
    if not is_hidden and model and model != column.label:
        footer = f"{model} · {footer}"
    return replace(
        column,
        version=at + 1,
        text=version.text,
        footer="" if is_hidden else footer,
        marks=_plain_marks(version) if is_hidden else version.marks,
        is_used=at == turn.chosen,
    )


def _plain_marks(version: Version) -> tuple[str, ...]:
    known = {"cut": version.is_cut, "incomplete": version.is_partial}
    return tuple(mark for mark, is_set in known.items() if is_set)


def blind_labels(group: Comparison) -> tuple[str, ...]:
    """Return what the columns are called: letters as long as it is blind."""
    if group.is_blind and not group.picked:
        return tuple(BLIND[: len(group.replies)])
    return tuple(each.label for each in group.replies)


def without_names(text: str, group: Comparison) -> str:
    """Return a text that tells none of the labels."""
    names = sorted((each.label for each in group.replies), key=len, reverse=True)
    return re.sub(
        "|".join(map(re.escape, names)), "this one", text, flags=re.IGNORECASE
    )


def decision(turn: Turn) -> str:
    """Say what is picked, or which reply the conversation goes on with; "" if alone."""
    columns = to_columns(turn)
    used = next((each.label for each in columns if each.is_used), "")
    if not columns or any(each.is_picked and each.is_used for each in columns):
        return ""
    if any(each.is_picked for each in columns):
        return f"The conversation goes on with {used}."
    return (
        f"Pick the reply to go on with; without a pick it is {used}, the first that "
        "finished."
    )

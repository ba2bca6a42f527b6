"""Picking a version: replies to one turn side by side, and which one a user prefers.

A pick is a score, `picked`: 1 for the reply that was picked, 0 for the others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from svc_notebook.ledger.exchange_rows import Compared, Comparison

from .history import History, Turn, Version

BLIND = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ChoiceKey = tuple[str, int]
"""The exchange_id and the index of a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyColumn:
    """A reply that is compared with others, as it may be shown."""

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
    """Note which versions of a turn were compared; later requests send one."""
    if not comparison.ids or history.find(turn_id) is None:
        return history
    turn = history.turn(turn_id)
    ids = [version.scored_id for version in turn.versions]
    comparisons = (*turn.comparisons, comparison)
    chosen = ids.index(used)
    return history.with_turn(replace(turn, comparisons=comparisons, chosen=chosen))


def preferred(history: History, turn: int | str, version: int) -> History:
    """Choose a version, counted from 1, and note that it was picked among others.

    The others are those it was compared with; else all that answer the same prompt.
    """
    chosen = history.with_chosen(turn, version).turn(turn)
    picked = chosen.version
    group = chosen.comparison or _to_comparison(chosen)
    others = (other for other in chosen.comparisons if other.ids != group.ids)
    group = msgspec.structs.replace(group, picked=picked.scored_id)
    return history.with_turn(replace(chosen, comparisons=(*others, group)))


def _to_comparison(turn: Turn) -> Comparison:
    same = [
        (number, version)
        for number, version in enumerate(turn.versions, start=1)
        if version.prompt == turn.prompt and not turn.comparison_of(version)
    ]
    models = [version.model for _, version in same]
    replies = (
        Compared(
            label=version.model
            if models.count(version.model) == 1
            else f"version {number}",
            exchange_id=version.scored_id,
        )
        for number, version in same
    )
    return Comparison(replies=tuple(replies))


def picks(turn: Turn) -> dict[ChoiceKey, int]:
    """Return the scores of a turn's replies among which a user has picked."""
    scores: dict[ChoiceKey, int] = {}
    for version in turn.versions:
        if version.is_picked:
            for at in range(len(version.choices)):
                scores[version.score_key(at)] = int(at == version.picked)
        if (group := turn.comparison_of(version)) and group.picked:
            is_it = version.scored_id == group.picked
            scores[version.score_key(version.picked)] = int(is_it)
    return {key: value for key, value in scores.items() if key[0]}


def changed_picks(
    before: History, after: History
) -> Iterator[tuple[str, int, int | None]]:
    """Return the scores that a change has set; None for one that it took back.

    Deleting a turn takes none back.
    """
    was = {turn.turn_id: turn for turn in before.turns}
    for turn in after.turns:
        if (old := was.get(turn.turn_id)) in {None, turn}:
            continue
        before_scores, now = picks(old), picks(turn)
        for key in {**before_scores, **now}:
            if before_scores.get(key) != now.get(key):
                yield *key, now.get(key)


def to_columns(turn: Turn) -> tuple[ReplyColumn, ...]:
    """Return the chosen reply and those it was compared with; empty if with none.

    No column of a blind comparison has a name in it until a reply is picked.
    """
    group = turn.comparison
    if group is None:
        return ()
    by_id = {version.scored_id: n for n, version in enumerate(turn.versions)}
    is_hidden = group.is_blind and not group.picked
    labels = blind_labels(group)
    columns: list[ReplyColumn] = []
    for label, reply in zip(labels, group.replies, strict=True):
        column = ReplyColumn(label=label, problem=reply.problem)
        if is_hidden:
            column = replace(column, problem=without_names(reply.problem, group))
        if (at := by_id.get(reply.exchange_id)) is not None:
            column = _with_version(column, turn, at, is_hidden=is_hidden)
            is_picked = group.picked == reply.exchange_id
            column = replace(column, is_picked=is_picked)
        columns.append(column)
    return tuple(columns)


def _with_version(
    column: ReplyColumn, turn: Turn, at: int, *, is_hidden: bool
) -> ReplyColumn:
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
    """Return the labels of the columns: letters until a blind comparison is decided."""
    if group.is_blind and not group.picked:
        return tuple(BLIND[: len(group.replies)])
    return tuple(reply.label for reply in group.replies)


def without_names(text: str, group: Comparison) -> str:
    """Return a text with `this one` in the place of the labels."""
    names = sorted((reply.label for reply in group.replies), key=len, reverse=True)
    return re.sub(
        "|".join(map(re.escape, names)), "this one", text, flags=re.IGNORECASE
    )


def decision(turn: Turn) -> str:
    """Say which reply the conversation goes on with; "" if the picked or only one."""
    columns = to_columns(turn)
    used = next((column.label for column in columns if column.is_used), "")
    if not columns or any(column.is_picked and column.is_used for column in columns):
        return ""
    if any(column.is_picked for column in columns):
        return f"The conversation goes on with {used}."
    return (
        f"Pick the reply to go on with; without a pick it is {used}, the first that "
        "finished."
    )

"""Picks: replies to one turn are compared side by side, and a user picks one.

A pick is a score, `picked`: 1 for the reply that was picked, 0 for the others.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec

from svc_notebook.ledger.exchange_rows import Compared, Comparison

from .history import History, Turn, Version

BLIND_LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ChoiceKey = tuple[str, int]
"""The exchange_id and the index of a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyColumn:
    """One of several compared replies, as it may be shown."""

    label: str
    version: int = 0  # its number among the turn's versions; 0 without a reply
    text: str = ""
    problem: str = ""  # why the reply is missing or incomplete
    footer: str = ""  # tokens and seconds
    first_text_s: float | None = None  # seconds until its first text
    marks: tuple[str, ...] = ()
    is_picked: bool = False
    is_used: bool = False  # later requests send it
    status: str = ""  # what it waits for, while it is incomplete
    until_ms: int | None = None


def with_comparison(history: History, turn_id: str, comparison: Comparison) -> History:
    """Note which versions of a turn were compared, and choose the one to use."""
    if not comparison.ids or history.find(turn_id) is None:
        return history
    turn = history.turn(turn_id)
    comparisons = (*turn.comparisons, comparison)
    versions = in_columns_order(turn.versions, comparisons)
    turn = replace(turn, comparisons=comparisons, versions=versions)
    return history.with_turn(replace(turn, chosen=turn.used_of(comparison)))


def in_columns_order(
    versions: Iterable[Version], comparisons: Iterable[Comparison]
) -> tuple[Version, ...]:
    """Order the versions of each comparison as its columns, whatever ended first."""
    ordered = [*versions]
    for group in comparisons:
        by_id = {version.scored_id: version for version in ordered}
        places = [at for at, each in enumerate(ordered) if each.scored_id in group.ids]
        columns = [by_id[each] for each in group.ids if each in by_id]
        for at, version in zip(places, columns, strict=False):
            ordered[at] = version
    return tuple(ordered)


def with_preferred(history: History, turn: int | str, version: int) -> History:
    """Choose a version, counted from 1, and note that it was picked.

    It was picked from the versions that it was compared with, else from all versions
    that answer the same prompt. The latter go on being shown one at a time.
    """
    chosen = history.with_chosen(turn, version).turn(turn)
    picked = chosen.version
    group = chosen.comparison or _to_group(chosen)
    others = (other for other in chosen.comparisons if not {*other.ids} & {*group.ids})
    group = msgspec.structs.replace(group, picked=picked.scored_id)
    return history.with_turn(replace(chosen, comparisons=(*others, group)))


def _to_group(turn: Turn) -> Comparison:
    candidates = [
        (number, version)
        for number, version in enumerate(turn.versions, start=1)
        if version.prompt == turn.prompt and not turn.comparison_of(version)
    ]
    models = [version.model for _, version in candidates]
    replies = (
        Compared(
            label=version.model
            if models.count(version.model) == 1
            else f"version {number}",
            exchange_id=version.scored_id,
        )
        for number, version in candidates
    )
    return Comparison(replies=tuple(replies), is_side_by_side=False)


def picks(turn: Turn) -> dict[ChoiceKey, int]:
    """Return the scores of the turn's replies that a user has picked from."""
    scores: dict[ChoiceKey, int] = {}
    for version in turn.versions:
        if version.is_picked:
            for at in range(len(version.choices)):
                scores[version.score_key(at)] = int(at == version.picked)
        if (group := turn.group_of(version)) and group.picked:
            is_picked = version.scored_id == group.picked
            scores[version.score_key(version.picked)] = int(is_picked)
    return {key: value for key, value in scores.items() if key[0]}


def changed_picks(
    before: History, after: History
) -> Iterator[tuple[str, int, int | None]]:
    """Return the scores that a change has set; None for a score that it removed.

    Deleting a turn removes no scores.
    """
    old_turns = {turn.turn_id: turn for turn in before.turns}
    for turn in after.turns:
        old = old_turns.get(turn.turn_id)
        if old is None or old == turn:
            continue
        before_scores, after_scores = picks(old), picks(turn)
        for key in {**before_scores, **after_scores}:
            if before_scores.get(key) != after_scores.get(key):
                yield *key, after_scores.get(key)


def to_columns(turn: Turn) -> tuple[ReplyColumn, ...]:
    """Return the chosen reply and the replies it was compared with; else nothing.

    In a blind comparison, no column shows a model's name until a reply is picked.
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
        first_text_s=None if is_hidden else version.first_text_s,
        marks=_blind_marks(version) if is_hidden else version.marks,
        is_used=at == turn.chosen,
    )


def _blind_marks(version: Version) -> tuple[str, ...]:
    known = {"cut": version.is_cut, "incomplete": version.is_partial}
    return tuple(mark for mark, is_set in known.items() if is_set)


def blind_labels(group: Comparison) -> tuple[str, ...]:
    """Return the labels of the columns: letters as long as a comparison is blind."""
    if group.is_blind and not group.picked:
        return tuple(BLIND_LABELS[: len(group.replies)])
    return tuple(reply.label for reply in group.replies)


def without_names(text: str, group: Comparison) -> str:
    """Return a text in which `this one` replaces the labels."""
    names = sorted((reply.label for reply in group.replies), key=len, reverse=True)
    return re.sub(
        "|".join(map(re.escape, names)), "this one", text, flags=re.IGNORECASE
    )


def decision(turn: Turn) -> str:
    """Return a sentence on which reply is used; "" if it is the picked or only one."""
    columns = to_columns(turn)
    used = next((column.label for column in columns if column.is_used), "")
    if not columns or any(column.is_picked and column.is_used for column in columns):
        return ""
    if any(column.is_picked for column in columns):
        return f"The conversation continues with {used}."
    # of a blind comparison it is not said, since speed tells models apart
    group = turn.comparison
    is_first = group and not group.is_blind and turn.used_of(group) == turn.chosen
    why = ", the first that finished" if is_first else ""
    return f"Pick the reply to continue with; without a pick it is {used}{why}."

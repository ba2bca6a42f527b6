"""Merges the turns of two series, such as those of a kernel and of the one before it.

A turn of both is one turn: if it has the same id or an answer in common, if the same
cell asked it, or if it has the same prompt at the same place.
"""

from dataclasses import replace
from operator import attrgetter

from .history import History, Turn, is_copied, key_of, series_of
from .picks import in_columns_order


def merge(own: History, other: History) -> History:
    """Add the turns and answers of another history.

    What is shown of a turn that both have stays, unless it was asked again in its own
    series; it is pinned or hidden as it was in the other, unless that was changed here.
    Other turns are added after the turn that they followed, in the order of asking.
    Merging the same again changes nothing.
    """
    known = _known_turns(own, other)
    taken = set(known.values())
    turns = list(own.turns)
    at = -1  # place of the turn before
    has_begun_alike = True  # with the same turn, so that places can be compared
    for turn in other.turns:
        next_turn = turns[at + 1] if at + 1 < len(turns) else None
        turn_id = known.get(turn.turn_id)
        if turn_id:
            at = [each.turn_id for each in turns].index(turn_id)
            turns[at] = _joined(turns[at], turn)
        elif (
            next_turn
            and has_begun_alike
            and next_turn.turn_id not in taken
            and _is_repeated(next_turn, turn)
        ):
            at += 1
            turns[at] = _joined(next_turn, turn)
        else:
            has_begun_alike = has_begun_alike and at >= 0
            at = _place_of(turn, turns, at + 1)
            turns.insert(at, turn)
            continue
        has_begun_alike = True
        taken.add(turns[at].turn_id)
    return replace(own, turns=tuple(turns))


def share_turns(one: History, other: History) -> bool:
    """Whether two histories have a turn in common."""
    return len(merge(one, other).turns) < len(one.turns) + len(other.turns)


def _known_turns(own: History, other: History) -> dict[str, str]:
    """Return the ids of own turns by those of the same turns of the other history."""
    asked = [turn for turn in own.turns if not is_copied(turn.turn_id)]
    by_key = {key_of(turn.turn_id): turn.turn_id for turn in asked}
    by_answer = {
        version.scored_id: turn.turn_id for turn in asked for version in turn.versions
    }
    known = {turn.turn_id: turn.turn_id for turn in own.turns}
    for turn in other.turns:
        if turn.turn_id not in known and not is_copied(turn.turn_id):
            answered = (by_answer.get(each.scored_id) for each in turn.versions)
            of_cell = by_key.get(key_of(turn.turn_id))
            if turn_id := next(filter(None, (*answered, of_cell)), None):
                known[turn.turn_id] = turn_id
    return {
        turn.turn_id: known[turn.turn_id]
        for turn in other.turns
        if turn.turn_id in known
    }


def _is_repeated(own: Turn, other: Turn) -> bool:
    """Whether another series begins a turn with the same prompt."""
    prompts, others = (
        {version.prompt.content for version in turn.versions} for turn in (own, other)
    )
    is_same_series = series_of(own.turn_id) == series_of(other.turn_id)
    return not is_same_series and not prompts.isdisjoint(others)


def _joined(own: Turn, other: Turn) -> Turn:
    """Add the answers of another state of a turn."""
    if is_copied(other.turn_id):
        return own  # its answers have no exchanges of their own
    here = {version.scored_id: version.exchange_id for version in own.versions}
    added = {
        version.scored_id: version
        for version in other.versions
        if version.exchange_id > here.get(version.scored_id, "")  # new, or continued
    }
    if not added:
        return own
    kept = (version for version in own.versions if version.scored_id not in added)
    by_time = sorted((*kept, *added.values()), key=attrgetter("scored_id"))
    shown, behind = (other, own) if own.turn_id == other.turn_id else (own, other)
    comparisons = {
        comparison.ids: comparison
        for comparison in (*behind.comparisons, *shown.comparisons)
    }
    versions = in_columns_order(by_time, comparisons.values())
    ids = [version.scored_id for version in versions]
    if here.keys().isdisjoint(version.scored_id for version in other.versions):
        shown = _with_marks_of(other, shown)  # once, so that a later change stays
    return replace(
        shown,
        versions=versions,
        chosen=ids.index(shown.version.scored_id),
        comparisons=tuple(comparisons.values()),
    )


def _with_marks_of(other: Turn, turn: Turn) -> Turn:
    """Pin and hide a turn as another one, unless the user has changed that here."""
    return replace(
        turn,
        is_pinned=turn.is_pinned or (other.is_pinned and "pin" not in turn.set_here),
        is_hidden=turn.is_hidden or (other.is_hidden and "hide" not in turn.set_here),
    )


def _place_of(turn: Turn, turns: list[Turn], start: int) -> int:
    """Return where to insert a turn, by the time of its first answer."""
    later = (
        at for at in range(start, len(turns)) if _first_id(turns[at]) > _first_id(turn)
    )
    return next(later, len(turns))


def _first_id(turn: Turn) -> str:
    return min(version.exchange_id for version in turn.versions)  # ids sort by time

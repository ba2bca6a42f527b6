"""What a change did to a conversation, in a few words for its user."""

from collections.abc import Mapping

from svc_notebook.display.number_words import count_in_words
from svc_notebook.service.params import shorten

from .history import History, Turn
from .picks import to_columns

_PROMPT_CHARS = 25  # of the prompt, which tells the turn better than its number
_FEW = 3  # of more turns, only the numbers are said


def prompt_words(turn: Turn) -> str:
    """Return how a turn's prompt begins, in brackets after a blank; "" if empty."""
    prompt = shorten(" ".join(turn.version.typed.split()), _PROMPT_CHARS)
    return f" ({prompt})" if prompt else ""


def version_words(turn: Turn) -> str:
    """Return which version is chosen, such as "Version 2 of 3 (svc-v2-8b-instruct)"."""
    # a blind comparison shows a letter instead of the model
    labels = (column.label for column in to_columns(turn) if column.is_used)
    label = next(labels, turn.version.model)
    of_model = f" ({label})" if label else ""  # imported answers have no model
    return f"Version {turn.chosen + 1} of {len(turn.versions)}{of_model}"


def turns_words(turns: Mapping[int, Turn]) -> str:
    """Return numbered turns with their prompts, such as "turns 2 (Hi), 4 (Go on)"."""
    is_few = len(turns) <= _FEW
    each = (f"{n}{prompt_words(turns[n]) if is_few else ''}" for n in turns)
    return f"turn{'s'[: len(turns) != 1]} {', '.join(each)}"


def change_words(before: History, after: History) -> str:
    """Say what a change did, such as "turn 5 deleted"; other turns may become stale."""
    old, new = _numbered(before), _numbered(after)
    added, deleted = [*(new.keys() - old.keys())], [*(old.keys() - new.keys())]
    changed = [key for key in old.keys() & new.keys() if old[key][1] != new[key][1]]
    if len(deleted) != 1 and not new:
        return "conversation cleared"
    if len(added) + len(deleted) + len(changed) != 1:
        kinds = {"added": added, "deleted": deleted, "changed": changed}
        counts = {kind: count_in_words(len(kinds[kind]), "turns") for kind in kinds}
        return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if kinds[kind])
    if changed:
        (_, was), (number, turn) = old[changed[0]], new[changed[0]]
        words = _turn_words(number, was, turn)
    elif added:
        number, turn = new[added[0]]
        words = f"turn {number} added"
    else:
        number, turn = old[deleted[0]]
        words = f"turn {number} deleted"
    return f"{words}{prompt_words(turn)}"


def _numbered(history: History) -> dict[str, tuple[int, Turn]]:
    turns = enumerate(history.turns, start=1)
    return {turn.turn_id: (number, turn) for number, turn in turns}


def _turn_words(number: int, old: Turn, new: Turn) -> str:
    turn = f"turn {number}"
    is_asked = len(new.versions) > len(old.versions)
    changes = {
        f"{turn} edited": is_asked and new.version.typed != old.version.typed,
        f"{turn} asked again": is_asked,
        f"{turn} pinned": new.is_pinned > old.is_pinned,
        f"{turn} unpinned": new.is_pinned < old.is_pinned,
        f"{turn} hidden": new.is_hidden > old.is_hidden,
        f"{turn} shown again": new.is_hidden < old.is_hidden,
        f"reply of {turn} picked": new.comparisons != old.comparisons,
        f"version {new.chosen + 1} of {turn} chosen": new.chosen != old.chosen,
        f"{turn} continued": new.version.exchange_id != old.version.exchange_id,
        f"choice {new.version.picked + 1} of {turn} picked": True,
    }
    return next(words for words, is_so in changes.items() if is_so)

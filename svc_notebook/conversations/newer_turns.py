"""The turns that other kernels have asked, before this one or meanwhile.

Each kernel sends the turns that it knows. So before a request, the ledger is searched
for newer ones; this is one look at an index if there are none.
"""

from collections.abc import Collection
from dataclasses import replace

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger

from .history import History, Turn
from .history_changes import turns_words
from .merge import merge, share_turns
from .restore import SavedTurns, joined, lost_marks, marks_words, n_turns


class NewerExchanges:
    """The exchanges that other kernels have added to a conversation meanwhile."""

    def __init__(self) -> None:
        self._searched: tuple[str, int] | None = None  # the ledger, and until where
        self._ids: set[str] = set()

    def begin(self, ledger: Ledger) -> None:
        """Forget what the ledger has now."""
        self._ids.clear()
        self._searched = ledger.path, ledger.newest_number()

    def find(self, ledger: Ledger, name: str, known: Collection[str]) -> frozenset[str]:
        """Return the ids of those added since `begin` that are not known."""
        if self._searched is None or self._searched[0] != ledger.path:
            self.begin(ledger)
        _, number = self._searched or ("", 0)
        newest = ledger.newest_number()
        if newest != number:
            added = ledger.elsewhere(name, number)
            self._ids.update(
                exchange.exchange_id for exchange in filter(_is_turn, added)
            )
            self._searched = ledger.path, newest
        self._ids.difference_update(known)
        return frozenset(self._ids)


def _is_turn(exchange: Exchange) -> bool:
    return bool(exchange.origin.turn_id) and any(
        choice.text or choice.tool_calls for choice in exchange.choices
    )


def newer_turns(
    saved: tuple[SavedTurns, ...], history: History, ids: Collection[str]
) -> SavedTurns | None:
    """Return the series with turns that were asked in these exchanges.

    None if a history has all of their turns and versions.
    """
    newer = [
        replace(series, as_seen=None)  # without what was asked earlier
        for series in saved
        if not (series.exchange_ids.isdisjoint(ids) or series.is_in(history))
    ]
    return joined(newer[-1], newer[:-1]) if newer else None


def _asked_again(newer: SavedTurns, history: History) -> dict[int, Turn]:
    """Return the turns to which there are other answers, by their numbers."""
    merged = merge(history, newer.history)
    turns = enumerate(history.turns, start=1)
    return {n: turn for n, turn in turns if merged.turn(turn.turn_id) != turn}


def n_news(newer: SavedTurns, history: History) -> int:
    """Count the newer turns, and those that were asked again."""
    return newer.n_missing(history) + len(_asked_again(newer, history))


def newer_note(newer: SavedTurns, history: History) -> str:
    """Return a note on newer turns, and on turns that were asked again."""
    again = _asked_again(newer, history)
    parts = []
    if n_new := newer.n_missing(history):
        parts.append(f"{n_turns(n_new)} of {history.name}")
    if again:
        what = turns_words(again)
        parts.append(f"{what} again" if n_new else f"{what} of {history.name} again")
    return f"another session has asked {' and '.join(parts)} meanwhile, not sent here"


def older_turns(
    saved: tuple[SavedTurns, ...], history: History, known: Collection[str]
) -> SavedTurns | None:
    """Return the series with turns that a history does not have; None without any.

    Also one with turns that were pinned or hidden, and are not so in the history. Those
    that are known are left out: what was deleted in them shall not come back.
    """
    older, names = list[SavedTurns](), {*known}
    for series in reversed(saved):
        seen = series.as_seen or series
        if series.series not in names:
            names |= seen.all_series
            merged = merge(history, seen.history)
            if len(merged.turns) > len(history.turns) or lost_marks(history, merged):
                older.append(series)
    return joined(older[0], older[1:]) if older else None


def older_turns_note(older: SavedTurns, history: History) -> str:
    """Return sentences on turns, pins and hidden turns that are not here."""
    here = {turn.turn_id: turn for turn in history.turns}
    merged = merge(history, older.history)
    notes = []
    if missing := {turn.turn_id for turn in merged.turns} - here.keys():
        where = " in the panel" * (missing <= older.panel_ids)
        when = "separately, in another kernel,"
        if share_turns(history, older.history):
            when = "before the restart"
        was, is_missing = ("was", "is") if len(missing) == 1 else ("were", "are")
        notes.append(
            f"{n_turns(len(missing))} that {was} asked{where} {when} {is_missing} not "
            "here."
        )
    if words := marks_words(lost_marks(history, merged), history, ("was", "were")):
        notes.append(f"Before the restart, {words}.")
    return " ".join(notes)

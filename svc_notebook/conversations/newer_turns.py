"""The turns that other kernels have asked while this one has a conversation.

Each kernel sends the turns that it knows. So before a request, the ledger is searched
for newer ones; this is one look at an index if there are none.
"""

from collections.abc import Collection
from dataclasses import replace

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger

from .history import History
from .restore import SavedTurns, changed_turns, n_turns


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
    """Return the saved turns that were asked in these exchanges; None without any.

    Turns that a history has with all their versions are left out.
    """
    asked = {
        turn_id: exchange_ids
        for series in saved
        for turn_id, exchange_ids in series.asked.items()
        if not exchange_ids.isdisjoint(ids)
    }
    turns = [turn for series in saved for turn in series.history.turns]
    newer = changed_turns((turn for turn in turns if turn.turn_id in asked), history)
    if not newer:
        return None
    only_newer = History(name=history.name).merged(replace(history, turns=tuple(newer)))
    return replace(saved[-1], history=only_newer, asked=asked)


def newer_note(newer: SavedTurns, history: History) -> str:
    """Return a note on newer turns, and on turns that were asked again."""
    places = [history.find(turn.turn_id) for turn in newer.history.turns]
    again = [str(place + 1) for place in places if place is not None]
    parts = []
    if n_new := len(places) - len(again):
        parts.append(f"{n_turns(n_new)} of {history.name}")
    if again:
        what = f"turn{'s'[: len(again) != 1]} {', '.join(again)}"
        parts.append(f"{what} again" if n_new else f"{what} of {history.name} again")
    return f"another notebook has asked {' and '.join(parts)} meanwhile, not sent here"

"""Keeping what comes: into the ledger, or in hand until it can be kept.

Rules: a reply that was paid for is not lost because the disk is full; what is in
hand is kept first when the run goes on; the first failure to keep ends the asking,
so that nobody pays for rows that nobody has.
"""

from collections import deque
from threading import Lock

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.store import Ledger


class Keeper:
    """A sink of a run's exchanges.

    Args:
        ledger: Where they are kept.

    Attributes:
        problem: Why the ledger took one of them not; None while it takes all.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.problem: LedgerError | None = None
        self._in_hand: deque[Exchange] = deque()
        self._lock = Lock()

    @property
    def in_hand(self) -> tuple[Exchange, ...]:
        """Exchanges that the ledger did not take."""
        return tuple(self._in_hand)

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange; if the ledger does not take it, hold it."""
        with self._lock:
            self._in_hand.append(exchange)
            self._hand_over()

    def flush(self) -> None:
        """Keep what is in hand, now that it may be possible again.

        Raises:
            LedgerError: It is not.
        """
        with self._lock:
            self.problem = None
            self._hand_over()
        if self.problem is not None:
            raise self.problem

    def _hand_over(self) -> None:
        try:
            while self._in_hand:
                self.ledger.add(self._in_hand[0])
                self._in_hand.popleft()
        except LedgerError as problem:
            self.problem = problem

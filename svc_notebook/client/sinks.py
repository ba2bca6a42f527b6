"""Telling every sink about an exchange, whatever the sinks do.

Rules: a reply that was paid for is never lost because it could not be written
down; what went wrong is warned about, once a cause.
"""

import warnings
from collections.abc import Sequence

from svc_notebook.exchange import Exchange, Sink


class Sinks:
    """The sinks of one client."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._warned: set[str] = set()

    def tell(self, exchange: Exchange) -> None:
        """Tell every sink, once."""
        for sink in self._sinks:
            try:
                sink.add(exchange)
            except Exception as problem:  # noqa: BLE001 - the reply comes first
                self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        cause = f"{type(problem).__name__}: {problem}"
        if cause in self._warned:
            return
        self._warned.add(cause)
        warnings.warn(
            f"An exchange could not be kept ({cause}). Its reply is not lost, but it "
            "is missing from the ledger and its frames.",
            RuntimeWarning,
            stacklevel=2,
        )

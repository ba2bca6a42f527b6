"""A stream in one text, that of its first choice, and in one line.

Rules: choice 0 at once; another choice's text is held back while choice 0 may still
come, and is the first one's at the end if it did not.
"""

from svc_notebook.exchange import Exchange
from svc_notebook.service.chunk import Delta

_STATES = {"ok": "ended", "error": "failed", "cancelled": "stopped"}


class Front:
    """Picks the text of the first choice."""

    def __init__(self) -> None:
        self._is_zero_seen = False
        self._others: dict[int, list[str]] = {}

    def take(self, delta: Delta) -> str:
        """Return what a delta adds to the text."""
        if delta.index == 0:
            self._is_zero_seen = True
            self._others.clear()
            return delta.text or ""
        if delta.text and not self._is_zero_seen:
            self._others.setdefault(delta.index, []).append(delta.text)
        return ""

    def rest(self) -> str:
        """Return what was held back, at the end."""
        others, self._others = self._others, {}
        return "".join(others[min(others)]) if others else ""


def shown(
    stream: object, exchange: Exchange | None, *, n_chars: int, is_over: bool
) -> str:
    """Return what a stream's repr says: how far it is, and nothing of its text."""
    is_over = is_over or exchange is not None
    state = _STATES[exchange.status if exchange else "cancelled"]
    so_far = f"{state if is_over else 'under way'}, {n_chars}"
    return f"<{type(stream).__name__}: {so_far} characters so far>"

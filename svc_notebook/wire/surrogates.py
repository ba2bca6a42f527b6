"""Halves of surrogate pairs: joined where they meet, made visible where they do not.

JSON may write one character as two escapes, and a stream may cut between them.
Rules: whole pairs become their character; a half without its other half becomes
U+FFFD; all other text passes unchanged, since text without halves is the rule and
costs one look.
"""

from typing import TypeAlias

Place: TypeAlias = tuple[int, int | str | None]
"""A choice's index, and which of its texts: a name, or a tool call's index."""


def mend(text: str) -> str:
    """Return the text with pairs joined and single halves as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Joiner:
    """Joins texts that come in pieces, each at its own place."""

    def __init__(self) -> None:
        self._held: dict[Place, str] = {}

    def join(self, key: Place, piece: str) -> str:
        """Return what can be shown of a piece; a first half at its end is held back."""
        held = self._held.pop(key, "") if self._held else ""
        text = held + piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[key] = text[-1]
            text = text[:-1]
        return mend(text)

    def flush(self) -> dict[Place, str]:
        """Return, by key, what stands for the halves whose other half never came."""
        held, self._held = self._held, {}
        return {key: mend(half) for key, half in held.items()}

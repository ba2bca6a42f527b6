"""What is wrong with an answer, in words: shown printable, cut, and by name.

Rules: pure; no more than the first characters of a body are ever shown.
"""

from typing import TypeAlias

from svc_notebook.errors import DocumentError
from svc_notebook.service.message import printable

HEAD_CHARS = 200


def head_of(body: bytes) -> str:
    """Return the first characters of a body, made printable."""
    return printable(body[: 4 * HEAD_CHARS].decode("utf-8", "replace")[:HEAD_CHARS])


def not_documented(
    reason: str, body: bytes, *, status: int, content_type: str
) -> DocumentError:
    """Build the error for an answer that the document does not allow.

    Args:
        reason: What is wrong, as the end of the sentence "The service answered ...".
        body: The answer's body; only its head is shown.
        status: HTTP status.
        content_type: As sent.
    """
    head = head_of(body)
    shown = printable(content_type[:HEAD_CHARS])[:HEAD_CHARS] or "none"
    return DocumentError(
        f"The service answered {reason} (status {status}, content type {shown}). "
        f"The body begins: {head or '(empty)'}\nCheck that the base address is the "
        "service's and ends with /v1, and that no proxy answers in its place "
        "(doc: Completion, Stream chunk).",
        status=status,
        content_type=content_type,
        head=head,
    )


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

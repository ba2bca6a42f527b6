"""What is wrong with an answer, in words: shown printable, cut, and by name.

Rules: pure; no more than the first characters of a body are ever shown.
"""

from svc_notebook.errors import DocumentError
from svc_notebook.service.text import printable

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

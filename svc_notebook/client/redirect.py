"""Redirects: refused by name, since key and prompt would go elsewhere.

The document shows none (doc: Errors), so one means that the base address is wrong.
"""

from urllib.parse import urlsplit

from svc_notebook.errors import DocumentError
from svc_notebook.service.text import printable
from svc_notebook.wire.answer import HEAD_CHARS

from .transport import Head

_REDIRECTS = range(300, 400)
_NOT_MODIFIED = 304


def is_redirect(status: int) -> bool:
    """Say whether a status sends the asker elsewhere."""
    return status in _REDIRECTS


def redirected(head: Head) -> DocumentError:
    """Build the error for a redirect."""
    return DocumentError(
        _to_nowhere(head.status) if not head.location else _to(head),
        status=head.status,
        content_type=head.content_type,
    )


def _to(head: Head) -> str:
    return (
        f"The service answered with a redirect (status {head.status}) to "
        f"{_shown(head.location)}. It was not followed: neither the API key nor the "
        "prompt is sent to another address. If that address is right, set SVC_BASE_URL "
        "to it, with https and ending with /v1 (doc: Versioning)."
    )


def _to_nowhere(status: int) -> str:
    what = (
        "with status 304 (not modified), as if a stored copy had been asked about"
        if status == _NOT_MODIFIED
        else f"with a redirect (status {status}) that names no address"
    )
    return (
        f"The service answered {what}. No reply came. Check that SVC_BASE_URL is the "
        "service's address, ending with /v1, and that no proxy or cache answers in its "
        "place (doc: Errors)."
    )


def _shown(location: str) -> str:
    """Return where a redirect leads, without its query or anything unprintable."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "an address that cannot be read"
    place = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    return printable(f"{place}{parts.path}"[:HEAD_CHARS]) or "nowhere"

"""Failures of sockets and of HTTP as our errors, in words a user can act on.

A foreign error's text is shown only if it cannot contain the key or a header. The
foreign error is not kept as a cause, because its frames contain both.
"""

import socket
import ssl
from collections.abc import Iterator
from errno import ECONNREFUSED
from urllib.parse import urlsplit

import httpx

from svc_notebook.errors import (
    DocumentError,
    NoConnectionError,
    StreamBrokenError,
    TimedOutError,
)

from .retry import FailedTry

_CHECK = "Check the base address (SVC_BASE_URL) and the network"


class NotHttpError(Exception):
    """What came is not HTTP, or its headers are too long."""


class ProxyRefusedError(Exception):
    """A proxy did not connect to the service; it has the status of its answer."""


def place_of(base_url: str, proxy: str) -> str:
    """Return host and port, and the proxy in between, for people."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if "[" in parts.netloc else parts.hostname
    through = f" through the proxy {proxy}" if proxy else ""
    return f"{host}:{port}{through}"


def explain(problem: BaseException, place: str, *, is_sent: bool) -> FailedTry:
    """Return the failure of a try without an answer, from what was raised."""
    if isinstance(problem, (ProxyRefusedError, httpx.ProxyError)):
        is_lasting, reason = True, "the proxy refused"
        if str(problem).startswith("407"):
            reason = (
                "the proxy requires a login (status 407). Set HTTPS_PROXY to "
                "http://USER:PASSWORD@HOST:PORT"
            )
    elif not isinstance(problem, (OSError, NotHttpError, httpx.TransportError)):
        is_lasting, reason = True, f"the transport raised {type(problem).__name__}"
    elif is_sent and not isinstance(problem, httpx.ConnectError):
        return _closed_or_foreign(problem, place)
    else:
        reason, is_lasting = _why_not_connected(problem)
    error = NoConnectionError(f"No connection to {place}: {reason}. {_CHECK}.")
    return FailedTry(error=error, is_lasting=is_lasting, is_sent=False)


def explain_break(place: str) -> FailedTry:
    """Return the failure of a connection lost before the end of a reply."""
    return FailedTry(
        error=StreamBrokenError(
            f"The connection to {place} was lost before the end of the reply. "
            "svc.last() holds the reply so far; ask again for a complete one."
        )
    )


def explain_late(place: str, within_s: float) -> FailedTry:
    """Return the failure of a connection that was not made in time."""
    error = TimedOutError(
        f"No connection to {place} within {within_s:g} s. "
        "Check the base address (SVC_BASE_URL) and the network.",
        deadline="connect",
        deadline_s=within_s,
    )
    return FailedTry(error=error, is_lasting=True, is_sent=False)


def _closed_or_foreign(problem: BaseException, place: str) -> FailedTry:
    is_foreign = isinstance(problem, (NotHttpError, httpx.RemoteProtocolError))
    if not is_foreign or "disconnected without" in str(problem):
        unanswered = NoConnectionError(
            f"{place} closed the connection before it answered. Ask again "
            "later; if this happens again, check the network and the base address."
        )
        return FailedTry(error=unanswered)
    error = DocumentError(
        f"{place} answered with something that is not HTTP, or with headers "
        f"that are too long. {_CHECK}."
    )
    return FailedTry(error=error, is_lasting=True)


def _why_not_connected(problem: BaseException) -> tuple[str, bool]:
    """Return the reason in words, and whether it will last."""
    for cause in _causes(problem):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = (
                f"its certificate is not trusted ({cause.verify_message}). If your "
                "network or server has certificates of its own, set SSL_CERT_FILE, or "
                "ca_file in svc_notebook.toml, to the file with them"
            )
            return reason, True
        if isinstance(cause, ssl.SSLError):
            return "the server does not use TLS there; the port may be wrong", True
        if isinstance(cause, socket.gaierror):
            if cause.errno == socket.EAI_AGAIN:
                return "its name cannot be looked up now (DNS gives no answer)", False
            return "no such host", True
        if f"[Errno {ECONNREFUSED}]" in str(cause):  # of one address, or of several
            return "nothing listens there (connection refused)", False
    return "the network failed", False


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [problem]
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions

"""Connections: those that are idle, a transport of the user's, and how they fail.

Failures become our errors, in words a user can act on. A foreign error's text is shown
only if it cannot contain the key or a header. The foreign error is not kept as a cause,
because its frames contain both.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import suppress
from errno import ECONNREFUSED
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakSet

import httpx

from svc_notebook.credentials import Key
from svc_notebook.errors import (
    DocumentError,
    NoConnectionError,
    StreamBrokenError,
    TimedOutError,
)
from svc_notebook.fork import Forkable, leave_to_parent

from .retry import FailedTry


class Closable(Protocol):
    """What can be kept: a connection."""

    async def aclose(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closable)
MAX_IDLE = 256  # requests whose rows share a commit end together and all leave one


class IdleStack(Generic[C]):
    """The idle connections of one event loop; closed when the loop shuts down."""

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._keeper = self._keep()
        self._is_closed = False

    def take(self) -> C | None:
        """Return the newest idle connection, if any."""
        return self._idle.pop() if self._idle else None

    def put(self, connection: C) -> bool:
        """Keep a connection for later; False if the caller must close it."""
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            return False
        self._idle.append(connection)
        return True

    async def open(self) -> None:
        """Begin; from now on the end of the loop closes idle connections."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._keeper.aclose()

    async def _keep(self) -> AsyncGenerator[None]:
        """Wait for the end: a loop that shuts down closes its async generators."""
        try:
            yield
        finally:
            self._is_closed = True
            while self._idle:
                await self._idle.pop().aclose()


class _AllStacks(Forkable):
    """The stacks of every transport of this process."""

    def __init__(self) -> None:
        self.of: WeakSet[IdleStacks[Any]] = WeakSet()
        self.watch_forks()

    def after_in_child(self) -> None:
        """Let each begin without its parent's connections."""
        for each in self.of:
            each.begin_child()


class IdleStacks(Generic[C]):
    """The stacks of idle connections, one for each event loop of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stacks: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleStack[C]] = (
            WeakKeyDictionary()
        )
        _all_stacks.of.add(self)

    async def of_running_loop(self) -> IdleStack[C]:
        """Return the stack of the running loop, made at the first call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            stack = self._stacks.get(loop)
            if stack is not None:
                return stack
            self._forget_others()
            stack = self._stacks[loop] = IdleStack()
        await stack.open()
        return stack

    async def aclose(self) -> None:
        """Close the stack of the running loop."""
        with self._lock:
            self._forget_others()
            stack = self._stacks.pop(asyncio.get_running_loop(), None)
        if stack is not None:
            await stack.aclose()

    def begin_child(self) -> None:
        """Begin without connections: closing one would disturb the parent's loop."""
        leave_to_parent(list(self._stacks.items()))
        self._lock = Lock()
        self._stacks = WeakKeyDictionary()

    def _forget_others(self) -> None:
        """Drop stacks of closed loops."""
        for loop in [loop for loop in self._stacks if loop.is_closed()]:
            del self._stacks[loop]


_all_stacks = _AllStacks()


Headers = list[tuple[bytes, bytes]]
Request = tuple[str, bytes, Headers, bytes]  # method, target, headers, body


class TransportConnection:
    """One exchange through a transport of httpx, asked and read as a `Connection`."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport, url: httpx.URL, connect_s: float
    ) -> None:
        self._transport, self._url = transport, url
        self._timeout = {"connect": connect_s, "pool": connect_s}
        self._answer: httpx.Response | None = None

    async def ask(self, request: Request, until_s: float | None) -> None:
        """Send a request and wait for the headers of the answer."""
        method, target, headers, body = request
        extensions = {"timeout": self._timeout, "target": target}
        sent = httpx.Request(
            method, self._url, headers=headers, content=body, extensions=extensions
        )
        async with asyncio.timeout_at(until_s):
            self._answer = await self._transport.handle_async_request(sent)
        self.status, self.headers = self._answer.status_code, dict(self._answer.headers)
        self._pieces = aiter(cast("AsyncIterable[bytes]", self._answer.stream))

    async def read(self, until_s: float | None) -> bytes:
        """Return the next bytes of the body, b"" at its end, as a `Connection`."""
        async with asyncio.timeout_at(until_s):
            async for piece in self._pieces:
                if piece:
                    return piece
        return b""

    async def aclose(self) -> None:
        """Give the connection back to the transport, which may close it."""
        if self._answer is not None:
            with suppress(Exception):  # the exchange is over, whatever it is
                await self._answer.aclose()


_kept_out: set[str] = set()


def keep_out_of_logs(key: Key) -> None:
    """Redact this key in the logs of httpx, which may show what the service quotes."""

    def redact(record: logging.LogRecord) -> bool:
        record.msg, record.args = key.redact(record.getMessage()), ()
        return True

    if key.digest("logs") not in _kept_out:  # many clients may share a key
        _kept_out.add(key.digest("logs"))
        for part in ("connection", "http11", "http2", "proxy", "socks"):
            logging.getLogger(f"httpcore.{part}").addFilter(redact)


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

"""HTTP over httpx, without its pool, redirects and cookies.

The time that httpx's pool takes is quadratic in the number of requests in flight, so
each transport here holds one connection, and idle ones are kept on a stack.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.metadata import version
from threading import Lock
from typing import Any, Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary, WeakSet

import httpx

from svc_notebook.credentials import Key, bind
from svc_notebook.errors import SettingsError, TimedOutError
from svc_notebook.fork import Forkable, leave_to_parent
from svc_notebook.settings import OPERATION, is_loopback, unusable_address

from .body import Head, HttpAnswer
from .network_errors import explain, explain_break, is_unanswered, place_of
from .retry import FailedTry, retry_after_s

# httpx imports these at its first request, which would hold up a running loop.
for _name in ("httpcore", "anyio", "anyio._backends._asyncio"):
    with suppress(ImportError):
        import_module(_name)

IDLE_S = 15.0
_CLOSE_S = 1.0
_FIRST_ERROR = 400
_EMULATOR_HEADER = "x-svc-emulator"


class Closable(Protocol):
    """A connection, or the socket below it."""

    async def aclose(self) -> None:
        """Close it."""


Connection = httpx.AsyncHTTPTransport


class HttpTransport:
    """Sends requests to one base address.

    A failure is a value, not an exception, so that no traceback keeps the frame that
    wrote the key into a header. A Retry-After date counts against `now`.

    Raises:
        SettingsError: httpx does not take the address, or the proxy cannot be used.
    """

    def __init__(self, base_url: str, *, now: Callable[[], datetime]) -> None:
        url = _url(f"{base_url}/{OPERATION}")
        if url is None:
            raise unusable_address()
        self._base_url, self._url = base_url, url
        self._proxy = proxy_for(base_url)
        self._base_url = base_url
        self._now = now
        self._stacks = IdleStacks()

    @property
    def _place(self) -> str:
        return place_of(self._base_url, self._proxy.shown if self._proxy else "")

    async def send(
        self,
        body: bytes,
        *,
        key: Key,
        is_streamed: bool,
        connect_s: float,
        within_s: float,
        on_sent: Callable[[], None],
    ) -> HttpAnswer | FailedTry | None:
        """Send a body and wait for the headers of the answer; None if time is over.

        `connect_s` are seconds to connect, `within_s` seconds from then to the headers;
        `on_sent` is called when the request begins to be written.
        """
        stack = await self._stacks.of_running_loop()
        idle = stack.take()

        def sent() -> None:
            bind(key, self._base_url)
            on_sent()

        while True:
            connection = idle or self._connect()
            if isinstance(connection, FailedTry):
                return connection
            progress = _Progress(connect_s, within_s, sent)
            request = self._request(body, key, progress, is_streamed=is_streamed)
            found = await self._ask(connection, request, progress)
            if isinstance(found, httpx.Response):
                return self._answer(found, connection, stack)
            await _shut(connection, progress.tcp)
            if idle is None or not is_unanswered(found):
                return self._explained(found, progress)
            idle = None  # the server closed it while idle and did not read the request

    def _explained(
        self, found: BaseException, progress: "_Progress"
    ) -> FailedTry | None:
        if isinstance(found, TimeoutError):
            return None if progress.is_sent else self._unconnected(progress)
        if not isinstance(found, Exception):
            raise type(found)  # without the frames that hold headers
        return explain(found, self._place, is_sent=progress.is_sent)

    async def aclose(self) -> None:
        """Close the idle connections of the running loop."""
        await self._stacks.aclose()

    @staticmethod
    async def _ask(
        connection: Connection, request: httpx.Request, progress: "_Progress"
    ) -> httpx.Response | BaseException:
        try:
            async with asyncio.timeout(progress.connect_s) as clock:
                progress.clock = clock
                return await connection.handle_async_request(request)
        except _STOPS as problem:
            return problem

    def _connect(self) -> Connection | FailedTry:
        is_tls = self._url.scheme == "https"
        proxy = self._proxy
        try:
            context = tls_context() if is_tls or proxy else _no_tls()
        except OSError:  # ssl's errors are such, too
            error = SettingsError(
                "The certificates named by SSL_CERT_FILE or SSL_CERT_DIR cannot be "
                "read. Set SSL_CERT_FILE to a readable file in PEM format, or unset "
                "both variables to use the default certificates."
            )
            return FailedTry(error=error, is_lasting=True, is_sent=False)
        return Connection(
            verify=context,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_S),
            proxy=None if proxy is None else proxy.for_httpx(context),
            socket_options=SOCKET_OPTIONS,
        )

    def _request(
        self, body: bytes, key: Key, progress: "_Progress", *, is_streamed: bool
    ) -> httpx.Request:
        return httpx.Request(
            "POST",
            self._url,
            headers=[
                ("Authorization", key.authorization()),
                ("Content-Type", "application/json"),
                ("Accept", _ACCEPT_STREAM if is_streamed else "application/json"),
                # Compressors hold text back, which a stream must not.
                ("Accept-Encoding", "identity" if is_streamed else "gzip, deflate"),
                ("User-Agent", _user_agent()),
            ],
            content=body,
            extensions={"trace": progress.trace, "timeout": {}},
        )

    def _answer(
        self, response: httpx.Response, connection: Connection, stack: "IdleStack"
    ) -> HttpAnswer:
        headers = cast(Mapping[str, str], response.headers)
        is_error = response.status_code >= _FIRST_ERROR
        wait_s = retry_after_s(headers, now_at=self._now()) if is_error else None
        head = Head(
            status=response.status_code,
            content_type=headers.get("content-type", ""),
            retry_after_s=wait_s,
            is_emulated=_EMULATOR_HEADER in headers,
            location=headers.get("location", ""),
        )

        async def release(is_ended: bool) -> None:  # noqa: FBT001 - the one fact
            is_kept = False
            try:
                await _close([response])
                is_kept = is_ended and _is_clean(connection) and stack.put(connection)
            finally:  # also when it is cancelled here
                if not is_kept:
                    await _shut(connection)

        return HttpAnswer(
            head,
            aiter(cast(AsyncIterator[bytes], response.stream)),
            encoding=headers.get("content-encoding", ""),
            broken=lambda: explain_break(self._place),
            is_framed="content-length" in headers or "transfer-encoding" in headers,
            release=release,
        )

    def _unconnected(self, progress: "_Progress") -> FailedTry:
        error = TimedOutError(
            f"No connection to {self._place} within {progress.connect_s:g} s. "
            "Check the base address (SVC_BASE_URL) and the network.",
            deadline="connect",
            deadline_s=progress.connect_s,
        )
        return FailedTry(error=error, is_lasting=True, is_sent=False)


_STOPS = (Exception, asyncio.CancelledError, KeyboardInterrupt)
_ACCEPT_STREAM = "text/event-stream, application/json"


class _Progress:
    """How far a request is; starts the second clock when it is being sent."""

    def __init__(
        self, connect_s: float, within_s: float, on_sent: Callable[[], None]
    ) -> None:
        self.connect_s = connect_s
        self.is_sent = False
        self.tcp: Closable | None = None  # the socket below TLS or a proxy
        self._on_sent = on_sent
        self.clock: asyncio.Timeout | None = None
        self._within_s = within_s

    async def trace(self, event: str, values: Mapping[str, Any]) -> None:
        """Take one of httpx's trace events; a proxy's CONNECT is not ours."""
        if event == "connection.connect_tcp.complete":
            self.tcp = values["return_value"]
        if event != "http11.send_request_headers.started" or self.is_sent:
            return
        if values["request"].method == b"POST" and self.clock is not None:
            self.is_sent = True
            self._on_sent()
            loop = asyncio.get_running_loop()
            self.clock.reschedule(loop.time() + self._within_s)


def _is_clean(connection: Connection) -> bool:
    """Say whether a connection holds no bytes that came after its reply's end.

    Bytes that came in one packet with the end stay in h11 and would become the next
    request's answer. httpx offers no public way to ask; a test pins these names.
    """
    inner: Any = connection
    try:
        (inner,) = inner._pool._connections  # noqa: SLF001 - see above
        if not inner.is_idle():
            return False
        while not hasattr(inner, "_h11_state"):
            inner = inner._connection  # noqa: SLF001 - see above
        return bool(inner._h11_state.trailing_data == (b"", False))  # noqa: SLF001
    except (AttributeError, ValueError):
        return False


async def _shut(*connections: Closable | None) -> None:
    """Close connections, even if the caller is cancelled meanwhile."""
    closing = asyncio.ensure_future(_close(connections))
    _closings.add(closing)
    closing.add_done_callback(_closings.discard)
    await asyncio.shield(closing)


_closings: set[asyncio.Future[None]] = set()


async def _close(connections: Sequence[Closable | None]) -> None:
    for connection in connections:
        with suppress(Exception):  # it is being closed; the other side may be gone
            async with asyncio.timeout(_CLOSE_S):
                if connection is not None:
                    await connection.aclose()


@cache
def tls_context() -> ssl.SSLContext:
    """One context for all connections; it obeys SSL_CERT_FILE and SSL_CERT_DIR."""
    return httpx.create_ssl_context()


@cache
def _no_tls() -> ssl.SSLContext:
    """For http to this machine: a strict context that no connection uses."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _user_agent() -> str:
    return f"svc-notebook/{version('svc-notebook')}"


MAX_IDLE = 64


class IdleStack:
    """The idle connections of one event loop; closed when the loop shuts down."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._keeper = self._keep()
        self._is_closed = False

    def take(self) -> Connection | None:
        """Return the newest idle connection, if any."""
        return self._idle.pop() if self._idle else None

    def put(self, connection: Connection) -> bool:
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
                await _shut(self._idle.pop())


class _AllStacks(Forkable):
    """The stacks of every transport of this process."""

    def __init__(self) -> None:
        self.of: WeakSet[IdleStacks] = WeakSet()
        self.watch_forks()

    def after_in_child(self) -> None:
        """Let each begin without its parent's connections."""
        for each in self.of:
            each.begin_child()


class IdleStacks:
    """The stacks of idle connections, one for each event loop of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        _all_stacks.of.add(self)
        self._stacks: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleStack] = (
            WeakKeyDictionary()
        )

    async def of_running_loop(self) -> IdleStack:
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

_WANTED = (
    ("TCP_KEEPIDLE", 20),  # seconds of silence before the first question
    ("TCP_KEEPINTVL", 10),  # seconds between questions
    ("TCP_KEEPCNT", 3),  # questions without an answer until it is given up
    ("TCP_NODELAY", 1),
)

SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _WANTED
        if hasattr(socket, name)
    ),
]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its address, which may hold a password, and how it may be shown."""

    shown: str
    _url: str = field(repr=False)

    def for_httpx(self, context: ssl.SSLContext) -> httpx.Proxy:
        """Return it as httpx takes it; the context is for a proxy that uses TLS."""
        is_tls = self._url.startswith("https:")
        return httpx.Proxy(self._url, ssl_context=context if is_tls else None)


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy that the environment names for an address."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    found = _named_proxy(parts.scheme)
    if isinstance(found, SettingsError):
        raise found
    return found


def _named_proxy(scheme: str) -> Proxy | SettingsError | None:
    """Return the environment's proxy, or the error; its password is in this frame."""
    named = getproxies()
    url = named.get(scheme) or named.get("all")
    if not url:
        return None
    full = url if "://" in url else f"http://{url}"
    parsed = _url(full)
    if parsed is None or parsed.scheme not in {"http", "https"} or not parsed.host:
        return SettingsError(
            f"The environment names a proxy for {scheme} that cannot be used; set "
            f"{scheme.upper()}_PROXY=http://HOST:PORT. NO_PROXY lists hosts that are "
            "reached without a proxy."
        )
    return Proxy(f"{parsed.scheme}://{parsed.netloc.decode()}", full)


def _url(text: str) -> httpx.URL | None:
    """Return an address as httpx takes it; None if it does not."""
    try:
        url = httpx.URL(text)
        _ = url.host  # decodes international names
    except (httpx.InvalidURL, ValueError):  # idna's errors are ValueErrors
        return None
    return url

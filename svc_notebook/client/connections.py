"""HTTP connections: our own over asyncio, or the transport of httpx that a user gives.

A connection serves one request at a time. Idle connections are kept on a stack, since
the time that httpx's pool takes is quadratic in the number of requests in flight. The
proxy is the one that the endpoint names, else that of HTTPS_PROXY and NO_PROXY.
Failures become our errors, with messages that tell users what to do.
"""

import asyncio
import logging
import re
import select
import socket
import ssl
import sys
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from errno import ECONNREFUSED
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from itertools import zip_longest
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary, WeakSet

import httptools

from svc_notebook.credentials import Key, request_headers
from svc_notebook.endpoints import (
    OPERATION,
    SERVICE,
    Endpoint,
    is_loopback,
    unusable_address,
)
from svc_notebook.errors import (
    DocumentError,
    NoConnectionError,
    SettingsError,
    StreamBrokenError,
    TimedOutError,
)
from svc_notebook.fork import Forkable, leave_to_parent

from .response import HttpAnswer, ResponseHead
from .retry import FailedTry, retry_after_s

# Where click and rich are installed, httpx imports its command line too: that takes
# longer than the rest of httpx, and it is never used here. A None in `sys.modules`
# makes that import fail, which httpx expects.
_COMMAND_LINE = "httpx._main"
sys.modules.setdefault(_COMMAND_LINE, None)  # type: ignore[arg-type]  # fails the import

import httpx  # noqa: E402 - after the line above

from .tls import tls_context, unreadable_certificates  # noqa: E402 - imports httpx

if sys.modules[_COMMAND_LINE] is None:
    del sys.modules[_COMMAND_LINE]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its address, which may contain a password, and a text to show."""

    shown: str
    _url: str = field(repr=False)

    @property
    def url(self) -> httpx.URL:
        """The address of the proxy."""
        return httpx.URL(self._url)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that log in to the proxy; none without a login."""
        login = httpx.Proxy(self._url).raw_auth
        basic = b"Basic " + b64encode(b":".join(login or ()))
        return [(b"Proxy-Authorization", basic)] if login else []


def proxy_for(base_url: str, named: str | None = None) -> Proxy | None:
    """Return the proxy for an address: `named`, else that of the environment.

    This machine's own addresses never have a proxy: a key may be sent to them over
    plain HTTP, but not to a proxy.
    """
    parts = urlsplit(base_url)
    proxy: Proxy | SettingsError | None = None
    if is_loopback(parts.hostname or ""):
        return None
    if named:
        proxy = _proxy(named, "The proxy of the endpoint", "proxy")
    elif not proxy_bypass(parts.netloc):
        proxy = _proxy_of_environment(parts.scheme)
    if isinstance(proxy, SettingsError):
        raise proxy
    return proxy


def _proxy_of_environment(scheme: str) -> Proxy | SettingsError | None:
    named = getproxies()
    url = named.get(scheme) or named.get("all")
    if not url:
        return None
    where = f"The proxy that the environment names for {scheme}"
    return _proxy(url, where, f"{scheme.upper()}_PROXY")


def _proxy(url: str, what: str, setting: str) -> Proxy | SettingsError:
    """Return a proxy, or an error for the caller to raise: this frame has secrets."""
    full = url if "://" in url else f"http://{url}"
    parsed = parse_url(full)
    if parsed is None or parsed.scheme not in {"http", "https"} or not parsed.host:
        return SettingsError(
            f"{what} is not a usable address. Set {setting}=http://HOST:PORT. NO_PROXY "
            "lists hosts that are reached without the environment's proxy."
        )
    return Proxy(f"{parsed.scheme}://{parsed.netloc.decode()}", full)


def parse_url(text: str) -> httpx.URL | None:
    """Return an address as an httpx URL; None if httpx cannot read it."""
    try:
        url = httpx.URL(text)
        _ = url.host  # decodes international names
    except (httpx.InvalidURL, ValueError):  # idna's errors are ValueErrors
        return None
    return url


Headers = list[tuple[bytes, bytes]]
RawRequest = tuple[str, bytes, Headers, bytes]  # method, target, headers, body


class NotHttpError(Exception):
    """The answer is not HTTP, or its headers are too long."""


class ProxyRefusedError(Exception):
    """A proxy did not connect to the service; the argument is the proxy's status."""


# If an idle connection closes later than this after a request was written, the server
# may have read the request and worked on it.
_AT_ONCE_S = 0.25
IDLE_S = 15.0  # short, so that we usually close it before a server or balancer does
_MAX_HEAD_BYTES = 100 * 1024  # of headers, trailers and the framing of chunks
_MAX_WAITING_BYTES = 1024 * 1024  # of a body not read yet; above this, TCP waits
# Each hand-over of body bytes wakes tasks and threads. So bytes are handed over
# together if they arrive within 0.04 s, or within a tenth of the time since the first
# bytes.
_GATHER_S, _GATHER_PART = 0.04, 0.1
_FIRST_FINAL, _FIRST_REDIRECT = 200, 300  # a status below 200 is an interim answer
_NEXT_ADDRESS_S = 0.25  # until the next address is tried as well (RFC 8305, 5)


_CHUNKED = "chunked"
_PARSER_ERRORS = (httptools.HttpParserError, httptools.HttpParserUpgrade)
# Old proxies and small servers send these, and other clients accept them. They are
# dangerous only for a program that forwards the answer, which we do not.
_LENIENCIES = {
    "lenient_headers": True,  # values over several lines, or with control characters
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
_HEAD_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"(?im)^content-length:([^\r\n]*)\r?\n?")
_NO_CONTROLS = bytes.maketrans(bytes(range(32)) + b"\x7f", b" " * 33)


def merge_lengths(head: bytes) -> bytes:
    """Return headers in which equal Content-Lengths are merged (RFC 9110, 8.6)."""
    values = [value.strip() for value in b",".join(_LENGTH.findall(head)).split(b",")]
    if not values[0] or values.count(values[0]) < len(values):
        return head
    first, _, others = head.partition(b"\n")
    length = b"Content-Length: %b\r\n" % values[0]
    return first + b"\n" + length + _LENGTH.sub(b"", others)


class Connection(asyncio.Protocol):
    """A connection to the service or its proxy; it serves one request at a time.

    `status` is 0 until all headers of the answer have arrived; `headers` has their
    names in lower case. The parser calls the methods that begin with `on_`. `tls` is
    needed for https addresses only.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls: Any = tls
        self._transport: Any = None  # an asyncio.Transport, when it is open
        self._waiter: asyncio.Future[None] | None = None
        self._idle_since_s = 0.0
        self._is_gathering = False
        self._reset()

    def _reset(self) -> None:
        """Forget the last answer, before the next request."""
        self.status = 0
        self._begin_head()
        self._n_head_bytes = 0
        self._n_bodiless_bytes = 0  # since the newest bytes of a body
        self._body = bytearray()
        # of the first hand-over and of the next, by the loop's clock
        self._first_s = self._due_s = 0.0
        self._is_whole = self._is_lasting = False
        # an instance would hold frames with headers
        self._failure: type[Exception] | None = None

    def _begin_head(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENCIES)
        self.headers = dict[str, str]()
        self._n_named_bytes = 0  # of headers and trailers
        self._head = bytearray()  # the raw headers, until they are complete
        self._has_lengths = False  # whether Content-Length is repeated

    async def open(self, url: httpx.URL, proxy: Proxy | None) -> None:
        """Connect to the host of an address; after a failure the caller closes it."""
        loop, first = asyncio.get_running_loop(), proxy.url if proxy else url
        host, port = _host_port(first)
        sock = await _connect(await _addresses(host, port))
        for option in SOCKET_OPTIONS:
            sock.setsockopt(*option)
        self._transport, _ = await loop.create_connection(lambda: self, sock=sock)
        if first.scheme == "https":
            await self._start_tls(host)
        if proxy and url.scheme == "https":
            # The proxy connects us to the service (RFC 9110, 9.3.6); from then on TLS
            # goes through the proxy, which cannot read the key.
            host, port = _host_port(url)
            host_in_url = f"[{host}]" if ":" in host else host
            target = f"{host_in_url}:{port}".encode()
            headers = [(b"Host", target), (b"Accept", b"*/*"), *proxy.headers()]
            await self.ask(("CONNECT", target, headers, b""), None)
            if self.status >= _FIRST_REDIRECT:
                raise ProxyRefusedError(self.status)
            self._reset()
            await self._start_tls(host)

    async def _start_tls(self, host: str) -> None:
        self._transport = await asyncio.get_running_loop().start_tls(
            self._transport, self, self._tls, server_hostname=host
        )

    def data_received(self, data: bytes) -> None:
        """Parse bytes of an answer; after bytes behind its end, it cannot be reused."""
        if not self.status:
            self._n_head_bytes += len(data)
        self._n_bodiless_bytes += len(data)
        is_http = self._parse(data) and self._n_bodiless_bytes <= _MAX_HEAD_BYTES
        failure = None if is_http else NotHttpError
        if len(self._body) > _MAX_WAITING_BYTES:
            self._transport.pause_reading()
        elif self._body and not self._is_whole and failure is None:
            self._gather()
            return
        self._wake(failure)

    def _parse(self, data: bytes) -> bool:
        """Parse bytes; return False if they are not HTTP.

        The parser stops at a repeated Content-Length. In that case the headers are
        parsed again with one Content-Length.
        """
        if not self.status:
            self._head += data
        if not self._has_lengths:
            try:
                self._parser.feed_data(data)
            except _PARSER_ERRORS:
                values = [] if self.status else _LENGTH.findall(self._head)
                self._has_lengths = b"," in b",".join(values)
                if not self._has_lengths:
                    return False
        end = _HEAD_END.search(self._head) if self._has_lengths else None
        if end is None:
            return True
        head, rest = (
            merge_lengths(bytes(self._head[: end.end()])),
            self._head[end.end() :],
        )
        self._begin_head()
        try:
            self._parser.feed_data(head)
        except _PARSER_ERRORS:
            return False
        return self._parse(bytes(rest))

    def _gather(self) -> None:
        """Hand over body bytes: at once, or together with those that arrive soon."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._due_s:
            self._wake(None)
        elif not self._is_gathering:
            self._is_gathering = True
            loop.call_at(self._due_s, self._end_gathering)

    def _end_gathering(self) -> None:
        self._is_gathering = False
        self._wake(None)

    def on_message_begin(self) -> None:
        """Refuse an answer that nobody asked for."""
        if self._is_whole:
            raise NotHttpError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header and ignore trailers; values of the same name are joined."""
        self._n_named_bytes += len(name) + len(value)
        # checked here too: body bytes reset the other count
        if self._n_named_bytes > _MAX_HEAD_BYTES:
            raise NotHttpError
        if self.status:
            return
        key = name.strip().decode("latin-1").lower()
        text = value.translate(_NO_CONTROLS).decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """Note the status, unless it announces the answer to come (1xx)."""
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL:
            if self.headers.get("transfer-encoding", _CHUNKED).lower() != _CHUNKED:
                raise NotHttpError  # we cannot decode other transfer codings
            self.status = status
            self._head.clear()
            # from here on, a Content-Length is a trailer, and has no effect
            self._parser.set_dangerous_leniencies(lenient_chunked_length=True)
        else:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """Keep bytes until they are read."""
        self._n_bodiless_bytes = 0
        self._body += data

    def on_message_complete(self) -> None:
        """Note the end of an answer, and whether the connection can be reused."""
        self._is_whole = self.status > 0
        self._is_lasting = self._parser.should_keep_alive()

    def eof_received(self) -> None:
        """Note that no more bytes follow; this ends a body without a length."""
        self._is_whole |= self.status > 0 and not is_framed(self.headers)
        self._wake(ConnectionResetError)

    def connection_lost(self, _: Exception | None) -> None:
        """Note that the connection is closed."""
        self._wake(ConnectionResetError)

    def _wake(self, failure: type[Exception] | None) -> None:
        """Wake the task that waits for bytes, and note the first failure."""
        self._failure = self._failure or failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def ask(self, request: RawRequest, until_s: float | None) -> None:
        """Send a request and wait for the headers of the answer, until `until_s`.

        Raises:
            TimeoutError: They did not arrive until then, by the loop's clock.
        """
        if self._failure:
            raise self._failure
        method, target, headers, body = request
        lines = [method.encode() + b" " + target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in headers]
        self._transport.write(b"\r\n".join((*lines, b"", body)))
        while not self.status:
            await self._wait_for_bytes(until_s)

    async def read(self, until_s: float | None) -> bytes:
        """Return the next bytes of the body, b"" at its end.

        Raises:
            TimeoutError: None arrived until `until_s`, by the loop's clock.
        """
        while not self._body and not self._is_whole:
            try:
                await self._wait_for_bytes(until_s)
            except TimeoutError:
                if not self._body:  # bytes may have arrived that were to wait for more
                    raise
        piece = bytes(self._body)
        self._body.clear()
        now_s = asyncio.get_running_loop().time()
        self._first_s = self._first_s or now_s
        self._due_s = now_s + min((now_s - self._first_s) * _GATHER_PART, _GATHER_S)
        return piece

    async def _wait_for_bytes(self, until_s: float | None) -> None:
        """Wait until bytes arrive; raise the failure if none will."""
        if self._failure:
            raise self._failure
        self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        async with asyncio.timeout_at(until_s):
            await self._waiter

    def rest(self) -> bool:
        """Prepare for the next request; return False if no other one can be sent.

        If bytes arrived after the end of a reply, they would be taken for the next
        reply.
        """
        if not self._is_whole or not self._is_lasting or self._failure:
            return False
        self._reset()
        self._idle_since_s = time.monotonic()
        return True

    @property
    def has_bytes(self) -> bool:
        """Whether bytes of an answer have arrived."""
        return self._n_head_bytes > 0

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for too long, was closed, or has unexpected bytes."""
        is_old = time.monotonic() > self._idle_since_s + IDLE_S
        sock = self._transport.get_extra_info("socket")
        if is_old or self._failure or self._n_head_bytes or sock.fileno() < 0:
            return True
        # The loop may not have noticed them yet. Bytes that arrive between this check
        # and the request cannot be distinguished from its answer: HTTP/1.1 has no
        # numbers.
        return _is_readable(sock.fileno())

    async def aclose(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.sleep(0)  # the loop closes the socket in its next round


_Address = tuple[Any, ...]  # as `getaddrinfo` returns it


async def _addresses(host: str, port: int) -> list[_Address]:
    """Return the addresses of a host, IPv4 and IPv6 alternating (RFC 8305, 4)."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        ip_address(host)
    except ValueError:
        addresses = await asyncio.get_running_loop().run_in_executor(None, look_up)
    else:
        return look_up()  # of a number: no DNS request, so no thread is needed
    families = defaultdict[int, list[_Address]](list)
    for address in addresses:
        families[address[0]].append(address)
    turns = zip_longest(*families.values())
    return [address for turn in turns for address in turn if address]


async def _connect(addresses: list[_Address]) -> socket.socket:
    """Return a socket that is connected to the first address that answers (RFC 8305).

    asyncio can do this too, but in Python 3.11 it leaves sockets open when cancelled.
    """
    waiting, tries, problems = list(addresses), set[_SocketTask](), []
    try:
        while waiting or tries:
            if waiting:
                tries.add(asyncio.create_task(_connect_to(waiting.pop(0))))
            ended, _ = await asyncio.wait(
                tries,
                timeout=_NEXT_ADDRESS_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in ended:
                tries.remove(task)
                if (problem := task.exception()) is None:
                    return task.result()
                problems.append(problem)
    finally:
        for task in tries:
            task.add_done_callback(_close_unneeded)
            task.cancel()
    if len(problems) == 1:
        raise problems[0]
    raise OSError("; ".join(map(str, problems)))


_SocketTask = asyncio.Task[socket.socket]


async def _connect_to(address: _Address) -> socket.socket:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(0)  # it never blocks the loop
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_unneeded(task: _SocketTask) -> None:
    """Close a socket that connected too late, or that is no longer needed."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _is_readable(descriptor: int) -> bool:
    """Say whether a socket has bytes or was closed; `selectors` would take 15 us."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def is_framed(headers: dict[str, str]) -> bool:
    """Say whether headers mark the body's end; if not, it ends with the connection."""
    return "content-length" in headers or "transfer-encoding" in headers


def _host_port(url: httpx.URL) -> tuple[str, int]:
    return url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80)


_TCP_OPTIONS = (
    ("TCP_KEEPIDLE", 20),  # seconds of silence before the first probe
    ("TCP_KEEPINTVL", 10),  # seconds between probes
    ("TCP_KEEPCNT", 3),  # unanswered probes until the connection counts as broken
    ("TCP_NODELAY", 1),  # send the end of a request at once
)


SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _TCP_OPTIONS
        if hasattr(socket, name)
    ),
]


class Closable(Protocol):
    """A connection that can be closed."""

    async def aclose(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Closable)
# Replies that are committed to the ledger together end together, and each leaves an
# idle connection.
MAX_IDLE = 256


class IdleStack(Generic[C]):
    """The idle connections of one event loop; closed when the loop shuts down."""

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._closer = self._close_with_loop()
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
        """From now on, the end of the loop closes the idle connections."""
        await anext(self._closer)

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._closer.aclose()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Close the connections when the loop shuts down: it ends its generators."""
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
        """Let each begin without the connections of the parent process."""
        for stacks in self.of:
            stacks.begin_child()


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
        """Begin without connections: closing the parent's would disturb its loop."""
        leave_to_parent(list(self._stacks.items()))
        self._lock = Lock()
        self._stacks = WeakKeyDictionary()

    def _forget_others(self) -> None:
        """Drop stacks of closed loops."""
        for loop in [loop for loop in self._stacks if loop.is_closed()]:
            del self._stacks[loop]


_all_stacks = _AllStacks()


# The text of another library's error is shown only if it cannot contain the key or a
# header. That error is not kept as a cause, because its frames contain both.
_CHECK = "Check the base address (`%svc use` shows it) and the network"


def host_port_of(base_url: str, proxy: str) -> str:
    """Return the host, the port and the proxy, for messages."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if "[" in parts.netloc else parts.hostname
    through = f" through the proxy {proxy}" if proxy else ""
    return f"{host}:{port}{through}"


def explain(problem: BaseException, host_port: str, *, is_sent: bool) -> FailedTry:
    """Turn an exception into the failure of a try that got no answer."""
    if isinstance(problem, (ProxyRefusedError, httpx.ProxyError)):
        is_lasting, reason = True, "the proxy refused to connect"
        if str(problem).startswith("407"):  # httpx has the status only in its text
            reason = (
                "the proxy requires a login (status 407). Set HTTPS_PROXY to "
                "http://USER:PASSWORD@HOST:PORT"
            )
    elif not isinstance(problem, (OSError, NotHttpError, httpx.TransportError)):
        is_lasting, reason = True, f"the transport raised {type(problem).__name__}"
    elif is_sent and not isinstance(problem, httpx.ConnectError):
        return _closed_or_not_http(problem, host_port)
    else:
        reason, is_lasting = _why_not_connected(problem)
    error = NoConnectionError(f"No connection to {host_port}: {reason}. {_CHECK}.")
    return FailedTry(error=error, is_lasting=is_lasting, is_sent=False)


def explain_break(problem: Exception, host_port: str) -> FailedTry:
    """Turn an exception into the failure of a reply that ended too early."""
    if _is_not_http(problem):
        error = DocumentError(
            f"{host_port} sent a reply that is not valid HTTP: a chunk is malformed, "
            f"or the headers of its chunks are too long. {_CHECK}."
        )
        return FailedTry(error=error, is_lasting=True)
    return FailedTry(
        error=StreamBrokenError(
            f"The connection to {host_port} was lost before the end of the reply. "
            "svc.last() holds the reply so far; ask again for a complete one."
        )
    )


def explain_connect_timeout(host_port: str, within_s: float) -> FailedTry:
    """Return the failure of a connection that took too long to open."""
    error = TimedOutError(
        f"No connection to {host_port} within {within_s:g} s. {_CHECK}.",
        deadline="connect",
        deadline_s=within_s,
    )
    return FailedTry(error=error, is_lasting=True, is_sent=False)


def _is_not_http(problem: BaseException) -> bool:
    """Say whether the answer is not HTTP; httpx's text tells if it only ended."""
    has_ended = re.search("closed connection|disconnected without", str(problem))
    is_protocol_error = isinstance(problem, (NotHttpError, httpx.RemoteProtocolError))
    return is_protocol_error and not has_ended


def _closed_or_not_http(problem: BaseException, host_port: str) -> FailedTry:
    if not _is_not_http(problem):
        unanswered = NoConnectionError(
            f"{host_port} closed the connection before it answered. Ask again "
            "later; if this happens again, check the network and the base address."
        )
        return FailedTry(error=unanswered)
    error = DocumentError(
        f"{host_port} answered with something that is not HTTP, with headers that are "
        f"too long, or in a transfer coding that was not requested. {_CHECK}."
    )
    return FailedTry(error=error, is_lasting=True)


def _why_not_connected(problem: BaseException) -> tuple[str, bool]:
    """Return the reason, and whether a retry at once would fail in the same way."""
    for cause in _causes(problem):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = (
                f"its certificate is not trusted ({cause.verify_message}). If your "
                "network or server has certificates of its own, set SSL_CERT_FILE, or "
                "ca_file in svc_notebook.toml, to the file with them"
            )
            return reason, True
        if isinstance(cause, ssl.SSLError):
            return (
                "the server does not use TLS on this port; the port may be wrong",
                True,
            )
        if isinstance(cause, socket.gaierror):
            if cause.errno == socket.EAI_AGAIN:
                return (
                    "the host name cannot be looked up now (DNS does not answer)",
                    False,
                )
            return "no such host", True
        if f"[Errno {ECONNREFUSED}]" in str(cause):  # of one address, or of several
            return "no server listens on this port (connection refused)", False
    return "the network failed", False


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    """Iterate an exception and all exceptions that led to it, each once."""
    seen: set[int] = set()
    waiting = [problem]
    while waiting:
        cause = waiting.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions


_EMULATOR_HEADER = "x-svc-emulator"  # the emulator's note on an answer, or 1
_NOTE_CHARS = 60  # any server can send this header, and footers show it

_FIRST_ERROR = 400


class TransportConnection:
    """One exchange through a transport of httpx, with the methods of `Connection`."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport, url: httpx.URL, connect_s: float
    ) -> None:
        self._transport, self._url = transport, url
        self._timeout = {"connect": connect_s, "pool": connect_s}
        self._answer: httpx.Response | None = None

    async def ask(self, request: RawRequest, until_s: float | None) -> None:
        """Send a request and wait for the headers of the answer."""
        # httpx makes the target from the address: for a proxy it is another one
        method, _, headers, body = request
        extensions = {"timeout": self._timeout}
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
            with suppress(
                Exception
            ):  # the exchange is over, so its errors do not matter
                await self._answer.aclose()


_redacted_in_logs: set[str] = set()


def keep_out_of_logs(key: Key) -> None:
    """Redact this key in the logs of httpx, where an answer may quote it."""

    def redact(record: logging.LogRecord) -> bool:
        record.msg, record.args = key.redact(record.getMessage()), ()
        return True

    if key.digest("logs") not in _redacted_in_logs:  # many clients may share a key
        _redacted_in_logs.add(key.digest("logs"))
        for part in ("connection", "http11", "http2", "proxy", "socks"):
            logging.getLogger(f"httpcore.{part}").addFilter(redact)


AnyConnection = Connection | TransportConnection


class HttpTransport:
    """Sends requests to one base address, for one operation.

    A failure is returned, not raised, so that no traceback keeps the frame in which the
    key was written into a header. A Retry-After date is compared with `now`. `through`
    is a transport to use instead of our own connections. `endpoint` may name a proxy
    and the certificates to trust.

    Raises:
        SettingsError: httpx cannot read the address, or the proxy cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        now: Callable[[], datetime],
        operation: str = OPERATION,
        through: httpx.AsyncBaseTransport | None = None,
        endpoint: Endpoint = SERVICE,
    ) -> None:
        query = f"?{urlencode(endpoint.query)}" if endpoint.query else ""
        url = parse_url(f"{base_url}/{operation}{query}")
        if url is None:
            raise unusable_address()
        self._base_url, self._url = base_url, url
        self._endpoint = endpoint
        self._through = through
        self._proxy = None if through else proxy_for(base_url, endpoint.proxy)
        self._ca_file = endpoint.ca_file
        is_forwarded = self._proxy and url.scheme == "http"
        self._target = str(url).encode() if is_forwarded else url.raw_path
        self._method = "POST" if operation == OPERATION else "GET"
        self._now = now
        self._stacks = IdleStacks[Connection]()

    @property
    def _host_port(self) -> str:
        return host_port_of(self._base_url, self._proxy.shown if self._proxy else "")

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
        """Send a body and wait for the headers of the answer.

        Args:
            body: The body of the request.
            key: The key that the headers carry.
            is_streamed: Whether a stream is requested.
            connect_s: Most seconds until the connection is open.
            within_s: Most seconds from then to the headers.
            on_sent: Called just before the request is written.

        Returns:
            The answer, or the failure; None if the headers took too long.
        """
        stack = await self._stacks.of_running_loop()
        idle = stack.take()
        if idle is not None and idle.is_stale:
            await idle.aclose()
            idle = None
        while True:
            connection = idle or await self._connect(connect_s)
            if isinstance(connection, FailedTry):
                return connection
            asked_s = asyncio.get_running_loop().time()
            try:
                on_sent()
                await connection.ask(
                    self._request(body, key, is_streamed=is_streamed),
                    asked_s + within_s,
                )
                return self._answer(connection, stack)
            except _ANY_STOP as problem:
                failure = problem
            took_s = asyncio.get_running_loop().time() - asked_s
            await connection.aclose()
            is_closed = isinstance(failure, ConnectionError) and took_s < _AT_ONCE_S
            if idle is None or not is_closed or idle.has_bytes:
                break
            # The server closed the idle connection and did not read the request, so it
            # is safe to send it again on a new one.
            idle = None
        if isinstance(failure, (httpx.ConnectTimeout, httpx.PoolTimeout)):
            return explain_connect_timeout(self._host_port, connect_s)
        if isinstance(failure, (TimeoutError, httpx.TimeoutException)):
            return None
        return self._to_failure(failure, is_sent=True)

    def _to_failure(self, problem: BaseException, *, is_sent: bool) -> FailedTry:
        if not isinstance(problem, Exception):
            raise type(problem)  # without the frames that hold headers
        return explain(problem, self._host_port, is_sent=is_sent)

    async def aclose(self) -> None:
        """Close the idle connections of the running loop."""
        await self._stacks.aclose()

    async def _connect(self, within_s: float) -> AnyConnection | FailedTry:
        if self._through:
            return TransportConnection(self._through, self._url, within_s)
        tls = None
        try:
            if "https" in {self._url.scheme, self._proxy and self._proxy.url.scheme}:
                tls = tls_context(self._ca_file)
        except OSError:  # ssl's errors are OSErrors, too
            error = unreadable_certificates(self._ca_file)
            return FailedTry(error=error, is_lasting=True, is_sent=False)
        connection = Connection(tls)
        try:
            async with asyncio.timeout(within_s):
                await connection.open(self._url, self._proxy)
        except _ANY_STOP as problem:
            failure = problem
        else:
            return connection
        await connection.aclose()
        if isinstance(failure, TimeoutError):
            return explain_connect_timeout(self._host_port, within_s)
        return self._to_failure(failure, is_sent=False)

    def _request(self, body: bytes, key: Key, *, is_streamed: bool) -> RawRequest:
        is_forwarded = self._proxy and self._url.scheme == "http"
        headers = [
            *(self._proxy.headers() if self._proxy and is_forwarded else ()),
            (b"Host", self._url.netloc),
            *request_headers(key, self._endpoint),
            (b"Content-Type", b"application/json"),
            (b"Accept", _ACCEPT_STREAM if is_streamed else b"application/json"),
            # A compressor would hold text of a stream back.
            (b"Accept-Encoding", b"identity" if is_streamed else b"gzip, deflate"),
            (b"User-Agent", _USER_AGENT),
            (b"Content-Length", b"%d" % len(body)),
        ]
        return self._method, self._target, headers, body

    def _answer(
        self, connection: AnyConnection, stack: IdleStack[Connection]
    ) -> HttpAnswer:
        headers = connection.headers
        is_error = connection.status >= _FIRST_ERROR
        wait_s = retry_after_s(headers, now_at=self._now()) if is_error else None
        note = headers.get(_EMULATOR_HEADER, "")
        head = ResponseHead(
            status=connection.status,
            content_type=headers.get("content-type", ""),
            retry_after_s=wait_s,
            is_emulated=_EMULATOR_HEADER in headers,
            emulator_note=unquote(note)[:_NOTE_CHARS] if note != "1" else "",
            location=headers.get("location", ""),
        )

        async def release(is_ended: bool) -> None:  # noqa: FBT001 - its only argument
            is_kept = False
            try:
                if is_ended and isinstance(connection, Connection):
                    is_kept = connection.rest() and stack.put(connection)
            finally:  # also if it is cancelled meanwhile
                if not is_kept:
                    await connection.aclose()

        return HttpAnswer(
            head,
            connection.read,
            encoding=headers.get("content-encoding", ""),
            to_failure=lambda problem: explain_break(problem, self._host_port),
            is_framed=is_framed(headers),
            release=release,
        )


_ANY_STOP = (Exception, asyncio.CancelledError, KeyboardInterrupt)
# JSON, too: for errors, and for servers that do not stream
_ACCEPT_STREAM = b"text/event-stream, application/json"


# importlib.metadata would return the same version, but takes 9 ms.
_USER_AGENT = f"svc-notebook/{import_module('svc_notebook').__version__}".encode()

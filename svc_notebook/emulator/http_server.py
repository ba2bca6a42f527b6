"""The emulator on its port: HTTP/1.1 over asyncio, served in a thread.

It makes no answers: it parses requests with httptools, as the client does, and writes
the replies. It answers one request of a connection at a time.
"""

import asyncio
import errno
import os
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

from svc_notebook.errors import SettingsError

from .http_values import MARK, End, Reply, Request, error_body
from .request_log import Ended, RequestLog

HOST = "127.0.0.1"
# Far more than 8192 tokens; a longer body is read, but not kept.
BODY_KEPT_BYTES = 4 * 2**20
# A body that announces more than this is not read; the connection is closed.
BODY_READ_BYTES = 64 * 2**20
# of a request line and headers together
MAX_HEAD_BYTES = 64 * 2**10
# after this many pieces without a pause, other requests get a turn
TURN_PIECES = 32
# How long a request may take to arrive, from its first byte.
REQUEST_TIMEOUT_S = 60.0
# turns of the loop until an accepted connection is in `connections`
ACCEPT_TURNS = 5
# How long closing waits for unfinished replies to notice.
CLOSE_TIMEOUT_S = 5.0
# a socket that is closed with this option sends a reset (RST) instead of a FIN
_LINGER_NONE = struct.pack("ii" if os.name == "posix" else "hh", 1, 0)
_BAD_REQUEST, _NOT_ALLOWED = 400, 405
_NOT_HTTP = "The request is not valid HTTP."
_TOO_LONG = "The request body is too long."
# A request line whose method the parser does not know.
_UNKNOWN_METHOD = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.[01]\r\n")
# replies with these statuses have no body and no length (RFC 9112, 6.3)
_BODILESS = (204, 304)
_STATUSES = frozenset(HTTPStatus)


def _listen(port: int) -> socket.socket:
    # Without the explicit protocol, asyncio would leave Nagle's algorithm on.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # On other systems two sockets could then listen on one port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        is_taken = error.errno == errno.EADDRINUSE
        reason = "is taken" if is_taken else f"cannot be used ({error})"
        raise SettingsError(
            f"Port {port} on {HOST} {reason}; choose another, or 0 for a free one."
        ) from None
    listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return listener


class HttpServer:
    """A server that runs in its own thread as soon as it is made.

    It calls `answer` from several threads.
    """

    def __init__(
        self,
        port: int,
        answer: Callable[[Request], Reply],
        log: RequestLog,
        *,
        keep_alive_s: float,
    ) -> None:
        self._listener = _listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"http://{HOST}:{self.port}"
        # our own pool, because Python cannot end a loop's default threads at exit
        self._threads = ThreadPoolExecutor(thread_name_prefix="svc-emulator-answer")
        self._site = Site(answer, log, self._threads, keep_alive_s)
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(
            target=self._run, name=f"svc-emulator-{self.port}", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()

    @property
    def n_connections(self) -> int:
        """How many connections are open."""
        return len(self._site.connections)

    def close(self) -> None:
        """Stop and wait for the thread to end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            # the default loop of Windows has no `remove_reader`, which `_serve` needs
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        finally:
            self._listener.close()
            self._threads.shutdown()
            self._is_ready.set()

    async def _serve(self) -> None:
        """Serve until `close`, then cut all connections."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: HttpConnection(self._site), sock=self._listener
        )
        self._is_ready.set()
        await self._stop.wait()
        # asyncio does not close connections that are just being accepted: wait for them
        self._loop.remove_reader(self._listener)
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self._site.connections):
            connection.transport.abort()
        # The replies of aborted connections end by themselves.
        if self._site.tasks:
            await asyncio.wait(self._site.tasks, timeout=CLOSE_TIMEOUT_S / 2)


@dataclass(frozen=True, slots=True)
class Site:
    """What all connections of a server share."""

    answer: Callable[[Request], Reply]
    log: RequestLog
    threads: ThreadPoolExecutor
    keep_alive_s: float
    connections: "set[HttpConnection]" = field(default_factory=set)
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)


@dataclass(slots=True)
class _Incoming:
    """A request while it arrives; `body` is None once it is too long to keep."""

    target: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    method: str = ""
    body: bytearray | None = field(default_factory=bytearray)
    has_head: bool = False
    is_over: bool = False  # whether its body is ignored
    is_http_10: bool = False
    keeps_alive: bool = False


class HttpConnection(asyncio.Protocol):
    """A connection of a client; the parser calls the methods that begin with `on_`.

    Requests that have arrived wait until the reply before them is sent.
    """

    request_timeout_s = REQUEST_TIMEOUT_S

    def __init__(self, site: Site) -> None:
        self._site = site
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self.left: asyncio.Future[None] = self._loop.create_future()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: _Incoming | None = None
        self._n_head_bytes = 0
        self._waiting: deque[_Incoming] = deque()
        self._unparsed = b""  # bytes that arrived while a reply was sent
        self._refusal: tuple[int, str] | None = None  # then nothing more is read
        self._is_answering = False
        self._begun_s: float | None = None  # when the first byte of a request arrived
        self._hang_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self.transport = cast("asyncio.Transport", transport)
        self._site.connections.add(self)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """End the connection; a reply to it ends, too."""
        self._site.connections.discard(self)
        self._stop_timer()
        self._can_write.set()
        if not self.left.done():
            self.left.set_result(None)

    def pause_writing(self) -> None:
        """Stop writing for now: the client reads slowly."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Continue writing."""
        self._can_write.set()

    async def write(self, data: bytes) -> None:
        """Send bytes when the client can take them; raise `LeftError` if it left."""
        await self._can_write.wait()
        # `left` is set one turn of the loop later; asyncio would log a write before
        # that
        if self.transport.is_closing():
            raise LeftError
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; while a reply is being sent, keep them and stop reading."""
        if self._is_answering:
            self._unparsed += data
            self.transport.pause_reading()
            return
        if self._begun_s is None:
            self._begun_s = self._loop.time()
        self._parse(data)
        self._answer_next()

    def _parse(self, data: bytes) -> None:
        """Feed the parser; if that fails, set the refusal."""
        if self._incoming is None or not self._incoming.has_head:
            self._n_head_bytes += len(data)
        is_blank = self._incoming is None and not data.strip(b"\r\n")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # the request is complete; further bytes would be another protocol
            for incoming in self._waiting:
                incoming.keeps_alive = False
        except httptools.HttpParserError as error:
            # After complete requests, `data` does not begin with the wrong line.
            self._refusal = _refusal_of(error, b"" if self._waiting else data)
        # One empty line may come before a request (RFC 9112, 2.2).
        is_nothing = is_blank and len(data) > len(b"\r\n")
        if is_nothing or self._n_head_bytes > MAX_HEAD_BYTES:
            self._refusal = self._refusal or (_BAD_REQUEST, _NOT_HTTP)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._incoming = _Incoming()

    def on_url(self, part: bytes) -> None:
        """Note a part of the target."""
        if self._incoming is not None:
            self._incoming.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, but no trailer; the first one of each name counts."""
        if self._incoming is not None and not self._incoming.has_head:
            key = name.decode("latin-1").lower()
            self._incoming.headers.setdefault(key, value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Check the head; ask for the body if the client waits for `100 Continue`."""
        incoming = self._incoming
        if incoming is None:
            return
        self._n_head_bytes = 0
        incoming.has_head = True
        incoming.method = self._parser.get_method().decode("latin-1")
        incoming.is_http_10 = self._parser.get_http_version() == "1.0"
        incoming.keeps_alive = self._parser.should_keep_alive()
        announced = incoming.headers.get("content-length", "")
        if "host" not in incoming.headers and not incoming.is_http_10:
            self._refusal = _BAD_REQUEST, _NOT_HTTP  # RFC 9112, 3.2
            incoming.is_over = True
        elif announced.isdecimal() and int(announced) > BODY_READ_BYTES:
            incoming.body, incoming.keeps_alive = None, False
            incoming.is_over = True
            self._waiting.append(incoming)
        elif incoming.headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """Keep a part of the body, unless it is too long."""
        incoming = self._incoming
        if incoming is not None and incoming.body is not None:
            incoming.body += part
            if len(incoming.body) > BODY_KEPT_BYTES:
                incoming.body = None

    def on_message_complete(self) -> None:
        """Let the request be answered."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None and not incoming.is_over:
            self._waiting.append(incoming)

    def _answer_next(self) -> None:
        """Answer what has arrived, refuse what cannot be read, or wait for more."""
        if self._is_answering or self.transport.is_closing():
            return
        if self._waiting:
            self._is_answering = True
            self._stop_timer()
            task = self._loop.create_task(self._answer(self._waiting.popleft()))
            self._site.tasks.add(task)
            task.add_done_callback(self._site.tasks.discard)
        elif self._refusal is not None:
            self._refuse(*self._refusal)
        else:
            self._set_timer()

    async def _answer(self, incoming: _Incoming) -> None:
        """Answer one request; then read the next one, or close the connection."""
        request = Request(
            method=incoming.method,
            path=unquote(incoming.target.partition(b"?")[0].decode("latin-1")),
            headers=incoming.headers,
            body=None if incoming.body is None else bytes(incoming.body),
            client_port=(self.transport.get_extra_info("peername") or ("", 0))[1],
        )
        number = self._site.log.begin(request)
        # in a thread, because making a long text would delay other streams
        reply = await self._loop.run_in_executor(
            self._site.threads, self._site.answer, request
        )
        if await _Delivery(self, self._site.log, number, reply, incoming).run():
            self._read_next()
        else:
            self.transport.close()

    def _read_next(self) -> None:
        """Take the next request, part of which may have arrived already."""
        self._is_answering = False
        if not self._waiting:
            unparsed, self._unparsed = self._unparsed, b""
            is_begun = unparsed or self._incoming is not None
            self._begun_s = self._loop.time() if is_begun else None
            if unparsed and self._refusal is None:
                self._parse(unparsed)
            self.transport.resume_reading()
        self._answer_next()

    def _refuse(self, status: int, message: str) -> None:
        """Refuse unreadable bytes with the document's error body, then close."""
        body = error_body(status, message)
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **({"allow": "POST"} if status == _NOT_ALLOWED else {}),
        }
        self.transport.write(_head(status, headers) + body)
        self.transport.close()

    def _set_timer(self) -> None:
        """Close the connection later, unless more bytes arrive."""
        self._stop_timer()
        wait_s = self._site.keep_alive_s
        if self._begun_s is not None:
            due_s = self._begun_s + self.request_timeout_s
            wait_s = min(wait_s, due_s - self._loop.time())
        self._hang_up = self._loop.call_later(wait_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._hang_up is not None:
            self._hang_up.cancel()
            self._hang_up = None


class LeftError(Exception):
    """The client closed the connection."""


class _Delivery:
    """Sends one reply to a client."""

    def __init__(
        self,
        connection: HttpConnection,
        log: RequestLog,
        number: int,
        reply: Reply,
        incoming: _Incoming,
    ) -> None:
        self._connection = connection
        self._log = log
        self._number = number
        self._reply = reply
        status = reply.status or 0
        headers = {**dict([MARK]), **reply.headers}
        self._has_body = incoming.method != "HEAD" and status not in _BODILESS
        length = headers.get("content-length")
        if length is None and self._has_body and not incoming.is_http_10:
            headers.setdefault("transfer-encoding", "chunked")
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        n_bytes = sum(len(piece.data) for piece in reply.body)
        has_end = self._is_chunked or not self._has_body or length == str(n_bytes)
        is_kept = has_end and incoming.keeps_alive and not incoming.is_http_10
        if not is_kept:
            headers.setdefault("connection", "close")
        self._keeps_alive = headers.get("connection", "").lower() != "close"
        self._headers = headers

    async def run(self) -> bool:
        """Send the reply at its pace; return whether another request may follow.

        It stops when the client leaves.
        """
        ended: Ended = "cut"
        reply = self._reply
        try:
            await self._pause(reply.before_s)
            if reply.status is not None:
                self._log.note(self._number, status=reply.status)
                await self._connection.write(_head(reply.status, self._headers))
            await self._put_all()
            ended = await self._end()
        except LeftError:
            ended = "client_left"
        finally:
            self._log.note(self._number, ended=ended)
        return ended == "whole" and self._keeps_alive

    async def _put_all(self) -> None:
        body = self._reply.body
        for at, piece in enumerate(body, start=1):
            if piece.after_s > 0 or at % TURN_PIECES == 0:
                await self._pause(piece.after_s)
            self._log.note(self._number, n_pieces=at)
            if at == len(body) and self._reply.end is End.WHOLE:
                # noted before the last piece is sent: a client that has read it must
                # find this
                self._log.note(self._number, ended="whole")
            await self._put(piece.data)

    async def _put(self, data: bytes) -> None:
        """Send some bytes of the body; raise `LeftError` if the client has left."""
        if self._reply.status is not None and not self._has_body:
            return
        if self._reply.status is not None and self._is_chunked:
            # An empty chunk would end the body.
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        await self._connection.write(data)

    async def _end(self) -> Ended:
        connection = self._connection
        if self._reply.end is End.WHOLE:
            if self._is_chunked and self._has_body:
                await connection.write(b"0\r\n\r\n")
            return "whole"
        if self._reply.end is End.SILENT:
            await connection.left
            raise LeftError
        if self._reply.end is End.RESET:
            wire = connection.transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        connection.transport.close()
        # the connection closes after the bytes already written have been sent
        await connection.left
        return "cut"

    async def _pause(self, seconds: float) -> None:
        """Wait; raise `LeftError` as soon as the client has left."""
        left = self._connection.left
        if seconds > 0:
            await asyncio.wait((left,), timeout=seconds)
        else:
            await asyncio.sleep(0)
        if left.done():
            raise LeftError


def _refusal_of(error: httptools.HttpParserError, data: bytes) -> tuple[int, str]:
    """Return the status and message for bytes that cannot be parsed."""
    is_unknown = isinstance(error, httptools.HttpParserInvalidMethodError)
    if is_unknown and _UNKNOWN_METHOD.match(data):
        return _NOT_ALLOWED, "Use POST."
    is_long = "Content-Length overflow" in str(error)
    return _BAD_REQUEST, _TOO_LONG if is_long else _NOT_HTTP


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    """Write the status line and the headers."""
    phrase = HTTPStatus(status).phrase if status in _STATUSES else ""
    lines = {"date": formatdate(usegmt=True), **dict([MARK]), **headers}
    texts = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in lines.items())]
    return "\r\n".join([*texts, "", ""]).encode("latin-1")

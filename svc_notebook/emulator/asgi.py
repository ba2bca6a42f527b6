"""The HTTP protocol of the emulator's connections: uvicorn's, made quiet.

What it is not: it parses nothing itself. uvicorn is imported here, so this module
is imported only when a server is started.

Rules for this file: nothing is printed or logged into the user's program; bytes
that are not HTTP are answered with the document's error body; the application can
reach its connection, since scripted faults cut it; a connection on which nothing
comes, or no whole request in time, is closed.

The ASGI application around the emulated service: bodies in, paced bytes out.

What it is not: it decides no answer. Starlette is imported here, so this module
is imported only when a server is started.

Rules for this file: every response carries the mark; a body longer than this
emulator keeps is read to its end but not kept, and one that says it is far longer
is not even read; a client that leaves is noticed while a reply is waiting, and
nothing more is sent for it.

A server in its own thread: from a listening socket until it is closed.

What it is not: it knows no requests. uvicorn is imported here, so this module is
imported only when a server is started.

Rules for this file: the thread ends with `close` and leaves nothing; connections
still open then are cut, however slow their other ends are. uvicorn's own `Server`
is not used: it waits for replies under way and logs where the user's program does.
"""

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import h11
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .http_values import MARK, End, Fault, Reply, Request
from .record import Ended, Record

# Made apart from the program's loggers, so that no setting of theirs reaches it.
_QUIET = logging.Logger("svc_notebook.emulator", logging.CRITICAL + 1)  # noqa: LOG001
_NOT_HTTP = Fault(status=400, message="The request is not HTTP as it should be.")


# From its first byte on a request may take so long to come in.
REQUEST_TIMEOUT_S = 60.0


class QuietProtocol(H11Protocol):
    """A connection that keeps its noise to itself, and ends when its time is up.

    uvicorn's own timer begins after a response only, and any byte stops it.
    """

    request_timeout_s = REQUEST_TIMEOUT_S
    _hang_up_handle: asyncio.TimerHandle | None = None
    _request_begun_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin a connection and let the application find it."""
        self.logger = _QUIET
        self.access_log = False
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read what came, and wait for the rest of it no longer than allowed."""
        if self._request_begun_s is None:
            self._request_begun_s = self.loop.time()
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may already have come in part."""
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: nothing is waited for any more."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _expect(self) -> None:
        """Hang up later, unless a request is being answered."""
        self._stop_waiting()
        # uvicorn says that there is always a cycle; before the first request is none.
        is_idle = getattr(self.cycle, "response_complete", True)
        if not is_idle and not self.cycle.more_body:
            self._request_begun_s = None
            return
        if is_idle and not self.conn.trailing_data[0]:
            self._request_begun_s = None
        wait_s = float(self.timeout_keep_alive)
        if self._request_begun_s is not None:
            due_s = self._request_begun_s + self.request_timeout_s
            wait_s = min(wait_s, due_s - self.loop.time())
        self._hang_up_handle = self.loop.call_later(wait_s, self.transport.close)

    def _stop_waiting(self) -> None:
        """Forget when to hang up."""
        if self._hang_up_handle is not None:
            self._hang_up_handle.cancel()
            self._hang_up_handle = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Refuse what is not HTTP, and hang up."""
        body = _NOT_HTTP.to_bytes()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            MARK,
        ]
        try:
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            # A reply is already under way on this connection; only hanging up is left.
            pass
        self.transport.close()


# Far more than 8192 tokens can be; what is longer is refused.
BODY_KEPT_BYTES = 4 * 2**20
# Past this the rest of a body is not waited for: the connection ends instead.
BODY_READ_BYTES = 64 * 2**20
# With no pause between pieces, others get their turn after so many.
TURN_PIECES = 32
# A socket closed with this option sends a reset instead of an end.
_LINGER_NONE = struct.pack("ii" if os.name == "posix" else "hh", 1, 0)


def build(reply: Callable[[Request], Reply], record: Record) -> ASGIApp:
    """Build the application.

    Args:
        reply: Answers a request; is called from several threads.
        record: Is told about every request.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive)
        is_huge = _n_told_bytes(http) > BODY_READ_BYTES
        try:
            request = _request(http, None if is_huge else await _body(http))
        except ClientDisconnect:
            return
        delivery = _Delivery(record, record.begin(request), scope, send)
        # In a thread: writing a long text must not hold up other streams.
        answer = await asyncio.to_thread(reply, request)
        if is_huge:
            headers = {**answer.headers, "connection": "close"}
            answer = replace(answer, headers=headers)
        await delivery.run(answer, receive)

    return serve


def _n_told_bytes(http: HttpRequest) -> int:
    """Read how long a body says it is; 0 if it does not say."""
    told = http.headers.get("content-length", "")
    return int(told) if told.isdecimal() else 0


async def _body(http: HttpRequest) -> bytes | None:
    """Read a body to its end; None if it is too long to keep."""
    body: bytearray | None = bytearray()
    async for part in http.stream():
        if body is not None:
            body += part
            if len(body) > BODY_KEPT_BYTES:
                body = None
    return None if body is None else bytes(body)


def _request(http: HttpRequest, body: bytes | None) -> Request:
    """Make the value that is answered."""
    return Request(
        method=http.method,
        path=http.scope["path"],
        headers=dict(http.headers),
        body=body,
        client_port=http.client.port if http.client else 0,
    )


class _LeftError(Exception):
    """The client closed the connection."""


class _Delivery:
    """One reply on its way to a client."""

    def __init__(self, record: Record, number: int, scope: Scope, send: Send) -> None:
        self._record = record
        self._number = number
        self._transport = cast("asyncio.Transport", scope["state"]["transport"])
        self._send = send

    async def run(self, reply: Reply, receive: Receive) -> None:
        """Send a reply at its pace; stop when the client leaves."""
        left = asyncio.ensure_future(_until_left(receive))
        ended: Ended = "cut"
        try:
            await self._begin(reply, left)
            await self._put_all(reply, left)
            ended = await self._end(reply.end, left)
        except _LeftError:
            ended = "client_left"
        finally:
            left.cancel()
            self._record.note(self._number, ended=ended)

    async def _begin(self, reply: Reply, left: "asyncio.Future[None]") -> None:
        """Send the headers, if the reply has any."""
        await _pause(reply.before_s, left)
        if reply.status is not None:
            self._record.note(self._number, status=reply.status)
            await self._send(_start(reply))

    async def _put_all(self, reply: Reply, left: "asyncio.Future[None]") -> None:
        """Send the body."""
        for at, piece in enumerate(reply.body, start=1):
            if piece.after_s > 0 or at % TURN_PIECES == 0:
                await _pause(piece.after_s, left)
            self._record.note(self._number, n_pieces=at)
            if at == len(reply.body) and reply.end is End.WHOLE:
                # Before the bytes leave: whoever has read them finds this noted.
                self._record.note(self._number, ended="whole")
            await self._put(reply, piece.data)

    async def _put(self, reply: Reply, data: bytes) -> None:
        """Send some bytes of the body.

        Raises:
            _LeftError: The client has left.
        """
        # Known here at once, elsewhere a turn later; asyncio logs what comes between.
        if self._transport.is_closing():
            raise _LeftError
        if reply.status is None:
            self._transport.write(data)
        else:
            message = {"type": "http.response.body", "body": data, "more_body": True}
            await self._send(message)

    async def _end(self, end: End, left: "asyncio.Future[None]") -> Ended:
        """End a reply the way it says."""
        if end is End.WHOLE:
            await self._send({"type": "http.response.body", "body": b""})
            return "whole"
        if end is End.SILENT:
            await left
            raise _LeftError
        if end is End.RESET:
            wire = self._transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self._transport.close()
        # What was written goes out first; only then is the connection gone.
        await left
        return "cut"


def _start(reply: Reply) -> Message:
    """Write the status and the headers, marked."""
    return {
        "type": "http.response.start",
        "status": reply.status,
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in (*reply.headers.items(), MARK)
        ],
    }


async def _until_left(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pause(seconds: float, left: "asyncio.Future[None]") -> None:
    """Wait, but not for a client that has left.

    Raises:
        _LeftError: It has.
    """
    if seconds > 0:
        await asyncio.wait((left,), timeout=seconds)
    else:
        await asyncio.sleep(0)
    if left.done():
        raise _LeftError


# How long closing waits for replies under way to notice.
CLOSE_TIMEOUT_S = 5.0


class Running:
    """A server that runs as soon as it is made.

    Args:
        wire: A listening socket; closed with the server.
        app: What answers.
        keep_alive_s: How long an idle connection is kept.
    """

    def __init__(
        self, wire: socket.socket, app: ASGIApp, *, keep_alive_s: float
    ) -> None:
        self.port: int = wire.getsockname()[1]
        self._wire = wire
        self._state = ServerState()
        self._config = Config(
            app, http=QuietProtocol, ws="none", lifespan="off", log_config=None
        )
        self._config.load()
        self._keep_alive_s = keep_alive_s
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
        """Count open connections."""
        return len(self._state.connections)

    def close(self) -> None:
        """Stop and wait for the thread to end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        """Serve in this thread until told to stop."""
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        finally:
            self._wire.close()
            self._is_ready.set()

    async def _serve(self) -> None:
        """Listen, then cut whatever is under way."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(self._connection, sock=self._wire)
        self._is_ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        # Aborted connections tell their replies, which then end by themselves.
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=CLOSE_TIMEOUT_S / 2)

    def _connection(self) -> QuietProtocol:
        """Make the protocol of a new connection."""
        connection = QuietProtocol(self._config, self._state, {})
        connection.timeout_keep_alive = self._keep_alive_s  # type: ignore[assignment]  # any seconds do
        return connection

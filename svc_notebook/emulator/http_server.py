"""The emulator on its socket: an ASGI application, served by uvicorn in a thread.

It decides no answer. Starlette and uvicorn are imported here, so this module is
imported only when an emulator is started.
"""

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import cast

import h11
from starlette.requests import ClientDisconnect
from starlette.requests import Request as StarletteRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .http_values import MARK, End, Reply, Request, error_body
from .request_log import Ended, RequestLog

# Far more than 8192 tokens; a longer body is read, but not kept.
BODY_KEPT_BYTES = 4 * 2**20
# A body that announces more than this is not read; the connection is closed.
BODY_READ_BYTES = 64 * 2**20
# Without pauses between pieces, other requests get a turn after so many.
TURN_PIECES = 32
# How long a request may take to arrive, from its first byte.
REQUEST_TIMEOUT_S = 60.0
# Turns of the loop until a connection that was accepted is known.
ACCEPT_TURNS = 5
# How long closing waits for unfinished replies to notice.
CLOSE_TIMEOUT_S = 5.0
# A socket closed with this option sends a reset instead of an end.
_LINGER_NONE = struct.pack("ii" if os.name == "posix" else "hh", 1, 0)
# Not one of the program's loggers, so that none of their settings applies to it.
_QUIET = logging.Logger("svc_notebook.emulator", logging.CRITICAL + 1)  # noqa: LOG001
_NOT_HTTP = error_body(400, "The request is not HTTP as it should be.")


class HttpServer:
    """A server that runs in its own thread as soon as it is made.

    It closes its listening socket with itself, and calls `answer` from several threads.
    uvicorn's own `Server` is not used: it waits for unfinished replies, and writes to
    the program's logs.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Request], Reply],
        log: RequestLog,
        *,
        keep_alive_s: float,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._state = ServerState()
        # Python cannot end a loop's own threads while it exits.
        self._threads = ThreadPoolExecutor(thread_name_prefix="svc-emulator-answer")
        self._config = Config(
            make_app(answer, log, self._threads),
            http=QuietProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type]  # any seconds do
        )
        self._config.load()
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
        return len(self._state.connections)

    def close(self) -> None:
        """Stop and wait for the thread to end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            # Windows' usual loop has no readers, one of which `_serve` removes.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        finally:
            self._listener.close()
            self._threads.shutdown()
            self._is_ready.set()

    async def _serve(self) -> None:
        """Listen, then cut all connections, however slow their other ends are."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: QuietProtocol(self._config, self._state, {}), sock=self._listener
        )
        self._is_ready.set()
        await self._stop.wait()
        # A closed server forgets to close the connections that it is just accepting.
        self._loop.remove_reader(self._listener)
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        # The replies of aborted connections end by themselves.
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=CLOSE_TIMEOUT_S / 2)


class QuietProtocol(H11Protocol):
    """uvicorn's connection, but it logs nothing and ends when its time is up.

    uvicorn's own timer begins only after a response, and any byte stops it.
    """

    request_timeout_s = REQUEST_TIMEOUT_S
    _hang_up_handle: asyncio.TimerHandle | None = None
    _request_begun_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin a connection; the application can reach it, to cut it."""
        self.logger = _QUIET
        self.access_log = False
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read bytes, and wait for the rest of the request no longer than allowed."""
        if self._request_begun_s is None:
            self._request_begun_s = self.loop.time()
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Wait for the next request, part of which may have arrived already."""
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection and stop waiting."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _expect(self) -> None:
        """Hang up later, unless a request is being answered."""
        self._stop_waiting()
        # `cycle` is None before the first request, although it is typed otherwise.
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
        if self._hang_up_handle is not None:
            self._hang_up_handle.cancel()
            self._hang_up_handle = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Refuse bytes that are not HTTP in the document's shape, and hang up."""
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(_NOT_HTTP))),
            ("connection", "close"),
            MARK,
        ]
        start = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        # Where a reply has begun on this connection, it is only closed.
        with suppress(h11.LocalProtocolError):
            for event in (start, h11.Data(data=_NOT_HTTP), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def make_app(
    answer: Callable[[Request], Reply], log: RequestLog, threads: ThreadPoolExecutor
) -> ASGIApp:
    """Make the ASGI application."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        http = StarletteRequest(scope, receive)
        announced = http.headers.get("content-length", "")
        is_huge = announced.isdecimal() and int(announced) > BODY_READ_BYTES
        try:
            body = None if is_huge else await _body(http)
        except ClientDisconnect:
            return
        request = Request(
            method=http.method,
            path=http.scope["path"],
            headers=dict(http.headers),
            body=body,
            client_port=http.client.port if http.client else 0,
        )
        delivery = _Delivery(log, log.begin(request), scope, send)
        # In a thread, because writing a long text would delay other streams.
        loop = asyncio.get_running_loop()
        reply = await loop.run_in_executor(threads, answer, request)
        if is_huge:
            headers = {**reply.headers, "connection": "close"}
            reply = replace(reply, headers=headers)
        await delivery.run(reply, receive)

    return serve


async def _body(http: StarletteRequest) -> bytes | None:
    """Read a body to its end; None if it is too long to keep."""
    body = bytearray()
    async for part in http.stream():  # one byte more shows that it is too long
        body += part[: BODY_KEPT_BYTES + 1 - len(body)]
    return bytes(body) if len(body) <= BODY_KEPT_BYTES else None


class _LeftError(Exception):
    """The client closed the connection."""


class _Delivery:
    """One reply on its way to a client."""

    def __init__(self, log: RequestLog, number: int, scope: Scope, send: Send) -> None:
        self._log = log
        self._number = number
        self._transport = cast("asyncio.Transport", scope["state"]["transport"])
        self._send = send

    async def run(self, reply: Reply, receive: Receive) -> None:
        """Send a reply at its pace; stop when the client leaves."""
        left = asyncio.ensure_future(_until_left(receive))
        ended: Ended = "cut"
        try:
            await _pause(reply.before_s, left)
            if reply.status is not None:
                self._log.note(self._number, status=reply.status)
                await self._send(_start(reply))
            await self._put_all(reply, left)
            ended = await self._end(reply.end, left)
        except _LeftError:
            ended = "client_left"
        finally:
            left.cancel()
            self._log.note(self._number, ended=ended)

    async def _put_all(self, reply: Reply, left: "asyncio.Future[None]") -> None:
        for at, piece in enumerate(reply.body, start=1):
            if piece.after_s > 0 or at % TURN_PIECES == 0:
                await _pause(piece.after_s, left)
            self._log.note(self._number, n_pieces=at)
            if at == len(reply.body) and reply.end is End.WHOLE:
                # Before it is sent, so that a client that has read it finds this note.
                self._log.note(self._number, ended="whole")
            await self._put(reply, piece.data)

    async def _put(self, reply: Reply, data: bytes) -> None:
        """Send some bytes of the body; raises `_LeftError`."""
        # `left` is set a turn of the loop later; asyncio logs writes in between.
        if self._transport.is_closing():
            raise _LeftError
        if reply.status is None:
            self._transport.write(data)
        else:
            message = {"type": "http.response.body", "body": data, "more_body": True}
            await self._send(message)

    async def _end(self, end: End, left: "asyncio.Future[None]") -> Ended:
        if end is End.WHOLE:
            await self._send({"type": "http.response.body", "body": b""})
            return "whole"
        if end is End.SILENT:
            await left
            raise _LeftError
        if end is End.RESET:
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self._transport.close()
        # The connection is gone only after the bytes already written were sent.
        await left
        return "cut"


def _start(reply: Reply) -> Message:
    return {
        "type": "http.response.start",
        "status": reply.status,
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in {**dict([MARK]), **reply.headers}.items()
        ],
    }


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pause(seconds: float, left: "asyncio.Future[None]") -> None:
    """Wait; raises `_LeftError` as soon as the client has left."""
    if seconds > 0:
        await asyncio.wait((left,), timeout=seconds)
    else:
        await asyncio.sleep(0)
    if left.done():
        raise _LeftError

"""The ASGI application around the emulated service: bodies in, paced bytes out.

What it is not: it decides no answer. Starlette is imported here, so this module
is imported only when a server is started.

Rules for this file: every response carries the mark; a body longer than this
emulator keeps is read to its end but not kept, and one that says it is far longer
is not even read; a client that leaves is noticed while a reply is waiting, and
nothing more is sent for it.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .record import Ended, Record
from .reply import MARK, End, Reply, Request

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

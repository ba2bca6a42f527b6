"""A request through a transport of the user's: any `httpx.AsyncBaseTransport`."""

import asyncio
import logging
from collections.abc import AsyncIterable
from contextlib import suppress
from typing import cast

import httpx

from svc_notebook.credentials import Key

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

"""The HTTP protocol of the emulator's connections: uvicorn's, made quiet.

What it is not: it parses nothing itself. uvicorn is imported here, so this module
is imported only when a server is started.

Rules for this file: nothing is printed or logged into the user's program; bytes
that are not HTTP are answered with the document's error body; the application can
reach its connection, since scripted faults cut it; a connection on which nothing
comes, or no whole request in time, is closed.
"""

import asyncio
import logging

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .fault import Fault
from .reply import MARK

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

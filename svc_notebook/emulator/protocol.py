"""The HTTP protocol of the emulator's connections: uvicorn's, made quiet.

What it is not: it parses nothing itself. uvicorn is imported here, so this module
is imported only when a server is started.

Rules for this file: nothing is printed or logged into the user's program; bytes
that are not HTTP are answered with the document's error body; the application can
reach its connection, since scripted faults cut it.
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


class QuietProtocol(H11Protocol):
    """A connection that keeps its noise to itself."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin a connection and let the application find it."""
        self.logger = _QUIET
        self.access_log = False
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)

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

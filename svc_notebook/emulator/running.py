"""A server in its own thread: from a listening socket until it is closed.

What it is not: it knows no requests. uvicorn is imported here, so this module is
imported only when a server is started.

Rules for this file: the thread ends with `close` and leaves nothing; connections
still open then are cut, however slow their other ends are. uvicorn's own `Server`
is not used: it waits for replies under way and logs where the user's program does.
"""

import asyncio
import socket
import threading

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from .protocol import QuietProtocol

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

"""`Emulator`: the emulated service as an HTTP server on this machine.

What it is not: it decides no answer (`app` does). Importing this module loads
neither Starlette nor uvicorn; starting an emulator does.

Rules for this file: it listens on 127.0.0.1 only; it is ready when it was entered
and leaves no thread and no socket when it was closed; it prints nothing and
touches no signals; it runs in a thread of its own, so that it works where another
event loop is running.
"""

import asyncio
import atexit
import errno
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from svc_notebook.errors import SettingsError

from .app import Service, Setup
from .delivery import Pace
from .keys import FORBIDDEN_KEY, KEY, REVOKED_KEY
from .options import (
    read_clock,
    read_keys,
    read_limits,
    read_models,
    read_port,
    read_seconds,
    read_seed,
    read_speed,
)
from .record import Asked, Record
from .script import Script, read_script

HOST = "127.0.0.1"


class _Server(Protocol):
    """What is used of `running.Running`, which is imported late."""

    port: int

    @property
    def n_connections(self) -> int: ...
    def close(self) -> None: ...


class Emulator:
    """The service on this machine: a context manager, plain or `async`.

    Args:
        port: Where to listen; 0 takes a free port.
        tokens_per_s: How fast text is written; None for no waiting.
        first_token_s: Seconds before the first token.
        limits: True for the document's rate limits, False for none, or model ids
            with (requests a second, requests a minute).
        models: Model ids served besides the documented ones.
        keys, revoked, forbidden: API keys that are served, answered with 401, and
            answered with 403.
        script: Answers given instead of its own: entries, or a JSON file of them;
            see `svc_notebook.emulator.script`.
        seed: Another seed writes other texts.
        keep_alive_s: How long a connection is kept on which nothing comes.
        clock: Seconds that never run backwards; decides the rate limits.
        now: Unix time; written as `created`.

    Raises:
        SettingsError: An argument cannot be used, or an entry of the script cannot
            be played; when started, that the port is taken.

    Example:
        >>> with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        ...     emulator.base_url.endswith("/v1")
        True
    """

    def __init__(  # noqa: PLR0913 - one keyword for each thing that can be set
        self,
        *,
        port: int = 0,
        tokens_per_s: float | None = 60.0,
        first_token_s: float = 0.2,
        limits: bool | Mapping[str, tuple[int, int]] = True,
        models: Sequence[str] = (),
        keys: Sequence[str] = (KEY,),
        revoked: Sequence[str] = (REVOKED_KEY,),
        forbidden: Sequence[str] = (FORBIDDEN_KEY,),
        script: Sequence[Mapping[str, Any]] | str | Path = (),
        seed: int = 0,
        keep_alive_s: float = 75.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        entries = read_script(script) if isinstance(script, str | Path) else script
        self._keys = read_keys(keys, revoked, forbidden)
        pace = Pace(
            first_token_s=read_seconds("first_token_s", first_token_s),
            tokens_per_s=read_speed(tokens_per_s),
        )
        setup = Setup(
            keys=self._keys,
            pace=pace,
            models=read_models(models),
            limits=read_limits(limits, read_models(models)),
            seed=read_seed(seed),
            clock=read_clock("clock", clock),
            now=read_clock("now", now),
        )
        self._port = read_port(port)
        self._keep_alive_s = read_seconds(
            "keep_alive_s", keep_alive_s, is_zero_allowed=False
        )
        self._record = Record(self._keys, clock)
        self._service = Service(setup, Script(entries))
        self._running: _Server | None = None

    @property
    def api_key(self) -> str:
        """A key that is served."""
        return self._keys.valid[0]

    @property
    def revoked_key(self) -> str:
        """A key that is answered with 401; empty if there is none."""
        return next(iter(self._keys.revoked), "")

    @property
    def forbidden_key(self) -> str:
        """A key that is answered with 403; empty if there is none."""
        return next(iter(self._keys.forbidden), "")

    @property
    def base_url(self) -> str:
        """The service base address, which ends in /v1.

        Raises:
            SettingsError: The emulator is not running.
        """
        if self._running is None:
            raise SettingsError("The emulator is not running; start it, or use `with`.")
        return f"http://{HOST}:{self._running.port}/v1"

    @property
    def requests(self) -> tuple[Asked, ...]:
        """What was asked, oldest first, without keys."""
        return self._record.asked()

    @property
    def n_connections(self) -> int:
        """How many connections are open now."""
        return self._running.n_connections if self._running else 0

    def wait_idle(self, timeout_s: float = 5.0) -> bool:
        """Wait until no request is running; False if one still is."""
        return self._record.wait_idle(timeout_s)

    def start(self) -> Self:
        """Start listening; a running emulator is left as it is.

        Raises:
            SettingsError: The port is taken.
        """
        if self._running is None:
            # Imported here, so that the package can be imported without a server.
            from .asgi import build  # noqa: PLC0415
            from .running import Running  # noqa: PLC0415

            wire = _listen(self._port)
            answer = build(self._service.reply, self._record)
            self._running = Running(wire, answer, keep_alive_s=self._keep_alive_s)
            atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop: replies under way are cut, the port is free again."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
            atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        state = self.base_url if self._running else "not running"
        return f"<Emulator: {state}>"


def _listen(port: int) -> socket.socket:
    """Take a port of this machine.

    Raises:
        SettingsError: It is taken, or may not be used.
    """
    # The protocol is named, or asyncio would leave small writes waiting (Nagle).
    wire = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # Elsewhere this would share a port that is taken.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wire.bind((HOST, port))
        wire.listen(256)
    except (OSError, OverflowError) as error:
        wire.close()
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is taken" if is_taken else f"cannot be used ({error})"
        raise SettingsError(
            f"Port {port} on {HOST} {why}; choose another, or 0 for a free one."
        ) from None
    wire.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return wire

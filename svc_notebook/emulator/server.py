"""What an emulator may be made of: the arguments of `Emulator`, checked.

What it is not: scripts are checked in `entry`; nothing is started here.

Rules for this file: a wrong argument is found before anything starts, and its
error names the argument and what is allowed; keys are never repeated, only counted.

`Emulator`: the emulated service as an HTTP server on this machine.

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
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeGuard

from svc_notebook.errors import SettingsError

from .access import DOCUMENTED, FORBIDDEN_KEY, KEY, LIMITS, REVOKED_KEY, Keys
from .app import Service, Setup
from .completion_writer import Pace
from .record import Record, RecordedRequest
from .script import Script, read_script

_PORT_MAX = 65535
# What a header can carry behind "Bearer ".
_SENDABLE = re.compile(r"[\x21-\x7e]+")


def read_port(port: object) -> int:
    """Check a port: 0 to 65535.

    Raises:
        SettingsError: It is none.
    """
    if isinstance(port, bool) or not isinstance(port, int):
        raise SettingsError(f"port={port!r} is not a port; give 0 to {_PORT_MAX}.")
    if not 0 <= port <= _PORT_MAX:
        raise SettingsError(
            f"Port {port} cannot be used; choose one of 1 to {_PORT_MAX}, or 0 for a "
            "free one."
        )
    return port


def read_seconds(name: str, value: object, *, is_zero_allowed: bool = True) -> float:
    """Check a duration: a finite number of seconds, 0 or more.

    Raises:
        SettingsError: It is none; the argument is named.
    """
    if not _is_number(value) or value < 0 or (value == 0 and not is_zero_allowed):
        least = "0 or more" if is_zero_allowed else "more than 0"
        raise SettingsError(f"{name}={value!r} has to be a number of seconds, {least}.")
    return float(value)


def read_speed(tokens_per_s: object) -> float | None:
    """Check a speed: a finite number above 0, or None for no waiting.

    Raises:
        SettingsError: It is neither.
    """
    if tokens_per_s is None:
        return None
    if not _is_number(tokens_per_s) or tokens_per_s <= 0:
        raise SettingsError(
            f"tokens_per_s={tokens_per_s!r} has to be a number above 0, or None for "
            "no waiting."
        )
    return float(tokens_per_s)


def read_seed(seed: object) -> int:
    """Check a seed: an integer.

    Raises:
        SettingsError: It is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingsError(f"seed={seed!r} has to be an integer.")
    return seed


def read_clock(name: str, clock: object) -> Callable[[], float]:
    """Check a clock by asking it once.

    Raises:
        SettingsError: It cannot be called, fails, or tells no finite number.
    """
    told: object = clock
    if callable(clock):
        try:
            told = clock()
        except Exception as error:  # noqa: BLE001 - the user's clock
            told = error
        if _is_number(told):
            return clock
    raise SettingsError(
        f"{name} has to be a function that tells a finite number of seconds, "
        f"not {told!r}."
    )


def read_models(models: object) -> tuple[str, ...]:
    """Check model ids: a sequence of non-empty texts.

    Raises:
        SettingsError: They are something else.
    """
    ids = _texts(models)
    if ids is None or not all(ids):
        raise SettingsError(
            f"models={models!r} has to be a list of model ids, none empty."
        )
    return ids


def read_keys(keys: object, revoked: object, forbidden: object) -> Keys:
    """Check the keys: at least one is served, and each can be sent and means one thing.

    Raises:
        SettingsError: They cannot be used; no key is shown.
    """
    read = {
        name: _sendable(name, value)
        for name, value in (
            ("keys", keys),
            ("revoked", revoked),
            ("forbidden", forbidden),
        )
    }
    if not read["keys"]:
        raise SettingsError("Give the emulator at least one key, none empty.")
    for one, other in (
        ("keys", "revoked"),
        ("keys", "forbidden"),
        ("revoked", "forbidden"),
    ):
        if set(read[one]) & set(read[other]):
            raise SettingsError(
                f"{one} and {other} share a key; give each key in one of them."
            )
    return Keys(read["keys"], read["revoked"], read["forbidden"])


def read_limits(limits: object, models: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Check limits: True for the document's, False for none, or a table.

    Args:
        limits: As given.
        models: Model ids served besides the documented ones.

    Raises:
        SettingsError: They are something else, or for a model that is not served.
    """
    if isinstance(limits, bool):
        return LIMITS if limits else {}
    if not isinstance(limits, Mapping) or not all(map(_is_window, limits.values())):
        raise SettingsError(
            f"limits={limits!r} has to be True, False, or model ids with (requests a "
            "second, requests a minute), each an integer of 0 or more."
        )
    unknown = [each for each in limits if each not in (*DOCUMENTED, *models)]
    if unknown:
        raise SettingsError(
            f"limits names {unknown[0]!r}, which is not served; served are "
            f"{', '.join((*DOCUMENTED, *models))}. Add it to models."
        )
    return {model: (windows[0], windows[1]) for model, windows in limits.items()}


def _sendable(name: str, keys: object) -> tuple[str, ...]:
    """Read keys that a header can carry."""
    read = _texts(keys)
    if read is None:
        raise SettingsError(f"{name} has to be a list of keys, also for a single one.")
    for at, key in enumerate(read):
        if not key:
            raise SettingsError("Give the emulator at least one key, none empty.")
        if not _SENDABLE.fullmatch(key):
            raise SettingsError(
                f"{name}[{at}] cannot be sent in a header: use letters, digits and "
                "signs of ASCII, without blanks."
            )
    return read


def _texts(value: object) -> tuple[str, ...] | None:
    """Read a list of texts; a single text is none."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return None
    return tuple(value) if all(isinstance(each, str) for each in value) else None


def _is_window(windows: object) -> bool:
    """Tell whether this is a pair of counts."""
    n_windows = 2
    return (
        isinstance(windows, Sequence)
        and not isinstance(windows, str | bytes)
        and len(windows) == n_windows
        and all(type(count) is int and count >= 0 for count in windows)
    )


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether this is a finite number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


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
    def requests(self) -> tuple[RecordedRequest, ...]:
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
            from .asgi import Running, build  # noqa: PLC0415

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

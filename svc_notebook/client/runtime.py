"""What comes from outside: time, chance and new names.

Rules: nothing else in this folder reads a clock, sleeps, or draws a random number;
a test gives its own world and needs no patience.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from svc_notebook.credentials import Key
from svc_notebook.exchange import Sink
from svc_notebook.settings import Settings


def utc_now() -> datetime:
    """Return the present, aware, in UTC."""
    return datetime.now(UTC)


def new_id() -> str:
    """Return a new name of 32 hexadecimal digits that sorts by its time.

    The layout is that of a version 7 UUID, with a fraction of the millisecond.
    """
    ms, ns = divmod(time.time_ns(), 1_000_000)
    fraction = ns * 4096 // 1_000_000
    return f"{ms:012x}7{fraction:03x}8{secrets.token_hex(8)[1:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where time, chance and ids come from.

    Attributes:
        clock: Seconds that only grow.
        sleep: Waits so many seconds.
        jitter: A random number from 0 to 1.
        now: The present, aware, in UTC.
        new_id: A new id that sorts by time.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    now: Callable[[], datetime] = utc_now
    new_id: Callable[[], str] = new_id


REAL = World()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambient:
    """Where defaults come from.

    Attributes:
        settings: Where to, and how long things may take.
        key: The key of that address; None to find it in the environment.
        sinks: Who is told about each exchange.
    """

    settings: Callable[[], Settings] = Settings.from_env
    key: Callable[[], Key | None] = lambda: None
    sinks: Callable[[], Sequence[Sink]] = tuple


_provided: list[Ambient] = []


def provide(ambient: Ambient) -> None:
    """Say where clients find what they are not given."""
    _provided[:] = [ambient]


def ambient() -> Ambient:
    """Return where clients find what they are not given."""
    return _provided[0] if _provided else Ambient()

"""The clock, sleep, jitter and ids of the client, which tests replace."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from svc_notebook.exchange import new_id

Clock: TypeAlias = Callable[[], float]
"""Returns seconds; never runs backwards."""


_utc_now = partial(datetime.now, UTC)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Runtime:
    """The clock, sleep, random numbers and ids of a client; tests replace them."""

    clock: Callable[[], float] = time.monotonic  # seconds, never backwards
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random  # from 0 to 1
    now: Callable[[], datetime] = _utc_now
    new_id: Callable[[], str] = new_id

    def __repr__(self) -> str:
        """Return a short text, since `svc.AsyncClient?` shows the default."""
        return f"{type(self).__name__}()"


REAL = Runtime()

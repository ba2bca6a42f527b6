"""Plays a case through a client, and looks at all that the user could see.

Waits are virtual, deadlines and sockets are real. The same is looked at for every
case: the end, the error's words, the key, the record, the connections, the
time, and whether the same client can ask again.
"""

import asyncio
import pickle
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.clock import Runtime
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.sync_client import Client
from svc_notebook.client.tls import tls_context
from svc_notebook.completion import Completion
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.settings import Settings
from svc_notebook.timeouts import Timeouts
from tests.faults.case import Case

KEY = "sk-secret-of-the-fault-suite"
HERE = str(Path(__file__).parent)
MODEL = "svc-instruct"  # no limit is shown for it


@dataclass
class VirtualTime:
    """Time as it is, but sleeping skips it."""

    slept_s: list[float] = field(default_factory=list)

    def clock(self) -> float:
        """Return the present."""
        return time.monotonic() + sum(self.slept_s)

    async def sleep(self, wait_s: float) -> None:
        """Let time pass."""
        self.slept_s.append(wait_s)


@dataclass
class Kept:
    """A sink that keeps exchanges."""

    exchanges: list[Exchange] = field(default_factory=list)

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange."""
        self.exchanges.append(exchange)


@dataclass
class Played:
    """What came of a case.

    Attributes:
        shown: The text that was iterated.
        completion, error: How it ended.
        slept_s: Virtual seconds.
        exchanges: What the sink received.
        again: The text of the reply to the same client's next request.
    """

    shown: str = ""
    completion: Completion | None = None
    error: BaseException | None = None
    slept_s: float = 0.0
    exchanges: list[Exchange] = field(default_factory=list)
    again: str = ""


def _arguments(base_url: str, case: Case, virtual: VirtualTime) -> dict[str, Any]:
    within = dict.fromkeys(("connect_s", "first_byte_s", "idle_s", "whole_s"), 120.0)
    timeouts = Timeouts(**{**within, "whole_token_s": 0.0, **case.timeouts})
    return {
        "settings": Settings(base_url=base_url, model=MODEL, timeouts=timeouts),
        "limits": RateLimits(clock=virtual.clock),
        "runtime": Runtime(
            clock=virtual.clock, sleep=virtual.sleep, jitter=lambda: 0.5
        ),
        "api_key": KEY,
    }


def play_plain(base_url: str, case: Case, verb: str, after: Any) -> Played:  # noqa: ANN401 - a callback
    """Play a case through the plain client."""
    virtual, kept, played = VirtualTime(), Kept(), Played()
    client = Client(**_arguments(base_url, case, virtual), sinks=[kept])
    with client:
        try:
            if verb == "stream":
                reply = client.stream(case.prompt, **case.params)
                for text in reply:
                    played.shown += text
                played.completion = reply.completion
            else:
                played.completion = client.complete(case.prompt, **case.params)
        except Exception as problem:  # noqa: BLE001 - that is the question
            played.error = problem
        _note(played, virtual, kept)
        if after():
            played.again = client.complete("Again").text
    return played


def play_awaited(base_url: str, case: Case, verb: str, after: Any) -> Played:  # noqa: ANN401 - a callback
    """Play a case through the client that is awaited."""
    return asyncio.run(_play_awaited(base_url, case, verb, after))


def play_through(base_url: str, case: Case, verb: str, after: Any) -> Played:  # noqa: ANN401 - a callback
    """Play a case through httpx's own transport, which keeps no connection.

    Those it keeps it uses again although the server closed them, or sent more.
    """

    async def play() -> Played:
        limits, context = httpx.Limits(max_keepalive_connections=0), tls_context()
        async with httpx.AsyncHTTPTransport(context, limits=limits) as transport:
            return await _play_awaited(base_url, case, verb, after, transport=transport)

    return asyncio.run(play())


async def _play_awaited(
    base_url: str,
    case: Case,
    verb: str,
    after: Any,  # noqa: ANN401 - a callback
    **through: Any,  # noqa: ANN401 - a transport
) -> Played:
    virtual, kept, played = VirtualTime(), Kept(), Played()
    arguments = _arguments(base_url, case, virtual)
    client = AsyncClient(**arguments, sinks=[kept], **through)
    async with client:
        try:
            if verb == "stream":
                reply = client.stream(case.prompt, **case.params)
                async for text in reply:
                    played.shown += text
                played.completion = reply.completion
            else:
                played.completion = await client.complete(case.prompt, **case.params)
        except Exception as problem:  # noqa: BLE001 - that is the question
            played.error = problem
        _note(played, virtual, kept)
        if after():
            played.again = (await client.complete("Again")).text
    return played


def _note(played: Played, virtual: VirtualTime, kept: Kept) -> None:
    played.slept_s = sum(virtual.slept_s)
    played.exchanges = list(kept.exchanges)


def everything_of(played: Played) -> str:
    """Return all that objects, tracebacks and pickles of a case show."""
    held: list[Any] = [played.error, played.completion, *played.exchanges]
    held.append(getattr(played.error, "partial", None))
    looks = [f"{each!r} {each} {_attributes(each)} {_pickled(each)}" for each in held]
    return "\n".join([*looks, *_frames(played.error)])


def _attributes(value: object) -> str:
    return repr(getattr(value, "__dict__", ""))


def _pickled(value: object) -> str:
    with suppress(Exception):
        return repr(pickle.dumps(value))
    return ""


def _frames(error: BaseException | None) -> Iterator[str]:
    """Return what a verbose traceback shows of frames that are not these tests'."""
    if error is None:
        return
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    for each in (shown, shown.__cause__, shown.__context__):
        if each is None:
            continue
        for frame in each.stack:
            if not frame.filename.startswith(HERE):
                yield f"{frame} {frame.locals}"


def is_chained(error: BaseException | None) -> bool:
    """Say whether an error drags another one along."""
    return isinstance(error, SvcError) and not (
        error.__cause__ is error.__context__ is None
    )

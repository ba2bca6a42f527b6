"""Idle connections: one stack for each event loop, closed when the loop ends.

A connection lives on the loop it was made on. Rules: the newest is taken first; a
stack closes itself when its loop shuts down; after a fork the child leaves the
parent's connections alone, since closing one would disturb the parent's loop.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

from svc_notebook.errors import SettingsError
from svc_notebook.settings import is_loopback

MAX_IDLE = 64

Connection = TypeVar("Connection")
_left_to_the_parent: list[object] = []


class IdleStack(Generic[Connection]):
    """The idle connections of one loop."""

    def __init__(self, shut: Callable[[Connection], Awaitable[None]]) -> None:
        self._shut = shut
        self._idle: list[Connection] = []
        self._keeper = self._keep()
        self._is_closed = False

    def take(self) -> Connection | None:
        """Return the newest idle connection, None if there is none."""
        return self._idle.pop() if self._idle else None

    def put(self, connection: Connection) -> bool:
        """Keep a connection for later; False if it has to be closed instead."""
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            return False
        self._idle.append(connection)
        return True

    async def open(self) -> None:
        """Begin; from now on the loop's end closes what is idle."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        """Close what is idle."""
        await self._keeper.aclose()

    async def _keep(self) -> AsyncGenerator[None]:
        """Wait for the end: a loop that shuts down closes its async generators."""
        try:
            yield
        finally:
            self._is_closed = True
            while self._idle:
                await self._shut(self._idle.pop())


class IdleStacks(Generic[Connection]):
    """The stacks of all loops of this process."""

    def __init__(self, shut: Callable[[Connection], Awaitable[None]]) -> None:
        self._shut = shut
        self._lock = Lock()
        self._pid = os.getpid()
        self._stacks: WeakKeyDictionary[
            asyncio.AbstractEventLoop, IdleStack[Connection]
        ] = WeakKeyDictionary()

    async def of_running_loop(self) -> IdleStack[Connection]:
        """Return the stack of the running loop, made at the first call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._forget_others()
            stack = self._stacks.get(loop)
            if stack is not None:
                return stack
            stack = self._stacks[loop] = IdleStack(self._shut)
        await stack.open()
        return stack

    async def aclose(self) -> None:
        """Close the stack of the running loop."""
        with self._lock:
            self._forget_others()
            stack = self._stacks.pop(asyncio.get_running_loop(), None)
        if stack is not None:
            await stack.aclose()

    def _forget_others(self) -> None:
        """Drop stacks of closed loops; keep, unused, those of before a fork."""
        if self._pid != os.getpid():
            _left_to_the_parent.extend(self._stacks.items())
            self._pid = os.getpid()
            self._stacks.clear()
        for loop in [loop for loop in self._stacks if loop.is_closed()]:
            del self._stacks[loop]


_WANTED = (
    ("TCP_KEEPIDLE", 20),  # seconds of silence before the first question
    ("TCP_KEEPINTVL", 10),  # seconds between questions
    ("TCP_KEEPCNT", 3),  # questions without an answer until it is given up
    ("TCP_NODELAY", 1),
)

SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _WANTED
        if hasattr(socket, name)
    ),
]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its address, which may hold a password, and how it may be shown."""

    shown: str
    _url: str

    @property
    def url(self) -> str:
        """The address as httpx takes it."""
        return self._url

    @property
    def is_tls(self) -> bool:
        """Whether the way to the proxy itself is encrypted."""
        return self._url.startswith("https:")

    def __repr__(self) -> str:
        return f"<Proxy {self.shown}>"


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy that the environment names for an address.

    Raises:
        SettingsError: The environment names one that cannot be used.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    found = getproxies()
    url = found.get(parts.scheme) or found.get("all")
    return _checked(url, parts.scheme) if url else None


def _checked(url: str, scheme: str) -> Proxy:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"The environment names a proxy for {scheme} that cannot be used; the "
            f"right form is {scheme.upper()}_PROXY=http://HOST:PORT. NO_PROXY lists "
            "hosts that need none."
        )
    at_port = "" if port is None else f":{port}"
    return Proxy(f"{parts.scheme}://{parts.hostname}{at_port}", full)

"""Idle connections, kept on a stack for each event loop until one is needed again."""

import asyncio
from collections.abc import AsyncGenerator
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from svc_notebook.fork import Forkable, leave_to_parent


class Closable(Protocol):
    """What can be kept: a connection."""

    async def aclose(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closable)
MAX_IDLE = 256  # requests whose rows share a commit end together and all leave one


class IdleStack(Generic[C]):
    """The idle connections of one event loop; closed when the loop shuts down."""

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._keeper = self._keep()
        self._is_closed = False

    def take(self) -> C | None:
        """Return the newest idle connection, if any."""
        return self._idle.pop() if self._idle else None

    def put(self, connection: C) -> bool:
        """Keep a connection for later; False if the caller must close it."""
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            return False
        self._idle.append(connection)
        return True

    async def open(self) -> None:
        """Begin; from now on the end of the loop closes idle connections."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._keeper.aclose()

    async def _keep(self) -> AsyncGenerator[None]:
        """Wait for the end: a loop that shuts down closes its async generators."""
        try:
            yield
        finally:
            self._is_closed = True
            while self._idle:
                await self._idle.pop().aclose()


class _AllStacks(Forkable):
    """The stacks of every transport of this process."""

    def __init__(self) -> None:
        self.of: WeakSet[IdleStacks[Any]] = WeakSet()
        self.watch_forks()

    def after_in_child(self) -> None:
        """Let each begin without its parent's connections."""
        for each in self.of:
            each.begin_child()


class IdleStacks(Generic[C]):
    """The stacks of idle connections, one for each event loop of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stacks: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleStack[C]] = (
            WeakKeyDictionary()
        )
        _all_stacks.of.add(self)

    async def of_running_loop(self) -> IdleStack[C]:
        """Return the stack of the running loop, made at the first call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            stack = self._stacks.get(loop)
            if stack is not None:
                return stack
            self._forget_others()
            stack = self._stacks[loop] = IdleStack()
        await stack.open()
        return stack

    async def aclose(self) -> None:
        """Close the stack of the running loop."""
        with self._lock:
            self._forget_others()
            stack = self._stacks.pop(asyncio.get_running_loop(), None)
        if stack is not None:
            await stack.aclose()

    def begin_child(self) -> None:
        """Begin without connections: closing one would disturb the parent's loop."""
        leave_to_parent(list(self._stacks.items()))
        self._lock = Lock()
        self._stacks = WeakKeyDictionary()

    def _forget_others(self) -> None:
        """Drop stacks of closed loops."""
        for loop in [loop for loop in self._stacks if loop.is_closed()]:
            del self._stacks[loop]


_all_stacks = _AllStacks()

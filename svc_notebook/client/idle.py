"""Idle connections: one stack for each event loop, closed when the loop ends.

A connection lives on the loop it was made on. Rules: the newest is taken first; a
stack closes itself when its loop shuts down; after a fork the child leaves the
parent's connections alone, since closing one would disturb the parent's loop.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

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

"""A reply that comes as it is generated, for code that can await.

The request runs in a task of its own and hands over what comes. Rules: nothing is
sent before the first step; leaving the `async with`, `aclose()`, and dropping the
stream all stop the task, which closes its connection and records what had come.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Self
from weakref import finalize

from svc_notebook.completion import Completion
from svc_notebook.errors import SvcError
from svc_notebook.service.chunk import Delta

from .answered import Run
from .front import Front, shown
from .waiting import Waiting

__all__ = ["AsyncCompletionStream", "Waiting"]

Queue = asyncio.Queue[Delta | None]


class AsyncCompletionStream:
    """A streamed reply (doc: Response, streamed).

    Iterate it for the pieces of text of the first choice, which is choice 0, or the
    lowest that came, at the end, if there is no choice 0; then read `completion`.
    Use it in `async with`, or iterate it to its end.

    Example:
        >>> async with client.stream("Tell a story.") as stream:  # doctest: +SKIP
        ...     async for text in stream:
        ...         print(text, end="")
        >>> stream.completion.finish_reason  # doctest: +SKIP
    """

    def __init__(self, asking: Run) -> None:
        self._asking = asking
        self._queue: Queue = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._front = Front()
        self._n_chars = 0

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Iterate the new content of all choices, each with its choice's index.

        Raises:
            SvcError: The request failed; `partial` holds what had come.
        """
        while (delta := await self._next()) is not None:
            yield delta

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while (delta := await self._next()) is not None:
            if text := self._front.take(delta):
                return text
        if rest := self._front.rest():
            return rest
        raise StopAsyncIteration

    @property
    def completion(self) -> Completion:
        """The completion; after a failure or `aclose()` what had come.

        Raises:
            SvcError: The stream has not ended.
        """
        if self._asking.exchange is None:
            raise SvcError(
                "The stream has not ended, so there is no completion yet. Iterate it "
                "to its end, or close it."
            )
        return Completion(self._asking.exchange)

    async def aclose(self) -> None:
        """Stop: the connection is closed, and what had come is recorded."""
        self._is_over = True
        if self._task is None:
            return
        if self._is_elsewhere(self._task):
            _stop(self._task.get_loop(), self._task)
            return
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _next(self) -> Delta | None:
        """Return the next delta, None at the end."""
        if self._is_over:
            return None
        task = self._task or self._begin()
        if self._is_elsewhere(task):
            raise SvcError(
                "This stream belongs to another event loop, on which it was begun; it "
                "can be read only there. Ask again on this one."
            )
        try:
            delta = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if delta is not None and delta.index == 0:
            self._n_chars += len(delta.text or "")
        if delta is None:
            self._queue.put_nowait(None)  # for another task that waits, too
            self._is_over = True
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        return delta

    @staticmethod
    def _is_elsewhere(task: asyncio.Task[None]) -> bool:
        return task.get_loop() is not asyncio.get_running_loop()

    def _begin(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(_hand_over(self._asking, self._queue))
        finalize(self, _stop, loop, self._task).atexit = False
        return self._task

    def __repr__(self) -> str:
        exchange, n_chars = self._asking.exchange, self._n_chars
        if exchange is None and self._task is None and not self._is_over:
            return f"<{type(self).__name__}: not begun>"
        return shown(self, exchange, n_chars=n_chars, is_over=self._is_over)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _hand_over(asking: Run, queue: Queue) -> None:
    try:
        await asking.run(queue.put_nowait)
    finally:
        queue.put_nowait(None)


def _stop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Stop the task of a stream that nobody holds any more."""
    with suppress(RuntimeError):  # the loop is closed, and the task with it
        loop.call_soon_threadsafe(task.cancel)

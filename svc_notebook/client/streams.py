"""A reply that comes as it is generated, for code that can await.

The request runs in a task of its own and hands over what comes. Rules: nothing is
sent before the first step; leaving the `async with`, `aclose()`, and dropping the
stream all stop the task, which closes its connection and records what had come.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self
from weakref import finalize

from svc_notebook.completion import Completion
from svc_notebook.errors import SvcError
from svc_notebook.service.chunk import Delta

from .attempts import Waiting
from .exchange_record import Run
from .portal import Job, portal
from .reply_reader import Front, shown

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


_LOOK_S = 0.5  # on some systems only a wait with an end lets an interrupt in


class End(NamedTuple):
    """The last thing in the queue."""

    error: BaseException | None


SyncQueue = SimpleQueue[Delta | Waiting | End]


class CompletionStream:
    """A streamed reply (doc: Response, streamed).

    Its request is sent at once, when it is made, and not only when it is read.
    Iterate it for the pieces of text of the first choice, which is choice 0, or the
    lowest that came, at the end, if there is no choice 0; then read `completion`. Or
    call `poll` again and again. `cancel` stops it. Use it in `with`, or iterate
    it to its end.

    Example:
        >>> with client.stream("Tell a story.") as stream:  # doctest: +SKIP
        ...     for text in stream:
        ...         print(text, end="")
        >>> stream.completion.finish_reason  # doctest: +SKIP
    """

    def __init__(self, asking: Run, queue: SyncQueue) -> None:
        self._asking = asking
        self._queue = queue
        self._error: BaseException | None = None
        self._is_ended = False
        self._is_done = False
        self._arrived = _Arrived()
        self._front = Front()
        self._job: Job[None] = portal().submit(
            _hand_over_sync(asking, queue, self._arrived)
        )
        self._finalizer = finalize(self, self._job.stop)
        self._finalizer.atexit = False  # the portal stops everything at exit

    @property
    def is_done(self) -> bool:
        """Whether everything that came was handed over."""
        return self._is_done

    def poll(self, timeout_s: float | None = None) -> list[Delta | Waiting]:
        """Return what has come since the last call, waiting a while for something.

        Args:
            timeout_s: Longest wait in seconds; None waits until something comes.

        Returns:
            New content and waits, oldest first; empty when the time is over or when
            the reply has ended, which `is_done` tells apart.

        Raises:
            SvcError: The request failed; raised once, after all that had come.
            KeyboardInterrupt: The user stopped it; the request is stopped too.
            SvcError: This process was forked while the request was under way.
        """
        if not self._is_ended and self._job.is_left_behind:
            raise _left_behind()
        items: list[Delta | Waiting] = []
        try:
            item = self._next(timeout_s)
            while item is not None:
                items.append(item)
                item = self._next(0.0)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if self._is_ended and not items:
            self._finish()
        elif self._is_ended and self._error is None:
            self._is_done = True
        return items

    def __iter__(self) -> Iterator[str]:
        try:
            while not self._is_done:
                for item in self.poll():
                    if isinstance(item, Delta) and (text := self._front.take(item)):
                        yield text
            if text := self._front.rest():
                yield text
        except KeyboardInterrupt:
            self.cancel()
            raise

    @property
    def completion(self) -> Completion:
        """The completion, waited for if need be; after a failure what had come.

        Raises:
            SvcError: The request failed while it was waited for here.
        """
        while not self._is_done:
            self.poll()
        if self._asking.exchange is None:
            raise SvcError("The request was stopped before anything was sent.")
        return Completion(self._asking.exchange)

    def cancel(self) -> Completion | None:
        """Stop: the connection is closed, and what had come is recorded.

        Returns:
            The completion, partial unless the reply had ended; None if there is no
            record because nothing had begun.
        """
        self._job.cancel()
        self._is_ended = self._is_done = True
        self._error = None
        exchange = self._asking.exchange
        return Completion(exchange) if exchange else None

    def __repr__(self) -> str:
        return shown(
            self,
            self._asking.exchange,
            n_chars=self._arrived.n_chars,
            is_over=self._is_done,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def _next(self, timeout_s: float | None) -> Delta | Waiting | None:
        """Return the next thing; None when there is none in time, or no more."""
        if self._is_ended:
            return None
        item = self._take(timeout_s)
        if isinstance(item, End):
            self._queue.put(item)  # for another thread that waits, too
            self._is_ended, self._error = True, item.error
            return None
        return item

    def _take(self, timeout_s: float | None) -> Delta | Waiting | End | None:
        while True:
            try:
                if timeout_s == 0:
                    return self._queue.get_nowait()
                return self._queue.get(timeout=timeout_s or _LOOK_S)
            except Empty:
                if timeout_s is not None:
                    return None

    def _finish(self) -> None:
        self._is_done = True
        error, self._error = self._error, None
        if error is not None:
            raise error


def _left_behind() -> SvcError:
    return SvcError(
        "This stream belongs to the process that began it, and goes on there; a "
        "forked process cannot read it. Ask again here."
    )


class _Arrived:
    """How much text of the first choice has come; the portal's thread counts."""

    n_chars = 0


async def _hand_over_sync(asking: Run, queue: SyncQueue, arrived: _Arrived) -> None:
    """Run a request and hand over what comes; the end is always told."""

    def show(delta: Delta) -> None:
        if delta.index == 0:
            arrived.n_chars += len(delta.text or "")
        queue.put(delta)

    end = End(SvcError("The request was stopped before it was over."))
    try:
        await asking.run(show)
        end = End(None)
    except Exception as problem:  # noqa: BLE001 - raised where it is waited for
        end = End(problem)
    finally:
        queue.put(end)

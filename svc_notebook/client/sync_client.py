"""`Client`: the verbs of `AsyncClient`, for code that does not await.

A request is checked here and runs on the portal's event loop. So a cell can use it
while the kernel's own loop is running, and several threads can use it at once.
"""

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar
from weakref import finalize

from svc_notebook.completion import Completion
from svc_notebook.endpoints import facts_of
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest, Prompt

from .async_client import AsyncClient, BaseClient, FirstChoice, describe_stream
from .event_loop import LOOK_S, STOPPED, BackgroundTask, open_portal, portal
from .exchange_record import Answerer
from .model_list import may_ask
from .rate_windows import Waiting
from .request_pipeline import RequestPipeline, Task, Watch, print_wait

P = ParamSpec("P")
Result = TypeVar("Result")


def with_arguments_of(
    verb: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, P], Result]]:
    """Give a method the arguments and the docstring of another method."""

    def decorate(
        method: Callable[..., Result],
    ) -> Callable[Concatenate[Any, P], Result]:
        result = inspect.signature(method).return_annotation
        signature = inspect.signature(verb).replace(return_annotation=result)
        method.__signature__ = signature  # type: ignore[attr-defined]  # what inspect looks for
        method.__doc__ = verb.__doc__
        return method

    return decorate


class Client(BaseClient):
    """A client for plain code: each call waits for its reply.

    It works where an event loop is running, from several threads, and after a fork.
    An interrupt stops the request and closes its connection. The arguments are those
    of `AsyncClient`.

    Example:
        >>> svc.Client().complete("Say hello.").text
        'Hello!'
    """

    def _open(self) -> None:
        self._finalizer = finalize(self, _release, self._path)
        self._finalizer.atexit = False  # the portal closes everything at exit

    @with_arguments_of(AsyncClient.complete)
    def complete(  # noqa: D102 - see `with_arguments_of`
        self,
        prompt: Prompt | CompletionRequest,
        *,
        run_tools: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = print_wait,
        answers: Answerer | None = None,
        **arguments: Any,  # noqa: ANN401 - see `with_arguments_of`
    ) -> Completion:
        tool_runner = self._path.tool_runner(arguments, run_tools=run_tools)
        request = self._path.request(prompt, arguments)

        def ask(request: CompletionRequest, origin: Origin | None) -> Completion:
            task = self._path.begin(
                request, origin=origin, watch=watch, answers=answers
            )
            return Completion(portal().run(task.run(lambda _: None)))

        if tool_runner is None:
            return ask(request, origin)
        return tool_runner(request, origin or Origin(), ask)

    @with_arguments_of(AsyncClient.stream)
    def stream(  # noqa: D102 - see `with_arguments_of`
        self,
        prompt: Prompt | CompletionRequest,
        *,
        is_streamed: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = print_wait,
        answers: Answerer | None = None,
        **arguments: Any,  # noqa: ANN401 - see `with_arguments_of`
    ) -> "CompletionStream":
        queue: StreamQueue = SimpleQueue()

        def put_and_watch(waiting: Waiting) -> None:
            queue.put(waiting)
            if watch is not None:
                watch(waiting)

        task = self._path.begin(
            self._path.request(prompt, arguments),
            is_streamed=is_streamed,
            origin=origin,
            watch=put_and_watch,
            answers=answers,
        )
        return CompletionStream(task, queue)

    def list_models(self, *, wait_s: float = 0.0) -> None:
        """Ask the server for its models in the background, if it is to be asked now.

        Args:
            wait_s: Most seconds to wait for the list.
        """
        base_url = self.settings.base_url or ""
        facts = facts_of(base_url)
        if may_ask(base_url):
            facts.pending = portal().submit(self._path.list_models()).ended
        if facts.pending is not None and wait_s:
            facts.pending.wait(wait_s)

    def close(self) -> None:
        """Close the connections; the client can be used again."""
        current = open_portal()
        if current is not None:
            with suppress(SvcError):
                current.run(self._path.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _release(path: RequestPipeline) -> None:
    """Close the connections of a client that nobody refers to any more."""
    current = open_portal()
    if current is not None:
        with suppress(SvcError):
            current.submit(path.aclose())


class StreamEnd(NamedTuple):
    """The last item of the queue."""

    error: BaseException | None


StreamQueue = SimpleQueue[Delta | Waiting | StreamEnd]


class CompletionStream:
    """A streamed reply (doc: Response, streamed).

    The request is sent at once. Iterate the stream for the text of choice 0, piece by
    piece; then read `completion`. If the service sends no choice 0, the text of the
    lowest choice comes at the end. You can also call `poll` repeatedly. `cancel` and
    `close` stop the request; so does deleting the stream. Use it in `with`, or iterate
    it to its end.

    Example:
        >>> with svc.stream("Tell a story.") as stream:
        ...     for text in stream:
        ...         print(text, end="")
        Once upon a time.
        >>> stream.completion.finish_reason
        'stop'
    """

    def __init__(self, task: Task, queue: StreamQueue) -> None:
        self._exchange_task = task
        self._queue = queue
        self._error: BaseException | None = None
        self._is_ended = False
        self._is_done = False
        self._notes: tuple[str, ...] = ()
        self._arrived = _Arrived()
        self._first = FirstChoice()
        self._job: BackgroundTask[None] = portal().submit(
            _hand_over(task, queue, self._arrived)
        )
        self._finalizer = finalize(self, self._job.cancel)
        self._finalizer.atexit = False  # the portal stops everything at exit

    @property
    def is_done(self) -> bool:
        """Whether the reply has ended and all of it was returned."""
        return self._is_done

    def on_end(
        self, callback: Callable[[Completion], object], *, notes: tuple[str, ...] = ()
    ) -> None:
        """Call a function once with the completion, when the request has ended.

        Args:
            callback: A function of the completion. It is called however the request
                ends, even if nobody reads the stream, but not if the request was
                stopped before it began. It is called before `poll` returns the end and
                before `cancel` returns, possibly on the client's thread; it must be
                short.
            notes: Notes to add to the completion.
        """
        self._notes = notes
        # the callback must not refer to `self`, or the stream could not be deleted
        task = self._exchange_task

        def call_back(_: "Future[None]") -> None:
            if task.exchange is not None:
                callback(Completion(task.exchange, notes=notes))

        self._arrived.end.add_done_callback(call_back)

    def poll(self, timeout_s: float | None = None) -> list[Delta | Waiting]:
        """Return what arrived since the last call; wait if nothing has arrived.

        Args:
            timeout_s: Longest wait in seconds; None waits until something arrives.

        Returns:
            New content (`Delta`) and waits for a limit (`Waiting`), oldest first; empty
            if nothing arrived in time or the reply has ended (see `is_done`).

        Raises:
            SvcError: The request failed (raised once, at the end), or this process was
                forked while the request ran.
            KeyboardInterrupt: The user interrupted the wait; the request is stopped
                too.
        """
        if not self._is_ended and self._job.is_left_behind:
            raise SvcError(
                "This stream belongs to the process that started it; a forked process "
                "cannot read it. Send the request again here."
            )
        items: list[Delta | Waiting] = []
        try:
            item = self._next(timeout_s)
            while item is not None:
                items.append(item)
                item = self._next(0.0)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if self._is_ended and not (items and self._error):
            self._is_done = True
            error, self._error = self._error, None
            if error is not None:
                raise error
        return items

    def __iter__(self) -> Iterator[str]:
        try:
            while not self._is_done:
                for item in self.poll():
                    if isinstance(item, Delta) and (text := self._first.take(item)):
                        yield text
            if text := self._first.text_of_other_choice():
                yield text
            self._first.warn_about_calls(self._exchange_task.exchange)
        except KeyboardInterrupt:
            self.cancel()
            raise

    @property
    def completion(self) -> Completion:
        """The completion, once the reply has ended; after a failure the reply so far.

        Raises:
            SvcError: The request failed while this waited for its end.
        """
        while not self._is_done:
            self.poll()
        completion = self._completion()
        if completion is None:
            raise SvcError("The request was stopped before it began.")
        return completion

    def cancel(self) -> Completion | None:
        """Stop: close the connection and record the reply so far.

        Returns:
            The completion, partial unless the reply had ended. A request that still
            waited for a limit was not sent, but is recorded: `exchange.n_attempts` is
            0. None if it was stopped before it began.
        """
        self._job.cancel()
        self._is_ended = True
        self._error = None
        self._is_done = True
        return self._completion()

    def close(self) -> None:
        """Stop like `cancel`; nothing happens if the reply has ended."""
        self.cancel()

    def __repr__(self) -> str:
        return describe_stream(
            self,
            self._exchange_task.exchange,
            n_chars=self._arrived.n_chars,
            is_over=self._is_done,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _completion(self) -> Completion | None:
        exchange = self._exchange_task.exchange
        return Completion(exchange, notes=self._notes) if exchange else None

    def _next(self, timeout_s: float | None) -> Delta | Waiting | None:
        """Return the next item; None at the end, or if nothing arrives in time."""
        item = None
        while item is None and not self._is_ended:
            try:
                item = self._queue.get(timeout_s != 0, timeout_s or LOOK_S)
            except Empty:
                if timeout_s is not None:
                    return None
        if isinstance(item, StreamEnd):
            self._queue.put(item)  # so that other waiting threads end, too
            self._is_ended, self._error = True, item.error
            return None
        return item


class _Arrived:
    """Set by the portal's thread: the characters of choice 0 so far, and the end."""

    def __init__(self) -> None:
        self.n_chars = 0
        self.end: Future[None] = Future()


async def _hand_over(task: Task, queue: StreamQueue, arrived: _Arrived) -> None:
    """Run an exchange and put its deltas into the queue, then always an end."""

    def show(delta: Delta) -> None:
        if delta.index == 0:
            arrived.n_chars += len(delta.text or "")
        queue.put(delta)

    end: StreamEnd | None = None
    try:
        await task.run(show)
        end = StreamEnd(None)
    except Exception as problem:  # noqa: BLE001 - raised where it is waited for
        end = StreamEnd(problem)
    finally:
        arrived.end.set_result(None)
        queue.put(end or StreamEnd(SvcError(STOPPED)))

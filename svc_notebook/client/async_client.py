"""`AsyncClient`: the client for code that awaits.

A wrong argument is reported at the call, before anything is sent. Nothing here
touches a socket; httpx is imported at the first request.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Sequence,
)
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast
from warnings import warn
from weakref import finalize

from svc_notebook.completion import Completion
from svc_notebook.credentials import Key, to_key
from svc_notebook.errors import Interrupted, MissingKeyError, SettingsError, SvcError
from svc_notebook.exchange import Exchange, Origin, Sink
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import Params, with_params
from svc_notebook.service.request import CompletionRequest, Prompt
from svc_notebook.settings import Settings, endpoint_at

from .clock import REAL, Runtime
from .exchange_record import Answerer
from .rate_limit import RateLimits
from .rate_windows import Room, Waiting
from .request_pipeline import (
    RequestPipeline,
    RunTools,
    Task,
    Watch,
    print_wait,
    take_no_tools,
)

if TYPE_CHECKING:
    import httpx

    from .spending_limit import SpendingLimit  # loads when a limit is set


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The default arguments of `AsyncClient`, and what runs tools for it.

    `take_tools` takes the functions in `tools` and their options out of a verb's
    arguments, leaves the tools' definitions there, and returns what runs the functions;
    None if there are no functions to run.
    """

    settings: Callable[[], Settings] = Settings.from_env
    key: Callable[[Settings], Key | None] = lambda _: None  # for the emulator's address
    sinks: Callable[[], Sequence[Sink]] = tuple
    answers: Callable[[Settings], Answerer | None] = lambda _: None
    spending: "Callable[[], SpendingLimit | None]" = lambda: None
    take_tools: Callable[..., RunTools | None] = take_no_tools


def _at_address(
    settings: Settings, base_url: str | None, *, needs_key: bool | None
) -> Settings:
    """Return the settings for an address; if it is None, the settings' own address.

    The settings refuse to send a key over http. `needs_key` says whether the address
    needs a key; None if the arguments do not say.
    """
    endpoint = settings.endpoint if base_url is None else endpoint_at(base_url)
    if needs_key is not None:
        endpoint = replace(endpoint, needs_key=needs_key)
    if base_url is not None:
        return settings.setting(
            "argument", base_url=base_url, endpoint=endpoint, is_emulated=False
        )
    if endpoint == settings.endpoint:
        return settings
    return settings.setting("argument", endpoint=endpoint)


class BaseClient:
    """What both clients share; `AsyncClient` describes the arguments."""

    def __init__(  # noqa: PLR0913 - each argument replaces one part
        self,
        settings: Settings | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key: Key | str | Literal[False] | None = None,
        sinks: Sequence[Sink] | None = None,
        limits: RateLimits | None = None,
        answers: "Answerer | None" = None,
        runtime: Runtime = REAL,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        is_keyless = key is False
        given_key = None if key is False else to_key(api_key if key is None else key)
        api_key = key = None  # a traceback of an error below must not show them
        if not isinstance(settings, Settings | None):
            raise SettingsError(
                f"settings is {type(settings).__name__}; give the address by name: "
                "base_url='https://HOST/v1'."
            )
        can_send = hasattr(transport, "handle_async_request")
        if transport is not None and (isinstance(transport, type) or not can_send):
            raise SettingsError(
                "transport= takes an httpx.AsyncBaseTransport, such as "
                "httpx.AsyncHTTPTransport(). Leave it out for our own connections."
            )
        defaults = self._defaults()
        settings = settings or defaults.settings()
        if isinstance(given_key, MissingKeyError):
            raise given_key
        has_key = given_key is not None and bool(given_key.authorization())
        needs_key = True if has_key else False if is_keyless else None
        settings = _at_address(settings, base_url, needs_key=needs_key)
        answers = answers or defaults.answers(settings)
        if given_key is None and answers is None and settings.is_emulated:
            given_key = defaults.key(settings)
        self._path = RequestPipeline(
            settings,
            key=given_key,
            sinks=defaults.sinks() if sinks is None else sinks,
            limits=limits,
            answers=answers,
            spending=defaults.spending,
            take_tools=defaults.take_tools,
            runtime=runtime,
            transport=transport,
        )
        self._open()

    def _defaults(self) -> Defaults:
        """Return what is used for arguments that are left out."""
        return Defaults()

    def _open(self) -> None:
        """Finish the setup. A subclass's `__init__` would have the key in its frame."""

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._path.settings

    def due(self, model: str) -> Waiting:
        """Return how long our rate limit would make a request wait now.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._path.limiter(model).due()

    def room(self, model: str) -> Room | None:
        """Return how many requests to a model our rate limit lets through now.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._path.limiter(model).room()

    def __repr__(self) -> str:
        # a traceback may show a client whose `__init__` failed
        path = getattr(self, "_path", None)
        return f"<{type(self).__name__} of {path and path.settings.base_url}>"


class AsyncClient(BaseClient):
    """A client for code that awaits.

    Its connections live on the event loop it is awaited on; use it in `async with`,
    or close it with `aclose()`.

    Args:
        settings: The address, the model and the timeouts. If None, the session's, so
            that `%svc use` and the environment apply here too.
        base_url: The service's base address, instead of the settings' one.
        api_key: The API key of this address. It is sent even if the address needs none.
            If None, the key of this address is looked up at the first request; the key
            of another address is never sent.
        key: The same as a `Key`; False for a server that needs no key.
        sinks: They receive each exchange when it ends, whether it succeeded or failed,
            on the event loop's thread. The session's ledger if None.
        limits: The rate limits to keep; those of this process if None.
        answers: A function that looks for a recorded answer before anything is sent. If
            None, the file that SVC_ANSWERS names is searched. If it always finds one,
            no key and no address are needed.
        runtime: The clock, the random numbers and the ids; tests replace them.
        transport: An `httpx.AsyncBaseTransport` that sends the requests; it then
            decides about proxies and certificates. It lives on one event loop, and you
            close it. httpx's own transport may take bytes that arrive after a reply for
            the next reply, unless it has
            `limits=httpx.Limits(max_keepalive_connections=0)`.

    Raises:
        MissingKeyError: The given key cannot be sent.
        SettingsError: A setting cannot be used.

    Example:
        >>> async def hello() -> str:
        ...     async with svc.AsyncClient() as client:
        ...         return (await client.complete("Say hello.")).text
        >>> asyncio.run(hello())  # in a notebook: await hello()
        'Hello!'
    """

    @with_params
    async def complete(  # noqa: PLR0913 - the arguments of `svc.complete`, and three more
        self,
        prompt: Prompt | CompletionRequest,
        *,
        model: str | None = None,
        system: str | None = None,
        run_tools: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = print_wait,
        answers: Answerer | None = None,
        **params: Unpack[Params],
    ) -> Completion:
        """Ask for a reply in one piece (doc: Response, not streamed).

        Args:
            prompt: A text, or messages as `Message` or mappings, oldest first. Or a
                complete request, such as the `request` of a completion; then no
                model, system message or parameter may be given.
            model: Id of the model; the settings' one if None.
            system: A text that is sent first, as a system message.
            run_tools: True runs the functions in `tools` that the model calls, on other
                threads, as `svc.complete` does; `confirm`, `max_rounds`,
                `tool_timeout_s` and `total_s` are then allowed too. False returns the
                calls, and you run the functions.
            origin: What the request belongs to; the ledger records it.
            watch: A function that is called at each wait. By default, waits of 2 s and
                more are shown as notes; None shows nothing.
            answers: A function that looks for a recorded answer first, instead of the
                client's `answers`.
            **params: Parameters by the document's names; a parameter that is left out
                is not sent. `extra` sends fields that the document does not show.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            ConfigError: The API key or the base address is missing.
            ServiceError: The service refused or failed, after bounded tries.
            TransportError: No complete answer came.
            DocumentError: The answer is not as the document says.
        """
        arguments: dict[str, Any] = {"model": model, "system": system, **params}
        tool_runner = self._path.tool_runner(arguments, run_tools=run_tools)
        request = self._path.request(prompt, arguments)

        async def ask(request: CompletionRequest, origin: Origin | None) -> Completion:
            task = await self._path.begin_on_loop(
                request, origin=origin, watch=watch, answers=answers
            )
            return Completion(await task.run(lambda _: None))

        if tool_runner is None:
            return await ask(request, origin)
        return await run_on_thread(tool_runner, request, origin or Origin(), ask)

    @with_params
    def stream(  # noqa: PLR0913 - the arguments of `complete`, and `is_streamed`
        self,
        prompt: Prompt | CompletionRequest,
        *,
        model: str | None = None,
        system: str | None = None,
        is_streamed: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = print_wait,
        answers: Answerer | None = None,
        **params: Unpack[Params],
    ) -> "AsyncCompletionStream":
        """Ask for a reply that arrives while it is generated (doc: Response, streamed).

        `AsyncClient` sends the request when the iteration begins, `Client` sends it at
        once.

        Args:
            prompt: A text, messages or a complete request, as in `complete`.
            model: Id of the model; the settings' one if None.
            system: A text that is sent first, as a system message.
            is_streamed: False asks for the reply in one piece; the stream then yields
                it at its end, and the service reports its usage.
            origin: What the request belongs to; the ledger records it.
            watch: A function that is called at each wait, as in `complete`.
            answers: A function that looks for a recorded answer first, as in
                `complete`.
            **params: Parameters by the document's names, as in `complete`.

        Returns:
            A stream: iterate it for pieces of text, then read `completion`.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            ConfigError: The API key or the base address is missing.
        """
        arguments = {"model": model, "system": system, **params}
        task = self._path.begin(
            self._path.request(prompt, arguments),
            is_streamed=is_streamed,
            origin=origin,
            watch=watch,
            answers=answers,
        )
        return AsyncCompletionStream(task)

    async def aclose(self) -> None:
        """Close the connections of the running loop; the client can be used again."""
        await self._path.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def run_on_thread(
    tool_runner: RunTools,
    request: CompletionRequest,
    origin: Origin,
    ask: Callable[[CompletionRequest, Origin], Coroutine[Any, Any, Completion]],
) -> Completion:
    """Run tools on a new thread, and send their requests on the running loop."""
    loop, is_stopped, futures = asyncio.get_running_loop(), Event(), list[Future[Any]]()
    result: Future[Completion] = Future()
    result.set_running_or_notify_cancel()  # cancelling the wait must not cancel it

    def check_stop() -> None:
        if is_stopped.is_set():
            raise Interrupted

    def send(request: CompletionRequest, origin: Origin) -> Completion:
        check_stop()
        futures.append(asyncio.run_coroutine_threadsafe(ask(request, origin), loop))
        return cast("Completion", futures[-1].result())

    def run() -> None:
        try:
            result.set_result(tool_runner(request, origin, send, check_stop))
        except BaseException as problem:  # noqa: BLE001 - raised where it is awaited
            result.set_exception(problem)

    # not one of the loop's few worker threads: requests may need those meanwhile
    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    try:
        return await asyncio.wrap_future(result)
    except asyncio.CancelledError:
        is_stopped.set()
        for future in futures:
            future.cancel()
        raise


DeltaQueue = asyncio.Queue[Delta | None]


class AsyncCompletionStream:
    """A streamed reply (doc: Response, streamed).

    Iterate it for the text of choice 0, piece by piece; then read `completion`. If the
    service sends no choice 0, the text of the lowest choice comes at the end.
    Use it in `async with`, or iterate it to its end.

    Example:
        >>> async def story() -> None:
        ...     async with svc.AsyncClient() as client:
        ...         async with client.stream("Tell a story.") as stream:
        ...             async for text in stream:
        ...                 print(text, end="")
        >>> asyncio.run(story())
        Once upon a time.
    """

    def __init__(self, task: Task) -> None:
        self._exchange_task = task
        self._queue: DeltaQueue = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._first = FirstChoice()
        self._n_chars = 0

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Iterate the new content of all choices, each with its choice's index.

        Raises:
            SvcError: The request failed; `partial` holds the reply so far.
        """
        while (delta := await self._next()) is not None:
            yield delta

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while (delta := await self._next()) is not None:
            if text := self._first.take(delta):
                return text
        if text := self._first.text_of_other_choice():
            return text
        self._first.warn_about_calls(self._exchange_task.exchange)
        raise StopAsyncIteration

    @property
    def completion(self) -> Completion:
        """The completion; after a failure or `aclose()` the reply so far.

        Raises:
            SvcError: The stream has not ended.
        """
        if self._exchange_task.exchange is None:
            raise SvcError(
                "The stream has not ended yet, so it has no completion. Iterate it to "
                "its end, or close it."
            )
        return Completion(self._exchange_task.exchange)

    async def aclose(self) -> None:
        """Stop: close the connection and record the reply so far."""
        self._is_over = True
        if self._task is None:
            return
        if _is_of_another_loop(self._task):
            _stop(self._task)
            return
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _next(self) -> Delta | None:
        """Return the next delta, None at the end."""
        if self._is_over:
            return None
        if self._task is None:
            work = _hand_over(self._exchange_task, self._queue)
            self._task = asyncio.create_task(work)
            finalize(self, _stop, self._task).atexit = False
        task = self._task
        if _is_of_another_loop(task):
            raise SvcError(
                "This stream was started on another event loop and can only be read "
                "there. Send the request again on this loop."
            )
        try:
            delta = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if delta is None:
            self._queue.put_nowait(None)  # so that other waiting tasks end, too
            self._is_over = True
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        elif delta.index == 0:
            self._n_chars += len(delta.text or "")
        return delta

    def __repr__(self) -> str:
        if self._task is None and not self._is_over:
            return f"<{type(self).__name__}: not started>"
        exchange, n_chars = self._exchange_task.exchange, self._n_chars
        return describe_stream(self, exchange, n_chars=n_chars, is_over=self._is_over)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _is_of_another_loop(task: asyncio.Task[None]) -> bool:
    return task.get_loop() is not asyncio.get_running_loop()


async def _hand_over(task: Task, queue: DeltaQueue) -> None:
    """Run an exchange and put its deltas into the queue; None marks the end."""
    try:
        await task.run(queue.put_nowait)
    finally:
        queue.put_nowait(None)


def _stop(task: asyncio.Task[None]) -> None:
    """Stop the task of a stream that nobody refers to any more, from any thread."""
    with suppress(RuntimeError):  # the loop is closed, which has ended the task
        task.get_loop().call_soon_threadsafe(task.cancel)


_STATES = {"ok": "ended", "error": "failed", "cancelled": "stopped"}


class FirstChoice:
    """Picks the text of choice 0, or of the lowest choice if there is no choice 0."""

    def __init__(self) -> None:
        self._is_zero_seen = False
        self._has_text = False
        self._others: dict[int, list[str]] = {}

    def take(self, delta: Delta) -> str:
        """Return what a delta adds to choice 0; other choices are held back."""
        self._has_text |= bool(delta.text)
        if delta.index == 0:
            self._is_zero_seen = True
            self._others.clear()
            return delta.text or ""
        if delta.text and not self._is_zero_seen:
            self._others.setdefault(delta.index, []).append(delta.text)
        return ""

    def text_of_other_choice(self) -> str:
        """Return the text of the lowest choice, at the end and without a choice 0."""
        others, self._others = self._others, {}
        return "".join(others[min(others)]) if others else ""

    def warn_about_calls(self, exchange: Exchange | None) -> None:
        """Warn that a finished stream has no text because the model called tools."""
        choices = exchange.choices if exchange else ()
        calls = [call for choice in choices for call in choice.tool_calls]
        if calls and not self._has_text:
            self._has_text = True  # warn only once
            names = dict.fromkeys(call.function.name for call in calls)
            warn(
                f"The model called {', '.join(names)} and wrote no text, so this "
                "stream is empty. Read stream.completion.tool_calls, or use "
                "svc.complete with tools=[...], which runs the functions.",
                UserWarning,
                stacklevel=3,
            )


def describe_stream(
    stream: object, exchange: Exchange | None, *, n_chars: int, is_over: bool
) -> str:
    """Return the repr of a stream: its state and its length, but none of its text."""
    state = "stopped" if is_over else "running"
    if exchange is not None:
        state = _STATES[exchange.status]
    return f"<{type(stream).__name__}: {state}, {n_chars:,} characters so far>"

"""`Client`: the verbs of `AsyncClient`, for code that does not await.

What it is not: a second client. Rules: each verb is one call through the portal; a
cell of a notebook may use it while the kernel's loop is running, and so may several
threads at once.
"""

from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Self, Unpack
from weakref import finalize

from svc_notebook.completion import Completion
from svc_notebook.credentials import Key, to_key
from svc_notebook.errors import MissingKeyError, SvcError
from svc_notebook.exchange import Origin, Sink
from svc_notebook.service.message import Prompt
from svc_notebook.service.params import Params, with_params
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

from .aio import AsyncClient
from .attempts import Waiting, Watch
from .exchange_record import Answerer
from .portal import open_portal, portal
from .rate_limit import Due, Gates, Room
from .retry import INTERACTIVE, Policy
from .runtime import REAL, World
from .streams import CompletionStream, SyncQueue

__all__ = ["Client", "CompletionStream"]


class Client:
    """Ask the service and wait; every exchange, good or bad, reaches every sink.

    It may be used where an event loop is running, from several threads, and after a
    fork. An interrupt stops the request and closes its connection.

    Args:
        settings: Where to, and how long things may take; the session's if None, so
            that `%svc use` and the environment hold here too.
        base_url: The service's base address, instead of the settings' one.
        api_key: The API key; found in the environment at the first request if None.
        key: The same, as a `Key`.
        sinks: Told about each exchange when it has ended, on a thread of ours; the
            session's ledger if None.
        gates: The limits to keep; those of this process if None.
        answers: As `AsyncClient`.
        world: Where time, chance and ids come from.

    Raises:
        MissingKeyError: The key given cannot be sent.
        SettingsError: A setting cannot be used.

    Example:
        >>> Client().complete("Say hello.").text  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - as AsyncClient
        self,
        settings: Settings | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key: Key | str | None = None,
        sinks: Sequence[Sink] | None = None,
        gates: Gates | None = None,
        answers: Answerer | None = None,
        world: World = REAL,
    ) -> None:
        found = to_key(api_key if key is None else key)
        api_key = key = None  # nothing below may show them in a traceback
        if isinstance(found, MissingKeyError):
            raise found
        self._client = AsyncClient(
            settings,
            base_url=base_url,
            key=found,
            sinks=sinks,
            gates=gates,
            answers=answers,
            world=world,
        )
        self._finalizer = finalize(self, _release, self._client)
        self._finalizer.atexit = False  # the portal closes everything at exit

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._client.settings

    @with_params
    def complete(
        self,
        prompt: Prompt,
        *,
        model: str | None = None,
        system: str | None = None,
        origin: Origin | None = None,
        watch: Watch | None = None,
        answers: Answerer | None = None,
        **params: Unpack[Params],
    ) -> Completion:
        """Ask for a reply in one piece (doc: Response, not streamed).

        Args:
            prompt: A text, or messages as `Message` or mappings, oldest first.
            model: Id of the model; the settings' one if None.
            system: A text put in front as a system message.
            origin: Who asks, for the record.
            watch: Told about each wait.
            answers: Looks for an answer before anything is sent, instead of the
                client's own.
            **params: Parameters by the document's names; what is left out is not
                sent. `extra` sends fields the document does not show.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            ConfigError: The API key or the base address is missing.
            ServiceError: The service refused or failed, after bounded tries.
            TransportError: No whole answer came.
            DocumentError: An answer came that the document does not allow.
        """
        request = self._client.build(prompt, model=model, system=system, **params)
        return self.ask(request, origin=origin, watch=watch, answers=answers)

    @with_params
    def stream(
        self,
        prompt: Prompt,
        *,
        model: str | None = None,
        system: str | None = None,
        origin: Origin | None = None,
        watch: Watch | None = None,
        answers: Answerer | None = None,
        **params: Unpack[Params],
    ) -> CompletionStream:
        """Ask for a reply that comes as it is generated (doc: Response, streamed).

        Args:
            prompt: As for `complete`.
            model: As for `complete`.
            system: As for `complete`.
            origin: As for `complete`.
            watch: As for `complete`.
            answers: As for `complete`.
            **params: As for `complete`.

        Returns:
            A stream; the request is under way when it is returned.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            ConfigError: The API key or the base address is missing.
        """
        request = self._client.build(prompt, model=model, system=system, **params)
        return self.start(request, origin=origin, watch=watch, answers=answers)

    def ask(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool = False,
        origin: Origin | None = None,
        watch: Watch | None = None,
        policy: Policy = INTERACTIVE,
        answers: Answerer | None = None,
    ) -> Completion:
        """Ask with a request that is ready, and wait for the whole reply.

        Args:
            request: As made by `build_request`.
            is_streamed: Whether to have the reply streamed.
            origin: Who asks, for the record.
            watch: Told about each wait.
            policy: When to ask again.
            answers: As for `complete`.

        Raises:
            SvcError: As for `complete`.
        """
        asking = self._client.prepare(
            request,
            is_streamed=is_streamed,
            origin=origin,
            watch=watch,
            policy=policy,
            answers=answers,
        )
        return Completion(portal().run(asking.run(lambda _: None)))

    def start(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = None,
        policy: Policy = INTERACTIVE,
        answers: Answerer | None = None,
    ) -> CompletionStream:
        """Begin with a request that is ready.

        Args:
            request: As made by `build_request`.
            is_streamed: Whether to have the reply streamed; if not, all of it comes
                at the end.
            origin: Who asks, for the record.
            watch: Told about each wait, beside the stream's `poll`.
            policy: When to ask again.
            answers: As for `complete`.

        Raises:
            AskError: The request cannot be sent.
            ConfigError: The API key or the base address is missing.
        """
        queue: SyncQueue = SimpleQueue()

        def told(waiting: Waiting) -> None:
            queue.put(waiting)
            if watch is not None:
                watch(waiting)

        asking = self._client.prepare(
            request,
            is_streamed=is_streamed,
            origin=origin,
            watch=told,
            policy=policy,
            answers=answers,
        )
        return CompletionStream(asking, queue)

    def due(self, model: str) -> Due:
        """Say how long a limit of ours would make a request wait now; none is sent.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._client.due(model)

    def room(self, model: str) -> Room | None:
        """Say how many requests to a model our limits let through now.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._client.room(model)

    def close(self) -> None:
        """Close the connections; the client can be used again."""
        found = open_portal()
        if found is not None:
            with suppress(SvcError):
                found.run(self._client.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        client = getattr(self, "_client", None)  # a traceback may show one half made
        return f"<{type(self).__name__} of {client and client.settings.base_url}>"


def _release(client: AsyncClient) -> None:
    """Close the connections of a client that nobody holds any more."""
    found = open_portal()
    if found is not None:
        with suppress(SvcError):
            found.submit(client.aclose())

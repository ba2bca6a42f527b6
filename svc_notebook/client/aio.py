"""`AsyncClient`: ask the service from code that can await.

What it is not: the request path (see `asking`). Rules: what is wrong with a request
is found at the call, before anything is sent; nothing here touches a socket; httpx
is imported at the first request.
"""

import asyncio
import warnings
from collections.abc import Sequence
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Self, Unpack

from svc_notebook.budget import within_budget
from svc_notebook.completion import Completion
from svc_notebook.credentials import Key
from svc_notebook.errors import MissingKeyError, SettingsError
from svc_notebook.exchange import Origin, Sink
from svc_notebook.service.message import Prompt
from svc_notebook.service.params import Params, with_params
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.settings import Settings
from svc_notebook.wire.encode import encode

from .attempts import Asking, Parts, Watch
from .exchange_record import Answered, Answerer, Journal, Run, Sinks
from .rate_limit import Due, Gates, Room
from .rate_limit_shared import shared_gates
from .redact import keep_out_of_logs, refuse_key, to_key, wanted_key
from .retry import INTERACTIVE, Policy
from .runtime import REAL, World, ambient
from .streams import AsyncCompletionStream
from .transport import Transport


class AsyncClient:
    """Ask the service; every exchange, good or bad, reaches every sink.

    Its connections live on the event loop it is awaited on; use it in `async with`,
    or close it with `aclose()`.

    Args:
        settings: Where to, and how long things may take; the session's if None, so
            that `%svc use` and the environment hold here too.
        base_url: The service's base address, instead of the settings' one.
        api_key: The API key; found in the environment at the first request if None.
        key: The same, as a `Key`.
        sinks: Told about each exchange when it has ended; the session's ledger if None.
        gates: The limits to keep; those of this process if None.
        answers: Looks for an answer before anything is sent; none is looked for if
            None. With one that always answers no key and no address are needed.
        world: Where time, chance and ids come from.

    Raises:
        MissingKeyError: The key given cannot be sent.
        SettingsError: A setting cannot be used.

    Example:
        >>> async with AsyncClient() as client:  # doctest: +SKIP
        ...     completion = await client.complete("Say hello.")
    """

    def __init__(  # noqa: PLR0913 - one seam each
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
        given = ambient()
        if not isinstance(settings, Settings | None):
            raise SettingsError(
                f"settings is {type(settings).__name__}; give the address by name: "
                "base_url='https://HOST/v1'."
            )
        self.settings = settings or given.settings()
        if isinstance(found, MissingKeyError):
            raise found
        if base_url is not None:
            self.settings = self.settings.setting(
                "argument", base_url=base_url, is_emulated=False
            )
        self._key = found or (given.key() if self.settings.is_emulated else None)
        self._sinks = Sinks(given.sinks() if sinks is None else sinks)
        self._gates = gates
        self._answers = answers
        self._world = world
        self._lock = Lock()
        self._transport: Transport | None = None

    @with_params
    async def complete(
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
        request = self.build(prompt, model=model, system=system, **params)
        return await self.ask(request, origin=origin, watch=watch, answers=answers)

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
    ) -> AsyncCompletionStream:
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
            A stream; nothing is sent before it is iterated.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            ConfigError: The API key or the base address is missing.
        """
        request = self.build(prompt, model=model, system=system, **params)
        return self.start(request, origin=origin, watch=watch, answers=answers)

    async def ask(
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
        prepare = partial(
            self.prepare,
            request,
            is_streamed=is_streamed,
            origin=origin,
            watch=watch,
            policy=policy,
            answers=answers,
        )
        # the loop goes on while answers are looked for
        reads = asyncio.to_thread(prepare) if answers or self._answers else None
        asking = prepare() if reads is None else await reads
        return Completion(await asking.run(lambda _: None))

    def start(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool = True,
        origin: Origin | None = None,
        watch: Watch | None = None,
        policy: Policy = INTERACTIVE,
        answers: Answerer | None = None,
    ) -> AsyncCompletionStream:
        """Begin with a request that is ready.

        Args:
            request: As made by `build_request`.
            is_streamed: Whether to have the reply streamed; if not, all of it comes
                at the end.
            origin: Who asks, for the record.
            watch: Told about each wait.
            policy: When to ask again.
            answers: As for `complete`.

        Raises:
            AskError: The request cannot be sent.
            ConfigError: The API key or the base address is missing.
        """
        asking = self.prepare(
            request,
            is_streamed=is_streamed,
            origin=origin,
            watch=watch,
            policy=policy,
            answers=answers,
        )
        return AsyncCompletionStream(asking)

    def prepare(
        self,
        request: CompletionRequest,
        *,
        is_streamed: bool,
        origin: Origin | None,
        watch: Watch | None,
        policy: Policy,
        answers: Answerer | None = None,
    ) -> Run:
        """Return the exchange that a request begins; nothing is sent before it runs.

        Args:
            request: As for `start`.
            is_streamed: As for `start`.
            origin: As for `start`.
            watch: As for `start`.
            policy: As for `start`.
            answers: As for `start`.

        Raises:
            AskError: The request cannot be sent.
            ConfigError: The API key or the base address is missing.
        """
        body = encode(request, is_streamed=is_streamed)
        look_up = answers or self._answers
        recorded = look_up(request, origin or Origin()) if look_up else None
        if recorded is not None:
            return Answered(
                recorded,
                request=request,
                origin=origin or Origin(),
                is_streamed=is_streamed,
                sinks=self._sinks,
                world=self._world,
            )
        base_url, parts = self._base_url(), self._parts()
        refuse_key(body, parts.key)
        journal = Journal(
            exchange_id=self._world.new_id(),
            request=request,
            origin=origin or Origin(),
            endpoint=base_url,
            is_streamed=is_streamed,
            is_emulated=self.settings.is_emulated,
            started_at=self._world.now(),
            est_prompt_tokens=within_budget(request),
        )
        return Asking(journal, body, parts=parts, policy=policy, watch=watch)

    def build(
        self,
        prompt: Prompt,
        *,
        model: str | None = None,
        system: str | None = None,
        **params: Unpack[Params],
    ) -> CompletionRequest:
        """Check what is asked and make the request of it, with the settings' model.

        Args:
            prompt: As for `complete`.
            model: As for `complete`.
            system: As for `complete`.
            **params: As for `complete`.

        Raises:
            ParameterError: Something is not allowed.
        """
        extra = params.pop("extra", None)
        if params.get("temperature") is not None and params.get("top_p") is not None:
            warnings.warn(
                "temperature and top_p are both changed; change one of them "
                "(doc: Request body).",
                UserWarning,
                stacklevel=3,  # whoever called the verb
            )
        return build_request(
            prompt,
            model=self.settings.model if model is None else model,
            system=system,
            extra=extra,
            params=params,
        )

    def due(self, model: str) -> Due:
        """Say how long a limit of ours would make a request wait now; none is sent.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._parts().gates.of(model).due()

    def room(self, model: str) -> Room | None:
        """Say how many requests to a model our limits let through now.

        Raises:
            ConfigError: The API key or the base address is missing.
        """
        return self._parts().gates.of(model).room()

    async def aclose(self) -> None:
        """Close the connections of the running loop; the client can be used again."""
        if self._transport is not None:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.settings.base_url}>"

    def _base_url(self) -> str:
        if self.settings.base_url is None:
            raise SettingsError(
                "There is no base address. Set SVC_BASE_URL to the service's address, "
                "such as https://HOST/v1, or try without a service: `%svc use "
                "emulator` starts an emulator for this kernel."
            )
        return self.settings.base_url

    def _parts(self) -> Parts:
        base_url = self._base_url()
        found = self._key or wanted_key()
        if isinstance(found, MissingKeyError):
            raise found
        self._key = found
        keep_out_of_logs(found)
        clock = self._world.clock
        return Parts(
            transport=self._open(base_url),
            gates=self._gates or shared_gates(base_url, found, clock=clock),
            key=found,
            sinks=self._sinks,
            timeouts=self.settings.timeouts,
            world=self._world,
        )

    def _open(self, base_url: str) -> Transport:
        from .http import HttpTransport  # noqa: PLC0415 - httpx at first use

        with self._lock:
            if self._transport is None:
                self._transport = HttpTransport(base_url, now=self._world.now)
            return self._transport

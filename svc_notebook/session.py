"""The session: this kernel's settings, ledger, client, emulator and tools.

Each part is made at first use and kept until its settings change.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from secrets import token_hex
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from svc_notebook.client import async_client, sync_client
from svc_notebook.client.async_client import Defaults
from svc_notebook.client.exchange_record import Answerer
from svc_notebook.client.request_pipeline import RunTools, SendRequest, print_wait
from svc_notebook.completion import Completion
from svc_notebook.conversations.continuation import charge_of, join_exchange
from svc_notebook.credentials import Key, find_key, hide_others, known_keys
from svc_notebook.endpoints import FILE
from svc_notebook.errors import (
    MissingKeyError,
    ParameterError,
    SettingsError,
    SvcError,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.cache import LedgerCache, find_recorded
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ledger_file import MEMORY
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.recordings import RecordingFile
from svc_notebook.service.catalogue import Model, ModelInfo
from svc_notebook.service.params import check_flag, shorten
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import ENV_NAMES, Environment, Settings, read_env
from svc_notebook.tools.consent import AtPrompt, Remembered, warn_of_denied
from svc_notebook.tools.rounds import (
    LIMITS,
    Permit,
    ToolRecord,
    run_rounds,
    take_permit,
)
from svc_notebook.tools.toolbox import Toolbox, to_offer

if TYPE_CHECKING:  # these load at first use
    from svc_notebook.client.spending_limit import SpendingLimit
    from svc_notebook.conversations.conversation import Conversations
    from svc_notebook.emulator.emulator import Emulator


@dataclass(frozen=True, kw_only=True)
class Context:
    """The settings, ledger and client that one verb uses, from beginning to end.

    It sends requests, runs tools and reads replies. Its fields never change: after a
    change of the environment or `svc.use`, the next verb gets another context. Clients
    are made at first use.
    """

    settings: Settings
    problems: Mapping[str, SettingsError]
    """Errors in variables and in the file of endpoints, by name of variable or file."""
    ledger: Ledger
    session: "Session"

    @cached_property
    def client(self) -> "Client":
        """The client of the endpoint in use; raises if its settings are wrong."""
        return self._client_to(self.ledger)

    @cached_property
    def unrecorded_client(self) -> "Client":
        """A client whose exchanges are not recorded in the ledger."""
        return self._client_to(self.session.unrecorded)

    def _client_to(self, ledger: Ledger) -> "Client":
        for name, problem in self.problems.items():
            if not self._is_replaced(name):
                named = "" if name == FILE else f"{name}: "
                raise SettingsError(f"{named}{problem}")
        ledger.check()
        answers = self.answers
        return Client(
            self.settings,
            key=self.key() if answers is None else None,
            sinks=(ledger,),
            answers=answers,
        )

    def _is_replaced(self, name: str) -> bool:
        """Say whether `svc.use` has replaced the setting of a variable or the file."""
        if name == FILE:
            return self.settings.is_emulated
        setting = next(key for key in ENV_NAMES if ENV_NAMES[key] == name)
        return self.settings.sources.get(setting, name) != name

    def key(self) -> Key:
        """Return the key of the endpoint in use; raise if there is none."""
        settings = self.settings
        if settings.is_emulated:
            key = self.session.emulator_key()
        else:
            key = find_key(base_url=settings.base_url, endpoint=settings.endpoint)
        return hide_others(key)

    def key_hider(self) -> Callable[[str], str]:
        """Return a function that hides the key in a text."""
        with suppress(MissingKeyError):
            return self.key().redact
        keys = known_keys()  # without a key here, hide all known keys
        if not keys:
            return str
        keys[0].others = keys[1:]
        return keys[0].redact

    @property
    def prices(self) -> Prices | None:
        """The price table that the settings name; None without one."""
        path = self.settings.prices or self.settings.endpoint.prices
        return None if path is None else Prices.from_file(path)

    @property
    def answers(self) -> Answerer | None:
        """Finds recorded answers in the file of the settings; None without a file."""
        return self.session.answers_of(self.settings)

    @property
    def answers_note(self) -> str:
        """A note that a file answers instead of the endpoint; "" without a file."""
        if self.settings.answers is None:
            return ""
        return (
            f"The file {self.settings.answers} still answers, and nothing is sent. "
            "Unset SVC_ANSWERS to ask the chosen endpoint."
        )

    def reused(
        self,
        request: CompletionRequest,
        origin: Origin,
        *,
        recorded: Answerer | None = None,
    ) -> Exchange | None:
        """Look for an answer to an identical request in the ledger, then in the file.

        It reads the disk, so an event loop must call it on another thread. `recorded`
        looks in the file, if the file was read already.
        """
        endpoint, recorded = self.settings.base_url, recorded or self.answers
        exchange = None
        if endpoint is not None:
            cache = LedgerCache(self.ledger, endpoint)
            exchange = find_recorded(cache, request, origin)
        if exchange is None and recorded is not None:
            exchange = recorded(request, origin)
        return exchange

    def is_reusing(self, reuse: object) -> bool:
        """Say whether the ledger may answer; None follows the settings."""
        if reuse is None:
            return self.settings.reuse
        check_flag("reuse", reuse)
        return bool(reuse)

    def models(self, *, wait_s: float = 0.0) -> tuple[Model, ...]:
        """Return the known models, and ask the server for its list in the background.

        `wait_s` is the longest wait for the list, in seconds.
        """
        settings = self.settings
        if settings.endpoint.lists_models and settings.answers is None:
            with suppress(SvcError):  # the same error is raised when a request is sent
                self.client.list_models(wait_s=wait_s)
        return settings.endpoint.known_models()

    def ask(
        self,
        request: CompletionRequest,
        origin: Origin,
        *,
        answers: Answerer | None = None,
    ) -> Completion:
        """Send a request and return the reply, in one piece."""
        return self.client.complete(
            request, origin=origin, watch=print_wait, answers=answers
        )

    def run_tools(
        self,
        request: CompletionRequest,
        origin: Origin,
        toolbox: Toolbox,
        permit: Permit,
        send: SendRequest | None = None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Completion:
        """Send a request, run the called tools in rounds, and return the last reply."""
        at_prompt = self.session.at_prompt
        n_unasked = at_prompt.n_unasked
        completion = run_rounds(
            request,
            origin,
            toolbox=toolbox,
            send=send or self.ask,
            consent=permit.consent(self.session.consent),
            rounds=permit.rounds,
            keep=self.session.tool_record,
            hide=self.key_hider(),
            check_stop=check_stop,
        )
        if n_denied := at_prompt.n_unasked - n_unasked:
            warn_of_denied(n_denied)
        return completion

    def last(self, *, is_reply: bool = False) -> Completion | None:
        """Return the newest Completion of this kernel, partial ones included.

        With `is_reply` it is the newest that has a reply, or a part of one.
        """
        exchange = self.ledger.last(is_reply=is_reply)
        unrecorded = self.session.unrecorded.last(is_reply=is_reply)
        if unrecorded and (
            not exchange or exchange.exchange_id < unrecorded.exchange_id
        ):
            return Completion(
                unrecorded, self.session.unrecorded_tools.runs_of(unrecorded)
            )
        return None if exchange is None else self.joined(exchange)

    def reply(self, exchange_id: str) -> Completion:
        """Return the Completion of an exchange in the ledger, by its id.

        Raises:
            ParameterError: The ledger has no exchange with this id.
        """
        exchange = self.ledger.last(scope="all", exchange_id=str(exchange_id) or "none")
        if exchange is None:
            raise ParameterError(
                f"The ledger has no exchange {shorten(repr(exchange_id), 60)}; take an "
                "exchange_id from replies_df().",
                param="exchange_id",
            )
        failure = exchange.failure
        notes = (failure.message,) if failure and not exchange.choices else ()
        return self.joined(exchange).with_notes(*notes)

    def joined(self, exchange: Exchange) -> Completion:
        """Return the Completion of an exchange, joined with what it continues."""
        whole = join_exchange(exchange, self.ledger)
        sent = None if whole is exchange else exchange.request
        runs = self.session.tool_record.runs_of(whole)
        charge = charge_of(exchange, self.ledger)
        return Completion(whole, runs, last_request=sent, charge=charge)


class Session:
    """The parts of one kernel; `context` returns those that a verb works with.

    Attributes:
        session_id: Marks this kernel's exchanges in the ledger.
        tool_record: Records tool calls in the ledger.
        unrecorded: A ledger in memory, for exchanges that are not recorded.
        unrecorded_tools: Records the tool calls of those exchanges.
        at_prompt: Asks at the prompt for consent to tool calls.
        consent: Asks through `at_prompt` and remembers the tools that are always
            allowed.
        spending: The limit on tokens and cost; None without one.
        lock: Held while settings and parts change.
        has_given_emulator: Whether the caller made its emulator, not this session.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.session_id = uuid4().hex
        self.tool_record = ToolRecord(lambda: self.ledger)
        self.unrecorded = Ledger(MEMORY, session_id=self.session_id)
        self.unrecorded_tools = ToolRecord(lambda: self.unrecorded)
        self.at_prompt = AtPrompt()
        self.consent = Remembered(self.at_prompt)
        self.spending: SpendingLimit | None = None
        self.lock = RLock()
        self._conversations: Conversations | None = None
        self._answers: RecordingFile | None = None
        self._emulator: Emulator | None = None
        self.has_given_emulator = False
        self._environment = Environment() if settings is None else None
        self._context = self._context_with(settings or Settings())

    def context(self) -> Context:
        """Return the context for a verb, which takes it once, at its start."""
        with self.lock:
            if self._environment is not None and self._environment.has_changed():
                self._use(*self._environment.adopted(self._context.settings))
            return self._context

    @property
    def conversations(self) -> "Conversations":
        """The conversations that magic, panel and Python share, by name."""
        from svc_notebook.conversations.conversation import Conversations  # noqa: PLC0415 - at first use

        with self.lock:
            if self._conversations is None:
                self._conversations = Conversations(
                    ask=lambda *args, **options: self.context().ask(*args, **options),
                    run=lambda *args, **options: self.context().run_tools(
                        *args, **options
                    ),
                    stream=lambda request, origin: self.client.stream(
                        request, origin=origin, watch=print_wait
                    ),
                    model=lambda: self.settings.model,
                    info_of=self.info_of,
                    ledger=lambda: self.ledger,
                )
            return self._conversations

    def change(self, settings: Settings) -> None:
        """Use other settings from the next verb on."""
        with self.lock:
            self._use(settings, self._context.problems)

    def _use(self, settings: Settings, problems: Mapping[str, SettingsError]) -> None:
        # The old client is dropped, not closed: closing waits for the event loop, where
        # a request may wait for this session's lock. Unused connections close
        # themselves.
        ledger = self._context.ledger
        if settings.ledger == self._context.settings.ledger:
            self._context = self._context_with(settings, problems, ledger)
        else:
            self._context = self._context_with(settings, problems)
            ledger.close()

    def _context_with(
        self,
        settings: Settings,
        problems: Mapping[str, SettingsError] = MappingProxyType({}),
        ledger: Ledger | None = None,
    ) -> Context:
        return Context(
            settings=settings,
            problems=problems,
            ledger=ledger or Ledger(settings.ledger, session_id=self.session_id),
            session=self,
        )

    def environment_settings(self) -> Settings:
        """Return the settings of the environment alone, if this session follows it."""
        return Settings() if self._environment is None else read_env(os.environ)[0]

    def answers_of(self, settings: Settings) -> Answerer | None:
        """Return the function that finds answers in the file; None without a file."""
        path = settings.answers
        if path is None:
            return None
        with self.lock:
            if self._answers is None or self._answers.path != path:
                self._answers = RecordingFile(path)
            self._answers.refresh()
            return self._answers.find

    def start_emulator(self, emulator: "Emulator | None" = None) -> "Emulator":
        """Start the given emulator, or else a plain one of this kernel, and use it."""
        from svc_notebook.emulator.emulator import Emulator  # noqa: PLC0415 - at first use

        with self.lock:
            own = None if self.has_given_emulator else self._emulator
            # a random key, because prompts that contain the key are refused
            used = emulator or own or Emulator(keys=(token_hex(),))
            before, self._emulator = self._emulator, used.start()
            self.has_given_emulator = emulator is not None
        if before is not None and before is not used:
            before.close()
        return used

    def emulator_key(self) -> Key:
        """Return the key of this kernel's emulator, while it runs."""
        if self._emulator is None:
            raise MissingKeyError(
                "The emulator of this kernel is closed. `%svc use emulator` starts "
                "another one; `%svc use service` sends requests to SVC_BASE_URL."
            )
        return Key(self._emulator.api_key, source="the emulator")

    def close(self) -> None:
        """Close connections, ledger and emulator; the session can be used again.

        If the emulator was in use, the address of the environment is used afterwards.
        At exit, each part closes itself, so calling this is not necessary.
        """
        with self.lock:
            before, settings = self._context, self._context.settings
            if settings.is_emulated:
                for name in ("base_url", "endpoint", "is_emulated"):
                    settings = settings.reset(name, self.environment_settings())
            self._context = self._context_with(settings, before.problems)
            parts_in_use = vars(before)
            clients = parts_in_use.get("client"), parts_in_use.get("unrecorded_client")
            parts = *clients, before.ledger, self._emulator
            self._emulator, self.has_given_emulator = None, False
        for part in parts:  # without the lock: the event loop may be waiting for it
            if part is not None:
                part.close()

    # Parts of the current context, for callers that need only one of them.

    @property
    def settings(self) -> Settings:
        """The current settings: the environment's, and those set in this kernel."""
        return self.context().settings

    @property
    def ledger(self) -> Ledger:
        """The ledger that the settings name."""
        return self.context().ledger

    @property
    def client(self) -> "Client":
        """The client of the endpoint in use; raises if its settings are wrong."""
        return self.context().client

    def info_of(self, model: str) -> ModelInfo:
        """Return what is known of a model of the endpoint in use."""
        return self.settings.endpoint.info_of(model)

    def key(self) -> Key:
        """Return the key of the endpoint in use; raise if there is none."""
        return self.context().key()

    def key_hider(self) -> Callable[[str], str]:
        """Return a function that hides the key in a text."""
        return self.context().key_hider()

    def models(self, *, wait_s: float = 0.0) -> tuple[Model, ...]:
        """Return the known models, as `Context.models` does."""
        return self.context().models(wait_s=wait_s)


_lock = RLock()
_current: list[Session] = []


def take_tools(
    arguments: dict[str, Any], *, run_tools: bool = True, context: Context | None = None
) -> RunTools | None:
    """Take functions and limits out of a verb's arguments; return what runs the tools.

    The arguments keep the tools' definitions. None if there are no functions or
    `run_tools` is False: the caller of the verb then gets the tool calls.
    """
    if arguments.get("tools") is None and arguments.keys().isdisjoint(LIMITS):
        return None
    permit = take_permit(arguments)
    arguments["tools"], toolbox = to_offer(arguments.get("tools"), run_tools=run_tools)
    if toolbox is None:
        return None

    def run(
        request: CompletionRequest,
        origin: Origin,
        ask: SendRequest,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Completion:
        used = context or current().context()
        return used.run_tools(request, origin, toolbox, permit, ask, check_stop)

    return run


def current() -> Session:
    """Return this kernel's session, made at the first call."""
    with _lock:
        if not _current:
            _current.append(Session())
        return _current[0]


@contextmanager
def isolated() -> Iterator[None]:
    """Use a new session inside the block, and the previous one after it."""
    with _lock:
        previous = _current[:]
        _current.clear()
    try:
        yield
    finally:
        with _lock:
            sessions = _current[:]
            _current[:] = previous
        for session in sessions:
            session.close()


_DEFAULTS = Defaults(
    settings=lambda: current().settings,
    key=lambda _: current().emulator_key(),  # called for the emulator's address only
    sinks=lambda: (current().ledger,),
    answers=lambda settings: current().answers_of(settings),
    spending=lambda: current().spending,
    take_tools=take_tools,
)
"""The defaults of the public clients' arguments: this kernel's session."""


class AsyncClient(async_client.AsyncClient):  # noqa: D101 - below
    __doc__ = async_client.AsyncClient.__doc__

    def _defaults(self) -> Defaults:
        return _DEFAULTS


class Client(sync_client.Client):  # noqa: D101 - below
    __doc__ = sync_client.Client.__doc__

    def _defaults(self) -> Defaults:
        return _DEFAULTS

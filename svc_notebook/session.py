"""The session: this kernel's settings, ledger, client, emulator and tools.

Each part is made when it is first needed and kept until its settings change.
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
from svc_notebook.conversations.continuation import join_exchange
from svc_notebook.conversations.conversation import Conversations
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
    from svc_notebook.emulator.emulator import Emulator


@dataclass(frozen=True, kw_only=True)
class Context:
    """The settings, ledger and client that one verb uses, from beginning to end.

    It sends requests, runs tools and reads replies with them. Its fields never change:
    the environment and `svc.use` make another context for the next verb. A client is
    made when it is first needed.
    """

    settings: Settings
    problems: Mapping[str, SettingsError]
    """The errors of variables and of the file that cannot be used, by their names."""
    ledger: Ledger
    session: "Session"

    @cached_property
    def client(self) -> "Client":
        """The client of the endpoint in use; an error if its settings are wrong."""
        return self._client_to(self.ledger)

    @cached_property
    def unrecorded_client(self) -> "Client":
        """The same for exchanges that are kept out of the ledger."""
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
        """Say whether another value was chosen than that of a variable or the file."""
        if name == FILE:
            return self.settings.is_emulated
        setting = next(key for key in ENV_NAMES if ENV_NAMES[key] == name)
        return self.settings.sources.get(setting, name) != name

    def key(self) -> Key:
        """Return the key of the endpoint in use, or refuse."""
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
        keys = known_keys()  # the emulator is closed, or the key is elsewhere's
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
        """Finds answers in the file that the settings name; None without one."""
        return self.session.answers_of(self.settings)

    @property
    def answers_note(self) -> str:
        """Says that a file answers whatever endpoint is chosen; "" without a file."""
        if self.settings.answers is None:
            return ""
        return (
            f"The file {self.settings.answers} goes on answering, and nothing is sent. "
            "Unset SVC_ANSWERS to ask the endpoint that you have chosen."
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
        are the answers in the file, if they were already read.
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
        """Say whether the ledger may answer; None is what the settings say."""
        if reuse is None:
            return self.settings.reuse
        check_flag("reuse", reuse)
        return bool(reuse)

    def models(self, *, wait_s: float = 0.0) -> tuple[Model, ...]:
        """Return the known models; in the background the server is asked for its list.

        `wait_s` is how long to wait for that, in seconds.
        """
        settings = self.settings
        if settings.endpoint.lists_models and settings.answers is None:
            with suppress(SvcError):  # what is wrong shows when a request is sent
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
        """Send a request and run the tools that are called; return the last reply."""
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

    def last(self) -> Completion | None:
        """Return the newest Completion of this kernel, partial ones included."""
        exchange, other = self.ledger.last(), self.session.newest_unrecorded
        if other and (not exchange or exchange.exchange_id < other.exchange_id):
            return Completion(other, self.session.unrecorded_tools.runs_of(other))
        return None if exchange is None else self.joined(exchange)

    def reply(self, exchange_id: str) -> Completion:
        """Return the Completion of an exchange in the ledger, by its id.

        Raises:
            ParameterError: There is none of this id.
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
        """Return the Completion of an exchange, with the parts that it continues."""
        whole = join_exchange(exchange, self.ledger)
        sent = None if whole is exchange else exchange.request
        runs = self.session.tool_record.runs_of(whole)
        return Completion(whole, runs, last_request=sent)


class Session:
    """The parts of one kernel; `context` gives a verb those that it works with.

    Attributes:
        session_id: Marks this kernel's exchanges in the ledger.
        conversations: By name; shared by magic, panel and Python.
        tool_record: Records tool calls.
        unrecorded: Keeps, in memory, the exchanges that are kept out of the ledger.
        unrecorded_tools: Keeps their tool calls.
        at_prompt: Asks at the prompt for consent to tool calls.
        consent: Asks through `at_prompt` and remembers what is always allowed.
        spending: The limit on tokens and cost; None if none was set.
        lock: Is held while settings and parts change.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.session_id = uuid4().hex
        self.conversations = Conversations(
            ask=lambda *args, **options: self.context().ask(*args, **options),
            run=lambda *args, **options: self.context().run_tools(*args, **options),
            stream=lambda request, origin: self.client.stream(
                request, origin=origin, watch=print_wait
            ),
            model=lambda: self.settings.model,
            info_of=self.info_of,
            ledger=lambda: self.ledger,
        )
        self.tool_record = ToolRecord(lambda: self.ledger)
        self.unrecorded = Ledger(MEMORY, session_id=self.session_id)
        self.unrecorded_tools = ToolRecord(lambda: self.unrecorded)
        self.at_prompt = AtPrompt()
        self.consent = Remembered(self.at_prompt)
        self.spending: SpendingLimit | None = None
        self.lock = RLock()
        self._answers: RecordingFile | None = None
        self._emulator: Emulator | None = None
        self._environment = Environment() if settings is None else None
        self._context = self._context_with(settings or Settings())

    def context(self) -> Context:
        """Return what a verb works with; a verb takes it once, at its start."""
        with self.lock:
            if self._environment is not None and self._environment.has_changed():
                self._use(*self._environment.adopted(self._context.settings))
            return self._context

    def change(self, settings: Settings) -> None:
        """Use other settings from the next verb on."""
        with self.lock:
            self._use(settings, self._context.problems)

    def _use(self, settings: Settings, problems: Mapping[str, SettingsError]) -> None:
        # The client is dropped, not closed: closing waits for the loop, and what runs
        # there may need this session's lock. Connections close when nothing uses them.
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
        """Return what the environment alone says, if this session follows it."""
        return Settings() if self._environment is None else read_env(os.environ)[0]

    def answers_of(self, settings: Settings) -> Answerer | None:
        """Return what finds the answers in the file of settings, as it is now."""
        path = settings.answers
        if path is None:
            return None
        with self.lock:
            if self._answers is None or self._answers.path != path:
                self._answers = RecordingFile(path)
            self._answers.refresh()
            return self._answers.find

    @property
    def newest_unrecorded(self) -> Exchange | None:
        """The newest exchange that was kept out of the ledger."""
        return self.unrecorded.last()

    def start_emulator(self, emulator: "Emulator | None" = None) -> "Emulator":
        """Start the emulator of this kernel, or the one given instead of it."""
        from svc_notebook.emulator.emulator import Emulator  # noqa: PLC0415 - at first use

        with self.lock:
            # Random, because a prompt that contains the key is refused.
            used = emulator or self._emulator or Emulator(keys=(token_hex(),))
            before, self._emulator = self._emulator, used.start()
        if before is not None and before is not used:
            before.close()
        return used

    def emulator_key(self) -> Key:
        """Return the key of this kernel's emulator, while it runs."""
        if self._emulator is None:
            raise MissingKeyError(
                "The emulator of this kernel is closed; `%svc use emulator` starts "
                "another, and `%svc use service` goes to SVC_BASE_URL."
            )
        return Key(self._emulator.api_key, source="the emulator")

    def close(self) -> None:
        """Close connections, ledger and emulator; the session can be used again.

        Without its emulator it goes where the environment says. At exit each part
        closes by itself, so this need not be called.
        """
        with self.lock:
            before, settings = self._context, self._context.settings
            if settings.is_emulated:
                for name in ("base_url", "endpoint", "is_emulated"):
                    settings = settings.reset(name, self.environment_settings())
            self._context = self._context_with(settings, before.problems)
            made = vars(before)
            clients = made.get("client"), made.get("unrecorded_client")
            parts = *clients, before.ledger, self._emulator
            self._emulator = None
        for part in parts:  # without the lock, which the loop may be waiting for
            if part is not None:
                part.close()

    # What the present context has, for callers that need only one thing of it.

    @property
    def settings(self) -> Settings:
        """The environment's present settings, with those that were set here."""
        return self.context().settings

    @property
    def ledger(self) -> Ledger:
        """The ledger that the settings name."""
        return self.context().ledger

    @property
    def client(self) -> "Client":
        """The client of the endpoint in use; an error if its settings are wrong."""
        return self.context().client

    def info_of(self, model: str) -> ModelInfo:
        """Return what is known of a model of the endpoint in use."""
        return self.settings.endpoint.info_of(model)

    def key(self) -> Key:
        """Return the key of the endpoint in use, or refuse."""
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
    given: dict[str, Any], *, run_tools: bool = True, context: Context | None = None
) -> RunTools | None:
    """Take tools and limits out of a verb's parameters; return what runs the tools.

    The parameters get the tools' definitions. None if nothing is run, because there are
    no functions or `run_tools` is False; the caller then gets the calls.
    """
    if given.get("tools") is None and given.keys().isdisjoint(LIMITS):
        return None
    permit = take_permit(given)
    given["tools"], toolbox = to_offer(given.get("tools"), run_tools=run_tools)
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
        before = _current[:]
        _current.clear()
    try:
        yield
    finally:
        with _lock:
            inside = _current[:]
            _current[:] = before
        for session in inside:
            session.close()


_DEFAULTS = Defaults(
    settings=lambda: current().settings,
    key=lambda _: current().emulator_key(),  # asked for at its address only
    sinks=lambda: (current().ledger,),
    answers=lambda settings: current().answers_of(settings),
    spending=lambda: current().spending,
    take_tools=take_tools,
)
"""What the public clients use for arguments that are left out: this kernel's."""


class AsyncClient(async_client.AsyncClient):  # noqa: D101 - below
    __doc__ = async_client.AsyncClient.__doc__

    def _defaults(self) -> Defaults:
        return _DEFAULTS


class Client(sync_client.Client):  # noqa: D101 - below
    __doc__ = sync_client.Client.__doc__

    def _defaults(self) -> Defaults:
        return _DEFAULTS

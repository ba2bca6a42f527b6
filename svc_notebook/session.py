"""The session: this kernel's settings, ledger, client, emulator and tools.

Each part is made when it is first needed and kept until its settings change.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from svc_notebook.client.aio import AsyncClient as AsyncClient  # noqa: PLC0414 - public
from svc_notebook.client.aio import Defaults, RunTools, set_defaults
from svc_notebook.client.attempts import say
from svc_notebook.client.exchange_record import Answerer
from svc_notebook.client.sync import Client as Client  # noqa: PLC0414 - public, too
from svc_notebook.completion import Completion
from svc_notebook.conversations.conversation import Conversations
from svc_notebook.conversations.seam import join
from svc_notebook.credentials import (
    Key,
    find_key,
    hold,
    key_mark,
    known_keys,
    refuse_key_form,
    release,
    unbound,
)
from svc_notebook.endpoint_file import FILE, read_endpoints
from svc_notebook.endpoints import SERVICE, Endpoint, forget_contexts
from svc_notebook.errors import (
    MissingKeyError,
    ParameterError,
    SettingsError,
    SvcError,
    warn,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.answers import Answers, find_answer
from svc_notebook.ledger.connect import MEMORY
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.catalogue import Model
from svc_notebook.service.checks import check_flag, shorten
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import (
    ADDRESS_IN_FILE,
    ENV_NAMES,
    Settings,
    env_values,
    is_from_outside,
    read_env,
    ways_on,
)
from svc_notebook.tools.permissions import (
    AtPrompt,
    Permit,
    Remembered,
    take_permit,
    to_offer,
    warn_of_denied,
)
from svc_notebook.tools.rounds import Send, ToolRecord, run_rounds
from svc_notebook.tools.toolbox import Toolbox

if TYPE_CHECKING:  # these load at first use
    from svc_notebook.client.spending import Cost, SpendingLimit
    from svc_notebook.emulator.server import Emulator


class Session:
    """The parts of one kernel.

    Attributes:
        session_id: Marks this kernel's exchanges in the ledger.
        conversations: By name; shared by magic, panel and Python.
        tool_record: Records tool calls.
        unrecorded_tools: Keeps tool calls of exchanges that are not recorded.
        at_prompt: Asks at the prompt for consent to tool calls.
        consent: Asks through `at_prompt` and remembers what is always allowed.
        spending: The limit on tokens and cost; None if none was set.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.session_id = uuid4().hex
        self.conversations = Conversations(
            ask=self.ask,
            run=self.run_tools,
            stream=lambda request, origin: self.client.stream(
                request, origin=origin, watch=say
            ),
            model=lambda: self.settings.model,
            context_of=self.context_of,
            ledger=lambda: self.ledger,
        )
        self.tool_record = ToolRecord(lambda: self.ledger)
        self._unrecorded = Ledger(MEMORY, session_id=self.session_id)
        self.unrecorded_tools = ToolRecord(lambda: self._unrecorded)
        self.at_prompt = AtPrompt()
        self.consent = Remembered(self.at_prompt)
        self.spending: SpendingLimit | None = None
        self._lock = RLock()
        self._ledger: Ledger | None = None
        self._answers: Answers | None = None
        self._clients: dict[bool, Client] = {}  # by whether they record
        self._emulator: Emulator | None = None
        self._is_following = settings is None
        self._settings = settings or Settings()
        self._problems: dict[str, SettingsError] = {}
        self._seen: object = None
        self._edited: Endpoint | None = None

    @property
    def settings(self) -> Settings:
        """The environment's present settings, with those that were set here."""
        with self._lock:
            seen = (env_values(os.environ), key_mark(os.environ))
            if self._is_following and seen != self._seen:
                self._seen = seen
                self._follow()
            return self._settings

    def models(self, *, wait_s: float = 0.0) -> tuple[Model, ...]:
        """Return the known models; in the background the server is asked for its list.

        `wait_s` is how long to wait for that, in seconds.
        """
        settings = self.settings
        if settings.endpoint.lists_models and settings.answers is None:
            with suppress(SvcError):  # what is wrong shows when a request is sent
                self.client.list_models(wait_s=wait_s)
        return settings.endpoint.known_models()

    def context_of(self, model: str) -> int:
        """Return the tokens that prompt and reply of a model share."""
        return self.settings.endpoint.context_of(model)

    @property
    def ledger(self) -> Ledger:
        """The ledger that the settings name."""
        with self._lock:
            settings = self.settings
            if self._ledger is None:
                self._ledger = Ledger(settings.ledger, session_id=self.session_id)
            return self._ledger

    @property
    def client(self) -> Client:
        """The client of the endpoint in use; an error if its settings are wrong."""
        return self.client_of(is_recorded=True)

    def client_of(self, *, is_recorded: bool) -> Client:
        """Return `client`, or one whose exchanges are not in the ledger."""
        with self._lock:
            settings = self.settings
            for name, problem in self._problems.items():
                is_elsewhere = name in {ENV_NAMES["base_url"], FILE, ADDRESS_IN_FILE}
                if not (settings.is_emulated and is_elsewhere):
                    named = "" if name == FILE else f"{name}: "
                    raise SettingsError(f"{named}{problem}")
            if is_recorded not in self._clients:
                ledger = self.ledger if is_recorded else self._unrecorded
                ledger.check()
                answers = self.answers
                self._clients[is_recorded] = Client(
                    settings,
                    key=self.key() if answers is None else None,
                    sinks=(ledger,),
                    answers=answers,
                )
            return self._clients[is_recorded]

    def ask(
        self,
        request: CompletionRequest,
        origin: Origin,
        *,
        answers: Answerer | None = None,
    ) -> Completion:
        """Send a request and return the reply, in one piece."""
        return self.client.complete(request, origin=origin, watch=say, answers=answers)

    def run_tools(
        self,
        request: CompletionRequest,
        origin: Origin,
        toolbox: Toolbox,
        permit: Permit,
        send: Send | None = None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Completion:
        """Send a request and run the tools that are called; return the last reply."""
        n_unasked = self.at_prompt.n_unasked
        completion = run_rounds(
            request,
            origin,
            toolbox=toolbox,
            send=send or self.ask,
            consent=permit.consent(self.consent),
            rounds=permit.rounds,
            keep=self.tool_record,
            hide=self.key_hider(),
            check_stop=check_stop,
        )
        if n_denied := self.at_prompt.n_unasked - n_unasked:
            warn_of_denied(n_denied)
        return completion

    def key(self, settings: Settings | None = None) -> Key:
        """Return the key of an endpoint, else of the one in use, or refuse."""
        settings = settings or self.settings
        key, known = self._key(settings), known_keys()
        key.others = tuple(each for each in known if each is not key)
        return key

    def _key(self, settings: Settings) -> Key:
        if not settings.is_emulated:
            return find_key(base_url=settings.base_url, endpoint=settings.endpoint)
        if self._emulator is None:
            raise MissingKeyError(
                "The emulator of this kernel is closed; `%svc use emulator` starts "
                "another, and `%svc use service` goes to SVC_BASE_URL."
            )
        return Key(self._emulator.api_key, source="the emulator")

    def key_hider(self) -> Callable[[str], str]:
        """Return a function that hides the key in a text."""
        with suppress(MissingKeyError):
            return self.key().redact
        for key in known_keys():  # the emulator is closed, or the key is elsewhere's
            key.others = known_keys()
            return key.redact
        return str

    @property
    def answers(self) -> Answerer | None:
        """Finds answers in the file that the settings name; None without one."""
        with self._lock:
            path = self.settings.answers
            if path is None:
                return None
            if self._answers is None or self._answers.path != path:
                self._answers = Answers(path)
            self._answers.refresh()
            return self._answers.find

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
        found = None
        if endpoint is not None:
            found = find_answer(self.ledger, request, endpoint=endpoint, origin=origin)
        if found is None and recorded is not None:
            found = recorded(request, origin)
        return found

    def is_reusing(self, reuse: object) -> bool:
        """Say whether the ledger may answer; None is what the settings say."""
        if reuse is None:
            return self.settings.reuse
        check_flag("reuse", reuse)
        return bool(reuse)

    @property
    def prices(self) -> Prices | None:
        """The price table that the settings name; None without one."""
        path = self.settings.prices or self.settings.endpoint.prices
        return None if path is None else Prices.from_file(path)

    @property
    def last(self) -> Completion | None:
        """The newest Completion of this kernel, partial ones included."""
        exchange, other = self.ledger.last(), self.newest_unrecorded
        if other and (not exchange or exchange.exchange_id < other.exchange_id):
            return Completion(other, self.unrecorded_tools.runs_of(other))
        return None if exchange is None else self.joined(exchange)

    @property
    def newest_unrecorded(self) -> Exchange | None:
        """The newest exchange that was kept out of the ledger."""
        return self._unrecorded.last()

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
        whole = join(exchange, self.ledger)
        sent = None if whole is exchange else exchange.request
        return Completion(whole, self.tool_record.runs_of(whole), last_request=sent)

    def use_emulator(self, emulator: "Emulator | None" = None) -> "Emulator":
        """Send requests to an emulator that lives as long as this kernel."""
        from svc_notebook.emulator.server import Emulator  # noqa: PLC0415 - at first use

        with self._lock:
            # Random, because a prompt that contains the key is refused.
            used = emulator or self._emulator or Emulator(keys=(token_hex(),))
            before, self._emulator = self._emulator, used.start()
            self._go_to(
                replace(SERVICE, name="emulator", base_url=used.base_url),
                source="use emulator",
                is_emulated=True,
            )
        if before is not None and before is not used:
            before.close()
        return used

    def use_service(self) -> None:
        """Send requests to the service that the environment names, if it has a key."""
        found = Settings.from_env()
        find_key(base_url=found.base_url, endpoint=found.endpoint)
        if found.base_url is None:
            raise SettingsError(f"No base address: SVC_BASE_URL is not set.{ways_on()}")
        self._go_to(found.endpoint, source=found.sources["base_url"])

    def use_endpoint(
        self, endpoint: Endpoint, *, source: str, key: Key | None = None
    ) -> None:
        """Send requests to another endpoint from now on, if it has a key.

        `key` is for its address; this process alone keeps it.
        """
        base_url = endpoint.base_url or ""
        now = self.settings.endpoint
        if source == _OF_ENDPOINT + now.name and now.base_url != base_url:
            release(now)  # the file has another address, and this takes it
        if key is not None:
            hold(key, base_url)
        else:
            find_key(base_url=base_url, endpoint=endpoint)
        self._go_to(endpoint, source=source)

    def _go_to(
        self, endpoint: Endpoint, *, source: str, is_emulated: bool = False
    ) -> None:
        """Use an endpoint, with its model if it names one; nothing learnt is kept."""
        forget_contexts(endpoint.base_url)
        with self._lock:
            found = self.settings
            if found.sources.get("model", "").startswith(_OF_ENDPOINT):
                said = read_env(os.environ)[0] if self._is_following else Settings()
                set_by = said.sources.get("model", "default")
                found = found.setting(set_by, model=said.model)
            if model := endpoint.default_model:
                found = found.setting(_OF_ENDPOINT + endpoint.name, model=model)
            given = {"base_url": endpoint.base_url, "endpoint": endpoint}
            self._renew(found.setting(source, is_emulated=is_emulated, **given))
        self.models()

    def use_model(self, model: str, *, source: str) -> None:
        """Use this model for requests that name none."""
        refuse_key_form(model, param="model")
        with self._lock:
            self._settings = self.settings.setting(source, model=model)

    def use_reuse(self, *, reuse: bool, source: str) -> None:
        """Set whether the ledger may answer where nothing else is said."""
        with self._lock:
            self._settings = self.settings.setting(source, reuse=reuse)

    def limit_spending(
        self, *, max_tokens_total: float | None = None, max_cost: float | None = None
    ) -> None:
        """Limit tokens, cost or both from now on: see `use`."""
        from svc_notebook.client.spending import SpendingLimit  # noqa: PLC0415 - at first use

        limit = self.spending or SpendingLimit()
        if max_tokens_total is not None:
            limit.limit("tokens", max_tokens_total)
        if max_cost is not None:
            limit.limit("cost", max_cost, cost_of=cost_of(self.prices))
        self.spending = limit

    def use_path(self, name: str, path: str | None, *, source: str) -> None:
        """Use this file as `ledger` or `prices`; None takes the environment's setting.

        If it is refused, the previous one stays in use.
        """
        path = None if path is None else checked_path(name, path)
        with self._lock:
            now = self.settings
            if path is not None:
                found = now.setting(source, **{name: path})
            else:
                said = read_env(os.environ)[0] if self._is_following else Settings()
                sources = {key: now.sources[key] for key in now.sources if key != name}
                if name in said.sources:
                    sources[name] = said.sources[name]
                value = getattr(said, name)
                found = replace(now, **{name: value}, sources=sources)
            if found.ledger == now.ledger:
                self._settings = found  # nothing open depends on it
            else:
                self._renew(found)

    def _follow(self) -> None:
        """Adopt the environment's settings, except for those that were set here."""
        found, self._problems = read_env(os.environ)
        sources = {
            name: source
            for name, source in self._settings.sources.items()
            if not is_from_outside(source)
        }
        values = {name: getattr(self._settings, name) for name in sources}
        chosen = values.get("endpoint", SERVICE)
        is_named = sources.get("endpoint") == _OF_ENDPOINT + chosen.name
        if is_named and FILE not in self._problems:  # the file may have changed
            chosen = self._still_at(chosen, read_endpoints().get(chosen.name, chosen))
            values |= {"endpoint": chosen, "base_url": chosen.base_url}
        found = replace(found, **values, sources={**found.sources, **sources})
        is_of_file = found.sources.get("base_url") == ADDRESS_IN_FILE
        if is_of_file and self._settings.base_url not in {None, found.base_url}:
            warn(f"Requests go to {found.base_url} now ({ADDRESS_IN_FILE}).")
        self._renew(found)

    def _still_at(self, now: Endpoint, edited: Endpoint) -> Endpoint:
        """Return an edited endpoint at its old address, with its old key; say so once.

        Prompts and a key go elsewhere only when that is chosen.
        """
        kept = replace(edited, **{name: getattr(now, name) for name in _REACHED_BY})
        if edited not in (kept, self._edited):
            warn(
                f"{FILE} has another address, key or proxy for {now.name} now. "
                f"Requests still go to {now.base_url} as before; to follow the "
                f"file, call svc.use(endpoint={now.name!r}) or `%svc use {now.name}`."
            )
        self._edited = edited
        return kept

    def _renew(self, settings: Settings) -> None:
        """Use these settings; the client and a changed ledger are made again."""
        # Dropped, not closed: closing waits for the loop, and what runs there may need
        # this session's lock. Its connections close when nothing uses it any more.
        self._clients = {}
        if self._ledger is not None and settings.ledger != self._settings.ledger:
            self._ledger.close()
            self._ledger = None
        self._settings = settings

    def close(self) -> None:
        """Close connections, ledger and emulator; the session can be used again.

        Without its emulator it goes where the environment says. At exit each part
        closes by itself, so this need not be called.
        """
        with self._lock:
            parts = *self._clients.values(), self._ledger, self._emulator
            self._ledger = self._emulator = None
            self._clients = {}
            if self._settings.is_emulated:
                now, gone = self._settings, {"base_url", "endpoint", "is_emulated"}
                sources = {k: now.sources[k] for k in now.sources if k not in gone}
                self._settings = replace(
                    now,
                    base_url=None,
                    endpoint=SERVICE,
                    is_emulated=False,
                    sources=sources,
                )
                self._seen = None  # the environment is read again
        for part in parts:  # without the lock, which the loop may be waiting for
            if part is not None:
                part.close()


def checked_path(name: str, path: str) -> str:
    """Return a path in full, of a ledger or a price table that can be read.

    Whether a ledger can be written shows before a request is sent.
    """
    path = path if path == MEMORY else str(Path(path).expanduser().absolute())
    if name == "prices":
        Prices.from_file(path)
    else:
        with Ledger(path) as ledger, ledger.opened():
            pass
    return path


def cost_of(prices: Prices | None) -> "Cost":
    """Return what computes costs by a price table, or refuse if there is none."""
    if prices is None:
        raise ParameterError(
            "max_cost needs a price table: svc.use(prices=FILE, max_cost=...). Without "
            "one, limit the tokens with max_tokens_total=.",
            param="max_cost",
        )
    return lambda model, prompt, completion: prices.cost(
        model, prompt_tokens=prompt, completion_tokens=completion
    )


_REACHED_BY = (
    *("base_url", "key_env", "needs_key", "is_users", "takes_env_key"),
    *("allow_http", "ca_file", "proxy"),
)
_OF_ENDPOINT = "endpoint "  # what set a model that goes with an endpoint
_lock = RLock()
_current: list[Session] = []


def take_tools(given: dict[str, Any], *, run_tools: bool = True) -> RunTools:
    """Take tools and limits out of a verb's parameters; return what runs the tools.

    The parameters get the tools' definitions. If the tools are not run, the caller gets
    the calls.
    """
    permit = take_permit(given)
    given["tools"], toolbox = to_offer(given.get("tools"), run_tools=run_tools)

    def run(
        request: CompletionRequest,
        origin: Origin,
        ask: Send,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Completion:
        if toolbox is None:
            return ask(request, origin)
        return current().run_tools(request, origin, toolbox, permit, ask, check_stop)

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
        with unbound():
            yield
    finally:
        with _lock:
            inside = _current[:]
            _current[:] = before
        for session in inside:
            session.close()


# A client that is given no address or ledger takes this kernel's.
set_defaults(
    Defaults(
        settings=lambda: current().settings,
        key=lambda settings: current().key(settings),
        sinks=lambda: (current().ledger,),
        spending=lambda: current().spending,
        take_tools=take_tools,
    )
)

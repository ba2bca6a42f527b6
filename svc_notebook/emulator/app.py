"""The emulated service: an HTTP request as a value in, a reply as a value out."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from . import language
from .access import DOCUMENTED, LIMITS, Keys, Quota
from .chat_request import ChatRequest
from .completion_writer import JSON, Choice, Head, Pace, cut_calls, cut_choice, deliver
from .http_values import Fault, Reply, Request, whole
from .rules import read_chat_request
from .script import Script, play
from .tool_calls import calls_for, results_text

# At the root, for people who open the address in a browser.
PAGE = """\
This is an emulator of a chat completion service, running on this machine only.

It answers POST /v1/chat/completions as the service's document says: it checks
keys, parameters and limits, and writes whole and streamed replies. Its texts are
ready-made sentences: no reply is a real answer, nothing leaves this machine, and
nothing is paid for. Every response carries the header x-svc-emulator: 1.
"""
PATH = "/v1/chat/completions"
_UNAUTHORIZED = 401
_NOT_ALLOWED = 405


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings of an emulated service, checked; see `Emulator`.

    `limits` maps model ids to requests in 1 s and in 60 s.
    """

    keys: Keys = field(default_factory=Keys)
    pace: Pace = field(default_factory=Pace)
    models: tuple[str, ...] = ()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=lambda: LIMITS)
    seed: int = 0
    clock: Callable[[], float]
    now: Callable[[], float]


class Service:
    """The service without sockets; may be used from several threads.

    It checks key, path, method, permission, body, model and limits, in this order; a
    refused request uses up no limit. The kth identical request since the start gets
    the kth sample, so two runs of a program read the same replies.

    Args:
        setup: Its settings.
        script: Answers that replace its own.
    """

    def __init__(self, setup: Setup, script: Script | None = None) -> None:
        self._setup = setup
        self._script = script or Script()
        self._quota = Quota(setup.limits, setup.clock)
        self._n_asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reply(self, request: Request) -> Reply:
        """Answer a request; never raises."""
        try:
            return self._answered(request)
        except Exception as error:  # noqa: BLE001 - the last resort
            return _refusal(_broken(error))

    def _answered(self, request: Request) -> Reply:
        if request.path == "/":
            return _front_page(request)
        chat = self._admitted(request)
        if isinstance(chat, Fault):
            allow = "POST" if chat.status == _NOT_ALLOWED else ""
            return _refusal(chat, allow)
        identity = chat.identity()
        with self._lock:
            entry = self._script.next_entry(chat)
            full = self._quota.take(chat.model) if entry is None else None
            nth = self._n_asked[identity]
            self._n_asked[identity] += full is None
        # The same in every run, another for every request.
        name = f"{self._setup.seed}/{nth}/{identity}"
        head = Head(
            id=f"cmpl-{hashlib.sha256(name.encode()).hexdigest()[:24]}",
            created=int(self._setup.now()),
            model=chat.model,
        )
        if entry is not None:
            return play(entry, chat, head)
        if full is not None:
            return _refusal(_too_many(full))
        return deliver(chat, head, self._choices(chat, nth), pace=self._setup.pace)

    def _admitted(self, request: Request) -> ChatRequest | Fault:
        fault = self._setup.keys.fault_of(request.headers)
        if fault is not None and fault.status == _UNAUTHORIZED:
            return fault
        fault = _misdirected(request) or fault
        if fault is not None:
            return fault
        chat = _read(request)
        known = (*DOCUMENTED, *self._setup.models)
        if isinstance(chat, ChatRequest) and chat.model not in known:
            return Fault(status=404, message="The model does not exist.")
        return chat

    def _choices(self, chat: ChatRequest, nth: int) -> list[Choice]:
        """Write the choices: calls of the tools that the prompt names, or texts."""
        if calls_for(chat):
            return [
                cut_calls(calls_for(chat, index), max_tokens=chat.max_tokens)
                for index in range(chat.n)
            ]
        results = results_text(chat)
        seeds = [
            chat.seed(emulator_seed=self._setup.seed, nth=nth, choice_index=index)
            for index in range(chat.n)
        ]
        return [
            cut_choice(
                language.write(chat, seed, results=results),
                max_tokens=chat.max_tokens,
                stop=chat.stop,
            )
            for seed in seeds
        ]


def _misdirected(request: Request) -> Fault | None:
    """Refuse everything except the one operation (doc: Endpoints)."""
    if request.path != PATH:
        return Fault(
            status=404, message=f"There is only one operation here: POST {PATH}."
        )
    if request.method != "POST":
        return Fault(status=_NOT_ALLOWED, message=f"Use POST for {PATH}.")
    return None


def _read(request: Request) -> ChatRequest | Fault:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        return Fault(status=400, message=f"Send the header Content-Type: {JSON}.")
    if request.body is None:
        return Fault(status=400, message="The request body is too long.")
    return read_chat_request(request.body)


def _too_many(window: str) -> Fault:
    """Refuse a request over a limit; no retry hint is shown (doc: Errors)."""
    return Fault(
        status=429, message=f"The rate limit {window} of this model is exceeded."
    )


def _broken(error: Exception) -> Fault:
    """Say that the emulator itself failed, in the document's shape (doc: Errors)."""
    return Fault(
        status=500,
        message=f"The emulator failed ({type(error).__name__}); check the clock and "
        "the script that it was started with.",
    )


def _refusal(fault: Fault, allow: str = "") -> Reply:
    """Send a fault; with a 405, HTTP requires the allowed methods."""
    reply = whole(fault.status, fault.to_bytes(), content_type=JSON)
    return replace(reply, headers={**reply.headers, "allow": allow}) if allow else reply


def _front_page(request: Request) -> Reply:
    if request.method not in ("GET", "HEAD"):
        fault = Fault(status=_NOT_ALLOWED, message="Only GET is answered here.")
        return _refusal(fault, "GET, HEAD")
    return whole(200, PAGE.encode(), content_type="text/plain; charset=utf-8")

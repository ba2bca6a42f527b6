"""The emulated service without sockets: turns request values into reply values."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

from . import explanation, filler
from .completion_writer import JSON, Choice, Head, Pace, cut_calls, cut_choice, deliver
from .emulated_calls import calls_for, tool_results
from .emulated_judge import judge_reply
from .emulated_keys import Keys, check_key, check_permission
from .emulated_labels import offered_label
from .emulated_rate_limits import LIMITS, Quota
from .emulated_tokens import split_tokens
from .http_values import (
    BY_HAND,
    DOCUMENTED,
    MADE_UP,
    MARK,
    NO_ANSWER,
    Reply,
    Request,
    RuleError,
    error_body,
    whole,
    write_json,
)
from .request_checks import ChatRequest, read_chat_request
from .script import Script, play, read_script

# At the root, for people who open the address in a browser.
PAGE = """\
This is an emulator of a chat completion service, running on this machine only.

It answers POST /v1/chat/completions as the service's document says: it checks
keys, parameters and limits, and writes whole and streamed replies. A few questions
have an answer that was written by hand; to all others it says that it cannot answer
them. Nothing leaves this machine, and nothing is paid for. Every response carries
the header x-svc-emulator.
"""
# A script with answers to the questions in this package's pages, help and buttons.
ANSWERS = Path(__file__).parent / "answers.json"
PATH = "/v1/chat/completions"
LIST_PATH = "/v1/models"  # not in the document
_NOT_ALLOWED = 405


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings of an emulated service, checked; see `Emulator`.

    `limits` maps model ids to requests in 1 s and in 60 s, `contexts` to the tokens
    that prompt and reply share. With `is_filler` all texts are made-up prose. Settings
    that differ from the document imitate other servers.
    """

    keys: Keys = field(default_factory=Keys)
    pace: Pace = field(default_factory=Pace)
    models: tuple[str, ...] = ()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=lambda: LIMITS)
    contexts: Mapping[str, int] = field(default_factory=dict)
    has_model_list: bool = False
    needs_key: bool = True
    is_filler: bool = False
    seed: int = 0
    clock: Callable[[], float]
    now: Callable[[], float]


class Service:
    """The service without sockets; may be used from several threads.

    It checks key, path, method, permission, body, model and limits, in this order; a
    refused request does not count for the limits. The k-th identical request since the
    start gets the k-th sample, so that a program gets the same replies in each run.
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
            return self._reply_to(request)
        except RuleError as rule_error:
            status, message = rule_error.status, str(rule_error)
        except Exception as error:  # noqa: BLE001 - the last resort
            status = 500
            message = (
                f"The emulator failed ({type(error).__name__}); check the clock and "
                "the script that it was started with."
            )
        reply = whole(status, error_body(status, message), content_type=JSON)
        if status != _NOT_ALLOWED:
            return reply
        is_read = request.path in {"/", LIST_PATH}
        allow = "GET, HEAD" if is_read else "POST"  # HTTP requires it
        return replace(reply, headers={**reply.headers, "allow": allow})

    def _reply_to(self, request: Request) -> Reply:
        if request.path == "/":
            if request.method not in ("GET", "HEAD"):
                raise RuleError("Only GET is answered here.", _NOT_ALLOWED)
            return whole(200, PAGE.encode(), content_type="text/plain; charset=utf-8")
        if self._setup.needs_key:
            check_key(request.headers, self._setup.keys)
        if request.path == LIST_PATH and self._setup.has_model_list:
            return self._model_list(request)
        chat = self._check(request)
        identity = chat.identity()
        with self._lock:
            entry = self._script.entry_for(chat)
            full_window = self._quota.take(chat.model) if entry is None else None
            nth = self._n_asked[identity]
            self._n_asked[identity] += full_window is None
        # the same in every run, but different for every request
        sample_id = f"{self._setup.seed}/{nth}/{identity}"
        head = Head(
            id=f"cmpl-{hashlib.sha256(sample_id.encode()).hexdigest()[:24]}",
            created=int(self._setup.now()),
            model=chat.model,
        )
        if entry is not None:
            return play(entry, chat, head)
        if full_window is not None:  # no retry hint is shown (doc: Errors)
            raise RuleError(
                f"The rate limit {full_window} of this model is exceeded.", 429
            )
        note, choices = self._choices(chat, nth)
        reply = deliver(chat, head, choices, pace=self._setup.pace)
        return replace(reply, headers={**reply.headers, MARK[0]: note})

    def _model_list(self, request: Request) -> Reply:
        """List the models, as other servers of this interface do."""
        if request.method not in ("GET", "HEAD"):
            raise RuleError("Only GET is answered here.", _NOT_ALLOWED)
        contexts = self._setup.contexts
        data = [
            {"id": model, "object": "model", "owned_by": "emulator"}
            | ({"max_model_len": contexts[model]} if model in contexts else {})
            for model in self._setup.models or DOCUMENTED
        ]
        body = write_json({"object": "list", "data": data})
        return whole(200, body, content_type=JSON)

    def _check(self, request: Request) -> ChatRequest:
        """Check everything but key and limits, in the order of `Service`."""
        if request.path != PATH:  # doc: Endpoints
            raise RuleError(f"There is only one operation here: POST {PATH}.", 404)
        if request.method != "POST":
            raise RuleError(f"Use POST for {PATH}.", _NOT_ALLOWED)
        check_permission(request.headers, self._setup.keys)
        chat = _read(request, self._setup.contexts)
        if chat.model not in (*DOCUMENTED, *self._setup.models):
            raise RuleError("The model does not exist.", 404)
        return chat

    def _choices(self, chat: ChatRequest, nth: int) -> tuple[str, list[Choice]]:
        """Return the choices, tool calls or texts, and the note on them."""
        if calls_for(chat):
            return MADE_UP, [
                cut_calls(calls_for(chat, index), max_tokens=chat.max_tokens)
                for index in range(chat.n)
            ]
        seeds = [
            chat.seed(emulator_seed=self._setup.seed, nth=nth, choice_index=index)
            for index in range(chat.n)
        ]
        note, texts = self._texts(chat, seeds)
        return note, [
            cut_choice(text, max_tokens=chat.max_tokens, stop=chat.stop)
            for text in texts
        ]

    def _texts(
        self, chat: ChatRequest, seeds: Sequence[int]
    ) -> tuple[str, list[Iterable[str]]]:
        """Return a text for each seed, as tokens, and the note on all of them."""
        if verdict := judge_reply(chat.question, "fair"):
            return MADE_UP, [split_tokens(verdict) for _ in seeds]
        results = tool_results(chat)
        labels = [] if results else [offered_label(chat, seed) for seed in seeds]
        if texts := [label for label in labels if label is not None]:
            return MADE_UP, [explanation.in_form(chat, text) for text in texts]
        # made-up text that goes on after a word begins a new one
        gap = [" "] if chat.begun[-1:].isalnum() else []
        if self._setup.is_filler:
            return MADE_UP, [
                chain(gap, filler.write(chat, x, results=results)) for x in seeds
            ]
        answer = None if results else _written_answer(chat)
        if answer is not None:
            return BY_HAND, [split_tokens(answer) for _ in seeds]
        return NO_ANSWER, [
            chain(gap, explanation.write(chat, x, results=results)) for x in seeds
        ]


@cache
def _answers() -> Script:
    return Script(read_script(ANSWERS))


def _written_answer(chat: ChatRequest) -> str | None:
    """Return the answer that was written by hand for this question, if any.

    A system message may ask for a form or language that these answers do not have.
    """
    if explanation.asks_for_form(chat.wishes[1]):
        return None
    # these entries can be used any number of times
    entry = _answers().entry_for(chat)
    return entry.text if entry and isinstance(entry.text, str) else None


def _read(request: Request, contexts: Mapping[str, int]) -> ChatRequest:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RuleError(f"Send the header Content-Type: {JSON}.")
    if request.body is None:
        raise RuleError("The request body is too long.")
    return read_chat_request(request.body, contexts)

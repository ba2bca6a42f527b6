"""The exchange: one request and everything that came back; and whether a reply is cut.

An exchange is the package's only record of a request, even of a failed one: frames, the
cache, resumed runs and restored conversations are read from it. It contains no key and
no header. It is never part of a reference cycle, so the garbage collector skips it
(gc=False), which halves the time to read many of them.
"""

import re
import secrets
import time
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from svc_notebook.service.chunk import Choice, CompletionBody, EstimatedUsage, Usage
from svc_notebook.service.request import CompletionRequest

OriginKind = Literal["magic", "panel", "sweep", "frame", "python"]
Status = Literal["ok", "error", "cancelled"]
UsageSource = Literal["reported", "estimated", "missing"]


def new_id() -> str:
    """Return a new id of 32 hexadecimal digits that sorts by its time.

    The layout is that of a version 7 UUID, with a fraction of the millisecond.
    """
    ms, ns = divmod(time.time_ns(), 1_000_000)
    fraction = ns * 4096 // 1_000_000
    return f"{ms:012x}7{fraction:03x}8{secrets.token_hex(8)[1:]}"


def new_run_id() -> str:
    """Return a new id for a run that has no name."""
    return f"run-{secrets.token_hex(6)}"


def is_run_id(run: str) -> bool:
    """Whether this is an id of `new_run_id`, not a name that a user gave."""
    return re.fullmatch(r"run-[0-9a-f]{12}", run) is not None


class Attached(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attachment in a prompt: its name, its kind and its position."""

    name: str
    kind: str
    start: int  # index in the prompt, of the line with the name
    end: int  # index after its last character


class ToolRound(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position of a request in the tool rounds of its trial.

    Attributes:
        n_rounds: Requests so far, this one included.
        n_tool_runs: Tool calls answered before it.
        is_last: Whether the rounds end with it, even if its reply calls tools.
    """

    n_rounds: int
    n_tool_runs: int
    is_last: bool = False


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which part of the package sent a request, and what the request belongs to.

    Attributes:
        kind: The part of the package; the column `origin` of frames.
        conversation: Name of the conversation, if any.
        turn_id: The turn of the conversation that the request is for.
        attached: The attachments in the newest prompt.
        continues: The exchange whose reply this one continues, if any.
        follows: The exchange before this one in the tool rounds, or in the tries for a
            typed answer, if any.
        run, request_key, repeat: The sweep's run; a hash of everything that is sent,
            equal for repeats; the number of the repeat.
        columns: The template columns of the row, for the frame of replies.
        answer: The type of the run's answers, as JSON.
        tool_round: The position in the tool rounds, if the sweep runs tools.
    """

    kind: OriginKind = "python"
    conversation: str | None = None
    turn_id: str | None = None
    attached: tuple[Attached, ...] = ()
    continues: str | None = None
    follows: str | None = None
    run: str | None = None
    request_key: str | None = None
    repeat: int | None = None
    columns: dict[str, Any] = {}
    answer: str | None = None
    tool_round: ToolRound | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why an exchange failed: our error, and what the service said.

    Attributes:
        type: Name of the error's class; `Cancelled` for an interrupt.
        message: The error's message.
        http_status: HTTP status, if there was an answer.
        code, param: The error body's fields, verbatim (doc: Error body).
    """

    type: str
    message: str = ""
    http_status: int | None = None
    code: str | None = None
    param: str | None = None


class Exchange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request and everything that came back.

    Attributes:
        exchange_id: Our own id, unique, sortable by time.
        endpoint: The base address.
        is_emulated: Whether the emulator answered.
        emulator_note: The emulator's note on its answer: "written by hand", "no
            answer", "made up", or the note of its script; None without one.
        is_reused: Whether the answer is a recorded one, from the ledger or a file.
        is_streamed: Whether a stream was requested.
        request: The request.
        body: The reply, partial after a failure; None if there is none.
        status: ok, error or cancelled.
        failure: What went wrong; None when ok.
        n_attempts, n_refused: Requests that were sent, and 429s among their answers. A
            run retries after a 429 with another exchange.
        n_chunks: Chunks of a stream; 0 for a reply in one piece.
        queue_s: Seconds spent waiting for our own rate limit; never part of latency_s.
        retry_wait_s: Seconds spent waiting between attempts.
        first_text_s: Seconds from sending the last attempt to the first text; None
            without text.
        latency_s: Seconds from sending the last attempt to the end.
        started_at, ended_at: Aware, UTC.
        est_prompt_tokens, est_completion_tokens: Best estimates, also where usage was
            reported.
        est_low_tokens, est_high_tokens: The interval of both together; None if it is
            unknown.
    """

    exchange_id: str
    origin: Origin
    endpoint: str
    is_emulated: bool = False
    emulator_note: str | None = None
    is_reused: bool = False
    is_streamed: bool = False
    request: CompletionRequest
    body: CompletionBody | None = None
    status: Status = "ok"
    failure: Failure | None = None
    n_attempts: int = 1
    n_refused: int = 0
    n_chunks: int = 0
    queue_s: float = 0.0
    retry_wait_s: float = 0.0
    first_text_s: float | None = None
    latency_s: float | None = None
    started_at: datetime
    ended_at: datetime
    est_prompt_tokens: int = 0
    est_completion_tokens: int = 0
    est_low_tokens: int | None = None
    est_high_tokens: int | None = None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices of the reply, even if it is partial."""
        return self.body.choices if self.body else ()

    @property
    def usage(self) -> Usage:
        """Tokens, reported by the service or estimated: see `usage_source`."""
        if self.body and self.body.usage:
            return self.body.usage
        return EstimatedUsage(
            prompt_tokens=self.est_prompt_tokens,
            completion_tokens=self.est_completion_tokens,
            total_tokens=self.est_prompt_tokens + self.est_completion_tokens,
        )

    @property
    def n_tokens(self) -> int:
        """Tokens of prompt and reply together, reported or estimated."""
        total = self.usage.total_tokens
        estimated = self.est_prompt_tokens + self.est_completion_tokens
        return estimated if total is None else total

    @property
    def usage_source(self) -> UsageSource:
        """Where the token counts of this exchange come from."""
        if self.body is None:
            return "missing"
        return "reported" if self.body.usage is not None else "estimated"

    @property
    def max_tokens(self) -> int | None:
        """The max_tokens in force: as sent, or the service's default (doc: Limits).

        None if another server was sent no number: its default is unknown.
        """
        return self.request.max_tokens


class Charge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reply was charged for: one request, or its rounds, tries and parts.

    Attributes:
        n_requests: Requests that were sent for the reply.
        prompt_tokens, completion_tokens: Their sums, reported or estimated. A request
            without an answer adds none. None if a server left a number out.
        source: estimated if any number is an estimate; missing if no request has one.
        low_tokens, high_tokens: The interval of all tokens; None if it is unknown.
        latency_s: The seconds of all requests; None if a time is unknown.
    """

    n_requests: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    source: UsageSource = "missing"
    low_tokens: int | None = 0
    high_tokens: int | None = 0
    latency_s: float | None = 0.0

    @classmethod
    def of(cls, exchange: Exchange) -> "Charge":
        """Return the charge of one request."""
        source, latency_s = exchange.usage_source, exchange.latency_s
        if source == "missing":
            return cls(n_requests=1, latency_s=latency_s)
        usage, n_tokens = exchange.usage, exchange.n_tokens
        is_exact = source == "reported"
        return cls(
            n_requests=1,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            source=source,
            low_tokens=n_tokens if is_exact else exchange.est_low_tokens,
            high_tokens=n_tokens if is_exact else exchange.est_high_tokens,
            latency_s=latency_s,
        )

    def __add__(self, other: "Charge") -> "Charge":
        """Return the charge of both together."""
        sums = add_up(self, other, _SUMMED)
        return Charge(**sums, source=min(self.source, other.source, key=_WEAKEST.index))


NO_CHARGE = Charge()
_SUMMED = tuple(name for name in Charge.__struct_fields__ if name != "source")
_WEAKEST = ("estimated", "reported", "missing")


def add_up(first: object, last: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Add up fields of two objects; a sum is None if one of its numbers is."""
    pairs = {name: (getattr(first, name), getattr(last, name)) for name in names}
    return {name: None if None in pair else sum(pair) for name, pair in pairs.items()}


CUT_REASONS = frozenset({"length"})
"""Finish reasons that mean cut; the document names only `stop`, a normal end."""


def is_cut(exchange: Exchange, choice: Choice) -> bool:
    """Say whether a choice was cut, by its finish reason or its token count."""
    return choice.finish_reason in CUT_REASONS or is_at_limit(exchange, choice)


_OTHER_CHUNKS = range(1, 4)
"""Chunks of a stream without text: the last one, and possibly role and usage."""


def is_at_limit(exchange: Exchange, choice: Choice) -> bool:
    """Say whether the reply has as many tokens as the max_tokens in force.

    The choice is then probably cut, although it ended with `stop`. Reported tokens are
    compared; without them, the chunks of a stream, which usually have one token each.
    Estimates say nothing. More chunks than allowed tokens mean that chunks are not
    tokens. If another server reports more tokens than allowed, it counts differently.
    """
    body = exchange.body  # not `choices`: frames call this very often
    if choice.finish_reason != "stop" or body is None or len(body.choices) != 1:
        return False
    usage, limit = body.usage, exchange.max_tokens
    if limit is None:  # without a known limit, `stop` means a normal end
        return False
    if usage is not None and usage.completion_tokens is not None:
        n_over = usage.completion_tokens - limit
        return n_over == 0 or (n_over > 0 and exchange.request.info.is_documented)
    return exchange.n_chunks - limit in _OTHER_CHUNKS


def is_empty(exchange: Exchange) -> bool:
    """Say whether every choice is without tool calls and without text but blanks."""
    return not any(
        choice.tool_calls or (choice.text or "").strip() for choice in exchange.choices
    )


class Sink(Protocol):
    """Receives every exchange once, when it has ended, even if it failed."""

    def add(self, exchange: Exchange) -> "Future[None] | None":
        """Store an exchange that has ended; return at once.

        Returns:
            A future that ends when the exchange is stored; None if it is stored
            already.
        """

"""Asking the trials of a run: what each answer or failure means for the rest.

What it is not: the order and the pace (see `lanes`). Rules: a failure is noted and
the run goes on, unless no further request could fare better; a reply that cannot
be kept ends the run, so that nobody pays for rows that nobody has.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.attempts import Waiting, Watch
from svc_notebook.client.rate_limit import Due
from svc_notebook.client.retry import QUEUED
from svc_notebook.errors import (
    AuthError,
    ConfigError,
    DocumentError,
    LedgerError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    SvcError,
    TransportError,
    UnknownModelError,
)
from svc_notebook.exchange import Exchange, Failure, OriginKind
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.chunk import Delta
from svc_notebook.service.fault import UNAUTHORIZED

from .grid import Trial
from .resume import TrialKey, origin_of
from .scheduler import Answered, Failed, Outcome, Refused, Stop

_OF_SERVICE = (
    TransportError,
    ServerFaultError,
    UnknownModelError,
    AuthError,
    DocumentError,
)


class Note(NamedTuple):
    """A failure that the ledger may not have."""

    failure: Failure
    model: str


Show = Callable[[Trial, Delta], None]
"""Told each piece of a reply as it comes; called on the loop's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks the trials of one run, on the loop it is awaited on.

    Attributes:
        run_id: Marks the exchanges.
        origin: Who asks.
        client: Asks; the ledger is its sink.
        ledger: Keeps what comes.
        notes: Where failures are noted, for rows that the ledger does not have.
        watch: Told about each wait of a request, if anybody is.
        show: Told each piece of a reply; replies are streamed if there is one.
        is_reusing: Whether the client looks for answers in the ledger first.
        is_paced: Whether requests wait for limits; not where a file answers them.
    """

    run_id: str
    origin: OriginKind = "sweep"
    client: AsyncClient
    ledger: Ledger
    notes: dict[TrialKey, Note] = field(default_factory=dict)
    watch: Watch | None = None
    show: Show | None = None
    is_reusing: bool = False
    is_paced: bool = True
    _theirs: list[Exception] = field(default_factory=list)

    def due(self, model: str) -> Due:
        """Say how long a request to a model would have to wait now, and for what."""
        return self.client.due(model) if self.is_paced else Due(0.0)

    async def ask(self, trial: Trial) -> Outcome:
        """Ask a trial and say what that means for the others."""
        show = self.show
        try:
            prepare = partial(
                self.client.prepare,
                trial.request,
                is_streamed=show is not None,
                origin=origin_of(trial, self.run_id, origin=self.origin),
                watch=self._tell,
                policy=QUEUED,
            )
            # the loop goes on while the ledger is read
            reads = asyncio.to_thread(prepare) if self.is_reusing else None
            asking = prepare() if reads is None else await reads
            exchange = await asking.run(
                lambda delta: None if show is None else show(trial, delta)
            )
        except SvcError as error:
            return self._failed(trial, error)
        finally:
            self._raise_theirs()
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        self.notes.pop(trial.key, None)
        return Answered(n_tokens=_n_tokens(exchange))

    def _tell(self, waiting: Waiting) -> None:
        try:
            if self.watch is not None:
                self.watch(waiting)
        except Exception as problem:  # noqa: BLE001 - the reply comes first
            self._theirs.append(problem)

    def _raise_theirs(self) -> None:
        """Raise what a caller's own function raised, by its own name."""
        if self._theirs:
            raise self._theirs[0]

    def _failed(self, trial: Trial, error: SvcError) -> Outcome:
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        if is_vain(error):
            return Stop(error)
        self.notes[trial.key] = Note(to_failure(error), trial.model)
        if isinstance(error, RateLimitError):
            return Refused(error)
        return Failed(error=error, is_of_service=isinstance(error, _OF_SERVICE))


def to_failure(error: SvcError) -> Failure:
    """Return an error as a row shows it."""
    return Failure(
        type=type(error).__name__,
        message=str(error),
        http_status=getattr(error, "status", None),
        code=getattr(error, "code", None),
        param=getattr(error, "param", None),
    )


def is_vain(error: SvcError) -> bool:
    """Say whether no further request can fare better than this one."""
    if isinstance(error, AuthError):
        return error.status == UNAUTHORIZED
    return isinstance(error, (ConfigError, LedgerError))


def _n_tokens(exchange: Exchange) -> int:
    usage = exchange.body.usage if exchange.body else None
    if usage is not None and usage.total_tokens is not None:
        return usage.total_tokens
    return exchange.est_prompt_tokens + exchange.est_completion_tokens


def check_threshold(confirm_above: object) -> None:
    """Refuse what is no number of requests.

    Raises:
        ParameterError: It is none.
    """
    is_number = isinstance(confirm_above, int) and not isinstance(confirm_above, bool)
    if confirm_above is not None and not (is_number and confirm_above >= 0):  # type: ignore[operator]  # just tested
        raise ParameterError(
            f"confirm_above={confirm_above!r} is no number of requests; give one of at "
            "least 0, or None to be asked never.",
            param="confirm_above",
        )


def confirmed(question: str) -> bool:
    """Ask whoever sits there, and say whether they agree.

    Raises:
        ParameterError: Nobody can answer; nothing was sent.
    """
    try:
        answer = input(f"{question} [y/N] ")
    except (EOFError, NotImplementedError):  # IPython's refusal is one of the latter
        pass
    else:
        return answer.strip().lower() in {"y", "yes"}
    raise ParameterError(
        f"{question} Nobody can answer here, so nothing was sent; plan it with a "
        "larger confirm_above, or None.",
        param="confirm_above",
    )

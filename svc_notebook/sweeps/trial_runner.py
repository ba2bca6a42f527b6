"""Sends one trial of a run and says what its outcome means for the others.

A failure is recorded and the run continues, unless no further request could succeed.
A reply that cannot be kept ends the run, so that no further reply is paid for and lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from svc_notebook.client.attempts import RequestPath, Waiting, Watch
from svc_notebook.client.exchange_record import to_failure
from svc_notebook.client.rate_limit import RateLimiter
from svc_notebook.client.retry import QUEUED
from svc_notebook.errors import (
    AuthError,
    ConfigError,
    DocumentError,
    LedgerError,
    RateLimitError,
    ServerFaultError,
    SvcError,
    TransportError,
    UnknownModelError,
)
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.chunk import Delta
from svc_notebook.service.fault import UNAUTHORIZED

from .grid import RunPlan, Trial
from .resume import TrialFailure, TrialKey
from .scheduler import Answered, Failed, Outcome, Refused, Stop

_OF_SERVICE = (
    TransportError,
    ServerFaultError,
    UnknownModelError,
    AuthError,
    DocumentError,
)

Show = Callable[[Trial, Delta], None]
"""Called with each piece of a reply as it arrives, on the loop's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRunner:
    """Sends the trials of one run, on the loop it is awaited on.

    Attributes:
        client: Sends; the ledger is its sink.
        failures: Why trials failed; added to, for rows that the ledger does not have.
        watch: Called before each wait of a request.
        show: Called with each piece of a reply; replies are streamed if it is given.
        is_paced: Whether requests wait for limits; not where a file answers them.
    """

    plan: RunPlan
    client: RequestPath
    ledger: Ledger
    failures: dict[TrialKey, TrialFailure] = field(default_factory=dict)
    watch: Watch | None = None
    show: Show | None = None
    is_paced: bool = True
    _problems: list[Exception] = field(default_factory=list)

    def limiter(self, model: str) -> RateLimiter | None:
        """Return what decides when a request to a model may go; None to go at once."""
        return self.client.limiter(model) if self.is_paced else None

    async def ask(self, trial: Trial) -> Outcome:
        """Send a trial and return its outcome."""
        show = self.show
        try:
            task = await self.client.begin_on_loop(
                trial.request,
                is_streamed=show is not None,
                origin=self.plan.origin_of(trial),
                watch=self._watched,
                policy=QUEUED,
            )
            exchange = await task.run(
                lambda delta: None if show is None else show(trial, delta)
            )
        except SvcError as error:
            return self._failed(trial, error)
        finally:
            if self._problems:  # what the caller's own `watch` raised, unchanged
                raise self._problems[0]
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        self.failures.pop(trial.key, None)
        return Answered(n_tokens=_n_tokens(exchange))

    def _watched(self, waiting: Waiting) -> None:
        try:
            if self.watch is not None:
                self.watch(waiting)
        except Exception as problem:  # noqa: BLE001 - the reply comes first
            self._problems.append(problem)

    def _failed(self, trial: Trial, error: SvcError) -> Outcome:
        if (problem := self.ledger.problem) is not None:
            return Stop(problem)
        is_key_invalid = isinstance(error, AuthError) and error.status == UNAUTHORIZED
        if is_key_invalid or isinstance(error, (ConfigError, LedgerError)):
            return Stop(error)
        self.failures[trial.key] = TrialFailure(to_failure(error), trial.model)
        if isinstance(error, RateLimitError):
            return Refused(error)
        return Failed(error=error, is_of_service=isinstance(error, _OF_SERVICE))


def _n_tokens(exchange: Exchange) -> int:
    usage = exchange.body.usage if exchange.body else None
    if usage is not None and usage.total_tokens is not None:
        return usage.total_tokens
    return exchange.est_prompt_tokens + exchange.est_completion_tokens

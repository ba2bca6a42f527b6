"""What the ledger has of a run's trials, and which of them are still to be sent.

A trial that failed counts as settled, because sending it again is the user's choice.
One that was interrupted or refused, for a rate limit, its key or its model, does not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from svc_notebook.completion import cut_mark
from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Failure
from svc_notebook.ledger.reply_columns import Reply, RowStatus, to_replies
from svc_notebook.service.fault import UNAUTHORIZED
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings
from svc_notebook.tokens import more_room

from .dimensions import FACTORS, short
from .grid import Grid, RunPlan, request_key_of, value_of

TrialKey = tuple[str, int]


class TrialFailure(NamedTuple):
    """Why a trial has no reply; the ledger may have no exchange that says it."""

    failure: Failure
    model: str


def key_of(exchange: Exchange) -> TrialKey:
    """Return the key of the trial that an exchange belongs to."""
    return exchange.origin.request_key or "", exchange.origin.repeat or 0


def by_trial(exchanges: Iterable[Exchange]) -> dict[TrialKey, Exchange]:
    """Return each trial's newest good exchange, or else its newest.

    The exchanges are of one run, oldest first.
    """
    found: dict[TrialKey, Exchange] = {}
    for exchange in exchanges:
        key = key_of(exchange)
        before = found.get(key)
        if before is None or before.status != "ok" or exchange.status == "ok":
            found[key] = exchange
    return found


def reply_rows(
    plan: RunPlan,
    found: Mapping[TrialKey, Exchange],
    failures: Mapping[TrialKey, TrialFailure],
    *,
    is_begun: bool,
) -> Iterator[Reply]:
    """Return the rows of all trials: their choices, or why they have no reply."""
    missing: RowStatus = "not_run" if is_begun else "planned"
    for number, (key, columns) in enumerate(plan.grid.places()):
        exchange = found.get(key)
        if exchange is None:
            trial, failed = plan.grid[number], failures.get(key)
            yield Reply(
                request=trial.request,
                origin=replace(plan.origin_of(trial), columns=columns),
                status="error" if failed else missing,
                failure=failed.failure if failed else None,
                est_prompt_tokens=trial.prompt_tokens.best,
            )
            continue
        yield from to_replies(exchange, columns)


Mark = Literal["ok", "error", "refused", "open", "cancelled"]
"""`refused` is an error that the same request would get again (400), `open` one that
`run` sends again: of a rate limit, of the key or of the model."""


class TrialStatus(NamedTuple):
    """How a trial that was sent has ended, and what to do if its reply was cut."""

    mark: Mark
    model: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of each trial that was sent, and the first good exchange."""

    trials: Mapping[TrialKey, TrialStatus] = field(default_factory=dict)
    first: Exchange | None = None

    def counts(self, n_trials: int) -> Counter[str]:
        """Return how many of all trials ended how; the others are `not_run`."""
        counts = Counter[str](each.mark for each in self.trials.values())
        counts["error"] += counts.pop("refused", 0) + counts.pop("open", 0)
        counts["not_run"] = n_trials - counts.total()
        return counts

    def cut_note(self) -> str:
        """Say how many replies were cut and what to pass; "" if none was."""
        remedies = Counter(each.remedy for each in self.trials.values() if each.remedy)
        if not remedies:
            return ""
        ((remedy, _),) = remedies.most_common(1)
        verb = "was" if remedies.total() == 1 else "were"
        return f"{remedies.total()} of {self.count('ok')} replies {verb} cut. {remedy}."

    def count(self, mark: Mark) -> int:
        """Return how many trials ended so."""
        return sum(each.mark == mark for each in self.trials.values())

    def settled(
        self, *, is_retried: bool = False, include_refused: bool = False
    ) -> Mapping[TrialKey, str]:
        """Return the trials that are not sent again, each with its model."""
        open_marks: set[Mark] = {"cancelled", "open"}
        if is_retried:
            open_marks |= {"error", "refused"} if include_refused else {"error"}
        return {
            key: each.model
            for key, each in self.trials.items()
            if each.mark not in open_marks
        }

    def with_failures(self, failures: Mapping[TrialKey, TrialFailure]) -> "RunStatus":
        """Add trials that failed before anything was sent."""
        if not failures:
            return self
        unsent = {
            key: TrialStatus(_mark_of(each.failure), each.model)
            for key, each in failures.items()
        }
        return RunStatus({**unsent, **self.trials}, self.first)


def status_of(exchanges: Iterable[Exchange]) -> RunStatus:
    """Return the status of a run from its exchanges, oldest first."""
    trials: dict[TrialKey, TrialStatus] = {}
    first = None
    for exchange in exchanges:
        if first is None and exchange.status == "ok":
            first = exchange
        key = key_of(exchange)
        before = trials.get(key)
        if before is None or before.mark != "ok":
            is_cut = exchange.status == "ok" and bool(cut_mark(exchange))
            remedy = more_room(exchange.request) if is_cut else ""
            failure = exchange.failure if exchange.status == "error" else None
            mark = _mark_of(failure) if failure else exchange.status
            trials[key] = TrialStatus(mark, exchange.request.model, remedy)
    return RunStatus(trials, first)


def _mark_of(failure: Failure) -> Mark:
    is_limit = failure.type == "RateLimitError"
    is_key = failure.type == "AuthError" and failure.http_status == UNAUTHORIZED
    if is_limit or is_key or failure.type == "UnknownModelError":
        return "open"
    return "refused" if failure.type == "BadRequestError" else "error"


def check_endpoint(first: Exchange | None, settings: Settings, *, n_todo: int) -> None:
    """Raise SettingsError if the rest of a run would go to another address.

    An emulator is the same wherever it serves: its address changes.
    """
    if first is None or (first.is_emulated and settings.is_emulated):
        return
    if first.endpoint != settings.base_url:
        raise SettingsError(
            f"This run began at {first.endpoint} and {n_todo} of its requests are "
            f"missing, but requests now go to {settings.base_url}. That would mix the "
            "replies of two services, so nothing was sent. Switch back to the first "
            "address (SVC_BASE_URL, or use(...)), or plan the sweep under another "
            "name. replies_df() shows the replies so far."
        )


def strays_of(
    plan: RunPlan,
    sent: Mapping[TrialKey, TrialStatus],
    read: Callable[..., Iterable[Exchange]],
) -> frozenset[TrialKey]:
    """Return which of the trials `sent` under this name are not in the plan.

    Those with replies are refused: a trial without one binds nothing, and rows may be
    left out of a frame. `read` reads the run's exchanges.
    """
    has_reply = {key: each.mark == "ok" for key, each in sent.items()}
    for key, _ in plan.grid.places() if has_reply else ():
        has_reply.pop(key, None)
    if any(has_reply.values()) and len(plan.grid):
        strays = {
            key_of(each): each
            for each in read(texts=True)
            if has_reply.get(key_of(each)) and not _is_other_row(plan, each)
        }
        if strays:
            raise ParameterError(
                f"The run {plan.name!r} already has {len(strays)} requests that are "
                f"not in this plan: {_difference(plan.grid, strays.values())}. Nothing "
                "was sent. Choose another name, or plan all requests of the run; a "
                "plan may add more.",
                param="name",
            )
    return frozenset(has_reply)


def _is_other_row(plan: RunPlan, exchange: Exchange) -> bool:
    """Return whether an exchange is of a frame's run, for a row that is left out."""
    if plan.origin != "frame":
        return False
    templates = [next(plan.grid.values_of(name), None) for name in ("prompt", "system")]
    key = request_key_of(exchange.request, templates=templates)
    first, other = (
        request_key_of(replace(each, messages=()))
        for each in (plan.grid[0].request, exchange.request)
    )
    return first == other and (exchange.origin.request_key or "").startswith(key)


_SHOWN = 4


def _difference(grid: Grid, strays: Iterable[Exchange]) -> str:
    """Return the values in these exchanges that the grid does not have."""
    mine = {pair for each in grid for pair in _values(each.request, each.repeat)}
    theirs: dict[str, dict[str, None]] = {}
    for stray in strays:
        for name, value in _values(stray.request, stray.origin.repeat or 0):
            if (name, value) not in mine:
                theirs.setdefault(name, {})[value] = None
    if not theirs:
        return "other combinations of the same values"
    return "; ".join(
        f"{name} {', '.join(list(values)[:_SHOWN])}"
        + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
        for name, values in theirs.items()
    )


def _values(request: CompletionRequest, repeat: int) -> Iterator[tuple[str, str]]:
    yield "repeat", str(repeat)
    for name in FACTORS:
        value = value_of(request, name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        yield name, "not sent" if value in (None, ()) else short(value)

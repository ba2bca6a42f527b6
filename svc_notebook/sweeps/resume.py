"""Where a run stands: what the ledger has of its trials, and what is still missing.

Rules: pure; a trial that failed is not missing, since asking it again is the user's
choice; one that was interrupted, refused for a limit or for a bad key is; exchanges
of other grids or other places are never taken for this one's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Failure, Origin, OriginKind
from svc_notebook.ledger.reply_columns import Reply, RowStatus, to_replies
from svc_notebook.service.fault import UNAUTHORIZED
from svc_notebook.settings import Settings

from .dimensions import ASKED, short
from .grid import Grid, Trial

TrialKey = tuple[str, int]


def origin_of(trial: Trial, run_id: str, *, origin: OriginKind = "sweep") -> Origin:
    """Return who asks, for the exchange of a trial."""
    return Origin(
        kind=origin,
        run=run_id,
        request_key=trial.request_key,
        repeat=trial.repeat,
        columns=trial.columns,
    )


def key_of(exchange: Exchange) -> TrialKey:
    """Return which trial an exchange is of."""
    return exchange.origin.request_key or "", exchange.origin.repeat or 0


def by_trial(exchanges: Iterable[Exchange]) -> dict[TrialKey, Exchange]:
    """Return the exchange that stands for each trial.

    That is the newest good one, or else the newest.

    Args:
        exchanges: Of one run, oldest first.
    """
    found: dict[TrialKey, Exchange] = {}
    for exchange in exchanges:
        key = key_of(exchange)
        before = found.get(key)
        if before is None or before.status != "ok" or exchange.status == "ok":
            found[key] = exchange
    return found


def plan_rows(
    grid: Grid, run_id: str, *, origin: OriginKind = "sweep"
) -> Iterator[Reply]:
    """Return a row a trial, as planned."""
    for trial in grid:
        columns = grid.source_columns(trial)
        yield _bare(trial, run_id, "planned", columns=columns, origin=origin)


def reply_rows(
    grid: Grid,
    found: Mapping[TrialKey, Exchange],
    *,
    run_id: str,
    failures: Mapping[TrialKey, Failure],
    is_begun: bool,
    origin: OriginKind = "sweep",
) -> Iterator[Reply]:
    """Return the rows of all trials: their choices, or why there are none.

    Args:
        grid: In the order of the plan.
        found: The exchange of each trial that has one.
        run_id: For rows without an exchange.
        failures: Of trials that failed before anything was sent.
        is_begun: Whether the run has begun, so that what is missing is not_run.
        origin: Who asks, likewise.
    """
    missing: RowStatus = "not_run" if is_begun else "planned"
    for trial in grid:
        exchange, failure = found.get(trial.key), failures.get(trial.key)
        columns = grid.source_columns(trial)
        if exchange is not None:
            yield from _with_columns(exchange, columns)
        else:
            status = missing if failure is None else "error"
            yield _bare(
                trial,
                run_id,
                status,
                failure=failure,
                columns=columns,
                origin=origin,
            )


def _with_columns(exchange: Exchange, columns: dict[str, Any]) -> Iterator[Reply]:
    for reply in to_replies(exchange):
        yield (
            replace(reply, origin=replace(reply.origin, columns=columns))
            if columns
            else reply
        )


def _bare(
    trial: Trial,
    run_id: str,
    status: RowStatus,
    *,
    columns: dict[str, Any],
    origin: OriginKind,
    failure: Failure | None = None,
) -> Reply:
    return Reply(
        request=trial.request,
        origin=replace(origin_of(trial, run_id, origin=origin), columns=columns),
        status=status,
        failure=failure,
        est_prompt_tokens=trial.est_prompt_tokens,
    )


_SHOWN = 4
Mark = Literal["ok", "error", "cancelled", "missing"]


class Known(NamedTuple):
    """What is known of a trial that was asked."""

    mark: Mark
    model: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a run, trial by trial.

    Attributes:
        known: What became of each trial that was asked.
        place: Where the first of them was asked; None if none was.
    """

    known: Mapping[TrialKey, Known] = field(default_factory=dict)
    place: "Place | None" = None

    @property
    def counts(self) -> Counter[str]:
        """How many trials of each mark there are."""
        return Counter(each.mark for each in self.known.values())

    def settled(self, *, is_retried: bool = False) -> Mapping[TrialKey, str]:
        """Return the trials that are not asked again, each with its model.

        Args:
            is_retried: Whether those that failed are asked again.
        """
        settled = {"ok"} if is_retried else {"ok", "error"}
        return {
            key: each.model for key, each in self.known.items() if each.mark in settled
        }

    def noting(self, notes: Mapping[TrialKey, Known]) -> "Standing":
        """Return what is known with what failed before anything was sent."""
        return Standing({**notes, **self.known}, self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where requests go: an address, or an emulator, whose address changes."""

    endpoint: str
    is_emulated: bool = False

    def is_other(self, settings: Settings) -> bool:
        """Say whether the settings lead somewhere else."""
        if self.is_emulated and settings.is_emulated:
            return False
        return settings.base_url != self.endpoint


def standing_of(exchanges: Iterable[Exchange]) -> Standing:
    """Read where a run stands.

    Args:
        exchanges: Of the run, oldest first; their texts are not looked at.
    """
    known: dict[TrialKey, Known] = {}
    place = None
    for exchange in exchanges:
        place = place or Place(
            endpoint=exchange.endpoint, is_emulated=exchange.is_emulated
        )
        key = key_of(exchange)
        before = known.get(key)
        if before is None or before.mark != "ok":
            known[key] = Known(_mark(exchange), exchange.request.model)
    return Standing(known, place)


def check_place(place: Place | None, settings: Settings, *, n_todo: int) -> None:
    """Refuse to ask the rest of a run somewhere else.

    Args:
        place: Where it was begun; None if nowhere.
        settings: Where requests go now.
        n_todo: How many requests are missing.

    Raises:
        SettingsError: It was begun at another address.
    """
    if place is not None and place.is_other(settings):
        raise SettingsError(
            f"This run was begun at {place.endpoint}, {n_todo} of its requests are "
            f"missing, and requests now go to {settings.base_url}: its replies would "
            "be mixed. Nothing was sent. Go back to that address (SVC_BASE_URL, or "
            "use(...)), or plan the sweep under another name. What it has can be "
            "read: replies_df()."
        )


def check_same_grid(grid: Grid, name: str, exchanges: Iterable[Exchange]) -> None:
    """Refuse a grid that lacks what a run of this name has asked.

    Args:
        grid: Planned now; it may have more trials than were asked.
        name: Of the run.
        exchanges: What was asked under it.

    Raises:
        ParameterError: Some of it is not in the grid; what differs is named.
    """
    asked = {key_of(exchange): exchange for exchange in exchanges}
    if not asked:
        return
    for trial in grid:
        asked.pop(trial.key, None)
    if not asked:
        return
    raise ParameterError(
        f"A run called {name!r} asked {len(asked)} requests that this grid has not: "
        f"{_difference(grid, list(asked.values()))}. Nothing was sent. Give another "
        "name, or the same grid, or a larger one that holds it.",
        param="name",
    )


def _mark(exchange: Exchange) -> Mark:
    failure = exchange.failure
    if exchange.status != "error" or failure is None:
        return exchange.status
    is_refused = failure.type == "RateLimitError"
    is_key = failure.type == "AuthError" and failure.http_status == UNAUTHORIZED
    return "missing" if is_refused or is_key else "error"


def _difference(grid: Grid, strays: list[Exchange]) -> str:
    """Say which values were asked that the grid has not."""
    mine: dict[str, set[str]] = {}
    for trial in grid:
        for name, value in _values(trial.request, trial.repeat):
            mine.setdefault(name, set()).add(value)
    theirs: dict[str, dict[str, None]] = {}
    for stray in strays:
        for name, value in _values(stray.request, stray.origin.repeat or 0):
            if value not in mine.get(name, ()):
                theirs.setdefault(name, {})[value] = None
    if not theirs:
        return "other combinations of the same values"
    return "; ".join(
        f"{name} {', '.join(list(values)[:_SHOWN])}"
        + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
        for name, values in theirs.items()
    )


def _values(request: object, repeat: int) -> Iterable[tuple[str, str]]:
    params = getattr(request, "params", {})
    yield "repeat", str(repeat)
    for name in ASKED:
        value = params.get(name) if name in params else getattr(request, name, None)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        yield name, "not sent" if value in (None, ()) else short(value)

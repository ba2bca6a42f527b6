"""Runs that the ledger has: a list of them, a run rebuilt, and the rows of replies.

A plan is kept once for each run, with all of its rows; replies find their row by the
key of their trial. A run from before plans were kept has replies only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, NamedTuple

import pandas as pd
from msgspec.structs import replace

from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Exchange, OriginKind
from svc_notebook.ledger.columns import Column
from svc_notebook.ledger.frames import to_frame
from svc_notebook.ledger.prices import Prices, cost_of
from svc_notebook.ledger.row import KeptPlan, Scope
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.checks import check_text, did_you_mean, must_be
from svc_notebook.session import Session, current

from .dimensions import kept_manifest, read_manifest
from .plan import grid_of, plan
from .resume import TrialKey, key_of, status_of
from .run import Run


class StoredRun(NamedTuple):
    """A run of the ledger, and how it ended: a row of `runs_df`."""

    run: str
    name: str | None
    origin: OriginKind
    started_at: datetime
    ended_at: datetime
    n_trials: int | None
    n_ok: int
    n_failed: int
    models: str
    endpoint: str
    is_emulated: bool
    cost: float | None


RUNS = (
    Column("run", "string", "run", "id; the column `run` of replies"),
    Column("name", "string", "name", "as given; missing without one"),
    Column("origin", "string", "origin", "the part of the package that asked"),
    Column("started_at", "datetime64[us, UTC]", "started_at", "of the first request"),
    Column("ended_at", "datetime64[us, UTC]", "ended_at", "of the last request"),
    Column("n_trials", "Int64", "n_trials", "requests of the plan, if it was kept"),
    Column("n_ok", "Int64", "n_ok", "trials with a reply"),
    Column("n_failed", "Int64", "n_failed", "trials that failed"),
    Column("models", "string", "models", "that were asked"),
    Column("endpoint", "string", "endpoint", "address of the first request"),
    Column("is_emulated", "boolean", "is_emulated", "whether an emulator answered"),
    Column("cost", "Float64", "cost", "by your price table; missing if unknown"),
)
"""The columns of `runs_df`."""


def runs_df(
    ledger: Ledger,
    *,
    scope: Scope = "all",
    since: date | str | None = None,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """List the runs in a ledger: see `svc.runs_df`."""
    found: dict[str, list[Exchange]] = {}
    for exchange in ledger.read(scope=scope, since=since, texts=False):
        if exchange.origin.run is not None:
            found.setdefault(exchange.origin.run, []).append(exchange)
    kept = {each.run: each for each in ledger.plans(is_whole=False)}
    rows = (_stored(each, kept.get(run), prices) for run, each in found.items())
    return to_frame(sorted(rows, key=lambda each: each.started_at), RUNS)


def _stored(
    exchanges: Sequence[Exchange], kept: KeptPlan | None, prices: Prices | None
) -> StoredRun:
    first = min(exchanges, key=lambda each: each.started_at)
    counts = status_of(exchanges).counts(0)
    costs = [] if prices is None else [cost_of(each, prices) for each in exchanges]
    amounts = [each.amount for each in costs if each is not None]
    return StoredRun(
        run=first.origin.run or "",
        name=kept.name if kept else None,
        origin=first.origin.kind,
        started_at=first.started_at,
        ended_at=max(each.ended_at for each in exchanges),
        n_trials=kept.n_trials if kept else None,
        n_ok=counts["ok"],
        n_failed=counts["error"],
        models=", ".join(dict.fromkeys(each.request.model for each in exchanges)),
        endpoint=first.endpoint,
        is_emulated=first.is_emulated,
        cost=sum(amounts) if amounts else None,
    )


def stored_run(
    session: Session,
    name: str,
    *,
    confirm_above: int | None = None,
    reuse: bool | None = None,
) -> Run:
    """Rebuild a run from the session's ledger: see `svc.run`."""
    if not isinstance(name, str):
        raise must_be("name", "a text: the name of a run, or its id", name)
    ledger, name = session.ledger, check_text(name, param="name")
    if not (kept := ledger.plans(name)):
        raise _not_kept(ledger, name)
    manifest = kept_manifest(kept[-1])
    return plan(
        session,
        manifest=manifest,
        name=name,
        origin=manifest["origin"],
        confirm_above=confirm_above,
        reuse=reuse,
    )


def _not_kept(ledger: Ledger, name: str) -> ParameterError:
    if ledger.stamp(name) != (0, ""):
        return ParameterError(
            f"The run {name!r} was sent by an older version, which did not keep its "
            f"plan. svc.replies_df(run={name!r}, scope='all') has its replies; to "
            "continue it, plan the same sweep under this name.",
            param="name",
        )
    known = [each.run for each in ledger.plans(is_whole=False)]
    return ParameterError(
        f"The ledger {ledger.path} has no run {name!r}.{did_you_mean(name, known)} "
        "svc.runs_df() lists its runs.",
        param="name",
    )


def with_rows(ledger: Ledger, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
    """Give exchanges of runs the columns that their trials have in the run's frame."""
    found: dict[str, Mapping[TrialKey, dict[str, Any]]] = {}
    for each in exchanges:
        if (run := each.origin.run) is not None:
            if run not in found:
                found[run] = _places(ledger, run)
            if (columns := found[run].get(key_of(each))) is not None:
                yield replace(each, origin=replace(each.origin, columns=columns))
                continue
        yield each


def _places(ledger: Ledger, run: str) -> Mapping[TrialKey, dict[str, Any]]:
    places: dict[TrialKey, dict[str, Any]] = {}
    endpoint = current().settings.endpoint
    for kept in ledger.plans(run):  # a newer plan has the newer rows
        with suppress(SvcError):  # the plan of a newer version
            places |= grid_of(read_manifest(kept_manifest(kept)), endpoint).places()
    return places

"""Stored runs: lists them, rebuilds one, and adds the columns of its rows to replies.

The ledger stores the plan of a run once, with all its rows. The key of a trial says
which row its reply is for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, NamedTuple

import pandas as pd
from msgspec.structs import replace

from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Exchange, OriginKind
from svc_notebook.ledger.exchange_rows import KeptPlan, Scope
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.prices import Prices, total_cost
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.ledger.reply_frames import to_frame
from svc_notebook.service.params import check_text, did_you_mean, must_be
from svc_notebook.session import Session

from .plan import grid_of, stored_manifest
from .resume import TrialKey, key_of, status_of
from .run import Run, plan_run


class StoredRun(NamedTuple):
    """A run in the ledger and its outcome: a row of `runs_df`."""

    run: str
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
    Column("run", "string", "run", "name of the run, or the id of one without a name"),
    Column("origin", "string", "origin", "the part of the package that asked"),
    Column(
        "started_at",
        "datetime64[us, UTC]",
        "started_at",
        "start of the first request, to the second",
    ),
    Column("ended_at", "datetime64[us, UTC]", "ended_at", "end of the last request"),
    Column("n_trials", "Int64", "n_trials", "requests of the plan, if it was stored"),
    Column("n_ok", "Int64", "n_ok", "trials with a reply"),
    Column("n_failed", "Int64", "n_failed", "trials that failed"),
    Column("models", "string", "models", "models that were asked"),
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
    by_run: dict[str, list[Exchange]] = {}
    for exchange in ledger.read(scope=scope, since=since, texts=False):
        if exchange.origin.run is not None:
            by_run.setdefault(exchange.origin.run, []).append(exchange)
    plans = {plan.run: plan for plan in ledger.plans(is_whole=False)}
    rows = (
        _stored_run_of(exchanges, plans.get(run), prices)
        for run, exchanges in by_run.items()
    )
    return to_frame(sorted(rows, key=lambda row: row.started_at), RUNS)


def _stored_run_of(
    exchanges: Sequence[Exchange], plan: KeptPlan | None, prices: Prices | None
) -> StoredRun:
    first = min(exchanges, key=lambda exchange: exchange.started_at)
    counts = status_of(exchanges).counts(0)
    return StoredRun(
        run=first.origin.run or "",
        origin=first.origin.kind,
        started_at=first.started_at.replace(microsecond=0),
        ended_at=max(row.ended_at for row in exchanges).replace(microsecond=0),
        n_trials=plan.n_trials if plan else None,
        n_ok=counts["ok"],
        n_failed=counts["error"],
        models=", ".join(dict.fromkeys(row.request.model for row in exchanges)),
        endpoint=first.endpoint,
        is_emulated=first.is_emulated,
        cost=None if prices is None else total_cost(exchanges, prices),
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
    if not (plans := ledger.plans(name)):
        known = [plan.run for plan in ledger.plans(is_whole=False)]
        raise ParameterError(
            f"The ledger {ledger.path} has no run {name!r}.{did_you_mean(name, known)} "
            "svc.runs_df() lists its runs.",
            param="name",
        )
    manifest = stored_manifest(plans[-1])
    return plan_run(
        session,
        manifest=manifest,
        name=name,
        origin=manifest.origin,
        confirm_above=confirm_above,
        reuse=manifest.is_reusing or None if reuse is None else reuse,
    )


def with_rows(
    endpoint: Endpoint, ledger: Ledger, exchanges: Iterable[Exchange]
) -> Iterator[Exchange]:
    """Give exchanges of runs the columns that their trials have in the run's frame.

    `endpoint` is the endpoint in use.
    """
    columns_of: dict[str, Mapping[TrialKey, dict[str, Any]]] = {}
    for exchange in exchanges:
        if (run := exchange.origin.run) is not None:
            if run not in columns_of:
                columns_of[run] = _places(ledger, run, endpoint)
            if (columns := columns_of[run].get(key_of(exchange))) is not None:
                origin = replace(exchange.origin, columns=columns)
                yield replace(exchange, origin=origin)
                continue
        yield exchange


def _places(
    ledger: Ledger, run: str, endpoint: Endpoint
) -> Mapping[TrialKey, dict[str, Any]]:
    """Return the columns of each trial of a run."""
    places: dict[TrialKey, dict[str, Any]] = {}
    for plan in ledger.plans(run):  # the newest plan is last, and overrides the others
        with suppress(SvcError):  # for example, if the files of the rows have changed
            places |= grid_of(stored_manifest(plan), endpoint).places()
    return places

"""Runs can be read and continued from the ledger alone."""

import json
import os
import sqlite3
from datetime import date
from functools import partial
from pathlib import Path
from zlib import decompress

import pandas as pd
import pytest
from msgspec import structs

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import SERVICE
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.deletion import forget, preview, select
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.stored_runs import runs_df, stored_run, with_rows

from .conftest import OpenSession

pytestmark = pytest.mark.slow

MODEL = "svc-v1.5-instruct"
ROWS = pd.DataFrame(
    {
        "text": ["a", "b", "c"],
        "label": pd.Categorical(
            ["ham", "spam", "ham"], categories=["ham", "spam", "none"]
        ),
        "n_words": pd.array([1, None, 3], dtype="Int64"),
    },
    index=pd.Index(["x", "y", "z"], name="id"),
)


def request() -> CompletionRequest:
    """Return a request that is of no run."""
    return build_request("Hi", model=MODEL)


def ended(session: Session, name: str | None = "r", rows: object = ROWS) -> None:
    """Run a small sweep with columns that the prompt does not use."""
    plan_run(session, "{{text}}", rows=rows, name=name, model=MODEL, max_tokens=3).run()


def test_a_run_is_rebuilt_from_the_ledger(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """Its frames are the same after a restart, dtypes and index included."""
    first = plan_run(
        open_session(emulator),
        {"p": "{{text}}", "q": "Say {{text}}"},
        rows=ROWS,
        name="r",
        model=MODEL,
        repeats=2,
        where=lambda c: c["label"] == "ham",
        temperature=[0, None],
    ).run()

    again = stored_run(open_session(emulator), "r")

    assert again.n_todo == 0
    assert (again.seed, again.name) == (first.seed, "r")
    pd.testing.assert_frame_equal(again.replies_df(), first.replies_df())
    pd.testing.assert_frame_equal(again.summary_df(), first.summary_df())
    assert again.compare().column_names == first.compare().column_names
    assert again.manifest["rows"] == first.manifest["rows"]


def test_what_is_missing_of_a_stored_run_is_sent(session: Session) -> None:
    """A run without a name is found by its id, and continues as any other."""
    first = plan_run(session, ["a", "b", "c"], model=MODEL).run()
    _, newest = first.replies_df()["exchange_id"].tolist()[1:]
    forget(session.ledger.path, select(exchange=newest))

    again = stored_run(session, first.run_id)

    assert again.n_todo == 1
    assert again.run().replies_df()["status"].tolist() == ["ok"] * 3


def test_a_frame_s_run_keeps_the_columns_of_rows_left_out_later(
    session: Session,
) -> None:
    """Replies to rows that the newest plan lacks have those of the older plan."""
    for rows in (ROWS, ROWS.iloc[1:].assign(label=["late", "new"])):
        plan_run(
            session, "{{text}}", rows=rows, name="r", model=MODEL, origin="frame"
        ).run()

    found = replies_df(session.ledger, joined=partial(with_rows, SERVICE))

    labels = dict(zip(found["prompt"], found["label"], strict=True))
    assert labels == {"a": "ham", "b": "late", "c": "new"}
    assert stored_run(session, "r").origin == "frame"


def test_a_key_in_a_column_is_not_kept(session: Session) -> None:
    """A column that no prompt uses is kept with `[key]` in its place."""
    secret = os.environ["SVC_API_KEY"]
    ended(session, rows=[{"text": "a", "x": f"It is {secret}."}])

    (kept,) = session.ledger.plans("r")

    assert secret.encode() not in decompress(kept.manifest)
    assert b"It is [key]." in decompress(kept.manifest)


def test_values_that_json_lacks_stop_no_run(session: Session) -> None:
    """They are kept as texts, and missing ones stay missing."""
    odd = [{"text": "a", "x": {1: object}, "y": "\ud800", "z": float("nan")}]
    ended(session, rows=odd)

    (row,) = stored_run(session, "r").manifest["rows"]

    assert (row["text"], row["y"], row["z"]) == ("a", "?", None)
    assert json.dumps(row)


def test_runs_are_listed_with_how_they_ended(session: Session) -> None:
    """One row for each run in the ledger, with counts, models and times."""
    ended(session)
    plan_run(session, "Hi", model=["svc-v2-8b-instruct", MODEL], repeats=2).run()
    session.client.complete(request())

    found = runs_df(session.ledger)

    assert found["run"][0] == "r"
    assert found["run"][1].startswith("run-")
    assert found["models"].tolist() == [MODEL, f"svc-v2-8b-instruct, {MODEL}"]
    assert found[["n_trials", "n_ok", "n_failed"]].to_numpy().tolist() == [
        [3, 3, 0],
        [4, 4, 0],
    ]
    assert found["is_emulated"].all()
    assert (found["started_at"] <= found["ended_at"]).all()
    assert (found["started_at"].dt.microsecond == 0).all()
    pd.testing.assert_series_equal(found.dtypes, runs_df(session.ledger)[:0].dtypes)


def test_costs_of_runs_are_those_of_the_price_table(session: Session) -> None:
    """The emulator's answers cost nothing, so their cost is unknown."""
    ended(session)
    price = Price(prompt=1.0, completion=2.0)
    prices = Prices(
        models={MODEL: price}, currency="THB", as_of=date(2026, 1, 1), source="mine"
    )

    assert runs_df(session.ledger, prices=prices)["cost"].isna().all()


def test_a_run_with_an_unknown_cost_has_no_cost(session: Session) -> None:
    """The sum would leave a model out that the price table does not have."""
    ended(session)
    for exchange in tuple(session.ledger.read(scope="all")):
        paid = structs.replace(exchange, is_emulated=False)
        session.ledger.add(structs.replace(paid, exchange_id=f"{paid.exchange_id}p"))
    price = Price(prompt=1.0, completion=2.0)
    known, other = (
        Prices(
            models={model: price}, currency="THB", as_of=date(2026, 1, 1), source="mine"
        )
        for model in (MODEL, "other")
    )

    assert (runs_df(session.ledger, prices=known)["cost"] > 0).any()
    assert runs_df(session.ledger, prices=other)["cost"].isna().all()


def test_a_run_that_is_not_there_is_refused_with_near_names(session: Session) -> None:
    """The message has a name that is like it, and the list of all."""
    ended(session, name="labels-1")

    with pytest.raises(ParameterError, match=r"Did you mean labels-1\?.*runs_df"):
        stored_run(session, "labels-2")


def test_a_forgotten_run_leaves_no_rows(session: Session, tmp_path: Path) -> None:
    """Forgetting one exchange says that its row stays with the run's plan."""
    ended(session)
    place = session.ledger.path
    first = next(session.ledger.read(run="r")).exchange_id

    assert "--run r" in preview(place, select(exchange=first))
    forget(place, select(run="r"))

    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM manifests").fetchone() == (0,)
    connection.close()

"""What can be read of a run: summary, comparison, manifest, prices."""

import json
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.session import Session
from svc_notebook.svc_use import use_path
from svc_notebook.sweeps.run import plan_run
from tests.sweeps.world import priced_run

SMALL = "svc-v2-8b-instruct"
LARGE = "svc-v2-70b-instruct"
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
ROWS = pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"], "at": [1.5, None]})


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that refuses b once, and answers the rest in one way."""
    script: list[dict[str, Any]] = [
        {"when": {"contains": "b"}, "status": 400, "error": {"message": "No b."}},
        {"text": "<b>Hi</b>", "usage": USAGE, "times": None},
    ]
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=script
    ) as running:
        yield running


def _swept(session: Session) -> Any:  # noqa: ANN401 - a run
    return plan_run(session, "{{text}}", rows=ROWS, model=[SMALL, LARGE], repeats=2)


@pytest.mark.slow
def test_prices_are_rehearsed_on_the_emulator(session: Session) -> None:
    """A run of the emulator has the costs that the service's would have."""
    price = {"prompt": 100.0, "completion": 200.0}
    prices = {"as_of": "2026-01-31", "currency": "USD", "models": {SMALL: price}}
    run = _swept(session).run()
    replies = run.replies_df()
    replies = replies[(replies["model"] == SMALL) & (replies["status"] == "ok")]
    cost = replies["prompt_tokens"] * 1e-4 + replies["completion_tokens"] * 2e-4

    free = run.summary_df()["cost_per_reply"]
    rehearsed = run.summary_df(prices=prices, include_emulated=True)["cost_per_reply"]

    assert free.isna().all()
    assert rehearsed.isna().tolist() == [False, True]
    assert rehearsed[0] == pytest.approx(cost.mean())
    with pytest.raises(ParameterError, match="needs a price table"):
        run.summary_df(include_emulated=True)


@pytest.mark.slow
def test_a_score_is_drawn_against_rehearsed_costs(session: Session) -> None:
    """A chart counts the emulator's replies as paid only if it is asked to."""
    models = {name: Price(prompt=100.0, completion=200.0) for name in (SMALL, LARGE)}
    prices = Prices(
        models=models, currency="USD", as_of=date(2026, 1, 31), source="mine"
    )
    run = priced_run(session, prices, ["a", "c", "d"], model=[SMALL, LARGE]).run()

    chart = run.plot("completion_tokens", against="cost", include_emulated=True)

    assert "cost" in chart.text
    with pytest.raises(ParameterError, match="include_emulated=True"):
        run.plot("completion_tokens", against="cost")
    with pytest.raises(ParameterError, match="must be True or False"):
        run.plot("completion_tokens", include_emulated="no")  # type: ignore[arg-type]  # wrong


@pytest.mark.slow
def test_the_comparison_is_escaped_and_capped(session: Session) -> None:
    """What a model wrote is text in the table, and long texts are cut and counted."""
    long = "x" * 5000
    run = plan_run(session, [long, "short"], model=[SMALL, LARGE]).run()

    table = run.compare("prompt", columns=["model"])
    html = table._repr_mimebundle_()["text/html"]

    assert "<b>Hi</b>" not in html
    assert "&lt;b&gt;Hi&lt;/b&gt;" in html
    assert "more characters" in html
    assert len(html) < 10_000


def test_refuses_unknown_names_in_a_comparison(session: Session) -> None:
    """Rows and columns are columns of replies."""
    with pytest.raises(ParameterError, match="Did you mean model"):
        plan_run(session, "p").compare(columns="modle")


@pytest.mark.slow
def test_the_manifest_repeats_the_run(session: Session, emulator: Emulator) -> None:
    """It is JSON, holds the grid, seed, limits, versions and counts, and no key."""
    run = _swept(session).run()

    manifest = json.loads(json.dumps(run.manifest))

    assert manifest["counts"] == {"ok": 7, "error": 1, "not_run": 0}
    assert manifest["rows"][0] == {"text": "a", "label": "x", "at": 1.5}
    assert manifest["seed"] == run.plan.seed
    assert manifest["fixed"] == {"prompt": "{{text}}"}
    assert manifest["dimensions"][1]["points"] == [{"model": SMALL}, {"model": LARGE}]
    assert manifest["limits"][SMALL] == {
        "per_second": 5,
        "per_minute": 50,
        "in_flight": None,
    }
    assert manifest["found_limits"] == {SMALL: None, LARGE: None}
    assert manifest["endpoint"] == emulator.base_url
    assert emulator.api_key not in json.dumps(manifest)


@pytest.mark.slow
def test_the_manifest_says_who_answered_and_when(session: Session) -> None:
    """It marks the emulator and has the times of the first and the last exchange."""
    run = _swept(session)
    before = run.manifest
    frame = run.run().replies_df()

    names = ("is_emulated", "started_at", "ended_at")
    assert [before[name] for name in names] == [None, None, None]
    assert [run.manifest[name] for name in names[:1]] == [True]
    assert [datetime.fromisoformat(run.manifest[name]) for name in names[1:]] == [
        frame["started_at"].min(),
        frame["ended_at"].max(),
    ]


@pytest.mark.slow
def test_a_manifest_plans_the_run_again(session: Session) -> None:
    """From its JSON the same requests are planned, in the same order."""
    run = plan_run(
        session,
        "{{tone}}: {{text}}",
        rows=ROWS,
        conditions=[{"model": SMALL, "tone": "dry"}, {"model": LARGE, "tone": "warm"}],
        system=["x", None],
        tied=["rows", "max_tokens"],
        max_tokens=[5, 6],
        stop=["a", "b"],
        where=lambda each: each["system"] == "x" or each["tone"] == "dry",
        repeats=2,
        seed=7,
    )

    again = plan_run(session, manifest=json.loads(json.dumps(run.manifest)))

    names = ["request_key", "repeat", "model", "system", "prompt", "max_tokens"]
    assert again.plan_df()[names].equals(run.plan_df()[names])
    assert (len(again), again.plan.seed) == (12, 7)


@pytest.mark.slow
def test_rows_of_a_manifest_keep_their_dtypes(session: Session) -> None:
    """Dates, categories and numbers are what they were, also through JSON."""
    rows = pd.DataFrame(
        {
            "day": pd.to_datetime(pd.Series(["2026-01-01", None]), utc=True),
            "kind": pd.Series(["a", "b"], dtype="category"),
            "is_new": [True, False],
            "size": [0.5, 1.5],
            "n_seen": pd.array([1, None], dtype="Int64"),
            "name": pd.array(["x", None], dtype="string"),
        }
    )
    run = plan_run(session, "{{kind}} {{size}} {{is_new}}", rows=rows)

    again = plan_run(session, manifest=json.loads(json.dumps(run.manifest)))

    names = ["request_key", "prompt", *rows.columns[:-1], "var_name"]
    names = [name for name in names if name in run.plan_df()]
    pd.testing.assert_frame_equal(again.plan_df()[names], run.plan_df()[names])
    assert len(names) >= 7


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"manifest": {}}, "run.manifest returned"),
        ({"manifest": "{}"}, "manifest is str; give the dict"),
        ({"prompt": "p"}, "give only name"),
    ],
)
def test_refuses_what_is_no_manifest(
    session: Session, changes: dict[str, Any], remedy: str
) -> None:
    """Something else, or another grid beside it, is refused with what to give."""
    given = {"manifest": plan_run(session, "Hi").manifest, **changes}

    with pytest.raises(ParameterError, match=remedy):
        plan_run(session, **given)


@pytest.mark.slow
def test_a_price_table_that_is_set_later_counts(
    session: Session, tmp_path: Path
) -> None:
    """A run whose plan had none has that of the session, in all that it shows."""
    run = plan_run(session, "Hi", model=SMALL, temperature=[0, 1], name="greet")
    assert "by your prices" not in repr(run)
    table = tmp_path / "mine.toml"
    table.write_text(
        'as_of = 2026-01-31\ncurrency = "USD"\n'
        f'[models."{SMALL}"]\nprompt = 1000000\ncompletion = 1000000\n'
    )
    use_path(session, "prices", str(table), source="use")

    assert "by your prices (mine.toml" in repr(run)
    run.run()
    assert run.prices is not None
    assert run.manifest["prices"]["currency"] == "USD"
    summary = run.summary_df(include_emulated=True)
    assert (summary["cost_per_reply"] > 0).all()
    assert (run.usage_df(include_emulated=True)["cost"] > 0).all()
    [page] = run.report(tmp_path / "report.md")[:1]
    assert "Prices: mine.toml, USD" in page.read_text()
    use_path(session, "prices", None, source="use")
    assert "there is no price table" in run.report(page)[0].read_text()


def test_prices_give_an_interval_before_and_costs_after(session: Session) -> None:
    """With a price table the plan says between what, and the frame what it was."""
    table = {SMALL: Price(prompt=1_000_000.0, completion=2_000_000.0)}
    prices = Prices(
        models=table, currency="USD", as_of=date(2026, 1, 31), source="mine"
    )
    run = priced_run(session, prices, "Hi", max_tokens=10)

    words = run._repr_mimebundle_()["text/plain"]

    assert "2 to 29 USD, by your prices (mine, 2026-01-31)" in words
    assert run.manifest["prices"]["currency"] == "USD"
    assert run.run().replies_df()["cost"].isna().all()  # the emulator costs nothing


def test_the_manifest_writes_what_json_has_not_as_text(session: Session) -> None:
    """Instants, and what else JSON has no value for, are text."""
    rows = pd.DataFrame(
        {"text": ["a"], "at": pd.to_datetime(["2026-01-31"]), "of": [{1}]}
    )

    manifest = plan_run(session, "{{text}}", rows=rows).manifest

    assert json.loads(json.dumps(manifest))["rows"] == [
        {"text": "a", "at": "2026-01-31 00:00:00", "of": [1]}
    ]


@pytest.mark.slow
def test_one_reply_is_returned_with_its_request(session: Session) -> None:
    """Conditions or an id find one reply, which writes its request as code."""
    run = _swept(session).run()

    found = run.reply(text="a", model=LARGE, repeat=1)

    assert (found.text, found.model) == ("<b>Hi</b>", LARGE)
    assert found.request.messages[0].content == "a"
    assert LARGE in found.as_python()
    assert LARGE in found.as_curl()
    assert run.reply(found.exchange.exchange_id) == found


def test_a_failed_request_is_returned_with_its_reason(session: Session) -> None:
    """What failed can be looked at, too: its display says why."""
    run = plan_run(session, "b", model=LARGE).run()

    assert "No b." in run.reply()._repr_mimebundle_()["text/html"]


@pytest.mark.slow
def test_several_replies_are_not_returned(session: Session) -> None:
    """The error says what still varies, or what to leave out."""
    run = _swept(session).run()

    with pytest.raises(
        ParameterError, match=r"4 replies match.*model is .*; repeat is"
    ):
        run.reply(row=0)
    with pytest.raises(ParameterError, match="leave out row"):
        run.reply("an-id", row=0)
    with pytest.raises(ParameterError, match="has no exchange 'an-id'"):
        run.reply("an-id")


@pytest.mark.slow
def test_a_run_decides_as_its_frame_does(session: Session) -> None:
    """The methods of a run are the functions of its frame."""
    rows = pd.DataFrame({"text": list("acdef")})
    run = plan_run(session, "{{text}}", rows=rows, model=[SMALL, LARGE]).run()

    frame = run.replies_df()

    expected = svc.contrast_df(frame, "model", on="completion_tokens")
    found = run.contrast_df("model", on="completion_tokens")
    pd.testing.assert_frame_equal(found, expected)
    pd.testing.assert_frame_equal(run.summary_df(), svc.summary_df(frame))
    needed = svc.how_many(2, pilot=run, on="latency_s")
    assert needed.n_prompts >= 3
    assert run.how_many(2, "model", on="latency_s") == needed

"""What a plan takes, estimated before and while it runs: tokens, cost, duration."""

from dataclasses import replace
from datetime import date
from random import Random
from statistics import fmean

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.client.request_pipeline import RequestPipeline
from svc_notebook.display.number_words import cost_in_words
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.service.catalogue import limit_of
from svc_notebook.session import Session
from svc_notebook.sweeps.estimate import (
    Seen,
    Speed,
    estimate_of,
    forecast,
    total_of,
)
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.plan_description import duration_lines
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.scheduler import most_in_flight
from tests.sweeps.world import priced_run

MODEL, OTHER = "svc-v1.5-instruct", "svc-v2-8b-instruct"
ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(100)]})
PRICES = Prices(
    models={MODEL: Price(prompt=1.0, completion=2.0)},
    currency="THB",
    as_of=date(2026, 1, 1),
    source="mine",
)


@pytest.mark.parametrize(
    ("model", "n_requests", "expected"),
    [
        (OTHER, 5, []),
        (OTHER, 6, ["about 1 s until", "per-second limit of svc-v2-8b-instruct"]),
        (OTHER, 50, ["about 10 s until", "per-second limit of svc-v2-8b-instruct"]),
        (OTHER, 51, ["about 60 s until", "per-minute limit of svc-v2-8b-instruct"]),
        (
            OTHER,
            200,
            ["about 3 min 10 s until", "per-minute limit of svc-v2-8b-instruct"],
        ),
        ("svc-v1.5-instruct", 150, ["about 8 s until", "per-second limit"]),
        ("svc-instruct", 1000, ["unknown for svc-instruct"]),
    ],
)
def test_knows_what_the_limits_make_of_it(
    model: str, n_requests: int, expected: list[str]
) -> None:
    """The documented limits say when the last goes; no limit is invented."""
    grid = build_grid("p", varied={"model": model}, repeats=n_requests)

    [line] = duration_lines(forecast(grid.n_by_model)) or [""]

    assert [words for words in expected if words not in line] == []
    assert bool(line) is bool(expected)


def test_a_plan_counts_what_was_just_asked(session: Session) -> None:
    """What this kernel sent in the last minute delays a plan, as its limiter knows."""
    before = repr(plan_run(session, "p", repeats=30))
    limiter = RequestPipeline(session.settings, key=session.key()).limiter(OTHER)
    for _ in range(43):
        limiter.reserve()

    after = repr(plan_run(session, "p", repeats=30))

    assert "about 5 s until the last request is sent" in before
    assert "per-minute limit of svc-v2-8b-instruct" in " ".join(after.split())


@given(
    n_rows=st.integers(300, 700),
    n_prompts=st.integers(1, 3),
    limits=st.sampled_from([[20], [20, 1000], [10, 20, 30, 500]]),
    n_models=st.integers(2, 5),
    is_model_last=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_a_sample_is_like_the_whole_plan(
    n_rows: int,
    n_prompts: int,
    limits: list[int],
    n_models: int,
    *,
    is_model_last: bool,
) -> None:
    """Each model, prompt and limit has its share in it, in whatever order they vary."""
    models = [f"model-{n}" for n in range(n_models)]
    prompts = [f"{{{{text}}}}{' word' * 20 * n}" for n in range(n_prompts)]
    varied = {"max_tokens": limits, "model": models}
    if not is_model_last:
        varied = dict(reversed(varied.items()))
    rows = pd.DataFrame({"text": ["word " * (10 + n % 4) for n in range(n_rows)]})
    grid = build_grid(prompts, varied=varied, rows=rows)

    size = estimate_of(grid)

    n_of_each = n_rows * len(prompts) * len(limits)
    n_tokens = sum(trial.prompt_tokens.mean for trial in grid)
    assert {name: of.n for name, of in size.by_model.items()} == grid.n_by_model
    for of_model in size.by_model.values():
        expected = n_tokens / n_models
        assert of_model.prompt.mean == pytest.approx(expected, rel=0.25)
        expected = n_of_each * fmean(limits)
        assert of_model.completion_tokens == pytest.approx(expected, rel=0.35)
    assert size.n_trials == len(grid)


def test_a_model_with_one_request_of_thousands_is_estimated() -> None:
    """Its price matters, too: without one, the cost of the plan says so."""
    rows = pd.DataFrame({"text": [f"text {n}" for n in range(3000)]})
    grid = build_grid("{{text}}", varied={"model": [MODEL, OTHER]}, rows=rows)
    kept = [*range(0, grid.n_product, 2), 2999]
    grid = replace(grid, kept=kept)

    size = estimate_of(grid, prices=PRICES)

    assert size.unpriced == (OTHER,)
    assert size.by_model[OTHER].n == 1
    assert size.by_model[OTHER].prompt.best < 10


@pytest.mark.slow
def test_a_pilot_s_replies_give_the_size_of_the_plan(session: Session) -> None:
    """Tokens and cost come from what was seen, and the run says so."""
    run = priced_run(session, PRICES, "{{text}}", rows=ROWS, model=MODEL)
    planned = run.size

    seen = run.run(first=8).size

    usage = run.replies_df()["completion_tokens"].dropna()
    assert planned.completion is None
    assert seen.n_trials == 100
    assert seen.completion is not None
    assert seen.completion.best == pytest.approx(usage.mean() * 100, abs=1)
    assert seen.completion.low < seen.completion.best < seen.completion.high
    assert (seen.cost_high or 0) < (planned.cost_high or 0)
    words = " ".join(repr(run).split())
    assert seen.so_far is not None
    rest = seen.so_far.completion
    assert "in replies so far, the 92 missing requests " in words
    assert f"and about {rest.best:,} ({rest}) in replies" in words
    assert "THB so far, the 92 missing requests" in words
    assert "for all" not in words
    assert "until the last reply" in words


@pytest.mark.slow
def test_what_was_spent_is_known_without_the_price_of_one_model(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is of the others, while it runs and at its end, and names the model."""
    asked: list[str] = []

    def agree(question: str) -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    run = priced_run(
        session,
        PRICES,
        "{{text}}",
        rows=ROWS[:8],
        model=[MODEL, OTHER],
        confirm_above=2,
    )

    run.run(first=8)

    without = f"THB without {OTHER}, whose price is unknown"
    assert asked[0].endswith(f"{without}. Continue? [y/N] ")
    size, words = run.size, " ".join(repr(run).split())
    assert size.unpriced == (OTHER,)
    assert size.so_far is not None
    assert size.so_far.cost == pytest.approx(cost_of(run, MODEL))
    assert "THB so far, the 8 missing requests " in words
    assert f" without {OTHER}, whose price is unknown, by your prices" in words
    run.run()
    words = " ".join(repr(run).split())
    assert f"{cost_in_words(cost_of(run, MODEL))} {without}" in words


def cost_of(run: Run, model: str) -> float:
    """Return what the replies of a model cost, if the emulator were not free."""
    df = run.replies_df()
    df = df[df["model"] == model]
    n_tokens = df["prompt_tokens"].sum() + 2 * df["completion_tokens"].sum()
    return float(n_tokens) / 1_000_000


def paid_for(run: Run) -> float:
    """Return what the tokens of a run cost, if the emulator were not free."""
    df = run.replies_df()
    n_tokens = df["prompt_tokens"].sum() + 2 * df["completion_tokens"].sum()
    return float(n_tokens) / 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("added", ["model", "rows"])
def test_what_was_spent_is_kept_when_requests_are_added(
    session: Session, added: str
) -> None:
    """The replies so far cost what they did; only what is missing is estimated."""
    price = Price(prompt=1.0, completion=2.0)
    prices = replace(PRICES, models={MODEL: price, OTHER: price})
    how = {"name": "reviews", "max_tokens": 50}
    first = priced_run(
        session, prices, "{{text}}", rows=ROWS[:6], model=MODEL, **how
    ).run()
    spent = paid_for(first)
    assert f"cost {cost_in_words(spent)} THB, by your prices" in " ".join(
        repr(first).split()
    )

    models = [MODEL, OTHER] if added == "model" else MODEL
    rows = ROWS[:6] if added == "model" else ROWS[:12]
    more = priced_run(session, prices, "{{text}}", rows=rows, model=models, **how)

    size, words = more.size, " ".join(repr(more).split())
    assert f"cost {cost_in_words(spent)} THB so far, the 6 missing requests" in words
    assert spent < (size.cost_low or 0) < (size.cost_high or 0)


@pytest.mark.slow
@pytest.mark.parametrize("n_seen", [3, 5, 10, 30])
def test_intervals_hold_nine_times_in_ten(n_seen: int) -> None:
    """The true total of 200 values is inside, in simulated pilots."""
    chance = Random(n_seen)  # noqa: S311 - no secret
    n_inside = 0
    for _ in range(600):
        values = [chance.gauss(100, 30) for _ in range(200)]
        total = total_of(values[:n_seen], 200)
        n_inside += total.mean - total.under <= sum(values) <= total.mean + total.over

    assert 0.87 <= n_inside / 600 <= 0.93


def test_the_time_is_by_how_long_replies_took() -> None:
    """Where replies are slow, they determine it, or else the limit does."""
    slow = {MODEL: [Seen(1, 1, took_s) for took_s in (50.0, 60.0, 70.0)]}
    quick = {MODEL: [Seen(1, 1, took_s) for took_s in (0.5, 0.6, 0.7)]}

    def at_once(model: str) -> int:
        return most_in_flight(limit_of(model), None)

    [by_replies], [by_limit] = (
        duration_lines(forecast({MODEL: 640}, Speed(seen=seen, in_flight_of=at_once)))
        for seen in (slow, quick)
    )

    assert by_replies.startswith("about 10 min 0 s until the last reply (7 min")
    assert "because of how long replies take" in by_replies
    assert "because of the per-minute limit" in by_limit

"""A pilot asks a balanced part of a plan, and the plan is estimated again by it."""

from collections import Counter
from datetime import date
from random import Random
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.service.catalogue import limit_of
from svc_notebook.session import Session
from svc_notebook.sweeps.describe import (
    Seen,
    Speed,
    duration_lines,
    forecast,
    size_of,
    size_seen,
    total_of,
)
from svc_notebook.sweeps.order import pilot_order
from svc_notebook.sweeps.plan import build_grid, plan
from svc_notebook.sweeps.scheduler import most_in_flight

MODEL, OTHER = "svc-v1.5-instruct", "svc-v2-8b-instruct"
ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(100)]})
PRICES = Prices(
    models={MODEL: Price(prompt=1.0, completion=2.0)},
    currency="THB",
    as_of=date(2026, 1, 1),
    source="mine",
)


def first_of(n: int, *, seed: int = 1, **varied: Any) -> list[tuple[int, int]]:  # noqa: ANN401 - as a sweep's
    """Return row and condition of the first trials of a pilot."""
    where = varied.pop("where", None)
    grid = build_grid("{{text}}", varied=varied, rows=ROWS, where=where, repeats=2)
    order = list(pilot_order(grid, seed=seed))
    assert len(set(order)) == len(grid)
    return [grid.place_of(combination) for combination, _ in order[:n]]


def test_each_condition_is_asked_as_often_on_the_same_rows() -> None:
    """20 requests of 4 conditions are 5 rows each, and of 22 two have one more."""
    places = first_of(22, model=[MODEL, OTHER], temperature=[0, 1])

    rows = Counter(row for row, _ in places[:20])
    assert set(rows.values()) == {4}
    assert sorted(Counter(each for _, each in places).values()) == [5, 5, 6, 6]


def test_rows_of_a_pilot_are_spread() -> None:
    """Ten of a hundred rows have one in nearly each tenth, whatever the seed."""
    for seed in range(20):
        rows = [row for row, _ in first_of(10, seed=seed, model=MODEL)]

        assert len({row // 10 for row in rows}) >= 8
        gaps = [b - a for a, b in zip(sorted(rows), sorted(rows)[1:], strict=False)]
        assert max(gaps) <= 25


def test_a_pilot_is_the_beginning_of_a_larger_one() -> None:
    """The same seed gives the same requests; another one gives others."""
    small = first_of(10, model=[MODEL, OTHER])

    assert first_of(30, model=[MODEL, OTHER])[:10] == small
    assert first_of(10, seed=2, model=[MODEL, OTHER]) != small


def test_a_pilot_is_balanced_where_combinations_are_left_out() -> None:
    """Each condition then has rows of its own."""
    places = first_of(
        20,
        model=[MODEL, OTHER],
        where=lambda c: (int(c["text"][5:]) < 50) == (c["model"] == MODEL),
    )

    assert sorted(Counter(each for _, each in places).values()) == [10, 10]


@pytest.mark.slow
def test_the_rest_is_sent_after_a_pilot(session: Session, emulator: Emulator) -> None:
    """No request of it is sent again, and a larger pilot adds what it lacks."""
    run = plan(session, "{{text}}", rows=ROWS[:15], model=MODEL, repeats=2, seed=3)

    assert run.run(first=4).n_todo == 26
    assert run.run(first=4).n_todo == 26
    assert run.run(first=6).n_todo == 24
    assert Counter(run.replies_df()["status"]) == {"ok": 6, "not_run": 24}
    assert run.run().n_todo == 0
    # a busy machine may deliver 21 requests of two seconds in one, which is too many
    answered = [each for each in emulator.requests if each.status == 200]
    assert len(answered) == len(run)


@pytest.mark.parametrize("first", [0, 1.5, "20", True])
def test_refuses_what_is_no_number_of_requests(session: Session, first: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """It is an integer of at least 1."""
    with pytest.raises(ParameterError, match="first must be an integer >= 1"):
        plan(session, "Hi").run(first=first)


@pytest.mark.slow
def test_a_pilot_of_few_requests_asks_for_no_consent(
    session: Session, emulator: Emulator
) -> None:
    """`confirm_above` counts what is sent now."""
    run = plan(session, "{{text}}", rows=ROWS, model=MODEL, confirm_above=5)

    run.run(first=5)

    assert len(emulator.requests) == 5


@pytest.mark.slow
def test_a_pilot_s_replies_give_the_size_of_the_plan(session: Session) -> None:
    """Tokens and cost come from what was seen, and the run says so."""
    run = plan(session, "{{text}}", rows=ROWS, model=MODEL, prices=PRICES)
    planned = run.size

    seen = run.run(first=8).size

    usage = run.replies_df()["completion_tokens"].dropna()
    assert planned.completion is None
    assert (seen.n_seen, seen.n_trials) == (8, 100)
    assert seen.completion is not None
    assert seen.completion.best == pytest.approx(usage.mean() * 100, abs=1)
    assert seen.completion.low < seen.completion.best < seen.completion.high
    assert (seen.cost_high or 0) < (planned.cost_high or 0)
    words = " ".join(repr(run).split())
    assert f"about {seen.completion.best:,} ({seen.completion}) in replies" in words
    assert "by the 8 replies so far, for all 100 requests" in words
    assert "until the last reply" in words


@pytest.mark.slow
def test_a_model_without_replies_keeps_the_estimate_of_the_plan(
    session: Session,
) -> None:
    """Three replies of each model are the least."""
    run = plan(session, "{{text}}", rows=ROWS, model=[MODEL, OTHER])

    assert run.run(first=4).size.completion is None
    assert run.run(first=6).size.completion is not None


def test_what_was_seen_is_exact_once_all_is() -> None:
    """The totals of a complete run have no interval."""
    grid = build_grid("a", varied={"model": MODEL}, repeats=4)
    seen = {MODEL: [Seen(5, n, 1.0) for n in range(4)]}

    size = size_seen(size_of(grid, prices=PRICES), grid.n_by_model, seen)

    assert str(size.prompt) == "20"
    assert str(size.completion) == "6"
    assert size.cost_low == size.cost_high == pytest.approx(32e-6)


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
    slow = {MODEL: [Seen(1, 1, each) for each in (50.0, 60.0, 70.0)]}
    quick = {MODEL: [Seen(1, 1, each) for each in (0.5, 0.6, 0.7)]}

    def at_once(model: str) -> int:
        return most_in_flight(limit_of(model), None)

    [by_replies], [by_limit] = (
        duration_lines(forecast({MODEL: 640}, Speed(seen=seen, in_flight_of=at_once)))
        for seen in (slow, quick)
    )

    assert by_replies.startswith("about 10 min 0 s until the last reply (7 min")
    assert "because of how long replies take" in by_replies
    assert "because of the per-minute limit" in by_limit

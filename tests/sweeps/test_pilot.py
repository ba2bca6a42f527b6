"""A pilot asks a balanced part of a plan, and the plan is estimated again by it."""

from collections import Counter
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.scheduler import pilot_order

MODEL, OTHER = "svc-v1.5-instruct", "svc-v2-8b-instruct"
ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(100)]})


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
    assert sorted(Counter(condition for _, condition in places).values()) == [
        5,
        5,
        6,
        6,
    ]


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

    assert sorted(Counter(condition for _, condition in places).values()) == [10, 10]


@pytest.mark.slow
def test_the_rest_is_sent_after_a_pilot(session: Session, emulator: Emulator) -> None:
    """No request of it is sent again, and a larger pilot adds what it lacks."""
    run = plan_run(session, "{{text}}", rows=ROWS[:15], model=MODEL, repeats=2, seed=3)

    assert run.run(first=4).n_todo == 26
    assert run.run(first=4).n_todo == 26
    assert run.run(first=6).n_todo == 24
    assert Counter(run.replies_df()["status"]) == {"ok": 6, "not_run": 24}
    assert run.run().n_todo == 0
    # a busy machine may deliver 21 requests of two seconds in one, which is too many
    answered = [request for request in emulator.requests if request.status == 200]
    assert len(answered) == len(run)


@pytest.mark.parametrize("first", [0, 1.5, "20", True])
def test_refuses_what_is_no_number_of_requests(session: Session, first: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """It is an integer of at least 1."""
    with pytest.raises(ParameterError, match="first must be an integer >= 1"):
        plan_run(session, "Hi").run(first=first)


@pytest.mark.slow
def test_a_pilot_of_few_requests_asks_for_no_consent(
    session: Session, emulator: Emulator
) -> None:
    """`confirm_above` counts what is sent now."""
    run = plan_run(session, "{{text}}", rows=ROWS, model=MODEL, confirm_above=5)

    run.run(first=5)

    assert len(emulator.requests) == 5

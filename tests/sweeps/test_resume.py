"""The exchange that counts for each trial, and the rows made of it."""

from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.exchange import Exchange, Failure, Origin, Status
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import Plan, build_grid
from svc_notebook.sweeps.resume import TrialFailure, by_trial, settled_of, status_of
from svc_notebook.sweeps.run_outcome import reply_rows

GRID = build_grid("p", varied={"model": ["a", "b"]}, repeats=2)
TRIALS = tuple(GRID)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _exchange(trial: Trial, status: Status, number: int = 0) -> Exchange:
    return Exchange(
        exchange_id=f"{number}",
        origin=Origin(kind="sweep", request_key=trial.request_key, repeat=trial.repeat),
        endpoint="e",
        request=trial.request,
        body=CompletionBody(choices=(Choice(index=0), Choice(index=1))),
        status=status,
        failure=Failure(type="E") if status == "error" else None,
        started_at=NOON,
        ended_at=NOON,
    )


sent = st.lists(
    st.tuples(st.sampled_from(TRIALS), st.sampled_from(get_args(Status))), max_size=20
)


@pytest.mark.slow
@given(sent)
def test_the_newest_good_exchange_stands_for_its_trial(
    asked: list[tuple[Trial, Status]],
) -> None:
    """A trial's exchange is its newest good one, or else its newest."""
    exchanges = [_exchange(*each, number) for number, each in enumerate(asked)]

    found = by_trial(exchanges)

    for trial in TRIALS:
        mine = [
            each for each in exchanges if each.origin.request_key == trial.request_key
        ]
        mine = [each for each in mine if each.origin.repeat == trial.repeat]
        good = [each for each in mine if each.status == "ok"]
        newest = good or mine
        assert found.get(trial.key) == (newest[-1] if newest else None)


@pytest.mark.slow
@given(sent)
def test_a_good_answer_and_a_failure_are_settled(
    asked: list[tuple[Trial, Status]],
) -> None:
    """A trial with a good answer is not sent again; a failed one only on demand."""
    good = {trial.key for trial, status in asked if status == "ok"}
    newest = {trial.key: status for trial, status in asked}
    bad = {key for key, status in newest.items() if status == "error"}

    status = status_of(_exchange(*each) for each in asked)

    keys = {trial.key for trial in TRIALS}
    assert {key for key in keys if key in settled_of(status, is_retried=True)} == good
    assert {key for key in keys if key in settled_of(status)} == good | bad
    assert len(settled_of(status)) == len(good | bad)


def test_rows_stand_in_the_order_of_the_plan() -> None:
    """Each trial has rows in plan order, even if it failed or was not run."""
    failure = Failure(type="OverBudgetError")
    found = by_trial([_exchange(TRIALS[2], "ok"), _exchange(TRIALS[0], "error")])

    rows = list(
        reply_rows(
            Plan(grid=GRID, name=None, run_id="r", seed=1),
            found,
            {TRIALS[1].key: TrialFailure(failure, "a")},
            is_begun=True,
        )
    )

    assert [(row.status, row.is_first) for row in rows] == [
        ("error", True),
        ("error", False),
        ("error", True),
        ("ok", True),
        ("ok", False),
        ("not_run", True),
    ]
    assert rows[2].failure == failure

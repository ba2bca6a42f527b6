"""How far a run is, in words a model."""

from collections.abc import Iterator
from datetime import UTC, datetime

from svc_notebook.client.rate_limit import Due
from svc_notebook.errors import BadRequestError, ServerFaultError
from svc_notebook.sweeps.execution import progress_of
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.scheduler import (
    FAILURES_IN_A_ROW,
    Answered,
    Failed,
    Lane,
    Outcome,
    Trials,
)

SMALL = "svc-v2-8b-instruct"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _lane(n_trials: int, outcomes: list[Outcome], model: str = SMALL) -> Lane:
    grid = build_grid("p", varied={"model": model}, repeats=n_trials)
    pull: Iterator[Trial] = iter(grid)
    lane = Lane(model, Trials(pull=pull, n_trials=n_trials))
    for outcome in outcomes:
        lane.pull()
        lane.end(lane.take(0.0), outcome, now_s=0.0)
    return lane


def _note(lane: Lane, *, now_s: float = 0.0, **how: bool) -> str:
    [part] = progress_of([lane], now_s=now_s, now_at=NOON, **how)
    return part.note


def test_says_tokens_failures_and_the_computed_end() -> None:
    """A line has tokens so far, failures, and when the last will be sent."""
    outcomes: list[Outcome] = [
        Answered(n_tokens=1500),
        Failed(error=BadRequestError("no")),
    ]
    [part] = progress_of([_lane(101, outcomes)], now_s=0.0, now_at=NOON)

    assert (part.n_done, part.n_total, part.is_bad) == (2, 101, True)
    assert part.note == "1 failed · 1,500 tokens · ends about 12:02:00"


def test_says_what_it_waits_for() -> None:
    """A wait of some length is named with its reason."""
    lane = _lane(60, [Answered()])
    lane.waits_for = Due(12.0, "minute limit of m")

    assert "waits 12 s: minute limit of m" in _note(lane)


def test_an_end_that_is_late_moves() -> None:
    """What was lost to a pause is not made up for: as long is left after a minute."""
    lane = _lane(101, [Answered()])

    assert "12:02:00" in _note(lane, now_s=0.0)
    assert "12:02:00" in _note(lane, now_s=60.0)


def test_says_pauses_and_ends() -> None:
    """A pause is said, and so is that a model was given up; a whole one says tokens."""
    failures: list[Outcome] = [
        Failed(error=ServerFaultError("gone"), is_of_service=True)
    ] * FAILURES_IN_A_ROW

    assert _note(_lane(3, []), is_paused=True) == "0 tokens · paused"
    assert _note(_lane(3, []), is_stopped=True) == "0 tokens · stopped"
    assert _note(_lane(1, [Answered(n_tokens=7)])) == "7 tokens"
    assert _note(_lane(50, failures)) == (
        "10 failed · 0 tokens · given up: ServerFaultError"
    )


def test_an_unknown_limit_gives_no_end() -> None:
    """For a model without a documented limit no end is computed."""
    assert _note(_lane(99, [Answered()], model="svc-instruct")) == "0 tokens"

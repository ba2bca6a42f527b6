"""A run keeps to limits of the user's own, below those of the service."""

from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import limit_of
from svc_notebook.session import Session
from svc_notebook.sweeps.estimate import last_sent_s
from svc_notebook.sweeps.plan import read_limits
from svc_notebook.sweeps.run import plan_run
from tests.sweeps.world import World, at_once, conditions_of, in_a_second

MODEL = "svc-v1.5-instruct"  # 20 a second, 150 a minute


@pytest.mark.slow
def test_a_run_is_sent_within_the_user_s_own_limits() -> None:
    """In no second and no minute there are more, and the last goes when it may."""
    world = World()
    paces = read_limits({"per_second": 2, "per_minute": 30}, [MODEL])
    limit = paces[MODEL].limit(limit_of(MODEL))
    assert limit is not None

    world.run(conditions_of(61, [MODEL]), at_once, in_flight=None, own_limits=paces)

    times_s = [at_s for at_s, _ in world.log]
    assert all(b - a >= 1 for a, b in zip(times_s, times_s[2:], strict=False))
    assert all(b - a >= 60 for a, b in zip(times_s, times_s[30:], strict=False))
    assert times_s[-1] == pytest.approx(last_sent_s(61, limit), abs=1.0)


def test_each_wait_for_a_limit_is_said() -> None:
    """Whoever watches a run is told what it waits for, once for each wait."""
    world = World()
    paces = read_limits({"per_second": 2}, [MODEL])

    world.run(conditions_of(5, [MODEL]), at_once, in_flight=None, own_limits=paces)

    said = [(round(wait.wait_s, 2), wait.reason) for wait in world.waits]
    assert said == [(1.08, f"your per-second limit of {MODEL}")] * 2


@pytest.mark.slow
def test_limits_are_of_one_model_if_they_name_it() -> None:
    """Other models are asked as fast as their own limits allow."""
    world = World()
    paces = read_limits({"slow": {"in_flight": 1, "per_minute": 5}}, ["slow", "quick"])

    world.run(conditions_of(10, ["slow", "quick"]), in_a_second, own_limits=paces)

    assert world.most_in_flight == {"slow": 1, "quick": 8}
    assert world.now_s > 60


def test_a_plan_says_which_limit_determines_its_time(session: Session) -> None:
    """The limits in force are the user's where they are lower."""
    run = plan_run(
        session,
        "Hi",
        model=MODEL,
        repeats=120,
        limits={"per_minute": 60},
        in_flight=3,
    )

    assert "because of your per-minute limit of" in " ".join(repr(run).split())
    assert run.in_flight == 3


def test_limits_are_kept_with_the_plan(session: Session) -> None:
    """A manifest has them, and others can be given with it."""
    run = plan_run(session, "Hi", model=MODEL, limits={"per_minute": 60}, in_flight=3)

    again = plan_run(session, manifest=run.manifest)
    other = plan_run(session, manifest=run.manifest, limits={MODEL: {"per_second": 1}})

    assert again.manifest["own_limits"] == {MODEL: {"per_minute": 60}}
    assert again.in_flight == 3
    assert other.manifest["own_limits"] == {MODEL: {"per_second": 1}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limits": 5}, "limits must be a mapping"),
        ({"limits": {}}, "limits must be a mapping"),
        ({"limits": {"per_hour": 5}}, "some of per_second, per_minute, in_flight"),
        ({"limits": {"per_second": 0}}, "per_second in limits must be an integer >= 1"),
        ({"limits": {"per_second": 21}}, "above the service's limit for .* at most 20"),
        (
            {"limits": {"svc-v1.5": {"per_second": 1}}},
            "'svc-v1.5', which this run does not ask. Did you mean svc-v1.5-instruct",
        ),
        ({"in_flight": 0}, "in_flight must be an integer >= 1"),
    ],
)
def test_refuses_limits_that_cannot_be_kept(
    session: Session, arguments: dict[str, Any], said: str
) -> None:
    """The message says what is allowed, and that the service's limits always apply."""
    with pytest.raises(ParameterError, match=said):
        plan_run(session, "Hi", model=MODEL, **arguments)


@pytest.mark.slow
def test_fit_gives_each_row_what_its_prompt_leaves(
    session: Session, emulator: Emulator
) -> None:
    """A long row gets a smaller max_tokens than a short one, and no row over 8192."""
    rows = [{"text": "Hi"}, {"text": "word " * 3000}]
    run = plan_run(
        session,
        "{{text}}",
        rows=rows,
        name="r",
        model=MODEL,
        max_tokens="fit",
    ).run()

    sent = run.replies_df()["max_tokens"].tolist()

    assert 8000 < sent[0] < 8192
    assert 0 < sent[1] < 6000
    assert run.n_failed == 0
    assert plan_run(session, manifest=run.manifest, name="r").n_todo == 0
    assert len(emulator.requests) == len(rows)

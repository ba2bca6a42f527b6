"""A run against the emulator, over real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frames import replies_frame
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan

OpenSession = Callable[[Emulator], Session]

SMALL = "svc-v2-8b-instruct"
LARGE = "svc-v2-70b-instruct"


def _scripted(*entries: dict[str, Any]) -> Emulator:
    return Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(entries)
    )


def test_two_models_at_two_temperatures(session: Session) -> None:
    """A grid of two by two gives four good rows in the order of the plan."""
    run = plan(
        session,
        "Describe rain.",
        model=[SMALL, LARGE],
        varied={"temperature": [0, 1.2], "max_tokens": 20},
    )

    frame = run.run().replies_df()

    assert frame[["model", "temperature", "status"]].to_dict("split")["data"] == [
        [SMALL, 0.0, "ok"],
        [SMALL, 1.2, "ok"],
        [LARGE, 0.0, "ok"],
        [LARGE, 1.2, "ok"],
    ]
    assert frame["text"].str.len().min() > 0
    assert frame["usage_source"].tolist() == ["reported"] * 4
    assert frame["run"].tolist() == [run.run_id] * 4
    assert frame["origin"].tolist() == ["sweep"] * 4


def test_plan_and_replies_have_the_columns_of_the_ledger(session: Session) -> None:
    """Plan, replies and the ledger's frame share names, order and dtypes."""
    run = plan(session, ["a", "b"], varied={"n": [1, 2]})
    planned = run.plan_df()
    before = run.replies_df()

    after = run.run().replies_df()

    ledger = replies_frame(session.ledger.read())
    assert planned.dtypes.to_dict() == ledger.dtypes.to_dict()
    assert after.dtypes.to_dict() == ledger.dtypes.to_dict()
    assert before.equals(planned)
    assert planned["status"].tolist() == ["planned"] * 4
    assert planned["prompt"].tolist() == ["a", "a", "b", "b"]
    assert planned["est_prompt_tokens"].min() > 0
    assert after["choice_index"].tolist() == [0, 0, 1, 0, 0, 1]


def test_plans_without_asking(session: Session, emulator: Emulator) -> None:
    """Planning sends nothing and opens no ledger."""
    run = plan(session, "p", model=[SMALL, LARGE])
    run.plan_df()
    repr(run)

    assert len(emulator.requests) == 0
    assert not Path(session.settings.ledger).exists()


def test_repeats_are_other_samples(session: Session) -> None:
    """Each repetition is a request of its own."""
    run = plan(session, "p", repeats=3, varied={"temperature": 1.5})

    frame = run.run().replies_df()

    assert frame["repeat"].tolist() == [0, 1, 2]
    assert frame["request_key"].nunique() == 1
    assert frame["text"].nunique() == 3


def test_running_again_asks_nothing_twice(session: Session, emulator: Emulator) -> None:
    """A run that is whole stays as it is."""
    run = plan(session, ["a", "b"])
    before = run.run().replies_df()

    after = run.run().replies_df()

    assert len(emulator.requests) == 2
    assert after.equals(before)


def test_works_inside_a_running_loop(session: Session) -> None:
    """A run can be run where an event loop is running, as in a notebook."""

    async def trial() -> list[str]:
        return plan(session, "p").run().replies_df()["status"].tolist()

    assert asyncio.run(trial()) == ["ok"]


def test_usage_counts_what_the_service_reported(open_session: OpenSession) -> None:
    """Usage sums reported tokens by group; the emulator's count when asked for."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    with _scripted({"text": "Hi", "usage": usage, "times": None}) as emulator:
        run = plan(open_session(emulator), "p", model=[SMALL, LARGE], repeats=2).run()

    counted = run.usage_df(include_emulated=True)
    left_out = run.usage_df()
    assert counted["total_tokens"].tolist() == [14, 14]
    assert left_out["n_left_out"].tolist() == [2, 2]
    assert plan(Session(), "p").usage_df().empty


def test_shows_its_plan_and_what_became_of_it(session: Session) -> None:
    """In a trial a run shows its plan, and then what came of it."""
    run = plan(session, "p", name="tone", varied={"temperature": [0, 1]})
    before = run._repr_mimebundle_()
    after = run.run()._repr_mimebundle_()

    assert len(run) == 2
    assert before["text/plain"].startswith(
        "Run tone: 2 requests planned, nothing sent yet.\n"
    )
    assert before["text/plain"].endswith(".run() asks what is missing")
    assert "<strong>Run tone</strong>" in before["text/html"]
    assert after["text/plain"].startswith("Run tone: 2 requests: 2 ok.\n")
    assert repr(run) == after["text/plain"]


def test_is_shown_when_its_ledger_cannot_be_read(
    session: Session, tmp_path: Path
) -> None:
    """Showing a run raises nothing, whatever became of its ledger."""
    run = plan(session, "p").run()
    session.ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(b"garbage " * 100)

    assert repr(run).startswith("Run: its ledger cannot be read.")
    assert "SVC_LEDGER" in run._repr_mimebundle_()["text/plain"]


@pytest.mark.parametrize("name", ["", " "])
def test_refuses_an_empty_name(session: Session, name: str) -> None:
    """A name is a text with something in it."""
    with pytest.raises(ParameterError, match="give a text"):
        plan(session, "p", name=name)

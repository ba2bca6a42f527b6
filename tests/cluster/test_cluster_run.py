"""A run on a cluster is the run of one process, sent by several."""

import threading
from typing import Any

import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan
from svc_notebook.sweeps.run import Run
from tests.cluster.conftest import OpenSession

FREE = "svc-instruct"  # no limit is shown for it, so nothing waits
LIMITED = "svc-v1.5-instruct"  # 20 a second, 150 a minute
OF_TIME = {
    *("exchange_id", "endpoint", "created_at", "started_at", "ended_at"),
    *("queue_s", "first_text_s", "latency_s"),
}


def _sweep(session: Session, n_rows: int = 12, **given: Any) -> Run:  # noqa: ANN401 - as `plan`
    rows = [{"text": f"word {number}"} for number in range(n_rows)]
    return plan(session, "Say {{text}}.", rows=rows, **{"model": FREE, **given})


def test_results_equal_those_of_one_process(
    ray: Any,  # noqa: ANN401 - the package
    open_session: OpenSession,
) -> None:
    """Trial for trial all columns are the same, except for times and ids."""
    frames, manifests = [], []
    for place in (None, "auto"):
        with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
            run = _sweep(
                open_session(emulator),
                model=[FREE, "svc-v2.1-12b-instruct"],
                name="same",
                varied={"temperature": [0, 0.7], "max_tokens": 20, "stop": ["."]},
            )
            frames.append(run.run(on=place).replies_df())
            manifests.append(run.manifest)
    one, several = (frame.drop(columns=[*OF_TIME]) for frame in frames)

    assert ray.is_initialized()
    assert several["status"].tolist() == ["ok"] * 48
    assert several.equals(one)
    assert set(manifests[1]) == set(manifests[0])
    assert manifests[1]["counts"] == manifests[0]["counts"]


@pytest.mark.usefixtures("ray")
def test_errors_are_those_of_one_process(open_session: OpenSession) -> None:
    """A refused request and a fault are rows with the same error."""
    script = [
        {"when": {"contains": "word 1."}, "status": 400, "times": None},
        {"when": {"contains": "word 2."}, "status": 500, "times": None},
    ]
    frames = []
    for place in (None, "auto"):
        with Emulator(tokens_per_s=None, first_token_s=0, script=script) as emulator:
            run = _sweep(open_session(emulator), n_rows=4, name="same")
            frames.append(run.run(on=place).replies_df())
    one, several = (
        frame[["status", "error_type", "http_status", "error_message", "n_attempts"]]
        for frame in frames
    )

    assert several["status"].tolist() == ["ok", "error", "error", "ok"]
    assert several.equals(one)


@pytest.mark.usefixtures("ray")
def test_a_known_limit_holds_over_all_workers(
    session: Session, emulator: Emulator
) -> None:
    """Four workers send as many as are allowed, and none is refused."""
    run = _sweep(session, n_rows=70, model=LIMITED).run(on="auto", workers=4)

    frame = run.replies_df()
    assert frame["status"].tolist() == ["ok"] * 70
    assert frame["n_refused"].sum() == 0
    assert len(emulator.requests) == 70


@pytest.mark.usefixtures("ray")
def test_tools_are_run_where_the_run_is(session: Session, emulator: Emulator) -> None:
    """A tool may be anything that this process has; its rounds go to the workers."""
    lock, seen = threading.Lock(), list[str]()  # a lock could not be sent

    def weather(city: str) -> str:
        """Tell the weather of a city."""
        with lock:
            seen.append(city)
        return "31 degrees"

    run = plan(
        session,
        "What is the weather in Bangkok?",
        model=FREE,
        repeats=3,
        varied={"tools": [weather]},
        run_tools=True,
    ).run(on="auto", workers=1)

    frame = run.replies_df()
    assert frame["status"].tolist() == ["ok"] * 3
    assert frame["n_tool_runs"].sum() == len(seen)
    assert len(emulator.requests) == frame["n_rounds"].sum()


@pytest.mark.usefixtures("ray")
def test_runs_in_the_background(session: Session) -> None:
    """A run that was started is paused, continued and waited for, as everywhere."""
    run = _sweep(session, name="n").pause().start(on="auto", workers=1)

    run.pause().resume()

    assert run.is_running
    assert run.wait().n_todo == 0
    assert run.run(on="auto").n_todo == 0  # nothing is missing, so nothing is started

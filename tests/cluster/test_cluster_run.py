"""A run on a cluster is the run of one process, sent by several."""

import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.frame_export import read_parquet
from svc_notebook.session import Session
from svc_notebook.sweeps.ray_cluster import Cluster
from svc_notebook.sweeps.run import Run, plan_run
from tests.cluster.conftest import OpenSession

FREE = "svc-instruct"  # no limit is shown for it, so nothing waits
LIMITED = "svc-v1.5-instruct"  # 20 a second, 150 a minute
OF_TIME = {
    *("exchange_id", "endpoint", "created_at", "started_at", "ended_at"),
    *("queue_s", "first_text_s", "latency_s"),
}


def _sweep(session: Session, n_rows: int = 12, **given: Any) -> Run:  # noqa: ANN401 - as `plan`
    rows = [{"text": f"word {number}"} for number in range(n_rows)]
    return plan_run(session, "Say {{text}}.", rows=rows, **{"model": FREE, **given})


@pytest.mark.usefixtures("ray")
def test_replies_are_scored_in_this_process(session: Session) -> None:
    """A function of a score stays here, so it may be anything that Python has."""
    lock = threading.Lock()  # cannot be sent to a worker
    texts: list[str] = []

    def length(row: Any) -> int:  # noqa: ANN401 - a row
        with lock:
            texts.append(row.text)
        return len(row.text)

    frame = _sweep(session, scores={"length": length}).run(on="auto").replies_df()

    assert frame["score_length"].tolist() == frame["text"].str.len().tolist()
    assert len(texts) == len(frame)


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
                temperature=[0, 0.7],
                max_tokens=20,
                stop=["."],
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

    run = plan_run(
        session,
        "What is the weather in Bangkok?",
        model=FREE,
        repeats=3,
        tools=[weather],
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


@pytest.mark.usefixtures("ray")
def test_a_worker_without_a_network_takes_nothing_with_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not send goes to another worker, and the run goes on there."""
    start_of = Cluster._start_of  # noqa: SLF001 - where a worker gets its settings

    def start(cluster: Cluster, link: Any) -> Any:  # noqa: ANN401 - of Ray
        given = cluster._settings  # noqa: SLF001 - as above
        if link.number == 0:
            settings, source = pickle.loads(given)  # noqa: S301 - ours
            nowhere = replace(settings, base_url="http://127.0.0.1:9/v1")
            cluster._settings = pickle.dumps((nowhere, source))  # noqa: SLF001 - as above
        try:
            return start_of(cluster, link)
        finally:
            cluster._settings = given  # noqa: SLF001 - as above

    monkeypatch.setattr(Cluster, "_start_of", start)
    run = _sweep(session, n_rows=60)
    run.in_flight = 8

    frame = run.run(on="auto", workers=2).replies_df()

    assert frame["status"].tolist() == ["ok"] * 60


@pytest.mark.usefixtures("ray")
def test_a_limit_that_nobody_knew_is_kept_once_it_shows(
    open_session: OpenSession,
) -> None:
    """What the server refuses is sent again later, and no trial fails of it."""
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits={FREE: (5, 1000)}
    ) as emulator:
        run = _sweep(open_session(emulator), n_rows=20)

        frame = run.run(on="auto", workers=2).replies_df()

        refused = [each for each in emulator.requests if each.status == 429]
        assert frame["status"].tolist() == ["ok"] * 20
        assert len(emulator.requests) - len(refused) == 20


@pytest.mark.usefixtures("ray")
def test_two_runs_share_a_cluster(session: Session, emulator: Emulator) -> None:
    """Each has its own workers, and together they keep a limit."""
    runs = [_sweep(session, n_rows=40, model=LIMITED, name=name) for name in ("a", "b")]

    for run in runs:
        run.start(on="auto", workers=2)
    for run in runs:
        run.wait()

    assert [run.n_todo for run in runs] == [0, 0]
    assert [each.status for each in emulator.requests] == [200] * 80


@pytest.mark.usefixtures("ray")
def test_nothing_to_send_starts_no_worker(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty plan and a complete run need no cluster."""
    monkeypatch.delattr("svc_notebook.sweeps.ray_cluster.Cluster.start")
    done = _sweep(session, n_rows=2, name="done").run()

    assert _sweep(session, n_rows=0).run(on="auto").n_todo == 0
    assert done.run(on="auto").n_todo == 0
    assert done.retry(on="auto").n_todo == 0


@pytest.mark.usefixtures("ray")
def test_rows_of_files_go_to_workers_and_back_into_parts(
    session: Session, tmp_path: Path
) -> None:
    """The kernel reads them, block by block; the parts are the frame of replies."""
    rows = pd.DataFrame({"text": [f"word {n}" for n in range(30)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    run = plan_run(session, "{{text}}", rows=tmp_path / "rows.parquet", model=FREE)

    run.run(on="auto", workers=2).write_parquet(tmp_path / "replies")

    assert run.n_todo == 0
    assert read_parquet(tmp_path / "replies").equals(run.replies_df())

"""A run on a cluster is the run of one process, sent by several."""

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

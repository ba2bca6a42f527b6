"""Fields that the document does not show, as a dimension of a sweep."""

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

ROWS = pd.DataFrame({"word": ["a", "b"], "extra_info": [1, 2]})


@pytest.mark.slow
def test_each_is_a_condition(session: Session, emulator: Emulator) -> None:
    """A list is a dimension; frames and summaries go by the fields that were sent."""
    run = plan_run(
        session,
        "Say {{word}}",
        rows=ROWS,
        extra=[{"seed": 1}, {"seed": 2, "top_k": 4}, None],
    ).run()

    df = run.replies_df()
    assert df["extra_seed"].tolist() == [1, 2, pd.NA] * 2
    assert df["extra_top_k"].dtype == "Int64"
    assert df["var_extra_info"].tolist() == [1, 1, 1, 2, 2, 2]
    assert len({*df["request_key"]}) == 6
    sent = [request.json.get("seed") for request in emulator.requests]
    assert sorted(sent, key=str) == [1, 1, 2, 2, None, None]
    assert run.plan_df()["extra_seed"].equals(df["extra_seed"])
    summary = run.summary_df()
    assert [*summary.columns[:2]] == ["extra_seed", "extra_top_k"]
    usage = run.usage_df(by="extra_seed", include_emulated=True)
    assert usage["n_requests"].tolist() == [2, 2, 2]
    assert "extra_seed: 1" in str(run.compare())
    meaning = svc.describe(df).set_index("name")["meaning"]
    assert meaning["extra_seed"].startswith("the field 'seed' of extra")
    assert "`seed=2, top_k=4`, not sent" in str(run)


def test_it_goes_with_other_arguments(session: Session) -> None:
    """Conditions, `tied` and `where` take it as a factor; a mapping is one value."""
    one = plan_run(session, "Hi", extra={"opt": {"a": {}}, "b": 1})
    labelled = [{"extra": {"seed": 1}, "kind": "x"}, {"extra": None, "kind": "y"}]
    several = plan_run(session, "Hi", conditions=labelled).plan_df()
    seeds: list[dict[str, int]] = [{"seed": 1}, {"seed": 2}]
    tied = plan_run(
        session,
        "Hi",
        tied=["extra", "temperature"],
        extra=seeds,
        temperature=[0, 1],
    ).plan_df()
    kept = plan_run(
        session,
        "Hi",
        where=lambda c: c["extra"]["seed"] > 1,
        extra=seeds,
    ).plan_df()

    assert one.plan_df()["extra_opt"].tolist() == ['{"a":{}}']
    assert several[["extra_seed", "kind"]].to_numpy().tolist() == [
        [1, "x"],
        [pd.NA, "y"],
    ]
    assert tied[["extra_seed", "temperature"]].to_numpy().tolist() == [[1, 0], [2, 1]]
    assert kept["extra_seed"].tolist() == [2]

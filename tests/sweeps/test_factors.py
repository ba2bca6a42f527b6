"""Every factor of a sweep can be read, grouped and compared by, under its own name."""

import os

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

MODEL = "svc-v1.5-instruct"


def tea(cups: int) -> str:
    """Order tea.

    Args:
        cups: How many.
    """
    return f"{cups} cups"


def milk() -> str:
    """Order milk."""
    return "milk"


ROWS = pd.DataFrame(
    {
        "text": ["a", "b", "c"],
        "row": [5, 6, 7],
        "var_text": ["v", "v", "w"],
        "kind": pd.Categorical(["x", "y", "x"], categories=["x", "y", "z"]),
    }
)


@pytest.mark.slow
def test_tools_that_vary_are_a_column(session: Session) -> None:
    """It has the names that were offered, and is missing where none were."""
    run = plan_run(session, "a", model=MODEL, tools=[[tea, milk], [tea], None])

    run.run()

    expected = pd.Series(["tea, milk", "tea", None], dtype="string", name="tools")
    pd.testing.assert_series_equal(run.plan_df()["tools"], expected)
    pd.testing.assert_series_equal(run.replies_df()["tools"], expected)
    pd.testing.assert_series_equal(run.summary_df()["tools"], expected)


def test_usage_by_no_column_names_the_near_one_of_the_rows(session: Session) -> None:
    """Columns of the rows are among those that are proposed."""
    run = plan_run(session, "{{text}}", rows=ROWS, model=MODEL)

    with pytest.raises(ParameterError, match="Did you mean kind"):
        run.usage_df(by="kinds")


@pytest.mark.slow
def test_what_is_sent_is_compared_by_its_own_name(session: Session) -> None:
    """A column of the rows that is called `model` does not stand for the models."""
    rows = pd.DataFrame({"word": ["a", "b"], "model": ["Ford", "Fiat"]})
    models = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    run = plan_run(session, "{{word}}", rows=rows, model=models)
    run.run().score(long=lambda row: row.model == models[0])

    drawn = run.plot("long", by="model")

    assert run.compare(columns="model").column_names == ("model",)
    assert "8b-instruct: 1" in str(drawn)
    assert "Ford" not in str(drawn)
    assert run.reply(row=1, model=models[1]).request.model == models[1]


@pytest.mark.slow
def test_a_key_is_in_no_score_and_no_name(session: Session) -> None:
    """A score hides the key, and a run or label that is called by it is not sent."""
    key = os.environ["SVC_API_KEY"]
    run = plan_run(session, "a", model=MODEL).run()
    run.score(seen=lambda _: f"sent with {key}")

    assert run.replies_df()["score_seen"].tolist() == ["sent with [key]"]
    for how in ({"name": f"mine {key}"}, {"system": {key: "Hi", "b": None}}):
        with pytest.raises(ParameterError, match="or a label contains the API key"):
            plan_run(session, "a", model=MODEL, **how).run()


@pytest.mark.slow
def test_a_comparison_shows_what_was_called(session: Session) -> None:
    """Where a reply is a call its field has the tool's name and arguments."""
    run = plan_run(
        session,
        "Order tea, please",
        model=MODEL,
        tools=[[tea], None],
        run_tools=False,
        max_tokens=40,
    )

    shown = run.run().compare()

    [(_, fields)] = shown.rows
    assert fields[0][0].text.startswith('tea({"cups"')
    assert fields[0][0].marks == ("tool calls",)
    assert not fields[1][0].text.startswith("tea(")


@pytest.mark.parametrize(
    ("prompt", "rows"),
    [("Say {{text}}.", True), ("Say {key}.", False), ([{"role": "user"}], False)],
)
def test_a_plan_with_the_key_is_refused(
    session: Session, prompt: object, *, rows: bool
) -> None:
    """A key in a row or a prompt is refused before any plan or frame can show it."""
    key = os.environ["SVC_API_KEY"]
    if isinstance(prompt, str):
        prompt = prompt.replace("{key}", key)
    else:
        prompt = [{"role": "user", "content": f"It is {key}."}]
    rows_with_key = ["a", f"my {key}"] if rows else None

    with pytest.raises(ParameterError, match="contains the API key") as caught:
        plan_run(session, prompt, model=MODEL, rows=rows_with_key)

    assert key not in str(caught.value)

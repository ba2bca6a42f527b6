"""Factors with labels: a label stands where a long value would."""

from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from svc_notebook.tools.toolbox import to_offer

SMALL, LARGE = "svc-v1.5-instruct", "svc-v2-8b-instruct"
STYLES = {"terse": "One word: {{text}}", "polite": "Please answer: {{text}}"}
ROWS = pd.DataFrame({"text": ["a", "b"]})
SHOTS = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
]
ASKED = {"role": "user", "content": "3 + 3?"}


def tea(cups: int) -> str:
    """Order tea.

    Args:
        cups: How many.
    """
    return f"{cups} cups"


def texts(values: list[str | None], name: str) -> "pd.Series[Any]":
    """Return the column of a frame."""
    return pd.Series(values, dtype="string", name=name)


@pytest.mark.slow
def test_labels_of_prompts_are_a_column_of_every_frame(session: Session) -> None:
    """Plan, replies, summary, usage and the ledger name each prompt by its label."""
    run = plan_run(session, STYLES, rows=ROWS, max_tokens=3).run()

    expected = texts(["terse", "polite"], "prompt_label")
    of_trials = texts(["terse", "polite"] * 2, "prompt_label")
    pd.testing.assert_series_equal(run.plan_df()["prompt_label"], of_trials)
    pd.testing.assert_series_equal(run.replies_df()["prompt_label"], of_trials)
    pd.testing.assert_series_equal(run.summary_df()["prompt_label"], expected)
    assert list(run.summary_df().columns[:1]) == ["prompt_label"]
    usage = run.usage_df(by="prompt_label", include_emulated=True)
    assert sorted(usage["prompt_label"]) == ["polite", "terse"]
    assert set(replies_df(session.ledger)["prompt_label"]) == {"terse", "polite"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model", {"small": SMALL, "large": LARGE}),
        ("system", {"none": None, "thai": "Answer in Thai."}),
        ("temperature", {"cold": 0, "warm": 0.9}),
        ("stop", {"none": None, "lines": ["\n", "\r"]}),
        ("tools", {"none": None, "tea": [tea]}),
        ("tools", {"tea": tea, "none": ()}),
    ],
)
def test_any_factor_can_have_labels(
    session: Session, name: str, values: dict[str, Any]
) -> None:
    """A mapping is taken where a list is, and its keys are the labels."""
    how: dict[str, Any] = {"model": LARGE, name: values}

    run = plan_run(session, "Hi", **how)

    assert run.plan_df()[f"{name}_label"].tolist() == list(values)
    assert run.summary_df()[f"{name}_label"].tolist() == list(values)


def test_one_definition_of_a_tool_has_no_labels(session: Session) -> None:
    """A tool's definition is a mapping, too, and is taken as what it is."""
    definition = to_offer([tea], run_tools=False).definitions[0]

    run = plan_run(session, "Hi", tools=definition)

    assert len(run) == 1
    assert run.grid[0].request.tools == (definition,)
    assert len(plan_run(session, "Hi", tools={"a": definition})) == 1
    assert "tools_label" not in run.plan_df()


def test_labels_change_no_request(session: Session) -> None:
    """A run with labels continues what was begun without, and under new labels."""
    plan_run(session, ["a", "b"], name="r", model=SMALL).run()

    again = plan_run(session, {"x": "a", "y": "b"}, name="r", model=SMALL)

    assert again.n_todo == 0
    assert again.replies_df()["prompt_label"].tolist() == ["x", "y"]


def test_labels_are_kept_and_chosen_by(session: Session) -> None:
    """`where` and the manifest have the labels of tied lists, too."""
    run = plan_run(
        session,
        STYLES,
        rows=ROWS,
        tied=["prompt", "temperature"],
        where=lambda c: c["prompt_label"] == "polite" and c["temperature_label"] == "b",
        temperature={"a": 0, "b": 1},
    )

    again = plan_run(session, manifest=run.manifest)

    assert len(run) == len(ROWS)
    expected = run.plan_df().drop(columns="run")
    pd.testing.assert_frame_equal(again.plan_df().drop(columns="run"), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompts", "labels"),
    [
        ([[ASKED], [*SHOTS, ASKED]], ["1 message", "3 messages"]),
        (["3 + 3?", [*SHOTS, ASKED]], ["1 message", "3 messages"]),
    ],
)
def test_prompts_that_end_alike_are_told_apart(
    session: Session, prompts: list[Any], labels: list[str]
) -> None:
    """Without labels they are named by their number of messages."""
    run = plan_run(session, prompts, model=SMALL).run()

    assert run.replies_df()["prompt_label"].tolist() == labels
    assert run.summary_df()["prompt_label"].tolist() == labels
    assert run.compare().heads == (("svc-v1.5-instruct",),)
    assert len(run.compare().rows) == len(labels)


def test_prompts_of_as_many_messages_are_numbered(session: Session) -> None:
    """Their order tells them apart; also among the prompts of conditions."""
    others = [{"role": "user", "content": "1 + 1?"}, {**SHOTS[1], "content": "2"}]
    prompts = [[*SHOTS, ASKED], [*others, ASKED]]

    by_name = plan_run(session, prompts, model=SMALL)
    conditions = [
        {"prompt": prompt, "temperature": temperature}
        for prompt in prompts
        for temperature in (0, 1)
    ]
    by_conditions = plan_run(session, conditions=conditions)

    numbered = ["1: 3 messages", "2: 3 messages"]
    assert by_name.plan_df()["prompt_label"].tolist() == numbered
    assert by_conditions.plan_df()["prompt_label"].tolist() == [
        label for label in numbered for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("varied", "said"),
    [
        ({"prompt": {}}, "prompt is an empty mapping"),
        ({"prompt": {"a": "x", "b": "x"}}, "same request: .*'a'.* and .*'b'"),
        ({"prompt": {"role": "user", "content": "x"}}, "one message; put it in a list"),
        ({"temperature": {1: 0.5}}, "label 1 of temperature is int; .* a text"),
        ({"temperature": {" ": 0.5}}, "label ' ' of temperature is empty"),
        ({"temperature": {"hot": 3}}, "This was the combination .*'hot'"),
    ],
)
def test_refuses_labels_that_cannot_be_meant(
    session: Session, varied: dict[str, Any], said: str
) -> None:
    """The message names the factor and what is allowed."""
    prompt = varied.pop("prompt", "Hi")

    with pytest.raises(ParameterError, match=said):
        plan_run(session, prompt, model=SMALL, **varied)


def test_a_column_of_the_rows_named_like_labels_is_refused(session: Session) -> None:
    """The message says which one to rename."""
    rows = ROWS.assign(prompt_label="mine")

    with pytest.raises(ParameterError, match="'prompt_label' is in rows and"):
        plan_run(session, STYLES, rows=rows)


def test_a_label_is_shown_as_the_text_that_it_is(session: Session) -> None:
    """HTML and Markdown in a label stay inert, wherever the run is displayed."""
    label = "<b onclick=alert(1)>`**x**"
    run = plan_run(session, {label: "a", "y": "b"}, model={label: SMALL}).run()

    html = "".join(
        shown._repr_mimebundle_()["text/html"] for shown in (run, run.compare())
    )

    assert "<b onclick" not in html
    assert "&lt;b onclick=alert(1)&gt;`**x**" in html


@pytest.mark.slow
def test_equal_models_under_two_labels_are_an_a_a_test(session: Session) -> None:
    """Each is asked by itself, and the labels are compared as two models would be."""
    run = plan_run(
        session,
        "Say {{text}}",
        rows=[{"text": text} for text in "abcd"],
        model={"a": SMALL, "b": SMALL},
        temperature=1,
    ).run()
    replies = run.replies_df()

    assert replies["model_label"].value_counts().to_dict() == {"a": 4, "b": 4}
    assert replies["exchange_id"].is_unique
    compared = run.contrast("model", on="completion_tokens")
    assert compared.factors == ["model_label"]
    assert set(compared.df[["level", "against"]].iloc[0]) == {"a", "b"}
    one = plan_run(session, "Say {{text}}", rows=[{"text": "a"}], model={"a": SMALL})
    bare = plan_run(session, "Say {{text}}", rows=[{"text": "a"}], model=SMALL)
    assert one.plan_df()["request_key"][0] == bare.plan_df()["request_key"][0]

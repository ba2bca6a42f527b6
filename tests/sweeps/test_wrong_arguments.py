"""Wrong arguments are refused before anything is sent."""

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
import svc_notebook.pandas  # registers df.svc
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import build_grid, make_plan

FRAME = pd.DataFrame({"text": ["a", "b"]})
TWICE = pd.DataFrame([["a", "b"]], columns=["text", "text"])
NO: Any = "no"


@pytest.fixture(autouse=True)
def _asked_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("SVC_API_KEY", "sk-test")
    monkeypatch.setenv("SVC_LEDGER", ":memory:")


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("raw must be True or False", lambda: svc.sweep("a", raw=NO)),
        ("reuse must be True or False", lambda: svc.sweep("a", reuse=NO)),
        (
            "expand must be True or False",
            lambda: FRAME.svc.complete("{{text}}", expand=NO),
        ),
        (
            "retry must be True or False",
            lambda: FRAME.svc.complete("{{text}}", retry=NO),
        ),
        ("reuse must be True or False; got 'n", lambda: svc.complete("a", reuse=NO)),
        ("run_tools must be True or False", lambda: svc.complete("a", run_tools=NO)),
        ("texts must be True or False", lambda: svc.replies_df(texts=NO)),
        (
            "include_emulated must be True or False",
            lambda: svc.usage_df(include_emulated=NO),
        ),
        (
            "include_reused must be True or False",
            lambda: svc.usage_df(include_reused=NO),
        ),
        ("A sweep asks for whole replies", lambda: svc.sweep("a", stream=True)),
        ("whole replies", lambda: FRAME.svc.complete("{{text}}", stream=True)),
        ("Give the prompt first", lambda: svc.sweep(messages=["a"])),
        ("without a name: a text", lambda: FRAME.svc.complete("{{text}}", prompt="a")),
        (
            "Two columns of rows are called 'text'",
            lambda: svc.sweep("{{text}}", rows=TWICE),
        ),
        (
            "Two columns of conditions are called 'text'",
            lambda: svc.sweep("a", conditions=TWICE),
        ),
        ("conditions is empty", lambda: svc.sweep("a", conditions=[])),
        (
            r"'lab\ud83d' in conditions contains half of a surrogate pair",
            lambda: svc.sweep("a", conditions=[{"lab\ud83d": "b"}]),
        ),
        (
            r"'lab\ud83d' in rows contains half of a surrogate pair",
            lambda: svc.sweep("a {{x}}", rows=[{"x": "b", "lab\ud83d": "b"}]),
        ),
        (
            "lab of condition 0 contains half of a surrogate pair",
            lambda: svc.sweep("a", conditions=[{"lab": "b\ud83d"}]),
        ),
        ("A lambda has neither", lambda: svc.sweep("a", tools=[lambda x: x])),
        ("tools must be a list of functions", lambda: svc.sweep("a", tools=5)),
        (
            "give a list: extra=[{...}, {...}]",
            lambda: svc.sweep("a", extra={"one": {"seed": 1}, "two": {"top_k": 2}}),
        ),
    ],
)
def test_wrong_arguments_are_refused_in_words(
    said: str, call: Callable[[], object]
) -> None:
    """The message speaks of what was called, and says what to give instead."""
    with pytest.raises(svc.SvcError) as caught:
        call()

    assert said in str(caught.value)
    assert "complete(...)" not in str(caught.value)


@pytest.mark.parametrize("verb", [svc.sweep, FRAME.svc.complete])
def test_parameters_are_seen_by_name(verb: Callable[..., object]) -> None:
    """`?` and Tab show what varies by the document's names."""
    names = list(inspect.signature(verb).parameters)

    wanted = {"temperature", "top_p", "max_tokens", "n", "stop", "user", "tools"}
    assert wanted <= set(names)
    assert names[0] in {"prompt", "template"}


MODEL = {"model": "m"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("Temperature", "temperature"),
        ("temp", "temperature"),
        ("max tokens", "max_tokens"),
        ("max-tokens", "max_tokens"),
        ("modle", "model"),
        ("systm", "system"),
        ("prompts", "prompt"),
        ("top-p", "top_p"),
    ],
)
def test_a_misspelt_parameter_is_refused(name: str, meant: str) -> None:
    """A name in conditions that is nearly a parameter is refused, with the name."""
    conditions = [{name: 1, "n": 1}, {name: 0, "n": 1}]

    with pytest.raises(ParameterError) as caught:
        build_grid("p", varied=MODEL, conditions=conditions)

    assert repr(name) in str(caught.value)
    assert f"Did you mean {meant}?" in str(caught.value)


def test_a_name_that_a_prompt_names_is_no_slip() -> None:
    """What a prompt names is a column, however near to a parameter."""
    grid = build_grid("Say {{prompts}}", varied=MODEL, conditions=[{"prompts": "x"}])

    assert grid[0].request.prompt == "Say x"


@pytest.mark.parametrize(
    ("prompt", "rows", "said"),
    [
        ("{{0}}", pd.DataFrame([["a", 1]]), "rename the columns"),
        ("{{my col}}", pd.DataFrame({"my col": ["a"]}), "rename the columns"),
        ("p", pd.DataFrame([["a", 1]]), "rows.set_axis(['text', 'column_1']"),
        ("p", pd.DataFrame({"my col": ["a"]}), "rename 'my col'"),
        ("{{a}}", pd.DataFrame({0: ["a"]}), "rename the columns"),
        ("p", pd.DataFrame([list("abcdef")]), "rows.rename(columns=...)"),
        ("p", pd.DataFrame({0: ["a"], "text": ["b"]}), "Write {{text}} where"),
    ],
)
def test_a_column_that_no_mark_can_name_is_said(
    prompt: str, rows: pd.DataFrame, said: str
) -> None:
    """A column with a number or with blanks as its name needs another one first."""
    with pytest.raises(ParameterError) as caught:
        build_grid(prompt, varied=MODEL, rows=rows)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"), [("repeat", "repeats"), ("row", "rows"), ("names", "name")]
)
def test_a_misspelt_word_of_a_sweep_is_refused(
    session: Session, name: str, meant: str
) -> None:
    """A misspelt argument of the sweep is refused with a suggestion."""
    misspelt: dict[str, Any] = {name: 5}

    with pytest.raises(ParameterError, match=f"^'{name}' .*Did you mean {meant}"):
        make_plan(session, "p", **misspelt)


def test_a_mistyped_model_is_said_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is planned as it is; a model that is like no other gets no line."""
    models = ["svc-v2-8b-instrct", "svc-v2-8b-instruct", "my-own"]

    run = svc.sweep("Hi", model=models)

    assert capsys.readouterr().err == (
        "svc-v2-8b-instrct is not in the service document; it is sent as it is. Did "
        "you mean svc-v2-8b-instruct?\n"
    )
    assert [*run.grid.n_by_model] == models

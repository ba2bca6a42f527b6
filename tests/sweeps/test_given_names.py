"""Names in lists of conditions and of columns."""

from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.sweeps.plan import build_grid

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


@pytest.mark.parametrize("name", ["label", "topic", "user_id", "language", "note", "k"])
def test_any_other_name_is_a_label(name: str) -> None:
    """A label tells trials apart and is kept beside the reply; it is not sent."""
    conditions = pd.DataFrame({"temperature": [0, 0], name: ["a", "b"]})

    grid = build_grid("p", varied=MODEL, conditions=conditions)

    assert [trial.columns for trial in grid] == [{name: "a"}, {name: "b"}]
    assert [trial.request.params for trial in grid] == [{"temperature": 0}] * 2


def test_a_name_that_a_prompt_names_is_no_slip() -> None:
    """What a prompt names is a column, however near to a parameter."""
    grid = build_grid("Say {{prompts}}", varied=MODEL, conditions=[{"prompts": "x"}])

    assert grid[0].request.prompt == "Say x"


@pytest.mark.parametrize(
    ("prompt", "rows", "said"),
    [
        ("{{0}}", pd.DataFrame([["a", 1]]), "rows.set_axis(['text', 'column_1']"),
        ("{{my col}}", pd.DataFrame({"my col": ["a"]}), "rename 'my col'"),
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


def test_the_way_on_for_numbered_columns_works() -> None:
    """With the names that were proposed the rows can be put in."""
    rows = pd.DataFrame([["a", 1], ["b", 2]])

    named = rows.set_axis(["text", "column_1"], axis="columns")

    grid = build_grid("{{text}} {{column_1}}", varied=MODEL, rows=named)
    assert [trial.request.prompt for trial in grid] == ["a 1", "b 2"]


def test_numbered_columns_that_are_not_put_in_join_back() -> None:
    """Columns with numbers as names do no harm where a prompt names another."""
    rows: Any = pd.DataFrame({"text": ["a"], 1: ["b"]})

    grid = build_grid("{{text}}", varied=MODEL, rows=rows)

    assert grid.source_columns(grid[0]) == {"row": 0, "text": "a", "1": "b"}


def test_rows_without_a_prompt_are_refused_by_that() -> None:
    """Where there is no prompt, that is said, whatever else was given."""
    with pytest.raises(ParameterError, match="There is no prompt"):
        build_grid(varied=MODEL, rows=[{"text": "a"}])


@pytest.mark.parametrize(
    ("name", "meant"), [("repeat", "repeats"), ("row", "rows"), ("names", "name")]
)
def test_a_misspelt_word_of_a_sweep_is_refused(name: str, meant: str) -> None:
    """What is nearly a word of the sweep's own is refused, and what is meant said."""
    with pytest.raises(ParameterError, match=f"^'{name}' .*Did you mean {meant}"):
        build_grid("p", varied={**MODEL, name: 5})


@pytest.mark.parametrize(
    ("conditions", "said"),
    [(3, "conditions is int"), ([3], "one of the conditions")],
)
def test_conditions_are_refused_by_their_name(conditions: object, said: str) -> None:
    """What is no list of conditions is refused by the name it was given under."""
    with pytest.raises(ParameterError, match=said) as caught:
        build_grid("p", varied=MODEL, conditions=conditions)

    assert caught.value.param == "conditions"

"""What a frame of replies says by its columns."""

from typing import Any

import pandas as pd
import pytest

from svc_notebook.analysis.reply_factors import (
    attributes,
    check_replies,
    column_of,
    factors,
    is_rate,
    measure,
    named,
    unit,
)
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _swept(**more: Any) -> pd.DataFrame:  # noqa: ANN401 - any column
    return replies(
        {"row": row, "prompt": f"Say {row}", "model": model, **more}
        for row in range(3)
        for model in (SMALL, LARGE)
    )


def test_an_index_may_have_the_names_of_columns() -> None:
    """What a frame is indexed by does not matter."""
    frame = _swept().set_index(["row", "model"], drop=False)

    assert check_replies(frame).index.equals(pd.RangeIndex(6))
    assert factors(check_replies(frame)) == ["model"]


@pytest.mark.parametrize("name", ["language", "rounds", "n_calls"])
def test_a_column_of_the_rows_may_have_any_name(name: str) -> None:
    """What the schema has not is a column of the rows, which summaries go by."""
    frame = replies(
        ({"row": row, "prompt": f"Say {row}", name: row % 2} for row in range(4)),
        middle=[name],
    )

    assert attributes(frame) == [name]


@pytest.mark.parametrize("name", [3, ("a", "b")])
def test_names_of_columns_are_texts(name: object) -> None:
    """A column whose name is no text is refused, with what makes it one."""
    frame = _swept().rename(columns={"text": name})

    with pytest.raises(
        ParameterError, match=r"names must be texts. Convert them with df.set_axis"
    ):
        check_replies(frame)


def test_what_is_unseen_in_a_value_is_escaped_in_errors() -> None:
    """A text of the rows cannot colour the terminal."""
    with pytest.raises(ParameterError, match=r"such as a\\x1b\[31m"):
        measure(_swept(kind="a\x1b[31m"), "kind")


def test_what_varies_is_a_factor() -> None:
    """Models and parameters with more than one value are factors, not sent included."""
    frame = replies(
        [
            {"model": SMALL, "temperature": None, "top_p": 0.5},
            {"model": LARGE, "temperature": 0.7, "top_p": 0.5},
        ]
    )

    assert factors(frame) == ["model", "temperature"]


def test_a_label_replaces_its_factor() -> None:
    """Labels of prompts and systems are factors instead of their texts."""
    rows = [
        {
            "row": row,
            "prompt": f"{style} {row}",
            "prompt_template": f"{style} {{{{text}}}}",
            "prompt_label": style,
            "system": f"Be {kind}.",
            "system_label": kind,
        }
        for row in range(2)
        for style in ("terse", "polite")
        for kind in ("kind", "cold")
    ]

    assert factors(replies(rows)) == ["prompt_label", "system_label"]


def test_columns_of_the_rows_are_no_factors() -> None:
    """What is one value for each prompt belongs to the prompt, also its system."""
    rows = [
        {"row": row, "lang": lang, "model": model, "system": f"Answer in {lang}."}
        for row, lang in enumerate(("th", "en"))
        for model in (SMALL, LARGE)
    ]

    assert factors(replies(rows, middle=["lang"])) == ["model"]


def test_labels_of_conditions_are_factors() -> None:
    """A column before `text` that differs for one prompt is a label of conditions."""
    rows = [
        {"row": row, "shots": shots, "n_words": row + len(shots)}
        for row in range(2)
        for shots in ("none", "five")
    ]

    assert factors(replies(rows, middle=["shots"])) == ["shots"]


def test_prompts_are_rows_or_texts() -> None:
    """A prompt is a row of the source, or its text where there are no rows."""
    assert unit(_swept()) == ["row"]
    assert unit(_swept().drop(columns="row")) == ["prompt"]


@pytest.mark.slow
def test_two_runs_over_the_same_rows_are_paired_by_the_text() -> None:
    """Rows of several runs are paired by text, or by run and row if texts vary."""
    runs = [_swept(run=run) for run in ("a", "b")]
    styled = [each.assign(prompt=each["model"]) for each in runs]

    assert unit(pd.concat(runs)) == ["prompt"]
    assert unit(pd.concat(styled)) == ["run", "row"]


def test_a_score_is_measured_in_floats() -> None:
    """True is 1, a missing score is NaN; the column has the score's or its own name."""
    frame = _swept().assign(
        score_right=pd.array([True, False, None] * 2, dtype="boolean")
    )

    found = measure(frame, "right")

    assert found.name == "score_right"
    assert found.fillna(-1).tolist() == [1.0, 0.0, -1.0] * 2
    assert found.equals(measure(frame, "score_right"))
    assert is_rate(frame, "right")
    assert not is_rate(frame.assign(score_right=0.5), "right")


def test_a_users_own_objects_are_measured() -> None:
    """True, False and None in a column of objects are a score, too."""
    frame = _swept().assign(score_right=pd.Series([True, None] * 3, dtype=object))

    assert measure(frame, "right").sum() == 3


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("rihgt", "Did you mean right"),
        (5, "on=5 is not a score or a column"),
        ("tone", "score_tone holds labels such as warm, cold"),
        ("text", "such as right"),
        ("speed", "has infinite values"),
    ],
)
def test_what_cannot_be_measured_is_refused(on: Any, said: str) -> None:  # noqa: ANN401
    """Unknown names, texts and infinite values are refused with what is allowed."""
    frame = _swept().assign(
        score_right=True, score_tone=["warm", "cold"] * 3, speed=float("inf")
    )

    with pytest.raises(ParameterError, match=said):
        measure(frame, on)


def test_a_frame_without_scores_says_how_to_make_one() -> None:
    """The error names the verb that scores."""
    with pytest.raises(ParameterError, match=r"no scores yet; run.score\(right="):
        column_of(_swept(), "right")


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ([1], "df must be a DataFrame of replies"),
        (pd.DataFrame({"a": [1]}), "lacks choice_index, model, prompt, status"),
        (_swept().set_axis([*_swept().columns[:-1], "model"], axis=1), "'model'"),
    ],
)
def test_a_frame_of_something_else_is_refused(frame: Any, said: str) -> None:  # noqa: ANN401
    """A value that has not the columns of replies is refused in our own words."""
    with pytest.raises(ParameterError, match=said):
        check_replies(frame)


def test_columns_are_named_with_near_names() -> None:
    """A name that does not exist is refused with a near one and with what varies."""
    with pytest.raises(
        ParameterError, match=r"Did you mean model.*that vary are: model"
    ):
        named(_swept(), "modle")

    assert named(_swept(prompt_label="terse"), ["prompt", "model", "model"]) == [
        "prompt_label",
        "model",
    ]

"""Grids over rows, templates, tied lists, conditions, and `where`."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.service.request import system, user
from svc_notebook.sweeps.grid import Grid
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.rows import read_rows

MODEL = {"model": "m"}
ROWS = [{"text": "one", "label": "a"}, {"text": "สอง", "label": "b"}]


def _prompts(grid: Grid) -> list[str]:
    return [trial.request.prompt for trial in grid]


def test_every_prompt_is_asked_for_every_row() -> None:
    """Rows vary slowest, so that the replies to one row stand together."""
    grid = build_grid(["A {{text}}", "B {{text}}"], varied=MODEL, rows=ROWS)

    assert _prompts(grid) == ["A one", "B one", "A สอง", "B สอง"]
    assert [trial.row for trial in grid] == [0, 0, 1, 1]


def test_fills_systems_and_messages_too() -> None:
    """Marks are filled wherever text is sent."""
    grid = build_grid(
        [[system("{{label}}"), {"role": "user", "content": "{{text}}"}]],
        varied=MODEL,
        rows=ROWS,
    )
    other = build_grid("Hi", varied={**MODEL, "system": "Be {{label}}"}, rows=ROWS)

    assert [message.content for message in grid[1].request.messages] == ["b", "สอง"]
    assert [message.content for message in other[0].request.messages] == ["Be a", "Hi"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, "1"),
        (1.5, "1.5"),
        (True, "True"),
        (np.bool_(1), "True"),
        (np.float32(0.5), "0.5"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 2), "2026-01-02"),
        (pd.Timestamp("2026-01-02 03:04"), "2026-01-02 03:04:00"),
        (pd.Period("2026-01", freq="M"), "2026-01"),
        (PurePosixPath("a/b"), "a/b"),
        ("", ""),
        ("{{text}}", "{{text}}"),
    ],
)
def test_values_read_as_they_are(value: object, expected: str) -> None:
    """A value is put in as it reads, and never expanded again."""
    grid = build_grid("<{{x}}>", varied=MODEL, rows=[{"x": value}])

    assert _prompts(grid) == [f"<{expected}>"]


def test_raw_prompts_are_sent_as_they_are() -> None:
    """With raw, marks are text; an escaped mark is text without it, too."""
    raw = build_grid("{{x}} \\{{y}}", varied=MODEL, is_raw=True)
    escaped = build_grid("\\{{y}}", varied=MODEL)

    assert (_prompts(raw), _prompts(escaped)) == (["{{x}} \\{{y}}"], ["{{y}}"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("{{ text }}", "Did you mean {{text}}?"),
        ("{{text+1}}", "Put what you compute into a column first."),
        ("{{row.text}}", "without spaces."),
        ("{{a b}}", "rename the columns, for example with rows.rename(columns=...)"),
        ("{{}}", "without spaces."),
    ],
)
def test_what_only_looks_like_a_mark_is_refused(mark: str, said: str) -> None:
    """A mark that is not a column's name is refused in prompts, systems, messages."""
    rows = [{"text": "one", "a b": "two"}]
    cases: list[dict[str, Any]] = [
        {"prompt": f"{{{{text}}}} {mark}", "varied": MODEL, "rows": rows},
        {"prompt": "{{text}}", "varied": {**MODEL, "system": mark}, "rows": rows},
        {"prompt": [user("{{text}} " + mark)], "varied": MODEL, "rows": rows},
    ]
    for case in cases:
        with pytest.raises(ParameterError) as caught:
            build_grid(**case)

        assert str(caught.value).startswith(f"{mark} is not a column: ")
        assert said in str(caught.value)
        assert f"write \\{mark}, or use raw=True." in str(caught.value)


@pytest.mark.parametrize(
    "prompt", ["Say {{text", "Say {{ text} now", "{{label}} {{text"]
)
def test_a_mark_that_is_not_closed_is_refused(prompt: str) -> None:
    """The message shows how the column is written."""
    with pytest.raises(ParameterError, match=r"\{\{text is not closed. Write {{text}}"):
        build_grid(prompt, varied=MODEL, rows=ROWS)


def test_braces_around_what_is_no_column_are_text() -> None:
    """Code and formulas may open braces twice."""
    grid = build_grid("{{text}} \\frac{{a}{b}} \\{{text", varied=MODEL, rows=ROWS)

    assert _prompts(grid)[0] == "one \\frac{{a}{b}} \\{{text"


def test_rows_that_read_the_same_are_trials_of_their_own() -> None:
    """Each row is sent, even if another gives the same prompt; earlier keys stay."""
    few = build_grid("{{text}}", varied=MODEL, rows=["a", "b", "a"])
    more = build_grid("{{text}}", varied=MODEL, rows=["a", "b", "a", "a"])

    ids = [trial.request_key for trial in few]
    assert len(set(ids)) == 3
    assert ids[2] == f"{ids[0]}-2"
    assert [trial.request_key for trial in more][:3] == ids


@pytest.mark.parametrize(
    ("prompt", "rows", "said"),
    [
        ("{{txt}}", ROWS, "Did you mean text?"),
        ("{{text}}", None, "no rows were given"),
        ("text", ROWS, "No prompt uses a column of the rows"),
        ("{{x}}", [{"x": "a"}, {"x": None}], "has no value in row 1,"),
        ("{{x}}", [{"x": None}] * 9, "rows 0, 1, 2, 3, 4 and 4 more"),
        (
            "{{x}}",
            pd.DataFrame({"x": ["a", np.nan]}, index=["p", "q"]),
            "has no value in row 'q',",
        ),
        ("{{x}}", [{"x": "\ud83d"}], "x of row 0 contains half of a surrogate pair"),
        ("{{x}}", [{"x": "a"}, {"x": " "}], "The prompt is empty for row 1."),
        ("{{x}}", [{"x": "a"}, {"x": b"a"}], "The column 'x' has bytes in row 1,"),
        ("{{x}}", [{"x": {1}}, {"x": {2}}], "has set in rows 0, 1,"),
        ("{{x}}", [{"x": object()}], "rows['x'].map(your_function)"),
        ("{{x}}", [{"x": ["a"]}], "a prompt takes texts, numbers and dates"),
    ],
)
def test_templates_are_checked_before_anything_is_sent(
    prompt: str, rows: object, said: str
) -> None:
    """Unknown columns, gaps and texts that cannot be sent are named."""
    with pytest.raises(ParameterError) as caught:
        build_grid(prompt, varied=MODEL, rows=rows)

    assert said in str(caught.value)


def test_tied_lists_go_side_by_side() -> None:
    """Lists that are tied are not multiplied; the others are."""
    varied = {"model": ["a", "b"], "temperature": [0, 1], "max_tokens": [10, 20]}
    grid = build_grid("p", varied=varied, tied=["model", "max_tokens"])

    assert [
        (c.model, c.request.params["temperature"], c.request.params["max_tokens"])
        for c in grid
    ] == [("a", 0, 10), ("a", 1, 10), ("b", 0, 20), ("b", 1, 20)]


@pytest.mark.parametrize(
    ("tied", "said"),
    [
        (["model", "n"], "must have the same length"),
        (["rows", "n"], "rows has 2, n has 3"),
        ("model", "has only 'model'"),
        (["model"], "has only 'model'"),
        (["model", "user"], "tied has 'user'"),
        (["model", "model"], "once"),
        ([["model", "temperature"], ["model", "n"]], "once"),
    ],
)
def test_refuses_lists_that_cannot_be_tied(tied: Any, said: str) -> None:  # noqa: ANN401 - both forms
    """Lists are tied once, and must have the same length."""
    varied = {"model": ["a", "b"], "temperature": [0, 1], "n": [1, 2, 3]}

    with pytest.raises(ParameterError) as caught:
        build_grid("{{text}}", varied=varied, rows=ROWS, tied=tied)

    assert said in str(caught.value)


def test_rows_can_be_tied() -> None:
    """Each row has its own value of what is tied to it; the rest is multiplied."""
    varied = {"model": ["a", "b"], "temperature": [0, 1], "n": [2, 3]}
    rows = ["one", "one"]

    grid = build_grid("{{text}}", varied=varied, rows=rows, tied=["rows", "n"])

    assert [
        (c.row, c.request.params["n"], c.model, c.request.params["temperature"])
        for c in grid
    ] == [
        (row, n, model, temperature)
        for row, n in ((0, 2), (1, 3))
        for model in ("a", "b")
        for temperature in (0, 1)
    ]
    assert len({trial.request_key for trial in grid}) == len(grid) == grid.n_product


def test_each_row_can_have_a_prompt_without_a_column() -> None:
    """Prompts that are tied to the rows differ by row, so no column is needed."""
    rows = [{"asked": "monday"}, {"asked": "friday"}]

    grid = build_grid(["A", "B"], varied=MODEL, rows=rows, tied=["rows", "prompt"])

    assert [trial.request.prompt for trial in grid] == ["A", "B"]


def test_an_explicit_list_of_conditions_is_asked_as_it_is() -> None:
    """Conditions are not multiplied; a gap is a parameter that is not sent."""
    conditions = pd.DataFrame(
        {
            "model": ["a", "b", "b"],
            "max_tokens": [10, None, 30],
            "note": list("xyz"),
        }
    )
    grid = build_grid(
        "p", varied={"temperature": 0, "model": "unused"}, conditions=conditions
    )

    assert [(c.model, c.request.params, c.columns) for c in grid] == [
        ("a", {"max_tokens": 10, "temperature": 0}, {"note": "x"}),
        ("b", {"temperature": 0}, {"note": "y"}),
        ("b", {"max_tokens": 30, "temperature": 0}, {"note": "z"}),
    ]


def test_conditions_may_have_prompts_and_columns() -> None:
    """Conditions may bring their own prompts, filled from their own columns."""
    conditions = [
        {"prompt": "Say {{x}}", "x": 1},
        {"prompt": "Sing {{x}}", "x": 2, "model": "o"},
    ]
    with pytest.raises(ParameterError, match="A condition has no model"):
        build_grid(varied={}, conditions=conditions)

    bare = [{name: point[name] for name in ("prompt", "x")} for point in conditions]
    grid = build_grid(varied=MODEL, conditions=bare)

    assert _prompts(grid) == ["Say 1", "Sing 2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"prompt": "p", "conditions": [{"prompt": "q"}]}, "prompt is given twice"),
        ({"conditions": [{"temperature": 1}]}, "There is no prompt"),
        ({"prompt": "p", "conditions": [{"temperature": 3}]}, "temperature=3"),
        (
            {"prompt": "{{text}}", "conditions": [{"text": "x"}], "rows": ROWS},
            "in rows and in conditions",
        ),
        ({"prompt": "{{x}}", "conditions": [{"x": 1}, {"y": 1}]}, "no value for 'x'"),
        ({"prompt": "{{x}}", "conditions": [{"x": b"a"}]}, "Condition 0 has bytes"),
        ({"prompt": "p", "conditions": [{"n": 1}, {"n": 1}]}, "the same request"),
    ],
)
def test_refuses_conditions_that_cannot_be_meant(
    arguments: dict[str, Any], said: str
) -> None:
    """Conditions are checked like everything else, before anything is sent."""
    with pytest.raises(ParameterError) as caught:
        build_grid(varied=MODEL, **arguments)

    assert said in str(caught.value)


def test_where_leaves_combinations_out() -> None:
    """`where` gets a combination's values and its row, and decides."""

    def where(point: Mapping[str, Any]) -> bool:
        return point["label"] == "b" or point["temperature"] is None

    grid = build_grid(
        "{{text}}",
        varied={**MODEL, "temperature": [0, None]},
        rows=ROWS,
        where=where,
        repeats=2,
    )

    assert len(grid) == 6
    assert [(c.request.prompt, c.request.params.get("temperature")) for c in grid][
        ::2
    ] == [("one", None), ("สอง", 0), ("สอง", None)]


def test_where_that_looks_at_no_name_is_refused() -> None:
    """A misspelt name in `where` is refused with the near one."""
    with pytest.raises(ParameterError, match="Did you mean label") as caught:
        build_grid(
            "{{text}}", varied=MODEL, rows=ROWS, where=lambda c: c["lable"] == "a"
        )

    assert caught.value.param == "where"
    with pytest.raises(KeyError, match="mine"):
        build_grid("p", varied=MODEL, where=lambda c: {}["mine" + c["model"][1:]])


def test_where_that_leaves_nothing_is_refused() -> None:
    """A plan without trials would ask nothing."""
    with pytest.raises(ParameterError, match="keeps none of 1"):
        build_grid("p", varied=MODEL, where=lambda _: False)


def test_a_million_trials_need_no_room() -> None:
    """Trials are made when they are looked at; the last is as near as the first."""
    grid = build_grid(
        "{{text}}",
        varied={"model": ["a", "b"], "temperature": [0, 1]},
        rows=[str(number) for number in range(1000)],
        repeats=250,
    )

    assert len(grid) == 1_000_000
    assert grid[999_999].request.prompt == "999"
    assert grid[999_999].repeat == 249
    with pytest.raises(IndexError):
        grid[1_000_000]


def test_where_that_raises_says_at_which_combination() -> None:
    """An error of the user's own function is theirs, with the combination noted."""
    with pytest.raises(ZeroDivisionError) as caught:
        build_grid(
            "p",
            varied={"model": "m", "temperature": [0, 1]},
            where=lambda c: 1 / c["temperature"] > 0,
        )

    [note] = caught.value.__notes__
    assert note.startswith("This was the combination prompt='p', model='m', temp")
    assert note.endswith("temperature=0; nothing was sent.")


def test_where_that_is_no_function_is_refused() -> None:
    """A text or a table given as where is refused before anything is looked at."""
    no_function: Any = "temperature == 0"

    with pytest.raises(ParameterError, match="where is str; give a function"):
        build_grid("p", varied={"model": "m"}, where=no_function)


FRAME = pd.DataFrame({"text": ["a", "b"], "n": [1, 2]}, index=["x", "x"])


@pytest.mark.parametrize(
    ("rows", "columns", "labels"),
    [
        (FRAME, {"text": ["a", "b"], "n": [1, 2]}, ["x", "x"]),
        (FRAME["text"], {"text": ["a", "b"]}, ["x", "x"]),
        (pd.Series(["a"]), {"text": ["a"]}, [0]),
        (pd.Series(["a"], name=0), {"text": ["a"]}, [0]),
        (pd.Series(["a"], name="my col"), {"text": ["a"]}, [0]),
        ([{"a": 1}, {"b": 2}], {"a": [1, None], "b": [None, 2]}, [0, 1]),
        (["a", "b"], {"text": ["a", "b"]}, [0, 1]),
        (iter(["a"]), {"text": ["a"]}, [0]),
    ],
)
def test_reads_rows(rows: object, columns: dict[str, Any], labels: list[Any]) -> None:
    """A frame, a series, mappings and texts are rows, kept by column."""
    read = read_rows(rows)

    assert {name: list(values) for name, values in read.columns.items()} == columns
    assert list(read.labels) == labels
    # a frame's numbers become Python's own
    assert not any(isinstance(value, np.generic) for value in read.row(0).values())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("text", "rows is str"),
        (5, "rows is int"),
        ({"a": 1}, "rows is dict"),
        (pd.DataFrame(index=[1]), "rows has no column"),
        ([{}], "rows has no column"),
        ([1, 2], "one of the rows is int"),
    ],
)
def test_refuses_what_are_no_rows(rows: object, said: str) -> None:
    """What cannot be read as rows is refused, saying what can."""
    with pytest.raises(ParameterError) as caught:
        read_rows(rows)

    assert said in str(caught.value)
    assert "Give a DataFrame" in str(caught.value)

"""A table of a reply becomes a DataFrame in the notebook's names."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from svc_notebook.display.markdown import tables
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.reply_table import MAX_CODE_ROWS, to_code, to_frame
from tests.panels.conftest import OpenPage, Page

TEAS = """\
| tea | cups | price |
|:--|--:|--:|
| **Oolong** | 1,200 | 2.5 |
| `__import__('os')` | 3 | |
| <b>ชา</b> | 45 | 10 |

> | a |
> |---|
> | 1 |
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that answers with two tables."""
    script: list[dict[str, Any]] = [{"text": TEAS, "times": None}]
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def make(page: Page, name: str, **more: object) -> dict[str, Any]:
    """Ask for a DataFrame of the first table; return the answer."""
    turn = page.view["turns"][-1]["id"]
    place = {"turn": turn, "choice": 0, "table": 0, "id": "f", "on": False}
    page.say("frame", **{**place, "name": name, **more})
    return page.all("framed")[-1]


def test_a_table_becomes_a_frame(open_page: OpenPage, shell: InteractiveShell) -> None:
    """Its texts are text, whatever they say; columns of numbers are numbers."""
    page = open_page()
    page.ask("Which teas?")

    answer = make(page, "teas")

    assert (answer["text"], answer["problem"]) == ("teas = 3 rows × 3 columns", "")  # noqa: RUF001
    frame = shell.user_ns["teas"]
    assert frame["tea"].tolist() == ["Oolong", "__import__('os')", "<b>ชา</b>"]
    assert frame["cups"].tolist() == [1200, 3, 45]
    assert str(frame["cups"].dtype) == "int64"
    assert frame["price"].isna().tolist() == [False, True, False]
    assert str(frame["price"].dtype) == "float64"


def test_a_cell_makes_the_frame_again(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """The answer has its code, which needs only pandas: Run All finds the name."""
    page = open_page()
    page.ask("Which teas?")
    code = make(page, "teas")["code"]
    made = shell.user_ns.pop("teas")

    shell.run_cell(code).raise_error()  # type: ignore[no-untyped-call]  # IPython's

    pd.testing.assert_frame_equal(shell.user_ns["teas"], made)
    assert make(page, "a b")["code"] == ""


def test_a_name_with_sara_am_is_a_variable(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Python keeps ำ as two letters in names, so a cell finds the frame."""
    page = open_page()
    page.ask("Which teas?")

    make(page, "จำนวน")
    shell.run_cell("n_rows = len(จำนวน)")  # type: ignore[no-untyped-call]  # IPython's

    assert shell.user_ns["n_rows"] == 3


def test_a_table_in_a_quote_counts_too(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Tables are counted as the page shows them."""
    page = open_page()
    page.ask("Which teas?")

    assert make(page, "a", table=1)["text"] == "a = 1 row × 1 column"  # noqa: RUF001
    assert shell.user_ns["a"].to_dict("list") == {"a": [1]}


@pytest.mark.parametrize(
    "name", ["", "2teas", "a b", "class", "In", "get_ipython", "__name__", "a.b", "x;y"]
)
def test_a_name_that_cannot_be_used_is_refused(
    open_page: OpenPage, shell: InteractiveShell, name: str
) -> None:
    """A keyword, no identifier, or one of IPython's: it says why and makes nothing."""
    page = open_page()
    page.ask("Which teas?")
    before = dict(shell.user_ns)

    answer = make(page, name, on=True)

    assert answer["problem"]
    assert not answer["is_taken"]
    assert shell.user_ns == before


@pytest.mark.parametrize(("name", "kind"), [("mine", "int"), ("list", "type")])
def test_a_name_that_is_taken_is_replaced_only_when_said(
    open_page: OpenPage, shell: InteractiveShell, name: str, kind: str
) -> None:
    """Names of Python's own functions are taken, too."""
    page = open_page()
    page.ask("Which teas?")
    shell.user_ns["mine"] = 5

    answer = make(page, name)
    assert answer["is_taken"]
    assert f"{name} is taken: it is a {kind}" in answer["problem"]
    assert shell.user_ns.get("mine") == 5
    assert make(page, name, on=True)["problem"] == ""
    assert isinstance(shell.user_ns[name], pd.DataFrame)


@pytest.mark.parametrize("place", [{"table": 2}, {"choice": 1}, {"table": -1}])
def test_a_table_that_is_gone_is_refused(
    open_page: OpenPage, shell: InteractiveShell, place: dict[str, int]
) -> None:
    """The page may show an older version of the reply."""
    page = open_page()
    page.ask("Which teas?")

    assert "no longer in the reply" in make(page, "teas", **place)["problem"]
    assert "teas" not in shell.user_ns


def test_it_works_in_a_program_without_a_notebook(open_page: OpenPage) -> None:
    """It says that there is nowhere to put the DataFrame."""
    page = open_page()
    page.ask("Which teas?")

    assert make(page, "teas")["problem"] == "There is no notebook with variables here."


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", "-2", "+3"], "int64"),
        (["1", ""], "Int64"),
        (["1,234", "0.5"], "float64"),
        (["12%"], "text"),
        (["007"], "text"),
        (["1,23"], "text"),
        (["๑๒"], "text"),
        (["1e5"], "text"),
        (["nan"], "text"),
        (["1234567890123456"], "text"),
        (["", ""], "text"),
        (["1", "two"], "text"),
    ],
)
def test_what_is_a_number(cells: list[str], dtype: str) -> None:
    """Plain ASCII numbers of at most 15 digits; one other cell makes a column text."""
    frame = to_frame([["x"], *([cell] for cell in cells)])

    got = str(frame["x"].dtype)
    assert got.replace("string", "text") == dtype
    if dtype == "text":
        assert frame["x"].tolist() == cells


def test_headings_are_unique() -> None:
    """Equal ones are numbered, empty ones named by their place."""
    [rows] = tables("| a | a | | a_2 |\n|--|--|--|--|\n| 1 | 2 | 3 | 4 |")

    assert list(to_frame(rows)) == ["a", "a_2", "column_3", "a_2_2"]


def test_a_table_without_rows_has_its_columns() -> None:
    """There is nothing to tell numbers from text."""
    frame = to_frame([["a", "b"]])

    assert (frame.shape, list(frame)) == ((0, 2), ["a", "b"])


HOSTILE = [
    "'); import os #",
    '"""',
    "\\",
    "\\'",
    "{x}",
    "%%bash",
    "!ls",
    "a?",
    "\u202e\u2028",
    "\n!ls",
    "",
]


def test_code_of_a_frame_quotes_every_text(shell: InteractiveShell) -> None:
    """Headings and cells stay text, and a column keeps its kind."""
    numbers = [str(n) for n in range(len(HOSTILE))]
    columns = [HOSTILE, numbers, ["", *numbers[1:]], ["", "0.1", *numbers[2:]]]
    headings = ["'): 1}); x = (", "%%bash\n!ls", "whole", "part"]
    frame = to_frame([headings, *map(list, zip(*columns, strict=True))])

    code = to_code("teas", frame)
    shell.run_cell(code).raise_error()  # type: ignore[no-untyped-call]  # IPython's

    pd.testing.assert_frame_equal(shell.user_ns["teas"], frame)
    assert code.replace("\n", "").isprintable()
    assert "x" not in shell.user_ns


@pytest.mark.parametrize(("n_rows", "has_code"), [(0, True), (50, True), (51, False)])
def test_a_long_frame_has_no_code(
    shell: InteractiveShell, n_rows: int, has_code: bool
) -> None:
    """A cell of many lines of values is no help."""
    frame = to_frame([["a", "b"], *([str(n), "x"] for n in range(n_rows))])

    code = to_code("teas", frame)
    assert bool(code) == has_code == (n_rows <= MAX_CODE_ROWS)
    if has_code:
        shell.run_cell(code).raise_error()  # type: ignore[no-untyped-call]  # IPython's
        pd.testing.assert_frame_equal(shell.user_ns["teas"], frame)

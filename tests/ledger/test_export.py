"""Frames as files: identical from Parquet, harmless and whole in a spreadsheet."""

import csv
import importlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from svc_notebook.errors import ConfigError, ParameterError, SvcError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.frame_export import export, read_parquet
from svc_notebook.ledger.reply_frames import replies_frame
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import build_request

openpyxl: Any = pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

MakeExchange = Callable[..., Exchange]

TEXTS = [
    '=HYPERLINK("http://evil.test")',
    "  +1+cmd|' /C calc'!A0",
    "\uff1d1+1",
    "\t=1",
    "สวัสดีครับ\nบรรทัดที่สอง",
    'quotes " and, commas; and 👩‍🚀',
    "carriage\r\nreturn",
    "-5",
    "\x00\x1b[31mred",
    "_x0041_",
    "",
]


def _frame(make: MakeExchange) -> pd.DataFrame:
    columns = {"word": "=a", "size": 3, "share": 0.5, "is_new": True}
    asked = [
        make(
            at,
            body=CompletionBody(choices=(Choice(text=text, finish_reason="stop"),)),
            origin=Origin(columns=columns if at % 2 else {}),
            request=build_request(text or "Hi", model="m"),
        )
        for at, text in enumerate(TEXTS)
    ]
    return replies_frame([*asked, make(99, body=None, status="error")])


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def _cells(path: Path) -> Any:  # noqa: ANN401 - openpyxl has no types
    return openpyxl.load_workbook(path)["svc"]


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 12])
def test_parquet_comes_back_identical(
    make: MakeExchange, tmp_path: Path, n: int
) -> None:
    """Values, dtypes and template columns come back, also of no rows."""
    frame = _frame(make).iloc[:n]

    got = read_parquet(export(frame, tmp_path / "r.parquet"))

    assert_frame_equal(got, frame)


@pytest.mark.parametrize("content", [None, b"", b"no parquet at all"])
def test_refuses_what_is_no_parquet(tmp_path: Path, content: bytes | None) -> None:
    """A file that cannot be read is refused as ours."""
    path = tmp_path / "r.parquet"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ParameterError, match=r"r\.parquet' cannot be read"):
        read_parquet(path)


@pytest.mark.slow
def test_no_cell_of_a_csv_is_a_formula(make: MakeExchange, tmp_path: Path) -> None:
    """In CSV every text that looks like a formula has a quote in front."""
    rows = _rows(export(_frame(make), tmp_path / "r.csv"))

    at = rows[0].index("text")
    texts = [row[at] for row in rows[1:-1]]
    assert texts == ["'" + text for text in TEXTS[:4]] + TEXTS[4:8] + [
        "\x00\x1b[31mred",
        "_x0041_",
        "",
    ]
    assert {row[rows[0].index("word")] for row in rows[1:]} == {"'=a", ""}


@pytest.mark.slow
def test_a_csv_is_opened_rightly(make: MakeExchange, tmp_path: Path) -> None:
    """It begins with the mark of UTF-8, its lines end as a spreadsheet's do."""
    content = export(_frame(make), tmp_path / "r.csv").read_bytes()

    assert content.startswith(b"\xef\xbb\xbfword,size,share,is_new,model,")
    assert content.endswith(b"\r\n")
    assert "สวัสดีครับ\nบรรทัดที่สอง".encode() in content


def test_names_of_columns_are_neutralised_too(
    make: MakeExchange, tmp_path: Path
) -> None:
    """A template column may be called anything, and is no formula either."""
    frame = replies_frame([make(origin=Origin(columns={"=x": 1}))])

    assert "'=x" in _rows(export(frame, tmp_path / "r.csv"))[0]


@pytest.mark.slow
def test_a_workbook_holds_texts_as_texts(make: MakeExchange, tmp_path: Path) -> None:
    """In Excel no cell is a formula, and every text is as it was."""
    sheet = _cells(export(_frame(make), tmp_path / "r.xlsx"))

    names = [cell.value for cell in sheet[1]]
    column = [row[names.index("text")] for row in sheet.iter_rows(min_row=2)]
    assert {cell.data_type for cell in column} <= {"s", "inlineStr", "n"}  # n: empty
    unescape = importlib.import_module("openpyxl.utils.escape").unescape
    got = [unescape(cell.value or "") for cell in column][: len(TEXTS)]
    assert got == TEXTS
    assert [cell.quotePrefix for cell in column[:5]] == [True] * 4 + [False]


@pytest.mark.slow
def test_a_workbook_has_instants_and_numbers(
    make: MakeExchange, tmp_path: Path
) -> None:
    """Instants are dates of UTC, numbers numbers, what is missing is empty."""
    sheet = _cells(export(_frame(make), tmp_path / "r.xlsx"))

    names = [cell.value for cell in sheet[1]]
    row = dict(zip(names, (cell.value for cell in sheet[2]), strict=True))
    assert row["started_at"] == datetime(2026, 1, 1)  # noqa: DTZ001 - Excel's are naive
    assert (row["est_prompt_tokens"], row["latency_s"], row["run"]) == (8, 0.5, None)


def test_a_workbook_can_be_read_as_it_opens(tmp_path: Path) -> None:
    """Columns are as wide as what they hold, texts wrap, and the heading stays."""
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "model": ["svc-v2-8b-instruct", "=1+1"],
            "text": ["a long reply " * 50, "ก่\nsecond line"],
            "started_at": pd.to_datetime(["2026-01-01 10:00"] * 2, utc=True),
            "a_long_name_of_a_column": [0.5, None],
        }
    )

    sheet = _cells(export(frame, tmp_path / "r.xlsx"))

    widths = {
        cell.value: sheet.column_dimensions[cell.column_letter].width
        for cell in sheet[1]
    }
    assert widths["id"] == 8
    assert widths["text"] == 60
    assert 18 < widths["model"] < 24
    assert 19 <= widths["started_at"] < 24  # narrower, a spreadsheet shows ####
    assert len("a_long_name_of_a_column") < widths["a_long_name_of_a_column"] < 30
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:E3")
    assert all(cell.font.bold for cell in sheet[1])
    assert sheet["C2"].alignment.wrap_text
    assert {sheet[place].alignment.vertical for place in ("A2", "B3", "C2", "D2")} == {
        "top"
    }
    assert (sheet["B3"].value, sheet["B3"].data_type) == ("=1+1", "s")
    assert sheet["B3"].quotePrefix


@pytest.mark.parametrize("frame", [pd.DataFrame(), pd.DataFrame({"a": []})])
def test_a_workbook_without_rows_opens(tmp_path: Path, frame: pd.DataFrame) -> None:
    """No rows, and also no columns, make a sheet."""
    sheet = _cells(export(frame, tmp_path / "r.xlsx"))

    assert [cell.value for cell in sheet[1] if cell.value] == list(frame.columns)


def test_a_number_too_large_for_a_workbook_is_text(tmp_path: Path) -> None:
    """An integer that a spreadsheet would round is written as text."""
    frame = pd.DataFrame({"a": pd.array([2**60], dtype="Int64")})

    assert _cells(export(frame, tmp_path / "r.xlsx"))["A2"].value == str(2**60)


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_warns_of_cells_that_are_cut(tmp_path: Path, ending: str) -> None:
    """A text longer than a cell is warned about, with its column and how many."""
    frame = pd.DataFrame({"text": pd.array(["a" * 40_000, "b"], dtype="string")})

    with pytest.warns(UserWarning, match=r"in text \(1\)"):
        path = export(frame, tmp_path / f"r.{ending}")

    if ending == "csv":
        assert len(_rows(path)[1][0]) == 40_000
    else:
        assert len(_cells(path)["A2"].value) == 32_767


@pytest.mark.slow
def test_json_lines_hold_everything_as_it_is(
    make: MakeExchange, tmp_path: Path
) -> None:
    """Texts are exact, missing values null, instants ISO, Thai readable."""
    path = export(_frame(make), tmp_path / "r.jsonl")

    content = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.split("\n")[:-1]]
    assert [row["text"] for row in rows] == [*TEXTS, None]
    assert datetime.fromisoformat(rows[0]["started_at"]) == datetime(
        2026, 1, 1, tzinfo=UTC
    )
    assert "สวัสดีครับ" in content


INDEXED = [
    (pd.Index(["a", "b"], name="text"), ["text"], [["a"], ["b"]]),
    (pd.Index([5, 3]), ["index"], [[5], [3]]),
    (pd.RangeIndex(2, name="id"), ["id"], [[0], [1]]),
    (
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["text", None]),
        ["text", "level_1"],
        [["a", 1], ["b", 2]],
    ),
    (pd.RangeIndex(2), [], [[], []]),
    (pd.Index([0, 1]), [], [[], []]),
]


@pytest.mark.parametrize(("index", "names", "values"), INDEXED)
def test_an_index_is_kept(
    tmp_path: Path, index: pd.Index, names: list[str], values: list[list[object]]
) -> None:
    """An index with a name, or that is not 0 to n - 1, is in the first columns."""
    columns = pd.CategoricalIndex(["one", "other"], name="model")  # of a pivot table
    frame = pd.DataFrame([[1, 2], [3, 4]], index=index, columns=columns)

    lines = _rows(export(frame, tmp_path / "p.csv"))
    sheet = _cells(export(frame, tmp_path / "p.xlsx"))
    content = export(frame, tmp_path / "p.jsonl").read_text("utf-8")

    first, second = [*values[0], 1, 2], [*values[1], 3, 4]
    assert lines == [
        [*names, "one", "other"],
        *([str(value) for value in row] for row in (first, second)),
    ]
    assert [[cell.value for cell in row] for row in sheet] == [
        [*names, "one", "other"],
        first,
        second,
    ]
    assert [list(json.loads(line).items()) for line in content.splitlines()] == [
        list(zip([*names, "one", "other"], row, strict=True)) for row in (first, second)
    ]
    got = read_parquet(export(frame, tmp_path / "p.parquet"))
    assert_frame_equal(got, frame, check_column_type=False, check_categorical=False)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "xlsx", "parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, ending: str) -> None:
    """A file would lose one of them, so they are named first."""
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])

    with pytest.raises(ParameterError, match="Two columns of the frame are called 'a'"):
        export(frame, tmp_path / f"d.{ending}")


@pytest.mark.slow
def test_more_rows_than_a_sheet_has_are_refused(tmp_path: Path) -> None:
    """A workbook is refused above 1,048,575 rows, with other formats to take."""
    frame = pd.DataFrame({"a": np.zeros(1_048_576, dtype="int8")})

    with pytest.raises(ParameterError, match=r"1,048,576 rows.* \.parquet, \.csv"):
        export(frame, tmp_path / "r.xlsx")

    assert list(tmp_path.iterdir()) == []


def test_a_name_without_a_kind_is_refused(tmp_path: Path) -> None:
    """A file name must say what to write."""
    with pytest.raises(ParameterError, match=r"\.parquet, \.csv, \.jsonl, \.xlsx"):
        export(pd.DataFrame(), tmp_path / "r.doc")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "xlsx", "parquet"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, ending: str) -> None:
    """A folder that is not there is refused as ours."""
    with pytest.raises(ParameterError, match="cannot be written: No such file"):
        export(pd.DataFrame({"a": [1]}), tmp_path / "no" / f"r.{ending}")


def test_a_package_that_does_not_fit_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed but cannot be imported is said with its own reason."""
    reason = "numpy.core.multiarray failed to import"
    (tmp_path / "openpyxl.py").write_text(f"raise ImportError({reason!r})")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("openpyxl")]:
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(ConfigError) as caught:
        export(pd.DataFrame({"a": [1]}), tmp_path / "r.xlsx")

    assert str(caught.value) == (
        "Excel workbooks need openpyxl, which is installed but cannot be imported "
        f"(ImportError: {reason}). Its version probably does not fit the other "
        "packages. Upgrade it with: python -m pip install --upgrade openpyxl"
    )


def test_a_mistake_of_ours_is_not_the_files(tmp_path: Path) -> None:
    """A failure of another kind says so, keeps its cause, and leaves no file."""

    class Broken:
        def __str__(self) -> str:
            raise TypeError("not a text")

    with pytest.raises(SvcError) as caught:
        export(pd.DataFrame({"a": [Broken()]}), tmp_path / "r.csv")

    assert str(caught.value).startswith("Internal error in svc_notebook (TypeError, ")
    assert isinstance(caught.value.__cause__, TypeError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "ending"), [("pyarrow", "parquet"), ("openpyxl", "xlsx")]
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, ending: str
) -> None:
    """Without the package the error names it and the command that installs it."""
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigError, match=rf"need {package}.* pip install {package}$"):
        export(pd.DataFrame({"a": [1]}), tmp_path / f"r.{ending}")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("frame", [[1], "text", None, pd.Series([1])])
def test_what_is_no_frame_is_refused(tmp_path: Path, frame: Any) -> None:  # noqa: ANN401 - anything
    """Only a DataFrame is exported."""
    with pytest.raises(ParameterError, match="takes a DataFrame"):
        export(frame, tmp_path / "a.csv")


SOURCE = {
    "month": pd.period_range("2024-01", periods=2, freq="M"),
    "span": pd.interval_range(0, 2),
    "tags": pd.Series([["a", "ก"], {"b": None}], dtype=object),
    "share": pd.Series([Fraction(1, 3), 2], dtype=object),
    "weights": pd.Series([np.array([1, 2]), np.array([3])], dtype=object),
    "born": pd.Series([date(1800, 1, 2), date(2000, 1, 2)], dtype=object),
    "most": [float("inf"), 1.5],
    "raw": [b"\xff", b"a"],
}
"""Columns a source may have, and a spreadsheet has nothing for."""


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_any_source_goes_into_lines(tmp_path: Path, ending: str) -> None:
    """CSV and JSON lines take every kind of column a source may have."""
    path = export(pd.DataFrame(SOURCE), tmp_path / f"s{ending}")

    assert len(path.read_text("utf-8-sig").splitlines()) == (
        3 if ending == ".csv" else 2
    )


@pytest.mark.parametrize(
    "values",
    [
        [["a"], {"b": 1}],
        [{"a": 1}, {"b": "ก"}],
        [[1, 2], ["a"]],
        [[1.5, None], None],
        [],
    ],
)
def test_lists_and_dicts_come_back_identical(
    tmp_path: Path, values: list[object]
) -> None:
    """Parquet takes columns that mix lists and dicts, and no dict gains a key."""
    frame = pd.DataFrame({"at": range(len(values))})
    frame["nested"] = pd.Series(values, dtype=object)

    got = read_parquet(export(frame, tmp_path / "n.parquet"))

    assert_frame_equal(got, frame)
    assert (got.attrs, frame.attrs) == ({}, {})


def test_names_the_column_that_parquet_cannot_hold(tmp_path: Path) -> None:
    """A mixture without a Parquet kind is refused by its column's name."""
    frame = pd.DataFrame({"a": ["x", "y"], "b": pd.Series([1, "a"], dtype=object)})

    with pytest.raises(ParameterError, match=r"Column 'b' .*int, str.*\.map\(str\)"):
        export(frame, tmp_path / "m.parquet")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("suffix", "wrong"),
    [
        *((suffix, "b\ud83d") for suffix in (".csv", ".xlsx", ".jsonl", ".parquet")),
        (".jsonl", ["b\ud83d"]),
    ],
)
def test_names_the_cell_that_no_file_can_hold(
    tmp_path: Path, suffix: str, wrong: object
) -> None:
    """Half of a surrogate pair is refused by its row and column."""
    frame = pd.DataFrame({"a": pd.Series([["x"], wrong], dtype=object)})

    with pytest.raises(ParameterError, match="a of row 1 contains half of a surrogate"):
        export(frame, tmp_path / f"m{suffix}")

    assert list(tmp_path.iterdir()) == []


MAX_UNITS = 32_767
FORMULAS = [
    "=1+1",
    "+cmd|'/c calc'!A0",
    "-2+3+cmd",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "  =1",
    "\u00a0=1",
    "\u3000=1",
    "\u200b=1",
    "\ufeff=1",
    "\x00=1",
    "\uff1d1+1",
    "\uff0b1+cmd",
    "\uff0dcmd",
    "\uff20SUM(A1)",
    " \t\uff1d1",
    "\ufe66SUM",
    "=",
    "-",
    "-5 apples",
    "+66 81 234 5678",
]
PLAIN = [
    "",
    "a=b",
    "สวัสดี",
    "'=1",
    "5",
    "-5",
    "+5",
    "-0.5",
    "+.5e-3",
    "-12%",
    "1=1",
    " ",
    "\u200bx",
    "— a dash",
]


def _in_csv(folder: Path, texts: list[str]) -> list[str]:
    path = export(pd.DataFrame({"a": texts, "b": 1}), folder / "t.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


def _in_workbook(folder: Path, text: str) -> str:
    path = export(pd.DataFrame({"a": [text]}), folder / "t.xlsx")
    value = openpyxl.load_workbook(path)["svc"]["A2"].value
    return str(importlib.import_module("openpyxl.utils.escape").unescape(value))


def test_a_formula_gets_a_quote(tmp_path: Path) -> None:
    """What a spreadsheet might reckon with or run is made a text."""
    assert _in_csv(tmp_path, FORMULAS) == ["'" + text for text in FORMULAS]


def test_other_text_is_left_alone(tmp_path: Path) -> None:
    """Ordinary text, and what is only a number, stays as it is."""
    assert _in_csv(tmp_path, PLAIN) == PLAIN


@pytest.mark.slow
@given(st.text(" \u200b\t", max_size=3), st.sampled_from("=+-@"), st.text(max_size=9))
def test_no_sign_after_blanks_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory, before: str, sign: str, after: str
) -> None:
    """Whatever follows the sign, the written text begins harmlessly."""
    text = before + sign + "a" + after.replace("\r", "").replace("\0", "")

    assert _in_csv(tmp_path_factory.mktemp("csv"), [text]) == ["'" + text]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * (MAX_UNITS + 1), MAX_UNITS),
        ("👩" * (MAX_UNITS // 2 + 1), MAX_UNITS // 2),
        ("ก" * (MAX_UNITS + 1), MAX_UNITS),
    ],
)
def test_a_longer_text_is_cut_between_characters(
    tmp_path: Path, text: str, kept: int
) -> None:
    """What a cell cannot hold is cut, with a warning."""
    with pytest.warns(UserWarning, match=r"in a \(1\)"):
        found = _in_workbook(tmp_path, text)

    assert found == text[:kept]


@pytest.mark.parametrize(
    "text",
    ["plain ไทย\n\ttext", "\x00\x1b[31m", "a\r\nb", "_x0041_", "_x41_", "\ufffe"],
)
def test_a_workbook_carries_what_xml_cannot(tmp_path: Path, text: str) -> None:
    """Control characters come back as a workbook writes them."""
    assert _in_workbook(tmp_path, text) == text

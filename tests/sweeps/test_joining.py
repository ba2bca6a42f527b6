"""The columns of the rows beside the replies, as they are in the source."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

SMALL = "svc-v2-8b-instruct"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without limits."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def _rows(**more: Any) -> pd.DataFrame:  # noqa: ANN401 - arguments of a frame
    return pd.DataFrame(
        {
            "body": ["หนึ่ง", "two"],
            "day": pd.Series(["2026-01-31", None], dtype="datetime64[us]").array,
            "at": pd.to_datetime(["2026-01-31 10:00"] * 2).tz_localize("Asia/Bangkok"),
            "kind": pd.Categorical(["x", None], categories=["x", "y"], ordered=True),
            "took": pd.to_timedelta(["1 s", "2 s"]),
            "small": pd.array([1, 2], dtype="int8"),
            "gap": [1.5, None],
            "whole": pd.array([None, 2], dtype="Int64"),
            "anything": [[1, 2], {"a": 1}],
        },
        **more,
    )


@pytest.mark.parametrize("when", ["planned", "asked"])
def test_dtypes_are_those_of_the_source(session: Session, when: str) -> None:
    """Every column comes back with its own dtype and values, whatever they are."""
    rows = _rows()
    run = plan_run(session, "{{body}}", rows=rows, model=[SMALL, "svc-v2-70b-instruct"])

    frame = run.plan_df() if when == "planned" else run.run().replies_df()

    found = frame[rows.columns]
    expected = rows.iloc[[0, 0, 1, 1]].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)


def test_what_becomes_of_the_frame_later_changes_nothing(session: Session) -> None:
    """The rows are as they were when the sweep was planned."""
    rows = _rows()
    run = plan_run(session, "{{body}}", rows=rows)

    rows.loc[0, "body"] = "changed"
    rows["day"] = "never"

    frame = run.run().replies_df()
    assert frame["body"].tolist() == ["หนึ่ง", "two"]
    assert frame["prompt"].tolist() == ["หนึ่ง", "two"]
    assert frame["day"].dtype == _rows()["day"].dtype


def test_rows_are_told_apart_by_their_position(session: Session) -> None:
    """`row` is the position in the rows given, also where the index has duplicates."""
    rows = _rows(index=[7, 7])
    run = plan_run(session, "{{body}}", rows=rows, repeats=2)

    frame = run.run().replies_df()

    assert frame["row"].tolist() == [0, 0, 1, 1]
    assert frame["row"].dtype == "Int64"
    assert frame["index"].tolist() == [7] * 4
    back = rows.iloc[frame["row"]]
    assert back["body"].tolist() == frame["body"].tolist()


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (None, []),
        (pd.Index(["a", "b"], name="id"), ["id"]),
        (pd.Index([3, 1]), ["index"]),
        (pd.Index([3, 1], name="body"), ["var_body"]),
        (pd.date_range("2026-01-31", periods=2, name="when"), ["when"]),
        (
            pd.MultiIndex.from_tuples([(1, "a"), (1, "b")], names=["part", None]),
            ["part", "level_1"],
        ),
    ],
)
def test_an_index_joins_back_too(
    session: Session, index: pd.Index | None, names: list[str]
) -> None:
    """An index that is more than a count has columns, named as pandas names them."""
    rows = pd.DataFrame({"body": ["a", "b"]}, index=index)

    frame = plan_run(session, "{{body}}", rows=rows).plan_df()

    columns = frame.columns.tolist()
    assert columns[: len(names) + 3] == ["row", *names, "body", "model"]
    for level, name in enumerate(names):
        expected = rows.index.get_level_values(level)
        assert frame[name].tolist() == expected.tolist()
        assert frame[name].dtype == expected.dtype


def test_groups_keep_their_kinds(session: Session) -> None:
    """Summed up by columns of the rows, their dtypes are theirs; gaps are one group."""
    rows = _rows()
    rows = pd.concat([rows, rows], ignore_index=True)

    summary = plan_run(session, "{{body}}", rows=rows).summary_df(by=["day", "kind"])

    assert summary[["day", "kind"]].dtypes.equals(rows[["day", "kind"]].dtypes)
    assert summary["n_cells"].tolist() == [2, 2]
    assert summary["day"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "rows",
    [
        _rows().iloc[:0],
        _rows(index=[5, 6]).iloc[:0],
        _rows()["body"].iloc[:0],
        pd.DataFrame({"body": []}),
        pd.DataFrame(),
        [],
    ],
)
def test_no_rows_are_asked_nothing(
    session: Session, emulator: Emulator, rows: object
) -> None:
    """Without rows a run is whole at once, and its frames have their columns."""
    run = plan_run(session, "{{body}}", rows=rows, model=[SMALL, "o"])

    shown = repr(run)
    frame = run.run().retry().replies_df()

    assert "0 requests planned, nothing to send." in shown
    assert "tokens" not in shown
    assert (len(run), run.n_todo, len(frame), len(emulator.requests)) == (0, 0, 0, 0)
    full = plan_run(session, "p").plan_df()
    joined = frame.columns.drop(full.columns).tolist()
    expected = run.grid.rows
    assert expected is not None
    assert joined == ["row", *expected.shown]
    assert frame[full.columns].dtypes.equals(full.dtypes)
    if isinstance(rows, pd.DataFrame):
        assert frame[rows.columns].dtypes.equals(rows.dtypes)
    assert run.summary_df().empty
    assert "0 requests" in str(run.compare())
    assert run.manifest["n_cells"] == 0
    assert not run._repr_mimebundle_()["text/html"].startswith("Traceback")

"""The replies of a run are written into Parquet files, one part after the other."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_export import read_parquet
from svc_notebook.session import Session
from svc_notebook.sweeps.parquet_parts import write_parts
from svc_notebook.sweeps.run import Run, plan_run

MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two files of rows, 50 together."""
    place = tmp_path / "rows"
    place.mkdir()
    rows = pd.DataFrame({"text": [f"word {n % 7}" for n in range(50)]})
    rows.iloc[:30].to_parquet(place / "part-1.parquet")
    rows.iloc[30:].to_parquet(place / "part-2.parquet")
    return place


def _sweep(session: Session, rows: object, **how: Any) -> Run:  # noqa: ANN401 - as `plan`
    arguments = {"model": MODEL, "in_flight": 8, **how}
    return plan_run(session, "Say {{text}}.", rows=rows, **arguments)


@pytest.mark.slow
def test_replies_are_written_in_parts(
    folder: Path, session: Session, tmp_path: Path
) -> None:
    """Together the parts are the frame of replies, also after another write."""
    run = _sweep(session, folder, temperature=[0, 1])
    run.run(first=60)
    run.score(length=lambda reply: len(reply.text))
    place = tmp_path / "replies"

    for part_rows in (20, 45):
        write_parts(run._result, place, part_rows=part_rows)  # noqa: SLF001 - smaller parts

        assert read_parquet(place).equals(run.replies_df())
        assert len([*place.iterdir()]) == -(-100 // (part_rows // 2 * 2))
    assert run.write_parquet(place) == place
    assert [part.name for part in place.iterdir()] == ["replies-00000.parquet"]
    assert read_parquet(place).equals(run.replies_df())


@pytest.mark.slow
def test_a_part_without_a_column_of_the_others_gets_it(
    session: Session, tmp_path: Path
) -> None:
    """A score of a later part only is missing in the earlier ones."""
    run = _sweep(session, [f"word {n}" for n in range(9)]).run()
    run.score(late=lambda reply: 1 if reply.row == 8 else None)

    write_parts(run._result, tmp_path / "replies", part_rows=3)  # noqa: SLF001 - as above

    replies = read_parquet(tmp_path / "replies")
    assert replies["score_late"].tolist()[-1] == 1
    assert replies["score_late"].isna().sum() == 8
    assert set(replies.columns) == set(run.replies_df().columns)


def test_parts_have_the_same_types(session: Session, tmp_path: Path) -> None:
    """Decimals of more digits, and values after a part without any, are read again."""
    rows = pd.DataFrame(
        {
            "text": [*"abcdef"],
            "price": [Decimal("1.5")] * 3 + [Decimal("100.25")] * 3,
            "late": [None] * 3 + [b"x"] * 3,
            "lists": [None] * 3 + [[1, 2]] * 3,
        }
    )
    run = _sweep(session, rows)

    write_parts(run._result, tmp_path / "replies", part_rows=3)  # noqa: SLF001 - as above

    replies = read_parquet(tmp_path / "replies")
    assert replies["price"].tolist() == rows["price"].tolist()
    assert replies["late"].tolist() == rows["late"].tolist()
    assert replies["lists"].tolist() == rows["lists"].tolist()


def test_a_folder_with_other_files_is_refused(session: Session, tmp_path: Path) -> None:
    """Nothing is written or removed there."""
    (tmp_path / "notes.txt").write_text("mine")
    run = _sweep(session, ["a"])

    with pytest.raises(ParameterError, match=r"has other files, such as 'notes.txt'"):
        run.write_parquet(tmp_path)
    with pytest.raises(ParameterError, match="cannot be used"):
        run.write_parquet(tmp_path / "notes.txt")

    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_parts_of_another_run_are_refused(
    folder: Path, session: Session, tmp_path: Path
) -> None:
    """They stay as they are, and so does a file that is no part of a run."""
    place = tmp_path / "replies"
    _sweep(session, folder, name="first").run().write_parquet(place)
    before = {part: part.read_bytes() for part in place.iterdir()}
    run = _sweep(session, ["a"], name="second").run()

    with pytest.raises(ParameterError, match=r"the replies of another run, 'first'"):
        run.write_parquet(place)
    for data in (b"mine", (folder / "part-1.parquet").read_bytes()):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "replies-00000.parquet").write_bytes(data)
        with pytest.raises(ParameterError, match="has other files, such as 'replies"):
            run.write_parquet(tmp_path / "own")
        assert [file.read_bytes() for file in (tmp_path / "own").iterdir()] == [data]

    assert {part: part.read_bytes() for part in place.iterdir()} == before


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("", "folder is empty; give the path of a folder"),
        (5, "folder is int; give the path of a folder"),
        ("~nobody-here/x", r"'~nobody-here/x' cannot be used: [^.]*\. Name a folder"),
        ("a\0b", r"cannot be used: embedded null byte\. Name a folder"),
    ],
)
def test_a_folder_that_cannot_be_is_refused(
    session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: Any,  # noqa: ANN401 - whatever a user may give
    said: str,
) -> None:
    """The message speaks of a folder, and none is made under a name that was wrong."""
    monkeypatch.chdir(tmp_path)
    run = _sweep(session, ["a"])

    with pytest.raises(ParameterError, match=said):
        run.write_parquet(folder)

    assert [file for file in tmp_path.iterdir() if file.name[0] == "~"] == []


@pytest.mark.slow
def test_a_file_without_rows_is_an_empty_plan(session: Session, tmp_path: Path) -> None:
    """Its frames and parts have all columns and no rows."""
    pd.DataFrame({"text": ["a"]})[:0].to_parquet(tmp_path / "rows.parquet")
    run = _sweep(session, tmp_path / "rows.parquet").run()

    replies = read_parquet(run.write_parquet(tmp_path / "replies"))

    assert len(run) == len(replies) == run.n_todo == 0
    assert list(replies.columns) == list(run.replies_df().columns)
    assert "rows    0 (text) in 1 Parquet file" in repr(run)
    assert run.manifest["index"] == {}


@pytest.mark.slow
def test_replies_never_replace_the_rows(session: Session, tmp_path: Path) -> None:
    """The replies of one run may be the rows of another."""
    place = _sweep(session, ["a", "b"]).run().write_parquet(tmp_path / "replies")
    (before,) = place.iterdir()
    kept = before.read_bytes()
    run = plan_run(session, "{{var_text}}", rows=place, model=MODEL)

    with pytest.raises(ParameterError, match="has the rows of this run"):
        run.write_parquet(place)

    assert before.read_bytes() == kept

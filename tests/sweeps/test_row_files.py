"""Rows from Parquet files are read block by block, and give the same trials."""

import os
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.exports import read_parquet
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan
from svc_notebook.sweeps.reply_parts import write_parts
from svc_notebook.sweeps.row_files import BLOCK_ROWS, N_BLOCKS, RowFiles
from svc_notebook.sweeps.run import Run
from svc_notebook.sweeps.stored_runs import stored_run

OpenSession = Callable[[Emulator], Session]
MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
N_ROWS = 50
FRAME = pd.DataFrame(
    {
        "text": [f"word {n % 7}" for n in range(N_ROWS)],
        "label": pd.array([None, *range(1, N_ROWS)], dtype="Int64"),
        "is_short": [n % 2 == 0 for n in range(N_ROWS)],
        "at": pd.date_range("2026-01-01", periods=N_ROWS),
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two files of rows."""
    place = tmp_path / "rows"
    place.mkdir()
    FRAME.iloc[:30].to_parquet(place / "part-1.parquet", row_group_size=11)
    FRAME.iloc[30:].to_parquet(place / "part-2.parquet")
    return place


def _sweep(session: Session, rows: object, **given: Any) -> Run:  # noqa: ANN401 - as `plan`
    how = {"model": MODEL, "in_flight": 8, **given}
    return plan(session, "Say {{text}}.", rows=rows, **how)


def test_rows_of_files_are_those_of_their_frame(folder: Path, session: Session) -> None:
    """Keys, texts and numbers are the same, with factors and repeats."""
    given = {"repeats": 2, "varied": {"temperature": [0, 1]}}

    files = _sweep(session, folder, **given)
    frame = _sweep(session, FRAME, **given)

    assert [*files.grid.trial_keys()] == [*frame.grid.trial_keys()]
    assert [each.request for each in files.grid] == [
        each.request for each in frame.grid
    ]
    assert "50 (text, label, is_short, at) in 2 Parquet files" in repr(files)


@pytest.mark.slow
def test_replies_have_the_columns_of_the_files(folder: Path, session: Session) -> None:
    """The frame of replies has their values, with dtypes that fit all rows."""
    run = _sweep(session, f"{folder}/*.parquet").run()

    found = run.replies_df()
    shown = found[["text", "label", "is_short", "at"]]
    assert run.n_todo == 0
    assert found["row"].tolist() == [*range(N_ROWS)]
    assert found["var_text"].tolist() == FRAME["text"].tolist()
    assert found["label"].equals(FRAME["label"])
    assert found["is_short"].equals(FRAME["is_short"])
    assert shown["at"].tolist() == FRAME["at"].tolist()
    assert found.dtypes.equals(run.plan_df().dtypes)


@pytest.mark.parametrize(
    "name", ["part-1.parquet", "", "*-1.parquet", "**/*-1.parquet"]
)
def test_a_file_a_folder_or_a_pattern_is_a_place(
    folder: Path, session: Session, name: str
) -> None:
    """A path may also be a text; a folder gives all of its files."""
    place = folder / name

    found = [len(_sweep(session, each).grid) for each in (place, str(place))]

    assert found == [30 if name else N_ROWS] * 2


def test_an_index_and_categories_are_kept(tmp_path: Path, session: Session) -> None:
    """An index has the name that `reset_index` gives it; categories are texts."""
    frame = pd.DataFrame(
        {"text": ["a", "b"], "kind": pd.Categorical(["x", "y"])}, index=["k", "l"]
    )
    frame.to_parquet(tmp_path / "rows.parquet")

    found = _sweep(session, tmp_path / "rows.parquet").run().replies_df()

    assert found["index"].tolist() == ["k", "l"]
    assert found["kind"].tolist() == ["x", "y"]


@pytest.mark.slow
def test_a_named_run_goes_on_after_a_restart(
    folder: Path, open_session: OpenSession
) -> None:
    """Planned again, or rebuilt from the ledger, it sends what is missing only."""
    with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        _sweep(open_session(emulator), folder, name="n").run(first=20)
        planned = _sweep(open_session(emulator), folder, name="n")
        n_todo = planned.n_todo
        rebuilt = stored_run(open_session(emulator), "n").run()

        assert n_todo == 30
        assert rebuilt.n_todo == 0
        assert rebuilt.manifest["rows"] is None
        assert [each["n_rows"] for each in rebuilt.manifest["files"]["found"]] == [
            30,
            20,
        ]
        assert len(emulator.requests) == N_ROWS


@pytest.mark.slow
def test_changed_files_are_refused_when_a_run_goes_on(
    folder: Path, open_session: OpenSession, emulator: Emulator
) -> None:
    """The message says what has changed, for a plan and for a stored run."""
    _sweep(open_session(emulator), folder, name="n").run(first=3)
    FRAME.iloc[30:49].to_parquet(folder / "part-2.parquet")
    said = r"part-2.parquet had 20 rows and has 19.*plan the sweep under another name"

    with pytest.raises(ParameterError, match=said):
        _sweep(open_session(emulator), folder, name="n")
    with pytest.raises(ParameterError, match=said):
        stored_run(open_session(emulator), "n")
    (folder / "part-2.parquet").unlink()
    with pytest.raises(ParameterError, match=r"part-2.parquet is missing"):
        _sweep(open_session(emulator), folder, name="n")
    assert len(emulator.requests) == 3


def test_a_file_that_changes_under_a_run_stops_it(
    folder: Path, session: Session, emulator: Emulator
) -> None:
    """Rows of another file would be sent as if they were those of the plan."""
    run = _sweep(session, folder, model=[MODEL])
    for each in folder.iterdir():
        os.utime(each, (1, 1))
    run.grid.source.files._kept.clear()  # type: ignore[union-attr]  # noqa: SLF001 - blocks that were read

    with pytest.raises(ParameterError, match="was changed since this run was planned"):
        run.run()

    assert len(emulator.requests) == 0


@pytest.mark.slow
def test_a_file_that_goes_under_a_run_stops_it(
    folder: Path, session: Session, emulator: Emulator
) -> None:
    """The message says that it is gone; put back, the run goes on."""
    run = _sweep(session, folder)
    (folder / "part-2.parquet").rename(folder / "elsewhere")
    run.grid.source.files._kept.clear()  # type: ignore[union-attr]  # noqa: SLF001 - blocks that were read
    said = "part-2.parquet was moved or deleted since it was read.*Restore the files"

    with pytest.raises(ParameterError, match=said):
        run.run()
    n_sent = len(emulator.requests)
    (folder / "elsewhere").rename(folder / "part-2.parquet")

    assert n_sent < N_ROWS
    assert run.run().n_todo == 0
    assert len(emulator.requests) == N_ROWS


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing.parquet", "no Parquet file at .*a pattern such as 'folder/"),
        ("*.parquet.gz", "no Parquet file at"),
        ("text.parquet", "text.parquet cannot be read as Parquet"),
        ("*.parquet", "b.parquet and a.parquet have different columns"),
    ],
)
def test_a_wrong_place_is_refused(
    tmp_path: Path, session: Session, name: str, said: str
) -> None:
    """The message names the file, and what may be given."""
    (tmp_path / "text.parquet").write_text("no Parquet")
    if name == "*.parquet":
        (tmp_path / "text.parquet").unlink()
    pd.DataFrame({"text": ["a"]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"text": [1]}).to_parquet(tmp_path / "b.parquet")

    with pytest.raises(ParameterError, match=said):
        _sweep(session, tmp_path / name)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_list_of_files_is_refused(
    folder: Path, session: Session, kind: Callable[[Path], object]
) -> None:
    """Their names would be sent as prompts; names of no files are prompts."""
    files = [kind(each) for each in folder.iterdir()]

    with pytest.raises(ParameterError, match=r"Give one path: .*\[{'text': path}, "):
        _sweep(session, files)

    assert len(_sweep(session, ["a.parquet", "b.parquet"])) == 2
    assert len(_sweep(session, [{"text": str(each)} for each in files])) == 2


def test_a_text_is_not_taken_for_a_place(session: Session) -> None:
    """The message names both ways."""
    with pytest.raises(ParameterError, match=r"rows is str.*or the path of Parquet"):
        _sweep(session, "word")


def test_a_gap_in_a_column_of_the_prompt_is_refused(
    folder: Path, session: Session
) -> None:
    """The row is named, as it is for a frame."""
    with pytest.raises(ParameterError, match="'label' has no value in row 0"):
        plan(session, "Say {{label}}", rows=folder, model=MODEL)


@pytest.mark.slow
def test_only_some_blocks_are_in_memory(tmp_path: Path, session: Session) -> None:
    """However many rows there are, a few blocks of them are kept, each read once."""
    n_rows = (N_BLOCKS + 3) * BLOCK_ROWS + 5
    rows = pd.DataFrame({"text": [str(n) for n in range(n_rows)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    grid = _sweep(session, tmp_path / "rows.parquet", repeats=2).grid
    files = grid.source.files  # type: ignore[union-attr]  # it has some
    assert isinstance(files, RowFiles)
    assert grid[0].row == 0  # which looks for rows that have the same texts
    files.n_read = 0

    texts = [trial.columns["text"] for trial in grid]

    assert texts == [str(n // 2) for n in range(2 * n_rows)]
    assert len(files._kept) == N_BLOCKS  # noqa: SLF001 - what is in memory
    assert files.n_read == N_BLOCKS + 4


@pytest.mark.slow
def test_rows_are_sent_block_by_block(tmp_path: Path, session: Session) -> None:
    """They are shuffled within a block, so that each block is read once."""
    rows = pd.DataFrame({"text": [str(n) for n in range(2 * BLOCK_ROWS)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    run = _sweep(session, tmp_path / "rows.parquet")
    (todo,) = run._execution._todo(run._options()).values()  # noqa: SLF001 - the order

    sent = [trial.row or 0 for trial in todo.pull if trial is not None]

    first, second = sent[:BLOCK_ROWS], sent[BLOCK_ROWS:]
    assert sorted(first) == [*range(BLOCK_ROWS)] != first
    assert sorted(second) == [*range(BLOCK_ROWS, 2 * BLOCK_ROWS)] != second


@pytest.mark.slow
def test_replies_are_written_in_parts(
    folder: Path, session: Session, tmp_path: Path
) -> None:
    """Together the parts are the frame of replies, also after another write."""
    run = _sweep(session, folder, varied={"temperature": [0, 1]})
    run.run(first=60)
    run.score(length=lambda reply: len(reply.text))
    place = tmp_path / "replies"

    for part_rows in (20, 45):
        write_parts(run._view, place, part_rows=part_rows)  # noqa: SLF001 - smaller parts

        assert read_parquet(place).equals(run.replies_df())
        assert len([*place.iterdir()]) == -(-100 // (part_rows // 2 * 2))
    assert run.write_parquet(place) == place
    assert [each.name for each in place.iterdir()] == ["replies-00000.parquet"]
    assert read_parquet(place).equals(run.replies_df())


@pytest.mark.slow
def test_a_part_without_a_column_of_the_others_gets_it(
    session: Session, tmp_path: Path
) -> None:
    """A score of a later part only is missing in the earlier ones."""
    run = _sweep(session, [f"word {n}" for n in range(9)]).run()
    run.score(late=lambda reply: 1 if reply.row == 8 else None)

    write_parts(run._view, tmp_path / "replies", part_rows=3)  # noqa: SLF001 - as above

    found = read_parquet(tmp_path / "replies")
    assert found["score_late"].tolist()[-1] == 1
    assert found["score_late"].isna().sum() == 8
    assert set(found.columns) == set(run.replies_df().columns)


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

    write_parts(run._view, tmp_path / "replies", part_rows=3)  # noqa: SLF001 - as above

    found = read_parquet(tmp_path / "replies")
    assert found["price"].tolist() == rows["price"].tolist()
    assert found["late"].tolist() == rows["late"].tolist()
    assert found["lists"].tolist() == rows["lists"].tolist()


def test_a_folder_with_other_files_is_refused(session: Session, tmp_path: Path) -> None:
    """Nothing is written or removed there."""
    (tmp_path / "notes.txt").write_text("mine")
    run = _sweep(session, ["a"])

    with pytest.raises(ParameterError, match=r"has other files, such as 'notes.txt'"):
        run.write_parquet(tmp_path)
    with pytest.raises(ParameterError, match="cannot be used"):
        run.write_parquet(tmp_path / "notes.txt")

    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_parts_of_another_run_are_refused(
    folder: Path, session: Session, tmp_path: Path
) -> None:
    """They stay as they are, and so does a file that is no part of a run."""
    place = tmp_path / "replies"
    _sweep(session, folder, name="first").run().write_parquet(place)
    kept = {each: each.read_bytes() for each in place.iterdir()}
    run = _sweep(session, ["a"], name="second").run()

    with pytest.raises(ParameterError, match=r"the replies of another run, 'first'"):
        run.write_parquet(place)
    for data in (b"mine", (folder / "part-1.parquet").read_bytes()):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "replies-00000.parquet").write_bytes(data)
        with pytest.raises(ParameterError, match="has other files, such as 'replies"):
            run.write_parquet(tmp_path / "own")
        assert [each.read_bytes() for each in (tmp_path / "own").iterdir()] == [data]

    assert {each: each.read_bytes() for each in place.iterdir()} == kept


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

    assert [each for each in tmp_path.iterdir() if each.name[0] == "~"] == []


@pytest.mark.slow
def test_a_file_without_rows_is_an_empty_plan(session: Session, tmp_path: Path) -> None:
    """Its frames and parts have all columns and no rows."""
    FRAME.iloc[:0].to_parquet(tmp_path / "rows.parquet")
    run = _sweep(session, tmp_path / "rows.parquet").run()

    found = read_parquet(run.write_parquet(tmp_path / "replies"))

    assert len(run) == len(found) == run.n_todo == 0
    assert list(found.columns) == list(run.replies_df().columns)
    assert "rows    0 (text, label, is_short, at) in 1 Parquet file" in repr(run)
    assert run.manifest["index"] == {}


@pytest.mark.slow
def test_texts_are_read_whatever_their_type_is(
    tmp_path: Path, session: Session
) -> None:
    """Files of several writers go together, and their frame can be made."""
    arrow = import_module("pyarrow")
    kinds = [arrow.string(), arrow.large_string(), arrow.string_view()]
    kinds.append(arrow.dictionary(arrow.int8(), arrow.string()))
    for number, kind in enumerate(kinds):
        column = arrow.array([str(number)], type=arrow.string()).cast(kind)
        field = arrow.field("text", kind, nullable=number > 0)
        table = arrow.Table.from_arrays([column], schema=arrow.schema([field]))
        import_module("pyarrow.parquet").write_table(
            table, tmp_path / f"{number}.parquet"
        )

    found = _sweep(session, tmp_path).run().replies_df()

    assert found["var_text"].tolist() == ["0", "1", "2", "3"]


def test_a_duration_has_the_text_that_it_has_in_a_frame(
    tmp_path: Path, session: Session
) -> None:
    """Rows that move from memory into files stay the same requests."""
    frame = pd.DataFrame({"text": ["a"], "took": pd.to_timedelta([61], unit="s")})
    frame.to_parquet(tmp_path / "rows.parquet")

    keys = [
        [*plan(session, "{{took}}", rows=rows, model=MODEL).grid.trial_keys()]
        for rows in (frame, tmp_path / "rows.parquet")
    ]

    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": ["a"], "n": [1.5]}, "'n' is double in the first, int64 in"),
        ({"text": ["a"]}, "only the second has 'n'"),
        ({"n": [1], "text": ["a"]}, "'n' comes where the second has 'text'"),
    ],
)
def test_what_differs_between_files_is_named(
    tmp_path: Path, session: Session, columns: dict[str, Any], said: str
) -> None:
    """The first column that differs is in the message."""
    pd.DataFrame({"text": ["a"], "n": [1]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(columns).to_parquet(tmp_path / "b.parquet")

    with pytest.raises(ParameterError, match=f"b.parquet and a.parquet.*{said}"):
        _sweep(session, tmp_path)


def test_a_name_that_two_columns_have_is_refused(
    tmp_path: Path, session: Session
) -> None:
    """A prompt could mean either."""
    arrow = import_module("pyarrow")
    columns = [arrow.array(["a"]), arrow.array(["b"])]
    table = arrow.Table.from_arrays(columns, names=["text", "text"])
    import_module("pyarrow.parquet").write_table(table, tmp_path / "rows.parquet")

    with pytest.raises(ParameterError, match=r"two columns called 'text'\. Rename"):
        _sweep(session, tmp_path)


@pytest.mark.parametrize(
    "place", [f"{'a' * 5000}.parquet", "~nobody-here/a.parquet", "**a.parquet"]
)
def test_a_place_that_cannot_be_is_refused(session: Session, place: str) -> None:
    """The system's errors for such names are not shown."""
    with pytest.raises(ParameterError, match="There is no Parquet file at"):
        _sweep(session, place)


def test_a_long_text_is_not_taken_for_a_place(session: Session) -> None:
    """It may be longer than a path can be."""
    with pytest.raises(ParameterError, match="rows is str"):
        _sweep(session, "a" * 5000)


@pytest.mark.slow
def test_replies_never_replace_the_rows(session: Session, tmp_path: Path) -> None:
    """The replies of one run may be the rows of another."""
    place = _sweep(session, ["a", "b"]).run().write_parquet(tmp_path / "replies")
    (before,) = place.iterdir()
    kept = before.read_bytes()
    run = plan(session, "{{var_text}}", rows=place, model=MODEL)

    with pytest.raises(ParameterError, match="has the rows of this run"):
        run.write_parquet(place)

    assert before.read_bytes() == kept

"""Rows from Parquet files are read block by block, and give the same trials."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.execution import Preflight, SendOptions
from svc_notebook.sweeps.row_files import BLOCK_ROWS, N_BLOCKS, RowFiles
from svc_notebook.sweeps.run import Run, plan_run
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


def _sweep(session: Session, rows: object, **how: Any) -> Run:  # noqa: ANN401 - as `plan`
    arguments = {"model": MODEL, "in_flight": 8, **how}
    return plan_run(session, "Say {{text}}.", rows=rows, **arguments)


def test_rows_of_files_are_those_of_their_frame(folder: Path, session: Session) -> None:
    """Keys, texts and numbers are the same, with factors and repeats."""
    factors = {"repeats": 2, "temperature": [0, 1]}

    files = _sweep(session, folder, **factors)
    frame = _sweep(session, FRAME, **factors)

    assert [*files.grid.trial_keys()] == [*frame.grid.trial_keys()]
    assert [trial.request for trial in files.grid] == [
        trial.request for trial in frame.grid
    ]
    assert "50 (text, label, is_short, at) in 2 Parquet files" in repr(files)


@pytest.mark.slow
def test_replies_have_the_columns_of_the_files(folder: Path, session: Session) -> None:
    """The frame of replies has their values, with dtypes that fit all rows."""
    run = _sweep(session, f"{folder}/*.parquet").run()

    replies = run.replies_df()
    shown = replies[["text", "label", "is_short", "at"]]
    assert run.n_todo == 0
    assert replies["row"].tolist() == [*range(N_ROWS)]
    assert replies["var_text"].tolist() == FRAME["text"].tolist()
    assert replies["label"].equals(FRAME["label"])
    assert replies["is_short"].equals(FRAME["is_short"])
    assert shown["at"].tolist() == FRAME["at"].tolist()
    assert replies.dtypes.equals(run.plan_df().dtypes)


@pytest.mark.parametrize(
    "name", ["part-1.parquet", "", "*-1.parquet", "**/*-1.parquet"]
)
def test_a_file_a_folder_or_a_pattern_is_a_place(
    folder: Path, session: Session, name: str
) -> None:
    """A path may also be a text; a folder gives all of its files."""
    place = folder / name

    n_rows = [len(_sweep(session, path).grid) for path in (place, str(place))]

    assert n_rows == [30 if name else N_ROWS] * 2


def test_an_index_and_categories_are_kept(tmp_path: Path, session: Session) -> None:
    """An index has the name that `reset_index` gives it; categories are texts."""
    frame = pd.DataFrame(
        {"text": ["a", "b"], "kind": pd.Categorical(["x", "y"])}, index=["k", "l"]
    )
    frame.to_parquet(tmp_path / "rows.parquet")

    replies = _sweep(session, tmp_path / "rows.parquet").run().replies_df()

    assert replies["index"].tolist() == ["k", "l"]
    assert replies["kind"].tolist() == ["x", "y"]


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
        assert [file["n_rows"] for file in rebuilt.manifest["files"]["files"]] == [
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


@pytest.mark.slow
def test_other_texts_in_files_are_refused_when_a_run_goes_on(
    folder: Path, open_session: OpenSession, emulator: Emulator
) -> None:
    """Replies to texts that are gone would be lost; the message names the file."""
    _sweep(open_session(emulator), folder, name="n").run()
    file = folder / "part-2.parquet"
    FRAME.iloc[30:].assign(text="other").to_parquet(file)
    said = "part-2.parquet has other contents.*plan the sweep under another name"

    with pytest.raises(ParameterError, match=said):
        _sweep(open_session(emulator), folder, name="n")

    assert len(emulator.requests) == N_ROWS


def test_a_file_that_changes_under_a_run_stops_it(
    folder: Path, session: Session, emulator: Emulator
) -> None:
    """Rows of another file would be sent as if they were those of the plan."""
    run = _sweep(session, folder, model=[MODEL])
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    run.grid.rows.files._load_cached.cache_clear()  # type: ignore[union-attr]  # noqa: SLF001 - blocks that were read

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
    run.grid.rows.files._load_cached.cache_clear()  # type: ignore[union-attr]  # noqa: SLF001 - blocks that were read
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
    files = [kind(file) for file in folder.iterdir()]

    with pytest.raises(ParameterError, match=r"Give one path: .*\[{'text': path}, "):
        _sweep(session, files)

    assert len(_sweep(session, ["a.parquet", "b.parquet"])) == 2
    assert len(_sweep(session, [{"text": str(file)} for file in files])) == 2


def test_a_text_is_not_taken_for_a_place(session: Session) -> None:
    """The message names both ways."""
    with pytest.raises(
        ParameterError, match=r"rows is str.*of a CSV file or of Parquet"
    ):
        _sweep(session, "word")


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_csv_file_is_read_as_pandas_does(
    tmp_path: Path, session: Session, as_path: Callable[[Path], object]
) -> None:
    """Its path gives the requests of the frame; the rows are stored with the run."""
    path = tmp_path / "rows.CSV"
    FRAME.to_csv(path, index=False)

    of_path = _sweep(session, as_path(path))
    of_frame = _sweep(session, pd.read_csv(path))

    assert [*of_path.grid.trial_keys()] == [*of_frame.grid.trial_keys()]
    path.unlink()  # unlike Parquet files, it is not needed again
    assert of_path.run(first=2).n_todo == N_ROWS - 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "No columns to parse from file"),
        ("text\nกาแฟ\n".encode("cp874"), "codec can't decode"),
    ],
)
def test_a_csv_file_that_cannot_be_read_is_refused(
    tmp_path: Path, session: Session, content: bytes | None, said: str
) -> None:
    """The message has the reason, and the call that reads it with other options."""
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ParameterError, match=said) as caught:
        _sweep(session, path)

    assert f"rows=pandas.read_csv({str(path)!r}, encoding=" in str(caught.value)


@pytest.mark.slow
def test_only_some_blocks_are_in_memory(tmp_path: Path, session: Session) -> None:
    """However many rows there are, a few blocks of them are kept, each read once."""
    n_rows = (N_BLOCKS + 3) * BLOCK_ROWS + 5
    rows = pd.DataFrame({"text": [str(n) for n in range(n_rows)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    grid = _sweep(session, tmp_path / "rows.parquet", repeats=2).grid
    files = grid.rows.files  # type: ignore[union-attr]  # it has some
    assert isinstance(files, RowFiles)
    assert grid[0].row == 0  # which looks for rows that have the same texts
    loaded = files._load_cached  # noqa: SLF001 - its blocks
    n_before = loaded.cache_info().misses

    texts = [trial.columns["text"] for trial in grid]

    assert texts == [str(n // 2) for n in range(2 * n_rows)]
    info = loaded.cache_info()
    assert (info.currsize, info.misses - n_before) == (N_BLOCKS, N_BLOCKS + 4)


@pytest.mark.slow
def test_rows_are_sent_block_by_block(tmp_path: Path, session: Session) -> None:
    """They are shuffled within a block, so that each block is read once."""
    rows = pd.DataFrame({"text": [str(n) for n in range(2 * BLOCK_ROWS)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    run = _sweep(session, tmp_path / "rows.parquet")
    preflight = Preflight(
        result=run._result,  # noqa: SLF001 - the order
        options=SendOptions(),
        context=session.context(),
    )
    (todo,) = preflight.todo().values()

    sent = [trial.row or 0 for trial in todo.pull if trial is not None]

    first, second = sent[:BLOCK_ROWS], sent[BLOCK_ROWS:]
    assert sorted(first) == [*range(BLOCK_ROWS)] != first
    assert sorted(second) == [*range(BLOCK_ROWS, 2 * BLOCK_ROWS)] != second


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

    replies = _sweep(session, tmp_path).run().replies_df()

    assert replies["var_text"].tolist() == ["0", "1", "2", "3"]


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

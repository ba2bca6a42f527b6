"""Writes the replies of a run into a folder of Parquet files, part by part.

Only one part is in memory at a time, so a million replies can be written.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

import pandas as pd

from svc_notebook.errors import ParameterError, import_extra
from svc_notebook.ledger.frame_export import export, read_parquet, write_whole
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import with_scores
from svc_notebook.settings import to_path

from .grid import Grid
from .resume import as_ended, key_of
from .row_files import SUFFIX
from .run_outcome import RunFrames, RunResult, trial_batches

PART_ROWS = 50_000  # rows of a part: so many are in memory at once
# the parts, and files that were left by a write that was killed
_OWN = re.compile(r"replies-\d{5}\.parquet|\.replies-\d{5}\.parquet\..*\.part")


def write_parts(
    result: RunResult, folder: str | PathLike[str], *, part_rows: int = PART_ROWS
) -> Path:
    """Write the frame of replies in parts: see `Run.write_parquet`."""
    import_extra("pyarrow", "Parquet files need")
    target = Path(to_path("folder", folder))
    target, before = _own_files(target)
    _check_not_rows(result, target)
    _check_run(result, target, before)
    seqs = (
        array("q") if result.ledger is None else _seqs_of_trials(result, result.ledger)
    )
    dtypes: dict[str, object] = {}
    written: list[tuple[Path, list[str]]] = []
    for start, grid in _pieces(result.plan.grid, part_rows):
        first = start * grid.repeats
        frame = _piece_frame(result, grid, seqs[first : first + len(grid)])
        for name, dtype in frame.dtypes.items():
            dtypes[str(name)] = _common_dtype(dtypes.get(str(name), dtype), dtype)
        path = export(frame, target / f"replies-{len(written):05}.parquet")
        written.append(
            (path, [f"{name} {dtype}" for name, dtype in frame.dtypes.items()])
        )
    stated = [f"{name} {dtype}" for name, dtype in dtypes.items()]
    for path, columns in written:
        if columns != stated:  # another part has another score, or another field
            frame = read_parquet(path)
            export(frame.reindex(columns=[*dtypes]).astype(dtypes), path)  # type: ignore[arg-type]  # names and dtypes
    _give_same_types([path for path, _ in written])
    for path in before - {path for path, _ in written}:
        path.unlink(missing_ok=True)
    return target


def _give_same_types(paths: Sequence[Path]) -> None:
    """Give all parts the same column types, so that they can be read together.

    For decimals and for columns without values, the type depends on the part.
    """
    arrow = import_extra("pyarrow", "Parquet files need")
    parquet = import_extra("pyarrow.parquet", "Parquet files need")
    schemas = [parquet.read_schema(path) for path in paths]
    try:
        common = arrow.unify_schemas(schemas, promote_options="permissive")
    except arrow.ArrowException:
        return  # there is no common type; parts can still be read one by one
    # a part does not list a JSON column without values: take the longest list
    metadata = max(
        (schema.metadata for schema in schemas),
        key=lambda of_part: len(of_part.get(b"PANDAS_ATTRS", b"")),
    )
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(common):
            with parquet.ParquetFile(path) as part:
                table = part.read().cast(common.with_metadata(metadata))
            write_whole(path, partial(parquet.write_table, table))


def _own_files(target: Path) -> tuple[Path, set[Path]]:
    """Create the folder if needed; return it with our files in it; refuse others."""
    try:
        target = target.expanduser()
        target.mkdir(parents=True, exist_ok=True)
        files = set(target.iterdir())
    except (OSError, RuntimeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ParameterError(
            f"{str(target)!r} cannot be used: {reason.rstrip('.')}. Name a folder that "
            "you can write to.",
            param="folder",
        ) from None
    if others := sorted(file.name for file in files if not _OWN.fullmatch(file.name)):
        raise _other_files(target, others[0])
    return target, files


def _other_files(target: Path, name: str) -> ParameterError:
    return ParameterError(
        f"{str(target)!r} has other files, such as {name!r}. Nothing was written. Name "
        "a new folder, or one that has only the parts of this run.",
        param="folder",
    )


def _check_run(result: RunResult, target: Path, before: set[Path]) -> None:
    """Refuse parts of another run, which the new parts would replace."""
    for path in sorted(before):
        if path.suffix != SUFFIX:  # of a write that was killed
            continue
        try:
            columns = import_extra("pyarrow.parquet", "Parquet files need").read_table(
                path, columns=["run"]
            )
            names = columns.column("run").unique().to_pylist()
        except (OSError, ValueError, KeyError):  # pyarrow's errors derive from these
            raise _other_files(target, path.name) from None
        if others := [name for name in names if name != result.plan.run_id]:
            raise ParameterError(
                f"{str(target)!r} has the replies of another run, {others[0]!r}. "
                "Nothing was written. Name another folder, or delete these parts if "
                "you do not need them.",
                param="folder",
            )


def _check_not_rows(result: RunResult, target: Path) -> None:
    """Refuse the folder of the rows, whose files may have the names of parts."""
    source = result.plan.grid.rows
    files = None if source is None else source.files
    if files is not None and target.resolve() in files.folders:
        raise ParameterError(
            f"{str(target)!r} has the rows of this run, which the replies would "
            "replace. Nothing was written. Name another folder.",
            param="folder",
        )


def _seqs_of_trials(result: RunResult, ledger: Ledger) -> Sequence[int]:
    """Return the number of each trial's exchange in the ledger; 0 without one."""
    # by the hashes of keys, because a million keys would need 200 MB
    hashes, seqs, is_ok = array("q"), array("q"), array("b")
    for seq, sent in ledger.numbered(result.plan.run_id):
        hashes.append(hash(key_of(sent)))
        seqs.append(seq)
        is_ok.append(as_ended(sent).status == "ok")
    trials = pd.Index(array("q", map(hash, result.plan.grid.trial_keys())))
    exchanges = pd.DataFrame(
        {"trial": trials.get_indexer(pd.Index(hashes)), "seq": seqs, "is_ok": is_ok}
    )
    # The newest good exchange of a trial counts, or else the newest one. A trial that
    # is not in the plan is -1, which `reindex` leaves out.
    in_order = exchanges.sort_values("is_ok", kind="stable")
    newest = in_order.drop_duplicates("trial", keep="last").set_index("trial")["seq"]
    return array("q", newest.reindex(range(len(trials)), fill_value=0))


def _pieces(grid: Grid, part_rows: int) -> Iterator[tuple[int, Grid]]:
    """Yield pieces of a grid, each with its first combination; at least one."""
    n_in_piece = max(part_rows // grid.repeats, 1)
    combinations: Sequence[int] = (
        range(grid.n_product) if grid.kept is None else grid.kept
    )
    if grid.kept is None and grid.rows is not None and len(grid.rows):
        n_of_row = grid.n_product // len(grid.rows)
        n_in_piece = max(n_in_piece // n_of_row, 1) * n_of_row  # whole rows
    for start in range(0, max(len(combinations), 1), n_in_piece):
        yield start, replace(grid, kept=combinations[start : start + n_in_piece])


def _piece_frame(result: RunResult, grid: Grid, seqs: Sequence[int]) -> pd.DataFrame:
    """Return the frame of replies of a piece."""
    frames = RunFrames(grid, result.frames.answer)
    piece = replace(result.plan, grid=grid)
    sent = sorted(seq for seq in seqs if seq)
    exchanges = result.ledger.at(sent) if result.ledger is not None else iter(())
    failures = result.failures.copy()
    batches = trial_batches(piece, exchanges, failures, is_begun=result.is_begun)
    return with_scores(frames.frame_of(batches), result.ledger)


def _common_dtype(first: object, second: object) -> object:
    """Return the dtype that can hold the values of two dtypes."""
    if first == second:
        return first
    numbers = {"Int64", "Float64"}
    return "Float64" if {str(first), str(second)} <= numbers else "string"

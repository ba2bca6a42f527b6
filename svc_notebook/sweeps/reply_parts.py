"""Writes the replies of a run into a folder of Parquet files, one part after the other.

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
from svc_notebook.ledger.exports import export, read_parquet, write_whole
from svc_notebook.ledger.frames import with_scores
from svc_notebook.ledger.store import Ledger
from svc_notebook.settings import to_path

from .grid import Grid
from .resume import as_ended, counts_more, key_of, trial_batches
from .row_files import SUFFIX
from .run_view import RunView
from .source import HashedNumbers

PART_ROWS = 50_000
_OWN = re.compile(r"replies-\d{5}\.parquet|\.replies-\d{5}\.parquet\..*\.part")


def write_parts(
    view: RunView, folder: str | PathLike[str], *, part_rows: int = PART_ROWS
) -> Path:
    """Write the frame of replies in parts: see `Run.write_parquet`."""
    import_extra("pyarrow", "Parquet files")
    place = Path(to_path("folder", folder))
    place, before = _own_files(place)
    _check_not_rows(view, place)
    _check_run(view, place, before)
    seqs = array("q") if view.ledger is None else _seqs(view, view.ledger)
    dtypes: dict[str, object] = {}
    written: list[tuple[Path, list[str]]] = []
    for start, grid in _pieces(view.grid, part_rows):
        first = start * grid.repeats
        frame = _frame(view, grid, seqs[first : first + len(grid)])
        for name, dtype in frame.dtypes.items():
            dtypes[str(name)] = _common(dtypes.get(str(name), dtype), dtype)
        path = export(frame, place / f"replies-{len(written):05}.parquet")
        written.append(
            (path, [f"{name} {each}" for name, each in frame.dtypes.items()])
        )
    stated = [f"{name} {each}" for name, each in dtypes.items()]
    for path, found in written:
        if found != stated:  # a later part had another score, or another field
            frame = read_parquet(path)
            export(frame.reindex(columns=[*dtypes]).astype(dtypes), path)  # type: ignore[arg-type]  # names and dtypes
    _give_same_types([path for path, _ in written])
    for path in before - {path for path, _ in written}:
        path.unlink(missing_ok=True)
    return place


def _give_same_types(paths: Sequence[Path]) -> None:
    """Let parts be read together: the type of decimals, or of gaps, is of a part."""
    arrow = import_extra("pyarrow", "Parquet files")
    parquet = import_extra("pyarrow.parquet", "Parquet files")
    found = [parquet.read_schema(path) for path in paths]
    try:
        common = arrow.unify_schemas(found, promote_options="permissive")
    except arrow.ArrowException:  # each can be read by itself
        return
    # one that only has gaps does not say which columns are JSON
    about = max(
        (each.metadata for each in found),
        key=lambda each: len(each.get(b"PANDAS_ATTRS", b"")),
    )
    for path, schema in zip(paths, found, strict=True):
        if not schema.equals(common):
            with parquet.ParquetFile(path) as part:
                table = part.read().cast(common.with_metadata(about))
            write_whole(path, partial(parquet.write_table, table))


def _own_files(place: Path) -> tuple[Path, set[Path]]:
    """Make the folder if need be; return it and our files in it, and refuse others."""
    try:
        place = place.expanduser()
        place.mkdir(parents=True, exist_ok=True)
        found = set(place.iterdir())
    except (OSError, RuntimeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ParameterError(
            f"{str(place)!r} cannot be used: {reason.rstrip('.')}. Name a folder that "
            "you can write to.",
            param="folder",
        ) from None
    if others := sorted(each.name for each in found if not _OWN.fullmatch(each.name)):
        raise _other_files(place, others[0])
    return place, found


def _other_files(place: Path, name: str) -> ParameterError:
    return ParameterError(
        f"{str(place)!r} has other files, such as {name!r}. Nothing was written. Name "
        "a new folder, or one that has only the parts of this run.",
        param="folder",
    )


def _check_run(view: RunView, place: Path, before: set[Path]) -> None:
    """Refuse parts of another run: the new ones would replace them."""
    for path in sorted(before):
        if path.suffix != SUFFIX:  # of a write that was killed
            continue
        try:
            columns = import_extra("pyarrow.parquet", "Parquet files").read_table(
                path, columns=["run"]
            )
            names = columns.column("run").unique().to_pylist()
        except (OSError, ValueError, KeyError):  # pyarrow's are these, too
            raise _other_files(place, path.name) from None
        if others := [name for name in names if name != view.plan.run_id]:
            raise ParameterError(
                f"{str(place)!r} has the replies of another run, {others[0]!r}. "
                "Nothing was written. Name another folder, or delete these parts if "
                "you do not need them.",
                param="folder",
            )


def _check_not_rows(view: RunView, place: Path) -> None:
    """Refuse the folder of the rows: parts may have the names of its files."""
    source = view.grid.source
    files = None if source is None else source.files
    if files is not None and place.resolve() in files.folders:
        raise ParameterError(
            f"{str(place)!r} has the rows of this run, which its replies would "
            "replace. Nothing was written. Name another folder.",
            param="folder",
        )


def _seqs(view: RunView, ledger: Ledger) -> Sequence[int]:
    """Return for each trial where the ledger has its exchange; 0 without one."""
    numbers = HashedNumbers()
    for number, key in enumerate(view.grid.trial_keys()):
        numbers.put(key, number)
    found, is_ok = array("q", bytes(8 * len(view.grid))), bytearray(len(view.grid))
    for seq, sent in ledger.numbered(view.plan.run_id):
        at, exchange = numbers.get(key_of(sent)), as_ended(sent)
        if at is not None and counts_more(exchange, is_before_ok=bool(is_ok[at])):
            found[at], is_ok[at] = seq, exchange.status == "ok"
    return found


def _pieces(grid: Grid, part_rows: int) -> Iterator[tuple[int, Grid]]:
    """Cut a grid into pieces, each with its first combination; at least one."""
    n_each = max(part_rows // grid.repeats, 1)
    every: Sequence[int] = range(grid.n_product) if grid.kept is None else grid.kept
    if grid.kept is None and grid.source is not None and len(grid.source):
        n_of_row = grid.n_product // len(grid.source)
        n_each = max(n_each // n_of_row, 1) * n_of_row  # whole rows
    for start in range(0, max(len(every), 1), n_each):
        yield start, replace(grid, kept=every[start : start + n_each])


def _frame(view: RunView, grid: Grid, seqs: Sequence[int]) -> pd.DataFrame:
    """Return the frame of replies of a piece."""
    piece = RunView(replace(view.plan, grid=grid))
    piece.answer = view.answer
    sent = sorted(seq for seq in seqs if seq)
    exchanges = view.ledger.at(sent) if view.ledger is not None else iter(())
    failures = view.failures.copy()
    batches = trial_batches(piece.plan, exchanges, failures, is_begun=view.is_begun)
    return with_scores(piece.frame_of(batches), view.ledger)


def _common(one: object, other: object) -> object:
    """Return the dtype that holds the values of two."""
    if one == other:
        return one
    numbers = {"Int64", "Float64"}
    return "Float64" if {str(one), str(other)} <= numbers else "string"

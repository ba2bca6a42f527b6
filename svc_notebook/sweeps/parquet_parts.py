"""Writes the replies of a run into a folder of Parquet files, part by part.

Only one part is in memory at a time, so a million replies can be read and written.
"""

import re
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from svc_notebook.errors import ParameterError, import_extra
from svc_notebook.ledger.frame_export import export, read_parquet, write_whole
from svc_notebook.settings import to_path

from .row_files import SUFFIX
from .run_outcome import PART_ROWS, RunResult

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
    dtypes: dict[str, object] = {}
    written: list[tuple[Path, list[str]]] = []
    for frame in result.frames_in_parts(part_rows):
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


def _common_dtype(first: object, second: object) -> object:
    """Return the dtype that can hold the values of two dtypes."""
    if first == second:
        return first
    numbers = {"Int64", "Float64"}
    return "Float64" if {str(first), str(second)} <= numbers else "string"

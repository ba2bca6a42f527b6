"""The rows of a run: its cells, each with what the ledger has of it.

Rules: pure; rows stand in the order of the plan, whatever the order in which the
replies came; a good exchange of a cell is never hidden by a later bad one; the
columns of the source join back to their rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from svc_notebook.exchange import Door, Exchange, Failure, Origin
from svc_notebook.ledger.reply import Reply, RowStatus, to_replies

from .cell import Cell
from .grid import Grid

CellKey = tuple[str, int]


def origin_of(cell: Cell, run_id: str, *, door: Door = "sweep") -> Origin:
    """Return who asks, for the exchange of a cell."""
    return Origin(
        door=door,
        run=run_id,
        cell_id=cell.cell_id,
        repeat=cell.repeat,
        columns=cell.columns,
    )


def key_of(exchange: Exchange) -> CellKey:
    """Return which cell an exchange is of."""
    return exchange.origin.cell_id or "", exchange.origin.repeat or 0


def by_cell(exchanges: Iterable[Exchange]) -> dict[CellKey, Exchange]:
    """Return the exchange that stands for each cell.

    That is the newest good one, or else the newest.

    Args:
        exchanges: Of one run, oldest first.
    """
    found: dict[CellKey, Exchange] = {}
    for exchange in exchanges:
        key = key_of(exchange)
        before = found.get(key)
        if before is None or before.status != "ok" or exchange.status == "ok":
            found[key] = exchange
    return found


def plan_rows(grid: Grid, run_id: str, *, door: Door = "sweep") -> Iterator[Reply]:
    """Return a row a cell, as planned."""
    for cell in grid:
        columns = grid.source_columns(cell)
        yield _bare(cell, run_id, "planned", columns=columns, door=door)


def reply_rows(
    grid: Grid,
    found: Mapping[CellKey, Exchange],
    *,
    run_id: str,
    failures: Mapping[CellKey, Failure],
    is_begun: bool,
    door: Door = "sweep",
) -> Iterator[Reply]:
    """Return the rows of all cells: their choices, or why there are none.

    Args:
        grid: In the order of the plan.
        found: The exchange of each cell that has one.
        run_id: For rows without an exchange.
        failures: Of cells that failed before anything was sent.
        is_begun: Whether the run has begun, so that what is missing is not_run.
        door: Who asks, likewise.
    """
    missing: RowStatus = "not_run" if is_begun else "planned"
    for cell in grid:
        exchange, failure = found.get(cell.key), failures.get(cell.key)
        columns = grid.source_columns(cell)
        if exchange is not None:
            yield from _with_columns(exchange, columns)
        else:
            status = missing if failure is None else "error"
            yield _bare(
                cell, run_id, status, failure=failure, columns=columns, door=door
            )


def _with_columns(exchange: Exchange, columns: dict[str, Any]) -> Iterator[Reply]:
    for reply in to_replies(exchange):
        yield (
            replace(reply, origin=replace(reply.origin, columns=columns))
            if columns
            else reply
        )


def _bare(
    cell: Cell,
    run_id: str,
    status: RowStatus,
    *,
    columns: dict[str, Any],
    door: Door,
    failure: Failure | None = None,
) -> Reply:
    return Reply(
        request=cell.request,
        origin=replace(origin_of(cell, run_id, door=door), columns=columns),
        status=status,
        failure=failure,
        est_prompt_tokens=cell.est_prompt_tokens,
    )

"""What is left to ask of a run: a queue for each model, pulled cell by cell.

Rules: pure; a cell that is settled is stepped over when its turn comes, so that the
order of the rest is that of the whole run; nothing is made before it is pulled.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from .cell import Cell
from .grid import Grid
from .lane import Cells
from .order import blocks, by_model
from .rows import CellKey


def todo_of(
    grid: Grid, settled: Mapping[CellKey, str], *, seed: int
) -> dict[str, Cells]:
    """Return what is left to ask of each model.

    Args:
        grid: What was planned.
        settled: The cells that are not asked, each with its model.
        seed: Of the order.
    """
    n_settled = Counter(settled.values())
    return {
        model: Cells(
            pull=_pull(
                grid,
                blocks(combinations, repeats=grid.repeats, seed=seed, model=model),
                settled,
            ),
            n_cells=len(combinations) * grid.repeats - n_settled[model],
        )
        for model, combinations in by_model(grid).items()
    }


def _pull(
    grid: Grid, numbers: Iterator[tuple[int, int]], settled: Mapping[CellKey, str]
) -> Iterator[Cell | None]:
    for combination, repeat in numbers:
        cell = grid.cell(combination, repeat)
        yield None if cell.key in settled else cell

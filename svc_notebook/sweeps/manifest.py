"""The manifest: all that is needed to repeat a run, as plain JSON values.

Rules: it holds no key and no address's credentials; whatever it says can be given to
`svc.sweep` again; values that JSON has not are written as text.
"""

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import msgspec

from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import limit_of

from .describe import n_by_model
from .grid import Grid


def manifest_of(  # noqa: PLR0913 - what a run is
    grid: Grid,
    *,
    name: str | None,
    run_id: str,
    seed: int,
    counts: Mapping[str, int],
    endpoint: str | None,
    prices: Prices | None,
) -> dict[str, Any]:
    """Return the manifest.

    Args:
        grid: What was planned.
        name: Of the run, as given.
        run_id: Its mark in the ledger.
        seed: Of its order.
        counts: How many trials of each mark there are.
        endpoint: Where it was asked; None if it was not.
        prices: The price table, if there is one.
    """
    n_by = n_by_model(grid)
    return {
        "run": run_id,
        "name": name,
        "seed": seed,
        "repeats": grid.repeats,
        "dimensions": [
            {
                "names": list(each.names),
                "points": [plain(p) for p in each.points],
                "is_by_row": each.is_by_row,
            }
            for each in grid.dimensions
        ],
        "rows": _rows(grid),
        "kept": None if grid.kept is None else list(grid.kept),
        "fixed": fixed(grid),
        "extra": plain(grid.extra),
        "is_raw": grid.is_raw,
        "n_trials": len(grid),
        "counts": dict(counts),
        "endpoint": endpoint,
        "limits": {model: _limit(model) for model in n_by},
        "prices": None if prices is None else plain(asdict(prices)),
        "versions": {
            "svc_notebook": version("svc-notebook"),
            "python": platform.python_version(),
        },
    }


def fixed(grid: Grid) -> dict[str, Any]:
    """Return what has one value in every request."""
    return {
        name: plain(each.points[0].get(name))
        for each in grid.dimensions
        if len(each.points) == 1 and not each.is_by_row
        for name in each.names
    }


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON has it; as text, if JSON has no such value."""
    return msgspec.to_builtins(value, enc_hook=_as_text, str_keys=True)


def _as_text(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _rows(grid: Grid) -> list[dict[str, Any]] | None:
    if grid.source is None:
        return None
    return [plain(grid.source.row(at)) for at in range(len(grid.source))]


def _limit(model: str) -> dict[str, int] | None:
    limit = limit_of(model)
    return None if limit is None else asdict(limit)

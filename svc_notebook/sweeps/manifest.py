"""The manifest of a run: its plan as JSON, kept by the ledger, and read again."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from typing import Any
from zlib import compress, decompress

import msgspec
from msgspec.structs import asdict

from svc_notebook.analysis.scoring import function_to_keep
from svc_notebook.credentials import known_keys
from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, OriginKind
from svc_notebook.ledger.records import KeptPlan, to_json
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.params import check_int

from .factors import Dimension
from .grid import Grid
from .plan import Plan, check_points, check_templates
from .resume import RunStatus
from .row_files import RowFileList, RowFiles, check_same_files
from .rows import read_rows, typed, without_missing


class Manifest(msgspec.Struct, kw_only=True):
    """A plan as JSON: the ledger keeps it, and `run.manifest` has more with it.

    Attributes:
        rows, dtypes, categories, index: The rows, and what a DataFrame has of them.
        files: Where the rows are, if they are in files; `rows` is None then.
        kept: Numbers of the combinations that `where` kept; None for all.
        fixed: The factors that have one value.
        own_limits: By model.
        scores: What is kept of each score, by name.
        run_tools: The limits of tool rounds; None if no tools are run.
    """

    run: str
    name: str | None
    origin: OriginKind
    seed: int
    repeats: int
    dimensions: tuple[Dimension, ...]
    rows: list[dict[str, Any]] | None
    files: RowFileList | None
    dtypes: dict[str, str]
    categories: dict[str, dict[str, Any]]
    index: Mapping[str, Sequence[Any]]
    kept: list[int] | None
    fixed: dict[str, Any]
    answer: str | None
    scores: dict[str, dict[str, str]] = {}
    is_raw: bool
    own_limits: dict[str, dict[str, int]]
    in_flight: int | None
    run_tools: Mapping[str, float] | None
    n_cells: int


def manifest_of(plan: Plan) -> Manifest:
    """Return the manifest of a plan."""
    grid, rows = plan.grid, plan.grid.rows
    is_here = rows is not None and rows.files is None
    fixed = {
        name: dimension.points[0].get(name)
        for dimension in grid.dimensions
        if len(dimension.points) == 1 and not dimension.is_by_row
        for name in dimension.names
    }
    limits = plan.own_limits.items()
    return Manifest(
        run=plan.run_id,
        name=plan.name,
        origin=plan.origin,
        seed=plan.seed,
        repeats=grid.repeats,
        dimensions=grid.dimensions,
        rows=[without_missing(rows.row(position)) for position in range(len(rows))]
        if rows is not None and is_here
        else None,
        files=rows.files.listed if rows is not None and rows.files else None,
        dtypes={} if rows is None else rows.dtypes,
        categories={} if rows is None else rows.categories,
        index=rows.index if rows is not None and is_here else {},
        kept=None if grid.kept is None else list(grid.kept),
        fixed=fixed,
        answer=plan.answer.kept if plan.answer else None,
        scores={name: function_to_keep(x) for name, x in plan.scores.items()},
        is_raw=grid.is_raw,
        own_limits={model: limit.stated for model, limit in limits},
        in_flight=plan.in_flight,
        run_tools=plan.run_tools,
        n_cells=len(grid),
    )


def stored_manifest(stored: KeptPlan) -> Manifest:
    """Return the manifest of a plan that the ledger keeps."""
    return read_manifest(msgspec.json.decode(decompress(stored.manifest)))


def read_manifest(manifest: object, *others: object) -> Manifest:
    """Check a manifest, and that none of the other arguments is given with it."""
    if any(others):
        raise ParameterError(
            "manifest has the whole grid; give only name, seed, confirm_above, "
            "reuse, answer, scores, limits and in_flight with it.",
            param="manifest",
        )
    if isinstance(manifest, Manifest):
        return manifest
    if not isinstance(manifest, Mapping):
        raise ParameterError(
            f"manifest is {type(manifest).__name__}; give the dict that run.manifest "
            "returned, or what json.loads made of its JSON.",
            param="manifest",
        )
    try:
        return msgspec.convert(manifest, Manifest)
    except msgspec.ValidationError as problem:
        raise ParameterError(
            f"manifest is not the manifest of a run: {problem}. Give what run.manifest "
            "returned, or what was read from its JSON.",
            param="manifest",
        ) from None


def grid_of(manifest: Manifest, endpoint: Endpoint) -> Grid:
    """Make the grid of a manifest, to be sent to an endpoint, and check it."""
    rows: object = manifest.rows
    if manifest.files is not None:
        rows = files = RowFiles(manifest.files.path)
        check_same_files(manifest.files, files.listed)
    elif manifest.rows and manifest.dtypes:
        rows = typed(
            manifest.rows, manifest.dtypes, manifest.index, manifest.categories
        )
    kept = manifest.kept
    grid = Grid(
        dimensions=manifest.dimensions,
        rows=None if rows is None else read_rows(rows),
        repeats=check_int("repeats", manifest.repeats, minimum=1),
        is_raw=manifest.is_raw,
        kept=kept,
        endpoint=endpoint,
    )
    if kept and not 0 <= min(kept) <= max(kept) < grid.n_product:
        raise ParameterError(
            f"manifest keeps combinations that its {grid.n_product} do not have; give "
            "it as run.manifest returned it.",
            param="manifest",
        )
    check_templates(grid, is_whole=kept is None)
    check_points(grid)
    return grid


def run_manifest(
    plan: Plan,
    status: RunStatus,
    exchanges: Iterable[Exchange],
    found_limits: Mapping[str, Limit | None],
) -> dict[str, Any]:
    """Return all that is needed to repeat a run, and how it went, as JSON values.

    `found_limits` has the limits that this kernel found, by model.
    """
    grid, first = plan.grid, status.first
    times = [(exchange.started_at, exchange.ended_at) for exchange in exchanges]
    values = {
        **asdict(manifest_of(plan)),
        "counts": dict(status.counts(len(grid))),
        "endpoint": first.endpoint if first else None,
        "is_emulated": first.is_emulated if first else None,
        "started_at": min((started for started, _ in times), default=None),
        "ended_at": max((ended for _, ended in times), default=None),
        "limits": {model: grid.endpoint.limit_of(model) for model in grid.n_by_model},
        "found_limits": found_limits,
        "prices": plan.prices,
        "versions": {
            "svc_notebook": version("svc-notebook"),
            "python": platform.python_version(),
        },
    }
    # what JSON does not have becomes a text
    return msgspec.to_builtins(values, enc_hook=_as_text, str_keys=True)  # type: ignore[no-any-return]  # a dict


def _as_text(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def keep_plan(plan: Plan, ledger: Ledger, *, has_unplanned: bool) -> None:
    """Keep a plan with its rows in the ledger, unless it is there already.

    An older plan stays while the run has trials that are not in this one.
    """
    text = to_json(manifest_of(plan)).decode()
    for key in known_keys():  # a column that no prompt uses may hold one
        text = key.redact(text)
    whole = text.encode()
    digest = blake2b(whole, digest_size=8).hexdigest()
    stored = ledger.plans(plan.run_id, is_whole=False)
    if stored and stored[-1].digest == digest:
        return
    ledger.add_plan(
        KeptPlan(
            run=plan.run_id,
            part=stored[-1].part + has_unplanned if stored else 0,
            name=plan.name,
            n_trials=len(plan.grid),
            digest=digest,
            manifest=compress(whole, level=1),
        )
    )

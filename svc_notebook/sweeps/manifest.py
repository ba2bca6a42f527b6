"""A run's manifest as it is read: the grid that it describes, to repeat the run."""

from collections.abc import Mapping
from typing import Any
from zlib import decompress

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.row import KeptPlan

from .dimensions import Dimension
from .row_files import FoundFiles


class Manifest(msgspec.Struct):
    """What a run's manifest says of its grid; the rest is not needed to repeat it."""

    dimensions: tuple[Dimension, ...]
    rows: list[dict[str, Any]] | None
    kept: list[int] | None
    is_raw: bool
    repeats: int
    seed: int
    dtypes: dict[str, str] = msgspec.field(default_factory=dict)
    index: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    categories: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    own_limits: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    in_flight: int | None = None
    answer: str | None = None
    run_tools: dict[str, float] | None = None
    files: FoundFiles | None = None  # of the rows, in place of them
    extra: dict[str, Any] | None = None  # of all requests, in the first manifests


def kept_manifest(plan: KeptPlan) -> dict[str, Any]:
    """Return the manifest of a plan that the ledger kept."""
    found: dict[str, Any] = msgspec.json.decode(decompress(plan.manifest))
    return found


def read_manifest(manifest: object, *others: object) -> Manifest:
    """Check a manifest, and that none of the other arguments is given with it."""
    if any(others):
        raise ParameterError(
            "manifest has the whole grid; give only name, seed, confirm_above, "
            "reuse, answer, limits and in_flight with it.",
            param="manifest",
        )
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

"""The models that the document names, and their limits (doc: Versioning, Limits).

A value that the document does not show is None. Other model ids are allowed.
"""

from dataclasses import dataclass
from datetime import date

DEFAULT_MODEL = "svc-v2-8b-instruct"
"""Our choice, not the service's: the document requires `model` in every request."""

BUDGET_TOKENS = 8192  # doc: Limits, prompt plus completion of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Requests allowed per window (doc: Rate limits per model)."""

    per_second: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Model:
    """One model id, with what the document says about it; None where not shown.

    The size is the document's own word, such as 8B.
    """

    id: str
    size: str | None = None
    released_on: date | None = None
    limit: Limit | None = None


_LIMIT_20 = Limit(per_second=20, per_minute=150)
_LIMIT_5 = Limit(per_second=5, per_minute=50)

MODELS = (
    Model("svc-instruct"),
    Model("svc-v1.5-instruct", "8B", date(2024, 5, 9), _LIMIT_20),
    Model("svc-v1.5x-70b-instruct", "70B", date(2024, 6, 1), _LIMIT_5),
    Model("svc-v2-8b-instruct", "8B", date(2024, 12, 19), _LIMIT_5),
    Model("svc-v2-70b-instruct", "70B", date(2024, 12, 19), _LIMIT_5),
    Model("svc-v2.1-12b-instruct"),
    Model("svc-v2.5-30b-a3b-instruct"),
)


def limit_of(model: str) -> Limit | None:
    """Return the documented limit of a model; None if the document shows none."""
    return next((each.limit for each in MODELS if each.id == model), None)

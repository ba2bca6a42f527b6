"""The models this emulator serves: ids and limits as typed out of the document.

What it is not: how a model writes is in `voice`.

Rules for this file: every id and number is the document's (doc: Model ids,
Limits, Versioning); a model without shown limits has none here.
"""

from collections.abc import Mapping
from types import MappingProxyType

# doc: Model ids, "Ids that appear".
DOCUMENTED = (
    "svc-instruct",
    "svc-v1.5-instruct",
    "svc-v1.5x-70b-instruct",
    "svc-v2-8b-instruct",
    "svc-v2-70b-instruct",
    "svc-v2.1-12b-instruct",
    "svc-v2.5-30b-a3b-instruct",
)

# doc: Rate limits per model. Requests in one second, requests in one minute.
LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "svc-v1.5-instruct": (20, 150),
        "svc-v1.5x-70b-instruct": (5, 50),
        "svc-v2-8b-instruct": (5, 50),
        "svc-v2-70b-instruct": (5, 50),
    }
)

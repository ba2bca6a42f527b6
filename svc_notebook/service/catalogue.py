"""The models that the document names, and their limits (doc: Versioning, Limits).

A value that the document does not show is None. Other model ids are allowed. The
document's numbers apply to the service only; for models of other servers, unknown
values are None.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec

DEFAULT_MODEL = "svc-v2-8b-instruct"
"""Our choice, not the service's: the document requires `model` in every request."""

BUDGET_TOKENS = 8192  # doc: Limits, prompt plus completion of one request
DEFAULT_MAX_TOKENS = 150  # doc: Limits, max_tokens default
MAX_TOKENS = "max_tokens"


class ModelInfo(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False
):
    """What a request needs to know about its model; the defaults are the document's.

    Attributes:
        context_tokens: Tokens that prompt and reply share; None if unknown.
        max_reply_tokens: Most tokens of a reply; None if unknown.
        default_max_tokens: Most tokens of a reply if no number is sent; None if
            unknown.
        max_tokens_field: The field name under which max_tokens is sent.
        is_documented: Whether it is a model of the service, which gets only what the
            document allows. Other servers get anything.
        source: Where the context is from, as a text; "" for the document.
        prompt_excess: How the model counts prompts, if a refusal has told: 0 as the
            best estimate, 1 as the tokenizer with most tokens; None if unknown.
        extra: Fields for every request; the request adds them to its own `extra`.
    """

    context_tokens: int | None = BUDGET_TOKENS
    max_reply_tokens: int | None = BUDGET_TOKENS
    default_max_tokens: int | None = DEFAULT_MAX_TOKENS
    max_tokens_field: str = MAX_TOKENS
    is_documented: bool = True
    source: str = ""
    prompt_excess: float | None = None
    extra: dict[str, Any] = {}


DOCUMENTED = ModelInfo()
"""What the document says of every model of the service (doc: Limits)."""
UNKNOWN = ModelInfo(
    context_tokens=None,
    max_reply_tokens=None,
    default_max_tokens=None,
    is_documented=False,
)
"""What is known of another server's model without any description: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Requests allowed per window, and in flight (doc: Rate limits per model).

    None means no such limit; the document shows no limit for requests in flight.
    """

    per_second: int | None
    per_minute: int | None
    in_flight: int | None = None

    @property
    def is_windowed(self) -> bool:
        """Whether it limits the requests of a second or a minute."""
        return (self.per_second or self.per_minute) is not None

    def __str__(self) -> str:
        counts = (
            (self.per_second, "/s"),
            (self.per_minute, "/min"),
            (self.in_flight, " at once"),
        )
        shown = [f"{n}{unit}" for n, unit in counts if n is not None]
        return " ".join(shown) or "no limit"


@dataclass(frozen=True, slots=True)
class Model:
    """One model id, with what the document says about it; None where not shown.

    The size is written as in the document, such as 8B.
    """

    id: str
    size: str | None = None
    released_on: date | None = None
    limit: Limit | None = None
    context_tokens: int | None = None  # of prompt and reply together
    max_reply_tokens: int | None = None
    max_tokens_field: str | None = None


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
    return next((known.limit for known in MODELS if known.id == model), None)

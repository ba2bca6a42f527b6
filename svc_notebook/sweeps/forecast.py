"""How long a run will last, computed from the documented limits.

What it is not: a guess from an average. Rules: pure; both windows of each model
count, with the margin that the client keeps; for a model whose limits the document
does not show there is no forecast, and none is invented (doc: Rate limits per model).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from svc_notebook.client.limits import MARGIN_S, MINUTE_S, SECOND_S
from svc_notebook.service.catalogue import Limit, limit_of

PER_MINUTE_S = MINUTE_S + MARGIN_S
PER_SECOND_S = SECOND_S + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the last request of a model can be sent.

    Attributes:
        model: Its id.
        n_requests: How many are to be sent.
        last_sent_s: Seconds from the first to the last; None without a known limit.
        binds: The limit that decides, such as "per-minute limit"; "" if none does.
    """

    model: str
    n_requests: int
    last_sent_s: float | None
    binds: str


def forecast(n_by_model: Mapping[str, int]) -> tuple[Forecast, ...]:
    """Return a forecast a model, the one that ends last coming first."""
    found = [_of_model(model, n, limit_of(model)) for model, n in n_by_model.items()]
    return tuple(sorted(found, key=lambda each: -(each.last_sent_s or 0.0)))


def last_sent_s(n_requests: int, limit: Limit) -> float:
    """Return the seconds from the first request to the last one.

    The k-th request goes when neither window is full: the one `per_second` before it
    is a second ago, and the one `per_minute` before it a minute.
    """
    if n_requests < 1:
        return 0.0
    n_minutes, rest = divmod(n_requests - 1, limit.per_minute)
    in_minutes_s = n_minutes * PER_MINUTE_S + rest // limit.per_second * PER_SECOND_S
    in_seconds_s = (n_requests - 1) // limit.per_second * PER_SECOND_S
    return max(in_minutes_s, in_seconds_s)


def _of_model(model: str, n_requests: int, limit: Limit | None) -> Forecast:
    if limit is None:
        return Forecast(model=model, n_requests=n_requests, last_sent_s=None, binds="")
    binds = ""
    if n_requests > limit.per_minute:
        binds = "per-minute limit"
    elif n_requests > limit.per_second:
        binds = "per-second limit"
    sent_s = last_sent_s(n_requests, limit)
    return Forecast(model=model, n_requests=n_requests, last_sent_s=sent_s, binds=binds)

"""The rate limits of the emulated models: requests in any second and any minute."""

from collections import deque
from collections.abc import Callable, Mapping

# doc: Rate limits per model. Requests in one second, requests in one minute.
LIMITS: Mapping[str, tuple[int, int]] = {
    "svc-v1.5-instruct": (20, 150),
    "svc-v1.5x-70b-instruct": (5, 50),
    "svc-v2-8b-instruct": (5, 50),
    "svc-v2-70b-instruct": (5, 50),
}

SECOND_S = 1.0
MINUTE_S = 60.0


class Quota:
    """Limits the requests per second and per minute, for each model.

    `limits` maps model ids to requests in any 1 s and in any 60 s. Nothing waits here,
    and a refused request does not count.
    """

    def __init__(
        self, limits: Mapping[str, tuple[int, int]], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._admitted_at: dict[str, deque[float]] = {}

    def take(self, model: str) -> str | None:
        """Admit a request (None), or return the full window, such as `per second`."""
        if model not in self._limits:
            return None
        per_second, per_minute = self._limits[model]
        now = self._clock()
        admitted_at = self._admitted_at.setdefault(model, deque())
        while admitted_at and now - admitted_at[0] >= MINUTE_S:
            admitted_at.popleft()
        if sum(1 for at in admitted_at if now - at < SECOND_S) >= per_second:
            return "per second"
        if len(admitted_at) >= per_minute:
            return "per minute"
        admitted_at.append(now)
        return None

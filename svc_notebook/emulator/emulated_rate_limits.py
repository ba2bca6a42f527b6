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

    `limits` maps model ids to requests in any 1 s and in any 60 s. It never waits, and
    a refused request uses up nothing.
    """

    def __init__(
        self, limits: Mapping[str, tuple[int, int]], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._taken_at: dict[str, deque[float]] = {}

    def take(self, model: str) -> str | None:
        """Admit a request, or name the full window: `per second`, `per minute`."""
        if model not in self._limits:
            return None
        per_second, per_minute = self._limits[model]
        now = self._clock()
        taken = self._taken_at.setdefault(model, deque())
        while taken and now - taken[0] >= MINUTE_S:
            taken.popleft()
        if sum(1 for at in taken if now - at < SECOND_S) >= per_second:
            return "per second"
        if len(taken) >= per_minute:
            return "per minute"
        taken.append(now)
        return None

"""Rate windows per model: how many requests in the last second and minute.

What it is not: it knows no requests and no statuses, and it never waits.

Rules for this file: time comes in through the clock; a refused request uses
nothing up; a model without limits is always admitted (doc: Rate limits per model).
"""

from collections import deque
from collections.abc import Callable, Mapping

SECOND_S = 1.0
MINUTE_S = 60.0


class Quota:
    """Admit so many requests a second and so many a minute, for each model.

    Args:
        limits: Model id to requests in any 1 s and requests in any 60 s.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self, limits: Mapping[str, tuple[int, int]], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._taken_at: dict[str, deque[float]] = {}

    def take(self, model: str) -> str | None:
        """Admit a request, or say which window is full.

        Returns:
            None when admitted; else `per second` or `per minute`.
        """
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

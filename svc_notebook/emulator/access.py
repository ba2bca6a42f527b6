"""Who may send a request: API keys, models and rate limits, typed out of the document.

A model whose limits the document does not show has none here.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
LIMITS: Mapping[str, tuple[int, int]] = {
    "svc-v1.5-instruct": (20, 150),
    "svc-v1.5x-70b-instruct": (5, 50),
    "svc-v2-8b-instruct": (5, 50),
    "svc-v2-70b-instruct": (5, 50),
}

KEY = "svc-emulator"
REVOKED_KEY = "svc-emulator-revoked"
FORBIDDEN_KEY = "svc-emulator-forbidden"
HIDDEN = "[key]"
SECOND_S = 1.0
MINUTE_S = 60.0
# A key of so many letters is not an ordinary word.
_LONG_ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one emulator; no message and no record repeats one.

    A revoked key is answered with 401, as one never created, a forbidden one with 403.
    """

    valid: tuple[str, ...] = field(default=(KEY,), repr=False)
    revoked: tuple[str, ...] = field(default=(REVOKED_KEY,), repr=False)
    forbidden: tuple[str, ...] = field(default=(FORBIDDEN_KEY,), repr=False)

    def hide(self, text: str, headers: Mapping[str, str]) -> str:
        """Replace every key in a text: the known ones and the one sent.

        A short key, as people choose for tests, is replaced only as a whole word; it
        may be a part of ordinary words.
        """
        keys = {sent_key(headers), *self.valid, *self.revoked, *self.forbidden} - {""}
        for key in sorted(keys, key=len, reverse=True):  # one may begin with another
            if len(key) >= _LONG_ENOUGH:
                text = text.replace(key, HIDDEN)
            else:
                text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", HIDDEN, text)
        return text


def sent_key(headers: Mapping[str, str]) -> str:
    """Read the key of a request; empty if it has none in the bearer scheme."""
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


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

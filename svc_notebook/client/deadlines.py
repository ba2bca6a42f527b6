"""How long an exchange may take, and the clock, sleep and jitter it is measured by.

The wait for our own rate limit moves the total deadline and is never part of a latency.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from svc_notebook.errors import SvcError, TimedOutError
from svc_notebook.exchange import new_id
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Timeouts


@dataclass(frozen=True, slots=True)
class Left:
    """The nearest deadline: its name (see `_WORDS`), and how long it is in all.

    `left_s` is negative when it has passed.
    """

    left_s: float
    name: str
    length_s: float


class Deadlines:
    """The deadlines of one exchange that began at `started_s` by the clock."""

    def __init__(
        self,
        timeouts: Timeouts,
        request: CompletionRequest,
        *,
        is_streamed: bool,
        started_s: float,
    ) -> None:
        # more tokens take longer, and the service does not say that it is at work
        n_tokens = request.max_tokens or request.info.max_reply_tokens or BUDGET_TOKENS
        self._whole_s = timeouts.whole_s + timeouts.whole_token_s * n_tokens
        self._timeouts = timeouts
        self._is_streamed = is_streamed
        self._started_s = started_s
        self.queue_s = 0.0

    def for_headers(self, now_s: float) -> Left:
        """Return the deadline for the headers of a request that is sent now."""
        if self._is_streamed:
            length_s = self._timeouts.first_byte_s
            return self._nearest(Left(length_s, "first_byte", length_s), now_s)
        return self.for_body(now_s, sent_s=now_s, event_s=now_s)

    def for_body(self, now_s: float, *, sent_s: float, event_s: float) -> Left:
        """Return the deadline for the next part of a body.

        `event_s` is when the newest event came, or the headers.
        """
        if self._is_streamed:
            idle_s = self._timeouts.idle_s
            return self._nearest(Left(event_s + idle_s - now_s, "idle", idle_s), now_s)
        left_s = sent_s + self._whole_s - now_s
        return self._nearest(Left(left_s, "whole", self._whole_s), now_s)

    def _nearest(self, left: Left, now_s: float) -> Left:
        total_left_s = self.total_left_s(now_s)
        if total_left_s < left.left_s:
            return Left(total_left_s, "total", self._timeouts.total_s or 0.0)
        return left

    def total_left_s(self, now_s: float) -> float:
        """Return the seconds until the total deadline; infinite without one."""
        total_s = self._timeouts.total_s
        if total_s is None:
            return math.inf
        return self._started_s + self.queue_s + total_s - now_s


_WORDS = {
    "first_byte": "The service did not begin to answer within {:g} s",
    "idle": "The service sent nothing for {:g} s in the middle of a reply",
    "whole": "The service did not finish its reply within {:g} s",
    "total": "The request took longer than {:g} s, including retries",
}


def timed_out(left: Left) -> TimedOutError:
    """Build the error for a deadline that passed."""
    return TimedOutError(
        f"{_WORDS[left.name].format(left.length_s)}. The request was not retried "
        "because it may have been billed. Ask again, ask for fewer tokens, or allow "
        "more time (SVC_TIMEOUTS, or Settings.timeouts).",
        deadline=left.name,
        deadline_s=left.length_s,
    )


def with_earlier(error: SvcError, earlier: SvcError) -> SvcError:
    """Say in a time-out how the try before it failed: that may be the reason."""
    if not isinstance(error, TimedOutError):
        return error
    status = getattr(earlier, "status", None)
    shown = f" (status {status})" if status else ""
    kind = type(earlier).__name__
    return TimedOutError(
        f"{error} The previous try failed with {kind}{shown}.",
        deadline=error.deadline,
        deadline_s=error.deadline_s,
    )


Clock: TypeAlias = Callable[[], float]
"""Returns seconds that only grow."""


_utc_now = partial(datetime.now, UTC)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Runtime:
    """Where time, random numbers and ids come from; tests replace it."""

    clock: Callable[[], float] = time.monotonic  # seconds that only grow
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random  # from 0 to 1
    now: Callable[[], datetime] = _utc_now
    new_id: Callable[[], str] = new_id

    def __repr__(self) -> str:
        """Return a short text, since `svc.AsyncClient?` shows the default."""
        return f"{type(self).__name__}()"


REAL = Runtime()

"""How long a 429 closes a model: by its Retry-After, or else by our own rule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from .rate_windows import MARGIN_S, MINUTE_S, SECOND_S

CLOSED_S = SECOND_S + MARGIN_S  # after a 429 without a Retry-After
N_BEFORE_MINUTE = 3  # 429s in a row, until the minute of an unknown limit is full


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How long the 429s of a model close it. Pure: callers pass the time.

    A 429 closes the model for a second. If nothing was accepted since the 429 before
    it, the minute is full, and the model stays closed until a minute has passed. Where
    no limit is known, it is closed for 2 and for 4 seconds before that is assumed.

    Attributes:
        newest_s, sent_s: When the newest one came that said something new, and when
            its request was sent.
        previous_s: When the one before it came.
        n_in_row: How many came since a request was accepted.
        spread: Every wait of ours is longer by this share of it, from 0 to 1: kernels
            that were refused together come back apart.
        closed_until_s: No request is sent before.
        is_settled: Whether it was looked at once more when the model would open again:
            answers to requests that were sent with it come later.
    """

    newest_s: float = -inf
    sent_s: float = -inf
    previous_s: float = -inf
    n_in_row: int = 1
    spread: float = 0.0
    closed_until_s: float = -inf
    is_settled: bool = True

    def refused(
        self,
        *,
        sent_s: float,
        now_s: float,
        retry_after_s: float | None,
        spread: float = 0.0,
    ) -> "Refusals":
        """Return the state after a 429 that came at `now_s`.

        The wait that the service asks for is never cut short.
        """
        until_s = max(self.closed_until_s, now_s + (retry_after_s or 0.0))
        if sent_s < self.closed_until_s:  # let out before the newest: nothing new
            return replace(self, closed_until_s=until_s)
        return Refusals(
            newest_s=now_s,
            sent_s=sent_s,
            # the service's own hint says which window is full
            previous_s=-inf if retry_after_s else self.newest_s,
            closed_until_s=max(until_s, now_s + CLOSED_S * (1 + spread)),
            is_settled=False,
            n_in_row=self.n_in_row,
            spread=spread,
        )

    def is_repeated(self, minute_s: Sequence[float]) -> bool:
        """Say whether nothing was accepted since the one before, within a minute.

        `minute_s` has when the requests of the minute before it were accepted.
        """
        return self.previous_s > self.newest_s - MINUTE_S and not any(
            at_s > self.previous_s for at_s in minute_s
        )

    def is_minute_full(self, minute_s: Sequence[float], *, is_known: bool) -> bool:
        """Say whether the newest one was for the minute, not for the second."""
        n_needed = 1 if is_known else N_BEFORE_MINUTE
        return self.is_repeated(minute_s) and self.n_in_row >= n_needed

    def settled(self, minute_s: Sequence[float], *, is_known: bool) -> "Refusals":
        """Return the state when the model would open again after a 429.

        `is_known` says whether the limit is known; else it has to be found.
        """
        if not self.is_repeated(minute_s):
            return replace(self, is_settled=True, n_in_row=1)
        if not self.is_minute_full(minute_s, is_known=is_known):
            wait_s = CLOSED_S * 2**self.n_in_row * (1 + self.spread)
            until_s = max(self.closed_until_s, self.newest_s + wait_s)
            n_in_row = self.n_in_row + 1
            return replace(
                self, is_settled=True, closed_until_s=until_s, n_in_row=n_in_row
            )
        # the minute has room again when its first request is a minute old
        full_s = minute_s[0] if minute_s else self.newest_s
        until_s = max(self.closed_until_s, full_s + MINUTE_S + MARGIN_S)
        return replace(self, is_settled=True, closed_until_s=until_s)

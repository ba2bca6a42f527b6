"""How long a 429 closes a model: its Retry-After, or our own rule without one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from .rate_windows import MARGIN_S, MINUTE_S, SECOND_S

CLOSED_S = SECOND_S + MARGIN_S  # after a 429 without a Retry-After
N_BEFORE_MINUTE = 3  # 429s in a row after which an unknown minute limit counts as full


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How long 429s close a model, so that no request is sent. Callers pass the time.

    A 429 closes the model for a second. If no request was accepted since the 429 before
    it, the limit per minute is used up, and the model stays closed until its oldest
    request is a minute old. If the limit is not known, the model is closed for 2 and
    then for 4 seconds before this is assumed.

    Attributes:
        newest_s, sent_s: When the newest 429 arrived that said something new, and when
            its request was sent.
        previous_s: When the 429 before it arrived.
        n_in_row: 429s since a request was last accepted.
        spread: Lengthens our own waits by this share, from 0 to 1, so that kernels that
            were refused together do not return together.
        closed_until_s: No request is sent before this time.
        is_settled: Whether the newest 429 was evaluated a second time, just before the
            model opens: by then, answers to requests sent with it have arrived.
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

        The wait that the service asks for is never shortened.
        """
        until_s = max(self.closed_until_s, now_s + (retry_after_s or 0.0))
        if sent_s < self.closed_until_s:  # sent before the newest 429: says nothing new
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
        """Say whether no request was accepted between the last two 429s.

        `minute_s` holds when the requests of the minute before the newest were
        accepted.
        """
        return self.previous_s > self.newest_s - MINUTE_S and not any(
            at_s > self.previous_s for at_s in minute_s
        )

    def is_minute_full(self, minute_s: Sequence[float], *, is_known: bool) -> bool:
        """Say whether the newest 429 was about the minute, not the second."""
        n_needed = 1 if is_known else N_BEFORE_MINUTE
        return self.is_repeated(minute_s) and self.n_in_row >= n_needed

    def settled(self, minute_s: Sequence[float], *, is_known: bool) -> "Refusals":
        """Return the state after evaluating the newest 429, before the model opens.

        `is_known` says whether the limit is documented; otherwise it is learnt.
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

"""Retries: which failures, how often, after which wait (doc: Errors, Limits). Pure.

The wait is exponential backoff with full jitter, added to the service's Retry-After,
which is never shortened. A request is never retried after a part of its reply was
shown, nor after a time-out, because it was probably billed. A 429 closes its model for
every request, those of a sweep too: `Refusals` says for how long.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf

from svc_notebook.errors import (
    NoConnectionError,
    RateLimitError,
    ServerFaultError,
    ServiceError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
)

from .rate_windows import MARGIN_S, MINUTE_S, SECOND_S

MAX_ASKED_S = 60.0  # if the service asks to wait longer, the exchange fails at once
# After a 429, `rate_limit` decides when the model's next request is sent. With this
# wait, requests that already wait come before the refused one.
MIN_REFUSED_S = 0.1
_BASE_S = 1.0  # of the backoff: 1 s, 2 s, 4 s ...
_MAX_OWN_S = 8.0  # the most; then times a jitter from 0 to 1
CLOSED_S = SECOND_S + MARGIN_S  # after a 429 without a Retry-After
N_BEFORE_MINUTE = 3  # 429s in a row after which an unknown minute limit counts as full


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTry:
    """A try that failed.

    Attributes:
        error: What went wrong, for the user.
        is_lasting: Whether a retry at once would fail in the same way.
        is_sent: Whether the service may have read the request.
    """

    error: SvcError
    is_lasting: bool = False
    is_sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How patient a caller is.

    Attributes:
        n_tries: Most requests for one exchange.
        n_unsent_tries: Most tries if no connection can be opened. It may be larger,
            since nothing was billed.
        is_refusal_retried: Whether to retry after a 429. A sweep puts the trial back
            into its queue instead, without using up a try.
        limits_in_flight: Whether the caller limits its requests in flight itself.
        is_limit_in_total: Whether the total deadline includes the wait for a rate
            limit: yes if a person waits, no in a sweep.
    """

    n_tries: int = 3
    n_unsent_tries: int = 3
    is_refusal_retried: bool = True
    limits_in_flight: bool = False
    is_limit_in_total: bool = True


INTERACTIVE = Policy()

# With five tries, a sweep survives some seconds without a network.
QUEUED = Policy(n_unsent_tries=5, is_refusal_retried=False, is_limit_in_total=False)


def retry_wait_s(
    failure: FailedTry,
    *,
    attempt: int,
    jitter: float,
    has_shown: bool = False,
    closed_s: float = 0.0,
    policy: Policy = INTERACTIVE,
) -> float | None:
    """Return the seconds until the next try; None to give up.

    `attempt` counts the requests sent so far, from 1; `jitter` is from 0 to 1;
    `has_shown` says whether any of the reply was shown. After a 429 the model is
    closed for `closed_s`.
    """
    n_tries = policy.n_tries if failure.is_sent else policy.n_unsent_tries
    if has_shown or failure.is_lasting or attempt >= n_tries:
        return None
    error = failure.error
    asked_s = (isinstance(error, ServiceError) and error.retry_after_s) or 0.0
    if asked_s > MAX_ASKED_S or not _may_pass(error, policy):
        return None
    # Full jitter spreads clients that failed together better than a part of it does
    # (Exponential Backoff And Jitter, AWS Architecture Blog, 2015).
    backoff_s = _BASE_S * 2.0 ** (attempt - 1)
    own_s = jitter * min(_MAX_OWN_S, backoff_s if asked_s else max(backoff_s, closed_s))
    # Jitter is added to the service's wait too, so that requests refused together do
    # not return together.
    least_s = MIN_REFUSED_S if isinstance(error, RateLimitError) else 0.0
    return max(own_s + max(asked_s, closed_s), least_s)


def _may_pass(error: SvcError, policy: Policy) -> bool:
    """Say whether this kind of failure may pass."""
    if isinstance(error, TimedOutError):
        # it was probably billed, and a host that is down stays down for now
        return False
    if isinstance(error, ServiceError):
        if isinstance(error, RateLimitError):
            return policy.is_refusal_retried
        return error.status in _PASSING_STATUSES
    return isinstance(error, (NoConnectionError, StreamBrokenError))


_REASONS: dict[type[SvcError], str] = {
    RateLimitError: "a 429: too many requests",
    ServerFaultError: "a server error",
    NoConnectionError: "no connection",
    StreamBrokenError: "a broken connection",
    TimedOutError: "no answer in time",
}


def reason_to_retry(failure: FailedTry | None) -> str:
    """Say why a request waits before its next try."""
    reason = _REASONS.get(type(failure.error), "a failure") if failure else "a failure"
    return f"trying again after {reason}"


# 511: the network requires a login first, so a retry would fail again.
_PASSING_STATUSES = frozenset({408, *range(500, 600)}) - {511}


def retry_after_s(headers: Mapping[str, str], *, now_at: datetime) -> float | None:
    """Return the seconds that the service asks to wait; None without a valid value.

    A date is compared with the Date header of the answer, if there is one, because our
    clock (`now_at`, aware) may be wrong. The headers' names are in lower case.
    """
    in_ms = _seconds(headers.get("retry-after-ms"))
    if in_ms is not None:
        return in_ms / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None:
        return seconds
    return _until(text, _date(headers.get("date")) or now_at)


def _seconds(text: str | None) -> float | None:
    with suppress(ValueError):
        seconds = float(text or "")
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    return None


def _until(text: str | None, now_at: datetime) -> float | None:
    with suppress(OverflowError):
        if (at := _date(text)) is not None:
            return max((at - now_at).total_seconds(), 0.0)
    return None


def _date(text: str | None) -> datetime | None:
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        at = parsedate_to_datetime(text or "")
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return None


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

"""Whether to ask again: every kind of failure, every bound."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.retry import (
    INTERACTIVE,
    QUEUED,
    FailedTry,
    Policy,
    retry_after_s,
    retry_wait_s,
)
from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    NoConnectionError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
    UnknownModelError,
)

PASSING = [
    ServerFaultError(status=500),
    ServerFaultError(status=408),
    ServerFaultError(status=529),
    NoConnectionError(),
    StreamBrokenError(),
]
LASTING = [
    AuthError(status=401),
    BadRequestError(status=400),
    UnknownModelError(status=404),
    ServerFaultError(status=200),
    DocumentError(status=502),
    ParameterError(),
    TimedOutError(deadline="connect"),
    TimedOutError(deadline="first_byte"),
    TimedOutError(deadline="idle"),
    TimedOutError(deadline="whole"),
    TimedOutError(deadline="total"),
]


def name(error: object) -> str:
    """Return a short name for a test's id."""
    detail = getattr(error, "deadline", None) or getattr(error, "status", "")
    return f"{type(error).__name__} {detail}"


@pytest.mark.parametrize("error", PASSING, ids=name)
def test_what_may_pass_is_asked_again(error: SvcError) -> None:
    """A failure that may pass is retried after full jitter that grows, to 8 s."""
    got = [
        retry_wait_s(
            FailedTry(error=error),
            attempt=attempt,
            jitter=1.0,
            policy=Policy(n_tries=9),
        )
        for attempt in range(1, 7)
    ]

    assert got == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize("error", LASTING, ids=name)
def test_what_lasts_is_not_asked_again(error: SvcError) -> None:
    """A refusal, or a time-out of what was sent, is not asked again."""
    assert retry_wait_s(FailedTry(error=error), attempt=1, jitter=0.5) is None


@pytest.mark.parametrize("error", PASSING, ids=name)
def test_nothing_is_asked_again_once_shown(error: SvcError) -> None:
    """Once text was shown, and where the cause lasts, there is no second try."""
    got = [
        retry_wait_s(FailedTry(error=error), attempt=1, jitter=0.5, has_shown=True),
        retry_wait_s(FailedTry(error=error, is_lasting=True), attempt=1, jitter=0.5),
        retry_wait_s(FailedTry(error=error), attempt=3, jitter=0.5),
        retry_wait_s(
            FailedTry(error=error), attempt=1, jitter=0.5, policy=Policy(n_tries=1)
        ),
    ]

    assert got == [None] * 4


def test_a_sweep_waits_longer_for_a_connection() -> None:
    """Where nothing was sent, a sweep tries five times, and a cell three times."""

    def n_tries(policy: Policy, *, is_sent: bool) -> int:
        attempt = 1
        while retry_wait_s(
            FailedTry(error=NoConnectionError(), is_sent=is_sent),
            attempt=attempt,
            jitter=0.5,
            policy=policy,
        ):
            attempt += 1
        return attempt

    assert n_tries(QUEUED, is_sent=False) == 5
    assert n_tries(QUEUED, is_sent=True) == 3
    assert n_tries(INTERACTIVE, is_sent=False) == 3


@pytest.mark.parametrize(
    ("asked_s", "jitter", "wait_s"),
    [
        (7.0, 0.0, 7.0),
        (7.0, 0.7, 7.7),
        (0.0, 0.0, 0.1),
        (None, 0.0, 0.1),
        (None, 0.7, 0.7),
        (60.0, 0.5, 60.5),
        (61.0, 0.7, None),
    ],
)
def test_a_rate_limit(
    asked_s: float | None, jitter: float, wait_s: float | None
) -> None:
    """A 429 waits as long as it says and a little more: many come back apart."""
    error = RateLimitError(status=429, retry_after_s=asked_s)

    assert retry_wait_s(FailedTry(error=error), attempt=1, jitter=jitter) == wait_s


def test_what_was_refused_together_comes_back_apart() -> None:
    """After a 429 the tries are spread over at least the wait itself."""
    error = FailedTry(error=RateLimitError(status=429))

    first, last = (
        retry_wait_s(error, attempt=1, jitter=jitter, closed_s=3.0)
        for jitter in (0.0, 1.0)
    )

    assert (first, last) == (3.0, 6.0)


@pytest.mark.slow
@given(
    st.sampled_from([*PASSING, *LASTING, RateLimitError(status=429)]),
    st.integers(1, 50),
    st.floats(0, 1),
)
def test_waits_are_bounded(error: SvcError, attempt: int, jitter: float) -> None:
    """Whatever failed, there are at most three tries, and no own wait above 8 s."""
    wait_s = retry_wait_s(FailedTry(error=error), attempt=attempt, jitter=jitter)

    if wait_s is not None:
        assert attempt < INTERACTIVE.n_tries
        assert 0 <= wait_s <= 8


NOW = datetime(2025, 1, 1, tzinfo=UTC)
HEADERS: list[tuple[dict[str, str], float | None]] = [
    ({}, None),
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": "0.25"}, 0.25),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "1e999"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "Wed, 01 Jan 2025 00:01:00 GMT"}, 60.0),
    ({"retry-after": "Wed, 01 Jan 2025 00:01:00 -0000"}, 60.0),
    ({"retry-after": "Tue, 31 Dec 2024 00:00:00 GMT"}, 0.0),
    (
        {
            "retry-after": "Wed, 01 Jan 2025 01:00:05 GMT",
            "date": "Wed, 01 Jan 2025 01:00:00 GMT",  # an hour ahead of ours
        },
        5.0,
    ),
    ({"retry-after": "Wed, 01 Jan 2025 00:01:00 GMT", "date": "soon"}, 60.0),
    ({"retry-after": "Wed, 01 Jan 99999 00:00:00 GMT"}, None),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
]


@pytest.mark.parametrize(("headers", "wait_s"), HEADERS)
def test_retry_after(headers: dict[str, str], wait_s: float | None) -> None:
    """Seconds, milliseconds and dates are read; what makes no sense is absent."""
    assert retry_after_s(headers, now_at=NOW) == wait_s


@pytest.mark.slow
@given(st.text())
def test_retry_after_of_any_text(text: str) -> None:
    """Any header value is a finite wait or none."""
    got = retry_after_s({"retry-after": text}, now_at=NOW)

    assert got is None or (got >= 0 and math.isfinite(got))

"""When the next request of a model may go: limits, 429s, and what they teach."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.rate_limit import (
    RateLimiter,
    RateLimits,
    shared_limits,
)
from svc_notebook.client.rate_windows import Room, Slot, Waiting
from svc_notebook.credentials import Key
from svc_notebook.service.catalogue import Limit


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        """Return the present."""
        return self.s


@pytest.fixture
def now() -> Now:
    """A clock that is set by hand."""
    return Now()


def test_models_do_not_hold_each_other_up(now: Now) -> None:
    """Each model has its own limiter, from the document's table."""
    limits = RateLimits(clock=now)
    for _ in range(6):
        full = limits.of("svc-v2-8b-instruct")
        due = full.try_pass(full.reserve())
    other = limits.of("svc-v2-70b-instruct")

    assert due.reason == "per-second limit of svc-v2-8b-instruct"
    assert other.try_pass(other.reserve()).wait_s == 0.0
    assert limits.of("svc-v2-8b-instruct") is full


def limiter_of(limit: Limit | None, clock: Callable[[], float]) -> RateLimiter:
    """Return the limiter of a model with this limit."""
    return RateLimiter("m", limit, clock=clock)


def test_an_unlisted_model_has_no_invented_limit(now: Now) -> None:
    """Nothing holds up a model of which no limit is shown."""
    limiter = limiter_of(None, now)

    got = [limiter.try_pass(limiter.reserve()).wait_s for _ in range(500)]

    assert got == [0.0] * 500


def asked(limiter: RateLimiter, n_requests: int) -> list[Slot]:
    """Send so many requests at once."""
    slots = [limiter.reserve() for _ in range(n_requests)]
    for slot in slots:
        if limiter.try_pass(slot).wait_s <= 0:
            limiter.sent(slot)
    return slots


def waits_of(limiter: RateLimiter, n_requests: int) -> list[float]:
    """Return how long each of so many more requests would wait."""
    slots = [limiter.reserve() for _ in range(n_requests)]
    return [round(limiter.try_pass(slot).wait_s, 2) for slot in slots]


def test_what_passed_before_a_refusal_is_the_limit(now: Now) -> None:
    """Of six at once three pass: then three a second go, and the wait is named."""
    limiter = limiter_of(None, now)
    for slot in asked(limiter, 6)[3:]:
        now.s += 0.01
        limiter.refused(slot, retry_after_s=None)
    now.s = 1.1

    waits = waits_of(limiter, 4)

    assert waits == [0.0, 0.0, 0.0, 1.08]
    assert limiter.due() == Waiting(1.08, "estimated per-second limit of m")


def test_a_second_refusal_without_an_answer_is_of_the_minute(now: Now) -> None:
    """A full minute ends when the first of its requests is a minute old."""
    limiter = limiter_of(None, now)
    asked(limiter, 3)
    now.s = 5.0
    limiter.refused(asked(limiter, 1)[0], retry_after_s=None)
    now.s = 6.1
    limiter.refused(asked(limiter, 1)[0], retry_after_s=None)
    now.s = 7.2

    closed = limiter.due().wait_s
    now.s = 60.1

    assert round(closed, 2) == 52.88
    assert waits_of(limiter, 4) == [0.0, 0.0, 0.0, 60.08]


def test_requests_let_out_together_are_refused_together(now: Now) -> None:
    """One that is written after another's refusal came does not close the minute."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    slots = [limiter.reserve() for _ in range(5)]
    for slot in slots:
        limiter.try_pass(slot)
    for slot in slots[2:]:
        now.s += 0.2
        limiter.sent(slot)
        now.s += 0.1
        limiter.refused(slot, retry_after_s=None)
    now.s = 1.5

    assert limiter.due().wait_s == 0.0


def test_care_wears_off(now: Now) -> None:
    """Each minute without a refusal lets more requests out than the one before."""
    limiter = limiter_of(None, now)
    limiter.refused(asked(limiter, 1)[0], retry_after_s=None)
    n_at_once = []
    for now.s in (2.0, 62.0, 122.0, 182.0):
        limiter.answered()
        slots = asked(limiter, 50)
        n_at_once.append(sum(slot.is_out for slot in slots))
        for slot in slots:
            limiter.give_back(slot)

    assert n_at_once == [1, 2, 6, 22]


def test_a_refused_request_takes_up_no_place(now: Now) -> None:
    """The service does not count it, so another may go at once."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    slots = [limiter.reserve() for _ in range(5)]
    for slot in slots:
        limiter.try_pass(slot)
        limiter.sent(slot)
    now.s = 0.2
    limiter.sent(slots[1])
    limiter.refused(slots[0], retry_after_s=0.0)
    now.s = 1.28

    assert waits_of(limiter, 6) == [0.0] * 5 + [1.08]


def test_a_refusal_closes_the_model_for_everybody(now: Now) -> None:
    """Nothing passes while the service asked to wait, and the reason says why."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    limiter.refused(limiter.reserve(), retry_after_s=9.0)
    slot = limiter.reserve()

    closed, due = limiter.try_pass(slot), limiter.due()
    now.s = 9.0

    assert closed == due == Waiting(9.0, "m refuses more requests for now (429)")
    assert limiter.due() == Waiting(0.0)
    assert limiter.try_pass(slot).wait_s == 0.0


def test_an_hour_is_waited_for_only_by_those_who_want_to(now: Now) -> None:
    """A caller without that patience hears the service's own answer at once."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    limiter.refused(limiter.reserve(), retry_after_s=3600.0)
    slot = limiter.reserve()

    assert limiter.try_pass(slot).wait_s == limiter.due().wait_s == 3600.0
    assert limiter.try_pass(slot, patience_s=60.0).wait_s == 0.0


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.none() | st.floats(0, 1e4), st.integers(0, 3)),
        max_size=40,
    )
)
def test_a_refusal_is_never_cut_short_and_always_ends(
    steps: list[tuple[float, float | None, int]],
) -> None:
    """A model stays closed as long as was asked for, and else a minute at most."""
    now, asked_until_s = Now(), 0.0
    limiter = limiter_of(None, now)
    for wait_s, retry_after_s, n_answers in steps:
        now.s += wait_s
        asked(limiter, n_answers)
        limiter.refused(asked(limiter, 1)[0], retry_after_s=retry_after_s)
        asked_until_s = max(asked_until_s, now.s + (retry_after_s or 0.0))
        limiter.due()

        assert limiter.refusals.closed_until_s >= asked_until_s
        assert limiter.refusals.closed_until_s <= max(asked_until_s, now.s + 60.08)


def test_waiting_requests_do_not_burst_when_a_limiter_opens(now: Now) -> None:
    """Requests that waited behind a closed limiter keep the windows when it opens."""
    limiter = limiter_of(Limit(per_second=2, per_minute=50), now)
    slots = [limiter.reserve() for _ in range(8)]
    limiter.refused(limiter.reserve(), retry_after_s=30.0)
    now.s = 30.0

    passed = [limiter.try_pass(slot).wait_s == 0.0 for slot in reversed(slots)]

    assert sum(passed) <= 2


def test_limits_are_shared_by_key_and_address(now: Now) -> None:
    """Clients with one key at one address share their limits, others do not."""
    key, other = Key("k1", source="test"), Key("k2", source="test")

    first = shared_limits("https://a/v1", key, clock=now)

    assert shared_limits("https://a/v1", Key("k1", source="x"), clock=now) is first
    assert shared_limits("https://a/v1", other, clock=now) is not first
    assert shared_limits("https://b/v1", key, clock=now) is not first


def test_those_that_waited_behind_a_refusal_do_not_burst(now: Now) -> None:
    """Where nothing was accepted, waiting requests go one by one when it opens."""
    limiter = limiter_of(None, now)
    waiting = [limiter.reserve() for _ in range(4)]
    now.s = 0.1
    limiter.refused(asked(limiter, 1)[0], retry_after_s=1.0)
    gone = []
    for now.s in (2.0, 3.1, 4.2, 5.3):
        out = [slot for slot in waiting if limiter.try_pass(slot).wait_s <= 0]
        for slot in out:
            limiter.sent(slot)
            waiting.remove(slot)
        gone.append(len(out))

    assert gone == [1, 1, 1, 1]


def test_looking_at_a_careful_limiter_takes_no_place(now: Now) -> None:
    """Asking how long a request would wait does not make the next one wait longer."""
    limiter = limiter_of(None, now)
    limiter.refused(asked(limiter, 1)[0], retry_after_s=0.0)
    now.s = 1.1
    limiter.due()
    limiter.reserve()

    got = [round(limiter.due().wait_s, 2) for _ in range(3)]

    assert got == [1.08, 1.08, 1.08]


def test_the_room_left_counts_those_that_wait(now: Now) -> None:
    """Who waits for a window has a place in it; no limit, no room to tell."""
    limited = RateLimiter("small", Limit(per_second=5, per_minute=50), clock=now)
    for _ in range(7):
        limited.reserve()

    assert limited.room() == Room(0, 43)
    assert RateLimiter("free", None, clock=now).room() is None

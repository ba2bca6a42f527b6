"""When the next request of a model may go: limits, 429s, and what they teach."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.rate_limit import (
    LONGEST_CLOSED_S,
    RateLimiter,
    RateLimits,
    Refusals,
    shared_limits,
)
from svc_notebook.client.rate_windows import Due, Room
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


def test_a_refusal_teaches_an_unlisted_model_care(now: Now) -> None:
    """After a 429 requests go out one by one, until many have passed."""
    limiter = limiter_of(None, now)
    limiter.refused(limiter.reserve(), retry_after_s=0.0)
    now.s = 0.5

    careful = [limiter.try_pass(limiter.reserve()).wait_s for _ in range(3)]
    for _ in range(20):
        limiter.answered()
    now.s = 100.0
    calm = [limiter.try_pass(limiter.reserve()).wait_s for _ in range(3)]

    assert [round(wait_s, 1) for wait_s in careful] == [0.0, 0.2, 0.4]
    assert calm == [0.0, 0.0, 0.0]


def test_care_has_an_end(now: Now) -> None:
    """However often it refused, a model is asked every 12 s."""
    limiter = limiter_of(None, now)
    for _ in range(20):
        now.s += 100
        limiter.refused(limiter.reserve(), retry_after_s=0.0)
    now.s += 100

    waits = [limiter.try_pass(limiter.reserve()).wait_s for _ in range(3)]

    assert waits == [0.0, 12.0, 24.0]


def test_a_refused_request_takes_up_no_place(now: Now) -> None:
    """The service does not count it, so another may go at once."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    slots = [limiter.reserve() for _ in range(5)]
    for slot in slots:
        limiter.try_pass(slot)
        limiter.sent(slot)
    limiter.refused(slots[0], retry_after_s=0.0)
    now.s = 0.5

    waits = [limiter.try_pass(limiter.reserve()).wait_s > 0 for _ in range(2)]

    assert waits == [False, True]


def test_a_refusal_closes_the_model_for_everybody(now: Now) -> None:
    """Nothing passes while the service asked to wait, and the reason says why."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    limiter.refused(limiter.reserve(), retry_after_s=9.0)
    slot = limiter.reserve()

    closed, due = limiter.try_pass(slot), limiter.due()
    now.s = 9.0

    assert closed == due == Due(9.0, "m refuses more requests for now (429)")
    assert limiter.due() == Due(0.0)
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
        st.tuples(st.floats(0, 100), st.none() | st.floats(0, 1e4), st.booleans()),
        max_size=40,
    )
)
def test_a_refusal_is_never_cut_short_and_always_ends(
    steps: list[tuple[float, float | None, bool]],
) -> None:
    """A model stays closed as long as was asked for, and else a bounded time."""
    refusals, now_s, asked_until_s = Refusals(), 0.0, 0.0
    for wait_s, retry_after_s, is_answer in steps:
        now_s += wait_s
        if is_answer:
            refusals = refusals.answered()
            continue
        refusals = refusals.refused(
            sent_s=now_s, now_s=now_s, retry_after_s=retry_after_s
        )
        asked_until_s = max(asked_until_s, now_s + (retry_after_s or 0.0))

        assert refusals.closed_until_s >= asked_until_s
        assert refusals.closed_until_s <= max(asked_until_s, now_s + LONGEST_CLOSED_S)


def test_refusals_in_a_row_close_for_longer() -> None:
    """Each refusal that says something new doubles the time; an answer ends that."""
    refusals, closed_s = Refusals(), []
    for now_s in (100.0, 200.0, 200.0, 300.0):
        refusals = refusals.refused(sent_s=now_s, now_s=now_s, retry_after_s=None)
        closed_s.append(refusals.closed_until_s - now_s)
    refusals = refusals.answered().refused(sent_s=400, now_s=400, retry_after_s=None)

    assert closed_s == [0.5, 1.0, 1.0, 2.0]
    assert refusals.closed_until_s == 400.5


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


def test_those_refused_together_come_back_one_by_one(now: Now) -> None:
    """Ten requests of an unlisted model, refused at once, pass one after another."""
    limiter = limiter_of(None, now)
    slots = [limiter.reserve() for _ in range(20)]
    for slot in slots:
        limiter.try_pass(slot)
    now.s = 0.5
    for slot in slots[:10]:
        limiter.refused(slot, retry_after_s=1.0)
    now.s = 1.5

    waits = [limiter.try_pass(limiter.reserve()).wait_s for _ in range(10)]

    assert [round(wait_s, 1) for wait_s in waits] == [
        round(0.2 * at, 1) for at in range(10)
    ]


def test_those_that_waited_behind_a_refusal_do_not_burst(now: Now) -> None:
    """Requests that were held up by a closed limiter go one by one when it opens."""
    limiter = limiter_of(None, now)
    waiting = [limiter.reserve() for _ in range(5)]
    now.s = 0.1
    limiter.refused(limiter.reserve(), retry_after_s=1.0)
    now.s = 2.0

    waits = [limiter.try_pass(slot).wait_s for slot in waiting]

    assert [round(wait_s, 1) for wait_s in waits] == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_looking_at_a_careful_limiter_takes_no_place(now: Now) -> None:
    """Asking how long a request would wait does not make the next one wait longer."""
    limiter = limiter_of(None, now)
    limiter.refused(limiter.reserve(), retry_after_s=0.0)
    now.s = 0.5
    limiter.reserve()

    got = [round(limiter.due().wait_s, 1) for _ in range(3)]

    assert got == [0.2, 0.2, 0.2]


def test_the_room_left_counts_those_that_wait(now: Now) -> None:
    """Who waits for a window has a place in it; no limit, no room to tell."""
    limited = RateLimiter("small", Limit(per_second=5, per_minute=50), clock=now)
    for _ in range(7):
        limited.reserve()

    assert limited.room() == Room(0, 43)
    assert RateLimiter("free", None, clock=now).room() is None

"""Slots of one limit, leased in blocks to several machines."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from svc_notebook.client.rate_lease import (
    USE_S,
    Leased,
    LeasedQuota,
    QuotaLeases,
    sent_lately,
)
from svc_notebook.client.rate_limit import RateLimiter
from svc_notebook.client.rate_windows import FLIGHT_S, MARGIN_S, Window
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.request import CompletionRequest, Message

MODEL = "m"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIMIT = Limit(per_second=5, per_minute=50)
WINDOWS = (Window(50, 60.0, "minute"), Window(5, 1.0, "second"))


class Clock:
    """A clock that a test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def quota(clock: Clock) -> QuotaLeases:
    """Return a quota of one model."""
    return QuotaLeases({MODEL: LIMIT}.get, clock=clock)


def test_all_workers_together_get_what_the_limit_allows(quota: QuotaLeases) -> None:
    """The next one is told how long to wait."""
    first, wait_s = quota.lease(1, MODEL, 3, [], [])
    second, again_s = quota.lease(2, MODEL, 3, [], [])

    assert (len(first), len(second)) == (3, 2)
    assert wait_s == 0
    assert again_s > 1


def test_a_slot_counts_from_when_it_was_used(quota: QuotaLeases, clock: Clock) -> None:
    """A lease that is not used yet holds up the others, however old it is."""
    slots, _ = quota.lease(1, MODEL, 5, [], [])
    clock.now_s += 5
    early, _ = quota.lease(2, MODEL, 1, [], [])
    quota.lease(1, MODEL, 0, slots, [])
    clock.now_s += 1
    at_once, _ = quota.lease(2, MODEL, 1, [], [])
    clock.now_s += 0.2
    later, _ = quota.lease(2, MODEL, 1, [], [])

    assert (early, at_once, len(later)) == ([], [], 1)


def test_an_unused_slot_is_free_at_once(quota: QuotaLeases) -> None:
    """What is given back is leased again."""
    slots, _ = quota.lease(1, MODEL, 5, [], [])

    again, _ = quota.lease(2, MODEL, 5, [], slots[:2])

    assert len(again) == 2
    assert quota.lease(1, MODEL, 0, [99], [99]) == ([], 0.0)  # it has never been


def test_a_lease_that_nobody_ends_runs_out(quota: QuotaLeases, clock: Clock) -> None:
    """Its slots count as sent then, because the worker may have used them late."""
    quota.lease(1, MODEL, 5, [], [])
    clock.now_s += FLIGHT_S + 1
    none, _ = quota.lease(2, MODEL, 5, [], [])
    clock.now_s += 2
    again, _ = quota.lease(2, MODEL, 5, [], [])

    assert (len(none), len(again)) == (0, 5)


def test_the_leases_of_a_dead_worker_end_with_it(
    quota: QuotaLeases, clock: Clock
) -> None:
    """They count as sent from then on, and those of others stay."""
    quota.lease(1, MODEL, 3, [], [])
    quota.lease(2, MODEL, 2, [], [])
    quota.end(1)
    clock.now_s += 2

    again, _ = quota.lease(3, MODEL, 5, [], [])

    assert len(again) == 3


def test_one_that_was_started_again_waits_until_all_is_over(clock: Clock) -> None:
    """A slot of the one before may be used for 5 s, and counts for a minute then."""
    quota = QuotaLeases({MODEL: LIMIT}.get, is_restarted=True, clock=clock)
    none, wait_s = quota.lease(1, MODEL, 5, [], [])
    clock.now_s += wait_s

    again, _ = quota.lease(1, MODEL, 5, [], [])

    assert (none, len(again)) == ([], 5)
    assert wait_s > 65


def test_a_new_quota_counts_what_was_sent_before(clock: Clock) -> None:
    """What is left of the last minute is leased, and no more."""
    ages_s = [0.5, 0.9, *(20.0 + n / 2 for n in range(45))]
    quota = QuotaLeases({MODEL: LIMIT}.get, history={MODEL: ages_s}, clock=clock)

    first, _ = quota.lease(1, MODEL, 5, [], [])
    clock.now_s += 2
    second, wait_s = quota.lease(1, MODEL, 5, [], [])

    assert (len(first), len(second)) == (3, 0)
    assert 0 < wait_s < 60


def test_one_that_was_started_again_is_told_what_was_sent(clock: Clock) -> None:
    """It need not wait for a minute, only until no slot of before can be used."""
    quota = QuotaLeases({MODEL: LIMIT}.get, is_restarted=True, clock=clock)
    quota.recall({})
    is_asking = quota.has_forgotten()
    clock.now_s += USE_S
    early, wait_s = quota.lease(1, MODEL, 5, [], [])
    clock.now_s += 1
    is_asking_then = quota.has_forgotten()
    quota.recall({MODEL: [0.2] * 3})

    slots, _ = quota.lease(1, MODEL, 5, [], [])

    assert (is_asking, is_asking_then, quota.has_forgotten()) == (False, True, False)
    assert (early, len(slots)) == ([], 2)
    assert wait_s > 59


def _ended(ago_s: float, **fields: Any) -> Exchange:  # noqa: ANN401 - as Exchange
    """Return an exchange that ended some seconds ago, after 5 s."""
    message = Message(role="user", content="Hi")
    shown: dict[str, Any] = {"endpoint": "here", "latency_s": 5.0, **fields}
    return Exchange(
        exchange_id="1",
        origin=Origin(kind="sweep"),
        request=CompletionRequest(model=MODEL, messages=(message,)),
        started_at=NOW - timedelta(seconds=ago_s + 9),
        ended_at=NOW - timedelta(seconds=ago_s),
        **shown,
    )


def test_the_ledger_says_what_was_sent_in_the_last_minute() -> None:
    """What is not sure counts as sent as late as it may have been."""
    exchanges = [
        _ended(58),
        _ended(50),
        _ended(40, status="error"),
        _ended(30, n_attempts=3, n_refused=1),
        _ended(20, n_attempts=1, n_refused=1, status="error"),
        _ended(10, status="cancelled"),
        _ended(9, endpoint="there"),
        _ended(8, is_reused=True),
        _ended(-5),  # the clock was put back
    ]

    history = sent_lately(exchanges, base_url="here", now=NOW)

    assert history == {MODEL: [55, 40, 35, 35, 10, 0]}


def _up_to(most_s: float) -> st.SearchStrategy[float]:
    """Return any number of seconds, above all the least and the most."""
    return st.sampled_from([0.0, most_s]) | st.floats(0, most_s)


USES = st.tuples(
    st.integers(1, 3),  # the worker
    st.integers(1, 6),  # slots that it asks for
    st.none() | _up_to(3),  # after so long; None is when it was told to ask again
    _up_to(USE_S - 0.01),  # until it sends
    _up_to(2),  # until it says so
    _up_to(MARGIN_S),  # until its requests arrive
)
Use = tuple[int, int, float | None, float, float, float]


# a way of the whole margin, then one of no time as soon as it may be
@pytest.mark.slow
@example([(1, 6, None, 0.0, 0.0, MARGIN_S), (1, 6, None, 0.0, 0.0, 0.0)])
@given(st.lists(USES, min_size=1, max_size=60))
def test_no_window_overflows_at_the_server(uses: list[Use]) -> None:
    """However late slots are used and reported, if the ways differ by the margin."""
    clock = Clock()
    quota = QuotaLeases({MODEL: LIMIT}.get, clock=clock)
    reports: list[tuple[float, int, int]] = []
    arrivals: list[float] = []
    wait_s = 0.0
    for worker, n, gap_s, use_s, report_s, way_s in uses:
        until_s = clock.now_s + (wait_s if gap_s is None else gap_s)
        while reports and reports[0][0] <= until_s:
            clock.now_s, number, owner = heappop(reports)
            quota.lease(owner, MODEL, 0, [number], [])
        clock.now_s = until_s
        slots, wait_s = quota.lease(worker, MODEL, n, [], [])
        sent_s = clock.now_s + use_s
        arrivals += [sent_s + way_s] * len(slots)
        for number in slots:
            heappush(reports, (sent_s + report_s, number, worker))

    arrivals.sort()
    for n_allowed, length_s, _ in WINDOWS:
        for first_s, next_s in zip(arrivals, arrivals[n_allowed:], strict=False):
            assert next_s - first_s >= length_s - 1e-9


def _leasing(
    quota: QuotaLeases, calls: list[int], worker: int = 1
) -> Callable[[int, list[int], list[int]], "asyncio.Future[Leased]"]:
    def lease(n: int, sent: list[int], unused: list[int]) -> "asyncio.Future[Leased]":
        ended: asyncio.Future[Leased] = asyncio.get_running_loop().create_future()
        calls.append(n)
        ended.set_result(quota.lease(worker, MODEL, n, sent, unused))
        return ended

    return lease


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what changes has no event
            await asyncio.sleep(0.01)


async def _send(limiter: RateLimiter) -> None:
    slot = limiter.reserve()
    await _until(lambda: limiter.try_pass(slot).wait_s <= 0)
    limiter.sent(slot)


def test_a_limiter_asks_for_a_block_of_slots(quota: QuotaLeases) -> None:
    """Several requests that wait get their slots by one call, and say it by another."""
    calls: list[int] = []

    async def main() -> int:
        leased = LeasedQuota(_leasing(quota, calls))
        leased.n_open = 5
        clock = asyncio.get_running_loop().time
        limiter = RateLimiter(MODEL, LIMIT, clock=clock, others=leased)
        await asyncio.gather(*map(_send, [limiter] * 5))
        await _until(lambda: len(calls) > 1)
        for _ in range(5):
            leased.end()
        return leased.n_open

    assert asyncio.run(main()) == 0
    assert calls[0] == 5
    assert sum(calls) == 5


def test_slots_that_nobody_needs_are_given_back(quota: QuotaLeases) -> None:
    """A request that ended before it was sent holds no slot."""
    calls: list[int] = []

    async def main() -> None:
        leased = LeasedQuota(_leasing(quota, calls), clock=lambda: 0.0)
        leased.n_open = 1
        leased.take(0.0, WINDOWS)
        await _until(lambda: len(calls) > 0)
        leased.end()
        await _until(lambda: len(calls) > 1)

    asyncio.run(main())

    assert len(quota.lease(2, MODEL, 5, [], [])[0]) == 5


@pytest.mark.slow
def test_a_quota_that_cannot_be_reached_is_asked_again() -> None:
    """Nothing is sent without a slot."""
    n_calls = 0

    async def lease(_: int, __: list[int], ___: list[int]) -> Leased:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            raise ConnectionError
        return [7], 0.0

    async def main() -> None:
        leased = LeasedQuota(lease)
        leased.n_open = 1
        await _until(lambda: leased.take(0.0, WINDOWS) == 7)

    asyncio.run(main())

    assert n_calls == 2

"""When the next request of a model may go: limits, 429s, and what they teach."""

import sqlite3
from bisect import bisect
from collections.abc import Callable
from contextlib import closing
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.client.rate_limit import RateLimiter, RateLimits, shared_limits
from svc_notebook.client.rate_windows import NO_LIMIT, Room, SharedQuota, Slot, Waiting
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


def asked(limiter: RateLimiter, n_requests: int) -> list[Slot]:
    """Send so many requests at once."""
    slots = [limiter.reserve(is_own=True) for _ in range(n_requests)]
    for slot in slots:
        if limiter.try_pass(slot).wait_s <= 0:
            limiter.sent(slot)
    return slots


def waits_of(limiter: RateLimiter, n_requests: int) -> list[float]:
    """Return how long each of so many more requests would wait."""
    slots = [limiter.reserve(is_own=True) for _ in range(n_requests)]
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


def test_refusals_in_a_row_are_of_the_minute(now: Now) -> None:
    """After 1, 2 and 4 seconds a minute is full; it ends when its first request is."""
    limiter = limiter_of(None, now)
    asked(limiter, 3)
    waits = []
    now.s = 5.0
    for _ in range(4):
        limiter.refused(asked(limiter, 1)[0], retry_after_s=None)
        refused_s = now.s
        now.s += 1.09  # then it is looked at once more
        waits.append(round(now.s + max(limiter.due().wait_s, 0.0) - refused_s, 2))
        now.s = refused_s + waits[-1]

    assert waits == [1.09, 2.16, 4.32, 60.08 - 5.0 - 1.09 - 2.16 - 4.32]
    assert waits_of(limiter, 4) == [0.0, 0.0, 0.0, 60.08]


def test_a_second_refusal_is_of_the_minute_where_it_is_known(now: Now) -> None:
    """A documented minute that is full ends when its first request is a minute old."""
    limiter = limiter_of(Limit(per_second=5, per_minute=50), now)
    asked(limiter, 3)
    for now.s in (5.0, 6.1):
        limiter.refused(asked(limiter, 1)[0], retry_after_s=None)
    now.s = 7.2

    assert round(limiter.due().wait_s, 2) == 52.88


def test_kernels_that_were_refused_together_come_back_apart(now: Now) -> None:
    """Our own wait is spread over itself; the service's is not cut short."""
    limiter = limiter_of(None, now)

    waits = [
        limiter.refused(limiter.reserve(), retry_after_s=retry_after_s, spread=1.0)
        for retry_after_s in (None, 9.0)
    ]

    assert waits == [2.16, 9.0]


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
        slot = asked(limiter, 1)[0]
        limiter.answered(slot)
        limiter.give_back(slot)
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


@pytest.mark.slow
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


def passed(limiter: RateLimiter, n_requests: int) -> list[Slot]:
    """Send so many requests, and return those that may go."""
    slots = [limiter.reserve() for _ in range(n_requests)]
    gone = [slot for slot in slots if limiter.try_pass(slot).wait_s <= 0]
    for slot in gone:
        limiter.sent(slot)
    return gone


def test_requests_wait_for_a_place_where_no_limit_is_known(now: Now) -> None:
    """Eight go at once; the ninth goes, and is woken, when one of them has ended."""
    limiter = limiter_of(None, now)
    slots = passed(limiter, 8)
    ninth, tenth = limiter.reserve(), limiter.reserve()
    woken: list[str] = []
    ninth.wake = partial(woken.append, "ninth")
    tenth.wake = partial(woken.append, "tenth")
    due = limiter.try_pass(ninth)
    limiter.try_pass(tenth)
    now.s = 0.1
    limiter.answered(slots[0])

    assert due == Waiting(0.5, "8 requests to m are in flight", is_for_place=True)
    assert woken == ["ninth"]
    assert limiter.try_pass(ninth).wait_s == 0.0
    assert limiter.try_pass(tenth).is_for_place


def test_a_place_that_is_given_up_goes_to_the_next(now: Now) -> None:
    """One that was stopped while it waited, or after it was woken, holds nobody up."""
    limiter = limiter_of(None, now)
    slots = passed(limiter, 8)
    waiting = [limiter.reserve() for _ in range(3)]
    for slot in waiting:
        limiter.try_pass(slot)
    limiter.give_back(waiting[0])
    limiter.failed(slots[0])
    limiter.give_back(waiting[1])

    assert limiter.try_pass(waiting[2]).wait_s == 0.0


@pytest.mark.parametrize("is_own", [True, False])
def test_a_known_number_in_flight_is_kept(now: Now, *, is_own: bool) -> None:
    """What the endpoint's file says holds for everybody, and is not tried out."""
    limit = Limit(per_second=None, per_minute=None, in_flight=3)
    limiter = limiter_of(limit, now)
    slots = [limiter.reserve(is_own=is_own) for _ in range(5)]

    waits = [limiter.try_pass(slot).wait_s for slot in slots]
    limiter.answered(slots[0])

    assert waits == [0.0, 0.0, 0.0, 0.5, 0.5]
    assert limiter.try_pass(slots[3]).wait_s == 0.0
    assert limiter.met_limit is None


def answer(limiter: RateLimiter, slots: list[Slot], now: Now) -> None:
    """Let a tenth of a second pass, and then answer these."""
    now.s += 0.1
    for slot in slots:
        limiter.answered(slot)


@pytest.mark.parametrize("limit", [None, Limit(per_second=None, per_minute=None)])
def test_the_level_rises_while_replies_come_in_time(
    now: Now, limit: Limit | None
) -> None:
    """A server that takes all requests gets twice as many in each round."""
    limiter, n_at_once = limiter_of(limit, now), []
    for _ in range(4):
        slots = passed(limiter, limiter.in_flight or 0)
        n_at_once.append(len(slots))
        answer(limiter, slots, now)

    assert n_at_once == [8, 16, 32, 64]
    assert limiter.met_limit is None


def test_a_number_that_brings_no_more_replies_is_a_limit(now: Now) -> None:
    """A server that answers 8 at a time gets 16, and then 8 are the limit."""
    limiter, n_at_once, limits = limiter_of(None, now), [], []
    for _ in range(2):
        slots = passed(limiter, limiter.in_flight or 0)
        n_at_once.append(len(slots))
        limits.append(limiter.met_limit)
        for first in range(0, len(slots), 8):
            answer(limiter, slots[first : first + 8], now)

    assert n_at_once == [8, 16]
    assert limits == [None, None]
    assert limiter.met_limit == Limit(per_second=None, per_minute=None, in_flight=8)


def test_an_overloaded_server_gets_fewer_at_once(now: Now) -> None:
    """A 503 lowers the level, but does not close the model."""
    limiter = limiter_of(None, now)
    slots = passed(limiter, 8)
    for slot in slots[5:]:
        now.s += 0.01
        limiter.overloaded(slot)

    assert limiter.in_flight == 6
    assert limiter.due().wait_s <= 0


def test_a_429_is_first_of_the_rate_then_of_the_number_in_flight(now: Now) -> None:
    """The level falls when a 429 comes though the rate that was learnt is kept."""
    limiter, levels = limiter_of(None, now), []
    for n_ended in (8, 0):
        first = passed(limiter, n_ended)  # of the second round there are none
        for slot in first:
            limiter.failed(slot)
        slots = passed(limiter, 4)
        now.s += 0.1
        limiter.refused(slots[0], retry_after_s=None)
        levels.append(limiter.in_flight)
        for slot in slots[1:]:
            limiter.failed(slot)
        now.s += 1.2
        limiter.due()

    assert levels == [8, 6]


def quota_of(path: Path, now: Now, model: str = "m") -> SharedQuota:
    """Return the part of the file that a model has."""
    return SharedQuota(path, model, clock=now)


def test_what_was_found_is_kept_for_an_hour(now: Now, tmp_path: Path) -> None:
    """Another kernel begins with it; an hour later it is found again."""
    quota = quota_of(tmp_path / "limits.sqlite", now)
    limit = Limit(per_second=20, per_minute=150, in_flight=64)
    now.s = 1000.0
    quota.keep_learnt_limit(limit)
    now.s += 3000.0
    other = RateLimiter("m", None, clock=now, others=quota)
    slots = passed(other, 70)
    now.s += 601.0
    late = RateLimiter("m", None, clock=now, others=quota)

    assert other.limit == Limit(per_second=20, per_minute=150)
    assert other.in_flight == 64
    assert len(slots) == 20
    assert late.in_flight == 8
    assert late.in_flight == 8


@pytest.mark.parametrize("row", ["'x', 1, 1", "-1, 1, 1", "NULL, 1.5, 1"])
def test_a_row_that_cannot_be_is_not_used(now: Now, tmp_path: Path, row: str) -> None:
    """What somebody wrote into the file does not decide how requests go."""
    path = tmp_path / "limits.sqlite"
    quota = quota_of(path, now)
    quota.keep_learnt_limit(Limit(per_second=1, per_minute=1))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        (marked,) = file.execute("SELECT quota FROM found").fetchone()
        file.execute(f"REPLACE INTO found VALUES (?, 0, {row})", (marked,))  # noqa: S608 - of this test

    assert quota.learnt_limit() is None


class Service:
    """A service with limits that nobody knows, and requests that keep to `limiter`."""

    def __init__(
        self, limiter: RateLimiter, now: Now, limit: Limit, chance: Random
    ) -> None:
        """Begin with no request."""
        self.n_left = 0
        self._chance = chance
        self._limiter, self._now, self._limit = limiter, now, limit
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._n_later = self._n_busy = 0
        self._taken_s: list[float] = []

    def after(self, wait_s: float, do: Callable[[], object]) -> None:
        """Do it so much later, and a little more."""
        self._n_later += 1
        at_s = self._now.s + wait_s + self._chance.uniform(0.0, 0.01)
        heappush(self._later, (at_s, self._n_later, do))

    def ask(self, takes_s: float, *, stopped_s: float | None = None) -> None:
        """Have a request that takes so long, unless it is stopped while it waits."""
        self.n_left += 1
        slot = self._reserve(takes_s)
        if stopped_s is not None:
            self.after(stopped_s, partial(self._stop, slot))

    def run(self) -> None:
        """Go on until nothing happens any more, or for ten minutes."""
        while self._later and self._now.s < 600.0:
            self._now.s, _, do = heappop(self._later)
            do()

    def _reserve(self, takes_s: float) -> Slot:
        slot = self._limiter.reserve()
        go = partial(self._go, slot, takes_s)
        slot.wake = partial(self.after, 0.0, go)
        go()
        return slot

    def _go(self, slot: Slot, takes_s: float) -> None:
        if not (slot.is_out or slot.ticket is STOPPED):
            self._try(slot, takes_s)

    def _try(self, slot: Slot, takes_s: float) -> None:
        due = self._limiter.try_pass(slot)
        if due.wait_s <= 0:
            self.after(0.0, partial(self._send, slot, takes_s))
        elif not due.is_for_place:  # else it is woken
            self.after(due.wait_s, partial(self._go, slot, takes_s))

    def _send(self, slot: Slot, takes_s: float) -> None:
        self._limiter.sent(slot)
        n_second = len(self._taken_s) - bisect(self._taken_s, self._now.s - 1.0)
        if n_second >= (self._limit.per_second or 0):
            end: Callable[[], object] = partial(
                self._limiter.refused, slot, retry_after_s=None
            )
            return self.after(0.002, partial(self._end, end, takes_s))
        if self._n_busy >= (self._limit.in_flight or 0):
            end = partial(self._limiter.overloaded, slot)
            return self.after(0.002, partial(self._end, end, takes_s))
        self._n_busy += 1
        self._taken_s.append(self._now.s)
        return self.after(takes_s, partial(self._answer, slot))

    def _end(self, end: Callable[[], object], takes_s: float) -> None:
        end()
        self.after(self._chance.uniform(0.0, 1.0), partial(self._reserve, takes_s))

    def _answer(self, slot: Slot) -> None:
        self._n_busy -= 1
        self.n_left -= 1
        self._limiter.answered(slot)

    def _stop(self, slot: Slot) -> None:
        if not slot.is_out:
            self._limiter.give_back(slot)
            slot.ticket = STOPPED
            self.n_left -= 1


STOPPED = -1
KNOWN = Limit(per_second=3, per_minute=30, in_flight=4)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([None, NO_LIMIT, KNOWN]))
def test_every_request_ends(seed: int, known: Limit | None) -> None:
    """Whatever is refused or stopped, nobody waits for one that waits for him."""
    now, chance = Now(), Random(seed)  # noqa: S311 - no secret
    limit = Limit(
        per_second=chance.randint(2, 20),
        per_minute=None,
        in_flight=chance.choice([4, 20, 1000]),
    )
    service = Service(limiter_of(known, now), now, limit, chance)
    stops, spread_s = chance.random() < 0.3, chance.choice([0.0, 5.0])
    for _ in range(chance.randint(1, 80)):
        stopped_s = chance.uniform(0, 5) if stops and chance.random() < 0.5 else None
        ask = partial(service.ask, 0.05, stopped_s=stopped_s)
        service.after(chance.uniform(0.0, spread_s), ask)

    service.run()

    assert service.n_left == 0


def test_the_room_left_counts_those_that_wait(now: Now) -> None:
    """Who waits for a window has a place in it; no limit, no room to tell."""
    limited = RateLimiter("small", Limit(per_second=5, per_minute=50), clock=now)
    for _ in range(7):
        limited.reserve()

    assert limited.room() == Room(0, 43)
    assert RateLimiter("free", None, clock=now).room() is None

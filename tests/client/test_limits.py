"""The two windows and the gates, against a service that counts for itself."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from svc_notebook.client.rate_limit import (
    Due,
    RateLimiter,
    RateLimits,
    Room,
    Slot,
    Windows,
)
from svc_notebook.client.rate_limit_shared import shared_limits
from svc_notebook.credentials import Key
from svc_notebook.service.catalogue import Limit

SMALL = (5, 50)
LARGE = (20, 150)


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


def let_out(windows: Windows, slots: list[Slot], now: Now) -> list[float]:
    """Let every slot out as soon as it may, and return the times."""
    waiting, gone = list(slots), []
    while waiting:
        dues = {id(slot): windows.try_pass(slot).wait_s for slot in waiting}
        for slot in (each for each in waiting if not dues[id(each)]):
            gone.append(now.s)
            windows.sent(slot)
        waiting = [slot for slot in waiting if dues[id(slot)]]
        now.s += min((dues[id(slot)] for slot in waiting), default=0.0)
    return gone


def most_in(window_s: float, times: list[float]) -> int:
    """Return the most requests that a sliding window holds."""
    return max(sum(at <= each < at + window_s for each in times) for at in times)


@pytest.mark.parametrize("limit", [SMALL, LARGE])
def test_no_window_overflows_and_no_time_is_lost(
    limit: tuple[int, int], now: Now
) -> None:
    """Twice a minute's requests keep both windows and end near the optimum."""
    per_second, per_minute = limit
    windows = Windows(per_second=per_second, per_minute=per_minute, clock=now)
    slots = [windows.reserve() for _ in range(2 * per_minute)]

    times = let_out(windows, slots, now)

    optimum_s = 60 + (per_minute / per_second - 1)
    assert most_in(1.0, times) <= per_second
    assert most_in(60.0, times) <= per_minute
    assert times[-1] <= optimum_s * 1.03


def test_uneven_delays_fit_in_the_margin(now: Now) -> None:
    """Requests that take up to 70 ms longer than others still meet no 429."""
    windows = Windows(per_second=20, per_minute=150, clock=now)
    times = let_out(windows, [windows.reserve() for _ in range(150)], now)
    chance = random.Random(1)  # noqa: S311 - delays, not secrets

    arrived = sorted(at + chance.uniform(0.0, 0.07) for at in times)

    assert most_in(1.0, arrived) <= 20


def test_late_requests_hold_up_those_behind(now: Now) -> None:
    """A request that goes out late counts from when it went."""
    windows = Windows(per_second=1, per_minute=50, clock=now)
    first, second = windows.reserve(), windows.reserve()
    windows.try_pass(first)
    now.s = 5.0
    windows.sent(first)

    got = windows.try_pass(second)

    assert got == Due(1.08, "per-second limit")


def test_requests_that_connect_first_count_from_when_they_are_written(now: Now) -> None:
    """While a request in front is still connecting, the one behind it waits."""
    windows = Windows(per_second=1, per_minute=50, clock=now)
    first, second = windows.reserve(), windows.reserve()
    windows.try_pass(first)
    now.s = 3.0

    unknown = windows.try_pass(second)
    windows.sent(first)
    now.s = 4.08

    assert unknown.wait_s == 1.08
    assert windows.try_pass(second).wait_s == 0.0


def test_a_slot_that_is_given_back_is_free_again(now: Now) -> None:
    """What was not sent takes up no place."""
    windows = Windows(per_second=1, per_minute=50, clock=now)
    windows.give_back(windows.reserve())

    slot = windows.reserve()
    windows.give_back(Slot(0.0))

    assert windows.try_pass(slot).wait_s == 0.0


def test_the_reason_names_the_limit(now: Now) -> None:
    """A wait says which of the two windows it is for."""
    windows = Windows(per_second=2, per_minute=3, clock=now)
    slots = [windows.reserve() for _ in range(4)]

    got = [windows.try_pass(slot) for slot in slots]

    assert [(round(due.wait_s, 2), due.reason) for due in got] == [
        (0.0, ""),
        (0.0, ""),
        (1.08, "per-second limit"),
        (60.08, "per-minute limit"),
    ]


def test_threads_never_share_a_slot(now: Now) -> None:
    """Sixteen threads at once get as many slots as they may, and no more."""
    windows = Windows(per_second=20, per_minute=150, clock=now)

    def ask(_: int) -> bool:
        return windows.try_pass(windows.reserve()).wait_s == 0.0

    with ThreadPoolExecutor(16) as pool:
        passed = list(pool.map(ask, range(400)))

    assert sum(passed) == 20


def test_old_slots_are_forgotten(now: Now) -> None:
    """After a minute a model may be asked as if for the first time."""
    windows = Windows(per_second=5, per_minute=5, clock=now)
    for _ in range(5):
        slot = windows.reserve()
        windows.try_pass(slot)
        windows.sent(slot)
    now.s = 60.09

    assert windows.try_pass(windows.reserve()).wait_s == 0.0


def test_models_do_not_hold_each_other_up(now: Now) -> None:
    """Each model has its own gate, from the document's table."""
    gates = RateLimits(clock=now)
    for _ in range(6):
        full = gates.of("svc-v2-8b-instruct")
        due = full.try_pass(full.reserve())
    other = gates.of("svc-v2-70b-instruct")

    assert due.reason == "per-second limit of svc-v2-8b-instruct"
    assert other.try_pass(other.reserve()).wait_s == 0.0
    assert gates.of("svc-v2-8b-instruct") is full


def gate_of(limit: Limit | None, clock: Callable[[], float]) -> RateLimiter:
    """Return the gate of a model with this limit."""
    return RateLimiter("m", limit, clock=clock)


def test_an_unlisted_model_has_no_invented_limit(now: Now) -> None:
    """Nothing holds up a model of which no limit is shown."""
    gate = gate_of(None, now)

    got = [gate.try_pass(gate.reserve()).wait_s for _ in range(500)]

    assert got == [0.0] * 500


def test_a_refusal_teaches_an_unlisted_model_care(now: Now) -> None:
    """After a 429 requests go out one by one, until many have passed."""
    gate = gate_of(None, now)
    gate.refused(gate.reserve(), wait_s=0.0)

    careful = [gate.try_pass(gate.reserve()).wait_s for _ in range(3)]
    for _ in range(20):
        gate.passed()
    now.s = 100.0
    calm = [gate.try_pass(gate.reserve()).wait_s for _ in range(3)]

    assert [round(wait_s, 1) for wait_s in careful] == [0.0, 0.2, 0.4]
    assert calm == [0.0, 0.0, 0.0]


def test_care_has_an_end(now: Now) -> None:
    """However often it refused, a model is asked every 12 s."""
    gate = gate_of(None, now)
    for _ in range(20):
        now.s += 100
        gate.refused(gate.reserve(), wait_s=0.0)
    now.s += 100

    waits = [gate.try_pass(gate.reserve()).wait_s for _ in range(3)]

    assert waits == [0.0, 12.0, 24.0]


def test_a_refused_request_takes_up_no_place(now: Now) -> None:
    """The service does not count it, so another may go at once."""
    gate = gate_of(Limit(per_second=5, per_minute=50), now)
    slots = [gate.reserve() for _ in range(5)]
    for slot in slots:
        gate.try_pass(slot)
        gate.sent(slot)
    gate.refused(slots[0], wait_s=0.0)

    waits = [gate.try_pass(gate.reserve()).wait_s > 0 for _ in range(2)]

    assert waits == [False, True]


def test_a_refusal_closes_the_gate_for_everybody(now: Now) -> None:
    """Nothing passes while the service asked to wait; an hour is not waited for."""
    gate = gate_of(Limit(per_second=5, per_minute=50), now)
    gate.refused(gate.reserve(), wait_s=9.0)
    gate.refused(gate.reserve(), wait_s=3600.0)
    slot = gate.reserve()

    closed = gate.try_pass(slot)
    now.s = 9.0

    assert (closed.wait_s, closed.reason) == (9.0, "rate limit of m")
    assert gate.try_pass(slot).wait_s == 0.0


def test_waiting_requests_do_not_burst_when_a_gate_opens(now: Now) -> None:
    """Requests that waited behind a closed gate keep the windows when it opens."""
    gate = gate_of(Limit(per_second=2, per_minute=50), now)
    slots = [gate.reserve() for _ in range(8)]
    gate.refused(gate.reserve(), wait_s=30.0)
    now.s = 30.0

    passed = [gate.try_pass(slot).wait_s == 0.0 for slot in reversed(slots)]

    assert sum(passed) <= 2


def test_gates_are_shared_by_key_and_address(now: Now) -> None:
    """Clients with one key at one address share their gates, others do not."""
    key, other = Key("k1", source="test"), Key("k2", source="test")

    first = shared_limits("https://a/v1", key, clock=now)

    assert shared_limits("https://a/v1", Key("k1", source="x"), clock=now) is first
    assert shared_limits("https://a/v1", other, clock=now) is not first
    assert shared_limits("https://b/v1", key, clock=now) is not first


def test_those_refused_together_come_back_one_by_one(now: Now) -> None:
    """Ten requests of an unlisted model, refused at once, pass one after another."""
    gate = gate_of(None, now)
    slots = [gate.reserve() for _ in range(20)]
    for slot in slots:
        gate.try_pass(slot)
    now.s = 0.5
    for slot in slots[:10]:
        gate.refused(slot, wait_s=1.0)
    now.s = 1.5

    waits = [gate.try_pass(gate.reserve()).wait_s for _ in range(10)]

    assert [round(wait_s, 1) for wait_s in waits] == [
        round(0.2 * at, 1) for at in range(10)
    ]


def test_those_that_waited_behind_a_refusal_do_not_burst(now: Now) -> None:
    """Requests that were held up by a closed gate go one by one when it opens."""
    gate = gate_of(None, now)
    waiting = [gate.reserve() for _ in range(5)]
    now.s = 0.1
    gate.refused(gate.reserve(), wait_s=1.0)
    now.s = 2.0

    waits = [gate.try_pass(slot).wait_s for slot in waiting]

    assert [round(wait_s, 1) for wait_s in waits] == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_looking_at_a_careful_gate_takes_no_place(now: Now) -> None:
    """Asking how long a request would wait does not make the next one wait longer."""
    gate = gate_of(None, now)
    gate.refused(gate.reserve(), wait_s=0.0)
    gate.reserve()

    got = [round(gate.due().wait_s, 1) for _ in range(3)]

    assert got == [0.2, 0.2, 0.2]


def test_the_room_left_counts_those_that_wait(now: Now) -> None:
    """Who waits for a window has a place in it; no limit, no room to tell."""
    limited = RateLimiter("small", Limit(per_second=5, per_minute=50), clock=now)
    for _ in range(7):
        limited.reserve()

    assert limited.room() == Room(0, 43)
    assert RateLimiter("free", None, clock=now).room() is None

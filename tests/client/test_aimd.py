"""How many requests may be in flight: what replies and refusals say about it.

A server is simulated: it has slots, or refuses what is above a number, and each of its
replies takes a time of its own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.client.aimd import FIRST_LEVEL, Concurrency

MANY = 10**9


def evenly(_chance: Random) -> float:
    """Take 100 ms for each reply."""
    return 0.1


def unevenly(chance: Random) -> float:
    """Take 100 ms in the mean: replies differ in length."""
    return chance.lognormvariate(-2.48, 0.6)


@dataclass
class Server:
    """A server, and callers that fill its level as long as they are asked to."""

    slots: int = MANY
    most: int = MANY
    takes_s: Callable[[Random], float] = evenly
    state: Concurrency = field(default_factory=Concurrency)
    now_s: float = 0.0
    replies_s: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    n_refused: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing to do."""
        self._chance = Random(1)  # noqa: S311 - no secret
        self._n = self._n_busy = 0
        self._ends: list[tuple[float, int, float, bool]] = []
        self._queue: deque[float] = deque()

    def ask(self, until_s: float, *, n_at_once: int = MANY) -> None:
        """Keep requests in flight until then: the level, or fewer."""
        while self.now_s < until_s:
            while self.state.n_in_flight < min(self.state.level, n_at_once):
                self._take()
            self._end_next()

    def rest(self, for_s: float) -> None:
        """Have no requests for so long, after those in flight."""
        while self._ends:
            self._end_next()
        self.now_s += for_s

    def rate(self, since_s: float) -> float:
        """Return the replies a second since then."""
        n_replies = sum(at_s > since_s for at_s in self.replies_s)
        return n_replies / (self.now_s - since_s)

    def _end_next(self) -> None:
        self.now_s, _, sent_s, is_reply = heappop(self._ends)
        if not is_reply:
            self.n_refused += 1
            self.state = self.state.refused(self.now_s, sent_s=sent_s)
        else:
            self._n_busy -= 1
            self.replies_s.append(self.now_s)
            self.state = self.state.answered(self.now_s)
            if self._queue and self._n_busy < self.slots:
                self._end_later(self._queue.popleft())
        self.levels.append(self.state.level)

    def _take(self) -> None:
        self.state = self.state.began(self.now_s)
        if self._n_busy + len(self._queue) >= self.most:
            self._end_later(self.now_s, is_reply=False)
        elif self._n_busy < self.slots:
            self._end_later(self.now_s)
        else:
            self._queue.append(self.now_s)

    def _end_later(self, sent_s: float, *, is_reply: bool = True) -> None:
        self._n += 1
        self._n_busy += is_reply
        at_s = self.now_s + (self.takes_s(self._chance) if is_reply else 0.002)
        heappush(self._ends, (at_s, self._n, sent_s, is_reply))


@pytest.mark.slow
@pytest.mark.parametrize("takes_s", [evenly, unevenly])
@pytest.mark.parametrize("slots", [1, 4, 20, 64, 200])
def test_a_server_with_slots_gets_what_it_can_do(
    slots: int, takes_s: Callable[[Random], float]
) -> None:
    """In 20 s it answers 0.7 of the ideal, and no long queue is kept before it."""
    server = Server(slots=slots, takes_s=takes_s)

    server.ask(20.0)

    assert server.rate(15.0) >= 0.8 * slots / 0.1
    assert server.rate(0.0) >= 0.7 * slots / 0.1
    assert server.state.level <= max(2 * slots, 2 * FIRST_LEVEL)


@pytest.mark.slow
@pytest.mark.parametrize("takes_s", [evenly, unevenly])
@pytest.mark.parametrize("most", [1, 4, 20, 50, 200])
def test_a_server_that_refuses_gets_what_it_takes(
    most: int, takes_s: Callable[[Random], float]
) -> None:
    """In 20 s it answers 0.7 of the ideal, and refuses few requests."""
    server = Server(most=most, takes_s=takes_s)

    server.ask(20.0)

    assert server.rate(15.0) >= 0.8 * most / 0.1
    assert server.rate(0.0) >= 0.7 * most / 0.1
    assert server.n_refused <= max(2 * most, 40)


@pytest.mark.slow
def test_a_server_that_becomes_slower_is_asked_less() -> None:
    """When it has a tenth of its slots left, the queue before it gets shorter."""
    server = Server(slots=200, takes_s=unevenly)
    server.ask(10.0)
    before = server.state.level
    server.slots = 20

    server.ask(40.0)

    assert before >= 140
    assert server.state.level <= 60
    assert server.rate(30.0) >= 0.7 * 20 / 0.1


@pytest.mark.slow
def test_a_server_that_recovers_is_asked_more() -> None:
    """After half a minute of refusals, the level is back within half a minute."""
    server = Server(most=60)
    server.ask(10.0)
    server.most = 0
    server.ask(40.0)
    fallen = server.state.level
    server.most = 60

    server.ask(70.0)

    assert fallen == 1
    assert server.rate(60.0) >= 0.7 * 60 / 0.1


@pytest.mark.slow
def test_one_slow_reply_does_not_lower_the_level_for_long() -> None:
    """A reply of 30 s among those of 100 ms costs at most a probe."""

    def takes_s(_: Random) -> float:
        return 30.0 if len(server.replies_s) == 4000 else 0.1

    server = Server(slots=64, takes_s=takes_s)

    server.ask(40.0)

    assert len(server.replies_s) > 4000
    assert min(server.levels[4000:]) >= 0.6 * 64
    assert server.rate(10.0) >= 0.8 * 64 / 0.1


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.integers(1, 40),
    st.lists(
        st.tuples(
            st.sampled_from(["began", "answered", "refused", "ended"]),
            st.floats(0, 5),
        ),
        max_size=200,
    ),
)
def test_the_level_keeps_its_bounds(most: int, steps: list[tuple[str, float]]) -> None:
    """Whatever happens, it is from 1 to what was asked, and moves only for a reason."""
    state, now_s, sent_s = Concurrency.at(8, most=most), 0.0, 0.0
    for what, wait_s in steps:
        now_s, before = now_s + wait_s, state.level
        if what == "began":
            state, sent_s = state.began(now_s), now_s
        elif what == "refused":
            state = state.refused(now_s, sent_s=sent_s)
            assert state.level <= before
        else:
            state = getattr(state, what)(now_s)

        assert 1 <= state.level <= most
        assert state.n_in_flight >= 0
        assert what in {"answered", "refused"} or state.level == before

"""Finds how many requests a server answers at once. Pure: callers pass the time.

The level rises while more requests in flight bring more replies a second, and falls
when the server refuses requests or slows down.
"""

from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import NamedTuple

FIRST = 8  # before anything is known
MOST = 512  # a process may have 1024 files open, and each request is one

# BBR (Cardwell and others, 2016) does this for packets: it doubles what is in flight
# until the delivery rate stops rising, then probes a quarter more and a quarter less in
# turn. It judges the rate of deliveries, as we do: replies differ in length, so how
# long one takes says little, and one slow reply must not count for much. The step back
# at a refusal is that of TCP (additive increase, multiplicative decrease).
FIRST_GAIN = 2.0
LEAST_GAIN = 1.25
LESS = 0.8
REFUSED = 0.75  # of the level, when the server refuses what it took before
# A level twice as high is worth it if it brings 1.4 times the replies: exact numbers
# would show twice as many, but replies come unevenly. A lower level is worth it by the
# same share: four fifths of the requests must bring 0.92 of the replies.
WORTH = 0.4
USED = 0.7  # of the level, in the mean: else the callers did not ask for more
PAUSE_S = 2.0  # before a level that was refused is tried again; doubled each time
MOST_PAUSE_S = 60.0


class Level(NamedTuple):
    """A number of requests in flight, and the replies a second that it brought."""

    n_in_flight: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many requests may be in flight, and what a round of replies says about it.

    A round is about as many replies as there are requests in flight.

    Attributes:
        level: Most requests in flight now; above `n_in_flight` or just lowered.
        most: The level never rises above it.
        n_in_flight: Requests in flight now.
        good: The last level that was worth it; another one is being tried if `level`
            is not the same.
        gain: How much more is tried.
        is_rising: Whether more is tried next, or less.
        n_refused: Tries in a row that the server refused.
        pause_until_s: Nothing is tried before.
        lowered_s: When a refusal lowered the level. Requests let out before
            say no more.
        began_s, seen_s: When this round began, and when a request last began or ended.
        busy_s: Seconds in flight in this round, all requests together.
        n_answered: Replies in this round.
    """

    level: int = FIRST
    most: int = MOST
    n_in_flight: int = 0
    good: Level | None = None
    gain: float = FIRST_GAIN
    is_rising: bool = True
    n_refused: int = 0
    pause_until_s: float = -inf
    lowered_s: float = -inf
    began_s: float | None = None
    seen_s: float = 0.0
    busy_s: float = 0.0
    n_answered: int = 0

    @classmethod
    def at(cls, level: int, *, most: int = MOST) -> "Concurrency":
        """Begin with a level that was found before."""
        level = max(min(level, most), 1)
        # the next round says how many replies it brings
        return cls(level=level, most=most, gain=LEAST_GAIN, good=Level(level, 0.0))

    @property
    def found(self) -> int | None:
        """The level that replies have confirmed, or did before; None if none was."""
        return self.good and min(self.good.n_in_flight, self.level)

    def began(self, now_s: float) -> "Concurrency":
        """Return the state after a request was let out."""
        if self.began_s is None:
            return replace(self, n_in_flight=1, began_s=now_s, seen_s=now_s)
        return _moved(self, now_s, by=1)

    def ended(self, now_s: float) -> "Concurrency":
        """Return the state after a request that says nothing about the server."""
        return _moved(self, now_s, by=-1)

    def answered(self, now_s: float) -> "Concurrency":
        """Return the state after a reply."""
        state = _moved(self, now_s, by=-1, n_answered=1)
        # the smaller the step, the more replies it takes to see a difference
        n_rounds = 1 if self.gain > LEAST_GAIN else 2
        took_s = 0.0 if state.began_s is None else now_s - state.began_s
        if state.n_answered < n_rounds * state.level or took_s <= 0:
            return state
        next_round = _round_from(now_s, state)
        if state.busy_s < USED * state.level * took_s:
            return next_round
        return _judged(next_round, state.n_answered / took_s, now_s)

    def refused(self, now_s: float, *, sent_s: float) -> "Concurrency":
        """Return the state after a request that the server refused (429, 503)."""
        state = _moved(self, now_s, by=-1)
        # alone in flight, it was not refused for the number of requests in flight
        if sent_s <= self.lowered_s or self.n_in_flight <= 1:
            return state
        state = replace(_round_from(now_s, state), lowered_s=now_s)
        good = self.good
        if good is None or good.n_in_flight >= self.level:  # it can do less than before
            return replace(
                state,
                level=max(int(self.level * REFUSED), 1),
                good=None,
                gain=max(self.gain, sqrt(FIRST_GAIN)),
                is_rising=True,
                pause_until_s=now_s + PAUSE_S,
            )
        pause_s = min(PAUSE_S * 2**self.n_refused, MOST_PAUSE_S)
        return replace(
            state,
            level=good.n_in_flight,
            gain=max(sqrt(self.gain), LEAST_GAIN),
            n_refused=self.n_refused + 1,
            pause_until_s=now_s + pause_s,
        )


def _moved(
    state: Concurrency, now_s: float, *, by: int, n_answered: int = 0
) -> Concurrency:
    """Return the state with more or fewer requests in flight."""
    return replace(
        state,
        n_in_flight=max(state.n_in_flight + by, 0),
        busy_s=state.busy_s + state.n_in_flight * (now_s - state.seen_s),
        seen_s=now_s,
        n_answered=state.n_answered + n_answered,
    )


def _round_from(now_s: float, state: Concurrency) -> Concurrency:
    return replace(state, began_s=now_s, busy_s=0.0, n_answered=0)


def _judged(state: Concurrency, per_second: float, now_s: float) -> Concurrency:
    """Return the state after a round in which the level was used."""
    good, here = state.good, Level(state.level, per_second)
    if good is None or state.level == good.n_in_flight:
        state = replace(state, good=here)
        return state if now_s < state.pause_until_s else _tried(state)
    worth = 1 + WORTH * (state.level / good.n_in_flight - 1)
    if per_second < worth * good.per_second:
        back = replace(state, level=good.n_in_flight, gain=LEAST_GAIN)
        return replace(back, is_rising=not state.is_rising)
    n_refused = 0 if state.is_rising else state.n_refused
    return _tried(replace(state, good=here, n_refused=n_refused))


def _tried(state: Concurrency) -> Concurrency:
    """Return the state with another level to try."""
    more = min(max(state.level + 1, ceil(state.level * state.gain)), state.most)
    less = max(min(state.level - 1, int(state.level * LESS)), 1)
    level = more if state.is_rising else less
    if level == state.level:  # it can only go the other way
        return replace(state, is_rising=not state.is_rising)
    return replace(state, level=level)

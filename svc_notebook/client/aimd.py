"""AIMD: finds limits that are not documented, from replies and refusals.

`Concurrency` finds how many requests a server answers at once: the level rises while
more in flight bring more replies a second, and falls when the server refuses or slows
down. `LearntRate` finds how many a second and a minute it accepts. Both are pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import NamedTuple

from svc_notebook.service.catalogue import Limit

from .rate_windows import MINUTE_S, NO_LIMIT, SECOND_S, UNLIMITED, QuotaStore

# Additive increase and multiplicative decrease lets many senders that do not know of
# each other share what there is (Chiu and Jain, 1989), as several kernels must here.
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
DECREASE = 0.75  # to so much of the level, when the server refuses what it took before
# A level twice as high is worth it if it brings 1.4 times the replies: exact numbers
# would show twice as many, but replies come unevenly. A lower level is worth it by the
# same share: four fifths of the requests must bring 0.92 of the replies.
WORTH = 0.4
USED = 0.7  # of the level, in the mean: else the callers did not ask for more
PAUSE_S = 2.0  # before a level that was refused is tried again; doubled each time
MOST_PAUSE_S = 60.0  # so that a server that recovers is used again within a minute


class Level(NamedTuple):
    """A number of requests in flight, and the replies a second that it brought."""

    n_in_flight: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many requests may be in flight, and what a round of replies says about it.

    A round is about as many replies as there are requests in flight.

    Attributes:
        level: Most requests in flight now. Just after it was lowered, more may be.
        most: The level never rises above it.
        n_in_flight: Requests in flight now.
        good: The last level that was worth it; another one is being tried if `level`
            is not the same.
        gain: How much more is tried.
        is_rising: Whether more is tried next, or less.
        n_refused: Tries in a row that the server refused.
        pause_until_s: No other level is tried before.
        lowered_s: When a refusal lowered the level. Refusals of requests that were let
            out before then say nothing new.
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
                level=max(int(self.level * DECREASE), 1),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRate:
    """The limits per second and per minute, as far as 429s have shown them.

    At a 429, what was accepted before it becomes the limit. That is right at once,
    while a constant factor would take several 429s. Without any, the limit rises.

    Attributes:
        per_second, per_minute: Most requests.
        before: `per_second` before the newest 429 that taught it.
        is_odd: Whether the newest 429 came although the learnt rate was kept. If the
            next request is accepted, it was for the number of requests in flight, and
            the rate was learnt by mistake: `if_odd` is the one before.
        is_settled: Whether what the newest one teaches is known.
        n_calm: Minutes without one.
    """

    per_second: int = UNLIMITED
    per_minute: int = UNLIMITED
    before: int = UNLIMITED
    is_odd: bool = False
    if_odd: int = UNLIMITED
    is_settled: bool = True
    n_calm: int = 0

    @property
    def limit(self) -> Limit:
        """What was learnt, as a limit."""
        second, minute = (
            None if most == UNLIMITED else most
            for most in (self.per_second, self.per_minute)
        )
        return Limit(per_second=second, per_minute=minute)

    def is_kept(self, now_s: float, sent_s: Sequence[float]) -> bool:
        """Say whether fewer were sent in the last second than were found allowed.

        A 429 that comes all the same is for too many at once. `sent_s` has when
        requests were sent, the oldest first.
        """
        n_sent = len(sent_s) - bisect_left(sent_s, now_s - SECOND_S)
        return n_sent + 1 < self.per_second < UNLIMITED  # with the one refused

    def settled(
        self,
        minute_s: Sequence[float],
        *,
        refused_s: float,
        is_minute_full: bool,
        is_repeated: bool = False,
    ) -> "LearntRate":
        """Return what a 429 teaches, when the model would open again after it.

        `minute_s` has when the requests of the minute before it were accepted, the
        oldest first; `refused_s` is when the one that was refused was sent. If nothing
        was accepted since the 429 before it, it is repeated.
        """
        if is_minute_full:
            settled = replace(self, is_settled=True, is_odd=False)
            if not minute_s:  # somebody else filled it
                return settled
            # it was not the second that was full
            return replace(settled, per_second=self.before, per_minute=len(minute_s))
        if is_repeated:  # nothing was accepted, so nothing new is known
            return replace(self, is_settled=True, is_odd=False)
        if self.is_odd:
            return replace(
                self, is_settled=True, before=self.per_second, if_odd=self.before
            )
        second_s = [at_s for at_s in minute_s if at_s > refused_s - SECOND_S]
        return replace(
            self,
            is_settled=True,
            per_second=max(_most_in_a_second(second_s), 1),
            before=self.per_second,
        )

    def answered(
        self, now_s: float, *, sent_s: float, refused_s: float, closed_until_s: float
    ) -> "LearntRate":
        """Return the state after a request that was not refused.

        `refused_s` is when the newest 429 came.
        """
        if self.is_odd and self.is_settled and sent_s > refused_s:
            most = self.if_odd
            return replace(self, is_odd=False, per_second=most, before=most)
        is_unlimited = self.per_second == self.per_minute == UNLIMITED
        if is_unlimited or now_s < closed_until_s + MINUTE_S * (self.n_calm + 1):
            return self
        step = 4**self.n_calm  # small at first: the limit is probably still the same
        return replace(
            self,
            per_second=min(self.per_second + step, UNLIMITED),
            per_minute=min(self.per_minute + step, UNLIMITED),
            n_calm=self.n_calm + 1,
        )


def _most_in_a_second(times_s: Sequence[float]) -> int:
    ends = (bisect_left(times_s, at_s + SECOND_S) for at_s in times_s)
    return max((end - at for at, end in enumerate(ends)), default=0)


KEPT_EVERY_S = 1.0  # so that the file is not written at every reply


class LearntLimits:
    """The limits of a model that nobody knows, as they are learnt.

    It begins with what this or another kernel has found in the last hour, and keeps
    what it finds in `store`. Callers hold a lock.

    Attributes:
        concurrency: How many requests may be in flight.
        rate: How many a second and a minute, if that is to be learnt, too.
    """

    def __init__(self, *, learns_rate: bool, store: QuotaStore | None) -> None:
        self.concurrency = Concurrency()
        self.rate = LearntRate()
        self._learns_rate = learns_rate
        self._store = store
        self._kept_s = -inf
        self._kept = NO_LIMIT
        if store and (earlier := store.found()):
            self._begin_with(earlier)

    def _begin_with(self, earlier: Limit) -> None:
        if earlier.in_flight:
            self.concurrency = Concurrency.at(earlier.in_flight)
        if self._learns_rate:
            per_second = earlier.per_second or UNLIMITED
            self.rate = LearntRate(
                per_second=per_second,
                per_minute=earlier.per_minute or UNLIMITED,
                before=per_second,
            )

    @property
    def found(self) -> Limit | None:
        """What was found; None if nothing was."""
        windows = self.rate.limit if self._learns_rate else NO_LIMIT
        limit = replace(windows, in_flight=self.concurrency.found)
        return None if limit == NO_LIMIT else limit

    def refused(self, now_s: float, sent_s: Sequence[float]) -> bool:
        """Note a 429; say whether it was for the number of requests in flight.

        The first one is for the rate, and teaches it. `sent_s` has when requests were
        sent, the oldest first.
        """
        is_odd = not self._learns_rate or self.rate.is_kept(now_s, sent_s)
        self.rate = replace(self.rate, is_odd=is_odd, is_settled=False, n_calm=0)
        return is_odd

    def settled(
        self,
        minute_s: Sequence[float],
        *,
        refused_s: float,
        is_minute_full: bool,
        is_repeated: bool,
    ) -> None:
        """Learn from a 429 when the model would open again: see `LearntRate`."""
        self.rate = self.rate.settled(
            minute_s,
            refused_s=refused_s,
            is_minute_full=is_minute_full,
            is_repeated=is_repeated,
        )

    def answered(
        self, now_s: float, *, sent_s: float, refused_s: float, closed_until_s: float
    ) -> None:
        """Learn from a request that was not refused: see `LearntRate`."""
        self.rate = self.rate.answered(
            now_s, sent_s=sent_s, refused_s=refused_s, closed_until_s=closed_until_s
        )

    def keep(self, now_s: float) -> None:
        """Keep what was found, for other kernels, if it is new."""
        if self._store is None or now_s < self._kept_s + KEPT_EVERY_S:
            return
        self._kept_s = now_s
        limit = self.found
        if limit is not None and limit != self._kept:
            self._kept = limit
            self._store.keep_found(limit)

"""AIMD: finds limits that are not documented, from replies and refusals.

`Concurrency` finds how many requests a server answers at once: the level rises while
more in flight bring more replies a second, and falls when the server refuses or slows
down. `LearntRate` finds how many requests it accepts per second and per minute. Both
are pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import NamedTuple

from svc_notebook.service.catalogue import Limit

from .rate_windows import MINUTE_S, NO_LIMIT, SECOND_S, UNLIMITED, QuotaStore

# With additive increase and multiplicative decrease, senders that do not know of each
# other end up with fair shares (Chiu and Jain, 1989). Here the senders are kernels.
FIRST_LEVEL = 8  # before anything is known
MAX_LEVEL = 512  # a process may have 1024 files open, and each request is one

# BBR (Cardwell and others, 2016) does this for packets: it doubles what is in flight
# until the delivery rate stops rising, then tries a quarter more and a quarter less in
# turn. Like BBR, we judge by the number of replies a second and not by the time of a
# reply: replies differ in length, and one slow reply must not count for much. The step
# back at a refusal is TCP's.
FIRST_GAIN = 2.0
MIN_GAIN = 1.25
LOWER_FACTOR = 0.8
# When the server refuses a level that it accepted before, the level falls to this part.
DECREASE = 0.75
# A level twice as high is kept if it brings 1.4 times the replies. In theory it brings
# twice as many, but replies come unevenly. The same share decides about a lower level:
# four fifths of the requests must bring 0.92 of the replies.
MIN_BENEFIT = 0.4
# A round is judged only if this part of the level was in use on average; otherwise the
# callers, not the server, kept the number of requests low.
MIN_USE = 0.7
PAUSE_S = 2.0  # before a level that was refused is tried again; doubled each time
MAX_PAUSE_S = 60.0  # so that a server that recovers is used again within a minute


class Level(NamedTuple):
    """A number of requests in flight, and the replies a second that it brought."""

    n_in_flight: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many requests may be in flight, and what a round of replies says about it.

    A round is about as many replies as there are requests in flight.

    Attributes:
        level: How many requests may be in flight now. Just after the level was lowered,
            more of them may still be in flight.
        most: The level never rises above this.
        n_in_flight: Requests in flight now.
        good: The last level that brought enough replies. If `level` differs from it,
            another level is being tried.
        gain: The factor by which the next higher level is larger.
        is_rising: Whether a higher level is tried next; otherwise a lower one.
        is_met: Whether a limit was met: the server refused a level, or a higher one
            brought no more replies. A higher level that does bring more lifts it.
        n_refused: How many higher levels in a row the server refused.
        pause_until_s: No other level is tried before this time.
        lowered_s: When a refusal lowered the level. Refusals of requests that were sent
            before then say nothing new.
        began_s, seen_s: When this round began, and when a request last began or ended.
        busy_s: Seconds in flight in this round, all requests together.
        n_answered: Replies in this round.
    """

    level: int = FIRST_LEVEL
    most: int = MAX_LEVEL
    n_in_flight: int = 0
    good: Level | None = None
    gain: float = FIRST_GAIN
    is_rising: bool = True
    is_met: bool = False
    n_refused: int = 0
    pause_until_s: float = -inf
    lowered_s: float = -inf
    began_s: float | None = None
    seen_s: float = 0.0
    busy_s: float = 0.0
    n_answered: int = 0

    @classmethod
    def at(cls, level: int, *, most: int = MAX_LEVEL) -> "Concurrency":
        """Return the state that begins with a level learnt earlier."""
        level = max(min(level, most), 1)
        # the next round says how many replies it brings
        return cls(level=level, most=most, gain=MIN_GAIN, good=Level(level, 0.0))

    @property
    def learnt_level(self) -> int | None:
        """The highest level that replies have confirmed; None before the first one."""
        return self.good and min(self.good.n_in_flight, self.level)

    def began(self, now_s: float) -> "Concurrency":
        """Return the state after a request was let out."""
        if self.began_s is None:
            return replace(self, n_in_flight=1, began_s=now_s, seen_s=now_s)
        return _count_in_flight(self, now_s, by=1)

    def ended(self, now_s: float) -> "Concurrency":
        """Return the state after a request that says nothing about the server."""
        return _count_in_flight(self, now_s, by=-1)

    def answered(self, now_s: float) -> "Concurrency":
        """Return the state after a reply."""
        state = _count_in_flight(self, now_s, by=-1, n_answered=1)
        # the smaller the step, the more replies it takes to see a difference
        n_rounds = 1 if self.gain > MIN_GAIN else 2
        took_s = 0.0 if state.began_s is None else now_s - state.began_s
        if state.n_answered < n_rounds * state.level or took_s <= 0:
            return state
        next_round = _begin_round(now_s, state)
        if state.busy_s < MIN_USE * state.level * took_s:
            return next_round
        return _judge_round(next_round, state.n_answered / took_s, now_s)

    def refused(self, now_s: float, *, sent_s: float) -> "Concurrency":
        """Return the state after a request that the server refused (429, 503)."""
        state = _count_in_flight(self, now_s, by=-1)
        # a request that was alone in flight was not refused for the number in flight
        if sent_s <= self.lowered_s or self.n_in_flight <= 1:
            return state
        state = replace(_begin_round(now_s, state), lowered_s=now_s, is_met=True)
        good = self.good
        if good is None or good.n_in_flight >= self.level:  # accepted before
            return replace(
                state,
                level=max(int(self.level * DECREASE), 1),
                good=None,
                gain=max(self.gain, sqrt(FIRST_GAIN)),
                is_rising=True,
                pause_until_s=now_s + PAUSE_S,
            )
        pause_s = min(PAUSE_S * 2**self.n_refused, MAX_PAUSE_S)
        return replace(
            state,
            level=good.n_in_flight,
            gain=max(sqrt(self.gain), MIN_GAIN),
            n_refused=self.n_refused + 1,
            pause_until_s=now_s + pause_s,
        )


def _count_in_flight(
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


def _begin_round(now_s: float, state: Concurrency) -> Concurrency:
    return replace(state, began_s=now_s, busy_s=0.0, n_answered=0)


def _judge_round(state: Concurrency, per_second: float, now_s: float) -> Concurrency:
    """Return the state after a round in which the level was used."""
    good, current = state.good, Level(state.level, per_second)
    if good is None or state.level == good.n_in_flight:
        state = replace(state, good=current)
        return state if now_s < state.pause_until_s else _try_next_level(state)
    min_factor = 1 + MIN_BENEFIT * (state.level / good.n_in_flight - 1)
    if per_second < min_factor * good.per_second:
        return replace(
            state,
            level=good.n_in_flight,
            gain=MIN_GAIN,
            is_met=state.is_met or state.is_rising,
            is_rising=not state.is_rising,
        )
    if state.is_rising:
        state = replace(state, is_met=False, n_refused=0)
    return _try_next_level(replace(state, good=current))


def _try_next_level(state: Concurrency) -> Concurrency:
    """Return the state with another level to try."""
    higher = min(max(state.level + 1, ceil(state.level * state.gain)), state.most)
    lower = max(min(state.level - 1, int(state.level * LOWER_FACTOR)), 1)
    level = higher if state.is_rising else lower
    if level == state.level:  # at the highest or lowest level: turn round
        return replace(state, is_rising=not state.is_rising)
    return replace(state, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRate:
    """The limits per second and per minute, as far as 429s have shown them.

    At a 429, the number of requests that were accepted before it becomes the limit. One
    429 is then enough, while lowering the limit by a constant factor would take
    several. Without 429s the limit rises.

    Attributes:
        per_second, per_minute: Most requests; UNLIMITED as long as no 429 says less.
        before: `per_second` before the newest 429 changed it.
        is_unexplained: Whether the newest 429 came although the learnt rate was kept.
            If the next request is accepted, that 429 was about the number of requests
            in flight, and the rate goes back to `per_second_if_unexplained`.
        is_settled: Whether the newest 429 has been evaluated.
        n_calm_minutes: Minutes since the newest 429 in which no other came.
    """

    per_second: int = UNLIMITED
    per_minute: int = UNLIMITED
    before: int = UNLIMITED
    is_unexplained: bool = False
    per_second_if_unexplained: int = UNLIMITED
    is_settled: bool = True
    n_calm_minutes: int = 0

    @property
    def limit(self) -> Limit:
        """The learnt rate as a `Limit`; None in it where nothing was learnt."""
        second, minute = (
            None if most == UNLIMITED else most
            for most in (self.per_second, self.per_minute)
        )
        return Limit(per_second=second, per_minute=minute)

    def is_kept(self, now_s: float, sent_s: Sequence[float]) -> bool:
        """Say whether fewer requests were sent in the last second than are allowed.

        A 429 in spite of that means too many requests in flight. `sent_s` holds when
        requests were sent, oldest first.
        """
        n_sent = len(sent_s) - bisect_left(sent_s, now_s - SECOND_S)
        return n_sent + 1 < self.per_second < UNLIMITED  # +1: the refused request

    def settled(
        self,
        minute_s: Sequence[float],
        *,
        refused_s: float,
        is_minute_full: bool,
        is_repeated: bool = False,
    ) -> "LearntRate":
        """Return the state after evaluating a 429, just before the model opens again.

        Args:
            minute_s: When the requests of the minute before the 429 were accepted,
                oldest first.
            refused_s: When the refused request was sent.
            is_minute_full: Whether the 429 was about the limit per minute.
            is_repeated: Whether no request was accepted since the 429 before it.
        """
        if is_minute_full:
            settled = replace(self, is_settled=True, is_unexplained=False)
            if not minute_s:  # another sender used up the minute
                return settled
            # the newest change of `per_second` was wrong: the minute was full
            return replace(settled, per_second=self.before, per_minute=len(minute_s))
        if is_repeated:  # nothing was accepted, so nothing new is known
            return replace(self, is_settled=True, is_unexplained=False)
        if self.is_unexplained:
            return replace(
                self,
                is_settled=True,
                before=self.per_second,
                per_second_if_unexplained=self.before,
            )
        second_s = [at_s for at_s in minute_s if at_s > refused_s - SECOND_S]
        return replace(
            self,
            is_settled=True,
            per_second=max(_max_in_a_second(second_s), 1),
            before=self.per_second,
        )

    def answered(
        self, now_s: float, *, sent_s: float, refused_s: float, closed_until_s: float
    ) -> "LearntRate":
        """Return the state after a request that was not refused.

        `refused_s` is when the newest 429 came.
        """
        if self.is_unexplained and self.is_settled and sent_s > refused_s:
            most = self.per_second_if_unexplained
            return replace(self, is_unexplained=False, per_second=most, before=most)
        is_unlimited = self.per_second == self.per_minute == UNLIMITED
        if is_unlimited or now_s < closed_until_s + MINUTE_S * (
            self.n_calm_minutes + 1
        ):
            return self
        # small at first, because the limit is probably still the same
        step = 4**self.n_calm_minutes
        return replace(
            self,
            per_second=min(self.per_second + step, UNLIMITED),
            per_minute=min(self.per_minute + step, UNLIMITED),
            n_calm_minutes=self.n_calm_minutes + 1,
        )


def _max_in_a_second(times_s: Sequence[float]) -> int:
    ends = (bisect_left(times_s, at_s + SECOND_S) for at_s in times_s)
    return max((end - at for at, end in enumerate(ends)), default=0)


STORE_EVERY_S = 1.0  # the file is not written at every reply


class LearntLimits:
    """Learns the limits of a model whose limits are not documented.

    It begins with the limits that this or another kernel learnt in the last hour, and
    writes what it learns to `store`. Not thread-safe: callers hold a lock.

    Attributes:
        concurrency: How many requests may be in flight.
        rate: How many requests per second and per minute, if `learns_rate`.
    """

    def __init__(self, *, learns_rate: bool, store: QuotaStore | None) -> None:
        self.concurrency = Concurrency()
        self.rate = LearntRate()
        self._learns_rate = learns_rate
        self._store = store
        self._stored_s = -inf
        self._stored = NO_LIMIT
        if store and (earlier := store.learnt_limit()):
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
    def learnt_limit(self) -> Limit | None:
        """The limits learnt so far; None if there are none.

        The number in flight is the highest that was tried with success, even if no
        limit was met.
        """
        return self._limit(self.concurrency.learnt_level)

    @property
    def met_limit(self) -> Limit | None:
        """The limits that were met so far; None if none was."""
        concurrency = self.concurrency
        return self._limit(concurrency.learnt_level if concurrency.is_met else None)

    def _limit(self, in_flight: int | None) -> Limit | None:
        windows = self.rate.limit if self._learns_rate else NO_LIMIT
        limit = replace(windows, in_flight=in_flight)
        return None if limit == NO_LIMIT else limit

    def refused(self, now_s: float, sent_s: Sequence[float]) -> bool:
        """Note a 429; say whether it was about the number of requests in flight.

        The first 429 is about the rate, which is then learnt from it. `sent_s` holds
        when requests were sent, oldest first.
        """
        is_unexplained = not self._learns_rate or self.rate.is_kept(now_s, sent_s)
        self.rate = replace(
            self.rate, is_unexplained=is_unexplained, is_settled=False, n_calm_minutes=0
        )
        return is_unexplained

    def settled(
        self,
        minute_s: Sequence[float],
        *,
        refused_s: float,
        is_minute_full: bool,
        is_repeated: bool,
    ) -> None:
        """Learn from a 429 just before the model opens again: see `LearntRate`."""
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
        """Write newly learnt limits to the store, for other kernels."""
        if self._store is None or now_s < self._stored_s + STORE_EVERY_S:
            return
        self._stored_s = now_s
        limit = self.learnt_limit
        if limit is not None and limit != self._stored:
            self._stored = limit
            self._store.keep_learnt_limit(limit)

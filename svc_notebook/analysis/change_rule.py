"""Whether replies have changed since a run, however often that is checked.

A unit is a row, or what belongs together. Its difference is the mean of its newer
replies less that of its older ones. A row that is sent again makes its difference more
exact and is no further unit: all checks share the recorded reply, whose chance would
otherwise count each time. Replies of a model that did not change are exchangeable
within a row, so that each difference is 0 on average.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal, NamedTuple

import numpy as np

from .sequential import MIN_UNITS, ConfidenceSequence, sequence_of
from .statistics import Floats

Codes = Any  # an array of integers
Verdict = Literal["as before", "changed", "cannot tell"]
_SHARE_OF_FIRST = 0.75


def share_of_level(start: int) -> float:
    """Return which share of the level the change since a check has.

    A model may change at any check, so a change is looked for since each of them; the
    shares of all checks that there will ever be add up to 1. Most of it is for a change
    since the run, which is asked first.

    Args:
        start: The check, from 1, whose replies are the first of the newer ones.
    """
    if start == 1:
        return _SHARE_OF_FIRST
    return (1 - _SHARE_OF_FIRST) / (start * (start - 1))


class Checked(NamedTuple):
    """Replies of a run and of its checks, as arrays of one length.

    Attributes:
        check: 0 for the replies of the run, else the number of the check.
        cell: The code of what was sent, equal for repeats.
        row: The code of its row, or of its prompt where there are no rows.
        unit: The code of what belongs together, such as the row.
        value: The measure, or the code of the text; NaN is missing.
    """

    check: Codes
    cell: Codes
    row: Codes
    unit: Codes
    value: Floats

    def where(self, is_used: Any) -> "Checked":  # noqa: ANN401 - flags
        """Return some of the replies."""
        return Checked(*(values[is_used] for values in self))

    @property
    def n_checks(self) -> int:
        """How many checks there were."""
        return int(self.check.max(initial=0))


class Gaps(NamedTuple):
    """The differences of units.

    Attributes:
        units: One for each unit with older and newer replies.
        is_bound: Whether they are only the most that the differences can be.
    """

    units: Floats
    is_bound: bool = False


def of_means(checked: Checked, start: int) -> Gaps:
    """Return how far the means of the replies from a check on are above older ones.

    Cells are compared with themselves, and those of a unit count the same.
    """
    checked = checked.where(~np.isnan(checked.value))
    is_new = checked.check >= start
    n_cells = int(checked.cell.max(initial=-1)) + 1
    sides = [checked.where(is_new), checked.where(~is_new)]
    counts = [np.bincount(side.cell, minlength=n_cells) for side in sides]
    totals = [np.bincount(side.cell, side.value, n_cells) for side in sides]
    has_both = (counts[0] > 0) & (counts[1] > 0)
    new, old = (
        total[has_both] / count[has_both]
        for total, count in zip(totals, counts, strict=True)
    )
    return Gaps(_by_unit(checked, has_both, new - old))


def of_texts(checked: Checked, start: int) -> Gaps:
    """Return how much oftener newer texts differ from older ones than older ones do.

    Where no cell has two older texts, nothing is known of how often these differ, and
    the differences are the most that they can be.
    """
    n_cells = int(checked.cell.max(initial=-1)) + 1
    kind = np.unique(checked.value, return_inverse=True)[1]
    n_kinds = int(kind.max(initial=-1)) + 1
    code = checked.cell * n_kinds + kind
    is_new = checked.check >= start
    new, old = (
        np.bincount(code[side], minlength=n_cells * n_kinds).reshape(n_cells, n_kinds)
        for side in (is_new, ~is_new)
    )
    n_new, n_old = new.sum(axis=1), old.sum(axis=1)
    with np.errstate(all="ignore"):
        between = 1 - (new * old).sum(axis=1) / (n_new * n_old)
        within = 1 - ((old**2).sum(axis=1) - n_old) / (n_old * (n_old - 1))
    is_repeated, has_both = n_old > 1, (n_new > 0) & (n_old > 0)
    is_bound = not (is_repeated & has_both).any()
    used = has_both if is_bound else has_both & is_repeated
    gaps = between[used] if is_bound else between[used] - within[used]
    return Gaps(_by_unit(checked, used, gaps), is_bound)


def _by_unit(checked: Checked, is_used: Any, gaps: Floats) -> Floats:  # noqa: ANN401 - flags
    """Return the mean of the cells of each unit."""
    unit_of = np.zeros(len(is_used), dtype=np.int64)
    unit_of[checked.cell] = checked.unit
    units = unit_of[is_used]
    counts = np.bincount(units)
    is_there = counts > 0
    means: Floats = np.bincount(units, gaps)[is_there] / counts[is_there]
    return means


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a measure has changed, and when it is as before.

    Attributes:
        margin: How much it may differ and still be as before.
        tail: What its intervals leave out on each side, over all checks.
        is_bounded: Whether no difference can be outside of -1 to 1.
        is_one_sided: Whether only a higher value is a change.
        gaps: Returns the differences since a check.
    """

    margin: float
    tail: float
    is_bounded: bool = True
    is_one_sided: bool = False
    gaps: Callable[[Checked, int], Gaps] = of_means


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is known of a measure since a check, on average over all checks from it on.

    Attributes:
        rule: When it has changed.
        start: The check, from 1.
        sequence: The differences of the units.
        is_bound: Whether these are only the most that they can be.
        n_rows: How many rows were sent since then.
    """

    rule: Rule
    start: int
    sequence: ConfidenceSequence
    is_bound: bool
    n_rows: int

    @property
    def tail(self) -> float:
        """What its interval leaves out on each side."""
        return self.rule.tail * share_of_level(self.start)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval, which holds at all checks and since each of them at once."""
        return self.sequence.ends(self.tail)

    @property
    def excess(self) -> float:
        """The p of no change by the largest p that is clear: clear is 1 or less."""
        is_other_side = self.rule.is_one_sided and not self.sequence.value > 0
        if self.is_bound or is_other_side or isnan(p := self.sequence.p()):
            return inf
        return p / (2 * self.tail)

    @property
    def verdict(self) -> Verdict:
        """What is known."""
        if self.excess <= 1:
            return "changed"
        return "as before" if self._is_within or self._is_equal else "cannot tell"

    @property
    def n_would_tell(self) -> float:
        """How many rows would tell, if more are like these; inf if none would."""
        sequence, margin = self.sequence, self.rule.margin
        if not sequence.n_units or isnan(sequence.error):
            return inf
        ends = [margin] if self.rule.is_one_sided else [margin, -margin]
        if abs(sequence.value) >= margin:
            ends = [0.0]
        needed = [sequence.n_would_tell(end, self.tail) for end in ends]
        if None in needed:
            return inf
        return max(filter(None, needed)) * self.n_rows / sequence.n_units

    @property
    def _is_within(self) -> bool:
        low, high = self.interval
        margin = self.rule.margin
        return high < margin and (self.rule.is_one_sided or low > -margin)

    @property
    def _is_equal(self) -> bool:
        """Whether numbers without bounds do not differ at all, in rows enough."""
        sequence = self.sequence
        is_without = isnan(sequence.spread) and sequence.n_units >= MIN_UNITS
        return is_without and sequence.value == 0


def change_of(checked: Checked, rule: Rule) -> Change:
    """Return the clearest change since any check; if none is clear, that since the run.

    Args:
        checked: All replies of a measure so far.
        rule: When it has changed.
    """
    changes = [_since(checked, rule, start) for start in range(1, checked.n_checks + 1)]
    clearest = min(changes, key=lambda change: change.excess)
    return clearest if clearest.excess <= 1 else changes[0]


def _since(checked: Checked, rule: Rule, start: int) -> Change:
    gaps = rule.gaps(checked, start)
    return Change(
        rule=rule,
        start=start,
        sequence=sequence_of(gaps.units, is_bounded=rule.is_bounded),
        is_bound=gaps.is_bound,
        n_rows=len(np.unique(checked.row[checked.check >= start])),
    )

"""Whether replies have changed since a run, however often that is checked.

A unit is a row, or several rows that belong together. Its difference is the mean of its
newer replies less the mean of its older replies. A row that is sent again makes the
difference of its unit more exact, but is not counted as another unit: all checks share
the recorded reply, so its random error would count several times. If the model did not
change, the replies to a row are exchangeable, so each difference is 0 on average.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal, NamedTuple

import numpy as np

from .sequential import MIN_UNITS, ConfidenceSequence, sequence_of
from .statistics import Floats

Codes = Any  # an array of integers
ChangeVerdict = Literal["as before", "changed", "cannot tell"]
_SHARE_OF_FIRST = 0.75  # of the level; the rest is for changes since later checks


def share_of_level(start: int) -> float:
    """Return the share of the level that is spent on a change since a given check.

    A model may change before any check, so the replies since each of them are tested.
    The shares of all checks that there will ever be add up to 1. Most is spent on a
    change since the run, since that is the first question.

    Args:
        start: The check, from 1, whose replies are the first of the newer ones.
    """
    if start == 1:
        return _SHARE_OF_FIRST
    return (1 - _SHARE_OF_FIRST) / (start * (start - 1))


class CheckedReplies(NamedTuple):
    """The replies of a run and of its checks, as arrays of shape (replies,).

    Attributes:
        check: 0 for the replies of the run, else the number of the check.
        cell: The code of the request that was sent; repeats have the same code.
        row: The code of its row, or of its prompt where there are no rows.
        unit: The code of its unit, such as the row.
        value: The measure, or the code of the text; NaN is missing.
    """

    check: Codes
    cell: Codes
    row: Codes
    unit: Codes
    value: Floats

    def where(self, is_used: Any) -> "CheckedReplies":  # noqa: ANN401 - flags
        """Return the replies for which a flag is True."""
        return CheckedReplies(*(values[is_used] for values in self))

    @property
    def n_checks(self) -> int:
        """How many checks there were."""
        return int(self.check.max(initial=0))


class Gaps(NamedTuple):
    """The differences of units: newer replies less older ones.

    Attributes:
        units: Shape (units,): one for each unit that has older and newer replies.
        is_bound: Whether these are upper bounds instead of the differences.
    """

    units: Floats
    is_bound: bool = False


def of_means(checked: CheckedReplies, start: int) -> Gaps:
    """Return the mean of the replies from a check on, less the mean of older replies.

    Replies are compared within a cell, and all cells of a unit count the same.
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
    return Gaps(_mean_by_unit(checked, has_both, new - old))


def of_texts(checked: CheckedReplies, start: int) -> Gaps:
    """Return how much more often a new text differs from an old one than old ones do.

    That is the share of pairs (new, old) with different texts, less that of the pairs
    (old, old). If no cell has two old texts, the latter is not known, and the results
    are upper bounds.
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
    return Gaps(_mean_by_unit(checked, used, gaps), is_bound)


def _mean_by_unit(checked: CheckedReplies, is_used: Any, gaps: Floats) -> Floats:  # noqa: ANN401 - flags
    """Return the mean over the cells of each unit, for the units that have any."""
    unit_of = np.zeros(len(is_used), dtype=np.int64)
    unit_of[checked.cell] = checked.unit
    units = unit_of[is_used]
    counts = np.bincount(units)
    is_there = counts > 0
    means: Floats = np.bincount(units, gaps)[is_there] / counts[is_there]
    return means


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRule:
    """When a measure counts as changed, and when as unchanged.

    Attributes:
        margin: The difference up to which it counts as unchanged.
        tail: The chance of error on each side of its intervals, over all checks.
        is_bounded: Whether all differences are within -1 to 1.
        is_one_sided: Whether only a higher value counts as a change.
        gaps: The function that returns the differences since a check.
    """

    margin: float
    tail: float
    is_bounded: bool = True
    is_one_sided: bool = False
    gaps: Callable[[CheckedReplies, int], Gaps] = of_means


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How a measure differs since a check: the mean over this check and all later ones.

    Attributes:
        rule: When the measure counts as changed.
        start: The number of the check, from 1.
        sequence: The confidence sequence of the units' differences.
        is_bound: Whether the differences are only upper bounds.
        n_rows: How many rows were sent in these checks.
    """

    rule: ChangeRule
    start: int
    sequence: ConfidenceSequence
    is_bound: bool
    n_rows: int

    @property
    def tail(self) -> float:
        """The chance of error on each side of its interval."""
        return self.rule.tail * share_of_level(self.start)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval; it is valid at all checks, and for all of them at once."""
        return self.sequence.ends(self.tail)

    @property
    def excess(self) -> float:
        """The p of "no change", divided by the threshold: a change is clear if <= 1."""
        is_other_side = self.rule.is_one_sided and not self.sequence.value > 0
        if self.is_bound or is_other_side or isnan(p := self.sequence.p()):
            return inf
        return p / (2 * self.tail)

    @property
    def verdict(self) -> ChangeVerdict:
        """Whether the measure changed, is as before, or neither can be told."""
        if self.excess <= 1:
            return "changed"
        return "as before" if self._is_within or self._is_equal else "cannot tell"

    @property
    def n_would_tell(self) -> float:
        """How many rows would be enough, if further rows are like these; inf if none.

        Enough to tell whether the measure is within the margin, or if it is outside
        already, whether it changed.
        """
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
        """Whether enough units all have the same value as before.

        Such differences have no spread, so a measure without bounds has no interval.
        """
        sequence = self.sequence
        has_no_spread = isnan(sequence.spread) and sequence.n_units >= MIN_UNITS
        return has_no_spread and sequence.value == 0


def change_of(checked: CheckedReplies, rule: ChangeRule) -> Change:
    """Return the clearest change since any check, or the one since the run if unclear.

    Args:
        checked: All replies so far.
        rule: When the measure counts as changed.
    """
    changes = [
        _change_since(checked, rule, start) for start in range(1, checked.n_checks + 1)
    ]
    clearest = min(changes, key=lambda change: change.excess)
    return clearest if clearest.excess <= 1 else changes[0]


def _change_since(checked: CheckedReplies, rule: ChangeRule, start: int) -> Change:
    gaps = rule.gaps(checked, start)
    return Change(
        rule=rule,
        start=start,
        sequence=sequence_of(gaps.units, is_bounded=rule.is_bounded),
        is_bound=gaps.is_bound,
        n_rows=len(np.unique(checked.row[checked.check >= start])),
    )

"""Report the decision of a sequential study: its sentences, frame and chart.

The rule that ends a study, and what is known at each look, are in `stopping_rule`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isnan, nan
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.html_styles import BODY, quiet_html
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import cost_in_words

from . import contrast_display, rounding
from .contrast_sentences import SAME_COST, left_out
from .contrast_study import Study, subtraction
from .differences import POWER, spread_of
from .rounding import number, percent, round_up
from .stopping_rule import Known, Look, Question, tail_of

_DRAWN_LOOKS = 12
_LEAST_LOOKS = 4  # of each difference, if several are drawn
_DRAWN_OTHERS = 6
_PAIR = 2
_TWICE = 2.0
_UNKNOWN = Known(nan, nan, nan, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision and its evidence; a cell shows it as sentences and a chart.

    Attributes:
        says: The decision in some sentences, the answer first.
        headline: The answer alone, which `says` begins with.
        value: The name of the value to use; None if it cannot be told.
        left: The values that are not clearly worse than another one.
        is_planned: Whether the question was fixed before the first request.
        n_requests: How many requests were sent.
        n_possible: How many requests the whole run has.
        cost: The cost of the requests sent; NaN is not known.
        notes: Further remarks.
        df: One row for each look and each other value that is left: the requests so
            far, and the value that leads (`value`) minus the `other` with its interval.
        chart: The rows of `df` as a chart, of some looks.

    Example:
        >>> decision = run.decide("model", on="right", margin=0.03)
        >>> looks = decision.df
    """

    says: str
    headline: str
    value: str | None
    left: Sequence[str]
    is_planned: bool
    n_requests: int
    n_possible: int
    cost: float
    notes: Sequence[str]
    df: pd.DataFrame = field(repr=False)
    chart: IntervalChart = field(repr=False)

    def __repr__(self) -> str:
        says, notes = (
            contrast_display.wrapped(lines) for lines in ([self.says], self.notes)
        )
        return to_terminal("\n\n".join(filter(None, [says, self.chart.text(), notes])))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        rest = to_text(self.says.removeprefix(self.headline))
        says = f"<strong>{to_text(self.headline)}</strong>{rest}"
        notes = "".join(quiet_html(to_text(note)) for note in self.notes)
        html = f"{BODY}<div>{says}</div>{self.chart.html()}{notes}</div>"
        return {"text/html": html, "text/plain": repr(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The size and the budget of a sequential study.

    Attributes:
        n_possible: The number of requests of the whole run.
        most: The budget in words, such as "1,000 requests", if it ended the study.
        per_row: The number of requests of one row for one value.
        currency: The currency of the costs.
        is_planned: Whether the question was fixed before the first request.
        looked: If all requests were sent before, how the replies were looked at.
        notes: Further remarks.
    """

    n_possible: int
    most: str = ""
    per_row: int = 1
    currency: str = ""
    is_planned: bool = True
    looked: str = ""
    notes: Sequence[str] = ()


def decided(looks: Sequence[Look], question: Question, spent: Spent) -> Decision:
    """Return the decision that follows from all looks."""
    last = looks[-1]
    if last.value is None:
        headline, why = _undecided_sentence(looks, question, spent), ""
    else:
        headline = f"Use {last.names[last.value]}."
        why = f" {_reason(looks, question, last.value)}"
    return Decision(
        says=f"{headline}{why} {_requests_sentence(last, spent)}",
        headline=headline,
        value=None if last.value is None else last.names[last.value],
        left=[last.names[value] for value in last.asked],
        is_planned=spent.is_planned,
        n_requests=last.n_requests,
        n_possible=spent.n_possible,
        cost=last.cost,
        notes=[
            *_dropped(looks),
            *_tied(last),
            *_left_out(looks),
            *spent.notes,
        ],
        df=_frame(looks),
        chart=chart_of(looks, question),
    )


def chart_of(looks: Sequence[Look], question: Question) -> IntervalChart:
    """Draw what leads minus each other value that is left, at all looks or some."""
    leader, *others = _deciding(looks)
    drawn = others[:_DRAWN_OTHERS]
    n_looks = max(_DRAWN_LOOKS // len(drawn), _LEAST_LOOKS)
    is_rate, margin = looks[-1].study.is_rate, question.margin
    return IntervalChart(
        intervals=[
            interval
            for other in drawn
            for interval in _intervals(looks, leader, other, question, n_looks)
        ],
        origin=0.0,
        band=None if margin is None else (-margin, margin),
        scale=100 if is_rate else 1,
        unit="points" if is_rate else "",
    )


def progress_line(looks: Sequence[Look], question: Question, per_row: int) -> str:
    """Say what leads, how far, and how much a plan without looks would send."""
    leader, other, *_ = _deciding(looks)
    last = looks[-1]
    known = _with_interval(last.study, _latest(looks, leader, other), question)
    line = f"{_subtraction(last, leader, other)}: {known}"
    fixed = _without_looks(last, question, per_row)
    return f"{line} · without looks, to find {fixed[0]}: {fixed[1]}" if fixed else line


def _without_looks(
    last: Look, question: Question, per_row: int
) -> tuple[str, str] | None:
    """Return what a fixed-size study would find, and with how many rows, in words."""
    n_rows = n_fixed(last, question)
    if n_rows is None or question.margin is None:
        return None
    margin = rounding.difference(question.margin, is_rate=last.study.is_rate)
    return margin, _rows_and_requests(n_rows, len(last.names) * per_row)


def n_fixed(last: Look, question: Question) -> int | None:
    """Return how many rows a fixed-size study would need, with the same margin.

    It finds a difference of the margin 8 of 10 times. The number is based on the pair
    whose differences vary the most so far. None if no differences vary, or without a
    margin.
    """
    spreads = [spread_of(pair.estimate) for pair in last.pairs.values()]
    spread = max((spread for spread in spreads if spread > 0), default=0.0)
    if question.margin is None or not spread:
        return None
    # n = ((z of the level + z of the power) * spread / difference) ** 2
    quantile = NormalDist().inv_cdf
    reach = quantile(1 - tail_of(last.study, question)) + quantile(POWER)
    n_units = ceil((reach * spread / question.margin) ** 2)
    return ceil(n_units * last.rows_per_unit)


def _reason(looks: Sequence[Look], question: Question, use: int) -> str:
    """Say why a value is the one to use, and what it costs."""
    last = looks[-1]
    others = [other for other in last.asked if other != use]
    if others:
        nearest = others[0]
        why = _not_worse(looks, question, use, others)
    else:
        nearest = _nearest(looks, use)
        name = last.names[nearest]
        if len(last.names) > _PAIR:
            name = f"all others; than {name}, which comes next,"
        why = f"It is better than {name} by "
        why += _with_interval(last.study, _latest(looks, use, nearest), question)
    return f"{why}{_cost_words(looks, use, nearest)}."


def _not_worse(
    looks: Sequence[Look], question: Question, use: int, others: Sequence[int]
) -> str:
    """Say that the value is at most the margin worse than each of the others."""
    last = looks[-1]
    most = rounding.difference(question.margin or 0.0, is_rate=last.study.is_rate)
    comparisons = []
    for other in others:
        known = _latest(looks, use, other)
        is_more = known.value > (question.margin or 0.0)
        better = ", and probably better" if is_more else ""
        ends = _ends(last.study, known, question)
        comparisons.append(f"than {last.names[other]}{better} ({ends})")
    return f"It is at most {most} worse {' and '.join(comparisons)}"


def _undecided_sentence(looks: Sequence[Look], question: Question, spent: Spent) -> str:
    """Say what leads, what cannot be told from it, and how many rows would tell."""
    last = looks[-1]
    limit = f"within {spent.most}" if spent.most else "with all rows"
    leader, *others = _deciding(looks)
    nearest = others[0]
    known = last.difference(leader, nearest) or _UNKNOWN
    unit = " points" if last.study.is_rate and not isnan(known.low) else ""
    difference = f"{_subtraction(last, leader, nearest)} is "
    difference += f"{_ends(last.study, known, question)}{unit}"
    return (
        f"Cannot tell {limit}: {_leads(last, leader, known)}; {_listed(last, others)} "
        f"cannot be told from it ({difference}); {_would_tell(last, question, spent)}."
    )


def _subtraction(look: Look, one: int, other: int) -> str:
    return subtraction((look.names[one], look.names[other]))


def _leads(last: Look, leader: int, known: Known) -> str:
    """Say what the mean of the first value is; it leads if no other has the same."""
    mean = last.means[leader]
    figure = percent(mean) if last.study.is_rate else number(mean)
    return f"{last.names[leader]} {'leads with' if known.value > 0 else 'has'} {figure}"


def _would_tell(last: Look, question: Question, spent: Spent) -> str:
    """Say how many rows the difference seen so far takes, and how many the margin."""
    n_units = last.n_units_would_tell(question.margin, tail_of(last.study, question))
    if n_units == inf:
        is_known = any(known.low > -inf for known in last.known.values())
        more = "more rows like these would not be enough"
        return more if is_known else "there are too few rows to say how many would tell"
    per_row = len(last.asked) * spent.per_row
    seen = "difference is" if len(last.asked) == _PAIR else "differences are"
    if last.study.design.looks == "one":  # more rows would be a second look
        n_rows = ceil(n_units * last.rows_per_unit)
        what = f"a new run with about {_rows_and_requests(n_rows, per_row)} would"
        rest = "one with"
    else:
        n_rows = ceil(max(n_units, last.n_units + 1) * last.rows_per_unit)
        n_dropped = 0  # requests for values that get no more rows
        if len(last.asked) < len(last.names):
            n_seen = len(last.study.whole.prompt)
            n_dropped = last.n_requests - n_seen * per_row
        rows = _rows_and_requests(n_rows, per_row, n_more=n_dropped)
        what = f"about {rows} in all would"
        rest = "a run without looks takes"
    says = f"if the {seen} as seen so far, {what} tell"
    if (fixed := _without_looks(last, question, spent.per_row)) is None:
        return says
    return f"{says}; to find {fixed[0]}, the margin, {rest} about {fixed[1]}"


def _rows_and_requests(n_rows: int, per_row: int, n_more: int = 0) -> str:
    """Write a number of rows, rounded up, and the requests that these rows take."""
    n_rows = round_up(n_rows)
    return f"{n_rows:,} rows ({n_rows * per_row + n_more:,} requests)"


def _requests_sentence(last: Look, spent: Spent) -> str:
    cost = ""
    if not isnan(last.cost):
        cost = f" for {cost_in_words(last.cost)} {spent.currency}".rstrip()
    sent = f"{last.n_requests:,} requests of {spent.n_possible:,}{cost}"
    if spent.looked:
        return f"{sent} had been sent before; {spent.looked}."
    return f"{sent} were sent." if last.value is None else f"{sent}; {_ENDED}."


_ENDED = "asked until this was clear"


def _cost_words(looks: Sequence[Look], use: int, other: int) -> str:
    """Say what the chosen value costs, compared with another one."""
    both = (look.costs for look in reversed(looks) if {use, other} <= look.costs.keys())
    costs = next(both, {use: nan, other: nan})
    if not (costs[use] >= 0 and costs[other] > 0):
        return ""
    ratio = costs[use] / costs[other]
    if ratio >= _TWICE:
        return f", and costs {number(ratio)} times as much"
    if abs(ratio - 1) < SAME_COST:
        return ", and costs the same"
    return f", and costs {percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def _dropped(looks: Sequence[Look]) -> Iterable[str]:
    """Say when a value was dropped, if there were more than two."""
    candidates = set(range(len(looks[0].names)))
    for look in looks if len(candidates) > _PAIR else ():
        for value in sorted(candidates - set(look.asked)):
            name, n = look.names[value], look.n_requests
            yield f"{name} was clearly worse after {n:,} requests."
        candidates &= set(look.asked)


def _tied(last: Look) -> Iterable[str]:
    """Name the values that are tied, if one is used and there were more than two."""
    if last.value is not None and len(last.asked) > 1 and len(last.names) > _PAIR:
        yield f"Tied: {_listed(last, last.asked)} cannot be told apart."


def _left_out(looks: Sequence[Look]) -> Iterable[str]:
    """Say how many replies have no score, of the two values that decide."""
    one, other, *_ = _deciding(looks)
    for look in reversed(looks):
        for places in ((one, other), (other, one)):
            if places in look.pairs:
                yield from left_out(look.study, look.pairs[places])
                return


def _listed(last: Look, values: Iterable[int]) -> str:
    names = [last.names[value] for value in values]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _nearest(looks: Sequence[Look], use: int) -> int:
    """Return the value that was the hardest to beat."""
    others = [other for other in range(len(looks[-1].names)) if other != use]
    return min(others, key=lambda other: _latest(looks, use, other).value)


def _latest(looks: Sequence[Look], one: int, other: int) -> Known:
    """Return the last known difference of two values."""
    known = (look.difference(one, other) for look in reversed(looks))
    return next(filter(None, known), _UNKNOWN)


def _deciding(looks: Sequence[Look]) -> list[int]:
    """Return the value that leads, then the others that are left, the closest first.

    If none is left, the other one is the value that was the hardest to beat.
    """
    last = looks[-1]
    leader = last.value
    if leader is None:
        leader = max(last.asked, key=lambda value: _known_mean(last.means[value]))
    others = [value for value in last.asked if value != leader]
    others.sort(key=lambda other: _latest(looks, leader, other).value)
    return [leader, *(others or [_nearest(looks, leader)])]


def _known_mean(mean: float) -> float:
    return -inf if isnan(mean) else mean


def _known_looks(looks: Sequence[Look], one: int, other: int) -> list[Look]:
    return [look for look in looks if look.difference(one, other) is not None]


def _evenly(looks: Sequence[Look], n: int) -> list[Look]:
    """Return some looks that are evenly spread, the last one included."""
    places = np.linspace(0, len(looks) - 1, n).round().astype(int)
    return [looks[place] for place in np.unique(places).tolist()]


def _intervals(
    looks: Sequence[Look], one: int, other: int, question: Question, n: int
) -> list[Interval]:
    """Return a difference at each look, or at `n` of them, as the title then says."""
    known_looks = _known_looks(looks, one, other)
    drawn = _evenly(known_looks, n)
    is_all = len(drawn) == len(known_looks)
    which = "look by look" if is_all else f"{len(drawn)} of {len(known_looks)} looks"
    title = _subtraction(looks[-1], one, other)
    title += f", {which}" if len(looks) > 1 else ""
    return [_interval(look, one, other, question, title) for look in drawn]


def _interval(
    look: Look, one: int, other: int, question: Question, title: str
) -> Interval:
    known = look.difference(one, other) or _UNKNOWN
    return Interval(
        name=f"{look.n_requests:,} requests",
        value=known.value,
        low=known.low,
        high=known.high,
        numbers=_with_interval(look.study, known, question),
        is_clear=look.value is not None or known.low > 0 or known.high < 0,
        title=title,
    )


def _frame(looks: Sequence[Look]) -> pd.DataFrame:
    leader, *others = _deciding(looks)
    names = looks[-1].names
    pairs = [(look, other) for look in looks for other in others]
    known = [look.difference(leader, other) or _UNKNOWN for look, other in pairs]
    return pd.DataFrame(
        {
            "n_requests": pd.array([look.n_requests for look, _ in pairs], "Int64"),
            "n_units": pd.array([row.n_units for row in known], "Int64"),
            "value": pd.array([names[leader]] * len(pairs), "string"),
            "other": pd.array([names[other] for _, other in pairs], "string"),
            "difference": pd.array([row.value for row in known], "Float64"),
            "low": pd.array([row.low for row in known], "Float64"),
            "high": pd.array([row.high for row in known], "Float64"),
        }
    )


def _with_interval(study: Study, known: Known, question: Question) -> str:
    """Write a difference with its interval."""
    if not study.is_rate or isnan(known.low):
        return rounding.difference_with_interval(
            known[:3], is_rate=study.is_rate, level=question.level
        )
    value, low, high = rounding.points(known[:3], margin=question.margin or 0.0)
    unit = "point" if value in {"1", "-1"} else "points"
    return f"{value} {unit} ({low} to {high})"


def _ends(study: Study, known: Known, question: Question) -> str:
    """Write the interval alone, such as "-2.6 to 1.9"."""
    text = _with_interval(study, known, question)
    return text.partition("(")[2].removesuffix(")") or "not known"

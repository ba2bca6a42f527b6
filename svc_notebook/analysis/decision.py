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

from . import contrast_display, rounding
from .contrast_sentences import SAME_COST, left_out
from .contrast_study import Study
from .differences import POWER
from .rounding import number, percent, round_up
from .stopping_rule import Known, Look, Question, tail_of

_DRAWN_LOOKS = 8
_PAIR = 2
_TWICE = 2.0
_UNKNOWN = Known(nan, nan, nan, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision and its evidence; a cell shows it as sentences and a chart.

    Attributes:
        says: The decision in some sentences, the answer first.
        value: The name of the value to use; None if it cannot be told.
        left: The values that are not clearly worse than another one.
        is_planned: Whether the question was fixed before the first request.
        n_requests: How many requests were sent.
        n_possible: How many requests the whole run has.
        cost: The cost of the requests sent; NaN is not known.
        notes: Further remarks.
        df: One row for each look: the requests so far, and the difference that decides
            with its interval.
        chart: The rows of `df` as a chart.

    Example:
        >>> decision = run.decide("model", on="right", margin=0.03)
        >>> looks = decision.df
    """

    says: str
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
        answer, mark, rest = self.says.partition(". " if self.value else ": ")
        says = f"<strong>{to_text(answer + mark.strip())}</strong> {to_text(rest)}"
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
        notes: Further remarks.
    """

    n_possible: int
    most: str = ""
    per_row: int = 1
    currency: str = ""
    is_planned: bool = True
    notes: Sequence[str] = ()


def decided(looks: Sequence[Look], question: Question, spent: Spent) -> Decision:
    """Return the decision that follows from all looks."""
    last = looks[-1]
    if last.value is None:
        says = _undecided_sentence(last, question, spent)
    else:
        says = _answer(looks, question, last.value)
    return Decision(
        says=f"{says} {_requests_sentence(last, spent)}",
        value=None if last.value is None else last.names[last.value],
        left=[last.names[value] for value in last.asked],
        is_planned=spent.is_planned,
        n_requests=last.n_requests,
        n_possible=spent.n_possible,
        cost=last.cost,
        notes=[*_dropped(looks), *_tied(last), *_left_out(looks), *spent.notes],
        df=_frame(looks),
        chart=chart_of(looks, question),
    )


def chart_of(looks: Sequence[Look], question: Question) -> IntervalChart:
    """Draw the difference that decides with its interval, look by look."""
    one, other = _deciding(looks)
    known = [look for look in looks if look.difference(one, other) is not None]
    # of many looks, some that are evenly spread
    places = np.linspace(0, len(known) - 1, _DRAWN_LOOKS).round().astype(int)
    is_rate, margin = looks[-1].study.is_rate, question.margin
    return IntervalChart(
        intervals=[
            _interval(known[place], one, other, question)
            for place in np.unique(places).tolist()
        ],
        origin=0.0,
        band=None if margin is None else (-margin, margin),
        scale=100 if is_rate else 1,
        unit="points" if is_rate else "",
    )


def n_fixed(looks: Sequence[Look], question: Question, per_row: int) -> int | None:
    """Return how many requests a fixed-size study would need, with the same margin.

    It finds a difference of the margin 8 of 10 times. The number is for all values, and
    is based on the pair whose differences vary the most so far. None if no differences
    vary, or without a margin.
    """
    last = looks[-1]
    spreads = [sequence.spread for sequence in last.sequences.values()]
    spread = max((spread for spread in spreads if spread > 0), default=0.0)
    if question.margin is None or not spread:
        return None
    # n = ((z of the level + z of the power) * spread / difference) ** 2
    quantile = NormalDist().inv_cdf
    reach = quantile(1 - tail_of(last.study, question)) + quantile(POWER)
    n_units = ceil((reach * spread / question.margin) ** 2)
    return ceil(n_units * last.rows_per_unit) * len(last.names) * per_row


def _answer(looks: Sequence[Look], question: Question, use: int) -> str:
    """Say which value to use, and why."""
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
    return f"Use {last.names[use]}. {why}{_cost_words(looks, use, nearest)}."


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


def _undecided_sentence(last: Look, question: Question, spent: Spent) -> str:
    """Say what cannot be told, and how many requests would probably be enough."""
    limit = f"within {spent.most}" if spent.most else "with all rows"
    if len(last.asked) == _PAIR:
        one, other = _deciding([last])
        known = last.difference(one, other) or _UNKNOWN
        ends = _ends(last.study, known, question)
        unit = " points" if last.study.is_rate else ""
        left = f"{last.names[one]} less {last.names[other]} is {ends}{unit}"
    else:
        left = f"{_listed(last)} are left"
    return f"Cannot tell {limit}: {left}; {_would_tell(last, question, spent)}."


def _would_tell(last: Look, question: Question, spent: Spent) -> str:
    n_units = last.n_units_would_tell(question.margin, tail_of(last.study, question))
    if n_units == inf:
        return "more rows like these would not be enough"
    n_more = max(n_units - last.n_units, 1) * last.rows_per_unit
    n_requests = last.n_requests + n_more * len(last.asked) * spent.per_row
    return f"about {round_up(ceil(n_requests)):,} would"


def _requests_sentence(last: Look, spent: Spent) -> str:
    cost = ""
    if not isnan(last.cost):
        cost = f" for {number(last.cost)} {spent.currency}".rstrip()
    sent = f"{last.n_requests:,} requests of {spent.n_possible:,}{cost}"
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
    """Name the values that are tied, if there were more than two."""
    if len(last.asked) > 1 and len(last.names) > _PAIR:
        yield f"Tied: {_listed(last)} cannot be told apart."


def _left_out(looks: Sequence[Look]) -> Iterable[str]:
    """Say how many replies have no score, of the two values that decide."""
    one, other = _deciding(looks)
    for look in reversed(looks):
        for places in ((one, other), (other, one)):
            if places in look.pairs:
                yield from left_out(look.study, look.pairs[places])
                return


def _listed(last: Look) -> str:
    names = [last.names[value] for value in last.asked]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _nearest(looks: Sequence[Look], use: int) -> int:
    """Return the value that was the hardest to beat."""
    others = [other for other in range(len(looks[-1].names)) if other != use]
    return min(others, key=lambda other: _latest(looks, use, other).value)


def _latest(looks: Sequence[Look], one: int, other: int) -> Known:
    """Return the last known difference of two values."""
    known = (look.difference(one, other) for look in reversed(looks))
    return next(filter(None, known), _UNKNOWN)


def _deciding(looks: Sequence[Look]) -> tuple[int, int]:
    """Return the two values whose difference is drawn."""
    last = looks[-1]
    if last.value is None:
        one, other = last.asked[:_PAIR]
        is_worse = (last.difference(one, other) or _UNKNOWN).value < 0
        return (other, one) if is_worse else (one, other)
    others = [value for value in last.asked if value != last.value]
    return last.value, others[0] if others else _nearest(looks, last.value)


def _interval(look: Look, one: int, other: int, question: Question) -> Interval:
    known = look.difference(one, other) or _UNKNOWN
    return Interval(
        name=f"{look.n_requests:,} requests",
        value=known.value,
        low=known.low,
        high=known.high,
        numbers=_with_interval(look.study, known, question),
        is_clear=look.value is not None or known.low > 0 or known.high < 0,
        title=f"{look.names[one]} less {look.names[other]}, look by look",
    )


def _frame(looks: Sequence[Look]) -> pd.DataFrame:
    one, other = _deciding(looks)
    rows = [look.difference(one, other) or _UNKNOWN for look in looks]
    columns = {"n_requests": [look.n_requests for look in looks]}
    columns["n_units"] = [row.n_units for row in rows]
    differences = {
        name: pd.array([getattr(row, field_name) for row in rows], dtype="Float64")
        for name, field_name in (
            ("difference", "value"),
            ("low", "low"),
            ("high", "high"),
        )
    }
    counts = {name: pd.array(n, dtype="Int64") for name, n in columns.items()}
    return pd.DataFrame({**counts, **differences})


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

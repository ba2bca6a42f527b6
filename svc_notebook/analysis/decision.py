"""A decision about the values of a factor: in words, and look by look.

What each look knows, and when a study may end, is in `stopping_rule`.
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
from .contrast_sentences import left_out
from .contrast_study import Study
from .differences import POWER
from .rounding import number, percent, round_up
from .stopping_rule import SAME_COST, Known, Look, Question, tail_of

_DRAWN_LOOKS = 8
_PAIR = 2
_TWICE = 2.0
_UNKNOWN = Known(nan, nan, nan, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided, and what it is based on: to be read at the end of a cell.

    Attributes:
        says: The decision in some sentences, the answer first.
        value: The value to use, as it is called; None if it cannot be told.
        left: The values that no other one is clearly better than.
        is_planned: Whether all was fixed before the first request.
        n_requests: How many requests were sent.
        n_possible: How many the whole run has.
        cost: What they cost; NaN is not known.
        notes: What else should be known.
        df: One row for each look: requests, and the difference that decides with its
            interval.
        chart: The same as a drawing.

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
    """What was allowed and used.

    Attributes:
        n_possible: Requests of the whole run.
        most: The budget in words, such as "1,000 requests", if it is what ended it.
        per_row: Requests of one row for one value.
        currency: Of the costs.
        is_planned: Whether all was fixed before the first request.
        notes: What else should be known.
    """

    n_possible: int
    most: str = ""
    per_row: int = 1
    currency: str = ""
    is_planned: bool = True
    notes: Sequence[str] = ()


def decided(looks: Sequence[Look], question: Question, spent: Spent) -> Decision:
    """Conclude from all looks."""
    last = looks[-1]
    if last.value is None:
        says = _open(last, question, spent)
    else:
        says = _answer(looks, question, last.value)
    return Decision(
        says=f"{says} {_sent(last, spent)}",
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
    """Draw how the interval of the difference that decides shrinks, look by look."""
    one, other = _deciding(looks)
    known = [look for look in looks if look.difference(one, other) is not None]
    places = np.linspace(0, len(known) - 1, _DRAWN_LOOKS).round().astype(int)
    is_rate, margin = looks[-1].study.is_rate, question.margin
    return IntervalChart(
        intervals=[
            _drawn(known[place], one, other, question)
            for place in np.unique(places).tolist()
        ],
        origin=0.0,
        band=None if margin is None else (-margin, margin),
        scale=100 if is_rate else 1,
        unit="points" if is_rate else "",
    )


def n_fixed(looks: Sequence[Look], question: Question, per_row: int) -> int | None:
    """Return the requests of a plan without looks that finds the margin 8 of 10 times.

    It is for all values, by the differences so far that vary the most; None if they do
    not vary, or without a margin.
    """
    last = looks[-1]
    spreads = [sequence.spread for sequence in last.sequences.values()]
    spread = max((spread for spread in spreads if spread > 0), default=0.0)
    if question.margin is None or not spread:
        return None
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
        why += _said(last.study, _latest(looks, use, nearest), question)
    return f"Use {last.names[use]}. {why}{_cost_words(looks, use, nearest)}."


def _not_worse(
    looks: Sequence[Look], question: Question, use: int, others: Sequence[int]
) -> str:
    last = looks[-1]
    most = rounding.difference(question.margin or 0.0, is_rate=last.study.is_rate)
    said = []
    for other in others:
        known = _latest(looks, use, other)
        is_more = known.value > (question.margin or 0.0)
        better = ", and probably better" if is_more else ""
        ends = _ends(last.study, known, question)
        said.append(f"than {last.names[other]}{better} ({ends})")
    return f"It is at most {most} worse {' and '.join(said)}"


def _open(last: Look, question: Question, spent: Spent) -> str:
    """Say what is not clear, and how many requests would probably tell."""
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
        return "more rows like these would not tell, either"
    n_more = max(n_units - last.n_units, 1) * last.rows_per_unit
    n_requests = last.n_requests + n_more * len(last.asked) * spent.per_row
    return f"about {round_up(ceil(n_requests)):,} would"


def _sent(last: Look, spent: Spent) -> str:
    cost = ""
    if not isnan(last.cost):
        cost = f" for {number(last.cost)} {spent.currency}".rstrip()
    sent = f"{last.n_requests:,} requests of {spent.n_possible:,}{cost}"
    return f"{sent} were sent." if last.value is None else f"{sent}; {_ENDED}."


_ENDED = "asked until this was clear"


def _cost_words(looks: Sequence[Look], use: int, other: int) -> str:
    """Say what the chosen value costs by another one."""
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
    """Say when a value was no longer asked, if it was one of several."""
    asked = set(range(len(looks[0].names)))
    for look in looks if len(asked) > _PAIR else ():
        for value in sorted(asked - set(look.asked)):
            name, n = look.names[value], look.n_requests
            yield f"{name} was clearly worse after {n:,} requests."
        asked &= set(look.asked)


def _tied(last: Look) -> Iterable[str]:
    """Name the values that are left, if there were more to choose from."""
    if len(last.asked) > 1 and len(last.names) > _PAIR:
        yield f"Tied: {_listed(last)} cannot be told apart."


def _left_out(looks: Sequence[Look]) -> Iterable[str]:
    """Say which replies of the two values that decide have no score."""
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


def _drawn(look: Look, one: int, other: int, question: Question) -> Interval:
    known = look.difference(one, other) or _UNKNOWN
    return Interval(
        name=f"{look.n_requests:,} requests",
        value=known.value,
        low=known.low,
        high=known.high,
        numbers=_said(look.study, known, question),
        is_clear=look.value is not None or known.low > 0 or known.high < 0,
        title=f"{look.names[one]} less {look.names[other]}, look by look",
    )


def _frame(looks: Sequence[Look]) -> pd.DataFrame:
    one, other = _deciding(looks)
    rows = [look.difference(one, other) or _UNKNOWN for look in looks]
    columns = {"n_requests": [look.n_requests for look in looks]}
    columns["n_units"] = [row.n_units for row in rows]
    differences = {
        name: pd.array([getattr(row, of_row) for row in rows], dtype="Float64")
        for name, of_row in (("difference", "value"), ("low", "low"), ("high", "high"))
    }
    counts = {name: pd.array(n, dtype="Int64") for name, n in columns.items()}
    return pd.DataFrame({**counts, **differences})


def _said(study: Study, known: Known, question: Question) -> str:
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
    said = _said(study, known, question)
    return said.partition("(")[2].removesuffix(")") or "not known"

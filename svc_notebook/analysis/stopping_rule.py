"""The stopping rule of a sequential study, and what is known at each look.

A value that is clearly worse than another one is dropped. The study ends when one value
is left, or when one is at most `margin` worse than all others that are left and none of
these is cheaper. The intervals hold at all looks at once. A run that was complete
before anybody looked has one look, with intervals for one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import check_positive, check_share, must_be

from .contrast_pair import Pair, compare_pair
from .contrast_sentences import SAME_COST, least_units
from .contrast_study import (
    Design,
    Study,
    check_share_margin,
    level_names,
    short_names,
    study_of,
)
from .differences import spread_of, units_needed
from .missing import Missing
from .reply_factors import LABEL, TEMPLATE, coded, is_request, named, setting_name
from .sequential import ConfidenceSequence, Looks
from .summary import total_cost

IsAbove = Callable[[int, int, float], bool]
"""Says whether the first value less the second is clearly above a number."""
_MISSING_ALLOWED = ("drop", "wrong")
_COMBINED = f"combination{LABEL}"


def unbeaten(asked: Collection[int], is_above: IsAbove) -> list[int]:
    """Return the values that are not clearly worse than another one."""
    return [
        value
        for value in asked
        if not any(is_above(other, value, 0.0) for other in asked if other != value)
    ]


def chosen(
    asked: Collection[int],
    is_above: IsAbove,
    *,
    margin: float | None,
    costs: Mapping[int, float],
    means: Mapping[int, float],
) -> int | None:
    """Return the value to use; None if that is not clear yet.

    Args:
        asked: The values that are left.
        is_above: Says what is certain about each two of them.
        margin: How much worse a value may be; None is not at all.
        costs: The mean cost of a request, by value; NaN is not known, and is
            chosen only if no other cost is known.
        means: The mean score, by value: of several that are good enough and cost the
            same, the one with the higher mean is chosen.
    """
    fit = [value for value in asked if _is_fit(value, asked, is_above, margin, costs)]
    if not fit:
        return None
    return min(fit, key=lambda value: (_known_cost(costs[value]), -means[value]))


def _is_fit(
    value: int,
    asked: Collection[int],
    is_above: IsAbove,
    margin: float | None,
    costs: Mapping[int, float],
) -> bool:
    """Say whether a value is at most `margin` worse than all others, and no dearer."""
    others = [other for other in asked if other != value]
    if margin is None and others:
        return False
    return all(
        is_above(value, other, -(margin or 0.0)) and not is_cheaper(other, value, costs)
        for other in others
    )


def is_cheaper(value: int, other: int, costs: Mapping[int, float]) -> bool:
    """Say whether a value is known to cost less than another one."""
    return costs[value] < costs[other] * (1 - SAME_COST)


def _known_cost(cost: float) -> float:
    return inf if isnan(cost) else cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question to decide, fixed before the first request.

    Attributes:
        factor: The column whose values are compared; of several columns, the
            combinations of their values.
        on: The score.
        margin: How much worse a value may be if it costs less; None is not at all.
        unit: Columns that say which rows belong together; None if none do.
        missing: How replies without a score are treated.
        level: How often the decision is right, over all looks and pairs of values.
    """

    factor: str | Sequence[str]
    on: str | None
    margin: float | None = None
    unit: Sequence[str] | None = None
    missing: Missing = "drop"
    level: float = 0.95

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.margin is not None:
            check_positive("margin", self.margin)
        check_share("level", self.level)
        if self.missing not in _MISSING_ALLOWED:
            raise must_be("missing", "'drop' or 'wrong'", self.missing)


def combined(df: pd.DataFrame, factor: str | Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return a frame of replies, and the one column whose values are compared.

    Several factors are combined into one, whose values are texts. The factors
    themselves are set to a constant, so that they do not count as factors any more.

    Raises:
        ParameterError: A factor is not a column.
    """
    columns = named(df, factor, param="factor")
    if len(columns) == 1:
        return df, columns[0]
    parts = []
    for name in columns:
        codes, values = coded(df[name])
        is_plain = name == "model" or name.endswith(LABEL)
        head = "" if is_plain else f"{name}="
        names = [f"{head}{text}" for text in short_names(name, values)]
        parts.append([names[code] for code in codes])
    labels = [setting_name(names) for names in zip(*parts, strict=True)]
    stems = {name.removesuffix(LABEL).removesuffix(TEMPLATE) for name in columns}
    same = [stem + end for stem in stems for end in ("", LABEL, TEMPLATE)]
    constant = {
        name: df[name].array.take([0] * len(df))
        for name in same
        if name in df.columns and name != "prompt"  # the text that was sent is kept
    }
    label = {_COMBINED: pd.array(labels, dtype="string")}
    return df.assign(**constant, **label), _COMBINED


class Known(NamedTuple):
    """The difference of two values, with its interval."""

    value: float
    low: float
    high: float
    n_units: int

    def mirrored(self) -> "Known":
        """Return the difference with the two values exchanged."""
        return Known(-self.value, -self.high, -self.low, self.n_units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a study: what is known from the replies so far.

    Values are numbered by their positions in `names`.

    Attributes:
        study: The replies so far.
        names: The names of the values.
        asked: The values that are left after this look.
        known: The differences of the values that were left before it.
        pairs: The comparisons with these differences.
        value: The value to use; None if that is not clear yet.
        costs: The mean cost of a request, by value; NaN is not known.
        means: The mean scores of the values that are left, over the rows that have
            scores for all of them; NaN is not known.
        n_requests: How many requests were sent so far.
        cost: The cost of these requests; NaN is not known.
    """

    study: Study
    names: Sequence[str]
    asked: Sequence[int]
    known: dict[tuple[int, int], Known]
    pairs: dict[tuple[int, int], Pair] = field(repr=False)
    value: int | None
    costs: dict[int, float]
    means: dict[int, float]
    n_requests: int
    cost: float

    def difference(self, value: int, other: int) -> Known | None:
        """Return the difference of two values; None if one had been dropped."""
        if (value, other) in self.known:
            return self.known[value, other]
        known = self.known.get((other, value))
        return None if known is None else known.mirrored()

    @property
    def n_units(self) -> int:
        """The number of units in the comparison that has the most."""
        return max((known.n_units for known in self.known.values()), default=0)

    @property
    def rows_per_unit(self) -> float:
        """The mean number of rows of a unit."""
        return len(self.study.whole.prompt) / max(self.n_units, 1)

    def n_units_would_tell(self, margin: float | None, tail: float) -> float:
        """Return how many units would end the study; inf if no number would.

        Further units are assumed to be like these. If the intervals are for one look,
        it is the number of a new study, which tells 8 of 10 times.
        """
        return min(self._n_for(value, margin, tail) for value in self.asked)

    def _n_for(self, value: int, margin: float | None, tail: float) -> float:
        """Return how many units would show that this is the value to use."""
        others = [other for other in self.asked if other != value]
        return max(self._n_between(value, other, margin, tail) for other in others)

    def _n_between(
        self, value: int, other: int, margin: float | None, tail: float
    ) -> float:
        """Return how many units would show that a value is better, or good enough."""
        may_be_worse = margin is not None and not is_cheaper(other, value, self.costs)
        null = -margin if margin is not None and may_be_worse else 0.0
        known = self.difference(value, other)
        if known is None or not known.value > null:
            return inf
        is_mirrored = (value, other) not in self.pairs
        pair = self.pairs[(other, value) if is_mirrored else (value, other)]
        if isinstance(pair.estimate, ConfidenceSequence):
            n = pair.estimate.n_would_tell(-null if is_mirrored else null, tail)
            return inf if n is None else n
        if not (spread := spread_of(pair.estimate)) > 0:
            return inf
        gap, is_margin = known.value - null, null < 0
        n = units_needed(spread, gap, tail=tail, is_one_sided=is_margin)
        return n if is_margin else max(n, least_units(pair, tail))


def look_at(
    df: pd.DataFrame,
    question: Question,
    asked: Collection[int] | None = None,
    *,
    looks: Looks = "any",
) -> Look:
    """Look at the replies so far.

    Args:
        df: The replies to the rows so far, with all values of the factor.
        question: The question to decide.
        asked: The values that were left for the newest rows; all if None.
        looks: Whether the intervals hold for one look, at a complete run, or at any.

    Raises:
        ParameterError: The question does not fit the frame.
    """
    design = Design(unit=question.unit, missing=question.missing, looks=looks)
    df, column = combined(df, question.factor)
    study = study_of(df, column, question.on, design)
    if study.is_of_requests:
        raise ParameterError(
            f"on={study.on!r} is not a score, but a decision needs one, where higher "
            "is better. To compare seconds or tokens, use contrast(..., looks='any').",
            param="on",
        )
    check_share_margin(question.margin, is_share=bool(np.isfinite(study.most)))
    asked = sorted(range(len(study.levels)) if asked is None else asked)
    tail = tail_of(study, question)
    pairs = {
        (value, other): compare_pair(study, value, other)
        for value in asked
        for other in asked
        if value > other
    }
    known = {values: _known(pair, tail) for values, pair in pairs.items()}

    def is_above(value: int, other: int, null: float) -> bool:
        if (value, other) in known:
            return known[value, other].low > null
        return -known[other, value].high > null

    left = unbeaten(asked, is_above)
    costs = _costs(study, asked)
    return Look(
        study=study,
        names=level_names(study),
        asked=left,
        known=known,
        pairs=pairs,
        value=chosen(
            left,
            is_above,
            margin=question.margin,
            costs=costs,
            means=_means(study, asked),
        ),
        costs=costs,
        means=_means(study, left),
        n_requests=int((df["status"].isin(["ok", "error"]) & is_request(df)).sum()),
        cost=total_cost(df),
    )


def tail_of(study: Study, question: Question) -> float:
    """Return the chance of error on each side of an interval; all pairs share it."""
    n_values = len(study.levels)
    return (1 - question.level) / 2 / (n_values * (n_values - 1) / 2)


def _known(pair: Pair, tail: float) -> Known:
    estimate = pair.estimate
    return Known(estimate.value, *estimate.ends(tail), estimate.n_units)


def _means(study: Study, asked: Sequence[int]) -> dict[int, float]:
    """Return the mean scores over the rows that have scores for all values."""
    return _by_value(study.whole.low, asked)


def _costs(study: Study, asked: Sequence[int]) -> dict[int, float]:
    """Return the mean costs; a value without any cost leaves those of the others."""
    cost = study.whole.cost
    known = [value for value in asked if not np.isnan(cost[:, value]).all()]
    return dict.fromkeys(asked, nan) | _by_value(cost, known)


def _by_value(cells: Any, asked: Sequence[int]) -> dict[int, float]:  # noqa: ANN401 - an array
    columns = cells[:, list(asked)]
    complete = columns[~np.isnan(columns).any(axis=1)]
    means = complete.mean(axis=0).tolist() if len(complete) else [nan] * len(asked)
    return dict(zip(asked, means, strict=True))

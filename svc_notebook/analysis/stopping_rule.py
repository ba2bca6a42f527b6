"""The stopping rule: what is known at each look, when a study ends, with which value.

A value that is clearly worse than another is no longer asked. The study ends when one
is left, or one is at most `margin` worse than all that are left and none of these is
cheaper. What is certain comes from intervals that hold at all looks at once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import check_number, must_be

from .contrast_pair import Pair, compare_pair
from .contrast_study import (
    Design,
    Study,
    check_share_margin,
    level_names,
    short_names,
    study_of,
)
from .missing import Missing
from .reply_factors import LABEL, TEMPLATE, coded, is_request, named
from .sequential import ConfidenceSequence

IsAbove = Callable[[int, int, float], bool]
"""Whether the first value less the second is certainly above a number."""
_FITTING = ("drop", "wrong")
_COMBINED = f"combination{LABEL}"
SAME_COST = 0.005
"""Costs that differ by less, as a share, are the same."""


def unbeaten(asked: Collection[int], is_above: IsAbove) -> list[int]:
    """Return the values that none of the others is clearly better than."""
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
        is_above: What is certain of each two of them.
        margin: How much worse a value may be; None is not at all.
        costs: What a request costs, by value; NaN is not known.
        means: The mean score, by value: of several that would do, and cost the same,
            the better one is chosen.
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
    """Say whether no other value is much better, or would do and is cheaper."""
    others = [other for other in asked if other != value]
    if margin is None and others:
        return False
    return all(
        is_above(value, other, -(margin or 0.0)) and not is_cheaper(other, value, costs)
        for other in others
    )


def is_cheaper(one: int, other: int, costs: Mapping[int, float]) -> bool:
    """Say whether a value is known to cost less than another one."""
    return costs[one] < costs[other] * (1 - SAME_COST)


def _known_cost(cost: float) -> float:
    return cost if cost == cost else 0.0  # noqa: PLR0124 - NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be decided, as it was fixed before the first request.

    Attributes:
        factor: The column whose values are compared; of several, their combinations.
        on: The score.
        margin: How much worse a value may be if it costs less; None is not at all.
        unit: Columns that say which rows belong together; None is each alone.
        missing: What becomes of replies without a score.
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
            check_number("margin", self.margin, above=0)
        check_number("level", self.level, above=0)
        if self.level >= 1:
            raise must_be("level", "a share < 1, such as 0.95", self.level)
        if self.missing not in _FITTING:
            raise must_be("missing", "'drop' or 'wrong'", self.missing)


def combined(df: pd.DataFrame, factor: str | Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return a frame of replies, and its one column whose values are compared.

    Several factors become one, whose values are their combinations in words; the
    factors themselves are then the same everywhere.

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
    labels = [", ".join(names) for names in zip(*parts, strict=True)]
    stems = {name.removesuffix(LABEL).removesuffix(TEMPLATE) for name in columns}
    same = [stem + end for stem in stems for end in ("", LABEL, TEMPLATE)]
    constant = {
        name: df[name].array.take([0] * len(df))
        for name in same
        if name in df.columns and name != "prompt"  # what is sent stays
    }
    label = {_COMBINED: pd.array(labels, dtype="string")}
    return df.assign(**constant, **label), _COMBINED


class Known(NamedTuple):
    """The difference of two values with its interval, which holds at any look."""

    value: float
    low: float
    high: float
    n_units: int

    def mirrored(self) -> "Known":
        """Return the difference the other way round."""
        return Known(-self.value, -self.high, -self.low, self.n_units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known after some rows.

    Attributes:
        study: The replies so far.
        names: What the values are called; all others go by their positions.
        asked: The values that are still asked after it.
        known: The differences of those that were asked before it.
        pairs: What these are of.
        value: The one to use; None if that is not clear yet.
        costs: What a request costs, by value; NaN is not known.
        n_requests: How many were sent so far.
        cost: What they cost; NaN is not known.
    """

    study: Study
    names: Sequence[str]
    asked: Sequence[int]
    known: dict[tuple[int, int], Known]
    pairs: dict[tuple[int, int], Pair] = field(repr=False)
    value: int | None
    costs: dict[int, float]
    n_requests: int
    cost: float

    def difference(self, one: int, other: int) -> Known | None:
        """Return the difference of two values; None if not both were asked."""
        if (one, other) in self.known:
            return self.known[one, other]
        known = self.known.get((other, one))
        return None if known is None else known.mirrored()

    @property
    def sequences(self) -> dict[tuple[int, int], ConfidenceSequence]:
        """The confidence sequences of the differences."""
        estimates = {places: pair.estimate for places, pair in self.pairs.items()}
        return {
            places: estimate
            for places, estimate in estimates.items()
            if isinstance(estimate, ConfidenceSequence)
        }

    @property
    def n_units(self) -> int:
        """How many units there are for two values."""
        return max((known.n_units for known in self.known.values()), default=0)

    @property
    def rows_per_unit(self) -> float:
        """How many rows a unit has on average."""
        return len(self.study.whole.prompt) / max(self.n_units, 1)

    def n_units_would_tell(self, margin: float | None, tail: float) -> float:
        """Return how many units would end it, if more are like these; inf if none."""
        return min(self._n_for(one, margin, tail) for one in self.asked)

    def _n_for(self, one: int, margin: float | None, tail: float) -> float:
        """Return how many would show that one value is the one to use."""
        others = [other for other in self.asked if other != one]
        return max(self._n_between(one, other, margin, tail) for other in others)

    def _n_between(
        self, one: int, other: int, margin: float | None, tail: float
    ) -> float:
        may_be_worse = margin is not None and not is_cheaper(other, one, self.costs)
        null = -margin if margin is not None and may_be_worse else 0.0
        known = self.difference(one, other)
        if known is None or not known.value > null:
            return inf
        is_turned = (one, other) not in self.sequences
        sequence = self.sequences[(other, one) if is_turned else (one, other)]
        n = sequence.n_would_tell(-null if is_turned else null, tail)
        return inf if n is None else n


def look_at(
    df: pd.DataFrame,
    question: Question,
    asked: Collection[int] | None = None,
) -> Look:
    """Look at the replies so far.

    Args:
        df: Replies to the rows so far, with all values of the factor.
        question: What is to be decided.
        asked: The values that were asked for the newest rows; all if None.

    Raises:
        ParameterError: The question does not fit the frame.
    """
    design = Design(unit=question.unit, missing=question.missing, looks="any")
    df, column = combined(df, question.factor)
    study = study_of(df, column, question.on, design)
    if study.is_of_requests:
        raise ParameterError(
            f"on={study.on!r} is not a score, and a decision takes the higher score as "
            "the better one. contrast(..., looks='any') compares seconds and tokens.",
            param="on",
        )
    check_share_margin(question.margin, is_share=bool(np.isfinite(study.most)))
    asked = sorted(range(len(study.levels)) if asked is None else asked)
    tail = tail_of(study, question)
    pairs = {
        (one, other): compare_pair(study, one, other)
        for one in asked
        for other in asked
        if one > other
    }
    known = {places: _known(pair, tail) for places, pair in pairs.items()}

    def is_above(one: int, other: int, null: float) -> bool:
        if (one, other) in known:
            return known[one, other].low > null
        return -known[other, one].high > null

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
        n_requests=int((df["status"].isin(["ok", "error"]) & is_request(df)).sum()),
        cost=float(df["cost"].sum(min_count=1)) if df["cost"].notna().any() else nan,
    )


def tail_of(study: Study, question: Question) -> float:
    """Return what each interval leaves out on each side: all pairs share the level."""
    n_values = len(study.levels)
    return (1 - question.level) / 2 / (n_values * (n_values - 1) / 2)


def _known(pair: Pair, tail: float) -> Known:
    estimate = pair.estimate
    return Known(estimate.value, *estimate.ends(tail), estimate.n_units)


def _means(study: Study, asked: Sequence[int]) -> dict[int, float]:
    """Return the mean scores over the rows that have all values."""
    return _by_value(study.whole.low, asked)


def _costs(study: Study, asked: Sequence[int]) -> dict[int, float]:
    return _by_value(study.whole.cost, asked)


def _by_value(cells: Any, asked: Sequence[int]) -> dict[int, float]:  # noqa: ANN401 - an array
    of_asked = cells[:, list(asked)]
    whole = of_asked[~np.isnan(of_asked).any(axis=1)]
    means = whole.mean(axis=0).tolist() if len(whole) else [nan] * len(asked)
    return dict(zip(asked, means, strict=True))

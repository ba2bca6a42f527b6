"""Plan from a pilot how many prompts, repeats and labels a study needs."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.html_styles import sentences_html
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.service.params import check_flag, check_positive, check_share

from .contrast_pair import Labelled, Pair, compare_pair
from .contrast_study import (
    Cells,
    Design,
    Study,
    check_labels,
    labelled_study,
    only_score,
    pairs_of,
)
from .differences import POWER, has_power, least, spread_of, units_needed
from .prediction_powered import Parts
from .reply_factors import (
    LABEL,
    check_replies,
    column_of,
    factors,
    named,
)
from .rounding import difference as difference_text
from .rounding import round_up
from .statistics import (
    LEVEL,
    MIN_PROMPTS,
    NEGLIGIBLE,
    Floats,
    Prompts,
    Ratios,
    need_scipy,
    special,
)

REPEATS = (1, 2, 3, 5, 10)
_MOSTLY = 0.5  # the share of units that is "most"
# the numbers of labels that are offered; then ten times as many, and so on
_LABELLED = (30, 40, 50, 60, 80, 100, 120, 150, 200, 250)
# plans with more rows than this many times those of labels alone are not offered
_MOST_ROWS = 20
# to save labels, a plan may have this many times the rows of labels alone
_FAIR = 2


class Needed(NamedTuple):
    """How many prompts a study needs, with options for more repeats or labels.

    Attributes:
        n_prompts: The number for the first option, which takes the fewest requests;
            with labels, for `n_labelled`.
        n_prompts_low: The same, if replies vary as little as the pilot allows (0.95);
            with labels, for the same share of labelled prompts.
        n_prompts_high: The same, if they vary as much as the pilot allows.
        n_requests: The requests for all values of the factor together.
        options: The prompts needed for each number of repeats; with labels, for each
            number of prompts with labelled replies, the last with labels alone.
        says: The plan as sentences.
        n_labelled: The number of prompts whose replies all need labels; 0 without
            labels.
    """

    n_prompts: int
    n_prompts_low: int
    n_prompts_high: int
    n_requests: int
    options: dict[int, int]
    says: str
    n_labelled: int = 0

    def __repr__(self) -> str:
        return fitted_to_terminal(to_terminal(self.says))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": sentences_html([self.says]), "text/plain": repr(self)}

    @property
    def df(self) -> pd.DataFrame:
        """The options: prompts by `n_repeats`, or with labels by `n_labelled`."""
        name = "n_labelled" if self.n_labelled else "n_repeats"
        columns = {name: list(self.options), "n_prompts": list(self.options.values())}
        return pd.DataFrame(columns, dtype="Int64")


class _Goal(NamedTuple):
    """The goal of a study: the difference to find, or to rule out, and the error rates.

    Attributes:
        difference: The difference to find or to rule out.
        is_margin: Whether the study is to rule out that a value is worse by it.
        power: The chance of success: if the difference exists, or for a margin, if
            there is none.
        tail: The chance of a false alarm on each side, corrected for the comparisons.
    """

    difference: float
    is_margin: bool
    power: float
    tail: float

    def units(self, spread: float) -> int:
        """Return how many units are enough, for this spread of their differences."""
        return units_needed(
            spread,
            self.difference,
            tail=self.tail,
            power=self.power,
            is_one_sided=self.is_margin,
        )

    def is_reached(self, parts: Parts, n_labelled: float, n_units: float) -> bool:
        """Return whether `n_units` units are enough, `n_labelled` of them labelled."""
        error = parts.error(n_labelled, n_units)
        return has_power(
            self.difference / error if error else np.inf,
            parts.freedom(n_labelled, n_units),
            tail=self.tail,
            power=self.power,
            is_one_sided=self.is_margin,
        )


class _Spread(NamedTuple):
    """The standard deviation of the units' differences, with its interval (0.95)."""

    value: float
    low: float
    high: float


def how_many(  # noqa: PLR0913 - those of the public verb
    difference: float,
    pilot: pd.DataFrame,
    factor: str | None = None,
    on: str | None = None,
    *,
    margin: bool = False,
    power: float = POWER,
    level: float = LEVEL,
    against: Any = ...,  # noqa: ANN401 - a value of the factor
    unit: Any = None,  # noqa: ANN401 - columns
    labels: str | None = None,
) -> Needed:
    """Plan a study from a pilot: see `svc.how_many`."""
    check_positive("difference", difference)
    check_flag("margin", margin)
    for name, value in (("power", power), ("level", level)):
        check_share(name, value)
    need_scipy()
    pilot = check_replies(pilot)
    if unit is not None:
        named(pilot, unit, param="unit")
        unit = as_names(unit)
    study = _study(pilot, _only_factor(pilot, factor), on, Design(unit=unit), labels)
    if difference >= study.most:
        raise ParameterError(
            f"difference={difference:g} is too large for a rate, which is from 0 to 1; "
            "give a share, such as 0.05 for 5 points.",
            param="difference",
        )
    places = pairs_of(study, against)
    pairs = [compare_pair(study, *place) for place in places]
    goal = _Goal(difference, margin, power, (1 - level) / 2 / len(pairs))
    pair = _most_different(study, pairs)
    if pair.labelled is None or pair.labelled.parts is None:
        return _plan_repeats(study, goal, pair)
    return _plan_labels(study, goal, pair, pair.labelled, pair.labelled.parts)


def _study(
    pilot: pd.DataFrame,
    factor: str,
    on: str | None,
    design: Design,
    labels: str | None,
) -> Study:
    if labels is not None:
        on = only_score(pilot) if on is None else column_of(pilot, on)
        labels = check_labels(pilot, labels, [on], design)
    return labelled_study(pilot, factor, on, design, labels)


def _plan_repeats(study: Study, goal: _Goal, pair: Pair) -> Needed:
    """Plan how many prompts are needed for each number of repeats."""
    spread = _spread(study, pair)
    per_unit = pair.n_prompts / pair.estimate.n_units
    cells = study.whole if pair.is_confounded else study.cells
    n_conditions = _n_conditions(cells, pair)
    spreads = _spreads(study.repeats(cells), spread.value, per_unit * n_conditions)

    def n_prompts(unit_spread: float) -> int:
        return round(goal.units(unit_spread) * per_unit)

    options = {repeats: n_prompts(value) for repeats, value in spreads.items()}
    repeats, n = next(iter(options.items()))
    # how much this number of repeats changes the spread, compared with the pilot's
    ratio = spreads[repeats] / spread.value
    low = min(n_prompts(ratio * spread.low), n)
    high = max(n_prompts(ratio * spread.high), n)
    n_requests = ceil(n * len(study.levels) * repeats * n_conditions)
    needed = Needed(n, low, high, n_requests, options, "")
    return needed._replace(says=_advice(study, goal, pair, needed, n_conditions))


def _plan_labels(
    study: Study, goal: _Goal, pair: Pair, labelled: Labelled, parts: Parts
) -> Needed:
    """Plan scores of all replies, and labels of some, with the pilot's repeats."""
    alone = _spread(study, compare_pair(replace(study, scored=None), *pair.levels))
    n_alone = goal.units(alone.value)
    units = dict(_combinations(goal, parts, n_alone)) | {n_alone: n_alone}
    n_labelled = next(n for n, rows in units.items() if rows <= _FAIR * n_alone)
    if n_labelled == n_alone:
        low, high = goal.units(alone.low), goal.units(alone.high)
    else:
        low, high = (
            _units_for_share(
                goal,
                parts._replace(residual_variance=end**2),
                n_labelled / units[n_labelled],
            )
            for end in _residual_spread_ends(study, labelled, parts)
        )
    by_label = labelled.n_prompts / labelled.n_units
    by_score = pair.n_prompts / labelled.n_all_units
    per_unit = {n: by_label if n == n_alone else by_score for n in units}
    n = round(units[n_labelled] * per_unit[n_labelled])
    needed = Needed(
        n_prompts=n,
        n_prompts_low=min(round(low * per_unit[n_labelled]), n),
        n_prompts_high=max(round(high * per_unit[n_labelled]), n),
        n_requests=ceil(
            n * len(study.levels) * _n_replies(study.scored or study, pair)
        ),
        options={
            round(labels * by_label): round(rows * per_unit[labels])
            for labels, rows in units.items()
        },
        says="",
        n_labelled=round(n_labelled * by_label),
    )
    return needed._replace(says=_advice_with_labels(study, goal, labelled, needed))


def _n_replies(study: Study, pair: Pair) -> float:
    """Return how many replies each value has for a prompt: repeats times conditions."""
    cells = study.whole if pair.is_confounded else study.cells
    repeats = max(round(float(np.median(study.repeats(cells).n))), 1)
    return repeats * _n_conditions(cells, pair)


def _combinations(goal: _Goal, parts: Parts, n_alone: int) -> Iterable[tuple[int, int]]:
    """Return numbers of labelled units, with the units that need scores then."""
    numbers = (size * 10**tens for tens in count() for size in _LABELLED)
    for n_labelled in takewhile(lambda n: n < n_alone, numbers):
        if parts.slope and goal.is_reached(parts, n_labelled, _MOST_ROWS * n_alone):
            is_enough = partial(goal.is_reached, parts, n_labelled)
            # never fewer units than with labels alone
            yield n_labelled, least(is_enough, n_alone - 1)


def _units_for_share(goal: _Goal, parts: Parts, share: float) -> int:
    """Return how many units are needed if this share of them has labels."""
    return least(
        lambda n: goal.is_reached(parts, share * n, n), ceil(MIN_PROMPTS / share)
    )


def _residual_spread_ends(
    study: Study, labelled: Labelled, parts: Parts
) -> tuple[float, float]:
    """Return the interval (0.95) of the standard deviation of the labels' residuals."""
    spread = float(np.sqrt(parts.residual_variance))
    is_zero = np.abs(parts.residuals) < NEGLIGIBLE
    residuals = np.where(is_zero, 0.0, parts.residuals)
    if study.most == 1 or not residuals.any():
        low, high = _spread_ends_of_few(residuals, residuals)
        variance = parts.residual_variance + parts.predicted_variance
        high *= 1.0 if study.most == 1 else float(np.sqrt(variance))
    else:
        low, high = _spread_ends(residuals, spread, labelled.n_units - 2)
    return min(low, spread), max(high, spread)


def _n_conditions(cells: Cells, pair: Pair) -> float:
    """Return the mean number of conditions in which a prompt has both values.

    A condition is a combination of the other factors.
    """
    is_used = ~np.isnan(cells.low[:, pair.levels]).any(axis=1)
    return float(is_used.sum() / len(np.unique(cells.prompt[is_used])))


def _only_factor(df: pd.DataFrame, factor: str | None) -> str:
    varied = factors(df)
    if factor is not None or len(varied) == 1:
        return factor or varied[0]
    raise ParameterError(
        "Name the factor whose values you will compare. The columns that vary in the "
        f"pilot are: {', '.join(varied) or 'none'}.",
        param="factor",
    )


def _most_different(study: Study, pairs: list[Pair]) -> Pair:
    """Return the pair whose differences vary the most: it needs the most prompts."""
    known = [pair for pair in pairs if spread_of(pair.estimate) > 0]
    if not known:
        n = max(
            pair.labelled.n_units if pair.labelled else pair.estimate.n_units
            for pair in pairs
        )
        better, labels = (10, "") if study.scored is None else (30, ", with labels,")
        raise ParameterError(
            f"The pilot needs at least {MIN_PROMPTS} {study.counted}, better {better}, "
            f"with both values of {study.factor}{labels} and with differences that "
            f"vary; it has {n}. Run a larger pilot.",
            param="pilot",
        )
    return max(known, key=lambda pair: spread_of(pair.estimate))


def _spread(study: Study, pair: Pair) -> _Spread:
    """Return the standard deviation of the units' differences, with an interval."""
    spread = spread_of(pair.estimate)
    differences = pair.figures[0].by_unit
    deviations = differences - pair.figures[0].value
    is_same = np.abs(differences) < NEGLIGIBLE
    if study.most == 1 and (is_same.mean() >= _MOSTLY or not deviations.any()):
        low, high = _spread_ends_of_few(differences, deviations)
    else:
        low, high = _spread_ends(deviations, spread, pair.estimate.freedom)
    return _Spread(spread, min(low, spread), max(high, spread))


def _spread_ends_of_few(differences: Floats, deviations: Floats) -> tuple[float, float]:
    """Return the interval of the standard deviation where most units do not differ.

    It is uncertain mainly because the share of units that differ is, and that share has
    Wilson's interval.
    """
    squares, m = differences**2, len(differences)
    largest = float(squares.max()) or 1.0
    group = np.zeros(m, dtype=np.int64)
    share = Ratios.of(squares / largest, np.ones(m), np.arange(m), group, 1).share()
    # the mean square is the variance plus the square of the mean: take the variance
    variance = float((deviations**2).sum() / squares.sum()) if squares.any() else 1.0
    low, high = (float(end[0]) * largest * variance for end in (share.low, share.high))
    return np.sqrt(low), np.sqrt(high)


def _spread_ends(
    deviations: Floats, spread: float, freedom: float
) -> tuple[float, float]:
    """Return the interval of a standard deviation by the chi-square distribution.

    There are fewer degrees of freedom if a few units differ much more than others, as
    for tokens and seconds (O'Neill 2014, Am. Stat. 68).
    """
    m = len(deviations)
    kurtosis = m * float((deviations**4).sum() / (deviations**2).sum() ** 2)
    freedom = min(freedom, 2 * m / max(kurtosis - 1, NEGLIGIBLE))
    tails = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = spread * np.sqrt(freedom / special().chdtri(freedom, tails))
    return float(low), float(high)


def _spreads(replies: Prompts, spread: float, per_unit: float) -> dict[int, float]:
    """Return the spread for each number of repeats, the fewest requests first.

    More repeats reduce only the noise within a condition. If the pilot has no repeats,
    that noise is not known, so the only option is the pilot's number of repeats.

    Args:
        replies: The values by prompt and condition.
        spread: The standard deviation of the units' differences.
        per_unit: The number of prompts of a unit times their conditions.
    """
    within, n = replies.variance, replies.n
    if np.isnan(within).all():
        return {max(round(float(np.median(n))), 1): spread}
    part = float((1 / n).mean())  # the share of the noise that the pilot's repeats left
    # the difference of two replies has twice the variance of one reply. The noise is at
    # most what `contrast` saw, so that for the pilot's own repeats both agree
    noise = min(2 * float(np.nanmean(within)) / per_unit, spread**2 / part)
    between = spread**2 - noise * part
    return {repeats: float(np.sqrt(between + noise / repeats)) for repeats in REPEATS}


def _advice(
    study: Study, goal: _Goal, pair: Pair, needed: Needed, n_conditions: float
) -> str:
    noun = "prompts" if study.design.unit else study.counted
    # of options with the same number of prompts, only the one with the fewest repeats
    saving = {round_up(n): repeats for repeats, n in reversed(needed.options.items())}
    choices = [
        f"{count_in_words(n, noun)} with {count_in_words(repeats, 'repeats')}"
        for n, repeats in reversed(saving.items())
    ]
    if study.design.unit:
        n_units = needed.n_prompts * pair.estimate.n_units / pair.n_prompts
        choices[0] += f" (of {count_in_words(round_up(ceil(n_units)), study.counted)})"
    if n_conditions > 1:
        several = "combination of " if len(study.others) > 1 else ""
        choices[-1] += f", each with every {several}{' and '.join(study.others)}"
    n_pilot = count_in_words(pair.estimate.n_units, study.counted)
    low, high = round_up(needed.n_prompts_low), round_up(needed.n_prompts_high)
    return (
        f"To {_aim(study, goal)}, you need about {' or '.join(choices)}. A pilot of "
        f"{n_pilot} knows this roughly: it may be {low:,} to {high:,}. {_new_run(noun)}"
    )


def _advice_with_labels(
    study: Study, goal: _Goal, labelled: Labelled, needed: Needed
) -> str:
    noun = "prompts" if study.design.unit else study.counted
    judge = (study.scored or study).name
    n_alone = [*needed.options][-1]
    alone = f"{count_in_words(round_up(n_alone), noun)} that all have {study.name}"
    of_prompt = labelled.n / labelled.n_prompts / 2 * len(study.levels)
    n_labels = ceil(round_up(needed.n_labelled) * of_prompt)
    labels = count_in_words(n_labels, "labels")
    if needed.n_labelled == n_alone:
        plan, share = f"{alone} ({labels}); {judge} would not save enough of them", ""
    else:
        plan = f"{count_in_words(round_up(needed.n_prompts), noun)} with {judge}, "
        plan += f"{round_up(needed.n_labelled):,} of them also with {study.name} "
        plan += f"({labels}), or {alone}"
        share = ", with as large a share of labels"
    low, high = round_up(needed.n_prompts_low), round_up(needed.n_prompts_high)
    correlation = labelled.parts.correlation if labelled.parts else 0.0
    n_pilot = count_in_words(labelled.n_units, study.counted)
    return (
        f"To {_aim(study, goal)}, you need about {plan}. The differences of both "
        f"correlate by {correlation:.2f} in the pilot. Its {n_pilot} with labels know "
        f"this roughly: it may be {low:,} to {high:,}{share}. Draw the {noun} with "
        f"labels at random. {_new_run(noun)}"
    )


def _aim(study: Study, goal: _Goal) -> str:
    size = difference_text(goal.difference, is_rate=study.is_rate)
    factor = study.factor.removesuffix(LABEL)
    if goal.is_margin:
        return (
            f"show that a value of {factor} is at most {size} worse in {study.name}, "
            f"{_often(goal.power)} if it is the same"
        )
    return (
        f"find a difference of {size} in {study.name} between values of {factor} "
        f"{_often(goal.power)}"
    )


def _new_run(noun: str) -> str:
    return (
        f"Plan a new run: to add {noun} to this one until it tells would double the "
        "false alarms."
    )


def _often(power: float) -> str:
    for n in (10, 100):
        if abs(power * n - round(power * n)) < 1e-9:  # noqa: PLR2004 - of rounding
            return f"{power * n:.0f} of {n} times"
    return f"{1000 * power:.4g} of 1,000 times"

"""How many prompts and repeats a study needs: planned from a pilot."""

from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.service.params import check_flag, check_number, must_be

from .contrast_pair import Pair, compare_pair
from .contrast_study import Cells, Design, Study, pairs_of, study_of
from .differences import POWER, spread_of, units_needed
from .reply_factors import LABEL, check_replies, factors, in_number, named
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
_MOSTLY = 0.5  # a share of the units


class Needed(NamedTuple):
    """How many prompts a study needs, and what each number of repeats would save.

    Attributes:
        n_prompts: With the first of the options, which takes the fewest requests.
        n_prompts_low: The same, if replies vary as little as the pilot allows (0.95).
        n_prompts_high: The same, if they vary as much as it allows.
        n_requests: For all values of the factor together.
        options: The prompts needed for each number of repeats.
        says: All this as a sentence.
    """

    n_prompts: int
    n_prompts_low: int
    n_prompts_high: int
    n_requests: int
    options: dict[int, int]
    says: str

    def __repr__(self) -> str:
        return self.says


class _Goal(NamedTuple):
    """What a study is to find, and how surely.

    Attributes:
        difference: What is to be found, or ruled out.
        is_margin: Whether it is ruled out that a value is so much worse.
        power: How often, if it is there, or if there is no difference at all.
        tail: How often by chance alone on each side, corrected for the comparisons.
    """

    difference: float
    is_margin: bool
    power: float
    tail: float


class _Spread(NamedTuple):
    """Standard deviation of the differences of units, and what it may really be."""

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
) -> Needed:
    """Plan a study from a pilot: see `svc.how_many`."""
    check_number("difference", difference, above=0)
    check_flag("margin", margin)
    for name, value in (("power", power), ("level", level)):
        check_number(name, value, above=0)
        if value >= 1:
            raise must_be(name, "a share < 1, such as 0.9", value)
    need_scipy("Sample sizes")
    pilot = check_replies(pilot)
    if unit is not None:
        named(pilot, unit, param="unit")
        unit = as_names(unit)
    study = study_of(pilot, _only_factor(pilot, factor), on, Design(unit=unit))
    if difference >= study.most:
        raise ParameterError(
            f"difference={difference:g} is more than a rate can differ; give a share, "
            "such as 0.05 for 5 points.",
            param="difference",
        )
    places = pairs_of(study, against)
    pairs = [compare_pair(study, *place) for place in places]
    goal = _Goal(difference, margin, power, (1 - level) / 2 / len(pairs))
    return _planned(study, goal, _most_different(study, pairs))


def _planned(study: Study, goal: _Goal, pair: Pair) -> Needed:
    spread = _spread(study, pair)
    per_unit = pair.n_prompts / pair.estimate.n_units
    cells = study.whole if pair.is_confounded else study.cells
    n_conditions = _n_conditions(cells, pair)
    spreads = _spreads(study.repeats(cells), spread.value, per_unit * n_conditions)

    def n_prompts(of_units: float) -> int:
        return round(
            units_needed(
                of_units,
                goal.difference,
                tail=goal.tail,
                power=goal.power,
                is_one_sided=goal.is_margin,
            )
            * per_unit
        )

    options = {repeats: n_prompts(of_units) for repeats, of_units in spreads.items()}
    repeats, n = next(iter(options.items()))
    first = spreads[repeats] / spread.value
    low = min(n_prompts(first * spread.low), n)
    high = max(n_prompts(first * spread.high), n)
    n_requests = ceil(n * len(study.levels) * repeats * n_conditions)
    needed = Needed(n, low, high, n_requests, options, "")
    return needed._replace(says=_advice(study, goal, pair, needed, n_conditions))


def _n_conditions(cells: Cells, pair: Pair) -> float:
    """Return with how many combinations of other factors a prompt has both values."""
    is_used = ~np.isnan(cells.low[:, pair.levels]).any(axis=1)
    return float(is_used.sum() / len(np.unique(cells.prompt[is_used])))


def _only_factor(df: pd.DataFrame, factor: str | None) -> str:
    varied = factors(df)
    if factor is not None or len(varied) == 1:
        return factor or varied[0]
    raise ParameterError(
        "factor is needed: what varies in the pilot is "
        f"{', '.join(varied) or 'nothing'}. Give the factor whose values you will "
        "compare.",
        param="factor",
    )


def _most_different(study: Study, pairs: list[Pair]) -> Pair:
    """Return the pair whose differences vary the most: it takes the most prompts."""
    known = [pair for pair in pairs if spread_of(pair.estimate) > 0]
    if not known:
        most = max(pair.estimate.n_units for pair in pairs)
        raise ParameterError(
            f"The pilot needs at least {MIN_PROMPTS} {study.counted}, better 10, with "
            f"both values of {study.factor} and different differences; it has {most}.",
            param="pilot",
        )
    return max(known, key=lambda pair: spread_of(pair.estimate))


def _spread(study: Study, pair: Pair) -> _Spread:
    """Return how much the differences of units vary, with an interval."""
    spread = spread_of(pair.estimate)
    differences = pair.figures[0].by_unit
    rest = differences - pair.figures[0].value
    is_same = np.abs(differences) < NEGLIGIBLE
    if study.most == 1 and (is_same.mean() >= _MOSTLY or not rest.any()):
        low, high = _ends_of_few(differences, rest)
    else:
        low, high = _ends_of_many(rest, spread, pair.estimate.freedom)
    return _Spread(spread, min(low, spread), max(high, spread))


def _ends_of_few(differences: Floats, rest: Floats) -> tuple[float, float]:
    """Return the ends for shares where most units do not differ.

    What varies is how many differ, which has Wilson's interval.
    """
    squares, m = differences**2, len(differences)
    largest = float(squares.max()) or 1.0
    one = np.zeros(m, dtype=np.int64)
    share = Ratios.of(squares / largest, np.ones(m), np.arange(m), one, 1).share()
    # a mean square is a variance and the square of the mean
    variance = float((rest**2).sum() / squares.sum()) if squares.any() else 1.0
    low, high = (float(end[0]) * largest * variance for end in (share.low, share.high))
    return np.sqrt(low), np.sqrt(high)


def _ends_of_many(rest: Floats, spread: float, freedom: float) -> tuple[float, float]:
    """Return the ends of a standard deviation by the chi-square distribution.

    It has fewer degrees of freedom where a few units differ much more than others, as
    for tokens and seconds (O'Neill 2014, Am. Stat. 68).
    """
    m = len(rest)
    kurtosis = m * float((rest**4).sum() / (rest**2).sum() ** 2)
    freedom = min(freedom, 2 * m / max(kurtosis - 1, NEGLIGIBLE))
    tails = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = spread * np.sqrt(freedom / special().chdtri(freedom, tails))
    return float(low), float(high)


def _spreads(replies: Prompts, spread: float, per_unit: float) -> dict[int, float]:
    """Return the spread for numbers of repeats, the fewest requests first.

    Repeats make only the noise within a condition smaller. Without repeats in the pilot
    it is not known, so the answer is for the pilot's own number.

    Args:
        replies: What each prompt got, with each combination of the other factors.
        spread: That of the units' differences.
        per_unit: How many such combinations of all its prompts a unit has.
    """
    within, n = replies.variance, replies.n
    if np.isnan(within).all():
        return {max(round(float(np.median(n))), 1): spread}
    part = float((1 / n).mean())  # of the noise, which repeats of the pilot left
    # the difference of two replies has twice the variance of one; with the pilot's own
    # repeats, the answer is that of `contrast`, also where the noise seems larger
    noise = min(2 * float(np.nanmean(within)) / per_unit, spread**2 / part)
    between = spread**2 - noise * part
    return {repeats: float(np.sqrt(between + noise / repeats)) for repeats in REPEATS}


def _advice(
    study: Study, goal: _Goal, pair: Pair, needed: Needed, n_conditions: float
) -> str:
    size = difference_text(goal.difference, is_rate=study.is_rate)
    factor = study.factor.removesuffix(LABEL)
    aim = f"find a difference of {size} in {study.name} between values of "
    aim += f"{factor} {_often(goal.power)}"
    if goal.is_margin:
        aim = f"show that a value of {factor} is at most {size} worse in "
        aim += f"{study.name}, {_often(goal.power)} if it is the same"
    what = "prompts" if study.design.unit else study.counted
    saving = {round_up(n): repeats for repeats, n in reversed(needed.options.items())}
    choices = [
        f"{in_number(n, what)} with {in_number(repeats, 'repeats')}"
        for n, repeats in reversed(saving.items())
    ]
    if study.design.unit:
        n_units = needed.n_prompts * pair.estimate.n_units / pair.n_prompts
        choices[0] += f" (of {in_number(round_up(ceil(n_units)), study.counted)})"
    if n_conditions > 1:
        several = "combination of " if len(study.others) > 1 else ""
        choices[-1] += f", each with every {several}{' and '.join(study.others)}"
    n_pilot = in_number(pair.estimate.n_units, study.counted)
    low, high = round_up(needed.n_prompts_low), round_up(needed.n_prompts_high)
    return (
        f"To {aim}: about {' or '.join(choices)}. A pilot of {n_pilot} knows this "
        f"roughly: it may be {low:,} to {high:,}. Plan a new run: to add {what} to "
        "this one until it tells would double the false alarms."
    )


def _often(power: float) -> str:
    for n in (10, 100):
        if abs(power * n - round(power * n)) < 1e-9:  # noqa: PLR2004 - of rounding
            return f"{power * n:.0f} of {n} times"
    return f"{1000 * power:.4g} of 1,000 times"

"""Compare two values of a factor, and the differences in two subgroups."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from .contrast_study import Cells, Study, shown
from .differences import (
    BoundsEstimate,
    Estimate,
    Figure,
    RatesEstimate,
    Shape,
    StudentEstimate,
    flip_tail,
    p_value,
    share_of_unit,
    shares,
)
from .missing import is_expected
from .prediction_powered import Parts, parts_of, powered
from .reply_factors import coded, has, has_flag
from .sequential import sequence_of
from .statistics import Floats, Prompts

# another factor with more values is not searched: there would be too many tests
_MOST_VALUES = 12


class Gap(NamedTuple):
    """How many replies of one level have no value.

    Attributes:
        level: The position of the level.
        n_failed: Requests that failed.
        n_cut: Replies that were cut and have no value.
        n_unscored: Other replies without a value.
        n_all: How many replies with a value there should be.
    """

    level: int
    n_failed: int
    n_cut: int
    n_unscored: int
    n_all: int


class Labelled(NamedTuple):
    """The labels that a difference of scores is corrected by.

    Attributes:
        n: The number of labels that are used.
        n_units: Units that have labels for both levels.
        n_unpaired: Labels that are not used, since the counterpart has none.
        n_prompts: Prompts that have labels for both levels.
        n_all_units: Units that have scores for both levels, with labels or not.
        weight: The weight of the scores; with 0 only the labels count.
        parts: The parts of the variance of the difference; None where two differences
            are compared.
    """

    n: int
    n_units: int
    n_unpaired: int
    n_prompts: int
    n_all_units: int
    weight: float
    parts: Parts | None = None


class Dependence(NamedTuple):
    """Another factor that the difference of two levels depends on.

    Attributes:
        factor: Its column.
        differences: The difference with each of its values.
    """

    factor: str
    differences: list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A comparison of two levels, or of their differences in two subgroups.

    Attributes:
        levels: The positions of the levels.
        groups: The positions of the subgroups: none, one or two.
        figures: The difference; or with missing="bounds" the lowest and the highest
            that is possible.
        estimate: The difference with its interval.
        n_prompts: The number of prompts in it.
        n_scored: The number of replies in it.
        n_alone: The number of prompts that have a value for only one of the levels.
        means: Of the first level and the second, or the two differences.
        costs: The mean cost of a request, for each level; NaN is not known.
        share: For rates, the `share` of `Figure.with_floor`.
        is_confounded: Whether the factor varies only together with other factors.
        gaps: The replies of each level that have no value.
        labelled: The labels that correct the difference, if there are any.
    """

    levels: tuple[int, int]
    groups: tuple[int, ...]
    figures: tuple[Figure, ...]
    estimate: Estimate
    n_prompts: int
    n_scored: int
    means: tuple[float, float]
    costs: tuple[float, float] = (np.nan, np.nan)
    share: float | None = None
    is_confounded: bool = False
    gaps: Sequence[Gap] = ()
    n_alone: int = 0
    labelled: Labelled | None = None

    @property
    def is_between_groups(self) -> bool:
        """Whether it compares the differences in two subgroups."""
        return len(self.groups) > 1

    @property
    def cost_ratio(self) -> float:
        """The cost of the first divided by that of the second; NaN if not known."""
        first, second = self.costs
        return first / second if second > 0 else np.nan


class _Side(NamedTuple):
    """One of the two levels, and the cells that are used for it."""

    level: int
    cells: Cells


def compare_pair(
    study: Study, first: int, second: int, group: int | None = None
) -> Pair:
    """Compare two levels, within each combination of the other factors if possible.

    Args:
        study: What is compared.
        first: The position of a level.
        second: The position of the level whose mean is subtracted.
        group: The position of a subgroup; all replies if None.
    """
    if study.scored is not None:
        return _corrected_pair(study, study.scored, (first, second), group)
    sides, is_confounded = _sides(study, first, second, group)
    share = _share(study, sides, is_confounded=is_confounded)
    figures = _figures(study, sides, share)
    means = tuple(
        float(np.mean([_mean(study, side, end).value for end in ("low", "high")]))
        for side in sides
    )
    prompts_of_sides = [np.unique(side.cells.prompt) for side in sides]
    n_prompts = sum(map(len, prompts_of_sides))
    return Pair(
        levels=(first, second),
        groups=() if group is None else (group,),
        figures=figures,
        estimate=_estimate(study, figures, sides, group),
        n_prompts=n_prompts // 2 if study.design.is_paired else n_prompts,
        n_scored=int(sum(side.cells.n_scored[:, side.level].sum() for side in sides)),
        means=(means[0], means[1]),
        costs=_costs(study, sides),
        share=share,
        is_confounded=is_confounded,
        gaps=_gaps(study, (first, second), group),
        n_alone=_n_alone(study, (first, second), group),
    )


def _n_alone(study: Study, levels: tuple[int, int], group: int | None) -> int:
    """Return how many prompts have a value for only one of two levels, if paired."""
    if not study.design.is_paired:
        return 0
    first, second = (
        set(study.whole.prompt[_is_used(study.whole, level, group)]) for level in levels
    )
    return len(first ^ second)


def _corrected_pair(
    study: Study, scored: Study, levels: tuple[int, int], group: int | None
) -> Pair:
    """Compare two levels by labels, made more precise by the scores of all replies."""
    all_sides, is_confounded = _sides(scored, *levels, group)
    cells, scored_cells = (
        either.whole if is_confounded else either.cells for either in (study, scored)
    )
    is_labelled = np.ones(len(cells.prompt), dtype=bool)
    for level in levels:
        is_labelled &= _is_used(cells, level, group)
        is_labelled &= _is_used(scored_cells, level, group)
    sides, scored_sides = (
        [_Side(level, all_cells.where(is_labelled)) for level in levels]
        for all_cells in (cells, scored_cells)
    )
    share = _share(study, sides, is_confounded=is_confounded)
    [labels], [of_labelled], [of_all] = (
        _figures(either, of_study, share)
        for either, of_study in (
            (study, sides),
            (scored, scored_sides),
            (scored, all_sides),
        )
    )
    figure, weight = powered(labels, of_labelled, of_all)
    means = [
        _mean(study, label, "low").value
        + weight * (_mean(scored, all_, "low") - _mean(scored, some, "low")).value
        for label, some, all_ in zip(sides, scored_sides, all_sides, strict=True)
    ]
    n_labels, n_scored = (
        int(sum(side.cells.n_scored[:, side.level].sum() for side in of_study))
        for of_study in (sides, all_sides)
    )
    n_all_labels = sum(_n_values(study, level, group) for level in levels)
    n_prompts = len(np.unique(all_sides[0].cells.prompt)) if n_labels else 0
    return Pair(
        levels=levels,
        groups=() if group is None else (group,),
        figures=(figure,),
        estimate=_between(
            study,
            (figure,),
            most=study.most,
            is_exact=study.is_rate and not weight,
        ),
        n_prompts=n_prompts,
        n_scored=n_scored,
        means=(means[0], means[1]),
        costs=_costs(scored, all_sides),
        share=share,
        is_confounded=is_confounded,
        gaps=_gaps(scored, levels, group),
        labelled=Labelled(
            n=n_labels,
            n_units=labels.n_units,
            n_unpaired=n_all_labels - n_labels,
            n_prompts=len(np.unique(sides[0].cells.prompt)),
            n_all_units=of_all.n_units,
            weight=weight,
            parts=parts_of(labels, of_labelled, of_all),
        ),
    )


def _n_values(study: Study, level: int, group: int | None) -> int:
    has_value = (study.codes["level"] == level).to_numpy() & ~np.isnan(study.values)
    if group is not None:
        has_value &= (study.codes["group"] == group).to_numpy()
    return int(has_value.sum())


def compare_groups(study: Study, first: Pair, second: Pair) -> Pair:
    """Return by how much the difference is larger in one subgroup than in another."""
    # with bounds: the lowest of the first less the highest of the second, and reverse
    figures: tuple[Figure, ...] = tuple(
        in_first - in_second
        for in_first, in_second in zip(
            first.figures, reversed(second.figures), strict=True
        )
    )
    return Pair(
        levels=first.levels,
        groups=(*first.groups, *second.groups),
        figures=figures,
        estimate=_between(study, figures, most=2 * study.most),
        n_prompts=first.n_prompts + second.n_prompts,
        n_scored=first.n_scored + second.n_scored,
        means=(first.estimate.value, second.estimate.value),
        share=first.share,
        is_confounded=first.is_confounded or second.is_confounded,
        gaps=(*first.gaps, *second.gaps),
        labelled=_sum_of_labels(first.labelled, second.labelled),
    )


def _sum_of_labels(first: Labelled | None, second: Labelled | None) -> Labelled | None:
    if first is None or second is None:
        return None
    return Labelled(
        n=first.n + second.n,
        n_units=first.n_units + second.n_units,
        n_unpaired=first.n_unpaired + second.n_unpaired,
        n_prompts=first.n_prompts + second.n_prompts,
        n_all_units=first.n_all_units + second.n_all_units,
        weight=max(first.weight, second.weight),
    )


def dependence_of(study: Study, pair: Pair, *, level: float) -> Dependence | None:
    """Return the other factor that a difference clearly depends on, if there is one.

    For each other factor, the difference is compared between each two of its values,
    over the prompts that have both. All these tests together have a chance of at most
    `1 - level` of a false alarm (Bonferroni).
    """
    is_plain = study.design.is_paired and len(pair.figures) == 1
    if not is_plain or pair.is_confounded or pair.is_between_groups or pair.labelled:
        return None
    group = pair.groups[0] if pair.groups else None
    sides, _ = _sides(study, *pair.levels, group)
    by_factor: dict[str, dict[str, Figure]] = {}
    for name in study.others:
        column = study.df[name].take(sides[0].cells.first).reset_index(drop=True)
        codes, values = coded(column)
        if len(values) > _MOST_VALUES:
            continue
        parts = {
            shown(name, value): [
                side._replace(cells=side.cells.where(codes == code)) for side in sides
            ]
            for code, value in enumerate(values)
        }
        by_factor[name] = {
            value: _figures(study, part, pair.share)[0] for value, part in parts.items()
        }
    tests = [
        (p_value(_between(study, (first - second,), most=2 * study.most)), name)
        for name, figures in by_factor.items()
        for first, second in combinations(figures.values(), 2)
    ]
    known = [test for test in tests if not np.isnan(test[0])]
    if not known or min(known)[0] * len(known) >= 1 - level:
        return None
    name = min(known)[1]
    figures = by_factor[name].items()
    return Dependence(name, [(value, figure.value) for value, figure in figures])


def _sides(
    study: Study, first: int, second: int, group: int | None
) -> tuple[list[_Side], bool]:
    """Return the cells of both levels, and whether they are confounded.

    If no cell has both levels, other factors always vary with this one. Then whole
    prompts are compared.
    """
    is_confounded = False
    cells = study.cells
    used = [_is_used(cells, level, group) for level in (first, second)]
    if study.design.is_paired:
        is_both = used[0] & used[1]
        if not is_both.any():
            cells = study.whole
            is_both = _is_used(cells, first, group) & _is_used(cells, second, group)
            is_confounded = bool(is_both.any())
        used = [is_both, is_both]
    sides = [
        _Side(level, cells.where(is_used))
        for level, is_used in zip((first, second), used, strict=True)
    ]
    return sides, is_confounded


def _is_used(cells: Cells, level: int, group: int | None) -> Any:  # noqa: ANN401 - flags
    is_used = ~np.isnan(cells.low[:, level])
    return is_used if group is None else is_used & (cells.group == group)


def _share(
    study: Study, sides: Sequence[_Side], *, is_confounded: bool
) -> float | None:
    """Return the `share` of `Figure.with_floor`, for rates."""
    if not study.is_rate:
        return None
    replies = study.repeats(study.whole if is_confounded else study.cells)
    share = float(shares(replies)[[side.level for side in sides]].mean())
    return share * _unit_variance_share(study, sides)


def _unit_variance_share(study: Study, sides: Sequence[_Side]) -> float:
    """Return the variance of a unit's mean as a share of the variance of its cells."""
    if not study.design.is_paired:  # nothing is subtracted within cells
        return float(
            np.mean(
                [
                    share_of_unit(side.cells.low[:, side.level], side.cells.unit)
                    for side in sides
                ]
            )
        )
    first, second = (side.cells.low[:, side.level] for side in sides)
    return share_of_unit(first - second, sides[0].cells.unit)


def _figures(
    study: Study, sides: Sequence[_Side], share: float | None
) -> tuple[Figure, ...]:
    """Return the difference; with missing="bounds" the lowest and highest possible."""
    first, second = sides
    ends = [("low", "high"), ("high", "low")]
    if study.design.missing != "bounds":
        ends = [("low", "low")]
    figures = [
        _mean(study, first, end) - _mean(study, second, other_end)
        for end, other_end in ends
    ]
    if share is not None:
        figures = [figure.with_floor(share) for figure in figures]
    return tuple(figures)


def _mean(study: Study, side: _Side, end: str) -> Figure:
    level, cells = side
    if study.design.weight == "replies":
        weights = cells.n[:, level].astype(float)
    else:
        _, place, n = np.unique(cells.prompt, return_inverse=True, return_counts=True)
        weights = 1 / n[place]
        if study.design.looks == "any":  # a unit is one step of the sequence
            weights /= np.bincount(cells.unit, weights)[cells.unit]
    values = getattr(cells, end)[:, level]
    return Figure.mean(values, weights, cells.unit, study.n_units)


def _estimate(
    study: Study,
    figures: tuple[Figure, ...],
    sides: Sequence[_Side],
    group: int | None,
) -> Estimate:
    """Estimate by Newcombe for rates of independent groups, else Student.

    Student's interval of rates in pairs contains 0 unless the exact test excludes it.
    """
    is_independent = all(len(figure.samples) > 1 for figure in figures)
    if not (study.is_rate and is_independent):
        shape = None
        if study.is_of_requests:
            shape = Shape.of(*(_mean(study, side, "low") for side in sides))
        return _between(
            study, figures, most=study.most, shape=shape, is_exact=study.is_rate
        )
    side_of_level = np.full(len(study.levels), -1)
    side_of_level[[side.level for side in sides]] = 0, 1
    side = side_of_level[study.codes["level"]]
    if group is not None:
        side = np.where(study.codes["group"] == group, side, -1)
    ends = [study.ends, study.ends._replace(low=study.ends.high, high=study.ends.low)]
    return _bounded(
        [
            RatesEstimate(
                _prompts(study, np.where(side == 0, low, high), side, is_used=side >= 0)
            )
            for low, high in ends[: len(figures)]
        ]
    )


def _prompts(
    study: Study,
    values: Floats,
    group: Any,  # noqa: ANN401 - codes
    *,
    is_used: Any,  # noqa: ANN401 - flags
) -> Prompts:
    """Return the values of the used replies by prompt, unit and group."""
    group = np.asarray(group)[is_used]
    prompt, unit = (
        study.codes[name].to_numpy()[is_used] for name in ("prompt", "unit")
    )
    return Prompts.of(
        values[is_used],
        prompt,
        group,
        int(group.max(initial=-1)) + 1,
        unit=unit,
        weight=study.design.weight,
    )


def _between(
    study: Study,
    figures: tuple[Figure, ...],
    *,
    most: float,
    shape: Shape | None = None,
    is_exact: bool = False,
) -> Estimate:
    if study.design.looks == "any":
        [figure] = figures
        return sequence_of(figure.by_unit, is_bounded=most <= 1)
    return _bounded(
        [
            StudentEstimate.of(
                figure,
                largest=float(np.nanmax(np.abs(study.values), initial=0.0)),
                shape=shape,
                most=most,
                exact_tail=flip_tail(figure.moves) if is_exact else 0.0,
            )
            for figure in figures
        ]
    )


def _bounded(estimates: Sequence[Estimate]) -> Estimate:
    if len(estimates) == 1:
        return estimates[0]
    return BoundsEstimate(*estimates)


def _costs(study: Study, sides: Sequence[_Side]) -> tuple[float, float]:
    """Return the mean costs; of pairs, over the cells where both costs are known."""
    costs = [side.cells.cost[:, side.level] for side in sides]
    known = [~np.isnan(cost) for cost in costs]
    if study.design.is_paired:
        known = [known[0] & known[1]] * 2
    first, second = (
        float(cost[is_known].mean()) if is_known.any() else np.nan
        for cost, is_known in zip(costs, known, strict=True)
    )
    return first, second


def _gaps(study: Study, levels: tuple[int, int], group: int | None) -> tuple[Gap, ...]:
    is_due = is_expected(study.df, study.on)
    if group is not None:
        is_due &= (study.codes["group"] == group).to_numpy()
    is_bad = is_due & np.isnan(study.values)
    if not is_bad.any():
        return ()
    is_failed = has(study.df, "status", "error")
    is_cut = has_flag(study.df, "is_cut") & ~is_failed
    gaps = []
    for level in levels:
        is_level = (study.codes["level"] == level).to_numpy()
        reasons = (is_failed, is_cut, ~(is_failed | is_cut))
        n_bad = [int((is_bad & is_level & is_reason).sum()) for is_reason in reasons]
        if any(n_bad):
            n_all = int((is_due & is_level).sum())
            gaps.append(Gap(level, n_bad[0], n_bad[1], n_bad[2], n_all))
    return tuple(gaps)

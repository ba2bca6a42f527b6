"""Compare the values of a factor in pairs: how far they differ, by chance or not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column, as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import (
    check_flag,
    check_int,
    check_positive,
    check_share,
    must_be,
)

from . import contrast_display, statistics
from .contrast_pair import Pair, compare_groups, compare_pair, dependence_of
from .contrast_sentences import Drawn, Sentence, Terms, drawn, sentence, verdict
from .contrast_study import (
    Design,
    Study,
    check_labels,
    check_share_margin,
    labelled_study,
    level_names,
    only_score,
    pairs_of,
    shown,
    subtraction,
)
from .differences import Correction, Difference, corrected, difference_of, p_value
from .flips import N_SHOWN, Flips, chosen_comparison
from .joined_runs import RUN
from .missing import Missing, check_missing, repeated_lines
from .plot import MAX_GROUPS, Plot, plot_intervals
from .reply_factors import check_replies, column_of, named, scores, setting_name
from .reply_factors import unit as unit_columns
from .run_differences import RunFacts
from .sequential import Looks
from .statistics import HOW_TO_INSTALL, LEVEL, MIN_PROMPTS, Weight
from .summary import few_prompts, say

_DTYPES: dict[str, Any] = {
    **dict.fromkeys(
        ("factor", "level", "against", "on", "verdict", "labels", "says"), "string"
    ),
    **dict.fromkeys(("n_prompts", "n_units", "n_scored", "n_labels"), "Int64"),
    "is_between_groups": "boolean",
}
# ties are listed from this many values on: of two, the sentence itself says it
_MIN_TIE_LEVELS = 3
_PER_REQUESTS = 1_000  # costs and savings are stated for so many requests
DRAWN_AT_RANDOM = (
    "This holds if the replies with labels were drawn at random. If they were chosen "
    "for what they say, or for their scores, it may be wrong."
)
OF_TWO_DIFFERENCES = (
    "A difference between two subgroups may be up to 200 points: 100 points in the one "
    "and -100 points in the other."
)
HOLDS_AT_ANY_LOOK = (
    "These intervals hold at any number of looks, so replies may be added until the "
    "answer is clear."
)
CONTRAST = tuple(
    Column(name, _DTYPES.get(name, "Float64"), name, doc)
    for name, doc in {
        "factor": "the column whose values are compared",
        "level": "a value of the factor: the one with the higher mean, or all others "
        "than against; of two runs the later one",
        "against": "the value it is compared with",
        "on": "the score, or other column",
        "is_between_groups": "whether it compares the differences of two subgroups",
        "n_prompts": "prompts that have both values",
        "n_units": "number of units the interval is over: prompts, or values of unit",
        "n_scored": "replies with a score, of both values together",
        "mean": "mean, or share, of level over these prompts",
        "mean_against": "mean, or share, of against over these prompts",
        "difference": "mean minus mean_against",
        "low": "lower end of its interval, corrected as p is",
        "high": "its upper end",
        "p": "chance of such a difference if the true one is 0, or with a margin if "
        "the true one equals the margin; corrected for the comparisons of the call",
        "smallest_difference": "the difference that would be found 8 of 10 times",
        "verdict": "with a margin: not worse than it, worse, or cannot tell",
        "cost_ratio": "mean cost of a request of level, divided by that of against",
        "saved_per_1000": "how much less 1,000 requests of level cost",
        "mistakes_per_1000": "how much more the mistakes of 1,000 replies cost",
        "labels": "the labels that correct the scores, if there are any",
        "n_labels": "number of labels",
        "score_weight": "weight of the scores; with 0 only the labels count",
        "says": "the comparison as a sentence",
    }.items()
)
"""The columns of `contrast_df`."""


class Tie(NamedTuple):
    """Values of a factor of which no two can be told apart.

    Attributes:
        factor: The column.
        on: The score.
        group: The subgroup in words; empty without subgroups.
        names: What the values are called, in the order of their means.
    """

    factor: str
    on: str
    group: str
    names: tuple[str, ...]


class _Row(NamedTuple):
    """One comparison, and the null: the difference that p tests against."""

    study: Study
    pair: Pair
    null: float

    @property
    def on(self) -> str:
        """The column that was compared; with labels, the scores that they correct."""
        return (self.study.scored or self.study).on


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The comparisons of values of factors: shown in a cell, and a frame in `df`.

    A cell shows sentences, a chart (a filled point is clear), ties, costs, and flips.

    Attributes:
        df: One row for each comparison, as `contrast_df` returns.
        says: A sentence for each comparison, with its caveats.
        notes: Remarks that apply to all comparisons.
        replies: The frame of replies that was compared.
        factors: The columns whose values were compared.
        scores: The columns that were measured, such as scores.
        by: The columns of the subgroups.
        overall: The comparisons over all subgroups, if there are any.
        unit: The columns that say which replies belong together.
        pair_by: The columns that replies are paired by.
        margin: The difference that would not matter, if one was given.
        level: The level of the intervals.
        correct: How the comparisons of the call are corrected together.
        missing: How replies without a value are treated.
        tied: Sets of values of which no two can be told apart, of three or more.
        drawn: The numbers that the chart shows of each comparison.
        sentences: The sentences in parts; a cell says once what applies to all.
        looks: `any` if the intervals hold at any number of looks.
        is_first_look: False if the run was compared before it was complete.
        labels: The column of the labels that scores are corrected by, if there is one.

    Example:
        >>> differences = run.contrast("model", on="right").df["difference"]
    """

    df: pd.DataFrame = field(repr=False)
    says: list[str]
    notes: list[str]
    replies: pd.DataFrame = field(repr=False)
    factors: list[str]
    scores: list[str]
    by: list[str]
    unit: list[str]
    pair_by: list[str]
    margin: float | None
    level: float
    correct: str | None
    missing: Missing
    tied: list[Tie]
    drawn: list[Drawn] = field(repr=False)
    sentences: list[Sentence] = field(repr=False)
    looks: Looks = "one"
    is_first_look: bool = True
    labels: str | None = None
    overall: "Contrast | None" = field(default=None, repr=False)

    def flips(
        self,
        level: object = ...,
        against: object = ...,
        *,
        factor: str | None = None,
        on: str | None = None,
        n: int = N_SHOWN,
    ) -> Flips:
        """Find the rows that only one of two values gets right.

        Args:
            level: One of the values; None is the value "not sent".
            against: The other value. If arguments are left out, the comparison with the
                clearest difference among those that match is used.
            factor: The column, if several were compared.
            on: The score, if there are several. For a score that is not a rate, these
                are the rows where it differs.
            n: How many rows are shown in each direction.

        Returns:
            How many rows only the one and only the other value gets right, with the
            first of them side by side; `df` has all of them.

        Raises:
            ParameterError: These values were not compared.

        Example:
            >>> rows = run.contrast("model", on="right").flips().df
        """
        check_int("n", n, minimum=0)
        wanted = (level, against)
        row = chosen_comparison(self.df, wanted, {"factor": factor, "on": on})
        return contrast_display.flips_of(self, row, n)

    def plot(self, *, width: int = 480) -> Plot:
        """Draw the differences with their intervals, and the margin as a band.

        Args:
            width: The width of the chart in pixels.

        Returns:
            A chart like that of `svc.plot`.

        Raises:
            ConfigError: Altair is missing; the message names the command.
        """
        charts = contrast_display.charts(self, n_most=MAX_GROUPS)
        return plot_intervals(charts, width=width)

    def __repr__(self) -> str:
        return contrast_display.text(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": contrast_display.html(self), "text/plain": repr(self)}


def contrast(  # noqa: PLR0913 - a study is described in many words
    df: pd.DataFrame,
    factor: str | Sequence[str],
    on: str | Sequence[str] | None = None,
    *,
    against: Any = ...,  # noqa: ANN401 - a value of the factor
    by: str | Sequence[str] | None = None,
    unit: str | Sequence[str] | None = None,
    weight: Weight = "prompts",
    missing: Missing = "drop",
    paired: bool = True,
    pair_by: str | Sequence[str] | None = None,
    margin: float | None = None,
    mistake_costs: float | None = None,
    level: float = LEVEL,
    correct: Correction | None = "holm",
    looks: Looks = "one",
    labels: str | None = None,
    facts: Mapping[str, RunFacts] = MappingProxyType({}),
) -> Contrast:
    """Compare the values of factors in pairs: see `svc.contrast`.

    `facts` are those of runs that are compared, by name.
    """
    df = check_replies(df)
    design = _design(
        df,
        by=by,
        unit=unit,
        weight=weight,
        missing=missing,
        paired=paired,
        pair_by=pair_by,
        looks=looks,
    )
    design = replace(design, facts=facts)
    terms = Terms(
        level=level, correct=correct, margin=margin, mistake_costs=mistake_costs
    )
    _check_terms(terms, against)
    columns, measures = _factors(df, factor), _scores(df, on)
    if labels is not None:
        labels = check_labels(df, labels, measures, design)
    values = _against(columns, against)

    def compared(design: Design) -> Contrast:
        rows = [
            row
            for column in columns
            for measure in measures
            for row in _rows(
                labelled_study(df, column, measure, design, labels),
                values.get(column, ...),
                terms,
            )
        ]
        return _compared(df, columns, rows, design, terms, labels)

    if not design.by:
        return compared(design)
    return replace(compared(design), overall=compared(replace(design, by=())))


def _compared(
    df: pd.DataFrame,
    columns: list[str],
    rows: list[_Row],
    design: Design,
    terms: Terms,
    labels: str | None,
) -> Contrast:
    """Correct the comparisons together, and put them into words."""
    level = terms.level
    p = np.array([p_value(row.pair.estimate, row.null) for row in rows])
    terms = replace(terms, n_family=int((~np.isnan(p)).sum()))
    p, tails = corrected(p, level=level, correct=terms.correct)
    differences = [
        difference_of(row.pair.estimate, tail=tail, p=float(of_row))
        for row, of_row, tail in zip(rows, p, tails, strict=True)
    ]
    sentences = [
        sentence(
            study,
            pair,
            difference,
            terms,
            dependence_of(study, pair, level=level),
        )
        for (study, pair, _), difference in zip(rows, differences, strict=True)
    ]
    says = [result.text() for result in sentences]
    tied = list(_ties(rows, differences, level)) if terms.margin is None else []
    pair_columns = list(design.pair_by or unit_columns(df))
    return Contrast(
        df=_frame(rows, differences, terms, says),
        says=says,
        sentences=sentences,
        notes=[
            *repeated_lines(df),
            *_interval_notes(rows, differences, design.looks, labels),
            *_tied_lines(tied),
        ],
        replies=df,
        factors=columns,
        scores=list(dict.fromkeys(row.on for row in rows)),
        by=list(design.by),
        unit=list(design.unit or pair_columns),
        pair_by=pair_columns,
        margin=terms.margin,
        level=level,
        correct=terms.correct,
        missing=design.missing,
        tied=tied,
        drawn=[
            drawn(row.study, row.pair, difference)
            for row, difference in zip(rows, differences, strict=True)
        ],
        looks=design.looks,
        labels=labels,
    )


def contrast_df(
    df: pd.DataFrame,
    factor: str | Sequence[str],
    on: str | Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401 - those of `contrast`
) -> pd.DataFrame:
    """Return the frame of `contrast`, and write its notes."""
    compared = contrast(df, factor, on, **options)
    say(compared.notes)
    return compared.df


def _design(  # noqa: PLR0913 - the fields of a design
    df: pd.DataFrame,
    *,
    by: Any,  # noqa: ANN401 - columns
    unit: Any,  # noqa: ANN401 - columns
    weight: Any,  # noqa: ANN401 - checked here
    missing: Any,  # noqa: ANN401 - checked here
    paired: Any,  # noqa: ANN401 - checked here
    pair_by: Any,  # noqa: ANN401 - columns
    looks: Any,  # noqa: ANN401 - checked here
) -> Design:
    check_flag("paired", paired)
    if weight not in get_args(Weight):
        raise must_be("weight", "'prompts' or 'replies'", weight)
    by = [] if by is None else named(df, by)
    if taken := [name for name in by if name in {column.name for column in CONTRAST}]:
        raise ParameterError(
            f"by={taken[0]!r} is a column of the result; give the column another name.",
            param="by",
        )
    if looks not in get_args(Looks):
        raise must_be("looks", "'one' or 'any'", looks)
    if looks == "any":
        _check_any_look(by, is_paired=paired, weight=weight, missing=missing)
    return Design(
        by=by,
        unit=None if unit is None else _columns(df, unit, "unit"),
        pair_by=None if pair_by is None else _columns(df, pair_by, "pair_by"),
        is_paired=paired,
        weight=weight,
        missing=check_missing(missing),
        looks=looks,
    )


def _check_any_look(by: Any, *, is_paired: bool, weight: Weight, missing: Any) -> None:  # noqa: ANN401 - columns, and checked later
    """Refuse options for which there is no interval that holds at any look."""
    unfit = {
        "by": bool(by),
        "paired": not is_paired,
        "weight": weight != "prompts",
        "missing": missing == "bounds",
    }
    for name, is_unfit in unfit.items():
        if is_unfit:
            raise ParameterError(
                "looks='any' works only for pairs of single values, with each unit "
                f"counting the same; leave {name} out, or leave looks out and look "
                "only once, at the end.",
                param=name,
            )


def _columns(df: pd.DataFrame, names: Any, param: str) -> list[str]:  # noqa: ANN401 - columns
    """Return columns that exist under their own names.

    `named` alone would replace a factor by the column of its labels.
    """
    named(df, names, param=param)
    return list(dict.fromkeys(map(str, as_names(names))))


def _check_terms(terms: Terms, against: Any) -> None:  # noqa: ANN401 - a value
    if terms.margin is not None:
        check_positive("margin", terms.margin)
        if against is ...:
            raise ParameterError(
                "margin says how much worse the others may be than one value; name "
                "that value, such as against='old'.",
                param="against",
            )
    if terms.mistake_costs is not None:
        check_positive("mistake_costs", terms.mistake_costs)
    check_share("level", terms.level)
    if terms.correct not in (None, *get_args(Correction)):
        raise must_be("correct", "'holm', 'bonferroni' or None", terms.correct)


def _factors(df: pd.DataFrame, factor: Any) -> list[str]:  # noqa: ANN401 - names
    columns = named(df, factor, param="factor")
    if not columns:
        raise ParameterError(
            "factor must name a column, such as 'model', or several.", param="factor"
        )
    return columns


def _scores(df: pd.DataFrame, on: Any) -> list[str]:  # noqa: ANN401 - names
    """Return the columns to compare on; a pattern such as `field_*` means scores."""
    if on is None:
        return [only_score(df)]
    columns: list[str] = []
    for name in as_names(on):
        is_pattern = isinstance(name, str) and "*" in name
        columns += _matching_scores(df, name) if is_pattern else [column_of(df, name)]
    return list(dict.fromkeys(columns))


def _matching_scores(df: pd.DataFrame, pattern: str) -> list[str]:
    matching = [
        name
        for name in scores(df)
        if fnmatchcase(name.removeprefix(PREFIX), pattern)
        and pd.api.types.is_numeric_dtype(df[name].dtype)
    ]
    if not matching:
        known = ", ".join(name.removeprefix(PREFIX) for name in scores(df))
        raise ParameterError(
            f"on={pattern!r} matches no numeric score; the scores are "
            f"{known or 'none'}.",
            param="on",
        )
    return matching


def _against(columns: list[str], against: Any) -> dict[str, Any]:  # noqa: ANN401 - a value
    """Return, by factor, the value that the others are compared with."""
    if isinstance(against, Mapping):
        if unknown := [name for name in against if name not in columns]:
            raise ParameterError(
                f"against has a value for {unknown[0]}, which is not compared. Give "
                f"values for factors that are compared: {', '.join(columns)}.",
                param="against",
            )
        return dict(against)
    if against is not ... and len(columns) > 1:
        raise ParameterError(
            "With several factors, against must be a dict with the value for each "
            f"factor: against={{{columns[0]!r}: ...}}.",
            param="against",
        )
    return {columns[0]: against}


def _rows(study: Study, against: Any, terms: Terms) -> Iterable[_Row]:  # noqa: ANN401 - a value
    """Compare each pair; with subgroups in each, and then between each two of them."""
    _check_measure(study, terms)
    null = 0.0
    if terms.margin is not None:
        null = terms.margin if study.is_of_requests else -terms.margin
    is_stated = against is not ... or study.factor == RUN
    for levels in pairs_of(study, against):
        pairs = _directed(study, levels, is_stated=is_stated)
        yield from (_Row(study, pair, null) for pair in pairs)
        known = (pair for pair in pairs if pair.groups and pair.n_prompts)
        for two_groups in combinations(known, 2):
            yield _Row(study, _larger_first(study, *two_groups), 0.0)


def _directed(
    study: Study, levels: tuple[int, int], *, is_stated: bool
) -> Sequence[Pair]:
    """Compare two levels, in each subgroup if there are any, in one direction.

    The level with the higher mean comes first, unless `against` names the second one;
    a later run comes before an earlier one. This is the only place that decides the
    direction: the sentence, the chart and the frame follow the pair.
    """
    groups = [None] if study.groups.empty else range(len(study.groups))
    first, second = levels
    pairs = [compare_pair(study, first, second, group) for group in groups]
    is_negative = np.nansum([pair.estimate.value for pair in pairs]) < 0
    if is_stated or not is_negative:
        return pairs
    return [compare_pair(study, second, first, group) for group in groups]


def _larger_first(study: Study, first: Pair, second: Pair) -> Pair:
    """Compare the differences in two subgroups, so that the result is not negative."""
    between = compare_groups(study, second, first)
    is_negative = between.estimate.value < 0
    return compare_groups(study, first, second) if is_negative else between


def _check_measure(study: Study, terms: Terms) -> None:
    is_share = np.isfinite(study.most)
    check_share_margin(terms.margin, is_share=bool(is_share))
    if terms.mistake_costs is not None and not is_share:
        raise ParameterError(
            f"mistake_costs needs a score of right and wrong, but {study.name} has "
            "other values. Leave mistake_costs out, or name another score in on.",
            param="mistake_costs",
        )


def _frame(
    rows: Sequence[_Row],
    differences: Sequence[Difference],
    terms: Terms,
    says: Sequence[str],
) -> pd.DataFrame:
    numbers = [
        _numbers(row, difference, terms)
        for row, difference in zip(rows, differences, strict=True)
    ]
    by = rows[0].study.design.by
    columns: dict[str, Any] = {
        "factor": [row.study.factor for row in rows],
        "on": [row.on.removeprefix(PREFIX) for row in rows],
        **{name: [_group_value(row, name) for row in rows] for name in by},
        **{name: [of_row[name] for of_row in numbers] for name in numbers[0]},
        "says": list(says),
    }
    dtypes = _DTYPES | dict.fromkeys(by, "string")
    frame = pd.DataFrame(
        {
            name: pd.array(values, dtype=dtypes.get(name, "Float64"))
            for name, values in columns.items()
        }
    )
    frame.insert(1, "level", _levels(rows, 0))
    frame.insert(2, "against", _levels(rows, 1))
    return frame


def _labels_of(study: Study) -> Any:  # noqa: ANN401 - a text, or missing
    return pd.NA if study.scored is None else study.on.removeprefix(PREFIX)


def _levels(rows: Sequence[_Row], place: int) -> Any:  # noqa: ANN401 - an array
    """Return the levels of each row; as texts if they are of several dtypes."""
    values = [row.study.levels.take([row.pair.levels[place]]) for row in rows]
    if len({value.dtype for value in values}) == 1:
        return pd.concat([pd.Series(value) for value in values]).array
    texts = [
        pd.NA if pd.isna(value[0]) else shown(row.study.factor, value[0])
        for row, value in zip(rows, values, strict=True)
    ]
    return pd.array(texts, dtype="string")


def _group_value(row: _Row, name: str) -> str:
    """Return the value of a subgroup, or of two, such as "Thai minus English"."""
    values = row.study.groups[name].array.take(list(row.pair.groups))
    return subtraction(dict.fromkeys(shown(name, value) for value in values))


def _numbers(row: _Row, difference: Difference, terms: Terms) -> dict[str, Any]:
    study, pair, _ = row
    mistakes = np.nan
    if terms.mistake_costs is not None and not pair.is_between_groups:
        mistakes = -_PER_REQUESTS * terms.mistake_costs * difference.value
    return {
        "is_between_groups": pair.is_between_groups,
        "n_prompts": pair.n_prompts,
        "n_units": pair.estimate.n_units,
        "n_scored": pair.n_scored,
        "mean": pair.means[0],
        "mean_against": pair.means[1],
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "smallest_difference": difference.smallest,
        "verdict": verdict(study, pair, difference, terms),
        "cost_ratio": pair.cost_ratio,
        "saved_per_1000": _PER_REQUESTS * (pair.costs[1] - pair.costs[0]),
        "mistakes_per_1000": mistakes,
        "labels": _labels_of(study),
        "n_labels": None if pair.labelled is None else pair.labelled.n,
        "score_weight": None if pair.labelled is None else pair.labelled.weight,
    }


def _ties(
    rows: Sequence[_Row], differences: Sequence[Difference], level: float
) -> Iterable[Tie]:
    """Return the largest sets of values of which no two can be told apart."""
    by_study: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for number, (study, pair, _) in enumerate(rows):
        if not pair.is_between_groups and len(study.levels) >= _MIN_TIE_LEVELS:
            by_study.setdefault((id(study), pair.groups), []).append(number)
    for numbers in by_study.values():
        pairs = [
            rows[number].pair.levels
            for number in numbers
            # "not <" since p is NaN where nothing is known: that is a tie, too
            if rows[number].pair.n_prompts and not differences[number].p < 1 - level
        ]
        row = rows[numbers[0]]
        means = _level_means(rows[number].pair for number in numbers)
        names = level_names(row.study)
        group = setting_name(_group_value(row, name) for name in row.study.design.by)
        for tied in _tied_sets(pairs):
            order = sorted(tied, key=means.__getitem__, reverse=True)
            yield Tie(row.study.factor, row.on, group, tuple(names[n] for n in order))


def _tied_sets(pairs: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Return the largest sets of values in which each two are one of the pairs."""
    neighbours: dict[int, set[int]] = {}
    for first, second in pairs:
        neighbours.setdefault(first, set()).add(second)
        neighbours.setdefault(second, set()).add(first)
    if not neighbours:
        return []
    return list(_cliques(set(), set(neighbours), set(), neighbours))


def _cliques(
    clique: set[int],
    candidates: set[int],
    excluded: set[int],
    neighbours: Mapping[int, set[int]],
) -> Iterable[set[int]]:
    """Return the maximal cliques of a graph (Bron and Kerbosch 1973)."""
    if not candidates and not excluded:
        yield clique
    while candidates:
        node = min(candidates)
        near = neighbours[node]
        yield from _cliques(
            clique | {node}, candidates & near, excluded & near, neighbours
        )
        candidates, excluded = candidates - {node}, excluded | {node}


def _level_means(pairs: Iterable[Pair]) -> dict[int, float]:
    """Return the mean of each level, over all its comparisons."""
    means: dict[int, list[float]] = {}
    for pair in pairs:
        for number, mean in zip(pair.levels, pair.means, strict=True):
            means.setdefault(number, []).append(mean)
    return {number: float(np.nanmean(known)) for number, known in means.items()}


def _tied_lines(tied: Sequence[Tie]) -> Iterable[str]:
    is_one = len({(tie.factor, tie.on) for tie in tied}) == 1
    for tie in tied:
        where = "" if is_one else f" in {tie.on.removeprefix(PREFIX)}"
        where += f" with {tie.group}" if tie.group else ""
        values = f"{', '.join(tie.names[:-1])} and {tie.names[-1]}"
        yield f"Tied{where}: {values} cannot be told apart."


def _interval_notes(
    rows: Sequence[_Row],
    differences: Sequence[Difference],
    looks: Looks,
    labels: str | None,
) -> Iterable[str]:
    """Return notes on the kind of the intervals, or why there are none."""
    if labels is not None:
        yield DRAWN_AT_RANDOM
    if looks == "any":
        yield HOLDS_AT_ANY_LOOK
        return
    if statistics.special() is None:
        yield f"low, high and p {HOW_TO_INSTALL}."
    few = [row for row in rows if 0 < row.pair.estimate.n_units < MIN_PROMPTS]
    if n := len(few):
        yield few_prompts(count_in_words(n, "comparisons"), few[0].study.counted)
    if any(
        row.pair.is_between_groups and row.study.is_rate and max(-low, high) > 1
        for row, (_, low, high, *_) in zip(rows, differences, strict=True)
    ):
        yield OF_TWO_DIFFERENCES

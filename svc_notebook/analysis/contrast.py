"""Which value of a factor is better, by how much, and whether that is chance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column, as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import check_flag, check_int, check_number, must_be

from . import contrast_display, statistics
from .contrast_pair import Pair, compare_groups, compare_pair, dependence_of
from .contrast_sentences import Drawn, Said, drawn, sentence, verdict
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
)
from .differences import Correction, Difference, concluded, corrected, p_value
from .flips import Flips, chosen_comparison
from .missing import Missing, check_missing, repeated_lines
from .plot import MAX_GROUPS, Plot, plot_intervals
from .reply_factors import check_replies, column_of, named, scores
from .reply_factors import unit as unit_columns
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
_MANY = 3  # values; that two of two cannot be told apart is in their sentence
_PER = 1_000
DRAWN_AT_RANDOM = (
    "This holds if the replies with labels were drawn at random. If they were chosen "
    "for what they say, or for their scores, it may be wrong."
)
HOLDS_AT_ANY_LOOK = (
    "These intervals hold however often one looks: replies may be added until it is "
    "clear."
)
CONTRAST = tuple(
    Column(name, _DTYPES.get(name, "Float64"), name, doc)
    for name, doc in {
        "factor": "what is compared",
        "level": "a value of the factor",
        "against": "the value it is compared with",
        "on": "the score, or other column",
        "is_between_groups": "of the differences in two subgroups, how far they differ",
        "n_prompts": "prompts that have both",
        "n_units": "what the interval is over: the prompts, or what unit names",
        "n_scored": "replies of both with a value",
        "mean": "mean, or share, of the level over these prompts",
        "mean_against": "that of the other",
        "difference": "the first less the second",
        "low": "lower end of its interval, corrected as p is",
        "high": "its upper end",
        "p": "chance of such a difference if there is none, or with a margin if it is "
        "just that; corrected for the rows of the call",
        "smallest_difference": "what would have been found 8 of 10 times",
        "verdict": "with a margin: not worse than it, worse, or cannot tell",
        "cost_ratio": "cost of a request, by that of the other",
        "saved_per_1000": "what 1,000 requests cost less than those of the other",
        "mistakes_per_1000": "what the mistakes of 1,000 replies cost more",
        "labels": "the labels that scores are corrected by, if there are any",
        "n_labels": "how many labels",
        "score_weight": "how much the scores count; with 0 the labels are alone",
        "says": "all this as a sentence",
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
    """A comparison of a study, and the difference that p is the chance of."""

    study: Study
    pair: Pair
    null: float

    @property
    def on(self) -> str:
        """The column that was compared: of scores, if labels correct them."""
        return (self.study.scored or self.study).on


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Values of factors, compared in pairs: to be read, and a frame to go on with.

    Shown in a cell it is a sentence for each comparison, the differences with their
    intervals (a filled point is clear, a hollow one is not), what is tied, what
    requests cost, and the first rows that only one of two values gets right.

    Attributes:
        df: One row for each comparison, as `contrast_df` returns.
        says: A sentence for each comparison, with its caveats.
        notes: What holds for all of them.
        replies: The frame of replies that was compared.
        factors: The columns that were compared.
        scores: The columns that they were compared on.
        by: The columns of the subgroups.
        unit: The columns that say which replies belong together.
        pair_by: The columns that replies are paired by.
        margin: The difference that would not matter, if one was given.
        level: The level of the intervals.
        correct: How the comparisons of the call are corrected together.
        missing: What becomes of replies without a value.
        tied: Sets of values of which no two can be told apart, if there are three
            values or more.
        drawn: What is drawn of each comparison, in the direction of its sentence.
        looks: `any` if the intervals hold however often one looks.
        labels: The column of the labels that scores are corrected by, if there is one.

    Example:
        >>> compared = run.contrast("model", on="right")
        >>> differences = compared.df["difference"]
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
    looks: Looks = "one"
    labels: str | None = None

    def flips(
        self,
        level: object = ...,
        against: object = ...,
        *,
        factor: str | None = None,
        on: str | None = None,
        n: int = 3,
    ) -> Flips:
        """Find the rows that only one of two values gets right.

        Args:
            level: One of the values; None is the one that is not sent.
            against: The other one. Of what is left open, the two are taken whose
                difference is the clearest.
            factor: What is compared, if there are several.
            on: The score, if there are several; of one that is no rate, the rows are
                found where it differs.
            n: How many rows are shown each way.

        Returns:
            How many rows only one of the two gets right, each way, with the first ones
            side by side; `df` has them all.

        Raises:
            ParameterError: These values were not compared.

        Example:
            >>> rows = run.contrast("model", on="right").flips().df
        """
        check_int("n", n, minimum=0)
        wanted = (level, against)
        row = chosen_comparison(self.df, wanted, {"factor": factor, "on": on})
        return contrast_display.flips_of(self, row, n)

    def plot(self, *, width: int = 340) -> Plot:
        """Draw the differences with their intervals, and the margin as a band.

        Args:
            width: In pixels.

        Returns:
            A chart, as of `svc.plot`.

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
) -> Contrast:
    """Compare the values of factors in pairs: see `svc.contrast`."""
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
    said = Said(
        level=level, correct=correct, margin=margin, mistake_costs=mistake_costs
    )
    _check_said(said, against)
    columns, measures = _factors(df, factor), _scores(df, on)
    if labels is not None:
        labels = check_labels(df, labels, measures, design)
    values = _against(columns, against)
    rows = [
        row
        for column in columns
        for measure in measures
        for row in _rows(
            labelled_study(df, column, measure, design, labels),
            values.get(column, ...),
            said,
        )
    ]
    p = np.array([p_value(row.pair.estimate, row.null) for row in rows])
    said = replace(said, n_family=int((~np.isnan(p)).sum()))
    p, tails = corrected(p, level=level, correct=correct)
    differences = [
        concluded(row.pair.estimate, tail=tail, p=float(of_row))
        for row, of_row, tail in zip(rows, p, tails, strict=True)
    ]
    says = [
        sentence(
            study,
            pair,
            difference,
            said,
            dependence_of(study, pair, level=level),
        )
        for (study, pair, _), difference in zip(rows, differences, strict=True)
    ]
    tied = list(_ties(rows, differences, level)) if margin is None else []
    pair_columns = list(design.pair_by or unit_columns(df))
    return Contrast(
        df=_frame(rows, differences, said, says),
        says=says,
        notes=[*repeated_lines(df), *_lines(rows, looks, labels), *_tied_lines(tied)],
        replies=df,
        factors=columns,
        scores=list(dict.fromkeys(row.on for row in rows)),
        by=list(design.by),
        unit=list(design.unit or pair_columns),
        pair_by=pair_columns,
        margin=margin,
        level=level,
        correct=correct,
        missing=missing,
        tied=tied,
        drawn=[
            drawn(row.study, row.pair, difference, said)
            for row, difference in zip(rows, differences, strict=True)
        ],
        looks=looks,
        labels=labels,
    )


def contrast_df(
    df: pd.DataFrame,
    factor: str | Sequence[str],
    on: str | Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401 - those of `contrast`
) -> pd.DataFrame:
    """Return the frame of `contrast`; what holds for all its rows goes to stderr."""
    compared = contrast(df, factor, on, **options)
    say(compared.notes)
    return compared.df


def _design(  # noqa: PLR0913 - all that belongs to it
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
    if taken := [name for name in by if name in {one.name for one in CONTRAST}]:
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
    """Refuse what has no interval that may be looked at again and again."""
    unfit = {
        "by": bool(by),
        "paired": not is_paired,
        "weight": weight != "prompts",
        "missing": missing == "bounds",
    }
    for name, is_unfit in unfit.items():
        if is_unfit:
            raise ParameterError(
                "looks='any' has intervals for pairs of single values, each unit "
                f"counting the same; leave {name} out, or leave looks out and look "
                "once, at the end.",
                param=name,
            )


def _columns(df: pd.DataFrame, names: Any, param: str) -> list[str]:  # noqa: ANN401 - columns
    """Return columns that exist, as they are called: no label replaces its factor."""
    named(df, names, param=param)
    return list(dict.fromkeys(map(str, as_names(names))))


def _check_said(said: Said, against: Any) -> None:  # noqa: ANN401 - a value
    if said.margin is not None:
        check_number("margin", said.margin, above=0)
        if against is ...:
            raise ParameterError(
                "margin says how much worse a value may be, so it needs the value that "
                "the others are compared with, such as against='old'.",
                param="against",
            )
    if said.mistake_costs is not None:
        check_number("mistake_costs", said.mistake_costs, above=0)
    check_number("level", said.level, above=0)
    if said.level >= 1:
        raise must_be("level", "a share < 1, such as 0.95", said.level)
    if said.correct not in (None, *get_args(Correction)):
        raise must_be("correct", "'holm', 'bonferroni' or None", said.correct)


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
        columns += _fitting(df, name) if is_pattern else [column_of(df, name)]
    return list(dict.fromkeys(columns))


def _fitting(df: pd.DataFrame, pattern: str) -> list[str]:
    fitting = [
        name
        for name in scores(df)
        if fnmatchcase(name.removeprefix(PREFIX), pattern)
        and pd.api.types.is_numeric_dtype(df[name].dtype)
    ]
    if not fitting:
        known = ", ".join(name.removeprefix(PREFIX) for name in scores(df))
        raise ParameterError(
            f"on={pattern!r} fits no score of numbers; the scores are "
            f"{known or 'none'}.",
            param="on",
        )
    return fitting


def _against(columns: list[str], against: Any) -> dict[str, Any]:  # noqa: ANN401 - a value
    """Return the value that the others are compared with, by factor."""
    if isinstance(against, Mapping):
        if unknown := [name for name in against if name not in columns]:
            raise ParameterError(
                f"against has a value for {unknown[0]}, which is not compared. What is "
                f"compared is {', '.join(columns)}.",
                param="against",
            )
        return dict(against)
    if against is not ... and len(columns) > 1:
        raise ParameterError(
            "With several factors, against has a value for each: "
            f"against={{{columns[0]!r}: ...}}.",
            param="against",
        )
    return {columns[0]: against}


def _rows(study: Study, against: Any, said: Said) -> Iterable[_Row]:  # noqa: ANN401 - a value
    """Compare each pair; in each subgroup, and then between each two of them."""
    _check_measure(study, said)
    null = 0.0
    if said.margin is not None:
        null = said.margin if study.is_of_requests else -said.margin
    for pair in pairs_of(study, against):
        if study.groups.empty:
            yield _Row(study, compare_pair(study, *pair), null)
            continue
        by_group = [
            compare_pair(study, *pair, group) for group in range(len(study.groups))
        ]
        yield from (_Row(study, one, null) for one in by_group)
        known = (one for one in by_group if one.n_prompts)
        for one, other in combinations(known, 2):
            yield _Row(study, compare_groups(study, other, one), 0.0)


def _check_measure(study: Study, said: Said) -> None:
    is_share = np.isfinite(study.most)
    check_share_margin(said.margin, is_share=bool(is_share))
    if said.mistake_costs is not None and not is_share:
        raise ParameterError(
            f"mistake_costs needs a score of right and wrong, and {study.name} has "
            "other values.",
            param="mistake_costs",
        )


def _frame(
    rows: Sequence[_Row],
    differences: Sequence[Difference],
    said: Said,
    says: Sequence[str],
) -> pd.DataFrame:
    numbers = [
        _numbers(row, difference, said)
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
    """Return values of the factors; as texts if the factors are of several kinds."""
    values = [row.study.levels.take([row.pair.levels[place]]) for row in rows]
    if len({value.dtype for value in values}) == 1:
        return pd.concat([pd.Series(value) for value in values]).array
    texts = [
        pd.NA if pd.isna(value[0]) else shown(row.study.factor, value[0])
        for row, value in zip(rows, values, strict=True)
    ]
    return pd.array(texts, dtype="string")


def _group_value(row: _Row, name: str) -> str:
    """Return the value of a subgroup, or what is compared with what."""
    values = row.study.groups[name].array.take(list(row.pair.groups))
    return " less ".join(dict.fromkeys(shown(name, value) for value in values))


def _numbers(row: _Row, difference: Difference, said: Said) -> dict[str, Any]:
    study, pair, _ = row
    mistakes = np.nan
    if said.mistake_costs is not None and not pair.is_between_groups:
        mistakes = -_PER * said.mistake_costs * difference.value
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
        "verdict": verdict(study, pair, difference, said),
        "cost_ratio": pair.cost_ratio,
        "saved_per_1000": _PER * (pair.costs[1] - pair.costs[0]),
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
    for at, (study, pair, _) in enumerate(rows):
        if not pair.is_between_groups and len(study.levels) >= _MANY:
            by_study.setdefault((id(study), pair.groups), []).append(at)
    for places in by_study.values():
        pairs = [
            rows[at].pair.levels
            for at in places
            if rows[at].pair.n_prompts and not differences[at].p < 1 - level
        ]
        row = rows[places[0]]
        means = _level_means(rows[at].pair for at in places)
        names = level_names(row.study)
        group = ", ".join(_group_value(row, name) for name in row.study.design.by)
        for tied in _tied_sets(pairs):
            order = sorted(tied, key=means.__getitem__, reverse=True)
            said = tuple(names[number] for number in order)
            yield Tie(row.study.factor, row.on, group, said)


def _tied_sets(pairs: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Return the largest sets of values in which each two are one of the pairs."""
    alike: dict[int, set[int]] = {}
    for one, other in pairs:
        alike.setdefault(one, set()).add(other)
        alike.setdefault(other, set()).add(one)
    return list(_cliques(set(), set(alike), set(), alike)) if alike else []


def _cliques(
    chosen: set[int], left: set[int], done: set[int], alike: Mapping[int, set[int]]
) -> Iterable[set[int]]:
    """Return the maximal cliques of a graph (Bron and Kerbosch 1973)."""
    if not left and not done:
        yield chosen
    while left:
        one = min(left)
        near = alike[one]
        yield from _cliques(chosen | {one}, left & near, done & near, alike)
        left, done = left - {one}, done | {one}


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


def _lines(rows: Sequence[_Row], looks: Looks, labels: str | None) -> Iterable[str]:
    """Return which intervals these are, or why there are none."""
    if labels is not None:
        yield DRAWN_AT_RANDOM
    if looks == "any":
        yield HOLDS_AT_ANY_LOOK
        return
    if statistics.special() is None:
        yield f"low, high and p {HOW_TO_INSTALL}."
    if n := sum(row.pair.estimate.n_units < MIN_PROMPTS for row in rows):
        yield few_prompts(f"{n} comparison{'s'[: n != 1]}")

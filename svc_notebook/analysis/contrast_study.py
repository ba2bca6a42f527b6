"""Prepare a comparison: the mean score of each prompt with each value of a factor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import did_you_mean, printable, shorten

from .missing import Ends, Missing, with_missing
from .reply_factors import (
    OF_REQUESTS,
    coded,
    column_of,
    counted,
    factors,
    in_words,
    is_rate,
    measure,
    named,
    scores,
    unit,
    unit_codes,
    varying_along,
)
from .run_differences import RunFacts
from .sequential import Looks
from .statistics import Floats, Prompts, Weight

MAX_LEVELS = 30
MAX_SUBGROUPS = 8
"""Each two subgroups are compared as well: 8 make 8 + 28 comparisons of each pair."""
_SHOWN_CHARS = 40


def check_share_margin(margin: float | None, *, is_share: bool) -> None:
    """Refuse a margin in points, such as 3, for a score whose values are 0 to 1."""
    if margin is not None and is_share and margin >= 1:
        raise ParameterError(
            f"margin={margin:g} is too large for a rate, which is from 0 to 1; give a "
            "share, such as 0.03 for 3 points.",
            param="margin",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The design of a comparison: subgroups, units, pairs and weights.

    Attributes:
        by: The columns of the subgroups; each subgroup is compared separately.
        unit: Columns that say which prompts belong together; None if none do.
        pair_by: Columns that replies are paired by; None is the prompt.
        is_paired: Whether values are compared over the prompts that have both.
        weight: Whether each prompt or each reply counts the same.
        missing: How replies without a value are treated.
        looks: Whether the intervals hold for one look, or at any time while replies
            are added.
        facts: What is known of runs that are compared, by name.
    """

    by: Sequence[str] = ()
    unit: Sequence[str] | None = None
    pair_by: Sequence[str] | None = None
    is_paired: bool = True
    weight: Weight = "prompts"
    missing: Missing = "drop"
    looks: Looks = "one"
    facts: Mapping[str, RunFacts] = field(default_factory=dict)


class Cells(NamedTuple):
    """Means by cell: a cell is a prompt with one combination of the other factors.

    Attributes:
        prompt: Shape (cells,), as are the next three: the code of the prompt.
        unit: The code of the unit.
        group: The code of the subgroup.
        first: The position of the cell's first reply in the frame.
        low: Shape (cells, levels), as are all that follow: the mean of the measure; NaN
            is missing. With missing="bounds", a missing value counts as 0.
        high: The same, but with missing="bounds" a missing value counts as 1.
        n: The number of replies in the mean.
        n_scored: The number of replies that have a value themselves.
        cost: The mean cost of a request.
    """

    prompt: Any
    unit: Any
    group: Any
    first: Any
    low: Floats
    high: Floats
    n: Floats
    n_scored: Floats
    cost: Floats

    def where(self, is_used: Any) -> "Cells":  # noqa: ANN401 - flags
        """Return the cells for which a flag is True."""
        return Cells(*(values[is_used] for values in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A factor and a measure in a frame of replies, ready to be compared.

    Attributes:
        df: The frame.
        design: How it is compared.
        factor: The column whose values are compared.
        on: The column that is measured.
        is_rate: Whether the measure is only True and False.
        levels: The values of the factor, in the order of the frame.
        groups: A row for each subgroup, with the values of `by`.
        cells: Means by prompt and combination of the other factors.
        whole: Means by prompt, over all other factors.
        others: The other factors.
        along: Factors that have other values with each level, so that they always vary
            along with the factor; they are not among `others`. Empty if no other
            factors would be left.
        codes: The codes of the prompt, cell, level, group and unit of each reply.
        values: The measure of each reply; NaN is missing.
        ends: The same, with missing values filled in as `missing` says.
        counted: What the units are called, such as "rows" or "prompts".
        scored: If the measure is labels that few replies have: the same study with the
            scores of all replies.
    """

    df: pd.DataFrame
    design: Design
    factor: str
    on: str
    is_rate: bool
    levels: Any
    groups: pd.DataFrame
    cells: Cells
    whole: Cells
    others: list[str]
    along: list[str]
    codes: pd.DataFrame
    values: Floats
    ends: Ends
    counted: str
    scored: "Study | None" = None

    @property
    def name(self) -> str:
        """The name of the measure in a sentence."""
        return shown("", self.on.removeprefix(PREFIX))

    @property
    def is_of_requests(self) -> bool:
        """Whether it measures requests, such as seconds: skewed, and less is better."""
        return self.on in OF_REQUESTS

    @property
    def most(self) -> float:
        """The largest difference that is possible: 1 for shares."""
        known = self.values[~np.isnan(self.values)]
        is_share = self.on.startswith(PREFIX) and ((known >= 0) & (known <= 1)).all()
        return 1.0 if self.is_rate or is_share else np.inf

    def repeats(self, cells: Cells) -> Prompts:
        """Return the values of the repeats in each cell, grouped by level."""
        cell = "prompt" if cells is self.whole else "cell"
        code, level = (self.codes[name].to_numpy() for name in (cell, "level"))
        return Prompts.of(self.values, code, level, len(self.levels))

    @property
    def n_units(self) -> int:
        """The number of unit codes."""
        return int(self.codes["unit"].max()) + 1 if len(self.codes) else 0


def study_of(
    df: pd.DataFrame,
    factor: str,
    on: str | None,
    design: Design,
) -> Study:
    """Gather the measure of each prompt with each value of a factor.

    Raises:
        ParameterError: The factor, the score or the design does not fit the frame.
    """
    column = _only_factor(df, factor)
    pair_columns = list(design.pair_by or unit(df))
    _check_factor(df, column, pair_columns, design)
    on = only_score(df) if on is None else on
    measured = measure(df, on)
    values = measured.to_numpy()
    ends = with_missing(df, on, design.missing)
    level, kinds = coded(df[column])
    firsts = np.unique(level, return_index=True)[1]
    _check_levels(df, column, df[column].array.take(firsts))
    prompt = group_codes(df[pair_columns])[0]
    group, group_firsts = _groups(df, design.by)
    unit_code = prompt if design.unit is None else unit_codes(df, design.unit)
    if design.is_paired:
        _check_pairs(df, column, prompt, level, design)
    elif design.unit is None:  # a prompt with another level counts as another unit
        unit_code = group_codes(pd.DataFrame({"unit": unit_code, "level": level}))[0]
    taken = {column, *design.by, *pair_columns}
    others = [name for name in factors(df) if name not in taken]
    along = varying_along(df, others, level) if design.is_paired else []
    others = [name for name in others if name not in along]
    codes = pd.DataFrame(
        {"prompt": prompt, "group": group, "level": level, "unit": unit_code}
    )
    blocks = codes[["prompt", "group"]]
    whole = _cells(df, values, ends, codes, group_codes(blocks)[0], len(kinds))
    blocks = blocks.assign(**{f"factor {name}": coded(df[name])[0] for name in others})
    codes["cell"] = group_codes(blocks)[0]
    cells = _cells(df, values, ends, codes, codes["cell"].to_numpy(), len(kinds))
    return Study(
        df=df,
        design=design,
        factor=column,
        on=str(measured.name),
        is_rate=is_rate(df, on),
        levels=df[column].array.take(firsts),
        groups=df[list(design.by)].iloc[group_firsts].reset_index(drop=True),
        cells=cells if design.is_paired else whole,
        whole=whole,
        others=others,
        along=along,
        codes=codes,
        values=values,
        ends=ends,
        counted=_counted(df, design, pair_columns),
    )


def _counted(df: pd.DataFrame, design: Design, pair_columns: Sequence[str]) -> str:
    """Return the plural of the units: rows, if replies are paired by their row."""
    if design.unit is None and "row" in pair_columns:
        return "rows"
    return counted(df, design.unit)


def labelled_study(
    df: pd.DataFrame,
    factor: str,
    on: str | None,
    design: Design,
    labels: str | None,
) -> Study:
    """Return a study of scores; with labels, one of labels that has these scores."""
    study = study_of(df, factor, on, design)
    if labels is None:
        return study
    return replace(study_of(df, factor, labels, design), scored=study)


def check_labels(
    df: pd.DataFrame,
    labels: Any,  # noqa: ANN401 - not checked yet
    measures: Sequence[str],
    design: Design,
) -> str:
    """Return the column of labels; refuse designs that labels cannot correct."""
    column = column_of(df, labels, param="labels")
    if column in measures:
        raise ParameterError(
            f"labels={labels!r} is also compared in on. Name the scores that all "
            "replies have in on, and the labels that some replies have in labels.",
            param="labels",
        )
    if df[column].isna().all():
        raise ParameterError(
            f"{labels} has no value in these replies, so it cannot correct the "
            "scores. Draw some replies at random and label them.",
            param="labels",
        )
    unfit = {
        "paired": not design.is_paired,
        "weight": design.weight != "prompts",
        "missing": design.missing != "drop",
        "looks": design.looks != "one",
    }
    for name, is_unfit in unfit.items():
        if is_unfit:
            raise ParameterError(
                "labels can only correct differences of pairs, with each prompt "
                f"counting the same, for one look; leave {name} out.",
                param=name,
            )
    return column


def _only_factor(df: pd.DataFrame, factor: str) -> str:
    names = named(df, factor, param="factor")
    if len(names) != 1:
        raise ParameterError(
            f"factor must be one column; got {len(names)}. The columns that vary are: "
            f"{', '.join(factors(df)) or 'none'}.",
            param="factor",
        )
    return names[0]


def _check_factor(
    df: pd.DataFrame, column: str, pair_columns: list[str], design: Design
) -> None:
    if column in pair_columns and design.is_paired:
        raise ParameterError(
            f"Replies are paired by {column}, so it cannot be the factor. The columns "
            f"that vary are: {', '.join(factors(df)) or 'none'}.",
            param="factor",
        )
    if column in design.by:
        raise ParameterError(
            f"{column} is the factor, so it cannot also be in by. The columns that "
            f"vary are: {', '.join(factors(df)) or 'none'}.",
            param="by",
        )


def _check_pairs(
    df: pd.DataFrame,
    column: str,
    prompt: Any,  # noqa: ANN401 - codes
    level: Any,  # noqa: ANN401 - codes
    design: Design,
) -> None:
    if len(np.unique(prompt * (level.max() + 1) + level)) > prompt.max() + 1:
        return
    raise ParameterError(
        f"Each prompt has only one value of {column}, so there are no pairs. To "
        f"compare different prompts, give paired=False.{_other_texts(df, design)}",
        param="factor",
    )


def _other_texts(df: pd.DataFrame, design: Design) -> str:
    """Explain it if rows have no pairs because each run has its own template."""
    if design.pair_by or "row" not in df.columns or df["row"].isna().any():
        return ""
    n_texts = df.groupby("row")["prompt"].nunique()
    if unit(df) != ["prompt"] or n_texts.max() == 1:
        return ""
    return (
        " A row has different texts in these runs, and each text counts as a separate "
        "prompt. To pair them, give pair_by='row'. In one sweep, templates are given "
        "as prompt={'short': ..., 'long': ...}."
    )


def _groups(df: pd.DataFrame, by: Sequence[str]) -> tuple[Any, list[int]]:
    """Return the code of each reply's subgroup, and the first position of each."""
    if not by:
        return np.zeros(len(df), dtype=np.int64), [0][: len(df)]
    codes, firsts = group_codes(
        pd.DataFrame({str(n): coded(df[name])[0] for n, name in enumerate(by)})
    )
    names = " and ".join(by)
    if len(firsts) > MAX_SUBGROUPS:
        raise ParameterError(
            f"by={names} makes {len(firsts)} subgroups; at most {MAX_SUBGROUPS} are "
            "allowed, since each is compared with each. If rows with the same "
            f"{names} belong together, give unit={_argument(by)} instead; otherwise "
            "keep fewer rows of the frame.",
            param="by",
        )
    if len(firsts) == 1:
        raise ParameterError(
            f"by={names} has only one value, so there are no subgroups; leave by out.",
            param="by",
        )
    return codes, firsts


def _argument(names: Sequence[str]) -> str:
    """Write names as the value of an argument: one alone, or a list."""
    return repr(names[0] if len(names) == 1 else list(names))


def _cells(
    df: pd.DataFrame,
    values: Floats,
    ends: Ends,
    codes: pd.DataFrame,
    block: Any,  # noqa: ANN401 - codes
    n_levels: int,
) -> Cells:
    """Return the means by block: a block is a cell, or a prompt in a subgroup."""
    n_blocks = block.max(initial=-1) + 1
    first = np.zeros(n_blocks, dtype=np.int64)
    first[block[::-1]] = np.arange(len(block))[::-1]  # the last write is the first row
    cell, shape = block * n_levels + codes["level"].to_numpy(), (n_blocks, n_levels)
    cost = (
        df["cost"].to_numpy(dtype="float64", na_value=np.nan)
        if "cost" in df.columns
        else np.full(len(df), np.nan)
    )
    low, n = _cell_means(ends.low, cell, shape)
    of_cell = codes.iloc[first]
    return Cells(
        prompt=of_cell["prompt"].to_numpy(),
        unit=of_cell["unit"].to_numpy(),
        group=of_cell["group"].to_numpy(),
        first=first,
        low=low,
        high=_cell_means(ends.high, cell, shape)[0],
        n=n,
        n_scored=_cell_means(values, cell, shape)[1],
        cost=_cell_means(cost, cell, shape)[0],
    )


def _cell_means(values: Any, cell: Any, shape: tuple[int, int]) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    """Return the mean of the values in each cell, and how many it has."""
    is_known = ~np.isnan(values)
    size = shape[0] * shape[1]
    n = np.bincount(cell[is_known], minlength=size)
    with np.errstate(all="ignore"):
        means = np.bincount(cell[is_known], values[is_known], size) / n
    return means.reshape(shape), n.reshape(shape)


def _check_levels(df: pd.DataFrame, column: str, levels: Any) -> None:  # noqa: ANN401 - an array
    if 1 < len(levels) <= MAX_LEVELS:
        return
    varied = f"The columns that vary are: {', '.join(factors(df)) or 'none'}."
    if len(levels) > 1:
        raise ParameterError(
            f"{column} has {len(levels)} values; at most {MAX_LEVELS} can be compared "
            f"in pairs. Keep fewer rows of the frame. {varied}",
            param="factor",
        )
    only = f"only {shown(column, levels[0])}" if len(levels) else "no value"
    raise ParameterError(
        f"{column} has {only}, but a comparison needs at least two values. {varied}",
        param="factor",
    )


def pairs_of(study: Study, against: Any) -> list[tuple[int, int]]:  # noqa: ANN401 - a value
    """Return the positions of the two levels of each pair, the later level first.

    Args:
        study: The study whose levels are compared.
        against: The value of the factor that all others are compared with; None and
            pd.NA are the value "not sent", and `...` makes all pairs.

    Raises:
        ParameterError: The factor has no such value.
    """
    numbers = range(len(study.levels))
    if against is ...:
        return [(later, earlier) for earlier, later in combinations(numbers, 2)]
    for base, level in enumerate(study.levels):
        if _is_same(level, against):
            return [(number, base) for number in numbers if number != base]
    known = [shown(study.factor, level) for level in study.levels]
    raise ParameterError(
        f"against={shorten(repr(against), _SHOWN_CHARS)} is not a value of "
        f"{study.factor}.{did_you_mean(str(against), known, n=1)} "
        f"Its values are {', '.join(known)}.",
        param="against",
    )


def _is_same(level: Any, value: Any) -> bool:  # noqa: ANN401 - values
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return bool(pd.isna(level))
    return not pd.isna(level) and bool(level == value)


def only_score(df: pd.DataFrame) -> str:
    """Return the only score of a frame."""
    score_names = scores(df)
    if len(score_names) == 1:
        return score_names[0]
    known = ", ".join(name.removeprefix(PREFIX) for name in score_names)
    what = f"Name a score in on: the scores are {known}. Or name"
    if not known:
        what = (
            "There is no score yet. Add one, such as "
            "run.score(right=svc.scores.exact('label')), or name"
        )
    raise ParameterError(
        f"{what} another column of numbers, such as on='completion_tokens'.",
        param="on",
    )


def shown(factor: str, level: Any) -> str:  # noqa: ANN401 - a value
    """Write a value of a factor for a sentence."""
    return shorten(printable(in_words(factor, level)), _SHOWN_CHARS)


def subtraction(names: Iterable[str]) -> str:
    """Name a difference: "large minus small". A hyphen could be part of a name."""
    return " minus ".join(names)


def level_names(study: Study) -> list[str]:
    """Return the names of the levels in a sentence, such as "temperature=0.5"."""
    names = short_names(study.factor, study.levels)
    return [in_sentence(study.factor, name) for name in names]


def in_sentence(factor: str, name: str) -> str:
    """Return the name of a level in a sentence, with its factor unless it is clear."""
    is_clear = factor in ("model", "run") or factor.endswith("_label")
    return name if is_clear else f"{factor}={name}"


def short_names(factor: str, levels: Iterable[Any]) -> list[str]:
    """Write values of a factor; names of models without the parts that all share."""
    texts = [shown(factor, level) for level in levels]
    if factor != "model":
        return texts
    parts = [label.split("-") for label in texts]
    least = min(map(len, parts), default=0)
    # how many parts all names share, at their start and at their end
    head = next((n for n in range(least) if len({p[n] for p in parts}) > 1), least)
    tail = next((n for n in range(least) if len({p[-1 - n] for p in parts}) > 1), least)
    cut = ["-".join(p[head : len(p) - tail]) for p in parts]
    return cut if all(cut) and len(set(cut)) == len(cut) else texts

"""A factor and a score in a frame of replies: what each prompt got with each value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
)
from .sequential import Looks
from .statistics import Floats, Prompts, Weight

MAX_LEVELS = 30
MAX_SUBGROUPS = 8
"""Each two of them are compared, too: 8 make 36 comparisons of each pair."""
_SHOWN_CHARS = 40


def check_share_margin(margin: float | None, *, is_share: bool) -> None:
    """Refuse a margin in points, such as 3, for a score whose values are 0 to 1."""
    if margin is not None and is_share and margin >= 1:
        raise ParameterError(
            f"margin={margin:g} is more than a rate can differ; give a share, such as "
            "0.03 for 3 points.",
            param="margin",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is compared with what, and what belongs together.

    Attributes:
        by: Columns of the subgroups that are compared one by one.
        unit: Columns that say which prompts belong together; None is each alone.
        pair_by: Columns that replies are paired by; None is the prompt.
        is_paired: Whether values are compared over the prompts that have both.
        weight: What counts the same: each prompt, or each reply.
        missing: What becomes of replies without a value.
        looks: How often the intervals may be looked at while replies come.
    """

    by: Sequence[str] = ()
    unit: Sequence[str] | None = None
    pair_by: Sequence[str] | None = None
    is_paired: bool = True
    weight: Weight = "prompts"
    missing: Missing = "drop"
    looks: Looks = "one"


class Cells(NamedTuple):
    """What each value got: a row for each prompt and combination of other factors.

    Attributes:
        prompt: Its code.
        unit: The code of its unit.
        group: The code of its subgroup.
        first: The position of one of its replies in the frame.
        low: The mean of the measure, a column for each value; NaN is missing. With
            missing="bounds", what is missing counts as 0.
        high: The same, where what is missing counts as 1.
        n: Replies that these are the mean of, likewise.
        n_scored: Those with a value of their own, likewise.
        cost: The mean cost of a request, likewise.
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
        """Return some of the rows."""
        return Cells(*(values[is_used] for values in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A factor and a measure in a frame of replies.

    Attributes:
        df: The frame.
        levels: The values of the factor, in the order of the frame.
        groups: A row for each subgroup, with the values of `by`.
        cells: For each prompt and combination of the other factors.
        whole: For each prompt alone, over whatever else differs.
        others: The other factors.
        codes: The codes of the prompt, cell, level, group and unit of each reply.
        values: The measure of each reply.
        ends: The same, with what takes the place of missing ones.
        counted: What the units are called: rows, prompts or values of a column.
        scored: The same of the scores of all replies, if the measure is a few labels.
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
    codes: pd.DataFrame
    values: Floats
    ends: Ends
    counted: str
    scored: "Study | None" = None

    @property
    def name(self) -> str:
        """The name of the score in a sentence."""
        return shown("", self.on.removeprefix(PREFIX))

    @property
    def is_of_requests(self) -> bool:
        """Whether it is of requests, such as seconds: skewed, and less is better."""
        return self.on in OF_REQUESTS

    @property
    def most(self) -> float:
        """The largest difference that is possible: 1 for shares."""
        known = self.values[~np.isnan(self.values)]
        is_share = self.on.startswith(PREFIX) and ((known >= 0) & (known <= 1)).all()
        return 1.0 if self.is_rate or is_share else np.inf

    def repeats(self, cells: Cells) -> Prompts:
        """Return what each of the cells got with each level: its repeats."""
        cell = "prompt" if cells is self.whole else "cell"
        code, level = (self.codes[name].to_numpy() for name in (cell, "level"))
        return Prompts.of(self.values, code, level, len(self.levels))

    @property
    def n_units(self) -> int:
        """How many units there are codes for."""
        return int(self.codes["unit"].max()) + 1 if len(self.codes) else 0


def study_of(
    df: pd.DataFrame,
    factor: str,
    on: str | None,
    design: Design = Design(),
) -> Study:
    """Gather what each prompt got with each value of a factor.

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
    elif design.unit is None:  # the same prompt again counts as another one
        unit_code = group_codes(pd.DataFrame({"unit": unit_code, "level": level}))[0]
    taken = {column, *design.by, *pair_columns}
    others = [name for name in factors(df) if name not in taken]
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
        codes=codes,
        values=values,
        ends=ends,
        counted=counted(df, design.unit),
    )


def labelled_study(
    df: pd.DataFrame,
    factor: str,
    on: str | None,
    design: Design,
    labels: str | None,
) -> Study:
    """Return a study of scores, or of labels with the scores that they correct."""
    study = study_of(df, factor, on, design)
    if labels is None:
        return study
    return replace(study_of(df, factor, labels, design), scored=study)


def check_labels(
    df: pd.DataFrame,
    labels: Any,  # noqa: ANN401 - whatever was given
    measures: Sequence[str],
    design: Design,
) -> str:
    """Return the column of labels; refuse what they cannot correct."""
    column = column_of(df, labels, param="labels")
    if column in measures:
        raise ParameterError(
            f"labels={labels!r} is what is compared, too. Give the scores of all "
            "replies in on, and the labels of some of them in labels.",
            param="labels",
        )
    if df[column].isna().all():
        raise ParameterError(
            f"{labels} has no value in these replies, so it cannot correct the "
            "scores. Label some replies that are drawn at random.",
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
                "labels correct the differences of pairs, each prompt counting the "
                f"same, for one look; leave {name} out.",
                param=name,
            )
    return column


def _only_factor(df: pd.DataFrame, factor: str) -> str:
    names = named(df, factor, param="factor")
    if len(names) != 1:
        raise ParameterError(
            f"factor must be one column, but {len(names)} are given. What varies is "
            f"{', '.join(factors(df)) or 'nothing'}.",
            param="factor",
        )
    return names[0]


def _check_factor(
    df: pd.DataFrame, column: str, pair_columns: list[str], design: Design
) -> None:
    if column in pair_columns and design.is_paired:
        raise ParameterError(
            f"Replies are compared within one {column}, so it cannot be the factor. "
            f"What varies is {', '.join(factors(df)) or 'nothing'}.",
            param="factor",
        )
    if column in design.by:
        raise ParameterError(
            f"{column} is compared, so it cannot make the subgroups, too. What varies "
            f"is {', '.join(factors(df)) or 'nothing'}.",
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
        f"Each prompt has one value of {column}, so that there are no pairs. "
        f"paired=False compares different prompts.{_other_texts(df, design)}",
        param="factor",
    )


def _other_texts(df: pd.DataFrame, design: Design) -> str:
    """Say so if rows have no pairs because each run has its own template."""
    if design.pair_by or "row" not in df.columns or df["row"].isna().any():
        return ""
    n_texts = df.groupby("row")["prompt"].nunique()
    if unit(df) != ["prompt"] or n_texts.max() == 1:
        return ""
    return (
        " A row has different texts in these runs, and each text counts as a prompt: "
        "pair_by='row' pairs them. In one sweep, templates are given as "
        "prompt={'short': ..., 'long': ...}."
    )


def _groups(df: pd.DataFrame, by: Sequence[str]) -> tuple[Any, list[int]]:
    """Return the code of each reply's subgroup, and where each first is."""
    if not by:
        return np.zeros(len(df), dtype=np.int64), [0][: len(df)]
    codes, firsts = group_codes(
        pd.DataFrame({str(n): coded(df[name])[0] for n, name in enumerate(by)})
    )
    said = " and ".join(by)
    if len(firsts) > MAX_SUBGROUPS:
        raise ParameterError(
            f"by={said} makes {len(firsts)} subgroups, and at most {MAX_SUBGROUPS} can "
            "be compared, since each two of them are. To say that rows with the same "
            f"{said} belong together, give unit={_as_given(by)} instead; otherwise "
            "keep some rows of the frame.",
            param="by",
        )
    if len(firsts) == 1:
        raise ParameterError(
            f"by={said} has one value, so that there are no subgroups; leave by out.",
            param="by",
        )
    return codes, firsts


def _as_given(names: Sequence[str]) -> str:
    return repr(names[0] if len(names) == 1 else list(names))


def _cells(
    df: pd.DataFrame,
    values: Floats,
    ends: Ends,
    codes: pd.DataFrame,
    block: Any,  # noqa: ANN401 - codes
    n_levels: int,
) -> Cells:
    n_blocks = block.max(initial=-1) + 1
    first = np.zeros(n_blocks, dtype=np.int64)
    first[block[::-1]] = np.arange(len(block))[::-1]
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
    is_there = ~np.isnan(values)
    size = shape[0] * shape[1]
    n = np.bincount(cell[is_there], minlength=size)
    with np.errstate(all="ignore"):
        means = np.bincount(cell[is_there], values[is_there], size) / n
    return means.reshape(shape), n.reshape(shape)


def _check_levels(df: pd.DataFrame, column: str, levels: Any) -> None:  # noqa: ANN401 - an array
    if 1 < len(levels) <= MAX_LEVELS:
        return
    varied = ", ".join(factors(df)) or "nothing"
    if len(levels) > 1:
        raise ParameterError(
            f"{column} has {len(levels)} values, and at most {MAX_LEVELS} can be "
            f"compared in pairs; keep some rows of the frame. What varies is {varied}.",
            param="factor",
        )
    only = f"only {shown(column, levels[0])}" if len(levels) else "no value"
    raise ParameterError(
        f"{column} has {only}, and a comparison needs at least two values. "
        f"What varies is {varied}.",
        param="factor",
    )


def pairs_of(study: Study, against: Any = ...) -> list[tuple[int, int]]:  # noqa: ANN401 - a value
    """Return the positions of the levels of each pair: the later one, the earlier.

    Args:
        study: What is compared.
        against: A value of the factor that each other one is compared with; None and
            pd.NA are the one that was not sent, and `...` is all pairs.

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
    raise ParameterError(
        f"on is needed: {f'the scores are {known}' if known else 'there is no score'}. "
        "It may also be another column of numbers, such as on='completion_tokens'.",
        param="on",
    )


def shown(factor: str, level: Any) -> str:  # noqa: ANN401 - a value
    """Write a value of a factor for a sentence."""
    return shorten(printable(in_words(factor, level)), _SHOWN_CHARS)


def level_names(study: Study) -> list[str]:
    """Return what the levels are called in a sentence, without what all share."""
    names = short_names(study.factor, study.levels)
    if study.factor == "model" or study.factor.endswith("_label"):
        return names
    return [f"{study.factor}={name}" for name in names]


def short_names(factor: str, levels: Iterable[Any]) -> list[str]:
    """Write values of a factor; of models without what all their names share."""
    texts = [shown(factor, level) for level in levels]
    if factor != "model":
        return texts
    parts = [label.split("-") for label in texts]
    least = min(map(len, parts), default=0)
    head = next((n for n in range(least) if len({p[n] for p in parts}) > 1), least)
    tail = next((n for n in range(least) if len({p[-1 - n] for p in parts}) > 1), least)
    cut = ["-".join(p[head : len(p) - tail]) for p in parts]
    return cut if all(cut) and len(set(cut)) == len(cut) else texts

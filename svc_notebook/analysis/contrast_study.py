"""A factor and a score in a frame of replies: what each prompt got with each value."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import did_you_mean, printable, shorten

from .differences import Difference, paired, shares
from .reply_factors import (
    coded,
    factors,
    in_words,
    is_rate,
    measure,
    named,
    prompt_codes,
    scores,
    unit,
)
from .statistics import Prompts

MAX_LEVELS = 30
_SHOWN_CHARS = 40


class PairedScores(NamedTuple):
    """Replies by what is compared: a row for each prompt and other condition.

    Attributes:
        unit: The code of the prompt of each row.
        value: The mean of the measure, a column for each level; NaN is missing.
        cost: The mean cost of a request, likewise.
    """

    unit: Any
    value: Any
    cost: Any


@dataclass(frozen=True, slots=True)
class Study:
    """A factor and a measure in a frame of replies.

    Attributes:
        levels: The values of the factor, in the order of the frame.
        cells: For each prompt and combination of the other factors.
        whole: For each prompt alone, over whatever else differs.
        others: The other factors.
        prompts: What each prompt got with each level.
    """

    factor: str
    on: str
    is_rate: bool
    levels: Any
    cells: PairedScores
    whole: PairedScores
    others: list[str]
    prompts: Prompts

    @property
    def name(self) -> str:
        """The name of the score in a sentence."""
        return shown("", self.on.removeprefix(PREFIX))


class Pair(NamedTuple):
    """Two levels, compared over the prompts that have both."""

    difference: Difference
    n_prompts: int
    means: tuple[float, float]
    cost_ratio: float
    share: float | None
    is_confounded: bool


def study_of(df: pd.DataFrame, factor: str, on: str | None) -> Study:
    """Gather what each prompt got with each value of a factor."""
    names = named(df, factor, param="factor")
    if len(names) != 1:
        raise ParameterError(
            f"factor must be one column, but {len(names)} are given. What varies is "
            f"{', '.join(factors(df)) or 'nothing'}; compare one after the other.",
            param="factor",
        )
    column = names[0]
    if column in unit(df):
        raise ParameterError(
            f"Replies are compared within one {column}, so it cannot be the factor. "
            f"What varies is {', '.join(factors(df)) or 'nothing'}.",
            param="factor",
        )
    on = _only_score(df) if on is None else on
    values = measure(df, on)
    level, kinds = coded(df[column])
    firsts = np.unique(level, return_index=True)[1]
    _check_levels(df, column, df[column].array.take(firsts))
    prompt = prompt_codes(df)
    if len(np.unique(prompt * len(kinds) + level)) == prompt.max() + 1:
        raise ParameterError(
            f"Each prompt has one value of {column}, so that there are no pairs. "
            f"summary_df(by={column!r}) shows each value with its interval."
            f"{_other_texts(df)}",
            param="factor",
        )
    others = [name for name in factors(df) if name != column]
    blocks = pd.DataFrame({"prompt": prompt}).assign(
        **{f"factor {name}": df[name].array for name in others}
    )
    cost = (
        df["cost"].to_numpy(dtype="float64", na_value=np.nan)
        if "cost" in df.columns
        else np.full(len(df), np.nan)
    )

    def cells(block: Any) -> PairedScores:  # noqa: ANN401 - codes
        n = block.max(initial=-1) + 1
        of_block = np.zeros(n, dtype=np.int64)
        of_block[block] = prompt
        shape = n, len(kinds)
        return PairedScores(
            of_block,
            _cell_means(values.to_numpy(), block, level, shape),
            _cell_means(cost, block, level, shape),
        )

    return Study(
        factor=column,
        on=str(values.name),
        is_rate=is_rate(df, on),
        levels=df[column].array.take(firsts),
        cells=cells(group_codes(blocks)[0]),
        whole=cells(prompt),
        others=others,
        prompts=Prompts.of(values.to_numpy(), prompt, level, len(kinds)),
    )


def _other_texts(df: pd.DataFrame) -> str:
    """Say so if rows have no pairs because each run has its own template."""
    if "row" not in df.columns or df["row"].isna().any():
        return ""
    n_texts = df.groupby("row")["prompt"].nunique()
    if unit(df) != ["prompt"] or n_texts.max() == 1:
        return ""
    return (
        " A row has different texts in these runs, and each text counts as a prompt. "
        "To compare templates, give them to one sweep: "
        "prompt={'short': ..., 'long': ...}."
    )


def _cell_means(values: Any, block: Any, level: Any, shape: tuple[int, int]) -> Any:  # noqa: ANN401 - arrays
    is_there = ~np.isnan(values)
    cell = (block * shape[1] + level)[is_there]
    size = shape[0] * shape[1]
    with np.errstate(all="ignore"):
        means = np.bincount(cell, values[is_there], size) / np.bincount(
            cell, minlength=size
        )
    return means.reshape(shape)


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


def pairs_of(study: Study, against: Any) -> list[tuple[int, int]]:  # noqa: ANN401 - a value
    """Return the positions of the levels of each pair: the later one, the earlier."""
    numbers = range(len(study.levels))
    if against is None:
        return [(later, earlier) for earlier, later in combinations(numbers, 2)]
    for base, level in enumerate(study.levels):
        if not pd.isna(level) and level == against:
            return [(number, base) for number in numbers if number != base]
    known = [shown(study.factor, level) for level in study.levels]
    raise ParameterError(
        f"against={shorten(repr(against), _SHOWN_CHARS)} is not a value of "
        f"{study.factor}.{did_you_mean(str(against), known, n=1)} "
        f"Its values are {', '.join(known)}.",
        param="against",
    )


def compare_pair(study: Study, a: int, b: int, *, n_comparisons: int) -> Pair:
    """Compare two levels, within each combination of the other factors if possible."""
    cells = study.cells
    is_paired = ~np.isnan(cells.value[:, [a, b]]).any(axis=1)
    if not is_paired.any():
        cells = study.whole
        is_paired = ~np.isnan(cells.value[:, [a, b]]).any(axis=1)
    units, place = np.unique(cells.unit[is_paired], return_inverse=True)
    n_blocks = np.bincount(place, minlength=len(units))

    def by_prompt(values: Any) -> Any:  # noqa: ANN401 - an array
        return np.bincount(place, values[is_paired], len(units)) / n_blocks

    first, second = by_prompt(cells.value[:, a]), by_prompt(cells.value[:, b])
    share = None
    if study.is_rate:
        share = float(shares(study.prompts)[[a, b]].mean())
    costs = [cells.cost[is_paired, level] for level in (a, b)]
    known = ~np.isnan(costs).any(axis=0)
    paid = [
        float(costs_of_level[known].mean()) if known.any() else np.nan
        for costs_of_level in costs
    ]
    return Pair(
        paired(first - second, n_comparisons=n_comparisons, share=share),
        len(units),
        (_mean(first), _mean(second)),
        paid[0] / paid[1] if paid[1] > 0 else np.nan,
        share,
        cells is study.whole and len(units) > 0,
    )


def _mean(values: Any) -> float:  # noqa: ANN401 - an array
    return float(values.mean()) if len(values) else np.nan


def _only_score(df: pd.DataFrame) -> str:
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

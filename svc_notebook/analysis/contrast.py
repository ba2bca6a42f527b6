"""Which value of a factor is better, by how much, and whether that is chance."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.columns import Column
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import (
    check_number,
    did_you_mean,
    printable,
    shorten,
)

from . import statistics
from .reply_factors import (
    check_replies,
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
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Difference, Prompts
from .summary import few_prompts, missing_lines, say

_DTYPES: dict[str, Any] = {
    **dict.fromkeys(("factor", "level", "against", "says"), "string"),
    "n_prompts": "Int64",
}
MAX_LEVELS = 30
REPEATS = (1, 2, 3, 5, 10)
_ADJECTIVES = frozenset({"right", "correct", "wrong", "valid", "exact", "cut"})
_MOST_MORE = 20  # times as many prompts would be no advice
_SHOWN_CHARS = 40
CONTRAST = tuple(
    Column(name, _DTYPES.get(name, "Float64"), name, doc)
    for name, doc in {
        "factor": "what is compared",
        "level": "a value of the factor",
        "against": "the value it is compared with",
        "n_prompts": "prompts that have both",
        "mean": "mean, or share, of the level over these prompts",
        "mean_against": "that of the other",
        "difference": "the first less the second",
        "low": "lower end of its interval (0.95), corrected for the number of rows",
        "high": "its upper end",
        "p": "chance of such a difference if there is none; corrected, too",
        "smallest_difference": "what would have been found 8 of 10 times",
        "cost_ratio": "cost of a request, by that of the other",
        "says": "all this as a sentence",
    }.items()
)
"""The columns of `contrast_df`."""
_ALIKE = 0.05  # costs that differ less are the same in words


class _PairedScores(NamedTuple):
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
class _Study:
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
    cells: _PairedScores
    whole: _PairedScores
    others: list[str]
    prompts: Prompts

    @property
    def name(self) -> str:
        """The name of the score in a sentence."""
        return _shown("", self.on.removeprefix(PREFIX))


class _Pair(NamedTuple):
    """Two levels, compared over the prompts that have both."""

    difference: Difference
    n_prompts: int
    means: tuple[float, float]
    cost_ratio: float
    share: float | None
    is_confounded: bool


def contrast_df(
    df: pd.DataFrame,
    factor: str,
    on: str | None = None,
    *,
    against: Any = None,  # noqa: ANN401 - a value of the factor
) -> pd.DataFrame:
    """Compare the values of a factor in pairs: see `svc.contrast_df`."""
    df = check_replies(df)
    study = _study(df, factor, on)
    pairs = _pairs(study, against)
    results = [_compare(study, *pair, n_comparisons=len(pairs)) for pair in pairs]
    names = _in_words(study)
    rows = [
        _row(study, pair, result, names)
        for pair, result in zip(pairs, results, strict=True)
    ]
    say([*missing_lines(df, on=on, by=[study.factor]), *_lines(study, results)])
    frame = pd.DataFrame(
        {
            name: pd.array(
                [row[name] for row in rows], dtype=_DTYPES.get(name, "Float64")
            )
            for name in rows[0]
        }
    )
    for place, (name, which) in enumerate((("level", 0), ("against", 1))):
        values = study.levels.take([pair[which] for pair in pairs])
        frame.insert(place, name, pd.Series(values))
    frame.insert(0, "factor", pd.Series(study.factor, frame.index, dtype="string"))
    return frame


class Needed(NamedTuple):
    """How many prompts a study needs, and what each number of repeats would save.

    Attributes:
        n_prompts: With the first of the options, which takes the fewest requests.
        n_requests: For all values of the factor together.
        options: The prompts needed for each number of repeats.
        says: All this as a sentence.
    """

    n_prompts: int
    n_requests: int
    options: dict[int, int]
    says: str

    def __repr__(self) -> str:
        return self.says


def how_many(
    difference: float, pilot: pd.DataFrame, factor: str | None, on: str | None
) -> Needed:
    """Plan a study from a pilot: see `svc.how_many`."""
    check_number("difference", difference, above=0)
    statistics.need_scipy("Sample sizes")
    pilot = check_replies(pilot)
    study = _study(pilot, _only_factor(pilot, factor), on)
    if study.is_rate and difference >= 1:
        raise ParameterError(
            f"difference={difference:g} is more than a rate can differ; give a share, "
            "such as 0.05 for 5 points.",
            param="difference",
        )
    pairs = _pairs(study, None)
    results = [_compare(study, *pair, n_comparisons=1) for pair in pairs]
    known = (result.difference.spread for result in results)
    spread = max(
        (result_spread for result_spread in known if not np.isnan(result_spread)),
        default=0.0,
    )
    if not spread > 0:
        raise ParameterError(
            f"The pilot needs at least {MIN_PROMPTS} prompts, better 10, with both "
            f"values of {study.factor} and different differences; it has "
            f"{max(result.n_prompts for result in results)}.",
            param="pilot",
        )
    options = _options(study, difference, spread, len(pairs))
    n = options[1] if 1 in options else next(iter(options.values()))
    return Needed(
        n,
        n * len(study.levels) * next(iter(options)),
        options,
        _advice(study, difference, options),
    )


def _study(df: pd.DataFrame, factor: str, on: str | None) -> _Study:
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

    def cells(block: Any) -> _PairedScores:  # noqa: ANN401 - codes
        n = block.max(initial=-1) + 1
        of_block = np.zeros(n, dtype=np.int64)
        of_block[block] = prompt
        shape = n, len(kinds)
        return _PairedScores(
            of_block,
            _cell_means(values.to_numpy(), block, level, shape),
            _cell_means(cost, block, level, shape),
        )

    return _Study(
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
    only = f"only {_shown(column, levels[0])}" if len(levels) else "no value"
    raise ParameterError(
        f"{column} has {only}, and a comparison needs at least two values. "
        f"What varies is {varied}.",
        param="factor",
    )


def _pairs(study: _Study, against: Any) -> list[tuple[int, int]]:  # noqa: ANN401 - a value
    """Return the positions of the levels of each pair: the later one, the earlier."""
    numbers = range(len(study.levels))
    if against is None:
        return [(later, earlier) for earlier, later in combinations(numbers, 2)]
    for base, level in enumerate(study.levels):
        if not pd.isna(level) and level == against:
            return [(number, base) for number in numbers if number != base]
    known = [_shown(study.factor, level) for level in study.levels]
    raise ParameterError(
        f"against={shorten(repr(against), _SHOWN_CHARS)} is not a value of "
        f"{study.factor}.{did_you_mean(str(against), known, n=1)} "
        f"Its values are {', '.join(known)}.",
        param="against",
    )


def _compare(study: _Study, a: int, b: int, *, n_comparisons: int) -> _Pair:
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
        share = float(statistics.shares(study.prompts)[[a, b]].mean())
    costs = [cells.cost[is_paired, level] for level in (a, b)]
    known = ~np.isnan(costs).any(axis=0)
    paid = [
        float(costs_of_level[known].mean()) if known.any() else np.nan
        for costs_of_level in costs
    ]
    return _Pair(
        statistics.paired(first - second, n_comparisons=n_comparisons, share=share),
        len(units),
        (_mean(first), _mean(second)),
        paid[0] / paid[1] if paid[1] > 0 else np.nan,
        share,
        cells is study.whole and len(units) > 0,
    )


def _mean(values: Any) -> float:  # noqa: ANN401 - an array
    return float(values.mean()) if len(values) else np.nan


def _row(
    study: _Study, pair: tuple[int, int], result: _Pair, names: list[str]
) -> dict[str, Any]:
    difference = result.difference
    return {
        "n_prompts": result.n_prompts,
        "mean": result.means[0],
        "mean_against": result.means[1],
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "smallest_difference": difference.smallest,
        "cost_ratio": result.cost_ratio,
        "says": _sentence(study, result, names[pair[0]], names[pair[1]]),
    }


def _lines(study: _Study, results: Iterable[_Pair]) -> list[str]:
    """Return why there are no intervals, and what the pairing cannot do."""
    lines, results = [], list(results)
    if statistics.special() is None:
        lines.append(f"low, high and p {HOW_TO_INSTALL}.")
    if n := sum(result.n_prompts < MIN_PROMPTS for result in results):
        lines.append(few_prompts(f"{n} comparison{'s'[: n != 1]}"))
    if any(result.is_confounded for result in results):
        lines.append(
            f"{study.factor} never varies alone, but with {', '.join(study.others)}: "
            "a difference may be due to either."
        )
    return lines


def _sentence(study: _Study, result: _Pair, first: str, second: str) -> str:
    """Say what a comparison found, the higher one first."""
    value, low, high, *_ = result.difference
    (mean, other), ratio = result.means, result.cost_ratio
    if not result.n_prompts:
        return f"no prompt has {study.name} for both {first} and {second}."
    if value < 0:
        first, second, mean, other = second, first, other, mean
        value, low, high, ratio = -value, -high, -low, 1 / ratio
    show = _points if study.is_rate else _number
    seen = f"{_more(study, first, second)}: {show(mean)} against {show(other)}, "
    seen += f"difference {show(value, is_difference=True)}"
    cost = _cost(first, ratio)
    if np.isnan(low):
        return f"too early to say whether {seen}; {_why(result)}{cost}."
    seen += f" ({show(low, unit='')} to {show(high, unit='')})"
    if result.difference.p < 1 - statistics.LEVEL:
        return f"{seen}{cost}."
    return f"cannot tell yet whether {seen}; {_what_would(result, show)}{cost}."


def _more(study: _Study, first: str, second: str) -> str:
    if not study.is_rate:
        return f"{study.name} is higher for {first} than for {second}"
    if study.name in _ADJECTIVES:
        return f"{first} is {study.name} more often than {second}"
    return f"{study.name} is true more often for {first} than for {second}"


def _cost(first: str, ratio: float) -> str:
    if np.isnan(ratio) or not ratio:
        return ""
    if abs(ratio - 1) < _ALIKE:
        return "; both cost the same"
    if ratio > 1:
        return f"; {first} costs {ratio:.2g} times as much"
    return f"; {first} costs {100 * (1 - ratio):.2g} % less"


def _what_would(result: _Pair, show: Any) -> str:  # noqa: ANN401 - a function
    """Return how many more prompts would tell, or what this many could have found."""
    seen, smallest = abs(result.difference.value), result.difference.smallest
    if seen * np.sqrt(_MOST_MORE) > smallest:
        n = ceil(result.n_prompts * ((smallest / seen) ** 2 - 1))
        more = f"{_round_up(n)} more prompt{'s'[: n != 1]}"
        return f"if it is that large, about {more} would tell"
    if result.share is not None and smallest > 1:
        return "with so few prompts no difference could have been found"
    least = show(smallest, is_difference=True)
    return f"this run would have found a difference of {least}"


def _round_up(n: int) -> int:
    step: int = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def _why(result: _Pair) -> str:
    if result.n_prompts < MIN_PROMPTS:
        return f"{MIN_PROMPTS} prompts are the least that could tell"
    if not result.difference.spread:
        return "all prompts differ by the same amount, so nothing is known about others"
    return "only SciPy could tell whether it is chance"


def _points(
    share: float, *, is_difference: bool = False, unit: str | None = None
) -> str:
    """Return a share in percent, or a difference of shares in points."""
    text = f"{100 * share:.0f}"
    if text in {"0", "-0"}:
        text = f"{100 * share:.1f}".replace("-0.0", "0").replace("0.0", "0")
    if unit is None:
        unit = " %" if not is_difference else " point" if text == "1" else " points"
    return text + unit


def _number(value: float, **_: object) -> str:
    return f"{value:.3g}"


def _in_words(study: _Study) -> list[str]:
    """Return what the levels are called in a sentence, without what all share."""
    shown = [_shown(study.factor, level) for level in study.levels]
    if study.factor == "model":
        parts = [label.split("-") for label in shown]
        least = min(map(len, parts))
        head = next((n for n in range(least) if len({p[n] for p in parts}) > 1), least)
        tail = next(
            (n for n in range(least) if len({p[-1 - n] for p in parts}) > 1), least
        )
        cut = ["-".join(p[head : len(p) - tail]) for p in parts]
        return cut if all(cut) and len(set(cut)) == len(cut) else shown
    if study.factor.endswith("_label"):
        return shown
    return [f"{study.factor}={label}" for label in shown]


def _shown(factor: str, level: Any) -> str:  # noqa: ANN401 - a value
    return shorten(printable(in_words(factor, level)), _SHOWN_CHARS)


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


def _options(
    study: _Study, difference: float, spread: float, n_comparisons: int
) -> dict[int, int]:
    """Return the prompts needed for numbers of repeats.

    Repeats make only the noise within a prompt smaller. Without repeats in the pilot
    it is not known, so the answer is for the pilot's own number.
    """
    within, n = study.prompts.variance, study.prompts.n
    n_repeats = max(round(float(np.median(n))), 1)
    if np.isnan(within).all():
        return {
            n_repeats: statistics.prompts_needed(
                difference, spread, n_comparisons=n_comparisons
            )
        }
    # the difference of two replies has twice the variance of one
    noise = 2 * float(np.nanmean(within))
    between = max(spread**2 - noise * float((1 / n).mean()), 0.0)
    return {
        repeats: statistics.prompts_needed(
            difference,
            float(np.sqrt(between + noise / repeats)),
            n_comparisons=n_comparisons,
        )
        for repeats in REPEATS
    }


def _advice(study: _Study, difference: float, options: dict[int, int]) -> str:
    show = _points if study.is_rate else _number
    saving = {_round_up(n): repeats for repeats, n in reversed(options.items())}
    choices = " or ".join(
        f"{n} prompts with {repeats} repeat{'s'[: repeats != 1]}"
        for n, repeats in reversed(saving.items())
    )
    size = show(difference, is_difference=True)
    return (
        f"To find a difference of {size} in {study.name} between values of "
        f"{study.factor} 8 of 10 times: about {choices}."
    )

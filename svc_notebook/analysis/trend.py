"""How a score changes with a numeric setting: one slope, and one p."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.html_styles import sentences_html
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import printable, shorten

from . import statistics
from .contrast_sentences import capitalised
from .contrast_study import only_score
from .differences import Figure, StudentEstimate, p_value, shares
from .missing import check_missing, missing_lines, with_missing
from .reply_factors import (
    check_replies,
    column_of,
    counted,
    factors,
    is_rate,
    named,
    prompt_codes,
    unit_codes,
)
from .rounding import difference_with_interval, number
from .statistics import (
    HOW_TO_INSTALL,
    LEVEL,
    MIN_PROMPTS,
    NEGLIGIBLE,
    Floats,
    Prompts,
)

_BENT = 0.01  # with a smaller p of the curvature, the user is told to look at the curve
_LEAST_P = 0.001
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Trend:
    """How a score changes with a setting, shown as a sentence.

    Attributes:
        factor: The column of the setting.
        on: The column of the score.
        slope: How much the score changes for each 1 of the setting, within each prompt;
            for a rate, 0.1 is 10 points.
        low: The lower end of its interval (0.95); NaN if it is not known.
        high: The upper end.
        p: The chance of such a slope if there is none in truth; NaN if not known.
        start: The smallest value of the setting.
        end: The largest value of the setting.
        n_prompts: The number of prompts with a score for several values.
        n_units: The number of units in the interval: prompts, or values of `unit`.
        n_scored: The number of replies with a score.
        says: The trend as a sentence, with its limitations.
    """

    factor: str
    on: str
    slope: float
    low: float
    high: float
    p: float
    start: float
    end: float
    n_prompts: int
    n_units: int
    n_scored: int
    says: str

    def __repr__(self) -> str:
        return fitted_to_terminal(to_terminal(self.says))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": sentences_html([self.says]), "text/plain": repr(self)}


class _Slopes(NamedTuple):
    """The slope of the score within each block.

    A block is a prompt with one combination of the other factors. Arrays have the shape
    (blocks with several settings,).

    Attributes:
        slope: The slope.
        weight: The sum of squared distances of the settings from their mean.
        prompt: The code of the block's prompt.
        most: The steepest slope that is possible for scores from 0 to 1.
    """

    slope: Floats
    weight: Floats
    prompt: Any
    most: float


class _Cells(NamedTuple):
    """The mean score of each cell: a block (as in `_Slopes`) with one setting.

    Attributes:
        setting: Shape (cells,): the value of the setting.
        block: Shape (cells,): the code of the block.
        prompt: Shape (blocks,): the code of the prompt.
        replies: The values by cell.
    """

    setting: Floats
    block: Any
    prompt: Any
    replies: Prompts

    @classmethod
    def of(cls, values: Floats, setting: Floats, block: Any, prompt: Any) -> "_Cells":  # noqa: ANN401 - codes
        """Gather the values of replies; NaN is left out."""
        is_known = ~np.isnan(values)
        values, setting, block = values[is_known], setting[is_known], block[is_known]
        cell, firsts = group_codes(pd.DataFrame({"block": block, "setting": setting}))
        prompt_of = np.zeros(block.max(initial=0) + 1, dtype=np.int64)
        prompt_of[block] = prompt[is_known]
        replies = Prompts.of(values, cell, np.zeros_like(cell), 1)
        return cls(setting[firsts], block[firsts], prompt_of, replies)

    def within(self, values: Floats) -> Floats:
        """Return values less the mean of their block."""
        n = np.maximum(np.bincount(self.block), 1)
        centred: Floats = values - (np.bincount(self.block, values) / n)[self.block]
        return centred

    def slopes(self, x: Floats) -> _Slopes:
        """Return the slope along x of each block that has several values of x."""
        x = self.within(x)
        weight, slope, up = (
            np.bincount(self.block, products, len(self.prompt)).astype(float)
            for products in (x**2, x * self.replies.mean, np.maximum(x, 0))
        )
        several = np.flatnonzero(weight > NEGLIGIBLE * weight.max(initial=0.0))
        weight = weight[several]
        return _Slopes(
            slope[several] / weight,
            weight,
            self.prompt[several],
            float((up[several] / weight).max(initial=0.0)),
        )

    def bends(self) -> _Slopes:
        """Return the curvature of each block: its slope along the squared setting.

        The part of the square that is linear in the setting is taken out first.
        """
        square, line = self.within(self.setting**2), self.within(self.setting)
        covariance, variance = (
            np.bincount(self.block, line * other) for other in (square, line)
        )
        tilt = covariance / np.where(variance > 0, variance, 1.0)
        return self.slopes(square - tilt[self.block] * line)


def trend(
    df: pd.DataFrame,
    factor: str,
    on: str | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    missing: Literal["drop", "wrong"] = "drop",
) -> Trend:
    """Measure how a score changes with a setting: see `svc.trend`."""
    df = check_replies(df)
    column = _setting(df, factor)
    on = only_score(df) if on is None else column_of(df, on)
    if check_missing(missing) == "bounds":
        raise ParameterError(
            "missing='bounds' is not possible here, since a slope has no worst case; "
            "give missing='drop' or missing='wrong'.",
            param="missing",
        )
    cells, notes = _cells(df, column, with_missing(df, on, missing).low)
    unit_of = np.arange(len(df))  # by the code of a prompt
    if (units := unit_codes(df, unit)) is not None:
        unit_of[prompt_codes(df)] = units
    start, end = float(cells.setting.min()), float(cells.setting.max())
    slopes = cells.slopes(cells.setting)
    change = _estimate(df, on, cells, slopes, unit_of, end - start)
    low, high = _ends(change)
    result = Trend(
        factor=column,
        on=on,
        slope=change.value / (end - start),
        low=low / (end - start),
        high=high / (end - start),
        p=p_value(change),
        start=start,
        end=end,
        n_prompts=len(np.unique(slopes.prompt)),
        n_units=len(np.unique(unit_of[slopes.prompt])),
        n_scored=int(cells.replies.n.sum()),
        says="",
    )
    bend = p_value(_estimate(df, on, cells, cells.bends(), unit_of, 1.0))
    if bend < _BENT:
        p = _p_text(bend)
        notes.append(f"the curve bends ({p}): plot(on, x={column!r}) shows how")
    claim = capitalised(_sentence(df, result, counted(df, unit)))
    sentence = "; ".join([claim, *notes])
    lines = missing_lines(df, on=on, by=[column], missing=missing)
    return replace(result, says=" ".join([f"{sentence}.", *lines]))


def _setting(df: pd.DataFrame, factor: str) -> str:
    """Return the column of the setting, if it is one column of numbers."""
    names = named(df, factor, param="factor")
    varied = [
        name for name in factors(df) if pd.api.types.is_numeric_dtype(df[name].dtype)
    ]
    if len(names) != 1 or not pd.api.types.is_numeric_dtype(df[names[0]].dtype):
        raise ParameterError(
            "factor must be one column of numbers, such as temperature; got "
            f"{' and '.join(names)}. Columns of numbers that vary are: "
            f"{', '.join(varied) or 'none'}. To compare other values, use contrast.",
            param="factor",
        )
    return names[0]


def _cells(df: pd.DataFrame, column: str, values: Floats) -> tuple[_Cells, list[str]]:
    """Return the mean scores by cell, and notes on what was left out or averaged.

    Other factors are kept equal, unless the setting never varies without them.

    Raises:
        ParameterError: The setting does not vary within any prompt.
    """
    setting = df[column].to_numpy(dtype="float64", na_value=np.nan)
    notes, is_sent = [], ~np.isnan(setting)
    if n := int((~np.isnan(values) & ~is_sent).sum()):
        notes.append(f"{count_in_words(n, 'replies')} without {column} left out")
    values = np.where(is_sent, values, np.nan)
    prompt, others = prompt_codes(df), [x for x in factors(df) if x != column]
    same = pd.DataFrame({"prompt": prompt}).assign(
        **{f"factor {name}": df[name].array for name in others}
    )
    cells = _Cells.of(values, setting, group_codes(same)[0], prompt)
    if len(cells.slopes(cells.setting).slope):
        return cells, [*notes, *(f"averaged over {name}" for name in others)]
    cells = _Cells.of(values, setting, prompt, prompt)
    if len(cells.slopes(cells.setting).slope):
        notes.append(
            f"{column} varies only together with {' and '.join(others)}, so either may "
            "be the cause"
        )
        return cells, notes
    raise ParameterError(
        f"{column} has only one value for each of the {counted(df)} with a score, so "
        "there is nothing to compare. Run a sweep with several values, such as "
        "temperature=[0, 0.5, 1].",
        param="factor",
    )


def _estimate(
    df: pd.DataFrame,
    on: str,
    cells: _Cells,
    slopes: _Slopes,
    unit_of: Any,  # noqa: ANN401 - codes
    distance: float,
) -> StudentEstimate:
    """Return the mean change over a distance, within prompts, with units as sample."""
    unit = unit_of[slopes.prompt]
    change = Figure.mean(slopes.slope * distance, slopes.weight, unit, len(unit_of))
    largest = float(np.abs(cells.replies.mean).max(initial=0.0))
    if not is_rate(df, on):
        return StudentEstimate.of(change, largest=largest)
    change = change.with_floor(float(shares(cells.replies)[0]))
    return StudentEstimate.of(change, largest=largest, most=slopes.most * distance)


def _ends(change: StudentEstimate) -> tuple[float, float]:
    if statistics.special() is None or np.isnan(change.error):
        return np.nan, np.nan
    return change.ends((1 - LEVEL) / 2)


def _sentence(df: pd.DataFrame, result: Trend, noun: str) -> str:
    """Say how the score changes from the smallest to the largest value."""
    name = shorten(printable(result.on.removeprefix(PREFIX)), _SHOWN_CHARS)
    factor = shorten(printable(result.factor), _SHOWN_CHARS)
    distance = result.end - result.start
    sign = -1 if result.slope < 0 else 1
    ends = sorted(sign * distance * end for end in (result.low, result.high))
    change = difference_with_interval(
        (sign * distance * result.slope, *ends), is_rate=is_rate(df, result.on)
    )
    verb = "falls" if sign < 0 else "rises"
    counts = count_in_words(result.n_units, noun)
    seen = f"{name} {verb} with {factor}: by {change} "
    seen += f"from {number(result.start)} to {number(result.end)}"
    if np.isnan(result.low):
        return f"too early to say whether {seen}; {_why_no_interval(result, noun)}"
    if result.p < 1 - LEVEL:
        return f"{seen}; {_p_text(result.p)}, {counts}"
    return f"cannot tell yet whether {seen}; {_p_text(result.p)}, {counts}"


def _why_no_interval(result: Trend, noun: str) -> str:
    if result.n_units < MIN_PROMPTS:
        counts = count_in_words(result.n_units, noun)
        return f"it has {counts}, but at least {MIN_PROMPTS} are needed"
    if statistics.special() is None:
        return f"low, high and p {HOW_TO_INSTALL}"
    return f"all {noun} change by the same amount, so it is not known how others vary"


def _p_text(p: float) -> str:
    return f"p = {p:.2g}" if p >= _LEAST_P else f"p < {_LEAST_P}"

"""How a score changes along a setting that is a number: one slope, and one p."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.html_styles import sentences_html
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import printable, shorten

from . import statistics
from .contrast_study import only_score
from .differences import Figure, StudentEstimate, p_value, shares
from .missing import check_missing, missing_lines, with_missing
from .reply_factors import (
    check_replies,
    column_of,
    counted,
    factors,
    in_number,
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

_BENT = 0.01  # a p that makes it worth to look at the curve
_LEAST_P = 0.001
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Trend:
    """How a score changes along a setting, shown as a sentence.

    Attributes:
        factor: The setting.
        on: The column of the score.
        slope: How much the score changes for 1 of the setting, within each prompt; of a
            rate 0.1 is 10 points.
        low: The lower end of its interval (0.95); NaN if that is not known.
        high: Its upper end.
        p: How likely such a slope is by chance if there is none; NaN likewise.
        start: The least value of the setting.
        end: The largest one.
        n_prompts: Prompts with a score for several values.
        n_units: What the interval is over: the prompts, or what `unit` names.
        n_scored: Replies with a score.
        says: All this as a sentence, with what limits it.
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
        return to_terminal(self.says)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": sentences_html([self.says]), "text/plain": repr(self)}


class _Slopes(NamedTuple):
    """How steeply the score of each prompt changes, other factors kept equal.

    Attributes:
        slope: Of each prompt and combination of the other factors.
        weight: How much it tells: the sum of its settings' squared distances.
        prompt: The code of its prompt.
        most: The steepest that scores within 0 and 1 can have.
    """

    slope: Floats
    weight: Floats
    prompt: Any
    most: float


class _Cells(NamedTuple):
    """The mean score of each prompt, combination of other factors, and setting.

    Attributes:
        setting: The value of the setting.
        block: The code of the prompt and combination.
        prompt: The code of the prompt of each block.
        replies: What each cell got.
    """

    setting: Floats
    block: Any
    prompt: Any
    replies: Prompts

    @classmethod
    def of(cls, values: Floats, setting: Floats, block: Any, prompt: Any) -> "_Cells":  # noqa: ANN401 - codes
        """Gather the values of replies; NaN is left out."""
        is_there = ~np.isnan(values)
        values, setting, block = values[is_there], setting[is_there], block[is_there]
        cell, firsts = group_codes(pd.DataFrame({"block": block, "setting": setting}))
        prompt_of = np.zeros(block.max(initial=0) + 1, dtype=np.int64)
        prompt_of[block] = prompt[is_there]
        replies = Prompts.of(values, cell, np.zeros_like(cell), 1)
        return cls(setting[firsts], block[firsts], prompt_of, replies)

    def within(self, values: Floats) -> Floats:
        """Return values less the mean of their block."""
        n = np.maximum(np.bincount(self.block), 1)
        rest: Floats = values - (np.bincount(self.block, values) / n)[self.block]
        return rest

    def slopes(self, along: Floats) -> _Slopes:
        """Return the slope of each block that has several values of what is along."""
        along = self.within(along)
        weight, slope, up = (
            np.bincount(self.block, products, len(self.prompt)).astype(float)
            for products in (along**2, along * self.replies.mean, np.maximum(along, 0))
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
        """Return by how much the score of each block changes ever faster."""
        square, line = self.within(self.setting**2), self.within(self.setting)
        both, alone = (
            np.bincount(self.block, line * other) for other in (square, line)
        )
        tilt = both / np.where(alone > 0, alone, 1.0)
        return self.slopes(square - tilt[self.block] * line)


def trend(
    df: pd.DataFrame,
    factor: str,
    on: str | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    missing: Literal["drop", "wrong"] = "drop",
) -> Trend:
    """Tell how a score changes along a setting: see `svc.trend`."""
    df = check_replies(df)
    column = _setting(df, factor)
    on = only_score(df) if on is None else column_of(df, on)
    if check_missing(missing) == "bounds":
        raise ParameterError(
            "A slope has no worst case; give missing='drop' or missing='wrong'.",
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
        notes.append(f"the curve bends ({_p(bend)}): plot(on, x={column!r}) shows how")
    sentence = "; ".join([_sentence(df, result, counted(df, unit)), *notes])
    lines = missing_lines(df, on=on, by=[column], missing=missing)
    return replace(result, says=" ".join([f"{sentence}.", *lines]))


def _setting(df: pd.DataFrame, factor: str) -> str:
    """Return the column that a setting names."""
    names = named(df, factor, param="factor")
    varied = [
        name for name in factors(df) if pd.api.types.is_numeric_dtype(df[name].dtype)
    ]
    if len(names) != 1 or not pd.api.types.is_numeric_dtype(df[names[0]].dtype):
        raise ParameterError(
            f"A trend is along one column of numbers, such as temperature, and not "
            f"{' and '.join(names)}. Numbers that vary are "
            f"{', '.join(varied) or 'none'}; contrast compares other values.",
            param="factor",
        )
    return names[0]


def _cells(df: pd.DataFrame, column: str, values: Floats) -> tuple[_Cells, list[str]]:
    """Return the mean scores to compare, and what is to be said of that.

    Other factors are kept equal if the setting varies while they are.

    Raises:
        ParameterError: The setting varies in no prompt.
    """
    setting = df[column].to_numpy(dtype="float64", na_value=np.nan)
    notes, is_sent = [], ~np.isnan(setting)
    if n := int((~np.isnan(values) & ~is_sent).sum()):
        notes.append(f"{in_number(n, 'replies')} without {column} left out")
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
            f"{column} never varies alone, but with {' and '.join(others)}, so that it "
            "may be due to either"
        )
        return cells, notes
    raise ParameterError(
        f"{column} has one value for each of the {counted(df)} with a score, so that "
        "there is nothing to compare. A sweep with several values, such as "
        "temperature=[0, 0.5, 1], has each of them for all.",
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
    """Return the mean change over a distance, within prompts, over units."""
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


def _sentence(df: pd.DataFrame, result: Trend, what: str) -> str:
    """Say how the score changes from the least to the largest value."""
    name = shorten(printable(result.on.removeprefix(PREFIX)), _SHOWN_CHARS)
    factor = shorten(printable(result.factor), _SHOWN_CHARS)
    distance = result.end - result.start
    sign = -1 if result.slope < 0 else 1
    ends = sorted(sign * distance * end for end in (result.low, result.high))
    change = difference_with_interval(
        (sign * distance * result.slope, *ends), is_rate=is_rate(df, result.on)
    )
    verb = "falls" if sign < 0 else "rises"
    counts = in_number(result.n_units, what)
    seen = f"{name} {verb} with {factor}: by {change} "
    seen += f"from {number(result.start)} to {number(result.end)}"
    if np.isnan(result.low):
        return f"too early to say whether {seen}; {_why(result, what)}"
    if result.p < 1 - LEVEL:
        return f"{seen}; {_p(result.p)}, {counts}"
    return f"cannot tell yet whether {seen}; {_p(result.p)}, {counts}"


def _why(result: Trend, what: str) -> str:
    if result.n_units < MIN_PROMPTS:
        counts = in_number(result.n_units, what)
        return f"it has {counts}, and {MIN_PROMPTS} are the least that could tell"
    if statistics.special() is None:
        return f"low, high and p {HOW_TO_INSTALL}"
    return f"all {what} change by the same amount, so nothing is known about others"


def _p(p: float) -> str:
    return f"p = {p:.2g}" if p >= _LEAST_P else f"p < {_LEAST_P}"

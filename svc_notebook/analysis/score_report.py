"""The scores of a run, shown at its end: by condition, differences, and flips."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.html_styles import BODY, quiet_html
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX

from . import contrast_display
from .contrast import Contrast, contrast
from .contrast_study import short_names
from .reply_factors import (
    LABEL,
    check_replies,
    counted,
    factors,
    in_words,
    is_rate,
    measure,
    named,
    scores,
    setting_name,
)
from .rounding import number, number_with_interval, percent, percent_with_interval
from .summary import grouped, intervals_df, without_values

_SCORES = 4  # at most so many scores are shown
_CONDITIONS = 30
_IN_A_LINE = 6  # conditions in a line of text
_NOT_COMPARED = (
    "The run is not complete, so nothing is compared yet. run.contrast(...) compares "
    "now, which counts as a look."
)
_ALL = "_all"  # the ending of the score "all parts of the answer are right"


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """The scores of a run, to be shown below it.

    Attributes:
        charts: Each score by condition.
        contrast: The comparison of conditions; None if there is nothing to compare.
        note: Why conditions are not compared; "" if they are, or if there is only one.
    """

    charts: Sequence[IntervalChart]
    contrast: Contrast | None
    note: str = ""

    def html(self) -> str:
        """Return the scores by condition, the differences, and the first flips."""
        charts = "".join(chart.html() for chart in self.charts)
        below = quiet_html(to_text(self.note)) if self.note else ""
        if self.contrast is not None:
            below = contrast_display.html(self.contrast)
        return f"{BODY}{charts}{below}</div>"

    def text(self) -> str:
        """Return some lines: scores by condition, the clearest difference, flips."""
        lines = [_in_a_line(chart) for chart in self.charts]
        if self.contrast is not None:
            lines += contrast_display.short_lines(self.contrast)
        if self.note:
            lines.append(self.note)
        return to_terminal(contrast_display.wrapped(lines))


def score_report(
    df: pd.DataFrame,
    names: Iterable[str],
    *,
    unit: str | Sequence[str] | None = None,
    factor: str | Sequence[str] | None = None,
    is_complete: bool = True,
    compared: pd.DataFrame | None = None,
    **how: Any,  # noqa: ANN401 - those of `contrast`
) -> ScoreReport | None:
    """Sum up the scores of a run; None if no reply has a numeric score.

    Args:
        df: The replies of the run.
        names: The scores of its plan.
        unit: The columns that say which rows belong together.
        factor: The columns to compare; all factors if None.
        is_complete: If False, there are only means, without intervals. To compare is a
            look at the run, which the user decides on.
        compared: The replies to compare, if these are not all; charts show all.
        **how: Other arguments of `contrast`, such as `margin`.
    """
    df = check_replies(df)
    columns = score_columns(df, names)
    if not columns:
        return None
    conditions = _conditions(df)
    charts = [_chart(df, column, conditions, unit) for column in columns]
    if not is_complete:
        note = _NOT_COMPARED if factors(df) else ""
        return ScoreReport([_without_intervals(chart) for chart in charts], None, note)
    part = df if compared is None else compared
    try:
        result = contrast(part, factor or factors(part), on=columns, unit=unit, **how)
    except ParameterError:  # nothing varies, or each prompt has only one value
        if factor is not None or how.get("margin") is not None:  # the user's mistake
            raise
        result = None
    return ScoreReport(charts, result)


def score_columns(df: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """Return the first numeric columns of the scores with these names."""
    return [column for name in names for column in _columns(df, name)][:_SCORES]


def _columns(df: pd.DataFrame, name: str) -> list[str]:
    """Return the columns of a score: one, or for a dict several, or only `_all`."""
    columns = [
        column
        for column in scores(df)
        if column == PREFIX + name or column.startswith(f"{PREFIX}{name}_")
        if _has_numbers(df, column)
    ]
    whole = f"{PREFIX}{name}{_ALL}"
    return [whole] if whole in columns else columns


def _has_numbers(df: pd.DataFrame, column: str) -> bool:
    try:
        return bool(measure(df, column).notna().any())
    except ParameterError:  # a score of labels has no mean
        return False


def _conditions(df: pd.DataFrame) -> list[str]:
    return factors(df) or named(df, "model")


def _chart(
    df: pd.DataFrame,
    column: str,
    conditions: list[str],
    unit: str | Sequence[str] | None,
) -> IntervalChart:
    """Return a score with its interval for each condition."""
    is_share = is_rate(df, column)
    show = percent_with_interval if is_share else number_with_interval
    figures = intervals_df(df, column, by=conditions, unit=unit).iloc[:_CONDITIONS]
    missing = without_values(df, grouped(df, conditions))[:_CONDITIONS]
    counts = figures["n_prompts"].tolist()
    # equal counts are those of the run; different ones say how sure a figure is
    is_worth_showing = len(set(counts)) > 1
    rows = [f", {count_in_words(n, counted(df))}" * is_worth_showing for n in counts]
    names = zip(*(_value_names(figures, name) for name in conditions), strict=True)
    columns = (figures[end].to_numpy(dtype=float) for end in ("value", "low", "high"))
    return IntervalChart(
        intervals=[
            Interval(
                name=setting_name(name),
                value=value,
                low=low,
                high=high,
                numbers=why if np.isnan(value) else show(value, low, high) + n_rows,
                title=column.removeprefix(PREFIX),
            )
            for name, value, low, high, why, n_rows in zip(
                names, *columns, missing, rows, strict=True
            )
        ],
        limits=(0.0, 1.0) if is_share else None,
        scale=100 if is_share else 1,
        unit="%" if is_share else "",
    )


def _without_intervals(chart: IntervalChart) -> IntervalChart:
    """Return a chart that has only the means."""
    show = percent if chart.unit else number
    return replace(
        chart,
        intervals=[
            replace(
                row,
                low=nan,
                high=nan,
                numbers=row.numbers if np.isnan(row.value) else show(row.value),
            )
            for row in chart.intervals
        ],
    )


def _value_names(figures: pd.DataFrame, factor: str) -> list[str]:
    """Return the name of a factor's value in each row, such as "temperature 0.5"."""
    texts = [in_words(factor, value) for value in figures[factor]]
    levels = figures[factor].drop_duplicates()
    short = dict(
        zip(
            (in_words(factor, level) for level in levels),
            short_names(factor, levels),
            strict=True,
        )
    )
    is_plain = factor == "model" or factor.endswith(LABEL)
    return [short[text] if is_plain else f"{factor} {short[text]}" for text in texts]


def _in_a_line(chart: IntervalChart) -> str:
    parts = [f"{row.name} {row.numbers}" for row in chart.intervals[:_IN_A_LINE]]
    if more := len(chart.intervals) - len(parts):
        parts.append(f"and {more:,} more")
    return f"{chart.intervals[0].title}: {'; '.join(parts)}"

"""Which value of a factor is better, by how much, and whether that is chance."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from svc_notebook.ledger.columns import Column
from svc_notebook.service.params import check_int

from . import contrast_display, statistics
from .contrast_sentences import sentence
from .contrast_study import Pair, Study, compare_pair, level_names, pairs_of, study_of
from .flips import Flips, chosen_comparison
from .missing import missing_lines
from .plot import MAX_GROUPS, Plot, plot_intervals
from .reply_factors import check_replies, unit
from .statistics import HOW_TO_INSTALL, LEVEL, MIN_PROMPTS
from .summary import few_prompts, say

_DTYPES: dict[str, Any] = {
    **dict.fromkeys(("factor", "level", "against", "says"), "string"),
    "n_prompts": "Int64",
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Values of factors, compared in pairs: to be read, and a frame to go on with.

    Attributes:
        df: One row for each comparison, as `contrast_df` returns.
        says: A sentence for each comparison, with its caveats.
        notes: What holds for all of them.
        replies: The frame of replies that was compared.
        factors: The columns that were compared.
        scores: The columns that they were compared on.
        by: The columns of the subgroups.
        unit: The columns that say which replies belong together.
        margin: The difference that would not matter, if one was given.
        level: The level of the intervals.
        correct: How the comparisons of the family are corrected.
        missing: What a reply without a value counts as.

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
    margin: float | None
    level: float
    correct: str | None
    missing: str

    def flips(
        self,
        level: object = None,
        against: object = None,
        *,
        factor: str | None = None,
        on: str | None = None,
        n: int = 3,
    ) -> Flips:
        """Find the rows that only one of two values gets right.

        Args:
            level: One of the values; pd.NA is the one that is not sent.
            against: The other one. Of what is left open, the two that differ the most
                are taken.
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


def contrast(
    df: pd.DataFrame,
    factor: str,
    on: str | None = None,
    *,
    against: Any = None,  # noqa: ANN401 - a value of the factor
) -> Contrast:
    """Compare the values of a factor in pairs: see `svc.contrast`."""
    df = check_replies(df)
    study = study_of(df, factor, on)
    pairs = pairs_of(study, against)
    results = [compare_pair(study, *pair, n_comparisons=len(pairs)) for pair in pairs]
    frame = _frame(study, pairs, results)
    return Contrast(
        df=frame,
        says=frame["says"].tolist(),
        notes=[*missing_lines(df, on=on, by=[study.factor]), *_lines(study, results)],
        replies=df,
        factors=[study.factor],
        scores=[study.on],
        by=[],
        unit=unit(df),
        margin=None,
        level=LEVEL,
        correct="bonferroni",
        missing="drop",
    )


def contrast_df(
    df: pd.DataFrame,
    factor: str,
    on: str | None = None,
    **options: Any,  # noqa: ANN401 - those of `contrast`
) -> pd.DataFrame:
    """Return the frame of `contrast`; what holds for all its rows goes to stderr."""
    compared = contrast(df, factor, on, **options)
    say(compared.notes)
    return compared.df


def _frame(
    study: Study, pairs: list[tuple[int, int]], results: list[Pair]
) -> pd.DataFrame:
    names = level_names(study)
    rows = [
        _row(study, pair, result, names)
        for pair, result in zip(pairs, results, strict=True)
    ]
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


def _row(
    study: Study, pair: tuple[int, int], result: Pair, names: list[str]
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
        "says": sentence(study, result, names[pair[0]], names[pair[1]]),
    }


def _lines(study: Study, results: Iterable[Pair]) -> list[str]:
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

"""Rank candidates by comparisons in pairs; some may not be told apart."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.html_styles import BODY, quiet_html
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import check_share, printable, shorten

from .bradley_terry import Ints, PairVerdicts, covariance, reachable, strengths
from .contrast_display import wrapped
from .reply_factors import check_replies, named
from .statistics import HOW_TO_INSTALL, Floats, t_quantile

PICKED = f"{PREFIX}picked"
SIDES = ("left", "right", "tie")
MIN_UNITS = 20
"""With fewer units there is no interval: its coverage would not be as stated."""
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates ranked by how often they are preferred; a cell shows them as a chart.

    Attributes:
        df: One row for each candidate, the best first: `candidate`; `strength`, a
            natural logarithm with mean 0, and its interval `low` and `high`; `n_won`,
            `n_lost`, `n_tied`; `is_best`, whether it cannot be told apart from the
            first candidate.
        best: The first candidate and those that cannot be told apart from it.
        n_units: The number of units in the intervals, such as the turns of picks.
        says: The answer in sentences.
        notes: Limitations of the answer.
        chart: The strengths with their intervals.
    """

    df: pd.DataFrame
    best: tuple[str, ...]
    n_units: int
    says: str
    notes: tuple[str, ...] = ()
    chart: IntervalChart = field(repr=False, default=IntervalChart(intervals=()))

    def __repr__(self) -> str:
        blocks = [wrapped([self.says]), self.chart.text(), wrapped(list(self.notes))]
        return to_terminal("\n\n".join(filter(None, blocks)))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        notes = "".join(quiet_html(to_text(note)) for note in self.notes)
        says = f"<strong>{to_text(self.says)}</strong>"
        html = f"{BODY}<div>{says}</div>{self.chart.html()}{notes}</div>"
        return {"text/html": html, "text/plain": repr(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdicts:
    """Verdicts on pairs of candidates, which are numbered by `names`."""

    names: list[str]
    sides: Ints  # shape (verdicts, 2): the left and the right candidate
    outcome: Ints  # shape (verdicts,): 0 left won, 1 right won, 2 tie
    unit: Ints  # shape (verdicts,): the number of the unit
    unit_noun: str  # the plural of the units, such as "turns"
    notes: list[str]

    def numbered(self) -> PairVerdicts:
        return PairVerdicts.of(len(self.names), self.sides, self.outcome, self.unit)


def ranking(
    df: Any,  # noqa: ANN401 - not checked yet
    by: str = "model",
    *,
    unit: str | list[str] | None = None,
    level: float = 0.95,
) -> Ranking:
    """Rank candidates by comparisons in pairs: see `svc.ranking`."""
    check_share("level", level)
    df = to_pandas(df)
    is_pairs = isinstance(df, pd.DataFrame) and {"left", "right", "winner"} <= {
        *df.columns
    }
    verdicts = _of_pairs(df, unit) if is_pairs else _of_picks(df, by, unit)
    numbered = verdicts.numbered()
    beats, counts = numbered.beats(), numbered.counts
    _check_connected(verdicts.names, beats)
    notes = [*verdicts.notes, *_separated(verdicts.names, beats)]
    if not reachable(beats).all():  # else some strengths would be infinite
        counts = counts + numbered.half_won()
    strength = strengths(len(verdicts.names), counts)
    reaches = _reaches(strength, numbered, level)
    return _result(verdicts, strength, reaches, notes)


def _of_pairs(df: pd.DataFrame, unit: str | list[str] | None) -> _Verdicts:
    has_all = df[["left", "right", "winner"]].notna().all(axis="columns")
    notes = _left_out(int((~has_all).sum()), "rows", "without a verdict")
    df = df[has_all].reset_index(drop=True)
    if unit is None and "row" in df.columns:
        unit = "row"  # several pairs, or raters, of one row depend on each other
    sides, winner = df[["left", "right"]].astype(str), df["winner"].astype(str)
    names = sorted({*sides["left"], *sides["right"]})
    if taken := [name for name in names if name in SIDES]:
        raise ParameterError(
            f"A candidate is called {taken[0]!r}, but in the column winner that means "
            "a side or a tie. Rename the candidate.",
            param="df",
        )
    for bad in df.index[sides["left"] == sides["right"]][:1]:
        raise ParameterError(
            f"Row {bad} compares {sides['left'][bad]!r} with itself; remove the row.",
            param="df",
        )
    is_left = (winner == "left") | (winner == sides["left"])
    is_right = (winner == "right") | (winner == sides["right"])
    for bad in df.index[~(is_left | is_right | (winner == "tie"))][:1]:
        raise ParameterError(
            f"The winner in row {bad} is {shorten(repr(winner[bad]), _SHOWN_CHARS)}; "
            "it must be left, right, tie or one of the two candidates.",
            param="df",
        )
    codes = sides.apply(lambda side: pd.Index(names).get_indexer(side)).to_numpy()
    return _Verdicts(
        names=names,
        sides=codes.astype(np.int64).reshape(-1, 2),
        outcome=np.where(is_left, 0, np.where(is_right, 1, 2)).astype(np.int64),
        unit=_units(df, unit),
        unit_noun=_unit_noun(unit, "comparisons"),
        notes=notes,
    )


def _of_picks(df: Any, by: str, unit: str | list[str] | None) -> _Verdicts:  # noqa: ANN401 - not checked yet
    df = check_replies(df)
    if PICKED not in df.columns:
        raise ParameterError(
            "The frame has no picks (score_picked) and no columns left, right and "
            "winner. Compare models in a panel and pick replies, then give "
            "svc.replies_df(); or give a frame with these three columns.",
            param="df",
        )
    [column] = named(df, [by])
    df = df[df[PICKED].notna() & df[column].notna()].sort_values("exchange_id")
    df = df.reset_index(drop=True).assign(_group=_comparisons(df, column))
    pairs: list[tuple[str, str, int]] = []
    n_unclear = 0
    for _, rows in df.groupby("_group", sort=True):
        won = rows.index[rows[PICKED].to_numpy(dtype=float) == 1]
        n_unclear += len(rows) > 1 and len(won) != 1
        if len(rows) > 1 and len(won) == 1:
            winner = str(rows[column][won[0]])
            others = rows[column].drop(won[0])
            pairs += [(winner, str(other), won[0]) for other in others]
    notes = _left_out(n_unclear, "comparisons", "without exactly one pick")
    names = sorted({name for pair in pairs for name in pair[:2]})
    rows_of_pairs = df.iloc[[pair[2] for pair in pairs]].reset_index(drop=True)
    units = _units(rows_of_pairs, "_group" if unit is None else unit)
    index = {name: code for code, name in enumerate(names)}
    sides = [(index[winner], index[other]) for winner, other, _ in pairs]
    return _Verdicts(
        names=names,
        sides=np.array(sides, dtype=np.int64).reshape(-1, 2),
        outcome=np.zeros(len(pairs), dtype=np.int64),
        unit=units,
        unit_noun=_unit_noun(unit, "turns"),
        notes=notes,
    )


def _comparisons(df: pd.DataFrame, column: str) -> list[int]:
    """Return the number of the comparison that each reply belongs to.

    A comparison is the replies of different candidates to one prompt of a conversation.
    """
    seen: dict[tuple[str, str], tuple[int, set[str]]] = {}
    numbers: list[int] = []
    n_groups = 0
    for conversation, prompt, name in zip(
        df["conversation"].astype(str),
        df["prompt"].astype(str),
        df[column].astype(str),
        strict=True,
    ):
        key = conversation, prompt
        number, names = seen.get(key, (-1, {name}))
        if name in names:  # the same question was sent again: another comparison
            number, names = n_groups, set()
            n_groups += 1
        seen[key] = (number, names | {name})
        numbers.append(number)
    return numbers


def _units(df: pd.DataFrame, unit: str | list[str] | None) -> Ints:
    if unit is None:
        return np.arange(len(df), dtype=np.int64)
    columns = named(df, unit, param="unit")
    for name in columns:
        if df[name].isna().any():
            raise ParameterError(
                f"{name} is missing in some rows, so their unit is not known. Fill in "
                "the values, or remove these rows.",
                param="unit",
            )
    codes: Ints = group_codes(df[columns])[0].astype(np.int64)
    return codes


def _unit_noun(unit: str | list[str] | None, default: str) -> str:
    if unit is None:
        return default
    if unit in ("row", ["row"]):
        return "rows"
    return f"values of {unit if isinstance(unit, str) else ' and '.join(unit)}"


def _left_out(n: int, what: str, why: str) -> list[str]:
    return [f"{count_in_words(n, what)} {why} left out."] if n else []


def _check_connected(names: list[str], beats: Any) -> None:  # noqa: ANN401 - an array
    if len(names) < 2:  # noqa: PLR2004 - a pair
        raise ParameterError(
            "There is nothing to rank: no two candidates were compared. Name the "
            "column of the candidates in by, such as by='temperature'; it is model if "
            "left out.",
            param="df",
        )
    joined = reachable(beats | beats.T)[0]
    if not joined.all():
        first, second = (
            ", ".join(name for name, is_in in zip(names, part, strict=True) if is_in)
            for part in (joined, ~joined)
        )
        raise ParameterError(
            f"Nothing compares {first} with {second}, so they cannot be ranked "
            "together. Compare some of them with each other, or rank each group "
            "separately.",
            param="df",
        )


def _separated(names: list[str], beats: Any) -> list[str]:  # noqa: ANN401 - an array
    """Return a note if some candidates never lost or tied against some others."""
    reached = reachable(beats)
    if reached.all():
        return []
    above = [names[number] for number in np.flatnonzero(~reached.all(axis=0))]
    says = f"{_listed([*map(_short, above)])} never lost or tied against some others"
    always = [
        _short(name)
        for number, name in enumerate(names)
        if not beats[:, number].any() and beats[number].any()
    ]
    if always:
        says = f"{_listed(always)} won every comparison"
    says += ", so it cannot be measured how much better they are. To keep the numbers "
    return [f"{says}finite, a made-up comparison, half won by each side, is added."]


def _reaches(
    strength: Floats, verdicts: PairVerdicts, level: float
) -> tuple[Floats, Floats]:
    """Return half the widths of the intervals.

    Shape (candidates,) each: of the strengths, and of the differences from the first
    candidate. The intervals of the differences hold together (Bonferroni). With too few
    units, or without SciPy, all are NaN.
    """
    n_units, first = verdicts.n_units, int(strength.argmax())
    shares = (1 + level) / 2, 1 - (1 - level) / (len(strength) - 1) / 2
    quantiles = t_quantile(shares, [n_units - 1] * 2)
    if n_units < MIN_UNITS:
        quantiles = np.full(2, np.nan)
    spread = covariance(verdicts)
    variance = spread.diagonal()
    variance_of_gap = np.maximum(variance[first] + variance - 2 * spread[first], 0)
    return quantiles[0] * np.sqrt(variance), quantiles[1] * np.sqrt(variance_of_gap)


def _result(
    verdicts: _Verdicts,
    strength: Floats,
    reaches: tuple[Floats, Floats],
    notes: list[str],
) -> Ranking:
    n_units = int(verdicts.unit.max()) + 1
    reach, reach_of_gap = reaches
    # "not >" since without intervals (NaN) no candidates can be told apart
    is_best = ~(strength.max() - strength > reach_of_gap)
    won = np.zeros((3, len(strength)), dtype=np.int64)
    for side in (0, 1):
        # seen from the right side, 0 (left won) and 1 (right won) change places
        result = np.where(verdicts.outcome == 2, 2, verdicts.outcome ^ side)  # noqa: PLR2004 - a tie
        np.add.at(won, (result, verdicts.sides[:, side]), 1)
    df = pd.DataFrame(
        {
            "candidate": pd.array(verdicts.names, dtype="string"),
            "strength": pd.array(strength, dtype="Float64"),
            "low": pd.array(strength - reach, dtype="Float64"),
            "high": pd.array(strength + reach, dtype="Float64"),
            **{
                f"n_{name}": pd.array(counts, dtype="Int64")
                for name, counts in zip(("won", "lost", "tied"), won, strict=True)
            },
            "is_best": pd.array(is_best, dtype="boolean"),
        }
    ).sort_values(["strength", "candidate"], ascending=[False, True])
    df = df.reset_index(drop=True)
    best = tuple(df["candidate"][df["is_best"]])
    counted = count_in_words(n_units, verdicts.unit_noun)
    says = _sentence(df, best, counted, is_early=n_units < MIN_UNITS)
    return Ranking(df, best, n_units, says, tuple(notes), _chart(df))


def _sentence(
    df: pd.DataFrame, best: tuple[str, ...], counted: str, *, is_early: bool
) -> str:
    if is_early:
        return (
            f"Too early to rank {_listed([*map(_short, df['candidate'])])}: there "
            f"{'is' if counted.startswith('1 ') else 'are'} only {counted}, but at "
            f"least {MIN_UNITS} are needed."
        )
    names = [*map(_short, best)]
    if df["low"].isna().all():
        return (
            f"{_listed(names)} are in the order of their strengths, over {counted}. "
            f"Intervals {HOW_TO_INSTALL}."
        )
    if len(best) == 1:
        rest = "the other" if len(df) == 2 else "each of the others"  # noqa: PLR2004 - a pair
        return f"{names[0]} is preferred to {rest}, over {counted}."
    return f"{_listed(names)} cannot be told apart as the best, over {counted}."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _short(name: str) -> str:
    return shorten(printable(name), _SHOWN_CHARS)


def _chart(df: pd.DataFrame) -> IntervalChart:
    rows: Any = df.astype({"low": "float64", "high": "float64"}).itertuples()
    return IntervalChart(
        intervals=[
            Interval(
                name=_short(row.candidate),
                value=float(row.strength),
                low=row.low,
                high=row.high,
                numbers=f"{row.n_won} won, {row.n_lost} lost, {row.n_tied} tied",
                is_clear=bool(row.is_best),
            )
            for row in rows
        ],
        origin=0.0,
    )

"""Show a comparison: its sentences, a chart of the differences, and the flips."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Protocol

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.html_styles import (
    BODY,
    details_html,
    message_html,
    quiet_html,
)
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import count_in_words
from svc_notebook.ledger.scores import PREFIX

from .contrast_sentences import CANNOT_TELL, SAME_COST, Drawn, Sentence, shared_remarks
from .contrast_study import in_sentence, short_names
from .flips import N_SHOWN, Flips, chosen_comparison, flips, records
from .joined_runs import IMPROVED, REGRESSED, RUN
from .missing import Missing
from .reply_factors import column_of, in_words, is_rate, spoken
from .rounding import difference_with_interval, number

_COLUMNS = 79  # of a terminal
_FACTORS = 3  # have a sentence in an answer of a few lines
_CLEAREST = 4  # sentences in such an answer, of all factors and scores
_SENTENCES = 6  # further sentences are folded, or counted in a terminal
_ROWS = 4  # more rows that only one value gets right are folded
_MAX_DRAWN = 30  # differences in the chart of a page
_MAX_DRAWN_IN_TERMINAL = 12
_LINE = "margin-bottom:.35em"
_PER_REQUESTS = 1_000  # costs are stated for so many requests


class Contrasted(Protocol):
    """The parts of a `Contrast` that are shown."""

    @property
    def df(self) -> pd.DataFrame:
        """One row for each comparison."""

    @property
    def says(self) -> Sequence[str]:
        """A sentence for each comparison."""

    @property
    def sentences(self) -> Sequence[Sentence]:
        """The sentences in parts."""

    @property
    def drawn(self) -> Sequence[Drawn]:
        """The numbers that the chart shows of each comparison."""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks that apply to all comparisons."""

    @property
    def replies(self) -> pd.DataFrame:
        """The replies that were compared."""

    @property
    def factors(self) -> Sequence[str]:
        """The columns whose values were compared."""

    @property
    def scores(self) -> Sequence[str]:
        """The columns that were measured, such as scores."""

    @property
    def by(self) -> Sequence[str]:
        """The columns of the subgroups."""

    @property
    def overall(self) -> "Contrasted | None":
        """The comparison over all subgroups together; None without subgroups."""

    @property
    def pair_by(self) -> Sequence[str]:
        """The columns that replies are paired by."""

    @property
    def missing(self) -> Missing:
        """How replies without a value are treated."""

    @property
    def margin(self) -> float | None:
        """The difference that would not matter."""

    @property
    def level(self) -> float:
        """The level of the intervals."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """The intervals on one axis: of all rates together, or of another score alone."""

    is_rate: bool
    intervals: list[Interval]


def html(contrast: Contrasted) -> str:
    """Return a comparison as HTML that needs no kernel and no network."""
    flipped = most_different(contrast)
    first, rest = _sentences(contrast)
    parts = [_block(_overall_lines(contrast)), _block(first)]
    if rest:
        title = count_in_words(len(rest), "more sentences")
        parts.append(details_html(title, _block(rest)))
    parts.append(_block(shared_remarks(contrast.sentences)))
    parts += [chart.html() for chart in charts(contrast)]
    parts.append(_block(_facts(contrast, n_drawn=_MAX_DRAWN)))
    if flipped is not None:
        parts.append(f"<div style=margin-top:.6em>{flipped.html(n_open=_ROWS)}</div>")
    parts.append(quiet_html(to_text(_hint(flipped))))
    return f"{BODY}{''.join(parts)}</div>"


def text(contrast: Contrasted) -> str:
    """Return the same for a terminal of 80 columns, without the replies."""
    flipped = most_different(contrast)
    first, rest = _sentences(contrast)
    if rest:
        first.append(f"({len(rest):,} more sentences are in .says)")
    drawn = charts(contrast, n_most=_MAX_DRAWN_IN_TERMINAL)
    facts = _facts(contrast, n_drawn=_MAX_DRAWN_IN_TERMINAL)
    closing = [*([] if flipped is None else [flipped.says]), _hint(flipped)]
    first += shared_remarks(contrast.sentences)
    blocks = [wrapped(_overall_lines(contrast)), wrapped(first)]
    blocks += [*(chart.text() for chart in drawn), wrapped(facts), wrapped(closing)]
    return to_terminal("\n\n".join(filter(None, blocks)))


def short_lines(contrast: Contrasted) -> list[str]:
    """Return the clearest comparison of each factor, and a sentence on flips.

    Further scores have a sentence if their result is clear. What applies to all of
    several sentences follows them.
    """
    places = clearest_places(contrast)
    shared = shared_remarks(contrast.sentences) if len(places) > 1 else []
    sentences = [contrast.sentences[place].text(without=shared) for place in places]
    if n_more := len(contrast.df) - len(sentences):
        factor, on = (
            repr(names[0] if len(names) == 1 else names)
            for names in (
                list(contrast.factors),
                [score.removeprefix(PREFIX) for score in contrast.scores],
            )
        )
        sentences[-1] += f" ({n_more:,} more: run.contrast({factor}, on={on}))"
    flipped = most_different(contrast)
    return [*sentences, *shared, *([] if flipped is None else [flipped.says])]


def clearest_places(contrast: Contrasted) -> list[int]:
    """Return where the comparisons that are least likely to be chance are.

    There is one for each of some factors, the clearest first; then one for each other
    score whose result is clear.
    """
    in_order = contrast.df["p"].fillna(1.0).argsort(kind="stable").tolist()
    are_clear = is_clear(contrast)
    of_factor: dict[str, int] = {}
    of_score: dict[tuple[str, str], int] = {}
    for place in in_order:
        factor, on = (str(contrast.df[name].iloc[place]) for name in ("factor", "on"))
        of_factor.setdefault(factor, place)
        if are_clear[place]:
            of_score.setdefault((factor, on), place)
    places = [*of_factor.values()][:_FACTORS]
    return list(dict.fromkeys([*places, *of_score.values()]))[:_CLEAREST]


def is_clear(contrast: Contrasted) -> list[bool]:
    """Return for each comparison whether it found a difference or has a verdict."""
    return [_is_clear(contrast, row) for row in records(contrast.df)]


def flips_of(contrast: Contrasted, row: Mapping[str, Any], n: int) -> Flips:
    """Return the rows on which the values of a comparison differ.

    Of two runs, the rows that only the earlier run gets right come first.
    """
    heads = ("", "")
    if row["factor"] == RUN:
        runs = [str(name) for name in contrast.replies[RUN].unique()]
        if runs.index(str(row["level"])) > runs.index(str(row["against"])):
            row = {**row, "level": row["against"], "against": row["level"]}
        heads = (REGRESSED, IMPROVED)
    first, second = _names(row, _level_names(contrast))
    subgroups = " and ".join(map(spoken, contrast.by))
    flipped = flips(
        contrast.replies,
        row["factor"],
        _score(contrast, row),
        (row["level"], row["against"]),
        names=(
            in_sentence(row["factor"], first),
            in_sentence(row["factor"], second),
        ),
        units=contrast.pair_by,
        missing=contrast.missing,
        n=n,
        heads=heads,
        scope=f"over all values of {subgroups}: " if subgroups else "",
    )
    how = f".flips(n={max(flipped.n_level, flipped.n_against)}) shows all"
    tables = ((head, replace(table, how_to_show=how)) for head, table in flipped.tables)
    return replace(flipped, tables=tuple(tables))


def most_different(contrast: Contrasted, n: int = N_SHOWN) -> Flips | None:
    """Return the flips in the clearest comparison of a score; None if none."""
    is_score = [
        _score(contrast, row).startswith(PREFIX) for row in records(contrast.df)
    ]
    if not any(is_score):  # other columns, such as seconds, differ in every row
        return None
    row = chosen_comparison(contrast.df[is_score], (..., ...), {})
    flipped = flips_of(contrast, row, n)
    return flipped if flipped.n_pairs else None


def _score(contrast: Contrasted, row: Mapping[str, Any]) -> str:
    return column_of(contrast.replies, row["on"])


def _measured_column(contrast: Contrasted, row: Mapping[str, Any]) -> str:
    """Return the column that is compared: the labels, if they correct scores."""
    name = row["on"] if pd.isna(row["labels"]) else row["labels"]
    return column_of(contrast.replies, name)


def charts(contrast: Contrasted, *, n_most: int = _MAX_DRAWN) -> list[IntervalChart]:
    """Return charts of the first `n_most` differences, one chart for each axis."""
    band = None if contrast.margin is None else (-contrast.margin, contrast.margin)
    return [
        IntervalChart(
            intervals=axis.intervals,
            origin=0.0,
            band=band,
            scale=100 if axis.is_rate else 1,
            unit="points" if axis.is_rate else "",
        )
        for axis in axes(contrast, n_most)
    ]


def axes(contrast: Contrasted, n_most: int | None = None) -> list[_Axis]:
    """Return the differences grouped by the axis that they are drawn on.

    Of more than `n_most` differences, the clear ones come before the others.
    """
    axes_by_name: dict[str, _Axis] = {}
    rows = records(contrast.df)
    for position in np.sort(_clear_first(contrast)[:n_most]).tolist():
        row = rows[position]
        score = _measured_column(contrast, row)
        is_share = is_rate(contrast.replies, score)
        axis = axes_by_name.setdefault("" if is_share else score, _Axis(is_share, []))
        axis.intervals.append(_interval(contrast, position, row, is_share=is_share))
    return list(axes_by_name.values())


def _interval(
    contrast: Contrasted, position: int, row: Mapping[str, Any], *, is_share: bool
) -> Interval:
    """Return the drawing of a comparison, with the numbers of its sentence."""
    name, amounts, means = contrast.drawn[position]
    value, low, high = amounts
    numbers = difference_with_interval(
        amounts, is_rate=is_share, means=means, level=contrast.level
    )
    return Interval(
        name=name,
        value=value,
        low=low,
        high=high,
        numbers="no value" if np.isnan(value) else numbers,
        is_clear=_is_clear(contrast, row),
        title=_title(contrast, row),
    )


def _title(contrast: Contrasted, row: Mapping[str, Any]) -> str:
    """Name the score, and the factor if there are several."""
    by = f" by {spoken(row['factor'])}" if len(contrast.factors) > 1 else ""
    name = _measured_column(contrast, row).removeprefix(PREFIX)
    return f"difference in {name}{by}{_corrected_scores(row)}"


def _corrected_scores(row: Mapping[str, Any]) -> str:
    """Name the scores that labels correct; "" without labels."""
    return "" if pd.isna(row["labels"]) else f", by {row['on']} and labels"


def _level_names(contrast: Contrasted) -> dict[str, dict[str, str]]:
    """Return, by factor, the short name of each level by its text in `in_words`."""
    names = {}
    for column, rows in contrast.df.groupby("factor", sort=False):
        factor = str(column)
        levels = pd.concat([rows["level"], rows["against"]]).unique()
        texts = [in_words(factor, level) for level in levels]
        names[factor] = dict(zip(texts, short_names(factor, levels), strict=True))
    return names


def _names(
    row: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]
) -> tuple[str, str]:
    factor = row["factor"]
    level, against = (in_words(factor, row[side]) for side in ("level", "against"))
    return names[factor][level], names[factor][against]


def _facts(contrast: Contrasted, *, n_drawn: int) -> list[str]:
    """Return how many comparisons are not drawn, what requests cost, and the notes."""
    n_more = len(contrast.df) - n_drawn
    more = [f"{n_more:,} more comparisons are in .df"] if n_more > 0 else []
    return [*more, *_costs(contrast), *contrast.notes]


def _costs(contrast: Contrasted) -> Iterable[str]:
    """Say what requests cost, for each value of each factor, the cheapest first."""
    df = contrast.replies
    if "cost" not in df.columns:
        return
    for factor, names in _level_names(contrast).items():
        mean_costs = df["cost"].groupby(df[factor].array, dropna=False).mean()
        costs = _PER_REQUESTS * mean_costs.dropna().sort_values()
        parts = [
            f"{names[text]}: {number(float(cost))}"
            for level, cost in costs.items()
            if (text := in_words(factor, level)) in names
        ]
        if parts and costs.iloc[-1] - costs.iloc[0] > SAME_COST * costs.iloc[-1]:
            yield f"{_PER_REQUESTS:,} requests cost {', '.join(parts)}"


def _is_clear(contrast: Contrasted, row: Mapping[str, Any]) -> bool:
    """Say whether a comparison found a difference, or reached a verdict."""
    if not pd.isna(row["verdict"]):
        return bool(row["verdict"] != CANNOT_TELL)
    return _float(row["p"]) < 1 - contrast.level


def _clear_first(contrast: Contrasted) -> Any:  # noqa: ANN401 - an array
    """Return the positions of all comparisons: clear ones, then single subgroups."""
    is_unclear = ~np.array(is_clear(contrast), dtype=bool)
    return np.lexsort((_is_between(contrast), is_unclear))


def _is_between(contrast: Contrasted) -> Any:  # noqa: ANN401 - an array
    """Return which comparisons are of the differences in two subgroups."""
    return contrast.df["is_between_groups"].to_numpy(dtype=bool)


def unclear_lines(contrast: Contrasted) -> list[str]:
    """Say in which subgroups nothing is clear, and if none differ clearly."""
    are_clear, is_between = np.array(is_clear(contrast)), _is_between(contrast)
    by = " and ".join(map(spoken, contrast.by))
    kinds = (
        (~is_between, f"within a single value of {by}", "comparisons"),
        (is_between, f"between values of {by}", "pairs"),
    )
    return [
        f"No clear difference {where}: {count_in_words(int(is_kind.sum()), nouns)}."
        for is_kind, where, nouns in kinds
        if is_kind.any() and not are_clear[is_kind].any()
    ]


def _overall_lines(contrast: Contrasted) -> list[str]:
    """Return the sentences over all subgroups, and how these are corrected."""
    if contrast.overall is None:
        return []
    first, rest = _sentences(contrast.overall)
    more = (
        [f"{count_in_words(len(rest), 'more comparisons')} over all."] if rest else []
    )
    return [*first, *more, *shared_remarks(contrast.overall.sentences)]


def _sentences(contrast: Contrasted) -> tuple[list[str], list[str]]:
    """Return the sentences that are shown, and the rest, in the order of the frame.

    Of many comparisons of subgroups, only those that are clear are shown.
    """
    order, n_shown = _clear_first(contrast), _SENTENCES
    lines: list[str] = []
    if contrast.by and len(order) > n_shown:
        n_shown = min(sum(is_clear(contrast)), n_shown)
        lines = unclear_lines(contrast)
    shared = shared_remarks(contrast.sentences)
    says = [sentence.text(without=shared) for sentence in contrast.sentences]
    first, rest = (
        [says[position] for position in np.sort(part).tolist()]
        for part in (order[:n_shown], order[n_shown:])
    )
    return [*first, *lines], rest


def _block(lines: Iterable[str]) -> str:
    return "".join(f'<div style="{_LINE}">{message_html(line)}</div>' for line in lines)


def wrapped(lines: Iterable[str]) -> str:
    """Wrap lines for a terminal."""
    return "\n".join(
        part
        for line in lines
        for part in wrap(line, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    )


def _hint(flipped: Flips | None) -> str:
    verbs = [".df has all numbers", ".plot() draws them"]
    return " · ".join([*verbs, *([".flips() has the rows"] if flipped else [])])


def _float(value: Any) -> float:  # noqa: ANN401 - a number or a missing one
    return float("nan") if pd.isna(value) else float(value)

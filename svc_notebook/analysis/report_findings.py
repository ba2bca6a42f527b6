"""The findings of a run as sections of its report: answer, figures and replies.

Pure functions of a frame of replies and the conclusions from it. The report does not
grow with the run: replies are counted, and only a few are shown.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.interval_chart import IntervalChart
from svc_notebook.display.number_words import count_in_words
from svc_notebook.display.report_page import (
    Drawings,
    Folded,
    ReportPart,
    ReportReplies,
    ReportSection,
    ReportTable,
    Sentences,
)
from svc_notebook.display.text_table import ComparisonTable
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import shorten

from . import rounding
from .compare import as_markdown, compared, plain
from .contrast import OF_TWO_DIFFERENCES, Contrast
from .contrast_display import charts as charts_of
from .contrast_display import (
    clearest_places,
    is_clear,
    most_different,
    unclear_lines,
)
from .contrast_sentences import ADJECTIVES, capitalised, shared_remarks
from .decision import Decision
from .judge_agreement import judge_agreement
from .reply_factors import (
    attributes,
    coded,
    column_of,
    counted,
    factors,
    has,
    in_words,
    is_rate,
    measure,
    named,
    prompt_codes,
    scores,
    spoken,
)
from .reply_factors import unit as prompt_columns
from .score_report import ScoreReport
from .summary import summary_df

JUDGE, RATED = f"{PREFIX}judge_", f"{PREFIX}rated_"
_REPLIES = 10  # at random, and as many of the worst
_FLIPS = 3  # rows in each direction
_DISAGREEMENTS = 5
_SENTENCES = 12
_CONDITIONS = 40  # rows of the table
_N_ATTRIBUTES = 4  # columns of a row that are shown with a reply
_HEAD_CHARS = 40
_VALUE_CHARS = 80
_LINE_CHARS = 40  # longer values get a separate line
_FIGURES = (
    "n_prompts",
    "n_units",
    "n_ok",
    "n_failed",
    "n_cut",
    "repeats_equal",
    "latency_p50_s",
    "cost_per_reply",
)
_FEWEST = 0.25  # of the rows of the value with the most; with fewer it is left out
_PAIR = 2
_WRITERS = {"repeats_equal": rounding.percent, "latency_p50_s": rounding.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFacts:
    """A judge of the run, as the report describes it.

    Attributes:
        name: The name of its verdicts.
        question: The question that it answered.
        models: The models that answered it.
        faults: The results of its probes, in sentences.
    """

    name: str
    question: str
    models: Sequence[str]
    faults: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of a run.

    Attributes:
        df: Its replies, as `check_replies` returns them.
        on: The scores that the report is about.
        scored: The summary of these scores; None if there are none.
        decision: The result of `decide`; None if it was not called.
        seed: The seed that draws the replies that are shown.
        unit: The columns that say which rows belong together.
        judges: The judges of the replies.
        by: Columns of the rows whose values are shown separately.
        split: The comparison for each value of `by`; None if there is none.
        too_few: Says which values have too few rows and are not compared.
        currency: The currency of the costs; "" if there is no price table.
    """

    df: pd.DataFrame
    on: Sequence[str]
    scored: ScoreReport | None
    decision: Decision | None
    seed: int
    unit: Sequence[str] | None
    judges: Sequence[JudgeFacts] = ()
    by: Sequence[str] = ()
    split: Contrast | None = None
    too_few: Sequence[str] = ()
    currency: str = ""

    @property
    def contrast(self) -> Contrast | None:
        """The comparison of conditions; None if there is nothing to compare."""
        return None if self.scored is None else self.scored.contrast


def against_best(
    df: pd.DataFrame, factor: str | Sequence[str] | None, on: str
) -> dict[str, Any]:
    """Return the factor that a margin applies to, and its value with the best mean.

    Against the best value, "at most so much worse" is the hardest to show. So choosing
    that value from the same replies does not make any value look better than it is.
    """
    names = factors(df) if factor is None else named(df, factor, param="factor")
    if len(names) != 1:
        known = f"several vary: {', '.join(names)}" if names else "none varies"
        raise ParameterError(
            f"margin needs one factor whose values are compared, but {known}. Name "
            "one with factor=.",
            param="margin",
        )
    codes, values = coded(df[names[0]])
    means = measure(df, on).groupby(codes).mean().to_numpy()
    return {"factor": names[0], "against": values[int(np.nanargmax(means))]}


def with_enough_rows(
    df: pd.DataFrame, factor: str | Sequence[str] | None, on: str
) -> tuple[pd.DataFrame, list[str]]:
    """Leave out values that have far fewer rows than others, such as a pilot's model.

    Nothing is left out if fewer than two values of a factor would remain.

    Returns:
        The replies that remain, and a sentence for each factor with such values.
    """
    names = factors(df) if factor is None else named(df, factor, param="factor")
    rows = prompt_codes(df)
    is_known = measure(df, on).notna().to_numpy()
    is_enough = np.ones(len(df), dtype=bool)
    notes = []
    for name in names:
        codes, values = coded(df[name])
        n_rows = np.array(
            [
                len(np.unique(rows[is_known & (codes == code)]))
                for code in range(len(values))
            ]
        )
        most = n_rows.max(initial=0)
        few = np.nonzero((n_rows > 0) & (n_rows < most * _FEWEST))[0]
        if not len(few) or np.count_nonzero(n_rows) - len(few) < _PAIR:
            continue
        is_enough &= ~np.isin(codes, few)
        listed = ", ".join(
            f"{in_words(name, values[code])} ({n_rows[code]:,} of {most:,})"
            for code in few
        )
        notes.append(f"Too few rows yet: {listed}; left out of the answer.")
    return df[is_enough].reset_index(drop=True), notes


def reworded(text: str) -> str:
    """Write a sentence for readers who do not know the package.

    Columns such as `prompt_label` are named as what they label. How comparisons are
    corrected is left out: it is said once, at the end of the report.
    """
    text = _LABELS.sub(lambda label: spoken(label[1]), _CORRECTED.sub("", text))
    text = _DIFFERENCE.sub(r"difference in how often the reply is \1", text)
    return capitalised(text)


_LABELS = re.compile(r"\b(combination|model|prompt|system|tools)_(?:label|template)\b")
_CORRECTED = re.compile(r" ?(?:Not c|C)orrected for [\d,]+ comparisons(?: \(\w+\))?\.")
_DIFFERENCE = re.compile(rf"\bdifference in ({'|'.join(sorted(ADJECTIVES))})\b")


def _head(name: str) -> str:
    """Name a column above its values."""
    return reworded(spoken(name))


def measured(df: pd.DataFrame, on: Iterable[str]) -> str:
    """Write what scores measure, such as "how often the reply is right"."""
    return " and ".join(_measured(name, is_share=is_rate(df, name)) for name in on)


def _measured(on: str, *, is_share: bool) -> str:
    name = _short(on)
    if not is_share:
        return name
    if name in ADJECTIVES:
        return f"how often the reply is {name}"
    return f"how often {name} is true"


def answer_lines(findings: Findings) -> tuple[list[str], list[str]]:
    """Return the answer, and the sentences that explain it."""
    if findings.decision is not None:
        decision = findings.decision
        rest = decision.says.removeprefix(decision.headline)
        return [reworded(decision.headline)], [reworded(rest)]
    if findings.contrast is not None:
        return _clearest_sentences(findings.contrast)
    if findings.scored is not None:
        rows = [
            (chart, row) for chart in findings.scored.charts for row in chart.intervals
        ]
        return [f"{row.title}: {row.numbers} for {row.name}." for _, row in rows[:3]], [
            "There is one condition, so there is nothing to compare it with."
        ]
    if not has(findings.df, "status", "ok").any():
        return ["There is no answer: no request has a reply."], []
    return [
        "There is no answer: no reply has a score, so nothing says which is better."
    ], []


def _clearest_sentences(contrast: Contrast) -> tuple[list[str], list[str]]:
    """Return the clear results of each factor and score, and what else is below."""
    places, n = clearest_places(contrast), len(contrast.df)
    are_clear = is_clear(contrast)
    shared = shared_remarks(contrast.sentences) if len(places) > 1 else []
    leads: list[str] = []
    rest: list[str] = []
    for place in places:
        says = reworded(contrast.sentences[place].text(without=shared))
        (leads if are_clear[place] else rest).append(says)
    n_more = n - len(places)
    if n_more and len(places) > 1:
        rest.append(f"And {count_in_words(n_more, 'more comparisons')} below.")
    elif n_more and leads:
        rest.append(f"This is the clearest of {n:,} comparisons.")
    if not leads and n > 1:
        return [f"None of {n:,} comparisons found a difference."], rest
    if not leads:
        leads, rest = rest[:1], rest[1:]
    if len(leads) > 1:
        return leads, rest
    claim, but, caveat = leads[0].partition(". But ")
    return ([f"{claim}."], [f"But {caveat}", *rest]) if but else (leads, rest)


def difference_section(findings: Findings) -> ReportSection | None:
    """Return the differences as charts and as sentences with their caveats."""
    decision, contrast = findings.decision, findings.contrast
    parts: list[ReportPart] = []
    if decision is not None:
        notes = [*map(reworded, decision.notes)]
        parts += [Drawings([decision.chart]), Sentences(notes, style="quiet")]
    if contrast is not None:
        if decision is not None and decision.chart.band is not None:
            parts.append(Sentences([_WITHOUT_MARGIN], style="quiet"))
        parts += _difference_parts(contrast, is_decided=decision is not None)
        if decision is None:
            parts.append(Sentences([_FILLED], style="quiet"))
    return ReportSection("Differences", parts) if parts else None


_WITHOUT_MARGIN = (
    "The answer above is that of the decision, with its margin. What follows is "
    "without the margin: it asks whether there is any difference."
)


def _difference_parts(contrast: Contrast, *, is_decided: bool) -> list[ReportPart]:
    """Return the charts of a comparison, its clearest sentences, and its notes.

    After a decision, only clear differences have a sentence: how many rows would tell
    is what the decision says.
    """
    order = np.argsort(contrast.df["p"].fillna(1.0), kind="stable")
    if is_decided:
        order = order[np.array(is_clear(contrast))[order]]
    shown = np.sort(order[:_SENTENCES]).tolist()
    shared = shared_remarks(contrast.sentences)
    says = [
        reworded(contrast.sentences[position].text(without=shared))
        for position in shown
    ]
    for name in map(spoken, contrast.by):
        says = [line.replace(f"{name}=", f"{name} ") for line in says]
    if n_more := len(order) - len(says):
        says.append(f"{n_more:,} more comparisons, less clear ones, are left out.")
    notes = [*filter(None, map(reworded, [*shared, *contrast.notes]))]
    return [
        Drawings([*map(_with_plain_titles, charts_of(contrast))]),
        Sentences(says, is_list=True),
        Sentences(notes, style="quiet"),
    ]


def _with_plain_titles(chart: IntervalChart) -> IntervalChart:
    rows = [replace(row, title=reworded(row.title)) for row in chart.intervals]
    return replace(chart, intervals=rows)


_FILLED = "A filled point is a clear difference, a hollow one is not."


def condition_section(findings: Findings, table: pd.DataFrame) -> ReportSection:
    """Return charts of each score by condition, above the table of all figures."""
    charts: Sequence[IntervalChart] = ()
    if findings.scored is not None:
        charts = [*map(_with_scores_in_words, findings.scored.charts)]
    parts = [Drawings(charts), *_table_parts(findings, table, _conditions(findings))]
    return ReportSection("The figures", parts)


def _with_scores_in_words(chart: IntervalChart) -> IntervalChart:
    rows = [
        replace(row, title=_measured(row.title, is_share=chart.unit == "%"))
        for row in chart.intervals
    ]
    return replace(chart, intervals=rows)


def _conditions(findings: Findings) -> list[str]:
    return factors(findings.df) or named(findings.df, "model")


def split_section(findings: Findings) -> ReportSection | None:
    """Return figures and differences for each value of a column of the rows."""
    if not findings.by:
        return None
    keys = list(dict.fromkeys([*findings.by, *_conditions(findings)]))
    table = summary_df(
        findings.df,
        by=keys,
        on=list(findings.on) or None,
        unit=findings.unit or None,
        tell=lambda _: None,  # the first table has these notes
    )
    parts = _table_parts(findings, table, keys)
    if findings.split is not None:
        if findings.decision is not None:
            is_one = findings.contrast is None or findings.contrast.looks == "one"
            says = [_DESCRIBES, *([] if is_one else [_TOO_SURE])]
            parts.append(Sentences([" ".join(says)], style="quiet"))
        parts += _split_parts(findings.split, is_decided=findings.decision is not None)
    return ReportSection(f"By {' and '.join(findings.by)}", parts)


def _split_parts(split: Contrast, *, is_decided: bool) -> Iterator[ReportPart]:
    """Return the clear differences of subgroups, and fold the others below a line.

    If a single subgroup has a clear difference, the chart shows all of them.
    """
    are_clear = np.array(is_clear(split), dtype=bool)
    is_single = ~split.df["is_between_groups"].to_numpy(dtype=bool)
    is_shown = are_clear | (is_single & are_clear[is_single].any())
    shown, rest = _part_of(split, is_shown), _part_of(split, ~is_shown)
    if is_shown.any():  # without the sentences that cannot tell
        yield from _difference_parts(shown, is_decided=True)
        rest = replace(rest, notes=[x for x in rest.notes if x not in shown.notes])
    yield Sentences([*map(reworded, unclear_lines(split))])
    if not is_shown.all():
        title = f"{count_in_words(len(rest.df), 'comparisons')}, none of them clear"
        if len(rest.df) == 1:
            title = "1 comparison that is not clear"
        yield Folded(title, _difference_parts(rest, is_decided=is_decided))


def _part_of(contrast: Contrast, is_wanted: Any) -> Contrast:  # noqa: ANN401 - flags
    """Return some of the comparisons, with the notes that apply to them."""
    (places,) = np.nonzero(is_wanted)
    df = contrast.df.iloc[places]
    has_pairs = bool(df["is_between_groups"].any())
    return replace(
        contrast,
        df=df,
        notes=[x for x in contrast.notes if has_pairs or x != OF_TWO_DIFFERENCES],
        says=[contrast.says[place] for place in places],
        sentences=[contrast.sentences[place] for place in places],
        drawn=[contrast.drawn[place] for place in places],
    )


_DESCRIBES = (
    "These figures describe parts of the rows; the answer is the one over all rows."
)
_TOO_SURE = (
    "Their ranges are for one look, at the end, but the replies were looked at more "
    "than once, so they are wrong more often than they say."
)


def _table_parts(
    findings: Findings, table: pd.DataFrame, keys: Sequence[str]
) -> list[ReportPart]:
    """Return the table of all figures, and how many conditions are left out."""
    names = [str(name) for name in table.columns]
    heads = {**_HEADS, "n_prompts": counted(findings.df)}
    if findings.currency:
        heads["cost_per_reply"] += f" ({findings.currency})"
    columns: list[tuple[str, list[str]]] = [
        (_head(name), [in_words(name, value) for value in plain(table[name])])
        for name in keys
    ]
    for on in findings.on:
        short = on.removeprefix(PREFIX)
        name = short if short in names else on
        if name in names:
            columns.append((short, _with_intervals(findings.df, on, table, name)))
            columns += [
                (f"{heads[count]} with {short}", _figures(table[own], own))
                for count in ("n_prompts", "n_units")
                if (own := f"{count}_{name}") in names
            ]
    columns += [
        (heads.get(name, name), _figures(table[name], name))
        for name in _FIGURES
        if name in names and _is_worth_showing(table, name)
    ]
    n_more = len(table) - _CONDITIONS
    rows = list(zip(*(texts[:_CONDITIONS] for _, texts in columns), strict=True))
    parts: list[ReportPart] = [ReportTable([head for head, _ in columns], rows)]
    if n_more > 0:
        parts.append(Sentences([f"{n_more:,} more conditions are left out."]))
    return parts


_HEADS = {
    "n_units": "units",
    "n_ok": "replies",
    "n_failed": "failed",
    "n_cut": "cut",
    "repeats_equal": "repeats equal",
    "latency_p50_s": "median seconds",
    "cost_per_reply": "cost of a reply",
}


def _is_worth_showing(table: pd.DataFrame, name: str) -> bool:
    """Say whether a figure is known, and if it counts faults, not 0 everywhere."""
    values = table[name].dropna()
    if name in {"n_failed", "n_cut"}:
        return bool((values > 0).any())
    if name == "n_units":
        return bool((table["n_units"] != table["n_prompts"]).fillna(value=False).any())
    return len(values) > 0


def _with_intervals(
    df: pd.DataFrame, on: str, table: pd.DataFrame, name: str
) -> list[str]:
    is_share = is_rate(df, on)
    write = (
        rounding.percent_with_interval if is_share else rounding.number_with_interval
    )
    ends = (table[name + end].to_numpy(dtype=float, na_value=np.nan) for end in _ENDS)
    missing = ["no value" if n else "no replies" for n in table["n_ok"]]
    return [
        why if np.isnan(value) else write(value, low, high)
        for value, low, high, why in zip(*ends, missing, strict=True)
    ]


_ENDS = ("", "_low", "_high")


def _figures(values: pd.Series, name: str) -> list[str]:
    write = _WRITERS.get(name, rounding.number)
    return ["" if pd.isna(value) else write(float(value)) for value in values]


def table_of(findings: Findings) -> tuple[pd.DataFrame, list[str]]:
    """Return the summary by condition, and notes on missing replies."""
    notes: list[str] = []
    table = summary_df(
        findings.df,
        on=list(findings.on) or None,
        unit=findings.unit or None,
        tell=notes.extend,
    )
    return table, notes


def limit_lines(findings: Findings) -> Iterator[str]:
    """Say what the replies cannot show: small differences, other rows, and so on."""
    contrast = findings.contrast
    if contrast is not None:
        yield from _too_small(contrast, counted(findings.df, findings.unit or None))
        if contrast.looks == "one" and contrast.is_first_look:  # else a note says it
            yield (
                "The ranges are for one look, at the end. Looking repeatedly and "
                "stopping when a difference is clear is wrong more often than they say."
            )
    if findings.scored is not None:
        yield (
            "The figures hold for rows like these. Nothing here says how the rows were "
            "chosen."
        )
    for name in _judges(findings.df):
        if name.replace(JUDGE, RATED) not in findings.df.columns:
            yield (
                f"{_short(name)} is what a model says about replies. No person has "
                f"rated them, so nothing here says how often it is wrong."
            )
    if len(findings.df) and _n_returned(findings.df) > len(
        findings.df["model"].unique()
    ):
        yield "A model answered in several versions; the figures mix them."


def _too_small(contrast: Contrast, units: str) -> Iterator[str]:
    """Name the smallest difference that would probably have been found, by factor.

    Of several pairs of values, it is that of the pair that shows least.
    """
    known = contrast.df.dropna(subset="smallest_difference")
    for on, rows in known.groupby("on", sort=False):
        largest = rows.loc[
            rows.groupby("factor", sort=False)["smallest_difference"].idxmax()
        ]
        column = column_of(contrast.replies, str(on))
        sizes = [
            rounding.difference(float(size), is_rate=is_rate(contrast.replies, column))
            for size in largest["smallest_difference"]
        ]
        if len(contrast.factors) > 1:
            sizes = [
                f"{size} between values of {spoken(name)}"
                for size, name in zip(sizes, largest["factor"], strict=True)
            ]
        few, many = int(largest["n_units"].min()), int(largest["n_units"].max())
        over = count_in_words(many, units)
        yield reworded(
            f"In {over if few == many else f'{few:,} to {over}'}, differences in "
            f"{measured(contrast.replies, [column])} would often be missed if they are "
            f"less than {' or '.join(sizes)}."
        )


def _n_returned(df: pd.DataFrame) -> int:
    return len(df.dropna(subset="model_returned").groupby(["model", "model_returned"]))


def flip_section(findings: Findings) -> ReportSection | None:
    """Return the rows that only one value of the clearest comparison gets right."""
    if findings.contrast is None:
        return None
    flipped = most_different(findings.contrast, _FLIPS)
    if flipped is None:
        return None
    parts: list[ReportPart] = [Sentences([reworded(flipped.says)])]
    parts += [
        ReportReplies(reworded(head), _with_plain_names(table))
        for head, table in flipped.tables
    ]
    return ReportSection("Where only one is right", parts)


def _with_plain_names(table: ComparisonTable) -> ComparisonTable:
    return replace(
        table,
        row_names=tuple(map(reworded, table.row_names)),
        column_names=tuple(map(reworded, table.column_names)),
        how_to_show="",  # it is code, which readers of a report do not run
    )


def random_section(findings: Findings) -> ReportSection | None:
    """Return some replies, drawn at random by the run's seed."""
    (places,) = np.nonzero(has(findings.df, "status", "ok"))
    if not len(places):
        return None
    chosen = sorted(_draw(places.tolist(), findings.seed, "random"))
    lead = (
        f"{len(chosen)} of {count_in_words(len(places), 'replies')}, drawn at random."
    )
    if len(chosen) == len(places):
        lead = f"All replies: {len(places):,}."
    return ReportSection(
        "Replies at random",
        [Sentences([lead]), ReportReplies("", _table(findings, chosen))],
    )


def worst_section(findings: Findings) -> ReportSection | None:
    """Return the replies with the lowest score; equal ones are drawn by the seed."""
    if not findings.on:
        return None
    on = findings.on[0]
    values = measure(findings.df, on).to_numpy()
    (places,) = np.nonzero(~np.isnan(values) & has(findings.df, "status", "ok"))
    if not len(places):
        return None
    if is_rate(findings.df, on):  # of a rate, only wrong replies are the worst
        places = places[values[places] == 0]
    if not len(places):
        lead = f"Every reply has the highest {_short(on)}, so there is no worst one."
        return ReportSection("The worst replies", [Sentences([lead])])
    drawn = _draw(places.tolist(), findings.seed, "worst", n=len(places))
    chosen = sorted(drawn, key=lambda place: float(values[place]))[:_REPLIES]
    lead = f"{len(chosen)} replies with the lowest {_short(on)}"
    if is_rate(findings.df, on):
        lead = f"{len(chosen)} of {count_in_words(len(places), 'replies')} "
        name = _short(on)
        not_so = f"are not {name}" if name in ADJECTIVES else f"have no {name}"
        lead += f"that {not_so}, drawn at random"
    parts: list[ReportPart] = [Sentences([f"{lead}."])]
    return ReportSection(
        "The worst replies", [*parts, ReportReplies("", _table(findings, chosen))]
    )


def judge_section(
    findings: Findings, note_on: Callable[[str], str]
) -> ReportSection | None:
    """Return how far judges agree with people, and the results of their probes.

    Args:
        findings: The findings of the run.
        note_on: Returns a remark on a column of labels; "" if there is none.
    """
    parts: list[ReportPart] = []
    for facts in findings.judges:
        models = ", ".join(facts.models)
        head = f"{facts.name} was asked of {models}: {facts.question}"
        parts.append(Sentences([head, *facts.faults]))
    for judge in _judges(findings.df):
        labels = judge.replace(JUDGE, RATED)
        if labels not in findings.df.columns:
            continue
        try:
            agreed = judge_agreement(
                findings.df, judge, labels, unit=findings.unit or None
            )
        except ParameterError as problem:  # such as scores that are not yes and no
            parts.append(Sentences([str(problem)]))
            continue
        parts.append(Sentences(agreed.says))
        notes = [*agreed.notes, note_on(labels)]
        parts.append(Sentences([*filter(None, notes)], style="quiet"))
        differing = findings.df.index[
            (measure(findings.df, judge) != measure(findings.df, labels))
            & findings.df[[judge, labels]].notna().all(axis=1)
        ].tolist()
        if differing:
            chosen = sorted(_draw(differing, findings.seed, judge, n=_DISAGREEMENTS))
            of_all = count_in_words(len(differing), "replies")
            head = f"{len(chosen)} of {of_all} on which they differ"
            parts.append(ReportReplies(head, _table(findings, chosen)))
    return ReportSection("The judges", parts) if parts else None


def _judges(df: pd.DataFrame) -> list[str]:
    return [name for name in scores(df) if name.startswith(JUDGE)]


def _draw(
    places: Sequence[int], seed: int, purpose: str, n: int = _REPLIES
) -> list[int]:
    draw = Random(f"{seed}/report/{purpose}")  # noqa: S311 - no secret
    return draw.sample(list(places), min(n, len(places)))


def _table(findings: Findings, places: Sequence[int]) -> ComparisonTable:
    """Return replies one below another, each below the values that identify it."""
    df = findings.df.iloc[list(places)]
    more = attributes(findings.df)[:_N_ATTRIBUTES] or ["prompt"]
    names = [*prompt_columns(df), *factors(findings.df), *more]
    names += ["repeat"] if (findings.df["repeat"] > 0).any() else []
    names = list(dict.fromkeys(names))
    texts = {
        name: [in_words(name, value) for value in plain(df[name])] for name in names
    }
    # long values get a line each, and the others share one
    longest = {name: max(map(len, texts[name]), default=0) for name in names}
    long = [name for name in names if longest[name] > _LINE_CHARS]
    brief = [name for name in names if name not in long]
    heads = [_value_line(texts, brief, row) for row in range(len(df))]
    results = [*scores(df)[:_N_ATTRIBUTES], "answer"]
    results = [name for name in results if name in df.columns]
    values = {
        name: [in_words(name, value) for value in plain(df[name])] for name in results
    }
    verdicts = [
        name for name in results if _short(name) in ADJECTIVES and is_rate(df, name)
    ]
    values |= {name: _in_words(df, name) for name in verdicts}
    return ComparisonTable(
        title="",
        row_names=(
            *(["row" if brief[0] == "row" else "reply"] if brief else []),
            *map(_head, long),
        ),
        column_names=(),
        heads=((),),
        rows=tuple(
            (
                (*([head] if brief else []), *(texts[name][row] for name in long)),
                (
                    (
                        replace(
                            as_markdown(entry),
                            label=_value_line(
                                values,
                                _known_names(values, results, row),
                                row,
                                verdicts,
                            ),
                        ),
                    ),
                ),
            )
            for row, (head, entry) in enumerate(zip(heads, compared(df), strict=True))
        ),
    )


def _in_words(df: pd.DataFrame, on: str) -> list[str]:
    """Write each value of a rate as "right", "not right" or "missing"."""
    words = {1.0: _short(on), 0.0: f"not {_short(on)}"}
    return [words.get(value, "missing") for value in measure(df, on).tolist()]


def _known_names(
    texts: Mapping[str, Sequence[str]], names: Sequence[str], row: int
) -> list[str]:
    """Return the columns that have a value in a row."""
    return [name for name in names if texts[name][row] != "missing"]


def _value_line(
    texts: Mapping[str, Sequence[str]],
    names: Sequence[str],
    row: int,
    plain_names: Collection[str] = ("model",),
) -> str:
    """Write the values of a row in a line, such as "3 · temperature 0.5"."""
    parts = []
    for position, name in enumerate(names):
        value = shorten(texts[name][row], _VALUE_CHARS)
        # the table names a row's number, and models need no name before them
        is_plain = name in plain_names or (position == 0 and name == "row")
        head = "" if is_plain else f"{shorten(_head(_short(name)), _HEAD_CHARS)} "
        parts.append(head + value)
    return " · ".join(parts)


def _short(name: str) -> str:
    return name.removeprefix(PREFIX)

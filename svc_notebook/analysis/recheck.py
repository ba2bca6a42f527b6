"""Check whether a model still answers as it did in a run, and report the result.

The rule for what counts as a change is in `change_rule`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, isnan, log, nan
from typing import Any, Literal

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.html_styles import BODY, quiet_html
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import cost_in_words, count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import check_positive, check_share, printable

from . import contrast_display, rounding
from .change_rule import (
    Change,
    ChangeRule,
    ChangeVerdict,
    CheckedReplies,
    change_of,
    of_texts,
)
from .contrast_study import check_share_margin, short_names, subtraction
from .flips import Flips, flips
from .joined_runs import IMPROVED, REGRESSED, joined
from .reply_factors import coded, is_rate, measure, unit, unit_codes
from .rounding import round_up

CHECK = "check"
"""The column with the number of the check: 0 for the replies of the run."""
MARGIN = 0.05
"""The default margin: a share that differs by less counts as unchanged."""
_LENGTH_RATIO = 1.1  # lengths that differ by a smaller ratio count as unchanged
_DRAWN_CHECKS = 8
_FLIPS = 3  # rows that are shown in each direction
_BEFORE, _NOW = "before", "now"
_NOW_MINUS_BEFORE = subtraction((_NOW, _BEFORE))
_TEMPERATURE = "temperature"
_STOP = "stop"
_ORDER: tuple[ChangeVerdict, ...] = ("changed", "cannot tell", "as before")

Kind = Literal["score", "number", "texts", "length", "ends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckQuestion:
    """The question of a recheck.

    Attributes:
        on: The score to compare; None compares the texts, their lengths and how they
            end.
        margin: The difference of the score up to which it counts as unchanged; None is
            5 points.
        unit: Columns that say which rows belong together; None if none do.
        level: The chance that all checks together raise no false alarm, if the model
            did not change.
    """

    on: str | None
    margin: float | None = None
    unit: Sequence[str] | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.margin is not None:
            check_positive("margin", self.margin)
        check_share("level", self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequests:
    """The requests of one check.

    Attributes:
        name: The name of the check's run.
        n_requests: How many requests it sent.
        cost: The cost of these requests; NaN is not known.
        currency: The currency of the cost.
        n_rows_of_run: How many rows the checked run has.
        notes: Further remarks.
    """

    name: str
    n_requests: int
    cost: float
    currency: str
    n_rows_of_run: int
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Whether a model still answers as in a run; a cell shows sentences and a chart.

    Attributes:
        says: The answer in some sentences.
        verdict: "as before", "changed" or "cannot tell".
        is_worse: Whether a score is clearly lower than in the run.
        name: The name of this check's run, for `svc.run`.
        n_requests: How many requests this check sent.
        cost: The cost of these requests; NaN is not known.
        notes: Further remarks.
        df: One row for each check, model and measure: rows so far, the difference from
            the run (or from the replies before the check since which it changed), with
            its interval.
        chart: The rows of `df` as a chart.
        flips: If a score has changed, the rows that the model gets right only before or
            only now.

    Example:
        >>> checked = run.recheck(n=3, on="right")
        >>> assert not checked.is_worse, checked.says
    """

    says: str
    verdict: ChangeVerdict
    is_worse: bool
    name: str
    n_requests: int
    cost: float
    notes: Sequence[str]
    df: pd.DataFrame = field(repr=False)
    chart: IntervalChart = field(repr=False)
    flips: Flips | None = field(repr=False)

    def to_json(self) -> str:
        """Return the result as one line of JSON; values that are not known are null.

        `difference`, `low`, `high` and `n_rows` are from the first row of `df` that has
        the same check and verdict.
        """
        rows = self.df[self.df[CHECK] == self.df[CHECK].max()]
        rows = rows[rows["verdict"] == self.verdict]
        numbers = ("difference", "low", "high", "n_rows")
        decisive = rows.iloc[0] if len(rows) else dict.fromkeys(numbers)
        names = ("verdict", "is_worse", "says", "n_requests", "cost")
        values: dict[str, Any] = {CHECK: self.name}
        values |= {name: getattr(self, name) for name in names}
        values |= {name: decisive[name] for name in numbers}
        known = {name: value for name, value in values.items() if not pd.isna(value)}
        known = dict.fromkeys(values) | known
        return json.dumps(known, default=float)  # numbers of a frame are NumPy's

    def __repr__(self) -> str:
        says, notes = (
            contrast_display.wrapped(lines) for lines in ([self.says], self.notes)
        )
        chart = self.chart.text() if self.chart.intervals else ""
        rows = "" if self.flips is None else repr(self.flips)
        return to_terminal("\n\n".join(filter(None, [says, chart, rows, notes])))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        answer, mark, rest = self.says.partition(". ")
        says = f"<strong>{to_text(answer + mark.strip())}</strong> {to_text(rest)}"
        chart = self.chart.html() if self.chart.intervals else ""
        rows = "" if self.flips is None else self.flips.html()
        notes = "".join(quiet_html(to_text(note)) for note in self.notes)
        html = f"{BODY}<div>{says}</div>{chart}{rows}{notes}</div>"
        return {"text/html": html, "text/plain": repr(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """A measure of a model's replies.

    Attributes:
        name: Its name.
        model: The model, if there are several; else "".
        kind: What it measures.
        checked: The replies with their values of the measure.
        rule: When it counts as changed.
    """

    name: str
    model: str
    kind: Kind
    checked: CheckedReplies
    rule: ChangeRule

    def at(self, check: int) -> Change:
        """Return the change as it was known after a check."""
        return change_of(self.checked.where(self.checked.check <= check), self.rule)

    @property
    def title(self) -> str:
        """The model, if there are several, and the measure."""
        return f"{self.model}: {self.name}" if self.model else self.name

    def interval(self, change: Change) -> str:
        """Write an interval, such as "-2 to 4 points"."""
        low, high = change.interval
        if isnan(low):
            return "no difference" if change.verdict == "as before" else "not known"
        if self.kind == "length":
            low, high = (100 * (exp(end) - 1) for end in (low, high))
            return f"{low:.0f} to {high:.0f} %".replace("-0 ", "0 ")
        if self.kind == "number":
            text = self.difference(change)
            return text.partition("(")[2].removesuffix(")")
        low_text, high_text = rounding.points((low, high), margin=self.rule.margin)
        return f"{low_text} to {high_text} points"

    def difference(self, change: Change) -> str:
        """Write a difference with its interval, such as "-12 points (-20 to -4)"."""
        amounts = (change.sequence.value, *change.interval)
        if self.kind == "length":
            return f"{100 * (exp(amounts[0]) - 1):.0f} % ({self.interval(change)})"
        return rounding.difference_with_interval(amounts, is_rate=self.kind != "number")


def is_share(df: pd.DataFrame, on: str) -> bool:
    """Say whether a score is a share: all its values are from 0 to 1."""
    known = measure(df, on).dropna()
    return is_rate(df, on) or bool(known.between(0, 1).all())


def check_margin(df: pd.DataFrame, question: CheckQuestion) -> None:
    """Refuse a margin that is missing or too large, before requests are sent."""
    if question.on is None:
        return
    is_of_shares, margin = is_share(df, question.on), question.margin
    if margin is None and not is_of_shares:
        raise ParameterError(
            f"margin is needed, since {printable(question.on)} has values outside of 0 "
            "to 1. Give the largest difference that would not matter, in the unit of "
            f"{printable(question.on)}.",
            param="margin",
        )
    check_share_margin(margin, is_share=is_of_shares)


def rechecked(
    df: pd.DataFrame, question: CheckQuestion, requests: CheckRequests
) -> Recheck:
    """Return the result that follows from the replies of a run and of its checks.

    Args:
        df: The good replies of all of them, with the number of the check in `check`.
        question: What is compared, and with which margin and level.
        requests: The requests of the newest check.
    """
    newest = int(df[CHECK].max())
    measures = _measures(df, question) if newest else []
    changes = [measured.at(newest) for measured in measures]
    other = list(_other_models(df))
    verdicts = [change.verdict for change in changes]
    verdict: ChangeVerdict = next((x for x in _ORDER if x in verdicts), "cannot tell")
    if other:
        verdict = "changed"
    lines = [*other, *_sentences(measures, changes, requests)]
    worse = [
        measured
        for measured, change in zip(measures, changes, strict=True)
        if change.verdict == "changed"
        and measured.kind in {"score", "number"}
        and change.sequence.value < 0
    ]
    return Recheck(
        says=" ".join([*lines, _basis_sentence(df, question, requests)]),
        verdict=verdict,
        is_worse=bool(worse),
        name=requests.name,
        n_requests=requests.n_requests,
        cost=requests.cost,
        notes=[*requests.notes, *_notes(measures, changes)],
        df=_frame(df, measures),
        chart=_chart(measures, changes, newest),
        flips=_flips(df, question, measures, changes),
    )


def _measures(df: pd.DataFrame, question: CheckQuestion) -> list[_Measure]:
    """Return the measures of each model; they share the level (Bonferroni)."""
    is_labelled = "model_label" in df and df["model_label"].notna().all()
    column = "model_label" if is_labelled else "model"
    models, kinds = coded(df[column])
    names = short_names(column, kinds) if len(kinds) > 1 else [""]
    replies = _codes(df, question)
    candidates = [
        (name, values.where((models == code) & ~np.isnan(values.value)), kind, label)
        for code, name in enumerate(names)
        for label, kind, values in _values(df, replies, question)
    ]
    with_values = [candidate for candidate in candidates if len(candidate[1].check)]
    tail = (1 - question.level) / 2 / max(len(with_values), 1)
    return [
        _Measure(
            name=label,
            model=name,
            kind=kind,
            checked=values,
            rule=_rule(kind, question.margin, tail),
        )
        for name, values, kind, label in with_values
    ]


def _rule(kind: Kind, margin: float | None, tail: float) -> ChangeRule:
    if kind == "length":
        return ChangeRule(margin=log(_LENGTH_RATIO), tail=tail, is_bounded=False)
    if kind == "texts":
        return ChangeRule(margin=MARGIN, tail=tail, is_one_sided=True, gaps=of_texts)
    return ChangeRule(margin=margin or MARGIN, tail=tail, is_bounded=kind != "number")


def _codes(df: pd.DataFrame, question: CheckQuestion) -> CheckedReplies:
    """Return the codes of all replies, without values."""
    row = group_codes(df[unit(df)])[0]
    return CheckedReplies(
        check=df[CHECK].to_numpy(dtype=np.int64),
        cell=coded(df["request_key"])[0],
        row=row,
        unit=row if question.unit is None else unit_codes(df, question.unit),
        value=np.full(len(df), nan),
    )


def _values(
    df: pd.DataFrame, replies: CheckedReplies, question: CheckQuestion
) -> Iterable[tuple[str, Kind, CheckedReplies]]:
    """Return each measure with its values."""
    if question.on is not None:
        kind: Kind = "score" if is_share(df, question.on) else "number"
        values = measure(df, question.on).to_numpy()
        yield question.on.removeprefix(PREFIX), kind, replies._replace(value=values)
        return
    # texts are compared at temperature 0, and lengths where texts vary anyway
    texts = df["text"].fillna("")
    is_fixed = (df[_TEMPERATURE] == 0).fillna(value=False).to_numpy(dtype=bool)
    codes = np.where(is_fixed, coded(texts)[0], nan)
    lengths = np.where(is_fixed, nan, np.log1p(texts.str.len().to_numpy(dtype=float)))
    yield "texts", "texts", replies._replace(value=codes)
    yield "length", "length", replies._replace(value=lengths)
    is_other = (df["finish_reason"] != _STOP).fillna(value=True)
    ends = np.where(is_other.to_numpy(dtype=bool), 1.0, 0.0)
    yield "ends other than stop", "ends", replies._replace(value=ends)


def _other_models(df: pd.DataFrame) -> Iterable[str]:
    """Say which models answer under a name that they did not have in the run."""
    for model, rows in df.groupby("model", sort=False):
        replies = rows[rows["model_returned"].notna()]
        names = replies["model_returned"]
        before = list(dict.fromkeys(names[replies[CHECK] == 0]))
        now = list(dict.fromkeys(names[replies[CHECK] == replies[CHECK].max()]))
        if before and (other := [name for name in now if name not in before]):
            of_model = f" to requests for {model}" if len(before) > 1 else ""
            yield (
                f"Changed: {' and '.join(map(printable, other))} answers instead of "
                f"{' and '.join(map(printable, before))}{of_model}."
            )


def _sentences(
    measures: Sequence[_Measure], changes: Sequence[Change], requests: CheckRequests
) -> Iterable[str]:
    """Say which measures have changed, are as before, or cannot be told."""
    if not measures:
        yield "Cannot tell: no request has a reply."
        return
    for verdict in _ORDER:
        pairs = [
            pair
            for pair in zip(measures, changes, strict=True)
            if pair[1].verdict == verdict
        ]
        if pairs:
            is_only = len(measures) == 1
            yield _SENTENCE_OF[verdict](pairs, is_only, requests)


_Changes = Sequence[tuple[_Measure, Change]]


def _changed_sentence(pairs: _Changes, is_only: bool, _: CheckRequests) -> str:  # noqa: FBT001 - called through `_SENTENCE_OF`
    parts = []
    for measured, change in pairs:
        since = f" since check {change.start}" if change.start > 1 else ""
        parts.append(f"{measured.title} by {measured.difference(change)}{since}")
    if is_only:
        return f"Changed{parts[0].removeprefix(pairs[0][0].title)}."
    return f"Changed: {'; '.join(parts)}."


def _as_before_sentence(pairs: _Changes, is_only: bool, _: CheckRequests) -> str:  # noqa: FBT001 - called through `_SENTENCE_OF`
    if is_only:
        return f"As before ({pairs[0][0].interval(pairs[0][1])})."
    return f"As before: {', '.join(_with_intervals(pairs))}."


def _cannot_tell_sentence(
    pairs: _Changes,
    is_only: bool,  # noqa: FBT001 - called through `_SENTENCE_OF`
    requests: CheckRequests,
) -> str:
    n_rows = max(change.n_rows for _, change in pairs)
    intervals = f": {', '.join(_with_intervals(pairs))}"
    if is_only:
        intervals = f" ({pairs[0][0].interval(pairs[0][1])})"
    n_needed = max(change.n_would_tell for _, change in pairs)
    rows = count_in_words(n_rows, "rows")
    if n_needed == inf:
        return f"Cannot tell with {rows}{intervals}."
    needed = round_up(max(ceil(n_needed), n_rows + 1))
    more = ""
    if needed > requests.n_rows_of_run:
        more = f", but the run has replies to only {requests.n_rows_of_run:,}"
    return f"Cannot tell with {rows}{intervals}; {needed:,} would tell{more}."


def _with_intervals(pairs: _Changes) -> list[str]:
    return [f"{measured.title} ({measured.interval(x)})" for measured, x in pairs]


_SENTENCE_OF = {
    "changed": _changed_sentence,
    "as before": _as_before_sentence,
    "cannot tell": _cannot_tell_sentence,
}


def _basis_sentence(
    df: pd.DataFrame, question: CheckQuestion, requests: CheckRequests
) -> str:
    """Say how many rows and checks there are, what is compared, and what was sent."""
    newest = int(df[CHECK].max())
    n_rows = len(df[df[CHECK] > 0].groupby(unit(df)))
    on = "the replies" if question.on is None else question.on.removeprefix(PREFIX)
    checks = count_in_words(newest, "checks")
    cost = f" for {cost_in_words(requests.cost)} {requests.currency}".rstrip()
    return (
        f"This is over {n_rows:,} rows in {checks}, by {printable(on)}; "
        f"{requests.n_requests:,} requests were sent"
        f"{'' if isnan(requests.cost) else cost}."
    )


def _notes(measures: Sequence[_Measure], changes: Sequence[Change]) -> Iterable[str]:
    for measured, change in zip(measures, changes, strict=True):
        if change.is_bound and change.sequence.value > 0:
            yield (
                f"{measured.title}: some differ from those of the run, but the run has "
                "no repeats to show how often they differ anyway. Run the sweep with "
                "repeats=2, or check the same rows again later."
            )


def _frame(df: pd.DataFrame, measures: Sequence[_Measure]) -> pd.DataFrame:
    """Return a row for each check and measure, with the change as known then."""
    began = df.groupby(CHECK)["started_at"].min()
    known = [
        (check, measured, measured.at(check))
        for check in range(1, int(df[CHECK].max()) + 1)
        for measured in measures
        if (measured.checked.check == check).any()
    ]
    ends = [change.interval for _, _, change in known]
    columns = {
        CHECK: ("Int64", [check for check, _, _ in known]),
        "started_at": ("datetime64[us, UTC]", [began[check] for check, _, _ in known]),
        "model": ("string", [measured.model or None for _, measured, _ in known]),
        "on": ("string", [measured.name for _, measured, _ in known]),
        "since": ("Int64", [change.start for _, _, change in known]),
        "n_rows": ("Int64", [change.n_rows for _, _, change in known]),
        "n_units": ("Int64", [change.sequence.n_units for _, _, change in known]),
        "difference": ("Float64", [change.sequence.value for _, _, change in known]),
        "low": ("Float64", [low for low, _ in ends]),
        "high": ("Float64", [high for _, high in ends]),
        "verdict": ("string", [change.verdict for _, _, change in known]),
    }
    return pd.DataFrame(
        {
            name: pd.Series(values, dtype=dtype)
            for name, (dtype, values) in columns.items()
        }
    )


def _chart(
    measures: Sequence[_Measure], changes: Sequence[Change], newest: int
) -> IntervalChart:
    """Draw one measure check by check, or several after the newest check."""
    drawn = [
        (measured, change)
        for measured, change in zip(measures, changes, strict=True)
        if measured.kind != "length"  # logarithms do not fit an axis of points
    ]
    kind = drawn[0][0].kind if drawn else "score"
    if len(measures) == 1 and drawn:
        places = np.linspace(1, newest, _DRAWN_CHECKS).round().astype(int)
        only = drawn[0][0]
        title = f"{only.name}, {_NOW_MINUS_BEFORE}"
        intervals = [
            _interval(only, only.at(check), f"check {check}", title)
            for check in np.unique(places).tolist()
        ]
    else:
        intervals = [
            _interval(measured, change, measured.title, _NOW_MINUS_BEFORE)
            for measured, change in drawn
        ]
    margin = drawn[0][0].rule.margin if drawn else MARGIN
    return IntervalChart(
        intervals=intervals,
        origin=0.0,
        band=(-margin, margin),
        scale=1 if kind == "number" else 100,
        unit="" if kind == "number" else "points",
    )


def _interval(measured: _Measure, change: Change, name: str, title: str) -> Interval:
    low, high = change.interval
    return Interval(
        name=name,
        value=change.sequence.value,
        low=low,
        high=high,
        numbers=measured.difference(change),
        is_clear=change.verdict != "cannot tell",
        title=title,
    )


def _flips(
    df: pd.DataFrame,
    question: CheckQuestion,
    measures: Sequence[_Measure],
    changes: Sequence[Change],
) -> Flips | None:
    """Return the rows that flipped, if a score has changed."""
    changed = [
        (measured.checked, change.start)
        for measured, change in zip(measures, changes, strict=True)
        if change.verdict == "changed"
    ]
    if question.on is None or not changed:
        return None
    start = min(start for _, start in changed)
    cells = [checked.cell[checked.check >= start] for checked, _ in changed]
    is_used = np.isin(coded(df["request_key"])[0], np.concatenate(cells))
    is_new = (df[CHECK] >= start).to_numpy()
    before, now = (
        df[is_used & is_side].drop(columns=CHECK) for is_side in (~is_new, is_new)
    )
    replies, _, pair_by, _ = joined({_BEFORE: before, _NOW: now})
    return flips(
        replies,
        "run",
        PREFIX + question.on.removeprefix(PREFIX),
        (_BEFORE, _NOW),
        names=(_BEFORE, _NOW),
        units=pair_by,
        missing="drop",
        n=_FLIPS,
        heads=(REGRESSED, IMPROVED),
    )

"""How far a judge agrees with people: kappa, both rates, and where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.html_styles import sentences_html
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import must_be

from . import statistics
from .reply_factors import (
    attributes,
    check_replies,
    column_of,
    counted,
    factors,
    in_words,
    is_rate,
    measure,
    named,
    prompt_codes,
    unit_codes,
)
from .reply_factors import unit as prompt_columns
from .rounding import number_with_interval, percent, percent_with_interval
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Floats, Ratios, Share
from .summary import Groups, few_prompts, grouped, refuse_clash

_FIGURES = {
    "agree": "share of the replies for which both say the same",
    "kappa": "Cohen's kappa: 1 is full agreement, 0 is agreement by chance",
    "true_positive": "share of replies labelled True that the judge calls True",
    "true_negative": "share of replies labelled False that the judge calls False",
}
_ENDS = {"": "{}", "_low": "lower end of its interval (0.95)", "_high": "its upper end"}
JUDGE_AGREEMENT = tuple(
    Column(
        name,
        "Int64" if name[:2] == "n_" else "boolean" if name == "constant" else "Float64",
        name,
        doc,
    )
    for name, doc in {
        "n_replies": "replies that have a label and a verdict of the judge",
        "n_true": "replies among them that are labelled True",
        "n_judged_true": "replies among them that the judge calls True",
        **{
            name + end: how.format(doc)
            for name, doc in _FIGURES.items()
            for end, how in _ENDS.items()
        },
        "constant": "the most frequent label: the best guess that is always the same",
        "agree_of_constant": "share for which this guess is right; its kappa is 0",
    }.items()
)
"""The columns of `df` of an agreement, after the columns of `by`."""
_DTYPES: dict[str, Any] = {column.name: column.dtype for column in JUDGE_AGREEMENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """How far a judge agrees with people's labels, shown as sentences.

    Attributes:
        df: One row for each group: kappa, and the shares of the replies labelled True
            and False that the judge calls the same, each with `_low` and `_high`
            (0.95); and the agreement of a guess that is always the same.
        disagreements: One row for each reply on which they differ, with the verdict and
            the label side by side.
        says: The sentences of each group.
        notes: Remarks that apply to all groups.
    """

    df: pd.DataFrame = field(repr=False)
    disagreements: pd.DataFrame = field(repr=False)
    says: list[str]
    notes: list[str]

    def __repr__(self) -> str:
        return fitted_to_terminal(to_terminal("\n".join([*self.says, *self.notes])))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        html = sentences_html(self.says, self.notes)
        return {"text/html": html, "text/plain": repr(self)}


class _Names(NamedTuple):
    """The columns of the judge's verdicts and of the labels."""

    judge: str
    labels: str

    @property
    def short(self) -> tuple[str, str]:
        """The names of both in a sentence."""
        return self.judge.removeprefix(PREFIX), self.labels.removeprefix(PREFIX)


def judge_agreement(
    df: pd.DataFrame,
    judge: str,
    labels: str,
    *,
    by: str | Sequence[str] | None = None,
    unit: str | Sequence[str] | None = None,
) -> JudgeAgreement:
    """Measure how far a judge agrees with labels: see `svc.agreement`."""
    df = check_replies(df)
    names = _Names(
        _true_false_score(df, judge, "judge"), _true_false_score(df, labels, "labels")
    )
    if names.judge == names.labels:
        raise ParameterError(
            f"judge and labels are both {judge!r}. Name the scores of the judge in "
            "judge, and those of people in labels.",
            param="labels",
        )
    units = unit_codes(df, unit)
    verdicts, truth = (measure(df, name).to_numpy() for name in names)
    is_both = ~np.isnan(verdicts + truth)
    if not is_both.any():
        raise ParameterError(
            f"No reply has both scores, `{names.short[0]}` and `{names.short[1]}`, so "
            "they cannot be compared. Label some replies that have verdicts.",
            param="labels",
        )
    part = df[is_both].reset_index(drop=True)
    groups = Groups(np.zeros(len(part), dtype=np.int64), pd.DataFrame(index=[0]))
    if by is not None:
        groups = grouped(part, named(df, by))
    refuse_clash(groups.keys, _DTYPES)
    unit_of = (prompt_codes(df) if units is None else units)[is_both]
    columns = _columns(verdicts[is_both], truth[is_both], groups, unit_of)
    frame = groups.keys.assign(
        **{
            name: pd.array(columns[name], dtype=dtype)
            for name, dtype in _DTYPES.items()
        }
    )
    n_units = pd.Series(unit_of).groupby(groups.codes).nunique()
    return JudgeAgreement(
        df=frame,
        disagreements=_disagreements(df, names, is_both & (verdicts != truth)),
        says=[_sentence(row, names, groups) for row in frame.to_dict("records")],
        notes=list(_notes(df, names, truth, n_units, unit)),
    )


def _true_false_score(df: pd.DataFrame, name: Any, param: str) -> str:  # noqa: ANN401 - not checked yet
    """Return the column of a score that is True or False."""
    if not isinstance(name, str):
        raise must_be(param, "the name of a score of True and False", name)
    column = column_of(df, name, param=param)
    if not is_rate(df, column):
        raise ParameterError(
            f"{param}={name!r} must be a score of True and False. To make one from "
            f"numbers, call run.score(good=lambda r: r[{column!r}] >= 4).",
            param=param,
        )
    return column


def _columns(
    verdicts: Floats,
    truth: Floats,
    groups: Groups,
    unit: Any,  # noqa: ANN401 - codes
) -> dict[str, Any]:
    """Return the counts and figures of each group; all replies count the same."""
    n_groups, is_same = len(groups.keys), (verdicts == truth).astype(float)

    def share(counted: Floats) -> Share:
        ratios = Ratios.of(is_same * counted, counted, unit, groups.codes, n_groups)
        return ratios.share()

    def count(values: Floats) -> Floats:
        return np.bincount(groups.codes, values, n_groups).astype(float)

    n, n_true, n_judged = count(np.ones(len(truth))), count(truth), count(verdicts)
    agree = share(np.ones(len(truth)))
    rate, judged = n_true / n, n_judged / n
    by_chance = rate * judged + (1 - rate) * (1 - judged)
    with np.errstate(all="ignore"):
        # the interval is that of the agreement; chance agreement is taken as known
        kappa = Share(
            *(
                np.where(by_chance < 1, (end - by_chance) / (1 - by_chance), np.nan)
                for end in agree
            )
        )
    figures = dict(
        zip(_FIGURES, (agree, kappa, share(truth), share(1 - truth)), strict=True)
    )
    return {
        "n_replies": n,
        "n_true": n_true,
        "n_judged_true": n_judged,
        **{
            name + end: values
            for name, of_figure in figures.items()
            for end, values in zip(_ENDS, of_figure, strict=True)
        },
        "constant": rate >= 1 / 2,
        "agree_of_constant": np.maximum(rate, 1 - rate),
    }


def _disagreements(df: pd.DataFrame, names: _Names, differs: Any) -> pd.DataFrame:  # noqa: ANN401 - flags
    """Return the replies on which both differ, those judged True first."""
    columns = [*prompt_columns(df), *factors(df), *attributes(df)]
    columns += [*(name for name in ("prompt", "text") if name in df.columns), *names]
    part: pd.DataFrame = df.loc[differs, list(dict.fromkeys(columns))]
    part = part.sort_values(names.judge, ascending=False, kind="stable")
    return part.reset_index(drop=True)


def _sentence(row: dict[Any, Any], names: _Names, groups: Groups) -> str:
    judge, labels = names.short
    group = ", ".join(in_words(name, row[name]) for name in groups.keys.columns)
    n = int(row["n_replies"])

    def share(name: str) -> str:
        return percent_with_interval(*_with_ends(row, name))

    replies = count_in_words(n, "replies")
    sentences = (
        f"{judge} agrees with {labels} on {share('agree')} of {replies}"
        f"; a guess that is always {row['constant']} does on "
        f"{percent(row['agree_of_constant'])}."
    )
    if not pd.isna(row["kappa"]):
        kappa = number_with_interval(*_with_ends(row, "kappa"))
        sentences += f" Kappa is {kappa}; that of the guess is 0."
    for name, label, n_label in (
        ("true_positive", "True", int(row["n_true"])),
        ("true_negative", "False", n - int(row["n_true"])),
    ):
        if n_label:
            sentences += f" Of {n_label:,} labelled {label}, "
            sentences += f"it calls {share(name)} {label}."
    return f"{group}: {sentences}" if group else sentences


def _with_ends(row: dict[Any, Any], name: str) -> tuple[float, float, float]:
    value, low, high = (
        np.nan if pd.isna(row[name + end]) else float(row[name + end]) for end in _ENDS
    )
    return value, low, high


def _notes(
    df: pd.DataFrame,
    names: _Names,
    truth: Floats,
    n_units: Any,  # noqa: ANN401 - counts
    unit: Any,  # noqa: ANN401 - columns
) -> Any:  # noqa: ANN401 - texts
    n_labels = int((~np.isnan(truth)).sum())
    n_both = int((~np.isnan(truth + measure(df, names.judge).to_numpy())).sum())
    if n_labels > n_both:
        yield (
            f"Left out: {count_in_words(n_labels - n_both, 'labels')} of replies "
            f"without {names.short[0]}."
        )
    yield (
        "This is the agreement on replies like those with labels. It holds for all "
        "replies if those were drawn at random."
    )
    if statistics.special() is None:
        yield f"low and high {HOW_TO_INSTALL}."
    elif n := int((n_units < MIN_PROMPTS).sum()):
        yield few_prompts(count_in_words(n, "groups"), counted(df, unit))

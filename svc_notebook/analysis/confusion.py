"""Confusion matrix: answers by correct label, with precision, recall and F1."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.service.params import must_be, printable

from . import statistics
from .compare import plain as plain_values
from .exact_match import is_same, plain
from .missing import check_missing, missing_lines
from .reply_factors import (
    check_replies,
    column,
    counted,
    factors,
    has,
    has_flag,
    in_words,
    named,
    prompt_codes,
    unit_codes,
)
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Floats, Ratios, Share
from .summary import Groups, few_prompts, grouped, refuse_clash, say

MACRO = "macro average"
"""What the column `label` has in the last row, which has the means over labels."""
MAX_LABELS = 30
_AS = "n_as_"
_FIGURES = {
    "precision": "share of the answers with this label that are right",
    "recall": "share of the replies to prompts with this label that are right",
    "f1": "harmonic mean of precision and recall",
}
_ENDS = {"_low": "lower end of the interval (0.95) of {}", "_high": "its upper end"}
CONFUSION = tuple(
    Column(
        name,
        "string" if name == "label" else "Int64" if name[:2] == "n_" else "Float64",
        name,
        doc,
    )
    for name, doc in {
        "label": "the correct label; the last row has the means over labels",
        "n_prompts": "prompts with this label and a good reply",
        "n_replies": "good replies to them",
        "n_no_answer": "replies whose answer is missing or is not a label",
        "n_failed": "requests that failed; they are not among the replies",
        **{
            name + ending: doc.format(name)
            for name, meaning in _FIGURES.items()
            for ending, doc in {"": meaning, **_ENDS}.items()
        },
    }.items()
)
"""The columns of `confusion_df`, after the columns of `by`; after `n_replies` there is
also a column `n_as_LABEL` for each label, with the replies that answer with it."""
_DTYPES: dict[str, Any] = {column.name: column.dtype for column in CONFUSION}


def confusion_df(
    df: pd.DataFrame,
    label: str = "label",
    by: str | Sequence[str] | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    missing: Literal["drop", "wrong"] = "drop",
) -> pd.DataFrame:
    """Count the answers for each correct label: see `svc.confusion_df`."""
    df = check_replies(df)
    groups = grouped(df, named(df, by) if by is not None else factors(df) or ["model"])
    labelled = _Labelled.of(df, _label_column(df, label))
    units = unit_codes(df, unit)
    n_labels = len(labelled.labels)
    rows = _counts(df, labelled, groups)
    if check_missing(missing) == "bounds":
        raise ParameterError(
            "missing='bounds' is not possible here, since precision has no worst case; "
            "give missing='drop' or missing='wrong'.",
            param="missing",
        )
    counted_replies = labelled.with_failed() if missing == "wrong" else labelled
    for name, share in _figures(df, counted_replies, groups, units).items():
        rows |= {
            name: share.value,
            f"{name}_low": share.low,
            f"{name}_high": share.high,
        }
    keys = groups.keys.loc[np.repeat(groups.keys.index, n_labels + 1)]
    keys = keys.reset_index(drop=True)
    columns = {"label": [*labelled.labels, MACRO] * len(groups.keys)} | rows
    refuse_clash(keys, columns)
    frame = keys.assign(
        **{
            name: pd.array(values, dtype=_DTYPES.get(name, "Int64"))
            for name, values in columns.items()
        }
    )
    lines = missing_lines(df, on=(), by=groups.keys.columns, missing=missing)
    lines += labelled.lines(label)
    say([*lines, *_interval_lines(rows, n_labels, counted(df, unit))])
    return frame


def _label_column(df: pd.DataFrame, label: Any) -> str:  # noqa: ANN401 - not checked yet
    if not isinstance(label, str):
        raise must_be("label", "the name of the column of correct labels", label)
    return named(df, label, param="label")[0]


@dataclass(frozen=True, slots=True)
class _Labelled:
    """The correct label and the answered label of each row of a frame.

    Attributes:
        labels: All labels: the correct ones, then others that were answered.
        right: The position of the correct label in `labels`; -1 if it is not known.
        answered: The position of the answered label; -1 for no answer, or no label.
        is_reply: Which rows are good replies with a known correct label.
        has_failed: Which rows are failed requests with a known correct label.
    """

    labels: list[str]
    right: Any
    answered: Any
    is_reply: Any
    has_failed: Any

    @classmethod
    def of(cls, df: pd.DataFrame, label: str) -> "_Labelled":
        """Read the correct labels from a column, and the answers.

        Without a column of answers, the texts of the replies are the answers.
        """
        values = plain_values(df[label])
        right = _codes(values, known := _distinct(values, label))
        is_reply = has(df, "status", "ok") & (right >= 0)
        answers = plain_values(column(df, "answer"))
        is_read = column(df, "answer_ok").notna().any()
        if not is_read:
            answers = plain_values(column(df, "text"))
        is_answer = is_reply & (has_flag(df, "answer_ok") | ~np.array(is_read))
        answers = [
            answer if is_there else None
            for answer, is_there in zip(answers, is_answer.tolist(), strict=True)
        ]
        answered = _codes(answers, known)
        if is_read:
            known = [
                *known,
                *_wrong_answers(answers, answered, MAX_LABELS - len(known)),
            ]
            answered = _codes(answers, known)
        return cls(
            [printable(in_words("", value)) for value in known],
            right,
            answered,
            is_reply,
            has(df, "status", "error") & (right >= 0),
        )

    def with_failed(self) -> "_Labelled":
        """Return a copy where failed requests count as replies without an answer."""
        answered = np.where(self.has_failed, -1, self.answered)
        return replace(
            self, answered=answered, is_reply=self.is_reply | self.has_failed
        )

    def lines(self, label: str) -> list[str]:
        """Return a note on the replies left out for lack of a correct label."""
        n = int((self.right < 0).sum())
        if not n:
            return []
        replies = count_in_words(n, "replies")
        return [f"{replies} without a value of {label}: left out here."]


def _distinct(values: list[Any], label: str) -> list[Any]:
    """Return the correct labels, in order of appearance."""
    distinct: dict[str, Any] = {}
    for value in values:
        if value is not None:
            distinct.setdefault(plain(value), value)
            if len(distinct) > MAX_LABELS:
                raise ParameterError(
                    f"{label} has more than {MAX_LABELS} different values, so it is "
                    "not a column of labels. Group the values into fewer labels, or "
                    "score the answers as numbers or texts with run.score.",
                    param="label",
                )
    if values and not distinct:
        raise ParameterError(
            f"{label} has no value in these replies, so the correct label of none of "
            "them is known. Name the column that has it.",
            param="label",
        )
    return list(distinct.values())


def _codes(values: list[Any], labels: list[Any]) -> Any:  # noqa: ANN401 - an array
    """Return the position of each value in the labels; -1 if it is not one of them."""
    code_of: dict[str, int] = {plain(label): n for n, label in enumerate(labels)}

    def code(value: Any) -> int:  # noqa: ANN401 - of any column
        text = plain(value)
        if value is None or text in code_of:
            return -1 if value is None else code_of[text]
        same = (n for n, label in enumerate(labels) if is_same(value, label))
        return code_of.setdefault(text, next(same, -1))

    return np.array([code(value) for value in values], dtype=np.int64)


def _wrong_answers(answers: list[Any], answered: Any, n_most: int) -> list[Any]:  # noqa: ANN401 - codes
    """Return the most frequent answers that are not a correct label of any row."""
    counts = Counter(
        plain(answer)
        for answer, code in zip(answers, answered.tolist(), strict=True)
        if answer is not None and code < 0
    )
    return [answer for answer, _ in counts.most_common(n_most)]


def _counts(df: pd.DataFrame, labelled: _Labelled, groups: Groups) -> dict[str, Any]:
    """Return the columns of counts; the last row of each group has their sums."""
    n_labels, n_groups = len(labelled.labels), len(groups.keys)

    def count(flags: Any) -> Any:  # noqa: ANN401 - an array
        at = groups.codes[flags] * n_labels + labelled.right[flags]
        table = np.bincount(at, minlength=n_groups * n_labels)
        table = table.reshape(n_groups, n_labels)
        return np.column_stack([table, table.sum(axis=1)]).ravel()

    cells = pd.DataFrame(
        {"group": groups.codes, "prompt": prompt_codes(df), "right": labelled.right}
    )
    is_reply = labelled.is_reply
    is_prompt = is_reply.copy()
    is_prompt[is_reply] = ~cells[is_reply].duplicated()
    columns = {"n_prompts": count(is_prompt), "n_replies": count(is_reply)}
    for code, text in enumerate(labelled.labels):
        columns[_AS + text] = count(is_reply & (labelled.answered == code))
    return columns | {
        "n_no_answer": count(is_reply & (labelled.answered < 0)),
        "n_failed": count(labelled.has_failed),
    }


def _figures(
    df: pd.DataFrame,
    labelled: _Labelled,
    groups: Groups,
    units: Any,  # noqa: ANN401 - codes
) -> dict[str, Share]:
    """Return precision, recall and F1 of each label and group, and their means.

    F1 = 2 J / (1 + J), where Jaccard's J is, of the prompts that have the label or the
    answer, the share that has both. Since J is a share of prompts, it has an interval.
    """
    rows = np.flatnonzero(labelled.is_reply)
    prompt, group = prompt_codes(df)[rows], groups.codes[rows]
    unit = prompt if units is None else units[rows]
    right, answered = labelled.right[rows], labelled.answered[rows]
    size = int(prompt.max(initial=0)) + 1
    cell = group.astype(np.int64) * size + prompt
    weight = 1 / np.bincount(cell)[cell]  # so that all prompts count the same
    n_labels, n_groups = len(labelled.labels), len(groups.keys)
    is_right, is_label = right == answered, answered >= 0
    hit = np.where(is_right, weight, 0.0)
    other = is_label & ~is_right
    n = n_groups * n_labels
    place, wrong_place = group * n_labels + right, group * n_labels + answered

    def ratios(right: Floats, counted: Floats, unit: Any, place: Any) -> Ratios:  # noqa: ANN401 - codes
        return Ratios.of(right, counted, unit, place, n)

    by_figure = {
        "precision": ratios(
            hit[is_label], weight[is_label], unit[is_label], wrong_place[is_label]
        ),
        "recall": ratios(hit, weight, unit, place),
        "f1": ratios(
            np.append(hit, np.zeros(other.sum())),
            np.append(weight, weight[other]),
            np.append(unit, unit[other]),
            np.append(place, wrong_place[other]),
        ),
    }
    is_asked = np.bincount(place, minlength=n) > 0
    part_of = np.where(is_asked, np.repeat(np.arange(n_groups), n_labels), -1)
    return {
        name: _with_mean(name, figure_ratios, part_of, n_groups)
        for name, figure_ratios in by_figure.items()
    }


def _with_mean(name: str, ratios: Ratios, part_of: Any, n_groups: int) -> Share:  # noqa: ANN401 - codes
    """Return a figure of each label, and after the labels of each group their mean."""
    if name == "f1":
        share = Share(*map(_f1, ratios.share()))
        mean = ratios.mean(part_of, n_groups, scale=_f1, slope=_slope_of_f1)
    else:
        share, mean = ratios.share(), ratios.mean(part_of, n_groups)
    shape = n_groups, len(part_of) // max(n_groups, 1)
    return Share(
        *(
            np.column_stack([of_labels.reshape(shape), of_all]).ravel()
            for of_labels, of_all in zip(share, mean, strict=True)
        )
    )


def _f1(jaccard: Floats) -> Floats:
    return 2 * jaccard / (1 + jaccard)


def _slope_of_f1(jaccard: Floats) -> Floats:
    return 2 / (1 + jaccard) ** 2


def _interval_lines(rows: dict[str, Any], n_labels: int, what: str) -> list[str]:
    """Return a note that says why intervals are missing, if they are."""
    if statistics.special() is None:
        return [f"low and high {HOW_TO_INSTALL}."]
    n_prompts = np.delete(rows["n_prompts"], np.s_[n_labels :: n_labels + 1])
    if n := int(((n_prompts > 0) & (n_prompts < MIN_PROMPTS)).sum()):
        return [few_prompts(count_in_words(n, "labels"), what)]
    return []

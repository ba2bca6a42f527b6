"""Labels are counted by what was answered, with precision, recall and F1."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.analysis.statistics import wilson
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _answered(
    pairs: Iterable[tuple[Any, Any]],
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return a reply for each label and answer; None is an answer nobody can read."""
    return replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "label": label,
                "answer": answer,
                "answer_ok": answer is not None,
                "status": "ok",
                **more,
            }
            for row, (label, answer) in enumerate(pairs)
        ),
        middle=["label"],
    )


def _row(frame: pd.DataFrame, label: str) -> dict[str, Any]:
    [row] = frame[frame["label"] == label].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_figures_are_those_of_the_textbook() -> None:
    """The example of scikit-learn's classification_report has the same figures."""
    frame = svc.confusion_df(
        _answered([("0", "0"), ("1", "0"), ("2", "2"), ("2", "2"), ("2", "1")])
    )

    assert frame["label"].tolist() == ["0", "1", "2", "macro average"]
    assert frame["n_prompts"].tolist() == [1, 1, 3, 5]
    assert frame["precision"].tolist() == pytest.approx([0.5, 0, 1, 0.5])
    assert frame["recall"].tolist() == pytest.approx([1, 0, 2 / 3, 5 / 9])
    assert frame["f1"].tolist() == pytest.approx([2 / 3, 0, 0.8, 22 / 45])


def test_recall_has_wilsons_interval() -> None:
    """Eight of ten spam prompts have Wilson's interval; F1 has that of its share."""
    pairs = [("spam", "spam")] * 8 + [("spam", "ham")] * 2 + [("ham", "ham")] * 10
    stats = pytest.importorskip("scipy.stats")
    quantile = stats.t.ppf(0.975, 9)

    spam = _row(svc.confusion_df(_answered(pairs)), "spam")

    ends = wilson(0.8, 10, quantile)
    assert (spam["recall_low"], spam["recall_high"]) == pytest.approx(ends)
    assert (spam["f1_low"], spam["f1_high"]) == pytest.approx(
        tuple(2 * end / (1 + end) for end in ends)  # both are over the same ten prompts
    )
    assert spam["precision"] == 1.0
    assert 0.5 < spam["precision_low"] < 0.7


def test_what_cannot_be_read_has_its_own_column() -> None:
    """Unreadable answers are not right, and are counted; failures are no replies."""
    pairs = [("spam", "spam"), ("spam", None), ("ham", "ham"), ("ham", "eggs")]
    frame = _answered(pairs)
    failed = _answered([("ham", None)], status="error").assign(row=9)

    confusion = svc.confusion_df(pd.concat([frame, failed]))

    assert _row(confusion, "spam") | {
        "n_replies": 2,
        "n_as_spam": 1,
        "n_no_answer": 1,
        "n_failed": 0,
        "recall": 0.5,
    } == _row(confusion, "spam")
    assert _row(confusion, "ham")["n_failed"] == 1
    assert _row(confusion, "ham")["n_as_eggs"] == 1
    assert _row(confusion, "eggs")["precision"] == 0.0
    assert pd.isna(_row(confusion, "eggs")["recall"])
    counts = ["n_as_spam", "n_as_ham", "n_as_eggs", "n_no_answer"]
    assert (confusion[counts].sum(axis=1) == confusion["n_replies"]).all()


def test_texts_that_are_no_label_are_no_answer() -> None:
    """Without answers texts are compared; what is none of the labels is counted."""
    frame = _answered([("spam", None), ("spam", None), ("ham", None)]).assign(
        answer_ok=pd.array([pd.NA] * 3, dtype="boolean"),
        text=["spam ", "I cannot say.", "ham"],
    )

    confusion = svc.confusion_df(frame)

    assert confusion["n_no_answer"].tolist() == [1, 0, 1]
    assert confusion["recall"].tolist() == [0.5, 1.0, 0.75]


def test_prompts_count_the_same_however_often_they_were_asked() -> None:
    """A prompt with nine wrong replies is one of two, and units are as long as one."""
    once = _answered([("spam", "spam"), ("spam", "ham"), ("ham", "ham")] * 4)
    again = once[(once["row"] == 1)]
    often = pd.concat([once, *[again.assign(repeat=n) for n in range(1, 9)]])

    one, other = (_row(svc.confusion_df(df), "spam") for df in (once, often))

    assert other["recall"] == one["recall"] == 0.5
    assert other["n_as_ham"] == 12
    assert other["recall_low"] == pytest.approx(one["recall_low"])


def test_rows_of_a_document_belong_together() -> None:
    """Rows of a unit that are all alike tell as much as one of them."""
    once = _answered([("spam", "spam"), ("spam", "ham"), ("ham", "ham")] * 4)
    four = pd.concat([once] * 4, ignore_index=True)
    four = four.assign(row=range(48), prompt=[f"Say {n}" for n in range(48)])
    four.insert(3, "document", four["row"] % 12)

    apart = _row(svc.confusion_df(four), "spam")
    together = _row(svc.confusion_df(four, unit="document"), "spam")

    assert apart["recall_low"] > together["recall_low"] + 0.05
    assert together["recall_low"] == pytest.approx(
        _row(svc.confusion_df(once), "spam")["recall_low"]
    )


def test_each_group_has_its_labels_and_its_mean() -> None:
    """A row for each label in each group, whatever the label is called."""
    both = pd.concat(
        [
            _answered([("yes", "yes"), ("no", "no")] * 3),
            _answered([("yes", "no"), ("no", "no")] * 3, model=LARGE),
        ]
    )

    confusion = svc.confusion_df(both.rename(columns={"label": "gold"}), "gold")

    assert confusion["model"].tolist() == [SMALL] * 3 + [LARGE] * 3
    assert confusion["f1"].tolist() == pytest.approx([1, 1, 1, 0, 2 / 3, 1 / 3])
    macro = confusion.iloc[2]
    assert 0.4 < macro["f1_low"] < macro["f1_high"] == 1.0


@pytest.mark.parametrize(
    ("labels", "answers"),
    [
        (pd.array([1.0, 0.0], dtype="Float64"), ["1", "0"]),
        (pd.array([True, False], dtype="boolean"), ["True", "False"]),
        (pd.Categorical(["ใช่", "ไม่"]), ["ใช่", "ไม่"]),
    ],
)
def test_labels_are_the_same_as_in_exact(labels: Any, answers: list[str]) -> None:  # noqa: ANN401 - arrays
    """Numbers, True and False and categories are found in answers of another type."""
    frame = _answered([("a", answer) for answer in answers]).assign(label=labels)

    assert svc.confusion_df(frame)["recall"].tolist() == [1.0, 1.0, 1.0]


def test_no_rows_have_the_same_columns() -> None:
    """An empty frame of replies has an empty confusion, with the same dtypes."""
    frame = _answered([("a", "a"), ("b", "b")])

    full, empty = svc.confusion_df(frame), svc.confusion_df(frame.iloc[:0])

    common = full.dtypes[empty.columns]
    assert empty.dtypes.equals(common)
    assert len(empty) == 0


def test_what_is_no_label_is_refused() -> None:
    """Too many values, none at all, and names that do not exist are explained."""
    frame = _answered([(f"text {n}", "a") for n in range(40)])

    with pytest.raises(ParameterError, match="more than 30 different values"):
        svc.confusion_df(frame)
    with pytest.raises(
        ParameterError, match="the correct label of none of them is known"
    ):
        svc.confusion_df(frame.assign(label=None))
    with pytest.raises(ParameterError, match="Did you mean label"):
        svc.confusion_df(frame, "labels")
    with pytest.raises(ParameterError, match="label must be the name"):
        svc.confusion_df(frame, 5)  # type: ignore[arg-type]  # wrong on purpose


def test_replies_without_a_label_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Replies whose correct label is unknown are not counted, and a line says so."""
    frame = _answered([("spam", "spam"), (None, "ham")])

    confusion = svc.confusion_df(frame)

    assert confusion["n_replies"].tolist() == [1, 1]
    assert "1 reply without a value of label" in capsys.readouterr().err


@pytest.mark.slow
def test_many_replies_take_little_time() -> None:
    """A hundred thousand replies of ten labels are counted, all of them."""
    rng = np.random.default_rng(1)
    frame = _answered(
        zip(*(rng.integers(0, 10, (2, 100_000)).astype(str)), strict=True)
    )

    macro = _row(svc.confusion_df(frame), "macro average")

    assert macro["n_replies"] == 100_000
    assert macro["f1"] == pytest.approx(0.1, abs=0.01)
    assert macro["f1_high"] - macro["f1_low"] < 0.01


def test_what_failed_may_count_as_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Failed requests lower the recall as replies without an answer do; it is said."""
    pairs = [("spam", "spam")] * 6 + [("ham", "ham")] * 4
    failed = _answered(pairs)
    failed[["answer", "answer_ok"]] = failed[["answer", "answer_ok"]].iloc[3:]
    failed["status"] = ["error"] * 3 + ["ok"] * 7
    silent = _answered([("spam", None)] * 3 + pairs[3:])

    drop, wrong = (
        _row(svc.confusion_df(failed, missing=missing), "spam")
        for missing in ("drop", "wrong")
    )

    assert (drop["recall"], wrong["recall"]) == (1.0, 0.5)
    assert (wrong["n_replies"], wrong["n_failed"], wrong["precision"]) == (3, 3, 1.0)
    expected = _row(svc.confusion_df(silent), "spam")
    for name in ("recall", "recall_low", "recall_high", "f1", "f1_low", "f1_high"):
        assert wrong[name] == pytest.approx(expected[name])
    said = capsys.readouterr().err
    assert "3 of 10 replies failed; the figures leave them out, and with them 3" in said
    assert "3 of 10 replies failed; they count as wrong." in said
    with pytest.raises(ParameterError, match="has no worst case"):
        svc.confusion_df(failed, missing="bounds")  # type: ignore[arg-type]  # wrong on purpose

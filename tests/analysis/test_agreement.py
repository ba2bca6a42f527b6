"""Repeats agree as published examples say, and all or any of k are counted."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.repeats import all_of_k, any_of_k
from svc_notebook.analysis.statistics import wilson
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _said(
    texts_by_prompt: Sequence[Sequence[str | None]],
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return what was said to each prompt; None is a repeat that nobody answered."""
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "repeat": repeat,
            "status": "ok" if text is not None else "error",
            "text": text,
            **more,
        }
        for row, texts in enumerate(texts_by_prompt)
        for repeat, text in enumerate(texts)
    )


def _marked(
    marks_by_prompt: list[list[bool]],
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return replies of which some are right."""
    return _said([["a"] * len(marks) for marks in marks_by_prompt], **more).assign(
        score_right=[mark for marks in marks_by_prompt for mark in marks]
    )


def test_alpha_of_four_is_krippendorffs() -> None:
    """Four observers of 12 units: alpha 0.743 (Krippendorff 2011, example C)."""
    observers = ["123321412   ", "1233224125 3", " 3332342251 ", "12332441251 "]
    units = [
        [None if label == " " else label for label in labels]
        for labels in zip(*observers, strict=True)
    ]

    [row] = svc.agreement_df(_said(units)).to_dict("records")

    assert row["alpha"] == pytest.approx(0.743, abs=5e-4)
    assert row["alpha_low"] < 0.743 < row["alpha_high"] < 1
    assert (row["n_prompts"], row["n_replies"]) == (11, 40)


def test_alpha_of_two_is_krippendorffs() -> None:
    """Two observers of ten units: alpha 0.095 (Krippendorff 2011, example A)."""
    units = list(zip("0100000010", "1110010000", strict=True))

    [row] = svc.agreement_df(_said(units)).to_dict("records")

    assert row["alpha"] == pytest.approx(0.095, abs=5e-4)
    assert row["equal"] == pytest.approx(0.6)
    assert (row["equal_low"], row["equal_high"]) == pytest.approx(
        wilson(0.6, 10, 2.262157)
    )
    assert svc.summary_df(_said(units)).loc[0, "repeats_alpha"] == row["alpha"]


def test_repeats_that_are_always_equal_have_an_interval() -> None:
    """Ten prompts that were answered alike do not show that all will be."""
    [row] = svc.agreement_df(_said([["a", "a"], ["b", "b"]] * 5)).to_dict("records")

    assert row["equal"] == row["alpha"] == row["equal_high"] == 1.0
    assert row["equal_low"] == pytest.approx(wilson(1.0, 10, 2.262157)[0])
    assert row["alpha_low"] < row["equal_low"]  # chance alone makes many equal


def test_agreement_is_by_group() -> None:
    """Each group has its own agreement; one without repeats has none."""
    frame = pd.concat(
        [
            _said([["a", "a"], ["b", "b"], ["c", "c"]]),
            _said([["a", "b"], ["b", "c"], ["c", "d"]], model=LARGE),
            _said([["a"], ["b"], ["c"]], model="svc-other"),
        ]
    )

    found = svc.agreement_df(frame, by="model")

    assert found["model"].tolist() == [SMALL, LARGE, "svc-other"]
    assert found["equal"].tolist()[:2] == [1.0, 0.0]
    assert found["equal"].isna().tolist() == [False, False, True]
    assert found["n_prompts"].tolist() == [3, 3, 0]


def test_prompts_count_the_same_however_many_conditions_they_have() -> None:
    """A prompt under five temperatures is still one prompt."""
    frame = pd.concat(
        [
            _said([["a", "a"], ["b", "b"], ["c", "d"]], temperature=0.0),
            *(_said([["a", "b"]], temperature=t) for t in (0.2, 0.4, 0.6)),
        ]
    )

    [row] = svc.agreement_df(frame, by="model").to_dict("records")

    assert row["n_prompts"] == 3
    assert row["equal"] == pytest.approx((1 / 4 + 1 + 0) / 3)


def test_answers_that_cannot_be_read_are_counted() -> None:
    """Replies without an answer are not compared, and their number is said."""
    frame = _said([["x", "x", "x"]] * 3).assign(
        answer=pd.array(["a", "a", pd.NA] * 3, dtype="string"),
        answer_ok=[True, True, False] * 3,
    )

    [row] = svc.agreement_df(frame).to_dict("records")

    assert (row["n_replies"], row["n_no_answer"], row["equal"]) == (6, 3, 1.0)


def test_a_function_says_how_alike_replies_are() -> None:
    """Of three texts each pair is compared; the mean is that of the prompts."""
    texts = [["abcd", "abcx", "wxyz"], ["same", "same", "same"], ["a", "b", "b"]]

    def similarity(one: Any, other: Any) -> float:  # noqa: ANN401 - rows
        return SequenceMatcher(None, one.text, other["text"]).ratio()

    [row] = svc.agreement_df(_said(texts), similarity=similarity).to_dict("records")

    expected = [
        np.mean(
            [SequenceMatcher(None, *pair).ratio() for pair in combinations(said, 2)]
        )
        for said in texts
    ]
    assert row["equal"] == pytest.approx(np.mean(expected))
    assert 0 <= row["equal_low"] < row["equal"] < row["equal_high"] <= 1
    assert pd.isna(row["alpha"])


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_all_and_any_of_k_are_those_of_all_choices(marks: list[bool], k: int) -> None:
    """They are the shares of the choices of k that are all right, or any."""
    n_right, n = np.array([float(sum(marks))]), np.array([float(len(marks))])

    every, some = all_of_k(n_right, n, k)[0], any_of_k(n_right, n, k)[0]

    if k > len(marks):
        assert np.isnan([every, some]).all()
        return
    choices = list(combinations(marks, k))
    assert every == pytest.approx(sum(map(all, choices)) / comb(len(marks), k))
    assert some == pytest.approx(sum(map(any, choices)) / comb(len(marks), k))


def test_each_k_has_a_row() -> None:
    """With k = 1 both are the rate; with more, all are right less often, any more."""
    frame = _marked([[True, True, False, False], [True] * 4, [False] * 4])

    found = svc.agreement_df(frame, on="right", k=[1, 2, 4])

    assert found["k"].tolist() == [1, 2, 4]
    assert found["all_of_k"].tolist() == pytest.approx(
        [0.5, (1 / 6 + 1) / 3, 1 / 3]  # of the six pairs of the first prompt one
    )
    assert found["any_of_k"].tolist() == pytest.approx([0.5, (5 / 6 + 1) / 3, 2 / 3])
    assert (found["all_of_k_low"] < found["all_of_k"]).all()
    assert (found["any_of_k_high"] > found["any_of_k"]).all()


def test_k_is_what_nearly_all_prompts_have() -> None:
    """One prompt of twenty that lost a reply does not lower k, but is left out."""
    frame = _marked([[True] * 5] * 19 + [[True] * 4])

    [row] = svc.agreement_df(frame).to_dict("records")

    assert (row["k"], row["n_prompts_of_k"], row["n_prompts"]) == (5, 19, 20)


def test_documents_make_intervals_longer() -> None:
    """Prompts of one document that are alike tell as much as one of them."""
    marks = [[True, True], [False, True], [True, True], [False, False]] * 3
    once = svc.agreement_df(_marked(marks), on="right")
    four = _marked(marks * 4)
    four.insert(3, "document", four["row"] % 12)

    found = svc.agreement_df(four, on="right", unit="document")

    assert found.loc[0, "all_of_k_low"] == pytest.approx(once.loc[0, "all_of_k_low"])


def test_the_worst_prompts_come_first() -> None:
    """The least agreement is first, then what is right least; replies are counted."""
    frame = _said([["a", "a"], ["a", "b"], ["c", "c"]]).assign(
        score_right=[True, True, True, False, False, False]
    )

    found = svc.repeats_df(frame)

    assert found["row"].tolist() == [1, 2, 0]
    assert found["replies"].tolist() == ["1x a, 1x b", "2x c", "2x a"]
    assert found["n_distinct"].tolist() == [2, 1, 1]
    assert found["equal"].tolist() == [0.0, 1.0, 1.0]
    assert found["score_right"].tolist() == [0.5, 0.0, 1.0]


def test_replies_in_a_list_are_short_and_printable() -> None:
    """Many kinds are counted, long texts are cut, and control characters are shown."""
    said = ["\x1b[2J", "ก" * 90, "c", "d", "e", "f"]

    [text] = svc.repeats_df(_said([list(said)]))["replies"]

    assert "\x1b" not in text
    assert text.endswith(" and 2 more")
    assert len(text) < 100


def test_nothing_asked_twice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Without repeats there is no agreement, and a line says what to do."""
    found = svc.agreement_df(_said([["a"], ["b"]]))

    assert found["equal"].isna().all()
    assert "sweep(repeats=3)" in capsys.readouterr().err


def test_no_rows_have_the_same_columns() -> None:
    """Frames of no replies have the same columns and dtypes."""
    frame = _marked([[True, False]] * 3)

    for verb in (svc.agreement_df, svc.repeats_df):
        full, empty = verb(frame, on="right"), verb(frame.iloc[:0], on="right")

        assert empty.dtypes.equals(full.dtypes)


def test_what_cannot_be_compared_is_refused() -> None:
    """Messages say what was wrong with the similarity, k and the score."""
    frame = _marked([[True, False]] * 3)

    def refused(message: str, **arguments: Any) -> None:  # noqa: ANN401 - wrong ones
        with pytest.raises(ParameterError, match=message):
            svc.agreement_df(frame, **arguments)

    refused("similarity must be 'exact' or a function", similarity="cosine")
    refused("returned -0.5", similarity=lambda _a, _b: -0.5)
    refused("returned None", similarity=lambda _a, _b: None)
    refused("similarity failed with AttributeError", similarity=lambda a, _b: a.size)
    refused("k must be an integer >= 1", k=0)
    refused("k=3, but no prompt has more than 2 replies", k=[1, 3])
    refused("values other than True and False", on="row")


@pytest.mark.slow
def test_many_replies_take_little_time() -> None:
    """A hundred thousand replies are compared, five to a prompt."""
    rng = np.random.default_rng(1)
    marks = rng.random((20_000, 5)) < 0.8

    [row] = svc.agreement_df(_marked(marks.tolist()), k=2).to_dict("records")

    assert row["n_replies"] == 100_000
    assert row["all_of_k"] == pytest.approx(0.64, abs=0.01)
    assert row["any_of_k"] == pytest.approx(0.96, abs=0.01)


def test_what_is_missing_may_be_wrong_or_right() -> None:
    """Of three replies to each prompt one failed, and the others are right."""
    frame = _said([["a", "a", None]] * 20).assign(score_right=[1.0, 1.0, np.nan] * 20)

    drop, wrong, bounds = (
        svc.agreement_df(frame, missing=missing, k=2).iloc[0]
        for missing in ("drop", "wrong", "bounds")
    )

    assert (drop["all_of_k"], wrong["all_of_k"]) == (1.0, pytest.approx(1 / 3))
    assert bounds["all_of_k"] == drop["all_of_k"]
    assert bounds["all_of_k_low"] == wrong["all_of_k_low"]
    assert bounds["all_of_k_high"] == drop["all_of_k_high"]
    assert drop["equal"] == wrong["equal"] == 1.0
    with pytest.raises(ParameterError, match="missing must be 'drop', 'wrong' or"):
        svc.agreement_df(frame, missing="zero")  # type: ignore[arg-type]  # wrong on purpose

"""A judge is compared with the labels of people."""

import numpy as np
import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies

# verdict and label, how often: 20 both True, 5 and 10 that differ, 15 both False
PAIRS = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
"""The example of Cohen's kappa that is 0.4."""


def _judged(pairs: list[tuple[int, int]] = PAIRS) -> pd.DataFrame:
    """Return a judge's verdicts, and labels of these; ten more have no label."""
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "text": f"Reply {row}",
            "model": (SMALL, LARGE)[row % 2],
            "score_judge": bool(verdict),
            "score_rated": None if label is None else float(label),
            "document": row // 10,
        }
        for row, (verdict, label) in enumerate([*pairs, *[(1, None)] * 10])
    )


def test_kappa_and_both_rates_are_next_to_what_a_guess_reaches() -> None:
    """Kappa of 20, 5, 10 and 15 is 0.4; a guess that is always True is right in 0.6."""
    row = svc.agreement(_judged(), judge="judge", labels="rated").df.iloc[0]

    names = ["agree", "kappa", "true_positive", "true_negative", "agree_of_constant"]
    assert row[names].tolist() == pytest.approx([0.7, 0.4, 20 / 30, 15 / 20, 0.6])
    assert row[["n_replies", "n_true", "n_judged_true"]].tolist() == [50, 30, 25]
    assert row["constant"]
    for name in names[:4]:
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]


def test_a_guess_that_never_changes_has_a_kappa_of_0() -> None:
    """A judge that is always True reaches what the guess reaches, and no more."""
    df = _judged().assign(score_judge=True)

    row = svc.agreement(df, "judge", "rated").df.iloc[0]

    assert row["agree"] == row["agree_of_constant"]
    assert row[["kappa", "true_positive", "true_negative"]].tolist() == [0, 1, 0]


def test_a_sentence_has_the_figures_and_the_guess() -> None:
    """It counts the replies, and says which labels the judge finds."""
    trust = svc.agreement(_judged(), "judge", "rated")

    assert trust.says[0] == (
        "judge agrees with rated on 70 % (56 to 81) of 50 replies; a guess that is "
        "always True does on 60 %. Kappa is 0.40 (0.12 to 0.62); that of the guess is "
        "0. Of 30 labelled True, it calls 67 % (48 to 81) True. Of 20 labelled False, "
        "it calls 75 % (52 to 89) False."
    )
    assert "drawn at random" in repr(trust)


def test_disagreements_have_verdict_and_label_side_by_side() -> None:
    """What the judge calls True comes first, with the reply."""
    differs = svc.agreement(_judged(), "judge", "rated").disagreements

    assert len(differs) == 15
    assert differs["score_judge"].tolist() == [True] * 5 + [False] * 10
    assert (differs["score_judge"].astype(float) != differs["score_rated"]).all()
    assert differs.columns[-3:].tolist() == ["text", "score_judge", "score_rated"]
    assert differs["text"][0] == "Reply 20"


def test_a_model_that_a_judge_favours_is_seen_by_model() -> None:
    """Each group has its own figures and sentence."""
    df = _judged()
    df.loc[df["model"] == LARGE, "score_judge"] = True

    trust = svc.agreement(df, "judge", "rated", by="model")

    assert trust.df["true_negative"].tolist()[1] == 0
    assert [said.partition(":")[0] for said in trust.says] == [SMALL, LARGE]


def test_rows_that_belong_together_make_intervals_wider() -> None:
    """With five documents less is known than with 50 rows."""
    alone, together = (
        svc.agreement(_judged(), "judge", "rated", unit=unit).df.iloc[0]
        for unit in (None, "document")
    )

    assert alone["kappa"] == together["kappa"]
    assert together["kappa_low"] < alone["kappa_low"]


def test_too_few_rows_have_no_interval_and_a_note() -> None:
    """Two labels are compared, and a note says that they are too few."""
    trust = svc.agreement(_judged(PAIRS[:1] + PAIRS[-1:]), "judge", "rated")

    assert trust.df["agree"].tolist() == [1]
    assert trust.df["agree_low"].isna().all()
    assert "needs at least 3" in trust.notes[-1]


def test_one_kind_of_label_has_no_kappa() -> None:
    """Where all are labelled True by both, nothing is left to tell apart."""
    trust = svc.agreement(_judged([(1, 1)] * 5), "judge", "rated")

    assert trust.df[["kappa", "true_negative"]].isna().all(axis=None)
    assert "Kappa" not in trust.says[0]
    assert "labelled False" not in trust.says[0]


def test_labels_of_replies_without_a_verdict_are_counted() -> None:
    """They are left out, and a note says how many."""
    df = _judged()
    df["score_judge"] = df["score_judge"].astype("boolean")
    df.loc[:2, "score_judge"] = pd.NA

    trust = svc.agreement(df, "judge", "rated")

    assert trust.notes[0] == "Left out: 3 labels of replies without judge."


def test_other_scores_are_refused() -> None:
    """The message says how to make a score of True and False."""
    df = _judged().assign(score_grade=3.5, score_other=np.nan)
    df.loc[df.index[-1], "score_other"] = 1.0

    with pytest.raises(ParameterError, match=r"run\.score\(good="):
        svc.agreement(df, "grade", "rated")
    with pytest.raises(ParameterError, match="are both 'judge'"):
        svc.agreement(df, "judge", "judge")
    with pytest.raises(ParameterError, match="No reply has both"):
        svc.agreement(df, "rated", "other")
    with pytest.raises(ParameterError, match="labels='ratd' is not a score"):
        svc.agreement(df, "judge", "ratd")

"""Rows that only one of two values gets right are counted and shown side by side."""

from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies

ATTACK = "<script>alert(1)</script>\x1b[31m \u202e spam"


def _studied(
    small: list[list[Any]],
    large: list[list[Any]],
    *,
    score: str = "right",
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return repeats of two models, a list of scores for each row."""
    return replies(
        (
            {
                "row": row,
                "prompt": f"Say {row}",
                "label": "ham" if row % 2 else "spam",
                "model": model,
                "repeat": repeat,
                f"score_{score}": value,
                "text": f"{model} {row} {repeat} {value}",
                "exchange_id": f"{model}-{row}-{repeat}",
            }
            | more
            for model, scores in ((SMALL, small), (LARGE, large))
            for row, values in enumerate(scores)
            for repeat, value in enumerate(values)
        ),
        middle=["label"],
    )


def _single(scores: list[Any]) -> list[list[Any]]:
    return [[score] for score in scores]


STUDY = _studied(
    _single([True, False, False, True, False, False]),
    _single([True, True, True, False, True, False]),
)


def test_a_terminal_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the sentences nor in what tells the rows apart."""
    studied = STUDY.assign(label="a complaint about a parcel that came late")
    rows = svc.contrast(studied, "model", on="right").flips()
    wide = repr(rows)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "50")

    narrow = repr(rows)

    assert max(map(len, narrow.split("\n"))) < 50 < max(map(len, wide.split("\n")))
    assert narrow.split() == wide.split()


def test_rows_are_counted_each_way() -> None:
    """Three rows are right only for the large model, one only for the small one."""
    rows = svc.contrast(STUDY, "model", on="right").flips()

    assert rows.says == (
        "Only 70b is right in 3 of 6 rows, only 8b in 1; both in 1, neither in 1."
    )
    assert rows.df["row"].tolist() == [1, 2, 4, 3]
    assert rows.df["better"].tolist() == [LARGE, LARGE, LARGE, SMALL]
    assert set(rows.df["model"]) == {LARGE}
    assert set(rows.df["model_against"]) == {SMALL}
    assert rows.df["text"].tolist()[3] == f"{LARGE} 3 0 False"
    assert rows.df["exchange_id_against"].tolist()[3] == f"{SMALL}-3-0"


def test_the_first_rows_are_shown_with_their_own_columns() -> None:
    """Each way has a table; what does not fit is counted."""
    shown = repr(svc.contrast(STUDY, "model", on="right").flips(n=1))

    assert "Only 70b is right: 3 rows\n\nrow: 1, label: ham" in shown
    assert "2 more rows are not shown: .flips(n=3) shows all" in shown
    assert f"model: {SMALL}\n    not right:\n    {SMALL} 1 0 False" in shown
    assert "Only 8b is right: 1 row\n" in shown


def test_ten_rows_of_each_direction_are_shown() -> None:
    """A contrast and its flips show all if there are so few; more are counted."""
    few, many = (
        svc.contrast(_studied([[False]] * n, [[True]] * n), "model", on="right")
        for n in (10, 12)
    )

    assert "not shown" not in repr(few.flips())
    assert few._repr_mimebundle_()["text/html"].count("row: ") == 10
    assert "2 more rows are not shown: .flips(n=12) shows all" in repr(many.flips())
    assert ".flips(n=12) shows all" in many._repr_mimebundle_()["text/html"]


def test_of_repeats_more_than_half_decide() -> None:
    """Two of three are enough, one of two is not; the reply shown fits the side."""
    frame = _studied(
        [[False, True, False], [True, False], [False]],
        [[False, True, True], [True, True], [False]],
    )

    rows = svc.contrast(frame, "model", on="right").flips()

    assert rows.says.endswith(
        "Only 70b is right in 2 of 3 rows, only 8b in 0; both in 0, neither in 1. "
        "Where repeats differ (2), more than half of them decide."
    )
    # the larger difference first: a half against a third
    assert rows.df["row"].tolist() == [1, 0]
    assert rows.df["text"].tolist() == [f"{LARGE} 1 0 True", f"{LARGE} 0 1 True"]
    assert rows.df["text_against"].tolist() == [
        f"{SMALL} 1 1 False",
        f"{SMALL} 0 0 False",
    ]
    assert "right in 1 of 3" in repr(rows)


def test_rows_without_a_score_for_both_are_left_out() -> None:
    """A failed reply is neither right nor wrong."""
    frame = _studied(_single([False, None, False]), _single([True, True, None]))

    rows = svc.contrast(frame, "model", on="right").flips()

    assert (rows.n_pairs, rows.n_level, rows.n_against) == (1, 1, 0)


def test_what_is_missing_counts_as_in_the_comparison() -> None:
    """With missing="wrong" a failed reply is a wrong one, and is shown as failed."""
    frame = _studied(_single([True, True, True]), _single([True, None, True]))
    failed = frame["score_right"].isna()
    frame.loc[failed, ["status", "error_type"]] = ["error", "ServerFaultError"]
    frame.loc[failed, "text"] = pd.NA

    rows = svc.contrast(frame, "model", on="right", missing="wrong").flips()

    assert (rows.n_pairs, rows.n_level) == (3, 1)
    assert "[failed] [ServerFaultError] not right" in repr(rows)


def test_rows_of_two_runs_are_paired_as_in_the_comparison() -> None:
    """Two wordings have different prompts, and the same row."""
    frame = STUDY.assign(prompt=STUDY["model"] + STUDY["prompt"])
    frame["run"] = frame["model"].map({SMALL: "first", LARGE: "second"})

    rows = svc.contrast(frame, "model", on="right", pair_by="row").flips()

    assert (rows.n_pairs, rows.n_level, rows.n_against) == (6, 3, 1)


def test_other_factors_stay_the_same() -> None:
    """A row counts with each of their values, and its head names them."""
    frame = pd.concat(
        [
            _studied(_single([True, False]), _single([True, True]), temperature=0.0),
            _studied(_single([True, False]), _single([False, False]), temperature=1.0),
        ]
    )

    rows = svc.contrast(frame, "model", on="right").flips()

    assert "in 1 of 4 pairs with the same row and temperature, only 8b in 1" in (
        rows.says
    )
    assert rows.df[["row", "temperature"]].to_numpy().tolist() == [[1, 0.0], [0, 1.0]]


def test_the_first_flips_are_of_different_rows() -> None:
    """A row that flips with each value of another factor is not shown twice first."""
    frame = pd.concat(
        [
            _studied(_single([False, False]), _single([True, True]), temperature=heat)
            for heat in (0.0, 1.0)
        ]
    )

    rows = svc.contrast(frame, "model", on="right").flips()

    assert rows.df["row"].tolist() == [0, 1, 0, 1]


def test_of_a_grade_the_higher_counts() -> None:
    """Rounding makes no difference between equal grades."""
    frame = _studied(
        _single([0.1 + 0.2, 0.5, 0.9]), _single([0.3, 0.75, 0.2]), score="grade"
    )

    rows = svc.contrast(frame, "model", on="grade").flips()

    assert rows.says == (
        "grade is higher for 8b in 1 of 3 rows, for 70b in 1; equal in 1."
    )
    assert "grade 0.75" in repr(rows)


def test_the_pair_can_be_chosen_in_either_order() -> None:
    """The first value is the one whose rows come first; a wrong one is refused."""
    compared = svc.contrast(STUDY, "model", on="right")

    assert compared.flips(SMALL).df["better"].tolist()[0] == SMALL
    assert compared.flips(against=SMALL).df["better"].tolist()[0] == LARGE
    with pytest.raises(ParameterError, match=f"{LARGE} with {SMALL}"):
        compared.flips("nobody")


def test_the_value_that_is_not_sent_is_chosen_as_missing() -> None:
    """None names it, as in `against`."""
    frame = pd.concat(
        [
            _studied(_single([True, False, True]), [], temperature=0.0),
            _studied(_single([False, False, False]), [], temperature=None),
        ]
    )

    rows = svc.contrast(frame, "temperature", on="right").flips(None)

    assert rows.says == (
        "Only temperature=0 is right in 2 of 3 rows, only temperature=not sent in 0; "
        "both in 0, neither in 1."
    )
    assert rows.df["temperature"].isna().all()
    assert set(rows.df["temperature_against"]) == {0.0}


@pytest.mark.slow
def test_factors_of_several_kinds_can_be_chosen_from() -> None:
    """Among texts and numbers, a number is still the value of its factor."""
    frame = pd.concat(
        [
            _studied(_single([True] * 4), _single([True] * 4), temperature=0.0),
            _studied(_single([False] * 4), _single([True] * 4), temperature=0.7),
        ]
    )
    compared = svc.contrast(frame, ["model", "temperature"], on="right")

    assert (
        "Only temperature=0 is right in 4 of 8 pairs" in compared.flips(0.0, 0.7).says
    )
    assert compared.flips(factor="temperature").n_pairs == 8
    assert compared.flips(LARGE).df["better"].tolist() == [LARGE] * 4


def test_without_flips_there_are_no_tables() -> None:
    """Two models that agree everywhere have counts and an empty frame."""
    frame = _studied(_single([True, False, True]), _single([True, False, True]))

    rows = svc.contrast(frame, "model", on="right").flips()

    assert (len(rows), rows.tables) == (0, ())
    assert rows.df["better"].dtype == STUDY["model"].dtype
    assert repr(rows) == (
        "70b and 8b are right in the same rows: both in 2 of 3 rows, neither in 1."
    )


def test_a_direction_without_rows_comes_last() -> None:
    """Nothing regressed, so what improved comes first."""
    old = _studied(_single([True, False, True, False]), [], run="old")
    new = _studied(_single([True, True, True, False]), [], run="new")

    rows = svc.contrast([old, new], "run", on="right").flips()

    assert rows.says == (
        "Improved: only new is right in 1 of 4 rows; regressed: only old in 0; both in "
        "2, neither in 1."
    )


def test_replies_are_rendered_as_in_a_table_of_replies() -> None:
    """Bold text is bold, as in `compare`; a terminal shows it as written."""
    frame = STUDY.assign(text="**spam**, I think")

    bundle = svc.contrast(frame, "model", on="right").flips()._repr_mimebundle_()

    assert "<strong>spam</strong>, I think" in bundle["text/html"]
    assert "**spam**, I think" in bundle["text/plain"]


def test_texts_of_models_are_escaped_and_cut() -> None:
    """Nothing of a reply acts in HTML or in a terminal; Thai stays as it is."""
    frame = STUDY.assign(text=f"{ATTACK} ถูกต้องครับ " * 200)

    bundle = svc.contrast(frame, "model", on="right").flips()._repr_mimebundle_()

    assert "<script" not in bundle["text/html"]
    assert "\x1b" not in bundle["text/html"] + bundle["text/plain"]
    assert "ถูกต้องครับ" in bundle["text/plain"]
    assert "more characters" in " ".join(bundle["text/plain"].split())

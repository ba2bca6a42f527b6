"""Ratings in a spreadsheet: blind, safe to open, and read back whole or not at all."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from tests.sweeps.conftest import LARGE, SMALL, answering

pytestmark = pytest.mark.slow

ROWS = pd.DataFrame({"mail": [f"mail {n} ฟรี" for n in range(6)]})
FORMULA = '=HYPERLINK("http://example.com";"ฟรี")'


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose small model says a formula, and the large one Thai."""
    with answering(
        {"when": {"model": SMALL}, "text": FORMULA},
        {"text": "ไม่ใช่\nสแปม, แน่นอน"},
    ) as running:
        yield running


@pytest.fixture
def run(session: Session) -> Run:
    """A run of two models over six mails, with replies."""
    arguments: dict[str, Any] = {"model": [SMALL, LARGE], "rows": ROWS, "name": "mails"}
    return plan_run(session, "Label: {{mail}}", **arguments).run()


def _filled(path: Path, rate: Callable[[str], str]) -> pd.DataFrame:
    """Fill in a file as a person does in a spreadsheet."""
    sheet = pd.read_csv(path, dtype=str, keep_default_na=False)
    shown = sheet["reply" if "reply" in sheet else "left"]
    sheet["rating"] = [rate(text) for text in shown]
    sheet.to_csv(path, index=False)
    return sheet


def test_a_sheet_is_blind_and_has_no_formulas(run: Run, tmp_path: Path) -> None:
    """No model is in it, its order is not the plan's, and no text is a formula."""
    sheet = run.to_rate("spam")

    path = svc.export(sheet, tmp_path / "rate.csv")

    assert list(sheet) == [
        "rate_id",
        "var_mail",
        "prompt",
        "reply",
        "scale",
        "rating",
        "note",
        "first",
    ]
    assert set(sheet.dtypes.astype(str)) == {"string"}
    assert len(sheet) == 12
    assert SMALL not in path.read_text("utf-8")
    replies = pd.read_csv(path)["reply"]
    assert replies.str.startswith("=").sum() == 0
    assert replies.str.contains("HYPERLINK").sum() == 6
    assert sheet["var_mail"].tolist() != sorted(sheet["var_mail"])


def test_a_sheet_does_not_have_the_right_answer(session: Session) -> None:
    """It has the columns that fill the prompt; others are shown if they are named."""
    rows = ROWS.assign(label="secret", language="th")
    scores = {"right": svc.scores.exact("label")}
    run = plan_run(
        session, "Label: {{mail}}", rows=rows, scores=scores, model=SMALL, name="two"
    ).run()

    sheet = run.to_rate("spam")
    shown = run.to_rate("spam", columns=["language"])

    assert [name for name in sheet.columns if name.startswith("var_")] == ["var_mail"]
    assert "secret" not in sheet.to_string()
    assert [name for name in shown.columns if name.startswith("var_")] == [
        "var_language"
    ]
    assert run.take_ratings(shown.assign(rating="yes"), "spam", rater="ann") == 6
    assert run.take_ratings(sheet.assign(rating="no"), "spam", rater="bob") == 6


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_sheet_comes_back_with_ratings_and_notes(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    """Yes, no, y, 1, TRUE and 0.0 are understood, and empty cells are left out."""
    sheet = run.to_rate("spam")
    sheet["rating"] = ["yes", "NO ", "y", "1", "TRUE", "0.0", *["", None] * 3]
    sheet["note"] = ["ดีมาก, ฟรี", *[""] * 11]
    path = svc.export(sheet, tmp_path / f"rate.{suffix}")

    assert run.take_ratings(path, "spam", rater="ann") == 6

    rated = run.ratings_df("spam")
    by_id = rated.set_index(rated["exchange_id"] + ":0")
    ids = sheet["rate_id"].tolist()
    assert by_id.loc[ids[:6], "value"].tolist() == [1, 0, 1, 1, 1, 0]
    assert by_id.loc[ids[0], "note"] == "ดีมาก, ฟรี"
    assert set(rated["rater"]) == {"ann"}
    assert run.replies_df()["score_rated_spam"].notna().sum() == 6
    assert len(run.to_rate("spam", rater="ann")) == 6


def test_labels_such_as_na_are_no_empty_cells(run: Run, tmp_path: Path) -> None:
    """A label that pandas would read as missing is a rating."""
    path = svc.export(run.to_rate("kind", scale=["None", "NA"]), tmp_path / "k.csv")
    _filled(path, lambda text: "None" if "HYPERLINK" in text else "NA")

    assert run.take_ratings(path, "kind", scale=["None", "NA"]) == 12

    df = run.replies_df()
    labels = df.groupby("model")["score_rated_kind"].unique().map(list)
    assert labels.to_dict() == {SMALL: ["None"], LARGE: ["NA"]}


def test_a_wrong_value_keeps_nothing(run: Run) -> None:
    """The error names the line and what is allowed."""
    sheet = run.to_rate("spam").assign(rating="yes")
    sheet.loc[2, "rating"] = "perhaps"

    with pytest.raises(ParameterError, match="line 4 has 'perhaps'") as caught:
        run.take_ratings(sheet, "spam")

    assert "A rating is yes or no, or empty. Nothing was kept." in str(caught.value)
    assert len(run.ratings_df()) == 0


def test_a_sheet_of_another_run_keeps_nothing(run: Run, session: Session) -> None:
    """Its ids are not known, and no rating gets to a wrong reply."""
    sheet = run.to_rate("spam").assign(rating="no")
    other = plan_run(session, "Say {{mail}}", rows=ROWS, name="other").run()

    with pytest.raises(ParameterError, match="rate_id that is not of this run"):
        other.take_ratings(sheet, "spam")

    assert len(other.ratings_df()) == 0


def test_a_sheet_without_its_columns_is_refused(run: Run, tmp_path: Path) -> None:
    """The error says what is missing, and a file that is not there is named."""
    with pytest.raises(ParameterError, match="lacks rating"):
        run.take_ratings(run.to_rate().drop(columns="rating"))
    with pytest.raises(ParameterError, match=r"nowhere\.csv"):
        run.take_ratings(tmp_path / "nowhere.csv")


def test_pairs_are_read_as_they_were_shown(run: Run, tmp_path: Path) -> None:
    """A sheet may be rated by others: the winner is the reply on the side shown."""
    path = svc.export(run.to_rate(pairs="model", rater="bob"), tmp_path / "pairs.csv")
    sheet = _filled(path, lambda left: "left" if "HYPERLINK" in left else "right")
    for rater in ("ann", "bob", "eve"):
        assert run.take_ratings(path, pairs="model", rater=rater) == 6

    assert sheet["rating"].nunique() == 2  # the sides are drawn
    df = run.ratings_df("pairs")
    won = df["candidate"].where(df["label"] == "left", df["other_candidate"])
    assert df.groupby("rater").size().to_dict() == {"ann": 6, "bob": 6, "eve": 6}
    assert won.str.contains(SMALL).all()


def test_a_sheet_that_contradicts_itself_is_refused(run: Run) -> None:
    """A card that has two ratings has none that is known; a line twice is no fault."""
    sheet = run.to_rate("spam", rater="ann").assign(rating="no")
    twice = pd.concat([sheet, sheet.iloc[[0]]])

    with pytest.raises(
        ParameterError, match=r"lines 2 and \d+ rate the same card"
    ) as e:
        run.take_ratings(
            pd.concat([sheet, sheet.iloc[[0]].assign(rating="yes")]),
            "spam",
            rater="ann",
        )

    assert "Nothing was kept" in str(e.value)
    assert len(run.ratings_df()) == 0
    assert run.take_ratings(twice, "spam", rater="ann") == len(sheet)


def test_a_sheet_of_another_scale_is_refused(run: Run) -> None:
    """1 of 5 is no yes, so the scale of the sheet must be that of the name."""
    sheet = run.to_rate("spam", scale="1-5", rater="ann").assign(rating="1")

    with pytest.raises(ParameterError, match="made with the scale 1 / 2 / 3 / 4 / 5"):
        run.take_ratings(sheet, "spam", rater="ann")

    assert len(run.ratings_df()) == 0
    n_cards = len(sheet)
    assert run.take_ratings(sheet, "spam", scale="1-5", rater="ann") == n_cards
    sheet = sheet.drop(columns="scale")  # it need not be there
    assert run.take_ratings(sheet, "spam", scale="1-5", rater="bob") == n_cards


def test_labels_like_formulas_are_read_back(run: Run, tmp_path: Path) -> None:
    """What svc.export does to them makes no other scale of it."""
    scale = ["=bad", "good  so far"]
    sheet = run.to_rate("spam", scale=scale, rater="ann").assign(rating="2")
    path = svc.export(sheet, tmp_path / "rate.csv")

    n_kept = run.take_ratings(path, "spam", scale=scale, rater="ann")

    assert n_kept == len(sheet)
    assert run.ratings_df()["label"].unique().tolist() == [scale[1]]


def test_a_sheet_knows_in_which_order_it_was_made(run: Run) -> None:
    """Ratings of a random sample count as one, without saying so again."""
    sheet = run.to_rate(first="random", rater="ann")
    sheet["rating"] = "yes"

    run.take_ratings(sheet, rater="ann")

    assert set(run.ratings_df("good")["chosen"]) == {"random"}

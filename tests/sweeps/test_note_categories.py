"""Notes become categories, counted with intervals, and nothing is kept of them."""

from collections.abc import Iterator
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

ROWS = pd.DataFrame({"mail": [f"mail {n}" for n in range(8)]})


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose two models say different things."""
    with answering(
        {"when": {"model": SMALL}, "text": "small says"},
        {"text": "large says"},
    ) as running:
        yield running


@pytest.fixture
def run(session: Session) -> Run:
    """A run of two models over eight mails, with replies."""
    arguments: dict[str, Any] = {"model": [SMALL, LARGE], "rows": ROWS}
    return plan_run(session, "Label: {{mail}}", **arguments).run()


def _noted(run: Run, notes: dict[str, list[str]], rater: str = "ann") -> None:
    """Write notes of the replies of each model, in the order of the cards."""
    rating = run.rate(notes=True, rater=rater)
    left = {model: list(texts) for model, texts in notes.items()}
    while (card := rating.card()) is not None:
        model = SMALL if card.replies[0].text.startswith("small") else LARGE
        rating.rate(None, note=left[model].pop(0) if left[model] else "")


NOTES = {
    SMALL: ["Too LONG", "too long, and rude", "wordy", "ยาวเกินไป", "odd"],
    LARGE: ["rude"],
}


def test_notes_are_counted_in_categories(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note is in each category that it has a word of; the rest is shown."""
    _noted(run, NOTES)

    df = run.categories({"long": ["long", "WORDY", "ยาว"], "tone": "rude"})

    assert list(df) == ["category", "model", "n", "n_replies", "share", "low", "high"]
    assert df["category"].tolist() == ["long"] * 2 + ["tone"] * 2 + ["(none)"] * 2
    assert df["model"].tolist() == [SMALL, LARGE] * 3
    assert df["n"].tolist() == [4, 0, 1, 1, 1, 0]
    assert df["n_replies"].tolist() == [8] * 6
    assert df["share"].tolist() == [0.5, 0, 0.125, 0.125, 0.125, 0]
    assert "1 note is in no category: 'odd'." in capsys.readouterr().err


def test_the_intervals_are_those_of_a_score(run: Run) -> None:
    """A share of 0 has an interval, too, and all are what a summary would say."""
    _noted(run, NOTES)
    ratings = run.ratings_df()
    is_long = ratings["note"].str.contains("long", case=False)
    at = set(ratings.loc[is_long, "exchange_id"])
    run.score(long=lambda r: r.exchange_id in at)

    df = run.categories({"long": "long"}).query("category == 'long'")

    summed = run.summary_df(on="long")
    for mine, theirs in (("share", "long"), ("low", "long_low"), ("high", "long_high")):
        assert df[mine].tolist() == pytest.approx(summed[theirs].tolist())
    assert df["low"].tolist()[1] == 0 < df["high"].tolist()[1]


def test_a_category_is_counted_once_for_a_reply(run: Run) -> None:
    """Whether one rater notes it or both, in other words."""
    _noted(run, {SMALL: ["long"], LARGE: []}, rater="ann")
    _noted(run, {SMALL: ["wordy", "long"], LARGE: ["wordy"]}, rater="bob")

    df = run.categories({"long": ["long", "wordy"]}, by="model")

    assert df["n"].tolist() == [2, 1]
    assert df["n_replies"].tolist() == [8, 8]


def test_editing_the_mapping_merges_and_renames(run: Run) -> None:
    """Nothing is kept, so the cell that is run says what the categories are."""
    _noted(run, NOTES)

    df = run.categories({"style": ["long", "wordy", "rude", "ยาว", "odd"]}, by="model")

    assert df["category"].tolist() == ["style", "style"]
    assert df["n"].tolist() == [5, 1]


def test_without_categories_the_notes_are_listed(run: Run) -> None:
    """The most frequent first, by whatever is asked for."""
    _noted(run, {SMALL: ["long", "long", "odd"], LARGE: ["odd", "odd "]})

    assert run.categories().to_dict("list") == {
        "note": ["odd", "long"],
        "n": [3, 2],
    }
    by_model = run.categories(by="model")
    assert list(by_model) == ["note", "model", "n"]
    assert set(by_model.itertuples(index=False, name=None)) == {
        ("odd", LARGE, 2),
        ("long", SMALL, 2),
        ("odd", SMALL, 1),
    }
    assert by_model["n"].tolist() == [2, 2, 1]


def test_notes_are_no_ratings(run: Run) -> None:
    """After them, `rate` begins at the first reply, and the notes stay."""
    _noted(run, NOTES)

    rating = run.rate(rater="ann")

    assert (rating.n_done, rating.n_total) == (0, 16)
    rating.rate(1)
    assert set(run.ratings_df()["name"]) == {"notes", "good"}
    assert run.categories({"long": "long"}, by="model")["n"].sum() == 6


def test_vowels_in_two_spellings_are_the_same(run: Run) -> None:
    """Thai sara am is one character or two, which look the same."""
    _noted(run, {SMALL: ["ซ้ำ", "ซ้\u0e4dา"], LARGE: []})

    assert run.categories({"again": "ซ้ำ"})["n"].sum() == 2


def test_without_notes_it_says_how_to_write_them(run: Run) -> None:
    """Also if the notes have another name."""
    with pytest.raises(ParameterError, match=r"call run\.rate\(notes=True\)"):
        run.categories({"long": "long"})
    _noted(run, NOTES)
    with pytest.raises(ParameterError, match=r"called 'note'.*notes"):
        run.categories({"long": "long"}, name="note")


@pytest.mark.parametrize(
    ("categories", "says"),
    [
        ({}, "a mapping from categories to words"),
        (["long"], "a mapping from categories to words"),
        ({"long": []}, "a word of notes"),
        ({"long": [""]}, "a word of notes"),
        ({"": ["long"]}, "name of a category"),
        ({"(none)": ["long"]}, "name of a category"),
    ],
)
def test_what_is_no_mapping_is_refused(run: Run, categories: Any, says: str) -> None:  # noqa: ANN401 - whatever was given
    """A word that is empty would be in every note."""
    _noted(run, NOTES)

    with pytest.raises(ParameterError, match=says):
        run.categories(categories)


def test_columns_are_described(run: Run) -> None:
    """`svc.describe` knows the frames."""
    _noted(run, NOTES)

    meanings = svc.describe(run.categories({"long": "long"})).set_index("name")
    assert meanings.loc["n", "meaning"] == "replies with a note of this category"

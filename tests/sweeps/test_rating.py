"""Ratings by hand: their order, what is kept, and how a rater goes on."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.rating import HIDDEN_PROMPTS, Rating, RatingCard
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL, answering

pytestmark = pytest.mark.slow

ROWS = pd.DataFrame({"mail": [f"win {n} ฟรี" if n % 2 else f"hi {n}" for n in range(8)]})


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose models say the same to mails that are not called win."""
    with answering(
        {
            "when": {"contains": ["<prompt ", "hi 4"], "model": LARGE},
            "judge": "fair",
            "good": ["spam"],
        },
        {
            "when": {"contains": "<prompt "},
            "judge": "fair",
            "good": ["ham"],
        },
        {"when": {"contains": "Say why."}, "text": "ham, because it is polite"},
        {"when": {"model": SMALL, "contains": "win"}, "text": "ham"},
        {"when": {"contains": "win"}, "text": "spam"},
        {"text": "ham"},
    ) as running:
        yield running


@pytest.fixture
def run(session: Session) -> Run:
    """A run of two models over eight mails, with replies."""
    arguments: dict[str, Any] = {"model": [SMALL, LARGE], "rows": ROWS, "name": "mails"}
    return plan_run(session, "Label: {{mail}}", **arguments).run()


MORE = "Another person adds theirs with rater=."


def _mail(card: RatingCard) -> str:
    return card.values["mail"]  # noqa: PD011 - no frame


def _rate_all(rating: Rating, value: float | str = 1) -> list[RatingCard]:
    cards = list[RatingCard]()
    while (card := rating.card()) is not None:
        cards.append(card)
        rating.rate(value, seconds_s=1.5)
    return cards


def test_what_raters_say_is_a_score_of_the_replies(run: Run) -> None:
    """Equal replies to one prompt are rated once, and the rating counts for both."""
    rating = run.rate(rater="ann")

    cards = _rate_all(rating)

    assert rating.n_total == len(cards) == 12  # 4 rows with one text, 4 with two
    scores = run.replies_df()["score_rated_good"]
    assert scores.tolist() == [1] * 16
    ratings = run.ratings_df()
    assert len(ratings) == 16
    assert len(ratings.drop_duplicates(["name", "rater", "rated_at"])) == 12
    assert set(ratings["rater"]) == {"ann"}
    assert ratings["seconds_s"].tolist() == [1.5] * 16
    assert str(rating).splitlines() == [
        "12 of 12 replies rated as good by ann.",
        f"The score is rated_good; run.summary_df() has it. {MORE}",
    ]


def test_ratings_of_all_replies_are_no_choice(run: Run) -> None:
    """Rows that differ come first; only while some are not rated does that matter."""
    run.score(judge_good=lambda row: "spam" in row["text"])
    rating = run.rate(rater="ann")
    for _ in range(11):
        rating.rate(1)
    assert "they differ" in str(run.contrast("model", on="rated_good").notes)

    rating.rate(0)

    assert rating.card() is None
    assert "they differ" not in str(run.contrast("model", on="rated_good").notes)
    assert "they differ" not in str(run.agreement("judge_good", "rated_good").notes)
    corrected = run.contrast("model", on="judge_good", labels="rated_good")
    assert "left out" not in str(corrected.notes)


def test_few_ratings_leave_costs_and_other_counts_as_they_are(run: Run) -> None:
    """A reply that was rated yes costs what one reply costs, if all of them were."""
    run.score(spam=lambda row: "spam" in row["text"])
    rating = run.rate("fits", rater="ann", first="random", n=4)
    cards = _rate_all(rating)
    price = {"prompt": 100.0, "completion": 200.0}
    models = {"models": {SMALL: price, LARGE: price}}
    prices = {"as_of": "2026-01-31", "currency": "USD"} | models

    summary = run.summary_df(by="model", prices=prices, include_emulated=True)

    replies = run.replies_df()
    replies = replies[replies["score_rated_fits"].notna()]
    cost = replies["prompt_tokens"] * 1e-4 + replies["completion_tokens"] * 2e-4
    cost = cost.groupby(replies["model"], sort=False).mean()[summary["model"]]
    assert summary["cost_per_rated_fits"].to_numpy() == pytest.approx(cost.to_numpy())
    assert len(cards) < 8
    n_rows = replies["row"].nunique()
    assert summary["n_units_rated_fits"].tolist() == [n_rows] * 2
    assert summary[["n_units", "n_scored"]].to_numpy().tolist() == [[8, 8]] * 2


def test_rows_whose_replies_differ_come_first(run: Run) -> None:
    """Without scores these are the rows with different texts; the ledger says so."""
    rating = run.rate(rater="ann", n=8)

    cards = _rate_all(rating)

    assert all("win" in _mail(card) for card in cards)
    assert set(run.ratings_df()["chosen"]) == {"differs"}


def test_rows_about_which_a_jury_is_divided_come_first(run: Run) -> None:
    """Its replies say the same, so nothing else would bring them to the front."""
    run.judge("Is it right?", model=[SMALL, LARGE], probes=False).run()

    cards = _rate_all(run.rate(rater="ann", n=9))

    mails = {_mail(card) for card in cards}
    assert mails == {"hi 4", *(mail for mail in ROWS["mail"] if "win" in mail)}


def test_a_rater_sees_nothing_of_what_made_a_reply(run: Run) -> None:
    """Cards have a candidate only if asked for, and both replies of a row meet."""
    blind = _rate_all(run.rate(rater="ann"))
    seen = _rate_all(run.rate(rater="bob", blind=False))

    assert {reply.candidate for card in blind for reply in card.replies} == {""}
    assert {reply.candidate for card in seen for reply in card.replies} == {
        SMALL,
        LARGE,
        f"{SMALL} / {LARGE}",
    }


@pytest.fixture
def labelled(session: Session) -> Run:
    """A run whose rows have a label and a language, which no prompt uses."""
    arguments: dict[str, Any] = {"model": [SMALL, LARGE], "name": "labelled"}
    rows = ROWS.assign(label="secret", language="th", mail_id=range(8))
    scores = {"right": svc.scores.exact("label")}
    return plan_run(
        session, "Label: {{mail}}", rows=rows, scores=scores, **arguments
    ).run()


def test_a_rater_does_not_see_the_right_answer(
    labelled: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card has only the columns that fill the prompt, also in a terminal."""
    monkeypatch.setattr("builtins.input", lambda _: "")
    capsys.readouterr()

    card = labelled.rate(in_terminal=True).card()

    assert card is not None
    assert [*card.values] == ["mail"]  # noqa: PD011 - no frame
    assert "secret" not in capsys.readouterr().out


def test_columns_of_all_prompts_are_shown_with_each_reply(session: Session) -> None:
    """A column with only some cards would show which prompt made the reply."""
    rows = ROWS.assign(label="secret", language="th")
    prompts = {"a": "Label: {{mail}}", "b": "In {{language}}: {{mail}}"}
    run = plan_run(session, prompts, rows=rows, name="two", model=SMALL).run()

    cards = _rate_all(run.rate())

    assert {tuple(card.values) for card in cards} == {("mail", "language")}


@pytest.fixture
def wordings(session: Session) -> Run:
    """A run of two prompts, which ask the same in other words."""
    prompts = {"a": "Label: {{mail}}", "b": "Is it spam? {{mail}} Say why."}
    return plan_run(session, prompts, rows=ROWS, name="words", model=SMALL).run()


def test_a_blind_pair_of_two_wordings_shows_neither(
    wordings: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt would show which reply is whose; what filled both is shown."""
    monkeypatch.setattr("builtins.input", lambda _: "")
    shown = wordings.rate(pairs="prompt", columns=[], in_terminal=True)
    card = shown.card()
    sheet = wordings.to_rate(pairs="prompt")

    assert card is not None
    assert card.prompts == {"Prompt": HIDDEN_PROMPTS}
    assert HIDDEN_PROMPTS in capsys.readouterr().err
    assert set(sheet["prompt"]) == {HIDDEN_PROMPTS}
    assert sheet["var_mail"].str.contains("win|hi").all()


def test_a_pair_of_two_wordings_shows_both_to_an_informed_rater(wordings: Run) -> None:
    """The left prompt belongs to the left reply."""
    card = wordings.rate(pairs="prompt", blind=False).card()

    assert card is not None
    begins = {"a": "Label: ", "b": "Is it spam? "}
    assert [*card.prompts] == ["Left prompt", "Right prompt"]
    for reply, prompt in zip(card.replies, card.prompts.values(), strict=True):
        assert prompt.startswith(begins[reply.candidate])


def test_a_pair_of_models_shows_their_one_prompt(run: Run) -> None:
    """It is the same for both, and tells nothing."""
    card = run.rate(pairs="model").card()

    assert card is not None
    assert card.prompts == {"Prompt": f"Label: {_mail(card)}"}


def test_a_rater_sees_the_columns_that_are_named(labelled: Run) -> None:
    """They are columns of the rows; an unknown one is refused."""
    card = labelled.rate(columns=["language", "mail"]).card()

    assert card is not None
    assert [*card.values] == ["language", "mail"]  # noqa: PD011 - no frame
    with pytest.raises(ParameterError, match="The rows have no column 'lang'; they"):
        labelled.rate(columns="lang")


def test_only_what_fills_a_prompt_is_in_it(session: Session) -> None:
    """A short value may be in a text by chance; a system message is not in sight."""
    rows = ROWS.assign(language="hi", style="kind")
    run = plan_run(
        session, "Label: {{mail}}", system="Be {{style}}.", rows=rows, model=SMALL
    ).run()

    card = run.rate(columns=["mail", "language", "style"]).card()

    assert card is not None
    assert [*card.filled] == ["mail"]
    assert [*card.others] == ["language", "style"]


def test_a_rater_goes_on_in_another_kernel(run: Run, session: Session) -> None:
    """The order is the same there, and what is rated does not come again."""
    first = run.rate(rater="ann", first="random")
    seen = [first.card()]
    first.rate(1)
    seen.append(first.card())
    first.rate(0, note="no thanks")

    later = stored_run(session, "mails").rate(rater="ann", first="random")

    assert later.n_done == 2
    cards = [_mail(card) for card in seen if card]
    rest = [_mail(card) for card in _rate_all(later)]
    whole = [_mail(card) for card in _rate_all(run.rate("again", first="random"))]
    assert len(rest) == 10
    assert sorted(cards + rest) == sorted(whole)
    later = stored_run(session, "mails").rate(rater="ann", first="random")
    assert later.card() is None
    later.undo()
    assert later.n_done == 11


def test_what_is_taken_back_is_shown_again_with_its_note(run: Run) -> None:
    """The score goes too, until the card is rated again."""
    rating = run.rate(rater="ann", first="random")
    card = rating.card()
    rating.rate(0, note="rude")

    rating.undo()

    again = rating.card()
    assert card is not None
    assert again is not None
    assert (again.replies, again.value, again.note) == (card.replies, 0, "rude")
    assert "score_rated_good" not in run.replies_df()
    rating.rate(1)
    assert run.ratings_df()["note"].iloc[0] == "rude"


def test_several_raters_make_one_score(run: Run) -> None:
    """Of yes and no it is what most say, of numbers the mean."""
    for rater, value, points in (("ann", 1, 5), ("bob", 1, 4), ("cy", 0, 3)):
        _rate_all(run.rate(rater=rater), value)
        _rate_all(run.rate("style", scale="1-5", rater=rater), points)

    df = run.replies_df()

    assert set(df["score_rated_good"]) == {1}
    assert set(df["score_rated_style"]) == {4}
    assert "3 raters gave 12 replies the same value in 33 % of cases" in str(
        run.rate(rater="ann")
    )


def test_raters_who_do_not_agree_make_no_score(run: Run) -> None:
    """One yes and one no is neither."""
    _rate_all(run.rate(rater="ann"), 1)
    _rate_all(run.rate(rater="bob"), 0)

    assert "score_rated_good" not in run.replies_df()
    assert len(run.ratings_df("good")) == 32


def test_pairs_are_preferences_of_what_made_them(run: Run) -> None:
    """Sides differ from card to card, and what is kept names the candidates."""
    for rater in ("ann", "bob", "cy"):
        rating = run.rate(pairs="model", rater=rater)
        assert rating.n_total == 4
        while (card := rating.card()) is not None:
            is_left = card.replies[0].text == "spam"
            rating.rate("left" if is_left else "right")

    ranked = run.ranking(on="rated_pairs")

    assert ranked.df[["candidate", "n_won", "n_lost"]].to_numpy().tolist() == [
        [LARGE, 12, 0],
        [SMALL, 0, 12],
    ]
    assert set(run.ratings_df("pairs")["label"]) == {"left", "right"}
    assert "gave 4 replies the same value in 100 % of cases" in str(rating)


def test_labels_that_were_not_drawn_at_random_correct_nothing(run: Run) -> None:
    """A comparison leaves them out and says how many."""
    run.score(judge_good=lambda row: "spam" in row.text)
    _rate_all(run.rate("odd", rater="ann", n=4))
    _rate_all(run.rate("all", rater="ann", n=4))
    _rate_all(run.rate("all", rater="bob", first="random"))

    compared = run.contrast("model", "judge_good", labels="rated_all")
    with pytest.raises(ParameterError, match="All 4 labels of odd are of replies that"):
        run.contrast("model", "judge_good", labels="rated_odd")

    assert not [note for note in compared.notes if "left out" in note]
    (said,) = [
        note for note in run.contrast("model", "rated_odd").notes if "rated" in note
    ]
    assert said.startswith("4 of 4 labels of odd are of replies that were rated")


@pytest.mark.parametrize("n", [None, 10, 2])
def test_a_random_order_has_what_was_rated_before(run: Run, n: int | None) -> None:
    """Rows that differ, and were rated for that, belong to the sample once drawn."""
    _rate_all(run.rate(rater="ann", n=8))  # all rows that differ

    for rater in ("ann", "bob"):
        _rate_all(run.rate(rater=rater, first="random", n=n))

    ratings = run.ratings_df()
    drawn = [
        set(ratings.loc[is_drawn & (ratings["rater"] == rater), "exchange_id"])
        for is_drawn in [ratings["chosen"] == "random"]
        for rater in ("ann", "bob")
    ]
    assert drawn[0] == drawn[1]


def test_plans_and_agreement_know_which_labels_were_drawn_at_random(run: Run) -> None:
    """A plan leaves the others out and says so; agreement has them, and a note."""
    run.score(judge_good=lambda row: "spam" in row.text)
    for rating in (
        run.rate(rater="ann", n=8),  # all rows that differ
        run.rate(rater="bob", first="random", n=5),  # of some mails
    ):
        while (card := rating.card()) is not None:
            rating.rate(int("spam" in card.replies[0].text))

    with_them = svc.how_many(
        0.5,
        pilot=run.replies_df(),
        factor="model",
        on="judge_good",
        labels="rated_good",
    )
    planned = run.how_many(0.5, "model", on="judge_good", labels="rated_good")
    compared = run.contrast("model", "judge_good", labels="rated_good")
    trust = run.agreement("judge_good", "rated_good")

    n_left_out = re.search(r"(\d+) labels of good are left out", str(planned))
    assert n_left_out is not None
    assert n_left_out[0] in repr(compared)
    assert "left out" not in str(with_them)
    n_labels = int(run.replies_df()["score_rated_good"].notna().sum())
    assert f"{n_left_out[1]} of {n_labels} labels of good are of replies" in repr(trust)
    assert trust.df["n_replies"].tolist() == [n_labels]


def test_a_note_that_holds_the_key_is_kept_without_it(
    run: Run, emulator: Emulator
) -> None:
    """What people write is in the ledger as they wrote it, but for keys."""
    rating = run.rate("text", notes=True, rater="ann")

    rating.rate(None, note=f"says {emulator.api_key} aloud")

    (note, *_) = run.ratings_df("text")["note"]
    assert emulator.api_key not in note
    assert note.startswith("says ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "name must be a name of letters"),
        ({"scale": "1-12"}, 'scale must be "yes/no"'),
        ({"scale": ["good"]}, "2 to 9 labels"),
        ({"first": "worst"}, 'first must be "differs" or "random"'),
        ({"pairs": "temperature"}, "has only one value in the replies"),
        ({"pairs": "model", "notes": True}, "leave out pairs"),
        ({"n": 0}, "n must be"),
    ],
)
def test_what_cannot_be_rated_is_refused(
    run: Run, options: dict[str, Any], message: str
) -> None:
    """The message says what is allowed."""
    with pytest.raises(ParameterError, match=message):
        run.rate(**options)


def test_a_run_without_replies_cannot_be_rated(session: Session) -> None:
    """The message says what to do first."""
    planned = plan_run(session, "Hi", model=[SMALL])

    with pytest.raises(ParameterError, match="Call run\\(\\) first"):
        planned.rate()


def test_in_a_terminal_keys_are_lines(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note follows its key, an unknown key is said, and an empty line ends it."""
    lines = iter(["y nice", "x", "s", "n", "u", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))

    rating = run.rate(rater="ann", in_terminal=True)

    assert rating.n_done == 1
    said = capsys.readouterr()
    assert "There is no key 'x'" in said.out + said.err
    assert run.ratings_df()["note"].iloc[0] == "nice"


LETTER = "Dear hotel,\n" + "\n".join(f"Wish {n}." for n in range(9))


@pytest.mark.parametrize(
    ("letter", "keys", "folded", "opened"),
    [
        ("Where is my hat?", [""], [False], [True]),
        (LETTER, ["y", ""], [True, True], [False, False]),
        (LETTER, ["p", "y", ""], [True, False, False], [False, True, True]),
    ],
)
def test_a_terminal_shows_what_is_answered_once(  # noqa: PLR0913, PLR0917 - fixtures
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    letter: str,
    keys: list[str],
    folded: list[bool],
    opened: list[bool],
) -> None:
    """A short prompt is whole; of a long one, what fills it, until p unfolds it."""
    rows = pd.DataFrame({"letter": [f"{letter} A", f"{letter} B"], "to": ["x", "x"]})
    run = plan_run(
        session, "Answer kindly.\n\n{{letter}}", rows=rows, model=SMALL
    ).run()
    capsys.readouterr()
    lines = iter(keys)
    monkeypatch.setattr("builtins.input", lambda _: next(lines))

    run.rate(columns=["letter", "to"], in_terminal=True)

    *_, shown = capsys.readouterr().err.partition("1 of 2")
    cards = re.split(r"\d of 2\n", shown)
    assert ["letter: " in card for card in cards] == folded
    assert ["Answer kindly." in card for card in cards] == opened
    assert {card.count(letter) for card in cards} == {1}
    assert {card.count("to: x") for card in cards} == {1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"scale": 5}, "scale must be"),
        ({"scale": None}, "scale must be"),
        ({"rater": 5}, "rater must be the name of a person"),
        ({"rater": ""}, "rater must be the name of a person"),
        ({"rater": "  "}, "rater must be the name of a person"),
    ],
)
def test_what_is_no_scale_or_rater_is_refused(
    run: Run, given: dict[str, Any], says: str
) -> None:
    """Nobody rates without a name, and no argument fails with an error of Python."""
    with pytest.raises(ParameterError, match=says):
        run.rate(**given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"seconds_s": "x"}, "seconds_s must be"),
        ({"seconds_s": -1}, "seconds_s must be"),
        ({"seconds_s": float("nan")}, "seconds_s must be"),
        ({"note": 5}, "note must be a text"),
        ({"note": "bad \ud800"}, "half of a surrogate pair"),
    ],
)
def test_a_rating_that_could_not_be_read_again_is_not_kept(
    run: Run, given: dict[str, Any], says: str
) -> None:
    """One such rating would break the frame of all ratings."""
    rating = run.rate(rater="ann")

    with pytest.raises(ParameterError, match=says):
        rating.rate(1, **given)

    assert rating.n_done == 0
    rating.rate(1, seconds_s=2)
    assert run.ratings_df()["seconds_s"].dropna().iloc[0] == 2


def test_another_scale_needs_another_name(run: Run) -> None:
    """Yes is not the worst of five, so both in one score would be a wrong number."""
    run.rate(rater="ann").rate(1)
    run.rate(rater="bob").rate(0)
    run.rate("kind", scale=["kind", "rude"], rater="ann").rate("rude")

    with pytest.raises(
        ParameterError, match=r"ratings good that are not on this scale: 0\. "
    ):
        run.rate(scale="1-5", rater="eve")
    with pytest.raises(ParameterError, match="not on this scale: 'rude'"):
        run.rate("kind")

    assert run.rate("kind", scale=["kind", "rude", "odd"], rater="bob").n_done == 0
    assert run.rate("kind", scale="1-5", pairs="model").n_done == 0
    assert run.rate("helpful", scale="1-5").n_done == 0


def test_numbers_of_numpy_are_kept(run: Run) -> None:
    """Values that come from a column of a frame are numbers like others."""
    rating = run.rate(rater="ann", scale="1-5")

    rating.rate(np.int64(4), seconds_s=np.int64(3))  # type: ignore[arg-type]  # as a column has them

    kept = run.ratings_df().iloc[0]
    assert (kept["value"], kept["seconds_s"]) == (4, 3)


Act = Literal["rate", "skip", "undo", "restart"]


@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=st.lists(st.sampled_from(["rate", "skip", "undo", "restart"]), max_size=15))
def test_nothing_is_lost_or_shown_twice(run: Run, acts: list[Act]) -> None:
    """Whatever a rater does, each card is rated once or still to come."""
    rating = run.rate(rater="eve", first="random")
    while rating.can_undo:  # of the example before
        rating.undo()
    for act in acts:
        if act == "restart":
            rating = run.rate(rater="eve", first="random")
        elif act == "rate":
            with contextlib.suppress(ParameterError):  # all is done
                rating.rate(1)
        else:
            getattr(rating, act)()
        assert (rating.card() is None) == (rating.n_done == rating.n_total)
    n_left = len(rating.open_cards())
    assert rating.n_done + n_left == rating.n_total

    cards = _rate_all(rating)

    assert len({card.number for card in cards}) == len(cards) == n_left
    assert rating.n_done == rating.n_total

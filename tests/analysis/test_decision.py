"""A decision in words: what to use, why, and what is left open."""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.analysis.decision import (
    Decision,
    Spent,
    decided,
    n_fixed,
    progress_line,
)
from svc_notebook.analysis.rounding import round_up
from svc_notebook.analysis.stopping_rule import Look, Question, look_at
from svc_notebook.errors import ParameterError
from tests.analysis.make import replies

MARGIN = Question(factor="model", on="right", margin=0.03)


def study(
    n_rows: int, costs: dict[str, float] | None = None, **is_right: Callable[[int], Any]
) -> pd.DataFrame:
    """Return replies of models to rows; each function says whether a row is right."""
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "model": model,
            "score_right": rule(row),
            "cost": (costs or {}).get(model, pd.NA),
        }
        for row in range(n_rows)
        for model, rule in is_right.items()
    )


def is_even(row: int) -> bool:
    """Say that half of the rows are right."""
    return row % 2 == 0


def always(_: int) -> bool:
    """Say that all rows are right."""
    return True


def looked(df: pd.DataFrame, *n_rows: int, question: Question = MARGIN) -> list[Look]:
    """Look at a frame after so many rows each."""
    looks: list[Look] = []
    for n in n_rows:
        asked = looks[-1].asked if looks else None
        looks.append(look_at(df[df["row"] < n], question, asked))
    return looks


def decided_of(df: pd.DataFrame, *n_rows: int, **spent: Any) -> Decision:  # noqa: ANN401 - as `Spent`
    """Decide after so many rows each."""
    return decided(looked(df, *n_rows), MARGIN, Spent(n_possible=len(df), **spent))


def test_the_answer_comes_first() -> None:
    """A decision is a sentence, its costs, and the requests of the plan."""
    df = study(100, {"old": 0.001, "new": 0.007}, old=is_even, new=always)

    decision = decided_of(df, 60, currency="USD")

    assert decision.value == "new"
    assert decision.says == (
        "Use new. It is better than old by 50 points (29 to 70), and costs 7 times as "
        "much. 120 requests of 200 for 0.48 USD; asked until this was clear."
    )
    text, html = repr(decision), decision._repr_mimebundle_()["text/html"]
    assert text.startswith("Use new. It is better")
    assert "new minus old\n" in text
    assert html.index("<strong>Use new.</strong>") < html.index("<svg")


def test_ends_are_not_rounded_onto_the_margin() -> None:
    """An end that is within the margin is shown within it."""
    df = study(203, {"old": 7.0, "new": 1.0}, old=always, new=always)

    decision = decided_of(df, 203)

    assert decision.value == "new"
    assert "It is at most 3 points worse than old (-2.9" in decision.says
    assert "and costs 86 % less" in decision.says


def test_what_is_open_says_how_many_would_tell() -> None:
    """By what was seen so far, with the interval of the better one minus the other."""
    df = study(40, old=lambda row: row % 8 != 0, new=lambda row: row % 10 != 0)

    decision = decided_of(df, 20, 40, most="80 requests")

    assert decision.value is None
    assert decision.says.startswith(
        "Cannot tell within 80 requests: new leads with 90 %; old cannot be told from "
        "it (new minus old is -"
    )
    assert re.search(
        r"; if the difference is as seen so far, about [\d,]+ rows \([\d,]+ requests\)"
        r" in all would tell; to find 3 points, the margin, a run without looks takes "
        r"about [\d,]+ rows \([\d,]+ requests\)\. 80 requests of 80 were sent\.$",
        decision.says,
    )
    sizes = re.findall(r"([\d,]+) rows \(([\d,]+) requests\)", decision.says)
    for rows, requests in sizes:  # two for each row, also as they are written
        assert int(requests.replace(",", "")) == 2 * int(rows.replace(",", ""))
    assert decision.notes == []
    html = decision._repr_mimebundle_()["text/html"]
    assert "requests).</strong> 80 requests of 80 were sent." in html


def test_one_look_agrees_with_a_comparison() -> None:
    """Its interval is that of contrast, and so is the number of rows of a new run."""
    df = study(40, old=lambda row: row % 8 != 0, new=lambda row: row % 20 != 0)
    question = Question(factor="model", on="right")

    looks = [look_at(df, question, looks="one")]
    looked_at = "this is one look at the replies"
    decision = decided(looks, question, Spent(n_possible=80, looked=looked_at))

    compared = svc.contrast(df, "model", "right")
    row, one = compared.df.iloc[0], decision.df.iloc[0]
    assert (row["low"], row["high"]) in {
        (one["low"], one["high"]),
        (-one["high"], -one["low"]),
    }
    (n_rows,) = re.findall(
        r"a new run with (\d+) rows would tell", " ".join(str(compared).split())
    )
    assert f"as seen so far, a new run with about {n_rows} rows (" in decision.says
    assert decision.says.endswith(f" had been sent before; {looked_at}.")
    (drawn,) = decision.chart.intervals
    assert drawn.title == "new minus old"


def test_too_few_rows_do_not_say_how_many_would_tell() -> None:
    """Without an interval nothing is known of more rows."""
    df = study(2, old=is_even, new=always)

    looks = [look_at(df, MARGIN, looks="one")]
    says = decided(looks, MARGIN, Spent(n_possible=4)).says

    assert "(new minus old is not known); there are too few rows to say" in says


def test_the_leader_is_compared_with_all_that_are_left() -> None:
    """Settings of two factors are joined by a slash, so a list of them can be read."""
    rules: dict[str, Any] = {
        "small terse": lambda row: row % 8 != 1,
        "large terse": lambda row: row % 10 != 1,
        "large careful": lambda row: row % 12 != 1,
    }
    df = study(60, **rules)
    names = df["model"].astype(str).str.split(" ", expand=True)
    df = df.assign(model=names[0], prompt_label=names[1])
    question = Question(factor=["model", "prompt"], on="right", margin=0.05)

    looks = looked(df, 30, 60, question=question)
    decision = decided(looks, question, Spent(n_possible=180))

    assert decision.headline.startswith(
        "Cannot tell with all rows: large/careful leads with 92 %; large/terse and "
        "small/terse cannot be told from it (large/careful minus large/terse is -"
    )
    assert decision.df["value"].unique().tolist() == ["large/careful"]
    assert decision.df["other"].tolist() == ["large/terse", "small/terse"] * 2
    assert list(dict.fromkeys(row.title for row in decision.chart.intervals)) == [
        "large/careful minus large/terse, look by look",
        "large/careful minus small/terse, look by look",
    ]


def test_a_drawing_has_all_looks_or_says_how_many() -> None:
    """Of many looks some are drawn, evenly, with the first and the last."""
    df = study(60, old=lambda row: row % 8 != 0, new=lambda row: row % 10 != 0)

    few = decided_of(df, *range(5, 61, 5))
    many = decided_of(df, *range(4, 61, 4))

    assert len(few.chart.intervals) == len(few.df) == 12
    assert {row.title for row in few.chart.intervals} == {"new minus old, look by look"}
    assert (len(many.chart.intervals), len(many.df)) == (12, 15)
    assert {row.title for row in many.chart.intervals} == {
        "new minus old, 12 of 15 looks"
    }
    assert [row.name for row in many.chart.intervals][::11] == [
        "8 requests",
        "120 requests",
    ]


def test_a_plan_without_looks_would_take_more() -> None:
    """It is that of the margin, for all values together; unknown without a margin."""
    df = study(100, old=is_even, new=lambda row: row % 5 != 0)
    looks = looked(df, 100)

    n = n_fixed(looks[-1], MARGIN)

    assert n is not None
    assert n > 1000
    line = progress_line(looks, MARGIN, 1)
    assert line.startswith("new minus old: 30 points (")
    assert line.endswith(
        " · without looks, to find 3 points: "
        f"{round_up(n):,} rows ({2 * round_up(n):,} requests)"
    )
    assert n_fixed(looks[-1], Question(factor="model", on="right")) is None


def test_a_question_is_about_a_score() -> None:
    """Seconds and tokens are refused: less of them is better."""
    df = study(20, old=always, new=always).assign(completion_tokens=5)

    with pytest.raises(ParameterError, match="is not a score"):
        look_at(df, Question(factor="model", on="completion_tokens"))


def test_numbers_are_decided_like_shares() -> None:
    """Scores without bounds have their own unit, and need 20 rows."""
    df = study(40, old=lambda row: row % 3, new=lambda row: 10 + row % 2)
    question = Question(factor="model", on="right")

    few, enough = looked(df, 19, 40, question=question)
    decision = decided([few, enough], question, Spent(n_possible=80))

    assert few.value is None
    assert decision.says.startswith("Use new. It is better than old by 9.5")
    assert "point" not in decision.says


def test_a_value_that_is_enough_may_be_better() -> None:
    """More than the margin is said; less of a difference is not worth a word."""
    small = {"old": 7.0, "new": 1.0}
    better = study(16, small, old=lambda row: row % 2 == 0, new=always)
    equal = study(203, small, old=lambda row: row != 7, new=always)

    assert "worse than old, and probably better (-" in decided_of(better, 16).says
    assert "worse than old (-2" in decided_of(equal, 203).says


def test_what_is_open_is_drawn_as_it_is_said() -> None:
    """The better value minus the other, in the drawing and in the sentence."""
    df = study(24, old=lambda row: row % 4 != 0, new=lambda row: row % 3 == 0)

    decision = decided_of(df, 24)

    assert "old minus new is -" in decision.says
    assert decision.chart.intervals[0].title.startswith("old minus new")


def test_replies_without_a_score_are_named() -> None:
    """What failed is left out of the decision, and a note says so."""
    df = study(60, old=is_even, new=always)
    is_failed = (df["model"] == "new") & (df["row"] < 3)
    df.loc[is_failed, "status"] = "error"
    df["score_right"] = df["score_right"].astype("boolean").mask(is_failed)

    decision = decided_of(df, 60)

    assert decision.notes == ["Left out: 3 of 60 replies of new failed."]
    assert decision.df["n_units"].tolist() == [57]
    assert decision.n_requests == 120

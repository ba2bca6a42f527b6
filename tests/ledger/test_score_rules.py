"""Scores of replies by functions of a row, kept in the ledger, and ready-made ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.analysis import scores
from svc_notebook.analysis.scores import score_replies
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.frames import replies_df
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody

MakeExchange = Callable[..., Exchange]
TEXTS = ["spam", "ham", '{"n": 1}', ""]


@pytest.fixture
def replies(ledger: Ledger, make: MakeExchange) -> pd.DataFrame:
    """Return four good replies with labels, and one that failed."""
    for at, text in enumerate(TEXTS):
        body = CompletionBody(
            id="c", created=1, model="m", choices=(Choice(text=text),)
        )
        columns = {"label": "spam", "odd name": at}
        ledger.add(make(at, body=body, origin=Origin(columns=columns)))
    ledger.add(make(4, body=None, status="error"))
    return replies_df(ledger)


@pytest.mark.slow
def test_a_function_scores_each_good_reply(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """The keyword is the name; a failed reply has no score; the ledger keeps all."""
    n_kept = score_replies(ledger, replies, {"right": lambda r: r.text == r.label})

    assert n_kept == 4
    assert replies["score_right"].tolist() == [1, 0, 0, 0, pd.NA]
    found = replies_df(ledger)
    pd.testing.assert_frame_equal(found, replies)


@pytest.mark.slow
def test_a_score_is_a_number_a_flag_a_label_or_a_dict(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """Each key of a dict has its column; None, NA and NaN are no score."""
    score_replies(
        ledger,
        replies,
        {
            "share": lambda r: len(r.text) / 8 if r.text else float("nan"),
            "tone": lambda r: "warm" if r["odd name"] else None,
            "has": lambda r: {"a": "a" in r.text, "n": pd.NA},
        },
    )

    found = replies_df(ledger)
    assert found["score_share"].tolist() == [0.5, 0.375, 1.0, pd.NA, pd.NA]
    assert found["score_tone"].tolist() == [pd.NA, "warm", "warm", "warm", pd.NA]
    assert found["score_has_a"].tolist() == [1, 1, 0, 0, pd.NA]
    assert "score_has_n" not in found
    assert str(found["score_share"].dtype) == "Float64"


@pytest.mark.slow
def test_what_a_function_raises_is_in_its_row(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """The other rows are scored, and a better function leaves no error."""
    score_replies(ledger, replies, {"half": lambda r: 1 / len(r.text)})

    found = replies_df(ledger)
    assert found["score_half"].tolist() == [0.25, 1 / 3, 0.125, pd.NA, pd.NA]
    errors = [pd.NA] * 3 + ["ZeroDivisionError: division by zero", pd.NA]
    assert found["score_half_error"].tolist() == errors
    score_replies(ledger, found, {"half": lambda r: len(r.text)})
    assert "score_half_error" not in found
    assert "score_half_error" not in replies_df(ledger)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda r: r.lable, "no column 'lable'. Did you mean label?"),
        (lambda r: r["lable"], "no column 'lable'. Did you mean label?"),
        (lambda _: [1], "holds a list; a score must be a number"),
        (lambda _: 2**64, "holds an integer that needs more than 64 bits"),
        (lambda _: "a\ud800", "contains half of a surrogate pair"),
        (lambda: 1, "TypeError"),
    ],
    ids=["attribute", "item", "value", "size", "text", "arguments"],
)
def test_a_function_that_always_fails_is_refused(
    ledger: Ledger, replies: pd.DataFrame, rule: Callable[..., Any], said: str
) -> None:
    """The message has the first error, and the scores of before are kept."""
    score_replies(ledger, replies, {"right": lambda _: 1})

    with pytest.raises(ParameterError) as caught:
        score_replies(ledger, replies, {"right": rule})

    assert "right failed for all of 4 replies" in str(caught.value)
    assert said in str(caught.value)
    assert replies_df(ledger)["score_right"].sum() == 4


def _scores(frame: pd.DataFrame) -> list[str]:
    return [name for name in map(str, frame) if name.startswith("score_")]


def test_none_removes_a_score(ledger: Ledger, replies: pd.DataFrame) -> None:
    """A score goes with its errors, a dict's scores together; others remain."""
    rules: dict[str, Any] = {"right": len, "by": lambda r: {"a": 1, "b": r.text}}
    rules["right"] = lambda r: 1 / len(r.text)
    score_replies(ledger, replies, rules)

    score_replies(ledger, replies, {"right": None})

    assert _scores(replies_df(ledger)) == ["score_by_a", "score_by_b"]
    score_replies(ledger, replies, {"by": None})
    assert _scores(replies_df(ledger)) == _scores(replies) == []


def test_an_unknown_score_cannot_be_removed(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """The message names the scores there are."""
    score_replies(ledger, replies, {"right": lambda _: 1})

    with pytest.raises(ParameterError, match=r"Did you mean right\? The scores are"):
        score_replies(ledger, replies, {"rigth": None})


def test_a_rule_is_a_function(ledger: Ledger, replies: pd.DataFrame) -> None:
    """A value that cannot be called is refused."""
    rule: Any = 1

    with pytest.raises(ParameterError, match="right must be a function of a row"):
        score_replies(ledger, replies, {"right": rule})


def test_replies_of_another_ledger_are_scored_in_the_frame(
    tmp_path: Path, replies: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colleague's frame gets the columns; a line says that they are not kept."""
    other = Ledger(tmp_path / "other.sqlite")

    n_kept = score_replies(other, replies, {"right": lambda r: r.text == "spam"})

    assert n_kept == 0
    assert replies["score_right"].tolist() == [1, 0, 0, 0, pd.NA]
    assert "not in the current ledger" in capsys.readouterr().err


@dataclass
class Count:
    """A count."""

    n: int


SCHEMA = {"type": "object", "properties": {"n": {"type": "string"}}}
FENCED = '```json\n{"n": 1}\n```'


@pytest.mark.parametrize(
    ("rule", "row", "expected"),
    [
        (scores.exact("label"), {"text": " spam\n"}, True),
        (scores.exact("label"), {"text": "Spam"}, False),
        (scores.exact("label"), {"answer": "spam", "answer_ok": True}, True),
        (scores.exact("label"), {"answer": None, "answer_ok": False}, False),
        (scores.exact("price"), {"answer": 2.0, "answer_ok": True, "price": 2}, True),
        (scores.exact("price"), {"answer": 2.0, "answer_ok": True}, None),
        (scores.contains("label"), {"text": "It is SPAM."}, True),
        (scores.contains(text="sorry"), {"text": "Sorry, no."}, True),
        (scores.contains(text="sorry"), {"text": None}, False),
        (scores.contains("price"), {"text": "2"}, None),
        (scores.regex(r"^\w+$"), {"text": "one"}, True),
        (scores.regex(r"^\w+$"), {"text": "one two"}, False),
        (scores.json_valid(), {"text": FENCED}, True),
        (scores.json_valid(), {"text": "[NaN]"}, False),
        (scores.json_valid(), {"text": "so: {}"}, False),
        (scores.json_valid(), {"text": None}, False),
        (scores.json_schema(Count), {"text": FENCED}, True),
        (scores.json_schema(Count), {"text": '{"n": "a"}'}, False),
        (scores.json_schema(SCHEMA), {"text": FENCED}, False),
        (scores.json_schema(SCHEMA), {"text": '{"n": "a"}'}, True),
        (scores.length(), {"text": "ab c"}, 4),
        (scores.length("words"), {"text": "ab c"}, 2),
    ],
    ids=range(22),
)
def test_ready_made_scores(
    rule: Callable[[Any], Any], row: dict[str, Any], expected: object
) -> None:
    """They compare with a column or a text, check JSON, or count."""
    columns = {"text": "", "answer": None, "answer_ok": None, "label": "spam"}

    assert rule({**columns, "price": None, **row}) == expected


def test_the_tab_key_offers_the_ready_made_scores() -> None:
    """`svc.scores.<Tab>` lists functions that explain themselves, and nothing else."""
    assert dir(scores) == [
        "contains",
        "exact",
        "json_schema",
        "json_valid",
        "length",
        "regex",
    ]
    assert all(getattr(scores, name).__doc__ for name in dir(scores))


@pytest.mark.slow
def test_attacks_in_scores_stay_text(ledger: Ledger, replies: pd.DataFrame) -> None:
    """HTML in labels, names and errors is escaped in the frame's HTML."""
    attack = "<img src=x onerror=alert(1)>"

    def fail(row: Any) -> str:  # noqa: ANN401 - a row
        if row.text == "spam":
            raise ValueError(attack)
        return attack

    score_replies(ledger, replies, {"right": fail, "by": lambda _: {attack: attack}})

    with pd.option_context("display.max_colwidth", None):
        html = replies_df(ledger).to_html()
    assert "&lt;img" in html
    assert "<img" not in html

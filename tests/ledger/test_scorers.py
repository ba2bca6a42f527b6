"""Scores of replies by functions of a row, kept in the ledger, and ready-made ones."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from IPython.lib.pretty import pretty

from svc_notebook.analysis import scorers
from svc_notebook.analysis.read_answers import answer_type
from svc_notebook.analysis.scoring import score_replies
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.ledger.scores import keep_scores
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


def test_a_column_with_sara_am_is_an_attribute(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """Python keeps ำ as two letters in attributes; a column has it as it is typed."""
    replies = replies.assign(คำตอบ="spam").rename(columns={"ค\u0e4d\u0e32ตอบ": "คำตอบ"})

    score_replies(ledger, replies, {"right": lambda r: r.text == r.คำตอบ})

    assert replies["score_right"].tolist() == [1, 0, 0, 0, pd.NA]


def test_a_cell_says_what_was_scored(ledger: Ledger, replies: pd.DataFrame) -> None:
    """It shows rate or mean, of how many replies, and the column; it is a number."""
    saved = score_replies(
        ledger,
        replies,
        {
            "right": lambda r: r.text == r.label,
            "length": lambda r: len(r.text) or None,
            "tone": lambda _: "warm",
        },
    )

    shown: str = pretty(saved)  # type: ignore[no-untyped-call]  # IPython's
    assert shown.splitlines() == [
        "right: 1 of 4 replies (25 %); the column score_right of replies_df()",
        "length: mean 5, 3 of 4 replies; the column score_length of replies_df()",
        "tone: 4 of 4 replies; the column score_tone of replies_df()",
    ]
    assert (saved + 1, f"{saved}", repr(saved)) == (12, "11", "11")


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

    assert "right failed for all 4 replies" in str(caught.value)
    assert str(caught.value).count("No score was saved.") == 1
    assert ".." not in str(caught.value)
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


def test_replies_of_another_ledger_are_scored_in_the_frame(
    tmp_path: Path, replies: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colleague's frame gets the columns; a line says that they are not kept."""
    other = Ledger(tmp_path / "other.sqlite")

    n_kept = score_replies(other, replies, {"right": lambda r: r.text == "spam"})

    assert n_kept == 0
    assert replies["score_right"].tolist() == [1, 0, 0, 0, pd.NA]
    assert "not in the current ledger" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [True, "no", "no", True],
            "is text in 2 of 4 replies, such as 'no', and a number",
        ),
        ([1.5, None, "no", pd.NA], "is text in 1 of 2 replies"),
        (
            [np.float32(1.5), np.str_("no"), float("nan"), 1],
            "is text in 1 of 3 replies",
        ),
    ],
    ids=["flag and text", "number and text", "of numpy"],
)
def test_a_score_of_two_types_is_refused(
    ledger: Ledger, replies: pd.DataFrame, values: list[Any], said: str
) -> None:
    """The message names both; nothing is written, and the ledger can be read."""
    score_replies(ledger, replies, {"z": lambda _: 1})
    before = replies.copy()

    with pytest.raises(ParameterError) as caught:
        score_replies(ledger, replies, {"z": lambda r: values[r["odd name"]]})

    assert said in str(caught.value)
    pd.testing.assert_frame_equal(replies, before)
    pd.testing.assert_frame_equal(replies_df(ledger), before)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, 2, None, 0], "Int64"),
        ([True, 0.5, pd.NA, 1], "Float64"),
        ([np.int8(1), np.float32(0.5), np.float32("nan"), np.bool_(True)], "Float64"),  # noqa: FBT003 - a value
        ([np.float32("nan"), 2, 3, 4], "Int64"),
    ],
    ids=["flags and integers", "flags and floats", "of numpy", "nothing"],
)
def test_numbers_and_flags_may_be_mixed(
    ledger: Ledger, replies: pd.DataFrame, values: list[Any], dtype: str
) -> None:
    """True is 1; integers become floats where there are floats; NaN is no score."""
    rule = {"z": lambda r: values[r["odd name"]]}

    n_kept = score_replies(ledger, replies, rule)

    assert n_kept == replies["score_z"].notna().sum()
    assert str(replies["score_z"].dtype) == dtype
    pd.testing.assert_frame_equal(replies_df(ledger), replies)


def test_a_run_has_one_type_of_a_score(ledger: Ledger, make: MakeExchange) -> None:
    """Part of a run is not scored as text where the rest has numbers; all of it is."""
    for at in range(4):
        ledger.add(make(at, origin=Origin(run="one" if at < 3 else "other")))
    frame = replies_df(ledger)
    score_replies(ledger, frame, {"z": lambda _: 1})
    part = frame.iloc[:1].drop(columns="score_z")

    with pytest.raises(ParameterError, match="is text, but a number in 2 other repli"):
        score_replies(ledger, part, {"z": lambda _: "no"})
    with pytest.raises(ParameterError, match="is text, but a number in 2 other repli"):
        keep_scores(ledger, part.assign(score_z="no"))

    assert replies_df(ledger)["score_z"].tolist() == [1, 1, 1, 1]
    score_replies(ledger, frame.iloc[:3].copy(), {"z": lambda _: "no"})
    found = replies_df(ledger)["score_z"]
    assert (found.tolist(), str(found.dtype)) == (["no", "no", "no", "1"], "string")


@dataclass
class Count:
    """A count."""

    n: int


SCHEMA = {"type": "object", "properties": {"n": {"type": "string"}}}
GOLD = {"answer_ok": True, "answer_city": "Rome", "answer_n": 2, "gold_n": 2}
FENCED = '```json\n{"n": 1}\n```'


@pytest.mark.parametrize(
    ("rule", "row", "expected"),
    [
        (scorers.exact("label"), {"text": " spam\n"}, True),
        (scorers.exact("label"), {"text": "Spam"}, False),
        (scorers.exact("label"), {"answer": "spam", "answer_ok": True}, True),
        (scorers.exact("label"), {"answer": None, "answer_ok": False}, False),
        (scorers.exact("price"), {"answer": 2.0, "answer_ok": True, "price": 2}, True),
        (scorers.exact("price"), {"answer": 2.0, "answer_ok": True}, None),
        (
            scorers.exact("price"),
            {"answer": 7, "answer_ok": True, "price": "7.0"},
            True,
        ),
        (
            scorers.exact("price"),
            {"answer": None, "answer_ok": True, "price": 2},
            False,
        ),
        (scorers.contains("label"), {"text": "It is SPAM."}, True),
        (scorers.contains(text="sorry"), {"text": "Sorry, no."}, True),
        (scorers.contains(text="sorry"), {"text": None}, False),
        (scorers.contains("price"), {"text": "2"}, None),
        (scorers.regex(r"^\w+$"), {"text": "one"}, True),
        (scorers.regex(r"^\w+$"), {"text": "one two"}, False),
        (scorers.json_valid(), {"text": FENCED}, True),
        (scorers.json_valid(), {"text": "[NaN]"}, False),
        (scorers.json_valid(), {"text": "so: {}"}, False),
        (scorers.json_valid(), {"text": None}, False),
        (scorers.json_schema(Count), {"text": FENCED}, True),
        (scorers.json_schema(Count), {"text": '{"n": "a"}'}, False),
        (scorers.json_schema(SCHEMA), {"text": FENCED}, False),
        (scorers.json_schema(SCHEMA), {"text": '{"n": "a"}'}, True),
        (scorers.length(), {"text": "ab c"}, 4),
        (scorers.length("words"), {"text": "ab c"}, 2),
    ],
    ids=range(24),
)
def test_ready_made_scores(
    rule: Callable[[Any], Any], row: dict[str, Any], expected: object
) -> None:
    """They compare with a column or a text, check JSON, or count."""
    columns = {"text": "", "answer": None, "answer_ok": None, "label": "spam"}

    assert rule({**columns, "price": None, **row}) == expected


ALL_RIGHT = {"city": True, "n": True, "all": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gold_city": "Rome "}, ALL_RIGHT),
        ({"gold_city": "Bonn"}, {"city": False, "n": True, "all": False}),
        ({"gold_city": None}, {"city": False, "n": True, "all": False}),
        ({"gold_city": None, "answer_city": None}, ALL_RIGHT),
        (
            {"gold_city": None, "answer_city": None, "answer_ok": False},
            {"city": False, "n": False, "all": False},
        ),
        ({"gold_city": "Rome", "gold_n": "2"}, ALL_RIGHT),
        ({"gold_city": ["a", "b"], "answer_city": '["a","b"]'}, ALL_RIGHT),
        (
            {"gold_city": pd.Timestamp("2026-01-31"), "answer_city": "2026-01-31"},
            ALL_RIGHT,
        ),
        (
            {"gold_city": "2026-01-31", "answer_city": pd.Timestamp("2026-01-31")},
            ALL_RIGHT,
        ),
        (
            {
                "gold_city": "2026-01-31T12:00+07:00",
                "answer_city": pd.Timestamp("2026-01-31T05:00Z"),
                "gold_n": Decimal("2.0"),
            },
            ALL_RIGHT,
        ),
        (
            {"gold_city": "soon", "answer_city": pd.Timestamp("2026-01-31")},
            {"city": False, "n": True, "all": False},
        ),
        ({"gold_city": None, "gold_n": None}, None),
    ],
    ids=range(12),
)
def test_fields_are_scored_one_by_one(
    changes: dict[str, Any], expected: object
) -> None:
    """A missing field is right where there is none; without an answer all are wrong."""
    row = {**GOLD, "answer_ok": True, "answer_error": None, **changes}

    assert scorers.fields("gold_{}")(row) == expected


def test_fields_need_columns_of_these_names(
    ledger: Ledger, replies: pd.DataFrame
) -> None:
    """A column without a field is a mistake, which the message helps to find."""
    frame = replies.assign(answer_city="Rome", gold_citty="Rome")

    with pytest.raises(ParameterError, match=r"a field 'citty'.*Did you mean city\?"):
        score_replies(ledger, frame, {"field": scorers.fields("gold_{}")})
    with pytest.raises(ParameterError, match="a name like right_FIELD"):
        score_replies(ledger, frame, {"field": scorers.fields("right_{}")})
    with pytest.raises(ParameterError, match=r"text with one \{\}"):
        scorers.fields("gold")


def _answered(replies: pd.DataFrame, **columns: object) -> pd.DataFrame:
    """Return the frame with answers: two are given, and two replies have none."""
    answers = {
        "answer": pd.array(["spam", "ham", None, None, None], dtype="string"),
        "answer_ok": pd.array([True, True, False, False, None], dtype="boolean"),
        "label": pd.array(["spam", "spam", None, "ham", None], dtype="string"),
    }
    values: dict[str, Any] = {**answers, **columns}
    return replies.assign(**values)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            lambda r: r.answer == r.label,
            (
                "right is True for 1 reply where answer and label are missing: None == "
                "None. A missing answer should not count as right; use "
                "svc.scores.exact('label')."
            ),
        ),
        (lambda r: r["answer"] != "eggs", "True for 2 replies where answer is missing"),
        (lambda r: r.answer == r.label and r.answer_ok, ""),
        (lambda r: r.answer is not None and r.answer == r.label, ""),
        (lambda r: not r.answer_ok and r.answer is None, ""),
        (lambda r: len(r.text) < 9, ""),
        (scorers.exact("label"), ""),
    ],
    ids=[
        "both missing",
        "no answer",
        "looks if ok",
        "none",
        "no answers",
        "text",
        "exact",
    ],
)
def test_no_answer_that_counts_as_right_is_said(
    ledger: Ledger,
    replies: pd.DataFrame,
    capsys: pytest.CaptureFixture[str],
    rule: Callable[[Any], Any],
    said: str,
) -> None:
    """It is said once, with a score that counts them as wrong."""
    score_replies(ledger, _answered(replies), {"right": rule})

    err = capsys.readouterr().err
    assert (said in err) if said else (err == "")
    assert err.count("right is True") == bool(said)


def test_how_many_replies_raised_is_said(
    ledger: Ledger, replies: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the first error; without a score nothing else is counted."""
    score_replies(ledger, replies, {"n": lambda r: r.text.index("a")})

    assert capsys.readouterr().err == (
        "n raised ValueError for 2 of 4 replies: substring not found. They have no "
        "score; see the column score_n_error. Use on_error=0 to count them as 0, or "
        "on_error='raise' to stop at the first error.\n"
    )
    assert replies["score_n"].tolist() == [2, 1, pd.NA, pd.NA, pd.NA]


def test_a_reply_that_raised_may_count_0(
    ledger: Ledger, replies: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also under each key of a dict; why is in its column all the same."""
    rules = {"n": lambda r: r.text.index("a"), "d": lambda r: {"a": 1 / len(r.text)}}

    score_replies(ledger, replies, rules, on_error=0)

    assert replies["score_n"].tolist() == [2, 1, 0, 0, pd.NA]
    assert replies["score_d_a"].tolist() == [0.25, 1 / 3, 0.125, 0, pd.NA]
    assert replies["score_n_error"].notna().sum() == 2
    assert "They count as 0" in capsys.readouterr().err


def test_an_error_may_stop_the_scoring(ledger: Ledger, replies: pd.DataFrame) -> None:
    """Nothing is saved, and the message names the row."""
    rules = {"one": lambda _: 1, "n": lambda r: r.text.index("a")}

    with pytest.raises(
        ParameterError, match="n raised ValueError for row 2 of the rep"
    ):
        score_replies(ledger, replies, rules, on_error="raise")

    assert _scores(replies_df(ledger)) == []


@pytest.mark.parametrize("on_error", [1, "0", None, False])
def test_what_an_error_counts_is_checked(
    ledger: Ledger,
    replies: pd.DataFrame,
    on_error: Any,  # noqa: ANN401 - anything
) -> None:
    """The message lists what is allowed."""
    with pytest.raises(
        ParameterError, match="on_error must be 'missing', 'raise' or 0"
    ):
        score_replies(ledger, replies, {"n": len}, on_error=on_error)


Mail = Literal["spam", "ham"]
INT = pd.array([1, 2, None, None, None], dtype="Int64")
JSON = pd.array(['{"n":1}', '{"n":2}', None, None, None], dtype="string")


def _labels(*values: object) -> dict[str, Any]:
    return {"label": pd.Series([*values, None], dtype=object)}


@pytest.mark.parametrize(
    ("type_", "columns", "said"),
    [
        (
            Mail,
            _labels("SPAM ", "SPAM ", None, "HAM"),
            (
                "right: 3 of 3 replies have a label that can never be the answer, such "
                "as 'SPAM ': the answers are 'spam', 'ham' (did you mean 'spam'?). No"
            ),
        ),
        (bool, _labels("yes", "no", "yes", None), "the answers are True, False"),
        (int, {"answer": INT, **_labels("one", "two", None, None)}, "are numbers"),
        (None, {"answer": INT, **_labels("one", "two", None, None)}, "are numbers"),
        (None, _labels("Spam", "HAM", None, None), "the replies say 'spam'"),
        (
            Count,
            {"answer": JSON, **_labels("a", 1, 2.5, None)},
            "has fields; svc.scores.f",
        ),
        (
            None,
            {"answer": JSON, **_labels("a", 1, 2.5, None)},
            "has fields; svc.scores.f",
        ),
    ],
    ids=["labels", "bool", "int", "numbers", "case", "fields", "json"],
)
def test_values_that_no_answer_can_be_are_refused(
    ledger: Ledger,
    replies: pd.DataFrame,
    type_: object,
    columns: dict[str, Any],
    said: str,
) -> None:
    """The message says what the answers are, instead of 0 % right."""
    answer = None if type_ is None else answer_type(type_)

    with pytest.raises(ParameterError) as caught:
        score_replies(
            ledger,
            _answered(replies, **columns),
            {"right": scorers.exact("label")},
            answer=answer,
        )

    assert said in str(caught.value)
    assert _scores(replies_df(ledger)) == []


def test_some_values_that_no_answer_can_be_are_said(
    ledger: Ledger, replies: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """They count as wrong."""
    frame = _answered(replies, **_labels("spam", "SPAM", None, "ham"))

    score_replies(ledger, frame, {"right": scorers.exact()}, answer=answer_type(Mail))

    assert frame["score_right"].tolist() == [1, 0, pd.NA, 0, pd.NA]
    assert "right: 1 of 3 replies have a label that can" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("score", "call"),
    [
        (scorers.exact("kind"), "exact(column='kind')"),
        (scorers.contains(text="sorry"), "contains(text='sorry')"),
        (scorers.json_valid(), "json_valid()"),
        (scorers.json_schema(SCHEMA), None),
        (scorers.regex(re.compile("A", re.IGNORECASE)), None),
        (scorers.fields("right_{}"), "fields(columns='right_{}')"),
        (scorers.length("words"), "length(unit='words')"),
    ],
    ids=lambda score: getattr(score, "name", ""),
)
def test_a_ready_made_score_can_be_kept(
    score: scorers.ReadyScore, call: str | None
) -> None:
    """Its name and arguments are enough to make it again; it shows them."""
    assert score.kept is not None
    again = scorers.kept_score(score.kept)

    assert (again.name, again.arguments) == (score.name, score.arguments)
    assert call is None or repr(again) == f"svc.scores.{call}"


def test_a_type_in_a_score_cannot_be_kept() -> None:
    """Of `json_schema` a mapping can, and a class cannot."""
    assert scorers.json_schema(Count).kept is None


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

"""Scores of replies by functions of a row, kept in the ledger, and ready-made ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from svc_notebook.analysis import scorers
from svc_notebook.analysis.scorers import score_replies
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.ledger.scores import keep_scores
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
    ids=range(22),
)
def test_ready_made_scores(
    rule: Callable[[Any], Any], row: dict[str, Any], expected: object
) -> None:
    """They compare with a column or a text, check JSON, or count."""
    columns = {"text": "", "answer": None, "answer_ok": None, "label": "spam"}

    assert rule({**columns, "price": None, **row}) == expected


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

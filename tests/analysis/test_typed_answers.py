"""Answers read from replies: labels, yes and no, numbers, fields, rules of users."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional, TypedDict

import pandas as pd
import pydantic
import pytest

from svc_notebook.analysis.read_answers import (
    answer_type,
    kept_type,
    read_answers,
    with_answers,
)
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.column_meanings import describe
from svc_notebook.ledger.frame_export import export

Mail = Literal["spam", "ham"]


def _read(given: Any, *texts: str | None, **columns: Any) -> pd.DataFrame:  # noqa: ANN401 - any type
    frame = pd.DataFrame({"text": pd.array(texts, dtype="string"), **columns})
    return read_answers(frame, given)


def _one(given: Any, text: str) -> Any:  # noqa: ANN401 - any type and answer
    """Return the answer of one reply; None if it has none."""
    row = _read(given, text).iloc[0]
    return row["answer"] if row["answer_ok"] else None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is **Spam**.", "spam"),
        ("HAM", "ham"),
        ("`ham`", "ham"),
        ("_Spam_", "spam"),
        ("s**pa**m", "spam"),
        ('{"label": "spam"}', "spam"),
        ("Spam. Yes, spam!", "spam"),
        ("คำตอบคือspamครับ", "spam"),
        ("\uff53pam", "spam"),
        ("spammer", None),
        ("non-spam", None),
        ("spam_filter", None),
        ("Spam or ham?", None),
        ("It is not ham, it is spam.", None),
        ("It is not spam.", None),  # see test_negation.py
        ("", None),
    ],
)
def test_a_label_is_a_whole_word(text: str, answer: str | None) -> None:
    """Case and Markdown make no difference; two labels in one reply are no answer."""
    assert _one(Mail, text) == answer


@pytest.mark.parametrize(
    ("labels", "text", "answer"),
    [
        (Literal["ดี", "แย่"], "คำตอบ: แย่ค่ะ", "แย่"),
        (Literal["ดี", "แย่"], "ดีมาก", "ดี"),
        (Literal["ดี", "แย่"], "ดี้", None),
        (Literal["น้ำ", "น"], "น้ำ", "น้ำ"),
        (Literal["ดี", "ไม่ดี"], "ไม่ดี", "ไม่ดี"),
        (Literal["not spam", "spam"], "**Not** spam.", "not spam"),
        (Literal["C++", "C"], "C++", "C++"),
        (Literal[1, 2, 3], "Grade: 2", 2),
        (Literal["a", 1], "1", "1"),
    ],
)
def test_labels_of_other_scripts_and_kinds(
    labels: object, text: str, answer: object
) -> None:
    """Thai has no breaks between words; the longest label counts; numbers are typed."""
    assert _one(labels, text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes.", True),
        ("**No**, it is late.", False),
        ("ใช่ครับ", True),
        ("ไม่ใช่ค่ะ", False),
        ("That is not true.", False),
        ("yes and no", None),
        ("noon", None),
    ],
)
def test_bool_is_yes_or_no(text: str, answer: bool | None) -> None:
    """Yes and no, true and false, in English and Thai; both together are neither."""
    assert _one(bool, text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The total is **1,234.50** baht", 1234.5),
        ("\N{MINUS SIGN}0.5", -0.5),
        (".5", 0.5),
        ("๑๒ บาท", 12.0),
        ("7, I repeat: 7.0", 7.0),
        ("12%", 12.0),
        ("GPT-4 says 3", 3.0),
        ("svc-v2-8b", None),
        ("3-5", None),
        ("4/5", None),
        ("3,5", None),
        ("1.2.3", None),
        ("10²", None),
        ("1e999", None),
        ("none", None),
    ],
)
def test_a_number_is_the_only_one_in_the_reply(text: str, answer: float | None) -> None:
    """A comma is between thousands; digits in words, ranges and dates are no number."""
    assert _one(float, text) == answer


def test_int_is_a_whole_number() -> None:
    """What has decimals, or does not fit in 64 bits, is no answer; 3.0 is 3."""
    found = _read(int, "3.0", "3.5", "99999999999999999999")

    assert found["answer"].tolist() == [3, pd.NA, pd.NA]
    assert found["answer_error"].tolist()[1:] == [
        "3.5 is not a whole number.",
        "The number is too large for Int64.",
    ]


def test_a_reply_without_an_answer_says_why() -> None:
    """The reason names the labels, or the words that negate one."""
    found = _read(Mail, "spam", "spam, not ham", "eggs", "It isn't **spam**!")

    assert found["answer_error"].tolist() == [
        pd.NA,
        "The reply has several labels: spam, ham.",
        "None of the labels is in the reply: spam, ham.",
        'The reply negates a label: "isn\'t spam".',
    ]


def test_a_text_is_all_of_the_reply() -> None:
    """Blanks around it are left out, and an empty reply has no answer."""
    frame = _read(str, " a b\n", " ")

    assert frame["answer"].tolist() == ["a b", pd.NA]
    assert frame["answer_error"][1] == "The reply is empty."


def test_a_regex_gives_its_first_group() -> None:
    """Without a group it gives the match; without a match there is no answer."""
    assert _one(re.compile(r"Label: (\w+)"), "Label: spam") == "spam"
    assert _one(re.compile(r"\w+!"), "Oh spam!") == "spam!"
    assert _one(re.compile("x"), "spam") is None


def test_a_function_reads_the_text() -> None:
    """What it returns is the answer; None and exceptions are none, and say why."""

    def share(text: str) -> float | None:
        return None if text == "-" else 1 / len(text)

    found = _read(share, "ab", "", "-")

    assert found["answer"].tolist() == [0.5, pd.NA, pd.NA]
    assert found["answer_error"].tolist()[1:] == [
        "ZeroDivisionError: division by zero",
        "share returned None.",
    ]


def test_a_function_may_return_fields() -> None:
    """A dict has a column for each key, and one that is taken gets `var_` in front."""
    found = _read(lambda text: {"n": len(text), "ok": text == "a"}, "a", "bc")

    assert found["answer_n"].tolist() == [1, 2]
    assert found["answer_var_ok"].tolist() == [True, False]
    assert found["answer"][0] == '{"n":1,"ok":true}'


@dataclass
class Ticket:
    """A ticket."""

    city: str
    price: float
    tags: list[str] | None = None
    seats: int | None = None


class TicketDict(TypedDict):
    """A ticket."""

    city: str
    price: float


class TicketModel(pydantic.BaseModel):
    """A ticket."""

    city: str
    price: float


Maybe = Literal["spam", None]  # noqa: PYI061 - as a user may write it


class Kind(Enum):
    """What a mail is."""

    SPAM = "spam"
    NOT_SPAM = "ham"


class Grade(Enum):
    """A grade."""

    LOW = 1
    VERY_HIGH = 2


@pytest.mark.parametrize(
    ("type_", "text", "answer"),
    [
        (Kind, "Spam.", "spam"),
        (Kind, "NOT_SPAM", "ham"),
        (Kind, "It is ham, not spam", "ham"),
        (Kind, "It is spam, not ham", None),
        (Grade, "Very high", 2),
        (Grade, "1", 1),
        (Grade, "1 or very high", None),
    ],
)
def test_an_enum_is_read_as_its_value(type_: type, text: str, answer: object) -> None:
    """Its values and its names are labels; the answer is the value, as in fields."""
    assert _one(type_, text) == answer


@pytest.mark.parametrize(
    ("type_", "text", "answer", "is_ok"),
    [
        (Optional[Mail], "**None**.", pd.NA, True),  # noqa: UP045 - this form, too
        (Literal["spam", "ham"] | None, "Spam", "spam", True),
        (Maybe, '{"label": null}', pd.NA, True),
        (Maybe, "spam or none", pd.NA, False),
        (Maybe, "Nobody knows", pd.NA, False),
        (bool | None, "No.", False, True),
        (bool | None, "ไม่มีครับ", pd.NA, True),
        (int | None, "N/A", pd.NA, True),
        (int | None, "7", 7, True),
        (str | None, "none", pd.NA, True),
        (str | None, "I want none", "I want none", True),
        (Kind | None, "null", pd.NA, True),
        (TicketModel | None, "none", pd.NA, True),
        (Ticket | None, '{"city": "Rome", "price": 2, "seats": null}', "Rome", True),
    ],
    ids=range(14),
)
def test_a_type_or_none_may_be_none(
    type_: Any,  # noqa: ANN401 - any type
    text: str,
    answer: object,
    is_ok: bool,
) -> None:
    """A reply that says none has an answer, which is missing."""
    row = _read(type_, text).iloc[0]

    assert row["answer_ok"] == is_ok
    shown = row.get("answer_city", row["answer"])
    assert shown is answer or shown == answer


def _calls(name: str, arguments: object) -> str:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return json.dumps([{"id": "c", "type": "function", "function": function}])


@pytest.mark.parametrize("type_", [Ticket, TicketDict, TicketModel])
def test_fields_come_from_the_call(type_: type) -> None:
    """The answer of a type with fields is the call's, or JSON in the text."""
    calls = _calls(type_.__name__, {"city": "Rome", "price": 2})
    bad = _calls(type_.__name__, {"city": "Rome", "price": "much"})
    text = 'Here: {"city": "Bonn", "price": 1.5}'

    found = _read(
        type_, None, text, "Sorry.", None, tool_calls=[calls, None, None, bad]
    )

    assert found["answer_city"].tolist() == ["Rome", "Bonn", pd.NA, pd.NA]
    assert found["answer_price"].tolist() == [2.0, 1.5, pd.NA, pd.NA]
    assert found["answer_ok"].tolist() == [True, True, False, False]
    assert f"neither calls {type_.__name__} nor has JSON" in found["answer_error"][2]
    assert "price" in found["answer_error"][3]


def test_fields_have_their_dtypes_without_rows() -> None:
    """Columns are stated by the type: the same with no rows as with many."""
    columns = {
        "answer": "string",
        "answer_city": "string",
        "answer_price": "Float64",
        "answer_tags": "string",
        "answer_seats": "Int64",
        "answer_ok": "boolean",
        "answer_error": "string",
    }
    rows = _read(Ticket, '{"city": "Rome", "price": 1, "tags": ["a"], "seats": 2}')

    for found in (_read(Ticket), rows):
        dtypes = {name: str(found[name].dtype) for name in found if name in columns}
        assert dtypes == columns
        assert [name for name in columns if name in found] == list(columns)
    assert rows["answer_tags"][0] == '["a"]'


@dataclass
class Receipt:
    """A receipt."""

    amount: Decimal
    day: date
    at: datetime | None = None
    tip: Decimal | None = None
    due: Optional[date] = None  # noqa: UP045 - as many people write it
    rate: int | float = 0
    kind: Literal["cash", "card"] = "cash"
    code: int | str = 0
    lines: list[Decimal] = field(default_factory=list)


_RECEIPTS = (
    """{"amount": "12.50", "day": "2024-03-01", "at": "2024-03-01T12:00:00+07:00",
    "tip": "0.1", "due": "9999-12-31", "rate": 1, "kind": "card", "lines": ["1.5"]}""",
    '{"amount": "9.00", "day": "0001-01-01", "at": "0001-01-01T00:00:00+07:00"}',
    '{"amount": "1", "day": "2024-02-29", "at": "2024-02-29T12:00:00"}',
    "Sorry.",
)


class ReceiptModel(pydantic.BaseModel):
    """A receipt."""

    amount: Decimal
    day: date
    at: datetime | None = None
    tip: Decimal | None = None
    due: Optional[date] = None  # noqa: UP045 - as many people write it
    rate: int | float = 0
    kind: Literal["cash", "card"] = "cash"
    code: int | str = 0
    lines: list[Decimal] = []


@pytest.mark.parametrize("type_", [Receipt, ReceiptModel])
def test_numbers_and_dates_of_fields_are_columns_to_calculate_with(
    type_: type,
) -> None:
    """A Decimal is a number, a date is a day; what no column can hold is missing."""
    found = _read(type_, *_RECEIPTS)

    dtypes = {
        "answer_amount": "Float64",
        "answer_day": "datetime64[us]",
        "answer_at": "datetime64[us, UTC]",
        "answer_tip": "Float64",
        "answer_due": "datetime64[us]",
        "answer_rate": "Float64",
        "answer_kind": "string",
        "answer_code": "string",
        "answer_lines": "string",
    }
    for frame in (found, _read(type_)):
        assert {name: str(frame[name].dtype) for name in dtypes} == dtypes
    assert found["answer_amount"].tolist() == [12.5, 9.0, 1.0, pd.NA]
    assert found["answer_amount"].sum() == 22.5
    assert found["answer_day"].dt.year.tolist()[:3] == [2024, 1, 2024]
    assert found["answer_due"][0] == pd.Timestamp(9999, 12, 31).as_unit("us")
    assert found["answer_at"][0] == pd.Timestamp("2024-03-01T05:00Z")
    assert found["answer_at"].isna().tolist() == [False, True, False, True]
    assert found["answer_at"][2] == pd.Timestamp("2024-02-29T12:00Z")
    assert '"at":"0001-01-01T00:00:00+07:00"' in found["answer"][1]
    assert '"amount":"12.50"' in found["answer"][0]
    assert found["answer_lines"][0] == '["1.5"]'


def test_columns_of_answers_survive_a_file(tmp_path: Path) -> None:
    """Parquet keeps their dtypes, and polars gets numbers and dates."""
    found = _read(Receipt, *_RECEIPTS)

    again = pd.read_parquet(export(found, tmp_path / "receipts.parquet"))

    pd.testing.assert_frame_equal(again, found)
    meanings = describe(found).set_index("name")
    assert "a Decimal is a Float64" in meanings["meaning"]["answer_amount"]
    assert meanings["dtype"]["answer_day"] == "datetime64[us]"


def test_a_list_is_json() -> None:
    """The answer of a list of items is JSON, without columns of fields."""
    found = _read(list[TicketDict], '[{"city": "Rome", "price": 1.0}]')

    assert found["answer"][0] == '[{"city":"Rome","price":1.0}]'
    assert "answer_city" not in found


def test_only_good_replies_have_answers() -> None:
    """Of a reply that failed or was interrupted, nothing is known."""
    found = _read(Mail, "spam", "spam", None, status=["ok", "cancelled", "error"])

    assert found["answer"].tolist() == ["spam", pd.NA, pd.NA]
    assert found["answer_ok"].tolist() == [True, pd.NA, pd.NA]


def test_reading_again_leaves_nothing_of_before() -> None:
    """Fields of another type are gone, and the frame that was given is not changed."""
    first = _read(lambda text: {"n": 1, "text": text}, "spam")

    again = read_answers(first, Mail)

    assert again["answer"].tolist() == ["spam"]
    assert list(again) == ["text", "answer", "answer_ok", "answer_error"]
    assert "answer_n" in first


@pytest.mark.parametrize(
    "given",
    [
        Mail,
        bool,
        int,
        float,
        str,
        Grade,
        Grade | None,
        Maybe,
        re.compile("a(b)", re.IGNORECASE),
    ],
    ids=str,
)
def test_plain_types_can_be_kept(given: object) -> None:
    """Labels, numbers, texts and regexes come back from what the ledger keeps."""
    how = answer_type(given)

    again = kept_type(how.kept)

    assert again is not None
    assert replace(again, read=None) == replace(how, read=None)
    assert again.read is not None


@pytest.mark.parametrize("given", [Ticket, len, lambda text: text])
def test_of_other_types_the_name_is_kept(given: object) -> None:
    """It reads nothing, and says that the type must be given again."""
    again = kept_type(answer_type(given).kept)
    frame = pd.DataFrame({"text": ["a"]})

    assert again is not None
    assert again.read is None
    assert "is not kept; call .read(" in again.in_words
    assert "answer" not in with_answers(frame, again)


@pytest.mark.parametrize(
    "given",
    [
        dict,
        "spam",
        ["spam", "ham"],
        re.compile(b"a"),
        Ticket("a", 1),
        5,
        int | str,
        int | str | None,
        Literal[None],  # noqa: PYI061 - as a user may write it
    ],
    ids=str,
)
def test_other_values_are_no_type_of_answers(given: object) -> None:
    """What is refused says what is allowed."""
    with pytest.raises(ParameterError, match=r"must be a Literal such as Literal\["):
        answer_type(given)


@pytest.mark.parametrize(
    "labels",
    [Literal["Spam", "spam"], Literal["a", "**"], Literal["a", True]],
    ids=str,
)
def test_labels_must_differ(labels: object) -> None:
    """Labels that a text cannot tell apart are refused."""
    with pytest.raises(ParameterError, match="cannot be told apart"):
        answer_type(labels)


@pytest.mark.parametrize("df", [None, "text", pd.DataFrame({"prompt": ["a"]})])
def test_only_frames_with_texts_are_read(df: Any) -> None:  # noqa: ANN401 - anything
    """What has no column text is refused."""
    with pytest.raises(ParameterError, match="a column 'text'"):
        read_answers(df, bool)


ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.mark.parametrize(
    "read",
    [Literal["<script>alert(1)</script>"], lambda text: {ATTACK: text}, len, Mail],
    ids=["label", "field", "function", "no label"],
)
def test_attacks_stay_text(read: Literal["a"] | Callable[[str], Any]) -> None:
    """HTML in replies, labels and names of fields is escaped in the frame's HTML."""
    html = _read(read, ATTACK).to_html()

    assert "<script" not in html
    assert "<img" not in html


def test_a_frame_with_two_texts_is_refused() -> None:
    """Which of two columns `text` is meant cannot be known."""
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])

    with pytest.raises(ParameterError, match="several columns called 'text'"):
        read_answers(frame, int)

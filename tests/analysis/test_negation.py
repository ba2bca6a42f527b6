"""A label that a reply negates is not its answer, in English and in Thai."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.analysis.read_answers import NoAnswer, answer_type

Mail = Literal["spam", "ham", "สแปม"]


def _one(type_: Any, text: str) -> Any:  # noqa: ANN401 - any type and answer
    """Return the answer of a reply; None if it has none."""
    read = answer_type(type_).read
    assert read is not None
    try:
        return read(text, ())
    except NoAnswer:
        return None


@pytest.mark.parametrize(
    "text",
    [
        "It isn't spam",
        "It is not spam.",
        "It isn\u2019t\nspam",
        "isnt spam",
        "**Not** \u201cspam\u201d",
        "not at all spam",
        "This is not, in my opinion, spam",
        "I don't think this is spam.",
        "I cannot call it spam",
        "I would not label it (spam)",
        "It's no spam",
        "never spam",
        "neither spam nor anything else",
        "This is anything but spam",
        "It is unlikely to be spam",
        "I doubt it's spam",
        "far from spam",
        "It does not look and feel like spam",
        "Spam? No.",
        "Spam? Definitely not",
        "Spam? I don't think so.",
        "Spam: no",
        '{"spam": false}',
        "spam is not right",
        "Spam isn't what this is",
        "Spam would be wrong here",
        "Spam it is not.",
        "I can't tell whether it is spam or not",
        "Spam. It isn't spam.",
        "ไม่ใช่สแปม",
        "ไม่ใช่ spam",
        "ไม่เป็นสแปม",
        "ไม่น่าจะเป็นสแปมครับ",
        "ไม่ได้เป็น **สแปม**",
        "ผมไม่คิดว่า ข้อความนี้ เป็นสแปม",
        "ไม่แน่ใจว่าเป็นสแปม",
        "มิใช่สแปม",
        "ข้อความนี้ไม่จัดเป็นสแปม",
        "สแปมไม่ใช่",
        "สแปม? ไม่ใช่ครับ",
        "เป็นสแปมหรือไม่",
        "อย่าตอบว่าสแปม",
    ],
)
def test_a_negated_label_is_no_answer(text: str) -> None:
    """Before the label or after it, in its clause, also as a question."""
    assert _one(Mail, text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Not only spam but phishing: spam",
        "No doubt it's spam",
        "Spam, without a doubt.",
        "No, it's spam.",
        "It's nothing but spam",
        "This is not a friendly mail, it's spam",
        "It is not a friendly mail but spam",
        "Not sure, but I'd say spam",
        "It has no greeting, so spam.",
        "No greeting and it is spam",
        "There is no greeting\n\nSpam",
        "- No greeting\n- spam",
        "Spam: no greeting, an odd link",
        "Spam, not a normal mail",
        "Spam. It is not from a friend.",
        "Label: spam (not sure why)",
        "เป็นสแปมอย่างไม่ต้องสงสัย",
        "ไม่ใช่แค่สแปม",
        "ไม่ใช่ข้อความปกติ เป็นสแปม",
        "ไม่มีคำทักทาย จึงเป็นสแปม",
        "สแปม เพราะไม่มีคำทักทาย",
        "สแปม ไม่ใช่อีเมลปกติ",
        "ไม่แน่ใจ แต่น่าจะเป็นสแปม",
        "ไม่ว่าอย่างไรก็เป็นสแปม",
        "นี่คือตัวอย่างสแปม",
    ],
)
def test_a_negation_of_something_else_does_not_matter(text: str) -> None:
    """Neither in another clause, nor as "not only" or "no doubt"."""
    assert _one(Mail, text) in {"spam", "สแปม"}


@pytest.mark.parametrize(
    "text",
    ["spam, not ham", "not ham but spam", "It isn't spam or ham", "ไม่ใช่ ham สแปม"],
)
def test_one_label_stated_and_another_negated_is_no_answer(text: str) -> None:
    """Both are labels of the reply, which is refused rather than read wrongly."""
    assert _one(Mail, text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I can't say yes", None),
        ("I cannot say no.", None),
        ("It isn't true", None),
        ("ไม่ได้ใช่", None),
        ("Absolutely not, no", False),
        ("No, that isn't right.", False),
        ("That is not true.", False),
        ("Yes, that is not a problem.", True),
        ("ไม่ใช่ค่ะ", False),
        ("ไม่จริง", False),
    ],
)
def test_yes_and_no_can_be_negated(text: str, answer: bool | None) -> None:
    """No is a label itself, and not a negation of the words after it."""
    assert _one(bool, text) is answer


@pytest.mark.parametrize(
    ("labels", "text", "answer"),
    [
        (Literal["spam", "not spam"], "It is not spam.", "not spam"),
        (Literal["spam", "not spam"], "It isn't not spam.", None),
        (Literal["ดี", "ไม่ดี"], "ไม่ดี", "ไม่ดี"),
        (Literal["likely", "unlikely"], "Very unlikely.", "unlikely"),
        (Literal["likely", "unlikely"], "Not likely.", None),
        (Literal[1, 2], "Grade no 2", 2),
    ],
)
def test_a_negation_may_be_part_of_a_label(
    labels: object, text: str, answer: object
) -> None:
    """Of labels that begin at one place the longest counts."""
    assert _one(labels, text) == answer


NEGATIONS = [
    "It is not",
    "This isn't",
    "I don't think that it is",
    "I can't say",
    "No way,\n no",
    "Never",
]
FILLERS = [
    "",
    "a ",
    "really ",
    "the label ",
    "at all an example of ",
    "what I would call ",
]
THAI_NEGATIONS = [
    "ไม่ใช่",
    "ข้อความนี้ไม่ใช่",
    "ไม่น่าจะเป็น",
    "ผมไม่คิดว่าเป็น",
    "มิใช่",
    "ไม่สามารถตอบว่า",
]
THAI_FILLERS = ["", " ", "ข้อความ", "ตัวอย่าง ", "อีเมลที่เป็น"]
MARKS = ["{}", "**{}**", '"{}"', "`{}`", "({})", "_{}_", "\u201c{}\u201d"]
ENDS = ["", ".", "!", ", I think.", " here", " because it has no link"]
THAI_ENDS = ["", "ครับ", "ค่ะ", " นะ", " เพราะไม่มีลิงก์"]


@st.composite
def negated(draw: st.DrawFn) -> str:
    """Return a reply that negates the label it has."""
    is_thai = draw(st.booleans())
    begin = draw(st.sampled_from(THAI_NEGATIONS if is_thai else NEGATIONS))
    filler = draw(st.sampled_from(THAI_FILLERS if is_thai else FILLERS))
    label = draw(st.sampled_from(["สแปม", "spam"] if is_thai else ["spam"]))
    end = draw(st.sampled_from(THAI_ENDS if is_thai else ENDS))
    text = f"{begin}{'' if is_thai else ' '}{filler}"
    text += draw(st.sampled_from(MARKS)).format(label) + end
    cases = [text, text.upper(), text.capitalize()]
    return draw(st.sampled_from(cases))


@pytest.mark.slow
@given(negated(), st.sampled_from(["", "Hello! ", "I read it twice. ", "สวัสดี "]))
def test_no_negated_label_is_read(text: str, before: str) -> None:
    """Whatever the words between, the marks around it and the case."""
    assert _one(Mail, before + text) is None


@given(
    st.sampled_from(["spam", "สแปม"]),
    st.sampled_from(MARKS).filter(lambda mark: "_" not in mark),  # not before Thai
    st.sampled_from(["", "Label: ", "The answer is ", "คำตอบคือ", "เป็น", "No, it's "]),
    st.sampled_from(["", ".", ", not a mail.", " because I do not know it", "ครับ"]),
)
def test_a_label_that_is_not_negated_is_read(
    label: str, mark: str, before: str, end: str
) -> None:
    """Negation after a comma, or of what is not a label, is of something else."""
    assert _one(Mail, f"{before}{mark.format(label)}{end}") == label


def test_a_long_reply_is_read_quickly() -> None:
    """A reply of 50 000 words is read in the time that its length asks for."""
    words = "I do not open a mail, nor ไม่ว่า does he, " * 5_000

    assert _one(Mail, f"{words}. Spam") == "spam"

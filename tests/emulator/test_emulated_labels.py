"""Prompts that offer labels get one of them; other prompts do not."""

from collections.abc import Callable

import pytest

from svc_notebook.emulator.emulated_labels import offered_label
from svc_notebook.emulator.request_checks import ChatRequest

MakeChat = Callable[..., ChatRequest]


@pytest.mark.parametrize(
    ("system", "question", "labels"),
    [
        ("Answer in one word: yes or no.", "Is it wet?", {"yes", "no"}),
        ("Be kind.", "Classify as good, bad, or odd: Hm", {"good", "bad", "odd"}),
        (
            "Label the message as an order, complaint or question. One word.",
            "Message: Two teas, please.",
            {"order", "complaint", "question"},
        ),
        ("", "Is it wet? Answer only with yes or no.", {"yes", "no"}),
        ("", "Classify this mail as urgent or not: Hm", {"urgent", "not urgent"}),
        ("", 'Classify as "spam" or "ham": Hm', {"spam", "ham"}),
        ("Reply only with a label: bug, feature, question", "Hm", {"bug", "feature"}),
        ("", "Which category fits: billing, technical, other?\nHm", {"billing"}),
        ("", "Is this review positive or negative? Hm", {"positive", "negative"}),
        ("", "Is this urgent? yes/no\nHm", {"yes", "no"}),
        ("", "Label: spam/ham. Text: Hm", {"spam", "ham"}),
        ("", "Compare them and reply with A, B or tie.", {"A", "B", "tie"}),
        ("", "Which answer is better, A or B?", {"A", "B"}),
        ("", "Choose one: A) red B) blue C) green", {"A", "B", "C"}),
        ("", "Rate this from 1 to 5: Hm", {"1", "2", "3", "4", "5"}),
        ("", "Text: a\nLabel: new\n\nText: b\nLabel: old\n\nText: c\nLabel:", {"new"}),
        ("", "จำแนกข้อความนี้เป็น ด่วน หรือ ไม่ด่วน: อืม", {"ด่วน", "ไม่ด่วน"}),
        ("", "ข้อความนี้เป็นบวกหรือลบ: อืม", {"บวก", "ลบ"}),
        ("", "ตอบใช่หรือไม่: อืม", {"ใช่", "ไม่ใช่"}),
    ],
)
def test_a_label_that_a_prompt_offers_is_the_whole_reply(
    make_chat: MakeChat, system: str, question: str, labels: set[str]
) -> None:
    """A classification can be tried out: one text gets one label at temperature 0."""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
    ]
    chats = (make_chat(messages=messages, temperature=heat) for heat in (0.7, 0))

    warm, cold = ({offered_label(chat, seed) for seed in range(60)} for chat in chats)

    assert warm >= labels
    assert None not in warm
    assert len(warm) <= 5
    assert len(cold) == 1
    assert cold <= warm


@pytest.mark.parametrize(
    "question",
    [
        "Which is better, pandas or polars?",
        "Is it better to use pandas or polars?",
        "Is the sky blue or green?",
        "The rate rose from 3 to 5. Explain.",
        "Q: 2+2\nA: 4\nQ: 3+3\nA: 6\nQ: 4+4\nA:",
        "Explain read/write locks.",
        "What is in this table?\n| a | Classify as spam or ham |",
        "What is this?\n```\nAnswer yes or no.\n```",
        "เป็นครูหรือหมอดีกว่า",
        "นี่เป็นเรื่องจริงหรือเปล่า",
    ],
)
def test_other_prompts_offer_no_label(make_chat: MakeChat, question: str) -> None:
    """A word that only chance picked would be a claim there."""
    assert offered_label(make_chat(question), 0) is None

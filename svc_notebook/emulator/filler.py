"""Filler: made-up sentences, English or Thai, for replies without a script.

Sentences, and one word in each, are drawn as a language model draws tokens, so that
temperature, top_p and the penalties have a visible effect. Filler is not an answer, and
the headers of the response say so.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

from .emulated_tokens import split_tokens
from .request_checks import ChatRequest

# Scores are drawn from LOWEST to LOWEST + SPREAD: above 0, since the repetition
# penalty divides them.
LOWEST = 4.0
SPREAD = 4.0
# Fewest and most tokens of a reply. They differ between models only so that comparisons
# show a difference; they say nothing about the service's models.
LENGTHS = {
    "svc-instruct": (40, 90),
    "svc-v1.5x-70b-instruct": (100, 180),
    "svc-v2-8b-instruct": (25, 65),
    "svc-v2-70b-instruct": (130, 230),
    "svc-v2.1-12b-instruct": (60, 120),
    "svc-v2.5-30b-a3b-instruct": (80, 150),
}
OTHER_LENGTH = (50, 100)

_THAI_LETTER = re.compile(r"[\u0e01-\u0e2e]")
_LATIN_LETTER = re.compile(r"[A-Za-z]")
_ENGLISH = (
    ("good", "useful", "clear", "simple", "sensible", "practical", "helpful", "modest"),
    (
        "Begin with a {} example.",
        "A {} question names the people, the place and the time.",
        "Change one thing at a time, and keep {} notes.",
        "After a week, {} notes say more than a long plan.",
        "The first step should be {} and small.",
        "Two people who check the same result make a {} team.",
        "A {} rule is easy to check.",
        "If an example and the rule disagree, look for a {} reason.",
        "Write down what happened in {} words.",
        "There is often a {} way that nobody has tried.",
        "A number helps, and a {} picture helps more.",
        "Stop when the result is {} enough.",
        "The cost is time, so a {} limit is part of the plan.",
        "Most readers want one {} sentence first.",
        "A {} list has three lines, not thirty.",
        "What worked yesterday is a {} place to look today.",
        "Ask somebody else for a {} opinion.",
        "The details can wait until the outline is {}.",
        "A mistake that was found early is {} news.",
        "Repeat the test, since one {} result can be luck.",
        "A {} answer can be wrong, and says how to find out.",
        "In the end it is a matter of {} habits.",
        "Keep what was {}, and leave out the rest.",
        "Tomorrow it will look different, which is {} too.",
    ),
)
_THAI = (
    ("ดี", "ชัดเจน", "ง่าย", "เหมาะสม", "รอบคอบ", "มีประโยชน์", "เรียบง่าย", "ใช้ได้จริง"),
    (
        "เริ่มจากตัวอย่างที่{}ก่อน",
        "คำถามที่{}บอกว่าใคร ที่ไหน และเมื่อไร",
        "ลองเปลี่ยนทีละอย่าง แล้วจดบันทึกให้{}",
        "บันทึกที่{}บอกอะไรได้มากกว่าแผนยาว ๆ",
        "ก้าวแรกควรเล็กและ{}",
        "ให้อีกคนช่วยตรวจผลเป็นวิธีที่{}",
        "กฎที่{}ตรวจสอบได้ไม่ยาก",
        "ถ้าตัวอย่างกับกฎไม่ตรงกัน ให้หาเหตุผลที่{}",
        "เขียนสิ่งที่เกิดขึ้นด้วยคำที่{}",
        "มักมีวิธีที่{}ซึ่งยังไม่มีใครลอง",
        "ตัวเลขช่วยได้ และภาพที่{}ช่วยได้มากกว่า",
        "หยุดเมื่อผลที่ได้{}พอแล้ว",
        "ผู้อ่านส่วนใหญ่อยากเห็นประโยคที่{}ก่อน",
        "ควรทดสอบซ้ำ เพราะผลที่{}ครั้งเดียวอาจเป็นเรื่องบังเอิญ",
        "คำตอบที่{}อาจผิดได้ และบอกวิธีตรวจสอบ",
        "เก็บส่วนที่{}ไว้ แล้วตัดส่วนที่เหลือออก",
    ),
)


def write(
    chat: ChatRequest, seed: int, *, results: Sequence[tuple[str, str]] = ()
) -> Iterator[str]:
    """Write a reply token by token; it begins with the results of tools, if any."""
    rng = Random(seed)  # noqa: S311 - repeatable chance, not secrets
    start = tool_sentences(chat, results)
    yield from split_tokens(start)
    words, sentences = _THAI if is_thai(chat.question) else _ENGLISH
    n_left = _length(chat, rng)
    n_seen = Counter[str]()
    before = " " if start else ""
    drawn = draw_sentences(chat, sentences, rng)
    while n_left > 0:
        sentence = next(drawn)
        scores = [penalised(chat, _score(word, chat), n_seen[word]) for word in words]
        word = words[draw(chat, scores, rng)]
        n_seen[word] += 1
        tokens = split_tokens(before + sentence.format(word))
        yield from tokens
        n_left -= len(tokens)
        before = " "


def is_thai(text: str) -> bool:
    """Whether a text has more Thai consonants than Latin letters."""
    return len(_THAI_LETTER.findall(text)) > len(_LATIN_LETTER.findall(text))


def tool_sentences(chat: ChatRequest, results: Sequence[tuple[str, str]]) -> str:
    """Return sentences with the results of tools."""
    template = " ตอบว่า {}" if is_thai(chat.question) else " answered: {}."
    return " ".join(name + template.format(result) for name, result in results)


def draw_sentences(
    chat: ChatRequest, sentences: Sequence[str], rng: Random
) -> Iterator[str]:
    """Draw sentences without end; none is repeated before all have been drawn."""
    unused: list[str] = []
    while True:
        unused = unused or list(sentences)
        scores = [_score(sentence, chat) for sentence in unused]
        yield unused.pop(draw(chat, scores, rng))


def _length(chat: ChatRequest, rng: Random) -> float:
    """Draw the fewest tokens of the reply.

    With a low temperature or top_p, it is in the middle of the model's range.
    """
    shortest, longest = LENGTHS.get(chat.model, OTHER_LENGTH)
    room = min(1.0, chat.temperature) * chat.top_p
    share = round(0.5 + (rng.random() - 0.5) * room, 1)
    return shortest + share * (longest - shortest)


def _score(text: str, chat: ChatRequest) -> float:
    """Score a text: always the same, but different for each model and question."""
    hashed_text = f"{text}/{chat.model}/{chat.question}"
    digest = hashlib.blake2b(hashed_text.encode(), digest_size=4).digest()
    return LOWEST + SPREAD * int.from_bytes(digest) / 2**32


def penalised(chat: ChatRequest, score: float, n_seen: int) -> float:
    """Lower the score (above 0) of an option that has appeared `n_seen` times."""
    if not n_seen:
        return score
    penalty = chat.presence_penalty + chat.frequency_penalty * n_seen
    return score / chat.repetition_penalty - penalty


def draw(chat: ChatRequest, scores: Sequence[float], rng: Random) -> int:
    """Draw an index by temperature, from the nucleus that reaches `top_p`."""
    ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    if chat.temperature == 0.0:
        return ranked[0]
    top = scores[ranked[0]]
    weights = [math.exp((scores[at] - top) / chat.temperature) for at in ranked]
    nucleus_weight = chat.top_p * sum(weights)
    sums = list(accumulate(weights))
    n_kept = 1 + sum(reached < nucleus_weight for reached in sums[:-1])
    return rng.choices(ranked[:n_kept], cum_weights=sums[:n_kept])[0]

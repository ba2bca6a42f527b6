"""The emulator's reply to a question without an answer: it explains what it is.

It says that it is the emulator, and how to get a real answer. It uses the language of
the prompt, English or Thai, and the form and length that a few words of the newest
message ask for.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from random import Random
from typing import NamedTuple

from .emulated_tokens import split_tokens
from .filler import draw_sentences, is_thai, tool_sentences
from .request_checks import ChatRequest

# numbers of sentences: by default, in a short reply, in a long one, in a paragraph
USUAL, SHORT, LONG, PARAGRAPH = 2, 1, 9, 3
# more parts than any `max_tokens` allows
MAX_PARTS = 9000


class _Wording(NamedTuple):
    """An explanation in one language: how it begins, and what may follow."""

    first: str
    others: tuple[str, ...]
    word: str  # the reply if one word is requested


_ENGLISH = _Wording(
    "I am the emulator: I play the service and cannot answer this.",
    (
        "`%svc login` takes your key, and `%svc use service` asks the real service.",
        "Keys, parameters and limits are checked as the service's document says.",
        "`svc.Emulator(script=[...])` lets you write my replies yourself.",
        '`svc.Emulator(text="filler")` makes me write made-up prose instead.',
        "Your message has not left this machine, and nothing was paid for.",
        "Tokens are counted, so that tables and costs can be tried out.",
        "The lessons show replies that were written by hand.",
        "What you try with me can be sent to the service without a change.",
    ),
    "emulator",
)
_THAI = _Wording(
    "ฉันคือโปรแกรมจำลอง ทำหน้าที่แทนบริการ และตอบเรื่องนี้ไม่ได้",
    (
        "ใส่คีย์ด้วย `%svc login` แล้วถามบริการจริงด้วย `%svc use service`",
        "ฉันตรวจคีย์ พารามิเตอร์ และขีดจำกัดตามเอกสารของบริการ",
        "คุณเขียนคำตอบของฉันเองได้ด้วย `svc.Emulator(script=[...])`",
        'ฉันเขียนข้อความสมมุติได้ด้วย `svc.Emulator(text="filler")`',
        "ข้อความของคุณไม่ได้ออกจากเครื่องนี้ และไม่มีค่าใช้จ่าย",
        "ฉันนับโทเคนไว้ จึงลองทำตารางและประมาณค่าใช้จ่ายได้",
        "บทเรียนมีคำตอบที่คนเขียนไว้ให้ดู",
        "สิ่งที่ลองกับฉัน ส่งไปยังบริการจริงได้โดยไม่ต้องแก้",
    ),
    "จำลอง",
)
_NUMBERS = (
    ("one", "a single", "หนึ่ง"),
    ("two", "สอง"),
    ("three", "สาม"),
    ("four", "สี่"),
    ("five", "ห้า"),
    ("six", "หก"),
    ("seven", "เจ็ด"),
    ("eight", "แปด"),
    ("nine", "เก้า"),
    ("ten", "สิบ"),
)
_VALUES = {word: value for value, words in enumerate(_NUMBERS, 1) for word in words}
# Thai has no blank before a number.
_NUMBER = rf"(?<![A-Za-z\d.])(\d{{1,4}}|{'|'.join(_VALUES)})"
_LENGTH = re.compile(
    rf"{_NUMBER}[ -]?(?:short |simple |plain |full )?"
    r"(sentence|word|line|paragraph|ประโยค|คำ|บรรทัด|ย่อหน้า)|(ประโยค|คำ|บรรทัด|ย่อหน้า)เดียว",
    re.IGNORECASE,
)
_UNITS = {"ประโยค": "sentence", "คำ": "word", "บรรทัด": "line", "ย่อหน้า": "paragraph"}
_LIST = re.compile(
    rf"\b(?:list|name|give|suggest|propose|write|find)(?: me| us)?(?: the)? {_NUMBER}\b"
    rf"|{_NUMBER}[ -]bullet|\bbullet points\b|\ba list of\b",
    re.IGNORECASE,
)
_JSON = re.compile(r"\bJSON\b", re.IGNORECASE)
_KEYS = re.compile(
    r"\b(?:keys?|fields?) ((?:[\w\"'`]+, )*[\w\"'`]+(?:,? and [\w\"'`]+)?)",
    re.IGNORECASE,
)
_TABLE = re.compile(
    r"\b(?:as|in|make|draw|write) an? (?:\w+ )?table\b|เป็นตาราง", re.IGNORECASE
)
_CODE = re.compile(
    r"\bwrite\b[^.?!]{0,40}\b(?:code|function|script|SQL|query|program)\b|เขียนโค้ด",
    re.IGNORECASE,
)
_LONG = re.compile(r"\b(?:long|detailed|essay|at length)\b|ยาว|ละเอียด", re.IGNORECASE)
_BRIEF = re.compile(r"\b(?:briefly|brief|short)\b|สั้น", re.IGNORECASE)


def write(
    chat: ChatRequest, seed: int, *, results: Sequence[tuple[str, str]] = ()
) -> Iterator[str]:
    """Write the explanation token by token; after tools it begins with their results.

    The sentences after the first one are drawn as in `filler`, so that temperature,
    top_p and the seed have a visible effect.
    """
    wording = _THAI if is_thai(chat.question) else _ENGLISH
    yield from split_tokens(tool_sentences(chat, results))
    if results:
        yield " "
    rng = Random(seed)  # noqa: S311 - repeatable chance, not secrets
    sentences = chain([wording.first], draw_sentences(chat, wording.others, rng))
    for part in _to_form(chat, wording, sentences):
        yield from split_tokens(part)


def _to_form(
    chat: ChatRequest, wording: _Wording, sentences: Iterator[str]
) -> Iterator[str]:
    """Format sentences as the newest message asks, else as the system message does."""
    for wish in (chat.question, chat.system or ""):
        if _JSON.search(wish):
            names = _KEYS.search(wish)
            keys = re.findall(r"\b(?!and\b)\w+", names[1]) if names else ["answer"]
            pairs = dict(zip(keys, sentences, strict=False))
            yield json.dumps(pairs, ensure_ascii=False)
        elif _TABLE.search(wish):
            yield f"| | {next(sentences)} |\n|---|---|"
            rows = islice(sentences, PARAGRAPH)
            yield from (f"\n| {at} | {row} |" for at, row in enumerate(rows, 1))
        elif _CODE.search(wish):
            is_sql = "SQL" in wish
            mark = "--" if is_sql else "#"
            yield f"```{'sql' if is_sql else 'python'}"
            yield from (f"\n{mark} {line}" for line in islice(sentences, USUAL))
            yield "\n```"
        elif match := _LENGTH.search(wish):
            yield from _of_length(match, wording, sentences)
        elif match := _LIST.search(wish):
            n = _count(match[1] or match[2] or "three")
            for at, sentence in enumerate(islice(sentences, n), 1):
                yield "\n" * (at > 1) + (f"{at}. " if match[1] else "- ") + sentence
        else:
            continue
        return
    n = LONG if _LONG.search(chat.question) else USUAL
    yield " ".join(islice(sentences, SHORT if _BRIEF.search(chat.question) else n))


def _of_length(
    match: "re.Match[str]", wording: _Wording, sentences: Iterator[str]
) -> Iterator[str]:
    """Write as many sentences, words, lines or paragraphs as are requested."""
    unit = match[2] or match[3]
    n = _count(match[1] or "one")
    if (unit := _UNITS.get(unit, unit.lower())) != "word":
        per_part = PARAGRAPH if unit == "paragraph" else 1
        between = {"sentence": " ", "line": "\n", "paragraph": "\n\n"}[unit]
        for at in range(n):
            yield between * (at > 0) + " ".join(islice(sentences, per_part))
    elif n == 1 or wording is _THAI:  # Thai has no blanks between words
        yield wording.word if n == 1 else next(sentences)
    else:
        words = chain.from_iterable(sentence.split() for sentence in sentences)
        text = " ".join(islice(words, n))
        yield text if text.endswith(".") else text.rstrip(",:") + "…"


def _count(number: str) -> int:
    return min(_VALUES.get(number.lower()) or int(number), MAX_PARTS)

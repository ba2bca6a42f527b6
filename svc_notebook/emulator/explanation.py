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
# the most of each that a reply has, however many are requested
MOST = {"sentence": 20, "line": 20, "item": 20, "paragraph": 5, "word": 300}


class _Wording(NamedTuple):
    """An explanation in one language: how it begins, and what may follow."""

    first: str
    ways_on: tuple[str, ...]  # what to do next; the second sentence is one of them
    others: tuple[str, ...]
    word: str  # the reply if one word is requested
    only: str  # says in which languages it can be written


_ENGLISH = _Wording(
    "I am the emulator: I play the service and cannot answer this.",
    (
        "`%svc use service` asks the real service, and says what it needs for that.",
        "`svc.Emulator(script=[...])` lets you write my replies yourself.",
        '`svc.use(endpoint=svc.Emulator(text="filler"))` makes me write made-up prose.',
    ),
    (
        "Keys, parameters and limits are checked as the service's document says.",
        "Your message has not left this machine, and nothing was paid for.",
        "Tokens are counted, so that tables and costs can be tried out.",
        "The lessons show replies that were written by hand.",
        "What you try with me can be sent to the service without a change.",
    ),
    "emulator",
    "I write English and Thai only.",
)
_THAI = _Wording(
    "ฉันคือโปรแกรมจำลอง ทำหน้าที่แทนบริการ และตอบเรื่องนี้ไม่ได้",
    (
        "`%svc use service` ถามบริการจริง และบอกว่าต้องตั้งค่าอะไรก่อน",
        "คุณเขียนคำตอบของฉันเองได้ด้วย `svc.Emulator(script=[...])`",
        'ฉันเขียนข้อความสมมุติได้ด้วย `svc.use(endpoint=svc.Emulator(text="filler"))`',
    ),
    (
        "ฉันตรวจคีย์ พารามิเตอร์ และขีดจำกัดตามเอกสารของบริการ",
        "ข้อความของคุณไม่ได้ออกจากเครื่องนี้ และไม่มีค่าใช้จ่าย",
        "ฉันนับโทเคนไว้ จึงลองทำตารางและประมาณค่าใช้จ่ายได้",
        "บทเรียนมีคำตอบที่คนเขียนไว้ให้ดู",
        "สิ่งที่ลองกับฉัน ส่งไปยังบริการจริงได้โดยไม่ต้องแก้",
    ),
    "จำลอง",
    "ฉันเขียนได้เฉพาะภาษาไทยและภาษาอังกฤษ",
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
_UNIT = (
    r"[ -]?(?:short |simple |plain |full |complete |clear |concise )?"
    r"(sentence|word|line|paragraph)s?\b"
)
# A number of sentences is a wish at the start of a sentence and after such words; it is
# none in "I wrote 500 words" and "the report has 3 paragraphs".
_LENGTH = re.compile(
    r"(?:(?:^|[.:;!?(\n,]\s{0,3}|\d ?[-\u2013]|\b(?:in|of|to|with|within|use|than"
    r"|exactly|about|around|most|least|under|only|just|max|maximum|write|give|want|need|me"
    r"|an?|or) )"
    rf"{_NUMBER}{_UNIT})|(?:{_NUMBER}{_UNIT} (?:or (?:less|fewer|more)|max|please))"
    rf"|(?<!มี)(?<!มี ){_NUMBER} ?(ประโยค|คำ(?!ถาม|ตอบ|สั่ง)|บรรทัด|ย่อหน้า|ข้อ(?!ความ|มูล)"
    r"|อย่าง|รายการ)|(ประโยค|คำ|บรรทัด|ย่อหน้า)เดียว",
    re.IGNORECASE | re.MULTILINE,
)
_UNITS = {
    "ประโยค": "sentence",
    "คำ": "word",
    "บรรทัด": "line",
    "ย่อหน้า": "paragraph",
    "ข้อ": "item",
    "อย่าง": "item",
    "รายการ": "item",
}
_AT_MOST = re.compile(
    r"\b(?:most|than|under|within|max|maximum|up to|less|fewer)\b", re.IGNORECASE
)
_LIST = re.compile(
    rf"\b(?:list|name|suggest|propose|recommend|top)(?: me| us)?(?: the| exactly)? "
    rf"{_NUMBER}\b|(?:^|\b(?:give|write|find|show|tell|make|create|need|want|with|of|in)"
    rf"(?: me| us)?(?: the| exactly)? ){_NUMBER} (?:\w+ )?(?:items|things|examples"
    r"|reasons|ideas|titles|names|ways|tips|questions|points|facts|steps|uses|synonyms"
    r"|options|headlines|slogans|keywords|suggestions)\b"
    rf"|{_NUMBER}[ -]bullet|\bbullet points\b|\ba list of\b",
    re.IGNORECASE | re.MULTILINE,
)
_JSON = re.compile(
    r"\b(?:as|in|into|to|return|valid|only|output|write) (?:an? |the )?(?:raw |valid )?"
    r"JSON\b|\bJSON (?:with|object|array|list|only)\b|(?:เป็น|แบบ|รูป) ?JSON|^JSON\b",
    re.IGNORECASE | re.MULTILINE,
)
_JSON_ARRAY = re.compile(r"\bJSON (?:array|list)\b", re.IGNORECASE)
_KEYS = re.compile(
    r"\b(?:keys?|fields?) ((?:[\w\"'`]+, )*[\w\"'`]+(?:,? and [\w\"'`]+)?)",
    re.IGNORECASE,
)
_LABEL_KEYS = re.compile(
    r"label|class|category|sentiment|score|rating|grade|verdict|winner|answer",
    re.IGNORECASE,
)
_TABLE = re.compile(
    r"\b(?:as|in|make|draw|write|create) an? (?:\w+ )?table\b|เป็นตาราง", re.IGNORECASE
)
_CODE = re.compile(
    r"\bwrite\b[^.?!\n]{0,40}\b(?:code|function|script|SQL|query|program|regex|class)\b"
    r"|\bcode block\b|เขียน(?:โค้ด|ฟังก์ชัน|โปรแกรม)",
    re.IGNORECASE,
)
# how a line of explanation is marked in code, for names that prompts use
_COMMENTS = {
    "sql": "--",
    "javascript": "//",
    "typescript": "//",
    "java": "//",
    "rust": "//",
    "bash": "#",
    "python": "#",
}
_CODE_LANGUAGE = re.compile(rf"\b({'|'.join(_COMMENTS)})\b", re.IGNORECASE)
_CSV = re.compile(
    r"\b(?:as|in|return|output|give me|make|create|write) (?:an? )?CSV\b|เป็น ?CSV",
    re.IGNORECASE,
)
_LONG = re.compile(
    r"\b(?:long|detailed) (?:answer|reply|text|explanation|story|report|summary)\b"
    r"|\b(?:essay|at length|in detail)\b|ยาว ?ๆ|ละเอียด",
    re.IGNORECASE,
)
_BRIEF = re.compile(r"\b(?:briefly|brief|short)\b|สั้น", re.IGNORECASE)
_LANGUAGES = (
    "English|Thai|French|German|Spanish|Italian|Portuguese|Dutch|Russian|Chinese"
    "|Japanese|Korean|Vietnamese|Lao|Khmer|Burmese|Malay|Indonesian|Hindi|Arabic"
)
_LANGUAGE = re.compile(
    r"(?:\b(?:answer|reply|respond|write|translate|explain|describe|summari[sz]e|speak)\b"
    rf"[^.\n]{{0,60}}?\b(?:in|into|to) ({_LANGUAGES})\b|\bin ({_LANGUAGES})[.?!]?$)"
    r"|(?:เป็น|ด้วย|ใน) ?ภาษา(ไทย|[ก-ฮ]\S{2,9})",
    re.IGNORECASE | re.MULTILINE,
)
_FORMS = (_JSON, _TABLE, _CODE, _CSV, _LENGTH, _LIST, _LANGUAGE)
# replies of few words, from which the longest that is allowed is taken
_FEW_WORDS = (
    "Emulator here.",
    "I am the emulator.",
    "I am only the emulator.",
    "I am the emulator and cannot answer.",
    "I am only the emulator and cannot answer this.",
)


def asks_for_form(text: str) -> bool:
    """Whether a text asks for a form, a length or a language."""
    return any(form.search(text) for form in _FORMS)


def write(
    chat: ChatRequest, seed: int, *, results: Sequence[tuple[str, str]] = ()
) -> Iterator[str]:
    """Write the explanation token by token; after tools it begins with their results.

    The sentences after the first one are drawn as in `filler`, so that temperature,
    top_p and the seed have a visible effect.
    """
    wording, first = _wording(chat)
    yield from split_tokens(tool_sentences(chat, results))
    if results:
        yield " "
    rng = Random(seed)  # noqa: S311 - repeatable chance, not secrets
    way_on = next(draw_sentences(chat, wording.ways_on, rng))
    rest = {*wording.ways_on, *wording.others} - {way_on}
    others = draw_sentences(chat, sorted(rest), rng)
    sentences = chain(first, [way_on], others)
    for part in _to_form(chat, wording, sentences):
        yield from split_tokens(part)


def in_form(chat: ChatRequest, text: str) -> Iterator[str]:
    """Write a short text as tokens, as JSON if the prompt asks for that."""
    for wish in chat.wishes:
        if _JSON.search(wish):
            keys = _json_keys(wish)
            at = next((key for key in keys if _LABEL_KEYS.search(key)), keys[0])
            pairs = dict.fromkeys(keys, _ENGLISH.first) | {at: _json_value(text)}
            text = json.dumps(pairs, ensure_ascii=False)
            break
    yield from split_tokens(text)


def _json_value(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _json_keys(wish: str) -> list[str]:
    names = _KEYS.search(wish)
    return re.findall(r"\b(?!and\b)\w+", names[1]) if names else ["answer"]


def _wording(chat: ChatRequest) -> tuple[_Wording, list[str]]:
    """Choose the language of the reply, and the sentences that it begins with."""
    for wish in chat.wishes:
        if match := _LANGUAGE.search(wish):
            name = (match[1] or match[2] or match[3]).lower()
            if name in ("thai", "ไทย"):
                return _THAI, [_THAI.first]
            is_other = name not in ("english", "อังกฤษ")
            wording = _THAI if is_other and is_thai(chat.question) else _ENGLISH
            return wording, [wording.first, wording.only][: 1 + is_other]
    wording = _THAI if is_thai(chat.wishes[0]) else _ENGLISH
    return wording, [wording.first]


def _to_form(
    chat: ChatRequest, wording: _Wording, sentences: Iterator[str]
) -> Iterator[str]:
    """Format sentences as the newest message asks, else as the system message does."""
    for wish in chat.wishes:
        if _JSON.search(wish):
            yield _json(wish, sentences)
        elif _TABLE.search(wish):
            yield f"| | {next(sentences)} |\n|---|---|"
            rows = islice(sentences, PARAGRAPH)
            yield from (f"\n| {at} | {row} |" for at, row in enumerate(rows, 1))
        elif _CODE.search(wish):
            yield from _code(wish, sentences)
        elif _CSV.search(wish):
            yield "line,text"
            texts = (text.replace('"', '""') for text in islice(sentences, PARAGRAPH))
            yield from (f'\n{at},"{text}"' for at, text in enumerate(texts, 1))
        elif match := _LENGTH.search(wish):
            yield from _of_length(match, wording, sentences)
        elif match := _LIST.search(wish):
            number = next(filter(None, match.groups()), None)
            is_numbered = number is not None and "bullet" not in match[0].lower()
            yield from _list(number or "three", sentences, is_numbered=is_numbered)
        else:
            continue
        return
    n = LONG if _LONG.search(chat.wishes[0]) else USUAL
    yield " ".join(islice(sentences, SHORT if _BRIEF.search(chat.wishes[0]) else n))


def _json(wish: str, sentences: Iterator[str]) -> str:
    if not _JSON_ARRAY.search(wish):
        pairs = dict(zip(_json_keys(wish), sentences, strict=False))
        return json.dumps(pairs, ensure_ascii=False)
    number = re.search(rf"{_NUMBER}\b", wish)
    n = _count(number[1] if number else "three", "item")
    return json.dumps(list(islice(sentences, n)), ensure_ascii=False)


def _code(wish: str, sentences: Iterator[str]) -> Iterator[str]:
    name = _CODE_LANGUAGE.search(wish)
    language = name[1].lower() if name else "python"
    yield f"```{language}"
    mark = _COMMENTS[language]
    yield from (f"\n{mark} {line}" for line in islice(sentences, SHORT))
    yield "\n```"


def _list(
    number: str, sentences: Iterator[str], *, is_numbered: bool = True
) -> Iterator[str]:
    """Write items, with numbers or bullets."""
    for at, sentence in enumerate(islice(sentences, _count(number, "item")), 1):
        yield "\n" * (at > 1) + (f"{at}. " if is_numbered else "- ") + sentence


def _of_length(
    match: "re.Match[str]", wording: _Wording, sentences: Iterator[str]
) -> Iterator[str]:
    """Write as many sentences, words, lines, paragraphs or items as are requested."""
    number = match[1] or match[3] or match[5] or "one"
    name = (match[2] or match[4] or match[6] or match[7]).lower()
    unit = _UNITS.get(name, name)
    n = _count(number, unit)
    if unit == "item":
        yield from _list(number, sentences)
    elif unit == "word":
        around = match.string[max(0, match.start() - 8) : match.end() + 16]
        is_limit = _AT_MOST.search(around) is not None
        yield _words(n, wording, sentences, is_limit=is_limit)
    else:
        per_part = PARAGRAPH if unit == "paragraph" else 1
        between = {"sentence": " ", "line": "\n", "paragraph": "\n\n"}[unit]
        for at in range(n):
            yield between * (at > 0) + " ".join(islice(sentences, per_part))


def _words(
    n: int, wording: _Wording, sentences: Iterator[str], *, is_limit: bool
) -> str:
    """Return `n` words, or whole sentences of at most `n` words."""
    if n == 1 or wording is _THAI:  # Thai has no blanks between words
        return wording.word if n == 1 else next(sentences)
    if n < len(wording.first.split()):
        return max((x for x in _FEW_WORDS if len(x.split()) <= n), key=len)
    if is_limit:
        text = next(sentences)
        for sentence in sentences:
            if len(f"{text} {sentence}".split()) > n:
                return text
            text += f" {sentence}"
    words = chain.from_iterable(sentence.split() for sentence in sentences)
    text = " ".join(islice(words, n))
    return text if text.endswith(".") else text.rstrip(",:") + "…"


def _count(number: str, unit: str) -> int:
    return min(max(_VALUES.get(number.lower()) or int(number), 1), MOST[unit])

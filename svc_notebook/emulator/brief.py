"""What the language model is to write: about what, in which language, how long.

What it is not: an understanding of the prompt; it picks words out of it.

Rules for this file: only letters are picked, never digits or marks, so that
nothing that looks like a key or a number comes back as if it were meant.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_THAI_LETTER = re.compile(r"[\u0e01-\u0e2e]")
_LATIN_LETTER = re.compile(r"[A-Za-z]")
# A word, or a name of several words.
_WORD = re.compile(r"[A-Z][a-z]{2,19}(?: [A-Z][a-z]{2,19}){1,3}|[^\W\d_]{3,20}")
# Thai words run together; these stand between the words worth repeating.
_THAI_BETWEEN = re.compile(
    r"[^\u0e01-\u0e4e]+|ช่วย|ขอ|อธิบาย|บอก|เขียน|สรุป|เรื่อง|เกี่ยวกับ|อะไร|คือ"
    r"|อย่างไร|ประโยค|ย่อหน้า|ทำไม|ครับ|ค่ะ|คะ|ไหม|และ|หรือ|ของ|ให้|หน่อย|เป็น|สั้น ?ๆ|ว่า|ที่|ใน"
    r"|ยาว|ละเอียด"
)
_LENGTH = re.compile(
    r"(\d{1,4})\s*(?:-\s*)?(word|sentence|paragraph|token|คำ|ประโยค|ย่อหน้า)"
)
_TOKENS_PER = {
    "word": 1.2,
    "sentence": 16.0,
    "paragraph": 80.0,
    "token": 1.0,
    "คำ": 1.3,
    "ประโยค": 14.0,
    "ย่อหน้า": 50.0,
}
# Asked for a long text without a number: well above the default of max_tokens.
_LONG = re.compile(
    r"\b(?:(?:very|as|a|really) long(?:er)?|lengthy|at length|essay|detailed)\b"
    r"|\bin (?:\w+ )?detail\b|ยาว|ละเอียด",
    re.IGNORECASE,
)
_LONG_TOKENS = 400
_SUBJECTS_AT_MOST = 8
# Letters of a prompt that are looked at for subjects.
_READ_AT_MOST = 20_000
# How long a Thai stretch may be to be worth repeating, in letters.
_THAI_SHORTEST = 2
_THAI_LONGEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What to write.

    Attributes:
        subjects: Words of the prompt to come back to; never empty.
        is_thai: Whether to write Thai.
        wanted_tokens: The length asked for, as a number or as "long"; or None.
    """

    subjects: tuple[str, ...]
    is_thai: bool
    wanted_tokens: int | None


def brief_of(question: str) -> Brief:
    """Read a prompt for what to write about."""
    n_thai = len(_THAI_LETTER.findall(question))
    is_thai = n_thai > len(_LATIN_LETTER.findall(question))
    subjects = _thai_subjects(question) if is_thai else _subjects(question)
    return Brief(
        subjects=tuple(subjects[:_SUBJECTS_AT_MOST])
        or (("เรื่องนี้",) if is_thai else ("this",)),
        is_thai=is_thai,
        wanted_tokens=_wanted_tokens(question),
    )


def _subjects(question: str) -> list[str]:
    """Pick the words and names that are not common, each once, in order."""
    common = _stopwords()
    picked = (
        " ".join(word for word in found.split() if word.lower() not in common)
        for found in _WORD.findall(question[:_READ_AT_MOST])
    )
    return list(dict.fromkeys(each for each in picked if each))


@cache
def _stopwords() -> frozenset[str]:
    """Read the words that say nothing about the subject."""
    text = resources.files(__package__).joinpath("stopwords_en.txt")
    return frozenset(text.read_text(encoding="utf-8").split())


def _thai_subjects(question: str) -> list[str]:
    """Pick what stands between common words and is not too long to repeat."""
    parts = _THAI_BETWEEN.split(question[:_READ_AT_MOST])
    return list(
        dict.fromkeys(
            part for part in parts if _THAI_SHORTEST <= len(part) <= _THAI_LONGEST
        )
    )


def _wanted_tokens(question: str) -> int | None:
    """Read a length such as "in 50 words" or "a long story", as tokens."""
    found = _LENGTH.search(question)
    if found:
        return int(int(found[1]) * _TOKENS_PER[found[2]])
    return _LONG_TOKENS if _LONG.search(question) else None

"""Labels: a prompt that offers some gets one of them, so that they can be tried out.

Nothing is judged: chance picks the label, in the same way in each run. Labels are words
in a list, as in "as spam or ham", the numbers of a scale, the letters of a choice, or
the labels of the examples in the prompt; in English or Thai.
"""

import re
from collections.abc import Callable, Sequence
from random import Random

from .request_checks import ChatRequest

# `\w` does not match Thai vowels and tones that are written above or below a letter.
_WORD = r"[^\s,:;.?!/|()\[\]{}<>]+"
_WORDS = rf"{_WORD}(?: {_WORD})?"
_ARTICLE = r"(?:an? |the )?"
_LIST = rf"(?:{_WORD}, )*{_WORD},? or {_ARTICLE}{_WORD}"
_TEXT = r"(?:text|review|message|e?-?mail|comment|sentence|tweet|ticket|answer|reply)"
_VERB = r"(?:answer|reply|respond|return|output)"
# The longest label that an example may have.
_LABEL_LETTERS = 30
_SCALE_MAX = 100
_VERB_ONLY = rf"{_VERB}(?: only| just| with| either| exactly)+"
_INTRODUCED = (
    rf"(?:one of|labels|categories|classes|options|an? label|the label"
    rf"|{_VERB} (?:only )?with|which (?:category|label|class|topic))\b"
    r"[^.:?\n]{0,30}?:? ?\b"
)
_SLASHED = (
    rf"(?:classify|label|categor\w+|sentiment|choose|is (?:this|it|that)"
    rf"|{_VERB} with)\b"
    r"[^.\n]{0,60}?(?<![\w/.])"
)
_THAI_LABEL = r"[^\s,:?]{1,20}"
_PATTERNS = (
    (
        rf"\b(?:classify|categori[sz]e|label|tag|sort)\b[^.:\n]{{0,60}}? (?:as|into)"
        rf"(?: an?| either)? ({_LIST})"
    ),
    rf"\b(?:whether|if) (?:this|it|that|the)\b[^.:?\n]{{0,40}}? is ({_LIST})",
    rf"\bone word: ({_LIST})",
    rf"\b{_VERB_ONLY}:? ({_LIST})",
    rf"\b{_VERB}\b[^.:?\n]{{0,40}}?\b((?:yes|true),? or (?:no|false))\b",
    rf"\bis (?:this|it|that|the {_TEXT})(?: (?!better)\w+){{0,3}}? ({_LIST})\?",
    # a list without "or", which has to end where the line or sentence does
    rf"\b{_INTRODUCED}({_WORDS}(?:, {_WORDS})+(?:,? (?:or|and) {_WORDS})?)(?=[.?!;]|$)",
    r"(?<![\w/.])((?:yes|true) ?[/|] ?(?:no|false))(?![\w/])",
    rf"\b{_SLASHED}((?!and/or)[^\W\d_]+(?: ?[/|] ?[^\W\d_]+)+)(?![\w/]|\.\w)",
    (
        r"\b(?:better|best|winner|prefer\w*|choose|pick|select)\b[^.\n]{0,40}?\b"
        r"((?:[A-E], )*[A-E],? or [A-E]|1 or 2|left or right|first or second)\b"
    ),
    # "it is ... or ...", but neither "or not?" nor "or ..., which is better?"
    (
        rf"เป็น ?({_THAI_LABEL}?(?:, ?{_THAI_LABEL}?)*,? ?หรือ ?"
        rf"(?!เปล่า|ยัง){_THAI_LABEL}(?<!กว่า))(?=[\s:?.]|$)"
    ),
    r"ตอบ(?:ว่า|แค่|เพียง|เป็น)? ?(ใช่หรือไม่(?:ใช่)?)",
)
_LISTS = [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in _PATTERNS]
_BETWEEN = re.compile(r",? (?:or|and) |, ?| ?หรือ ?| ?[/|] ?")
_FIRST_ARTICLE = re.compile(rf"^{_ARTICLE}", re.IGNORECASE)
_QUOTES = re.compile(r"(?<!\w)[\"'`*\u201c\u2018]+|[\"'`*\u201d\u2019]+(?!\w)")
_SCALE = re.compile(
    r"(?:(?:^|[.!?:\n]\s{0,3}|\bplease |\band )(?:rate|score|grade)\b|\bscale\b"
    r"|\b(?:score|rating|grade|number)\b(?= (?:of|from|between))|คะแนน)"
    r"[^.\n]{0,60}?\b(\d{1,3}) ?(?:to|-|\u2013|and|ถึง) ?(\d{1,3})(?!\d)",
    re.IGNORECASE,
)
_LETTER_WANTED = re.compile(r"\b(?:choose|pick|select|letter|option)\b", re.IGNORECASE)
_LETTER = re.compile(r"(?<!\w)\(?([A-E])[).:] ")
# a line at the end of the prompt that waits for a label
_OPEN_LINE = re.compile(
    r"^((?:label|class|category|sentiment|intent|topic|type|tag|ป้าย|ประเภท|หมวด)): *\Z",
    re.IGNORECASE | re.MULTILINE,
)


def offered_label(chat: ChatRequest, seed: int) -> str | None:
    """Pick one of the labels that a prompt offers, without judging anything.

    None if it offers none. At temperature 0 the model and the prompt decide.
    """
    labels = _offered(chat)
    if len(labels) < 2:  # noqa: PLR2004 - a choice is between two
        return None
    is_fixed = chat.temperature == 0.0
    chance = f"{chat.model}\n{chat.instructions}" if is_fixed else seed
    return Random(chance).choice(labels)  # noqa: S311 - repeatable chance


def _offered(chat: ChatRequest) -> Sequence[str]:
    readers: tuple[Callable[[str], Sequence[str]], ...] = (_listed, _scale, _letters)
    for text in chat.wishes:
        plain_text = _QUOTES.sub("", text)
        for read in readers:
            if labels := read(plain_text):
                return labels
    return _of_examples(chat.question)


def _listed(text: str) -> list[str]:
    """Return the labels of the first list of labels in a text."""
    for pattern in _LISTS:
        if match := pattern.search(text):
            labels = [_FIRST_ARTICLE.sub("", x) for x in _BETWEEN.split(match[1]) if x]
            return [_whole_label(label, labels[0]) for label in labels]
    return []


def _whole_label(label: str, first: str) -> str:
    """Return a label; the "not" of "urgent or not" is "not urgent"."""
    if label.lower() == "not":
        return f"not {first}"
    return f"ไม่{first}" if label == "ไม่" else label


def _scale(text: str) -> list[str]:
    match = _SCALE.search(text)
    if match is None or not int(match[1]) < int(match[2]) <= _SCALE_MAX:
        return []
    return [str(number) for number in range(int(match[1]), int(match[2]) + 1)]


def _letters(text: str) -> list[str]:
    """Return the letters of a choice such as "A) red B) blue"."""
    letters = sorted({*_LETTER.findall(text)}) if _LETTER_WANTED.search(text) else []
    return letters if letters == list("ABCDE"[: len(letters)]) else []


def _of_examples(question: str) -> list[str]:
    """Return the labels of examples, if the last line waits for another."""
    if (line := _OPEN_LINE.search(question)) is None:
        return []
    pattern = rf"^{line[1]}: *(\S[^\n]*?) *$"
    labels = re.findall(pattern, question, re.MULTILINE | re.IGNORECASE)
    return sorted({label for label in labels if len(label) <= _LABEL_LETTERS})

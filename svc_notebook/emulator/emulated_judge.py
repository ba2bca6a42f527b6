"""A judge that the emulator plays: a fair one, or one with a bias that can be found.

It reads the request of `run.judge`: texts between lines such as `<reply 0a1b>` and
`</reply 0a1b>`, and after them the lines that it shall answer with. How good a reply
is, it sees from its words: from the ones that its entry calls good, or else by chance,
but always the same for the same words.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

Bias = Literal["fair", "order", "style", "length"]

# the mark is that of the first line, so that texts with such lines are only texts
_SHOWN = r"^<(reply|left|right) {mark}>\n(.*?)\n</\1 {mark}>$"
_MARK = re.compile(r"^<prompt ([0-9a-f]+)>$", re.MULTILINE)
_LINE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\([^)\n]*\)")
_WORD = re.compile(r"[^\W\d_]+")
_MARKDOWN = re.compile(r"\*\*|`|\]\(|^ {0,3}(?:#{1,6}|[-*+]|\d+[.)]|>) ", re.MULTILINE)
_MIDDLING_WORDS = 40  # to a judge of length, more are good
_CHANCES = 2**32
_REASONS: Mapping[Bias, str] = {
    "fair": "by what it says",
    "order": "by what comes first",
    "style": "by how it looks",
    "length": "by how much it says",
}


def judged(request: str, bias: Bias, good: Sequence[str] = ()) -> str:
    """Return the reply of a judge to the newest message of a request; "" to others."""
    if (mark := _MARK.search(request)) is None:
        return ""
    pattern = _SHOWN.replace("{mark}", mark[1])
    shown = [*re.finditer(pattern, request, re.DOTALL | re.MULTILINE)]
    texts = {match[1]: match[2] for match in shown}
    lines = _LINE.findall(request[shown[-1].end() if shown else 0 :])
    said = [
        _REASONS[bias] if name == "reason" else _verdict(what, texts, bias, good)
        for name, what in lines
    ]
    answer = (f"{name}: {value}" for (name, _), value in zip(lines, said, strict=True))
    return "\n".join(answer)


def _verdict(
    what: str, texts: Mapping[str, str], bias: Bias, good: Sequence[str]
) -> str:
    if "left" in texts and "right" in texts:
        return _winner(texts["left"], texts["right"], bias, good)
    quality = _quality(texts.get("reply", ""), bias, good)
    options = what.split(" | ")
    if len(options) == 1:  # any number
        return f"{10 * quality:.1f}"
    if all(option.isdecimal() for option in options):
        options = sorted(options, key=int, reverse=True)
    return options[min(int((1 - quality) * len(options)), len(options) - 1)]


def _winner(left: str, right: str, bias: Bias, good: Sequence[str]) -> str:
    if bias == "order":
        return "left"
    seen: dict[str, Callable[[str], float]] = {
        "style": _has_markdown,
        "length": lambda text: len(_words(text)),
    }
    for measure in (seen.get(bias), lambda text: _goodness(text, good)):
        if measure is not None and measure(left) != measure(right):
            return "left" if measure(left) > measure(right) else "right"
    return "tie"


def _quality(text: str, bias: Bias, good: Sequence[str]) -> float:
    """Return how good a reply seems to a judge, from 0 to 1."""
    if bias == "length":
        n_words = len(_words(text))
        return n_words / (n_words + _MIDDLING_WORDS)
    return 1.0 if bias == "style" and _has_markdown(text) else _goodness(text, good)


def _goodness(text: str, good: Sequence[str]) -> float:
    """Return how good a reply is, from 0 to 1; half of the good words are 0.5."""
    words = _words(text)
    if good:
        return len({*good} & {*words}) / len({*good})
    digest = hashlib.sha256(" ".join(words).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4]) / _CHANCES


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(_LINK.sub("]", text))]


def _has_markdown(text: str) -> bool:
    return _MARKDOWN.search(text) is not None

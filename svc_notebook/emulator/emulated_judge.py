"""An emulated judge: a fair one, or one with a bias that a study can detect.

It reads the requests of `run.judge`: texts between lines such as `<reply 0a1b>` and
`</reply 0a1b>`, followed by the lines to answer with. A reply is better the more of the
script's `good` words it has. Without such words, its quality is random, but always the
same for the same words.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

Bias = Literal["fair", "order", "style", "length"]

# The mark is taken from the first line, so that such lines inside a text are only text.
_SHOWN = r"^<(reply|left|right) {mark}>\n(.*?)\n</\1 {mark}>$"
_MARK = re.compile(r"^<prompt ([0-9a-f]+)>$", re.MULTILINE)
_LINE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\([^)\n]*\)")
_WORD = re.compile(r"[^\W\d_]+")
_MARKDOWN = re.compile(r"\*\*|`|\]\(|^ {0,3}(?:#{1,6}|[-*+]|\d+[.)]|>) ", re.MULTILINE)
_MEDIAN_WORDS = 40  # for a judge of length, a reply of this length has quality 0.5
_N_HASHES = 2**32
_REASONS: Mapping[Bias, str] = {
    "fair": "by what it says",
    "order": "by what comes first",
    "style": "by how it looks",
    "length": "by how much it says",
}


def judge_reply(request: str, bias: Bias, good: Sequence[str] = ()) -> str:
    """Return a judge's reply to a message; "" if it is not a request to judge."""
    if (mark := _MARK.search(request)) is None:
        return ""
    pattern = _SHOWN.replace("{mark}", mark[1])
    shown = [*re.finditer(pattern, request, re.DOTALL | re.MULTILINE)]
    texts = {match[1]: match[2] for match in shown}
    lines = _LINE.findall(request[shown[-1].end() if shown else 0 :])
    values = [
        _REASONS[bias]
        if name == "reason"
        else _verdict(options_text, texts, bias, good)
        for name, options_text in lines
    ]
    answer = (
        f"{name}: {value}" for (name, _), value in zip(lines, values, strict=True)
    )
    return "\n".join(answer)


def _verdict(
    options_text: str, texts: Mapping[str, str], bias: Bias, good: Sequence[str]
) -> str:
    if "left" in texts and "right" in texts:
        return _winner(texts["left"], texts["right"], bias, good)
    quality = _quality(texts.get("reply", ""), bias, good)
    options = options_text.split(" | ")
    if len(options) == 1:  # any number
        return f"{10 * quality:.1f}"
    if all(option.isdecimal() for option in options):
        options = sorted(options, key=int, reverse=True)
    return options[min(int((1 - quality) * len(options)), len(options) - 1)]


def _winner(left: str, right: str, bias: Bias, good: Sequence[str]) -> str:
    if bias == "order":
        return "left"
    measures: dict[str, Callable[[str], float]] = {
        "style": _has_markdown,
        "length": lambda text: len(_words(text)),
    }
    for measure in (measures.get(bias), lambda text: _share_of_good_words(text, good)):
        if measure is not None and measure(left) != measure(right):
            return "left" if measure(left) > measure(right) else "right"
    return "tie"


def _quality(text: str, bias: Bias, good: Sequence[str]) -> float:
    """Return the quality of a reply for a judge with this bias, from 0 to 1."""
    if bias == "length":
        n_words = len(_words(text))
        return n_words / (n_words + _MEDIAN_WORDS)
    return (
        1.0
        if bias == "style" and _has_markdown(text)
        else _share_of_good_words(text, good)
    )


def _share_of_good_words(text: str, good: Sequence[str]) -> float:
    """Return the quality of a reply, from 0 to 1: its share of the good words."""
    words = _words(text)
    if good:
        return len({*good} & {*words}) / len({*good})
    digest = hashlib.sha256(" ".join(words).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4]) / _N_HASHES


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(_LINK.sub("]", text))]


def _has_markdown(text: str) -> bool:
    return _MARKDOWN.search(text) is not None

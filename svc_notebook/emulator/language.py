"""The emulator's texts: ready-made paragraphs with words left open.

Both are drawn as a language model draws tokens, so that temperature, top_p and the
penalties can be seen at work. That a text is made up is said by the response's headers,
and by the badge of whoever shows it.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import accumulate
from random import Random
from typing import NamedTuple

from .chat_request import ChatRequest, split_tokens

# Scores are drawn from LOWEST to LOWEST + SPREAD: above 0, since the repetition
# penalty divides them.
LOWEST = 4.0
SPREAD = 4.0
# Subtracted from a paragraph's score for each use; otherwise a text at temperature 0
# would repeat one paragraph.
AGAIN_COST = 12.0

_THAI_LETTER = re.compile(r"[\u0e01-\u0e2e]")
_LATIN_LETTER = re.compile(r"[A-Za-z]")
_OPEN_WORD = re.compile(r"<(\w+)>")
# Lets users try out a classification.
_LABELS = re.compile(
    r"\b(?:classify as|one word:) ((?:\w+, )*\w+),? or (\w+)", re.IGNORECASE
)


class Style(NamedTuple):
    """How a model writes: from which sections of the phrases, and how much."""

    shortest_tokens: int
    longest_tokens: int
    sections: tuple[str, ...]


_PLAIN = Style(50, 100, ("plain",))
# Models differ so that a comparison shows a difference; it says nothing about the
# service's models.
STYLES = {
    "svc-instruct": Style(40, 90, ("plain", "terse", "long")),
    "svc-v1.5-instruct": _PLAIN,
    "svc-v1.5x-70b-instruct": Style(100, 180, ("long",)),
    "svc-v2-8b-instruct": Style(25, 65, ("terse",)),
    "svc-v2-70b-instruct": Style(130, 230, ("long", "plain")),
    "svc-v2.1-12b-instruct": Style(60, 120, ("plain", "terse")),
    "svc-v2.5-30b-a3b-instruct": Style(80, 150, ("terse", "long")),
}


def write(
    chat: ChatRequest, seed: int, *, results: Sequence[tuple[str, str]] = ()
) -> Iterator[str]:
    """Write a reply token by token; it begins with what tools answered, by name."""
    rng = Random(seed)  # noqa: S311 - repeatable chance, not secrets
    labels = _LABELS.search(chat.instructions)
    if labels and not results:
        yield from split_tokens(_label(labels, chat, rng))
        return
    n_thai = len(_THAI_LETTER.findall(chat.question))
    is_thai = n_thai > len(_LATIN_LETTER.findall(chat.question))
    said = " ตอบว่า {}" if is_thai else " answered: {}."
    start = " ".join(name + said.format(result) for name, result in results)
    yield from split_tokens(start)
    style = STYLES.get(chat.model, _PLAIN)
    writer = _Writer(
        chat=chat,
        rng=rng,
        phrases=_phrases(is_thai=is_thai),
        taste=f"{chat.model}/{chat.question}",
    )
    length = _length(style, chat, rng)
    yield from writer.tokens(style, length=length, before=" " if start else "")


def _label(labels: "re.Match[str]", chat: ChatRequest, rng: Random) -> str:
    """Pick one of the words that a prompt offers, without judging anything."""
    offered: list[str] = [*labels[1].split(", "), labels[2]]
    if chat.temperature == 0.0:
        rng = Random(f"{chat.model}\n{chat.instructions}")  # noqa: S311 - repeatable
    return rng.choice(offered)


def _length(style: Style, chat: ChatRequest, rng: Random) -> float:
    """Decide how many tokens the reply has at least.

    A low temperature or top_p keeps it in the middle of the style's range.
    """
    room = min(1.0, chat.temperature) * chat.top_p
    share = round(0.5 + (rng.random() - 0.5) * room, 1)
    return style.shortest_tokens + share * (
        style.longest_tokens - style.shortest_tokens
    )


def penalised(chat: ChatRequest, score: float, n_seen: int) -> float:
    """Lower the score, above 0, of an option that appeared so often before."""
    if not n_seen:
        return score
    penalty = chat.presence_penalty + chat.frequency_penalty * n_seen
    return score / chat.repetition_penalty - penalty


def draw(chat: ChatRequest, scores: Sequence[float], rng: Random) -> int:
    """Draw a place by the temperature from the nucleus that reaches `top_p`."""
    ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    if chat.temperature == 0.0:
        return ranked[0]
    top = scores[ranked[0]]
    weights = [math.exp((scores[at] - top) / chat.temperature) for at in ranked]
    wanted = chat.top_p * sum(weights)
    sums = list(accumulate(weights))
    n_kept = 1 + sum(reached < wanted for reached in sums[:-1])
    return rng.choices(ranked[:n_kept], cum_weights=sums[:n_kept])[0]


@dataclass(frozen=True, slots=True)
class _Phrases:
    """What texts are made of: words by their slot, paragraphs by their section."""

    words: Mapping[str, tuple[str, ...]]
    paragraphs: Mapping[str, tuple[tuple[str, ...], ...]]


@cache
def _phrases(*, is_thai: bool) -> _Phrases:
    """Read the phrases of a language: [sections] of paragraphs of sentences."""
    name = "phrases_th.txt" if is_thai else "phrases_en.txt"
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    lines = (line.split(": ") for line in sections.pop("words").strip().splitlines())
    return _Phrases(
        words={slot: tuple(words.split(", ")) for slot, words in lines},
        paragraphs={
            section: tuple(
                # A list belongs to the sentence before it.
                tuple(re.split(r"\n(?!- )", paragraph))
                for paragraph in body.strip().split("\n\n")
            )
            for section, body in sections.items()
        },
    )


@dataclass(slots=True, kw_only=True)
class _Writer:
    """One reply; each `taste` prefers other words and paragraphs."""

    chat: ChatRequest
    rng: Random
    phrases: _Phrases
    taste: str
    seen: Counter[str] = field(default_factory=Counter)

    def tokens(self, style: Style, *, length: float, before: str) -> Iterator[str]:
        """Write whole sentences until the text is long enough, the first `before`."""
        paragraphs = [
            paragraph
            for section in style.sections
            for paragraph in self.phrases.paragraphs[section]
        ]
        firsts = [each[0] for each in paragraphs]
        n_tokens = 0
        while True:
            for sentence in paragraphs[self._draw(firsts, AGAIN_COST)]:
                text = before + _OPEN_WORD.sub(self._word, sentence)
                tokens = split_tokens(text)
                yield from tokens
                n_tokens += len(tokens)
                if n_tokens >= length:
                    return
                before = " "
            before = "\n\n"

    def _word(self, slot: "re.Match[str]") -> str:
        words = self.phrases.words[slot[1]]
        return words[self._draw(words)]

    def _draw(self, options: Sequence[str], again_cost: float = 0.0) -> int:
        scores = [
            penalised(self.chat, self._score(each), self.seen[each])
            - again_cost * self.seen[each]
            for each in options
        ]
        at = draw(self.chat, scores, self.rng)
        self.seen[options[at]] += 1
        return at

    def _score(self, text: str) -> float:
        """Score a text by the taste: the same in every run."""
        digest = hashlib.blake2b(f"{text}/{self.taste}".encode(), digest_size=4)
        return LOWEST + SPREAD * int.from_bytes(digest.digest()) / 2**32

"""How each model writes: which texts it learnt from and how long it talks.

What it is not: it samples nothing; `language` does.

Rules for this file: models differ so that people can see a comparison work; the
differences are this emulator's own and say nothing of the service's models.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from .ngram import Ngram, learn

SUBJECT = "{s}"

# English is cut into words with the blank before them, marks, and line breaks
# with what opens the next line; Thai is written without blanks between words, so
# its corpus marks the cuts with |.
_WORD = re.compile(
    r"\n+(?:- )?|[ ]?(?:\*{1,2})?\{s\}(?:\*{1,2})?|[ ]?\*\*|[ ]?[^\W_]+|[ ]?[^\w\s]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A manner of writing.

    Attributes:
        sections: The parts of the corpus it learnt from.
        shortest_tokens, longest_tokens: How long a reply usually is.
    """

    sections: tuple[str, ...]
    shortest_tokens: int
    longest_tokens: int


_PLAIN = Voice(sections=("plain",), shortest_tokens=60, longest_tokens=110)
VOICES: Mapping[str, Voice] = MappingProxyType(
    {
        "svc-instruct": Voice(
            sections=("plain", "terse", "long"), shortest_tokens=50, longest_tokens=100
        ),
        "svc-v1.5-instruct": _PLAIN,
        "svc-v1.5x-70b-instruct": Voice(
            sections=("long",), shortest_tokens=110, longest_tokens=190
        ),
        "svc-v2-8b-instruct": Voice(
            sections=("terse",), shortest_tokens=35, longest_tokens=80
        ),
        "svc-v2-70b-instruct": Voice(
            sections=("long", "plain"), shortest_tokens=140, longest_tokens=240
        ),
        "svc-v2.1-12b-instruct": Voice(
            sections=("plain", "terse"), shortest_tokens=70, longest_tokens=130
        ),
        "svc-v2.5-30b-a3b-instruct": Voice(
            sections=("terse", "long"), shortest_tokens=90, longest_tokens=160
        ),
    }
)


def voice_of(model: str) -> Voice:
    """Say how a model writes; models of the user's own write plainly."""
    return VOICES.get(model, _PLAIN)


@cache
def learnt(sections: Sequence[str], *, is_thai: bool) -> Ngram:
    """Build the language model of these sections, once."""
    texts = _corpus("corpus_th.txt" if is_thai else "corpus_en.txt")
    paragraphs = [
        paragraph
        for section in sections
        for paragraph in texts[section].strip().split("\n\n")
    ]
    return learn([_cut(each, is_thai=is_thai) for each in paragraphs])


def _cut(paragraph: str, *, is_thai: bool) -> list[str]:
    """Cut a paragraph of the corpus into tokens."""
    if not is_thai:
        return _WORD.findall(paragraph)
    return [token for token in re.split(r"\||(?=\n- )", paragraph) if token]


@cache
def _corpus(name: str) -> Mapping[str, str]:
    """Read a corpus: sections headed by [name]."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))

"""Prompts that ask for one of several words: which words, and which is picked.

What it is not: a judgement; the emulator understands nothing. It only lets a
classification be tried out: short replies, counted and compared.

Rules for this file: a word is picked by chance whose odds come from the prompt, so
that one prompt has a favourite, temperature 0 always takes it, and a higher
temperature takes others more often.
"""

import hashlib
import math
import re
from random import Random

from .sampling import Sampling, nucleus

# A prompt has to ask for a word, not only to mention an "or".
_ONE_WORD = re.compile(r"\b(?:one|single|only)[ -]word\b", re.IGNORECASE)
_ASKS = re.compile(
    rf"{_ONE_WORD.pattern}|\bone of\b|\byes or no\b|\bclassify\b|\b(?:reply|answer|"
    r"respond) (?:only )?with\b|คำเดียว|อย่างใดอย่างหนึ่ง",
    re.IGNORECASE,
)
_WORD = r"[^\W_][\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e-]*"
_OPTIONS = re.compile(
    rf"({_WORD}(?:\s*[,/]\s*{_WORD})*)\s*,?\s*(?:\bor\b|หรือ|/)\s*({_WORD})",
    re.IGNORECASE,
)
# How far apart the odds of two words are, as logarithms.
_SPREAD = 4.0
_MODEL_SPREAD = 1.5


def options_of(text: str) -> tuple[str, ...]:
    """Find the words that a prompt offers; empty if it asks for no single word."""
    if not _ASKS.search(text):
        return ()
    found = _OPTIONS.search(_ONE_WORD.sub(".", text))
    if found is None:
        return ()
    return (*re.split(r"\s*[,/]\s*", found[1]), found[2])


def pick(
    options: tuple[str, ...], about: str, *, model: str, by: Sampling, rng: Random
) -> str:
    """Pick one of the words.

    Args:
        options: The words, at least one.
        about: The prompt, which sets the odds.
        model: The model, which moves them a little, so that models disagree at times.
        by: The request's temperature and top_p; 0 takes the favourite.
        rng: Where chance comes from.
    """
    odds = [
        _SPREAD * _share(option, about) + _MODEL_SPREAD * _share(option, about, model)
        for option in options
    ]
    top = max(odds)
    if by.temperature == 0.0:
        return options[odds.index(top)]
    weights = [
        (math.exp((each - top) / by.temperature), at) for at, each in enumerate(odds)
    ]
    kept = {at: weight for weight, at in nucleus(weights, 0.0, by.top_p)[0]}
    return rng.choices(options, [kept.get(at, 0.0) for at in range(len(odds))])[0]


def _share(*texts: str) -> float:
    """Give texts a number in 0 to 1: the same in every run."""
    return hashlib.sha256("\n".join(texts).encode()).digest()[0] / 255.0

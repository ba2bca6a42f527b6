"""Mark the differences between the texts of replies, word by word."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from unicodedata import category

from svc_notebook.display.text_table import (
    ComparedText,
    DiffPart,
)

# the time that `SequenceMatcher` takes grows with the pairs of equal tokens
_MAX_EQUAL_PAIRS = 60_000
_MAX_EQUAL_PAIRS_IN_ALL = 1_000_000
_LEAST_RATIO = 0.3  # texts with less in common are not marked: marks would confuse
_JOINED = "\u0e33\u0eb3"  # SARA AM of Thai and Lao: belongs to the consonant before it
_SKIN = "\U0001f3fb-\U0001f3ff"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"


class Differences:
    """Marks differences between texts, until that would take too long."""

    def __init__(self) -> None:
        self._n_pairs_left = _MAX_EQUAL_PAIRS_IN_ALL

    def mark(
        self, fields: Sequence[Sequence[ComparedText]]
    ) -> list[list[ComparedText]]:
        """Mark in the replies of a row the differences from the first reply."""
        first = next((x for entries in fields for x in entries if _is_reply(x)), None)
        if first is None:
            return [list(entries) for entries in fields]
        return [[self._marked(first, entry) for entry in entries] for entries in fields]

    def _marked(self, first: ComparedText, entry: ComparedText) -> ComparedText:
        """Return a reply with its differences from the first one."""
        if not _is_reply(entry):
            return entry
        mark = ""
        parts: tuple[DiffPart, ...] = ()
        if entry is first:
            mark = "reference"
        elif entry.text == first.text:
            mark = "same"
        else:
            old, new = tokens(first.text), tokens(entry.text)
            n_pairs = _n_equal_pairs(old, new)
            self._n_pairs_left -= n_pairs
            if n_pairs > _MAX_EQUAL_PAIRS or self._n_pairs_left < 0:
                mark = "not compared: too long"
            elif not (parts := difference(old, new)):
                mark = "differs throughout"
        return replace(entry, parts=parts, marks=(*entry.marks, *filter(None, (mark,))))


def _is_reply(entry: ComparedText) -> bool:
    return bool(entry.text) and not {"failed", "refused"} & {*entry.marks}


def _n_equal_pairs(old: Sequence[str], new: Sequence[str]) -> int:
    counts = Counter(token.strip() for token in new)
    return sum(counts[token.strip()] for token in old)


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[DiffPart, ...]:
    """Return the parts of two texts that are gone, added or the same, by tokens.

    Spaces make no difference. () if the texts have little in common.
    """
    before, after = (
        [token.strip() for token in text_tokens] for text_tokens in (old, new)
    )
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    parts: list[DiffPart] = []
    for kind, from_old, to_old, from_new, to_new in matcher.get_opcodes():
        if kind != "equal" and to_old > from_old:
            parts.append(DiffPart("gone", "".join(old[from_old:to_old])))
        if to_new > from_new:
            text = "".join(new[from_new:to_new])
            parts.append(DiffPart("same" if kind == "equal" else "added", text))
    return tuple(parts) if matcher.ratio() >= _LEAST_RATIO else ()


def tokens(text: str) -> list[str]:
    """Split a text into words and signs, each with the spaces after it.

    Scripts without spaces between words, such as Thai, are split into characters as
    people see them (grapheme clusters).
    """
    return _token().findall(text)


@cache
def _token() -> re.Pattern[str]:
    marks = "".join(c for c in map(chr, range(0x10000)) if category(c)[0] == "M")
    with_marks = f"[{_JOINED}{_SKIN}{marks}]*"
    word = rf"(?:(?![{_UNSPACED}])[^\W_]{with_marks})+"
    cluster = rf".{with_marks}(?:\u200d.{with_marks})*"
    return re.compile(rf"(?:{word}|{cluster})\s*", re.DOTALL)

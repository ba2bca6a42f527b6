"""What differs between the texts of replies, word by word."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from unicodedata import category

from svc_notebook.display.comparison_table import (
    ComparedText,
    DiffPart,
)

_MAX_ALIKE = 60_000  # pairs of equal tokens in two texts; more take long
_LITTLE = 0.3  # a ratio; with less in common, marks only confuse
_JOINED = "\u0e33\u0eb3"  # SARA AM of Thai and Lao: belongs to the consonant before it
_SKIN = "\U0001f3fb-\U0001f3ff"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"


class Differences:
    """Marks what differs, as long as that takes no longer than a reader waits."""

    def __init__(self) -> None:
        self._n_alike_left = 1_000_000

    def mark(
        self, fields: Sequence[Sequence[ComparedText]]
    ) -> list[list[ComparedText]]:
        """Mark in the replies of a row what differs from the first one."""
        first = next((x for entries in fields for x in entries if _is_reply(x)), None)
        if first is None:
            return [list(entries) for entries in fields]
        return [
            [self._against(first, entry) for entry in entries] for entries in fields
        ]

    def _against(self, first: ComparedText, entry: ComparedText) -> ComparedText:
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
            n_alike = _n_alike(old, new)
            self._n_alike_left -= n_alike
            if n_alike > _MAX_ALIKE or self._n_alike_left < 0:
                mark = "not compared: too long"
            elif not (parts := difference(old, new)):
                mark = "differs throughout"
        return replace(entry, parts=parts, marks=(*entry.marks, *filter(None, (mark,))))


def _is_reply(entry: ComparedText) -> bool:
    return bool(entry.text) and not {"failed", "refused"} & {*entry.marks}


def _n_alike(old: Sequence[str], new: Sequence[str]) -> int:
    counts = Counter(token.strip() for token in new)
    return sum(counts[token.strip()] for token in old)


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[DiffPart, ...]:
    """Return what became of a text, by its tokens; () if little of it is left.

    Blanks make no difference.
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
    return tuple(parts) if matcher.ratio() >= _LITTLE else ()


def tokens(text: str) -> list[str]:
    """Split a text into words and signs, each with the blanks behind it.

    A script without blanks between words, such as Thai, is split into characters as
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

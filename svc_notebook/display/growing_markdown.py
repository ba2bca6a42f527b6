"""The Markdown of a reply while it grows: its finished blocks, and the open tail.

A tail that grows too long is cut where what follows is still drawn alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from unicodedata import category, combining

from markdown_it.token import Token

from .markdown import (
    block_tokens,
    is_closed_fence,
    to_html,
    token_lines,
    with_line_feeds,
)

_FINISHED_BY_A_BLANK = ("paragraph_open", "table_open", "blockquote_open", "math_block")
_IN_ITEM = 2  # the nesting level inside an item of a list
_ITEM = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])[ \t]+")
_SENTENCE_END = re.compile(r"[.!?…。]['\")\]]*\s+(?=\w)|\n(?=\w)")
_WORD_END = re.compile(r"\s+(?=\w)")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a reply that is drawn by itself."""

    source: str  # the reply's text, unchanged
    markdown: str  # what to draw: the source, after what it continues
    is_cut: bool = False  # whether what follows continues the same block


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of a reply that more text may still change."""

    source: str = ""  # the reply's text, unchanged
    opener: str = ""  # drawn before it: a fence's first line, or a table's head
    indent: int = 0  # blanks to leave out of each line, inside a list item

    @property
    def markdown(self) -> str:
        """What to draw."""
        is_inside = self.opener or self.source.lstrip("\n")[:1] == " "
        if not self.indent or not is_inside:
            return self.opener + self.source
        blanks = rf"^ {{1,{self.indent}}}"
        return self.opener + re.sub(blanks, "", self.source, flags=re.MULTILINE)

    def char_at_line(self, line: int) -> int:
        """Find where a line of `markdown` begins in `source`."""
        at = 0
        for _ in range(line - self.opener.count("\n")):
            at = self.source.find("\n", at) + 1
            if at == 0:
                return len(self.source)
        return at

    def after(
        self, at_char: int, opener: str = "", indent: int | None = None
    ) -> "Tail":
        """Leave out what was cut off."""
        indent_left = self.indent if indent is None else indent
        return Tail(self.source[at_char:], opener, indent_left)


def _top(tokens: Sequence[Token]) -> list[Token]:
    return [t for t in tokens if t.level == 0 and t.nesting >= 0 and t.map]


def finished_lines(markdown: str) -> int:
    """Count the lines from the start that no later line can change."""
    tops = _top(block_tokens(markdown))
    if not tops:
        return 0
    last = tops[-1]
    first, end = token_lines(last)
    n_lines = markdown.count("\n")
    is_finished = (
        last.type in ("heading_open", "hr")
        or (last.type == "fence" and is_closed_fence(last))
        or (last.type in _FINISHED_BY_A_BLANK and end < n_lines)
    )
    return n_lines if is_finished else first


# What joins the character before it, though Unicode does not call it a mark: vowels of
# Thai and Lao, signs of kana, Korean jamo, skin tones, flag tags, joiners.
_JOINS = re.compile(
    "[\u0e33\u0eb3\uff9e\uff9f\u1160-\u11ff\ud7b0-\ud7fb"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u200c\u200d]"
)
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")  # first and last; two of them are a flag
_ZWJ, _VIRAMA = "\u200d", 9  # both join what follows to what is before
# Unicode's limit for marks in a row (UAX 15, stream-safe text), and two more.
MAX_JOINED_CHARS = 32


def is_joined(text: str, at_char: int) -> bool:
    """Whether a cut here would part a letter from its marks, an emoji or a flag."""
    before, after = text[at_char - 1 : at_char], text[at_char : at_char + 1]
    if before in ("", "\n") or not after:
        return False
    if category(after)[0] == "M" or _JOINS.match(after):
        return True
    if before == _ZWJ or combining(before) == _VIRAMA:
        return True
    return _is_flag_letter(after) and _n_flag_letters(text, at_char) % 2 == 1


def _is_flag_letter(char: str) -> bool:
    first, last = _FLAG_LETTERS
    return first <= char <= last


def _n_flag_letters(text: str, at_char: int) -> int:
    """Count those just before a place."""
    before = takewhile(_is_flag_letter, (text[at] for at in range(at_char - 1, -1, -1)))
    return sum(1 for _ in before)


def _end_cut(text: str) -> int:
    """Find the last place where text may be cut, whatever character comes next.

    That is before the last character with its marks, since more marks may come; 0 if
    there is nothing before it.
    """
    if text.endswith("\n"):
        return len(text)
    earliest = len(text) - MAX_JOINED_CHARS
    for at_char in range(len(text) - 1, max(earliest, 0), -1):
        if not is_joined(text, at_char):
            return at_char
    return len(text) if earliest > 0 else 0


def _text_cut(tail: Tail, indent: int | None = None, opener: str = "") -> Tail:
    """Cut running text at the last good place in its latter half, if any."""
    text = tail.source
    for pattern in (_SENTENCE_END, _WORD_END):
        places = [m.end() for m in pattern.finditer(text, len(text) // 2)]
        if places:
            return tail.after(places[-1], opener, indent)
    return tail.after(_end_cut(text), opener, indent)


def _line_cut(tail: Tail, first: int, opener: str, indent: int | None = None) -> Tail:
    """Cut before the unfinished line, or within it if it is line `first`."""
    at_char = tail.source.rfind("\n") + 1
    if at_char <= tail.char_at_line(first):
        at_char = _end_cut(tail.source)
    return tail.after(at_char, opener, indent)


def _fence_cut(tail: Tail, fence: Token) -> Tail:
    """Cut a fence between lines; the rest becomes another fence."""
    first, _ = token_lines(fence)
    line = tail.markdown.split("\n", first + 1)[first]
    indent = tail.indent + line.find(fence.markup)
    return _line_cut(tail, first + 1, f"{fence.markup}{fence.info}\n", indent)


def _list_cut(tail: Tail, tokens: Sequence[Token]) -> Tail:
    """Cut a list before its last item, or within it if it is the only one."""
    tops = _top(tokens)
    start = max(
        token_lines(t)[0] for t in tokens if t.type == "list_item_open" and t.level == 1
    )
    if start > token_lines(tops[-1])[0]:
        return tail.after(tail.char_at_line(start))
    marker = _ITEM.match(tail.markdown.split("\n", start + 1)[start])
    indent = tail.indent + (marker.end() if marker else 0)
    child = max(
        (token_lines(t)[0] for t in tokens if t.level == _IN_ITEM and t.map), default=0
    )
    if child > start:
        return tail.after(tail.char_at_line(child), indent=indent)
    return _text_cut(tail, indent)


def _table_cut(tail: Tail, table: Token) -> Tail:
    """Cut a table between rows; what remains has the same head."""
    first, _ = token_lines(table)
    n_head = 2
    lines = tail.markdown.split("\n", first + n_head)
    head = "".join(f"{line}\n" for line in lines[first : first + n_head])
    return _line_cut(tail, first + n_head, head)


def shortened(tail: Tail) -> Tail:
    """Cut a tail that is too long; the rest keeps what it needs to be drawn alike."""
    tokens = block_tokens(tail.markdown)
    tops = _top(tokens)
    leaf = next((t for t in reversed(tokens) if t.nesting >= 0), None)
    if leaf and leaf.type == "fence" and not is_closed_fence(leaf):
        return _fence_cut(tail, leaf)
    kind = tops[-1].type if tops else ""
    if kind in ("bullet_list_open", "ordered_list_open"):
        return _list_cut(tail, tokens)
    if kind == "table_open":
        return _table_cut(tail, tops[-1])
    if kind == "code_block":
        return _line_cut(tail, token_lines(tops[-1])[0], "")
    return _text_cut(tail, opener="> " if kind == "blockquote_open" else "")


class Blocks:
    """Takes text and returns finished blocks; the rest is the tail.

    A tail of more bytes than `max_tail_bytes` is cut anyway, but never between a letter
    and its marks. In verbatim text, each line is a block.
    """

    def __init__(
        self, *, max_tail_bytes: int | None = None, is_verbatim: bool = False
    ) -> None:
        self._max_tail_bytes = max_tail_bytes
        self._is_verbatim = is_verbatim
        self._tail = Tail()
        self._is_new_line = False
        self._has_return = False

    @property
    def tail(self) -> Tail:
        """What `take` left over."""
        return self._tail

    def feed(self, text: str) -> None:
        """Add a piece of the reply, cut off anywhere; it may be empty."""
        if not text:
            return
        whole = "\r" * self._has_return + text
        self._has_return = whole.endswith("\r")
        whole = with_line_feeds(whole.removesuffix("\r"))
        self._is_new_line |= "\n" in whole
        self._tail = replace(self._tail, source=self._tail.source + whole)

    def take(self) -> tuple[Block, ...]:
        """Return the blocks that became finished since the last call, in order."""
        taken = []
        if self._is_new_line:
            self._is_new_line = False
            taken.append(self._cut_off(self._unfinished(), is_cut=False))
        limit = self._max_tail_bytes
        while limit is not None and len(self._tail.source.encode()) > limit:
            rest = shortened(self._tail)
            if rest.source == self._tail.source:
                break  # one character, with its marks
            taken.append(self._cut_off(rest, is_cut=True))
        return tuple(block for block in taken if block.source)

    def _unfinished(self) -> Tail:
        tail = self._tail
        n_chars = tail.source.rfind("\n") + 1
        if self._is_verbatim:
            return tail.after(n_chars)
        lines = replace(tail, source=tail.source[:n_chars])
        at_char = tail.char_at_line(finished_lines(lines.markdown))
        return tail.after(at_char) if at_char else tail

    def _cut_off(self, rest: Tail, *, is_cut: bool) -> Block:
        tail = self._tail
        self._tail = rest
        source = tail.source[: len(tail.source) - len(rest.source)]
        return Block(source, replace(tail, source=source).markdown, is_cut)


def block_html(block: Block, *, links: Mapping[str, object] | None = None) -> str:
    """Draw a finished block; `links` are addresses that other blocks have."""
    # Colours need the whole code: a part of it would be read as something else.
    is_whole = not block.is_cut and block.markdown == block.source
    html = to_html(block.markdown, highlight=is_whole, links=links)
    # A negative margin cancels the gap below a block that goes on.
    return f"<div style=margin-bottom:-1em>{html}</div>" if block.is_cut else html


def tail_html(tail: Tail) -> str:
    """Draw the unfinished text; without colours, which would change at each piece."""
    return to_html(tail.markdown, highlight=False) if tail.source.strip() else ""

"""Split the Markdown of a growing reply into finished blocks and an open tail.

A tail that grows too long is cut, at a place where the rest can still be drawn in the
same way.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING
from unicodedata import category, combining

from .markdown import (
    LISTS,
    block_tokens,
    is_closed_fence,
    to_html,
    token_lines,
    with_line_feeds,
)

if TYPE_CHECKING:  # the first text loads the parser
    from markdown_it.token import Token

_FINISHED_BY_A_BLANK = ("paragraph_open", "table_open", "blockquote_open", "math_block")
_MARKER = r"(?:[-+*]|\d{1,9}[.)])(?:[ \t]{1,4}(?=\S)|[ \t]|$)"
_MAX_FENCE_INDENT = 3  # spaces; with more it is an indented code block, not a fence
_SENTENCE_END = re.compile(r"[.!?…。]['\")\]]*\s+(?=\w)|\n(?=\w)")
_WORD_END = re.compile(r"\s+(?=\w)")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a reply that is drawn separately."""

    source: str  # the reply's text, unchanged
    markdown: str  # the Markdown to draw: lines that reopen lists and so on, the source
    is_cut: bool = False  # whether the next block continues this one
    n_opener_lines: int = 0  # how many lines of the Markdown only reopen something


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of a reply that more text may still change."""

    source: str = ""  # the reply's text, unchanged
    opener: str = ""  # Markdown before it, which reopens the list or block it continues

    @property
    def markdown(self) -> str:
        """The Markdown to draw."""
        return self.opener + self.source

    @property
    def n_opener_lines(self) -> int:
        """The number of whole lines of `markdown` before the reply's text."""
        return self.opener.count("\n")

    def char_at_line(self, line: int) -> int:
        """Return the position in `source` where a line of `markdown` begins."""
        position = 0
        for _ in range(line - self.n_opener_lines):
            position = self.source.find("\n", position) + 1
            if position == 0:
                return len(self.source)
        return position

    def after(self, at_char: int, opener: str = "") -> "Tail":
        """Return the tail from a position on, with another opener."""
        return Tail(self.source[at_char:], opener)


def _top(tokens: "Sequence[Token]") -> "list[Token]":
    return [t for t in tokens if t.level == 0 and t.nesting >= 0 and t.map]


def finished_lines(markdown: str) -> int:
    """Return how many lines from the start cannot be changed by later lines."""
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


# Characters that join the one before them, though Unicode does not call them marks:
# vowels of Thai and Lao, signs of kana, Korean jamo, skin tones, flag tags, joiners.
_JOINS = re.compile(
    "[\u0e33\u0eb3\uff9e\uff9f\u1160-\u11ff\ud7b0-\ud7fb"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u200c\u200d]"
)
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")  # first and last; two of them are a flag
_ZWJ, _VIRAMA = "\u200d", 9  # both join the next character to the previous one
# Unicode's limit for marks in a row (UAX 15, stream-safe text), and two more.
MAX_JOINED_CHARS = 32


def is_joined(text: str, at_char: int) -> bool:
    """Whether a cut here would split a letter from its marks, an emoji or a flag."""
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
    """Return how many flag letters come directly before a position."""
    backwards = (text[position] for position in range(at_char - 1, -1, -1))
    before = takewhile(_is_flag_letter, backwards)
    return sum(1 for _ in before)


def _end_cut(text: str) -> int:
    """Return the last position where text may be cut, whatever character comes next.

    That is before the last character and its marks, since more marks may follow; 0 if
    there is no other character.
    """
    if text.endswith("\n"):
        return len(text)
    earliest = len(text) - MAX_JOINED_CHARS
    for at_char in range(len(text) - 1, max(earliest, 0), -1):
        if not is_joined(text, at_char):
            return at_char
    return len(text) if earliest > 0 else 0


def _text_cut(tail: Tail, opener: str = "") -> Tail:
    """Cut running text after a sentence or a word in its second half, if any."""
    text = tail.source
    for pattern in (_SENTENCE_END, _WORD_END):
        places = [m.end() for m in pattern.finditer(text, len(text) // 2)]
        if places:
            return tail.after(places[-1], opener)
    return tail.after(_end_cut(text), opener)


def _line_cut(tail: Tail, first: int, opener: str, indent: str = "") -> Tail:
    """Cut before the unfinished line, or within it if it is the first line."""
    at_char = tail.source.rfind("\n") + 1
    if at_char > tail.char_at_line(first):
        return tail.after(at_char, opener)
    at_char = _end_cut(tail.source)
    is_within = not tail.source[:at_char].endswith("\n")
    return tail.after(at_char, opener + indent * is_within)


def _places(tokens: "Sequence[Token]") -> Iterator[tuple[int, tuple[int, ...]]]:
    """Return the first line of each block, and those of the list items around it.

    Blocks within anything other than lists are left out.
    """
    items: list[int] = []
    n_others = 0
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind in LISTS:
            continue
        line, _ = token_lines(token)
        if token.nesting >= 0 and not n_others:
            yield line, tuple(items)
        if kind != "list_item":
            n_others += token.nesting
        elif token.nesting > 0 and not n_others:
            items.append(line)
        elif not n_others:
            items.pop()


def _reopened(markdown: str, items: Sequence[int]) -> tuple[str, str]:
    """Return lines that open the same list items, and the indent of text in them.

    The items contain only a rule (`___`), so that any text can follow. Neither the rule
    nor the markers of these items are drawn.
    """
    lines = markdown.split("\n")
    opener = indent = ""
    for line in dict.fromkeys(items):
        markers = rf"[ \t]*(?:{_MARKER}){{{items.count(line)}}}"
        match = re.match(markers, lines[line])
        if match is None:
            break
        start = match[0] if match[0][-1].isspace() else f"{match[0]} "
        opener += f"{start}___\n"
        indent = re.sub(r"\S", " ", start)
    return opener, indent


def _fence_cut(tail: Tail, fence: "Token", items: Sequence[int]) -> Tail:
    """Cut a fenced code block between lines; the rest becomes another fenced block."""
    first, _ = token_lines(fence)
    line = tail.markdown.split("\n", first + 1)[first]
    opener, indent = _reopened(tail.markdown, items)
    n_more = line.find(fence.markup) - len(indent)
    indent += " " * min(n_more, _MAX_FENCE_INDENT)
    opener += f"{indent}{fence.markup}{fence.info}\n"
    return _line_cut(tail, first + 1, opener, indent)


def _list_cut(tail: Tail, places: Sequence[tuple[int, tuple[int, ...]]]) -> Tail:
    """Cut a list before its last block or item, or within it if it is the only one."""
    last, innermost = places[-1]
    if last > tail.n_opener_lines:
        items = next(items for line, items in places if line == last)
        opener, _ = _reopened(tail.markdown, items)
        return tail.after(tail.char_at_line(last), opener)
    opener, indent = _reopened(tail.markdown, innermost)
    rest = _text_cut(tail, opener)
    is_within = rest.source[:1].strip() != ""
    return replace(rest, opener=opener + indent * is_within)


def _table_cut(tail: Tail, table: "Token") -> Tail:
    """Cut a table between rows; what remains has the same head."""
    first, _ = token_lines(table)
    n_head = 2
    lines = tail.markdown.split("\n", first + n_head)
    head = "".join(f"{line}\n" for line in lines[first : first + n_head])
    return _line_cut(tail, first + n_head, head)


def shortened(tail: Tail) -> Tail:
    """Cut a tail that is too long; the rest reopens the block that was cut."""
    tokens = block_tokens(tail.markdown)
    tops = _top(tokens)
    places = tuple(_places(tokens))
    leaf = next((t for t in reversed(tokens) if t.nesting >= 0), None)
    if leaf and leaf.type == "fence" and not is_closed_fence(leaf):
        return _fence_cut(tail, leaf, places[-1][1])
    kind = tops[-1].type if tops else ""
    if kind in ("bullet_list_open", "ordered_list_open"):
        return _list_cut(tail, places)
    if kind == "table_open":
        return _table_cut(tail, tops[-1])
    if kind == "code_block":
        return _line_cut(tail, token_lines(tops[-1])[0], "")
    return _text_cut(tail, opener="> " if kind == "blockquote_open" else "")


class Blocks:
    """Takes text in pieces and returns finished blocks; the rest is the tail.

    A tail longer than `max_tail_bytes` is cut even within a block, but never between a
    letter and its marks. In verbatim text, each line is a block.
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
        """The text after the blocks that `take` returned."""
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
                break  # one character with its marks cannot be cut
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
        return Block(source, tail.opener + source, is_cut, tail.n_opener_lines)


def block_html(block: Block, *, links: Mapping[str, object] | None = None) -> str:
    """Return a finished block as HTML; `links` are addresses from other blocks."""
    # Code is coloured only as a whole: a lexer would misread a part of it.
    is_whole = not block.is_cut and block.markdown == block.source
    html = to_html(
        block.markdown,
        highlight=is_whole,
        links=links,
        n_opener_lines=block.n_opener_lines,
    )
    # A negative margin cancels the gap below a block that goes on.
    return f"<div style=margin-bottom:-1em>{html}</div>" if block.is_cut else html


def tail_html(tail: Tail) -> str:
    """Return the unfinished text as HTML, without colours that would keep changing."""
    if not tail.source.strip():
        return ""
    return to_html(tail.markdown, highlight=False, n_opener_lines=tail.n_opener_lines)

r"""The Markdown of replies: CommonMark, tables, strike-through and math.

Raw HTML is text, and so is a link that does not go to the web, to a mail address or
within the page. A block rule never looks ahead, so that closed blocks stay as they are
when more text comes. Math such as `$x^2$` or `\(..\)` reaches the host unchanged.
"""

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from markdown_it import MarkdownIt, helpers
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_LINK = re.compile(r"(?:https?://[^/\\]|mailto:|#)", re.IGNORECASE)
_CLOSERS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_MATHEMATICAL = re.compile(r"[\\^_=+<>{}]")
# Macros that make links, classes or ids, or that define others: hosts are
# meant to filter them, and a reply gains nothing by them.
_REFUSED = re.compile(
    r"\\(?:href|url|class|cssId|style|data|html\w*|mmlToken|require|unicode"
    r"|includegraphics|def|gdef|edef|let|newcommand|renewcommand|newenvironment"
    r"|csname|catcode|bbox|texttip|toggle|mathtip)(?![a-zA-Z])"
)
# Far above what people write. The parser leaves out what is nested deeper.
MAX_NESTING = 100
# An opener whose end is further away is text.
MAX_MATH_CHARS = 2000
# The parser reads to the end of a paragraph after each bracket that nothing closes, so
# that many such brackets would take minutes. Beyond this many characters, and as many
# again for each character of the text, they are text.
LABEL_CHARS = 100_000
LABEL_CHARS_PER_CHAR = 8
_LABEL_CHARS_LEFT = "label_chars_left"


def is_allowed_link(url: str) -> bool:
    """Whether a decoded link goes to http, https, mailto or within the page."""
    return _LINK.match(url) is not None


def is_math(content: str, opener: str, following: str) -> bool:
    """Whether text between two delimiters reads as math, not as money.

    Args:
        content: The text between the delimiters.
        opener: The delimiter before it.
        following: The character after the closing delimiter, or "".
    """
    if not content.strip() or _REFUSED.search(content):
        return False
    if opener == "\\[":
        return content[0].isspace() or _MATHEMATICAL.search(content) is not None
    if opener != "$":
        return True
    if content[0].isspace() or content[-1].isspace() or following.isalnum():
        return False
    return not content[0].isdigit() or _MATHEMATICAL.search(content) is not None


def _opener_at(text: str, position: int) -> str | None:
    """Name the math delimiter that begins here."""
    two = text[position : position + 2]
    if two in _CLOSERS:
        return two
    return "$" if two[:1] == "$" else None


def _inline_math(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    opener = _opener_at(state.src, state.pos)
    if opener is None:
        return False
    start = state.pos + len(opener)
    last = min(state.posMax, start + MAX_MATH_CHARS)
    end = state.src.find(_CLOSERS[opener], start, last)
    if end < 0:
        return False
    after = end + len(opener)
    if not is_math(state.src[start:end], opener, state.src[after : after + 1]):
        return False
    if not silent:
        state.push("math", "", 0).content = state.src[state.pos : after]
    state.pos = after
    return True


def _line(state: StateBlock, number: int) -> str:
    start = state.bMarks[number] + state.tShift[number]
    return state.src[start : state.eMarks[number]].rstrip()


def _block_math(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    text = _line(state, first)
    opener = text[:2]
    if state.is_code_block(first) or opener not in ("$$", "\\["):
        return False
    closer = _CLOSERS[opener]
    rest = text[2:]
    is_closed = len(rest) >= len(closer) and rest.endswith(closer)
    if closer in (rest.removesuffix(closer) if is_closed else rest):
        return False  # a sentence that begins with math
    if silent:
        return True
    lines, number = [text], first + 1
    while not is_closed and number < last:
        text = _line(state, number)
        if not text or state.sCount[number] < state.blkIndent:
            break
        lines.append(text)
        is_closed = text.endswith(closer)
        number += 1
    token = state.push("math_block", "", 0)
    token.content, token.markup = "\n".join(lines), opener
    token.map = [first, number]
    token.info = "closed" if is_closed else ""
    state.line = number
    return True


def reading_bounds(text: str) -> MutableMapping[str, Any]:
    """Return the environment for one parse: it bounds the search for link ends."""
    return {_LABEL_CHARS_LEFT: LABEL_CHARS + LABEL_CHARS_PER_CHAR * len(text)}


def _label_end(state: StateInline, start: int, disableNested: bool = False) -> int:  # noqa: FBT001, FBT002, N803 - the parser's signature
    """Find the end of a link's text, or give up: then the bracket is text."""
    left = state.env.get(_LABEL_CHARS_LEFT, LABEL_CHARS)
    if left <= 0:
        return -1
    # Taken before the search, which comes back here for brackets within.
    state.env[_LABEL_CHARS_LEFT] = left - (state.posMax - start)
    end = helpers.parseLinkLabel(state, start, disableNested)
    if end >= 0:
        state.env[_LABEL_CHARS_LEFT] += state.posMax - end
    return end


def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "maxNesting": MAX_NESTING}
    ).enable(["table", "strikethrough"])
    parser.validateLink = is_allowed_link  # type: ignore[method-assign]  # the library's own way to set it
    parser.helpers = SimpleNamespace(  # type: ignore[assignment]  # the library's own way to change one
        parseLinkDestination=helpers.parseLinkDestination,
        parseLinkLabel=_label_end,
        parseLinkTitle=helpers.parseLinkTitle,
    )
    parser.inline.ruler.before("escape", "math", _inline_math)
    parser.block.ruler.before(
        "fence",
        "math_block",
        _block_math,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    return parser


PARSER = _parser()


def block_tokens(markdown: str) -> Sequence[Token]:
    """Parse the blocks of a text but not their inline content, which is cheap."""
    tokens: list[Token] = []
    whole = markdown if markdown.endswith("\n") else f"{markdown}\n"
    PARSER.block.parse(whole.replace("\0", "\ufffd"), PARSER, {}, tokens)
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A fenced block of code.

    Attributes:
        language: The first word after the opening fence, in small letters, or "".
        code: Its content; ends in a line feed unless it is empty.
        is_closed: Whether the closing fence was found.
    """

    language: str
    code: str
    is_closed: bool


def fences(markdown: str) -> tuple[Fence, ...]:
    """Find the fenced blocks of a text, in order."""
    source = markdown.replace("\r\n", "\n").replace("\r", "\n")
    return tuple(
        Fence(
            language=(token.info.split() or [""])[0].lower(),
            code=token.content,
            is_closed=is_closed_fence(token),
        )
        for token in block_tokens(source)
        if token.type == "fence"
    )


def is_closed_fence(token: Token) -> bool:
    """Whether a fence has its closing line, from its number of lines."""
    first, last = token.map or (0, 0)
    return last - first == token.content.count("\n") + 2

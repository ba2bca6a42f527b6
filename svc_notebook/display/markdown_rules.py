"""Our rules for the Markdown parser, and for the HTML of what it found.

A block rule never looks ahead, so that closed blocks do not change when more text
comes. Math between dollars, between backslashes with brackets, or in an environment
such as `align` reaches the host unchanged. Text that a model wrote reaches HTML only
through `to_text` or `to_spans`. `markdown` alone uses this module, and loads it at
first use.
"""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from html import escape
from types import SimpleNamespace
from typing import Any

from markdown_it import MarkdownIt, helpers
from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from .cell_language import cell_magic
from .code_colours import MAX_COLOURED_CHARS, to_spans
from .escape import to_text, visible, without_blank_lines

# a wide formula scrolls, and does not run out of the cell
_SCROLLS = "style=overflow-x:auto;overflow-y:hidden"
_DISPLAY = f"{_SCROLLS};display:block"
# Within a box that scrolls, the margins of a typeset formula add to those around it.
_NEARER = "style=margin-top:-.5em;margin-bottom:0"
_CLOSERS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
# Within a formula, a dollar behind a backslash is shown.
_CLOSING_DOLLAR = re.compile(r"(?<!\\)(?:\\\\)*\$")
# Those that stand for a whole formula, which hosts typeset without dollars around.
_ENVIRONMENT = re.compile(
    r"\\begin(\{(?:align|alignat|eqnarray|equation|flalign|gather|multline)\*?\})"
)
_MATHEMATICAL = re.compile(r"[\\^_=+<>{}]")
_AMOUNT = re.compile(r"\.?\d")
# The signs are those of minus, times, division and so on. Numbers are such as
# 0.72, 1,000, 50%, 2n, 5!, 3/4 or 10-20, but not "5/", "5, or 6" or "5k-6k".
_NUMBER = r"\.?\d+(?:[.,]\d+)*%?"
_SIGN = r"(?:, | ?[-\u2013\u2212*/:\u00d7\u00b7\u00f7\u00b1] ?)"
_NUMBERS = re.compile(rf"{_NUMBER}(?:[a-zA-Z!]|(?:{_SIGN}{_NUMBER})*)")
_FACTOR = re.compile(r"[\\^_a-zA-Z]")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)(?![a-zA-Z])")
# In TeX, what follows a bare percent sign is a comment, and is not shown.
_PERCENT = re.compile(r"(?<=\d)%")
# A label shows nothing, but the second one of a name on a page is an error to the host,
# as when a reply is drawn again.
_MATH_LABEL = re.compile(r"(?<!\\)\\label\{[^{}]*\}")
# It stays on the line of a formula: browsers may break the line between them.
_PUNCTUATION = re.compile(r"[-.,:;!?%)\]}'\"\u2019\u201d\u2026\u3001\u3002\uff0c]{1,3}")
_UNBROKEN = "style=white-space:nowrap"
# Macros that make links, classes or ids, or that define other macros. Hosts should
# filter them, but replies do not need them, so they are not rendered at all.
_REFUSED = re.compile(
    r"\\(?:href|url|class|cssId|style|data|html\w*|mmlToken|require|unicode"
    r"|includegraphics|def|gdef|edef|let|newcommand|renewcommand|newenvironment"
    r"|csname|catcode|bbox|texttip|toggle|mathtip)(?![a-zA-Z])"
)
# Much more than people write. The parser leaves out anything that is nested deeper.
MAX_NESTING = 100
# A math delimiter whose closing one is further away is text.
MAX_MATH_CHARS = 2000


def is_math(content: str, opener: str, before: str = "", after: str = "") -> bool:
    """Whether the content of two delimiters reads as math, not as money.

    `before` and `after` are the text around the delimiters, or at least the last
    character of the one and the first three of the other.
    """
    if not content.strip() or _REFUSED.search(content):
        return False
    if opener == "\\[":
        return content[0].isspace() or _MATHEMATICAL.search(content) is not None
    if opener != "$":
        return True
    if content[0].isspace() or content[-1].isspace() or _is_word(after):
        return False
    if _AMOUNT.match(content):  # $5 or 10$
        unpriced = content.replace("\\$", "")
        return bool(_MATHEMATICAL.search(unpriced) or _NUMBERS.fullmatch(content))
    is_after_a_number = before[-1:].isdigit()  # 5$-10$, but also 5$\sigma$ and 2$x$
    return not is_after_a_number or _FACTOR.match(content) is not None


def _is_word(after: str) -> bool:
    """Whether a word or a number follows a dollar, which is then a price or a name.

    Thai, Chinese or Japanese often follows a formula without a space, and so do the
    last letters of an ordinal: the $n$th.
    """
    if not after[:1].isascii():
        return after[:1].isdigit()
    return after[:1].isalnum() and not _ORDINAL.match(after)


def _delimiters_at(text: str, position: int = 0) -> tuple[str, str]:
    """Return the math delimiter that begins here, and its closing one; "" if none."""
    two = text[position : position + 2]
    opener = two if two in _CLOSERS else two[:1]
    if opener in _CLOSERS:
        return opener, _CLOSERS[opener]
    environment = _ENVIRONMENT.match(text, position)
    return (environment[0], f"\\end{environment[1]}") if environment else ("", "")


def _closer_at(text: str, closer: str, start: int, last: int) -> int:
    """Return the position of a closing delimiter; -1 if there is none."""
    if closer != "$":
        return text.find(closer, start, last)
    match = _CLOSING_DOLLAR.search(text, start, last)
    return match.end() - 1 if match else -1


def _inline_math(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    opener, closer = _delimiters_at(state.src, state.pos)
    if not opener:
        return False
    start = state.pos + len(opener)
    last = min(state.posMax, start + MAX_MATH_CHARS)
    end = _closer_at(state.src, closer, start, last)
    if end < 0:
        return False
    after = end + len(closer)
    before, following = state.src[: state.pos][-1:], state.src[after : after + 3]
    if not is_math(state.src[start:end], opener, before, following):
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
    opener, closer = _delimiters_at(text)
    if state.is_code_block(first) or not _is_display(opener):
        return False
    rest = text[len(opener) :]
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
        is_closed = closer in text
        number += 1
    state.line = number
    has_words_behind = is_closed and not text.endswith(closer)
    if has_words_behind:
        state.push("paragraph_open", "p", 1).map = [first, number]
    token = state.push("inline" if has_words_behind else "math_block", "", 0)
    token.content, token.markup = "\n".join(lines), opener
    token.map, token.children = [first, number], []
    token.info = closer if is_closed else ""
    if has_words_behind:
        state.push("paragraph_close", "p", -1)
    return True


_BAR = re.compile(r"(?<!\\)\|")
_KEPT_BAR = "\0"  # the parser has replaced any other


@lru_cache(maxsize=1)  # the tables of a text follow one another
def _bars_kept(text: str) -> str:
    """Replace the bars within formulas such as `$|r|$` by marks of the same length."""
    return "\n".join(
        _bars_kept_in_line(line) if "$" in line and "|" in line else line
        for line in text.split("\n")
    )


def _bars_kept_in_line(line: str) -> str:
    pieces = line.split("$")
    at = 1
    while at < len(pieces) - 1:
        is_formula = _is_formula(*pieces[at - 1 : at + 2])
        if is_formula:
            pieces[at] = _BAR.sub(_KEPT_BAR, pieces[at])
        at += 1 + is_formula
    return "$".join(pieces)


def _is_formula(before: str, content: str, following: str) -> bool:
    """Whether the text between two dollars is a formula, in a row of a table.

    A dollar between two bars is a cell, such as one of currencies.
    """
    is_cell = before.endswith("|") and content.startswith("|")
    is_cell |= content.endswith("|") and following.startswith("|")
    is_near = len(content) < MAX_MATH_CHARS
    is_open = is_near and not is_cell and not before.endswith("\\")
    return is_open and is_math(content, "$", before, following)


def _table(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    """Read a table whose formulas may have bars, which end no cell."""
    source, n_before = state.src, len(state.tokens)
    if "$" not in source:
        return table(state, first, last, silent)
    state.src = _bars_kept(source)
    is_table = table(state, first, last, silent)
    state.src = source
    for token in state.tokens[n_before:]:
        token.content = token.content.replace(_KEPT_BAR, "|")
    return is_table


_LINK = re.compile(r"(?:https?://[^/\\]|mailto:|#)", re.IGNORECASE)
# For each bracket that is not closed, the parser reads to the end of the paragraph, so
# many such brackets would take minutes. Once it has read LABEL_CHARS, plus
# LABEL_CHARS_PER_CHAR for each character of the text, further brackets are text.
LABEL_CHARS = 100_000
LABEL_CHARS_PER_CHAR = 8
_LABEL_CHARS_LEFT = "label_chars_left"


def _is_allowed_link(url: str) -> bool:
    """Whether a decoded link goes to http, https, mailto or within the page."""
    return _LINK.match(url) is not None


def _reading_bounds(text: str) -> MutableMapping[str, Any]:
    """Return the environment for one parse, which limits the search for link ends."""
    return {_LABEL_CHARS_LEFT: LABEL_CHARS + LABEL_CHARS_PER_CHAR * len(text)}


def _label_end(state: StateInline, start: int, disableNested: bool = False) -> int:  # noqa: FBT001, FBT002, N803 - the parser's signature
    """Return the end of a link's text; -1 if there is none: the bracket is text."""
    left = state.env.get(_LABEL_CHARS_LEFT, LABEL_CHARS)
    if left <= 0:
        return -1
    # Subtracted before the search, which calls this function for inner brackets.
    state.env[_LABEL_CHARS_LEFT] = left - (state.posMax - start)
    end = helpers.parseLinkLabel(state, start, disableNested)
    if end >= 0:
        state.env[_LABEL_CHARS_LEFT] += state.posMax - end
    return end


_NEW_TAB = ' rel="noopener noreferrer" target=_blank'


def _link_tag(url: str) -> str:
    """Return the opening tag of a link; a link to another page opens in a new tab."""
    new_tab = "" if url.startswith("#") else _NEW_TAB
    return f'<a href="{escape(visible(url))}"{new_tab}>'


def _image_link(url: str, label: str, *, is_in_link: bool) -> str:
    """Return a link to a picture; its label is already escaped.

    The picture itself is not shown, since loading it would reveal the reader's address.
    """
    if is_in_link or not _is_allowed_link(url):
        return label
    return f"{_link_tag(url)}{label}</a>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "maxNesting": MAX_NESTING}
    ).enable(["table", "strikethrough"])
    parser.validateLink = _is_allowed_link  # type: ignore[method-assign]  # the library's own way to set it
    parser.helpers = SimpleNamespace(  # type: ignore[assignment]  # the library's own way to change one
        parseLinkDestination=helpers.parseLinkDestination,
        parseLinkLabel=_label_end,
        parseLinkTitle=helpers.parseLinkTitle,
    )
    parser.inline.ruler.before("escape", "math", _inline_math)
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before(
        "fence",
        "math_block",
        _block_math,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    return parser


PARSER = _parser()


# Short, since it is sent up to 20 times a second while a code block streams.
_PRE = (
    "<div class=highlight{mark} style=margin-bottom:1em>"
    "<pre style=padding:.6em;overflow:auto;background:#8881>"
    "<code style=background:none;white-space:pre>"
)
_PRE_END = "</code></pre></div>\n"
_N_LINKS_OPEN, _N_CHARS_TO_COLOUR = "n_links_open", "n_chars_to_colour"


# Code that is not Python is marked: a cell of it needs a magic, or cannot be.
_NO_CELL = ' data-no-cell=""'


def _code(code: str, language: str, *, is_coloured: bool = True) -> str:
    spans = to_spans(visible(code), language if is_coloured else "")
    magic = cell_magic(language)
    mark = _NO_CELL if magic is None else magic and f" data-magic={magic}"
    return f"{_PRE.format(mark=mark)}{without_blank_lines(spans)}{_PRE_END}"


def _is_display(formula: str) -> bool:
    return formula.startswith(("$$", "\\[", "\\begin"))


def _punctuation_behind_math(tokens: Sequence[Token], idx: int) -> str:
    """Return the first punctuation of a text that follows a formula within its line."""
    if not 0 < idx < len(tokens) or tokens[idx].type != "text":
        return ""
    before = tokens[idx - 1]
    if before.type != "math" or _is_display(before.content):
        return ""
    match = _PUNCTUATION.match(tokens[idx].content)
    return match[0] if match else ""


class _SafeRenderer(RendererHTML):
    """HTML from tokens; every rule that writes a reply's text is defined here."""

    def text(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        content = tokens[idx].content
        return to_text(content[len(_punctuation_behind_math(tokens, idx)) :])

    def softbreak(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        # Letters, addresses and poems are written with single line breaks.
        beside = tokens[max(idx - 1, 0) : idx + 2]
        is_formula = any(
            token.type == "math" and _is_display(token.content) for token in beside
        )
        return "\n" if is_formula else "<br>\n"

    def paragraph_open(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        children = tokens[idx + 1].children or ()
        has_inline = any(child.type == "math" for child in children)
        if has_inline and not tokens[idx].hidden:
            return f"<p {_SCROLLS}>"
        return self.renderToken(tokens, idx, options, env)

    def math(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        content = _MATH_LABEL.sub("", _PERCENT.sub(r"\\%", tokens[idx].content))
        html = escape(visible(content), quote=False)
        if _is_display(content):
            return f"<span {_DISPLAY}>{html}</span>"
        end = to_text(_punctuation_behind_math(tokens, idx + 1))
        return f"<span {_UNBROKEN}>{html}{end}</span>" if end else html

    def math_block(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        token = tokens[idx]
        content = token.content.removeprefix(token.markup).removesuffix(token.info)
        is_whole = token.info and is_math(content, token.markup)
        if not is_whole:
            return f"<p>{self.text(tokens, idx)}</p>\n"
        return f"<p {_NEARER}>{self.math(tokens, idx)}</p>\n"

    def code_inline(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return f"<code>{escape(visible(tokens[idx].content), quote=False)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return _code(tokens[idx].content, "")

    def fence(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options
        code = tokens[idx].content
        info = unescapeAll(tokens[idx].info).split(maxsplit=1)
        n_chars_left = env[_N_CHARS_TO_COLOUR] - len(code)
        language = info[0] if info else ""
        if not language or n_chars_left < 0:
            return _code(code, language, is_coloured=False)
        env[_N_CHARS_TO_COLOUR] = n_chars_left
        return _code(code, language)

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options
        env[_N_LINKS_OPEN] = env.get(_N_LINKS_OPEN, 0) + 1
        return _link_tag(str(tokens[idx].attrs.get("href", "")))

    def link_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del tokens, idx, options
        env[_N_LINKS_OPEN] -= 1
        return "</a>"

    def image(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        token = tokens[idx]
        alt = self.renderInlineAsText(token.children, options, env)
        url = str(token.attrs.get("src", ""))
        label = to_text(alt or url or "image")
        return _image_link(url, label, is_in_link=bool(env.get(_N_LINKS_OPEN)))

    def heading_open(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        # JupyterLab's outline then keeps to the notebook's own headings.
        return f'<{tokens[idx].tag} class="jp-toc-ignore">'

    def table_open(self, *_: object) -> str:
        return "<div style=overflow-x:auto><table>\n"

    def table_close(self, *_: object) -> str:
        return "</table></div>\n"

    def td_open(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        # Notebook hosts align cells of an HTML output to the right.
        style = str(tokens[idx].attrs.get("style", "text-align:left"))
        return f"<{tokens[idx].tag} style={style}>"

    th_open = td_open

    def td_close(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        # Without a line break, which would cost two bytes for each cell.
        return f"</{tokens[idx].tag}>"

    th_close = tr_close = td_close

    def tr_open(self, *_: object) -> str:
        return "<tr>"


_RENDERER = _SafeRenderer(PARSER)


def parse(
    source: str, links: Mapping[str, object] | None = None
) -> tuple[Sequence[Token], EnvType]:
    """Parse a whole text; return its tokens, and the environment to render them in."""
    env: EnvType = _reading_bounds(source)
    env["references"] = dict(links or {})
    return PARSER.parse(source, env), env


def render(tokens: Sequence[Token], env: EnvType, *, highlight: bool) -> str:
    """Return the HTML of parsed tokens; `highlight` says whether code is coloured."""
    env[_N_CHARS_TO_COLOUR] = MAX_COLOURED_CHARS if highlight else 0
    return _RENDERER.render(tokens, PARSER.options, env)

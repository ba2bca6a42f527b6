"""Markdown made safe: the only place that turns a reply into HTML.

What it is not: it shows nothing and knows no notebook; it answers strings.

Rules for this file: text that a model wrote reaches HTML through `to_text` or
`to_spans` and in no other way; the tags and attributes written here are all
there are; pictures are links, since fetching one tells its address to someone; what
a text costs grows with its length, whatever the text (`dialect`, `colours`).
"""

from collections.abc import Sequence
from html import escape
from typing import ClassVar

from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from .characters import to_terminal, visible
from .colours import MAX_COLOURED_CHARS, to_spans
from .dialect import (
    MAX_NESTING,
    PARSER,
    is_allowed_link,
    is_math,
    reading_bounds,
)

__all__ = ["to_html", "to_terminal", "to_text"]

# Short, since the open end of a long code block repeats it 20 times a second.
_PRE = (
    "<div class=highlight style=margin-bottom:1em>"
    "<pre style=padding:.6em;overflow:auto;white-space:pre;"
    "background:var(--jp-cell-editor-background,#8881)>"
)
_PRE_END = "</pre></div>\n"
_AWAY = ' rel="noopener noreferrer" target=_blank'
# Two and more times what a reply can be; what is longer is shown as written.
MAX_MARKDOWN_CHARS = 150_000
_N_LINKS_OPEN, _N_COLOURED_CHARS = "n_links_open", "n_coloured_chars"
# Hosts typeset a string between delimiters unless a tag comes between: so a
# dollar or a backslash that is not math stands in an element of its own.
_NOT_MATH = str.maketrans({"$": "<span>$</span>", "\\": "<span>\\</span>"})


def to_text(text: str) -> str:
    """Escape text for HTML so that it is read as it stands.

    Args:
        text: Anything.

    Returns:
        HTML in which no character acts and no math is typeset.
    """
    return escape(visible(text), quote=False).translate(_NOT_MATH)


def _code(code: str, language: str) -> str:
    return f"{_PRE}{to_spans(visible(code), language)}{_PRE_END}"


class _SafeRenderer(RendererHTML):
    """HTML from tokens; every rule that carries a reply's text is its own."""

    is_coloured: ClassVar[bool] = True

    def text(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options, env
        return to_text(tokens[idx].content)

    def math(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options, env
        return escape(visible(tokens[idx].content), quote=False)

    def math_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        token = tokens[idx]
        is_whole = token.info and is_math(token.content[2:-2], token.markup, "")
        if is_whole:
            return f"<p>{self.math(tokens, idx, options, env)}</p>\n"
        return f"<p>{to_text(token.content)}</p>\n"

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options, env
        return f"<code>{escape(visible(tokens[idx].content), quote=False)}</code>"

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options, env
        return _code(tokens[idx].content, "")

    def fence(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options
        code = tokens[idx].content
        words = unescapeAll(tokens[idx].info).split(maxsplit=1)
        language = words[0] if words and self.is_coloured else ""
        n_chars = env.get(_N_COLOURED_CHARS, 0) + len(code)
        if not language or n_chars > MAX_COLOURED_CHARS:
            return _code(code, "")
        env[_N_COLOURED_CHARS] = n_chars
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
        if env.get(_N_LINKS_OPEN) or not is_allowed_link(url):
            return label
        return f"{_link_tag(url)}{label}</a>"

    def table_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del tokens, idx, options, env
        return "<div style=overflow-x:auto><table>\n"

    def table_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del tokens, idx, options, env
        return "</table></div>\n"

    def td_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options, env
        # Notebook hosts align cells of an HTML output to the right.
        style = str(tokens[idx].attrs.get("style", "text-align:left"))
        return f"<{tokens[idx].tag} style={style}>"

    th_open = td_open


class _PlainRenderer(_SafeRenderer):
    """The same without colours in code, for text that is still growing."""

    is_coloured: ClassVar[bool] = False


def _link_tag(url: str) -> str:
    away = "" if url.startswith("#") else _AWAY
    return f'<a href="{escape(visible(url))}"{away}>'


def _as_written(source: str) -> str:
    return f"<pre style=white-space:pre-wrap>{to_text(source)}</pre>"


_COLOURED = _SafeRenderer(PARSER)
_PLAIN = _PlainRenderer(PARSER)


def to_html(markdown: str, *, highlight: bool = True) -> str:
    """Turn Markdown of unknown origin into HTML that is safe to show.

    Raw HTML is text, links lead only to http, https, mailto or within the
    page, pictures are links, and math between dollars is left to the host.

    Args:
        markdown: The source; any characters, lone surrogates included.
        highlight: Whether code in fences gets the classes of Pygments.

    Returns:
        HTML with inline styles only; empty for an empty text. Text nested
        deeper than the parser goes, or far longer than a reply, is shown as it
        was written.
    """
    source = markdown.replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > MAX_MARKDOWN_CHARS:
        return _as_written(source)
    env: EnvType = reading_bounds(source)
    tokens = PARSER.parse(visible(source), env)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return _as_written(source)
    renderer = _COLOURED if highlight else _PLAIN
    return renderer.render(tokens, PARSER.options, env)

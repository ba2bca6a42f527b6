"""Markdown made safe: the only place that turns the Markdown of a reply into HTML.

Text that a model wrote reaches HTML through `to_text` or `to_spans` only.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape

from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from .code_colours import MAX_COLOURED_CHARS, to_spans
from .escape import to_text, visible, without_blank_lines
from .links_and_images import image_link, link_tag, reading_bounds
from .markdown_parser import MAX_NESTING, PARSER, Block, Tail, is_math, with_line_feeds

# Short, since the open end of a long code block repeats it 20 times a second.
_PRE = (
    "<div class=highlight style=margin-bottom:1em>"
    "<pre style=padding:.6em;overflow:auto;white-space:pre;"
    "background:var(--jp-cell-editor-background,#8881)><code style=background:none>"
)
_PRE_END = "</code></pre></div>\n"
# Two and more times what a reply can be; what is longer is shown as written.
MAX_MARKDOWN_CHARS = 150_000
_N_LINKS_OPEN, _N_CHARS_TO_COLOUR = "n_links_open", "n_chars_to_colour"


def _code(code: str, language: str) -> str:
    spans = without_blank_lines(to_spans(visible(code), language))
    return f"{_PRE}{spans}{_PRE_END}"


class _SafeRenderer(RendererHTML):
    """HTML from tokens; every rule that writes a reply's text is defined here."""

    def text(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return to_text(tokens[idx].content)

    def math(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return escape(visible(tokens[idx].content), quote=False)

    def math_block(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        token = tokens[idx]
        is_whole = token.info and is_math(token.content[2:-2], token.markup, "")
        draw = self.math if is_whole else self.text
        return f"<p>{draw(tokens, idx)}</p>\n"

    def code_inline(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return f"<code>{escape(visible(tokens[idx].content), quote=False)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return _code(tokens[idx].content, "")

    def fence(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options
        code = tokens[idx].content
        words = unescapeAll(tokens[idx].info).split(maxsplit=1)
        n_chars_left = env[_N_CHARS_TO_COLOUR] - len(code)
        if not words or n_chars_left < 0:
            return _code(code, "")
        env[_N_CHARS_TO_COLOUR] = n_chars_left
        return _code(code, words[0])

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        del options
        env[_N_LINKS_OPEN] = env.get(_N_LINKS_OPEN, 0) + 1
        return link_tag(str(tokens[idx].attrs.get("href", "")))

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
        return image_link(url, label, is_in_link=bool(env.get(_N_LINKS_OPEN)))

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
        # Without a line break, which costs two bytes: a long table has many cells.
        return f"</{tokens[idx].tag}>"

    th_close = tr_close = td_close

    def tr_open(self, *_: object) -> str:
        return "<tr>"


def _as_written(source: str) -> str:
    return f"<pre style=white-space:pre-wrap><code>{to_text(source)}</code></pre>"


_RENDERER = _SafeRenderer(PARSER)


def to_html(
    markdown: str, *, highlight: bool = True, links: Mapping[str, object] | None = None
) -> str:
    """Turn Markdown of unknown origin into HTML that is safe to show.

    Raw HTML is text, links lead only to http, https, mailto or within the page,
    pictures are links, and math between dollars is left to the host. What is nested
    deeper than the parser goes, or far longer than a reply, is shown as written.
    `links` are addresses that are written elsewhere (`markdown.link_addresses`).
    """
    source = with_line_feeds(markdown)
    if len(source) > MAX_MARKDOWN_CHARS:
        return _as_written(source)
    env: EnvType = reading_bounds(source)
    env["references"] = dict(links or {})
    tokens = PARSER.parse(visible(source), env)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return _as_written(source)
    env[_N_CHARS_TO_COLOUR] = MAX_COLOURED_CHARS if highlight else 0
    return _RENDERER.render(tokens, PARSER.options, env)


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


@lru_cache(maxsize=1024)
def reply_html(text: str) -> str:
    """Render a reply; a growing transcript renders each reply only once."""
    return to_html(text)

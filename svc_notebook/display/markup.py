"""Markdown made safe: the only place that turns a reply into HTML.

Text that a model wrote reaches HTML through `to_text` or `to_spans` only. Pictures are
links, since fetching one reveals the reader's address.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from itertools import groupby

from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments.lexer import Lexer  # type: ignore[import-untyped]  # ships no types
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # ships no types
from pygments.token import STANDARD_TYPES, _TokenType  # type: ignore[import-untyped]  # ships no types
from pygments.token import Token as Kind
from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # ships no types

from .markdown import (
    MAX_NESTING,
    PARSER,
    Block,
    Tail,
    is_allowed_link,
    is_math,
    reading_bounds,
    with_line_feeds,
)

# Some lexers take long over hostile text; in longer code, colours help no reader.
MAX_CODE_CHARS = 10_000
# In all code of one reply.
MAX_COLOURED_CHARS = 30_000
# Measured with some hundred hostile texts of `MAX_CODE_CHARS` and ordinary shape:
# at most 0.3 s each. Perl, reStructuredText and Markdown failed; what can hold any
# language within it, such as HTTP, IPython and PostgreSQL, is as slow.
LANGUAGES = frozenset(
    (
        *("python", "pycon", "json", "yaml", "toml", "ini", "bash"),
        *("console", "powershell", "batch", "sql", "mysql", "sqlite3"),
        *("html", "xml", "css", "scss", "less", "javascript", "typescript", "jsx"),
        *("tsx", "java", "kotlin", "c", "cpp", "csharp", "go", "rust", "swift"),
        *("ruby", "php", "splus", "julia", "scala", "haskell", "lua", "matlab"),
        *("octave", "tex", "diff", "docker", "make", "cmake", "dart", "elixir"),
        *("clojure", "fortran", "fsharp", "ocaml", "graphql"),
        *("objective-c", "nginx", "protobuf", "properties"),
    )
)
# No line this long, and no gap of so many blank lines, is written by people.
_ODD_SHAPE = re.compile(r"[^\n]{401}|\n(?:[ \t\r\f\v]*\n){6}")
# Patterns for declarations try every way to part such a run of words or signs.
_WORDS_ONLY = re.compile(r"(?:[\w.,<>?@\[\]]+\s+){60}|[\w.,<>?@\[\]]{80}")
_DECLARING = frozenset(("java", "csharp"))
# Notebook hosts give these no colour of their own, and they are most of code.
_UNCOLOURED = (Kind.Text, Kind.Name, Kind.Punctuation, Kind.Generic, Kind.Other)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer if lexer.aliases[0] in LANGUAGES else None


def _is_quick(code: str, lexer: Lexer) -> bool:
    """Say whether code is short and looks as if a person wrote it."""
    if len(code) > MAX_CODE_CHARS or _ODD_SHAPE.search(code):
        return False
    return lexer.aliases[0] not in _DECLARING or not _WORDS_ONLY.search(code)


def _css_class(token_type: _TokenType) -> str:
    """Name the class of the colour: the family's, since hosts colour families."""
    if any(token_type in family for family in _UNCOLOURED):
        return _COLOURED_NAMES.get(token_type, "")
    for family in (Kind.Comment, Kind.Keyword, Kind.Operator.Word, Kind.Operator):
        if token_type in family:
            return str(STANDARD_TYPES[family])
    while token_type not in STANDARD_TYPES and token_type.parent is not None:
        token_type = token_type.parent
    return str(STANDARD_TYPES.get(token_type, ""))


_COLOURED_NAMES = {
    Kind.Name.Function: "nf",
    Kind.Name.Class: "nc",
    Kind.Name.Tag: "nt",
    Kind.Generic.Deleted: "gd",
    Kind.Generic.Inserted: "gi",
    Kind.Generic.Heading: "gh",
}


def _spans(tokens: Iterable[tuple[_TokenType, str]]) -> Iterator[str]:
    classed = ((_css_class(token_type), text) for token_type, text in tokens)
    for css_class, group in groupby(classed, key=lambda pair: pair[0]):
        text = escape("".join(text for _, text in group), quote=False)
        # Attribute values of letters and digits need no quotes, and quotes
        # cost two bytes each in a JSON message.
        yield f"<span class={css_class}>{text}</span>" if css_class else text


def to_spans(code: str, language: str) -> str:
    """Colour code of one of `LANGUAGES` by `span` elements; always escaped."""
    lexer = _lexer(language.lower()) if language else None
    if lexer and _is_quick(code, lexer):
        tokens = list(lexer.get_tokens(code))
        if "".join(text for _, text in tokens) == code:
            return "".join(_spans(tokens))
    return escape(code, quote=False)


_C0 = tuple(c for c in range(0x20) if chr(c) not in "\n\t")
_DEL = 0x7F
_C1 = tuple(range(0x80, 0xA0))
# Overrides, embeddings and isolates reorder the text around them. The plain
# direction marks (U+200E, U+200F, U+061C) belong to ordinary Hebrew and Arabic.
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATES = tuple(range(0xD800, 0xE000))
# New lines and tabs stay.
_TERMINAL = {
    **{c: f"\\x{c:02x}" for c in (*_C0, _DEL, *_C1)},
    **{c: f"\\u{c:04x}" for c in (*_BIDI, *_SURROGATES)},
    ord("\a"): r"\a",
    ord("\b"): r"\b",
    ord("\r"): r"\r",
}
_VISIBLE = {
    **{c: chr(0x2400 + c) for c in _C0},  # Unicode's control pictures
    _DEL: "\u2421",
    **{c: f"⟨U+{c:04X}⟩" for c in (*_C1, *_BIDI)},
    **dict.fromkeys(_SURROGATES, "\ufffd"),
}


def to_terminal(text: str) -> str:
    r"""Make a text safe to print: control characters become escapes such as `\x1b`."""
    return text.translate(_TERMINAL)


def visible(text: str) -> str:
    """Show control characters as pictures or as `⟨U+202E⟩`, for use in HTML."""
    return text.translate(_VISIBLE)


# Short, since the open end of a long code block repeats it 20 times a second.
_PRE = (
    "<div class=highlight style=margin-bottom:1em>"
    "<pre style=padding:.6em;overflow:auto;white-space:pre;"
    "background:var(--jp-cell-editor-background,#8881)><code style=background:none>"
)
_PRE_END = "</code></pre></div>\n"
_AWAY = ' rel="noopener noreferrer" target=_blank'
# Two and more times what a reply can be; what is longer is shown as written.
MAX_MARKDOWN_CHARS = 150_000
_N_LINKS_OPEN, _N_CHARS_TO_COLOUR = "n_links_open", "n_chars_to_colour"
# Hosts typeset a string between delimiters unless a tag comes between: so a dollar or
# a backslash that is not math gets an element.
_NOT_MATH = str.maketrans({"$": "<span>$</span>", "\\": "<span>\\</span>"})


# A blank line would end the HTML where a notebook becomes a Markdown page.
_BLANK_LINE = re.compile(r"\n(?=[ \t]*\n)")


def without_blank_lines(html: str) -> str:
    """Write the ends of lines before blank ones as `&#10;`, which looks the same."""
    return _BLANK_LINE.sub("&#10;", html) if "\n" in html else html


def to_text(text: str) -> str:
    """Escape text for HTML so that no character acts and no math is typeset."""
    plain = escape(visible(text), quote=False).translate(_NOT_MATH)
    return without_blank_lines(plain)


def _code(code: str, language: str) -> str:
    spans = without_blank_lines(to_spans(visible(code), language))
    return f"{_PRE}{spans}{_PRE_END}"


class _SafeRenderer(RendererHTML):
    """HTML from tokens; every rule that carries a reply's text is its own."""

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


def _link_tag(url: str) -> str:
    away = "" if url.startswith("#") else _AWAY
    return f'<a href="{escape(visible(url))}"{away}>'


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

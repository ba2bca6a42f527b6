"""Parse the Markdown of replies, and turn it into HTML; there is no other way to HTML.

The parser loads with the first text, or while the first reply of a kernel is awaited,
so that the first request is sent sooner.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .escape import to_text, visible
from .html_styles import PLAIN_CODE

if TYPE_CHECKING:  # the first text loads the parser
    from markdown_it.token import Token


def load_parser() -> None:
    """Load the parser now, which takes 20 ms, and not with the first text."""
    from . import markdown_rules  # noqa: F401, PLC0415 - as it says


def with_line_feeds(text: str) -> str:
    """Return the text with line feeds as its only line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def block_tokens(markdown: str, env: dict[str, Any] | None = None) -> "Sequence[Token]":
    """Parse the blocks of a text without their inline content, which is fast."""
    from .markdown_rules import PARSER  # noqa: PLC0415 - with the first text

    tokens: list[Token] = []
    whole = markdown if markdown.endswith("\n") else f"{markdown}\n"
    env = {} if env is None else env
    PARSER.block.parse(whole.replace("\0", "\ufffd"), PARSER, env, tokens)
    return tokens


def link_addresses(markdown: str) -> dict[str, object]:
    """Return the link addresses that are defined on separate lines, by name."""
    env: dict[str, Any] = {}
    block_tokens(with_line_feeds(markdown), env)
    return dict(env.get("references", {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A fenced block of code."""

    language: str  # the first word after the opening fence, in lower case, or ""
    code: str  # ends in a line feed unless it is empty
    is_closed: bool  # whether the closing fence was found


def fences(markdown: str) -> tuple[Fence, ...]:
    """Return the fenced blocks of a text, in order."""
    return tuple(
        Fence(
            language=(token.info.split() or [""])[0].lower(),
            code=token.content,
            is_closed=is_closed_fence(token),
        )
        for token in block_tokens(with_line_feeds(markdown))
        if token.type == "fence"
    )


def only_block(text: str, languages: set[str]) -> str:
    """Return the only code block in these languages; otherwise the whole text."""
    blocks = [fence for fence in fences(text) if fence.language in languages]
    return blocks[0].code if len(blocks) == 1 else text


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Read the JSON of a reply, which may be its only code block.

    Raises:
        ValueError: It is no JSON; the message says why.
    """
    try:
        return json.loads(
            only_block(text, {"json", ""}), parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise ValueError(f"not JSON: {error.msg}, {where}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not readable as JSON: {error}") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not allowed")


def tables(markdown: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the tables of a reply, in order, each as rows of cells, the heads first.

    Cells are plain text without Markdown's marks; a link is replaced by its label.
    """
    from .markdown_rules import parse  # noqa: PLC0415 - with the first text

    source = with_line_feeds(markdown)
    if len(source) > MAX_MARKDOWN_CHARS:
        return ()
    parsed_tables: list[list[list[str]]] = []
    before = ""
    tokens, _ = parse(visible(source))
    for token in tokens:
        if token.type == "table_open":
            parsed_tables.append([])
        elif token.type == "tr_open":
            parsed_tables[-1].append([])
        elif token.type == "inline" and before in ("th_open", "td_open"):
            parsed_tables[-1][-1].append(_plain_inline(token.children or ()))
        before = token.type
    return tuple(tuple(map(tuple, rows)) for rows in parsed_tables)


def plain_text(markdown: str) -> str:
    """Return the text without Markdown's marks; each block becomes a line."""
    from .markdown_rules import parse  # noqa: PLC0415 - with the first text

    source = with_line_feeds(markdown)
    if len(source) > MAX_MARKDOWN_CHARS:
        return source
    tokens, _ = parse(source)
    lines = (
        _plain_inline(token.children or ()) if token.type == "inline" else token.content
        for token in tokens
    )
    return "\n".join(line.rstrip("\n") for line in lines if line.strip())


def _plain_inline(tokens: "Sequence[Token]") -> str:
    breaks = {"softbreak": " ", "hardbreak": " "}
    texts = (breaks.get(token.type, token.content) for token in tokens)
    return "".join(texts).strip()


def is_closed_fence(token: "Token") -> bool:
    """Whether a fence has its closing line: it has two lines more than its content."""
    first, last = token_lines(token)
    return last - first == token.content.count("\n") + 2


def token_lines(token: "Token") -> tuple[int, int]:
    """Return the first line of a block, and the line after its last."""
    first, last = token.map or (0, 0)
    return first, last


# More than twice the longest possible reply; longer texts are shown as written.
MAX_MARKDOWN_CHARS = 150_000


def _as_written(source: str) -> str:
    return f"<pre style=white-space:pre-wrap>{PLAIN_CODE}{to_text(source)}</code></pre>"


LISTS = ("bullet_list", "ordered_list")


def _hide_opener(tokens: "Sequence[Token]", n_lines: int) -> None:
    """Hide the lists that the first `n_lines` reopen, unless further text is in them.

    Their items have no marker, since it was drawn above, where they began.
    """
    around: list[Token] = []
    for token in tokens:
        kind, is_opener = token.type, token_lines(token)[0] < n_lines
        if kind.endswith("_open") and kind.removesuffix("_open") in LISTS:
            token.hidden = True  # until something in it is drawn
            around.append(token)
        elif kind == "list_item_open":
            around.append(token)
            if is_opener:
                token.attrSet("style", "list-style:none")
                token.hidden = True
            else:
                _show(around)
        elif kind.removesuffix("_close") in (*LISTS, "list_item"):
            _close(token, around)
        elif kind == "hr" and is_opener:
            token.hidden = True
        elif token.nesting >= 0:
            _show(around)


def _show(tokens: "Sequence[Token]") -> None:
    for token in tokens:
        token.hidden = False


def _close(token: "Token", around: "list[Token]") -> None:
    """Hide the end of a list or an item if its beginning is hidden.

    If a numbered item is hidden, the next one has the number after it.
    """
    token.hidden = around.pop().hidden
    if token.hidden and around and around[-1].type == "ordered_list_open":
        attributes = around[-1].attrs
        attributes["start"] = int(attributes.get("start", 1)) + 1


def to_html(
    markdown: str,
    *,
    highlight: bool = True,
    links: Mapping[str, object] | None = None,
    n_opener_lines: int = 0,
) -> str:
    """Turn Markdown of unknown origin into HTML that is safe to show.

    Raw HTML is shown as text, links lead only to http, https, mailto or within the
    page, pictures are links, and math between dollars is left to the host. A text that
    is nested too deeply, or far longer than a reply, is shown as written.

    Args:
        markdown: The text.
        highlight: Whether code is coloured.
        links: Addresses that are defined elsewhere, as `link_addresses` returns them.
        n_opener_lines: How many of the first lines only reopen lists and other blocks
            that the rest continues.
    """
    from .markdown_rules import MAX_NESTING, parse, render  # noqa: PLC0415 - with the first text

    source = with_line_feeds(markdown)
    if len(source) > MAX_MARKDOWN_CHARS:
        return _as_written(source)
    tokens, env = parse(visible(source), links)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return _as_written(source)
    if n_opener_lines:
        _hide_opener(tokens, n_opener_lines)
    return render(tokens, env, highlight=highlight)


@lru_cache(maxsize=1024)
def reply_html(text: str) -> str:
    """Render a reply, with a cache, so that a transcript renders each reply once."""
    return to_html(text)

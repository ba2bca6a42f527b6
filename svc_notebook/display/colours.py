"""Code in the colours of the notebook: the class names of Pygments, compactly.

What it is not: it brings no style sheet; notebook hosts colour these classes
inside an element of class `highlight`.

Rules for this file: no character of the code is lost or added; a language
that is not known, or code longer than the limit, is left plain.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

from pygments.lexer import Lexer  # type: ignore[import-untyped]  # ships no types
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # ships no types
from pygments.token import STANDARD_TYPES, Token, _TokenType  # type: ignore[import-untyped]  # ships no types
from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # ships no types

# Some lexers take long over adversarial text; nobody reads colours in more.
MAX_CODE_CHARS = 100_000
# Notebook hosts give these no colour of their own, and they are most of code.
_PLAIN = (Token.Text, Token.Name, Token.Punctuation, Token.Generic, Token.Other)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _css_class(token_type: _TokenType) -> str:
    """Name the class of the colour: the family's, since hosts colour families."""
    if any(token_type in family for family in _PLAIN):
        return _COLOURED_NAMES.get(token_type, "")
    for family in (Token.Comment, Token.Keyword, Token.Operator.Word, Token.Operator):
        if token_type in family:
            return str(STANDARD_TYPES[family])
    while token_type not in STANDARD_TYPES and token_type.parent is not None:
        token_type = token_type.parent
    return str(STANDARD_TYPES.get(token_type, ""))


_COLOURED_NAMES = {
    Token.Name.Function: "nf",
    Token.Name.Class: "nc",
    Token.Name.Tag: "nt",
    Token.Generic.Deleted: "gd",
    Token.Generic.Inserted: "gi",
    Token.Generic.Heading: "gh",
}


def _spans(tokens: Iterable[tuple[_TokenType, str]]) -> Iterator[str]:
    classed = ((_css_class(token_type), text) for token_type, text in tokens)
    for css_class, group in groupby(classed, key=lambda pair: pair[0]):
        text = escape("".join(text for _, text in group), quote=False)
        # Attribute values of letters and digits need no quotes, and quotes
        # cost two bytes each in a JSON message.
        yield f"<span class={css_class}>{text}</span>" if css_class else text


def to_spans(code: str, language: str) -> str:
    """Colour code, or leave it plain; always escaped.

    Args:
        code: The code; its line ends are line feeds.
        language: A name or alias that Pygments knows, in any case; anything
            else, "" included, means plain.

    Returns:
        HTML that holds text and `span` elements only.
    """
    lexer = _lexer(language.lower()) if language else None
    if lexer is None or len(code) > MAX_CODE_CHARS:
        return escape(code, quote=False)
    tokens = list(lexer.get_tokens(code))
    if "".join(text for _, text in tokens) != code:
        return escape(code, quote=False)
    return "".join(_spans(tokens))

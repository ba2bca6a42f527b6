"""Syntax colours in code blocks, by Pygments, for some languages and lengths."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

from pygments.lexer import Lexer  # type: ignore[import-untyped]  # ships no types
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # ships no types
from pygments.token import STANDARD_TYPES, _TokenType  # type: ignore[import-untyped]  # ships no types
from pygments.token import Token as Kind
from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # ships no types

# Longer code is not coloured: some lexers take very long for hostile text.
MAX_CODE_CHARS = 10_000
# In all code of one reply.
MAX_COLOURED_CHARS = 30_000
# These take at most 0.3 s each, measured with some hundred hostile texts of
# `MAX_CODE_CHARS` and ordinary shape. Perl, reStructuredText and Markdown are slower,
# and so are languages that can contain any other, such as HTTP, IPython and PostgreSQL.
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
# People do not write lines this long, nor so many blank lines in a row.
_ODD_SHAPE = re.compile(r"[^\n]{401}|\n(?:[ \t\r\f\v]*\n){6}")
# The patterns for declarations in `_DECLARING` languages try every way to split such a
# run of words or signs, which takes very long.
_WORDS_ONLY = re.compile(r"(?:[\w.,<>?@\[\]]+\s+){60}|[\w.,<>?@\[\]]{80}")
_DECLARING = frozenset(("java", "csharp"))
# Notebook hosts do not colour these kinds, which are most of the code.
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
    """Return the CSS class of a token's family, since hosts colour whole families."""
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
    """Return code as escaped HTML, with coloured spans if it is in `LANGUAGES`."""
    lexer = _lexer(language.lower()) if language else None
    if lexer and _is_quick(code, lexer):
        tokens = list(lexer.get_tokens(code))
        if "".join(text for _, text in tokens) == code:
            return "".join(_spans(tokens))
    return escape(code, quote=False)

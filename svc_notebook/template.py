r"""Templates with marks such as `{{name}}`, and escapes such as \n.

A template is filled in one pass: marks inside inserted texts are not filled again.
`\{{name}}` becomes the plain text `{{name}}`, whatever is between the braces; all other
text is unchanged. Sweeps fill in names only; cells also parts of a value, such as
`{{df.text[0]}}`.
"""

import ast
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from unicodedata import normalize

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Not \w, which would leave out the vowel and tone signs of Thai.
_MARK = re.compile(r"(\\?)\{\{([^{}\n]*)\}\}")
_NESTED = re.compile(r"(?<!\\)\{\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*|\n[^{}]*)\}\}")


_UNCLOSED = re.compile(r"(?<![\\{])\{\{[ \t]*+([^{}\s]++)[ \t]*+(\}?+)(?!\})")


def as_variable(name: str) -> str:
    """Return a variable's name as Python keeps it; the Thai vowel ำ becomes two."""
    return normalize("NFKC", name)


def names_in(template: str) -> tuple[str, ...]:
    r"""Return the names in a template's marks, each once, in order."""
    marks = _MARK.findall(template)
    names = (name for escaped, name in marks if name.isidentifier() and not escaped)
    return tuple(dict.fromkeys(names))


def wrong_marks(template: str) -> tuple[str, ...]:
    """Return texts that look like marks but are not, such as `{{ n }}`, each once."""
    marks = (mark for mark in _MARK.finditer(template) if not mark[1])
    wrong = (mark.group() for mark in marks if not mark[2].isidentifier())
    return tuple(dict.fromkeys(wrong))


def unclosed_names(template: str) -> tuple[str, ...]:
    """Return the names after a `{{` without its `}}`, each once."""
    return tuple(dict.fromkeys(name for name, _ in _UNCLOSED.findall(template)))


def nested_marks(template: str) -> tuple[str, ...]:
    """Return double braces with braces or line ends inside, each once: not marks."""
    return tuple(dict.fromkeys(_NESTED.findall(_MARK.sub("", template))))


# JSON, LaTeX, shells and f-strings have single braces, too.
_SINGLE = re.compile(r"(?<![\w\\$^}\]])\{([^{}\s]+)\}")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_FORMATS = re.compile(r"""\b[rR]?[fF][rR]?["']|\.format\(""")


def names_in_single_braces(template: str) -> tuple[str, ...]:
    """Return the names in braces such as `{name}`, each once, in order.

    Returns none if the braces have another meaning, as in code or LaTeX.
    """
    prose = _CODE.sub("", _MARK.sub("", template))
    names = _SINGLE.findall(prose)
    is_template = all(map(str.isidentifier, names)) and not _FORMATS.search(prose)
    has_others = not {"{", "}"}.isdisjoint(_SINGLE.sub("", prose))
    return tuple(dict.fromkeys(names)) if is_template and not has_others else ()


def fill(template: str, text_of: Callable[[str], str]) -> str:
    """Replace marks that are names by their texts; leave other marks as typed."""
    return fill_marks(
        template, lambda inner: text_of(inner) if inner.isidentifier() else None
    )


def fill_marks(template: str, text_of: Callable[[str], str | None]) -> str:
    r"""Replace marks; `text_of` gets the text between the braces of a mark.

    If it returns None, the mark stays as typed; `\{{a b}}` becomes `{{a b}}`.
    """

    def replace_mark(mark: re.Match[str]) -> str:
        escaped, inner = mark.groups()
        text = None if escaped else text_of(inner)
        return mark.group().removeprefix("\\") if text is None else text

    return _MARK.sub(replace_mark, template)


_PARSED_CHARS = 200  # deeper nesting could overflow the stack


def to_expression(inner: str) -> ast.expr | None:
    """Parse the text between a mark's braces as Python; None if that fails."""
    source = inner.strip()
    # invalid Python is plain text, and so is what Python warns about
    with warnings.catch_warnings(), suppress(SyntaxError, ValueError):
        warnings.simplefilter("ignore")
        if len(source) <= _PARSED_CHARS:
            return ast.parse(source, mode="eval").body
    return None


def is_path(expression: ast.expr) -> bool:
    """Say whether it is a name, possibly with `.attribute` and `[index]` parts."""
    while isinstance(expression, ast.Attribute) or (
        isinstance(expression, ast.Subscript) and _is_index(expression.slice)
    ):
        expression = expression.value
    return isinstance(expression, ast.Name)


def _is_index(expression: ast.expr) -> bool:
    """Say whether it is a text in quotes, a number or a name."""
    with suppress(ValueError):
        return type(ast.literal_eval(expression)) in {str, int, float}
    return isinstance(expression, ast.Name)


def decode_escapes(text: str) -> str:
    r"""Replace typed \n, \t, \r and \\ by the characters that they mean."""
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)

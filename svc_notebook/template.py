r"""Templates with marks such as `{{name}}`, and escapes such as \n.

A template is filled in one pass: marks in the texts that are put in stay as they are.
`\{{name}}` is the plain text `{{name}}`, whatever is between the braces; all other text
is unchanged. Sweeps fill in names only, cells also parts of a value: `{{df.text[0]}}`.
"""

import ast
import re
import warnings
from collections.abc import Callable
from contextlib import suppress

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Not \w, which would leave out the vowel and tone signs of Thai.
_MARK = re.compile(r"(\\?)\{\{([^{}\n]*)\}\}")
_NESTED = re.compile(r"(?<!\\)\{\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*|\n[^{}]*)\}\}")


_UNCLOSED = re.compile(r"(?<![\\{])\{\{[ \t]*+([^{}\s]++)[ \t]*+(\}?+)(?!\})")


def names_in(template: str) -> tuple[str, ...]:
    r"""Return the names in a template's marks, each once, in order."""
    marks = _MARK.findall(template)
    names = (name for escaped, name in marks if name.isidentifier() and not escaped)
    return tuple(dict.fromkeys(names))


def wrong_marks(template: str) -> tuple[str, ...]:
    """Return what looks like a mark and is not one, such as `{{ n }}`, each once."""
    marks = (mark for mark in _MARK.finditer(template) if not mark[1])
    wrong = (mark.group() for mark in marks if not mark[2].isidentifier())
    return tuple(dict.fromkeys(wrong))


def unclosed_names(template: str) -> tuple[str, ...]:
    """Return the names after `{{` that no `}}` follows, each once."""
    return tuple(dict.fromkeys(name for name, _ in _UNCLOSED.findall(template)))


def nested_marks(template: str) -> tuple[str, ...]:
    """Return double braces around single ones or line ends, each once; no marks."""
    return tuple(dict.fromkeys(_NESTED.findall(_MARK.sub("", template))))


# JSON, LaTeX, shells and f-strings have single braces, too.
_SINGLE = re.compile(r"(?<![\w\\$^}\]])\{([^{}\s]+)\}")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_FORMATS = re.compile(r"""\b[rR]?[fF][rR]?["']|\.format\(""")


def names_in_single_braces(template: str) -> tuple[str, ...]:
    """Return the names in braces such as `{name}`, each once, in order.

    There are none in a text whose braces have another meaning, as in code or LaTeX.
    """
    prose = _CODE.sub("", _MARK.sub("", template))
    names = _SINGLE.findall(prose)
    is_template = all(map(str.isidentifier, names)) and not _FORMATS.search(prose)
    has_others = not {"{", "}"}.isdisjoint(_SINGLE.sub("", prose))
    return tuple(dict.fromkeys(names)) if is_template and not has_others else ()


def fill(template: str, text_of: Callable[[str], str]) -> str:
    """Replace the marks that are names by their texts."""
    return fill_marks(
        template, lambda inner: text_of(inner) if inner.isidentifier() else None
    )


def fill_marks(template: str, text_of: Callable[[str], str | None]) -> str:
    r"""Replace the marks by the texts of what is between their braces.

    A mark without a text, None, stays as typed; `\{{a b}}` becomes `{{a b}}`.
    """

    def put(mark: re.Match[str]) -> str:
        escaped, inner = mark.groups()
        text = None if escaped else text_of(inner)
        return mark.group().removeprefix("\\") if text is None else text

    return _MARK.sub(put, template)


_PARSED_CHARS = 200  # deeper nesting could overflow the stack


def to_expression(inner: str) -> ast.expr | None:
    """Read what is between the braces of a mark as Python; None if it is not."""
    source = inner.strip()
    # what is refused, or warned of, is text
    with warnings.catch_warnings(), suppress(SyntaxError, ValueError):
        warnings.simplefilter("ignore")
        if len(source) <= _PARSED_CHARS:
            return ast.parse(source, mode="eval").body
    return None


def is_path(expression: ast.expr) -> bool:
    """Say whether it is a name with `.attribute` and `[index]` parts, if any."""
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
    r"""Replace \n, \t, \r and \\ as typed by the characters that they mean."""
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)

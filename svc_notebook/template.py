r"""Templates with marks such as `{{name}}`, and escapes such as \n.

A template is filled in one pass: marks in the texts that are put in stay as they are.
`\{{name}}` is the plain text `{{name}}`, whatever is between the braces; all other text
is unchanged.
"""

import re
from collections.abc import Callable

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Not \w, which would leave out the vowel and tone signs of Thai.
_MARK = re.compile(r"(\\?)\{\{([^{}\n]*)\}\}")


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


def fill(template: str, text_of: Callable[[str], str]) -> str:
    r"""Replace the marks by the texts of their names; `\{{a b}}` becomes `{{a b}}`."""

    def put(mark: re.Match[str]) -> str:
        escaped, name = mark.groups()
        if escaped:
            return mark.group()[1:]
        return text_of(name) if name.isidentifier() else mark.group()

    return _MARK.sub(put, template)


def decode_escapes(text: str) -> str:
    r"""Replace \n, \t, \r and \\ as typed by the characters that they mean."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)

r"""Templates with marks such as `{{name}}`, and escapes such as \n.

A template is filled in one pass: marks in the texts that are put in stay as they are.
`\{{name}}` is the plain text `{{name}}`; all other text is unchanged.
"""

import re
from collections.abc import Callable

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Not \w, which would leave out the vowel and tone signs of Thai.
_MARK = re.compile(r"(\\?)\{\{([^\s{}]+)\}\}")


def names_in(template: str) -> tuple[str, ...]:
    r"""Return the names in a template's marks, each once, in order.

    Args:
        template: The text; `\{{name}}` is not a mark.
    """
    found = (
        name
        for escaped, name in _MARK.findall(template)
        if name.isidentifier() and not escaped
    )
    return tuple(dict.fromkeys(found))


def fill(template: str, text_of: Callable[[str], str]) -> str:
    r"""Replace the marks by texts.

    Args:
        template: The text; `\{{name}}` becomes `{{name}}`.
        text_of: Returns the text for a name; what it raises is raised.
    """

    def put(mark: re.Match[str]) -> str:
        escaped, name = mark.groups()
        if not name.isidentifier():
            return mark.group()
        return mark.group()[1:] if escaped else text_of(name)

    return _MARK.sub(put, template)


def decode_escapes(text: str) -> str:
    r"""Replace \n, \t, \r and \\ as typed by the characters that they mean."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)

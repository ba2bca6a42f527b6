r"""Text as typed: the template mark `{{name}}`, and escapes such as \n.

A template is filled in one pass, and what is put in is not read again; `\{{name}}` is
the plain text `{{name}}`; all other text stays as it is, byte for byte.
"""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_MARK = re.compile(r"(\\?)\{\{([^\s{}]+)\}\}")


def names_in(template: str) -> tuple[str, ...]:
    r"""Return the names that a template's marks name, each once, in order.

    Args:
        template: The text; `\{{name}}` is no mark.
    """
    found = (
        name
        for escaped, name in _MARK.findall(template)
        if _is_plain(name) and not escaped
    )
    return tuple(dict.fromkeys(found))


def fill(template: str, text_of: Callable[[str], str]) -> str:
    r"""Put texts in the place of the marks.

    Args:
        template: The text; `\{{name}}` becomes `{{name}}`.
        text_of: Returns the text that a name stands for; what it raises is raised.
    """

    def put(mark: re.Match[str]) -> str:
        escaped, name = mark.groups()
        if not _is_plain(name):
            return mark.group()
        return mark.group()[1:] if escaped else text_of(name)

    return _MARK.sub(put, template)


def _is_plain(name: str) -> bool:
    # as Python has it: \w alone would leave out the vowel and tone signs of Thai
    return name.isidentifier()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known names; empty if none is near."""
    near = get_close_matches(name, list(known), n=3)
    return f" Did you mean {', '.join(near)}?" if near else ""


def decode_escapes(text: str) -> str:
    r"""Replace \n, \t, \r and \\ as typed by the characters that they mean."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)

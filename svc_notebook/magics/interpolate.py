r"""Notebook variables in a prompt: `{{name}}`, and nothing else.

Rules: pure; one pass, plain names only, values never expanded again; a name that
is unknown is refused with near misses before anything is sent; `\{{name}}` is
literal; all other text, braces and dollars included, goes byte for byte.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from unicodedata import normalize

from svc_notebook.chat.template import did_you_mean, fill
from svc_notebook.errors import ParameterError

from .context import Item, to_item

_SPACED = re.compile(r"\{\{(?:\s+([^\s{}]+)\s*|([^\s{}]+)\s+)\}\}")


def interpolate(
    template: str, names: Mapping[str, object], *, hide: Callable[[str], str] = str
) -> tuple[str, tuple[Item, ...]]:
    r"""Put values in the place of `{{name}}` marks.

    Args:
        template: The text as typed.
        names: Values by name; see `context` for how each kind looks.
        hide: Blots the API key out of what is put in.

    Returns:
        The text, in which `\{{name}}` has become `{{name}}`, and what was put in,
        each name once.

    Raises:
        ParameterError: A name is not there; near ones are named.
    """
    items: dict[str, Item] = {}

    def text_of(typed: str) -> str:
        name = normalize("NFKC", typed)  # as Python keeps names
        if name not in names:
            raise _unknown(typed, names)
        if name not in items:
            item = to_item(name, names[name])
            items[name] = replace(item, text=hide(item.text))
        return items[name].text

    text = fill(template, text_of)
    return text, tuple(items.values())


def near_marks(template: str, names: Mapping[str, object]) -> tuple[str, ...]:
    """Return marks with blanks that would be variables without, sent as typed."""
    marks = _SPACED.finditer(template)
    found = (mark[0] for mark in marks if (mark[1] or mark[2]) in names)
    return tuple(dict.fromkeys(found))


def _unknown(name: str, names: Mapping[str, object]) -> ParameterError:
    hint = did_you_mean(name, (each for each in names if not each.startswith("_")))
    return ParameterError(
        f"{{{{{name}}}}} names no variable of this notebook.{hint} Define it first, "
        f"write \\{{{{{name}}}}} for the plain text, or use --raw.",
        param="messages",
    )

"""Links and pictures in replies: where they may lead, and how they are written.

A picture becomes a link, since fetching one reveals the reader's address.
"""

import re
from collections.abc import MutableMapping
from html import escape
from typing import Any

from markdown_it import helpers
from markdown_it.rules_inline import StateInline

from .escape import visible

_LINK = re.compile(r"(?:https?://[^/\\]|mailto:|#)", re.IGNORECASE)
# The parser reads to the end of a paragraph after each bracket that nothing closes, so
# that many such brackets would take minutes. Beyond this many characters, and as many
# again for each character of the text, they are text.
LABEL_CHARS = 100_000
LABEL_CHARS_PER_CHAR = 8
_LABEL_CHARS_LEFT = "label_chars_left"


def is_allowed_link(url: str) -> bool:
    """Whether a decoded link goes to http, https, mailto or within the page."""
    return _LINK.match(url) is not None


def reading_bounds(text: str) -> MutableMapping[str, Any]:
    """Return the environment for one parse: it bounds the search for link ends."""
    return {_LABEL_CHARS_LEFT: LABEL_CHARS + LABEL_CHARS_PER_CHAR * len(text)}


def label_end(state: StateInline, start: int, disableNested: bool = False) -> int:  # noqa: FBT001, FBT002, N803 - the parser's signature
    """Find the end of a link's text, or give up: then the bracket is text."""
    left = state.env.get(_LABEL_CHARS_LEFT, LABEL_CHARS)
    if left <= 0:
        return -1
    # Taken before the search, which comes back here for brackets within.
    state.env[_LABEL_CHARS_LEFT] = left - (state.posMax - start)
    end = helpers.parseLinkLabel(state, start, disableNested)
    if end >= 0:
        state.env[_LABEL_CHARS_LEFT] += state.posMax - end
    return end


_AWAY = ' rel="noopener noreferrer" target=_blank'


def link_tag(url: str) -> str:
    """Write the tag that opens a link; another page opens in another tab."""
    away = "" if url.startswith("#") else _AWAY
    return f'<a href="{escape(visible(url))}"{away}>'


def image_link(url: str, label: str, *, is_in_link: bool) -> str:
    """Write a link to a picture, with its text as an escaped label."""
    if is_in_link or not is_allowed_link(url):
        return label
    return f"{link_tag(url)}{label}</a>"

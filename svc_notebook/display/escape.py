"""Make text safe for HTML and for a terminal.

Control characters, and marks that reorder text, become visible and have no effect.
"""

import re
import shlex
from html import escape

_C0 = tuple(c for c in range(0x20) if chr(c) not in "\n\t")
_DEL = 0x7F
_C1 = tuple(range(0x80, 0xA0))
# Overrides, embeddings and isolates reorder the text around them. The plain
# direction marks (U+200E, U+200F, U+061C) belong to ordinary Hebrew and Arabic.
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATES = tuple(range(0xD800, 0xE000))
# New lines and tabs are kept.
_TERMINAL = {
    **{c: f"\\x{c:02x}" for c in (*_C0, _DEL, *_C1)},
    **{c: f"\\u{c:04x}" for c in (*_BIDI, *_SURROGATES)},
    ord("\a"): r"\a",
    ord("\b"): r"\b",
    ord("\r"): r"\r",
}
_VISIBLE = {
    **{c: chr(0x2400 + c) for c in _C0},  # Unicode's control pictures
    _DEL: "\u2421",
    **{c: f"⟨U+{c:04X}⟩" for c in (*_C1, *_BIDI)},
    **dict.fromkeys(_SURROGATES, "\ufffd"),
}


def to_terminal(text: str) -> str:
    r"""Make a text safe to print: control characters become escapes such as `\x1b`."""
    return text.translate(_TERMINAL)


def visible(text: str) -> str:
    """Show control characters as pictures or as `⟨U+202E⟩`, for use in HTML."""
    return text.translate(_VISIBLE)


# Hosts typeset text between math delimiters, unless a tag interrupts it. So each dollar
# or backslash that is not math gets an element around it.
_NOT_MATH = str.maketrans({"$": "<span>$</span>", "\\": "<span>\\</span>"})


# When a notebook is converted to a Markdown page, a blank line would end the HTML.
_BLANK_LINE = re.compile(r"\n(?=[ \t]*\n)")


def without_blank_lines(html: str) -> str:
    """Write a line end before a blank line as `&#10;`, which looks the same."""
    return _BLANK_LINE.sub("&#10;", html) if "\n" in html else html


def to_text(text: str) -> str:
    """Escape text for HTML, so that it contains no markup and no math."""
    plain = escape(visible(text), quote=False).translate(_NOT_MATH)
    return without_blank_lines(plain)


_NEEDS_QUOTES = re.compile(r"[\s'\"\\]")


def in_a_line(name: str) -> str:
    """Write a name for a line of `%svc`: in quotes if it needs them."""
    return shlex.quote(name) if _NEEDS_QUOTES.search(name) else name

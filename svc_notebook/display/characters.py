"""Characters that act instead of being read, made visible.

What it is not: no HTML and no Markdown here; `markup` escapes those.

Rules for this file: every function is pure and works on any piece of a text,
because each character is judged by itself; ordinary writing - Thai, emoji
joined by ZWJ, right-to-left letters and their marks - is never touched.
"""

_C0 = tuple(c for c in range(0x20) if chr(c) not in "\n\t")
_DEL = 0x7F
_C1 = tuple(range(0x80, 0xA0))
# Overrides, embeddings and isolates reorder what stands around them. The plain
# direction marks (U+200E, U+200F, U+061C) belong to ordinary Hebrew and Arabic.
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATES = tuple(range(0xD800, 0xE000))


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
    r"""Make a text, or any piece of one, safe to print on a terminal.

    Control characters, bidirectional overrides and lone surrogates become
    escapes such as `\x1b`; new lines and tabs stay.

    Args:
        text: Anything; pieces may be cut at any character.

    Returns:
        The text with nothing in it that a terminal obeys.
    """
    return text.translate(_TERMINAL)


def visible(text: str) -> str:
    """Show control characters as pictures or as `⟨U+202E⟩`, for use in HTML.

    Args:
        text: Anything, lone surrogates included.

    Returns:
        The text with only characters that are read; new lines and tabs stay.
    """
    return text.translate(_VISIBLE)

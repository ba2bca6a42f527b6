"""Counts tokens for the emulator.

The document does not show the service's tokenizer. The rule here only gives plausible
numbers for English, Thai and code.
"""

import re

# One token: up to four line breaks with a list or heading mark, up to sixteen
# blanks, a word with the blank before it (long words are cut at eight letters), up
# to three digits, a Thai consonant with its vowels and tone, or one other character.
_TOKEN = re.compile(
    r"""
    (?:\r?\n){1,4}(?:-\ |\#{1,6}\ |>\ |\d\.\ )?
    |[ ]{1,16}(?=[ ])|[^\S\n ]{1,16}
    |[ ]?[A-Za-z\u00c0-\u024f]{1,8}(?:['\u2019][a-z]{1,2}\b)?
    |[ ]?\d{1,3}
    |[ ]?[\u0e40-\u0e44]?[\u0e01-\u0e2e][\u0e30-\u0e3a\u0e45-\u0e4e]*
    |[ ]?\*\*
    |.
    """,
    re.VERBOSE | re.DOTALL,
)

# In JSON, tokenizers have one token for several quotes, brackets and commas.
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]{1,4}")

# tokens of each message, and of the reply, in addition to those of their texts
MESSAGE_TOKENS = 4
REPLY_TOKENS = 3


def split_tokens(text: str) -> list[str]:
    """Cut a text into tokens; joined again they are the text, byte for byte."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    """Count the tokens of a text."""
    return sum(1 for _ in _TOKEN.finditer(text))


def count_json_tokens(text: str) -> int:
    """Count the tokens of a JSON text, in which several signs are one token."""
    return count_tokens(_SIGNS.sub(",", text))

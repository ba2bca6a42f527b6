"""The code blocks of the README, in order."""

import re
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).parents[2] / "README.md"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^## (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A code block.

    Attributes:
        section: The heading above it; empty before the first one.
        language: bash or python; empty for a cell of the magic.
        code: What a reader copies.
    """

    section: str
    language: str
    code: str


def blocks() -> list[Block]:
    """Return every code block of the README."""
    parts = ["", *_SECTION.split(PATH.read_text("utf-8"))]
    return [
        Block(section, language, code.removesuffix("\n"))
        for section, text in zip(parts[::2], parts[1::2], strict=True)
        for language, code in _FENCED.findall(text)
    ]


def cells(section: str = "") -> list[str]:
    """Return the blocks that a reader copies into a notebook's cells."""
    return [
        block.code
        for block in blocks()
        if block.language in {"", "python"} and section in {"", block.section}
    ]

"""The code blocks of a reply, as the parser of its Markdown sees them.

Rules: pure; a block counts wherever it stands, in a list or a quotation too; its
text is as written.
"""

from dataclasses import dataclass

from markdown_it.token import Token

from .dialect import block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A fenced block of code.

    Attributes:
        language: The first word behind the fence, in small letters; "" for none.
        code: What stands in it; ends in a line feed unless it is empty.
        is_closed: Whether its end came.
    """

    language: str
    code: str
    is_closed: bool


def fences(markdown: str) -> tuple[Fence, ...]:
    """Find the fenced blocks of a text, in order.

    Args:
        markdown: The reply.
    """
    source = markdown.replace("\r\n", "\n").replace("\r", "\n")
    return tuple(
        Fence(
            language=(token.info.split() or [""])[0].lower(),
            code=token.content,
            is_closed=is_closed_fence(token),
        )
        for token in block_tokens(source)
        if token.type == "fence"
    )


def is_closed_fence(token: Token) -> bool:
    """Say whether the end of a fence came, from its number of lines."""
    first, last = token.map or (0, 0)
    return last - first == token.content.count("\n") + 2

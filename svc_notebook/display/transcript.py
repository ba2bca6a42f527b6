"""A conversation as one static output: HTML and plain text.

Rules: what a user typed is shown as typed, what a model wrote is rendered by
`markup`; nothing else makes HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .markup import to_html, to_terminal, to_text
from .reply import QUIET_LINE

_ENTRY = "margin:.2em 0 .8em"
_TYPED = "white-space:pre-wrap;overflow-wrap:anywhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message.

    Attributes:
        heading: Who said it, and what to know of it.
        text: The message.
        is_markdown: Whether to render it; else it is shown as typed.
    """

    heading: str
    text: str
    is_markdown: bool = False


def transcript(title: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Draw messages one below the other.

    Args:
        title: Stands above.
        entries: Oldest first.

    Returns:
        A MIME bundle of `text/html` and `text/plain`.
    """
    head = f'<div style="{QUIET_LINE}"><strong>{to_text(title)}</strong></div>'
    plain = [f"{each.heading}\n{each.text}" for each in entries] or ["(no turns yet)"]
    body = (
        "".join(map(_entry, entries)) or f'<div style="{QUIET_LINE}">no turns yet</div>'
    )
    return {
        "text/html": f"<div>{head}{body}</div>",
        "text/plain": to_terminal("\n\n".join([title, *plain])),
    }


def _entry(entry: Entry) -> str:
    text = (
        to_html(entry.text)
        if entry.is_markdown
        else f'<div style="{_TYPED}">{to_text(entry.text)}</div>'
    )
    heading = f'<div style="{QUIET_LINE}">{to_text(entry.heading)}</div>'
    return f'<div style="{_ENTRY}">{heading}{text}</div>'

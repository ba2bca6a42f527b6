"""A conversation as one static output: HTML and plain text.

Rules: what a user typed is shown as typed, what a model wrote is rendered by
`markup`; nothing else makes HTML; it is legible without scripts and without a kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .markup import to_html, to_terminal, to_text
from .reply import QUIET_LINE

_ENTRY = "margin:.2em 0 .8em"
_TYPED = (
    "white-space:pre-wrap;overflow-wrap:anywhere;"
    "border-left:3px solid #8886;padding-left:.7em"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message.

    Attributes:
        heading: Who said it, and what to know of it.
        text: The message.
        is_markdown: Whether to render it; else it is shown as typed.
        footer: One quiet line below.
        notes: Quiet lines above the text, such as the calls of tools.
    """

    heading: str
    text: str
    is_markdown: bool = False
    footer: str = ""
    notes: tuple[str, ...] = ()


def transcript(title: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Draw messages one below the other.

    Args:
        title: Stands above.
        entries: Oldest first.

    Returns:
        A MIME bundle of `text/html` and `text/plain`.
    """
    head = f'<div style="{QUIET_LINE}"><strong>{to_text(title)}</strong></div>'
    plain = [_plain(each) for each in entries] or ["(no turns yet)"]
    body = (
        "".join(map(_entry, entries)) or f'<div style="{QUIET_LINE}">no turns yet</div>'
    )
    return {
        "text/html": f"<div>{head}{body}</div>",
        "text/plain": to_terminal("\n\n".join([title, *plain])),
    }


@lru_cache(maxsize=1024)
def reply_html(text: str) -> str:
    """Render a reply; a transcript that grows renders each one once.

    Args:
        text: Markdown of unknown origin.
    """
    return to_html(text)


def _plain(entry: Entry) -> str:
    parts = (entry.heading, *entry.notes, entry.text, entry.footer)
    return "\n".join(part for part in parts if part)


def _entry(entry: Entry) -> str:
    text = (
        reply_html(entry.text)
        if entry.is_markdown
        else f'<div style="{_TYPED}">{to_text(entry.text)}</div>'
    )
    notes = "".join(map(_quiet, entry.notes))
    footer = _quiet(entry.footer) if entry.footer else ""
    heading = _quiet(entry.heading)
    return f'<div style="{_ENTRY}">{heading}{notes}{text}{footer}</div>'


def _quiet(line: str) -> str:
    return f'<div style="{QUIET_LINE};overflow-wrap:anywhere">{to_text(line)}</div>'

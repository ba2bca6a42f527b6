"""Replies side by side while they come: a card each.

What it is not: it asks nothing. Rules: a reply that is still coming is shown escaped,
by its end; a finished one is rendered by `markup`; nothing else makes HTML; an update
costs little, however long the replies are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .markup import to_html, to_terminal, to_text
from .reply import QUIET_LINE

TAIL_CHARS = 600
_GRID = (
    "display:grid;gap:.8em;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,18em),1fr))"
)
_CARD = "border:1px solid #8884;border-radius:.3em;padding:.4em .8em;min-width:0"
_TAIL = "white-space:pre-wrap;overflow-wrap:anywhere"
_BADGE = "border:1px solid #8886;border-radius:.3em;padding:0 .3em;margin-right:.4em"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One reply.

    Attributes:
        heading: What was asked otherwise than for the others.
        text: Markdown, as far as it has come.
        footer: One quiet line: tokens, seconds.
        marks: What must not be overlooked, such as "cut".
        is_ended: Whether no more will come.
    """

    heading: str
    text: str = ""
    footer: str = ""
    marks: tuple[str, ...] = ()
    is_ended: bool = False


def cards_bundle(cards: Sequence[Card], *, note: str = "") -> dict[str, str]:
    """Draw cards side by side.

    Args:
        cards: In their order.
        note: A quiet line below all.

    Returns:
        A MIME bundle of `text/html` and `text/plain`.
    """
    line = f'<div style="{QUIET_LINE}">{to_text(note)}</div>' if note else ""
    body = "".join(map(_drawn, cards))
    return {
        "text/html": f'<div><div style="{_GRID}">{body}</div>{line}</div>',
        "text/plain": cards_text(cards, note=note),
    }


def cards_text(cards: Sequence[Card], *, note: str = "") -> str:
    """Give cards as plain text, one below the other, safe to print."""
    blocks = [
        "\n".join(
            part for part in (f"--- {card.heading}", card.text, _closing(card)) if part
        )
        for card in cards
    ]
    return to_terminal("\n\n".join([*blocks, note]).strip("\n"))


def _closing(card: Card) -> str:
    return " ".join((*(f"[{mark}]" for mark in card.marks), card.footer)).strip()


def _drawn(card: Card) -> str:
    marks = "".join(
        f'<span style="{_BADGE}">{to_text(mark)}</span>' for mark in card.marks
    )
    if card.is_ended:
        body = to_html(card.text)
    else:
        tail = card.text[-TAIL_CHARS:]
        dots = "... " if len(card.text) > TAIL_CHARS else ""
        body = f'<div style="{_TAIL}">{to_text(dots + tail)}</div>'
    return (
        f'<div style="{_CARD}"><div style="{QUIET_LINE}">'
        f"<strong>{to_text(card.heading)}</strong></div>{body}"
        f'<div style="{QUIET_LINE}">{marks}{to_text(card.footer)}</div></div>'
    )

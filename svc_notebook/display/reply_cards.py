"""Replies side by side as cards, while they stream and after."""

from collections.abc import Sequence
from dataclasses import dataclass

from .escape import to_terminal, to_text
from .footer import UNFINISHED, live_html, marks_html, marks_text
from .html_styles import BODY, card_html, grid_html, quiet_html
from .markdown import reply_html


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One reply."""

    heading: str  # what differs from the other requests of its row
    row: str = ""  # what its row has in common: the model
    text: str = ""  # Markdown, as far as it arrived
    footer: str = ""  # a quiet line: tokens, seconds
    marks: tuple[str, ...] = ()  # warnings, such as "cut"


def cards_bundle(
    cards: Sequence[Card], *, note: str = "", is_live: bool = False
) -> dict[str, str]:
    """Draw rows of cards above a note, as `text/html` and as `text/plain`."""
    line = quiet_html(to_text(note)) if note else ""
    if is_live:
        line = live_html(note, is_waiting=not any(card.text for card in cards))
        note = UNFINISHED
    body = "".join(
        f"{quiet_html(f'<strong>{to_text(row)}</strong>') if row else ''}"
        f"{grid_html(map(_drawn, of_row))}"
        for row, of_row in _rows(cards).items()
    )
    return {
        "text/html": f"{BODY}{body}{line}</div>",
        "text/plain": cards_text(cards, note=note),
    }


def cards_text(cards: Sequence[Card], *, note: str = "") -> str:
    """Return cards as plain text, one below the other, safe to print."""
    blocks = []
    for row, of_row in _rows(cards).items():
        blocks += [row] * bool(row)
        for card in of_row:
            closing = marks_text(card.marks, card.footer)
            heading = f"--- {card.heading}" if card.heading else ""
            blocks.append("\n".join(filter(None, (heading, card.text, closing))))
    return to_terminal("\n\n".join([*blocks, note]).strip("\n"))


def _rows(cards: Sequence[Card]) -> dict[str, list[Card]]:
    rows: dict[str, list[Card]] = {}
    for card in cards:
        rows.setdefault(card.row, []).append(card)
    return rows


def _drawn(card: Card) -> str:
    closing = quiet_html(marks_html(card.marks, card.footer))
    return card_html(card.heading, reply_html(card.text), closing)

"""Texts side by side, as a table or as cards: HTML and plain text.

A table stays below a size that a notebook can carry; it counts what it leaves out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from .markup import to_terminal, to_text
from .reply import (
    BODY,
    UNFINISHED,
    card_html,
    grid_html,
    live_html,
    marks_html,
    marks_text,
    quiet_html,
    reply_html,
)

SHOWN_CHARS = 600
KEY_CHARS = 200
MAX_BYTES = 300_000
_LINE_CHARS = 76

_TABLE = "border-collapse:collapse;text-align:left"
_FIELD = (
    "text-align:left;vertical-align:top;padding:.3em .6em;border:1px solid #8884;"
    "max-width:26em;white-space:pre-wrap;overflow-wrap:anywhere"
)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One text in a field of the table."""

    text: str
    marks: tuple[str, ...] = ()  # what must not be overlooked, such as "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table of texts; shown in a cell it is drawn."""

    title: str  # the line below it in HTML, above it in plain text
    row_names: Key  # the names of the parts of a row's key
    column_names: Key
    heads: tuple[Key, ...]  # the key of each column
    # The key of each row, and its fields, one for each column.
    rows: tuple[tuple[Key, tuple[tuple[Entry, ...], ...]], ...]
    n_more_rows: int = 0  # left out
    n_more_columns: int = 0

    def __repr__(self) -> str:
        return self._plain()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": self._html(), "text/plain": self._plain()}

    def _html(self) -> str:
        corner = f'<th style="{_FIELD}">{_key(self.row_names, ())}</th>'
        heads = "".join(
            f'<th style="{_FIELD}">{_key(self.column_names, head)}</th>'
            for head in self.heads
        )
        rows = _fitting(_row(self.row_names, key, fields) for key, fields in self.rows)
        lines = (self.title, *self._left_out(len(rows)))
        below = "".join(quiet_html(to_text(line)) for line in lines if line)
        return (
            f'<div><div style="overflow:auto"><table style="{_TABLE}">'
            f"<tr>{corner}{heads}</tr>{''.join(rows)}</table></div>{below}</div>"
        )

    def _plain(self) -> str:
        rows = _fitting(self._block(key, fields) for key, fields in self.rows)
        lines = (self.title, *rows, *self._left_out(len(rows)))
        return to_terminal("\n".join(lines).strip("\n"))

    def _block(self, key: Key, fields: Sequence[Sequence[Entry]]) -> str:
        lines = ["", _in_words(self.row_names, key)]
        for head, entries in zip(self.heads, fields, strict=True):
            words = f"  {_in_words(self.column_names, head)}"
            if len(entries) == 1:
                lines += [_marked(words, entries[0]), *_lines(entries[0].text)]
                continue
            lines += [words] * bool(entries)
            for number, entry in enumerate(entries, start=1):
                first, *rest = _lines(entry.text)
                lines.append(_marked(f"  {number:>3} {first.strip()}", entry))
                lines += [f"  {line}" for line in rest]
        return "\n".join(lines)

    def _left_out(self, n_shown: int) -> list[str]:
        n_rows = self.n_more_rows + len(self.rows) - n_shown
        lines = [f"{n_rows} more rows are not shown"] if n_rows else []
        if self.n_more_columns:
            lines.append(f"{self.n_more_columns} more columns are not shown")
        return lines


def _fitting(rows: Iterable[str]) -> list[str]:
    """Return the first rows, as many as `MAX_BYTES` hold."""
    fitting: list[str] = []
    n_bytes = 0
    for row in rows:
        n_bytes += len(row.encode("utf-8", "replace"))
        if n_bytes > MAX_BYTES:
            break
        fitting.append(row)
    return fitting


def _row(names: Key, key: Key, fields: Sequence[Sequence[Entry]]) -> str:
    drawn = "".join(
        f'<td style="{_FIELD}">{"<hr>".join(map(_entry, entries))}</td>'
        for entries in fields
    )
    return f'<tr><th style="{_FIELD}">{_key(names, key)}</th>{drawn}</tr>'


def _entry(entry: Entry) -> str:
    text = to_text(_shortened(entry.text, SHOWN_CHARS))
    return f"{marks_html(entry.marks)}<span>{text}</span>"


def _key(names: Key, key: Key) -> str:
    if not key:
        return "".join(f"<div>{to_text(name)}</div>" for name in names)
    return "".join(f"<div>{to_text(_shortened(each, KEY_CHARS))}</div>" for each in key)


def _in_words(names: Key, key: Key) -> str:
    return ", ".join(
        f"{name}: {' '.join(_shortened(each, KEY_CHARS).split())}"
        for name, each in zip(names, key, strict=True)
    )


def _lines(text: str) -> list[str]:
    """Return a text as indented lines for a terminal."""
    return [
        f"    {part}"
        for line in _shortened(text, SHOWN_CHARS).split("\n")
        for part in wrap(line, _LINE_CHARS) or [""]
    ]


def _marked(line: str, entry: Entry) -> str:
    return f"{line} {marks_text(entry.marks)}" if entry.marks else line


def _shortened(text: str, n_chars: int) -> str:
    if len(text) <= n_chars:
        return text
    return f"{text[:n_chars]}... ({len(text) - n_chars} more characters)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One reply."""

    heading: str  # what differs from the other requests of its row
    row: str = ""  # what its row has in common: the model
    text: str = ""  # Markdown, as far as it arrived
    footer: str = ""  # a quiet line: tokens, seconds
    marks: tuple[str, ...] = ()  # what must not be overlooked, such as "cut"


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
    closing = quiet_html(marks_html(card.marks) + to_text(card.footer))
    return card_html(card.heading, reply_html(card.text), closing)

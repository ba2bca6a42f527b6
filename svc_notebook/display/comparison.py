"""Texts side by side, as a table or as cards: HTML and plain text.

A table stays below a size that a notebook can carry; it counts what it leaves out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Literal

from .markdown import Blocks, with_line_feeds
from .markup import to_html, to_terminal, to_text, without_blank_lines
from .reply import (
    BODY,
    UNFINISHED,
    card_html,
    details_html,
    grid_html,
    live_html,
    marks_html,
    marks_text,
    quiet_html,
    reply_html,
)

SHOWN_CHARS = 600
KEY_CHARS = 200
MAX_BYTES = 1_200_000  # of the HTML
MAX_PLAIN_BYTES = 300_000
MAX_FOLDED_CHARS = 8_000  # of one text
_ALL_FOLDED_CHARS = 400_000  # of all texts together
_LINE_CHARS = 76
_COLUMN_EM, _WIDE_EM = 11, 44

_CELL = (
    "text-align:left;vertical-align:top;border:0;padding:.2em .6em .4em 0;"
    "overflow-wrap:break-word"
)
_ROW = f"{_CELL};border-top:1px solid #8886;padding-top:.5em;font-weight:normal"
_RAW = (
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0;padding:0;"
    "background:none;font:inherit"
)
_PARTS = {
    "same": "{}",
    "added": "<ins style=background:#2ea04340>{}</ins>",
    "gone": "<del style=background:#f8514926>{}</del>",
}
_PLAIN_PARTS = {"same": "{}", "added": "{{+{}+}}", "gone": "[-{}-]"}

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text that is compared with another one."""

    kind: Literal["same", "added", "gone"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One text in a field of the table."""

    text: str
    marks: tuple[str, ...] = ()  # what must not be overlooked, such as "cut"
    label: str = ""  # what tells it from others of its field, such as "3 times"
    parts: tuple[Part, ...] = ()  # the text in parts, if it is compared
    is_markdown: bool = False  # else it is shown as written


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
    n_more_replies: int = 0  # of the rows and columns that are shown

    def __repr__(self) -> str:
        return self._plain()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": self._html(), "text/plain": self._plain()}

    def _html(self) -> str:
        n_texts = sum(len(entries) for _, fields in self.rows for entries in fields)
        n_folded = min(MAX_FOLDED_CHARS, _ALL_FOLDED_CHARS // max(n_texts, 1))
        heads = "".join(
            f'<th scope=col style="{_CELL}">{_key(self.column_names, head)}</th>'
            for head in self.heads
        )
        rows = _fitting(
            (self._row(key, fields, n_folded) for key, fields in self.rows), MAX_BYTES
        )
        lines = (self.title, *self._left_out(len(rows)))
        below = "".join(quiet_html(to_text(line)) for line in lines if line)
        n_columns = max(len(self.heads), 1)
        # of equal columns that shrink so far and then scroll, whatever is in them
        style = (
            f"table-layout:fixed;width:100%;min-width:{n_columns * _COLUMN_EM}em;"
            f"max-width:{n_columns * _WIDE_EM}em;margin:0;font-size:inherit;"
            "border-collapse:collapse"
        )
        return (
            f'<div><div style=overflow-x:auto><table style="{style}">'
            f"<thead><tr style=background:none>{heads}</tr></thead>{''.join(rows)}"
            f"</table></div>{below}</div>"
        )

    def _row(self, key: Key, fields: Sequence[Sequence[Entry]], n_folded: int) -> str:
        head = (
            f"<tr style=background:none><th scope=rowgroup colspan={len(fields)} "
            f'style="{_ROW}">{_key(self.row_names, key)}</th></tr>'
        )
        drawn = "".join(
            f'<td style="{_CELL}">{_field(entries, n_folded)}</td>'
            for entries in fields
        )
        row = f"<tr style=background:none>{drawn}</tr>"
        return f"<tbody>{head * bool(key)}{row}</tbody>"

    def _plain(self) -> str:
        blocks = (self._block(key, fields) for key, fields in self.rows)
        rows = _fitting(blocks, MAX_PLAIN_BYTES)
        lines = (self.title, *rows, *self._left_out(len(rows)))
        return to_terminal("\n".join(lines).strip("\n"))

    def _block(self, key: Key, fields: Sequence[Sequence[Entry]]) -> str:
        lines = ["", _in_words(self.row_names, key)]
        for head, entries in zip(self.heads, fields, strict=True):
            words = f"  {_in_words(self.column_names, head)}".rstrip()
            lines += [words] if entries else []
            for entry in entries:
                said = marks_text(entry.marks, entry.label)
                lines += [f"    {said}:"] if said else []
                lines += _lines(entry)
        return "\n".join(lines)

    def _left_out(self, n_shown: int) -> list[str]:
        n_rows = self.n_more_rows + len(self.rows) - n_shown
        counts = {"rows": n_rows, "columns": self.n_more_columns}
        counts["replies of these rows"] = self.n_more_replies
        return [f"{n} more {what} are not shown" for what, n in counts.items() if n]


def _fitting(rows: Iterable[str], max_bytes: int) -> list[str]:
    """Return the first rows, as many as fit."""
    fitting: list[str] = []
    n_bytes = 0
    for row in rows:
        n_bytes += len(row.encode("utf-8", "replace"))
        if n_bytes > max_bytes:
            break
        fitting.append(row)
    return fitting


def _field(entries: Sequence[Entry], n_folded: int) -> str:
    drawn = "".join(_entry(each, n_folded) for each in entries)
    return drawn or quiet_html("not asked")


def _entry(entry: Entry, n_folded: int) -> str:
    head = marks_html(entry.marks, entry.label)
    if entry.is_markdown:
        body = _markdown_html(entry.text, n_folded)
    else:
        body = _written_html(entry.parts or (Part("same", entry.text),), n_folded)
    return (
        f"<div style=margin-bottom:.6em>{quiet_html(head) if head else ''}{body}</div>"
    )


def _written_html(parts: Sequence[Part], n_folded: int) -> str:
    """Draw a text as written, the end of a long one folded."""
    shown, rest = _split(parts, SHOWN_CHARS)
    folded, beyond = _split(rest, n_folded)
    more = _details(_raw_html(folded), _n_chars(folded), _n_chars(beyond))
    return _raw_html(shown) + more


def _markdown_html(text: str, n_folded: int) -> str:
    """Draw Markdown, the end of a long one folded."""
    if len(text) <= SHOWN_CHARS:
        return reply_html(text)
    # so that a list or a block of code goes on in the folded part
    blocks = Blocks(max_tail_bytes=SHOWN_CHARS // 2)
    blocks.feed(text[:SHOWN_CHARS])
    shown = "".join(to_html(block.markdown) for block in blocks.take())
    rest = with_line_feeds(blocks.tail.source + text[SHOWN_CHARS:])
    folded = replace(blocks.tail, source=rest[:n_folded])
    n_beyond = max(len(rest) - n_folded, 0)
    return shown + _details(to_html(folded.markdown), len(folded.source), n_beyond)


def _split(parts: Sequence[Part], n_chars: int) -> tuple[list[Part], list[Part]]:
    """Return the first characters, and the rest."""
    first, rest = [], []
    for part in parts:
        first.append(replace(part, text=part.text[:n_chars]))
        rest.append(replace(part, text=part.text[n_chars:]))
        n_chars = max(n_chars - len(part.text), 0)
    return [each for each in first if each.text], [each for each in rest if each.text]


def _n_chars(parts: Sequence[Part]) -> int:
    return sum(len(part.text) for part in parts)


def _raw_html(parts: Sequence[Part]) -> str:
    drawn = (_PARTS[part.kind].format(to_text(part.text)) for part in parts)
    html = without_blank_lines("".join(drawn))
    return f'<pre style="{_RAW}">{html}</pre>' if html else ""


def _details(html: str, n_folded: int, n_beyond: int) -> str:
    """Fold what is left of a text; what goes beyond the fold is counted."""
    if not n_folded + n_beyond:
        return ""
    if n_beyond:
        html += quiet_html(f"and {n_beyond:,} more, which are not in this output")
    return details_html(f"{n_folded + n_beyond:,} more characters", html)


def _key(names: Key, key: Key) -> str:
    return "".join(
        quiet_html(f"{to_text(name)}: {to_text(_shortened(each, KEY_CHARS))}")
        for name, each in zip(names, key, strict=True)
    )


def _in_words(names: Key, key: Key) -> str:
    return ", ".join(
        f"{name}: {' '.join(_shortened(each, KEY_CHARS).split())}"
        for name, each in zip(names, key, strict=True)
    )


def _lines(entry: Entry) -> list[str]:
    """Return a text as indented lines for a terminal."""
    shown, rest = _split(entry.parts or (Part("same", entry.text),), SHOWN_CHARS)
    text = "".join(_PLAIN_PARTS[part.kind].format(part.text) for part in shown)
    n_more = _n_chars(rest)
    text += f"... ({n_more} more characters)" if n_more else ""
    return [
        f"    {part}"
        for line in text.split("\n")
        for part in wrap(line, _LINE_CHARS) or [""]
    ]


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
    closing = quiet_html(marks_html(card.marks, card.footer))
    return card_html(card.heading, reply_html(card.text), closing)

"""A table of texts side by side, as HTML and as plain text.

Its size is limited, so that a notebook can hold it; it says how much is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Literal

from .escape import to_terminal, to_text, without_blank_lines
from .front_end import fitted_to_terminal
from .growing_markdown import Blocks
from .html_styles import details_html, quiet_html
from .markdown import reply_html, to_html, with_line_feeds
from .number_words import count_in_words
from .reply_footer import marks_html, marks_text

SHOWN_CHARS = 600  # of each text; the rest is folded
MANY_ROWS = 3  # with more, the columns are named again in each row
HEAD_CHARS = 60  # of the name of a column that is repeated in a row
KEY_CHARS = 200  # of each value in the key of a row or a column
MAX_BYTES = 1_200_000  # of the HTML
MAX_PLAIN_BYTES = 300_000  # of the plain text
MAX_FOLDED_CHARS = 8_000  # of one text
_ALL_FOLDED_CHARS = 400_000  # of all texts together
_LINE_CHARS = 75  # with its indent, the most that `fitted_to_terminal` leaves at 80
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

TableKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiffPart:
    """A part of a text that was compared with another text."""

    kind: Literal["same", "added", "gone"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedText:
    """One text in a field of the table."""

    text: str
    marks: tuple[str, ...] = ()  # warnings, such as "cut"
    label: str = ""  # tells it apart from others in its field, such as "3 times"
    parts: tuple[DiffPart, ...] = ()  # the text in parts, if it was compared
    is_markdown: bool = False  # else it is shown as written


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTable:
    """A table of texts that displays itself in a cell."""

    title: str  # the line below it in HTML, above it in plain text
    row_names: TableKey  # the names of the parts of a row's key
    column_names: TableKey
    heads: tuple[TableKey, ...]  # the key of each column
    # The key of each row, and its fields, one for each column.
    rows: tuple[tuple[TableKey, tuple[tuple[ComparedText, ...], ...]], ...]
    n_more_rows: int = 0  # left out
    n_more_columns: int = 0
    n_more_replies: int = 0  # of the rows and columns that are shown
    how_to_show: str = ""  # what shows the rows that are left out

    def __repr__(self) -> str:
        return self._plain()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": self.html(), "text/plain": self._plain()}

    def html(self) -> str:
        """Return the table as HTML, with a line below that says what is left out."""
        n_texts = sum(len(entries) for _, fields in self.rows for entries in fields)
        n_folded = min(MAX_FOLDED_CHARS, _ALL_FOLDED_CHARS // max(n_texts, 1))
        heads = "".join(
            f'<th scope=col style="{_CELL}">{_key_html(self.column_names, head)}</th>'
            for head in self.heads
        )
        # a heading that stays in view would need a table that scrolls within the page
        is_repeated = len(self.rows) > MANY_ROWS and len(self.heads) > 1
        drawn = (
            self._row(key, fields, n_folded, has_heads=is_repeated and number > 0)
            for number, (key, fields) in enumerate(self.rows)
        )
        rows = _rows_that_fit(drawn, MAX_BYTES)
        lines = (self.title, *self._left_out(len(rows)))
        below = "".join(quiet_html(to_text(line)) for line in lines if line)
        n_columns = max(len(self.heads), 1)
        # equal columns that shrink to a least width, whatever is in them, then scroll
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

    def _row(
        self,
        key: TableKey,
        fields: Sequence[Sequence[ComparedText]],
        n_folded: int,
        *,
        has_heads: bool,
    ) -> str:
        head = (
            f"<tr style=background:none><th scope=rowgroup colspan={len(fields)} "
            f'style="{_ROW}">{_key_html(self.row_names, key)}</th></tr>'
        )
        drawn = "".join(
            f'<td style="{_CELL}">{_short_head_html(top) * has_heads}'
            f"{_field_html(entries, n_folded)}</td>"
            for top, entries in zip(self.heads, fields, strict=True)
        )
        row = f"<tr style=background:none>{drawn}</tr>"
        return f"<tbody>{head * bool(key)}{row}</tbody>"

    def _plain(self) -> str:
        blocks = (self._block(key, fields) for key, fields in self.rows)
        rows = _rows_that_fit(blocks, MAX_PLAIN_BYTES)
        lines = (self.title, *rows, *self._left_out(len(rows)))
        return fitted_to_terminal(to_terminal("\n".join(lines).strip("\n")))

    def _block(self, key: TableKey, fields: Sequence[Sequence[ComparedText]]) -> str:
        lines = ["", _key_text(self.row_names, key)]
        for head, entries in zip(self.heads, fields, strict=True):
            head_line = f"  {_key_text(self.column_names, head)}".rstrip()
            lines += [head_line] if entries else []
            for entry in entries:
                label = marks_text(entry.marks, entry.label)
                lines += [f"    {label}:"] if label else []
                lines += _entry_lines(entry)
        return "\n".join(lines)

    def _left_out(self, n_shown: int) -> list[str]:
        n_rows = self.n_more_rows + len(self.rows) - n_shown
        counts = {"rows": n_rows, "columns": self.n_more_columns}
        counts["replies of these rows"] = self.n_more_replies
        lines = []
        for kind, n in counts.items():
            how = f": {self.how_to_show}" if kind == "rows" and self.how_to_show else ""
            more, verb = count_in_words(n, f"more {kind}"), "is" if n == 1 else "are"
            lines += [f"{more} {verb} not shown{how}"] if n else []
        return lines


def _rows_that_fit(rows: Iterable[str], max_bytes: int) -> list[str]:
    """Return the first rows, as many as fit into this number of bytes."""
    fitting: list[str] = []
    n_bytes = 0
    for row in rows:
        n_bytes += len(row.encode("utf-8", "replace"))
        if n_bytes > max_bytes:
            break
        fitting.append(row)
    return fitting


def _field_html(entries: Sequence[ComparedText], n_folded: int) -> str:
    drawn = "".join(_entry_html(entry, n_folded) for entry in entries)
    return drawn or quiet_html("not asked")


def _entry_html(entry: ComparedText, n_folded: int) -> str:
    head = marks_html(entry.marks, entry.label)
    if entry.is_markdown:
        body = _markdown_html(entry.text, n_folded)
    else:
        body = _written_html(entry.parts or (DiffPart("same", entry.text),), n_folded)
    return (
        f"<div style=margin-bottom:.6em>{quiet_html(head) if head else ''}{body}</div>"
    )


def _written_html(parts: Sequence[DiffPart], n_folded: int) -> str:
    """Return a text as written; the end of a long one is folded."""
    shown, rest = _split(parts, SHOWN_CHARS)
    folded, beyond = _split(rest, n_folded)
    more = _details(_raw_html(folded), _n_chars(folded), _n_chars(beyond))
    return _raw_html(shown) + more


def _markdown_html(text: str, n_folded: int) -> str:
    """Return rendered Markdown; the end of a long text is folded."""
    if len(text) <= SHOWN_CHARS:
        return reply_html(text)
    # `Blocks` reopens a list or a block of code that continues in the folded part
    blocks = Blocks(max_tail_bytes=SHOWN_CHARS // 2)
    blocks.feed(text[:SHOWN_CHARS])
    shown = "".join(to_html(block.markdown) for block in blocks.take())
    rest = with_line_feeds(blocks.tail.source + text[SHOWN_CHARS:])
    folded = replace(blocks.tail, source=rest[:n_folded])
    n_beyond = max(len(rest) - n_folded, 0)
    return shown + _details(to_html(folded.markdown), len(folded.source), n_beyond)


def _split(
    parts: Sequence[DiffPart], n_chars: int
) -> tuple[list[DiffPart], list[DiffPart]]:
    """Return the parts of the first `n_chars` characters, and the parts of the rest."""
    first, rest = [], []
    for part in parts:
        first.append(replace(part, text=part.text[:n_chars]))
        rest.append(replace(part, text=part.text[n_chars:]))
        n_chars = max(n_chars - len(part.text), 0)
    return [part for part in first if part.text], [part for part in rest if part.text]


def _n_chars(parts: Sequence[DiffPart]) -> int:
    return sum(len(part.text) for part in parts)


def _raw_html(parts: Sequence[DiffPart]) -> str:
    drawn = (_PARTS[part.kind].format(to_text(part.text)) for part in parts)
    html = without_blank_lines("".join(drawn))
    return f'<pre style="{_RAW}">{html}</pre>' if html else ""


def _details(html: str, n_folded: int, n_beyond: int) -> str:
    """Fold the rest of a text, and say how many characters are not in the output."""
    if not n_folded + n_beyond:
        return ""
    if n_beyond:
        html += quiet_html(f"and {n_beyond:,} more, which are not in this output")
    return details_html(f"{n_folded + n_beyond:,} more characters", html)


def _key_html(names: TableKey, key: TableKey) -> str:
    return "".join(
        quiet_html(f"{to_text(name)}: {to_text(_shortened(value, KEY_CHARS))}")
        for name, value in zip(names, key, strict=True)
    )


def _short_head_html(head: TableKey) -> str:
    """Return the name of a column as it is repeated in a row: only its values."""
    values = (" ".join(value.split()) for value in head)
    texts = [
        value if len(value) <= HEAD_CHARS else f"{value[:HEAD_CHARS]}..."
        for value in values
    ]
    return quiet_html(to_text(" · ".join(texts)))


def _key_text(names: TableKey, key: TableKey) -> str:
    return ", ".join(
        f"{name}: {' '.join(_shortened(value, KEY_CHARS).split())}"
        for name, value in zip(names, key, strict=True)
    )


def _entry_lines(entry: ComparedText) -> list[str]:
    """Return a text as indented lines for a terminal."""
    shown, rest = _split(entry.parts or (DiffPart("same", entry.text),), SHOWN_CHARS)
    text = "".join(_PLAIN_PARTS[part.kind].format(part.text) for part in shown)
    n_more = _n_chars(rest)
    text += f"... ({n_more:,} more characters)" if n_more else ""
    return [
        f"    {part}"
        for line in text.split("\n")
        for part in wrap(line, _LINE_CHARS) or [""]
    ]


def _shortened(text: str, n_chars: int) -> str:
    if len(text) <= n_chars:
        return text
    return f"{text[:n_chars]}... ({len(text) - n_chars} more characters)"

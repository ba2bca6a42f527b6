"""Replies side by side: which reply stands in which field.

What it is not: the drawing (see `display.comparison`). Rules: pure; every reply
has its place or is counted as not shown; what a trial has instead of a reply is said.
"""

from collections.abc import Iterable, Sequence

from svc_notebook.display.comparison import Comparison, Entry
from svc_notebook.ledger.columns import Batch, Column, Scalar
from svc_notebook.ledger.reply_columns import Reply, reply_batch
from svc_notebook.service.chunk import Choice

MAX_ROWS = 50
MAX_COLUMNS = 12

_INSTEAD = {
    "planned": "not asked yet",
    "not_run": "not run",
    "cancelled": "interrupted",
}


def comparison_of(
    replies: Iterable[Reply],
    *,
    rows: Sequence[Column],
    columns: Sequence[Column],
    title: str = "",
) -> Comparison:
    """Lay replies out.

    Args:
        replies: Rows of a run, in the order of the plan.
        rows: What tells the rows apart.
        columns: What tells the columns apart.
        title: Stands above.
    """
    fields: dict[tuple[str, ...], dict[tuple[str, ...], list[Entry]]] = {}
    heads: dict[tuple[str, ...], None] = {}
    batch = reply_batch(list(replies))
    places, tops = _values(batch, rows), _values(batch, columns)
    for reply, at, head in zip(batch.rows, places, tops, strict=True):
        heads[head] = None
        fields.setdefault(at, {}).setdefault(head, []).append(_entry(reply))
    shown = list(heads)[:MAX_COLUMNS]
    return Comparison(
        title=title,
        row_names=tuple(each.name for each in rows),
        column_names=tuple(each.name for each in columns),
        heads=tuple(shown),
        rows=tuple(
            (at, tuple(tuple(found.get(head, ())) for head in shown))
            for at, found in list(fields.items())[:MAX_ROWS]
        ),
        n_more_rows=max(len(fields) - MAX_ROWS, 0),
        n_more_columns=len(heads) - len(shown),
    )


def _values(batch: Batch, columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """Return the values of each row, as they are shown."""
    if not columns:
        return [()] * len(batch.rows)
    return list(zip(*(map(_shown, each.read(batch)) for each in columns), strict=True))


def _entry(reply: Reply) -> Entry:
    exchange, choice = reply.exchange, reply.choice
    marks = []
    if exchange is not None and choice is not None and exchange.is_cut(choice):
        marks.append("cut")
    if reply.status == "error":
        failure = reply.failure
        marks.append(failure.type if failure else "error")
    elif reply.status in _INSTEAD:
        marks.append(_INSTEAD[reply.status])
    elif choice is not None and choice.tool_calls:
        marks.append("tool calls")
    text = "" if choice is None else _text(choice)
    return Entry(text=text, marks=tuple(marks))


def _text(choice: Choice) -> str:
    """Return what a choice says, and what it calls."""
    calls = [
        f"{call.function.name}({call.function.arguments})" for call in choice.tool_calls
    ]
    return "\n".join(filter(None, [choice.text, *calls]))


def _shown(value: Scalar) -> str:
    if value is None:
        return "not sent"
    return f"{value:g}" if isinstance(value, float) else str(value)

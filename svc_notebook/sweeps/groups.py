"""The summary of a run: one row a group of trials.

What it is not: usage (see `ledger.usage`), which counts requests, repeated ones
included; here each trial counts once, by the exchange that stands for it. Rules: pure;
rows are looked at once; a sum is missing where nothing went into it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.columns import Column, Scalar, pick, template_columns
from svc_notebook.ledger.reply_columns import REPLIES, Reply

from .grid import Grid
from .source import ROW


@dataclass(slots=True)
class Group:
    """What the trials of a group have come to.

    Attributes:
        key: What they have in common.
        row: Position of the row that the first of them was filled from.
        others: As the columns of `SUMMARY`.
    """

    key: tuple[Scalar, ...]
    row: int = 0
    n_trials: int = 0
    n_ok: int = 0
    n_failed: int = 0
    n_replies: int = 0
    n_cut: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    latencies_s: list[float] = field(default_factory=list)

    def add(self, row: Reply) -> None:
        """Count a row in."""
        exchange = row.exchange
        if exchange is not None and row.choice is not None:
            self.n_replies += exchange.status == "ok"
            self.n_cut += exchange.is_cut(row.choice)
        if not row.is_first:
            return
        self.n_trials += 1
        self.n_ok += row.status == "ok"
        self.n_failed += row.status == "error"
        if row.usage is not None:
            usage = row.usage
            self.prompt_tokens = _sum(self.prompt_tokens, usage.prompt_tokens)
            self.completion_tokens = _sum(
                self.completion_tokens, usage.completion_tokens
            )
            self.total_tokens = _sum(self.total_tokens, usage.total_tokens)
        if row.status == "ok" and exchange and exchange.latency_s is not None:
            self.latencies_s.append(exchange.latency_s)

    def latency_s(self, share: float) -> float | None:
        """Return a quantile of the latencies of good trials."""
        return quantile(self.latencies_s, share)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which this share lies, between two if need be."""
    if not values:
        return None
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _count(name: str, doc: str) -> Column[Group]:
    return Column(name=name, dtype="Int64", read=attrgetter(name), doc=doc)


def _tokens(name: str) -> Column[Group]:
    doc = "sum of what the service reported; missing if it reported none"
    read = attrgetter(name)
    return Column(name=name, dtype="Int64", unit="tokens", read=read, doc=doc)


def _latency(name: str, share: float) -> Column[Group]:
    def read(group: Group) -> Scalar:
        return group.latency_s(share)

    doc = f"quantile {share:g} of latency_s of the trials that are ok"
    return Column(name=name, dtype="Float64", unit="s", read=read, doc=doc)


SUMMARY: tuple[Column[Group], ...] = (
    _count("n_trials", "trials, asked or not"),
    _count("n_ok", "trials with a good answer"),
    _count("n_failed", "trials whose answer is an error"),
    _count("n_replies", "choices of good answers"),
    _count("n_cut", "of all choices, those that ended for want of tokens"),
    _tokens("prompt_tokens"),
    _tokens("completion_tokens"),
    _tokens("total_tokens"),
    _latency("latency_p50_s", 0.5),
    _latency("latency_p90_s", 0.9),
    _latency("latency_max_s", 1.0),
)
"""What `summary_df` says of each group, after the columns it was grouped by."""


def reply_columns(
    rows: Sequence[Reply], *, names: Iterable[str] = ()
) -> tuple[Column[Reply], ...]:
    """Return the columns of these rows, those of their source included.

    Args:
        rows: Of replies.
        names: Of columns beside those of replies, also if no row has them.
    """
    found: tuple[Column[Reply], ...] = template_columns(
        chain([dict.fromkeys(names)], (row.origin.columns for row in rows)),
        lambda row: row.origin.columns,
        [column.name for column in REPLIES],
    )
    return (*REPLIES, *found)


def final_names(grid: Grid) -> dict[str, str]:
    """Return what each column beside the replies is called in a frame of them."""
    keys = grid.column_names
    columns = reply_columns((), names=keys)[len(REPLIES) :]
    return dict(zip(keys, (column.name for column in columns), strict=True))


def source_names(grid: Grid) -> dict[str, str]:
    """Return what each column of the source is called in a frame of replies."""
    if grid.source is None:
        return {}
    names, source = final_names(grid), grid.source
    keys = list(source.shown)[len(source.index) :]
    return {name: names[key] for name, key in zip(source.columns, keys, strict=True)}


def groups_of(rows: Iterable[Reply], by: Sequence[Column[Reply]]) -> list[Group]:
    """Return a group for each combination of values, in the order they first come."""
    found: dict[tuple[Scalar, ...], Group] = {}
    for row in rows:
        key = tuple(column.read(row) for column in by)
        if key not in found:
            found[key] = Group(key, row=row.origin.columns.get(ROW, 0))
        found[key].add(row)
    return list(found.values())


def picked(
    columns: Sequence[Column[Reply]], by: str | Sequence[str], *, param: str
) -> tuple[Column[Reply], ...]:
    """Return the columns of these names.

    Raises:
        ParameterError: A name is unknown; the nearest is named.
    """
    try:
        return pick(columns, by)
    except ParameterError as problem:
        message = str(problem)
    raise ParameterError(message, param=param)


def key_columns(by: Sequence[Column[Reply]]) -> tuple[Column[Group], ...]:
    """Return the columns that hold a group's key, with their dtypes of replies."""
    return tuple(
        Column(
            name=column.name,
            dtype=column.dtype,
            unit=column.unit,
            read=_nth(position),
            doc=column.doc,
        )
        for position, column in enumerate(by)
    )


def _nth(position: int) -> Callable[[Group], Any]:
    return lambda group: group.key[position]


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more

"""What can be read of a run: frames, a comparison, its manifest.

The ledger is the only record and is read each time, so a frame is current while
requests are being sent.
"""

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from svc_notebook.completion import is_cut
from svc_notebook.display.comparison import Comparison, Entry
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import (
    Batch,
    Column,
    Scalar,
    as_names,
    pick,
    template_columns,
)
from svc_notebook.ledger.reply_columns import (
    BEFORE_TEMPLATE,
    REPLIES,
    TEXTS,
    Reply,
    reply_batch,
)
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.catalogue import limit_of
from svc_notebook.service.checks import check_flag

from .describe import Size, headline, reasons_of, size_of
from .dimensions import TOOLS
from .grid import RunPlan
from .resume import (
    RunStatus,
    TrialFailure,
    TrialKey,
    by_trial,
    key_of,
    reply_rows,
    status_of,
)
from .source import ROW, is_missing

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


class RunView:
    """Reads a run from the ledger.

    Attributes:
        ledger: Where the replies are kept; None before anything was sent.
        failures: Why trials have no reply, where the ledger does not say it. The loop
            adds to it, so read a copy.
        strays: Trials of this run in the ledger that the plan lacks; left out.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.grid = plan.grid
        self.ledger: Ledger | None = None
        self.failures: dict[TrialKey, TrialFailure] = {}
        self.strays: frozenset[TrialKey] = frozenset()
        self._sent = RunStatus()
        self._stamp: tuple[int, str] | None = None

    @cached_property
    def size(self) -> Size:
        """How large the plan is."""
        return size_of(self.grid, prices=self.plan.prices)

    @property
    def is_begun(self) -> bool:
        """Whether anything was sent."""
        return self.ledger is not None

    def status(self) -> RunStatus:
        """Return the status of every trial."""
        if self.ledger is None or self.strays:
            found = status_of(self._exchanges(texts=False))
        else:
            found = self.sent(self.ledger)
        return found.with_failures(self.failures.copy())

    def sent(self, ledger: Ledger) -> RunStatus:
        """Return the status of what a ledger has of this run, strays included.

        It is read again when exchanges were added or removed.
        """
        stamp = ledger.stamp(self.plan.run_id)
        if stamp is None or stamp != self._stamp:
            found = ledger.read(scope="all", run=self.plan.run_id, texts=False)
            self._sent, self._stamp = status_of(found), stamp
        return self._sent

    def reasons(self) -> list[str]:
        """Return why trials have no reply, each reason with its count."""
        found = by_trial(self._exchanges(texts=False))
        failures = [each.failure for each in found.values() if each.status == "error"]
        failures += [
            each.failure
            for key, each in self.failures.copy().items()
            if key not in found
        ]
        return reasons_of(filter(None, failures))

    def headline(self) -> str:
        """Return the outcome in one line, also if the ledger cannot be read."""
        name = f"Run {self.plan.name}: " if self.plan.name else "Run: "
        try:
            counts = self.status().counts(len(self.grid))
        except LedgerError:
            return name + "its ledger cannot be read."
        return name + headline(self.grid, counts, is_begun=self.is_begun)

    def manifest(self) -> dict[str, Any]:
        """Return all that is needed to repeat the run, as JSON values."""
        plan, grid, status = self.plan, self.grid, self.status()
        exchanges = self._exchanges(texts=False)
        times = [(each.started_at, each.ended_at) for each in exchanges]
        source, first = grid.source, status.first
        rows = () if source is None else map(source.row, range(len(source)))
        found = {
            "run": plan.run_id,
            "name": plan.name,
            "seed": plan.seed,
            "repeats": grid.repeats,
            "dimensions": grid.dimensions,
            "rows": None if source is None else [*map(_plain, rows)],
            "dtypes": {} if source is None else source.dtypes,
            "kept": None if grid.kept is None else list(grid.kept),
            "fixed": {
                name: each.points[0].get(name)
                for each in grid.dimensions
                if len(each.points) == 1 and not each.is_by_row
                for name in each.names
            },
            "extra": grid.extra,
            "is_raw": grid.is_raw,
            "n_cells": len(grid),
            "counts": dict(status.counts(len(grid))),
            "endpoint": first.endpoint if first else None,
            "is_emulated": first.is_emulated if first else None,
            "started_at": min((began for began, _ in times), default=None),
            "ended_at": max((ended for _, ended in times), default=None),
            "limits": {model: limit_of(model) for model in grid.n_by_model},
            "prices": plan.prices,
            "versions": {
                "svc_notebook": version("svc-notebook"),
                "python": platform.python_version(),
            },
        }
        # what JSON does not have becomes a text
        return msgspec.to_builtins(found, enc_hook=_as_text, str_keys=True)  # type: ignore[no-any-return]  # a dict

    def replies(self, *, texts: bool = True) -> Iterator[Reply]:
        """Return the rows of `replies_df`, one by one; see `Ledger.read` for texts."""
        found = by_trial(self._exchanges(texts=texts))
        return reply_rows(self.plan, found, self.failures, is_begun=self.is_begun)

    def plan_df(self) -> "pd.DataFrame":
        """Return one row for each trial, as planned."""
        return self._frame_of(reply_rows(self.plan, {}, {}, is_begun=False))

    def replies_df(self) -> "pd.DataFrame":
        """Return one row for each choice, in the order of the plan."""
        from svc_notebook.ledger.frames import with_scores  # noqa: PLC0415 - pandas

        return with_scores(self._frame_of(self.replies()), self.ledger)

    def usage_df(
        self,
        *,
        by: str | Sequence[str],
        include_emulated: bool,
        include_reused: bool,
    ) -> "pd.DataFrame":
        """Return one row for each group of requests."""
        from svc_notebook.ledger import groups  # noqa: PLC0415 - pandas

        check_flag("include_emulated", include_emulated)
        check_flag("include_reused", include_reused)
        found = self._exchanges(texts=True)
        columns = pick(self._columns(()), by)
        if not set(columns) <= set(REPLIES):
            found = list(self._with_columns(found))
            columns = pick(self._columns(found), by)
        ledger = self.ledger
        usage, firsts = groups.usage_frame(
            found,
            columns,
            include_emulated=include_emulated,
            include_reused=include_reused,
            estimates=None if ledger is None else groups.estimates_of(ledger),
            prices=self.plan.prices,
        )
        if isinstance(found, list):
            self._retype(usage, _source_rows(found, firsts))
        if not include_emulated:
            hint = "; include_emulated=True counts the emulator's"
            return groups.say_left_out(usage, hint=hint, file=sys.stderr)
        return usage

    def summary_df(self, by: str | Sequence[str] | None) -> "pd.DataFrame":
        """Return one row for each group of trials."""
        from svc_notebook.ledger import groups  # noqa: PLC0415 - pandas

        names = self._varied() if by is None else as_names(by)
        known = {column.name for column in self._columns(())}
        rows = list(self.replies(texts=not known - TEXTS >= set(names)))
        columns = pick(self._columns(rows), names)
        frame, firsts = groups.summary_frame(rows, columns)
        self._retype(frame, _source_rows(rows, firsts))
        return frame

    def compare(
        self,
        *,
        rows: str | Sequence[str] | None,
        columns: str | Sequence[str] | None,
    ) -> Comparison:
        """Return a table of replies."""
        found = list(self.replies())
        known = self._columns(found)
        down = pick(known, self._own(rows) or self._down(), param="rows")
        across = pick(known, self._own(columns) or self._across(down), param="columns")
        return _comparison(found, down, across, title=self.headline())

    def _columns(self, rows: Iterable[Reply | Exchange]) -> tuple[Column, ...]:
        """Return the columns of these rows: of replies, then those of the grid."""
        names = dict.fromkeys(self.grid.column_names)
        found = (names, *(row.origin.columns for row in rows))
        return (*REPLIES, *template_columns(found, [each.name for each in REPLIES]))

    def _final_names(self) -> dict[str, str]:
        """Return what each column of the grid is called in a frame of replies."""
        names = (column.name for column in self._columns(())[len(REPLIES) :])
        return dict(zip(self.grid.column_names, names, strict=True))

    def source_names(self) -> dict[str, str]:
        """Return what each column of the rows is called in a frame of replies."""
        if (source := self.grid.source) is None:
            return {}
        names, keys = self._final_names(), list(source.shown)[len(source.index) :]
        return {
            name: names[key] for name, key in zip(source.columns, keys, strict=True)
        }

    def _varied(self) -> tuple[str, ...]:
        names = [
            f"{name}_template" if name in self.grid.templates else name
            for name in self.grid.varied
        ]
        known = {column.name for column in self._columns(())}
        return tuple(name for name in names if name in known) or ("model",)

    def _own(self, names: str | Sequence[str] | None) -> list[str]:
        """Replace names that replies and source share by the source's column."""
        mine = self.source_names()
        given = [] if names is None else as_names(names)
        return [mine.get(name, name) for name in given]

    def _down(self) -> tuple[str, ...]:
        if not self.grid.source:
            return ("prompt",)
        mine, names = self.source_names(), self._final_names()
        across = {TOOLS, *(f"{name}_template" for name in self.grid.templates)}
        filled = (name for name in self.grid[0].columns if name not in across)
        return tuple(mine.get(name, names[name]) for name in filled) or ("prompt",)

    def _across(self, down: Sequence[Column]) -> tuple[str, ...]:
        taken = {column.name for column in down}
        return tuple(name for name in self._varied() if name not in taken) or ("model",)

    def _frame_of(self, rows: Iterable[Reply]) -> "pd.DataFrame":
        from svc_notebook.ledger.frames import rows_frame  # noqa: PLC0415 - pandas

        frame = rows_frame(rows, prices=self.plan.prices)
        if self.grid.source is None:
            return frame
        names, here = self._final_names(), len(BEFORE_TEMPLATE)
        if frame.empty:
            for offset, (key, name) in enumerate(names.items()):
                alike = "repeat" if key == ROW else "model"  # none, of its dtype
                frame.insert(here + offset, name, frame[alike])
        # in one order, whichever columns the first rows happen to have
        own = [name for name in names.values() if name in frame.columns]
        rest = [name for name in frame.columns if name not in own]
        frame = frame[[*rest[:here], *own, *rest[here:]]]
        self._retype(frame, frame[names[ROW]].tolist())
        return frame

    def _retype(self, frame: "pd.DataFrame", rows: Sequence[int]) -> None:
        """Replace columns that came from a DataFrame by its own, of these rows."""
        source = self.grid.source
        if source is None or source.frame is None:
            return
        given, n_levels, names = source.frame, len(source.index), self._final_names()
        for position, key in enumerate(source.shown):
            if names[key] in frame.columns:
                if position < n_levels:
                    values = given.index.get_level_values(position)
                else:
                    values = given.iloc[:, position - n_levels]
                frame[names[key]] = values.take(rows).array

    def _exchanges(self, *, texts: bool) -> Iterable[Exchange]:
        if self.ledger is None:
            return ()
        found = self.ledger.read(scope="all", run=self.plan.run_id, texts=texts)
        if not self.strays:
            return found
        return (each for each in found if key_of(each) not in self.strays)

    def _with_columns(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """Give exchanges all columns that their trials have in a frame of replies."""
        trials = dict(self.grid.places())
        for each in exchanges:
            if (columns := trials.get(key_of(each))) is not None:
                yield replace(each, origin=replace(each.origin, columns=columns))


def _source_rows(rows: Sequence[Reply | Exchange], firsts: Iterable[int]) -> list[int]:
    return [rows[each].origin.columns.get(ROW, 0) for each in firsts]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if is_missing(each) else each for name, each in row.items()}


def _as_text(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


MAX_ROWS = 50
MAX_COLUMNS = 12

_INSTEAD = {
    "planned": "not sent yet",
    "not_run": "not run",
    "cancelled": "interrupted",
}


def _comparison(
    replies: Sequence[Reply],
    rows: Sequence[Column],
    columns: Sequence[Column],
    *,
    title: str,
) -> Comparison:
    """Arrange replies in a table; those that do not fit are counted."""
    fields: dict[tuple[str, ...], dict[tuple[str, ...], list[Entry]]] = {}
    heads: dict[tuple[str, ...], None] = {}
    batch = reply_batch(replies)
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
    if exchange is not None and choice is not None and is_cut(exchange, choice):
        marks.append("cut")
    if reply.status == "error":
        failure = reply.failure
        marks.append(failure.type if failure else "error")
    elif reply.status in _INSTEAD:
        marks.append(_INSTEAD[reply.status])
    elif choice is not None and choice.tool_calls:
        marks.append("tool calls")
    parts = [] if choice is None else [choice.text]
    parts += [
        f"{call.function.name}({call.function.arguments})"
        for call in (choice.tool_calls if choice else ())
    ]
    return Entry(text="\n".join(filter(None, parts)), marks=tuple(marks))


def _shown(value: Scalar) -> str:
    if value is None:
        return "not sent"
    return f"{value:g}" if isinstance(value, float) else str(value)

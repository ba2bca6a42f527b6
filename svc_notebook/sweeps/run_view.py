"""What can be read of a run: frames, a comparison, its manifest.

The ledger is the only record and is read each time, so a frame is current while
requests are being sent.
"""

import dataclasses
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from zlib import compress

import msgspec
from msgspec.structs import replace

from svc_notebook.analysis.answers import AnswerType, kept_type, with_answers
from svc_notebook.credentials import known_keys
from svc_notebook.display.comparison import Comparison
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.columns import (
    Batch,
    Column,
    as_names,
    extra_columns,
    pick,
    template_columns,
)
from svc_notebook.ledger.reply_columns import (
    REPLIES,
    Reply,
)
from svc_notebook.ledger.row import KeptPlan, to_json
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.checks import check_flag

from .describe import Size, headline, reasons_of, size_of, size_seen
from .dimensions import EXTRA, LABELS, TOOLS
from .grid import RunPlan
from .resume import (
    RunStatus,
    TrialFailure,
    TrialKey,
    TrialStatus,
    by_trial,
    key_of,
    reply_rows,
    status_of,
    strays_of,
    trial_batches,
)
from .source import ROW, plain

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


class RunView:
    """Reads a run from the ledger.

    Attributes:
        ledger: Where the replies are kept; None before anything was sent.
        failures: Why trials have no reply, where the ledger does not say it. The loop
            adds to it, so read a copy.
        strays: Trials of this run in the ledger that the plan lacks; left out.
        bound_strays: Those it was bound with; the others are of a newer plan.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.grid = plan.grid
        self.ledger: Ledger | None = None
        self.failures: dict[TrialKey, TrialFailure] = {}
        self.strays: Mapping[TrialKey, TrialStatus] = {}
        self.bound_strays: Mapping[TrialKey, TrialStatus] = {}
        self.answer: AnswerType | None = plan.answer
        self._sent = RunStatus()
        self._stamp: tuple[int, str] | None = None

    def take_answer(self) -> None:
        """Read answers as the run did before, if its plan does not say how."""
        first = self.status().first
        if self.plan.answer is None and first is not None:
            self.answer = kept_type(first.origin.answer)
            self.plan = dataclasses.replace(self.plan, answer=self.answer)

    @property
    def size(self) -> Size:
        """How large the plan is, by the replies so far if there are enough."""
        seen = {} if self.ledger is None else self.status().seen
        return size_seen(self._planned_size, self.grid.n_by_model, seen)

    @cached_property
    def _planned_size(self) -> Size:
        return size_of(self.grid, prices=self.plan.prices)

    @property
    def is_begun(self) -> bool:
        """Whether anything was sent."""
        return self.ledger is not None

    def status(self) -> RunStatus:
        """Return the status of every trial."""
        found = RunStatus() if self.ledger is None else self.sent(self.ledger)
        return found.with_failures(self.failures.copy())

    def sent(self, ledger: Ledger) -> RunStatus:
        """Return the status of what a ledger has of this run, and find its strays.

        It is read again when exchanges were added or removed: another plan of this
        name may have sent more.
        """
        stamp = ledger.stamp(self.plan.run_id)
        if stamp is None or stamp != self._stamp:
            read = partial(self._read, ledger, texts=False)
            found = status_of(read())
            self.strays = strays_of(self.plan, found.trials, read)
            if self.strays:
                found = status_of(self._without_strays(ledger, texts=False))
            self._sent, self._stamp = found, stamp
        return self._sent

    def reasons(self) -> list[str]:
        """Return why trials have no reply, each reason with its count."""
        found = by_trial(self._exchanges(texts=False), self.failures.copy())
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

    def notes(self) -> list[tuple[str, str]]:
        """Say what else is worth knowing: new names, how answers are read, tools."""
        names = self.source_names().items()
        renamed = [f"{name} is {new}" for name, new in names if name != new]
        lines = []
        if renamed and not self.is_begun:
            lines.append(("note", f"in replies_df(), {', '.join(renamed)}"))
        if self.answer is not None:
            lines.append(("answer", self.answer.in_words))
        if (limits := self.plan.run_tools) is not None:
            n_most = f"{limits['max_rounds']:g}"
            lines.append(("tools run", f"here; up to {n_most} requests for each reply"))
        return lines

    def manifest(self, found: Mapping[str, Limit | None]) -> dict[str, Any]:
        """Return all that is needed to repeat the run, as JSON values.

        `found` has the limits that this kernel found, by model.
        """
        plan, grid, status = self.plan, self.grid, self.status()
        exchanges = self._exchanges(texts=False)
        times = [(each.started_at, each.ended_at) for each in exchanges]
        first = status.first
        values = {
            **self._planned(),
            "counts": dict(status.counts(len(grid))),
            "endpoint": first.endpoint if first else None,
            "is_emulated": first.is_emulated if first else None,
            "started_at": min((began for began, _ in times), default=None),
            "ended_at": max((ended for _, ended in times), default=None),
            "limits": {
                model: grid.endpoint.limit_of(model) for model in grid.n_by_model
            },
            "found_limits": found,
            "prices": plan.prices,
            "versions": {
                "svc_notebook": version("svc-notebook"),
                "python": platform.python_version(),
            },
        }
        # what JSON does not have becomes a text
        return msgspec.to_builtins(values, enc_hook=_as_text, str_keys=True)  # type: ignore[no-any-return]  # a dict

    def _planned(self) -> dict[str, Any]:
        """Return the part of the manifest that is known before anything is sent."""
        plan, grid, source = self.plan, self.grid, self.grid.source
        files = None if source is None else source.files
        rows = None
        if source is not None and files is None:
            rows = [plain(source.row(position)) for position in range(len(source))]
        return {
            "run": plan.run_id,
            "name": plan.name,
            "origin": plan.origin,
            "seed": plan.seed,
            "repeats": grid.repeats,
            "dimensions": grid.dimensions,
            "rows": rows,
            "files": None if files is None else files.found,
            "dtypes": {} if source is None else source.dtypes,
            "categories": {} if source is None else source.categories,
            "index": {} if source is None or files is not None else source.index,
            "kept": None if grid.kept is None else list(grid.kept),
            "fixed": {
                name: each.points[0].get(name)
                for each in grid.dimensions
                if len(each.points) == 1 and not each.is_by_row
                for name in each.names
            },
            "answer": plan.answer and plan.answer.kept,
            "is_raw": grid.is_raw,
            "own_limits": {model: each.given for model, each in plan.paces.items()},
            "in_flight": plan.in_flight,
            "run_tools": plan.run_tools,
            "n_cells": len(grid),
        }

    def keep_plan(self, ledger: Ledger) -> None:
        """Keep the plan with its rows in the ledger, unless it is there already.

        A newer plan of this name stays the newest.
        """
        if self.strays.keys() - self.bound_strays.keys():
            return
        text = to_json(self._planned()).decode()
        for key in known_keys():  # a column that no prompt uses may hold one
            text = key.redact(text)
        whole = text.encode()
        digest = blake2b(whole, digest_size=8).hexdigest()
        kept = ledger.plans(self.plan.run_id, is_whole=False)
        if kept and kept[-1].digest == digest:
            return
        # an older plan stays while the run has trials that are not in this one
        part = kept[-1].part + bool(self.strays) if kept else 0
        plan = KeptPlan(
            run=self.plan.run_id,
            part=part,
            name=self.plan.name,
            n_trials=len(self.grid),
            digest=digest,
            manifest=compress(whole, level=1),
        )
        ledger.add_plan(plan)

    def replies(self, *, texts: bool = True) -> Iterator[Reply]:
        """Return the rows of `replies_df`, one by one; see `Ledger.read` for texts."""
        found = by_trial(self._exchanges(texts=texts), self.failures.copy())
        return reply_rows(self.plan, found, self.failures, is_begun=self.is_begun)

    def plan_df(self) -> "pd.DataFrame":
        """Return one row for each trial, as planned."""
        return self.frame_of(trial_batches(self.plan, (), {}, is_begun=False))

    def replies_df(self) -> "pd.DataFrame":
        """Return one row for each choice, in the order of the plan."""
        from svc_notebook.ledger.frames import with_scores  # noqa: PLC0415 - pandas

        failures = self.failures.copy()
        found = self._exchanges(texts=True)
        batches = trial_batches(self.plan, found, failures, is_begun=self.is_begun)
        return with_scores(self.frame_of(batches), self.ledger)

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

    def compare(
        self,
        *,
        rows: str | Sequence[str] | None,
        columns: str | Sequence[str] | None,
        markdown: bool,
        diff: bool,
    ) -> Comparison:
        """Return a table of replies."""
        from svc_notebook.analysis.compare import compare  # noqa: PLC0415 - pandas

        return compare(
            self.replies_df(),
            rows=self._down() if rows is None else self.own(rows),
            columns=None if columns is None else self.own(columns),
            markdown=markdown,
            diff=diff,
            title=self.headline(),
        )

    def exchange_id_of(self, conditions: Mapping[str, object]) -> str:
        """Return the id of the one exchange that meets the conditions."""
        from svc_notebook.analysis.compare import find  # noqa: PLC0415 - pandas

        here = ("row", "repeat", "choice_index")  # what tells replies apart
        own = {
            name if name in here else self.own(name)[0]: value
            for name, value in conditions.items()
        }
        return find(self.replies_df(), own)

    def _columns(self, rows: Iterable[Reply | Exchange]) -> tuple[Column, ...]:
        """Return the columns of these rows: of replies, then those of the grid."""
        return (*REPLIES, *self._extras, *self._templates(rows))

    @cached_property
    def _extras(self) -> tuple[Column, ...]:
        return extra_columns(self.grid.values_of(EXTRA))

    def _templates(self, rows: Iterable[Reply | Exchange] = ()) -> tuple[Column, ...]:
        names = dict.fromkeys(self.grid.column_names)
        found = (names, *(row.origin.columns for row in rows))
        return template_columns(found, [each.name for each in REPLIES])

    def _final_names(self) -> dict[str, str]:
        """Return what each column of the grid is called in a frame of replies."""
        names = (column.name for column in self._templates())
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
            if LABELS.get(name) not in self.grid.varied
        ]
        if EXTRA in names:
            names.remove(EXTRA)
            names += [column.name for column in self._extras]
        known = {column.name for column in self._columns(())}
        return tuple(name for name in names if name in known) or ("model",)

    def own(self, names: str | Sequence[str]) -> list[str]:
        """Replace names that replies and source share by the source's column.

        What the run compares, such as the model, is still meant by its own name.
        """
        varied = {"model", *self.grid.varied}
        mine = {k: v for k, v in self.source_names().items() if k not in varied}
        return [mine.get(name, name) for name in as_names(names)]

    def _down(self) -> tuple[str, ...]:
        if not self.grid.source:
            label = LABELS["prompt"]
            return (label if label in self.grid.varied else "prompt",)
        mine, names = self.source_names(), self._final_names()
        across = {
            TOOLS,
            *LABELS.values(),
            *(f"{name}_template" for name in self.grid.templates),
        }
        filled = (name for name in self.grid[0].columns if name not in across)
        return tuple(mine.get(name, names[name]) for name in filled) or ("prompt",)

    def frame_of(self, batches: Iterable[Batch]) -> "pd.DataFrame":
        """Return the frame of batches of trials, without their scores."""
        from svc_notebook.ledger.frames import trials_frame  # noqa: PLC0415 - pandas

        frame = trials_frame(batches)
        if self.answer is not None:
            with_answers(frame, self.answer)
        if self.grid.source is None:
            return frame
        names = self._final_names()
        if frame.empty:
            for offset, (key, name) in enumerate(names.items()):
                alike = "repeat" if key == ROW else "model"  # none, of its dtype
                frame.insert(offset, name, frame[alike])
        # in one order, whichever columns the first rows happen to have
        own = [name for name in names.values() if name in frame.columns]
        rest = [name for name in frame.columns if name not in own]
        frame = frame[[*own, *rest]]
        self._retype(frame, frame[names[ROW]].tolist())
        return frame

    def _retype(self, frame: "pd.DataFrame", rows: Sequence[int]) -> None:
        """Replace columns that came from a DataFrame by its own, of these rows."""
        source = self.grid.source
        if source is None or (source.frame is None and source.files is None):
            return
        given, rows = source.frame_of(rows)
        n_levels, names = len(source.index), self._final_names()
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
        if self.plan.name is not None:
            self.sent(self.ledger)
        return self._without_strays(self.ledger, texts=texts)

    def _without_strays(self, ledger: Ledger, *, texts: bool) -> Iterable[Exchange]:
        found, strays = self._read(ledger, texts=texts), self.strays
        if not strays:
            return found
        return (each for each in found if key_of(each) not in strays)

    def _read(self, ledger: Ledger, *, texts: bool) -> Iterable[Exchange]:
        return ledger.read(scope="all", run=self.plan.run_id, texts=texts)

    def _with_columns(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """Give exchanges all columns that their trials have in a frame of replies."""
        trials = dict(self.grid.places())
        for each in exchanges:
            if (columns := trials.get(key_of(each))) is not None:
                yield replace(each, origin=replace(each.origin, columns=columns))


def _source_rows(rows: Sequence[Reply | Exchange], firsts: Iterable[int]) -> list[int]:
    return [rows[each].origin.columns.get(ROW, 0) for each in firsts]


def _as_text(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def cell_number() -> int | None:
    """Return the number of the cell or line that runs; None outside of IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    return None if shell is None else int(shell.execution_count)

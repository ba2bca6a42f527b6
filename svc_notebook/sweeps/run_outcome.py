"""The outcome of a run: what is done, what is missing, what failed, and its frames.

The ledger is the only record and is read each time, so the outcome is up to date while
requests are being sent.
"""

import dataclasses
import platform
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from importlib.metadata import version
from itertools import starmap
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from svc_notebook.analysis.read_answers import (
    AnswerType,
    kept_type,
    unread_answers,
    with_answers,
)
from svc_notebook.analysis.scoring import (
    AnswerFaults,
    Columns,
    ScoreRule,
    never_right,
    planned_in_words,
)
from svc_notebook.display.front_end import write_note
from svc_notebook.display.text_table import ComparisonTable
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import (
    REPLIES,
    Batch,
    Column,
    ReplyRow,
    RowStatus,
    as_names,
    chunks,
    exchange_batch,
    extra_columns,
    pick,
    template_columns,
    to_replies,
)
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.params import check_flag
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Session

from .estimate import PlanEstimate, estimate_by_replies, estimate_of
from .grid import EXTRA, LABELS, TOOLS, Grid, Trial, prompt_tokens_of
from .plan import (
    DecisionPlan,
    Plan,
    looks_at,
    manifest_of,
    planned_never_right,
    stored_facts,
)
from .plan_description import Line, headline, reasons_of
from .resume import (
    RunStatus,
    TrialFailure,
    TrialKey,
    TrialStatus,
    as_ended,
    by_trial,
    key_of,
    newest_by_trial,
    settled_of,
    status_of,
    unplanned_of,
)
from .rows import ROW

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd

RowColumns = dict[str, Any]
PART_ROWS = 50_000  # rows of a part: so many are in memory at once


def reply_rows(
    plan: Plan,
    newest: Mapping[TrialKey, Exchange],
    failures: Mapping[TrialKey, TrialFailure],
    *,
    is_begun: bool,
) -> Iterator[ReplyRow]:
    """Yield the rows of all trials: their choices, or why there is no reply."""
    missing: RowStatus = "not_run" if is_begun else "planned"
    for number, (key, columns) in enumerate(plan.grid.places()):
        exchange = newest.get(key)
        if exchange is None:
            trial, failed = plan.grid[number], failures.get(key)
            yield ReplyRow(
                request=trial.request,
                origin=replace(plan.origin_of(trial), columns=columns),
                status="error" if failed else missing,
                failure=failed.failure if failed else None,
                est_prompt_tokens=trial.prompt_tokens.best,
            )
            continue
        yield from to_replies(exchange, columns)


def trial_batches(
    plan: Plan,
    exchanges: Iterable[Exchange],
    failures: Mapping[TrialKey, TrialFailure],
    *,
    is_begun: bool,
) -> Iterator[Batch]:
    """Yield the rows of all trials in batches, to be read by columns.

    The exchanges are of one run, oldest first, and are read once. The part `trial` is
    the number of a trial in the plan; if a trial comes several times, its last `turn`
    counts.
    """
    places = {
        key: (number, columns)
        for number, (key, columns) in enumerate(plan.grid.places())
    }
    sent = set[int]()

    def rows() -> Iterator[tuple[int, int, Exchange, RowColumns]]:
        for turn, (key, exchange) in enumerate(newest_by_trial(exchanges, failures)):
            if key in places:
                number, columns = places[key]
                sent.add(number)
                yield number, turn, exchange, columns or exchange.origin.columns

    for chunk in chunks(rows()):
        numbers, turns, sent_exchanges, columns = zip(*chunk, strict=True)
        parts = {"trial": numbers, "turn": turns, "origin.columns": columns}
        batch = exchange_batch(sent_exchanges, plan.prices, parts=parts)
        # a chunk is large, so it is freed before the next one is read
        del chunk, sent_exchanges
        yield batch
        del batch
    missing = [
        (number, key, columns)
        for key, (number, columns) in places.items()
        if number not in sent
    ]
    status: RowStatus = "not_run" if is_begun else "planned"
    for part in chunks(missing):
        yield _missing_batch(plan, part, failures, status)


def _missing_batch(
    plan: Plan,
    places: Sequence[tuple[int, TrialKey, RowColumns]],
    failures: Mapping[TrialKey, TrialFailure],
    status: RowStatus,
) -> Batch:
    """Return a batch with the rows of trials that have no exchange."""
    numbers, keys, columns = zip(*places, strict=True)
    combinations = [number // plan.grid.repeats for number in numbers]
    requests = [*plan.grid.requests(combinations)]
    failed = [failures.get(key) for key in keys]
    origin, nothing = plan.origin_of(plan.grid[numbers[0]]), [None] * len(numbers)
    return Batch(
        numbers,
        {
            **dict.fromkeys(("exchange", "first", "choice", "cost"), nothing),
            "trial": numbers,
            "request": requests,
            "origin": [origin] * len(numbers),
            "origin.request_key": [key for key, _ in keys],
            "origin.repeat": [repeat for _, repeat in keys],
            "origin.columns": columns,
            "status": ["error" if failure else status for failure in failed],
            "failure": [failure and failure.failure for failure in failed],
            "est_prompt_tokens": [*_estimates(plan.grid, combinations, requests)],
        },
    )


def _estimates(
    grid: Grid, combinations: Iterable[int], requests: Iterable[CompletionRequest]
) -> Iterator[int]:
    """Yield the estimated prompt tokens.

    Conditions of a row often share their messages, which are then estimated once.
    """
    known, before = grid.estimates, None
    for number, request in zip(combinations, requests, strict=True):
        if known[number] < 0:
            is_same = before is not None and request.messages is before.messages
            if not is_same or request.tools:
                before, best = request, prompt_tokens_of(request).best
            known[number] = best
        yield known[number]


class RunFrames:
    """Makes the frames of a run.

    Attributes:
        answer: The type of the answers to read from replies; None reads no answers.
    """

    def __init__(self, grid: Grid, answer: AnswerType | None) -> None:
        self.answer = answer
        self._grid = grid

    def frame_of(self, batches: Iterable[Batch]) -> "pd.DataFrame":
        """Return the frame of batches of trials, without scores."""
        from svc_notebook.ledger.reply_frames import trials_frame  # noqa: PLC0415 - pandas

        frame = trials_frame(batches)
        if self.answer is not None:
            with_answers(frame, self.answer)
        if self._grid.rows is None:
            return frame
        names = self._final_names()
        if frame.empty:
            for offset, (key, name) in enumerate(names.items()):
                # a column without rows that has the right dtype
                alike = "repeat" if key == ROW else "model"
                frame.insert(offset, name, frame[alike])
        # the same order, whichever columns the first rows have
        own = [name for name in names.values() if name in frame.columns]
        rest = [name for name in frame.columns if name not in own]
        frame = frame[[*own, *rest]]
        self._retype(frame, frame[names[ROW]].tolist())
        return frame

    def frame_of_exchanges(
        self, exchanges: Sequence[Exchange], prices: Prices | None
    ) -> "pd.DataFrame":
        """Return the frame of exchanges that have the columns of their trials."""
        numbers = range(len(exchanges))
        columns = [exchange.origin.columns for exchange in exchanges]
        parts = {"trial": numbers, "turn": numbers, "origin.columns": columns}
        return self.frame_of([exchange_batch(exchanges, prices, parts=parts)])

    def usage_df(
        self,
        exchanges: Iterable[Exchange],
        *,
        by: str | Sequence[str],
        include_emulated: bool,
        include_reused: bool,
        ledger: Ledger | None,
        prices: Prices | None,
    ) -> "pd.DataFrame":
        """Return one row for each group of requests."""
        from svc_notebook.ledger.token_calibration import (  # noqa: PLC0415 - pandas
            estimates_of,
        )
        from svc_notebook.ledger.usage import (  # noqa: PLC0415 - pandas
            say_left_out,
            usage_frame,
        )

        columns = pick(self._columns(()), by)
        if not set(columns) <= set(REPLIES):
            exchanges = list(self.with_columns(exchanges))
            columns = pick(self._columns(exchanges), by)
        usage, firsts = usage_frame(
            exchanges,
            columns,
            include_emulated=include_emulated,
            include_reused=include_reused,
            estimates=None if ledger is None else estimates_of(ledger),
            prices=prices,
        )
        if isinstance(exchanges, list):
            rows = [exchanges[first].origin.columns.get(ROW, 0) for first in firsts]
            self._retype(usage, rows)
        if not include_emulated:
            hint = "; include_emulated=True counts the emulator's"
            return say_left_out(usage, hint=hint, say=write_note)
        return usage

    def own(self, names: str | Sequence[str]) -> list[str]:
        """Return the columns of the frame that these names mean.

        A column of the rows may have the same name as a column of replies, such as
        `text`. Then the column of the rows is meant, unless the run varies the name,
        such as `model`.
        """
        varied = {"model", *self._grid.varied}
        of_rows = {
            name: column
            for name, column in self.row_names().items()
            if name not in varied
        }
        return [of_rows.get(name, name) for name in as_names(names)]

    def own_conditions(self, conditions: Mapping[str, object]) -> dict[str, object]:
        """Replace the names of conditions by those of the frame, as `own` does."""
        # these identify replies, even if the rows have columns with such names
        identity = ("row", "repeat", "choice_index")
        return {
            name if name in identity else self.own(name)[0]: value
            for name, value in conditions.items()
        }

    def default_rows(self, correct: Iterable[str]) -> tuple[str, ...]:
        """Return the columns whose values become the rows of a comparison.

        Those in `correct` come last, if the rows have them.
        """
        grid = self._grid
        if not grid.rows:
            label = LABELS["prompt"]
            return (label if label in grid.varied else "prompt",)
        row_names, names = self.row_names(), self._final_names()
        # these become columns of the comparison
        across = {
            TOOLS,
            *LABELS.values(),
            *(f"{name}_template" for name in grid.templates),
        }
        filled = (name for name in grid[0].columns if name not in across)
        shown = [row_names.get(name, names[name]) for name in filled] or ["prompt"]
        more = [name for name in correct if name in row_names.values()]
        return tuple(dict.fromkeys([*shown, *more]))

    def row_names(self) -> dict[str, str]:
        """Return the name that each column of the rows has in a frame of replies."""
        if (rows := self._grid.rows) is None:
            return {}
        names, keys = self._final_names(), list(rows.shown)[len(rows.index) :]
        return {name: names[key] for name, key in zip(rows.columns, keys, strict=True)}

    def unit_columns(self, unit: Iterable[str]) -> list[str]:
        """Return the names that the columns of a unit have in a frame of replies."""
        names = self._final_names() | self.row_names()
        return [names[name] for name in unit]

    def _columns(self, rows: Iterable[ReplyRow | Exchange]) -> tuple[Column, ...]:
        """Return the columns of a frame of these rows: of replies, then of the grid."""
        return (*REPLIES, *self._extras, *self._templates(rows))

    @cached_property
    def _extras(self) -> tuple[Column, ...]:
        return extra_columns(self._grid.values_of(EXTRA))

    def _templates(
        self, rows: Iterable[ReplyRow | Exchange] = ()
    ) -> tuple[Column, ...]:
        names = dict.fromkeys(self._grid.column_names)
        columns = (names, *(row.origin.columns for row in rows))
        return template_columns(columns, [column.name for column in REPLIES])

    def _final_names(self) -> dict[str, str]:
        """Return the name that each column of the grid has in a frame of replies."""
        names = (column.name for column in self._templates())
        return dict(zip(self._grid.column_names, names, strict=True))

    def _retype(self, frame: "pd.DataFrame", numbers: Sequence[int]) -> None:
        """Give columns that came from a DataFrame their original dtypes and values."""
        rows = self._grid.rows
        if rows is None or (rows.frame is None and rows.files is None):
            return
        original, numbers = rows.frame_of(numbers)
        n_levels, names = len(rows.index), self._final_names()
        for position, key in enumerate(rows.shown):
            if names[key] in frame.columns:
                if position < n_levels:
                    values = original.index.get_level_values(position)
                else:
                    values = original.iloc[:, position - n_levels]
                frame[names[key]] = values.take(numbers).array

    def with_columns(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """Yield exchanges with the columns that their trials have in a frame."""
        trials = dict(self._grid.places())
        for exchange in exchanges:
            if (columns := trials.get(key_of(exchange))) is not None:
                yield replace(
                    exchange, origin=replace(exchange.origin, columns=columns)
                )


class RunResult:
    """Reads a run from the ledger.

    Attributes:
        plan: The plan of the run.
        reused: Returns the answer that the ledger has for a trial, if any.
        session: The session whose price table counts if the plan has none.
        ledger: The ledger that has the replies; None before anything was sent.
        failures: Why trials have no reply, if the ledger does not say it. The event
            loop adds to it, so read a copy.
        unplanned: Trials that the ledger has under the name of the run and that the
            plan does not have; they are left out.
        unplanned_when_bound: The unplanned trials that the ledger had at first; later
            ones were sent by a newer plan.
        frames: Makes the frames of the run.
        rules: The score functions that this kernel knows, by name.
    """

    def __init__(
        self, plan: Plan, reused: Callable[[Trial], object], *, session: Session
    ) -> None:
        self.plan = plan
        self.reused = reused
        self.session = session
        self.ledger: Ledger | None = None
        self.failures: dict[TrialKey, TrialFailure] = {}
        self.unplanned: Mapping[TrialKey, TrialStatus] = {}
        self.unplanned_when_bound: Mapping[TrialKey, TrialStatus] = {}
        self.frames = RunFrames(plan.grid, plan.answer)
        self.rules: Mapping[str, ScoreRule] = {}
        self._sent = RunStatus()
        self._stamp: tuple[int, str] | None = None
        self._faults = AnswerFaults()
        # the state of the ledger, the type and the functions that it is about
        self._faults_of: tuple[object, ...] = ()
        self._planned: PlanEstimate | None = None

    def take_answer(self) -> None:
        """Read answers as the first replies of the run say, if the plan does not."""
        first = self.status().first
        if self.plan.answer is None and first is not None:
            self.frames.answer = kept_type(first.origin.answer)
            self.plan = dataclasses.replace(self.plan, answer=self.frames.answer)

    @property
    def unit(self) -> list[str] | None:
        """The columns of its frames that say which rows belong together."""
        return self.frames.unit_columns(self.plan.unit) or None

    @property
    def prices(self) -> Prices | None:
        """The price table of the plan, or else the one that the session has now."""
        planned = self.plan.prices
        return self.session.context().prices if planned is None else planned

    @property
    def size(self) -> PlanEstimate:
        """How large the plan is, by the replies so far if there are enough."""
        if self.plan.is_reusing:  # reused replies say nothing about the others
            return self._planned_size()
        if self.ledger is None:
            return self._planned_size()
        status, n_left = self.status(), Counter(self.plan.grid.n_by_model)
        n_left.subtract(settled_of(status).n_by_model)
        left = {model: max(n_left[model], 0) for model in self.plan.grid.n_by_model}
        size = estimate_by_replies(self._planned_size(), left, status.seen)
        first = status.first
        is_emulated = first is not None and first.is_emulated
        return dataclasses.replace(size, is_emulated=is_emulated)

    def _planned_size(self) -> PlanEstimate:
        """Return the estimate by the plan, made again only for another price table."""
        prices = self.prices
        if self._planned is None or self._planned.prices != prices:
            self._planned = estimate_of(
                self.plan.grid,
                prices=prices,
                is_answered=lambda trial: self.plan.is_reusing and self.reused(trial),
            )
        return self._planned

    @property
    def is_begun(self) -> bool:
        """Whether anything was sent."""
        return self.ledger is not None

    def status(self) -> RunStatus:
        """Return the status of every trial."""
        sent = RunStatus() if self.ledger is None else self.sent(self.ledger)
        return sent.with_failures(self.failures.copy())

    @property
    def decision(self) -> DecisionPlan | None:
        """What `Run.decide` fixed; None if the run never decided.

        A decision that looked once at a complete run ends when the run grows.
        """
        stored = stored_facts(self.ledger, self.plan.run_id).decision
        fixed = self.plan.decision or stored
        had_one_look = fixed is not None and fixed.block_rows is None
        return None if had_one_look and self.n_todo else fixed

    @property
    def n_todo(self) -> int:
        """How many requests `run` would send."""
        return len(self.plan.grid) - len(settled_of(self.status()))

    def sent(self, ledger: Ledger) -> RunStatus:
        """Return the status of the trials that a ledger has; set `unplanned`.

        The ledger is read again if exchanges were added or deleted, because another
        plan of this name may have sent some.
        """
        stamp = ledger.stamp(self.plan.run_id)
        if stamp is None or stamp != self._stamp:
            read = partial(self._read, ledger, texts=False)
            sent = status_of(read())
            self.unplanned = unplanned_of(self.plan, sent.trials, read)
            if self.unplanned:
                sent = status_of(self._without_unplanned(ledger, texts=False))
            self._sent, self._stamp = sent, stamp
        return self._sent

    def answer_faults(self) -> AnswerFaults:
        """Count what is wrong with the answers of the replies so far.

        The texts are read again if exchanges were added, or for another type or other
        scores. If the ledger cannot be read, the last count stays.
        """
        answer = self.frames.answer
        if self.ledger is None or answer is None or answer.read is None:
            return AnswerFaults()
        functions = {name: rule.function for name, rule in self.rules.items()}
        state = self.ledger.stamp(self.plan.run_id), answer, functions
        if state[0] is None or state != self._faults_of:
            with suppress(LedgerError):
                faults = AnswerFaults()
                for part in self.frames_in_parts():
                    faults += AnswerFaults(
                        unread=unread_answers(part),
                        never_right=never_right(Columns(part), functions, answer),
                    )
                self._faults = faults
                self._faults_of = state
        return self._faults

    def reasons(self) -> list[str]:
        """Return why trials have no reply, each reason with its count."""
        unrecorded = self.failures.copy()
        newest = by_trial(self.exchanges(texts=False), unrecorded)
        failures = [
            exchange.failure
            for exchange in newest.values()
            if exchange.status == "error"
        ]
        failures += [
            failed.failure for key, failed in unrecorded.items() if key not in newest
        ]
        return reasons_of(filter(None, failures))

    def headline(self) -> str:
        """Return the outcome in one line, even if the ledger cannot be read."""
        plan = self.plan
        name = f"Run {plan.name}: " if plan.name else "Run: "
        try:
            counts = self.status().counts(len(plan.grid))
            unread = self.answer_faults().unread
        except LedgerError:
            return name + "its ledger cannot be read."
        return name + headline(
            plan.grid, counts, is_begun=self.is_begun, unread=unread.in_words
        )

    def notes(self) -> list[Line]:
        """Return further lines: renamed columns, answers, scores, unit and tools."""
        names = self.frames.row_names().items()
        renamed = [f"{name} is {new}" for name, new in names if name != new]
        lines = []
        if renamed and not self.is_begun:
            lines.append(("note", f"in replies_df(), {', '.join(renamed)}"))
        if self.frames.answer is not None:
            lines.append(("answer", self.frames.answer.in_words))
        if self.plan.scores:
            words = starmap(planned_in_words, self.plan.scores.items())
            lines.append(("scores", "; ".join(words)))
        if not self.is_begun:  # later the score itself says it of replies
            found = planned_never_right(
                self.plan.scores, self.plan.grid, self.frames.answer
            )
            lines += [
                ("note", f"{name}: {mismatch.in_words()}")
                for name, mismatch in found.items()
            ]
        if self.plan.unit:
            unit = " and ".join(self.plan.unit)
            lines.append(("unit", f"{unit}: rows with the same value belong together"))
        if (limits := self.plan.run_tools) is not None:
            n_most = f"{limits['max_rounds']:g}"
            lines.append(("tools run", f"here; up to {n_most} requests for each reply"))
        return lines

    def manifest(self, found_limits: Mapping[str, Limit | None]) -> dict[str, Any]:
        """Return all that is needed to repeat the run, and its outcome, as JSON values.

        `found_limits` has the limits that this kernel has measured, by model.
        """
        plan, grid, status = self.plan, self.plan.grid, self.status()
        exchanges, first = list(self.exchanges(texts=False)), status.first
        values = {
            **asdict(manifest_of(plan)),
            "looks": looks_at(self.ledger, plan),
            "counts": dict(status.counts(len(grid))),
            "endpoint": first.endpoint if first else None,
            "is_emulated": first.is_emulated if first else None,
            "started_at": min((row.started_at for row in exchanges), default=None),
            "ended_at": max((row.ended_at for row in exchanges), default=None),
            "limits": {
                model: grid.endpoint.limit_of(model) for model in grid.n_by_model
            },
            "found_limits": found_limits,
            "prices": self.prices,
            "versions": {
                "svc_notebook": version("svc-notebook"),
                "python": platform.python_version(),
            },
        }
        # values that JSON does not have become texts
        return msgspec.to_builtins(values, enc_hook=_as_text, str_keys=True)  # type: ignore[no-any-return]  # a dict

    def replies(self, *, texts: bool = True) -> Iterator[ReplyRow]:
        """Yield the rows of `replies_df` one by one; `texts` is as in `Ledger.read`."""
        newest = by_trial(self.exchanges(texts=texts), self.failures.copy())
        return reply_rows(self.plan, newest, self.failures, is_begun=self.is_begun)

    def plan_df(self) -> "pd.DataFrame":
        """Return one row for each trial, as planned."""
        plan = self._priced_plan()
        return self.frames.frame_of(trial_batches(plan, (), {}, is_begun=False))

    def replies_df(self) -> "pd.DataFrame":
        """Return one row for each choice, in the order of the plan."""
        from svc_notebook.ledger.reply_frames import with_scores  # noqa: PLC0415 - pandas

        failures = self.failures.copy()
        exchanges = self.exchanges(texts=True)
        plan = self._priced_plan()
        batches = trial_batches(plan, exchanges, failures, is_begun=self.is_begun)
        return with_scores(self.frames.frame_of(batches), self.ledger)

    def _priced_plan(self) -> Plan:
        return dataclasses.replace(self.plan, prices=self.prices)

    def frames_in_parts(self, part_rows: int = PART_ROWS) -> Iterator["pd.DataFrame"]:
        """Yield the frame of replies in parts, in the order of the plan.

        Only one part is in memory at a time.
        """
        from svc_notebook.ledger.reply_frames import with_scores  # noqa: PLC0415 - pandas

        plan, ledger = self._priced_plan(), self.ledger
        grid = plan.grid
        seqs = array("q") if ledger is None else _seqs_of_trials(plan, ledger)
        for start, part in _parts_of(grid, part_rows):
            first = start * grid.repeats
            sent = sorted(filter(None, seqs[first : first + len(part)]))
            exchanges = iter(()) if ledger is None else ledger.at(sent)
            batches = trial_batches(
                dataclasses.replace(plan, grid=part),
                exchanges,
                self.failures.copy(),
                is_begun=self.is_begun,
            )
            frames = RunFrames(part, self.frames.answer)
            yield with_scores(frames.frame_of(batches), ledger)

    def replies_since(self, since: datetime) -> "pd.DataFrame":
        """Return one row for each choice of the trials that were sent since then."""
        from svc_notebook.ledger.reply_frames import with_scores  # noqa: PLC0415 - pandas

        sent = () if self.ledger is None else self._read(self.ledger, since=since)
        newest = by_trial(sent, self.failures.copy()).values()
        exchanges = [*self.frames.with_columns(newest)]
        frame = self.frames.frame_of_exchanges(exchanges, self.prices)
        return with_scores(frame, self.ledger)

    def usage_df(
        self, by: str | Sequence[str], *, include_emulated: bool, include_reused: bool
    ) -> "pd.DataFrame":
        """Return one row for each group of requests."""
        check_flag("include_emulated", include_emulated)
        check_flag("include_reused", include_reused)
        return self.frames.usage_df(
            self.exchanges(texts=True),
            by=by,
            include_emulated=include_emulated,
            include_reused=include_reused,
            ledger=self.ledger,
            prices=self.prices,
        )

    def compare(
        self,
        rows: str | Sequence[str] | None,
        columns: str | Sequence[str] | None,
        *,
        markdown: bool,
        diff: bool,
        correct: Iterable[str] = (),
    ) -> ComparisonTable:
        """Return a table of replies; `correct` are columns with correct answers."""
        from svc_notebook.analysis.compare import compare  # noqa: PLC0415 - pandas

        frames = self.frames
        return compare(
            self.replies_df(),
            rows=frames.default_rows(correct) if rows is None else frames.own(rows),
            columns=None if columns is None else frames.own(columns),
            markdown=markdown,
            diff=diff,
            title=self.headline(),
        )

    def exchange_id_of(self, conditions: Mapping[str, object]) -> str:
        """Return the id of the one exchange that meets the conditions."""
        from svc_notebook.analysis.compare import find  # noqa: PLC0415 - pandas

        return find(self.replies_df(), self.frames.own_conditions(conditions))

    def exchanges(self, *, texts: bool) -> Iterable[Exchange]:
        """Return the exchanges of the trials of this plan, oldest first."""
        if self.ledger is None:
            return ()
        if self.plan.name is not None:
            self.sent(self.ledger)
        return self._without_unplanned(self.ledger, texts=texts)

    def _without_unplanned(self, ledger: Ledger, *, texts: bool) -> Iterable[Exchange]:
        exchanges, unplanned = self._read(ledger, texts=texts), self.unplanned
        if not unplanned:
            return exchanges
        return (exchange for exchange in exchanges if key_of(exchange) not in unplanned)

    def _read(
        self, ledger: Ledger, *, texts: bool = True, since: datetime | None = None
    ) -> Iterable[Exchange]:
        run = self.plan.run_id
        return ledger.read(scope="all", run=run, since=since, texts=texts)


def _seqs_of_trials(plan: Plan, ledger: Ledger) -> Sequence[int]:
    """Return the number of each trial's exchange in the ledger; 0 without one."""
    import pandas as pd  # noqa: PLC0415 - where parts are read

    # by the hashes of keys, because a million keys would need 200 MB
    hashes, seqs, is_ok = array("q"), array("q"), array("b")
    for seq, sent in ledger.numbered(plan.run_id):
        hashes.append(hash(key_of(sent)))
        seqs.append(seq)
        is_ok.append(as_ended(sent).status == "ok")
    trials = pd.Index(array("q", map(hash, plan.grid.trial_keys())))
    exchanges = pd.DataFrame(
        {"trial": trials.get_indexer(pd.Index(hashes)), "seq": seqs, "is_ok": is_ok}
    )
    # The newest good exchange of a trial counts, or else the newest one. A trial that
    # is not in the plan is -1, which `reindex` leaves out.
    in_order = exchanges.sort_values("is_ok", kind="stable")
    newest = in_order.drop_duplicates("trial", keep="last").set_index("trial")["seq"]
    return array("q", newest.reindex(range(len(trials)), fill_value=0))


def _parts_of(grid: Grid, part_rows: int) -> Iterator[tuple[int, Grid]]:
    """Yield parts of a grid, each with its first combination; at least one."""
    n_in_part = max(part_rows // grid.repeats, 1)
    combinations: Sequence[int] = (
        range(grid.n_product) if grid.kept is None else grid.kept
    )
    if grid.kept is None and grid.rows is not None and len(grid.rows):
        n_of_row = grid.n_product // len(grid.rows)
        n_in_part = max(n_in_part // n_of_row, 1) * n_of_row  # whole rows
    for start in range(0, max(len(combinations), 1), n_in_part):
        yield (
            start,
            dataclasses.replace(grid, kept=combinations[start : start + n_in_part]),
        )


def _as_text(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)

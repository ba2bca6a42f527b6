"""The writer of a ledger: a thread that writes queued rows in the order of arrival.

A row leaves the queue only after its commit, so it stays in memory while the file
cannot be written.
"""

import sqlite3
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from itertools import chain, islice
from threading import Condition, Thread, current_thread
from typing import Any, Literal, NamedTuple

from svc_notebook.errors import LedgerError, warn
from svc_notebook.fork import Forkable

from .exchange_rows import INSERT_MARKS, KEYS, KeptPlan
from .ledger_file import (
    TRY_S,
    Begun,
    LedgerFile,
    explain,
    is_busy,
    set_busy,
    transaction,
)
from .tool_calls import INSERT_TOOL_RUN

HELD_S = 2.0
"""Longest wait of `flush` while another program holds the file."""
GIVEN_UP_S = 30.0
"""A file that another program holds for this long counts as one that cannot be written:
then a sweep stops, because replies in memory would be lost with the kernel."""
_GATHER_S = 0.005  # when many rows arrive at once, wait so long to write them together
_IDLE_S = 0.25  # after so long without a new row, the WAL is emptied
_ROWS_AT_ONCE = 8  # exchanges in one statement: see `write_rows`
_PAUSE_S = 0.05  # between two attempts, so that readers of this process get the lock
_CLOSE_S = 2.0  # longest wait for the writer at the end of a kernel
_BATCH = 256  # most rows in one commit, so that a reader never waits long
_UNFIT = (OverflowError, UnicodeError)  # raised for values that SQLite cannot hold

# an exchange that is added again changes nothing
_INSERT_EXCHANGE, _INSERT_EXCHANGES = (
    f"INSERT INTO exchanges ({', '.join(KEYS)}) VALUES "  # noqa: S608 - our own names
    + ", ".join([f"({', '.join('?' * len(KEYS))})"] * n_rows)
    + " ON CONFLICT (started_at, exchange_id) DO NOTHING"
    for n_rows in (1, _ROWS_AT_ONCE)
)
_BEGIN = {
    key: f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT ({key}) DO UPDATE "  # noqa: S608 - our own names
    "SET first_started_at = min(first_started_at, excluded.first_started_at)"
    for table, key in (("sessions", "session_id"), ("runs", "run"))
}

_INSERT_PLAN = (
    f"INSERT OR REPLACE INTO manifests ({', '.join(KeptPlan._fields)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join(':' + key for key in KeptPlan._fields)})"
)
INSERT_SCORE = (
    "INSERT INTO scores (exchange_id, choice_index, name, value, scored_at) "
    "VALUES (:exchange_id, :choice_index, :name, :value, :scored_at) "
    "ON CONFLICT (exchange_id, choice_index, name) "
    "DO UPDATE SET value = excluded.value, scored_at = excluded.scored_at"
)
TableName = Literal["exchanges", "tool_runs", "turn_marks", "manifests", "scores"]
_INSERTS = {
    "tool_runs": INSERT_TOOL_RUN,
    "turn_marks": INSERT_MARKS,
    "manifests": _INSERT_PLAN,
    "scores": INSERT_SCORE,
}


_NOUNS: dict[TableName, str] = {
    "exchanges": "exchange",
    "tool_runs": "tool run",
    "turn_marks": "mark",
    "manifests": "plan",
    "scores": "score",
}


class QueuedRow(NamedTuple):
    """A row to write, and the future for its commit."""

    table: TableName
    values: dict[str, Any]
    receipt: "Future[None]"


def write_rows(
    connection: sqlite3.Connection, jobs: Iterable[QueuedRow], begun: Begun
) -> None:
    """Write the rows of jobs, and note new entries in `begun`; the caller commits."""
    rows: list[tuple[Any, ...]] = []
    for table, values, _ in jobs:
        if table in _INSERTS:
            connection.execute(_INSERTS[table], values)
            continue
        started_at = values["started_at"]
        # Readers skip what is older than a session or a run: noting when each began is
        # cheaper than an index of its rows.
        for key, begins in _BEGIN.items():
            if (name := values[key]) is None:
                continue
            known = begun.get((key, name))
            if known is None or started_at < known:
                connection.execute(begins, (name, started_at))
                begun[key, name] = started_at
        rows.append(tuple(values.values()))
    # Each statement releases the interpreter lock and waits for it again, so few
    # statements with many rows are faster.
    whole = len(rows) - len(rows) % _ROWS_AT_ONCE
    for at in range(0, whole, _ROWS_AT_ONCE):
        several = chain.from_iterable(rows[at : at + _ROWS_AT_ONCE])
        connection.execute(_INSERT_EXCHANGES, tuple(several))
    connection.executemany(_INSERT_EXCHANGE, rows[whole:])


class LedgerWriter(Forkable):
    """Writes rows on a thread of its own; any thread may add them."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self.watch_forks()
        self._reset()

    def _reset(self) -> None:
        """Begin with an empty queue and no thread."""
        self._queue: deque[QueuedRow] = deque()
        self._changed = Condition()  # guards all of these; notified at each change
        self._thread: Thread | None = None
        self._problem: LedgerError | None = None  # of the last attempt
        self._warned_of: str | None = None  # the problem of the last warning
        self._is_held = False  # by another program, for HELD_S or longer
        self._busy_since_s: float | None = None  # since when another program holds it
        self._is_wanted = False  # an attempt to write
        self._is_trying = False
        self._is_closing = False
        self._is_forgotten = False  # the ledger is garbage: the thread closes the file
        self._is_given_up = False  # `close` has warned of rows that cannot be written
        self._n_added = self._n_gone = self._n_tries = 0  # gone: written or dropped

    def add(self, table: TableName, values: dict[str, Any]) -> "Future[None]":
        """Put a row into the queue: see `Ledger.add`."""
        job = QueuedRow(table, values, Future())
        job.receipt.set_running_or_notify_cancel()  # so that nobody can cancel it
        with self._changed:
            self._queue.append(job)
            self._n_added += 1
            self._is_wanted = True
            self._is_given_up = False
            problem = self._problem if self._is_held else None
            has_thread = self._wake()
        if problem is not None:  # the caller must not wait for another program
            _fail(job.receipt, problem)
        if not has_thread:
            self._drain(0.0)
        return job.receipt

    @property
    def problem(self) -> LedgerError | None:
        """Why rows cannot be written; None if they can be, or soon can be."""
        with self._changed:
            since_s = self._busy_since_s
            if since_s is not None and time.monotonic() - since_s < GIVEN_UP_S:
                return None
            return self._problem

    @property
    def pending(self) -> list[QueuedRow]:
        """The rows that are not written yet, in the order of arrival."""
        with self._changed:
            return list(self._queue)

    def flush(self, within_s: float = HELD_S) -> bool:
        """Wait until all rows in the queue are written; return whether they are.

        It returns early if one more attempt to write them fails.
        """
        with self._changed:
            if not self._queue or current_thread() is self._thread:
                return not self._queue
            goal = self._n_added
            # the attempt in progress may have begun before the last row was added
            n_tries = self._n_tries + 1 + self._is_trying
            self._is_wanted = True
            has_thread = self._wake()
            if has_thread:
                self._changed.wait_for(
                    lambda: self._n_gone >= goal or self._has_failed(n_tries), within_s
                )
        if not has_thread:
            self._drain(0.0)
        return self._n_gone >= goal

    def close(self) -> None:
        """Write the queue, with a time limit, and close the file.

        A warning counts the rows that cannot be written. They stay in the queue, for
        the next use of the ledger.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            thread = self._thread
            if thread is current_thread():  # the ledger was collected as garbage
                self._is_forgotten = True
                return
        if thread is not None:
            thread.join(_CLOSE_S)
        self._finish()

    def _finish(self) -> None:
        goal = self._n_added
        self._drain(0.0 if self._is_given_up else _CLOSE_S)
        if self._n_gone < goal and not self._is_given_up:
            self._is_given_up = True
            warn(
                f"{_counted(self._queue)} could not be written to the ledger "
                f"{self._file.path} before it was closed: {self._problem}"
            )
        self._file.close()
        with self._changed:
            self._thread = None
            self._is_closing = False
            if self._queue and not self._is_given_up:  # added while the file was closed
                self._wake()

    def _has_failed(self, n_tries: int) -> bool:
        return self._problem is not None and self._n_tries >= n_tries

    def _wake(self) -> bool:
        """Wake the thread, or start it; return False if Python is shutting down."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(
                target=self._run, name="svc_notebook ledger", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                return False
        self._changed.notify_all()
        return True

    def _run(self) -> None:
        n_jobs = 0
        while self._has_work():
            if n_jobs > 1:  # rows of requests that end at the same time share a commit
                time.sleep(_GATHER_S)
            n_jobs = self._write_next()
        if self._is_forgotten:
            self._finish()

    def _has_work(self) -> bool:
        """Wait for rows to write; return False if the thread must end."""
        with self._changed:
            if self._busy_since_s is not None:
                self._changed.wait_for(lambda: self._is_closing, _PAUSE_S)
                return not self._is_closing
            is_ready = self._changed.wait_for(self._is_ready, _IDLE_S)
        if not is_ready:
            self._file.empty_wal()
            with self._changed:
                self._changed.wait_for(self._is_ready)
        return not self._is_closing

    def _is_ready(self) -> bool:
        return self._is_closing or (self._is_wanted and bool(self._queue))

    def _drain(self, within_s: float) -> None:
        """Write on this thread; wait at most `within_s` for other programs."""
        goal, until_s = self._n_added, time.monotonic() + within_s
        self._write_next()
        while self._n_gone < goal and self.problem is None:
            if self._busy_since_s is not None:
                if time.monotonic() >= until_s:
                    return
                time.sleep(_PAUSE_S)
            self._write_next()

    def _write_next(self) -> int:
        """Try to write the oldest rows in one commit; return how many these were."""
        # the file's lock comes first everywhere, so that threads cannot deadlock
        with self._file.lock:
            with self._changed:
                jobs = list(islice(self._queue, _BATCH))
                self._is_wanted, self._is_trying = False, True
            n_written, problem = self._write(jobs) if jobs else (0, None)
            with self._changed:
                for _ in range(n_written):
                    self._queue.popleft()
                self._n_gone += n_written
                warning, failed = self._note_result(problem)
                self._n_tries += 1
                self._is_trying = False
                self._changed.notify_all()
        if warning:  # with no lock held: a handler of warnings may use the ledger
            warn(warning)
        for job in jobs[:n_written]:
            with suppress(
                InvalidStateError
            ):  # it holds the error of an earlier attempt
                job.receipt.set_result(None)
        for job, error in failed:
            _fail(job.receipt, error)
        return len(jobs)

    def _write(self, jobs: list[QueuedRow]) -> tuple[int, Exception | None]:
        """Write rows; return how many were written, and the error of the next one."""
        problem = self._commit(jobs)
        if problem is None:
            return len(jobs), None
        if len(jobs) == 1 or is_busy(problem):
            return 0, problem
        # one by one, to find the row that fails
        for n_written, job in enumerate(jobs):
            problem = self._commit([job])
            if problem is not None:
                return n_written, problem
        return len(jobs), None

    def _commit(self, jobs: list[QueuedRow]) -> Exception | None:
        begun = self._file.begun
        try:
            connection = self._file.connection()
            if self._busy_since_s is not None:
                set_busy(
                    connection, 0.0
                )  # readers of this process wait for the lock now
            # without a transaction one row takes half the time
            is_alone = len(jobs) == 1
            with nullcontext() if is_alone else transaction(connection):
                write_rows(connection, jobs, begun)
            self._file.note_change()
        except Exception as problem:  # noqa: BLE001 - the thread goes on
            begun.clear()  # the rows of its new entries were rolled back
            return problem
        if self._busy_since_s is not None:
            set_busy(connection, TRY_S)
        return None

    def _note_result(
        self, problem: Exception | None
    ) -> tuple[str | None, list[tuple[QueuedRow, LedgerError]]]:
        """Note how an attempt ended; return a warning, if any, and the failed jobs."""
        if problem is None:
            self._problem = self._warned_of = self._busy_since_s = None
            self._is_held, self._is_wanted = False, bool(self._queue)
            return None, []
        if isinstance(problem, _UNFIT):
            return self._drop(problem)
        self._problem = _explained(problem, self._file.path)
        warning = (
            f"{_counted(self._queue)} could not be written. The next request tries "
            f"again. {self._problem}"
        )
        if is_busy(problem):
            now_s = time.monotonic()
            self._busy_since_s = self._busy_since_s or now_s
            self._is_held = now_s - self._busy_since_s >= HELD_S
            if not self._is_held:
                return None, []
            warning = (
                f"Another program holds the ledger {self._file.path}. Exchanges are "
                "kept in memory and written as soon as the file is free. Close the "
                "program that has it open."
            )
        else:
            self._busy_since_s, self._is_held = None, False
        before, self._warned_of = self._warned_of, str(self._problem)
        waiting = [job for job in self._queue if not job.receipt.done()]
        failed = [(job, self._problem) for job in waiting]
        # the same problem is not warned of twice
        return None if before == self._warned_of else warning, failed

    def _drop(
        self, problem: Exception
    ) -> tuple[str, list[tuple[QueuedRow, LedgerError]]]:
        """Drop the oldest row, which SQLite cannot hold, so that others are written."""
        self._problem = self._busy_since_s = None
        self._is_held = False
        dropped = self._queue.popleft()
        self._n_gone += 1
        self._is_wanted = bool(self._queue)
        warning = (
            f"{_counted([dropped])} cannot be written to the ledger {self._file.path}: "
            f"{type(problem).__name__}: {problem}"
        )
        return warning, [(dropped, LedgerError(warning))]

    def before_fork(self) -> None:
        """Take the locks, and close the file."""
        self._file.before_fork()
        self._changed.acquire()

    def after_in_parent(self) -> None:
        """Release the locks."""
        self._changed.release()
        self._file.lock.release()

    def after_in_child(self) -> None:
        """Empty the queue; the parent writes the rows."""
        self._file.begin_child()
        self._reset()


def _explained(problem: Exception, path: str) -> LedgerError:
    if isinstance(problem, LedgerError):
        return problem
    if isinstance(problem, sqlite3.Error):
        return explain(problem, path)
    reason = f"{type(problem).__name__}: {problem}"
    return LedgerError(f"The ledger {path} cannot be used ({reason}).")


def _counted(jobs: Iterable[QueuedRow]) -> str:
    """Return how many rows of each table there are, such as "2 exchanges"."""
    tables: list[str] = [job.table for job in jobs]
    counts = ((tables.count(table), noun) for table, noun in _NOUNS.items())
    return " and ".join(f"{n:,} {noun}{'s' * (n > 1)}" for n, noun in counts if n)


def _fail(receipt: "Future[None]", problem: LedgerError) -> None:
    with suppress(InvalidStateError):
        receipt.set_exception(problem)

"""The ledger: where every exchange is kept, once, and read back from.

What it is not: it makes no DataFrame (see `frames`) and knows no client; it is
told (`Sink`). Rules: one commit an exchange, so that a kill loses nothing that
was added; any thread may add while another reads; several programs may use one
file at once; nothing is opened before it is needed; every failure is a
`LedgerError` that names the file.
"""

import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal, Protocol, Self
from uuid import uuid4
from weakref import WeakSet

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange

from .connect import MEMORY, absolute, explained, open_file, probe
from .row import KEYS, Scope, Wanted, Where, from_row, to_row, where
from .tool_runs import ToolRow, insert, select


class Guarded(Protocol):
    """What one lock guards."""

    def guard(self) -> RLock:
        """Return the lock in force."""


_watched: WeakSet[Guarded] = WeakSet()
_taken: list[RLock] = []


def wait_at_forks(guarded: Guarded) -> None:
    """Let no fork of this process happen while something is being done with it."""
    _watched.add(guarded)


def _take() -> None:
    for guarded in tuple(_watched):
        lock = guarded.guard()
        lock.acquire()
        _taken.append(lock)


def _give_back() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_take, after_in_parent=_give_back, after_in_child=_give_back
    )


BUSY_S = 30.0
PAGE_ROWS = 256

# An exchange has one id and is told once; telling it again changes nothing.
_INSERT = (
    f"INSERT INTO exchanges ({', '.join(KEYS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join('?' * len(KEYS))}) "
    "ON CONFLICT (started_at, exchange_id) DO NOTHING"
)
_BEGIN = {
    table: f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT ({key}) DO UPDATE "  # noqa: S608 - our own names
    "SET first_started_at = min(first_started_at, excluded.first_started_at)"
    for table, key in (("sessions", "session_id"), ("runs", "run"))
}
_COLUMNS = (
    "SELECT started_at, seq, CAST(record AS BLOB), record_crc32, exchange_id, "
    "usage_source FROM exchanges "
)
_NOT_INDEXED = (
    f"{_COLUMNS} WHERE seq > (SELECT coalesce(max(seq), 0) FROM requests) "  # noqa: S608 - our own names
    f"AND status = 'ok' AND NOT is_reused ORDER BY seq LIMIT {PAGE_ROWS}"
)
_ASKED = (
    f"{_COLUMNS} JOIN requests USING (seq) WHERE request_hash = ? AND endpoint = ? "
    "ORDER BY started_at DESC, exchange_id DESC"
)
Texts = bool | Literal["estimated"]
"""Which texts to read: all, none, or those of exchanges without reported usage."""
_abandoned: list[sqlite3.Connection] = []  # of a parent process; see Ledger.guard


class Ledger:
    """The store of exchanges: a SQLite file, or memory.

    The file is opened at the first use; `check` opens it now. After `close` the
    next use opens it again, so that a late exchange is not lost; what was in memory
    is gone then.

    Args:
        path: The file, made with its folder where there is none; `:memory:` keeps
            everything in this process.
        session_id: Marks what is added here, so that one kernel's exchanges can be
            told from others'; made if None.
        busy_s: Longest wait for another program that holds the file, seconds.
    """

    def __init__(
        self, path: str | Path, *, session_id: str | None = None, busy_s: float = BUSY_S
    ) -> None:
        self.path = str(path)
        # a notebook may change its folder; the ledger stays where it was
        self._place = MEMORY if self.path == MEMORY else str(absolute(self.path))
        self.session_id = session_id or uuid4().hex
        self._busy_s = busy_s
        self._lock = RLock()
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        # when the session and its runs began, as the file knows it
        self._begun: dict[tuple[str, str], str] = {}
        self._finalizer: (
            weakref.finalize[[sqlite3.Connection, RLock, int], Ledger] | None
        ) = None
        wait_at_forks(self)

    def check(self) -> None:
        """Find out now whether exchanges can be kept, before anything is spent.

        Raises:
            LedgerError: They cannot; the message names the file and the way on.
        """
        with self.guard(), explained(self.path):
            probe(self._open())

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Hold the open file; what SQLite raises inside is raised as a LedgerError."""
        with self.guard(), explained(self.path):
            yield self._open()

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange; it is on disk when this returns.

        Raises:
            LedgerError: It could not be kept.
        """
        row = to_row(exchange, self.session_id)
        with self.guard(), explained(self.path):
            connection = self._open()
            self._begin(connection, "sessions", self.session_id, row["started_at"])
            if row["run"] is not None:
                self._begin(connection, "runs", row["run"], row["started_at"])
            connection.execute(_INSERT, tuple(row.values()))

    def read(  # noqa: PLR0913 - one argument a filter
        self,
        *,
        scope: Scope = "session",
        since: date | str | None = None,
        conversation: Wanted = None,
        run: Wanted = None,
        model: Wanted = None,
        request_key: Wanted = None,
        origin: Wanted = None,
        status: Wanted = None,
        texts: Texts = True,
    ) -> Iterator[Exchange]:
        """Read exchanges, the one that started first coming first.

        What is added while reading may or may not come.

        Args:
            scope: `session` for what was added with this session_id, `all` for all.
            since: Only exchanges started at or after this instant; text is ISO 8601,
                and an instant without a zone is this machine's local time.
            conversation: Only this conversation, or any of several.
            run: Only this run, or any of several.
            model: Only this model, or any of several.
            request_key: Only this cell, or any of several.
            origin: Only of this origin, or any of several.
            status: Only this status (ok, error, cancelled), or any of several.
            texts: False leaves messages, replies and template columns unread, which
                is faster and takes a part of the memory: see `record.Outline`.
                `estimated` reads those of exchanges without reported usage.

        Raises:
            ParameterError: A filter is not one that could be meant.
            LedgerError: The ledger cannot be read.
        """
        condition = where(
            scope=scope,
            session_id=self.session_id,
            since=since,
            conversation=conversation,
            run=run,
            model=model,
            request_key=request_key,
            origin=origin,
            status=status,
        )
        return self._pages(condition, texts)

    def add_tool_run(self, row: ToolRow, *, started_at: datetime) -> None:
        """Keep a tool call; it is on disk when this returns.

        Args:
            row: The call.
            started_at: When the exchange was asked whose reply held it.

        Raises:
            LedgerError: It could not be kept.
        """
        with self.guard(), explained(self.path):
            insert(self._open(), row, session_id=self.session_id, started_at=started_at)

    def tool_runs(
        self,
        *,
        scope: Scope = "session",
        since: date | str | None = None,
        **wanted: Wanted,
    ) -> list[ToolRow]:
        """Read tool calls, the one that was run first coming first.

        Args:
            scope: As for `read`.
            since: Only calls in replies to exchanges started at or after this instant.
            **wanted: conversation, run, model, origin or name: one, several, or None.

        Raises:
            ParameterError: A filter is not one that could be meant.
            LedgerError: The ledger cannot be read.
        """
        condition = where(
            scope=scope, session_id=self.session_id, since=since, **wanted
        )
        with self.guard(), explained(self.path):
            return list(select(self._open(), condition))

    def reported(self, model: str, *, is_emulated: bool, n: int) -> list[Exchange]:
        """Return the newest good exchanges of a model whose usage was reported.

        Args:
            model: Id of the model.
            is_emulated: Those that the emulator answered, or those of the service.
            n: At most so many.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        sql = (
            f"{_COLUMNS} WHERE model = ? AND is_emulated = ? AND status = 'ok' AND "
            "usage_source = 'reported' AND NOT is_reused "
            "ORDER BY started_at DESC, exchange_id DESC LIMIT ?"
        )
        rows = self._rows(sql, (model, int(is_emulated), n))
        return [self._to_exchange(row) for row in rows]

    def asked(
        self,
        request_hash: str,
        *,
        endpoint: str,
        hash_of: Callable[[Exchange], str],
    ) -> Iterator[Exchange]:
        """Read the good exchanges that asked a request, the newest first.

        Args:
            request_hash: Of the request.
            endpoint: The base address that was asked.
            hash_of: Takes the request's hash of an exchange that was not asked for
                by its hash before; the ledger remembers it.

        Raises:
            LedgerError: The ledger cannot be read or written.
        """
        while rows := self._rows(_NOT_INDEXED, ()):
            found = [(row[1], hash_of(self._to_exchange(row))) for row in rows]
            with self.guard(), explained(self.path):
                self._index(found)
        for row in self._rows(_ASKED, (request_hash, endpoint)):
            yield self._to_exchange(row)

    def last(self, *, scope: Scope = "session") -> Exchange | None:
        """Return the exchange that started last; None if there is none.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        condition = where(scope=scope, session_id=self.session_id)
        order = " ORDER BY started_at DESC, exchange_id DESC LIMIT 1"
        sql = f"{_COLUMNS} WHERE {condition.sql}{order}"
        rows = self._rows(sql, condition.values)
        return self._to_exchange(rows[0]) if rows else None

    def count(self, *, scope: Scope = "all") -> int:
        """Count exchanges.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        condition = where(scope=scope, session_id=self.session_id)
        counting = "SELECT count(*) FROM exchanges WHERE " + condition.sql  # noqa: S608
        return int(self._rows(counting, condition.values)[0][0])

    def close(self) -> None:
        """Close the file; what was added is there."""
        with self.guard():
            if self._finalizer is not None:
                self._finalizer()
            self._connection = self._finalizer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._connection is None:
            return f"<Ledger {self.path}, not open>"
        try:
            n_all, n_here = self.count(), self.count(scope="session")
        except LedgerError:
            return f"<Ledger {self.path}, cannot be read>"
        return f"<Ledger {self.path}: {n_all} exchanges, {n_here} of this session>"

    def _begin(
        self, connection: sqlite3.Connection, table: str, name: str, started_at: str
    ) -> None:
        """Note since when there is a session or a run; cheaper than an index of it."""
        known = self._begun.get((table, name))
        if known is None or started_at < known:
            connection.execute(_BEGIN[table], (name, started_at))
            self._begun[table, name] = started_at

    def _pages(self, condition: Where, texts: Texts) -> Iterator[Exchange]:
        # Whole pages and no open cursor: a reader that stops half-way must not keep
        # a writer in another program waiting.
        order = f"ORDER BY started_at, exchange_id LIMIT {PAGE_ROWS}"
        first = f"{_COLUMNS} WHERE {condition.sql} {order}"
        # The + keeps SQLite from starting each page at the condition's own instant,
        # from where it would step over all earlier pages.
        later = condition.sql.replace("started_at >=", "+started_at >=")
        then = (
            f"{_COLUMNS} WHERE {later} AND (started_at, exchange_id) > (?, ?) {order}"
        )
        rows = self._rows(first, condition.values)
        while rows:
            for row in rows:
                yield self._to_exchange(row, texts)
            after = rows[-1][0], rows[-1][4]
            rows = self._rows(then, (*condition.values, *after))

    def _index(self, found: list[tuple[int, str]]) -> None:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(
                "INSERT OR IGNORE INTO requests VALUES (?, ?)", found
            )
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _rows(self, sql: str, values: tuple[object, ...]) -> list[Any]:
        with self.guard(), explained(self.path):
            return self._open().execute(sql, values).fetchall()

    def _to_exchange(self, row: Any, texts: Texts = True) -> Exchange:  # noqa: ANN401, FBT002 - SQLite's types; as `read`
        _, _, record, crc32, exchange_id, usage_source = row
        return from_row(
            record,
            crc32,
            exchange_id=exchange_id,
            place=self.path,
            texts=usage_source == "estimated" if texts == "estimated" else texts,
        )

    def guard(self) -> RLock:
        """Return the lock, a new one in a forked child: its parent may hold the old."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), RLock()
            if self._connection is not None and self.path != MEMORY:
                # SQLite forbids a connection to cross a fork, even to be closed.
                _abandoned.append(self._connection)
                self._connection = self._finalizer = None
        return self._lock

    def _open(self) -> sqlite3.Connection:
        if self._finalizer is not None and not self._finalizer.alive:
            self._connection = self._finalizer = None  # Python ends; this is late
        if self._connection is not None and self._file != _file_at(self._place):
            # Somebody deleted or replaced the file: what is written to the old one
            # would be gone with this process.
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = open_file(self._place, busy_s=self._busy_s)
            self._file = _file_at(self._place)
            self._begun.clear()
            self._finalizer = weakref.finalize(
                self, _close, self._connection, self._lock, self._pid
            )
        return self._connection


def _file_at(path: str) -> tuple[int, int] | None:
    """Tell one file from another that took its name; None where there is none."""
    if path == MEMORY:
        return None
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs many times as much at each add
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close(connection: sqlite3.Connection, lock: RLock, pid: int) -> None:
    if pid == os.getpid():
        with lock:  # closed under another thread's statement, SQLite crashes Python
            connection.close()

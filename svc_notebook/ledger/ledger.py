"""The ledger: stores every exchange once, and reads exchanges back.

`add` puts an exchange into the writer's queue. A read first waits until the queue is
written; rows that cannot be written now are read from memory. Threads and programs may
share a file.
"""

import sqlite3
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack
from uuid import uuid4

import msgspec

from svc_notebook.display.number_words import bytes_in_words, count_in_words
from svc_notebook.errors import LedgerError, ParameterError, warn
from svc_notebook.exchange import Exchange, UsageSource

from .exchange_rows import (
    KeptPlan,
    Marks,
    ReadFilters,
    RowFilter,
    Scope,
    TurnMarks,
    Wanted,
    from_row,
    select_marks,
    to_mark_values,
    to_row,
    to_sortable,
    where,
)
from .ledger_file import (
    BUSY_S,
    MEMORY,
    SHORT_BUSY_S,
    LedgerFile,
    absolute,
    explain,
    explained,
    is_busy,
    open_file,
)
from .tool_calls import ToolRow, select_tool_runs, to_tool_values
from .writer import LedgerWriter, write_rows

PAGE_ROWS = 256
Item = TypeVar("Item")

_COLUMNS = (  # as bytes, which are read faster than texts
    "SELECT seq, CAST(record AS BLOB), record_crc32, "
    "CAST(exchange_id AS BLOB), usage_source = 'estimated', conversation "
    "FROM exchanges "
)
_IS_NAMED = "SELECT 1 FROM exchanges WHERE conversation = ? LIMIT 1"
_SESSIONS = (
    "SELECT exchange_id, session_id FROM exchanges WHERE conversation IS NOT NULL"
)
_NEWEST = "SELECT coalesce(max(seq), 0) FROM exchanges"
_ELSEWHERE = (  # the index of conversations has their numbers, too
    f"{_COLUMNS} WHERE conversation = ? AND seq > ? AND session_id != ? "
    "AND usage_source != 'missing' ORDER BY seq"
)
_NAMES = (
    "SELECT DISTINCT conversation FROM exchanges "
    "WHERE conversation IS NOT NULL AND usage_source != 'missing'"
)
_RENAMES = [  # records are not changed, so their checksums stay right
    f"UPDATE {table} SET conversation = ? WHERE conversation = ?"  # noqa: S608 - our own
    for table in ("exchanges", "tool_runs", "turn_marks")
]
_NAMED_NOW = (  # records keep the name that their conversation had then
    "SELECT conversation FROM exchanges WHERE conversation IS NOT NULL "
    "AND instr(record, ?) AND json_valid(record) "
    "AND json_extract(record, '$.origin.conversation') = ? ORDER BY seq DESC LIMIT 1"
)
_DELETE_CONVERSATION = [  # the exchanges stay: they were paid for
    "UPDATE exchanges SET conversation = NULL WHERE conversation = ?",
    "UPDATE tool_runs SET conversation = NULL WHERE conversation = ?",
    "DELETE FROM turn_marks WHERE conversation = ?",
]
# the + keeps SQLite from searching in the order of seq: the index of times is faster
_BEFORE = "SELECT coalesce(min(+seq), 1) - 1 FROM exchanges WHERE "
_NOT_INDEXED = (
    f"{_COLUMNS} WHERE seq > ? "
    f"AND status = 'ok' AND NOT is_reused ORDER BY seq LIMIT {PAGE_ROWS}"
)
_INDEXED = "SELECT coalesce(max(seq), 0) FROM requests"
_NOTE_HASH = "INSERT OR IGNORE INTO requests VALUES (?, ?)"
_AT = f"{_COLUMNS} WHERE seq = ? AND endpoint = ?"
_WITH_HASH = (
    f"{_COLUMNS} JOIN requests USING (seq) WHERE request_hash = ? AND endpoint = ? "
    "ORDER BY seq DESC"
)
_STAMP = (  # not by `seq`: after a deletion new exchanges may get the same numbers
    "SELECT count(*), (SELECT exchange_id FROM exchanges ORDER BY seq DESC LIMIT 1) "
    "FROM exchanges"
)
_STAMP_OF_RUN = (
    "SELECT count(*), coalesce(max(exchange_id), '') FROM exchanges WHERE run = ?"
)
PICKED = "picked"
"""Name of the score that is 1 for a reply that a user picked, 0 for the others."""
WhichTexts = bool | Literal["estimated"]
"""The texts to read: all, none, or those of exchanges without reported usage."""


class Ledger:
    """The store of exchanges: a SQLite file, or memory.

    The first use opens the file, and so does the first use after `close`, so that a
    late exchange is not lost. A ledger in memory is empty after `close`.

    Args:
        path: The file, created with its folder if it is missing, or `:memory:`.
        session_id: Marks the exchanges that are added here; a new one if None.
        busy_s: Longest wait of a read for another program that holds the file, seconds.
    """

    def __init__(
        self, path: str | Path, *, session_id: str | None = None, busy_s: float = BUSY_S
    ) -> None:
        self.path = str(path)
        self.session_id = session_id or uuid4().hex
        self._file = LedgerFile(self.path, busy_s=busy_s)
        self._writer = LedgerWriter(self._file)
        # new names of renamed conversations, by series of turns and by exchange_id
        self._names: dict[str, str] = {}
        self._stamps: dict[str, tuple[Any, tuple[int, str]]] = {}
        weakref.finalize(self, self._writer.close)

    def check(self) -> None:
        """Raise a LedgerError if exchanges cannot be kept, before any is paid for."""
        self._file.check()

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Keep the file open inside the block; errors of SQLite become LedgerErrors."""
        self.flush()
        with self._reading() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open the file; an empty ledger if it is unusable and rows wait in memory."""
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._file.opened())
            except LedgerError as problem:
                if not self._writer.pending:
                    raise
                warn(f"Only exchanges that are still in memory are read. {problem}")
                connection = open_file(MEMORY, busy_s=0.0)
                stack.enter_context(closing(connection))
            yield connection

    def add(self, exchange: Exchange) -> "Future[None]":
        """Put an exchange into the writer's queue, and return at once.

        Returns:
            A future that is done when the exchange is on disk. It holds a LedgerError
            if the exchange cannot be written now; then it stays in the queue, where
            reads find it.
        """
        row = to_row(exchange, self.session_id)
        series = (exchange.origin.turn_id or "").partition("/")[0]
        if series in self._names:  # it was renamed while the request was sent
            row["conversation"] = self._names[series]
            self._names[exchange.exchange_id] = self._names[series]
        return self._writer.add("exchanges", row)

    def add_tool_run(self, row: ToolRow, *, started_at: datetime) -> "Future[None]":
        """Put a tool call into the queue; `started_at` is that of its exchange."""
        values = to_tool_values(row, session_id=self.session_id, started_at=started_at)
        new_name = self._names.get(row.exchange_id)
        values["conversation"] = new_name or values["conversation"]
        return self._writer.add("tool_runs", values)

    def add_marks(self, conversation: str, turn_id: str, marks: TurnMarks) -> None:
        """Put the marks of a turn into the queue."""
        self._writer.add("turn_marks", to_mark_values(conversation, turn_id, marks))

    def add_plan(self, plan: KeptPlan) -> "Future[None]":
        """Put the plan of a run into the queue; it replaces the one with this part."""
        return self._writer.add("manifests", plan._asdict())

    def plans(self, run: str | None = None, *, is_whole: bool = True) -> list[KeptPlan]:
        """Read the plans of a run, the newest last; or of all runs if None.

        `is_whole=False` leaves out the manifests, which are long.
        """
        names = KeptPlan._fields if is_whole else KeptPlan._fields[:-1]
        sql = f"SELECT {', '.join(names)} FROM manifests"  # noqa: S608 - our own names
        sql += "" if run is None else " WHERE run = ?"
        newest = self._read_pending(
            lambda pending: pending.plans(run, is_whole=is_whole)
        )
        rows = self._rows(f"{sql} ORDER BY run, part", () if run is None else (run,))
        plans = {(row[0], row[1]): KeptPlan(*row) for row in rows}
        plans |= {(plan.run, plan.part): plan for plan in newest}
        return list(plans.values())

    def has_conversation(self, name: str) -> bool:
        """Return whether any exchange belongs to a conversation with this name."""
        self.flush()
        return bool(self._rows(_IS_NAMED, (name,)))

    def newest_number(self) -> int:
        """Return the number of the newest exchange, for `elsewhere`."""
        with self._file.opened() as connection:
            return int(connection.execute(_NEWEST).fetchone()[0])

    def elsewhere(self, conversation: str, number: int) -> list[Exchange]:
        """Read what other sessions have added to a conversation after a number.

        It reads the file only, and does not wait for the writer: the queue has
        exchanges of this session.
        """
        values = (conversation, number, self.session_id)
        with self._file.opened() as connection:
            rows = connection.execute(_ELSEWHERE, values).fetchall()
        return [self._to_exchange(row) for row in rows]

    def sessions(self, conversation: str | None = None) -> dict[str, str]:
        """Return the session of each exchange, of one conversation or of all."""
        one = "" if conversation is None else " AND conversation = ?"
        values = () if conversation is None else (conversation,)
        newest = self._read_pending(
            lambda pending: pending.sessions(conversation).items()
        )
        return dict(self._rows(_SESSIONS + one, values)) | dict(newest)

    def conversations(self) -> set[str]:
        """Return the names of the conversations that have a reply."""
        self.flush()
        return {name for (name,) in self._rows(_NAMES, ())}

    def rename(self, name: str, new: str, *, series: Collection[str] = ()) -> None:
        """Rename a conversation, in the file and in exchanges that are added later.

        `series` are the series of its turns: replies to these may still arrive under
        the old name.

        Raises:
            ParameterError: The ledger already has a conversation with the new name.
            LedgerError: The ledger cannot be written; nothing was renamed.
        """
        before, self._names = self._names, self._names | dict.fromkeys(series, new)
        try:
            self._rename(name, new)
        except BaseException:
            self._names = before
            raise

    def _rename(self, name: str, new: str) -> None:
        if not self.flush():
            raise self.problem or self._held_error()
        with explained(self.path), self._file.transaction() as connection:
            if connection.execute(_IS_NAMED, (new,)).fetchone():
                raise name_taken(new)
            for sql in _RENAMES:
                connection.execute(sql, (new, name))

    def renamed(self, name: str) -> str | None:
        """Return the present name of a conversation that once had this name.

        None if it was not renamed, or if another conversation has this name now.
        """
        if self.has_conversation(name):
            return None
        text = f'"conversation":{msgspec.json.encode(name).decode()}'
        rows = self._rows(_NAMED_NOW, (text, name))
        return rows[0][0] if rows else None

    def delete_conversation(self, name: str) -> None:
        """Delete a conversation: its exchanges stay, but belong to no conversation.

        Raises:
            LedgerError: The ledger cannot be written; nothing was deleted.
        """
        if not self.flush():
            raise self.problem or self._held_error()
        with explained(self.path), self._file.transaction() as connection:
            for sql in _DELETE_CONVERSATION:
                connection.execute(sql, (name,))

    def _held_error(self) -> LedgerError:
        return LedgerError(
            f"Another program holds the ledger {self.path}; try again later."
        )

    def add_pick(self, exchange_id: str, choice_index: int, value: int | None) -> None:
        """Put the score `picked` of a reply into the queue; None removes the score."""
        score = {
            "exchange_id": exchange_id,
            "choice_index": choice_index,
            "name": PICKED,
            "value": value,
            "scored_at": to_sortable(datetime.now(UTC)),
        }
        self._writer.add("scores", score)

    def flush(self) -> bool:
        """Wait briefly for the writer; return whether everything is written."""
        return self._writer.flush()

    @property
    def problem(self) -> LedgerError | None:
        """Why writing fails; None if it does not, or if another program is writing."""
        return self._writer.problem

    def read(
        self, *, texts: WhichTexts = True, **filters: Unpack[ReadFilters]
    ) -> Iterator[Exchange]:
        """Read exchanges in the order in which they were added: when they ended.

        Exchanges that are added while this reads may be missing.

        Args:
            texts: False reads each exchange as an `exchange_rows.Outline`, which is
                faster and takes less memory; `estimated` does so where usage was
                reported.
            **filters: `scope` is `session` for what was added with this session_id, or
                `all`. `since` is the earliest start, an instant or a day; text is ISO
                8601, local time if it has no zone. The others are one value or several;
                None is any.

        Raises:
            ParameterError: A filter has a value that cannot match.
            LedgerError: The ledger cannot be read.
        """
        return self._exchanges(where(self.session_id, **filters), texts)

    def numbered(self, run: str) -> Iterator[tuple[int, Exchange]]:
        """Read the outlines of a run's exchanges, each with its number for `at`.

        Raises:
            LedgerError: The ledger cannot be read, or some are not written yet.
        """
        if not self.flush():
            raise self.problem or self._held_error()
        condition = where(self.session_id, scope="all", run=run)
        yield from self._numbered(condition, texts=False)

    def at(self, numbers: Sequence[int]) -> Iterator[Exchange]:
        """Read the exchanges with these numbers, which come from `numbered`."""
        for start in range(0, len(numbers), PAGE_ROWS):
            page = numbers[start : start + PAGE_ROWS]
            marks = ", ".join("?" * len(page))
            sql = f"{_COLUMNS} WHERE seq IN ({marks}) ORDER BY seq"
            yield from map(self._to_exchange, self._rows(sql, page))

    def tool_runs(
        self,
        *,
        scope: Scope = "session",
        since: date | str | None = None,
        **wanted: Wanted,
    ) -> list[ToolRow]:
        """Read tool calls in the order in which they were run.

        `scope` and `since` are those of `read`; `wanted` has values for conversation,
        run, model, origin or name.
        """
        condition = where(self.session_id, scope=scope, since=since, **wanted)
        newest = self._read_pending(
            lambda pending: pending.tool_runs(scope=scope, since=since, **wanted)
        )
        with self._reading() as connection:
            rows = list(select_tool_runs(connection, condition))
        return [*rows, *(row for row in newest if row not in rows)]

    def marks(self) -> Marks:
        """Read the marks of turns."""
        newest = self._read_pending(lambda pending: pending.marks().items())
        with self._reading() as connection:
            return select_marks(connection) | dict(newest)

    def newest(
        self, model: str, *, is_emulated: bool, usage_source: UsageSource, n: int
    ) -> list[Exchange]:
        """Return the newest `n` good exchanges of a model with this source of usage."""
        sql = (
            f"{_COLUMNS} WHERE model = ? AND is_emulated = ? AND status = 'ok' AND "
            "usage_source = ? AND NOT is_reused ORDER BY seq DESC LIMIT ?"
        )
        self.flush()
        rows = self._rows(sql, (model, int(is_emulated), usage_source, n))
        return [self._to_exchange(row) for row in rows]

    def with_request_hash(
        self,
        request_hash: str,
        *,
        endpoint: str,
        hash_of: Callable[[Exchange], str],
    ) -> Iterator[Exchange]:
        """Read the good exchanges of a request, the newest first.

        `hash_of` returns the hash of an exchange's request. The ledger stores it.
        """
        yield from self._read_pending(
            lambda pending: pending.with_request_hash(
                request_hash, endpoint=endpoint, hash_of=hash_of
            )
        )
        with self._file.indexing:  # the first thread reads the whole ledger
            self._index(hash_of)
            newest = [
                seq
                for seq, known_hash in self._file.hashes
                if known_hash == request_hash
            ]
        for seq in reversed(newest):
            for row in self._rows(_AT, (seq, endpoint)):
                yield self._to_exchange(row)
        for row in self._rows(_WITH_HASH, (request_hash, endpoint)):
            yield self._to_exchange(row)

    def last(
        self, *, scope: Scope = "session", exchange_id: str = "", is_reply: bool = False
    ) -> Exchange | None:
        """Return the exchange that was added last; None without one.

        With `exchange_id` it is the exchange with this id, with `is_reply` the last one
        that has a reply, or a part of one.
        """
        condition = where(self.session_id, scope=scope)
        sql_condition = condition.in_sequence + " AND ? IN ('', exchange_id)"
        if is_reply:
            sql_condition += " AND usage_source != 'missing'"
        sql = f"{_COLUMNS} WHERE {sql_condition} ORDER BY seq DESC LIMIT 1"
        values = (*condition.values, exchange_id)
        rows = self._read_pending(lambda pending: pending._rows(sql, values))  # noqa: SLF001 - a ledger, too
        rows = rows or self._rows(sql, values)
        return self._to_exchange(rows[0]) if rows else None

    def count(self, *, scope: Scope = "all") -> int:
        """Count exchanges."""
        self.flush()
        condition = where(self.session_id, scope=scope)
        counting = "SELECT count(*) FROM exchanges WHERE " + condition.sql  # noqa: S608
        with self._file.lock:  # the writer needs it, so nothing leaves the queue now
            tables = [job.table for job in self._writer.pending]
            n_written = int(self._rows(counting, condition.values)[0][0])
        return n_written + tables.count("exchanges")

    def stamp(self, run: str) -> tuple[int, str] | None:
        """Return a value that changes whenever a run's exchanges do.

        None while some exchanges are not written.
        """
        if not self.flush():
            return None
        (stamp_of_all,) = self._rows(_STAMP, ())
        before, stamp = self._stamps.get(run, (None, (0, "")))
        # runs have no index: their exchanges are counted only if any were added
        if stamp_of_all != before:
            (stamp,) = self._rows(_STAMP_OF_RUN, (run,))
            self._stamps[run] = stamp_of_all, stamp
        return stamp

    def close(self) -> None:
        """Write the queue, if possible, and close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # in this order: what is written meanwhile has opened the file
        if not self._writer.pending and not self._file.is_open:
            return f"<Ledger {self.path}, not open>"
        try:
            n_all, n_here = self.count(), self.count(scope="session")
        except LedgerError:
            return f"<Ledger {self.path}, cannot be read>"
        return f"<Ledger {self.path}: {n_all:,} exchanges, {n_here:,} of this session>"

    def _read_pending(self, read: Callable[["Ledger"], Iterable[Item]]) -> list[Item]:
        """Read the rows that cannot be written now, from a ledger of them in memory."""
        if self._writer.flush() or not (jobs := self._writer.pending):
            return []
        with Ledger(MEMORY, session_id=self.session_id) as pending:
            with pending.opened() as connection:
                write_rows(connection, jobs, {})
            return list(read(pending))

    def _exchanges(self, condition: RowFilter, texts: WhichTexts) -> Iterator[Exchange]:
        newest = self._read_pending(lambda pending: pending._pages(condition, texts))  # noqa: SLF001 - a ledger, too
        written = self._pages(condition, texts)
        if newest:  # some of these may be written by now; each is read once
            newest_ids = {exchange.exchange_id for exchange in newest}
            written = (
                exchange
                for exchange in written
                if exchange.exchange_id not in newest_ids
            )
        yield from written
        yield from newest

    def _pages(self, condition: RowFilter, texts: WhichTexts) -> Iterator[Exchange]:
        return (exchange for _, exchange in self._numbered(condition, texts))

    def _numbered(
        self, condition: RowFilter, texts: WhichTexts
    ) -> Iterator[tuple[int, Exchange]]:
        # Whole pages and no open cursor: a reader that stops half-way must not block
        # a writer in another program.
        sql = (
            f"{_COLUMNS} WHERE seq > ? AND {condition.in_sequence} "
            f"ORDER BY seq LIMIT {PAGE_ROWS}"
        )
        last_seq = self._rows(_BEFORE + condition.since, condition.since_values)[0][0]
        page: list[tuple[int, Exchange]] | None = None
        while page is None or page:
            page = []
            with self._reading() as connection:
                for row in connection.execute(sql, (last_seq, *condition.values)):
                    page.append((row[0], self._to_exchange(row, texts)))
                    last_seq = row[0]
            yield from page

    def _index(self, hash_of: Callable[[Exchange], str]) -> None:
        """Write the hashes of requests that were added since the last time.

        They stay in memory while another program holds the file.
        """
        hashes, is_held = self._file.hashes, False
        last_seq = hashes[-1][0] if hashes else self._rows(_INDEXED, ())[0][0]
        # until no exchange lacks its hash, and those in memory were tried once to write
        while (rows := self._rows(_NOT_INDEXED, (last_seq,))) or (
            hashes and not is_held
        ):
            hashes += [(row[0], hash_of(self._to_exchange(row))) for row in rows]
            last_seq = hashes[-1][0]
            if is_held:  # one wait for the other program is enough
                continue
            try:
                with self._file.transaction() as connection:
                    connection.executemany(_NOTE_HASH, hashes)
            except sqlite3.Error as problem:
                if not is_busy(problem):
                    hashes.clear()
                    raise explain(problem, self.path) from None
                is_held = True
            else:
                hashes.clear()

    def _rows(self, sql: str, values: Iterable[object]) -> list[Any]:
        with self._reading() as connection:
            return connection.execute(sql, tuple(values)).fetchall()

    def _to_exchange(self, row: Any, texts: WhichTexts = True) -> Exchange:  # noqa: ANN401, FBT002 - SQLite's types; as `read`
        _, record, crc32, exchange_id, is_estimated, name = row
        whole = is_estimated if texts == "estimated" else texts
        exchange = from_row(record, crc32, exchange_id, self.path, texts=whole)
        if exchange.origin.conversation == name:
            return exchange
        # the conversation was renamed or deleted; the record has its first name
        origin = msgspec.structs.replace(exchange.origin, conversation=name)
        return msgspec.structs.replace(exchange, origin=origin)


def name_taken(name: str) -> ParameterError:
    """Return the error for a name that another conversation has."""
    return ParameterError(
        f"There is a conversation {name!r} already; choose another name.",
        param="conversation",
    )


_FILES = ("", "-wal", "-shm", "-journal")


def path_in_words(place: str, *, source: str = "default") -> str:
    """Return where the ledger is, and the setting that names it."""
    if place == MEMORY:
        return f"in memory: nothing is kept ({source})"
    file = absolute(place)
    state = "" if file.exists() else "; not created yet"
    return f"{file} ({source}{state})"


def size_in_words(place: str) -> str:
    """Return in words how many exchanges, bytes and days the ledger holds."""
    if not exists(place):
        return "nothing is kept"
    with Ledger(place, busy_s=SHORT_BUSY_S) as ledger, ledger.opened() as connection:
        n, first, last, n_sessions = connection.execute(
            "SELECT count(*), min(started_at), max(started_at), "
            "count(DISTINCT session_id) FROM exchanges"
        ).fetchone()
        n_bytes = _n_bytes(place)
    if not n:
        return f"no exchanges, {bytes_in_words(n_bytes)}"
    since, until = first[:10], last[:10]
    when = f"on {since}" if since == until else f"from {since} to {until}"
    exchanges = count_in_words(n, "exchanges")
    many = f"{exchanges} of {count_in_words(n_sessions, 'sessions')}"
    return f"{many}, {bytes_in_words(n_bytes)}, {when}"


def exists(place: str) -> bool:
    """Return whether the file of a ledger exists."""
    return place != MEMORY and absolute(place).exists()


def _n_bytes(place: str) -> int:
    file = absolute(place)
    files = (file.with_name(file.name + ending) for ending in _FILES)
    return sum(
        file_or_journal.stat().st_size
        for file_or_journal in files
        if file_or_journal.exists()
    )

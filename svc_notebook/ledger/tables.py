"""The tables of a ledger, their version, and what marks a file as a ledger.

A file of another program, of a newer or unknown version, or a damaged one is refused
and not changed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from svc_notebook.errors import LedgerError

APPLICATION_ID = 0x53564C32  # marks the file as a ledger; "SVL2" in ASCII
_EARLIER_ID = 0x53564C31  # ledgers from before the first release had other tables

TABLES = """
    -- record holds the whole exchange as JSON. The columns before it are for WHERE.
    CREATE TABLE exchanges (
        seq INTEGER PRIMARY KEY,
        exchange_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        origin TEXT NOT NULL,
        conversation TEXT,
        run TEXT,
        request_key TEXT,
        repeat INTEGER,
        model TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        status TEXT NOT NULL,
        is_emulated INTEGER NOT NULL,
        is_reused INTEGER NOT NULL,
        usage_source TEXT NOT NULL,
        started_at TEXT NOT NULL,
        record TEXT NOT NULL,
        record_crc32 INTEGER NOT NULL
    );
    -- This index also finds an exchange that is added twice.
    CREATE UNIQUE INDEX exchanges_time ON exchanges (started_at, exchange_id);
    CREATE INDEX exchanges_conversation ON exchanges (conversation)
        WHERE conversation IS NOT NULL;
    -- value has no type: a score is a number or a label
    CREATE TABLE scores (
        exchange_id TEXT NOT NULL,
        choice_index INTEGER NOT NULL,
        name TEXT NOT NULL,
        value,
        scored_at TEXT NOT NULL,
        PRIMARY KEY (exchange_id, choice_index, name)
    );
    -- When sessions and runs began. An index of the exchanges of a run would make each
    -- insert an eighth slower, and a run is read far less often than it is written.
    CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        first_started_at TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE runs (
        run TEXT PRIMARY KEY,
        first_started_at TEXT NOT NULL
    ) WITHOUT ROWID;
    -- The hash of each request, filled in when the cache first looks for one.
    CREATE TABLE requests (
        seq INTEGER PRIMARY KEY,
        request_hash TEXT NOT NULL
    );
    CREATE INDEX requests_hash ON requests (request_hash);
    -- One row for each tool call, answered or refused. It repeats what filters need of
    -- its exchange, which may be in another ledger.
    CREATE TABLE tool_runs (
        seq INTEGER PRIMARY KEY,
        exchange_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        origin TEXT NOT NULL,
        conversation TEXT,
        run TEXT,
        model TEXT NOT NULL,
        started_at TEXT NOT NULL,
        call_id TEXT NOT NULL,
        name TEXT NOT NULL,
        arguments TEXT NOT NULL,
        sent_arguments TEXT,
        result TEXT NOT NULL,
        error TEXT,
        is_approved INTEGER,
        n_cut_tokens INTEGER NOT NULL,
        seconds_s REAL NOT NULL,
        created_at TEXT NOT NULL
    );
    CREATE INDEX tool_runs_time ON tool_runs (started_at);
    CREATE TABLE turn_marks (
        conversation TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        marks TEXT NOT NULL,
        marked_at TEXT NOT NULL,
        PRIMARY KEY (conversation, turn_id)
    ) WITHOUT ROWID;
    -- The plan of a run with its rows, once for all its exchanges: compressed JSON. An
    -- older part is kept while the run has replies that only it has.
    CREATE TABLE manifests (
        run TEXT NOT NULL,
        part INTEGER NOT NULL,
        name TEXT,
        n_trials INTEGER NOT NULL,
        digest TEXT NOT NULL,
        manifest BLOB NOT NULL,
        PRIMARY KEY (run, part)
    )
"""
"""The tables of a new ledger, version 1."""

CHANGES: tuple[str, ...] = ()
"""Scripts of SQL that bring a ledger from one version to the next, in order.

The first one brings version 1 to version 2. `TABLES` stays as it is then, so that old
and new files go through the same changes.
"""
CHECKED_BYTES = 64 * 2**20  # takes a tenth of a second


def check_is_ours(connection: sqlite3.Connection, *, place: str, n_bytes: int) -> None:
    """Refuse a file of another program or version, or a damaged one.

    A file larger than `CHECKED_BYTES` is not searched for damage. An error of SQLite
    means that it is not a SQLite file, or too damaged to be read.
    """
    with transaction(connection, is_to_write=False):  # another process may make it now
        application_id = pragma(connection, "application_id")
        version = pragma(connection, "user_version")
        counting = "SELECT count(*) FROM sqlite_schema"
        n_objects = connection.execute(counting).fetchone()[0]
    is_empty = (application_id, version, n_objects) == (0, 0, 0)
    if application_id == _EARLIER_ID:
        raise LedgerError(
            f"The ledger {place} is from before the first release of svc_notebook, and "
            "this version cannot read it; it was not changed. To start a new one, "
            "rename the file, or set SVC_LEDGER to another file."
        )
    if application_id != APPLICATION_ID and not is_empty:
        raise LedgerError(
            f"{place} is a SQLite file of another program, not a ledger; it was not "
            "changed. Set SVC_LEDGER to another file."
        )
    if version > current_version():
        raise LedgerError(
            f"The ledger {place} was written by a newer version of svc_notebook "
            f"(format {version}, this one knows {current_version()}); it was not "
            "changed. Upgrade svc_notebook, or set SVC_LEDGER to another file."
        )
    if n_bytes <= CHECKED_BYTES:
        problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            raise damaged(place, str(problem))


@contextmanager
def transaction(
    connection: sqlite3.Connection, *, is_to_write: bool = True
) -> Iterator[None]:
    """Commit everything written inside, or nothing of it after an error.

    Everything read inside is as it was at one moment.
    """
    connection.execute("BEGIN IMMEDIATE" if is_to_write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def current_version() -> int:
    """Return the version of the tables that this package reads and writes."""
    return 1 + len(CHANGES)


def migrate(connection: sqlite3.Connection) -> None:
    """Make the tables, or bring them up to date; two processes may do this at once."""
    if pragma(connection, "user_version") == current_version():
        return
    with transaction(connection):
        # read again: another process may have migrated while this one waited
        for script in (TABLES, *CHANGES)[pragma(connection, "user_version") :]:
            for statement in script.split(";"):  # executescript would commit
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {current_version()}")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma that is an integer."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def damaged(place: str, problem: str) -> LedgerError:
    """Return the error for a damaged file; `problem` is what SQLite says of it."""
    return LedgerError(
        f"The ledger {place} is damaged ({problem}); it was not changed. Restore a "
        "backup, or move the file away: the next use creates a new one."
    )

"""Is a file a ledger of ours, and is it up to date?

What it is not: it opens no file and reads no exchange; the tables are in
`migrations`. Rules: a file is brought up to date in one transaction or not at all;
a file that is not ours is only looked at.
"""

import sqlite3

from svc_notebook.errors import LedgerError

from .migrations import MIGRATIONS

APPLICATION_ID = 0x53564C31  # marks the file as a ledger; "SVL1" in ASCII
CHECKED_BYTES = 64 * 2**20  # a second's tenth; a larger file would hold up the cell


def check_is_ours(connection: sqlite3.Connection, *, place: str, n_bytes: int) -> None:
    """Refuse a file that this version cannot use, without changing it.

    Args:
        connection: Just opened, nothing written yet.
        place: The file's name, for the message.
        n_bytes: Size of the file; one over `CHECKED_BYTES` is not read through.

    Raises:
        LedgerError: The file belongs to another program, to a newer version of this
            package, or is damaged.
        sqlite3.Error: It is no SQLite file, or too damaged to be looked at.
    """
    application_id = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    n_objects = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    is_empty = (application_id, version, n_objects) == (0, 0, 0)
    if application_id != APPLICATION_ID and not is_empty:
        raise LedgerError(
            f"{place} is a SQLite file of another program, not a ledger; it was left "
            "as it is. Name another file with SVC_LEDGER."
        )
    if version > len(MIGRATIONS):
        raise LedgerError(
            f"The ledger {place} was written by a newer version of svc_notebook "
            f"(format {version}, this one knows {len(MIGRATIONS)}); it was left as it "
            "is. Upgrade svc_notebook, or name another file with SVC_LEDGER."
        )
    if n_bytes <= CHECKED_BYTES:
        _check_is_whole(connection, place)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date; two processes may try at once."""
    if _pragma(connection, "user_version") == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # read again: another process may have been first while we waited
        for statements in MIGRATIONS[_pragma(connection, "user_version") :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def probe(connection: sqlite3.Connection) -> None:
    """Find out whether the file can be written, and change nothing.

    The number is written as it is and taken back: only an attempt makes SQLite
    open its journal, which fails in a folder that cannot be written.

    Raises:
        sqlite3.Error: It cannot be written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    finally:
        connection.execute("ROLLBACK")


def _check_is_whole(connection: sqlite3.Connection, place: str) -> None:
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise LedgerError(damaged(place, str(found)))


def damaged(place: str, found: str) -> str:
    """Say that a ledger is damaged, and what to do."""
    return (
        f"The ledger {place} is damaged ({found}); it was left as it is. Put a copy "
        "of it back, or move it away: a new one is made at the next use."
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

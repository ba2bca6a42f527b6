"""Opening a ledger's file: made, looked at, brought up to date, found writable.

What it is not: it holds nothing open; its caller does. Rules: a file that cannot
be used is closed again as it was; nothing is spent on requests before a file is
known to be writable.
"""

import sqlite3

from .place import MEMORY, absolute, is_on_network, prepare
from .schema import check_is_ours, migrate, probe

CHECKPOINT_PAGES = 4000  # 16 MB beside the file at most; a fifth off each append


def open_file(
    path: str, *, busy_s: float, is_shared: bool | None = None
) -> sqlite3.Connection:
    """Open a ledger's file, make it where there is none, and bring it up to date.

    Args:
        path: The file, or `:memory:`.
        busy_s: Longest wait for another program that holds the file, seconds.
        is_shared: Whether other machines may use the file; found out if None.

    Raises:
        LedgerError: It cannot be made, is not ours, newer or damaged.
        sqlite3.Error: SQLite cannot open, read or write it.
    """
    if path == MEMORY:
        connection = _connect(MEMORY, busy_s)
        migrate(connection)
        return connection
    file = absolute(path)
    prepare(file)
    connection = _connect(file.as_uri() + "?mode=rw", busy_s)
    try:
        check_is_ours(connection, place=path, n_bytes=file.stat().st_size)
        migrate(connection)
        if is_shared is None:
            is_shared = is_on_network(file)
        _choose_journal(connection, is_shared=is_shared)
        probe(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(address: str, busy_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address,
        timeout=busy_s,
        uri=True,
        isolation_level=None,  # every statement commits
        check_same_thread=False,  # the ledger's lock sees to it
    )
    # A damaged text is for the checksum to refuse, not for the decoder to raise at.
    connection.text_factory = _decode
    return connection


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _choose_journal(connection: sqlite3.Connection, *, is_shared: bool) -> None:
    """Choose WAL, or on a network disk the rollback journal that works there."""
    mode = "DELETE" if is_shared else "WAL"
    try:
        found = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    except sqlite3.OperationalError:  # another program is in it; either mode will do
        return
    if found == "wal":
        # A power cut may lose the last commits, and only those are asked again.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

"""Opens a ledger's file: makes, checks and migrates it.

A file that cannot be used is not changed. An error of SQLite becomes a LedgerError
that names the file and what to do.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path, PurePath
from urllib.parse import quote_from_bytes

from svc_notebook.errors import LedgerError

MEMORY = ":memory:"
_MOUNTS = Path("/proc/self/mounts")
_NETWORK_TYPES = (
    "9p afs beegfs ceph cifs drvfs fuse.glusterfs fuse.sshfs gfs2 gpfs lustre ncpfs "
    "nfs nfs4 ocfs2 smb2 smb3 smbfs virtiofs vboxsf"
)


def absolute(path: str) -> Path:
    """Return the absolute path of a ledger's file; `~` is the user's home."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise _not_made(path, "its home folder is unknown") from None


def _not_made(path: str, reason: str) -> LedgerError:
    return LedgerError(
        f"The ledger {path!r} cannot be created: {reason}. Set "
        "SVC_LEDGER to a file in a folder that you can write to."
    )


def _make_file(path: Path) -> None:
    """Make the folder (mode 0700) and an empty file (mode 0600) if they are missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = journals(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise _not_made(str(path), "its folder is a file") from None
        if path.is_dir():
            raise _not_made(str(path), "it is a folder") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _not_made(str(path), reason) from None
    else:
        set_aside(path, foreign)


Identity = tuple[int, int] | None


def identity(path: str | Path) -> Identity:
    """Return what identifies the file itself, not its name; None without a file."""
    found = _stat(path)
    return found and (found.st_dev, found.st_ino)


def last_change(path: str | Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None without a file."""
    found = _stat(path)
    return found and (found.st_size, found.st_mtime_ns)


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        return None if path == MEMORY else os.stat(path)  # noqa: PTH116 - a Path costs many times as much
    except OSError:
        return None


_JOURNALS = ("-wal", "-journal", "-shm")


def journals(path: str | Path) -> dict[str, Identity]:
    """Return SQLite's files for a ledger, those that are there, by the name's end."""
    found = ((ending, identity(f"{path}{ending}")) for ending in _JOURNALS)
    return {ending: each for ending, each in found if each is not None}


def set_aside(path: str | Path, foreign: dict[str, Identity]) -> None:
    """Move away journals of a file that was at `path` before.

    SQLite would write them into the file that is there now. One that holds changes is
    renamed: `.old` at its end.
    """
    for ending, found in foreign.items():
        journal = Path(f"{path}{ending}")
        if found == identity(journal):
            with suppress(OSError):
                if journal.stat().st_size and ending != "-shm":
                    journal.replace(f"{journal}.old")
                else:
                    journal.unlink()


def is_on_network(path: Path, *, mounts_file: Path = _MOUNTS) -> bool:
    """Return whether a file is on a network disk, where WAL does not work.

    Without a list of mounts (macOS, Windows) only the name of a Windows share tells;
    SQLite refuses WAL where it can tell.
    """
    if path.drive.startswith("\\\\"):
        return True
    try:
        mounts = mounts_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    kind, depth = "", 0
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - source, place, type
            continue
        place = Path(fields[1].replace("\\040", " "))
        if path.absolute().is_relative_to(place) and len(place.parts) >= depth:
            kind, depth = fields[2], len(place.parts)
    return kind in _NETWORK_TYPES.split()


MIGRATIONS: tuple[str, ...] = (
    """
        -- In a new file the next step replaces these empty tables at once, so that
        -- they need neither types nor indexes.
        CREATE TABLE exchanges (
            seq INTEGER PRIMARY KEY, exchange_id, session_id, door, conversation, run,
            cell_id, repeat, model, endpoint, status, is_emulated, is_reused,
            started_at, record, record_crc32
        );
        CREATE TABLE scores (exchange_id, choice_index, name, value, scored_at);
    """,
    """
        -- record holds the whole exchange, the columns before it are for WHERE. The
        -- index of the order of reading also finds an exchange that is added twice.
        -- usage_source finds the rows for token estimates.
        CREATE TABLE new_exchanges (
            seq INTEGER PRIMARY KEY,
            exchange_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            door TEXT NOT NULL,
            conversation TEXT,
            run TEXT,
            cell_id TEXT,
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
        INSERT INTO new_exchanges
        SELECT seq, exchange_id, session_id, door, conversation, run, cell_id, repeat,
            model, endpoint, status, is_emulated, is_reused,
            CASE
                WHEN NOT json_valid(record) THEN 'missing'
                WHEN json_type(record, '$.body') = 'null' THEN 'missing'
                WHEN json_type(record, '$.body.usage') = 'object' THEN 'reported'
                ELSE 'estimated'
            END,
            started_at, record, record_crc32
        FROM exchanges;
        -- value has no type: a score is a number or a label
        CREATE TABLE new_scores (
            exchange_id TEXT NOT NULL,
            choice_index INTEGER NOT NULL,
            name TEXT NOT NULL,
            value,
            scored_at TEXT NOT NULL,
            PRIMARY KEY (exchange_id, choice_index, name)
        );
        INSERT INTO new_scores SELECT * FROM scores;
        DROP TABLE scores;
        ALTER TABLE new_scores RENAME TO scores;
        DROP TABLE exchanges;
        ALTER TABLE new_exchanges RENAME TO exchanges;
        CREATE UNIQUE INDEX exchanges_time ON exchanges (started_at, exchange_id);
        CREATE INDEX exchanges_run ON exchanges (run) WHERE run IS NOT NULL;
        CREATE INDEX exchanges_conversation ON exchanges (conversation)
            WHERE conversation IS NOT NULL;
        -- since when there is a session: cheaper than an index of its exchanges
        CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY,
            first_started_at TEXT NOT NULL
        ) WITHOUT ROWID;
        INSERT INTO sessions
        SELECT session_id, min(started_at) FROM exchanges GROUP BY session_id;
        -- the hash of each request, filled in when re-use first looks for one
        CREATE TABLE requests (
            seq INTEGER PRIMARY KEY,
            request_hash TEXT NOT NULL
        );
        CREATE INDEX requests_hash ON requests (request_hash);
    """,
    """
        -- One row for each tool call, answered or refused. It repeats what filters
        -- need of its exchange, which may be in another ledger.
        CREATE TABLE tool_runs (
            seq INTEGER PRIMARY KEY,
            exchange_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            door TEXT NOT NULL,
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
        -- since when there is a run: an index of its exchanges makes each insert an
        -- eighth slower, and a run is read far less often than it is written
        CREATE TABLE runs (
            run TEXT PRIMARY KEY,
            first_started_at TEXT NOT NULL
        ) WITHOUT ROWID;
        INSERT INTO runs SELECT run, min(started_at) FROM exchanges
        WHERE run IS NOT NULL GROUP BY run;
        DROP INDEX exchanges_run;
    """,
    """
        ALTER TABLE exchanges RENAME COLUMN door TO origin;
        ALTER TABLE exchanges RENAME COLUMN cell_id TO request_key;
        ALTER TABLE tool_runs RENAME COLUMN door TO origin;
    """,
    # hashes from before a computed max_tokens made no difference; filled in again
    "DELETE FROM requests",
    "-- records refer to texts of messages, which an older version must not read",
    """
        CREATE TABLE turn_marks (
            conversation TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            marks TEXT NOT NULL,
            marked_at TEXT NOT NULL,
            PRIMARY KEY (conversation, turn_id)
        ) WITHOUT ROWID;
    """,
    """
        -- The plan of a run with its rows, once for all its exchanges: compressed JSON.
        -- An older part is kept while the run has replies that only it has.
        CREATE TABLE manifests (
            run TEXT NOT NULL,
            part INTEGER NOT NULL,
            name TEXT,
            n_trials INTEGER NOT NULL,
            digest TEXT NOT NULL,
            manifest BLOB NOT NULL,
            PRIMARY KEY (run, part)
        );
    """,
)


APPLICATION_ID = 0x53564C31  # marks the file as a ledger; "SVL1" in ASCII
CHECKED_BYTES = 64 * 2**20  # takes a tenth of a second


def check_is_ours(connection: sqlite3.Connection, *, place: str, n_bytes: int) -> None:
    """Refuse a file of another program or of a newer version, or a damaged one.

    A file larger than `CHECKED_BYTES` is not searched for damage. An error of SQLite
    means that it is not a SQLite file, or too damaged to be read.
    """
    with transaction(connection, is_to_write=False):  # another process may make it now
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        counting = "SELECT count(*) FROM sqlite_schema"
        n_objects = connection.execute(counting).fetchone()[0]
    is_empty = (application_id, version, n_objects) == (0, 0, 0)
    if application_id != APPLICATION_ID and not is_empty:
        raise LedgerError(
            f"{place} is a SQLite file of another program, not a ledger; it was not "
            "changed. Set SVC_LEDGER to another file."
        )
    if version > len(MIGRATIONS):
        raise LedgerError(
            f"The ledger {place} was written by a newer version of svc_notebook "
            f"(format {version}, this one knows {len(MIGRATIONS)}); it was not "
            "changed. Upgrade svc_notebook, or set SVC_LEDGER to another file."
        )
    if n_bytes <= CHECKED_BYTES:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(place, str(found))


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


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date; two processes may do this at once."""
    if _pragma(connection, "user_version") == len(MIGRATIONS):
        return
    with transaction(connection):
        # read again: another process may have migrated while this one waited
        for script in MIGRATIONS[_pragma(connection, "user_version") :]:
            for statement in script.split(";"):  # executescript would commit
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def probe(connection: sqlite3.Connection, *, busy_s: float) -> None:
    """Check that the file can be written, without changing it.

    It writes the version number again and rolls back: only a write makes SQLite open
    its journal, which fails in a read-only folder. A file that another program holds
    passes: exchanges wait in memory. `busy_s` is the connection's usual wait.
    """
    set_busy(connection, min(busy_s, PROBE_S))
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as problem:
        if not is_busy(problem):
            raise
    finally:
        set_busy(connection, busy_s)


def settle(connection: sqlite3.Connection, *, busy_s: float) -> None:
    """Empty the WAL, if no other program uses the file now.

    SQLite cannot tell that a WAL is of an older file: it would undo a backup that is
    put in the place of its file. `busy_s` is the connection's usual wait.
    """
    with suppress(sqlite3.Error):
        set_busy(connection, 0.0)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            set_busy(connection, busy_s)


def set_busy(connection: sqlite3.Connection, busy_s: float) -> None:
    """Set the longest wait for other programs, in seconds."""
    connection.execute(f"PRAGMA busy_timeout = {busy_s * 1000:.0f}")


def _damaged(place: str, found: str) -> LedgerError:
    return LedgerError(
        f"The ledger {place} is damaged ({found}); it was not changed. Restore a "
        "backup, or move the file away: the next use creates a new one."
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


PROBE_S = 2.0
CHECKPOINT_PAGES = 4000  # at most 16 MB in the -wal file; inserts are a fifth faster


def open_file(
    path: str, *, busy_s: float, is_shared: bool | None = None
) -> sqlite3.Connection:
    """Open a ledger's file; it is made if it is missing, and brought up to date.

    `busy_s` is the longest wait for another program that holds the file. `is_shared`
    says whether the file is on a network disk; this is looked up if None.
    """
    if path == MEMORY:
        connection = _connect(MEMORY, busy_s)
        migrate(connection)
        return connection
    file = absolute(path)
    _make_file(file)
    if is_checked := bool(wal_bytes(file)):
        _check_unchanged(file, place=path, busy_s=busy_s)
    connection = _connect(sqlite_address(file) + "?mode=rw", busy_s)
    try:
        if not is_checked:
            check_is_ours(connection, place=path, n_bytes=file.stat().st_size)
        migrate(connection)
        if is_shared is None:
            is_shared = is_on_network(file)
        _choose_journal(connection, is_shared=is_shared)
        probe(connection, busy_s=busy_s)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: str, *, busy_s: float) -> sqlite3.Connection:
    """Open a ledger's file that cannot be written, for reading only."""
    file = absolute(path)
    address = sqlite_address(file) + "?mode=ro"
    # in a folder that cannot be written either, SQLite cannot make its -shm
    with closing(_connect(address, busy_s)) as connection:
        try:
            _pragma(connection, "user_version")
        except sqlite3.OperationalError:
            address += "&immutable=1"
    connection = _connect(address, busy_s)
    try:
        check_is_ours(connection, place=path, n_bytes=file.stat().st_size)
        version = _pragma(connection, "user_version")
    except BaseException:
        connection.close()
        raise
    if version == len(MIGRATIONS):
        return connection
    connection.close()
    raise LedgerError(
        f"The ledger {path} was written by an older version of svc_notebook and cannot "
        "be written, so it cannot be brought up to date. Copy it to a folder that you "
        "can write to, and set SVC_LEDGER to the copy."
    )


def wal_bytes(path: str | Path) -> int | None:
    """Return the size of a file's WAL, or of one before it; None without a WAL."""
    found = last_change(f"{path}-wal")
    return found and found[0]


def _check_unchanged(file: Path, *, place: str, busy_s: float) -> None:
    """Check a file without its WAL and then with it, and write nothing.

    A WAL of another file hides what is in this one, and would overwrite it.
    """
    n_bytes = file.stat().st_size
    whole = f"{place} (with {file.name}-wal, which may be of an earlier file)"
    checks = [("", whole, n_bytes)]
    if not _is_marked(file):  # one that is may be damaged, which its WAL repairs
        checks.insert(0, ("&immutable=1", place, CHECKED_BYTES + 1))
    for how, name, n_checked in checks:
        address = f"{sqlite_address(file)}?mode=ro{how}"
        with closing(_connect(address, busy_s)) as connection:
            check_is_ours(connection, place=name, n_bytes=n_checked)


def _is_marked(file: Path) -> bool:
    """Return whether the head of a file is that of a ledger, of a known version.

    SQLite does not open a file that is shorter than its head says: the disk was full
    while the WAL was emptied.
    """
    head = b""
    with suppress(OSError), file.open("rb") as opened:
        head = opened.read(100)
    version, mark = int.from_bytes(head[60:64]), int.from_bytes(head[68:72])
    return mark == APPLICATION_ID and version <= len(MIGRATIONS)


def sqlite_address(file: PurePath) -> str:
    """Return an absolute path as SQLite's address, without a host.

    SQLite refuses the host that `as_uri` makes of the name of a Windows share.
    """
    path = file.as_posix()
    path = path if path.startswith("/") else f"/{path}"
    return "file://" + quote_from_bytes(os.fsencode(path), safe="/:")


def _connect(address: str, busy_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address,
        timeout=busy_s,
        uri=True,
        isolation_level=None,  # every statement commits
        check_same_thread=False,  # see `writer.LedgerFile.lock`
    )
    # the checksum finds a damaged text; the decoder must not fail on it first
    connection.text_factory = methodcaller("decode", "utf-8", "surrogateescape")
    return connection


def _choose_journal(connection: sqlite3.Connection, *, is_shared: bool) -> None:
    """Choose WAL, or on a network disk the rollback journal that works there."""
    mode = "DELETE" if is_shared else "WAL"
    try:
        found = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    except sqlite3.OperationalError:  # held by another program; either mode works
        return
    if found == "wal":
        # a power cut may lose the last commits; only those are sent again
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


_MEANINGS = {
    "SQLITE_FULL": "cannot grow: the disk is full. What was kept is safe. Free some "
    "space and run again: only missing requests are sent",
    "SQLITE_IOERR": "cannot be read or written: the disk failed or is full. What was "
    "kept is safe. Check the disk and run again",
    "SQLITE_BUSY": "has been held by another program for too long. Close the program "
    "that has it open and run again",
    "SQLITE_READONLY": "cannot be written. Make the file and its folder writable, or "
    "set SVC_LEDGER to another file",
    "SQLITE_CANTOPEN": "cannot be opened. Make its folder writable, or set SVC_LEDGER "
    "to another file",
    "SQLITE_PERM": "cannot be opened: permission denied. Make the file readable "
    "and writable, or set SVC_LEDGER to another file",
    "SQLITE_AUTH": "cannot be opened: not authorized. Set SVC_LEDGER to another file",
}
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_MEANINGS.update(dict.fromkeys(_BUSY, _MEANINGS["SQLITE_BUSY"]))
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


_READ_ONLY = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def _name(problem: Exception) -> str:
    return getattr(problem, "sqlite_errorname", None) or ""


def is_busy(problem: Exception) -> bool:
    """Return whether another program holds the file; a later try may succeed."""
    return _name(problem).startswith(_BUSY)


def is_read_only(problem: Exception) -> bool:
    """Return whether the file cannot be written; it may still be read."""
    return _name(problem).startswith(_READ_ONLY)


def explain(problem: sqlite3.Error, place: str) -> LedgerError:
    """Return the LedgerError for an error of SQLite in the ledger at `place`."""
    name = _name(problem)
    if name.startswith("SQLITE_NOTADB"):
        return LedgerError(
            f"{place} is not a ledger (not a SQLite file); it was not changed. Set "
            "SVC_LEDGER to another file, or move this one away."
        )
    if name.startswith(_DAMAGED):
        return _damaged(place, str(problem))
    meaning = next(
        (text for start, text in _MEANINGS.items() if name.startswith(start)),
        "cannot be used. Set SVC_LEDGER to another file",
    )
    return LedgerError(f"The ledger {place} {meaning} ({problem}).")


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise a LedgerError for an error of SQLite in the ledger at `place`."""
    try:
        yield
    except sqlite3.Error as problem:
        raise explain(problem, place) from None

"""The file of a ledger: its tables, and the only connection to it in this process.

A file of another program, of a newer or unknown version, or a damaged one is refused
and not changed. An error of SQLite becomes a LedgerError that names the file and says
what to do.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path, PurePath
from threading import Lock, RLock
from urllib.parse import quote_from_bytes

from svc_notebook.errors import LedgerError

APPLICATION_ID = 0x53564C32  # marks the file as a ledger; "SVL2" in ASCII
_EARLIER_ID = 0x53564C31  # ledgers from before the first release, with other tables

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

CHANGES: tuple[str, ...] = (
    """
    -- Ratings of replies by people. Of a pair, the first reply is the one that was on
    -- the left. The rating of a single reply has '' and -1 in place of the other.
    CREATE TABLE ratings (
        name TEXT NOT NULL,
        rater TEXT NOT NULL,
        exchange_id TEXT NOT NULL,
        choice_index INTEGER NOT NULL,
        other_exchange_id TEXT NOT NULL,
        other_choice_index INTEGER NOT NULL,
        value,
        note TEXT NOT NULL,
        seconds_s REAL,
        chosen TEXT NOT NULL,
        rated_at TEXT NOT NULL,
        PRIMARY KEY (
            exchange_id, choice_index, name, rater,
            other_exchange_id, other_choice_index
        )
    ) WITHOUT ROWID
    """,
    """
    -- The arguments that a tool ran with, and those that the model asked for.
    ALTER TABLE tool_runs RENAME COLUMN arguments TO asked_arguments;
    ALTER TABLE tool_runs RENAME COLUMN sent_arguments TO arguments
    """,
    """
    -- With how many of its replies a run was compared. n_rows are those of its plan if
    -- it was complete then, or else 0.
    CREATE TABLE looks (
        run TEXT NOT NULL,
        n_replies INTEGER NOT NULL,
        n_rows INTEGER NOT NULL,
        PRIMARY KEY (run, n_replies, n_rows)
    ) WITHOUT ROWID
    """,
)
"""Scripts of SQL that bring a ledger from one version to the next, in order.

The first script brings version 1 to version 2, and so on. `TABLES` is not changed any
more, so that old and new files go through the same scripts.
"""
CHECKED_BYTES = 64 * 2**20  # the check of a file this large takes a tenth of a second


def check_is_ours(connection: sqlite3.Connection, *, place: str, n_bytes: int) -> None:
    """Refuse a file of another program or version, or a damaged one.

    A file larger than `CHECKED_BYTES` is not searched for damage. An error of SQLite
    means that it is not a SQLite file, or too damaged to be read.
    """
    # in one transaction: another process may be creating the tables now
    with transaction(connection, is_to_write=False):
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
    """Commit everything that is written inside, or nothing after an error.

    Everything that is read inside is from the same moment.
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
    """Create the tables or bring them up to date; two processes may do so at once."""
    if pragma(connection, "user_version") == current_version():
        return
    with transaction(connection):
        # read again: another process may have migrated while this one waited
        for script in (TABLES, *CHANGES)[pragma(connection, "user_version") :]:
            for statement in script.split(";"):  # executescript would commit first
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {current_version()}")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma that is an integer."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def damaged(place: str, problem: str) -> LedgerError:
    """Return the error for a damaged file; `problem` is what SQLite reports."""
    return LedgerError(
        f"The ledger {place} is damaged ({problem}); it was not changed. Restore a "
        "backup, or move the file away: the next use creates a new one."
    )


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
        raise _cannot_create(path, "its home folder is unknown") from None


def _cannot_create(path: str, reason: str) -> LedgerError:
    return LedgerError(
        f"The ledger {path!r} cannot be created: {reason}. Set "
        "SVC_LEDGER to a file in a folder that you can write to."
    )


def _make_file(path: Path) -> None:
    """Create the folder (mode 0700) and an empty file (0600) if they are missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = journals(path)  # if the file is missing, these are of an older one
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise _cannot_create(str(path), "its folder is a file") from None
        if path.is_dir():
            raise _cannot_create(str(path), "it is a folder") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _cannot_create(str(path), reason) from None
    else:
        set_aside(path, foreign)


Identity = tuple[int, int] | None


def identity(path: str | Path) -> Identity:
    """Return what identifies a file, whatever its name; None if there is none."""
    stat = _stat(path)
    return stat and (stat.st_dev, stat.st_ino)


def last_change(path: str | Path) -> tuple[int, int] | None:
    """Return a value that changes when a file is written; None if there is none."""
    stat = _stat(path)
    return stat and (stat.st_size, stat.st_mtime_ns)


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        return None if path == MEMORY else os.stat(path)  # noqa: PTH116 - a Path costs many times as much
    except OSError:
        return None


_JOURNALS = ("-wal", "-journal", "-shm")


def journals(path: str | Path) -> dict[str, Identity]:
    """Return the identity of each journal that SQLite keeps for a file, by suffix."""
    identities = ((ending, identity(f"{path}{ending}")) for ending in _JOURNALS)
    return {
        ending: file_identity
        for ending, file_identity in identities
        if file_identity is not None
    }


def set_aside(path: str | Path, foreign: dict[str, Identity]) -> None:
    """Remove the journals of a file that was at `path` before.

    SQLite would write them into the file that is there now. A journal that holds
    changes is not deleted, but gets the suffix `.old`.
    """
    for ending, old_identity in foreign.items():
        journal = Path(f"{path}{ending}")
        if old_identity == identity(journal):  # else SQLite has made a new one
            with suppress(OSError):
                if journal.stat().st_size and ending != "-shm":
                    journal.replace(f"{journal}.old")
                else:
                    journal.unlink()


def is_on_network(path: Path, *, mounts_file: Path = _MOUNTS) -> bool:
    """Return whether a file is on a network disk, where WAL does not work.

    Without a list of mounts (macOS, Windows), only the name of a Windows share is
    recognised. SQLite itself refuses WAL where it recognises a network disk.
    """
    if path.drive.startswith("\\\\"):
        return True
    try:
        mounts = mounts_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    kind, depth = "", 0  # of the mount nearest to the file
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - source, place, type
            continue
        place = Path(fields[1].replace("\\040", " "))
        if path.absolute().is_relative_to(place) and len(place.parts) >= depth:
            kind, depth = fields[2], len(place.parts)
    return kind in _NETWORK_TYPES.split()


def probe(connection: sqlite3.Connection, *, busy_s: float) -> None:
    """Check that the file can be written, without changing it.

    It writes the version number again and rolls back: only a write makes SQLite open
    its journal, which fails in a read-only folder. A file that another program holds
    passes, because exchanges can wait in memory. `busy_s` is the connection's usual
    wait.
    """
    set_busy(connection, min(busy_s, PROBE_S))
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA user_version = {current_version()}")
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as problem:
        if not is_busy(problem):
            raise
    finally:
        set_busy(connection, busy_s)


def empty_wal(connection: sqlite3.Connection, *, busy_s: float) -> None:
    """Empty the WAL, if no other program uses the file now.

    If a user replaces the file by a backup, SQLite would write an old WAL into the
    backup. `busy_s` is the connection's usual wait.
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


BUSY_S = 30.0
"""Longest wait of a read for another program that holds the file."""
SHORT_BUSY_S = 5.0
"""Longest wait of a command for another program that holds the file."""
PROBE_S = 2.0  # longest wait of `probe`
# longest wait of the writer: a longer one would block readers of this process
TRY_S = 0.25
# up to 16 MB of WAL; inserts are a fifth faster than by default
CHECKPOINT_PAGES = 4000


def open_file(
    path: str, *, busy_s: float, is_shared: bool | None = None
) -> sqlite3.Connection:
    """Open a ledger's file; create it if it is missing, and bring it up to date.

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
        _check_with_wal(file, place=path, busy_s=busy_s)
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
    # SQLite needs to create its -shm file, which fails in a read-only folder
    with closing(_connect(address, busy_s)) as connection:
        try:
            pragma(connection, "user_version")
        except sqlite3.OperationalError:
            address += "&immutable=1"
    connection = _connect(address, busy_s)
    try:
        check_is_ours(connection, place=path, n_bytes=file.stat().st_size)
        version = pragma(connection, "user_version")
    except BaseException:
        connection.close()
        raise
    if version == current_version():
        return connection
    connection.close()
    raise LedgerError(
        f"The ledger {path} was written by an older version of svc_notebook and cannot "
        "be written, so it cannot be brought up to date. Copy it to a folder that you "
        "can write to, and set SVC_LEDGER to the copy."
    )


def wal_bytes(path: str | Path) -> int | None:
    """Return the size of the WAL next to a file; None without a WAL."""
    change = last_change(f"{path}-wal")
    return change and change[0]


def _check_with_wal(file: Path, *, place: str, busy_s: float) -> None:
    """Check a file without its WAL and then with it; nothing is written.

    A WAL of another file hides the contents of this one, and would overwrite them.
    """
    n_bytes = file.stat().st_size
    with_wal = f"{place} (with {file.name}-wal, which may be of an earlier file)"
    checks = [("", with_wal, n_bytes)]
    # a ledger may look damaged without its WAL, so it is checked only with it
    if not _is_marked(file):
        checks.insert(0, ("&immutable=1", place, CHECKED_BYTES + 1))
    for option, name, n_checked in checks:
        address = f"{sqlite_address(file)}?mode=ro{option}"
        with closing(_connect(address, busy_s)) as connection:
            check_is_ours(connection, place=name, n_bytes=n_checked)


def _is_marked(file: Path) -> bool:
    """Return whether the header of a file is that of a ledger with a known version.

    The file is read without SQLite, which does not open one that is shorter than its
    header says: that happens if the disk is full while the WAL is emptied.
    """
    header = b""
    with suppress(OSError), file.open("rb") as opened:
        header = opened.read(100)
    # SQLite's header has the user_version at byte 60, the application_id at byte 68
    version, mark = int.from_bytes(header[60:64]), int.from_bytes(header[68:72])
    return mark == APPLICATION_ID and version <= current_version()


def sqlite_address(file: PurePath) -> str:
    """Return an absolute path as an address for SQLite, without a host.

    SQLite refuses addresses with a host, which `as_uri` makes of a Windows share.
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
        check_same_thread=False,  # `LedgerFile.lock` keeps threads apart
    )
    # the checksum is to find a damaged text, so the decoder must not fail before
    connection.text_factory = methodcaller("decode", "utf-8", "surrogateescape")
    return connection


def _choose_journal(connection: sqlite3.Connection, *, is_shared: bool) -> None:
    """Choose WAL, or on a network disk the rollback journal that works there."""
    mode = "DELETE" if is_shared else "WAL"
    try:
        chosen = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    except sqlite3.OperationalError:  # another program holds it; its mode works, too
        return
    if chosen == "wal":
        # a power cut may lose the last commits, and only these requests are sent again
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


_REASONS = {
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
_REASONS.update(dict.fromkeys(_BUSY, _REASONS["SQLITE_BUSY"]))
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_READ_ONLY = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def _error_name(problem: Exception) -> str:
    return getattr(problem, "sqlite_errorname", None) or ""


def is_busy(problem: Exception) -> bool:
    """Return whether another program holds the file; a later try may succeed."""
    return _error_name(problem).startswith(_BUSY)


def is_read_only(problem: Exception) -> bool:
    """Return whether the file cannot be written; it may still be read."""
    return _error_name(problem).startswith(_READ_ONLY)


def explain(problem: sqlite3.Error, place: str) -> LedgerError:
    """Return the LedgerError for an error of SQLite in the ledger at `place`."""
    name = _error_name(problem)
    if name.startswith("SQLITE_NOTADB"):
        return LedgerError(
            f"{place} is not a ledger (not a SQLite file); it was not changed. Set "
            "SVC_LEDGER to another file, or move this one away."
        )
    if name.startswith(_DAMAGED):
        return damaged(place, str(problem))
    reason = next(
        (text for start, text in _REASONS.items() if name.startswith(start)),
        "cannot be used. Set SVC_LEDGER to another file",
    )
    return LedgerError(f"The ledger {place} {reason} ({problem}).")


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise a LedgerError for an error of SQLite in the ledger at `place`."""
    try:
        yield
    except sqlite3.Error as problem:
        raise explain(problem, place) from None


Begun = dict[tuple[str, str], str]
"""When sessions and runs began, as written in the file, by column and name."""


class LedgerFile:
    """The file of one ledger, and its only connection, opened at the first use."""

    def __init__(self, path: str, *, busy_s: float) -> None:
        self.path = path
        # absolute, so that it stays the same file when a notebook changes its folder
        self._place = MEMORY if path == MEMORY else str(absolute(path))
        self._busy_s = busy_s
        self.lock = RLock()  # held while the connection is used
        self.indexing = Lock()  # held while hashes of requests are written
        self.begun: Begun = {}
        self.hashes: list[tuple[int, str]] = []  # with `seq`; not in the file yet
        self._connection: sqlite3.Connection | None = None
        self._is_read_only = False
        self._identity: Identity = None
        self._last_change: tuple[int, int] | None = None
        self._journals: dict[str, Identity] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def check(self) -> None:
        """Raise a LedgerError if rows cannot be written."""
        with self.lock, explained(self.path):
            probe(self.connection(), busy_s=TRY_S)

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Keep the file open inside the block; errors of SQLite become LedgerErrors."""
        with self.lock, explained(self.path):
            connection = self.connection(is_to_write=False)
            n_changes = connection.total_changes
            set_busy(connection, self._busy_s)
            try:
                yield connection
            finally:
                set_busy(connection, TRY_S)
                if connection.total_changes != n_changes:
                    self.empty_wal()

    def empty_wal(self) -> None:
        """Empty the WAL: see the function `empty_wal`."""
        with self.lock:
            if self._connection is not None:
                empty_wal(self._connection, busy_s=TRY_S)
                self.note_change()

    def note_change(self) -> None:
        """Remember the state of the file, which this connection has just written."""
        self._last_change = last_change(self._place)

    def connection(self, *, is_to_write: bool = True) -> sqlite3.Connection:
        """Return the open connection; the caller holds the lock.

        With `is_to_write=False` it may be a connection that can only read.
        """
        if (
            self._is_moved()  # if it was deleted, what is written to it would be lost
            or self._is_overwritten()
            or (is_to_write and self._is_read_only)
        ):
            self.close()
        if self._connection is None:
            self._connection = self._open(is_to_write=is_to_write)
            set_busy(self._connection, TRY_S)
            self._identity = identity(self._place)
            self._journals = journals(self._place)
            self.note_change()
            self.begun.clear()
            self.hashes.clear()
        return self._connection

    def _open(self, *, is_to_write: bool) -> sqlite3.Connection:
        self._is_read_only = False
        try:
            return open_file(self._place, busy_s=self._busy_s)
        except sqlite3.OperationalError as problem:
            if is_to_write or not is_read_only(problem):
                raise
        self._is_read_only = True
        return open_to_read(self._place, busy_s=self._busy_s)

    def _is_moved(self) -> bool:
        """Return whether the open file was moved, deleted or replaced."""
        return self._connection is not None and self._identity != identity(self._place)

    def _is_overwritten(self) -> bool:
        """Return whether another program wrote into the open file.

        It may have copied a backup over it, which SQLite does not notice, or have
        emptied the WAL. A file with rows in its WAL stays open, because closing it
        would write them.
        """
        if self._connection is None or self._last_change == last_change(self._place):
            return False
        return wal_bytes(self._place) == 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is written inside, and wait only briefly for other programs."""
        with self.lock:
            with transaction(connection := self.connection()):
                yield connection
            self.note_change()

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self.lock:  # SQLite crashes if another thread is using the connection
            is_moved = self._is_moved()
            connection, self._connection = self._connection, None
            if connection is None:
                return
            if is_moved:  # SQLite would leave the WAL behind, without its file
                with suppress(sqlite3.Error):
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
            if is_moved:
                set_aside(self._place, self._journals)

    def before_fork(self) -> None:
        """Take the lock, and close the file: a child must not use this connection.

        It would rely on locks that only its parent has, and its rows would be lost.
        """
        self.lock.acquire()
        if self.path != MEMORY:
            self.close()

    def begin_child(self) -> None:
        """Make new locks in a forked child."""
        self.lock, self.indexing = RLock(), Lock()

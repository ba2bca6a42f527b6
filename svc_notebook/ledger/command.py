"""The command `svc-notebook ledger`: show the ledger's path and size, or empty it.

Other kernels can go on with an emptied ledger.
"""

import sqlite3
from contextlib import closing
from datetime import datetime

from svc_notebook.errors import ParameterError

from .connect import MEMORY, absolute, explained, open_file, transaction
from .row import since_sql
from .store import Ledger

_BUSY_S = 5.0
_FILES = ("", "-wal", "-shm", "-journal")


def path(place: str, *, source: str = "default") -> str:
    """Return where the ledger is, and the setting that names it."""
    if place == MEMORY:
        return f"in memory: nothing is kept ({source})"
    file = absolute(place)
    state = "" if file.exists() else "; not created yet"
    return f"{file} ({source}{state})"


def size(place: str) -> str:
    """Return in words how many exchanges, bytes and days the ledger holds."""
    if not _exists(place):
        return "nothing is kept"
    with Ledger(place, busy_s=_BUSY_S) as ledger, ledger.opened() as connection:
        n, first, last, n_sessions = connection.execute(
            "SELECT count(*), min(started_at), max(started_at), "
            "count(DISTINCT session_id) FROM exchanges"
        ).fetchone()
        n_bytes = _n_bytes(place)
    if not n:
        return f"no exchanges, {in_words(n_bytes)}"
    since, until = first[:10], last[:10]
    when = f"on {since}" if since == until else f"from {since} to {until}"
    many = f"{_counted(n, 'exchange')} of {_counted(n_sessions, 'session')}"
    return f"{many}, {in_words(n_bytes)}, {when}"


def forget(place: str, *, before: datetime | str | None = None) -> str:
    """Delete exchanges, and overwrite them in the file; other kernels may be using it.

    `place` is the ledger, as in the settings. With `before` only exchanges that
    started before this instant are deleted.
    """
    condition, values = _started(before)
    if not _exists(place):
        return "nothing was kept"
    with explained(place), closing(open_file(place, busy_s=_BUSY_S)) as connection:
        n = _delete(connection, condition, values)
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return f"{_counted(n, 'exchange')} deleted from {place}"


def check_confirmed(
    *, is_confirmed: bool, place: str, before: datetime | str | None = None
) -> None:
    """Refuse to delete exchanges without a confirmation, and say what would go."""
    condition, values = _started(before)
    if is_confirmed or not _exists(place):
        return
    with explained(place), closing(open_file(place, busy_s=_BUSY_S)) as connection:
        counting = f"SELECT count(*) FROM exchanges WHERE {condition}"  # noqa: S608 - our own
        (n,) = connection.execute(counting, values).fetchone()
    which = "" if before is None else f" that started before {before}"
    raise ParameterError(
        f"This permanently deletes {_counted(n, 'exchange')}{which} from {place} (it "
        f"holds {size(place)}). Confirm with --yes.",
        param="yes",
    )


def _started(before: datetime | str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition for exchanges that started before an instant, and values."""
    if before is None:
        return "1", ()
    return "started_at < ?", (since_sql(before, name="before"),)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _delete(
    connection: sqlite3.Connection, condition: str, values: tuple[str, ...]
) -> int:
    connection.execute("PRAGMA secure_delete = ON")
    with transaction(connection):
        which = f"IN (SELECT exchange_id FROM exchanges WHERE {condition})"  # noqa: S608 - our own
        connection.execute(f"DELETE FROM scores WHERE exchange_id {which}", values)  # noqa: S608 - our own
        connection.execute(f"DELETE FROM tool_runs WHERE {condition}", values)  # noqa: S608 - our own
        done = connection.execute(f"DELETE FROM exchanges WHERE {condition}", values)  # noqa: S608 - our own
        connection.execute("DELETE FROM requests")  # `seq` starts again
        # sessions stay: a running kernel writes only once when it began
    return done.rowcount


def _exists(place: str) -> bool:
    return place != MEMORY and absolute(place).exists()


def _n_bytes(place: str) -> int:
    file = absolute(place)
    found = (file.with_name(file.name + ending) for ending in _FILES)
    return sum(each.stat().st_size for each in found if each.exists())


def in_words(n_bytes: int) -> str:
    """Return a number of bytes in words."""
    size = float(n_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004 - as the units say
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"

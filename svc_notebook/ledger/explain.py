"""What SQLite's errors mean to the owner of a ledger.

Rules: pure; every message names the file, what it means for what was kept, and
the next step; no exception of sqlite3 gets past this file's users.
"""

import sqlite3

from svc_notebook.errors import LedgerError

from .schema import damaged

_MEANINGS = {
    "SQLITE_FULL": "cannot grow: the disk is full. What was kept is safe. Free some "
    "space and run again: only what is missing is asked",
    "SQLITE_IOERR": "cannot be read or written: the disk failed or is full. What was "
    "kept is safe. Check the disk and run again",
    "SQLITE_BUSY": "is held by another program for too long. Close the program that "
    "has it open and run again",
    "SQLITE_READONLY": "cannot be written. Make the file and its folder writable, or "
    "name another file with SVC_LEDGER",
    "SQLITE_CANTOPEN": "cannot be opened. Make its folder writable, or name another "
    "file with SVC_LEDGER",
    "SQLITE_PERM": "may not be opened. Make the file readable and writable, or name "
    "another file with SVC_LEDGER",
    "SQLITE_AUTH": "may not be opened. Name another file with SVC_LEDGER",
}
_MEANINGS["SQLITE_LOCKED"] = _MEANINGS["SQLITE_PROTOCOL"] = _MEANINGS["SQLITE_BUSY"]
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


def explain(problem: sqlite3.Error, place: str) -> LedgerError:
    """Return the error of ours that an error of SQLite stands for.

    Args:
        problem: As raised by sqlite3.
        place: The ledger's file.
    """
    name = getattr(problem, "sqlite_errorname", None) or ""
    if name.startswith("SQLITE_NOTADB"):
        return LedgerError(
            f"{place} is not a ledger (no SQLite file); it was left as it is. Name "
            "another file with SVC_LEDGER, or move this one away."
        )
    if name.startswith(_DAMAGED):
        return LedgerError(damaged(place, str(problem)))
    meaning = next(
        (text for start, text in _MEANINGS.items() if name.startswith(start)),
        "cannot be used. Name another file with SVC_LEDGER",
    )
    return LedgerError(f"The ledger {place} {meaning} ({problem}).")


class explained:  # noqa: N801 - used as a function is; a generator costs each append more
    """Turn errors of SQLite into our own.

    Args:
        place: The ledger's file.

    Raises:
        LedgerError: Whatever sqlite3 raised inside.
    """

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        if isinstance(problem, sqlite3.Error):
            raise explain(problem, self._place) from None

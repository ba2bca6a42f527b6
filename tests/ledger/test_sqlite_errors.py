"""SQLite's errors, in words for the owner of a ledger."""

import sqlite3

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.ledger.connection import explain, explained


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("SQLITE_FULL", "Free some space and run again"),
        ("SQLITE_IOERR_WRITE", "Check the disk and run again"),
        ("SQLITE_BUSY", "Close the program that has it open"),
        ("SQLITE_BUSY_SNAPSHOT", "Close the program that has it open"),
        ("SQLITE_LOCKED", "Close the program that has it open"),
        ("SQLITE_READONLY_DIRECTORY", "Make the file and its folder writable"),
        ("SQLITE_CANTOPEN", "set SVC_LEDGER to another file"),
        ("SQLITE_CORRUPT", "Restore a backup"),
        ("SQLITE_NOTADB", "move this one away"),
        ("SQLITE_PERM", "readable and writable"),
        ("SQLITE_ERROR", "Set SVC_LEDGER to another file"),
    ],
)
def test_names_the_file_and_the_way_on(name: str, remedy: str) -> None:
    """Each kind of trouble names the file and what to do."""
    problem = sqlite3.OperationalError("said SQLite")
    problem.sqlite_errorname = name

    said = str(explain(problem, "/here/ledger.sqlite"))

    assert "/here/ledger.sqlite" in said
    assert remedy in said


def test_lets_no_foreign_error_through() -> None:
    """What sqlite3 raises comes out as ours, with no foreign cause."""
    with pytest.raises(LedgerError) as caught, explained("here"):
        raise sqlite3.ProgrammingError("closed")

    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__

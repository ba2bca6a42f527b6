"""A ledger's file may be moved or replaced while it is open; nothing is lost."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger

MakeExchange = Callable[..., Exchange]


def _ids(path: Path) -> list[str]:
    """Return the exchanges of a file; SQLite finds no damage in it."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT exchange_id FROM exchanges ORDER BY seq")
    exchange_ids = [row[0] for row in found]
    damage = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    assert damage == [("ok",)]
    return exchange_ids


def _add(ledger: Ledger, make: MakeExchange, *numbers: int) -> None:
    for number in numbers:
        ledger.add(make(number)).result()


def _copy(path: Path) -> Path:
    """Make a backup of a ledger as it is now."""
    backup = path.with_name("backup.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("VACUUM INTO ?", (str(backup),))
    connection.close()
    return backup


def test_each_exchange_is_in_the_moved_file_or_in_the_new_one(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """What was added before the file was moved is in it, the rest is in a new one."""
    _add(ledger, make, 1, 2)
    moved = path.rename(path.with_name("old.sqlite"))
    _add(ledger, make, 3)
    ledger.close()

    assert (_ids(moved), _ids(path)) == (["x0001", "x0002"], ["x0003"])


def test_an_older_copy_in_its_place_is_used_as_it_is(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """A backup that replaces an open ledger has its own exchanges and later ones."""
    _add(ledger, make, *range(5))
    backup = _copy(path)
    _add(ledger, make, *range(5, 60))
    backup.replace(path)
    _add(ledger, make, 99)
    ledger.close()

    assert _ids(path) == [*(f"x{number:04}" for number in range(5)), "x0099"]


def test_a_text_in_its_place_is_left_alone(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """A file that is not a ledger is refused and stays as it is, also after close."""
    _add(ledger, make, 1)
    text = path.with_name("notes.txt")
    text.write_text("Tea is from China.")
    text.replace(path)

    with pytest.raises(LedgerError, match="not a ledger"):
        ledger.add(make(2)).result()
    with pytest.warns(RuntimeWarning, match="could not be written"):
        ledger.close()

    assert path.read_text() == "Tea is from China."


_ADDS_AND_STAYS = """
import os, sys
from datetime import UTC, datetime
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.request import build_request

ledger = Ledger(sys.argv[1], session_id="there")
def add(name):
    now = datetime.now(UTC)
    ledger.add(
        Exchange(
            exchange_id=name, origin=Origin(), endpoint="https://service.test/v1",
            request=build_request("Hi", model="m"), started_at=now, ended_at=now,
        )
    ).result()
for number in range(40):
    add(f"y{number:04}")
print("ready", flush=True)
if sys.stdin.readline() == "kill\\n":
    os._exit(1)
if sys.argv[2:]:
    add(sys.argv[2])
ledger.close()
"""


def _start(path: Path, *more: str) -> "subprocess.Popen[str]":
    """Start a program that adds 40 exchanges and keeps the ledger open."""
    program = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", _ADDS_AND_STAYS, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


THERE = [f"y{number:04}" for number in range(40)]


@pytest.mark.slow
def test_another_program_begins_a_new_ledger(path: Path, make: MakeExchange) -> None:
    """After a move two programs go on with one new file; the moved one is whole."""
    program = _start(path, "later")
    moved = path.rename(path.with_name("old.sqlite"))
    with Ledger(path) as ledger:
        _add(ledger, make, 1)
        program.communicate("go\n", timeout=120)
        _add(ledger, make, 2)

    assert program.returncode == 0
    assert _ids(moved) == THERE
    assert _ids(path) == ["x0001", "later", "x0002"]


@pytest.mark.slow
@pytest.mark.parametrize("is_text", [False, True])
def test_a_killed_programs_journal_spoils_no_other_file(
    path: Path, make: MakeExchange, *, is_text: bool
) -> None:
    """A file put beside the journal of another is refused unchanged."""
    with Ledger(path) as ledger:
        _add(ledger, make, *range(300))
    other = path.with_name("other.sqlite")
    if is_text:
        other.write_text("Tea is from China.")
    else:
        with Ledger(other) as ledger:
            _add(ledger, make, *range(400, 480))
    before = other.read_bytes()
    program = _start(path)
    program.communicate("kill\n", timeout=120)
    other.replace(path)

    with Ledger(path) as ledger, pytest.raises(LedgerError, match="not changed"):
        ledger.check()

    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_killed_programs_journal_is_kept_when_its_file_was_moved(path: Path) -> None:
    """The journal is renamed, and belongs to the moved file under that file's name."""
    program = _start(path)
    program.communicate("kill\n", timeout=120)
    moved = path.rename(path.with_name("old.sqlite"))
    with Ledger(path) as ledger:
        ledger.check()
    shutil.move(f"{path}-wal.old", f"{moved}-wal")

    assert (_ids(moved), _ids(path)) == (THERE, [])


def _settle(path: Path) -> None:
    """Wait until the ledger's writer has emptied the journal, as it does when idle."""
    while Path(f"{path}-wal").stat().st_size:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_backup_restored_after_a_kill_is_used_as_it_is(
    path: Path, make: MakeExchange, *, is_moved: bool
) -> None:
    """The journal of an idle ledger is empty: it adds nothing to a restored backup."""
    with Ledger(path) as ledger:
        _add(ledger, make, *range(5))
    backup = _copy(path)
    program = _start(path)
    _settle(path)
    program.communicate("kill\n", timeout=120)
    if is_moved:
        backup.replace(path)
    else:
        shutil.copyfile(backup, path)
    with Ledger(path) as ledger:
        _add(ledger, make, 98, 99)

    assert _ids(path) == [*(f"x{number:04}" for number in (*range(5), 98, 99))]


@pytest.mark.slow
def test_a_backup_copied_over_an_open_ledger_is_used_as_it_is(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """A backup written into the same file has its own exchanges and later ones."""
    _add(ledger, make, *range(5))
    backup = _copy(path)
    _add(ledger, make, *range(5, 60))
    _settle(path)
    assert ledger.count() == 60  # the writer is done
    shutil.copyfile(backup, path)
    _add(ledger, make, 98)
    ledger.close()

    assert _ids(path) == [*(f"x{number:04}" for number in (*range(5), 98))]


@pytest.mark.filterwarnings("ignore:1 exchange could not be written")
def test_a_folder_in_its_place_leaves_what_is_in_memory(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """Reads show what could not be written, and warn; it is written later."""
    _add(ledger, make, 1)
    moved = path.rename(path.with_name("old.sqlite"))
    path.mkdir()
    with pytest.raises(LedgerError, match="it is a folder"):
        ledger.add(make(2)).result()
    with pytest.warns(RuntimeWarning, match="Only exchanges that are still in memory"):
        shown = [each.exchange_id for each in ledger.read()]
    path.rmdir()
    moved.rename(path)
    ledger.close()

    assert (shown, _ids(path)) == (["x0002"], ["x0001", "x0002"])

"""The ledger keeps every exchange once and gives it back, on any disk."""

import gc
import multiprocessing
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import PAGE_ROWS, Ledger
from svc_notebook.ledger.ledger_file import (
    check_is_ours,
    is_on_network,
    migrate,
    open_file,
    sqlite_address,
)

MakeExchange = Callable[..., Exchange]


def test_keeps_an_exchange_once(ledger: Ledger, make: MakeExchange) -> None:
    """Telling the same exchange twice changes nothing."""
    ledger.add(make())
    ledger.add(make())

    assert ledger.count() == 1


@pytest.mark.slow
def test_reads_page_after_page(ledger: Ledger, make: MakeExchange) -> None:
    """More exchanges than a page holds are all read, also those of one instant."""
    numbers = range(2 * PAGE_ROWS + 1)
    for number in numbers:
        ledger.add(make(0, exchange_id=f"y{number:05}"))

    got = [each.exchange_id for each in ledger.read()]

    assert got == [f"y{number:05}" for number in numbers]


def test_a_reader_that_stops_holds_up_nobody(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """A half-read ledger can be written by another at once."""
    for number in range(3):
        ledger.add(make(number))
    reading = ledger.read()
    next(reading)

    with Ledger(path, busy_s=0) as other:
        other.add(make(9))

    assert ledger.count() == 4


def test_opens_nothing_before_it_is_used(path: Path) -> None:
    """Making a ledger and showing it touches no disk."""
    shown = repr(Ledger(path))

    assert shown == f"<Ledger {path}, not open>"
    assert not path.parent.exists()


def test_shows_its_place_and_count(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """An open ledger shows its file and how many exchanges there are."""
    ledger.add(make())

    assert repr(ledger) == f"<Ledger {path}: 1 exchanges, 1 of this session>"


def test_is_for_its_owner_alone(ledger: Ledger, path: Path) -> None:
    """Folder and file are made with modes 0700 and 0600."""
    ledger.check()

    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]
    assert modes == [0o700, 0o600]


def test_leaves_the_mode_of_what_exists(ledger: Ledger, path: Path) -> None:
    """A folder and a file that exist keep their modes."""
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)

    ledger.check()

    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]
    assert modes == [0o755, 0o644]


def test_a_forgotten_ledger_is_closed(path: Path, make: MakeExchange) -> None:
    """A ledger that nobody holds any more closes its file without a warning."""
    ledger = Ledger(path)
    ledger.add(make())
    del ledger
    gc.collect()

    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_sixteen_threads_add_and_read(ledger: Ledger, make: MakeExchange) -> None:
    """Threads that add and read at once lose nothing and raise nothing."""

    def work(thread: int) -> None:
        for number in range(20):
            ledger.add(make(100 * thread + number))
            list(ledger.read())

    threads = [threading.Thread(target=work, args=(each,)) for each in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ledger.count() == 320


@pytest.mark.parametrize(("is_shared", "mode"), [(True, "delete"), (False, "wal")])
def test_chooses_its_journal_by_the_disk(
    path: Path, is_shared: bool, mode: str
) -> None:
    """On a disk that other machines use the journal is one that works there."""
    connection = open_file(str(path), busy_s=1, is_shared=is_shared)

    found = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    assert found == (mode,)


def test_takes_either_journal_while_another_reads(
    path: Path, make: MakeExchange
) -> None:
    """A ledger whose journal cannot be changed just now is used as it is."""
    other = open_file(str(path), busy_s=0, is_shared=True)
    other.execute("BEGIN")
    other.execute("SELECT * FROM exchanges").fetchall()
    ledger = Ledger(path, busy_s=0)
    ledger.check()

    other.execute("COMMIT")
    ledger.add(make())
    assert ledger.count() == 1
    ledger.close()
    other.close()


def test_a_file_that_another_program_is_just_making_is_not_foreign(path: Path) -> None:
    """The check sees the file as it was at one moment, before or after."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            n_seen = iter(range(100))
            connection.set_trace_callback(
                lambda _: migrate(other) if next(n_seen) == 2 else None
            )

            check_is_ours(connection, place=str(path), n_bytes=0)

            connection.set_trace_callback(None)
            check_is_ours(connection, place=str(path), n_bytes=0)
            assert connection.execute("PRAGMA user_version").fetchone() != (0,)


def _add_in_child(ledger: Ledger, exchange: Exchange) -> None:
    ledger.add(exchange)
    ledger.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the point
def test_survives_a_fork(ledger: Ledger, make: MakeExchange) -> None:
    """A forked child adds through a connection of its own; its parent goes on."""
    ledger.add(make(0))
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_add_in_child, args=(ledger, make(1)))
    child.start()
    child.join()
    ledger.add(make(2))

    assert [each.exchange_id for each in ledger.read(scope="all")] == [
        "x0000",
        "x0001",
        "x0002",
    ]


def test_a_file_that_was_deleted_is_made_again(
    ledger: Ledger, path: Path, make: MakeExchange
) -> None:
    """What is added after the file was deleted is in the new file, not lost."""
    ledger.add(make(1)).result()
    for file in path.parent.glob("ledger.sqlite*"):
        file.unlink()

    ledger.add(make(2)).result()

    with Ledger(path) as other:
        assert list(other.read(scope="all")) == [make(2)]


def test_stays_where_it_was_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: MakeExchange
) -> None:
    """A path without a folder is that of the folder in which the ledger was named."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Ledger("ledger.sqlite") as ledger:
        ledger.add(make(0))
        monkeypatch.chdir("elsewhere")
        ledger.add(make(1))
        n = ledger.count()

    assert n == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_home_that_nobody_knows_is_refused_as_ours() -> None:
    """A path in the home of somebody who is not there is an error of ours."""
    with pytest.raises(LedgerError, match="nobody-at-all"):
        Ledger("~nobody-at-all/ledger.sqlite")


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk xfs rw 0 0
//host/share /mnt/share cifs rw 0 0
server:/a /twice nfs4 rw 0 0
b /twice overlay rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/.local/share/ledger.sqlite", True),
        ("/home/local disk/ledger.sqlite", False),
        ("/homely/ledger.sqlite", False),
        ("/tmp/ledger.sqlite", False),  # noqa: S108 - no file is made
        ("/mnt/share/a/b/c", True),
        ("/twice/a", False),
    ],
)
def test_knows_network_disks(tmp_path: Path, path: str, expected: bool) -> None:
    """The deepest mount that holds the path, or the later of two, is in force."""
    mounts_file = tmp_path / "mounts"
    mounts_file.write_text(MOUNTS)

    assert is_on_network(Path(path), mounts_file=mounts_file) is expected


@pytest.mark.parametrize("mounts", [None, ""])
def test_takes_a_disk_for_its_own_without_a_list(
    tmp_path: Path, mounts: str | None
) -> None:
    """Where the system lists no mounts a disk counts as this machine's."""
    mounts_file = tmp_path / "mounts"
    if mounts is not None:
        mounts_file.write_text(mounts)

    assert is_on_network(tmp_path, mounts_file=mounts_file) is False


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PurePosixPath("/home/a b/l#1?.sqlite"), "file:///home/a%20b/l%231%3F.sqlite"),
        (PureWindowsPath(r"C:\Users\me\l.sqlite"), "file:///C:/Users/me/l.sqlite"),
        (PureWindowsPath(r"\\host\share\l.sqlite"), "file:////host/share/l.sqlite"),
    ],
)
def test_tells_sqlite_the_path_alone(path: PurePath, expected: str) -> None:
    """SQLite gets a path with its drive or share, and never a host."""
    assert sqlite_address(path) == expected

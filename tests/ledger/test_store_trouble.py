"""A file that cannot be a ledger is refused by name and left as it is."""

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ledger_file import (
    CHECKED_BYTES,
    check_is_ours,
    current_version,
    explain,
    explained,
    migrate,
    open_file,
)
from tests.ledger.conftest import Stops

MakeExchange = Callable[..., Exchange]


def _filled(path: Path, make: MakeExchange, n_exchanges: int = 40) -> None:
    with Ledger(path) as ledger:
        for number in range(n_exchanges):
            ledger.add(make(number))


def _run(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _foreign(path: Path) -> None:
    _run(path, "CREATE TABLE birds (name)", "INSERT INTO birds VALUES ('kite')")


def _foreign_without_tables(path: Path) -> None:
    _run(path, "PRAGMA user_version = 1")


def _newer(path: Path) -> None:
    Ledger(path).check()
    _run(path, f"PRAGMA user_version = {current_version() + 1}")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no ledger " * 1000)


def _header_and_garbage(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 9000)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (_foreign, "another program"),
        (_foreign_without_tables, "another program"),
        (_newer, "newer version"),
        (_garbage, "not a ledger"),
        (_header_and_garbage, "not a ledger|damaged"),
    ],
)
def test_refuses_what_is_no_ledger_of_ours(
    tmp_path: Path, write: Callable[[Path], None], reason: str
) -> None:
    """A foreign, newer or garbled file is refused by its name and not changed."""
    path = tmp_path / "ledger.sqlite"
    write(path)
    before = path.read_bytes()

    with pytest.raises(LedgerError, match=reason) as caught:
        Ledger(path).check()

    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_refuses_again_and_again(tmp_path: Path, make: MakeExchange) -> None:
    """Adding to, reading from and closing a refused file say the same; rows stay."""
    path = tmp_path / "ledger.sqlite"
    _garbage(path)
    ledger = Ledger(path)

    with pytest.warns(RuntimeWarning, match="1 exchange could not be written"):
        problem = ledger.add(make()).exception()
    with pytest.warns(RuntimeWarning, match=r"in memory are read\. .*not a ledger"):
        assert list(ledger.read()) == [make()]
    with pytest.warns(RuntimeWarning, match="not a ledger"):
        ledger.close()
    assert "not a ledger" in str(problem)


@pytest.mark.parametrize(("n_more", "is_found"), [(0, True), (1, False)])
def test_reads_a_small_file_through(
    tmp_path: Path, make: MakeExchange, n_more: int, is_found: bool
) -> None:
    """Damage is looked for when a ledger is opened, unless it is a large one."""
    path = tmp_path / "ledger.sqlite"
    _filled(path, make)
    _run(
        path,
        "PRAGMA writable_schema = 1",
        "DELETE FROM sqlite_schema WHERE name = 'exchanges_time'",
    )
    connection = sqlite3.connect(path)
    found = False
    try:
        check_is_ours(connection, place="here", n_bytes=CHECKED_BYTES + n_more)
    except LedgerError:
        found = True
    connection.close()

    assert found is is_found


def test_takes_an_empty_file(tmp_path: Path, make: MakeExchange) -> None:
    """An empty file is an empty ledger: there is nothing in it to lose."""
    path = tmp_path / "ledger.sqlite"
    path.touch()
    with Ledger(path) as ledger:
        ledger.add(make())

        assert ledger.count() == 1


@pytest.mark.slow
def test_never_believes_a_flipped_bit(tmp_path: Path, make: MakeExchange) -> None:
    """With any one byte changed, reading gives what was written, or is refused."""
    path = tmp_path / "ledger.sqlite"
    _filled(path, make, n_exchanges=5)
    whole = path.read_bytes()
    written = [make(number) for number in range(5)]
    n_refused = 0
    for place in range(0, len(whole), 97):
        flipped = bytes([whole[place] ^ 0x10])
        path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        try:
            with Ledger(path) as ledger:
                got = list(ledger.read(scope="all"))
        except LedgerError:
            n_refused += 1
        else:
            assert got == written, f"byte {place}"

    assert n_refused > 0


def test_names_the_exchange_that_was_changed(
    tmp_path: Path, make: MakeExchange
) -> None:
    """A record changed by hand is refused by the exchange's id."""
    path = tmp_path / "ledger.sqlite"
    _filled(path, make, n_exchanges=2)
    _run(
        path,
        "UPDATE exchanges SET record = replace(record, 'Hello', 'Hallo') "
        "WHERE exchange_id = 'x0001'",
    )

    with Ledger(path) as ledger, pytest.raises(LedgerError, match="x0001"):
        list(ledger.read(scope="all"))


def test_names_a_record_that_is_no_exchange(tmp_path: Path, make: MakeExchange) -> None:
    """A record that is whole but no exchange is refused by its id."""
    path = tmp_path / "ledger.sqlite"
    _filled(path, make, n_exchanges=1)
    _run(path, "UPDATE exchanges SET record = '{}', record_crc32 = 2745614147")

    with Ledger(path) as ledger, pytest.raises(LedgerError, match=r"x0000.*required"):
        list(ledger.read(scope="all"))


@pytest.mark.parametrize("is_folder", [True, False])
def test_refuses_a_place_that_cannot_hold_it(tmp_path: Path, is_folder: bool) -> None:
    """A folder in its place, or a file in its folder's, is refused with the way on."""
    taken = tmp_path / "taken"
    if is_folder:
        taken.mkdir()
    else:
        taken.touch()
    path = taken if is_folder else taken / "ledger.sqlite"

    with pytest.raises(LedgerError, match="SVC_LEDGER") as caught:
        Ledger(path).check()

    reason = "it is a folder" if is_folder else "its folder is a file"
    assert f"cannot be created: {reason}. Set" in str(caught.value)


def test_refuses_a_name_with_nul() -> None:
    """A name that no file can have is refused as ours."""
    with pytest.raises(LedgerError, match="SVC_LEDGER"):
        Ledger("a\0b").check()


def test_shows_that_it_cannot_be_read(ledger: Ledger, path: Path) -> None:
    """Showing a ledger whose file was spoilt raises nothing."""
    ledger.check()
    _run(path, "DROP TABLE exchanges")

    assert repr(ledger) == f"<Ledger {path}, cannot be read>"


_AS_NOBODY = """
import os, sys
from msgspec.structs import replace
from svc_notebook.errors import LedgerError
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.ledger.ledger import Ledger
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with Ledger(sys.argv[1]) as ledger:
        if sys.argv[2:] == ["read"]:
            frame = replies_df(ledger, scope="all")
            print(frame["text"].tolist(), ledger.count())
            exchange = replace(next(ledger.read(scope="all")), exchange_id="new")
            print(ledger.add(exchange).exception())
            print(replies_df(ledger, scope="all")["exchange_id"].tolist())
        else:
            ledger.check()
except LedgerError as error:
    print(error)
"""


def _as_nobody(path: Path, *what: str) -> str:
    """Use a ledger in a process that is not root, for whom modes do not count."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _AS_NOBODY, str(path), *what],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that anybody may enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
def test_refuses_a_folder_that_cannot_be_written(
    open_folder: Path, make: MakeExchange
) -> None:
    """A ledger in a read-only folder is refused before anything is spent."""
    path = open_folder / "locked" / "ledger.sqlite"
    _filled(path, make, n_exchanges=1)
    path.chmod(0o666)
    path.parent.chmod(0o555)

    said = _as_nobody(path)

    path.parent.chmod(0o755)
    assert str(path) in said
    assert "writable" in said


@pytest.mark.slow
def test_refuses_a_file_that_cannot_be_written(
    open_folder: Path, make: MakeExchange
) -> None:
    """A read-only ledger is refused before anything is spent."""
    path = open_folder / "ledger.sqlite"
    _filled(path, make, n_exchanges=1)
    path.chmod(0o444)
    open_folder.chmod(0o777)

    assert "cannot be written" in _as_nobody(path)


@pytest.mark.slow
@pytest.mark.parametrize("is_folder_locked", [False, True])
def test_a_ledger_that_cannot_be_written_is_read(
    open_folder: Path, make: MakeExchange, *, is_folder_locked: bool
) -> None:
    """Frames show a read-only ledger, which stays as it is; adding says why not."""
    path = open_folder / "folder" / "ledger.sqlite"
    _filled(path, make, n_exchanges=2)
    path.chmod(0o444)
    path.parent.chmod(0o555 if is_folder_locked else 0o777)
    before = path.read_bytes()

    replies, problem, in_hand = _as_nobody(path, "read").splitlines()

    path.parent.chmod(0o755)
    assert replies == "['Hello.', 'Hello.'] 2"
    assert problem.startswith(f"The ledger {path} cannot be written. Make the file and")
    assert in_hand == "['x0000', 'x0001', 'new']"
    assert path.read_bytes() == before


@pytest.mark.slow
def test_refuses_to_make_a_folder_where_it_may_not(open_folder: Path) -> None:
    """A folder that cannot be made is named, with the variable that names another."""
    (open_folder / "locked").mkdir(mode=0o555)

    said = _as_nobody(open_folder / "locked" / "new" / "ledger.sqlite")

    assert "SVC_LEDGER" in said
    assert "cannot be created" in said


_FILLING = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from conftest import _exchange
from svc_notebook.errors import LedgerError
from svc_notebook.ledger.ledger import Ledger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = Ledger(sys.argv[1])
ledger.check()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
for number in range(10_000):
    try:
        ledger.add(_exchange(number)).result()
    except LedgerError as error:
        print(number, error)
        break
"""


@pytest.mark.slow
def test_a_full_disk_loses_nothing(path: Path, make: MakeExchange) -> None:
    """When the disk is full the error says so; what was kept is there, and it goes on.

    A limit on the size of files stands for the disk.
    """
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _FILLING, str(path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    n_kept, message = done.stdout.split(" ", 1)

    assert "disk" in message
    with Ledger(path) as ledger:
        ledger.add(make(99_999))
        kept = [each.exchange_id for each in ledger.read(scope="all")]
    assert kept == [*(f"x{number:04}" for number in range(int(n_kept))), "x99999"]


@pytest.mark.slow
def test_a_full_disk_while_the_wal_is_emptied_loses_nothing(
    path: Path, make: MakeExchange
) -> None:
    """A file that is shorter than its head says is whole with the WAL it has."""
    _filled(path, make, 200)
    connection = open_file(str(path), busy_s=1)
    connection.execute("VACUUM")  # writes every page to the WAL
    other = path.with_name("other.sqlite")
    half = path.read_bytes()[: path.stat().st_size // 8192 * 4096]
    other.write_bytes(half)
    Path(f"{other}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    connection.close()

    with Ledger(other) as ledger:
        assert list(ledger.read(scope="all")) == [make(n) for n in range(200)]


@pytest.mark.slow
def test_a_stop_while_it_is_made_does_no_harm(
    tmp_path: Path, make: MakeExchange
) -> None:
    """Stopped after any statement of its making, a ledger is made whole next time."""
    n_stops = 0
    while True:
        path = tmp_path / f"{n_stops}.sqlite"
        connection = sqlite3.connect(path, isolation_level=None, factory=Stops)
        connection.n_left = n_stops
        try:
            migrate(connection)
        except KeyboardInterrupt:
            n_stops += 1
        else:
            break
        finally:
            connection.close()
        with Ledger(path) as ledger:
            ledger.add(make())
            assert ledger.count() == 1

    assert n_stops > 8


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

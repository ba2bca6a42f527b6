"""On what kind of disk a ledger is."""

from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest

from svc_notebook.ledger.connection import is_on_network, sqlite_address

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

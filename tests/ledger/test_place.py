"""Where a ledger lies, and on what kind of disk."""

from pathlib import Path

import pytest

from svc_notebook.ledger.connect import filesystem_of, is_on_network

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk xfs rw 0 0
//host/share /mnt/share cifs rw 0 0
odd
""".splitlines()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/.local/share/ledger.sqlite", "nfs4"),
        ("/home/local disk/ledger.sqlite", "xfs"),
        ("/homely/ledger.sqlite", "ext4"),
        ("/tmp/ledger.sqlite", "tmpfs"),  # noqa: S108 - no file is made
        ("/mnt/share/a/b/c", "cifs"),
    ],
)
def test_finds_the_disk_of_a_path(path: str, expected: str) -> None:
    """The deepest mount that holds the path tells its file system."""
    assert filesystem_of(Path(path), MOUNTS) == expected


def test_knows_none_without_a_list() -> None:
    """Where no mount is listed there is no answer."""
    assert filesystem_of(Path("/a"), []) is None


def test_takes_the_newest_of_two_mounts() -> None:
    """Of two mounts at one place the later one is in force."""
    mounts = ["a / ext4 rw", "b / overlay rw"]

    assert filesystem_of(Path("/a"), mounts) == "overlay"


@pytest.mark.parametrize(("kind", "expected"), [("nfs4", True), ("ext4", False)])
def test_knows_network_disks(tmp_path: Path, kind: str, expected: bool) -> None:
    """The system's list of mounts tells whether a disk is on the network."""
    mounts_file = tmp_path / "mounts"
    mounts_file.write_text(f"server:/home / {kind} rw 0 0\n")

    assert is_on_network(tmp_path, mounts_file=mounts_file) is expected


def test_takes_a_disk_for_its_own_without_a_list(tmp_path: Path) -> None:
    """Where the system has no list of mounts a disk counts as this machine's."""
    assert is_on_network(tmp_path, mounts_file=tmp_path / "none") is False

"""Where the ledger lies: its folder, its file, and what kind of disk that is.

What it is not: it knows no SQLite. Rules: what is created is for its owner alone;
what exists keeps its mode, since its owner chose it; an existing file is never
opened here, because closing it would drop the locks that SQLite holds on it for
this whole program.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from svc_notebook.errors import LedgerError

MEMORY = ":memory:"
_MOUNTS = Path("/proc/self/mounts")
_NETWORK_TYPES = (
    "9p afs beegfs ceph cifs drvfs fuse.glusterfs fuse.sshfs gfs2 gpfs lustre ncpfs "
    "nfs nfs4 ocfs2 smb2 smb3 smbfs virtiofs vboxsf"
)


def absolute(path: str) -> Path:
    """Return the file that a path means now: `~` is a home, the rest this folder's.

    Raises:
        LedgerError: It lies in the home of somebody who is not known here.
    """
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        pass  # the error below says it, without a foreign one behind it
    raise LedgerError(
        f"The ledger {path!r} cannot be made: there is no such home on this machine. "
        "Nothing was sent. Name a file in a folder that you can write with SVC_LEDGER."
    )


def prepare(path: Path) -> None:
    """Make the folder (mode 0700) and an empty file (mode 0600) where none is.

    Raises:
        LedgerError: The folder or the file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        reason = "" if path.parent.is_dir() else "its folder is a file"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    else:
        return
    if not reason and path.is_dir():
        reason = "it is a folder"
    if reason:
        raise LedgerError(
            f"The ledger {str(path)!r} cannot be made: {reason}. Nothing was sent. "
            "Name a file in a folder that you can write with SVC_LEDGER."
        )


def is_on_network(path: Path, *, mounts_file: Path = _MOUNTS) -> bool:
    """Say whether a file lies on a network disk, where shared memory does not reach.

    Args:
        path: The file.
        mounts_file: The system's list of mounts; where there is none the answer is
            no, and SQLite itself refuses WAL where it can tell.
    """
    try:
        mounts = mounts_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return filesystem_of(path.absolute(), mounts.splitlines()) in _NETWORK_TYPES.split()


def filesystem_of(path: Path, mounts: Iterable[str]) -> str | None:
    """Return the file system's type that a path lies on.

    Args:
        path: Absolute.
        mounts: Lines as in /proc/self/mounts: source, place, type, options.
    """
    found: tuple[int, str] | None = None
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - source, place, type
            continue
        place = Path(fields[1].replace("\\040", " "))
        depth = len(place.parts)
        if path.is_relative_to(place) and (found is None or depth >= found[0]):
            found = depth, fields[2]
    return found[1] if found else None

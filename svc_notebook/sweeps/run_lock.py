"""The claim on a run: who asks it now, so that two kernels do not pay for it twice.

A file beside the ledger is locked while a named run is asked. What it is not: a
record; the file says who holds it, and nothing of what is asked. Rules: the lock is
the operating system's, so that it is let go when its holder dies, however it dies; it
reaches as far as the locks that SQLite itself needs, network homes included; where
files cannot be locked a run goes on without.
"""

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.store import Ledger

MEMORY = ":memory:"
_MAX_BYTES = 1000

Place = tuple[int, str]


@dataclass(slots=True)
class Claim:
    """A claim that is held, by this kernel; `release` it when the run has ended.

    Attributes:
        place: This process and what it claims.
        path: The locked file; None if there is none.
        fd: The open file that holds the lock.
        going: What asks, as soon as it does.
    """

    place: Place
    path: Path | None = None
    fd: int | None = None
    going: Any = None

    def release(self) -> None:
        """Let go; again changes nothing."""
        with _lock:
            if _held.get(self.place) is self:
                del _held[self.place]
            fd, self.fd = self.fd, None
        if fd is not None and self.place[0] == os.getpid():
            with suppress(OSError):
                if self.path is not None:
                    self.path.unlink()
                os.close(fd)


_held: dict[Place, Claim] = {}
_lock = Lock()


def held_here(ledger: Ledger, run_id: str) -> Claim | None:
    """Return the claim on a run if this kernel holds it."""
    return _held.get(_place(ledger, run_id))


def claim(ledger: Ledger, run_id: str, *, is_named: bool = True) -> Claim:
    """Claim a run for this kernel, which holds no claim on it.

    Args:
        ledger: Where its replies are kept.
        run_id: Its name.
        is_named: Whether other kernels can mean it, too.

    Raises:
        ParameterError: Another kernel is asking it; it is named.
    """
    found = Claim(_place(ledger, run_id))
    with _lock:
        if found.place in _held:  # of another thread; a second lock would free both
            raise _taken(run_id, _me())
        _held[found.place] = found
    try:
        if is_named and ledger.path != MEMORY:
            found.path = _path(ledger, run_id)
            found.fd = _locked(found.path, run_id)
    except BaseException:
        found.release()
        raise
    return found


def _place(ledger: Ledger, run_id: str) -> Place:
    is_shared = ledger.path != MEMORY
    where = str(_path(ledger, run_id)) if is_shared else f"{id(ledger)} {run_id}"
    return os.getpid(), where


def _path(ledger: Ledger, run_id: str) -> Path:
    mark = blake2b(run_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    file = Path(ledger.path).absolute()
    return file.with_name(f"{file.name}-run-{mark}.lock")


def _locked(path: Path, run_id: str) -> int | None:
    """Lock a file and write into it who does; None where that is not possible.

    Raises:
        ParameterError: Somebody else has locked it.
    """
    lock = _lock_of_system()
    while lock is not None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        try:
            lock(fd)
        except (BlockingIOError, PermissionError):
            holder = _read(fd)
            os.close(fd)
            raise _taken(run_id, holder) from None
        except OSError:  # no locks here
            os.close(fd)
            return None
        if _is_same(fd, path):
            os.truncate(fd, 0)
            os.write(fd, json.dumps(_me()).encode())
            return fd
        os.close(fd)  # its holder removed it while we took it: once more
    return None


def _lock_of_system() -> Callable[[int], None] | None:
    try:
        fcntl = import_module("fcntl")
    except ImportError:  # Windows
        return None
    # not inherited by a forked child, which would keep it after its parent's death
    return lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_same(fd: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except OSError:
        return False


def _me() -> dict[str, object]:
    now_at = datetime.now().astimezone()
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": f"{now_at:%Y-%m-%d %H:%M}",
    }


def _read(fd: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(fd, _MAX_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _taken(run_id: str, holder: dict[str, object]) -> ParameterError:
    who = "another kernel"
    if "pid" in holder:
        is_here = holder.get("host") == platform.node()
        where = "on this machine" if is_here else f"on {holder.get('host')}"
        who += f" (process {holder['pid']} {where}, since {holder.get('since')})"
    return ParameterError(
        f"The run {run_id!r} is being asked by {who}. Nothing was sent from here, so "
        "that nothing is paid for twice. replies_df() shows what it has so far; when "
        "it has ended, or was stopped there, run() asks what is missing.",
        param="name",
    )

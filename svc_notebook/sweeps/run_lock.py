"""The lock on a run, so that two kernels do not send, and pay for, the same requests.

A locked file beside the ledger says which process is sending a named run. The system
releases the lock when that process ends. Where files cannot be locked, there is none.
"""

import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.fork import Forkable
from svc_notebook.ledger.connect import MEMORY, absolute
from svc_notebook.ledger.store import Ledger

_MAX_BYTES = 1000


@dataclass(slots=True)
class RunLock:
    """A lock that this kernel holds, and the task that sends the run's requests."""

    key: str  # the file, or the ledger in memory, with the run
    path: Path | None = None  # of the locked file, if there is one
    fd: int | None = None
    task: Any = None

    def release(self) -> None:
        """Release the lock; releasing it again is harmless."""
        with _held.guard:
            if _held.locks.get(self.key) is self:
                del _held.locks[self.key]
            fd, self.fd = self.fd, None
        if fd is not None:
            with suppress(OSError):
                if self.path is not None:
                    self.path.unlink()
                os.close(fd)


class _Held(Forkable):
    """The locks that this process holds."""

    def __init__(self) -> None:
        self.guard = Lock()
        self.locks: dict[str, RunLock] = {}
        self.watch_forks()

    def after_in_child(self) -> None:
        """Leave the files to the parent, which holds their locks."""
        for each in self.locks.values():
            each.fd = None
        self.guard, self.locks = Lock(), {}


_held = _Held()


def held_here(ledger: Ledger, run_id: str) -> RunLock | None:
    """Return the lock on a run if this kernel holds it."""
    return _held.locks.get(_key(ledger, run_id))


_NOT_SENT = (
    "Nothing was sent from here, so no request is paid for twice. replies_df() shows "
    "the replies so far; when the other kernel has ended or stopped the run, run() "
    "sends what is missing."
)


def lock_run(
    ledger: Ledger, run_id: str, *, is_named: bool = True, advice: str = _NOT_SENT
) -> RunLock:
    """Lock a run, or raise ParameterError: it is in progress elsewhere.

    A run without a name needs no file: no other kernel can mean it. `advice` is what
    the error says to do.
    """
    found = RunLock(_key(ledger, run_id))
    with _held.guard:
        if found.key in _held.locks:  # of another thread; a second lock would free both
            raise _taken(run_id, _me(), advice)
        _held.locks[found.key] = found
    try:
        if is_named and ledger.path != MEMORY:
            found.path = _path(ledger, run_id)
            found.fd = _locked(found.path, run_id, advice)
    except BaseException:
        found.release()
        raise
    return found


def _key(ledger: Ledger, run_id: str) -> str:
    is_shared = ledger.path != MEMORY
    return str(_path(ledger, run_id)) if is_shared else f"{id(ledger)} {run_id}"


def _path(ledger: Ledger, run_id: str) -> Path:
    mark = blake2b(run_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    file = absolute(ledger.path)
    return file.with_name(f"{file.name}-run-{mark}.lock")


def _locked(path: Path, run_id: str, advice: str) -> int | None:
    """Lock a file and write the holder into it; None where that is not possible."""
    try:
        fcntl = import_module("fcntl")
    except ImportError:  # Windows
        return None
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        try:
            # not inherited by a forked child, which would keep it after its parent ends
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = _read(fd)
            os.close(fd)
            raise _taken(run_id, holder, advice) from None
        except OSError:  # no locks here
            os.close(fd)
            return None
        if _is_same(fd, path):
            os.truncate(fd, 0)
            os.write(fd, json.dumps(_me()).encode())
            return fd
        os.close(fd)  # its holder has removed the file meanwhile: once more


def _is_same(fd: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except OSError:
        return False


def _me() -> dict[str, object]:
    since = f"{datetime.now().astimezone():%Y-%m-%d %H:%M}"
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def _read(fd: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(fd, _MAX_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _taken(run_id: str, holder: dict[str, object], advice: str) -> ParameterError:
    who = "another kernel"
    if "pid" in holder:
        is_here = holder.get("host") == platform.node()
        where = "on this machine" if is_here else f"on {holder.get('host')}"
        who += f" (process {holder['pid']} {where}, since {holder.get('since')})"
    return ParameterError(
        f"The run {run_id!r} is in progress in {who}. {advice}", param="name"
    )

"""The lock on a run, so that two kernels do not send, and pay for, the same requests.

A locked file next to the ledger marks a named run that is being sent; a second file
names the process that sends it. The system releases the lock when that process ends. On
file systems without locks, runs are not locked.
"""

import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.fork import Forkable, leave_to_parent
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ledger_file import MEMORY, absolute

_BUSY_S = 0.1  # how long to try: another kernel may just be removing its lock


@dataclass(slots=True)
class RunLock:
    """A lock that this kernel holds, and the execution that sends the run."""

    key: str  # see `run_key`
    path: Path | None = None  # path of the locked file, if there is one
    file: Any = None  # its `filelock.FileLock`
    execution: Any = None  # the `Execution` that sends the run

    def release(self) -> None:
        """Release the lock; releasing it again is harmless."""
        with _held.guard:
            if _held.locks.get(self.key) is self:
                del _held.locks[self.key]
            file, self.file = self.file, None
        if file is None or self.path is None:
            return
        # The files are removed while the lock is held: later they could be those of the
        # next holder. Windows refuses to remove a locked file; then filelock does it.
        for path in (_holder_file(self.path), self.path):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            file.release()


class _Held(Forkable):
    """The locks that this process holds."""

    def __init__(self) -> None:
        self.guard = Lock()
        self.locks: dict[str, RunLock] = {}
        self.watch_forks()

    def after_in_child(self) -> None:
        """Leave the files to the parent, which holds their locks."""
        for lock in self.locks.values():
            leave_to_parent(lock.file)  # filelock has closed it in the child
            lock.file = None
        self.guard, self.locks = Lock(), {}


_held = _Held()


def held_here(ledger: Ledger, run_id: str) -> RunLock | None:
    """Return the lock on a run if this kernel holds it, else None."""
    return _held.locks.get(run_key(ledger, run_id))


_NOT_SENT = (
    "Nothing was sent from here, so no request is paid for twice. replies_df() shows "
    "the replies so far; when the other kernel has ended or stopped the run, run() "
    "sends what is missing."
)


def lock_run(
    ledger: Ledger, run_id: str, *, is_named: bool = True, advice: str = _NOT_SENT
) -> RunLock:
    """Lock a run; raise ParameterError if it is in progress elsewhere.

    A run without a name is locked in this kernel only, because no other kernel knows
    it. `advice` ends the message of the error.
    """
    lock = RunLock(run_key(ledger, run_id))
    with _held.guard:
        # another thread has it; releasing ours would free it
        if lock.key in _held.locks:
            raise _in_progress(run_id, _this_process(), advice)
        _held.locks[lock.key] = lock
    try:
        if is_named and ledger.path != MEMORY:
            lock.path = _lock_path(ledger, run_id)
            lock.file = _lock_file(lock.path, run_id, advice)
    except BaseException:
        lock.release()
        raise
    return lock


def run_key(ledger: Ledger, run_id: str) -> str:
    """Return what identifies a run in this process: its ledger and its id."""
    is_shared = ledger.path != MEMORY
    return str(_lock_path(ledger, run_id)) if is_shared else f"{id(ledger)} {run_id}"


def _lock_path(ledger: Ledger, run_id: str) -> Path:
    mark = blake2b(run_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    file = absolute(ledger.path)
    return file.with_name(f"{file.name}-run-{mark}.lock")


def _holder_file(path: Path) -> Path:
    """Return the file that names the holder: on Windows a locked file is unreadable."""
    return path.with_suffix(".holder")


def _lock_file(path: Path, run_id: str, advice: str) -> object | None:
    """Lock a file, and write the holder next to it; None if files cannot be locked."""
    import filelock  # noqa: PLC0415 - only a named run needs it

    # No fallback to a file that only exists: it would outlive a killed kernel. The lock
    # is not bound to a thread, because a run may end on another thread than it began.
    lock = filelock.FileLock(
        path, mode=0o600, thread_local=False, fallback_to_soft=False
    )
    try:
        lock.acquire(timeout=_BUSY_S, poll_interval=_BUSY_S / 10)
    except filelock.Timeout:
        raise _in_progress(run_id, _read_holder(_holder_file(path)), advice) from None
    except OSError:  # no locks here, or the folder cannot be written
        return None
    with suppress(OSError):  # the lock also works without the holder's name
        holder = _holder_file(path)
        holder.touch(mode=0o600)
        holder.write_text(json.dumps(_this_process()), encoding="utf-8")
    return lock


def _this_process() -> dict[str, object]:
    since = f"{datetime.now().astimezone():%Y-%m-%d %H:%M}"
    return {"pid": os.getpid(), "host": platform.node(), "since": since}


def _read_holder(holder: Path) -> dict[str, object]:
    try:
        values = json.loads(holder.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _in_progress(run_id: str, holder: dict[str, object], advice: str) -> ParameterError:
    who = "another kernel"
    if "pid" in holder:
        is_here = holder.get("host") == platform.node()
        where = "on this machine" if is_here else f"on {holder.get('host')}"
        who += f" (process {holder['pid']} {where}, since {holder.get('since')})"
    return ParameterError(
        f"The run {run_id!r} is in progress in {who}. {advice}", param="name"
    )

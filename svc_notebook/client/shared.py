"""What is shared by all clients of this process: the gates of each key and address.

The service counts requests by key (doc: Rate limits per model), so two clients with
one key must share one count, and so must two kernels (see `quota`). Rules: keyed by a
one-way mark, never by the key; a forked child starts anew, since the parent's locks
may be held.
"""

import os
import time
from collections.abc import Callable
from threading import Lock

from svc_notebook.credentials import Key
from svc_notebook.settings import default_ledger

from .gates import Gates
from .limits import Clock
from .quota import SharedQuota


class _Shared:
    """The gates of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.gates: dict[tuple[str, str, Clock], Gates] = {}


_shared = _Shared()
_renew: Callable[[], None] = _shared.__init__  # type: ignore[misc]  # a fresh start
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew)


def shared_gates(base_url: str, key: Key, *, clock: Clock) -> Gates:
    """Return the gates for a key at an address, the same for all who ask.

    Args:
        base_url: The service's base address.
        key: Whose requests are counted.
        clock: Seconds that only grow; another clock has other gates.
    """
    place = (base_url, key.digest(base_url), clock)
    path = default_ledger(os.environ).with_name("limits.sqlite")

    def others_of(model: str) -> SharedQuota | None:
        # Only this clock shows the same time in every kernel.
        if clock is not time.monotonic:
            return None
        return SharedQuota(path, f"{place[:2]}\n{model}", clock=clock)

    with _shared.lock:
        return _shared.gates.setdefault(place, Gates(clock=clock, others_of=others_of))

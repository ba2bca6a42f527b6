"""What a client takes where it is given nothing: the kernel's session, if there is one.

A client made without an address asks where the notebook asks, and without sinks it
tells the notebook's ledger, so that no exchange goes unrecorded. Rules: asked at the
time of use, never at import; the session says what it is, since it lies above.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from svc_notebook.credentials import Key
from svc_notebook.exchange import Sink
from svc_notebook.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambient:
    """Where defaults come from.

    Attributes:
        settings: Where to, and how long things may take.
        key: The key of that address; None to find it in the environment.
        sinks: Who is told about each exchange.
    """

    settings: Callable[[], Settings] = Settings.from_env
    key: Callable[[], Key | None] = lambda: None
    sinks: Callable[[], Sequence[Sink]] = tuple


_provided: list[Ambient] = []


def provide(ambient: Ambient) -> None:
    """Say where clients find what they are not given."""
    _provided[:] = [ambient]


def ambient() -> Ambient:
    """Return where clients find what they are not given."""
    return _provided[0] if _provided else Ambient()

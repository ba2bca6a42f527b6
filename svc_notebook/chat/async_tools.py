"""Where async tools run: a loop of their own that lives as long as the process.

What it is not: the loop that sends requests; a tool that blocks its loop must hold up
no request. Rules: one loop, begun at the first call and again after a fork, so that
what a tool keeps between calls, such as a session, stays usable.
"""

import atexit
from collections.abc import Coroutine
from threading import Lock
from typing import Any

from svc_notebook.client.portal import Portal


class _ToolLoop:
    """The loop of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.portal: Portal | None = None


_loop = _ToolLoop()


def submit(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - a tool's
    """Run a coroutine and wait for its result; on a thread that may wait."""
    with _loop.lock:
        if _loop.portal is None or not _loop.portal.is_open:
            _loop.portal = Portal()
        portal = _loop.portal
    return portal.run(work)


def _close() -> None:
    if _loop.portal is not None:
        _loop.portal.close()


atexit.register(_close)

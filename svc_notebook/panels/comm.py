"""The way to the browser: one widget's messages and its picture, from any thread.

What it is not: it decides nothing about what is said. Rules: one message after the
other, so that what is drawn and what is added to it stay in step; a widget that is
closed is told nothing.

Front ends send a widget's messages to a thread of their own, so that it is heard while
a cell runs. Newer kernels send them instead to wherever the kernel last published from,
which after any change by a cell is the cell's own thread. So the front end's choice is
put back in force where the kernel has that rule, and everything is published as a part
of the newest message that was heard.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import RLock
from typing import Any

from ipywidgets import Widget

_REROUTING = "_reply_subshell_for"  # ipykernel 7.4


class Outlet:
    """The way from a widget to its views.

    Args:
        widget: Has the comm; None for nowhere yet.
    """

    def __init__(self, widget: Widget | None = None) -> None:
        self.lock = RLock()
        self._widget = widget
        self._heard: Context | None = None
        self._n_said = self._n_put = 0
        self._is_rerouted = _keep_route(getattr(widget, "comm", None))

    def hear(self) -> bool:
        """Note the message that is being answered; say if cells do not block it."""
        context = copy_context()
        with self.lock:
            self._heard = context
        return bool(_parent_header().get("subshell_id"))

    @property
    def is_lost(self) -> bool:
        """Whether publishing now may lead the browser's messages astray."""
        return self._is_rerouted and self._heard is None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._publish(lambda widget, seq: widget.send({**message, "seq": seq}))

    def put(self, view: dict[str, Any], *, also: tuple[str, ...] = ()) -> None:
        """Put another picture in place of the one before.

        Args:
            view: The picture.
            also: Names of other traits that are sent before it.
        """
        self._n_put += 1
        numbered = {**view, "nth": self._n_put}

        def show(widget: Widget, seq: int) -> None:
            if also:
                widget.send_state(also)
            widget.set_trait("view", {**numbered, "seq": seq})

        self._publish(show)

    def _publish(self, act: Callable[[Widget, int], object]) -> None:
        """Publish with a number: messages and pictures reach the page by two ways."""
        widget = self._widget
        with self.lock:
            if widget is None or widget.comm is None:
                return
            self._n_said += 1
            if self._heard is None:
                act(widget, self._n_said)
            else:
                self._heard.copy().run(act, widget, self._n_said)


def _keep_route(comm: Any) -> bool:  # noqa: ANN401 - of whatever kernel
    """Let messages go where the front end sends them; say if that could not be done."""
    if not hasattr(comm, _REROUTING):
        return False
    try:
        setattr(comm, _REROUTING, lambda _, chosen: chosen)
    except AttributeError:
        return True
    return False


def _parent_header() -> dict[str, Any]:
    from IPython import get_ipython  # noqa: PLC0415 - only where there is a kernel

    kernel = getattr(get_ipython(), "kernel", None)
    parent = kernel.get_parent() if kernel is not None else {}
    header: dict[str, Any] = (parent or {}).get("header", {})
    return header

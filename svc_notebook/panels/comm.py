"""A panel's comm: the messages it hears and sends while a cell runs.

JupyterLab sends widget messages to a subshell, so a panel reacts while a cell runs.
ipykernel 7.4 sends them to the thread that last published instead, often the cell's.
`Comm` undoes that and publishes everything as a part of the newest message it heard.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import RLock
from typing import Any

from ipywidgets import Widget

from svc_notebook.display.cell_output import parent_message

_REROUTING = "_reply_subshell_for"  # ipykernel 7.4


class Comm:
    """Sends a widget's messages and views, in order, from any thread."""

    def __init__(self, widget: Widget | None = None) -> None:
        self.lock = RLock()
        self._widget = widget
        self._heard: Context | None = None
        self.n_sent = self._n_views = 0
        self._is_rerouted = _keep_route(getattr(widget, "comm", None))

    def hear(self) -> bool:
        """Note the message that is being handled; return whether it has a subshell."""
        context = copy_context()
        with self.lock:
            self._heard = context
        return bool(_parent_header().get("subshell_id"))

    @property
    def is_lost(self) -> bool:
        """Whether publishing now may send the browser's messages to a busy thread."""
        return self._is_rerouted and self._heard is None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._publish(lambda widget, seq: widget.send({**message, "seq": seq}))

    def put(self, view: dict[str, Any]) -> None:
        """Send a view, or what of it has changed."""
        self._n_views += 1
        numbered = {**view, "nth": self._n_views}
        self._publish(
            lambda widget, seq: widget.set_trait("view", {**numbered, "seq": seq})
        )

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the newest view and message."""
        return {"nth": self._n_views, "seq": self.n_sent}

    def _publish(self, act: Callable[[Widget, int], object]) -> None:
        """Publish with a number, since messages and views may arrive out of order."""
        widget = self._widget
        with self.lock:
            if widget is None or widget.comm is None:
                return
            self.n_sent += 1
            if self._heard is None:
                act(widget, self.n_sent)
            else:
                self._heard.copy().run(act, widget, self.n_sent)


def _keep_route(comm: Any) -> bool:  # noqa: ANN401 - of whatever kernel
    """Keep the front end's choice of a subshell; return whether that failed."""
    if not hasattr(comm, _REROUTING):
        return False
    try:
        setattr(comm, _REROUTING, lambda _, chosen: chosen)
    except AttributeError:
        return True
    return False


def _parent_header() -> Any:  # noqa: ANN401 - JSON
    from IPython import get_ipython  # noqa: PLC0415 - only where there is a kernel

    return parent_message(getattr(get_ipython(), "kernel", None)).get("header", {})

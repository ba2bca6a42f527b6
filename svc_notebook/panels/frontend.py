"""A panel's connection to the browser: its messages, and its static transcript.

JupyterLab sends widget messages to a subshell, so a panel reacts while a cell runs.
ipykernel 7.4 sends them to the thread that last published instead, often the cell's.
`Comm` undoes that and publishes everything as a part of the newest message it heard.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import RLock
from typing import Any
from uuid import uuid4

from ipywidgets import Layout, VBox, Widget

from svc_notebook.display.output import Output, parent_message

VIEW = "application/vnd.jupyter.widget-view+json"
_REROUTING = "_reply_subshell_for"  # ipykernel 7.4


class Comm:
    """Sends a widget's messages and views, in order, from any thread."""

    def __init__(self, widget: Widget | None = None) -> None:
        self.lock = RLock()
        self._widget = widget
        self._heard: Context | None = None
        self._n_sent = self._n_views = 0
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

    def put(self, view: dict[str, Any], *, also: tuple[str, ...] = ()) -> None:
        """Replace the view; `also` names traits to send before it."""
        self._n_views += 1
        numbered = {**view, "nth": self._n_views}

        def show(widget: Widget, seq: int) -> None:
            if also:
                widget.send_state(also)
            widget.set_trait("view", {**numbered, "seq": seq})

        self._publish(show)

    def _publish(self, act: Callable[[Widget, int], object]) -> None:
        """Publish with a number, since messages and views may arrive out of order."""
        widget = self._widget
        with self.lock:
            if widget is None or widget.comm is None:
                return
            self._n_sent += 1
            if self._heard is None:
                act(widget, self._n_sent)
            else:
                self._heard.copy().run(act, widget, self._n_sent)


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


class StaticView:
    """The static transcript below a panel, which remains without a kernel.

    It is an output besides the panel's own, because an update would draw the panel
    again. JupyterLab hides it: its bundle has an empty widget too, which is preferred.
    Where a panel cannot work (nbclient, a terminal), only the transcript is shown.
    """

    def __init__(self, output: Output | None = None) -> None:
        self._output = output or Output()
        self._name = f"svc-panel-{uuid4().hex[:12]}"
        self._hidden: VBox | None = None
        self._shown: dict[str, str] = {}
        self._is_frozen = False

    @property
    def is_shown(self) -> bool:
        """Whether there is an output that can be updated."""
        return self._hidden is not None or self._is_frozen

    def show(self, widget: dict[str, Any], transcript: dict[str, str]) -> None:
        """Show the widget, and the transcript below it."""
        if self._hidden is None:
            self._hidden = VBox(layout=Layout(display="none"))
        self._output.publish(widget, self._name)
        self._output.publish(self._bundle(transcript), f"{self._name}-static")
        self._shown = transcript

    def show_transcript(self, transcript: dict[str, str]) -> None:
        """Show only the transcript, once."""
        self._output.publish(transcript, None)

    def update(self, transcript: dict[str, str]) -> None:
        """Replace the transcript wherever the panel is shown."""
        if not self.is_shown or transcript == self._shown:
            return
        self._shown = transcript
        if self._is_frozen:
            self._output.update(transcript, self._name)
        else:
            self._output.update(self._bundle(transcript), f"{self._name}-static")

    def freeze(self, transcript: dict[str, str]) -> None:
        """Replace the widget by the transcript."""
        if self._is_frozen:
            return
        if self._hidden is None:
            self.show_transcript(transcript)
            return
        self._is_frozen, self._shown = True, transcript
        self._output.update(transcript, self._name)
        self._output.update({"text/plain": ""}, f"{self._name}-static")
        self._hidden.layout.close()
        self._hidden.close()
        self._hidden = None

    def _bundle(self, transcript: dict[str, str]) -> dict[str, Any]:
        hidden = self._hidden
        return {**widget_view(hidden.model_id if hidden else None), **transcript}


def widget_view(model_id: str | None) -> dict[str, Any]:
    """Return the bundle that shows a widget."""
    return {VIEW: {"version_major": 2, "version_minor": 0, "model_id": model_id}}

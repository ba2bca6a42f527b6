"""The static transcript beside a panel: what is left of it without a kernel.

What it is not: it draws nothing (see `display.reply`). Rules: it is one output
that is updated, never the panel's own, which an update would draw anew (but for the
last, which ends it); live it is invisible, because the view of an empty widget wins;
where nobody watches, it is all that is shown, once.
"""

from typing import Any
from uuid import uuid4

from ipywidgets import Layout, VBox

from svc_notebook.display.live import Output

VIEW = "application/vnd.jupyter.widget-view+json"


class Beside:
    """The outputs of one panel.

    Args:
        output: Where they are shown.
    """

    def __init__(self, output: Output | None = None) -> None:
        self._output = output or Output()
        self._name = f"svc-panel-{uuid4().hex[:12]}"
        self._hidden: VBox | None = None
        self._shown: dict[str, str] = {}
        self._is_frozen = False

    @property
    def is_shown(self) -> bool:
        """Whether there are outputs that can be updated."""
        return self._hidden is not None or self._is_frozen

    def show(self, widget: dict[str, Any], transcript: dict[str, str]) -> None:
        """Show the widget, and the transcript beside it."""
        if self._hidden is None:
            self._hidden = VBox(layout=Layout(display="none"))
        self._output.publish(widget, self._name)
        self._output.publish(self._bundle(transcript), f"{self._name}-static")
        self._shown = transcript

    def settle(self, transcript: dict[str, str]) -> None:
        """Show the transcript alone, once."""
        self._output.publish(transcript, None)

    def update(self, transcript: dict[str, str]) -> None:
        """Put a newer transcript in place, wherever the panel is shown."""
        if not self.is_shown or transcript == self._shown:
            return
        self._shown = transcript
        if self._is_frozen:
            self._output.update(transcript, self._name)
        else:
            self._output.update(self._bundle(transcript), f"{self._name}-static")

    def freeze(self, transcript: dict[str, str]) -> None:
        """Put the transcript in the place of the widget."""
        if self._is_frozen:
            return
        if self._hidden is None:
            self.settle(transcript)
            return
        self._is_frozen, self._shown = True, transcript
        self._output.update(transcript, self._name)
        self._output.update({"text/plain": ""}, f"{self._name}-static")
        self._hidden.layout.close()
        self._hidden.close()
        self._hidden = None

    def _bundle(self, transcript: dict[str, str]) -> dict[str, Any]:
        hidden = self._hidden
        model_id = None if hidden is None else hidden.model_id
        view = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        return {VIEW: view, **transcript}

"""The static transcript of a panel: what a saved notebook shows without a kernel."""

from contextvars import Context, copy_context
from html import escape
from typing import Any, NamedTuple
from uuid import uuid4

from svc_notebook.conversations.history import History, Turn
from svc_notebook.conversations.transcript import to_transcript
from svc_notebook.display.cell_output import Output

PART_TURNS = 5  # of one output; twice as many where there are too many outputs

MAX_PARTS = 40  # JupyterLab draws 50 outputs of a cell

# Without a kernel JupyterLab writes an error in the widget's place; until then it waits
# and has not named the kind of output.
_NO_WIDGET = (
    "<style>.jp-OutputArea:has(.svc-static):not(:has(.svc-panel)) "
    '.jp-OutputArea-child:has(> :is([data-mime-type$="widget-view+json"],'
    ".lm-Panel:not([data-mime-type]))){display:none}</style>"
)

_NOTHING = {"text/html": '<div class="svc-static"></div>', "text/plain": ""}


class _Part(NamedTuple):
    """The turns of one output."""

    start: int
    turns: tuple[Turn, ...]
    front: str | None  # the system message, in the first part
    name: str  # of the conversation


def _parts(history: History) -> list[_Part]:
    turns, size = history.turns, PART_TURNS
    while len(turns) > size * MAX_PARTS:
        size *= 2
    return [
        _Part(at, turns[at : at + size], None if at else history.system, history.name)
        for at in range(0, max(1, len(turns)), size)
    ]


class StaticTranscript:
    """The static transcript next to a panel, which remains without a kernel.

    It is plain HTML, in other outputs than the panel: an update of the panel's output
    would draw the panel again. Each output has a few turns, so that a long chat costs
    little. `panel.css` hides them where the panel works; a host without JupyterLab's
    classes gets them folded. Where a panel cannot work (nbclient, a terminal), only the
    transcript is shown.
    """

    def __init__(self, output: Output | None = None) -> None:
        self._output = output or Output()
        self.name = f"svc-panel-{uuid4().hex[:12]}"
        self._cell: Context | None = None  # of the cell that shows the panel
        self._shown: list[_Part] = []
        self._n_outputs = 0
        self._is_frozen = self._is_folded = self._is_alone = False

    def show(self, history: History, widget: dict[str, Any] | None = None) -> None:
        """Show the widget in this cell, unless it is there, and the transcript."""
        self._cell, self._shown, self._n_outputs = copy_context(), [], 0
        self._is_alone = widget is not None
        if widget is not None:
            self._output.publish(widget, self.name)
        self.update(history)

    def show_alone(self, history: History, *, is_terminal: bool = False) -> None:
        """Show only the transcript, once; in a terminal with how to continue."""
        transcript = to_transcript(history)
        if is_terminal:
            text = transcript["text/plain"].rstrip()
            note = (
                "(a panel needs JupyterLab or Notebook; here, continue with `%%svc -c "
                f"{history.name}` or svc.conversation({history.name!r}).ask(...))"
            )
            transcript = {"text/plain": f"{text}\n\n{note}"}
        self._output.publish(transcript, None)

    def fold(self, history: History, *, is_folded: bool) -> None:
        """Fold the transcript, for a host that cannot hide it."""
        if is_folded != self._is_folded:
            self._is_folded, self._shown = is_folded, []
            self.update(history)

    def update(self, history: History) -> None:
        """Replace what has changed of the transcript, wherever the panel is shown."""
        if self._cell is None:
            return
        if self._is_frozen:
            self._output.update(to_transcript(history), self.name)
            return
        parts, shown = _parts(history), self._shown
        for at, part in enumerate(parts):
            if shown[at : at + 1] != [part]:
                self._put(at, self._bundle(history, part))
        for at in range(len(parts), self._n_outputs):
            self._output.update(_NOTHING, f"{self.name}-{at}")
        self._shown = parts

    def freeze(self, history: History) -> None:
        """Replace the widget by the transcript."""
        if self._is_frozen:
            return
        if self._cell is None:
            self.show_alone(history)
            return
        self._is_frozen = True
        self.update(history)
        for at in range(self._n_outputs):
            self._output.update(_NOTHING, f"{self.name}-{at}")

    def _put(self, at: int, bundle: dict[str, str]) -> None:
        name = f"{self.name}-{at}"
        if at < self._n_outputs:
            self._output.update(bundle, name)
        elif self._cell is not None:  # a new output belongs to the panel's cell
            self._n_outputs += 1
            self._cell.copy().run(self._output.publish, bundle, name)

    def _bundle(self, history: History, part: _Part) -> dict[str, str]:
        bundle = to_transcript(history, part.start, part.start + len(part.turns))
        html = bundle["text/html"]
        if self._is_folded:
            title = f"<summary>Transcript: {escape(history.name)}</summary>"
            html = f'<details class="svc-static">{title}{html}</details>'
        else:
            html = f'<div class="svc-static">{html}</div>'
        is_first = part.start == 0
        return {
            **bundle,
            "text/html": html + _NO_WIDGET * (is_first and self._is_alone),
        }

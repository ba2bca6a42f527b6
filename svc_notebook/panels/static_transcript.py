"""The static transcript of a panel: what a saved notebook shows without a kernel."""

from html import escape
from typing import Any, NamedTuple
from uuid import uuid4

from svc_notebook.conversations.history import History
from svc_notebook.conversations.transcript import (
    MessageEntry,
    to_entries,
    to_transcript,
    transcript,
)
from svc_notebook.display.escape import in_a_line
from svc_notebook.display.front_end import Output, fitted_to_terminal, is_colab
from svc_notebook.display.html_styles import quiet_html

from .static_outputs import StaticOutputs

PART_TURNS = 5  # of one output
MAX_PARTS = 40  # of the newest turns: JupyterLab draws only 50 outputs of a cell
_DROPPED_PARTS = 10  # left out at once, so that outputs need not move at every turn

# Without a kernel, JupyterLab shows an error instead of the widget; before that, a
# panel without a MIME type. Both are hidden if the transcript is shown.
NO_WIDGET = (
    "<style>.jp-OutputArea:has(.svc-static):not(:has(.svc-panel, .svc-rating)) "
    '.jp-OutputArea-child:has(> :is([data-mime-type$="widget-view+json"],'
    ".lm-Panel:not([data-mime-type]))){display:none}</style>"
)

# An exported page has no kernel. VS Code draws no widget that is out of sight when its
# cell runs; nothing else needs these words. A page that is reloaded may have a kernel,
# and its panel then takes a while to come.
_GO_ON_STYLE = (
    "<style>.svc-go-on{animation:3s step-end svc-late}"
    "@keyframes svc-late{0%{visibility:hidden}}"
    "body.jp-Notebook .svc-go-on,#notebook-container .svc-go-on{display:none}"
    "body[data-vscode-theme-kind] .svc-in-sight{display:inline}</style>"
)
# Hidden by itself: JupyterLab drops styles where a notebook is not trusted, and
# attributes without a value.
_IN_SIGHT = "<span class=svc-in-sight hidden=hidden> while it is in sight</span>"
_COLAB = (
    " In Colab, run <code>from google.colab import output; "
    "output.enable_custom_widget_manager()</code> first."
)


def go_on_html(activity: str) -> str:
    """Return the line that says how to get the panel back, above what is static.

    If the panel is drawn, the line is hidden with the rest, or removed when that is
    folded. Exported pages hide it as well.
    """
    line = f"Run this cell{_IN_SIGHT} to go on {activity}.{_COLAB * is_colab()}"
    return f"{_GO_ON_STYLE}<div class=svc-go-on>{quiet_html(line)}</div>"


_NOTHING = {"text/html": '<div class="svc-static"></div>', "text/plain": ""}


class _Part(NamedTuple):
    """What one output shows of the transcript."""

    title: str
    entries: tuple[MessageEntry, ...]
    is_first: bool


class _OutputPlaces:
    """Decides which output shows which turns.

    Outputs keep their order and cannot be removed. When the oldest parts are left out,
    the others move up into the free outputs: one part with each new turn, so that no
    change costs much.
    """

    def __init__(self) -> None:
        self._first = 0  # turns that are left out
        self._outputs: list[int] = []  # of each part, ascending
        self._n_turns = 0

    def place(self, history: History) -> dict[int, _Part]:
        """Return the part of each output that has one."""
        n_parts = self._count(len(history.turns))
        while n_parts > MAX_PARTS:
            self._first += _DROPPED_PARTS * PART_TURNS
            n_parts -= _DROPPED_PARTS
            del self._outputs[:_DROPPED_PARTS]
        del self._outputs[n_parts:]
        if len(history.turns) != self._n_turns:
            self._move_up()
        self._n_turns = len(history.turns)
        while len(self._outputs) < n_parts:
            self._outputs.append(self._outputs[-1] + 1 if self._outputs else 0)
        return {
            output: _to_part(history, self._first + at * PART_TURNS, is_first=not at)
            for at, output in enumerate(self._outputs)
        }

    def _count(self, n_turns: int) -> int:
        if n_turns <= self._first:  # cleared, or many turns were deleted
            self._first, self._outputs = 0, []
        return max(1, -(-(n_turns - self._first) // PART_TURNS))

    def _move_up(self) -> None:
        """Move up the first part that has a free output before it."""
        for at, output in enumerate(self._outputs):
            free = self._outputs[at - 1] + 1 if at else 0
            if free < output:
                self._outputs[at] = free
                return


def _to_part(history: History, start: int, *, is_first: bool) -> _Part:
    name = history.name
    title = f"{name}, from turn {start + 1}" if start else name
    entries = to_entries(history, start, start + PART_TURNS)
    return _Part(title, tuple(entries), is_first=is_first)


class StaticTranscript:
    """The static transcript next to a panel, which remains without a kernel.

    It is plain HTML, in separate outputs: updating the panel's own output would redraw
    the panel. Each output has a few turns, so that updates of a long chat cost little;
    only the newest 200 turns are shown. `panel.css` hides the transcript where the
    panel works; hosts without JupyterLab's classes get it folded. Where a panel cannot
    work (nbclient, a terminal), only the transcript is shown.
    """

    def __init__(self, output: Output | None = None) -> None:
        self.name = f"svc-panel-{uuid4().hex[:12]}"
        self.outputs = StaticOutputs(self.name, output)
        self._places = _OutputPlaces()
        self._shown: dict[int, _Part] = {}  # by output
        self._history: History | None = None  # that was written last
        self._is_frozen = self._is_folded = self._is_alone = False

    def show(self, history: History, widget: dict[str, Any] | None = None) -> None:
        """Show the widget in this cell, if one is given, and the transcript."""
        self._shown, self._places, self._history = {}, _OutputPlaces(), None
        self._is_alone = widget is not None
        self.outputs.show(widget)
        self.update(history)

    def show_alone(self, history: History, *, is_terminal: bool = False) -> None:
        """Show only the transcript, once; in a terminal, also how to continue."""
        bundle = to_transcript(history)
        if is_terminal:
            text = bundle["text/plain"].rstrip()
            name = history.name
            note = (
                "(a panel needs JupyterLab or Notebook; here, continue with `%%svc -c "
                f"{in_a_line(name)}` or svc.conversation({name!r}).ask(...))"
            )
            bundle = {"text/plain": f"{text}\n\n{fitted_to_terminal(note)}"}
        self.outputs.show_alone(bundle)

    def fold(self, history: History, *, is_folded: bool) -> None:
        """Fold the transcript, for a host that cannot hide it."""
        if is_folded != self._is_folded:
            self._is_folded, self._shown, self._history = is_folded, {}, None
            self.update(history)

    def update(self, history: History) -> None:
        """Replace the changed parts of the transcript, wherever the panel is shown."""
        if not self.outputs.is_shown:
            return
        if self._is_frozen:
            self.outputs.replace_widget(to_transcript(history))
            return
        if history == self._history:
            return
        self._history = history
        new_parts = self._places.place(history)
        for at in range(max(len(self.outputs), *new_parts, 0) + 1):
            part = new_parts.get(at)
            if part == self._shown.get(at):
                continue
            if part is None:
                self.outputs.write(at, _NOTHING)
                del self._shown[at]
            else:
                self.outputs.write(at, self._bundle(history.name, part))
                self._shown[at] = part

    def freeze(self, history: History) -> None:
        """Replace the widget by the transcript."""
        if self._is_frozen:
            return
        if not self.outputs.is_shown:
            self.show_alone(history)
            return
        self._is_frozen = True
        self.update(history)
        for at in range(len(self.outputs)):
            self.outputs.write(at, _NOTHING)

    def _bundle(self, name: str, part: _Part) -> dict[str, str]:
        has_title = (
            part.is_first or self._is_folded
        )  # else it goes on with the last one
        bundle = transcript(part.title if has_title else "", part.entries)
        plain = bundle["text/plain"].lstrip("\n")
        # A saved page may not have heard of turns: a reload shows it for a moment.
        html = bundle["text/html"] if part.entries else ""
        if self._is_folded:
            title = f"<summary>Transcript: {escape(name)}</summary>"
            # by its name, the panel finds the title: see `skipTranscript` in panel.js
            html = f'<details class="svc-static {self.name}">{title}{html}</details>'
        else:
            is_above = self._is_alone and part.is_first
            note = go_on_html("chatting") if is_above else ""
            html = f'<div class="svc-static">{note}{html}</div>'
        html += NO_WIDGET * self._is_alone
        return {"text/html": html, "text/plain": plain}

"""Runs one panel: what its buttons and fields change, and where it is shown.

`send_and_stop.py` has what concerns replies, `actions.py` what is allowed when.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.transcript import to_transcript
from svc_notebook.display.cell_output import Screen, find_screen
from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import check_text
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .attach_menu import current_shell, offers, to_size
from .comm import Comm
from .compare_mode import NO_TOOLS
from .messages import BrowserMessage
from .send_and_stop import BUSY, PanelReplies
from .settings_form import PanelSettings
from .state import PanelContext, Phase
from .view import PanelView


class Controller:
    """Runs one panel."""

    def __init__(self, context: PanelContext, view: PanelView) -> None:
        self.context, self.view = context, view
        self._opened_with = context.state.settings
        self._check(context.state.settings)
        self.replies = PanelReplies(context, view)
        self._unlisten: Callable[[], None] = lambda: None

    # Opening and closing

    def open(self, comm: Comm) -> None:
        """Start to send to the browser."""
        self.context.comm = comm
        self._unlisten = self.context.conversation.on_change(self._on_change)

    def reopen(self, settings: PanelSettings, toolbox: Toolbox, permit: Permit) -> None:
        """Go on with other tools, and with the settings that differ from before."""
        context = self.context
        now = context.state.settings.reopened(self._opened_with, settings)
        context.use_tools(toolbox, permit)
        self._opened_with = settings
        self.replies.use_permit()
        if context.state.comparing.by and context.tool_definitions:
            comparing = replace(context.state.comparing, by="")
            context.change(comparing=comparing, notice=NO_TOOLS)
        self._check(settings)
        context.change(settings=now)
        self.view.show()

    def display(self, widget: dict[str, Any] | None) -> None:
        """Show the widget, unless it is closed, and the transcript."""
        history = self.context.conversation.history
        screen = find_screen(self.context.session.settings.display)
        if widget and screen is Screen.NOTEBOOK:
            self.context.static_transcript.show(history, widget)
            return
        transcript = to_transcript(history)
        if screen is Screen.TERMINAL:
            text = transcript["text/plain"].rstrip()
            note = (
                "(a panel needs JupyterLab or Notebook; here, continue with `%%svc -c "
                f"{history.name}` or svc.conversation({history.name!r}).ask(...))"
            )
            transcript = {"text/plain": f"{text}\n\n{note}"}
        self.context.static_transcript.show_transcript(transcript)

    def show_static(self) -> None:
        """Show the transcript in this cell, which shows the panel inside a widget."""
        self.context.static_transcript.show(self.context.conversation.history)

    def freeze(self) -> None:
        """Replace the widget by the static transcript."""
        self.context.static_transcript.freeze(self.context.conversation.history)

    def close(self) -> None:
        """Stop the reply that is being written, and stop listening."""
        self._unlisten()
        self.replies.stop()

    def _on_change(self) -> None:
        """Show a change of the conversation; `PanelReplies` shows its own."""
        if not self.replies.is_recording:
            self.view.show()

    # What the browser asks for

    def greet(self, message: BrowserMessage) -> None:
        """Answer a page that has opened the panel, or may have missed something."""
        comm = self.context.comm
        with comm.lock:
            is_current = message.number == comm.n_sent
            comm.send({"t": "ack", "subshell": message.is_subshelled})
            if not is_current:
                self.view.show(is_whole=True)
        history = self.context.conversation.history
        self.context.static_transcript.fold(history, is_folded=not message.is_on)

    def dismiss(self) -> None:
        """Remove the notice."""
        self.context.change(notice="", is_problem=False)

    def set_value(self, message: BrowserMessage) -> None:
        """Change a setting, or the system message."""
        self.dismiss()
        if message.name == "system":
            text = message.value if isinstance(message.value, str) else ""
            system = check_text(text, param="system") if text.strip() else None
            self.context.conversation.system = system
        else:
            settings = self.context.state.settings.setting(
                message.name, message.value, most_tokens=self.context.budget_tokens
            )
            self._check(settings)
            self.context.change(settings=settings)
        self.view.show()

    def set_send_key(self, message: BrowserMessage) -> None:
        """Let Enter send, or Shift+Enter."""
        self.context.change(send_on_enter=message.is_on)
        self.view.show()

    def compare(self, message: BrowserMessage) -> None:
        """Change what is compared, or refuse it."""
        self.dismiss()
        context = self.context
        comparing = context.state.comparing.changed(
            message.name,
            message.value,
            is_blind=message.is_on,
            models=(context.model, *context.models()),
        )
        comparing.refuse(
            context.state.settings, has_tools=bool(context.tool_definitions)
        )
        context.change(comparing=comparing)
        self.view.show()

    def edit(self, change: Callable[[Conversation], object]) -> None:
        """Change the conversation."""
        self.dismiss()
        before = self.context.conversation.history
        change(self.context.conversation)
        if self.context.conversation.history == before:  # else `_on_change` showed it
            self.view.show()

    def list_names(self, message: BrowserMessage) -> None:
        """Send the names that can be attached."""
        hide = self.context.session.key_hider()
        self.context.comm.send(offers(message.text, current_shell(), hide))

    def measure(self, message: BrowserMessage) -> None:
        """Send the size of the value of a name."""
        hide = self.context.session.key_hider()
        self.context.comm.send(to_size(message.name, current_shell(), hide))

    def switch(self, conversation: Conversation, *, notice: str = "") -> None:
        """Show another conversation; the settings stay."""
        context = self.context
        with context.lock:
            if context.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError(BUSY, param="panel")
            self._unlisten()
            context.conversation = conversation
            self._unlisten = conversation.on_change(self._on_change)
            context.change(notice=notice, is_problem=False)
        self.view.show(is_whole=True)

    def _check(self, settings: PanelSettings) -> None:
        """Refuse settings that this panel cannot send."""
        has_tools = bool(self.context.tool_definitions)
        if has_tools and settings.params.get("n", 1) != 1:
            raise ParameterError(
                "n must be 1 in a panel with tools, since tools can be run for one "
                "choice only. For several choices, open a panel without tools.",
                param="n",
            )
        self.context.state.comparing.refuse(settings, has_tools=has_tools)

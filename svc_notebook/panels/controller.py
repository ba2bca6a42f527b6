"""Runs one panel: sends its prompts, stops its replies, changes what fields set.

`actions.py` says what is allowed when.
"""

from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import replace
from threading import Thread, get_ident
from typing import Any
from uuid import uuid4

from svc_notebook.conversations.attachments import Item, add_items
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.transcript import to_transcript
from svc_notebook.conversations.turn_request import NextTurn
from svc_notebook.display.cell_output import Screen, find_screen
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import check_text
from svc_notebook.tools.consent import Decision, Proposal, Remembered
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .attach_menu import current_shell, offers, read_items, to_size
from .comm import BrowserMessage, Comm
from .compare_mode import NO_TOOLS, SideBySide, to_group
from .live_reply import LiveReply, LiveView, ReplyEnd, ReplyWorker
from .settings_form import PanelSettings
from .turn_view import COMPARED, draw_item
from .view import PanelContext, PanelView, Phase

BUSY = "A reply is being written; stop it, or wait until it ends."
_CLEARED = (
    "The conversation was cleared meanwhile, or that was undone, so the reply was not "
    "added to it. The ledger has it."
)


class PanelReplies:
    """Asks for the replies of a panel, one at a time, and records them."""

    def __init__(self, context: PanelContext, view: PanelView) -> None:
        self._context, self._view = context, view
        self._worker: ReplyWorker | SideBySide | None = None
        self._recording: int | None = None  # the thread that records a reply
        self.use_permit()

    def use_permit(self) -> None:
        """Decide on tool calls by the panel's permit; the browser asks the user."""
        shared = self._context.session.consent
        remembered = Remembered(self._ask_consent, shared_with=shared)
        self._consent = self._context.permit.consent(remembered)

    @property
    def is_recording(self) -> bool:
        """Whether this thread is recording a reply just now."""
        return self._recording == get_ident()

    def ask(
        self,
        text: str | None,
        *,
        turn: str | None = None,
        attached: Sequence[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Ask a new turn, or a turn again; None is the turn's own prompt.

        `attached` are names of the notebook, whose values are read now; `kept` are
        those that stay as the turn has them.
        """
        live = LiveReply(turn=turn or "new", prompt=text)
        message: dict[str, Any] = {"turn": turn}
        if text is not None:
            items = self._items(text, turn, attached, kept)
            live = replace(live, attached=tuple(map(draw_item, items)))
            if items:
                text, message["attached"] = add_items(text, items)
        if self._context.state.comparing.by:
            self._ask_compared(text, live, message)
            return
        message |= self._request_settings(self._context.state.settings)
        step = self._context.conversation.next_turn(text, **message)
        live = replace(live, model=step.request.model)
        self._begin(self._make_worker(step, live, self), step)

    def _items(
        self,
        typed: str,
        turn: str | None,
        attached: Sequence[str],
        kept: Collection[str],
    ) -> list[Item]:
        if not (typed.strip() and (attached or kept)):
            return []
        context = self._context
        history = context.conversation.history
        before = history.turn(turn).version.items if turn else ()
        return read_items(
            typed,
            [item for item in before if item.name in kept],
            attached,
            current_shell(),
            context.session.key_hider(),
            budget_tokens=context.budget_tokens,
        )

    def _ask_compared(
        self, text: str | None, live: LiveReply, message: dict[str, Any]
    ) -> None:
        context, place = self._context, uuid4().hex[:12]
        group, settings = to_group(context.state.comparing, context.state.settings)
        steps = [
            context.conversation.next_turn(
                text, place=place, **message, **self._request_settings(of_column)
            )
            for of_column in settings
        ]
        replies = SideBySide(
            group=group,
            steps=steps,
            live=replace(live, model=COMPARED),
            view=self,
            make_worker=self._make_worker,
        )
        self._begin(replies, steps[0])

    def go_on(self, turn_id: str) -> None:
        """Continue a turn's reply; the model that wrote a compared one goes on."""
        turn = self._context.conversation.history.turn(turn_id)
        settings = self._request_settings(self._context.state.settings)
        if turn.comparison:
            settings["model"] = turn.version.model
        step = self._context.conversation.next_part(turn_id, **settings)
        live = LiveReply(turn=turn_id, model=step.request.model)
        self._begin(self._make_worker(step, live, self, turn.version.text), step)

    def stop(self) -> None:
        """Stop the reply that is being written."""
        if worker := self._worker:
            worker.stop()

    def decide(self, message: BrowserMessage) -> None:
        """Take the user's decision about a tool call."""
        if isinstance(self._worker, ReplyWorker):
            self._worker.decide(message)

    def _ask_consent(self, proposal: Proposal) -> Decision:
        worker = self._worker
        if isinstance(worker, ReplyWorker):
            return worker.ask(proposal)
        return Decision(verdict="deny")

    def _request_settings(self, settings: PanelSettings) -> dict[str, Any]:
        return {
            "model": settings.model,
            "params": {**settings.params, **self._context.tool_params},
            "max_tokens": settings.max_tokens,
            "origin_kind": "panel",
        }

    def _make_worker(
        self, step: NextTurn, live: LiveReply, view: LiveView, so_far: str = ""
    ) -> ReplyWorker:
        return ReplyWorker(
            step=step,
            live=live,
            session=self._context.session,
            view=view,
            so_far=so_far,
            toolbox=self._context.toolbox,
            consent=self._consent,
            rounds=self._context.permit.rounds,
        )

    def _begin(self, worker: ReplyWorker | SideBySide, step: NextTurn) -> None:
        """Ask for a reply, or for some side by side, on a new thread."""
        context = self._context
        with context.lock:
            if context.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError(BUSY, param="panel")
            self._worker = worker
            note = step.fitted.note.capitalize()
            context.change(
                phase=Phase.BUSY, live=worker.live, notice=note, is_problem=False
            )
        self._view.show()
        # In the handler's context, so that what it publishes belongs to this message.
        thread = Thread(
            target=copy_context().run,
            args=(self._work, worker, step),
            name="svc_notebook panel",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as problem:  # too many threads, or Python is ending
            self._finish(step, ReplyEnd(status="failed", problem=str(problem)))

    def _work(self, worker: ReplyWorker | SideBySide, step: NextTurn) -> None:
        end = worker.run()
        try:
            self._finish(step, end)
        except Exception as problem:  # noqa: BLE001 - shown in the panel
            self._view.show_failure(problem)

    def _finish(self, step: NextTurn, end: ReplyEnd) -> None:
        # Without the comm's lock: recording calls other panels, which have their own.
        context = self._context
        context.change(live=None, question=None)
        self._recording = get_ident()
        try:
            if end.completion is not None:
                context.conversation.record(
                    step, *end.completions, comparison=end.comparison
                )
                turn_id = step.origin.turn_id or ""
                if context.conversation.history.find(turn_id) is None:
                    end = replace(end, problem=_CLEARED)
        finally:
            self._recording = None
            self._worker = None
            context.change(phase=Phase.IDLE)
            if end.problem or context.state.is_problem:  # replaces a refusal meanwhile
                is_problem = end.status == "failed"
                context.change(notice=end.problem, is_problem=is_problem)
            with context.comm.lock:
                context.comm.send({"t": "ended", "text": end.text})
                self._view.show()

    # What a worker shows

    def show_live(self, live: LiveReply, *messages: dict[str, Any]) -> None:
        """Change the live reply and send messages, in one step."""
        with self._context.comm.lock:
            phase = Phase.WAITING if live.status else Phase.BUSY
            self._context.change(live=live, phase=phase)
            for message in messages:
                self._context.comm.send(message)

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Show a question to the user, or remove it."""
        phase = Phase.ASKING if question else Phase.BUSY
        self._context.change(question=question, phase=phase)
        self._view.show()


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

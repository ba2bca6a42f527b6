"""The actions of a chat panel: which the browser can ask for, when, and what they do.

To add a button, add a row to `ACTIONS` here and a row with its label, icon and key in
`static/buttons.js`; describe its message in `static/chat/protocol.js`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import Thread, get_ident
from typing import Any
from uuid import uuid4

from svc_notebook.conversations.attachments import (
    Hide,
    PromptItem,
    add_items,
    read_item,
    read_items,
    split_items,
)
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.history import History, Turn
from svc_notebook.conversations.history_changes import change_words
from svc_notebook.conversations.long_prompt import whole_label
from svc_notebook.conversations.turn_request import NextTurn
from svc_notebook.conversations.watched_turn import TurnWatcher
from svc_notebook.display.front_end import Screen, find_screen
from svc_notebook.errors import ConfigError, ParameterError, SvcError
from svc_notebook.service.params import check_text
from svc_notebook.template import as_variable
from svc_notebook.tools.consent import ConsentDecision, Proposal, Remembered
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from . import conversations_dialog
from .attach_menu import Shell, current_shell, offers, to_size
from .browser_messages import BrowserMessage, Comm, read_message
from .compared_replies import COMPARED, NO_TOOLS, SideBySide, to_group
from .live_reply import (
    ANSWERED,
    LiveReply,
    LiveView,
    ReplyEnd,
    ReplyWorker,
    WatchedReply,
)
from .reply_table import make_frame
from .settings_form import NAMES, PanelSettings
from .view import PanelContext, PanelView, Phase, draw_item

BUSY = "A reply is being written; stop it, or wait until it ends."
GONE = "This turn no longer exists."
_HAS_KEY = (
    "This text, setting or name contains the API key. Nothing was sent or kept. Remove "
    "the key and try again."
)
_CLEARED = (
    "The conversation was cleared meanwhile, or a clearing was undone, so the reply "
    "was not added to it. The ledger has the reply."
)


_CHANGED = (
    "Asked again with the attached values as they were sent. Changed since: {names}. "
    "To send what they are now, edit the prompt."
)


def _read_now(item: PromptItem, shell: Shell | None, hide: Hide) -> PromptItem:
    """Return an attachment with its variable's value now; else as it was sent.

    A cell and the last error stay: their names may belong to others now.
    """
    names = shell.user_ns if shell else {}
    if item.name != "Err" and as_variable(item.name) in names:
        with suppress(SvcError):
            return read_item(item.name, names, hide)
    return item


class PanelReplies:
    """Asks for the replies of a panel, one at a time, and records them."""

    def __init__(self, context: PanelContext, view: PanelView) -> None:
        self._context, self._view = context, view
        self._worker: ReplyWorker | SideBySide | WatchedReply | None = None
        self._recording: int | None = None  # the thread that records a reply
        self._asking = ExitStack()  # shows the reply in other panels
        self.use_permit()

    def use_permit(self) -> None:
        """Use the panel's permit for tool calls; the browser asks the user."""
        shared = self._context.session.consent
        remembered = Remembered(self._ask_consent, shared_with=shared)
        self._consent = self._context.permit.consent(remembered)

    @property
    def will_show(self) -> bool:
        """Whether a reply ends soon, and what this thread changes is shown then."""
        is_watching = isinstance(self._worker, WatchedReply)
        return is_watching or self._recording == get_ident()

    def ask(
        self,
        text: str | None,
        *,
        turn: str | None = None,
        attached: Sequence[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Ask a new turn, or ask a turn again; with its own prompt if `text` is None.

        `attached` are names in the notebook, whose values are read now; `kept` are
        names of attachments that the turn already has: a variable is read again.
        """
        self._context.refuse_sending()
        whole = whole_label(text or "")
        live = LiveReply(turn=turn or "new", prompt=text, whole=whole)
        message: dict[str, Any] = {"turn": turn}
        if text is not None:
            self._context.conversation.title(text)
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
        note = self._note_on_changes(turn) if turn and text is None else ""
        self._begin(self._make_worker(step, live, self), step, note)

    def _note_on_changes(self, turn: str) -> str:
        """Say which variables of a prompt have another value now; "" if none."""
        shell, hide = current_shell(), self._context.session.key_hider()
        items = self._context.conversation.history.turn(turn).version.items
        names = [item.name for item in items if _read_now(item, shell, hide) != item]
        return _CHANGED.format(names=", ".join(names)) if names else ""

    def _items(
        self,
        prompt: str,
        turn: str | None,
        attached: Sequence[str],
        kept: Collection[str],
    ) -> list[PromptItem]:
        if not (prompt.strip() and (attached or kept)):
            return []
        context, shell = self._context, current_shell()
        history = context.conversation.history
        old_items = history.turn(turn).version.items if turn else ()
        hide = context.session.key_hider()
        return read_items(
            prompt,
            [_read_now(item, shell, hide) for item in old_items if item.name in kept],
            attached,
            shell.user_ns if shell else {},
            hide,
            budget_tokens=context.budget_tokens,
        )

    def _ask_compared(
        self, text: str | None, live: LiveReply, message: dict[str, Any]
    ) -> None:
        context, turn_key = self._context, uuid4().hex[:12]
        group, settings = to_group(context.state.comparing, context.state.settings)
        steps = [
            context.conversation.next_turn(
                text, turn_key=turn_key, **message, **self._request_settings(of_column)
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
        """Continue a turn's reply; a compared one with the model that wrote it."""
        self._context.refuse_sending()
        turn = self._context.conversation.history.turn(turn_id)
        settings = self._request_settings(self._context.state.settings)
        if turn.comparison:
            settings["model"] = turn.version.model
        step = self._context.conversation.next_part(turn_id, **settings)
        live = LiveReply(turn=turn_id, model=step.request.model)
        self._begin(self._make_worker(step, live, self, turn.version.text), step)

    def watch(self, step: NextTurn) -> TurnWatcher | None:
        """Show a reply that a cell or another panel asks for, unless there is one."""
        context, origin = self._context, step.origin
        turn_id = origin.turn_id or ""
        live = LiveReply(
            turn=turn_id if step.is_again else "new",
            asker="a cell" if origin.kind == "magic" else "another panel",
            model=step.request.model,
        )
        so_far, items = "", tuple[PromptItem, ...]()
        if origin.continues:
            so_far = context.conversation.history.turn(turn_id).version.text
        else:
            prompt = step.request.messages[-1].content or ""
            if origin.attached:
                prompt, items = split_items(prompt, origin.attached)
            drawn = tuple(map(draw_item, items))
            whole = whole_label(prompt)
            live = replace(live, prompt=prompt, whole=whole, attached=drawn)
        reply = WatchedReply(
            live=live, view=self, so_far=so_far, step=step, on_close=self._end_watching
        )
        with context.lock:
            if context.state.phase is not Phase.IDLE:
                return None
            self._worker = reply
            context.change(phase=Phase.BUSY, live=live)
        self._view.show()
        return reply

    def _end_watching(self, reply: WatchedReply) -> None:
        context = self._context
        if self._worker is reply:
            context.change(live=None, phase=Phase.IDLE)
            with context.comm.lock:
                context.comm.send({"t": "ended", "text": "Reply ended"})
                self._view.show()
        if self._worker is reply:
            self._worker = None

    def forget_watched(self) -> None:
        """Show a reply no longer that is not asked for any more.

        An interrupt may come before a cell knows that the panel shows its reply.
        """
        reply = self._worker
        asked = self._context.conversation.watched.asked
        if isinstance(reply, WatchedReply) and reply.step not in asked:
            self._end_watching(reply)

    def stop(self) -> None:
        """Stop the reply that is being written."""
        if worker := self._worker:
            worker.stop()

    def close(self) -> None:
        """Stop the panel's own reply."""
        if not isinstance(self._worker, WatchedReply):
            self.stop()

    def decide(self, message: BrowserMessage) -> None:
        """Pass on the user's decision about a tool call."""
        if isinstance(self._worker, ReplyWorker):
            self._worker.decide(message)

    def _ask_consent(self, proposal: Proposal) -> ConsentDecision:
        worker = self._worker
        if isinstance(worker, ReplyWorker):
            return worker.ask(proposal)
        return ConsentDecision(verdict="deny")

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

    def _begin(
        self, worker: ReplyWorker | SideBySide, step: NextTurn, note: str = ""
    ) -> None:
        """Start a worker for one reply, or for compared ones, on a new thread."""
        context = self._context
        with context.lock:
            # another view of the panel was faster
            if context.state.phase is not Phase.IDLE:
                raise ParameterError(BUSY, param="panel")
            self._worker = worker
            notice = " ".join(filter(None, (note, step.fitted.note.capitalize())))
            context.change(phase=Phase.BUSY, live=worker.live, notice=notice)
        self._view.show()
        asking = context.conversation.watched.asking(step)
        watchers = self._asking.enter_context(asking)
        if isinstance(worker, ReplyWorker):
            worker.watchers = watchers
        # in the context of the handler, so that published messages answer this message
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
        # Without the comm's lock: recording updates other panels, which take their own
        # locks, so holding this one could end in a deadlock.
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
            self._asking.close()
            self._recording = None
            self._worker = None
            context.change(phase=Phase.IDLE)
            notice = end.problem or end.note
            if notice or context.state.is_problem:  # also removes an earlier problem
                is_problem = end.status == "failed"
                context.change(notice=notice, is_problem=is_problem)
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


class PanelController:
    """Carries out the actions of one panel, and shows the results."""

    def __init__(self, context: PanelContext) -> None:
        self.context = context
        self.view = view = PanelView(context, allowed_now, allowed_on)
        self._check(context.state.settings)
        self.replies = PanelReplies(context, view)
        self._unlisten: Callable[[], None] = lambda: None
        self._widget: dict[str, Any] = {}  # the bundle that shows the panel

    # Opening and closing

    def open(self, comm: Comm) -> None:
        """Begin to send views and messages to the browser."""
        self.context.comm = comm
        self._listen()

    def reopen(self, settings: PanelSettings, toolbox: Toolbox, permit: Permit) -> None:
        """Use other tools, and the settings that code has changed since last time."""
        context = self.context
        reopened_settings = context.state.settings.reopened(
            context.opened_with, settings
        )
        context.use_tools(toolbox, permit)
        context.opened_with = settings
        self.replies.use_permit()
        if context.state.comparing.by and context.tool_definitions:
            comparing = replace(context.state.comparing, by="")
            context.change(comparing=comparing, notice=NO_TOOLS)
        self._check(settings)
        now = context.state.settings
        refused = {
            name: value
            for name, value in context.state.refused.items()
            if reopened_settings.value(name) == now.value(name)
        }
        context.change(settings=reopened_settings, refused=refused)
        self.view.show()

    def display(
        self, widget: dict[str, Any] | None, *, is_docked: bool = False
    ) -> None:
        """Show the widget, unless it is closed, and the transcript.

        With `is_docked`, the widget is also shown in the side area.
        """
        history = self.context.conversation.history
        screen = find_screen(self.context.session.settings.display)
        if widget and screen is Screen.NOTEBOOK:
            self._widget = widget
            if is_docked and not self.context.side_area.sidecar_id:
                self.dock()
            elif is_docked:
                self.context.comm.send({"t": "front"})
            else:
                self.undock()
            self.context.static_transcript.show(history, widget)
            return
        is_terminal = screen is Screen.TERMINAL
        self.context.static_transcript.show_alone(history, is_terminal=is_terminal)

    def dock(self) -> None:
        """Show the widget in the side area, in front of what is there."""
        context, side_area = self.context, self.context.side_area
        new = context.conversation.is_untitled
        try:
            side_area.open("New conversation" if new else context.conversation.name)
        except ConfigError as error:
            context.change(notice=str(error))
            self.view.show()
            return
        self.view.show()  # the page needs the sidecar's id before the widget arrives
        side_area.fill(self._widget)

    def undock(self, sidecar_id: str | None = None) -> None:
        """Show the widget in its cell only; ignore the id of an old sidecar."""
        side_area = self.context.side_area
        if side_area.sidecar_id and sidecar_id in (None, side_area.sidecar_id):
            side_area.close()
            self.view.show()

    def show_static(self) -> None:
        """Show the transcript in this cell, where another widget contains the panel."""
        self.context.static_transcript.show(self.context.conversation.history)

    def repeat_static(self) -> None:
        """Write the transcript again, for a page that has been opened since."""
        self.context.static_transcript.outputs.repeat()

    def freeze(self) -> None:
        """Replace the widget by the static transcript."""
        self.context.static_transcript.freeze(self.context.conversation.history)

    def close(self) -> None:
        """Stop the reply that is being written, and stop listening."""
        self._unlisten()
        self.replies.close()
        self.context.side_area.close()

    def _listen(self) -> None:
        conversation = self.context.conversation
        unlisten = conversation.on_change(self._on_change)
        unwatch = conversation.watched.listen(self.replies.watch)

        def stop() -> None:
            unlisten()
            unwatch()

        self._unlisten = stop

    def _on_change(self) -> None:
        """Show a change of the conversation, unless `PanelReplies` made it."""
        # Start empty would remove the new turns as well
        self.context.change(is_restored=False)
        if self.context.state.newer:  # the turns may have been added
            conversations_dialog.find_newer(self.context)
        if not self.replies.will_show:
            self.view.show()

    # What the browser asks for

    def greet(self, message: BrowserMessage) -> None:
        """Answer a page that has opened the panel, or may have missed messages."""
        comm = self.context.comm
        with comm.lock:
            # While a reply streams, a page is a little behind. If it has missed a piece
            # for good, the number of this answer tells it so, and it asks again.
            is_streaming = self.context.state.live is not None
            n_known = message.number
            is_on_its_way = is_streaming and 0 < n_known < comm.n_sent
            is_current = n_known == comm.n_sent or is_on_its_way
            comm.send({"t": "ack", "subshell": message.is_subshelled})
            if not is_current:
                self.view.show(is_whole=True)
        history = self.context.conversation.history
        self.context.static_transcript.fold(history, is_folded=not message.is_on)

    def dismiss(self) -> None:
        """Remove the notice."""
        self.context.change(notice="")

    def set_value(self, message: BrowserMessage) -> None:
        """Change a setting, or the system message."""
        self.dismiss()
        if message.name == "system":
            text = message.value if isinstance(message.value, str) else ""
            system = check_text(text, param="system") if text.strip() else None
            self.context.conversation.system = system
        else:
            settings = self.context.state.settings.setting(
                message.name, message.value, self.context.info
            )
            self._check(settings)
            self.context.change(settings=settings)
        self._forget_refusal(message.name)
        self.view.show()

    def keep_refused(self, message: BrowserMessage, reason: str) -> None:
        """Keep a refused value for the field of its setting, unless it has a key."""
        if message.name not in NAMES:
            return
        text = str(message.value)
        has_key = self.context.session.key_hider()(text) != text
        refused = {"text": reason, **({} if has_key else {"value": message.value})}
        self.context.change(
            refused={**self.context.state.refused, message.name: refused}
        )

    def forget_refused(self, message: BrowserMessage) -> None:
        """Remove the notice; with the name of a setting, also its refused value."""
        self.dismiss()
        self._forget_refusal(message.name)
        self.context.change(unusable={})
        self.view.show()

    def _forget_refusal(self, name: str) -> None:
        state = self.context.state
        refused, unusable = {**state.refused}, {**state.unusable}
        refused.pop(name, None)
        unusable.pop(name, None)
        self.context.change(refused=refused, unusable=unusable)

    def set_send_key(self, message: BrowserMessage) -> None:
        """Choose whether Enter or Shift+Enter sends."""
        self.context.change(send_on_enter=message.is_on)
        self.view.show()

    def compare(self, message: BrowserMessage) -> None:
        """Change what is compared; refuse an impossible comparison."""
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
        # a change is shown by `_on_change`
        if self.context.conversation.history == before:
            self.view.show()

    def undo(self) -> None:
        """Undo the newest change, and say which one it was."""
        after = self.context.conversation.history
        self.edit(Conversation.undo)
        change = change_words(self.context.conversation.history, after)
        text = f"Undone: {change}. Redo brings it back."
        self.context.comm.send({"t": "stepped", "text": text})

    def redo(self) -> None:
        """Redo the change that was undone last, and say which one it was."""
        before = self.context.conversation.history
        self.edit(Conversation.redo)
        change = change_words(before, self.context.conversation.history)
        self.context.comm.send({"t": "stepped", "text": f"Redone: {change}."})

    def list_names(self, message: BrowserMessage) -> None:
        """Send the names that can be attached."""
        hide = self.context.session.key_hider()
        self.context.comm.send(offers(message.text, current_shell(), hide))

    def measure(self, message: BrowserMessage) -> None:
        """Send the size of the value of a name."""
        hide = self.context.session.key_hider()
        self.context.comm.send(to_size(message.name, current_shell(), hide))

    def measure_draft(self, message: BrowserMessage) -> None:
        """Send the size of the next request with the draft of a page."""
        meter = self.view.meter(message.text, n_attached=message.number)
        answer = {"t": "meter", "id": message.question_id, "meter": meter}
        self.context.comm.send(answer)

    def make_frame(self, message: BrowserMessage) -> None:
        """Assign a table of a reply to a variable of the notebook."""
        turn = self.context.conversation.history.turn(message.turn)
        self.context.comm.send(make_frame(message, turn, current_shell()))

    def open_saved(self, message: BrowserMessage) -> None:
        """Show another conversation, with the settings of its last turn."""
        context = self.context
        is_open = message.name == context.conversation.name
        saved = conversations_dialog.open_saved(context.session, message.name)
        self.switch(saved, keeps_settings=is_open)

    def switch(
        self, conversation: Conversation, *, keeps_settings: bool = True
    ) -> None:
        """Show another conversation, with Compare switched off."""
        context = self.context
        with context.lock:
            # another view of the panel was faster
            if context.state.phase is not Phase.IDLE:
                raise ParameterError(BUSY, param="panel")
            if conversation is not context.conversation:
                context.change(comparing=replace(context.state.comparing, by=""))
            self._unlisten()
            context.conversation = conversation
            self._listen()
            context.change(notice="")
            context.change(unusable={}, earlier_system=None)
            conversations_dialog.find_newer(context)
            self.view.forget_shown()
        if not keeps_settings:
            conversations_dialog.restore_settings(context)
        self.view.show(is_whole=True)

    def leave(self, conversation: Conversation, notice: str) -> None:
        """Show another conversation, and say why."""
        self.switch(conversation)
        self.context.change(notice=notice)
        self.view.show()

    def begin(self, _: BrowserMessage) -> None:
        """Show a new conversation, with Compare switched off."""
        comparing = replace(self.context.state.comparing, by="")
        self.switch(conversations_dialog.begin(self.context))
        self.context.change(comparing=comparing)
        self.view.show()

    def find_newer(self) -> None:
        """Say whether other kernels have asked turns that are not here."""
        if conversations_dialog.find_newer(self.context):
            self.view.show()

    def take_newer(self, message: BrowserMessage) -> None:
        """Add what other kernels have asked, or dismiss the note on it."""
        conversations_dialog.take_newer(self.context, is_wanted=message.is_on)
        self.view.show()

    def _check(self, settings: PanelSettings) -> None:
        """Refuse settings that this panel cannot send."""
        has_tools = bool(self.context.tool_definitions)
        settings.refuse(has_tools=has_tools)
        self.context.state.comparing.refuse(settings, has_tools=has_tools)


PanelAct = Callable[[PanelController, BrowserMessage], None]
_ALWAYS = frozenset(Phase)
_IDLE = frozenset({Phase.IDLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelAction:
    """An action that the browser can ask for."""

    act: PanelAct
    needs: tuple[str, ...] = ()  # fields that the message must have
    phases: frozenset[Phase] = _IDLE  # when it is allowed
    # Whether the action makes sense now. It is called with the turn; for actions on the
    # whole panel, with the history and the possible ones of "undo" and "redo".
    applies: Callable[..., object] = lambda *_: True
    refusal: str = BUSY
    is_offered: bool = True  # whether the view lists it among the allowed actions

    @property
    def is_on_turn(self) -> bool:
        """Whether it is an action on one turn."""
        return "turn" in self.needs


def _edit(change: Callable[[Conversation, BrowserMessage], object]) -> PanelAct:
    """Return an action that changes the conversation."""
    return lambda panel, message: panel.edit(
        lambda conversation: change(conversation, message)
    )


def _toggle_pin(conversation: Conversation, message: BrowserMessage) -> None:
    is_pinned = conversation.history.turn(message.turn).is_pinned
    (conversation.unpin if is_pinned else conversation.pin)(message.turn)


def _toggle_hidden(conversation: Conversation, message: BrowserMessage) -> None:
    is_hidden = conversation.history.turn(message.turn).is_hidden
    (conversation.unhide if is_hidden else conversation.hide)(message.turn)


_ON_TURN = ("turn",)
ACTIONS: Mapping[str, PanelAction] = {
    "hello": PanelAction(act=PanelController.greet, phases=_ALWAYS, is_offered=False),
    "send": PanelAction(
        act=lambda panel, message: panel.replies.ask(
            message.text, attached=message.attached
        ),
        needs=("text",),
    ),
    "names": PanelAction(
        act=PanelController.list_names,
        needs=("text",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "size": PanelAction(
        act=PanelController.measure, needs=("name",), phases=_ALWAYS, is_offered=False
    ),
    "draft": PanelAction(
        act=PanelController.measure_draft,
        needs=("text", "n_attached", "id"),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "stop": PanelAction(
        act=lambda panel, _: panel.replies.stop(),
        phases=_ALWAYS - _IDLE,
        refusal="There is nothing to stop.",
    ),
    "decide": PanelAction(
        act=lambda panel, message: panel.replies.decide(message),
        needs=("id", "verdict"),
        phases=frozenset({Phase.ASKING}),
        refusal=ANSWERED,
    ),
    "set": PanelAction(act=PanelController.set_value, needs=("name",), phases=_ALWAYS),
    "compare": PanelAction(
        act=PanelController.compare, needs=("name",), phases=_ALWAYS, is_offered=False
    ),
    "dismiss": PanelAction(
        act=PanelController.forget_refused,
        needs=("name",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "newer": PanelAction(
        act=PanelController.take_newer, needs=("on",), is_offered=False
    ),
    "enter": PanelAction(
        act=PanelController.set_send_key, needs=("on",), phases=_ALWAYS
    ),
    "undo": PanelAction(
        act=lambda panel, _: panel.undo(),
        applies=lambda _, steps: "undo" in steps,
        refusal="There is nothing to undo.",
    ),
    "redo": PanelAction(
        act=lambda panel, _: panel.redo(),
        applies=lambda _, steps: "redo" in steps,
        refusal="There is nothing to redo.",
    ),
    "clear": PanelAction(
        act=_edit(lambda conversation, _: conversation.reset()),
        applies=lambda history, _: history.turns,
        refusal="There are no turns to clear.",
    ),
    "older": PanelAction(
        act=lambda panel, _: panel.view.show_older(), phases=_ALWAYS, is_offered=False
    ),
    "find": PanelAction(
        act=lambda panel, message: conversations_dialog.find(
            panel.context, message.text
        ),
        needs=("text",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "open": PanelAction(
        act=PanelController.open_saved,
        needs=("name",),
        is_offered=False,
    ),
    "new": PanelAction(act=PanelController.begin, is_offered=False),
    "remove": PanelAction(
        act=lambda panel, message: panel.switch(
            conversations_dialog.delete(panel.context, message.name)
        ),
        needs=("name",),
        is_offered=False,
    ),
    "rename": PanelAction(
        act=_edit(lambda conversation, message: conversation.rename(message.name)),
        needs=("name",),
        is_offered=False,
    ),
    "export": PanelAction(
        act=lambda panel, message: conversations_dialog.export(
            panel.context, message.name, message.question_id
        ),
        needs=("name", "id"),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "dock": PanelAction(
        act=lambda panel, _: panel.dock(), phases=_ALWAYS, is_offered=False
    ),
    "undock": PanelAction(
        act=lambda panel, message: panel.undock(message.name),
        needs=("name",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "frame": PanelAction(
        act=PanelController.make_frame,
        needs=("turn", "choice", "table", "name", "id"),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "continue": PanelAction(
        act=lambda panel, message: panel.replies.go_on(message.turn),
        needs=_ON_TURN,
        applies=lambda turn: turn.version.can_go_on and not turn.is_undecided,
        refusal="Only a cut or interrupted reply can be continued. This one is "
        "complete, or no reply is picked.",
    ),
    "regenerate": PanelAction(
        act=lambda panel, message: panel.replies.ask(None, turn=message.turn),
        needs=_ON_TURN,
    ),
    "edit": PanelAction(
        act=lambda panel, message: panel.replies.ask(
            message.text,
            turn=message.turn,
            attached=message.attached,
            kept=message.kept,
        ),
        needs=("turn", "text"),
    ),
    "delete": PanelAction(
        act=_edit(lambda conversation, message: conversation.delete(message.turn)),
        needs=_ON_TURN,
    ),
    "pin": PanelAction(
        act=_edit(_toggle_pin),
        needs=_ON_TURN,
    ),
    "hide": PanelAction(
        act=_edit(_toggle_hidden),
        needs=_ON_TURN,
    ),
    "pick": PanelAction(
        act=_edit(
            lambda conversation, message: conversation.pick(
                message.turn, message.number + 1
            )
        ),
        needs=("turn", "choice"),
        applies=lambda turn: turn.version.choices,
        refusal="There is only one choice.",
    ),
    "prefer": PanelAction(
        act=_edit(
            lambda conversation, message: conversation.prefer(
                message.turn, message.number
            )
        ),
        needs=("turn", "version"),
        applies=lambda turn: turn.comparison,
        refusal="There is nothing to pick from.",
    ),
    "choose": PanelAction(
        act=_edit(
            lambda conversation, message: conversation.choose(
                message.turn, message.number
            )
        ),
        needs=("turn", "version"),
        applies=lambda turn: len(turn.places) > 1,
        refusal="There is only one version.",
    ),
}
_FINDS_NEWER = {"hello", "draft", "send", "edit", "regenerate", "continue"}
"""Messages that come before a prompt is sent, or when the page is looked at again."""
FIELDS = {kind: action.needs for kind, action in ACTIONS.items()}
"""The fields that each kind of message must have."""


def allowed(
    phase: Phase, history: History, *, steps: Collection[str]
) -> tuple[str, ...]:
    """Return the actions on the whole panel that are allowed now."""
    return tuple(
        name
        for name, action in ACTIONS.items()
        if action.is_offered and not action.is_on_turn
        if phase in action.phases and action.applies(history, steps)
    )


def allowed_now(context: PanelContext) -> tuple[str, ...]:
    """Return the actions on a whole panel that are allowed now."""
    history, steps = context.conversation.history, _steps(context)
    return allowed(context.state.phase, history, steps=steps)


def _steps(context: PanelContext) -> tuple[str, ...]:
    can_undo, can_redo = context.conversation.can_undo, context.conversation.can_redo
    return ("undo",) * can_undo + ("redo",) * can_redo


def allowed_on(turn: Turn, phase: Phase = Phase.IDLE) -> tuple[str, ...]:
    """Return the actions on a turn that are allowed now."""
    return tuple(
        name
        for name, action in ACTIONS.items()
        if action.is_offered and action.is_on_turn
        if phase in action.phases and action.applies(turn)
    )


def refusal(
    message: BrowserMessage, phase: Phase, history: History, *, steps: Collection[str]
) -> str | None:
    """Return why an action is not allowed now; None if it is.

    The browser offers only allowed actions, but its view may be out of date.
    """
    action = ACTIONS[message.kind]
    if not action.is_on_turn:
        is_allowed = phase in action.phases and action.applies(history, steps)
        return None if is_allowed else action.refusal
    index = history.find(message.turn)
    if index is None:
        return GONE
    if phase not in action.phases:
        return BUSY
    return None if action.applies(history.turns[index]) else action.refusal


def perform(panel: PanelController, content: object) -> None:
    """Carry out a message from the browser; never raises."""
    comm, message = panel.context.comm, None
    try:
        message = read_message(content, FIELDS, is_subshelled=comm.hear())
        panel.replies.forget_watched()
        _perform(panel, message)
    except SvcError as error:
        if message and message.kind == "set":
            panel.keep_refused(message, str(error))
        panel.view.show_problem(str(error))
    except Exception as problem:  # noqa: BLE001 - shown in the panel
        panel.view.show_failure(problem)
    # If the same action is refused twice, the view does not change; so confirm each
    # message.
    kind = content.get("t") if isinstance(content, Mapping) else None
    comm.send({"t": "heard", "kind": kind})


def _perform(panel: PanelController, message: BrowserMessage) -> None:
    context, action = panel.context, ACTIONS[message.kind]
    history, phase = context.conversation.history, context.state.phase
    reason = refusal(message, phase, history, steps=_steps(context))
    if reason is not None:
        panel.view.show_problem(reason)
        return
    # A key in a message would be shown, and saved with the notebook.
    text = str(message)
    if action.needs and context.session.key_hider()(text) != text:
        raise ParameterError(_HAS_KEY, param="panel")
    if message.kind in _FINDS_NEWER:
        panel.find_newer()
    action.act(panel, message)

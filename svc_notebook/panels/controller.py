"""What a panel does: takes what the browser asks for, and shows what is.

What it is not: it decides nothing (see `state`) and is no widget (see `view`). Rules: a
message is answered at once, and a reply is asked for on a thread of its own; nothing
raised here is lost: the panel says it.
"""

import logging
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from threading import RLock, Thread, get_ident
from typing import Any

from svc_notebook.budget import room_for_reply
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.export import to_entries
from svc_notebook.conversations.next_turn import NextTurn, fit
from svc_notebook.display.progress import Watched, watched
from svc_notebook.display.reply import transcript
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.message import Message
from svc_notebook.session import Session
from svc_notebook.tools.consent import Decision, Proposal, Remembered
from svc_notebook.tools.tool_options import Permit
from svc_notebook.tools.toolbox import Toolbox

from .comm import Outlet
from .messages import Event, Settings, check_system, fields, to_event
from .state import Live, Meter, PanelState, Phase, Turns, news, refusal, to_view
from .static_view import Beside
from .tool_worker import Tools, ToolWorker
from .worker import Ended, Worker

_OF_HISTORY = ("choose", "pick", "delete", "pin", "hide", "undo", "clear")
_log = logging.getLogger(__name__)


class Chat:
    """One panel's doings.

    Args:
        conversation: The one to show.
        session: Asks.
        settings: How it asks at first.
        toolbox: What its replies may call.
        permit: What is allowed to these calls.
    """

    def __init__(
        self,
        conversation: Conversation,
        session: Session,
        settings: Settings,
        toolbox: Toolbox,
        permit: Permit,
    ) -> None:
        self.conversation = conversation
        self.beside = Beside()
        self._session = session
        self._toolbox = toolbox
        self._permit = permit
        remembered = Remembered(self._ask_consent, beside=session.consent)
        self._consent = permit.consent(remembered)
        self._lock = RLock()
        self._state = PanelState(settings=settings)
        self._worker: Worker | None = None
        self._recording: int | None = None
        self._seen = conversation.history
        self.turns: Turns = {}
        self._outlet = Outlet()
        self._unlisten: Callable[[], None] = lambda: None
        self._actions: Mapping[str, Callable[[Event], None]] = {
            **dict.fromkeys(_OF_HISTORY, self._edit_history),
            "send": self._send,
            "regenerate": self._ask_again,
            "edit": self._ask_again,
            "continue": self._go_on,
            "stop": self._stop,
            "set": self._set,
            "enter": self._set_enter,
            "decide": self._decide,
        }

    def open(self, outlet: Outlet) -> None:
        """Begin to show what is."""
        self._outlet = outlet
        self._unlisten = self.conversation.on_change(self._on_change)

    def display(self, widget: dict[str, Any] | None) -> None:
        """Show the widget with its transcript; only that where nobody watches.

        Args:
            widget: The widget's bundle; None if it is closed.
        """
        whom = watched(self._session.settings.display)
        if widget and whom is Watched.NOTEBOOK:
            self.beside.show(widget, self.transcript())
            return
        transcript = self.transcript()
        if whom is Watched.TERMINAL:
            note = without_widgets(self.conversation.name)
            transcript = {
                "text/plain": f"{transcript['text/plain'].rstrip()}\n\n{note}"
            }
        self.beside.settle(transcript)

    def close(self) -> None:
        """End; a reply under way is stopped, the conversation stays."""
        self._unlisten()
        worker = self._worker
        if worker is not None:
            worker.stop()

    # What the browser asks for.

    def hear(self, content: object) -> None:
        """Take a message of the browser; raises nothing."""
        try:
            is_subshelled = self._outlet.hear()
            event = to_event(content)
            self._take(event, is_subshelled=is_subshelled)
        except SvcError as error:
            self._refuse(str(error))
        except Exception as problem:  # noqa: BLE001 - said in the panel
            _log.exception("The panel failed on a message.")
            self._complain(f"{type(problem).__name__}: {problem}")
        # The same refusal twice is no change of the picture; this says it was heard.
        kind = content.get("t") if isinstance(content, Mapping) else None
        self._outlet.send({"t": "heard", "kind": kind})

    def _take(self, event: Event, *, is_subshelled: bool) -> None:
        if event.kind == "hello":
            self._outlet.send({"t": "ack", "subshell": is_subshelled})
            self._change(is_subshelled=is_subshelled)
            self._show(is_whole=True)
            return
        told = self.conversation
        reason = refusal(event, self._state.phase, told.history, can_undo=told.can_undo)
        if reason is not None:
            self._refuse(reason)
            return
        self._actions[event.kind](event)

    def _send(self, event: Event) -> None:
        step = self.conversation.next_turn(event.text, **self._how())
        self._begin(step, Live(turn="new", prompt=event.text))

    def _ask_again(self, event: Event) -> None:
        text = event.text if event.kind == "edit" else None
        step = self.conversation.next_turn(text, turn=event.turn, **self._how())
        self._begin(step, Live(turn=event.turn, prompt=text))

    def _go_on(self, event: Event) -> None:
        so_far = self.conversation.history.turn(event.turn).version.text
        step = self.conversation.next_part(event.turn, **self._how())
        self._begin(step, Live(turn=event.turn), so_far=so_far)

    def _stop(self, _: Event) -> None:
        worker = self._worker
        if worker is not None:
            worker.stop()

    def _edit_history(self, event: Event) -> None:
        told = self.conversation
        self._change(notice="", is_problem=False)
        before = told.history
        match event.kind:
            case "choose":
                told.choose(event.turn, event.number)
            case "pick":
                told.pick(event.turn, event.number + 1)
            case "delete":
                told.delete(event.turn)
            case "pin":
                told.toggle_pin(event.turn)
            case "hide":
                told.toggle_hidden(event.turn)
            case "undo":
                told.undo()
            case _:
                told.reset()
        if told.history == before:  # nobody was told
            self._show()

    def _set(self, event: Event) -> None:
        self._change(notice="", is_problem=False)
        if event.name == "system":
            self.conversation.system = check_system(event.value)
        else:
            settings = self._state.settings.setting(event.name, event.value)
            self._change(settings=settings)
        self._show()

    def _set_enter(self, event: Event) -> None:
        self._change(send_on_enter=event.is_on)
        self._show()

    def _decide(self, event: Event) -> None:
        worker = self._worker
        if isinstance(worker, ToolWorker):
            worker.decide(event)

    # A reply.

    def _how(self) -> dict[str, Any]:
        settings = self._state.settings
        tools = {"tools": self._toolbox.definitions} if len(self._toolbox) else {}
        return {
            "model": settings.model,
            "params": {**settings.params, **tools},
            "max_tokens": settings.max_tokens,
            "origin_kind": "panel",
        }

    def _begin(self, step: NextTurn, live: Live, *, so_far: str = "") -> None:
        worker = self._to_worker(step, live, so_far)
        with self._lock:
            if self._state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError("A reply is under way already.", param="panel")
            self._worker = worker
            note = left_out_note(step)
            self._change(phase=Phase.BUSY, live=live, notice=note, is_problem=False)
        self._show()
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
            self._finish(step, Ended(how="failed", problem=str(problem)))

    def _to_worker(self, step: NextTurn, live: Live, so_far: str) -> Worker:
        client = self._session.client
        given: dict[str, Any] = {
            "start": lambda request, origin: client.start(request, origin=origin),
            "stage": self,
            "so_far": so_far,
        }
        if not step.request.tools:
            return Worker(step, live, **given)
        tools = Tools(
            toolbox=self._toolbox,
            keep=self._session.tool_record,
            hide=self._session.key_hider(),
            consent=self._consent,
            rounds=replace(
                self._permit.rounds, max_tokens=self._state.settings.max_tokens
            ),
        )
        return ToolWorker(step, live, tools=tools, **given)

    def _ask_consent(self, proposal: Proposal) -> Decision:
        worker = self._worker
        if isinstance(worker, ToolWorker):
            return worker.consent(proposal)
        return Decision(verdict="deny")

    def _work(self, worker: Worker, step: NextTurn) -> None:
        ended = worker.run()
        try:
            self._finish(step, ended)
        except Exception as problem:  # noqa: BLE001 - said in the panel
            _log.exception("The panel could not take a reply.")
            self._complain(f"{type(problem).__name__}: {problem}")

    def _finish(self, step: NextTurn, ended: Ended) -> None:
        # Not in the outlet's lock: recording tells other panels, which have their own.
        self._change(live=None, question=None)
        self._recording = get_ident()
        try:
            if ended.completion is not None:
                self.conversation.record(step, ended.completion)
        finally:
            self._recording = None
            self._worker = None
            self._change(phase=Phase.IDLE)
            if ended.problem or self._state.is_problem:  # what was refused meanwhile
                self._change(notice=ended.problem, is_problem=bool(ended.problem))
            with self._outlet.lock:
                self._outlet.send({"t": "ended", "how": ended.how, "text": ended.said})
                self._show()

    def play(self, live: Live, phase: Phase, *messages: dict[str, Any]) -> None:
        """Take what is drawn now, and send messages, in one step."""
        with self._outlet.lock:
            self._change(live=live, phase=phase)
            for message in messages:
                self._outlet.send(message)

    def question(self, question: dict[str, Any] | None) -> None:
        """Ask the user something, or no longer."""
        self._change(question=question, phase=Phase.ASKING if question else Phase.BUSY)
        self._show()

    # The picture.

    def _on_change(self) -> None:
        """The conversation has changed, wherever it was made."""
        if self._recording != get_ident():
            self._show()

    def _change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        with self._lock:
            self._state = replace(self._state, **changes)

    def _refuse(self, reason: str) -> None:
        self._change(notice=reason, is_problem=True)
        self._show()

    def _complain(self, problem: str) -> None:
        self._change(notice=problem, is_problem=True)
        self._outlet.send({"t": "problem", "text": problem})
        self._show()

    def _show(self, *, is_whole: bool = False) -> None:
        with self._outlet.lock:
            if self._outlet.is_lost:
                self._change(main_writes=self._state.main_writes + 1)
            view = self.take_picture(is_whole=is_whole)
            self._outlet.put(view, also=("turns",) if is_whole else ())
            history = self.conversation.history
            if history != self._seen and self.beside.is_shown:
                self.beside.update(self.transcript())
            self._seen = history

    def take_picture(self, *, is_whole: bool) -> dict[str, Any]:
        """Return what the browser shows, without the turns that it has.

        Args:
            is_whole: Whether it gets all of them, from `turns`, too.
        """
        told, state = self.conversation, self._state
        model = self._session.settings.model
        whole = to_view(
            state,
            name=told.name,
            history=told.history,
            can_undo=told.can_undo,
            meter=self._meter(),
            model=model,
            fields=fields(model=model),
        )
        view, self.turns = news(whole, None if is_whole else self.turns)
        return {**view, "is_whole": is_whole}

    def _meter(self) -> Meter:
        history = self.conversation.history
        fitted = fit(
            history.system,
            history.turns,
            Message(role="user", content=""),
            reply_tokens=room_for_reply(self._state.settings.max_tokens),
            budget_tokens=BUDGET_TOKENS - self._toolbox.n_tokens,
        )
        return Meter(
            used_tokens=fitted.prompt_tokens + self._toolbox.n_tokens,
            budget_tokens=BUDGET_TOKENS,
            n_left_out=len(fitted.left_out),
        )

    def transcript(self) -> dict[str, str]:
        """Return the static transcript."""
        told = self.conversation
        return transcript(told.name, to_entries(told.history))


def without_widgets(name: str) -> str:
    """Say where panels show, and how to go on where they do not."""
    return (
        "(a panel shows in JupyterLab and Notebook; here `%%svc -c "
        f"{name}` and svc.conversation({name!r}).ask(...) go on)"
    )


def left_out_note(step: NextTurn) -> str:
    """Say what of the conversation a request does not carry."""
    n_left_out = len(step.fitted.left_out)
    if not n_left_out:
        return ""
    turns = "turn" if n_left_out == 1 else f"{n_left_out} turns"
    return (
        f"Left out for room: the oldest {turns}, about "
        f"{step.fitted.left_out_tokens} tokens (estimated)."
    )

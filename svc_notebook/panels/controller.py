"""Runs a panel: takes the browser's messages, runs actions, shows the state.

A message is answered at once; a reply is asked for on a thread of its own. Errors are
never lost in a callback: the panel shows them.
"""

import logging
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from threading import RLock, Thread, get_ident
from typing import Any

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.export import to_entries
from svc_notebook.conversations.turn_requests import NextTurn, fit
from svc_notebook.display.progress import Watched, watched
from svc_notebook.display.transcript import transcript
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.message import Message
from svc_notebook.session import Session
from svc_notebook.tokens import room_for_reply
from svc_notebook.tools.permissions import Decision, Permit, Proposal, Remembered
from svc_notebook.tools.toolbox import Toolbox

from .actions import ACTIONS, Event, allowed, allowed_on, refusal, to_event
from .frontend import Comm, StaticView
from .state import Live, Meter, PanelState, Phase, Settings, Turns, news, to_view
from .worker import Ended, Tools, ToolWorker, Worker

_log = logging.getLogger(__name__)


class Controller:
    """Runs one panel.

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
        self.static_view = StaticView()
        self._session = session
        self._toolbox = toolbox
        self._permit = permit
        remembered = Remembered(self._ask_consent, beside=session.consent)
        self._consent = permit.consent(remembered)
        self._lock = RLock()
        self.state = PanelState(settings=settings)
        self._worker: Worker | None = None
        self._recording: int | None = None
        self._seen = conversation.history
        self.turns: Turns = {}
        self._comm = Comm()
        self._unlisten: Callable[[], None] = lambda: None

    def open(self, comm: Comm) -> None:
        """Begin to send to the browser."""
        self._comm = comm
        self._unlisten = self.conversation.on_change(self._on_change)

    def display(self, widget: dict[str, Any] | None) -> None:
        """Show the widget and its transcript, or the transcript alone.

        Args:
            widget: The widget's bundle; None if it is closed.
        """
        whom = watched(self._session.settings.display)
        if widget and whom is Watched.NOTEBOOK:
            self.static_view.show(widget, self.transcript())
            return
        transcript = self.transcript()
        if whom is Watched.TERMINAL:
            note = without_widgets(self.conversation.name)
            transcript = {
                "text/plain": f"{transcript['text/plain'].rstrip()}\n\n{note}"
            }
        self.static_view.settle(transcript)

    def close(self) -> None:
        """Close the panel; a reply is stopped, the conversation stays."""
        self._unlisten()
        self.stop()

    # What the browser asks for.

    def hear(self, content: object) -> None:
        """Take a message of the browser; raises nothing."""
        try:
            is_subshelled = self._comm.hear()
            event = to_event(content)
            self._take(event, is_subshelled=is_subshelled)
        except SvcError as error:
            self._refuse(str(error))
        except Exception as problem:  # noqa: BLE001 - said in the panel
            _log.exception("The panel failed on a message.")
            self._complain(f"{type(problem).__name__}: {problem}")
        # The same refusal twice is no change of the picture; this says it was heard.
        kind = content.get("t") if isinstance(content, Mapping) else None
        self._comm.send({"t": "heard", "kind": kind})

    def _take(self, event: Event, *, is_subshelled: bool) -> None:
        if event.kind == "hello":
            self.change(is_subshelled=is_subshelled)
        told = self.conversation
        reason = refusal(event, self.state.phase, told.history, can_undo=told.can_undo)
        if reason is not None:
            self._refuse(reason)
            return
        ACTIONS[event.kind].act(self, event)

    def greet(self) -> None:
        """Answer a page that begins to show the panel."""
        self._comm.send({"t": "ack", "subshell": self.state.is_subshelled})
        self.show(is_whole=True)

    def stop(self) -> None:
        """Stop the reply that is being written."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def decide(self, event: Event) -> None:
        """Take a decision about a tool call."""
        worker = self._worker
        if isinstance(worker, ToolWorker):
            worker.decide(event)

    # A reply.

    def next_turn(self, text: str | None, *, turn: str | None = None) -> NextTurn:
        """Prepare a turn, new or asked again, with the panel's settings."""
        return self.conversation.next_turn(text, turn=turn, **self._request_settings())

    def next_part(self, turn: str) -> NextTurn:
        """Prepare to go on with a reply that was cut."""
        return self.conversation.next_part(turn, **self._request_settings())

    def _request_settings(self) -> dict[str, Any]:
        settings = self.state.settings
        tools = {"tools": self._toolbox.definitions} if len(self._toolbox) else {}
        return {
            "model": settings.model,
            "params": {**settings.params, **tools},
            "max_tokens": settings.max_tokens,
            "origin_kind": "panel",
        }

    def begin(self, step: NextTurn, live: Live, *, so_far: str = "") -> None:
        """Ask for a reply on a thread of its own.

        Raises:
            ParameterError: A reply is being written already.
        """
        worker = self._to_worker(step, live, so_far)
        with self._lock:
            if self.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError("A reply is being written already.", param="panel")
            self._worker = worker
            note = left_out_note(step)
            self.change(phase=Phase.BUSY, live=live, notice=note, is_problem=False)
        self.show()
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
            "start": lambda request, origin: client.stream(request, origin=origin),
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
                self._permit.rounds, max_tokens=self.state.settings.max_tokens
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
        # Not in the comm's lock: recording tells other panels, which have their own.
        self.change(live=None, question=None)
        self._recording = get_ident()
        try:
            if ended.completion is not None:
                self.conversation.record(step, ended.completion)
        finally:
            self._recording = None
            self._worker = None
            self.change(phase=Phase.IDLE)
            if ended.problem or self.state.is_problem:  # what was refused meanwhile
                self.change(notice=ended.problem, is_problem=bool(ended.problem))
            with self._comm.lock:
                self._comm.send({"t": "ended", "how": ended.how, "text": ended.said})
                self.show()

    def play(self, live: Live, phase: Phase, *messages: dict[str, Any]) -> None:
        """Take what is drawn now, and send messages, in one step."""
        with self._comm.lock:
            self.change(live=live, phase=phase)
            for message in messages:
                self._comm.send(message)

    def question(self, question: dict[str, Any] | None) -> None:
        """Ask the user something, or no longer."""
        self.change(question=question, phase=Phase.ASKING if question else Phase.BUSY)
        self.show()

    # The picture.

    def _on_change(self) -> None:
        """The conversation has changed, wherever it was made."""
        if self._recording != get_ident():
            self.show()

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        """Change fields of the state."""
        with self._lock:
            self.state = replace(self.state, **changes)

    def _refuse(self, reason: str) -> None:
        self.change(notice=reason, is_problem=True)
        self.show()

    def _complain(self, problem: str) -> None:
        self.change(notice=problem, is_problem=True)
        self._comm.send({"t": "problem", "text": problem})
        self.show()

    def show(self, *, is_whole: bool = False) -> None:
        """Send the picture of the panel to the browser."""
        with self._comm.lock:
            if self._comm.is_lost:
                self.change(main_writes=self.state.main_writes + 1)
            view = self.take_picture(is_whole=is_whole)
            self._comm.put(view, also=("turns",) if is_whole else ())
            history = self.conversation.history
            if history != self._seen and self.static_view.is_shown:
                self.static_view.update(self.transcript())
            self._seen = history

    def take_picture(self, *, is_whole: bool) -> dict[str, Any]:
        """Return what the browser shows, without the turns that it has.

        Args:
            is_whole: Whether it gets all of them, from `turns`, too.
        """
        told, state = self.conversation, self.state
        whole = to_view(
            state,
            name=told.name,
            history=told.history,
            can=allowed(state.phase, told.history, can_undo=told.can_undo),
            can_on=lambda turn: allowed_on(turn, Phase.IDLE),
            meter=self._meter(),
            model=self._session.settings.model,
        )
        view, self.turns = news(whole, None if is_whole else self.turns)
        return {**view, "is_whole": is_whole}

    def _meter(self) -> Meter:
        history = self.conversation.history
        fitted = fit(
            history.system,
            history.turns,
            Message(role="user", content=""),
            reply_tokens=room_for_reply(self.state.settings.max_tokens),
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

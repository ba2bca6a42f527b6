"""Sends a panel's prompts and stops its replies: Send, Ask again, Continue, Stop."""

from collections.abc import Collection, Sequence
from contextvars import copy_context
from dataclasses import replace
from threading import Thread, get_ident
from typing import Any
from uuid import uuid4

from svc_notebook.conversations.attachments import Item, add_items
from svc_notebook.conversations.turn_request import NextTurn
from svc_notebook.errors import ParameterError
from svc_notebook.tools.consent import Decision, Proposal, Remembered

from .attach_menu import current_shell, read_items
from .compare_mode import SideBySide, to_group
from .live_reply import LiveReply, LiveView, ReplyEnd, ReplyWorker
from .messages import BrowserMessage
from .settings_form import PanelSettings
from .state import PanelContext, Phase
from .turn_view import COMPARED, draw_item
from .view import PanelView

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

"""`Panel`: a chat on a conversation as one widget, which `static/` draws."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from threading import RLock, Thread, get_ident
from typing import Any

import traitlets
from anywidget import AnyWidget

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.export import to_transcript
from svc_notebook.conversations.history import Turn
from svc_notebook.conversations.turn_requests import NextTurn, fit
from svc_notebook.display.output import Screen, find_screen
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import Message
from svc_notebook.session import Session
from svc_notebook.tokens import estimate_prompt_tokens, room_for_reply
from svc_notebook.tools.permissions import Decision, Permit, Proposal, Remembered
from svc_notebook.tools.toolbox import Toolbox

from .actions import ACTIONS, BUSY, Event, allowed, allowed_on, refusal, to_event
from .frontend import Comm, StaticView, watch_containers, widget_view
from .state import (
    Live,
    PanelState,
    Phase,
    Settings,
    draw_meter,
    draw_turn,
    to_view,
    view_update,
)
from .worker import ReplyEnd, Worker

_log = logging.getLogger(__name__)


class Controller:
    """Runs one panel.

    `settings` are the panel's at first; `toolbox` and `permit` are for its tool calls.
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
        notice = conversation.older_note()
        notice = notice[:1].upper() + notice[1:]
        self.state = PanelState(settings=settings, notice=notice)
        self._drawn: dict[str, tuple[Turn, dict[str, Any]]] = {}
        self._sent: dict[str, Any] = {}
        self._session = session
        self._offer(settings, toolbox, permit)
        self._lock = RLock()
        self._worker: Worker | None = None
        self._recording: int | None = None
        self._comm = Comm()
        self._unlisten: Callable[[], None] = lambda: None

    def _offer(self, settings: Settings, toolbox: Toolbox, permit: Permit) -> None:
        self._opened_with = settings
        self._toolbox = toolbox
        self._tool_params = {"tools": toolbox.definitions} if len(toolbox) else {}
        self._permit = permit
        self.checked(settings)
        remembered = Remembered(self._ask_consent, shared_with=self._session.consent)
        self._consent = permit.consent(remembered)

    def checked(self, settings: Settings) -> Settings:
        """Return settings, or refuse them if this panel cannot send them."""
        if settings.params.get("n", 1) != 1 and len(self._toolbox):
            raise ParameterError(
                "n must be 1 in a panel with tools, since tools can be run for one "
                "choice only. For several choices, open a panel without tools.",
                param="n",
            )
        return settings

    def reopen(self, settings: Settings, toolbox: Toolbox, permit: Permit) -> None:
        """Go on with other tools, and with the settings that differ from before."""
        kept = self.state.settings.reopened(self._opened_with, settings)
        self._offer(settings, toolbox, permit)
        self.change(settings=kept)
        self.show()

    def open(self, comm: Comm) -> None:
        """Start to send to the browser."""
        self._comm = comm
        self._unlisten = self.conversation.on_change(self._on_change)

    def display(self, widget: dict[str, Any] | None) -> None:
        """Show the widget, unless it is closed, and the transcript."""
        where = find_screen(self._session.settings.display)
        if widget and where is Screen.NOTEBOOK:
            self.static_view.show(self.conversation.history, widget)
            return
        transcript = to_transcript(self.conversation.history)
        if where is Screen.TERMINAL:
            name, text = self.conversation.name, transcript["text/plain"].rstrip()
            note = (
                f"(a panel needs JupyterLab or Notebook; here, continue with `%%svc -c "
                f"{name}` or svc.conversation({name!r}).ask(...))"
            )
            transcript = {"text/plain": f"{text}\n\n{note}"}
        self.static_view.show_transcript(transcript)

    def show_static(self) -> None:
        """Show the transcript in this cell, which shows the panel inside a widget."""
        self.static_view.show(self.conversation.history)

    def freeze(self) -> None:
        """Replace the widget by the static transcript."""
        self.static_view.freeze(self.conversation.history)

    def close(self) -> None:
        """Stop the reply that is being written, and stop listening."""
        self._unlisten()
        self.stop()

    # Messages from the browser

    def hear(self, content: object) -> None:
        """Take a message from the browser; raises nothing."""
        try:
            is_subshelled = self._comm.hear()
            self._run_action(to_event(content), is_subshelled=is_subshelled)
        except SvcError as error:
            self._show_problem(str(error))
        except Exception as problem:  # noqa: BLE001 - shown in the panel
            _log.exception("The panel failed on a message.")
            self._show_failure(problem)
        # The same refusal twice does not change the view; this says it was heard.
        kind = content.get("t") if isinstance(content, Mapping) else None
        self._comm.send({"t": "heard", "kind": kind})

    def _run_action(self, event: Event, *, is_subshelled: bool) -> None:
        if event.kind == "hello":
            self.change(is_subshelled=is_subshelled)
        history, steps = self.conversation.history, self._steps()
        reason = refusal(event, self.state.phase, history, steps=steps)
        if reason is not None:
            self._show_problem(reason)
            return
        ACTIONS[event.kind].act(self, event)

    def greet(self, event: Event) -> None:
        """Answer a page that has opened the panel, or may have missed something."""
        with self._comm.lock:
            is_current = event.number == self._comm.n_sent
            self._comm.send({"t": "ack", "subshell": self.state.is_subshelled})
            if not is_current:
                self.show(is_whole=True)
        self.static_view.fold(self.conversation.history, is_folded=not event.is_on)

    def stop(self) -> None:
        """Stop the reply that is being written."""
        if worker := self._worker:
            worker.stop()

    def decide(self, event: Event) -> None:
        """Take the user's decision about a tool call."""
        if worker := self._worker:
            worker.decide(event)

    # Replies

    def ask(self, text: str | None, *, turn: str | None = None) -> None:
        """Ask a new turn, or a turn again; None is the turn's own prompt."""
        step = self.conversation.next_turn(text, turn=turn, **self._request_settings())
        self._begin(
            step, Live(turn=turn or "new", prompt=text, model=step.request.model)
        )

    def go_on(self, turn: str) -> None:
        """Continue a turn's reply."""
        so_far = self.conversation.history.turn(turn).version.text
        step = self.conversation.next_part(turn, **self._request_settings())
        self._begin(step, Live(turn=turn, model=step.request.model), so_far)

    def _request_settings(self) -> dict[str, Any]:
        settings = self.state.settings
        return {
            "model": settings.model,
            "params": {**settings.params, **self._tool_params},
            "max_tokens": settings.max_tokens,
            "origin_kind": "panel",
        }

    def _begin(self, step: NextTurn, live: Live, so_far: str = "") -> None:
        """Ask for a reply on a new thread."""
        worker = Worker(
            step=step,
            live=live,
            session=self._session,
            view=self,
            so_far=so_far,
            toolbox=self._toolbox,
            consent=self._consent,
            rounds=self._permit.rounds,
        )
        with self._lock:
            if self.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError(BUSY, param="panel")
            self._worker = worker
            note = step.fitted.note.capitalize()
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
            self._finish(step, ReplyEnd(status="failed", problem=str(problem)))

    def _ask_consent(self, proposal: Proposal) -> Decision:
        worker = self._worker
        return worker.ask(proposal) if worker else Decision(verdict="deny")

    def _work(self, worker: Worker, step: NextTurn) -> None:
        end = worker.run()
        try:
            self._finish(step, end)
        except Exception as problem:  # noqa: BLE001 - shown in the panel
            _log.exception("The panel could not take a reply.")
            self._show_failure(problem)

    def _finish(self, step: NextTurn, end: ReplyEnd) -> None:
        # Without the comm's lock: recording calls other panels, which have their own.
        self.change(live=None, question=None)
        self._recording = get_ident()
        try:
            if end.completion is not None:
                self.conversation.record(step, end.completion)
        finally:
            self._recording = None
            self._worker = None
            self.change(phase=Phase.IDLE)
            if end.problem or self.state.is_problem:  # replaces a refusal meanwhile
                is_problem = end.status == "failed"
                self.change(notice=end.problem, is_problem=is_problem)
            with self._comm.lock:
                self._comm.send({"t": "ended", "text": end.text})
                self.show()

    def show_live(self, live: Live, phase: Phase, *messages: dict[str, Any]) -> None:
        """Change the live reply and send messages, in one step."""
        with self._comm.lock:
            self.change(live=live, phase=phase)
            for message in messages:
                self._comm.send(message)

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Show a question to the user, or remove it."""
        self.change(question=question, phase=Phase.ASKING if question else Phase.BUSY)
        self.show()

    # The view

    def _on_change(self) -> None:
        """Show a change of the conversation; `_finish` shows its own."""
        if self._recording != get_ident():
            self.show()

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        """Change fields of the state."""
        with self._lock:
            self.state = replace(self.state, **changes)

    def _show_problem(self, problem: str) -> None:
        self.change(notice=problem, is_problem=True)
        self.show()

    def _show_failure(self, problem: Exception) -> None:
        text = f"{type(problem).__name__}: {problem}"
        self._comm.send({"t": "problem", "text": text})
        self._show_problem(text)

    def show(self, *, is_whole: bool = False) -> None:
        """Send the view to the browser; if not `is_whole`, what has changed."""
        with self._comm.lock:
            if self._comm.is_lost:
                self.change(main_writes=self.state.main_writes + 1)
            known, self._sent = self._sent, self._draw()
            view = self._sent if is_whole else view_update(self._sent, known)
            self._comm.put({**view, "is_whole": is_whole})
            self.static_view.update(self.conversation.history)

    def whole_view(self) -> dict[str, Any]:
        """Return what a page needs to open the panel."""
        self._sent = self._sent or self._draw()
        return {**self._sent, "is_whole": True, **self._comm.numbers}

    def _draw(self) -> dict[str, Any]:
        history, state = self.conversation.history, self.state
        return to_view(
            state,
            history,
            can=allowed(state.phase, history, steps=self._steps()),
            turns=self._draw_turns(history.turns),
            meter=self._meter(),
            model=self._session.settings.model,
        ) | {"panel_id": self.static_view.name}

    def _steps(self) -> tuple[str, ...]:
        can = {
            "undo": self.conversation.can_undo,
            "redo": self.conversation.can_redo,
        }
        return tuple(name for name in can if can[name])

    def _draw_turns(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """Draw turns; those that have not changed are the same objects as before."""
        known, self._drawn = self._drawn, {}
        for number, turn in enumerate(turns, start=1):
            old, drawn = known.get(turn.turn_id, (None, {}))
            if old is not turn or drawn["number"] != number:
                drawn = draw_turn(number, turn, can=allowed_on(turn, Phase.IDLE))
            self._drawn[turn.turn_id] = turn, drawn
        return [drawn for _, drawn in self._drawn.values()]

    def _meter(self) -> dict[str, Any]:
        history, tools = self.conversation.history, self._tool_params.get("tools", ())
        fitted = fit(
            history.system,
            history.turns,
            Message(role="user", content=""),
            reply_tokens=room_for_reply(self.state.settings.max_tokens),
            budget_tokens=BUDGET_TOKENS - estimate_prompt_tokens((), tools).best,
        )
        used = estimate_prompt_tokens(fitted.messages, tools)
        return draw_meter(used, note=fitted.note)


_STATIC = Path(__file__).parent / "static"
_SCRIPTS = ("html", "line", "turn", "settings", "panel")


def script() -> str:
    """Join the scripts of `static/` to one module, without block comments."""
    texts = ((_STATIC / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    return re.sub(
        r"^ */\*.*?\*/\n", "", "\n".join(texts), flags=re.DOTALL | re.MULTILINE
    )


class Panel(AnyWidget):
    """A chat on a named conversation, which the magic and Python share.

    Make it the last line of a cell, or put it into other ipywidgets. Prompts and
    replies are saved with the notebook where widget state is saved; keys are not.
    """

    _esm = script()
    _css = _STATIC / "panel.css"
    view = traitlets.Dict().tag(sync=True)  # what has changed; the page joins it

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.opened_with: str | None = None  # the system message, as code gave it
        super().__init__()
        controller.open(Comm(self))
        self._unwatch = watch_containers(self, controller.show_static)
        self.on_msg(lambda _, content, __: controller.hear(content))

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._controller.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return the state; asked for all of it, with the whole view."""
        state = super().get_state(key, drop_defaults=drop_defaults)
        return state if key else {**state, "view": self._controller.whole_view()}

    def reopen(self, settings: Settings, toolbox: Toolbox, permit: Permit) -> None:
        """Go on in a cell that runs again."""
        self._controller.reopen(settings, toolbox, permit)

    def freeze(self) -> None:
        """Replace the widget by the static transcript, and close it.

        A reply that is being written is stopped; its text so far is in the transcript.
        """
        self._controller.freeze()
        self.close()

    def close(self) -> None:
        """Close the panel; a reply is stopped, the conversation stays."""
        if hasattr(self, "_controller"):  # __init__ may have failed
            self._controller.close()
            self._unwatch()
        super().close()

    def __repr__(self) -> str:
        return f"<Panel on the conversation {self.conversation.name!r}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:  # noqa: ANN401 - ipywidgets'
        text = f"{self!r}: run the cell to chat"
        return {**widget_view(self.model_id), "text/plain": text}

    def _ipython_display_(self) -> None:
        is_closed = self.comm is None
        self._controller.display(None if is_closed else self._repr_mimebundle_())

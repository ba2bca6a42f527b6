"""`Panel`: a chat on a conversation as one widget, which `static/` draws."""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from threading import RLock, Thread, get_ident
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import traitlets
from anywidget import AnyWidget

from svc_notebook.conversations.attachments import Item, add_items
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.history import Turn
from svc_notebook.conversations.transcript import to_transcript
from svc_notebook.conversations.turn_requests import NextTurn, fit
from svc_notebook.display.output import Screen, find_screen
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.request import Message
from svc_notebook.session import Session
from svc_notebook.tokens import estimate_prompt_tokens, room_for_reply
from svc_notebook.tools.permissions import Decision, Permit, Proposal, Remembered
from svc_notebook.tools.toolbox import Toolbox

from .actions import ACTIONS, BUSY, Event, allowed, allowed_on, refusal, to_event
from .attachments import current_shell, offers, read_items, to_size
from .frontend import Comm, StaticView, watch_containers, widget_view
from .state import (
    COMPARED,
    Live,
    PanelState,
    Phase,
    Settings,
    draw_item,
    draw_meter,
    draw_turn,
    to_view,
    view_update,
)
from .worker import ReplyEnd, ReplyView, Worker

if TYPE_CHECKING:  # loads where something is compared
    from .worker import SideBySide

_N_COMPARED = (
    "n must be 1 while replies are compared, since each is asked for by itself. Set n "
    "to 1, or switch Compare off."
)
_NO_TOOLS = (
    "A panel with tools cannot compare, since tools can be run for one reply only. To "
    "compare, open a panel without tools."
)
_CLEARED = (
    "The conversation was cleared meanwhile, or that was undone, so the reply was not "
    "added to it. The ledger has it."
)
_HAS_KEY = (
    "There is the API key in this text, setting or name. Nothing was sent or kept. "
    "Remove the key and try again."
)
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
        self._session = self.session = session
        self._offer(settings, toolbox, permit)
        self._lock = RLock()
        self._worker: Worker | SideBySide | None = None
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
        if self.state.comparing.by and settings.params.get("n", 1) != 1:
            raise ParameterError(_N_COMPARED, param="n")
        return settings

    def compare(self, event: Event) -> None:
        """Change what is compared, or refuse it."""
        if event.name and len(self._toolbox):
            raise ParameterError(_NO_TOOLS, param="compare")
        if event.name and self.state.settings.params.get("n", 1) != 1:
            raise ParameterError(_N_COMPARED, param="n")
        comparing = self.state.comparing.changed(
            event.name,
            event.value,
            is_blind=event.is_on,
            models=(self.model, *self._models()),
        )
        self.change(comparing=comparing)

    def reopen(self, settings: Settings, toolbox: Toolbox, permit: Permit) -> None:
        """Go on with other tools, and with the settings that differ from before."""
        kept = self.state.settings.reopened(self._opened_with, settings)
        self._offer(settings, toolbox, permit)
        self.change(settings=kept)
        if self.state.comparing.by and len(toolbox):
            comparing = replace(self.state.comparing, by="")
            self.change(comparing=comparing, notice=_NO_TOOLS)
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
        self._refuse_keys(event)
        ACTIONS[event.kind].act(self, event)

    def _refuse_keys(self, event: Event) -> None:
        """Refuse what holds a key: it would be shown, and saved with the notebook."""
        said = str(event)
        if ACTIONS[event.kind].needs and self._session.key_hider()(said) != said:
            raise ParameterError(_HAS_KEY, param="panel")

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
        if isinstance(self._worker, Worker):
            self._worker.decide(event)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the browser."""
        self._comm.send(message)

    def switch(self, conversation: Conversation, *, notice: str = "") -> None:
        """Show another conversation; the settings stay."""
        with self._lock:
            if self.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError(BUSY, param="panel")
            self._unlisten()
            self.conversation = conversation
            self._unlisten = conversation.on_change(self._on_change)
            self.change(notice=notice, is_problem=False)
        self.show(is_whole=True)

    # Replies

    def ask(
        self,
        text: str | None,
        *,
        turn: str | None = None,
        attached: Sequence[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Ask a new turn, or a turn again: see `Controls`."""
        live = Live(turn=turn or "new", prompt=text)
        given: dict[str, Any] = {}
        if text is not None:
            items = self._items(text, turn, attached, kept)
            live = replace(live, attached=tuple(map(draw_item, items)))
            if items:
                text, given["attached"] = add_items(text, items)
        if self.state.comparing.by:
            self._ask_compared(text, turn, live, given)
            return
        given |= self._request_settings(self.state.settings)
        step = self.conversation.next_turn(text, turn=turn, **given)
        live = replace(live, model=step.request.model)
        self._begin(self._work_on(step, live, self), step)

    def _items(
        self,
        typed: str,
        turn: str | None,
        attached: Sequence[str],
        kept: Collection[str],
    ) -> list[Item]:
        if not (typed.strip() and (attached or kept)):
            return []
        before = self.conversation.history.turn(turn).version.items if turn else ()
        stay = [each for each in before if each.name in kept]
        hide = self._session.key_hider()
        return read_items(
            typed,
            stay,
            attached,
            current_shell(),
            hide,
            budget_tokens=self.budget_tokens,
        )

    def offer(self, event: Event) -> None:
        """Say what can be attached, or how large the value of a name is."""
        shell, hide = current_shell(), self._session.key_hider()
        is_list = event.kind == "names"
        said = offers(event.text, shell, hide) if is_list else None
        self._comm.send(said or to_size(event.name, shell, hide))

    def _ask_compared(
        self, text: str | None, turn: str | None, live: Live, given: dict[str, Any]
    ) -> None:
        from .worker import SideBySide, to_group  # noqa: PLC0415 - rarely needed

        comparing, place = self.state.comparing, uuid4().hex[:12]
        group, settings = to_group(comparing, self.state.settings)
        steps = [
            self.conversation.next_turn(
                text, turn=turn, place=place, **given, **self._request_settings(each)
            )
            for each in settings
        ]
        live = replace(live, model=COMPARED)
        replies = SideBySide(
            group=group, steps=steps, live=live, view=self, work=self._work_on
        )
        self._begin(replies, steps[0])

    def go_on(self, turn: str) -> None:
        """Continue a turn's reply; the model that wrote a compared one goes on."""
        found = self.conversation.history.turn(turn)
        settings = self._request_settings(self.state.settings)
        if found.comparison:
            settings["model"] = found.version.model
        step = self.conversation.next_part(turn, **settings)
        live = Live(turn=turn, model=step.request.model)
        self._begin(self._work_on(step, live, self, found.version.text), step)

    def _request_settings(self, settings: Settings) -> dict[str, Any]:
        return {
            "model": settings.model,
            "params": {**settings.params, **self._tool_params},
            "max_tokens": settings.max_tokens,
            "origin_kind": "panel",
        }

    def _work_on(
        self, step: NextTurn, live: Live, view: ReplyView, so_far: str = ""
    ) -> Worker:
        return Worker(
            step=step,
            live=live,
            session=self._session,
            view=view,
            so_far=so_far,
            toolbox=self._toolbox,
            consent=self._consent,
            rounds=self._permit.rounds,
        )

    def _begin(self, worker: "Worker | SideBySide", step: NextTurn) -> None:
        """Ask for a reply, or for some side by side, on a new thread."""
        with self._lock:
            if self.state.phase is not Phase.IDLE:  # a second view was quicker
                raise ParameterError(BUSY, param="panel")
            self._worker = worker
            note = step.fitted.note.capitalize()
            self.change(
                phase=Phase.BUSY, live=worker.live, notice=note, is_problem=False
            )
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
        if isinstance(worker, Worker):
            return worker.ask(proposal)
        return Decision(verdict="deny")

    def _work(self, worker: "Worker | SideBySide", step: NextTurn) -> None:
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
                self.conversation.record(
                    step, *end.completions, comparison=end.comparison
                )
                if self.conversation.history.find(step.origin.turn_id or "") is None:
                    end = replace(end, problem=_CLEARED)
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
            models=self._models(),
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
            budget_tokens=self.budget_tokens - estimate_prompt_tokens((), tools).best,
        )
        used = estimate_prompt_tokens(fitted.messages, tools)
        return draw_meter(used, budget_tokens=self.budget_tokens, note=fitted.note)

    @property
    def model(self) -> str:
        """The model of the next message."""
        return self.state.settings.model or self._session.settings.model

    @property
    def budget_tokens(self) -> int:
        """The tokens that prompt and reply of the next message share."""
        return self._session.context_of(self.model)

    def _models(self) -> tuple[str, ...]:
        return tuple(each.id for each in self._session.models())


_STATIC = Path(__file__).parent / "static"
_SCRIPTS = (
    *("html", "line", "attach", "turn", "compare"),
    *("settings", "conversations", "panel"),
)


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

"""The actions that the browser can ask a panel for: one table, a row for each button.

To add a button, add a row to `ACTIONS` here and, in `static/buttons.js`, a row with its
label, icon and key; the type of its message goes to `static/messages.js`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.history import History, Turn
from svc_notebook.errors import ParameterError, SvcError

from . import conversations_dialog
from .comm import BrowserMessage, read_message
from .controller import BUSY, Controller
from .live_reply import ANSWERED
from .view import PanelContext, Phase

_ALWAYS = frozenset(Phase)
_IDLE = frozenset({Phase.IDLE})
GONE = "This turn no longer exists."
_HAS_KEY = (
    "There is the API key in this text, setting or name. Nothing was sent or kept. "
    "Remove the key and try again."
)
Act = Callable[[Controller, BrowserMessage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action that the browser can ask for."""

    act: Act
    needs: tuple[str, ...] = ()  # fields that the message must have
    phases: frozenset[Phase] = _IDLE  # when it is allowed
    # Whether it makes sense: called with the turn, or for an action on the whole panel
    # with the history and which of undo and redo are possible.
    applies: Callable[..., object] = lambda *_: True
    refusal: str = BUSY
    is_offered: bool = True  # whether the view lists it

    @property
    def is_on_turn(self) -> bool:
        """Whether it is an action on one turn."""
        return "turn" in self.needs


def _choose(conversation: Conversation, message: BrowserMessage) -> None:
    """Choose a version by its place, as the arrows count them."""
    places = conversation.history.turn(message.turn).places
    number = message.number
    is_there = 0 < number <= len(places)
    conversation.choose(message.turn, places[number - 1] + 1 if is_there else number)


def _edit(change: Callable[[Conversation, BrowserMessage], object]) -> Act:
    """Return an action that changes the conversation."""
    return lambda panel, message: panel.edit(lambda plan: change(plan, message))


def _dismiss(panel: Controller, _: BrowserMessage) -> None:
    panel.dismiss()
    panel.view.show()


_ON_TURN = ("turn",)
ACTIONS: Mapping[str, Action] = {
    "hello": Action(act=Controller.greet, phases=_ALWAYS, is_offered=False),
    "send": Action(
        act=lambda panel, message: panel.replies.ask(
            message.text, attached=message.attached
        ),
        needs=("text",),
    ),
    "names": Action(
        act=Controller.list_names, needs=("text",), phases=_ALWAYS, is_offered=False
    ),
    "size": Action(
        act=Controller.measure, needs=("name",), phases=_ALWAYS, is_offered=False
    ),
    "stop": Action(
        act=lambda panel, _: panel.replies.stop(),
        phases=_ALWAYS - _IDLE,
        refusal="There is nothing to stop.",
    ),
    "decide": Action(
        act=lambda panel, message: panel.replies.decide(message),
        needs=("id", "verdict"),
        phases=frozenset({Phase.ASKING}),
        refusal=ANSWERED,
    ),
    "set": Action(act=Controller.set_value, needs=("name",), phases=_ALWAYS),
    "compare": Action(
        act=Controller.compare, needs=("name",), phases=_ALWAYS, is_offered=False
    ),
    "dismiss": Action(act=_dismiss, phases=_ALWAYS, is_offered=False),
    "enter": Action(act=Controller.set_send_key, needs=("on",), phases=_ALWAYS),
    "undo": Action(
        act=_edit(lambda plan, _: plan.undo()),
        applies=lambda _, steps: "undo" in steps,
        refusal="There is nothing to undo.",
    ),
    "redo": Action(
        act=_edit(lambda plan, _: plan.redo()),
        applies=lambda _, steps: "redo" in steps,
        refusal="There is nothing to redo.",
    ),
    "clear": Action(
        act=_edit(lambda plan, _: plan.reset()),
        applies=lambda history, _: history.turns,
        refusal="There are no turns to clear.",
    ),
    "find": Action(
        act=conversations_dialog.find,
        needs=("text",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "open": Action(
        act=conversations_dialog.open_saved, needs=("name",), is_offered=False
    ),
    "new": Action(act=conversations_dialog.begin, is_offered=False),
    "rename": Action(
        act=conversations_dialog.rename, needs=("name",), is_offered=False
    ),
    "export": Action(
        act=conversations_dialog.export,
        needs=("name", "id"),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "continue": Action(
        act=lambda panel, message: panel.replies.go_on(message.turn),
        needs=_ON_TURN,
        applies=lambda turn: turn.version.can_go_on and not turn.is_undecided,
        refusal="This reply is complete, or none is picked; only a cut or interrupted "
        "one can go on.",
    ),
    "regenerate": Action(
        act=lambda panel, message: panel.replies.ask(None, turn=message.turn),
        needs=_ON_TURN,
    ),
    "edit": Action(
        act=lambda panel, message: panel.replies.ask(
            message.text,
            turn=message.turn,
            attached=message.attached,
            kept=message.kept,
        ),
        needs=("turn", "text"),
    ),
    "delete": Action(
        act=_edit(lambda plan, message: plan.delete(message.turn)), needs=_ON_TURN
    ),
    "pin": Action(
        act=_edit(lambda plan, message: plan.toggle_pin(message.turn)), needs=_ON_TURN
    ),
    "hide": Action(
        act=_edit(lambda plan, message: plan.toggle_hidden(message.turn)),
        needs=_ON_TURN,
    ),
    "pick": Action(
        act=_edit(lambda plan, message: plan.pick(message.turn, message.number + 1)),
        needs=("turn", "choice"),
        applies=lambda turn: turn.version.choices,
        refusal="There is only one choice.",
    ),
    "prefer": Action(
        act=_edit(lambda plan, message: plan.prefer(message.turn, message.number)),
        needs=("turn", "version"),
        applies=lambda turn: turn.comparison,
        refusal="There is nothing to pick from.",
    ),
    "choose": Action(
        act=_edit(_choose),
        needs=("turn", "version"),
        applies=lambda turn: len(turn.places) > 1,
        refusal="There is only one version.",
    ),
}
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
        if action.is_on_turn and phase in action.phases and action.applies(turn)
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


def perform(panel: Controller, content: object) -> None:
    """Do what a message from the browser asks for; raises nothing."""
    comm = panel.context.comm
    try:
        message = read_message(content, FIELDS, is_subshelled=comm.hear())
        _perform(panel, message)
    except SvcError as error:
        panel.view.show_problem(str(error))
    except Exception as problem:  # noqa: BLE001 - shown in the panel
        panel.view.show_failure(problem)
    # The same refusal twice leaves the view as it is; this confirms the message.
    kind = content.get("t") if isinstance(content, Mapping) else None
    comm.send({"t": "heard", "kind": kind})


def _perform(panel: Controller, message: BrowserMessage) -> None:
    context, action = panel.context, ACTIONS[message.kind]
    history, phase = context.conversation.history, context.state.phase
    reason = refusal(message, phase, history, steps=_steps(context))
    if reason is not None:
        panel.view.show_problem(reason)
        return
    # A key would be shown, and saved with the notebook.
    said = str(message)
    if action.needs and context.session.key_hider()(said) != said:
        raise ParameterError(_HAS_KEY, param="panel")
    action.act(panel, message)

"""The actions that the browser can ask a panel for: one table, a row for each button.

To add a button, add a row to `ACTIONS`; the script that draws it, `static/turn.js` or
`static/panel.js`, has its label, its icon and the type of its message.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.history import History, Turn
from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import check_text, shorten
from svc_notebook.session import Session

from .state import PanelState, Phase, Settings

_ALWAYS = frozenset(Phase)
_IDLE = frozenset({Phase.IDLE})
BUSY = "A reply is being written; stop it, or wait until it ends."
GONE = "This turn no longer exists."
ANSWERED = "This question was answered already."
VERDICTS = ("approve", "deny", "always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A message from the browser."""

    kind: str  # the name of the action
    turn: str = ""  # its id
    text: str = ""  # a prompt, a part of a name, or what conversations are searched for
    attached: tuple[str, ...] = ()  # names of what is attached to a prompt
    kept: tuple[str, ...] = ()  # of that, what stays as the turn has it
    number: int = 0  # a version from 1, a choice from 0, or the newest seq
    name: str = ""  # of a setting, of a conversation, or the kind of an export
    value: Any = None
    is_on: bool = False  # a switch; of hello, whether the page hides the transcript
    question_id: str = ""  # of a tool call to decide on, or of an export
    verdict: str = ""
    arguments: str | None = None


class Controls(Protocol):
    """The part of the controller that actions use."""

    conversation: Conversation
    session: Session

    @property
    def state(self) -> PanelState:
        """The current state of the panel."""

    @property
    def budget_tokens(self) -> int:
        """The tokens that prompt and reply of the next message share."""

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        """Change fields of the state."""

    def checked(self, settings: Settings) -> Settings:
        """Return settings, or refuse them if this panel cannot send them."""

    def compare(self, event: Event) -> None:
        """Change what is compared, or refuse it."""

    def show(self, *, is_whole: bool = False) -> None:
        """Send the view to the browser."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the browser."""

    def switch(self, conversation: Conversation, *, notice: str = "") -> None:
        """Show another conversation."""

    def greet(self, event: Event) -> None:
        """Answer a page that has opened the panel, or may have missed something."""

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

    def offer(self, event: Event) -> None:
        """Say what can be attached, or how large the value of a name is."""

    def go_on(self, turn: str) -> None:
        """Continue a turn's reply."""

    def stop(self) -> None:
        """Stop the reply that is being written."""

    def decide(self, event: Event) -> None:
        """Take the user's decision about a tool call."""


def _set(panel: Controls, event: Event) -> None:
    panel.change(notice="", is_problem=False)
    if event.name == "system":
        text = event.value if isinstance(event.value, str) else ""
        is_blank = not text.strip()
        panel.conversation.system = (
            None if is_blank else check_text(text, param="system")
        )
    else:
        settings = panel.state.settings.setting(
            event.name, event.value, most_tokens=panel.budget_tokens
        )
        panel.change(settings=panel.checked(settings))
    panel.show()


def _compare(panel: Controls, event: Event) -> None:
    panel.change(notice="", is_problem=False)
    panel.compare(event)
    panel.show()


def _choose(plan: Conversation, event: Event) -> None:
    places = plan.history.turn(event.turn).places
    number = event.number
    is_there = 0 < number <= len(places)
    plan.choose(event.turn, places[number - 1] + 1 if is_there else number)


def _dismiss(panel: Controls, _: Event) -> None:
    panel.change(notice="", is_problem=False)
    panel.show()


def _set_enter(panel: Controls, event: Event) -> None:
    panel.change(send_on_enter=event.is_on)
    panel.show()


def _edit(
    edit: Callable[[Conversation, Event], object],
) -> Callable[[Controls, Event], None]:
    """Return an action that changes the conversation."""

    def act(panel: Controls, event: Event) -> None:
        panel.change(notice="", is_problem=False)
        before = panel.conversation.history
        edit(panel.conversation, event)
        if panel.conversation.history == before:  # else the listener has shown it
            panel.show()

    return act


def _of_list(name: str) -> Callable[[Controls, Event], None]:
    """Return an action of the list of conversations, which loads when it is used."""

    def act(panel: Controls, event: Event) -> None:
        module = import_module(".open_panel", __package__)
        getattr(module, name)(panel, event)

    return act


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action that the browser can ask for."""

    act: Callable[[Controls, Event], None]
    needs: tuple[str, ...] = ()  # fields that the message must have
    phases: frozenset[Phase] = _IDLE  # when it is allowed
    # Whether it makes sense: called with the turn, or for an action on the whole panel
    # with the history and which of undo and redo are possible.
    applies: Callable[..., object] = lambda *_: True
    refusal: str = BUSY
    number: str = ""  # the name of the message's field for `Event.number`
    is_offered: bool = True  # whether the view lists it

    @property
    def is_on_turn(self) -> bool:
        """Whether it is an action on one turn."""
        return "turn" in self.needs


_ON_TURN = ("turn",)
ACTIONS: Mapping[str, Action] = {
    "hello": Action(
        act=lambda panel, event: panel.greet(event),
        phases=_ALWAYS,
        number="seq",
        is_offered=False,
    ),
    "send": Action(
        act=lambda panel, event: panel.ask(event.text, attached=event.attached),
        needs=("text",),
    ),
    "names": Action(
        act=lambda panel, event: panel.offer(event),
        needs=("text",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "size": Action(
        act=lambda panel, event: panel.offer(event),
        needs=("name",),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "stop": Action(
        act=lambda panel, _: panel.stop(),
        phases=_ALWAYS - _IDLE,
        refusal="There is nothing to stop.",
    ),
    "decide": Action(
        act=lambda panel, event: panel.decide(event),
        needs=("id", "verdict"),
        phases=frozenset({Phase.ASKING}),
        refusal=ANSWERED,
    ),
    "set": Action(act=_set, needs=("name",), phases=_ALWAYS),
    "compare": Action(act=_compare, needs=("name",), phases=_ALWAYS, is_offered=False),
    "dismiss": Action(act=_dismiss, phases=_ALWAYS, is_offered=False),
    "enter": Action(act=_set_enter, needs=("on",), phases=_ALWAYS),
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
        act=_of_list("find"), needs=("text",), phases=_ALWAYS, is_offered=False
    ),
    "open": Action(act=_of_list("open_saved"), needs=("name",), is_offered=False),
    "new": Action(act=_of_list("begin"), is_offered=False),
    "rename": Action(act=_of_list("rename"), needs=("name",), is_offered=False),
    "export": Action(
        act=_of_list("export"),
        needs=("name", "id"),
        phases=_ALWAYS,
        is_offered=False,
    ),
    "continue": Action(
        act=lambda panel, event: panel.go_on(event.turn),
        needs=_ON_TURN,
        applies=lambda turn: turn.version.can_go_on and not turn.is_undecided,
        refusal="This reply is complete, or none is picked; only a cut or interrupted "
        "one can go on.",
    ),
    "regenerate": Action(
        act=lambda panel, event: panel.ask(None, turn=event.turn), needs=_ON_TURN
    ),
    "edit": Action(
        act=lambda panel, event: panel.ask(
            event.text, turn=event.turn, attached=event.attached, kept=event.kept
        ),
        needs=("turn", "text"),
    ),
    "delete": Action(
        act=_edit(lambda plan, event: plan.delete(event.turn)), needs=_ON_TURN
    ),
    "pin": Action(
        act=_edit(lambda plan, event: plan.toggle_pin(event.turn)), needs=_ON_TURN
    ),
    "hide": Action(
        act=_edit(lambda plan, event: plan.toggle_hidden(event.turn)), needs=_ON_TURN
    ),
    "pick": Action(
        act=_edit(lambda plan, event: plan.pick(event.turn, event.number + 1)),
        needs=("turn", "number"),
        applies=lambda turn: turn.version.choices,
        refusal="There is only one choice.",
        number="choice",
    ),
    "prefer": Action(
        act=_edit(lambda plan, event: plan.prefer(event.turn, event.number)),
        needs=("turn", "number"),
        applies=lambda turn: turn.comparison,
        refusal="There is nothing to pick from.",
        number="version",
    ),
    "choose": Action(
        act=_edit(_choose),
        needs=("turn", "number"),
        applies=lambda turn: len(turn.places) > 1,
        refusal="There is only one version.",
        number="version",
    ),
}


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


def allowed_on(turn: Turn, phase: Phase) -> tuple[str, ...]:
    """Return the actions on a turn that are allowed now."""
    return tuple(
        name
        for name, action in ACTIONS.items()
        if action.is_on_turn and phase in action.phases and action.applies(turn)
    )


def refusal(
    event: Event, phase: Phase, history: History, *, steps: Collection[str]
) -> str | None:
    """Return why an action is not allowed now; None if it is.

    The browser offers only allowed actions, but its view may be out of date.
    """
    action = ACTIONS[event.kind]
    if not action.is_on_turn:
        is_allowed = phase in action.phases and action.applies(history, steps)
        return None if is_allowed else action.refusal
    index = history.find(event.turn)
    if index is None:
        return GONE
    if phase not in action.phases:
        return BUSY
    return None if action.applies(history.turns[index]) else action.refusal


def to_event(content: object) -> Event:
    """Read a message from the browser; refuse an unknown or incomplete one."""
    if not isinstance(content, Mapping):
        raise _unknown(content)
    kind = _text(content, "t")
    action = ACTIONS.get(kind)
    if action is None:
        raise _unknown(content.get("t"))
    number = content.get(action.number, 0)
    found = Event(
        kind=kind,
        turn=_text(content, "turn"),
        text=_text(content, "text"),
        attached=_texts(content, "attached"),
        kept=_texts(content, "kept"),
        number=number if type(number) is int else -1,
        name=_text(content, "name"),
        value=content.get("value"),
        is_on=content.get("on") is True,
        question_id=_text(content, "id"),
        verdict=_text(content, "verdict"),
        arguments=_text(content, "arguments") or None,
    )
    missing = [name for name in action.needs if _lacks(found, name, content)]
    if missing:
        raise ParameterError(
            f"The panel's message {kind!r} lacks {missing[0]}; reload the page.",
            param="panel",
        )
    return found


def _lacks(event: Event, name: str, content: Mapping[str, Any]) -> bool:
    if name == "number":
        return event.number < 0
    if name == "verdict":
        return event.verdict not in VERDICTS
    return name not in content


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _texts(content: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = content.get(name)
    found = value if isinstance(value, list) else ()
    return tuple(each for each in found if isinstance(each, str))


def _unknown(kind: object) -> ParameterError:
    return ParameterError(
        f"Unknown panel message {shorten(str(kind), 40)!r}; the page may be from "
        "another version of the package: reload it.",
        param="panel",
    )

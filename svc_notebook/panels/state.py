"""What a panel is and what is allowed when: a value, and the picture of it.

What it is not: it knows no widget, no thread and no clock. Rules: pure; what the
browser may ask for is decided here and nowhere else; the picture holds no key, no
header and nothing that the user has not said or been told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from svc_notebook.conversations.export import marks_of
from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.display.markup import to_text
from svc_notebook.display.reply import SHOWN_CHARS, Step, reply_html

from .messages import Event, Settings

ERROR = "Error:"
_ASKED = {True: "approved · ", False: "denied · "}


def draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    """Return a turn for the browser.

    Args:
        number: From 1.
        turn: To draw; its chosen version is shown.
        can: What is allowed on it now.
    """
    version = turn.version
    said = version.choices or (version.replies[-1],)
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": turn.prompt.content or "",
        "choices": [draw_text(each.content or "") for each in said],
        "picked": version.picked,
        "footer": version.footer,
        "badges": [*version.marks],
        "tool_runs": draw_trail(version),
        "version": turn.chosen + 1,
        "n_versions": len(turn.versions),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "marks": marks_of(turn),
        "can": list(can),
    }


def draw_text(text: str) -> dict[str, str]:
    """Return a reply's text, rendered and as its source."""
    return {"html": reply_html(text), "text": text}


def draw_trail(version: Version) -> list[dict[str, Any]]:
    """Return the tool calls of an answer, in order, with their results."""
    if version.tool_runs:
        return [draw_step(step) for step in version.tool_runs]
    results = {
        each.tool_call_id: each.content or ""
        for each in version.replies
        if each.role == "tool"
    }
    return [
        draw_call(call.function.name, call.function.arguments, results.get(call.id, ""))
        for each in version.replies
        for call in each.tool_calls
    ]


def draw_call(name: str, arguments: str, result: str | None) -> dict[str, Any]:
    """Return one call of a tool.

    Args:
        name: Of the tool.
        arguments: As the model wrote them.
        result: As sent back to the model; None while it runs.
    """
    shown = "<p>running …</p>" if result is None else _pre("result", result)
    return {
        "name": name,
        "html": _pre("arguments", arguments) + shown,
        "is_error": bool(result and result.startswith(ERROR)),
    }


def draw_step(step: Step) -> dict[str, Any]:
    """Return one call of a tool that was answered, with what only the user sees."""
    html = _pre("arguments", step.arguments) + _pre("result", step.result)
    if step.traceback:
        html += _pre("traceback (the model has not seen it)", step.traceback)
    asked = "" if step.is_approved is None else _ASKED[step.is_approved]
    html += f"<p>{asked}{step.seconds_s:.1f} s</p>"
    return {"name": step.name, "html": html, "is_error": step.error is not None}


def _pre(title: str, text: str) -> str:
    shown = text
    if len(text) > SHOWN_CHARS:
        shown = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return f"<p>{title}</p><pre>{to_text(shown)}</pre>"


Turns = Mapping[str, dict[str, Any]]


class Phase(StrEnum):
    """What a panel is doing."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The reply under way.

    Attributes:
        turn: Id of a turn that is there, or `new`.
        prompt: What was said; None where the turn's own prompt is answered.
        choices: What was drawn so far, one a choice.
        status: What is waited for.
        tool_runs: Calls of tools so far.
    """

    turn: str
    prompt: str | None = None
    choices: tuple[Mapping[str, str], ...] = ()
    status: str = ""
    tool_runs: tuple[Mapping[str, Any], ...] = ()

    def drawn(self) -> dict[str, Any]:
        """Return it for the browser."""
        return {
            "turn": self.turn,
            "prompt": self.prompt,
            "choices": list(self.choices),
            "status": self.status,
            "tool_runs": list(self.tool_runs),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """One panel.

    Attributes:
        phase: What it is doing.
        settings: How it asks.
        live: The reply under way.
        notice: What the user must know: left out, refused, failed.
        is_problem: Whether the notice says that something was refused or failed.
        question: A tool that wants consent.
        send_on_enter: Whether Enter sends.
        is_subshelled: Whether it can be heard while a cell runs.
        main_writes: How often it was redrawn where the way to the browser is lost.
    """

    phase: Phase = Phase.IDLE
    settings: Settings = field(default_factory=Settings)
    live: Live | None = None
    notice: str = ""
    is_problem: bool = False
    question: Mapping[str, Any] | None = None
    send_on_enter: bool = True
    is_subshelled: bool = False
    main_writes: int = 0


_ANYTIME = frozenset({"hello", "enter", "set"})
_ON_TURN = frozenset(
    {"regenerate", "edit", "continue", "choose", "pick", "delete", "pin", "hide"}
)
_REASONS = {
    "send": "A reply is under way; stop it first.",
    "stop": "There is nothing to stop.",
    "undo": "There is nothing to undo.",
    "clear": "There are no turns to clear.",
    "decide": "This question was answered already.",
    "continue": "This reply is whole; only one that was cut or interrupted goes on.",
    "pick": "There is one choice only.",
    "choose": "There is one version only.",
}
_BUSY = "A reply is under way; stop it, or wait for its end."
GONE = "This turn is no longer there."


def allowed(phase: Phase, *, n_turns: int, can_undo: bool) -> tuple[str, ...]:
    """Say what may be asked of the whole panel now."""
    if phase is Phase.ASKING:
        return ("stop", "decide", "set", "enter")
    if phase is not Phase.IDLE:
        return ("stop", "set", "enter")
    found = ["send", "set", "enter"]
    if can_undo:
        found.append("undo")
    if n_turns:
        found.append("clear")
    return tuple(found)


def allowed_on(turn: Turn, phase: Phase) -> tuple[str, ...]:
    """Say what may be asked of a turn now."""
    if phase is not Phase.IDLE:
        return ()
    found = ["regenerate", "edit", "delete", "pin", "hide"]
    if turn.version.can_go_on:
        found.insert(0, "continue")
    if turn.version.choices:
        found.append("pick")
    if len(turn.versions) > 1:
        found.append("choose")
    return tuple(found)


def refusal(
    event: Event, phase: Phase, history: History, *, can_undo: bool
) -> str | None:
    """Say why something may not be asked for now; None if it may.

    The browser offers only what is allowed; but it may be a moment behind.
    """
    if event.kind in _ANYTIME:
        return None
    if event.kind not in _ON_TURN:
        can = allowed(phase, n_turns=len(history.turns), can_undo=can_undo)
        return None if event.kind in can else _REASONS[event.kind]
    place = history.place_of(event.turn)
    if place is None:
        return GONE
    if event.kind in allowed_on(history.turns[place], phase):
        return None
    return _BUSY if phase is not Phase.IDLE else _REASONS[event.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What the next request would carry.

    Attributes:
        used_tokens: Estimated, without the prompt that is being written.
        budget_tokens: Prompt and reply share them (doc: Limits).
        n_left_out: Turns that would not fit.
        source: Where the numbers come from.
    """

    used_tokens: int
    budget_tokens: int
    n_left_out: int = 0
    source: str = "estimated"

    def drawn(self) -> dict[str, Any]:
        """Return it for the browser."""
        text = (
            f"about {self.used_tokens} of {self.budget_tokens} tokens ({self.source})"
        )
        if self.n_left_out:
            turns = "turn" if self.n_left_out == 1 else f"{self.n_left_out} turns"
            text += f"; the oldest {turns} would be left out"
        return {
            "used_tokens": self.used_tokens,
            "budget_tokens": self.budget_tokens,
            "text": text,
        }


def to_view(  # noqa: PLR0913 - what the picture is made of
    state: PanelState,
    *,
    name: str,
    history: History,
    can_undo: bool,
    meter: Meter,
    model: str,
    fields: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the whole picture.

    What may be asked of a turn holds while nothing is under way, so that a turn
    looks the same before and after.

    Args:
        state: The panel.
        name: Of the conversation.
        history: Its turns.
        can_undo: Whether a change can be undone.
        meter: What the next request would carry.
        model: The session's model.
        fields: What can be set.
    """
    phase = state.phase
    return {
        "name": name,
        "label": f"Conversation {name}",
        "state": str(phase),
        "is_subshelled": state.is_subshelled,
        "main_writes": state.main_writes,
        "turns": [
            draw_turn(number, turn, can=allowed_on(turn, Phase.IDLE))
            for number, turn in enumerate(history.turns, start=1)
        ],
        "live": state.live.drawn() if state.live else None,
        "can": list(allowed(phase, n_turns=len(history.turns), can_undo=can_undo)),
        "meter": meter.drawn(),
        "notice": state.notice,
        "is_problem": state.is_problem and bool(state.notice),
        "settings": state.settings.values(model=model, system=history.system),
        "fields": fields,
        "send_on_enter": state.send_on_enter,
        "ask": dict(state.question) if state.question else None,
    }


def news(view: Mapping[str, Any], known: Turns | None) -> tuple[dict[str, Any], Turns]:
    """Leave out the turns that a page has, so that a long conversation costs little.

    Args:
        view: The whole picture.
        known: The turns as drawn before, by id; None where all are sent beside it.

    Returns:
        The picture with the ids of its turns as `order` and those that are new or
        have changed as `turns`; and all of them by id.
    """
    drawn = {turn["id"]: turn for turn in view["turns"]}
    known = drawn if known is None else known
    changed = [turn for turn in view["turns"] if known.get(turn["id"]) != turn]
    return {**view, "order": list(drawn), "turns": changed}, drawn

"""What a panel is: its settings, its state, and the picture that the browser draws.

All of it are plain values: no widget, no thread and no clock. The picture is saved
with notebooks, so it holds no key and no header.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from svc_notebook.conversations.export import marks_of
from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.display.markup import to_text
from svc_notebook.display.tool_calls import SHOWN_CHARS, Step
from svc_notebook.display.transcript import reply_html
from svc_notebook.service.catalogue import MODELS
from svc_notebook.service.params import PARAMS, Param, check, unknown_param
from svc_notebook.service.request import check_model
from svc_notebook.tokens import MaxTokens

_LAST = ("stop", "n")
OFFERED = (
    *(each.name for each in PARAMS if each.is_offered and each.name not in _LAST),
    *_LAST,
)
_WORDS = ("fit", "service")
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_BY_NAME = {param.name: param for param in PARAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a panel asks.

    Attributes:
        model: Id of the model; the session's model if None.
        max_tokens: A number, `fit`, or `service` for none.
        params: The other parameters that are sent.
    """

    model: str | None = None
    max_tokens: MaxTokens = "fit"
    params: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, name: str, value: object) -> "Settings":
        """Return the settings with one changed.

        Args:
            name: `model`, or a parameter by the document's name.
            value: As typed, or as a number; None or "" to send none.

        Raises:
            ParameterError: It is not allowed; the message is the table's own.
        """
        is_empty = value is None or (isinstance(value, str) and not value.strip())
        if name == "model":
            return replace(self, model=None if is_empty else check_model(value))
        if name == "max_tokens":
            return replace(self, max_tokens="fit" if is_empty else _size(value))
        rest = {key: each for key, each in self.params.items() if key != name}
        if name not in OFFERED:
            raise unknown_param(name)
        if is_empty:
            return replace(self, params=rest)
        return replace(self, params={**rest, name: _checked(name, value)})

    def values(self, *, model: str, system: str | None) -> dict[str, Any]:
        """Return every setting as the browser shows it; None is not sent.

        Args:
            model: The session's model.
            system: The conversation's system message.
        """
        shown = {name: self.params.get(name) for name in OFFERED}
        shown["stop"] = _stops_text(shown["stop"])
        return {
            "model": self.model or model,
            "system": system or "",
            **shown,
            "max_tokens": self.max_tokens,
        }


def fields(*, model: str) -> list[dict[str, Any]]:
    """Describe the settings for the browser.

    Args:
        model: The session's model, which applies where none is chosen.
    """
    return [
        _field(
            "model",
            "choice",
            default=model,
            options=[each.id for each in MODELS],
            doc="an id of the list, or another as typed",
        ),
        _field("system", "longtext", default="", doc="stands before every request"),
        *(_param_field(_BY_NAME[name]) for name in OFFERED),
    ]


def _param_field(param: Param) -> dict[str, Any]:
    if param.kind == "stops":
        doc = f"{param.doc}; one a line, \\n is a line end"
        return _field("stop", "longtext", default="", doc=doc)
    is_whole = param.kind == "integer"
    default = "" if param.default is None else f"{param.default:g}"
    is_size = param.name == "max_tokens"
    words = ", fit (what is left) or service (none is sent)" if is_size else ""
    bounds = _bounds(param)
    return _field(
        param.name,
        "integer" if is_whole else "number",
        default="fit" if is_size else default,
        minimum=param.minimum,
        maximum=param.maximum,
        step=1 if is_whole else _STEPS.get(param.name, 0.1),
        options=list(_WORDS) if is_size else None,
        doc=f"{bounds}{words}; {param.doc}" if bounds else param.doc,
    )


def _bounds(param: Param) -> str:
    if param.minimum is None:
        return ""
    if param.maximum is None:
        return f"at least {param.minimum:g}"
    return f"{param.minimum:g} to {param.maximum:g}"


def _field(  # noqa: PLR0913 - one argument a key
    name: str,
    kind: str,
    *,
    default: str,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    step: float | None = None,
    options: list[str] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "minimum": minimum,
        "maximum": maximum,
        "step": step,
        "default": default,
        "options": options,
        "label": name.replace("_", " "),
        "help": doc,
    }


def _size(value: object) -> MaxTokens:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word == "fit":
        return "fit"
    return "service" if word == "service" else _checked("max_tokens", value)


def _checked(name: str, value: object) -> Any:  # noqa: ANN401 - of the parameter's kind
    if isinstance(value, str):
        return check(name, _typed(name, value))
    return check(name, value)


def _typed(name: str, text: str) -> object:
    """Read what was typed into a field; what cannot be read is left to the check."""
    param = _BY_NAME.get(name)
    if param is None or param.kind == "string":
        return text
    if param.kind == "stops":
        return tuple(_unescaped(line) for line in text.splitlines() if line)
    try:
        return int(text) if param.kind == "integer" else float(text)
    except ValueError:
        return text


def _unescaped(line: str) -> str:
    found, rest = "", line
    while rest:
        pair = rest[:2]
        taken = _ESCAPES.get(pair)
        found += rest[0] if taken is None else taken
        rest = rest[1 if taken is None else 2 :]
    return found


def _stops_text(stops: object) -> str | None:
    if stops is None:
        return None
    texts = [stops] if isinstance(stops, str) else list(stops)  # type: ignore[call-overload]  # checked
    for plain, typed in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t")):
        texts = [text.replace(plain, typed) for text in texts]
    return "\n".join(texts)


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
    can: tuple[str, ...],
    can_on: Callable[[Turn], tuple[str, ...]],
    meter: Meter,
    model: str,
) -> dict[str, Any]:
    """Return the whole picture.

    What is allowed on a turn is that of an idle panel, so that a turn looks the same
    before and after a reply.

    Args:
        state: The panel.
        name: Of the conversation.
        history: Its turns.
        can: What is allowed on the whole panel now.
        can_on: What is allowed on a turn while no reply is being written.
        meter: What the next request would carry.
        model: The session's model.
    """
    return {
        "name": name,
        "label": f"Conversation {name}",
        "state": str(state.phase),
        "is_subshelled": state.is_subshelled,
        "main_writes": state.main_writes,
        "turns": [
            draw_turn(number, turn, can=can_on(turn))
            for number, turn in enumerate(history.turns, start=1)
        ],
        "live": state.live.drawn() if state.live else None,
        "can": list(can),
        "meter": meter.drawn(),
        "notice": state.notice,
        "is_problem": state.is_problem and bool(state.notice),
        "settings": state.settings.values(model=model, system=history.system),
        "fields": fields(model=model),
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

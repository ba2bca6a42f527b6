"""A panel's settings and state, and the view that the browser draws.

Plain values and functions. The view is saved with notebooks, so it holds no key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.display.markup import to_text
from svc_notebook.display.reply import SHOWN_CHARS, Step, reply_html
from svc_notebook.max_tokens import WORDS, check_max_tokens
from svc_notebook.service.catalogue import BUDGET_TOKENS, MODELS
from svc_notebook.service.checks import range_text
from svc_notebook.service.params import PARAMS, Param, check, unknown_param
from svc_notebook.service.request import check_model
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import MaxTokens, Tokens

_LAST = ("stop", "n")
OFFERED = (
    *(each.name for each in PARAMS if each.is_offered and each.name not in _LAST),
    *_LAST,
)
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}
_BY_NAME = {param.name: param for param in PARAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The model and parameters of a panel's requests.

    Attributes:
        model: Id of the model; the session's model if None.
        max_tokens: A number, `fit`, or `service` to send none.
        params: The other parameters.
    """

    model: str | None = None
    max_tokens: MaxTokens = "fit"
    params: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, name: str, value: object) -> "Settings":
        """Return the settings with one changed.

        Args:
            name: `model`, or a parameter by the document's name.
            value: As typed, or a number; None or "" to send none.

        Raises:
            ParameterError: It is not allowed.
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
        """Return all settings for the browser; those that are not sent are None."""
        shown = {name: self.params.get(name) for name in OFFERED}
        shown["stop"] = _stops_text(shown["stop"])
        return {
            "model": self.model or model,
            "system": system or "",
            **shown,
            "max_tokens": self.max_tokens,
        }


@cache
def fields(*, model: str) -> list[dict[str, Any]]:
    """Describe the fields of the settings for the browser; every view has them."""
    return [
        _field(
            "model",
            "choice",
            default=model,
            options=[each.id for each in MODELS],
            doc="choose a model or type an id",
        ),
        _field("system", "longtext", default="", doc="sent first in every request"),
        *(_param_field(_BY_NAME[name]) for name in OFFERED),
    ]


def _param_field(param: Param) -> dict[str, Any]:
    if param.kind == "stops":
        doc = f"{param.doc}; one per line, \\n for a line break"
        return _field("stop", "longtext", default="", doc=doc)
    is_whole = param.kind == "integer"
    default = "" if param.default is None else f"{param.default:g}"
    is_size = param.name == "max_tokens"
    words = ", fit (what is left) or service (not sent)" if is_size else ""
    kind = "an integer" if is_whole else "a number"
    allowed = range_text(kind, param.minimum, param.maximum)
    return _field(
        param.name,
        "integer" if is_whole else "number",
        default="fit" if is_size else default,
        minimum=param.minimum,
        maximum=param.maximum,
        step=1 if is_whole else _STEPS.get(param.name, 0.1),
        options=list(WORDS) if is_size else None,
        doc=f"{allowed}{words}; {param.doc}",
    )


def _field(
    name: str,
    kind: str,
    *,
    default: str,
    doc: str,
    **more: Any,  # noqa: ANN401 - minimum, maximum, step and options
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "default": default,
        "label": name.replace("_", " "),
        "help": doc,
        **dict.fromkeys(("minimum", "maximum", "step", "options")),
        **more,
    }


def _size(value: object) -> MaxTokens:
    if isinstance(value, str):
        value = _typed("max_tokens", value.strip().lower())
    return check_max_tokens(value)


def _checked(name: str, value: object) -> Any:  # noqa: ANN401 - of the parameter's kind
    return check(name, _typed(name, value) if isinstance(value, str) else value)


def _typed(name: str, text: str) -> object:
    """Read a value as typed; the check refuses what cannot be read."""
    param = _BY_NAME.get(name)
    if param is None or param.kind == "string":
        return text
    if param.kind == "stops":
        return tuple(decode_escapes(line) for line in text.splitlines() if line)
    try:
        return int(text) if param.kind == "integer" else float(text)
    except ValueError:
        return text


def _stops_text(stops: object) -> str | None:
    if stops is None:
        return None
    texts = [stops] if isinstance(stops, str) else list(stops)  # type: ignore[call-overload]  # checked
    for plain, typed in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        texts = [text.replace(plain, typed) for text in texts]
    return "\n".join(texts)


Turns = Mapping[str, dict[str, Any]]
_CONSENT = {None: "", True: "approved · ", False: "denied · "}


def _draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    version = turn.version
    choices = [each.content or "" for each in version.choices] or [version.text]
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": turn.prompt.content or "",
        "choices": [{"html": reply_html(each), "text": each} for each in choices],
        "picked": version.picked,
        "footer": version.footer,
        "badges": [*version.marks],
        "tool_runs": _draw_calls(version),
        "version": turn.chosen + 1,
        "n_versions": len(turn.versions),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "marks": turn.marks,
        "can": list(can),
    }


def _draw_calls(version: Version) -> list[dict[str, Any]]:
    if version.tool_runs:
        return [draw_run(run) for run in version.tool_runs]
    return [
        draw_call(call.function.name, call.function.arguments, result)
        for call, result in version.calls
    ]


def draw_call(name: str, arguments: str, result: str | None) -> dict[str, Any]:
    """Return a tool call for the browser; its result is None while the tool runs."""
    shown = "<p>running …</p>" if result is None else _pre("result", result)
    return {
        "name": name,
        "html": _pre("arguments", arguments) + shown,
        "is_error": bool(result and result.startswith("Error:")),
    }


def draw_run(run: Step) -> dict[str, Any]:
    """Return a tool call that was run, with its traceback, consent and time."""
    html = _pre("arguments", run.arguments) + _pre("result", run.result)
    if run.traceback:
        html += _pre("traceback (the model has not seen it)", run.traceback)
    html += f"<p>{_CONSENT[run.is_approved]}{run.seconds_s:.1f} s</p>"
    return {"name": run.name, "html": html, "is_error": run.error is not None}


def _pre(title: str, text: str) -> str:
    shown = text
    if len(text) > SHOWN_CHARS:
        shown = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return f"<p>{title}</p><pre>{to_text(shown)}</pre>"


class Phase(StrEnum):
    """What a panel is doing."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The reply that is being written.

    Attributes:
        turn: Id of a turn, or `new`.
        prompt: The new prompt; None if the turn's prompt is answered.
        choices: The HTML of each choice so far.
        status: What the reply is waiting for.
        tool_runs: The tool calls so far.
    """

    turn: str
    prompt: str | None = None
    choices: tuple[Mapping[str, str], ...] = ()
    status: str = ""
    tool_runs: tuple[Mapping[str, Any], ...] = ()

    def drawn(self) -> dict[str, Any]:
        """Return the values for the browser."""
        return {
            "turn": self.turn,
            "prompt": self.prompt,
            "choices": list(self.choices),
            "status": self.status,
            "tool_runs": list(self.tool_runs),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """The state of a panel.

    Attributes:
        phase: What it is doing.
        settings: The settings of its requests.
        live: The reply that is being written.
        notice: A message to the user: turns left out, refused, failed.
        is_problem: Whether the notice is an error.
        question: A tool call that needs consent.
        send_on_enter: Whether Enter sends.
        is_subshelled: Whether it gets messages while a cell runs.
        main_writes: How often it was shown while `Comm.is_lost`.
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


def draw_meter(used: Tokens, *, note: str) -> dict[str, Any]:
    """Return the size of the next request, without its prompt, for the browser."""
    text = f"about {used.best} of {BUDGET_TOKENS} tokens (estimated: {used})"
    if note:
        text += f"; {note}"
    return {"used_tokens": used.best, "budget_tokens": BUDGET_TOKENS, "text": text}


def to_view(
    state: PanelState,
    history: History,
    *,
    can: tuple[str, ...],
    can_on: Callable[[Turn], tuple[str, ...]],
    meter: Mapping[str, Any],
    model: str,
) -> dict[str, Any]:
    """Return everything that the browser shows.

    Args:
        state: The panel's state.
        history: The conversation's turns.
        can: The actions on the whole panel that are allowed now.
        can_on: Returns the actions that are allowed on a turn in an idle panel, so
            that a turn does not change while a reply is written.
        meter: The size of the next request, as `draw_meter` returns it.
        model: The session's model.
    """
    return {
        "name": history.name,
        "label": f"Conversation {history.name}",
        "state": str(state.phase),
        "is_subshelled": state.is_subshelled,
        "main_writes": state.main_writes,
        "turns": [
            _draw_turn(number, turn, can=can_on(turn))
            for number, turn in enumerate(history.turns, start=1)
        ],
        "live": state.live.drawn() if state.live else None,
        "can": list(can),
        "meter": meter,
        "notice": state.notice,
        "is_problem": state.is_problem and bool(state.notice),
        "settings": state.settings.values(model=model, system=history.system),
        "fields": fields(model=model),
        "send_on_enter": state.send_on_enter,
        "ask": dict(state.question) if state.question else None,
    }


def view_update(
    view: Mapping[str, Any], known: Turns | None
) -> tuple[dict[str, Any], Turns]:
    """Leave out the turns that the browser has, so that a long chat costs little.

    Args:
        view: As `to_view` returns it.
        known: The turns that the browser has, by id; None if it gets all of them.

    Returns:
        The view with the ids of all turns as `order`, and in `turns` only those that
        have changed; and all turns by id.
    """
    drawn = {turn["id"]: turn for turn in view["turns"]}
    known = drawn if known is None else known
    changed = [turn for turn in view["turns"] if known.get(turn["id"]) != turn]
    return {**view, "order": list(drawn), "turns": changed}, drawn

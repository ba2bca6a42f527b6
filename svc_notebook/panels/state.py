"""A panel's settings and state, and the view that the browser draws.

Plain values and functions. The view is saved with notebooks, so it holds no key.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import zip_longest
from typing import Any

from msgspec import to_builtins

from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.display.reply import (
    CALL_CHARS,
    CONSENT,
    Step,
    call_line,
    reply_html,
    result_line,
    run_parts,
    shortened_html,
)
from svc_notebook.service.catalogue import BUDGET_TOKENS, MODELS
from svc_notebook.service.checks import range_text, shorten
from svc_notebook.service.params import PARAMS, Param, check, unknown_param
from svc_notebook.service.request import check_model
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import WORDS, MaxTokens, Tokens, check_max_tokens
from svc_notebook.tools.permissions import to_arguments

_LAST = ("stop", "n")
OFFERED = (
    *(each.name for each in PARAMS if each.is_offered and each.name not in _LAST),
    *_LAST,
)
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}
_BY_NAME = {param.name: param for param in PARAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The model and parameters of a panel's requests."""

    model: str | None = None  # the session's model if None
    max_tokens: MaxTokens = "fit"  # a number, `fit`, or `service` to send none
    params: Mapping[str, Any] = field(default_factory=dict)  # the other parameters

    def setting(self, name: str, value: object) -> "Settings":
        """Return the settings with one changed.

        `value` is as typed, or a number; None or "" sends none.
        """
        is_empty = value is None or (isinstance(value, str) and not value.strip())
        if name == "model":
            return replace(self, model=None if is_empty else check_model(value))
        if name == "max_tokens":
            size = value.strip().lower() if isinstance(value, str) else value
            tokens = "fit" if is_empty else check_max_tokens(_typed(name, size))
            return replace(self, max_tokens=tokens)
        if name not in OFFERED:
            raise unknown_param(name)
        params = {key: each for key, each in self.params.items() if key != name}
        if not is_empty:
            params[name] = check(name, _typed(name, value))
        return replace(self, params=params)

    def reopened(self, before: "Settings", now: "Settings") -> "Settings":
        """Return these settings, with what code asks for now and did not before."""
        settings = self
        for name in ("model", "max_tokens", *OFFERED):
            if (value := now.value(name)) != before.value(name):
                settings = settings.setting(name, value)
        return settings

    def value(self, name: str) -> Any:  # noqa: ANN401 - of any setting
        """Return one setting."""
        if name in {"model", "max_tokens"}:
            return getattr(self, name)
        return self.params.get(name)

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
        _field("system", "longtext", default="", doc="sent first in every request")
        | {"label": "system prompt"},
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


def _typed(name: str, text: object) -> object:
    """Read a value as typed; the check refuses what cannot be read."""
    param = _BY_NAME[name]
    if not isinstance(text, str) or param.kind == "string":
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


def draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    """Return a turn for the browser; `can` are the actions on it in an idle panel."""
    version = turn.version
    choices = [each.content or "" for each in version.choices] or [version.text]
    model, _, footer = version.footer.partition(" · ")
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": turn.prompt.content or "",
        "choices": [{"html": reply_html(each), "text": each} for each in choices],
        "model": model,
        "picked": version.picked,
        "ended": _ended(version),
        "footer": footer,
        "badges": [*version.marks],
        "tool_runs": _draw_calls(version),
        "version": turn.chosen + 1,
        "n_versions": len(turn.versions),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "can": list(can),
    }


def _ended(version: Version) -> str:
    if version.is_cut:
        return f"Cut at {version.limit}" if version.limit else "Cut"
    return "Interrupted"


def _draw_calls(version: Version) -> list[dict[str, Any]]:
    if version.tool_runs:
        return [draw_run(run) for run in version.tool_runs]
    return [
        draw_call(call.function.name, call.function.arguments, result)
        for call, result in version.calls
    ]


def draw_call(name: str, arguments: str, result: str | None) -> dict[str, Any]:
    """Return a tool call for the browser; its result is None while the tool runs."""
    shown = [("arguments", shortened_html(arguments))]
    shown += [] if result is None else [("result", shortened_html(result))]
    html = _parts(shown) + ("<p>running …</p>" if result is None else "")
    is_error = bool(result and result.startswith("Error:"))
    end = "running …" if result is None else shorten(result, CALL_CHARS)
    line = f"{_call_line(name, arguments)} → {end}"
    return {"name": name, "line": line, "html": html, "is_error": is_error}


def draw_run(run: Step) -> dict[str, Any]:
    """Return a tool call that was run, with its traceback, consent and time."""
    took = f"<p>{CONSENT[run.is_approved]}{run.seconds_s:.1f} s</p>"
    html = _parts(run_parts(run)) + took
    is_error = run.error is not None
    line = f"{_call_line(run.name, run.arguments)} → {result_line(run)}"
    return {"name": run.name, "line": line, "html": html, "is_error": is_error}


def _call_line(name: str, arguments: str) -> str:
    given = to_arguments(arguments)
    if given is None:
        return call_line(name, arguments)
    pairs = (f"{key}={_json(value)}" for key, value in given.items())
    return f"{shorten(name, CALL_CHARS)}({shorten(', '.join(pairs), CALL_CHARS)})"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parts(parts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<p>{title}</p><pre>{html}</pre>" for title, html in parts)


class Phase(StrEnum):
    """What a panel is doing."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The reply that is being written, as the browser gets it."""

    turn: str  # its id, or `new`
    model: str  # asked for the reply
    prompt: str | None = None  # None if the turn's prompt is answered
    choices: tuple[Mapping[str, str], ...] = ()  # the HTML of each so far
    status: str = ""  # what the reply is waiting for
    tool_runs: tuple[Mapping[str, Any], ...] = ()  # so far


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """The state of a panel."""

    phase: Phase = Phase.IDLE
    settings: Settings = field(default_factory=Settings)
    live: Live | None = None
    notice: str = ""  # a message to the user: turns left out, refused, failed
    is_problem: bool = False  # whether the notice is an error
    question: Mapping[str, Any] | None = None  # a tool call that needs consent
    send_on_enter: bool = True
    is_subshelled: bool = False  # whether it gets messages while a cell runs
    main_writes: int = 0  # how often it was shown while `Comm.is_lost`


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
    turns: list[dict[str, Any]],
    meter: Mapping[str, Any],
    model: str,
) -> dict[str, Any]:
    """Return everything that the browser shows.

    `can` are the actions on the whole panel that are allowed now; `turns` are drawn.
    """
    return {
        "name": history.name,
        "label": f"Conversation {history.name}",
        "state": str(state.phase),
        "main_writes": state.main_writes,
        "turns": turns,
        "n_turns": len(turns),
        "live": to_builtins(state.live),
        "can": list(can),
        "meter": meter,
        "notice": state.notice,
        "is_problem": state.is_problem and bool(state.notice),
        "settings": state.settings.values(model=model, system=history.system),
        "fields": fields(model=model),
        "send_on_enter": state.send_on_enter,
        "ask": dict(state.question) if state.question else None,
    }


def view_update(view: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the browser has, so that a long chat costs what a short one does.

    Of the turns only those that have changed are there; their numbers are their places.
    """
    changed = {name: view[name] for name in view if known[name] != view[name]}
    pairs = zip_longest(view["turns"], known["turns"][: view["n_turns"]])
    turns = [new for new, old in pairs if new is not old and new != old]
    return {**changed, "turns": turns, "n_turns": view["n_turns"]}

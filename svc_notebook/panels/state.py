"""A panel's settings and state, and the view that the browser draws.

Plain values and functions. The view is saved with notebooks, so it holds no key.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from svc_notebook.conversations.attachments import Item
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
    titled_reasonings,
)
from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import BUDGET_TOKENS, MODELS
from svc_notebook.service.checks import range_text, shorten
from svc_notebook.service.params import (
    PARAMS,
    Param,
    check,
    check_extra,
    unknown_param,
)
from svc_notebook.service.request import check_model
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import WORDS, MaxTokens, Tokens, check_max_tokens
from svc_notebook.tools.permissions import to_arguments

if TYPE_CHECKING:
    from svc_notebook.conversations.compare import Column

DOCUMENTED = tuple(each.id for each in MODELS)
COMPARED = "Replies compared"  # in the place of the model
_LAST = ("stop", "n")
OFFERED = (
    *(each.name for each in PARAMS if each.is_offered and each.name not in _LAST),
    *_LAST,
)
EXTRA = "extra"
_EXTRA_HELP = (
    "what the document does not show and another server may take, such as "
    '{"seed": 1}; sent with every request'
)
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}
MIN_COMPARED, MAX_COMPARED = 2, 4
TEMPERATURES = (0.0, 0.7, 1.2, 0.4)  # compared unless others are typed
_BY_NAME = {param.name: param for param in PARAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The model and parameters of a panel's requests."""

    model: str | None = None  # the session's model if None
    max_tokens: MaxTokens = "fit"  # a number, `fit`, or `service` to send none
    params: Mapping[str, Any] = field(default_factory=dict)  # the other parameters

    def setting(
        self, name: str, value: object, *, most_tokens: int = BUDGET_TOKENS
    ) -> "Settings":
        """Return the settings with one changed.

        `value` is as typed, or a number; None or "" sends none. `most_tokens` are those
        that prompt and reply share.
        """
        is_empty = value is None or (isinstance(value, str) and not value.strip())
        if name == "model":
            return replace(self, model=None if is_empty else check_model(value))
        if name == "max_tokens":
            size = value.strip().lower() if isinstance(value, str) else value
            if is_empty:
                return replace(self, max_tokens="fit")
            tokens = check_max_tokens(_typed(name, size), most_tokens=most_tokens)
            return replace(self, max_tokens=tokens)
        if name not in {*OFFERED, EXTRA}:
            raise unknown_param(name)
        params = {key: each for key, each in self.params.items() if key != name}
        if name == EXTRA:
            extra = check_extra(None if is_empty else value)
            params |= {EXTRA: extra} if extra else {}
        elif not is_empty:
            params[name] = check(name, _typed(name, value))
        return replace(self, params=params)

    def reopened(self, before: "Settings", now: "Settings") -> "Settings":
        """Return these settings, with what code asks for now and did not before."""
        settings = self
        for name in ("model", "max_tokens", *OFFERED, EXTRA):
            if (value := now.value(name)) != before.value(name):
                settings = settings.setting(name, value, most_tokens=sys.maxsize)
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
        extra = self.params.get(EXTRA)
        shown[EXTRA] = extra and _json(extra)
        return {
            "model": self.model or model,
            "system": system or "",
            **shown,
            "max_tokens": self.max_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """What a panel compares: each message asks for a reply of each value."""

    by: str = ""  # `model` or `temperature`; "" while it is off
    models: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = ()
    is_blind: bool = False

    @property
    def values(self) -> tuple[str | float, ...]:
        """The models or the temperatures."""
        return self.temperatures if self.by == "temperature" else self.models

    def changed(
        self, by: str, values: object, *, is_blind: bool, models: Iterable[str]
    ) -> "Comparing":
        """Return it as the browser asks; None among the values is any other one.

        `models` can be compared, the panel's own first.
        """
        kept = replace(self, by=by if by in {"model", "temperature"} else "")
        usual: list[Any] = [*kept.values] or [None] * MIN_COMPARED
        given = values if isinstance(values, list) else usual
        if not kept.by:
            return kept
        if not MIN_COMPARED <= len(given) <= MAX_COMPARED:
            raise ParameterError(
                f"{MIN_COMPARED} to {MAX_COMPARED} can be compared, not {len(given)}.",
                param="compare",
            )
        if kept.by == "model":
            found = tuple(check_model(each) for each in _completed(given, models))
            return replace(_distinct(kept, found), models=found, is_blind=is_blind)
        numbers = _completed(given, TEMPERATURES)
        typed = (_typed("temperature", each) for each in numbers)
        checked: tuple[Any, ...] = tuple(check("temperature", each) for each in typed)
        return replace(
            _distinct(kept, checked), temperatures=checked, is_blind=is_blind
        )

    def labels(self) -> tuple[str, ...]:
        """Return what each reply is called."""
        named = self.by == "temperature"
        return tuple(f"temperature {n:g}" if named else str(n) for n in self.values)

    def settings(self, settings: Settings) -> tuple[Settings, ...]:
        """Return the settings that each reply is asked with."""
        return tuple(settings.setting(self.by, value) for value in self.values)

    def view(self, *, model: str, models: Iterable[str]) -> dict[str, Any]:
        """Describe it for the browser, with the models that can be compared."""
        n = len(self.values)
        options = dict.fromkeys((*models, model, *self.models))
        return {
            "by": self.by,
            "values": [*self.values],
            "is_blind": self.is_blind,
            "options": [*options],
            "max_values": MAX_COMPARED,
            "cost": f"Each message asks {n} times.",
        }


def _completed(values: list[Any], usual: Iterable[Any]) -> list[Any]:
    left = iter([each for each in dict.fromkeys(usual) if each not in values])
    return [next(left, "") if each is None else each for each in values]


def _distinct(kept: Comparing, values: tuple[object, ...]) -> Comparing:
    if len({*values}) == len(values):
        return kept
    raise ParameterError(
        "Each can be compared once only; choose another one.", param="compare"
    )


@cache
def fields(
    *,
    model: str,
    models: tuple[str, ...] = DOCUMENTED,
    most_tokens: int = BUDGET_TOKENS,
) -> list[dict[str, Any]]:
    """Describe the fields of the settings for the browser; every view has them.

    `models` are offered; prompt and reply share `most_tokens`.
    """
    return [
        _field(
            "model",
            "choice",
            default=model,
            options=[*models],
            doc="choose a model or type an id",
        ),
        _field("system", "longtext", default="", doc="sent first in every request")
        | {"label": "system prompt"},
        *(_param_field(_BY_NAME[name], most_tokens) for name in OFFERED),
        _field(EXTRA, "longtext", default="", doc=_EXTRA_HELP)
        | {"label": "extra fields (JSON)"},
    ]


def _param_field(param: Param, most_tokens: int) -> dict[str, Any]:
    if param.name == "max_tokens":
        param = replace(param, maximum=most_tokens)
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
    drawn = {}
    if turn.comparison:
        drawn = _draw_compared(turn)
        choices = drawn.pop("texts")
    places = turn.places
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": version.typed,
        "attached": list(map(draw_item, version.items)),
        "choices": [{"html": reply_html(each), "text": each} for each in choices],
        "model": model,
        "picked": version.picked,
        "ended": _ended(version),
        "footer": footer,
        "badges": [*version.marks],
        "tool_runs": [*_draw_calls(version), *_draw_reasonings(turn)],
        "columns": [],
        "version": places.index(turn.chosen) + 1,
        "n_versions": len(places),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "can": list(can),
    } | drawn


def _draw_compared(turn: Turn) -> dict[str, Any]:
    from svc_notebook.conversations.compare import (  # noqa: PLC0415 - rarely needed
        decision,
        to_columns,
    )

    columns = to_columns(turn)
    return {
        "texts": [each.text for each in columns],
        "columns": [draw_column(each) for each in columns],
        "model": COMPARED,
        "footer": decision(turn),
        "badges": [],
    }


def draw_item(item: Item) -> dict[str, Any]:
    """Return what is attached to a prompt for the browser."""
    html = f"<pre>{shortened_html(item.text)}</pre>"
    size = {"kind": item.kind, "n_tokens": item.n_tokens}
    return {"name": item.name, **size, "html": html}


def draw_column(column: "Column") -> dict[str, Any]:
    """Return a column for the browser, without its text."""
    return {key: value for key, value in asdict(column).items() if key != "text"}


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


def _draw_reasonings(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.comparison:  # it is only one of the replies that are drawn
        return
    for title, text in titled_reasonings(turn.version.reasonings):
        html = f"<pre>{shortened_html(text)}</pre>"
        yield {"name": "reasoning", "line": title, "html": html, "is_error": False}


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
    return json.dumps(value, ensure_ascii=False, default=str)


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
    model: str = ""  # asked for the reply
    prompt: str | None = None  # None if the turn's prompt is answered
    attached: tuple[Mapping[str, Any], ...] | None = None  # as above
    choices: tuple[Mapping[str, str], ...] = ()  # the HTML of each so far
    status: str = ""  # what the reply is waiting for
    tool_runs: tuple[Mapping[str, Any], ...] = ()  # so far
    columns: tuple[Mapping[str, Any], ...] = ()  # of the choices, if it compares


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """The state of a panel."""

    phase: Phase = Phase.IDLE
    settings: Settings = field(default_factory=Settings)
    comparing: Comparing = field(default_factory=Comparing)
    live: Live | None = None
    notice: str = ""  # a message to the user: turns left out, refused, failed
    is_problem: bool = False  # whether the notice is an error
    question: Mapping[str, Any] | None = None  # a tool call that needs consent
    send_on_enter: bool = True
    is_subshelled: bool = False  # whether it gets messages while a cell runs
    main_writes: int = 0  # how often it was shown while `Comm.is_lost`


def draw_meter(
    used: Tokens, *, budget_tokens: int = BUDGET_TOKENS, note: str
) -> dict[str, Any]:
    """Return the size of the next request, without its prompt, for the browser."""
    text = f"about {used.best} of {budget_tokens} tokens (estimated: {used})"
    if note:
        text += f"; {note}"
    return {"used_tokens": used.best, "budget_tokens": budget_tokens, "text": text}


def to_view(  # noqa: PLR0913 - what a view is drawn from
    state: PanelState,
    history: History,
    *,
    can: tuple[str, ...],
    turns: list[dict[str, Any]],
    meter: Mapping[str, Any],
    model: str,
    models: tuple[str, ...] = DOCUMENTED,
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
        "fields": fields(
            model=model, models=models, most_tokens=meter["budget_tokens"]
        ),
        "compare": state.comparing.view(
            model=state.settings.model or model, models=models
        ),
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

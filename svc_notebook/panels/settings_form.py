"""The panel's settings and their form: the model and parameters of its requests."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import (
    BUDGET_TOKENS,
    DOCUMENTED,
    MODELS,
    UNKNOWN,
    ModelInfo,
)
from svc_notebook.service.params import (
    PARAMS,
    Param,
    check,
    check_extra,
    range_text,
    shorten,
    shown,
    unknown_param,
)
from svc_notebook.service.request import CompletionRequest, check_model
from svc_notebook.template import decode_escapes
from svc_notebook.tokens import WORDS, MaxTokens, check_max_tokens

DOCUMENTED_IDS = tuple(model.id for model in MODELS)

_MODEL_CHARS = 80  # of a model's id in a message

_VALUE_CHARS = 40  # of a value in a notice

_LAST = ("stop", "n")

_LABELS = {"system": "system prompt", "extra": "extra fields (JSON)"}

OFFERED = (
    *(param.name for param in PARAMS if param.is_offered and param.name not in _LAST),
    *_LAST,
)

EXTRA = "extra"

NAMES = frozenset({"model", "system", *OFFERED, EXTRA})  # of all fields

_EXTRA_HELP = (
    "fields that the document does not show but another server may accept, such as "
    '{"seed": 1}; sent with every request'
)

# the steps of sliders; 0.1 for other numbers
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}

_BY_NAME = {param.name: param for param in PARAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelSettings:
    """The model and parameters of a panel's requests."""

    model: str | None = None  # the session's model if None
    max_tokens: MaxTokens = "fit"  # a number, `fit`, or `service` to send none
    params: Mapping[str, Any] = field(default_factory=dict)  # the other parameters

    def setting(
        self, name: str, value: object, info: ModelInfo = DOCUMENTED
    ) -> "PanelSettings":
        """Return the settings with one value changed.

        `value` is a typed text or a number; with None or "" the parameter is not sent.
        `info` is what is known of the model.
        """
        is_empty = value is None or (isinstance(value, str) and not value.strip())
        if name == "model":
            return replace(self, model=None if is_empty else check_model(value))
        if name == "max_tokens":
            size = value.strip().lower() if isinstance(value, str) else value
            if is_empty:
                return replace(self, max_tokens="fit")
            tokens = check_max_tokens(typed_value(name, size), info)
            return replace(self, max_tokens=tokens)
        if name not in {*OFFERED, EXTRA}:
            raise unknown_param(name)
        params = {key: self.params[key] for key in self.params if key != name}
        if name == EXTRA:
            extra = check_extra(None if is_empty else value)
            params |= {EXTRA: extra} if extra else {}
        elif not is_empty:
            params[name] = check(name, typed_value(name, value), info)
        return replace(self, params=params)

    def reopened(
        self, before: "PanelSettings", now: "PanelSettings"
    ) -> "PanelSettings":
        """Return these settings, with those that code has changed since `before`."""
        settings = self
        for name in ("model", "max_tokens", *OFFERED, EXTRA):
            if (value := now.value(name)) != before.value(name):
                settings = settings.setting(name, value, UNKNOWN)
        return settings

    def refuse(self, *, has_tools: bool) -> None:
        """Refuse settings that a panel with tools cannot send."""
        if has_tools and self.params.get("n", 1) != 1:
            raise ParameterError(
                "n must be 1 in a panel with tools, since tools can be run for one "
                "choice only. For several choices, open a panel without tools.",
                param="n",
            )

    def value(self, name: str) -> Any:  # noqa: ANN401 - of any setting
        """Return one setting."""
        if name in {"model", "max_tokens"}:
            return getattr(self, name)
        return self.params.get(name)

    def differing(self, other: "PanelSettings") -> tuple[str, ...]:
        """Return the names of what these settings set, and others set otherwise."""
        usual = PanelSettings()
        return tuple(
            name
            for name in ("model", "max_tokens", *OFFERED, EXTRA)
            if self.value(name) not in (usual.value(name), other.value(name))
        )

    def values(self, *, model: str, system: str | None) -> dict[str, Any]:
        """Return all settings for the browser; those that are not sent are None."""
        values = {name: self.params.get(name) for name in OFFERED}
        values["stop"] = _stops_text(values["stop"])
        extra = self.params.get(EXTRA)
        values[EXTRA] = extra and json.dumps(extra, ensure_ascii=False, default=str)
        return {
            "model": self.model or model,
            "system": system or "",
            **values,
            "max_tokens": self.max_tokens,
        }


def label_of(name: str) -> str:
    """Return the name of a setting, for people."""
    return _LABELS.get(name, name.replace("_", " "))


def words_of(name: str, value: object) -> str:
    """Return the name and value of a setting, for a notice."""
    words = shorten(" ".join(f"{value}".split()), _VALUE_CHARS)
    is_text = isinstance(value, str) and name not in {"model", "max_tokens"}
    return f"{label_of(name)} {f'“{words}”' if is_text else words}"


def restored_settings(
    request: CompletionRequest,
    *,
    model: str,
    models: Collection[str],
    info_of: Callable[[str], ModelInfo],
    has_tools: bool,
) -> tuple[PanelSettings, dict[str, str]]:
    """Return the settings of a panel's last request, and why some are left out.

    Args:
        request: The request.
        model: The session's model.
        models: The models that can be used; any model if there are none.
        info_of: Returns what is known of a model.
        has_tools: Whether the panel has tools now.

    Returns:
        The settings, and by the name of each that cannot be used now, the reason.
    """
    settings, unusable = PanelSettings(), dict[str, str]()
    if models and request.model not in models:
        unusable["model"] = (
            f"The last turn used {shorten(request.model, _MODEL_CHARS)}, which this "
            "server does not list. Choose a model from the list, or type an id."
        )
    elif request.model != model:
        settings = settings.setting("model", request.model)
    info = info_of(settings.model or model)
    for name, value in _sent_values(request, info).items():
        try:
            changed = settings.setting(name, value, info)
            changed.refuse(has_tools=has_tools)
        except ParameterError as error:
            unusable[name] = f"The last turn used {shown(value)}. {error}"
        else:
            settings = changed
    return settings, unusable


def _sent_values(request: CompletionRequest, info: ModelInfo) -> dict[str, Any]:
    """Return the values of the fields, except the model, for a request."""
    values = {name: request.params[name] for name in OFFERED if name in request.params}
    values["max_tokens"] = (
        "fit" if request.is_fitted else request.params.get("max_tokens", "service")
    )
    extra = {
        key: value
        for key, value in request.extra.items()
        if key not in info.extra or info.extra[key] != value  # not the endpoint's own
    }
    return {**values, EXTRA: extra} if extra else values


@cache
def fields(
    *,
    model: str,
    models: tuple[str, ...] = DOCUMENTED_IDS,
    most_tokens: int | None = BUDGET_TOKENS,
) -> list[dict[str, Any]]:
    """Describe the fields of the settings for the browser.

    `models` are the choices; `most_tokens` are the tokens that prompt and reply share.
    """
    return [
        _field(
            "model",
            "choice",
            default=model,
            options=[*models],
            doc="choose a model or type an id",
        ),
        _field("system", "longtext", default="", doc="sent first in every request"),
        *(_param_field(_BY_NAME[name], most_tokens) for name in OFFERED),
        _field(EXTRA, "longtext", default="", doc=_EXTRA_HELP),
    ]


def _param_field(param: Param, most_tokens: int | None) -> dict[str, Any]:
    if param.name == "max_tokens":
        param = replace(param, maximum=most_tokens)
    if param.kind == "stops":
        doc = f"{param.doc}; one per line, \\n for a line break"
        return _field("stop", "longtext", default="", doc=doc)
    is_whole = param.kind == "integer"
    default = "" if param.default is None else f"{param.default:g}"
    is_size = param.name == "max_tokens"
    other_values = ", fit (what is left) or service (not sent)" if is_size else ""
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
        doc=f"{allowed}{other_values}; {param.doc}",
    )


def _field(
    name: str,
    kind: str,
    *,
    default: str,
    doc: str,
    **limits: Any,  # noqa: ANN401 - minimum, maximum, step and options
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "default": default,
        "label": label_of(name),
        "help": doc,
        **dict.fromkeys(("minimum", "maximum", "step", "options")),
        **limits,
    }


def typed_value(name: str, text: object) -> object:
    """Convert a typed text to a value; leave an invalid one for the check to refuse."""
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

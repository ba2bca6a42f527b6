"""The settings of a panel: what can be set, and what is sent.

What it is not: it knows no conversation; the system message is the conversation's.
Rules: pure; ranges, defaults and refusals are those of the one table of parameters;
what is not set is not sent, but for max_tokens, which fits unless said otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.budget import MaxTokens
from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import MODELS
from svc_notebook.service.message import check_text
from svc_notebook.service.params import PARAMS, Param, check, unknown_param
from svc_notebook.service.request import check_model
from svc_notebook.template import decode_escapes

OFFERED = (
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "n",
)
_WORDS = ("fit", "service")
_STEPS = {"repetition_penalty": 0.01, "top_p": 0.01}
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


def check_system(value: object) -> str | None:
    """Return a system message as typed, None for none.

    Raises:
        ParameterError: It cannot be sent.
    """
    text = value if isinstance(value, str) else ""
    return check_text(text, param="system") if text.strip() else None


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


_TEXT, _TURN, _NUMBER = "text", "turn", "number"
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "hello": (),
    "send": (_TEXT,),
    "stop": (),
    "regenerate": (_TURN,),
    "edit": (_TURN, _TEXT),
    "continue": (_TURN,),
    "choose": (_TURN, _NUMBER),
    "pick": (_TURN, _NUMBER),
    "undo": (),
    "delete": (_TURN,),
    "pin": (_TURN,),
    "hide": (_TURN,),
    "clear": (),
    "set": ("name",),
    "enter": ("on",),
    "decide": ("id", "verdict"),
}
_NUMBER_OF = {"choose": "version", "pick": "choice"}
VERDICTS = ("approve", "deny", "always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One message of the browser.

    Attributes:
        kind: What it asks for.
        turn: Id of the turn that it is about.
        text: A prompt.
        number: A version from 1, or a choice from 0, as the browser counts them.
        name, value: A setting.
        is_on: Whether something is switched on.
        question_id, verdict, arguments: A decision about a tool.
    """

    kind: str
    turn: str = ""
    text: str = ""
    number: int = 0
    name: str = ""
    value: Any = None
    is_on: bool = False
    question_id: str = ""
    verdict: str = ""
    arguments: str | None = None


def to_event(content: object) -> Event:
    """Read a message.

    Args:
        content: As it came.

    Raises:
        ParameterError: It is not one that the panel knows.
    """
    if not isinstance(content, Mapping):
        raise _unknown(content)
    kind = _text(content, "t")
    if kind not in _NEEDS:
        raise _unknown(content.get("t"))
    number = content.get(_NUMBER_OF.get(kind, ""), 0)
    found = Event(
        kind=kind,
        turn=_text(content, "turn"),
        text=_text(content, "text"),
        number=number if type(number) is int else -1,
        name=_text(content, "name"),
        value=content.get("value"),
        is_on=content.get("on") is True,
        question_id=_text(content, "id"),
        verdict=_text(content, "verdict"),
        arguments=_text(content, "arguments") or None,
    )
    missing = [name for name in _NEEDS[kind] if _lacks(found, name, content)]
    if missing:
        raise ParameterError(
            f"The panel's message {kind!r} lacks {missing[0]}; reload the page.",
            param="panel",
        )
    return found


def _lacks(event: Event, name: str, content: Mapping[str, Any]) -> bool:
    if name == _NUMBER:
        return event.number < 0
    if name == "verdict":
        return event.verdict not in VERDICTS
    return name not in content


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _unknown(kind: object) -> ParameterError:
    return ParameterError(
        f"The panel does not know the message {str(kind)[:40]!r}; the page may be of "
        "another version: reload it.",
        param="panel",
    )

"""What the browser asks for: its messages, read and checked.

What it is not: it does nothing and knows no conversation. Rules: pure; a message
comes from a page and is believed in nothing but its shape, which is checked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError

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

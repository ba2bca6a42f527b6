"""What the browser sends to a panel: `BrowserMessage`, and how it is read.

The JavaScript types of all messages, in both directions, are in `static/messages.js`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import shorten

VERDICTS = ("approve", "deny", "always")
_NUMBERS = ("seq", "version", "choice")  # a message has one of them at most


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserMessage:
    """A message from the browser: an action, and what it is about."""

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
    is_subshelled: bool = False  # it came in a subshell, so that a cell may run now


def read_message(
    content: object, fields: Mapping[str, tuple[str, ...]], *, is_subshelled: bool
) -> BrowserMessage:
    """Read a message from the browser; refuse an unknown or incomplete one.

    `fields` are those that each kind of message must have.
    """
    if not isinstance(content, Mapping):
        raise _unknown(content)
    kind = _text(content, "t")
    if kind not in fields:
        raise _unknown(content.get("t"))
    number = next((content[name] for name in _NUMBERS if name in content), 0)
    message = BrowserMessage(
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
        is_subshelled=is_subshelled,
    )
    missing = [name for name in fields[kind] if _lacks(message, name, content)]
    if missing:
        raise ParameterError(
            f"The panel's message {kind!r} lacks {missing[0]}; reload the page.",
            param="panel",
        )
    return message


def _lacks(message: BrowserMessage, name: str, content: Mapping[str, Any]) -> bool:
    if name == "verdict":
        return message.verdict not in VERDICTS
    return name not in content or (name in _NUMBERS and message.number < 0)


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _texts(content: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = content.get(name)
    texts = value if isinstance(value, list) else ()
    return tuple(text for text in texts if isinstance(text, str))


def _unknown(kind: object) -> ParameterError:
    return ParameterError(
        f"Unknown panel message {shorten(str(kind), 40)!r}; the page may be from "
        "another version of the package: reload it.",
        param="panel",
    )

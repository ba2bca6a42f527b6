"""Messages between a panel and the browser, by its comm, also while a cell runs.

`BrowserMessage` is what the browser sends; the JavaScript types of all messages, in
both directions, are in `static/chat/messages.js`.

JupyterLab sends widget messages to a subshell, so a panel reacts while a cell runs.
ipykernel 7.4 sends them to the thread that last published instead, often the cell's.
`Comm` undoes that: whatever it publishes is an answer to the newest message it heard.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass
from threading import RLock
from typing import Any

from ipywidgets import Widget

from svc_notebook.display.front_end import parent_message
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import shorten

_REROUTING = "_reply_subshell_for"  # ipykernel 7.4


class Comm:
    """Sends a widget's messages and views, in order, from any thread."""

    def __init__(self, widget: Widget | None = None) -> None:
        self.lock = RLock()
        self._widget = widget
        self._heard: Context | None = None
        self.n_sent = self._n_views = 0
        self._is_rerouted = _keep_route(getattr(widget, "comm", None))

    def hear(self) -> bool:
        """Note the message that is being handled; return whether it has a subshell."""
        context = copy_context()
        with self.lock:
            self._heard = context
        return bool(_parent_header().get("subshell_id"))

    @property
    def is_lost(self) -> bool:
        """Whether publishing now may send the browser's messages to a busy thread."""
        return self._is_rerouted and self._heard is None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._publish(lambda widget, seq: widget.send({**message, "seq": seq}))

    def put(self, view: dict[str, Any]) -> None:
        """Send a view, or what of it has changed."""
        self._n_views += 1
        numbered = {**view, "nth": self._n_views}
        self._publish(
            lambda widget, seq: widget.set_trait("view", {**numbered, "seq": seq})
        )

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the newest view and message."""
        return {"nth": self._n_views, "seq": self.n_sent}

    def _publish(self, act: Callable[[Widget, int], object]) -> None:
        """Publish with a number, since messages and views may arrive out of order."""
        widget = self._widget
        with self.lock:
            if widget is None or widget.comm is None:
                return
            self.n_sent += 1
            if self._heard is None:
                act(widget, self.n_sent)
            else:
                self._heard.copy().run(act, widget, self.n_sent)


def _keep_route(comm: Any) -> bool:  # noqa: ANN401 - of whatever kernel
    """Keep the front end's choice of a subshell; return whether that failed."""
    if not hasattr(comm, _REROUTING):
        return False
    try:
        setattr(comm, _REROUTING, lambda _, chosen: chosen)
    except AttributeError:
        return True
    return False


def _parent_header() -> Any:  # noqa: ANN401 - JSON
    from IPython import get_ipython  # noqa: PLC0415 - only where there is a kernel

    return parent_message(getattr(get_ipython(), "kernel", None)).get("header", {})


VERDICTS = ("approve", "deny", "always")
_MAX_SECONDS_S = 1e7  # what takes longer is no time
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
    table: int = 0  # the place of a table among those of a reply, from 0
    name: str = (
        ""  # of a variable, a setting, of a conversation, or the kind of an export
    )
    value: Any = None
    is_on: bool = False  # a switch; of hello, whether the page hides the transcript
    card: str = ""  # the id of what is rated
    seconds_s: float | None = None  # that a rating took
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
    table = content.get("table", 0)
    number = next((content[name] for name in _NUMBERS if name in content), 0)
    message = BrowserMessage(
        kind=kind,
        turn=_text(content, "turn"),
        text=_text(content, "text"),
        attached=_texts(content, "attached"),
        kept=_texts(content, "kept"),
        number=number if type(number) is int else -1,
        table=table if type(table) is int else -1,
        name=_text(content, "name"),
        value=content.get("value"),
        is_on=content.get("on") is True,
        card=_text(content, "card"),
        seconds_s=_seconds_s(content.get("seconds_s")),
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


def _seconds_s(value: object) -> float | None:
    if isinstance(value, int | float) and 0 <= value < _MAX_SECONDS_S:
        return float(value)
    return None


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

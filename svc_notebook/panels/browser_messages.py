"""Messages between a panel and the browser through its comm, also while a cell runs.

`BrowserMessage` is what the browser sends; the JavaScript types of all messages, in
both directions, are in `static/chat/protocol.js`.

JupyterLab sends widget messages to a subshell (a thread), so a panel reacts while a
cell runs. ipykernel 7.4 instead sends them to the thread that last published, which is
often the busy thread of the cell. `Comm` avoids that: it publishes everything as an
answer to the newest message that it has received.
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
        """Note the message being handled; return whether it came in a subshell."""
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
        """Send a view, or its changed fields."""
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
        """Publish with a number, because messages and views may arrive out of order."""
        widget = self._widget
        with self.lock:
            if widget is None or widget.comm is None:
                return
            self.n_sent += 1
            if self._heard is None:
                act(widget, self.n_sent)
            else:
                self._heard.copy().run(act, widget, self.n_sent)


def _keep_route(comm: Any) -> bool:  # noqa: ANN401 - depends on the kernel
    """Make the kernel keep the chosen subshell; return whether that failed."""
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
_MAX_SECONDS_S = 1e7  # larger values are not a time that a person took
# a message has one of them at most
_NUMBERS = ("seq", "version", "choice", "n_attached")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserMessage:
    """A message from the browser: an action and its arguments."""

    kind: str  # the name of the action
    turn: str = ""  # the id of a turn
    text: str = ""  # a prompt or draft, a part of a name, or a text to search for
    attached: tuple[str, ...] = ()  # names of values to attach to a prompt
    kept: tuple[str, ...] = ()  # names of attachments that stay unchanged
    # a version from 1, a choice from 0, the newest seq, or tokens that are attached
    number: int = 0
    table: int = 0  # index of a table in a reply, from 0
    name: str = ""  # of a variable, setting or conversation, or the kind of an export
    value: Any = None
    # of a switch; in `hello`, whether the page hides the transcript
    is_on: bool = False
    card: str = ""  # the id of a card to rate
    seconds_s: float | None = None  # how long a rating took
    question_id: str = ""  # of a tool call to decide on, an export or a draft
    verdict: str = ""
    arguments: str | None = None
    is_subshelled: bool = False  # whether it came in a subshell: a cell may be running


def read_message(
    content: object, fields: Mapping[str, tuple[str, ...]], *, is_subshelled: bool
) -> BrowserMessage:
    """Read a message from the browser; refuse an unknown or incomplete one.

    `fields` are the fields that each kind of message must have.
    """
    if not isinstance(content, Mapping):
        raise _unknown_message(content)
    kind = _text(content, "t")
    if kind not in fields:
        raise _unknown_message(content.get("t"))
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
    missing = [name for name in fields[kind] if _is_missing(message, name, content)]
    if missing:
        raise ParameterError(
            f"The panel's message {kind!r} lacks {missing[0]}; reload the page.",
            param="panel",
        )
    return message


def _is_missing(message: BrowserMessage, name: str, content: Mapping[str, Any]) -> bool:
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


def _unknown_message(kind: object) -> ParameterError:
    return ParameterError(
        f"Unknown panel message {shorten(str(kind), 40)!r}. The page may be from "
        "another version of the package; reload it.",
        param="panel",
    )

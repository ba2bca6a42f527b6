"""Keeps the key out of a reply while it comes, also where it is cut in pieces.

What it is not: it does not know how a key is found in a text (see `credentials`),
nor what is recorded (see `echoes`). Rules: what is shown, joined, is what is
recorded; only an end that may become the key is held back, and it is out when the
next piece shows that it does not, or when its text ends.
"""

import logging
from collections.abc import Iterator

from msgspec.structs import replace

from svc_notebook.credentials import Key, find_key
from svc_notebook.errors import MissingKeyError, ParameterError, SvcError
from svc_notebook.service.chunk import CallPiece, Choice, CompletionBody, Delta
from svc_notebook.service.tool import FunctionCall, ToolCall

Place = tuple[int, int | None]
"""A choice's index, and a tool call's."""


class Hiding:
    """Hides one key in the deltas of one answer.

    Args:
        key: The key at hand.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._texts: dict[int, str] = {}
        self._arguments: dict[Place, str] = {}
        self._call_ids: dict[Place, str] = {}

    def take(self, delta: Delta) -> Delta:
        """Return what can be shown of a delta."""
        held = self._texts.pop(delta.index, "") if self._texts else ""
        text = delta.text
        if held or text:
            text, held = self._key.hide_so_far(held + (text or ""))
            if held:
                self._texts[delta.index] = held
        calls = tuple(self._calls(delta)) if delta.calls else ()
        if text is delta.text and not calls and not delta.finish_reason:
            return delta
        shown = replace(delta, text=text, calls=calls)
        return self._ended(shown) if delta.finish_reason else shown

    def flush(self) -> Iterator[Delta]:
        """Return what was held back, at the answer's end."""
        for index in sorted({*self._texts, *(place[0] for place in self._arguments)}):
            yield self._flushed(Delta(index=index))

    def _ended(self, delta: Delta) -> Delta:
        reason = self._key.hide(delta.finish_reason or "")
        return self._flushed(replace(delta, finish_reason=reason))

    def _flushed(self, delta: Delta) -> Delta:
        text = self._texts.pop(delta.index, "")
        places = [place for place in self._arguments if place[0] == delta.index]
        return replace(
            delta,
            text=(delta.text or "") + text if text else delta.text,
            calls=(
                *delta.calls,
                *(_rest(place, self._arguments.pop(place)) for place in places),
            ),
        )

    def _calls(self, delta: Delta) -> Iterator[CallPiece]:
        for call in delta.calls:
            place = (delta.index, call.index)
            held = self._arguments.pop(place, "")
            before = self._call_ids.get(place, call.id)
            if held and call.id and call.id != before:  # another call of this index
                yield _rest(place, held)
                held = ""
            if call.id:
                self._call_ids[place] = call.id
            arguments, held = self._key.hide_so_far(held + call.arguments)
            if held:
                self._arguments[place] = held
            yield replace(
                call,
                id=None if call.id is None else self._key.hide_whole(call.id),
                name=None if call.name is None else self._key.hide_whole(call.name),
                arguments=arguments,
            )


def _rest(place: Place, arguments: str) -> CallPiece:
    return CallPiece(index=place[1], arguments=arguments)


def refuse_key(body: bytes, key: Key) -> None:
    """See to it that a request does not hold the key that it is sent with.

    Args:
        body: The request as JSON.
        key: The key at hand.

    Raises:
        ParameterError: The key stands in it.
    """
    if not key.is_in(body.decode()):
        return
    raise ParameterError(
        "The API key stands in the request: in the prompt, an earlier message or a "
        "parameter. It was not sent, since a key is sent in a header only and is kept "
        "in no record. Take it out and ask again (doc: Authentication)."
    )


def hide_in_error(error: SvcError, key: Key) -> None:
    """Blot the key out of everything an error says, should the service echo it."""
    error.args = tuple(
        key.hide(each) if isinstance(each, str) else each for each in error.args
    )
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, key.hide(value))


def without_key(
    body: CompletionBody | None, key: Key, *, model: str
) -> CompletionBody | None:
    """Return what came back without the key, should the service echo it.

    Args:
        body: What came back, if anything.
        key: The key it was asked with.
        model: The model asked, whose id is no echo.
    """
    if body is None:
        return None
    return replace(
        body,
        id=_hidden(body.id, key),
        model=body.model if body.model == model else _hidden(body.model, key),
        choices=tuple(_choice(each, key) for each in body.choices),
    )


def _choice(choice: Choice, key: Key) -> Choice:
    return replace(
        choice,
        text=None if choice.text is None else key.hide_whole(choice.text),
        tool_calls=tuple(_call(each, key) for each in choice.tool_calls),
        finish_reason=_hidden(choice.finish_reason, key),
    )


def _call(call: ToolCall, key: Key) -> ToolCall:
    """Return a call; its name and id are told back, so a part of a key may stay."""
    function = FunctionCall(
        name=key.hide_whole(call.function.name),
        arguments=key.hide_whole(call.function.arguments),
    )
    return replace(call, id=key.hide_whole(call.id), function=function)


def _hidden(text: str | None, key: Key) -> str | None:
    return None if text is None else key.hide(text)


_LOGGERS = ("httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx")


class _Blotter(logging.Filter):
    """Blots out the keys in use."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, Key] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without keys."""
        said = record.getMessage()
        hidden = said
        for key in tuple(self.keys.values()):
            hidden = key.hide(hidden)
        if hidden != said:
            record.msg, record.args = hidden, ()
        return True


_blotter = _Blotter()


def keep_out_of_logs(key: Key) -> None:
    """See to it that this key shows in no log."""
    mark = key.digest("logs")  # one key is looked for once, however many hold it
    if mark in _blotter.keys:
        return
    _blotter.keys[mark] = key
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_blotter)


def to_key(value: Key | str | None) -> Key | MissingKeyError | None:
    """Return the key that an argument gives, or why it cannot be used."""
    if value is None or isinstance(value, Key):
        return value
    try:
        return Key(value, source="an argument")
    except MissingKeyError as found:
        return found.with_traceback(None)


def wanted_key() -> Key | MissingKeyError:
    """Return the key that the environment gives, or why there is none."""
    try:
        return find_key()
    except MissingKeyError as found:
        return found.with_traceback(None)

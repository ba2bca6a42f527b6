"""Decodes what the service sends: server-sent events, and the JSON of all bodies.

An event is returned as soon as its last byte has arrived, by the rules of the HTML
standard (doc: Response, streamed; Completion, Stream chunk). A fast decoder reads what
the document shows, a tolerant one everything else: a byte-order mark, invalid UTF-8,
halves of surrogate pairs, metadata of a wrong type. A wrong answer raises a
DocumentError, never an error of a JSON library.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import msgspec

from svc_notebook.errors import DocumentError
from svc_notebook.service.chunk import (
    CallPiece,
    Choice,
    Chunk,
    CompletionBody,
    Count,
    Delta,
    Usage,
)
from svc_notebook.service.error_messages import WRONG_ADDRESS, Fault
from svc_notebook.service.params import HEAD_CHARS, head_of, printable
from svc_notebook.service.request import FunctionCall, ToolCall, text_of_parts

MAX_EVENT_BYTES = 64 * 1024 * 1024  # an endless event must not fill the memory
_FIELD = re.compile(rb"[\w-]+")


_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its data lines joined by LF, and its type ("" without one)."""

    data: str
    type: str = ""


class SseDecoder:
    """Turns bytes, however they are split, into events."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._start: bytes | None = b""  # held back while it may be a byte-order mark
        self._rest: list[bytes] = []  # pieces of the incomplete line
        self._is_after_cr = False
        self._data: list[str] = []
        self._type = ""
        self._n_held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Decode the next bytes and yield the events that they complete.

        Events before an error are yielded first. Iterate to the end.
        """
        if self._start is not None:
            piece = self._without_bom(piece)
        if self._is_after_cr and piece:
            self._is_after_cr = False
            piece = piece.removeprefix(b"\n")
        if not piece:
            return
        self._is_after_cr = piece.endswith(b"\r")
        *ended, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        yield from self._take_lines(ended)
        if rest:
            self._rest.append(rest)
            self._count_held(len(rest))

    def _without_bom(self, piece: bytes) -> bytes:
        start = (self._start or b"") + piece
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _take_lines(self, ended: list[bytes]) -> Iterator[ServerSentEvent]:
        for piece in ended:
            line = piece
            if self._rest:
                line = b"".join((*self._rest, piece))
                self._rest.clear()
            if line:
                self._take_field(line)
                continue
            if self._data:
                yield ServerSentEvent("\n".join(self._data), self._type)
            self._data, self._type, self._n_held_bytes = [], "", 0

    def _take_field(self, line: bytes) -> None:
        """Read one line; comments and unknown fields are ignored."""
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            self._count_held(len(value))
        elif name == b"event":
            self._type = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name and not _FIELD.fullmatch(name):
            # Stricter than the standard, which ignores unknown names: this line may be
            # a damaged data line, whose text would be missing from the reply.
            head = head_of(line)
            raise DocumentError(
                f"The stream contains a damaged line: {head}\nAsk again; if it "
                "happens again, check that no proxy changes the answers.",
                head=head,
            )

    def _count_held(self, n_bytes: int) -> None:
        self._n_held_bytes += n_bytes
        if self._n_held_bytes > self._max_event_bytes:
            self._data, self._rest = [], []
            raise DocumentError(
                f"An event of the stream is larger than {self._max_event_bytes} bytes, "
                "more than a reply ever needs.",
                remedy=WRONG_ADDRESS,
            )


class RawFunction(msgspec.Struct):
    """Name and arguments of a tool call, or pieces of them."""

    name: str | None = None
    arguments: str | None = None


class RawCall(msgspec.Struct):
    """A tool call, or a piece of one (doc: Tool call)."""

    index: Count | None = None
    id: str | None = None
    function: RawFunction | None = None
    extra_content: Any = None
    thought_signature: Any = None


class RawText(msgspec.Struct):
    """A message of a whole reply, or a delta of a stream.

    Some servers send the model's reasoning in a separate field with one of two names,
    and `reasoning_details` that they need back. A model may decline in `refusal`. Other
    interfaces use `function_call` for calls and `error` for failures.
    """

    content: str | None = None
    tool_calls: list[RawCall] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    function_call: Any = None
    error: Any = None


class RawChoice(msgspec.Struct):
    """One choice: `message` in a whole reply, `delta` in a stream.

    Other interfaces use `text` and `error`.
    """

    index: Count | None = None
    message: RawText | None = None
    delta: RawText | None = None
    text: Any = None
    error: Any = None
    finish_reason: str | None = None


class RawReply(msgspec.Struct):
    """A whole reply or a chunk; an error body has `error`."""

    id: str | None = None
    object: str | None = None
    created: Count | None = None
    model: str | None = None
    choices: list[RawChoice] | None = None
    usage: Usage | None = None
    error: Any = None


# A field of these that has a wrong type is left out; the answer is read all the same.
METADATA: dict[str, Any] = {
    "id": str,
    "object": str,
    "created": Count,
    "model": str,
    "usage": Usage,
}

# 0.3 us for a chunk; json takes 2 us, and the model objects of an SDK 47 us
_FAST = msgspec.json.Decoder(RawReply)
_OK = 200


def decode_completion(
    body: bytes, *, status: int = _OK, content_type: str = ""
) -> CompletionBody | Fault:
    """Read a reply in one piece, or an error body in its place (doc: Completion)."""
    try:
        raw = _read(body)
        return raw if isinstance(raw, Fault) else _completion(raw)
    except _UnreadableError as problem:
        reason = str(problem)
    raise not_documented(reason, body, status=status, content_type=content_type)


def _completion(raw: RawReply) -> CompletionBody:
    raw_choices = raw.choices or []
    if not raw_choices:
        raise _UnreadableError("with no choices")
    has_indices = len({raw_choice.index for raw_choice in raw_choices}) == len(
        raw_choices
    )
    choices = [
        _choice(raw_choice, at, has_indices=has_indices)
        for at, raw_choice in enumerate(raw_choices)
    ]
    return CompletionBody(
        id=raw.id,
        created=raw.created,
        model=raw.model,
        choices=tuple(sorted(choices, key=lambda choice: choice.index)),
        usage=raw.usage,
    )


TextKey: TypeAlias = tuple[int, int | str | None]
"""A choice's index and one of its texts: its name, or the index of a tool call."""


class ChunkDecoder:
    """Reads the events of one stream (doc: Stream chunk).

    A stream may send the two halves of a surrogate pair in different chunks. A first
    half is held back until the next piece of its text arrives.
    """

    def __init__(self, *, content_type: str = "") -> None:
        self._content_type = content_type
        self._halves: dict[TextKey, str] = {}

    def decode(self, event: ServerSentEvent) -> Chunk | Fault:
        """Read one event: a chunk, or a fault if it is an error body."""
        if event.type == "error":
            return decode_fault(event.data.encode())
        try:
            raw = _read(event.data)
            if isinstance(raw, Fault):
                return raw
            if raw.choices is None and raw.usage is None and _is_error_body(event.data):
                return decode_fault(event.data.encode())
            return Chunk(
                id=raw.id,
                created=raw.created,
                model=raw.model,
                deltas=tuple(map(self._delta, raw.choices or (), count())),
                usage=raw.usage,
            )
        except _UnreadableError as problem:
            reason = str(problem)
        raise not_documented(
            reason, event.data.encode(), status=_OK, content_type=self._content_type
        )

    def flush(self) -> Chunk:
        """Return U+FFFD for each held half whose other half did not arrive."""
        keys, self._halves = tuple(self._halves), {}
        return Chunk(deltas=tuple(map(_ended_early, keys)))

    def _delta(self, raw: RawChoice, at: int) -> Delta:
        index = at if raw.index is None else raw.index
        text_fields = raw.delta
        if text_fields is None:
            if _has_text(raw):
                raise _UnreadableError("with text outside of a delta")
            return Delta(index=index, finish_reason=raw.finish_reason)
        calls, reasoning, refusal = (
            text_fields.tool_calls,
            _reasoning(text_fields),
            _refusal(text_fields),
        )
        text = (
            f"{text_fields.content or ''}{refusal}" if refusal else text_fields.content
        )
        return Delta(
            index=index,
            text=text and self._join((index, "text"), text),
            calls=tuple([self._piece(index, call) for call in calls]) if calls else (),
            finish_reason=raw.finish_reason,
            reasoning=reasoning and self._join((index, "reasoning"), reasoning),
            is_refusal=bool(refusal),
            other=_to_send_back(text_fields),
        )

    def _piece(self, choice: int, raw: RawCall) -> CallPiece:
        function = raw.function or RawFunction()
        return CallPiece(
            index=raw.index,
            id=raw.id,
            name=function.name,
            arguments=self._join((choice, raw.index), function.arguments or ""),
            other=_other_of(raw),
        )

    def _join(self, key: TextKey, piece: str) -> str:
        text = self._halves.pop(key, "") + piece if self._halves else piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[key] = text[-1]
            text = text[:-1]
        return mend(text)


def _ended_early(key: TextKey) -> Delta:
    """Return the end of a text whose last character has only a first half."""
    index, part = key
    if part == "text":
        return Delta(index=index, text="\ufffd")
    if isinstance(part, str):
        return Delta(index=index, reasoning="\ufffd")
    calls = (CallPiece(index=part, arguments="\ufffd"),)
    return Delta(index=index, calls=calls)


def _refusal(text_fields: RawText) -> str:
    """Return the text with which a model declines; "" if it does not."""
    return text_fields.refusal if isinstance(text_fields.refusal, str) else ""


def _to_send_back(text_fields: RawText) -> dict[str, Any]:
    """Return the fields that a server needs back with the calls of this reply.

    `reasoning_content` is only marked by True: its text is kept as the reasoning.
    """
    fields = {}
    if text_fields.reasoning_details is not None:
        fields["reasoning_details"] = text_fields.reasoning_details
    if text_fields.reasoning_content and isinstance(text_fields.reasoning_content, str):
        fields["reasoning_content"] = True
    return fields


def _other_of(raw: RawCall) -> dict[str, Any] | msgspec.UnsetType:
    """Return the fields of a call that the document does not show, if it has some."""
    if raw.extra_content is None and raw.thought_signature is None:
        return msgspec.UNSET  # the usual case
    fields = {
        "extra_content": raw.extra_content,
        "thought_signature": raw.thought_signature,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _reasoning(text_fields: RawText) -> str:
    """Return the reasoning; "" if there is none, or if it is not a text."""
    reasoning = text_fields.reasoning_content or text_fields.reasoning
    return reasoning if isinstance(reasoning, str) else ""


def mend(text: str) -> str:
    """Join surrogate pairs in a text, and replace single halves by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def not_documented(
    reason: str, body: bytes, *, status: int, content_type: str
) -> DocumentError:
    """Build the error for an answer that the document does not allow.

    `reason` is the end of the sentence "The service answered ...".
    """
    head = head_of(body)
    shown = printable(content_type[:HEAD_CHARS])[:HEAD_CHARS] or "none"
    return DocumentError(
        f"The service answered {reason} (status {status}, content type {shown}). "
        f"The body begins: {head or '(empty)'}",
        remedy=WRONG_ADDRESS,
        status=status,
        content_type=content_type,
        head=head,
    )


def _read(body: bytes | str) -> RawReply | Fault:
    reply: RawReply | Fault | None
    try:
        reply = _FAST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        reply = None
    if reply is None or _is_fault(reply.error, reply.choices, reply.object):
        reply = _read_tolerantly(body.encode() if isinstance(body, str) else body)
    return reply if isinstance(reply, Fault) else _check_choices(reply)


def _is_fault(error: object, choices: object, kind: object) -> bool:
    """Say whether a body is an error body; with choices, `"error": ""` is not one."""
    is_empty = error is None or (not error and bool(choices))
    return not is_empty or kind == "error"


def _check_choices(raw: RawReply) -> RawReply | Fault:
    """Return a reply; or the fault, if a choice reports an error."""
    for choice in raw.choices or ():
        text_fields = choice.delta or choice.message or _NOTHING
        if error := choice.error or text_fields.error:
            return fault_of({"error": error})
        if text_fields.refusal and not isinstance(text_fields.refusal, str):
            raise _UnreadableError("with a refusal that is not a text")
        if text_fields.function_call:
            raise _UnreadableError("with function_call, which another interface uses")
    return raw


_NOTHING = RawText()


class _UnreadableError(Exception):
    """Why a body is not a reply; never leaves this file."""


def _read_tolerantly(body: bytes) -> RawReply | Fault:
    value = _parse(body)
    if not isinstance(value, dict):
        raise _UnreadableError("with JSON that is not an object")
    if _is_fault(value.get("error"), value.get("choices"), value.get("object")):
        return fault_of(value)
    try:
        fields = {
            name: field
            for name, field in _mend_all(value).items()
            if name not in METADATA or _is_a(field, METADATA[name])
        }
        _join_parts(fields)
        return msgspec.convert(fields, RawReply)
    except (msgspec.ValidationError, RecursionError) as problem:
        reason = str(problem)
    raise _UnreadableError(f"with JSON of another shape: {reason}")


def _join_parts(fields: Mapping[str, Any]) -> None:
    """Replace a content in parts by its text; `thinking` parts are the reasoning."""
    choices = fields.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = isinstance(choice, dict) and (
            choice.get("delta") or choice.get("message")
        )
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            parts = message["content"]
            thinking = [part["thinking"] for part in parts if _is_thinking(part)]
            message["content"] = text_of_parts(parts)
            if thinking:
                message["reasoning"] = "".join(map(_thinking_text, thinking))


def _is_thinking(part: object) -> bool:
    return isinstance(part, dict) and part.get("thinking") is not None


def _thinking_text(thought: object) -> str:
    return thought if isinstance(thought, str) else text_of_parts([*_parts(thought)])


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _parse(body: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        pass
    if not body.strip():
        raise _UnreadableError("with an empty body")
    is_page = body.lstrip()[:1] == b"<"
    raise _UnreadableError(
        "with a page of HTML" if is_page else "with text that is not JSON"
    )


# not mended yet: the halves of a pair may be in two pieces, which are joined later
_IN_PIECES = frozenset({"content", "arguments", "reasoning_content", "reasoning"})


def _mend_all(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list):
        return [_mend_all(item) for item in value]
    if isinstance(value, dict):
        return {
            mend(name): item
            if name in _IN_PIECES and isinstance(item, str)
            else _mend_all(item)
            for name, item in value.items()
        }
    return value


def _is_a(value: object, kind: Any) -> bool:  # noqa: ANN401 - a type form
    try:
        msgspec.convert(value, kind | None)
    except msgspec.ValidationError:
        return False
    return True


def _has_text(raw: RawChoice) -> bool:
    message = raw.message
    return bool(raw.text or (message and (message.content or message.tool_calls)))


def _choice(raw: RawChoice, at: int, *, has_indices: bool) -> Choice:
    message = raw.message
    if message is None:
        raise _UnreadableError(f"with no message in choices[{at}]")
    refusal = _refusal(message)
    text = f"{message.content or ''}{refusal}" if refusal else message.content
    return Choice(
        index=at if raw.index is None or not has_indices else raw.index,
        text=None if text is None else mend(text),
        tool_calls=tuple(map(_call, message.tool_calls or ())),
        finish_reason=raw.finish_reason,
        reasoning=mend(_reasoning(message)),
        is_refusal=bool(refusal),
        other=_to_send_back(message),
    )


def _call(raw: RawCall) -> ToolCall:
    raw_function = raw.function or RawFunction()
    function = FunctionCall(
        name=raw_function.name or "", arguments=mend(raw_function.arguments or "")
    )
    return ToolCall(id=raw.id or "", function=function, other=_other_of(raw))


_PAGE = "(a page of HTML instead of an error body)"
_MESSAGES = ("message", "detail", "error_description", "msg")


def decode_fault(body: bytes) -> Fault:
    """Read as much as possible of an error body of any form (doc: Error body).

    It never raises, because an unreadable error body still reports an error.
    """
    text = body.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        start = text[:HEAD_CHARS].strip()
        return Fault(message=_PAGE if start.startswith("<") else printable(start))
    return fault_of(value)


def fault_of(value: object) -> Fault:
    """Read a decoded error body; the service's text is kept verbatim."""
    if isinstance(value, list):
        value = _first_mapping(value)
    if not isinstance(value, dict):
        return Fault(message=_text(value) or "")
    error = value.get("error") or value.get("errors")
    if error is None or isinstance(error, bool):
        error = value
    if isinstance(error, list):
        error = _first_mapping(error)
    if not isinstance(error, Mapping):
        error = {"message": error}
    message = next((error[name] for name in _MESSAGES if error.get(name)), None)
    message_text = (
        _details(message) if isinstance(message, list) else _text(message) or ""
    )
    return Fault(
        message=_PAGE
        if message_text[:HEAD_CHARS].lstrip()[:1] == "<"
        else message_text,
        type=_text(error.get("type")),
        param=_text(error.get("param")),
        code=_text(error.get("code")),
    )


def _is_error_body(text: str) -> bool:
    """Say whether an event without choices is an error body without `error`."""
    try:
        value = json.loads(text)  # an object, since it was read as a reply
    except (ValueError, RecursionError):
        return False
    return value.get("type") == "error" or any(map(value.get, ("errors", *_MESSAGES)))


def _first_mapping(values: list[Any]) -> object:
    return next((value for value in values if isinstance(value, dict)), str(values))


def _details(details: list[Any]) -> str:
    """Join error details to one line; each begins with its location, if it has one."""
    lines = []
    for detail in details:
        if isinstance(detail, dict) and "msg" in detail:
            location = detail.get("loc")
            parts = location if isinstance(location, list) else [location]
            location_text = ".".join(str(part) for part in parts if part is not None)
            lines.append(
                f"{location_text}: {detail['msg']}"
                if location_text
                else str(detail["msg"])
            )
        else:
            lines.append(_text(detail) or "")
    return mend("; ".join(lines))


def _text(value: object) -> str | None:
    if value is None:
        return None
    return mend(value if isinstance(value, str) else json.dumps(value))

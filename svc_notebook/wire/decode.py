"""Decodes what the service sends: server-sent events, and the JSON of all bodies.

An event is given out as soon as its last byte is in, by the rules of the HTML standard
(doc: Response, streamed; Completion, Stream chunk). A fast decoder reads what the
document shows, a tolerant one the rest: a BOM, bad UTF-8, halves of surrogate pairs,
labels of a wrong type. A wrong answer raises a DocumentError, never an error of a JSON
library.
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

MAX_EVENT_BYTES = 64 * 1024 * 1024  # an event without an end must not fill the memory
_FIELD = re.compile(rb"[\w-]+")


_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its data lines joined by LF, and its type ("" if none was named)."""

    data: str
    type: str = ""


class SseDecoder:
    """Turns bytes, however they are split, into events."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._start: bytes | None = b""  # held while it may still become a BOM
        self._rest: list[bytes] = []  # pieces of the line that has not ended
        self._is_after_cr = False
        self._data: list[str] = []
        self._type = ""
        self._n_held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Take the next bytes and return the events that they complete.

        Events before an error are given first. Iterate to the end.
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
            self._hold(len(rest))

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
            self._hold(len(value))
        elif name == b"event":
            self._type = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name and not _FIELD.fullmatch(name):
            # Stricter than the standard: with a control character before the name
            # the line may be damaged data, which would be missing from the reply.
            head = head_of(line)
            raise DocumentError(
                f"The stream contains a damaged line: {head}\nAsk again; if it "
                "happens again, check that no proxy changes what is sent.",
                head=head,
            )

    def _hold(self, n_bytes: int) -> None:
        self._n_held_bytes += n_bytes
        if self._n_held_bytes > self._max_event_bytes:
            self._data, self._rest = [], []
            raise DocumentError(
                f"An event of the stream is larger than {self._max_event_bytes} bytes, "
                "more than a reply ever needs.",
                remedy=WRONG_ADDRESS,
            )


class RawFunction(msgspec.Struct):
    """Name and arguments of a call, or pieces of them."""

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

    Some servers send what a model thinks in a field of its own, by one of two names,
    and `reasoning_details` that they want back. A model may decline in `refusal`. Other
    interfaces use the last two to call and to fail.
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
    """A whole reply or a chunk; `error` is there in an error body."""

    id: str | None = None
    object: str | None = None
    created: Count | None = None
    model: str | None = None
    choices: list[RawChoice] | None = None
    usage: Usage | None = None
    error: Any = None


# Where one of these has a wrong type, it is left out and the answer is still read.
LABELS: dict[str, Any] = {
    "id": str,
    "object": str,
    "created": Count,
    "model": str,
    "usage": Usage,
}

# 0.3 us for a chunk; json takes 2 us, and models of an SDK 47 us
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
    raws = raw.choices or []
    if not raws:
        raise _UnreadableError("with no choices")
    has_indices = len({raw_choice.index for raw_choice in raws}) == len(raws)
    choices = [
        _choice(raw_choice, at, has_indices=has_indices)
        for at, raw_choice in enumerate(raws)
    ]
    return CompletionBody(
        id=raw.id,
        created=raw.created,
        model=raw.model,
        choices=tuple(sorted(choices, key=lambda choice: choice.index)),
        usage=raw.usage,
    )


TextPlace: TypeAlias = tuple[int, int | str | None]
"""A choice's index, and which of its texts: a name, or a tool call's index."""


class ChunkDecoder:
    """Reads the events of one stream (doc: Stream chunk).

    A stream may separate the two halves of a surrogate pair; a first half is held back
    until the next piece of its text comes.
    """

    def __init__(self, *, content_type: str = "") -> None:
        self._content_type = content_type
        self._halves: dict[TextPlace, str] = {}

    def decode(self, event: ServerSentEvent) -> Chunk | Fault:
        """Read one event: a chunk, or the fault that it reports."""
        if event.type == "error":
            return decode_fault(event.data.encode())
        try:
            raw = _read(event.data)
            if isinstance(raw, Fault):
                return raw
            if raw.choices is None and raw.usage is None and _is_complaint(event.data):
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
        """Return the held halves whose other half did not come, as U+FFFD."""
        places, self._halves = tuple(self._halves), {}
        return Chunk(deltas=tuple(map(_ended_early, places)))

    def _delta(self, raw: RawChoice, at: int) -> Delta:
        index = at if raw.index is None else raw.index
        said = raw.delta
        if said is None:
            if _has_text(raw):
                raise _UnreadableError("with text outside of a delta")
            return Delta(index=index, finish_reason=raw.finish_reason)
        calls, reasoning, refusal = said.tool_calls, _reasoning(said), _refusal(said)
        text = f"{said.content or ''}{refusal}" if refusal else said.content
        return Delta(
            index=index,
            text=text and self._joined((index, "text"), text),
            calls=tuple([self._piece(index, call) for call in calls]) if calls else (),
            finish_reason=raw.finish_reason,
            reasoning=reasoning and self._joined((index, "reasoning"), reasoning),
            is_refusal=bool(refusal),
            other=_given_back(said),
        )

    def _piece(self, choice: int, raw: RawCall) -> CallPiece:
        function = raw.function or RawFunction()
        return CallPiece(
            index=raw.index,
            id=raw.id,
            name=function.name,
            arguments=self._joined((choice, raw.index), function.arguments or ""),
            other=_other_of(raw),
        )

    def _joined(self, place: TextPlace, piece: str) -> str:
        text = self._halves.pop(place, "") + piece if self._halves else piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[place] = text[-1]
            text = text[:-1]
        return mend(text)


def _ended_early(place: TextPlace) -> Delta:
    """Return the end of a text whose last character has only a first half."""
    index, part = place
    if part == "text":
        return Delta(index=index, text="\ufffd")
    if isinstance(part, str):
        return Delta(index=index, reasoning="\ufffd")
    calls = (CallPiece(index=part, arguments="\ufffd"),)
    return Delta(index=index, calls=calls)


def _refusal(said: RawText) -> str:
    """Return the words by which a model declines; "" where it does not."""
    return said.refusal if isinstance(said.refusal, str) else ""


def _given_back(said: RawText) -> dict[str, Any]:
    """Return the fields that a server wants back with the calls of this reply.

    A text is only marked here, by True: it is the reasoning, which is joined.
    """
    given = {}
    if said.reasoning_details is not None:
        given["reasoning_details"] = said.reasoning_details
    if said.reasoning_content and isinstance(said.reasoning_content, str):
        given["reasoning_content"] = True
    return given


def _other_of(raw: RawCall) -> dict[str, Any] | msgspec.UnsetType:
    """Return the fields of a call that the document does not show, if it has some."""
    if raw.extra_content is None and raw.thought_signature is None:
        return msgspec.UNSET  # nearly always so
    fields = {
        "extra_content": raw.extra_content,
        "thought_signature": raw.thought_signature,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _reasoning(said: RawText) -> str:
    """Return the text next to the content; anything but a text is left out."""
    reasoning = said.reasoning_content or said.reasoning
    return reasoning if isinstance(reasoning, str) else ""


def mend(text: str) -> str:
    """Return the text with surrogate pairs joined and single halves as U+FFFD."""
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
    return reply if isinstance(reply, Fault) else _checked(reply)


def _is_fault(error: object, choices: object, kind: object) -> bool:
    """Say whether a body is an error body; with choices, `"error": ""` is not one."""
    is_empty = error is None or (not error and bool(choices))
    return not is_empty or kind == "error"


def _checked(raw: RawReply) -> RawReply | Fault:
    """Return a reply unless a choice fails, or is of another interface."""
    for choice in raw.choices or ():
        said = choice.delta or choice.message or _NOTHING
        if error := choice.error or said.error:
            return fault_of({"error": error})
        if said.refusal and not isinstance(said.refusal, str):
            raise _UnreadableError("with a refusal that is not a text")
        if said.function_call:
            raise _UnreadableError("with function_call, which is another interface's")
    return raw


_NOTHING = RawText()


class _UnreadableError(Exception):
    """Why a body is not a reply; stays in this file."""


def _read_tolerantly(body: bytes) -> RawReply | Fault:
    value = _parse(body)
    if not isinstance(value, dict):
        raise _UnreadableError("with JSON that is not an object")
    if _is_fault(value.get("error"), value.get("choices"), value.get("object")):
        return fault_of(value)
    try:
        fields = {
            name: field
            for name, field in _mended(value).items()
            if name not in LABELS or _is_a(field, LABELS[name])
        }
        _join_parts(fields)
        return msgspec.convert(fields, RawReply)
    except (msgspec.ValidationError, RecursionError) as problem:
        reason = str(problem)
    raise _UnreadableError(f"with JSON of another shape: {reason}")


def _join_parts(fields: Mapping[str, Any]) -> None:
    """Write a content in parts as its text, and parts that are thoughts apart."""
    choices = fields.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        said = isinstance(choice, dict) and (
            choice.get("delta") or choice.get("message")
        )
        if isinstance(said, dict) and isinstance(said.get("content"), list):
            parts = said["content"]
            thoughts = [part["thinking"] for part in parts if _is_thought(part)]
            said["content"] = text_of_parts(parts)
            if thoughts:
                said["reasoning"] = "".join(map(_thought, thoughts))


def _is_thought(part: object) -> bool:
    return isinstance(part, dict) and part.get("thinking") is not None


def _thought(thought: object) -> str:
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


# mended when their pieces are joined
_IN_PIECES = frozenset({"content", "arguments", "reasoning_content", "reasoning"})


def _mended(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {
            mend(name): item
            if name in _IN_PIECES and isinstance(item, str)
            else _mended(item)
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
    said = raw.message
    return bool(raw.text or (said and (said.content or said.tool_calls)))


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
        other=_given_back(message),
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
    """Read as much as possible of an error body of any shape (doc: Error body).

    It never fails, because an unreadable error is still an error.
    """
    text = body.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        start = text[:HEAD_CHARS].strip()
        return Fault(message=_PAGE if start.startswith("<") else printable(start))
    return fault_of(value)


def fault_of(value: object) -> Fault:
    """Read an error body that is JSON; the service's words are kept verbatim."""
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
    said = next((error[name] for name in _MESSAGES if error.get(name)), None)
    words = _details(said) if isinstance(said, list) else _text(said) or ""
    return Fault(
        message=_PAGE if words[:HEAD_CHARS].lstrip()[:1] == "<" else words,
        type=_text(error.get("type")),
        param=_text(error.get("param")),
        code=_text(error.get("code")),
    )


def _is_complaint(text: str) -> bool:
    """Say whether an event without choices is an error body in all but name."""
    try:
        value = json.loads(text)  # an object, or it was not read as a reply
    except (ValueError, RecursionError):
        return False
    return value.get("type") == "error" or any(map(value.get, ("errors", *_MESSAGES)))


def _first_mapping(values: list[Any]) -> object:
    return next((value for value in values if isinstance(value, dict)), str(values))


def _details(each_said: list[Any]) -> str:
    """Join a list of complaints, each with its place if it has one, to one line."""
    lines = []
    for said in each_said:
        if isinstance(said, dict) and "msg" in said:
            where = said.get("loc")
            parts = where if isinstance(where, list) else [where]
            place = ".".join(str(part) for part in parts if part is not None)
            lines.append(f"{place}: {said['msg']}" if place else str(said["msg"]))
        else:
            lines.append(_text(said) or "")
    return mend("; ".join(lines))


def _text(value: object) -> str | None:
    if value is None:
        return None
    return mend(value if isinstance(value, str) else json.dumps(value))

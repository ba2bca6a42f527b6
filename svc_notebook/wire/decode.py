"""Answers as values: replies, chunks of a stream, error bodies (doc: Completion).

A fast decoder reads what the document shows, a patient one the rest: a BOM, bad
UTF-8, halves of surrogate pairs, labels of a wrong type. What is wrong with an answer
is a DocumentError, never an error of a JSON library.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from svc_notebook.errors import DocumentError
from svc_notebook.service.checks import printable
from svc_notebook.service.chunk import (
    CallPiece,
    Choice,
    Chunk,
    CompletionBody,
    Delta,
    Usage,
)
from svc_notebook.service.fault import Fault
from svc_notebook.service.tool import FunctionCall, ToolCall

from .sse import HEAD_CHARS, Event, head_of

# Larger numbers fit neither a ledger nor a DataFrame.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RawFunction(msgspec.Struct):
    """Name and arguments of a call, or pieces of them."""

    name: str | None = None
    arguments: str | None = None


class RawCall(msgspec.Struct):
    """A tool call, or a piece of one (doc: Tool call)."""

    index: Count | None = None
    id: str | None = None
    function: RawFunction | None = None


class RawText(msgspec.Struct):
    """A message of a whole reply, or a delta of a stream.

    Other interfaces use the last three to decline, to call and to fail.
    """

    content: str | None = None
    tool_calls: list[RawCall] | None = None
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


class RawUsage(msgspec.Struct):
    """Tokens as counted by the service."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None


class RawReply(msgspec.Struct):
    """A whole reply or a chunk; `error` is there in an error body."""

    id: str | None = None
    object: str | None = None
    created: Count | None = None
    model: str | None = None
    choices: list[RawChoice] | None = None
    usage: RawUsage | None = None
    error: Any = None


# A wrong type here does no harm to the answer: the field is left out.
LABELS: dict[str, Any] = {
    "id": str,
    "object": str,
    "created": Count,
    "model": str,
    "usage": RawUsage,
}


_FAST = msgspec.json.Decoder(RawReply)
_OK = 200


def decode_completion(
    body: bytes, *, status: int = _OK, content_type: str = ""
) -> CompletionBody | Fault:
    """Read a reply in one piece (doc: Completion).

    Returns:
        The reply, or the fault if the body is an error body after all.

    Raises:
        DocumentError: It is neither.
    """
    raw = _read(body, status=status, content_type=content_type)
    if isinstance(raw, Fault):
        return raw
    reason = _lack(raw)
    if reason:
        raise not_documented(reason, body, status=status, content_type=content_type)
    raws = raw.choices or []
    has_indices = len({each.index for each in raws}) == len(raws)
    choices = [
        _choice(each, at if each.index is None or not has_indices else each.index)
        for at, each in enumerate(raws)
    ]
    return CompletionBody(
        id=raw.id,
        created=raw.created,
        model=raw.model,
        choices=tuple(sorted(choices, key=lambda each: each.index)),
        usage=_usage(raw.usage),
    )


Place: TypeAlias = tuple[int, int | str | None]
"""A choice's index, and which of its texts: a name, or a tool call's index."""


class EventDecoder:
    """Reads the events of one stream (doc: Stream chunk).

    A stream can cut the two halves of a surrogate pair apart; a first half is held
    back until the next piece of its text comes.

    Args:
        content_type: As sent, for errors.
    """

    def __init__(self, *, content_type: str = "") -> None:
        self._content_type = content_type
        self._halves: dict[Place, str] = {}

    def decode(self, event: Event) -> Chunk | Fault:
        """Read one event.

        Returns:
            The chunk, or the fault if the event reports an error.

        Raises:
            DocumentError: It is neither.
        """
        body = event.data.encode()
        if event.type == "error":
            return decode_fault(body)
        raw = _read(body, status=_OK, content_type=self._content_type)
        if isinstance(raw, Fault):
            return raw
        if raw.choices is None and raw.usage is None and _is_complaint(body):
            return decode_fault(body)
        choices = raw.choices or ()
        if any(each.delta is None and _has_text(each) for each in choices):
            raise not_documented(
                "with text outside of a delta",
                body,
                status=_OK,
                content_type=self._content_type,
            )
        return Chunk(
            id=raw.id,
            created=raw.created,
            model=raw.model,
            deltas=tuple(self._delta(each, at) for at, each in enumerate(choices)),
            usage=_usage(raw.usage),
        )

    def flush(self) -> Chunk:
        """Return what the halves stand for whose other half did not come."""
        halves, self._halves = self._halves, {}
        deltas = [
            Delta(index=index, text=mend(half))
            if isinstance(part, str)
            else Delta(
                index=index, calls=(CallPiece(index=part, arguments=mend(half)),)
            )
            for (index, part), half in halves.items()
        ]
        return Chunk(deltas=tuple(deltas))

    def _delta(self, raw: RawChoice, at: int) -> Delta:
        index = at if raw.index is None else raw.index
        said = raw.delta
        if said is None:
            return Delta(index=index, finish_reason=raw.finish_reason)
        return Delta(
            index=index,
            text=said.content and self._joined((index, "text"), said.content),
            calls=tuple(self._piece(index, call) for call in said.tool_calls or ()),
            finish_reason=raw.finish_reason,
        )

    def _piece(self, choice: int, raw: RawCall) -> CallPiece:
        function = raw.function or RawFunction()
        return CallPiece(
            index=raw.index,
            id=raw.id,
            name=function.name,
            arguments=self._joined((choice, raw.index), function.arguments or ""),
        )

    def _joined(self, place: Place, piece: str) -> str:
        text = self._halves.pop(place, "") + piece if self._halves else piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[place] = text[-1]
            text = text[:-1]
        return mend(text)


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

    Args:
        reason: What is wrong, as the end of the sentence "The service answered ...".
        body: The answer's body; only its first characters are shown.
        status: HTTP status.
        content_type: As sent.
    """
    head = head_of(body)
    shown = printable(content_type[:HEAD_CHARS])[:HEAD_CHARS] or "none"
    return DocumentError(
        f"The service answered {reason} (status {status}, content type {shown}). "
        f"The body begins: {head or '(empty)'}\nCheck that the base address is the "
        "service's and ends with /v1, and that no proxy answers in its place "
        "(doc: Completion, Stream chunk).",
        status=status,
        content_type=content_type,
        head=head,
    )


def _read(body: bytes, *, status: int, content_type: str) -> RawReply | Fault:
    try:
        raw = _FAST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raw = None
    try:
        if raw is None or _is_fault(raw.error, raw.choices, raw.object):
            found = _read_patiently(body)
        else:
            found = raw
        return found if isinstance(found, Fault) else _checked(found)
    except _UnreadableError as problem:
        reason = str(problem)
    raise not_documented(reason, body, status=status, content_type=content_type)


def _is_fault(error: object, choices: object, kind: object) -> bool:
    """Say whether a body is an error body; `"error": ""` beside choices is not."""
    is_empty = error is None or (not error and bool(choices))
    return not is_empty or kind == "error"


def _checked(raw: RawReply) -> RawReply | Fault:
    """Return a reply unless a choice fails, declines or calls in another's way."""
    for choice in raw.choices or ():
        said = choice.delta or choice.message
        error = choice.error or (said and said.error)
        if error:
            return fault_of({"error": error})
        if said and said.refusal:
            raise _UnreadableError("with a refusal instead of text")
        if said and said.function_call:
            raise _UnreadableError("with a call in another interface's function_call")
    return raw


class _UnreadableError(Exception):
    """Why a body is not a reply; stays in this file."""


def _read_patiently(body: bytes) -> RawReply | Fault:
    value = _parse(body)
    if not isinstance(value, dict):
        raise _UnreadableError("with JSON that is not an object")
    if _is_fault(value.get("error"), value.get("choices"), value.get("object")):
        return fault_of(value)
    try:
        kept = {
            name: each
            for name, each in _mended(value).items()
            if name not in LABELS or _is_a(each, LABELS[name])
        }
        return msgspec.convert(kept, RawReply)
    except (msgspec.ValidationError, RecursionError) as problem:
        reason = str(problem)
    raise _UnreadableError(f"with JSON of another shape: {reason}")


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


_IN_PIECES = frozenset({"content", "arguments"})  # mended when their pieces are joined


def _mended(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list):
        return [_mended(each) for each in value]
    if isinstance(value, dict):
        return {
            mend(name): each
            if name in _IN_PIECES and isinstance(each, str)
            else _mended(each)
            for name, each in value.items()
        }
    return value


def _is_a(value: object, kind: Any) -> bool:  # noqa: ANN401 - a type form
    try:
        msgspec.convert(value, kind | None)
    except msgspec.ValidationError:
        return False
    return True


def _lack(raw: RawReply) -> str | None:
    """Say what a whole reply lacks, if anything."""
    if not raw.choices:
        return "with no choices"
    without = [at for at, each in enumerate(raw.choices) if each.message is None]
    return f"with no message in choices[{without[0]}]" if without else None


def _has_text(raw: RawChoice) -> bool:
    said = raw.message
    return bool(raw.text or (said and (said.content or said.tool_calls)))


def _choice(raw: RawChoice, index: int) -> Choice:
    message = raw.message or RawText()
    return Choice(
        index=index,
        text=None if message.content is None else mend(message.content),
        tool_calls=_calls(message.tool_calls or ()),
        finish_reason=raw.finish_reason,
    )


def _calls(raws: Sequence[RawCall]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            id=raw.id or "",
            function=FunctionCall(
                name=(raw.function and raw.function.name) or "",
                arguments=mend((raw.function and raw.function.arguments) or ""),
            ),
        )
        for raw in raws
    )


def _usage(raw: RawUsage | None) -> Usage | None:
    if raw is None:
        return None
    return Usage(
        prompt_tokens=raw.prompt_tokens,
        completion_tokens=raw.completion_tokens,
        total_tokens=raw.total_tokens,
    )


_PAGE = "(a page of HTML instead of an error body)"
_MESSAGES = ("message", "detail", "error_description", "msg")


def decode_fault(body: bytes) -> Fault:
    """Read what can be read of an error body, of any shape (doc: Error body).

    It never fails, since an error that cannot be read is still an error.
    """
    text = body.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        start = text[:HEAD_CHARS].strip()
        return Fault(message=_PAGE if start.startswith("<") else printable(start))
    return fault_of(value)


def fault_of(value: object) -> Fault:
    """Read an error body that is JSON; the service's words stay as they are."""
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


def _is_complaint(body: bytes) -> bool:
    """Say whether an event without choices is an error body in all but name."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    return value.get("type") == "error" or any(map(value.get, ("errors", *_MESSAGES)))


def _first_mapping(values: list[Any]) -> object:
    return next((each for each in values if isinstance(each, dict)), str(values))


def _details(each_said: list[Any]) -> str:
    """Put a list of complaints, each perhaps with its place, into one line."""
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

"""Bytes of an answer as our values (doc: Completion, Stream chunk).

Two ways: a fast one for answers as documented, and a patient one for the rest:
BOM, halves of surrogates, bad UTF-8, labels of a wrong type. What is wrong with the
answer itself is a DocumentError, never an error of a JSON library.

Rules for this file: no sockets, no clock; choices are told apart by their index; a
half of a surrogate pair leaves here as it came and is joined by `surrogates`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

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

from .faults import decode_fault, fault_of, is_complaint
from .sse import Event
from .text import mend, not_documented

# Larger ones fit neither a ledger nor a DataFrame.
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

    The last three are where other interfaces decline, call and fail; they are not
    read as a reply, but not overlooked.
    """

    content: str | None = None
    tool_calls: list[RawCall] | None = None
    refusal: Any = None
    function_call: Any = None
    error: Any = None


class RawChoice(msgspec.Struct):
    """One choice: `message` in a whole reply, `delta` in a stream.

    `text` and `error` are where other interfaces put them; they are not read as a
    reply, but not overlooked.
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


# What may be wrong without harm to the answer: it is left out then.
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
    if len({each.index for each in raws}) < len(raws):  # positions tell them apart
        raws = [msgspec.structs.replace(each, index=None) for each in raws]
    choices = [_choice(each, at) for at, each in enumerate(raws)]
    return CompletionBody(
        id=raw.id,
        created=raw.created,
        model=raw.model,
        choices=tuple(sorted(choices, key=lambda each: each.index)),
        usage=_usage(raw.usage),
    )


def decode_refusal(body: bytes) -> str:
    """Return in what words a reply in one piece declines to answer, "" if it does not.

    Args:
        body: One that `decode_completion` reads as a reply.
    """
    if b"refusal" not in body:
        return ""
    raw = _read(body, status=_OK, content_type="")
    choices = [] if isinstance(raw, Fault) else raw.choices or []
    said = [_words(each.message.refusal) for each in choices if each.message]
    return " ".join(each for each in said if each)


def decode_event(event: Event, *, content_type: str = "") -> Chunk | Fault:
    """Read one event of a stream (doc: Stream chunk).

    Returns:
        The chunk, or the fault if the event tells of an error.

    Raises:
        DocumentError: It is neither.
    """
    body = event.data.encode()
    if event.type == "error":
        return decode_fault(body)
    raw = _read(body, status=_OK, content_type=content_type)
    if isinstance(raw, Fault):
        return raw
    if raw.choices is None and raw.usage is None and is_complaint(body):
        return decode_fault(body)
    choices = list(enumerate(raw.choices or ()))
    if any(each.text and not (each.delta or each.message) for _, each in choices):
        raise not_documented(
            "with text outside of a delta", body, status=_OK, content_type=content_type
        )
    return Chunk(
        id=raw.id,
        created=raw.created,
        model=raw.model,
        deltas=tuple(
            _delta(each, at, each.delta, is_last=each.message is None)
            for at, each in choices
            if each.delta is not None or each.message is None
        ),
        wholes=tuple(
            _delta(each, at, each.message, is_last=True)
            for at, each in choices
            if each.message is not None
        ),
        usage=_usage(raw.usage),
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
        return found if isinstance(found, Fault) else _without_oddities(found)
    except _UnreadableError as problem:
        reason = str(problem)
    raise not_documented(reason, body, status=status, content_type=content_type)


def _is_fault(error: object, choices: object, kind: object) -> bool:
    """Say whether a body tells of an error; `"error": ""` beside choices does not."""
    is_empty = error is None or (not error and bool(choices))
    return not is_empty or kind == "error"


def _without_oddities(raw: RawReply) -> RawReply | Fault:
    """Return a reply whose choices neither fail nor call in another's way."""
    for choice in raw.choices or ():
        said = choice.message or choice.delta
        error = choice.error or (said and said.error)
        if error:
            return fault_of({"error": error})
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


_IN_PIECES = frozenset({"content", "arguments"})  # their halves may meet later


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


def _choice(raw: RawChoice, at: int) -> Choice:
    message = raw.message
    text = message.content if message else None
    return Choice(
        index=at if raw.index is None else raw.index,
        text=None if text is None else mend(text),
        tool_calls=_calls(message.tool_calls or () if message else ()),
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


def _delta(raw: RawChoice, at: int, piece: RawText | None, *, is_last: bool) -> Delta:
    index = at if raw.index is None else raw.index
    finish_reason = raw.finish_reason if is_last else None
    if piece is None:
        return Delta(index=index, finish_reason=finish_reason)
    return Delta(
        index=index,
        text=piece.content,
        calls=tuple(
            CallPiece(
                index=call.index,
                id=call.id,
                name=call.function.name if call.function else None,
                arguments=(call.function.arguments or "") if call.function else "",
            )
            for call in piece.tool_calls or ()
        ),
        finish_reason=finish_reason,
        refusal=_words(piece.refusal),
    )


def _words(said: object) -> str:
    if isinstance(said, str):
        return mend(said)
    return json.dumps(said) if said else ""


def _usage(raw: RawUsage | None) -> Usage | None:
    if raw is None:
        return None
    return Usage(
        prompt_tokens=raw.prompt_tokens,
        completion_tokens=raw.completion_tokens,
        total_tokens=raw.total_tokens,
    )

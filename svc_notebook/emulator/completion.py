"""The bytes of completions, whole and streamed, as the document shows them.

What it is not: it decides neither text nor timing.

Rules for this file: fields and their order are the document's (doc: Completion,
Stream chunk); a streamed reply carries no usage, since none is shown there.

Readings where the document is silent: the first chunk's `content` is the first
piece of text; streamed tool calls come as `tool_calls` deltas with an `index`, as
in the interface that the service follows, after a first chunk with an empty
`content`; a reply with tool calls finishes with `stop`, the one value shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from .ask import Call, JsonObject
from .choice import Choice
from .fault import write_json

# doc: Response, streamed, 3.
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every chunk of a reply repeats (doc: Stream chunk)."""

    id: str
    created: int
    model: str


def write_completion(
    head: Head, choices: Sequence[Choice], usage: Mapping[str, int] | None
) -> bytes:
    """Write a whole reply (doc: Completion)."""
    body: JsonObject = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
    }
    if usage is not None:
        body["usage"] = dict(usage)
    body["choices"] = [
        {
            "index": index,
            "message": _message(choice),
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]
    return write_json(body)


def write_chunks(head: Head, choices: Sequence[Choice]) -> Iterator[bytes]:
    """Write a streamed reply event by event, choices in turns, and its end."""
    start = write_json(
        {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
        }
    )[:-1]
    streams = [_events(index, choice) for index, choice in enumerate(choices)]
    for turn in zip_longest(*streams):
        for event in turn:
            if event is not None:
                yield b'data: %s,"choices":[%s]}\n\n' % (start, event)
    yield DONE


def usage_of(n_prompt_tokens: int, choices: Sequence[Choice]) -> dict[str, int]:
    """Count what a request took (doc: Completion, usage)."""
    n_completion_tokens = sum(choice.n_tokens for choice in choices)
    return {
        "prompt_tokens": n_prompt_tokens,
        "completion_tokens": n_completion_tokens,
        "total_tokens": n_prompt_tokens + n_completion_tokens,
    }


def _message(choice: Choice) -> JsonObject:
    """Write the message of a whole choice."""
    message: JsonObject = {"role": "assistant", "content": choice.text}
    if choice.tool_calls:
        message["tool_calls"] = [_call(call) for call in choice.tool_calls]
    return message


def _call(call: Call) -> JsonObject:
    """Write a tool call (doc: Tool call)."""
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _events(index: int, choice: Choice) -> Iterator[bytes]:
    """Write the chunks of one choice: first with the role, last empty."""
    pieces = choice.pieces or ("",)
    yield _event(index, {"role": "assistant", "content": pieces[0]})
    for piece in pieces[1:]:
        text = json.dumps(piece, ensure_ascii=False).encode()
        yield b'{"index":%d,"delta":{"content":%s},"finish_reason":null}' % (
            index,
            text,
        )
    for at, call in enumerate(choice.tool_calls):
        for delta in _call_deltas(at, call):
            yield _event(index, {"tool_calls": [delta]})
    yield _event(index, {}, choice.finish_reason)


def _call_deltas(at: int, call: Call) -> Iterator[JsonObject]:
    """Write a tool call in pieces: its head, then its arguments in two halves."""
    begun = _call(call)
    begun["function"]["arguments"] = ""
    yield {"index": at, **begun}
    half = len(call.arguments) // 2
    for part in (call.arguments[:half], call.arguments[half:]):
        if part:
            yield {"index": at, "function": {"arguments": part}}


def _event(
    index: int, delta: Mapping[str, Any], finish_reason: str | None = None
) -> bytes:
    """Write one choice of a chunk."""
    return write_json({"index": index, "delta": delta, "finish_reason": finish_reason})

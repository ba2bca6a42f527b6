"""The shapes on the wire, for the decoder alone (doc: Resources and fields).

What it is not: these are not the package's values; `decode` makes those of them.
Rules: every field may be missing or null, because services leave things out; a
field of another type is not read as if it were right.
"""

from typing import Annotated, Any

import msgspec

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

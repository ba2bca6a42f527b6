"""The Completion body: an answer in one piece (doc: Completion).

The same shape also holds an answer that was put together from a stream, and a
partial one. Rules: values as the service gave them; what it left out is None.
"""

import msgspec

from .tool import ToolCall


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, counted by the service (doc: Completion)."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One generated answer (doc: Completion, choices).

    Attributes:
        index: Position of the choice.
        text: The text; "" is an empty reply, None is none.
        tool_calls: The calls the model asks for.
        finish_reason: As sent; `stop` is a normal end; None if none came.
    """

    index: int = 0
    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None


class CompletionBody(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came back for one request (doc: Completion).

    Attributes:
        id: Completion identifier.
        created: Unix timestamp, seconds.
        model: Model id that the service says it used.
        choices: By index, at least one.
        usage: As reported; None where none was (streams report none).
    """

    id: str | None = None
    created: int | None = None
    model: str | None = None
    choices: tuple[Choice, ...]
    usage: Usage | None = None

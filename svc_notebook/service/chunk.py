"""Replies, and the chunks of a stream that make up a reply (doc: Completion).

Text is joined exactly as it came and never normalised. Pieces of different tool calls
are never joined.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from .request import FunctionCall, ToolCall

# Larger numbers fit neither a ledger nor a DataFrame.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, counted by the service (doc: Completion)."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None


class EstimatedUsage(Usage, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, estimated, because the service reported none."""

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return f"EstimatedUsage({', '.join(f'{name}=~{n}' for name, n in values)})"


class Choice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One generated answer (doc: Completion, choices).

    Attributes:
        index: Position of the choice.
        text: The text; "" is an empty reply, None means there is no text.
        tool_calls: The calls the model asks for.
        finish_reason: As sent; `stop` is a normal end; None if there is none.
        reasoning: The model's reasoning, which some servers send separately from the
            text. The document does not show it, so it is never sent back to the
            service.
        is_refusal: Whether the model declined, in the field `refusal`.
        other: Fields, by name, that other servers need back with the tool calls.
    """

    index: int = 0
    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    reasoning: str = ""
    is_refusal: bool = False
    other: dict[str, Any] = {}


class CompletionBody(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reply as the service sent it, or a part of one (doc: Completion).

    Attributes:
        id: Completion identifier.
        created: Unix timestamp, seconds.
        model: Model id that the service says it used.
        choices: Sorted by index, at least one.
        usage: As reported; None if it was not reported, as in streams.
    """

    id: str | None = None
    created: int | None = None
    model: str | None = None
    choices: tuple[Choice, ...]
    usage: Usage | None = None


class CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a tool call; pieces of one call share an index."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    other: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """New content of one choice (doc: Stream chunk)."""

    index: int = 0
    text: str | None = None
    calls: tuple[CallPiece, ...] = ()
    finish_reason: str | None = None
    reasoning: str = ""
    is_refusal: bool = False
    other: dict[str, Any] = {}


def to_delta(choice: Choice) -> Delta:
    """Return a complete choice as the delta of one chunk."""
    return Delta(
        index=choice.index,
        text=choice.text,
        calls=tuple(
            CallPiece(
                index=at,
                id=call.id,
                name=call.function.name,
                arguments=call.function.arguments,
                other=call.other,
            )
            for at, call in enumerate(choice.tool_calls)
        ),
        finish_reason=choice.finish_reason,
        reasoning=choice.reasoning,
        is_refusal=choice.is_refusal,
        other=choice.other,
    )


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed answer (doc: Stream chunk)."""

    id: str | None = None
    created: int | None = None
    model: str | None = None
    deltas: tuple[Delta, ...] = ()
    usage: Usage | None = None


@dataclass(slots=True)
class _OpenCall:
    index: int | None
    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)

    @property
    def has_all_arguments(self) -> bool:
        """Whether the arguments so far are a complete object."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def add(self, piece: CallPiece) -> None:
        """Add a piece; some services repeat the name in each."""
        self.id = self.id or piece.id
        if piece.name and piece.name != self.name:
            self.name += piece.name
        self.arguments.append(piece.arguments)
        self.other |= piece.other or {}

    def tool_call(self) -> ToolCall:
        function = FunctionCall(name=self.name, arguments="".join(self.arguments))
        other = self.other or msgspec.UNSET
        return ToolCall(id=self.id or "", function=function, other=other)


@dataclass(slots=True)
class _OpenChoice:
    pieces: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    has_text: bool = False
    calls: list[_OpenCall] = field(default_factory=list)
    newest: dict[int | None, _OpenCall] = field(default_factory=dict)  # by index
    by_id: dict[str, _OpenCall] = field(default_factory=dict)
    finish_reason: str | None = None
    is_refusal: bool = False
    other: dict[str, Any] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        if delta.text is not None:
            self.has_text = True
            self.pieces.append(delta.text)
        if delta.reasoning:
            self.reasoning.append(delta.reasoning)
        if delta.other:
            self._add_other(delta.other)
        self.is_refusal |= delta.is_refusal
        for piece in delta.calls:
            self._add_call(piece)
        self.finish_reason = delta.finish_reason or self.finish_reason

    def _add_other(self, other: Mapping[str, Any]) -> None:
        """Add fields: lists are joined, other values are replaced by the newest."""
        for name, value in other.items():
            before = self.other.get(name)
            if isinstance(before, list) and isinstance(value, list):
                self.other[name] = [*before, *value]
            else:
                self.other[name] = value

    def _add_call(self, piece: CallPiece) -> None:
        call = self._call_of(piece)
        if call is None:
            call = _OpenCall(piece.index)
            self.calls.append(call)
        call.add(piece)
        self.newest[call.index] = call
        if call.id:
            self.by_id[call.id] = call

    def _call_of(self, piece: CallPiece) -> _OpenCall | None:
        """Find the call a piece belongs to; None starts a new one."""
        newest = self.newest.get(piece.index)
        if piece.index is None:
            newest = self.calls[-1] if self.calls else None
        if newest and piece.id and newest.id and piece.id != newest.id:
            return self.by_id.get(piece.id)
        if newest and piece.name and not newest.id and newest.has_all_arguments:
            # without ids, a name after complete arguments begins another call
            return None
        return newest

    def choice(self, index: int) -> Choice:
        is_empty_text = self.finish_reason is not None and not self.calls
        return Choice(
            index=index,
            text="".join(self.pieces) if self.has_text or is_empty_text else None,
            tool_calls=tuple(call.tool_call() for call in self.calls),
            finish_reason=self.finish_reason,
            reasoning="".join(self.reasoning),
            is_refusal=self.is_refusal,
            other=self.other,
        )


class Assembly:
    """A reply that grows with each chunk, in the order of arrival."""

    def __init__(self) -> None:
        self._choices: dict[int, _OpenChoice] = {}
        self._id: str | None = None
        self._created: int | None = None
        self._model: str | None = None
        self._usage: Usage | None = None
        self.n_chunks = 0

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        self.n_chunks += 1
        self._id = self._id or chunk.id
        self._created = self._created if chunk.created is None else chunk.created
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        for delta in chunk.deltas:
            if delta.index not in self._choices:
                self._choices[delta.index] = _OpenChoice()
            self._choices[delta.index].add(delta)

    @property
    def n_choices(self) -> int:
        """Number of choices that have begun."""
        return len(self._choices)

    @property
    def is_finished(self) -> bool:
        """Whether every choice that began has a finish reason."""
        choices = self._choices.values()
        return bool(choices) and all(choice.finish_reason for choice in choices)

    def has_ended(self, index: int) -> bool:
        """Whether this choice has a finish reason."""
        choice = self._choices.get(index)
        return choice is not None and choice.finish_reason is not None

    def body(self) -> CompletionBody:
        """Return the reply so far, in the shape of a whole reply."""
        return CompletionBody(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=tuple(
                choice.choice(index) for index, choice in sorted(self._choices.items())
            ),
            usage=self._usage,
        )

"""Completions as the service sends them: their content, bytes and pace.

Fields and their order are the document's (doc: Completion, Stream chunk). Where the
document is silent, this follows the other vendor's interface that it names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from .emulated_tokens import count_tokens, split_tokens
from .http_values import Piece, Reply, whole, write_json
from .request_checks import Call, ChatRequest, JsonObject

STOP = "stop"
LENGTH = "length"
JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
# doc: Response, streamed, 3.
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice: the text in the pieces in which it is streamed, or tool calls."""

    pieces: tuple[str, ...] = ()
    finish_reason: str | None = STOP
    n_tokens: int = 0
    tool_calls: tuple[Call, ...] = ()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


def cut_choice(
    tokens: Iterable[str], *, max_tokens: int, stop: Sequence[str]
) -> Choice:
    """Take tokens up to a stop sequence or to `max_tokens` (doc: Request body).

    The stop sequence is not part of the text.
    """
    pieces: list[str] = []
    text = ""
    longest = max((len(sequence) for sequence in stop), default=0)
    for token in tokens:
        if len(pieces) == max_tokens:
            return Choice(tuple(pieces), LENGTH, max_tokens)
        pieces.append(token)
        if not longest:
            continue
        # A sequence may lie across several tokens, but not further back than its
        # length.
        text = text[-longest:] + token if len(text) > longest else text + token
        places = [at for sequence in stop if (at := text.find(sequence)) >= 0]
        if places:
            kept = _without_end(pieces, len(text) - min(places))
            return Choice(kept, STOP, len(pieces))
    return Choice(tuple(pieces), STOP, len(pieces))


def cut_calls(calls: Iterable[Call], *, max_tokens: int) -> Choice:
    """Take tool calls up to `max_tokens`; the last one's arguments may be cut."""
    kept_calls: list[Call] = []
    n_left = max_tokens
    for call in calls:
        n_left -= count_tokens(call.name)
        tokens = split_tokens(call.arguments)
        if n_left >= 0:
            kept_calls.append(replace(call, arguments="".join(tokens[:n_left])))
            n_left -= len(tokens)
        if n_left < 0:
            return Choice((), LENGTH, max_tokens, tool_calls=tuple(kept_calls))
    return Choice((), STOP, max_tokens - n_left, tool_calls=tuple(kept_calls))


def cut_reply(
    text: str, calls: Sequence[Call], *, max_tokens: int, stop: Sequence[str]
) -> Choice:
    """Take a text and then tool calls, both together up to `max_tokens`.

    Where the text is cut, no call follows.
    """
    choice = cut_choice(split_tokens(text), max_tokens=max_tokens, stop=stop)
    if not calls or choice.finish_reason == LENGTH or choice.text != text:
        return choice
    calls_choice = cut_calls(calls, max_tokens=max_tokens - choice.n_tokens)
    n_tokens = choice.n_tokens + calls_choice.n_tokens
    return replace(calls_choice, pieces=choice.pieces, n_tokens=n_tokens)


def _without_end(pieces: Sequence[str], n_letters: int) -> tuple[str, ...]:
    """Remove `n_letters` from the end; pieces that become empty are removed."""
    kept_pieces = list(pieces)
    while n_letters > 0:
        last = kept_pieces.pop()
        if len(last) > n_letters:
            kept_pieces.append(last[:-n_letters])
        n_letters -= len(last)
    return tuple(kept_pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The fields that every chunk of a reply repeats (doc: Stream chunk)."""

    id: str
    created: int
    model: str

    def to_json(self, kind: str) -> JsonObject:
        """Return the fields of a reply or chunk, in the document's order."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
        }


def write_chunks(head: Head, choices: Sequence[Choice]) -> Iterator[bytes]:
    """Write a streamed reply event by event: choices in turns, then its end."""
    start = write_json(head.to_json("chat.completion.chunk"))[:-1]
    streams = [_events(index, choice) for index, choice in enumerate(choices)]
    for turn in zip_longest(*streams):
        for event in turn:
            if event is not None:
                yield b'data: %s,"choices":[%s]}\n\n' % (start, event)
    yield DONE


def _message(choice: Choice) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": choice.text}
    if choice.tool_calls:
        message["tool_calls"] = [_call(call) for call in choice.tool_calls]
    return message


def _call(call: Call) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _events(index: int, choice: Choice) -> Iterator[bytes]:
    """Write the chunks of one choice: the first has the role, the last is empty.

    The first chunk has the first piece of text, which is empty before tool calls.
    """
    pieces = choice.pieces or ("",)
    yield _event(index, {"role": "assistant", "content": pieces[0]})
    for piece in pieces[1:]:
        yield _event(index, {"content": piece})
    for at, call in enumerate(choice.tool_calls):
        for delta in _call_deltas(at, call):
            yield _event(index, {"tool_calls": [delta]})
    yield _event(index, {}, choice.finish_reason)


def _call_deltas(at: int, call: Call) -> Iterator[JsonObject]:
    """Write a tool call in pieces: its head, then its arguments in two halves.

    The document does not show how calls are streamed; each delta has an `index`.
    """
    head = _call(call)
    head["function"]["arguments"] = ""
    yield {"index": at, **head}
    half = len(call.arguments) // 2
    for part in (call.arguments[:half], call.arguments[half:]):
        if part:
            yield {"index": at, "function": {"arguments": part}}


def _event(
    index: int, delta: Mapping[str, Any], finish_reason: str | None = None
) -> bytes:
    return write_json({"index": index, "delta": delta, "finish_reason": finish_reason})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast tokens are sent.

    Attributes:
        first_token_s: Seconds until the first token, 0 or more.
        tokens_per_s: Tokens per second after the first; None for no waiting.
    """

    first_token_s: float = 0.0
    tokens_per_s: float | None = None

    @property
    def token_s(self) -> float:
        """Seconds from one token to the next."""
        return 1.0 / self.tokens_per_s if self.tokens_per_s else 0.0


def deliver(
    chat: ChatRequest,
    head: Head,
    choices: Sequence[Choice],
    *,
    pace: Pace,
    usage: Mapping[str, int] | None = None,
) -> Reply:
    """Make the reply with these choices, in one piece or streamed, as requested.

    `usage` replaces the counted usage of a whole reply; an empty one is left out.
    """
    if chat.is_streamed:
        return _streamed(head, choices, pace)
    n_tokens = [choice.n_tokens for choice in choices]
    if usage is None:
        usage = {
            "prompt_tokens": chat.n_prompt_tokens,
            "completion_tokens": sum(n_tokens),
            "total_tokens": chat.n_prompt_tokens + sum(n_tokens),
        }
    body = head.to_json("chat.completion")
    if usage:
        body["usage"] = usage
    body["choices"] = [
        {
            "index": index,
            "message": _message(choice),
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]
    before_s = pace.first_token_s + max(n_tokens, default=0) * pace.token_s
    return whole(200, write_json(body), content_type=JSON, before_s=before_s)


def _streamed(head: Head, choices: Sequence[Choice], pace: Pace) -> Reply:
    """Send one event for each token.

    The headers wait for the first token; the first event follows at once.
    """
    gap_s = pace.token_s / max(len(choices), 1)
    body = tuple(
        Piece(gap_s if at else 0.0, event)
        for at, event in enumerate(write_chunks(head, choices))
    )
    headers = {"content-type": EVENTS, "cache-control": "no-cache"}
    return Reply(status=200, headers=headers, body=body, before_s=pace.first_token_s)

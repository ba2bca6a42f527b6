"""One choice of a completion: text or calls cut off where the request says.

What it is not: it neither writes text nor bytes.

Rules for this file: the text ends before a stop sequence, which is not part of
it, or after `max_tokens` tokens, whichever comes first (doc: Request body); the
finish reason is `stop` for a normal end and `length` for the latter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .ask import Call
from .tokens import count_tokens, split_tokens

STOP = "stop"
LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one choice holds.

    Attributes:
        pieces: The text in the pieces in which it is streamed.
        finish_reason: `stop`, `length`, or what a script says.
        n_tokens: Tokens that were generated.
        tool_calls: Calls instead of a text, if any.
    """

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
    """Take tokens up to a stop sequence or to `max_tokens`."""
    pieces: list[str] = []
    text = ""
    longest = max((len(each) for each in stop), default=0)
    for token in tokens:
        if len(pieces) == max_tokens:
            return Choice(
                pieces=tuple(pieces), finish_reason=LENGTH, n_tokens=max_tokens
            )
        pieces.append(token)
        if not longest:
            continue
        # A sequence may lie across tokens, never further back than its length.
        text = text[-longest:] + token if len(text) > longest else text + token
        found = _first(text, stop)
        if found is not None:
            return Choice(
                pieces=_without_end(pieces, len(text) - found),
                n_tokens=len(pieces),
            )
    return Choice(pieces=tuple(pieces), n_tokens=len(pieces))


def cut_calls(calls: Iterable[Call], *, max_tokens: int) -> Choice:
    """Take tool calls up to `max_tokens`; the arguments of the last may break off."""
    made: list[Call] = []
    left = max_tokens
    for call in calls:
        left -= count_tokens(call.name)
        tokens = split_tokens(call.arguments)
        if left < 0:
            return _cut_off(made, max_tokens)
        made.append(replace(call, arguments="".join(tokens[:left])))
        left -= len(tokens)
        if left < 0:
            return _cut_off(made, max_tokens)
    return Choice(tool_calls=tuple(made), n_tokens=max_tokens - left)


def _cut_off(made: Sequence[Call], n_tokens: int) -> Choice:
    """Make a choice of calls that did not all fit."""
    return Choice(tool_calls=tuple(made), finish_reason=LENGTH, n_tokens=n_tokens)


def _first(text: str, stop: Sequence[str]) -> int | None:
    """Find where the first of the sequences begins."""
    found = [at for each in stop if (at := text.find(each)) >= 0]
    return min(found, default=None)


def _without_end(pieces: Sequence[str], n_letters: int) -> tuple[str, ...]:
    """Take so many letters off the end; pieces left empty go."""
    kept = list(pieces)
    while n_letters > 0:
        last = kept.pop()
        if len(last) > n_letters:
            kept.append(last[:-n_letters])
        n_letters -= len(last)
    return tuple(kept)

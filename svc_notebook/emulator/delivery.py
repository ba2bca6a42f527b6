"""Choices on their way: whole or streamed, and when each piece comes.

What it is not: the bytes are `completion`'s; nobody waits here.

Rules for this file: the first piece comes after the headers at once, so that
whatever a reply waits for at its beginning is waited for before the headers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .ask import Ask
from .choice import Choice
from .completion import Head, usage_of, write_chunks, write_completion
from .reply import Piece, Reply, whole

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast tokens come.

    Attributes:
        first_token_s: Seconds until the first token, 0 or more.
        tokens_per_s: Tokens a second after it; None for no waiting.
    """

    first_token_s: float = 0.0
    tokens_per_s: float | None = None

    @property
    def token_s(self) -> float:
        """Seconds from one token to the next."""
        return 1.0 / self.tokens_per_s if self.tokens_per_s else 0.0


def deliver(
    ask: Ask,
    head: Head,
    choices: Sequence[Choice],
    *,
    pace: Pace,
    usage: Mapping[str, int] | None = None,
) -> Reply:
    """Answer an ask with these choices.

    Args:
        ask: What was asked; its `stream` decides the form.
        head: What names the reply.
        choices: In order of their index.
        pace: How fast.
        usage: Written in a whole reply instead of what was counted.
    """
    if ask.is_streamed:
        return _streamed(head, choices, pace)
    counted = usage_of(ask.n_prompt_tokens, choices) if usage is None else usage
    longest = max((choice.n_tokens for choice in choices), default=0)
    return whole(
        200,
        write_completion(head, choices, counted or None),
        content_type=JSON,
        before_s=pace.first_token_s + longest * pace.token_s,
    )


def _streamed(head: Head, choices: Sequence[Choice], pace: Pace) -> Reply:
    """Send an event a token; choices are written side by side."""
    gap_s = pace.token_s / max(len(choices), 1)
    body = tuple(
        Piece(gap_s if at else 0.0, event)
        for at, event in enumerate(write_chunks(head, choices))
    )
    return Reply(
        status=200,
        headers={"content-type": EVENTS, "cache-control": "no-cache"},
        body=body,
        before_s=pace.first_token_s,
    )

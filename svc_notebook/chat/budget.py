"""The budget of one request: 8192 tokens that prompt and reply share (doc: Limits).

Rules: pure; sizes are estimates that err high (see `tokens`), so a prompt that is
estimated a little over the budget is still sent, and only one that is far over is
refused; what is left out of a conversation is left out by whole turns, so that a
tool call never loses its results, oldest first, and is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.message import Message
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.tokens import estimate_prompt_tokens

from .turns import Turn

MARGIN_TOKENS = 32
"""Kept free for what surrounds the messages and nobody can count."""

FLOOR_TOKENS = 256
"""Asked for when the estimate leaves no room: the estimate errs high."""

REPLY_TOKENS = 1024
"""Room kept for the reply when turns are left out and nobody asked for a size."""


MaxTokens = int | Literal["fit", "service"] | None
"""A number; `fit` for what is left of the budget; `service` or None to send none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What of a conversation goes into a request.

    Attributes:
        messages: To send, oldest first, the new prompt last.
        left_out: Turns that did not fit, oldest first.
        prompt_tokens: Estimated tokens of `messages`.
        left_out_tokens: Estimated tokens of `left_out`.
    """

    messages: tuple[Message, ...]
    left_out: tuple[Turn, ...] = ()
    prompt_tokens: int = 0
    left_out_tokens: int = 0


def fit_max_tokens(prompt_tokens: int, *, budget_tokens: int = BUDGET_TOKENS) -> int:
    """Return the most tokens that a reply can have beside this prompt.

    Args:
        prompt_tokens: Estimated tokens of the whole prompt.
        budget_tokens: Tokens that prompt and completion share (doc: Limits).
    """
    return max(budget_tokens - prompt_tokens - MARGIN_TOKENS, FLOOR_TOKENS)


def in_force(max_tokens: MaxTokens, prompt_tokens: int) -> int | None:
    """Return the max_tokens to send; None sends none, so that the default applies.

    Args:
        max_tokens: As asked for.
        prompt_tokens: Estimated tokens of the whole prompt.
    """
    if max_tokens == "fit":
        return fit_max_tokens(prompt_tokens)
    return None if max_tokens in {None, "service"} else max_tokens  # type: ignore[return-value]  # the words are gone


def room_for_reply(max_tokens: MaxTokens) -> int:
    """Return the tokens to keep free for a reply when turns are left out."""
    if isinstance(max_tokens, int):
        return max_tokens
    return REPLY_TOKENS if max_tokens == "fit" else DEFAULT_MAX_TOKENS


def fit(
    system: str | None,
    turns: Sequence[Turn],
    prompt: Message,
    *,
    reply_tokens: int = REPLY_TOKENS,
    budget_tokens: int = BUDGET_TOKENS,
) -> Fitted:
    """Choose what of a conversation is sent.

    Args:
        system: The system message's text; always sent.
        turns: Oldest first; hidden ones are never sent, pinned ones always.
        prompt: The new message; always sent.
        reply_tokens: Room to keep for the reply.
        budget_tokens: Tokens that prompt and completion share (doc: Limits).
    """
    front = () if system is None else (Message(role="system", content=system),)
    shown = [turn for turn in turns if not turn.is_hidden]
    sizes = {turn.turn_id: estimate_prompt_tokens(turn.messages) for turn in shown}
    n_fixed = estimate_prompt_tokens((*front, prompt)) + sum(
        sizes[turn.turn_id] for turn in shown if turn.is_pinned
    )
    room = budget_tokens - MARGIN_TOKENS - reply_tokens - n_fixed
    kept = {turn.turn_id for turn in shown if turn.is_pinned}
    for turn in reversed([turn for turn in shown if not turn.is_pinned]):
        room -= sizes[turn.turn_id]
        if room < 0:
            break
        kept.add(turn.turn_id)
    sent = [turn for turn in shown if turn.turn_id in kept]
    left_out = tuple(turn for turn in shown if turn.turn_id not in kept)
    messages = (*front, *(m for turn in sent for m in turn.messages), prompt)
    return Fitted(
        messages=messages,
        left_out=left_out,
        prompt_tokens=estimate_prompt_tokens(messages),
        left_out_tokens=sum(sizes[turn.turn_id] for turn in left_out),
    )

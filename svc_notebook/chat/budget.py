"""What of a conversation goes into a request, where not all of it fits the budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from svc_notebook.budget import MARGIN_TOKENS, REPLY_TOKENS
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.message import Message
from svc_notebook.tokens import estimate_prompt_tokens

from .turns import Turn


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

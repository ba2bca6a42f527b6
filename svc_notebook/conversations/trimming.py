"""Which turns a request sends: trimming a conversation to the token budget.

The newest turns that fit are sent; the oldest ones are left out first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import Message
from svc_notebook.tokens import MARGIN_TOKENS, REPLY_TOKENS, estimate_prompt_tokens

from .history import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The part of a conversation that fits into a request."""

    messages: tuple[Message, ...]  # to send, the new prompt last
    left_out: tuple[Turn, ...] = ()  # turns that did not fit, oldest first
    left_out_tokens: int = 0  # estimated

    @property
    def note(self) -> str:
        """Say which turns are left out; "" if none is."""
        if not self.left_out:
            return ""
        n = len(self.left_out)
        turns = "turn" if n == 1 else f"{n} turns"
        return (
            f"left out to fit the limit: the oldest {turns}, about "
            f"{self.left_out_tokens} tokens (estimated)"
        )


def fit(
    system: str | None,
    turns: Sequence[Turn],
    prompt: Message,
    *,
    reply_tokens: int = REPLY_TOKENS,
    budget_tokens: int = BUDGET_TOKENS,
) -> Fitted:
    """Choose the turns that are sent: the newest ones that fit, and the pinned ones.

    Hidden and empty turns are never sent, the system message and the new prompt always.
    Sizes are best estimates: bounds for any tokenizer would leave out far too much.
    `reply_tokens` are kept free for the reply.
    """
    front = () if system is None else (Message(role="system", content=system),)
    shown = [turn for turn in turns if not (turn.is_hidden or turn.version.is_empty)]
    sizes = {turn.turn_id: estimate_prompt_tokens(turn.messages).best for turn in shown}
    sent_ids = {turn.turn_id for turn in shown if turn.is_pinned}
    room = budget_tokens - MARGIN_TOKENS - reply_tokens
    room -= estimate_prompt_tokens((*front, prompt)).best
    room -= sum(sizes[turn_id] for turn_id in sent_ids)
    for turn in reversed([turn for turn in shown if not turn.is_pinned]):
        room -= sizes[turn.turn_id]
        if room < 0:
            break
        sent_ids.add(turn.turn_id)
    sent = [turn for turn in shown if turn.turn_id in sent_ids]
    left_out = tuple(turn for turn in shown if turn.turn_id not in sent_ids)
    messages = (*front, *(m for turn in sent for m in turn.messages), prompt)
    return Fitted(
        messages=messages,
        left_out=left_out,
        left_out_tokens=sum(sizes[turn.turn_id] for turn in left_out),
    )

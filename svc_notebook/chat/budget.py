"""The budget of one request: 8192 tokens that prompt and reply share (doc: Limits).

Rules: pure; sizes are estimates that err high (see `tokens`), so a prompt that is
estimated a little over the budget is still sent, and only one that is far over is
refused; what is left out of a conversation is left out by whole turns, so that a
tool call never loses its results, oldest first, and is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from svc_notebook.errors import OverBudgetError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.message import Message
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens

from .turns import Turn

MARGIN_TOKENS = 32
"""Kept free for what surrounds the messages and nobody can count."""

FLOOR_TOKENS = 256
"""Asked for when the estimate leaves no room: the estimate errs high."""

REPLY_TOKENS = 1024
"""Room kept for the reply when turns are left out and nobody asked for a size."""

_SURE = 0.5  # estimates err high, but not by more than half

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a request is made of, in estimated tokens.

    Attributes:
        prompt: Messages of the system and the user, and what the assistant said.
        calls: Messages of the assistant that call tools.
        results: Messages of tools.
        definitions: Tool definitions.
        reply: What `max_tokens` asks for; 0 where none is sent.
    """

    prompt: int
    calls: int
    results: int
    definitions: int
    reply: int

    @property
    def sent(self) -> int:
        """Tokens that are sent."""
        return self.prompt + self.calls + self.results + self.definitions

    @property
    def in_words(self) -> str:
        """The parts, the largest first."""
        names = {
            "the messages": self.prompt,
            "the model's tool calls": self.calls,
            "the tools' results": self.results,
            "the tools' definitions": self.definitions,
            "max_tokens": self.reply,
        }
        sizes = sorted(names.items(), key=lambda each: each[1], reverse=True)
        return ", ".join(f"{name} {size}" for name, size in sizes if size)

    @property
    def remedy(self) -> str:
        """What to do about the largest part."""
        remedies = {
            "Ask for less with max_tokens": self.reply,
            "Shorten the prompt": self.prompt,
            "Ask for fewer or shorter tool calls": self.calls,
            "Let the tools return less (max_result_tokens), or allow fewer rounds": (
                self.results
            ),
            "Offer fewer tools, or shorten their descriptions": self.definitions,
        }
        return max(remedies, key=lambda each: remedies[each])


def parts_of(request: CompletionRequest) -> Parts:
    """Say what the parts of a request weigh."""
    results = [each for each in request.messages if each.role == "tool"]
    calls = [each for each in request.messages if each.tool_calls]
    others = [
        each for each in request.messages if each.role != "tool" and not each.tool_calls
    ]
    return Parts(
        prompt=estimate_prompt_tokens(others),
        calls=estimate_prompt_tokens(calls),
        results=estimate_prompt_tokens(results),
        definitions=estimate_prompt_tokens((), request.tools),
        reply=int(request.params.get("max_tokens", 0)),
    )


def check_parts(request: CompletionRequest) -> Parts:
    """Weigh a request, and refuse one that is certain not to fit.

    Raises:
        OverBudgetError: It does not fit; the message says which part is large.
    """
    parts = parts_of(request)
    if parts.sent * _SURE + parts.reply <= BUDGET_TOKENS:
        return parts
    raise OverBudgetError(
        f"The request has about {parts.sent} tokens (estimated: {parts.in_words}); "
        f"prompt and reply together may have {BUDGET_TOKENS}. It was not sent. "
        f"{parts.remedy} (doc: Limits).",
        prompt_tokens=parts.sent,
        budget_tokens=BUDGET_TOKENS,
    )


def room_for_results(
    request: CompletionRequest, *, n_calls: int, reply_tokens: int
) -> int:
    """Return the tokens that each result of so many calls may have.

    Results share evenly what a request leaves beside its reply, and one share is left
    for later rounds; each has at least `FLOOR_TOKENS`, since the estimates err high.

    Args:
        request: With the calls' message at its end.
        n_calls: How many results are to come.
        reply_tokens: Room to keep for the reply.
    """
    room = BUDGET_TOKENS - MARGIN_TOKENS - parts_of(request).sent - reply_tokens
    return max(room // (n_calls + 1), FLOOR_TOKENS)

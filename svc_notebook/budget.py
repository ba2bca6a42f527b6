"""The budget of one request: 8192 tokens that prompt and reply share (doc: Limits).

Sizes are estimates that err high (see `tokens`): a prompt that is estimated a little
over the budget is still sent, and only one that is far over is refused.
"""

from dataclasses import dataclass
from typing import Literal

from svc_notebook.errors import OverBudgetError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens

MARGIN_TOKENS = 32
"""Kept free for what surrounds the messages and nobody can count."""

FLOOR_TOKENS = 256
"""Asked for when the estimate leaves no room: the estimate errs high."""

REPLY_TOKENS = 1024
"""Room kept for the reply when turns are left out and nobody asked for a size."""

_SURE = 0.5  # estimates err high, but not by more than half

MaxTokens = int | Literal["fit", "service"] | None
"""A number; `fit` for what is left of the budget; `service` or None to send none."""


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


def within_budget(request: CompletionRequest) -> int:
    """Return the estimated tokens of the prompt, if it may fit one request.

    Raises:
        OverBudgetError: It is certain not to fit.
    """
    prompt_tokens = estimate_prompt_tokens(request.messages, request.tools)
    max_tokens = int(request.params.get("max_tokens", 0))
    if prompt_tokens * _SURE + max_tokens <= BUDGET_TOKENS:
        return prompt_tokens
    is_prompt_over = prompt_tokens * _SURE > BUDGET_TOKENS
    remedy = (
        "Shorten the prompt, or split it over several requests"
        if is_prompt_over
        else f"max_tokens={max_tokens} leaves it no room; ask for at most "
        f"{BUDGET_TOKENS - prompt_tokens}"
    )
    raise OverBudgetError(
        f"The prompt has about {prompt_tokens} tokens (estimated); prompt and reply "
        f"together may have {BUDGET_TOKENS}. It was not sent. {remedy} (doc: Limits).",
        prompt_tokens=prompt_tokens,
        budget_tokens=BUDGET_TOKENS,
    )

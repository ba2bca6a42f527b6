"""The request of a turn: a new one, or one that is asked again, trimmed to its budget.

The newest turns that fit are sent; the oldest ones are left out first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.completion import on_params
from svc_notebook.errors import ParameterError, warn
from svc_notebook.exchange import Origin
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import CompletionRequest, Message, build_request
from svc_notebook.tokens import (
    MARGIN_TOKENS,
    REPLY_TOKENS,
    MaxTokens,
    check_max_tokens,
    estimate_prompt_tokens,
    room_for_reply,
    with_max_tokens,
)

from .history import History, Turn


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The model and parameters of a turn's request."""

    model: str
    params: Mapping[str, Any] = field(default_factory=dict)  # with `tools` and `extra`
    max_tokens: MaxTokens = "fit"
    context_tokens: int = BUDGET_TOKENS  # that prompt and reply share
    system: str | None = None  # replaces the history's system message; "" sends none


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """A turn that is ready to be sent."""

    request: CompletionRequest
    origin: Origin  # names the conversation and the turn
    fitted: Fitted
    is_again: bool = False  # the turn has an answer already
    n_later: int = 0  # turns after it, which become stale

    def notes(self) -> tuple[str, ...]:
        """Return the notes on the request, and warn of the turns that are not sent.

        The document's advice about its parameters is warned of too.
        """
        if advice := on_params(self.request.params):
            warn(advice, UserWarning)
        if note := self.fitted.note:
            warn(f"{self.origin.conversation}: {note}; pinned turns are always sent.")
        return (note,) if note else ()


def request_turn(
    history: History, text: str, origin: Origin, settings: TurnSettings
) -> NextTurn:
    """Build the request of the turn that `origin` names, which may be asked again."""
    prompt = Message(role="user", content=text)
    if not text.strip():
        raise ParameterError(
            "The prompt is empty; write what to ask.",
            param="messages",
        )
    turns = history.before(origin.turn_id or "")
    if settings.system is not None:
        history = replace(history, system=settings.system or None)
    return next_turn(history, turns, prompt, origin, settings)


def next_turn(
    history: History,
    turns: tuple[Turn, ...],
    prompt: Message,
    origin: Origin,
    settings: TurnSettings,
) -> NextTurn:
    """Build a request that sends what fits of these turns, and then the prompt."""
    params = dict(settings.params)
    budget = settings.context_tokens
    max_tokens = check_max_tokens(settings.max_tokens, most_tokens=budget)
    tools = params.get("tools")  # checked when the request is built
    tools = tools if isinstance(tools, (list, tuple)) else ()
    definitions = [tool for tool in tools if isinstance(tool, Mapping)]
    n_tool_tokens = estimate_prompt_tokens((), definitions).best
    fitted = fit(
        history.system,
        turns,
        prompt,
        reply_tokens=room_for_reply(max_tokens),
        budget_tokens=budget - n_tool_tokens,
    )
    request = build_request(
        fitted.messages,
        model=settings.model,
        params=params,
        context_of=lambda _: budget,
    )
    index = history.find(origin.turn_id or "")
    return NextTurn(
        request=with_max_tokens(request, max_tokens),
        origin=origin,
        fitted=fitted,
        is_again=index is not None,
        n_later=0 if index is None else len(history.turns) - index - 1,
    )

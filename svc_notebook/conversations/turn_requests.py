"""From a turn of a conversation to its request, and from the answer back to the turn.

Pure. A request is fitted into the budget before it is built. To continue a reply that
was cut, a user message after the text so far asks for it, since the document shows no
other way (doc: Request body).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from svc_notebook.completion import Completion, footer, marks
from svc_notebook.display.tool_calls import Step
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.chunk import Choice
from svc_notebook.service.message import Message
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.tokens import (
    MARGIN_TOKENS,
    REPLY_TOKENS,
    MaxTokens,
    estimate_prompt_tokens,
    in_force,
    room_for_reply,
)

from .history import History, State, Turn, Version


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


GO_ON = (
    "Your last message stopped before its end. Go on exactly where it stopped, with "
    "the very next character: repeat nothing, add no remark, keep language and format."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """How to ask.

    Attributes:
        model: Id of the model.
        params: Parameters by the document's names; `max_tokens`, `tools` and `extra`
            may be among them.
        max_tokens: Holds where `params` has none.
        system: Sent in place of the history's; "" for none.
    """

    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: MaxTokens = None
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """A turn about to be asked.

    Attributes:
        request: What is sent.
        origin: Who asks, with the conversation and the turn.
        fitted: What of the history goes along, and what is left out.
        is_again: Whether the turn was answered before.
        n_later: How many turns come after it, which become stale.
    """

    request: CompletionRequest
    origin: Origin
    fitted: Fitted
    is_again: bool = False
    n_later: int = 0


def request_turn(
    history: History, text: str, origin: Origin, wanted: TurnSettings
) -> NextTurn:
    """Prepare a turn, new or asked again.

    Args:
        history: So far.
        text: The message of the user.
        origin: Names the turn; one that is there is asked again.
        wanted: How to ask.

    Raises:
        AskError: Something is not allowed.
    """
    prompt = Message(role="user", content=text)
    if not text.strip():
        raise ParameterError(
            "The prompt is empty; write what to ask (doc: Request body).",
            param="messages",
        )
    turns = history.before(origin.turn_id or "")
    if wanted.system is not None:
        history = replace(history, system=wanted.system or None)
    return _step(history, turns, prompt, origin, wanted)


def request_continuation(
    history: History, origin: Origin, wanted: TurnSettings
) -> NextTurn:
    """Prepare to go on with a reply that stopped before its end.

    No tools are offered and one choice is asked for: what comes belongs to the text.

    Args:
        history: So far.
        origin: Names the turn, whose chosen version goes on.
        wanted: How to ask.

    Raises:
        NotThereError: There is no such turn.
        AskError: There is nothing to go on with, or something is not allowed.
    """
    turn = history.turn(origin.turn_id or "")
    if not turn.version.can_go_on:
        raise ParameterError(
            "This reply is whole; only one that was cut or interrupted, and has some "
            "text, can be continued.",
            param="turn",
        )
    left_out = {"n": None, "tools": None}
    wanted = replace(wanted, params={**wanted.params, **left_out})
    continues = turn.version.exchange_id
    origin = msgspec.structs.replace(origin, continues=continues)
    kept = replace(turn, is_pinned=True, is_hidden=False)  # what goes on must be sent
    turns = (*history.before(turn.turn_id), kept)
    prompt = Message(role="user", content=GO_ON)
    return _step(history, turns, prompt, origin, wanted)


def _step(
    history: History,
    turns: tuple[Turn, ...],
    prompt: Message,
    origin: Origin,
    wanted: TurnSettings,
) -> NextTurn:
    given = dict(wanted.params)
    max_tokens = given.pop("max_tokens", None) or wanted.max_tokens
    extra = given.pop("extra", None)
    n_tools = _definition_tokens(given.get("tools"))
    fitted = fit(
        history.system,
        turns,
        prompt,
        reply_tokens=room_for_reply(max_tokens),
        budget_tokens=BUDGET_TOKENS - n_tools,
    )
    n_tokens = fitted.prompt_tokens + n_tools
    place = history.place_of(origin.turn_id or "")
    return NextTurn(
        request=build_request(
            fitted.messages,
            model=wanted.model,
            params={**given, "max_tokens": in_force(max_tokens, n_tokens)},
            extra=extra,
        ),
        origin=origin,
        fitted=fitted,
        is_again=place is not None,
        n_later=0 if place is None else len(history.turns) - place - 1,
    )


def _definition_tokens(tools: object) -> int:
    """Estimate tool definitions; what is none is refused where the request is built."""
    if not isinstance(tools, (list, tuple)):
        return 0
    found = [each for each in tools if isinstance(each, Mapping)]
    return estimate_prompt_tokens((), found)


_N_GOING_ON = 2  # the text so far, and the message that asks to go on


def answered(
    history: History,
    exchange: Exchange,
    origin: Origin,
    tool_runs: tuple[Step, ...] = (),
) -> History:
    """Return the history with what an exchange brought.

    Args:
        history: So far.
        exchange: Ended, well or not.
        origin: Names the turn; without one nothing changes.
        tool_runs: The tool calls that were answered for it.
    """
    found = [each for each in exchange.choices if each.text or each.tool_calls]
    if not found or not origin.turn_id:
        return history
    if origin.continues:
        return _going_on(history, exchange, origin, found[0].text or "")
    version = replace(_version(exchange, found), tool_runs=tool_runs)
    turn = _turn(history, origin.turn_id)
    is_follow_up = exchange.request.messages[-1].role == "tool"
    if turn and is_follow_up and turn.versions[-1].is_open:
        return history.replacing(turn.turn_id, len(turn.versions) - 1, version)
    return history.answered(origin.turn_id, version)


def rebuilt(exchanges: Iterable[Exchange]) -> State | None:
    """Return the turns since the last reset; None without any.

    Args:
        exchanges: Those of one conversation, oldest first.
    """
    kept = [each for each in exchanges if each.origin.turn_id]
    if not kept:
        return None
    series = series_of(kept[-1].origin)
    history = History(system=kept[-1].request.system)
    for exchange in kept:
        if series_of(exchange.origin) == series:
            history = answered(history, exchange, exchange.origin)
    return State(history, series)


def series_of(origin: Origin) -> str:
    """Return which series of turns, from one reset to the next, a turn is of."""
    return (origin.turn_id or "").partition("/")[0]


def _version(exchange: Exchange, found: list[Choice]) -> Version:
    prompt, rounds = _asked(exchange.request.messages)
    replies = tuple(
        Message(role="assistant", content=choice.text or "") for choice in found
    )
    return Version(
        exchange_id=exchange.exchange_id,
        prompt=prompt,
        replies=(*rounds, replies[0]),
        choices=replies if len(replies) > 1 else (),
        is_partial=exchange.status != "ok",
        is_cut=Completion(exchange).is_cut,
        is_open=bool(found[0].tool_calls),
        footer=footer(exchange),
        marks=marks(exchange),
    )


def _asked(messages: tuple[Message, ...]) -> tuple[Message, tuple[Message, ...]]:
    """Part the newest user message from the tool rounds after it."""
    users = [place for place, each in enumerate(messages) if each.role == "user"]
    place = users[-1] if users else len(messages) - 1
    return messages[place], messages[place + 1 :]


def _going_on(
    history: History, exchange: Exchange, origin: Origin, text: str
) -> History:
    """Join a continuation to the text that it continues."""
    if not text:
        return history
    before = exchange.request.messages[:-_N_GOING_ON]
    so_far = exchange.request.messages[-_N_GOING_ON].content or ""
    prompt, rounds = _asked(before)
    reply = Message(role="assistant", content=so_far + text)
    version = Version(
        exchange_id=exchange.exchange_id,
        prompt=prompt,
        replies=(*rounds, reply),
        is_partial=exchange.status != "ok",
        is_cut=Completion(exchange).is_cut,
        footer=f"{footer(exchange)} · continued",
        marks=marks(exchange),
    )
    turn_id = origin.turn_id or ""
    turn = _turn(history, turn_id)
    ids = [each.exchange_id for each in turn.versions] if turn else []
    if turn is None or origin.continues not in ids:
        return history.answered(turn_id, version)
    index = ids.index(origin.continues)
    return history.replacing(
        turn_id, index, _among_choices(version, turn.versions[index], so_far)
    )


def _among_choices(version: Version, old: Version, so_far: str) -> Version:
    """Keep the other choices of the version that was continued."""
    texts = [each.content for each in old.choices]
    if so_far not in texts:
        return replace(version, choices=old.choices, picked=old.picked)
    picked = texts.index(so_far)
    choices = (*old.choices[:picked], version.replies[-1], *old.choices[picked + 1 :])
    return replace(version, choices=choices, picked=picked)


def _turn(history: History, turn_id: str) -> Turn | None:
    place = history.place_of(turn_id)
    return None if place is None else history.turns[place]

"""From an exchange to the history: which turn it answers, and what the answer is.

What it is not: it reads no ledger and asks nothing. Rules: pure; the request itself
says what was answered, so that a conversation can be rebuilt from exchanges alone;
an answer without any content changes nothing; calls that have no results are dropped,
so that the history can be sent.

The prompt is the newest user message; what stands after it and the reply are the
answer. A request that ends in a tool message goes on with the answer that asked for
the tool; one whose origin names an exchange goes on with the text of that one.
"""

from collections.abc import Iterable
from dataclasses import replace

from svc_notebook.completion import Completion, footer, marks
from svc_notebook.display.reply import Step
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Choice
from svc_notebook.service.message import Message

from .history import History, State, Turn, Version

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

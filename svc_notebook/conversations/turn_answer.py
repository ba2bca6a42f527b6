"""Adds the answer of an exchange to a history, also one that was cut or interrupted."""

from collections.abc import Sequence
from dataclasses import replace

from svc_notebook.completion import Completion, marks
from svc_notebook.display.footer import footer
from svc_notebook.display.tool_runs import Step
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.records import Comparison
from svc_notebook.service.chunk import Choice
from svc_notebook.service.request import Message

from .continuation import join_text
from .history import History, Turn, Version
from .picks import with_comparison


def add_answers(
    origin: Origin,
    completions: Sequence[Completion],
    comparison: Comparison | None,
    history: History,
) -> History:
    """Return the history with an answer, or with several that were compared.

    Of several, later requests send the first.
    """
    for completion in completions:
        history = add_answer(history, completion.exchange, origin, completion.tool_runs)
    if comparison is None:
        return history
    used = completions[0].exchange.exchange_id
    return with_comparison(history, origin.turn_id or "", comparison, used)


def add_answer(
    history: History,
    exchange: Exchange,
    origin: Origin,
    tool_runs: tuple[Step, ...] = (),
) -> History:
    """Return the history with the complete or partial answer of an exchange.

    Without any text or tool calls, or if `origin` names no turn, nothing changes.
    """
    choices = [
        choice for choice in exchange.choices if choice.text or choice.tool_calls
    ]
    if origin.turn_id and origin.continues and (choices or exchange.status == "ok"):
        text = (choices[0].text or "") if choices else ""
        return _add_continuation(history, exchange, origin, text)
    if not choices or not origin.turn_id:
        return history
    texts = [choice.text or "" for choice in choices]
    version = replace(
        _to_version(exchange, exchange.request.messages, texts),
        attached=origin.attached,
        indexes=tuple(choice.index for choice in choices),
        is_open=bool(choices[0].tool_calls),
        tool_runs=tool_runs,
        reasonings=tuple(choice.reasoning for choice in choices),
    )
    if version.is_open:
        version = replace(version, replies=_open_replies(version, choices[0]))
    turn = _find_turn(history, origin.turn_id)
    has_results = exchange.request.messages[-1].role == "tool"
    if turn and has_results and turn.versions[-1].is_open:
        return history.with_version(turn.turn_id, len(turn.versions) - 1, version)
    return history.with_answer(origin.turn_id, version)


def _open_replies(version: Version, last: Choice) -> tuple[Message, ...]:
    """Return the messages of an answer that ends with calls, with known results.

    Calls without results cannot be sent, nor is an empty reply of use after results.
    """
    *rounds, reply = version.replies
    calls = last.tool_calls
    runs = version.tool_runs[sum(message.role == "tool" for message in rounds) :]
    if [run.call_id for run in runs] == [call.id for call in calls]:
        results = (
            Message(role="tool", content=run.result, tool_call_id=run.call_id)
            for run in runs
        )
        called = Message(role="assistant", content=last.text, tool_calls=calls)
        return (*rounds, called, *results)
    return tuple(rounds) if rounds and not reply.content else version.replies


def _to_version(
    exchange: Exchange, sent: tuple[Message, ...], texts: list[str]
) -> Version:
    """Make a version of an answer to a prompt, and to the tool rounds after it."""
    users = [index for index, message in enumerate(sent) if message.role == "user"]
    index = users[-1] if users else len(sent) - 1
    replies = tuple(Message(role="assistant", content=text) for text in texts)
    return Version(
        exchange_id=exchange.exchange_id,
        prompt=sent[index],
        replies=(*sent[index + 1 :], replies[0]),
        choices=replies if len(replies) > 1 else (),
        is_partial=exchange.status != "ok",
        is_cut=Completion(exchange).is_cut,
        limit=_limit(exchange) if Completion(exchange).is_cut else "",
        footer=footer(exchange),
        marks=marks(exchange),
    )


def _limit(exchange: Exchange) -> str:
    param = "max_tokens" if "max_tokens" in exchange.request.params else "the default"
    why = "all that was left" if exchange.request.is_fitted else param
    return f"{exchange.max_tokens:,} tokens ({why})"


def _add_continuation(
    history: History, exchange: Exchange, origin: Origin, text: str
) -> History:
    """Add the text of a continuation to the reply that it continues."""
    *sent, partial, _ = exchange.request.messages
    so_far = partial.content or ""
    version = _to_version(exchange, tuple(sent), [join_text(so_far, text)])
    ended = tuple(mark for mark in version.marks if mark != "empty")
    version = replace(version, footer=f"{version.footer} · continued", marks=ended)
    turn_id = origin.turn_id or ""
    turn = _find_turn(history, turn_id)
    ids = [version.exchange_id for version in turn.versions] if turn else []
    if turn is None or origin.continues not in ids:
        return history.with_answer(turn_id, version)
    at = ids.index(origin.continues)
    version = _with_choices_of(turn.versions[at], version, so_far)
    old = turn.versions[at]
    version = replace(version, attached=old.attached, reasonings=old.reasonings)
    return history.with_version(turn_id, at, version)


def _with_choices_of(old: Version, version: Version, so_far: str) -> Version:
    """Keep the choices of the version that was continued; one of them has grown."""
    version = replace(
        version,
        first_id=old.scored_id,
        indexes=old.indexes,
        picked=old.picked,
        is_picked=old.is_picked,
    )
    texts = [choice.content for choice in old.choices]
    if so_far not in texts:
        return replace(version, choices=old.choices)
    picked = texts.index(so_far)
    choices = (*old.choices[:picked], version.replies[-1], *old.choices[picked + 1 :])
    return replace(version, choices=choices, picked=picked)


def _find_turn(history: History, turn_id: str) -> Turn | None:
    index = history.find(turn_id)
    return None if index is None else history.turns[index]

"""One turn with the service: builds its request, and adds its answer to the history.

A request is for a new turn, for a turn that is asked again, or for the rest of a reply.
It is trimmed to the token budget: the oldest turns are left out first. Answers that
were cut or interrupted are added, too.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec import structs

from svc_notebook.completion import Completion, advice_on_params
from svc_notebook.display.reply_footer import footer, marks
from svc_notebook.display.tool_runs import Step
from svc_notebook.errors import (
    BadRequestError,
    OverBudgetError,
    ParameterError,
    warn,
)
from svc_notebook.exchange import Charge, Exchange, Origin
from svc_notebook.ledger.exchange_rows import Comparison
from svc_notebook.service.catalogue import DOCUMENTED, ModelInfo
from svc_notebook.service.chunk import Choice
from svc_notebook.service.params import PARAMS, shown
from svc_notebook.service.request import CompletionRequest, Message, build_request
from svc_notebook.tokens import (
    FLOOR_TOKENS,
    MARGIN_TOKENS,
    REPLY_TOKENS,
    MaxTokens,
    check_max_tokens,
    context_source_note,
    estimate_prompt_tokens,
    leaves_room,
    room_for_reply,
    with_max_tokens,
)

from .continuation import GO_ON, join_text
from .history import History, Turn, Version, fingerprint
from .picks import with_comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The part of a conversation that fits into a request."""

    messages: tuple[Message, ...]  # to send, the new prompt last
    left_out: tuple[Turn, ...] = ()  # turns that did not fit, oldest first
    left_out_tokens: int = 0  # estimated

    @property
    def note(self) -> str:
        """Return a note on the turns that are left out; "" if there are none."""
        if not self.left_out:
            return ""
        n = len(self.left_out)
        turns = "turn" if n == 1 else f"{n} turns"
        return (
            f"left out to fit the limit: the oldest {turns}, about "
            f"{self.left_out_tokens:,} tokens (estimated)"
        )


def fit(
    system: str | None,
    turns: Sequence[Turn],
    prompt: Message,
    *,
    reply_tokens: int = REPLY_TOKENS,
    info: ModelInfo = DOCUMENTED,
    other_tokens: int = 0,
) -> Fitted:
    """Choose the turns that are sent: the newest ones that fit, and the pinned ones.

    Hidden and empty turns are never sent; the system message and the new prompt always
    are. Sizes are best estimates, because upper bounds would leave out far too much.
    `reply_tokens` are kept free for the reply, `other_tokens` for what is sent besides.
    If the model's context is unknown, all are sent.
    """
    front = () if system is None else (Message(role="system", content=system),)
    shown = [turn for turn in turns if not (turn.is_hidden or turn.version.is_empty)]
    estimate = partial(estimate_prompt_tokens, info=info)
    sizes = {turn.turn_id: estimate(turn.messages).best for turn in shown}
    sent_ids = {turn.turn_id for turn in shown if turn.is_pinned}
    budget = sys.maxsize if info.context_tokens is None else info.context_tokens
    room = budget - other_tokens - MARGIN_TOKENS - reply_tokens
    room -= estimate((*front, prompt)).best
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
    info: ModelInfo = DOCUMENTED  # what is known of the model
    system: str | None = None  # replaces the history's system message; "" sends none


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """A turn that is ready to be sent."""

    request: CompletionRequest
    origin: Origin  # names the conversation and the turn
    fitted: Fitted
    is_again: bool = False  # the turn has an answer already
    # builds it again with newer knowledge of the model; None if that is not wanted
    rebuild: "Callable[[], NextTurn] | None" = field(
        default=None, compare=False, repr=False
    )

    def shorter(self, error: BadRequestError) -> "NextTurn | None":
        """Return a shorter turn to send after a refusal; None if there is none.

        The refusal may have shown how large the model's context is, or how it counts,
        so that more of the oldest turns are left out, or less is kept for the reply.
        This is done once, and never after tools were run.
        """
        if self.rebuild is None or hasattr(error, "tool_runs"):
            return None
        turn, before = self.rebuild(), self.request
        has_fewer = len(turn.request.messages) < len(before.messages)
        n_tokens, n_before = turn.request.max_tokens, before.max_tokens
        is_reply_shorter = before.is_fitted and FLOOR_TOKENS <= (n_tokens or 0) < (
            n_before or 0
        )
        return turn if has_fewer or is_reply_shorter else None

    def notes(self) -> tuple[str, ...]:
        """Return the notes on the request, and warn about turns that are not sent.

        It also warns about parameters that the document advises against.
        """
        if advice := advice_on_params(self.request.params):
            warn(advice, UserWarning)
        if note := self.fitted.note:
            warn(f"{self.origin.conversation}: {note}; pinned turns are always sent.")
        return (note,) if note else ()


def request_turn(
    history: History, text: str, origin: Origin, settings: TurnSettings
) -> NextTurn:
    """Build the request of the turn that `origin` names: a new turn or a known one."""
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
    """Build a request with the turns that fit and the prompt."""
    params = dict(settings.params)
    max_tokens = check_max_tokens(settings.max_tokens, settings.info)
    tools = params.get("tools")  # checked when the request is built
    tools = tools if isinstance(tools, (list, tuple)) else ()
    definitions = [tool for tool in tools if isinstance(tool, Mapping)]
    n_tool_tokens = estimate_prompt_tokens((), definitions, info=settings.info).best
    fitted = fit(
        history.system,
        turns,
        prompt,
        reply_tokens=room_for_reply(max_tokens),
        info=settings.info,
        other_tokens=n_tool_tokens,
    )
    request = build_request(
        fitted.messages,
        model=settings.model,
        params=params,
        info_of=lambda _: settings.info,
    )
    return NextTurn(
        request=with_max_tokens(request, max_tokens),
        origin=origin,
        fitted=fitted,
        is_again=history.find(origin.turn_id or "") is not None,
    )


def request_continuation(
    history: History, origin: Origin, settings: TurnSettings
) -> NextTurn:
    """Build the request that continues an incomplete reply.

    The reply is the chosen version of the turn that `origin` names. The request offers
    no tools and asks for one choice, because its text is added to the reply.
    """
    turn = history.turn(origin.turn_id or "")
    if not turn.version.can_go_on:
        raise ParameterError(
            "Only a reply that was cut or interrupted, and has some text, can be "
            "continued; this one is complete or empty.",
            param="turn",
        )
    params = {**settings.params, "n": None, "tools": None}
    origin = structs.replace(origin, continues=turn.version.exchange_id)
    # Pinned, because the reply to continue must be sent.
    continued = replace(turn, is_pinned=True, is_hidden=False)
    continuation = next_turn(
        history,
        (*history.before(turn.turn_id), continued),
        Message(role="user", content=GO_ON),
        origin,
        replace(settings, params=params),
    )
    return replace(continuation, request=_check_room(continuation.request))


def request_rest(reply: Completion, origin: Origin, settings: TurnSettings) -> NextTurn:
    """Build the request that continues a reply without a conversation."""
    params = {**settings.params, "n": None, "tools": None}
    ask = Message(role="user", content=GO_ON)
    messages = (*reply.request.messages, reply.reply, ask)
    request = build_request(
        messages,
        model=settings.model,
        params=params,
        info_of=lambda _: settings.info,
    )
    return NextTurn(
        request=_check_room(with_max_tokens(request, settings.max_tokens)),
        origin=structs.replace(origin, continues=reply.exchange.exchange_id),
        fitted=Fitted(messages=messages),
    )


def _check_room(request: CompletionRequest) -> CompletionRequest:
    """Return a request for the rest of a reply; refuse it if there is no room."""
    prompt = estimate_prompt_tokens(request.messages, info=request.info).best
    reply_tokens = min(int(request.params.get("max_tokens", 0)), FLOOR_TOKENS)
    budget = request.context_tokens
    if budget is None or prompt + reply_tokens <= budget:
        return request
    raise OverBudgetError(
        f"The prompt and the reply so far have about {prompt} of the {budget} "
        "tokens of a request, so too few are left for the rest. Nothing was sent. Ask "
        "for the rest in a new cell, with only the end of the reply."
        f"{context_source_note(request.info)}",
        prompt_tokens=prompt,
        budget_tokens=budget,
    )


def add_answers(
    origin: Origin,
    completions: Sequence[Completion],
    comparison: Comparison | None,
    history: History,
    *,
    session_id: str = "",
) -> History:
    """Return the history with an answer, or with several that were compared.

    `session_id` is that of the kernel that asked.
    """
    for completion in completions:
        history = add_answer(
            history,
            completion.exchange,
            origin,
            completion.tool_runs,
            completion.charge,
            session_id=session_id,
        )
    if comparison is None:
        return history
    return with_comparison(history, origin.turn_id or "", comparison)


def add_answer(
    history: History,
    exchange: Exchange,
    origin: Origin,
    tool_runs: tuple[Step, ...] = (),
    charge: Charge | None = None,
    *,
    session_id: str = "",
) -> History:
    """Return the history with the complete or partial answer of an exchange.

    `charge` is that of the rounds that ended with it; without one, of this request.
    `session_id` is that of the kernel that asked.
    Nothing changes if the answer has no text and no tool calls, or if `origin` names no
    turn.
    """
    choices = [
        choice for choice in exchange.choices if choice.text or choice.tool_calls
    ]
    if origin.turn_id and origin.continues and (choices or exchange.status == "ok"):
        text = (choices[0].text or "") if choices else ""
        return _add_continuation(history, exchange, origin, text, session_id)
    if not choices or not origin.turn_id:
        return history
    texts = [choice.text or "" for choice in choices]
    version = replace(
        _to_version(exchange, exchange.request.messages, texts, charge),
        session_id=session_id,
        attached=origin.attached,
        indexes=tuple(choice.index for choice in choices),
        is_open=bool(choices[0].tool_calls),
        tool_runs=tool_runs,
        reasonings=tuple(choice.reasoning for choice in choices),
    )
    if version.is_open:
        version = _with_open_calls(version, choices[0])
    turn = _find_turn(history, origin.turn_id)
    has_results = exchange.request.messages[-1].role == "tool"
    if turn and has_results and turn.versions[-1].is_open:
        version = _charged_after(turn.versions[-1], version, exchange)
        return history.with_version(turn.turn_id, len(turn.versions) - 1, version)
    return history.with_answer(origin.turn_id, version)


def _with_open_calls(version: Version, last: Choice) -> Version:
    """Add the calls that an answer ends with: to its messages, if all have results.

    Others cannot be sent, so they are kept apart; so is an empty reply after results.
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
        return replace(version, replies=(*rounds, called, *results))
    replies = tuple(rounds) if rounds and not reply.content else version.replies
    return replace(version, replies=replies, unsent_calls=calls)


def _charged_after(before: Version, version: Version, exchange: Exchange) -> Version:
    """Charge a version for the rounds or parts before it, too."""
    charge = before.charge + version.charge
    return replace(version, charge=charge, footer=footer(exchange, charge))


def _to_version(
    exchange: Exchange,
    sent: tuple[Message, ...],
    texts: list[str],
    charge: Charge | None = None,
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
        limit=_limit_text(exchange) if Completion(exchange).is_cut else "",
        footer=footer(exchange, charge),
        charge=charge or Charge.of(exchange),
        first_text_s=exchange.first_text_s,
        settings=_settings_text(exchange.request),
        system=exchange.request.system or "",
        marks=marks(exchange),
        context=fingerprint(sent[:index]),
        asked_at=exchange.started_at,
        ended_at=exchange.ended_at,
    )


def _settings_text(request: CompletionRequest) -> str:
    names = [param.name for param in PARAMS if param.is_offered]
    if request.is_fitted:
        names.remove("max_tokens")
    params = {name: request.params[name] for name in names if name in request.params}
    return ", ".join(f"{name} {shown(value)}" for name, value in params.items())


def _limit_text(exchange: Exchange) -> str:
    if (max_tokens := exchange.max_tokens) is None:
        return "the server's own limit"
    param = "max_tokens" if "max_tokens" in exchange.request.params else "the default"
    if leaves_room(exchange.request):
        param = "all that was sure to be left; a number in max_tokens may get more"
    elif exchange.request.is_fitted:
        param = "all that was left"
    return f"{max_tokens:,} tokens ({param})"


def _add_continuation(
    history: History, exchange: Exchange, origin: Origin, text: str, session_id: str
) -> History:
    """Add the text of a continuation to the reply that it continues."""
    *sent, partial, _ = exchange.request.messages
    so_far = partial.content or ""
    version = _to_version(exchange, tuple(sent), [join_text(so_far, text)])
    ended = tuple(mark for mark in version.marks if mark != "empty")
    version = replace(version, marks=ended, session_id=session_id)
    turn_id = origin.turn_id or ""
    turn = _find_turn(history, turn_id)
    ids = [version.exchange_id for version in turn.versions] if turn else []
    if turn is None or origin.continues not in ids:
        version = replace(version, settings=None)  # its first part had others
        return history.with_answer(turn_id, _noted_as_continued(version))
    at = ids.index(origin.continues)
    old = turn.versions[at]
    version = _charged_after(old, _with_choices_of(old, version, so_far), exchange)
    version = _noted_as_continued(version)
    version = replace(
        version,
        attached=old.attached,
        reasonings=old.reasonings,
        tool_runs=old.tool_runs,
        session_id=old.session_id,
        settings=old.settings,  # those of the first part, which was asked
        system=old.system,  # and built on this one
        context=old.context,
        asked_at=old.asked_at,
        ended_at=old.ended_at,
    )
    return history.with_version(turn_id, at, version)


def _noted_as_continued(version: Version) -> Version:
    return replace(version, footer=f"{version.footer} · continued")


def _with_choices_of(old: Version, version: Version, so_far: str) -> Version:
    """Keep the choices of the continued version; one of them has the new text."""
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

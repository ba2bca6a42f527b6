"""Which turn an exchange answers, and what the answer is."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.conversations.turn_request import (
    TurnSettings,
    add_answer,
    fit,
    request_continuation,
)
from svc_notebook.exchange import Exchange, Origin, Status
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import (
    CompletionRequest,
    FunctionCall,
    Message,
    ToolCall,
    assistant,
    system,
    user,
)
from svc_notebook.tokens import (
    FLOOR_TOKENS,
    fit_max_tokens,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = Origin(conversation="plan", turn_id="s/t")
CALL = ToolCall(id="c1", function=FunctionCall(name="weather", arguments='{"a":1}'))
CALLING = Message(role="assistant", content="", tool_calls=(CALL,))
RESULT = Message(role="tool", content="sunny", tool_call_id="c1")


def exchange(
    name: str,
    messages: tuple[Message, ...],
    *choices: Choice,
    status: Status = "ok",
    origin: Origin = ORIGIN,
) -> Exchange:
    """Return an exchange of these messages and choices."""
    return Exchange(
        exchange_id=name,
        origin=origin,
        endpoint="http://127.0.0.1/v1",
        request=CompletionRequest(model="svc-instruct", messages=messages),
        body=CompletionBody(choices=choices),
        status=status,
        started_at=AT,
        ended_at=AT,
    )


def said(text: str, reason: str = "stop") -> Choice:
    """Return a choice of this text."""
    return Choice(text=text, finish_reason=reason)


def history_of(*exchanges: Exchange) -> History:
    """Return what exchanges make of an empty history."""
    history = History()
    for each in exchanges:
        history = add_answer(history, each, each.origin)
    return history


def test_the_newest_user_message_is_the_prompt() -> None:
    """The messages before it belong to other turns."""
    messages = (system("brief"), user("one"), assistant("1"), user("two"))

    [turn] = history_of(exchange("e", messages, said("2"))).turns

    assert turn.messages == (user("two"), assistant("2"))


def test_tool_rounds_belong_to_the_answer() -> None:
    """The first request's calls are dropped until the second brings their results."""
    first = exchange("a", (user("ask"),), Choice(text="", tool_calls=(CALL,)))
    second = exchange("b", (user("ask"), CALLING, RESULT), said("It is sunny."))

    [early] = history_of(first).turns
    [late] = history_of(first, second).turns

    assert early.messages == (user("ask"), assistant(""))
    assert early.version.is_open
    assert late.messages == (user("ask"), CALLING, RESULT, assistant("It is sunny."))
    assert [each.exchange_id for each in late.versions] == ["b"]


def continued(history: History, more: Choice, status: Status = "ok") -> Exchange:
    """Return the exchange that goes on with the only turn."""
    step = request_continuation(history, ORIGIN, TurnSettings(model="svc-instruct"))
    found = exchange("more", step.request.messages, more, status=status)
    return msgspec.structs.replace(found, origin=step.origin)


def test_a_continuation_keeps_tool_rounds_and_other_choices() -> None:
    """Only the text that was picked grows."""
    request = (user("ask"), CALLING, RESULT)
    cut = exchange("a", request, said("one", "length"), said("uno", "length"))
    picked = history_of(cut).with_picked(1, 2)
    more = continued(picked, said(" due"))

    [turn] = add_answer(picked, more, more.origin).turns

    assert turn.messages == (user("ask"), CALLING, RESULT, assistant("uno due"))
    assert turn.version.choices == (assistant("one"), assistant("uno due"))


def test_a_continuation_that_fails_loses_nothing() -> None:
    """Without text nothing changes; with some, the reply has grown by that."""
    cut = exchange("a", (user("ask"),), said("one", "length"))
    nothing = continued(history_of(cut), Choice(), "error")
    some = continued(history_of(cut), Choice(text=" two"), "cancelled")

    assert history_of(cut, nothing) == history_of(cut)
    [turn] = history_of(cut, some).turns
    assert turn.version.text == "one two"
    assert turn.version.can_go_on


def test_a_continuation_of_what_is_gone_is_a_version_of_its_own() -> None:
    """Where the text that it goes on with was deleted, the joined text still stays."""
    cut = exchange("a", (user("ask"),), said("one", "length"))
    more = continued(history_of(cut), said(" two"))

    [turn] = history_of(more).turns

    assert turn.messages == (user("ask"), assistant("one two"))


def test_the_settings_of_what_is_gone_are_not_guessed() -> None:
    """The first part was asked with them; the footer says nothing of them."""
    cut = exchange("a", (user("ask"),), said("one", "length"))
    more = continued(history_of(cut), said(" two"))
    again = exchange("b", (user("ask"),), said("three"))
    again.request.params["temperature"] = 1.5
    history = history_of(more, again)

    assert history.turn(1).footer.endswith(" · temperature 1.5")
    assert history.with_chosen(1, 1).turn(1).footer.endswith(" · continued")


def turn(name: str, n_chars: int = 30, *, is_pinned: bool = False) -> Turn:
    """Return an answered turn of about so many characters."""
    return Turn(
        turn_id=name,
        versions=(
            Version(
                exchange_id=name,
                prompt=user(name.ljust(n_chars // 2)),
                replies=(
                    Message(role="assistant", content="words " * (n_chars // 6 + 1)),
                ),
            ),
        ),
        is_pinned=is_pinned,
    )


@pytest.mark.slow
@given(st.integers(0, 100_000))
def test_a_fitted_reply_leaves_the_prompt_its_room(prompt_tokens: int) -> None:
    """Prompt and fitted reply stay under 8192, or the reply has its floor."""
    got = fit_max_tokens(prompt_tokens)

    assert got is not None
    assert got >= FLOOR_TOKENS
    assert got == FLOOR_TOKENS or prompt_tokens + got < 8192


def test_a_pinned_turn_stays() -> None:
    """A pinned turn is sent however old it is."""
    turns = [
        turn("0", 10_500, is_pinned=True),
        *(turn(str(i), 10_500) for i in range(1, 6)),
    ]

    got = fit(None, turns, user("new"))

    assert [each.turn_id for each in got.left_out] == ["1", "2", "3"]


def test_a_tool_call_keeps_its_results() -> None:
    """A turn with tool calls is sent whole or not at all."""
    call = ToolCall(id="c1", function=FunctionCall(name="f", arguments="{}"))
    rounds = (
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="r " * 3000, tool_call_id="c1"),
        Message(role="assistant", content="done"),
    )
    asked = Turn(
        turn_id="t",
        versions=(
            Version(exchange_id="e", prompt=user("use the tool"), replies=rounds),
        ),
    )

    kept = fit(None, [asked], user("new"))
    left = fit(None, [asked, turn("later", 40_000)], user("new"))

    assert kept.messages == (user("use the tool"), *rounds, user("new"))
    assert left.left_out == (asked,)
    assert [message.role for message in left.messages] == ["user", "assistant", "user"]


@pytest.mark.slow
@given(st.lists(st.integers(2, 20_000), max_size=20), st.integers(0, 8000))
def test_what_is_sent_is_the_newest_part(sizes: list[int], reply_tokens: int) -> None:
    """The turns sent are the newest ones, without a gap, whatever their sizes."""
    turns = [turn(str(i), size) for i, size in enumerate(sizes)]

    got = fit(None, turns, user("new"), reply_tokens=reply_tokens)

    sent = turns[len(got.left_out) :]
    assert got.left_out == tuple(turns[: len(got.left_out)])
    assert got.messages == (*(m for each in sent for m in each.messages), user("new"))

"""What of a conversation goes into a request that holds 8192 tokens."""

from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.history import Turn, Version
from svc_notebook.conversations.next_turn import fit
from svc_notebook.service.message import Message, user
from svc_notebook.service.tool import FunctionCall, ToolCall
from svc_notebook.tokens import FLOOR_TOKENS, fit_max_tokens


def turn(name: str, n_chars: int = 30, *, is_pinned: bool = False) -> Turn:
    """Return an answered turn of about so many characters."""
    return Turn(
        turn_id=name,
        versions=(
            Version(
                exchange_id=name,
                prompt=user(name.ljust(n_chars // 2)),
                replies=(Message(role="assistant", content="x" * (n_chars // 2)),),
            ),
        ),
        is_pinned=is_pinned,
    )


@given(st.integers(0, 100_000))
def test_a_fitted_reply_leaves_the_prompt_its_room(prompt_tokens: int) -> None:
    """Prompt and fitted reply stay under 8192, or the reply has its floor."""
    got = fit_max_tokens(prompt_tokens)

    assert got >= FLOOR_TOKENS
    assert got == FLOOR_TOKENS or prompt_tokens + got < 8192


def test_everything_is_sent_where_it_fits() -> None:
    """System, turns and the new message go in order."""
    first, second = turn("first"), turn("second")

    got = fit("be brief", [first, second], user("third"))

    assert got.messages == (
        Message(role="system", content="be brief"),
        *first.messages,
        *second.messages,
        user("third"),
    )
    assert got.left_out == ()


def test_the_oldest_turns_are_left_out_first() -> None:
    """What does not fit is left out by whole turns, oldest first, and named."""
    turns = [turn(str(i), 6000) for i in range(6)]

    got = fit("system", turns, user("new"))

    assert [each.turn_id for each in got.left_out] == ["0", "1", "2"]
    assert got.left_out_tokens == 3 * 2009
    assert got.messages[0].role == "system"
    assert got.messages[-1] == user("new")
    assert got.prompt_tokens + 1024 < 8192


def test_a_pinned_turn_stays() -> None:
    """A pinned turn is sent however old it is."""
    turns = [
        turn("0", 6000, is_pinned=True),
        *(turn(str(i), 6000) for i in range(1, 6)),
    ]

    got = fit(None, turns, user("new"))

    assert [each.turn_id for each in got.left_out] == ["1", "2", "3"]


def test_a_tool_call_keeps_its_results() -> None:
    """A turn with tool calls is sent whole or not at all."""
    call = ToolCall(id="c1", function=FunctionCall(name="f", arguments="{}"))
    rounds = (
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="r" * 9000, tool_call_id="c1"),
        Message(role="assistant", content="done"),
    )
    asked = Turn(
        turn_id="t",
        versions=(
            Version(exchange_id="e", prompt=user("use the tool"), replies=rounds),
        ),
    )

    kept = fit(None, [asked], user("new"))
    left = fit(None, [asked, turn("later", 18000)], user("new"))

    assert kept.messages == (user("use the tool"), *rounds, user("new"))
    assert left.left_out == (asked,)
    assert [message.role for message in left.messages] == ["user", "assistant", "user"]


@given(st.lists(st.integers(2, 20_000), max_size=20), st.integers(0, 8000))
def test_what_is_sent_is_the_newest_part(sizes: list[int], reply_tokens: int) -> None:
    """The turns sent are the newest ones, without a gap, whatever their sizes."""
    turns = [turn(str(i), size) for i, size in enumerate(sizes)]

    got = fit(None, turns, user("new"), reply_tokens=reply_tokens)

    sent = turns[len(got.left_out) :]
    assert got.left_out == tuple(turns[: len(got.left_out)])
    assert got.messages == (*(m for each in sent for m in each.messages), user("new"))

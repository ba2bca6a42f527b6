"""The document's rules on messages (doc: Message, Tool-calling flow)."""

from typing import Any

import pytest

from svc_notebook.emulator.chat_request import Call, Message
from svc_notebook.emulator.http_values import RuleError
from svc_notebook.emulator.rules import read_messages

USER = {"role": "user", "content": "Go"}


def _call(call_id: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }


def _calls(*call_ids: str, **more: object) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [_call(each) for each in call_ids],
    } | more


def _result(call_id: str | None) -> dict[str, Any]:
    return {"role": "tool", "content": "ok", "tool_call_id": call_id}


def test_reads_every_role() -> None:
    """A whole tool flow is read as it was sent."""
    system = {"role": "system", "content": "Be kind."}

    messages = read_messages(
        [system, USER, _calls("1", content=None), _result("1"), USER]
    )

    assert messages == (
        Message(role="system", content="Be kind."),
        Message(role="user", content="Go"),
        Message(role="assistant", tool_calls=(Call(id="1", name="f", arguments="{}"),)),
        Message(role="tool", content="ok", tool_call_id="1"),
        Message(role="user", content="Go"),
    )


@pytest.mark.parametrize(
    "history",
    [
        [USER, _calls("1", "2"), _result("1"), _result("2")],
        [USER, _calls("1", "2"), _result("2"), _result("1"), USER],
        [USER, _calls("1", content="Wait."), _result(None)],
        [USER, _calls("1"), _result("1"), _calls("2"), _result("2")],
        [USER, {"role": "assistant", "content": "", "tool_calls": []}, USER],
        [USER, {"role": "assistant", "content": "Yes?", "tool_calls": None}],
        [{"role": "user", "content": "Go", "name": "Ann", "refusal": None}],
    ],
)
def test_a_whole_history_passes(history: list[dict[str, Any]]) -> None:
    """Each call has its result, in any order; unknown fields do not matter."""
    assert len(read_messages(history)) == len(history)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([USER, _calls("1")], "'messages' ends before all tool calls are answered"),
        ([USER, _calls("1", "2"), _result("1"), USER], "'messages[3]' comes before"),
        ([USER, _calls("1", "2"), _result("1")], "(1 left)"),
        ([USER, _result("1")], "'messages[1]' is the result of no open tool call"),
        ([USER, _result(None)], "'messages[1]' is the result of no open tool call"),
        ([USER, _calls("1"), _result("2")], "'messages[2]' is the result of no open"),
        ([USER, _calls("1"), _result("1"), _result("1")], "'messages[3]' is the res"),
        ([USER, _calls("1", "1"), _result("1")], "tool_calls' holds one id twice"),
    ],
)
def test_missing_and_unknown_results_are_refused(
    history: list[dict[str, Any]], words: str
) -> None:
    """A history with missing messages makes the request fail, and says which."""
    with pytest.raises(RuleError) as caught:
        read_messages(history)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Go", "'messages[0]' has to be an object."),
        ({"role": "robot", "content": "x"}, "one of system, user, assistant, tool."),
        ({"content": "x"}, "one of system, user, assistant, tool."),
        ({"role": ["user"], "content": "x"}, "one of system, user, assistant, tool."),
        ({"role": "user"}, "'messages[0].content' has to be a string."),
        ({"role": "user", "content": None}, "content' has to be a string."),
        ({"role": "user", "content": [{"type": "text"}]}, "content' has to be a str"),
        ({"role": "user", "content": "\ud800"}, "content' holds half a surrogate"),
        ({"role": "assistant"}, "'messages[0].content' has to be a string."),
        (
            {"role": "assistant", "content": "x", "tool_calls": {}},
            "'messages[0].tool_calls' has to be an array.",
        ),
        (
            {"role": "assistant", "tool_calls": [{"type": "x"}]},
            "'messages[0].tool_calls[0]' has to be an object with type 'function'.",
        ),
        (
            {"role": "assistant", "tool_calls": [{"type": "function"}]},
            "'messages[0].tool_calls[0].function' has to be an object.",
        ),
        (
            {"role": "assistant", "tool_calls": [_call("1") | {"id": 1}]},
            "'messages[0].tool_calls[0].id' has to be a string.",
        ),
        (
            {"role": "tool", "content": "x", "tool_call_id": 7},
            "'messages[0].tool_call_id' has to be a string.",
        ),
    ],
)
def test_a_message_of_another_shape_is_refused(message: object, words: str) -> None:
    """A refusal names the place in `messages` and what is allowed."""
    with pytest.raises(RuleError) as caught:
        read_messages([message])

    assert words in str(caught.value)

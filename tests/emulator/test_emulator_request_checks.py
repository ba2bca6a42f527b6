"""The document's rules on a request body, row by row (doc: Request body, Limits)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.emulator.http_values import RuleError
from svc_notebook.emulator.request_checks import (
    ChatRequest,
    read_chat_request,
    read_messages,
)

Fields = Callable[..., dict[str, Any]]


def _read(fields: dict[str, Any]) -> ChatRequest:
    return read_chat_request(json.dumps(fields).encode())


def _refusal(fields: dict[str, Any]) -> str:
    with pytest.raises(RuleError) as caught:
        _read(fields)
    assert caught.value.status == 400
    return str(caught.value)


def test_null_counts_as_not_sent(fields: Fields) -> None:
    """A null parameter reads as if it were left out."""
    nulls = dict.fromkeys(
        ("max_tokens", "temperature", "n", "stop", "stream", "user", "tools")
    )

    assert _read(fields(**nulls)) == _read(fields())


def test_unknown_fields_are_ignored(fields: Fields) -> None:
    """Fields that the document does not name change nothing."""
    assert _read(fields(seed=1, response_format={"type": "x"})) == _read(fields())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model", 7, "'model' has to be a non-empty string and is required."),
        ("model", "", "'model' has to be a non-empty string and is required."),
        ("model", None, "'model' has to be a non-empty string and is required."),
        ("user", 7, "'user' has to be a string."),
        ("user", "\ud83d", "'user' holds half a surrogate pair."),
        ("stream", "yes", "'stream' has to be a boolean."),
        ("stream", 1, "'stream' has to be a boolean."),
        ("stop", 7, "'stop' has to be a string or an array of up to 4 strings."),
        (
            "stop",
            ["a", "b", "c", "d", "e"],
            "'stop' has to be a string or an array of up to 4 strings.",
        ),
        ("stop", ["a", 1], "Each sequence in 'stop' has to be a non-empty string."),
        ("stop", "", "Each sequence in 'stop' has to be a non-empty string."),
        ("stop", ["\udc00"], "'stop' holds half a surrogate pair."),
        ("messages", None, "'messages' has to be a non-empty array and is required."),
        ("messages", [], "'messages' has to be a non-empty array and is required."),
        ("messages", {}, "'messages' has to be a non-empty array and is required."),
        ("tools", {}, "'tools' has to be an array."),
    ],
)
def test_says_what_a_parameter_has_to_be(
    fields: Fields, name: str, value: object, message: str
) -> None:
    """A refusal names the parameter and what is allowed."""
    assert _refusal(fields(**{name: value})) == message


@pytest.mark.parametrize(
    ("sent", "read"),
    [("END", ("END",)), (["a", "b", "c", "d"], ("a", "b", "c", "d")), ([], ())],
)
def test_stop_is_one_sequence_or_up_to_four(
    fields: Fields, sent: object, read: tuple[str, ...]
) -> None:
    """A single text stands for an array of one."""
    chat = _read(fields(stop=sent))

    assert chat.stop == read


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request body is not JSON."),
        (b"{", "The request body is not JSON."),
        (b"{} {}", "The request body is not JSON."),
        (b"{'a': 1}", "The request body is not JSON."),
        (b'{"a": 1,}', "The request body is not JSON."),
        (b'{"a": NaN}', "The request body is not JSON."),
        (b'{"a": -Infinity}', "The request body is not JSON."),
        (b'{"a": 1e999}', "The request body holds a number that is too large."),
        (
            b'{"a": %s}' % (b"9" * 5000),
            "The request body holds a number that is too large.",
        ),
        (b'{"a": -1e999}', "The request body holds a number that is too large."),
        (b'{"a": "\x01"}', "The request body is not JSON."),
        (b"\xef\xbb\xbf{}", "The request body is not JSON."),
        (b'{"a": "\xff"}', "The request body is not UTF-8."),
        ('{"a": "ก"}'.encode("utf-16"), "The request body is not UTF-8."),
        (b"[]", "The request body has to be a JSON object."),
        (b"null", "The request body has to be a JSON object."),
        (b"[" * 100_000, "The request body is nested too deeply."),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "The request body is nested too deeply."),
    ],
)
def test_malformed_bodies_are_refused(body: bytes, message: str) -> None:
    """Each kind of malformed JSON gets its own words and status 400."""
    with pytest.raises(RuleError) as caught:
        read_chat_request(body)

    assert (caught.value.status, str(caught.value)) == (400, message)


def test_prompt_and_completion_share_8192_tokens(fields: Fields) -> None:
    """The exact rest of the budget may be asked for, and not one token more."""
    n_prompt_tokens = 8
    fitting = _read(fields("Hi", max_tokens=8192 - n_prompt_tokens))

    assert fitting.max_tokens == 8184
    assert _refusal(fields("Hi", max_tokens=8193 - n_prompt_tokens)) == (
        "The prompt takes 8 tokens and 'max_tokens' asks for 8185; together they may "
        "be at most 8192."
    )


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (7, "'tools[0]' has to be an object with type 'function'."),
        ({"type": "x"}, "'tools[0]' has to be an object with type 'function'."),
        ({"type": "function"}, "'tools[0].function' has to be an object."),
        (
            {"type": "function", "function": {"name": ""}},
            "'tools[0].function.name' has to be a non-empty string.",
        ),
        (
            {"type": "function", "function": {"name": "a", "description": 7}},
            "'tools[0].function.description' has to be a string.",
        ),
        (
            {"type": "function", "function": {"name": "a", "parameters": []}},
            "'tools[0].function.parameters' has to be a schema of type 'object'.",
        ),
        (
            {
                "type": "function",
                "function": {
                    "name": "a",
                    "parameters": {"type": "object", "properties": 1},
                },
            },
            "'tools[0].function.parameters.properties' has to be an object of objects.",
        ),
    ],
)
def test_a_tool_of_another_shape_is_refused(
    fields: Fields, tool: object, message: str
) -> None:
    """A refusal names the place in `tools`."""
    assert _refusal(fields(tools=[tool])) == message


def test_a_tool_name_is_used_once(fields: Fields) -> None:
    """Two offers of one name could not be told apart."""
    tool = {"type": "function", "function": {"name": "a"}}

    assert _refusal(fields(tools=[tool, tool])) == (
        "'tools' holds one function name twice, which this emulator refuses."
    )


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
        ([USER, _result("1")], "'messages[1]' does not answer an open tool call"),
        ([USER, _result(None)], "'messages[1]' does not answer an open tool call"),
        ([USER, _calls("1"), _result("2")], "'messages[2]' does not answer an open"),
        (
            [USER, _calls("1"), _result("1"), _result("1")],
            "[3]' does not answer",
        ),
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

"""Entries of a script: what cannot be played is found when the script is read."""

import math
from typing import Any

import pytest

from svc_notebook.emulator.script import Script
from svc_notebook.errors import SettingsError

WRONG: list[tuple[Any, str]] = [
    (7, "Entry 0 of the script is no object"),
    ({"txt": "x"}, "holds 'txt', which is not known; known are before_s, body"),
    ({"when": 7}, "holds a 'when' that cannot be played; it has to be an object."),
    ({"when": {"modle": "x"}}, "in 'when' holds 'modle', which is not known"),
    ({"when": {"contains": 5}}, "in 'when' holds a 'contains' that cannot be played"),
    ({"when": {"is_streamed": 1}}, "a 'is_streamed' that cannot be played"),
    ({"when": {"role": "bot"}}, "it has to be one of system, user, assistant, tool."),
    ({"times": 0}, "a 'times' that cannot be played; it has to be an integer of 1 or"),
    ({"times": -1}, "holds a 'times' that cannot be played"),
    ({"times": True}, "holds a 'times' that cannot be played"),
    ({"text": 7}, "holds a 'text' that cannot be played; it has to be a text or"),
    ({"text": b"x"}, "holds a 'text' that cannot be played"),
    ({"text": ["a", 1]}, "holds a 'text' that cannot be played"),
    ({"text": ["a", "\ud800"]}, "holds 'text' that cannot be played (UnicodeEncodeE"),
    ({"text": "x", "usage": {"a": {1}}}, "'text' and 'usage' that cannot be played (T"),
    ({"tool_calls": [{}]}, "in 'tool_calls'[0] has no 'name'; name the tool to call."),
    ({"tool_calls": [7]}, "in 'tool_calls'[0] is no object"),
    ({"tool_calls": [{"name": 7}]}, "in 'tool_calls'[0] holds a 'name' that cannot"),
    (
        {"tool_calls": [{"name": "f", "arguments": 7}]},
        "holds a 'arguments' that cannot",
    ),
    ({"choices": [{"txt": 1}]}, "in 'choices'[0] holds 'txt', which is not known"),
    ({"choices": [{"text": 1}]}, "in 'choices'[0] holds a 'text' that cannot be"),
    ({"choices": [{"tool_calls": [{}]}]}, "'choices'[0], in 'tool_calls'[0] has no"),
    ({"finish_reason": 7}, "holds a 'finish_reason' that cannot be played"),
    ({"events": "x"}, "holds a 'events' that cannot be played; it has to be a list."),
    ({"body": [1]}, "holds a 'body' that cannot be played"),
    ({"json": {1, 2}}, "holds 'json' that cannot be played (TypeError)"),
    (
        {"status": "200"},
        "holds a 'status' that cannot be played; it has to be from 200",
    ),
    ({"status": 0}, "holds a 'status' that cannot be played"),
    ({"status": 100}, "holds a 'status' that cannot be played"),
    ({"status": 999}, "holds a 'status' that cannot be played"),
    ({"status": True}, "holds a 'status' that cannot be played"),
    ({"status": 204, "text": "x"}, "'status' 204, which carries no body"),
    ({"headers": {"a b": "x"}}, "'headers' with the name 'a b', which cannot be sent"),
    ({"headers": {"x": "a\r\nb: c"}}, "holds a 'x' in 'headers' that cannot be sent"),
    ({"headers": {"x": "ก"}}, "holds a 'x' in 'headers' that cannot be sent"),
    ({"headers": {"x": " a"}}, "holds a 'x' in 'headers' that cannot be sent"),
    ({"headers": {"x": 7}}, "holds a 'x' in 'headers' that cannot be sent"),
    ({"body": "abc", "headers": {"content-length": "2"}}, "its body has 3 bytes."),
    (
        {"before_s": math.inf},
        "a 'before_s' that cannot be played; it has to be seconds",
    ),
    ({"gap_s": -1}, "holds a 'gap_s' that cannot be played"),
    ({"gap_s": math.nan}, "holds a 'gap_s' that cannot be played"),
    ({"cut_after": -1}, "holds a 'cut_after' that cannot be played"),
    ({"end": "bang"}, "it has to be one of whole, cut, reset, silent."),
    ({"text": "x", "raw": "y"}, "holds both 'raw' and 'text'; keep one."),
]


@pytest.mark.parametrize(("entry", "words"), WRONG)
def test_a_wrong_entry_is_found_when_the_script_is_read(
    entry: Any,  # noqa: ANN401 - wrong on purpose
    words: str,
) -> None:
    """The error names the entry, the field, and what may stand there."""
    with pytest.raises(SettingsError) as caught:
        Script([entry])

    assert words in str(caught.value)


def test_the_number_of_a_wrong_entry_is_told() -> None:
    """Entries are counted from 0, as in the list."""
    with pytest.raises(SettingsError, match="Entry 2 of the script"):
        Script([{}, {}, {"times": 0}])


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"times": None, "when": {"role": "tool"}},
        {"choices": []},
        {"choices": [{"text": "a"}, {"tool_calls": [{"name": "f", "arguments": "{"}]}]},
        {"events": [b"\xff", {"a": math.nan}]},
        {"status": None, "headers": {"x": None}},
        {"status": 204, "headers": {"x": ""}},
        {"body": b"", "headers": {"Content-Length": "9", "x": "caf\xe9 (1)"}},
        {"error": None, "status": 599},
    ],
)
def test_odd_entries_that_can_be_played_are_taken(entry: dict[str, Any]) -> None:
    """Faults of every kind can be scripted; nothing is raised."""
    made = Script([entry])

    assert isinstance(made, Script)

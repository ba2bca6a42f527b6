"""E. Parameters, and F. Unicode: what is asked, and letters that come in pieces."""

from typing import Any

from svc_notebook.errors import (
    OverBudgetError,
    ParameterError,
    ServerFaultError,
    UnknownModelError,
)
from tests.faults.answers import DONE, END, GOOD, chunk, event, http, refusal, stream
from tests.faults.case import Case, Fails

BOTH = ("complete", "stream")


def refused(fault: str, *says: str, prompt: Any = "Hi", **params: Any) -> Case:  # noqa: ANN401 - what users give
    """Return a case of a request that is not sent."""
    return Case(
        section="E",
        fault=fault,
        prompt=prompt,
        params=params,
        verbs=BOTH,
        ends=Fails(kind=ParameterError, says=says, has={"n_attempts": 0}),
        n_requests=0,
    )


def sent(fault: str, **params: Any) -> Case:  # noqa: ANN401 - what users give
    """Return a case of a request that is sent."""
    return Case(section="E", fault=fault, params=params, answers=[[GOOD]], verbs=BOTH)


def _numbers(name: str, allowed: str, *values: object) -> list[Case]:
    return [
        refused(f"{name}={value!r}", name, allowed, **{name: value}) for value in values
    ]


NAN, INF = float("nan"), float("inf")
YES = True
MESSAGE = {"role": "user", "content": "Hi"}
PARAMETERS = [
    *_numbers("temperature", "0 to 2", -0.1, 2.1, NAN, INF, "1", YES),
    *_numbers("presence_penalty", "-2 to 2", -2.1, 2.1),
    *_numbers("frequency_penalty", "-2 to 2", -2.1, 2.1, [1]),
    *_numbers("repetition_penalty", "1 to 2", 0.9, 2.1),
    *_numbers("top_p", "a number", NAN, "x"),
    *_numbers("max_tokens", "1 to 8192", 8193, 0, -1, 1.5, "10", YES, 10**400),
    *_numbers("n", "an integer", 0, "2", 1.0),
    *_numbers("stop", "up to 4", ["a"] * 5, [1], [""], 5, []),
    *_numbers("user", "a text", 5),
    refused("an empty model", "model", model=""),
    refused("a model that is a number", "model", model=5),
    refused("an empty prompt", "empty", prompt=" \n"),
    refused("messages empty", "messages", prompt=[]),
    refused("messages not a list", "messages", prompt=5),
    refused("a message that is a text", "role and content", prompt=["Hi"]),
    refused("an unknown role", "'robot'", prompt=[{**MESSAGE, "role": "robot"}]),
    refused("no role", "role", prompt=[{"content": "Hi"}]),
    refused("no content", "content", prompt=[{"role": "user"}]),
    refused("content that is no text", "content", prompt=[{**MESSAGE, "content": 5}]),
    refused("an unknown field of a message", "'nam'", prompt=[{**MESSAGE, "nam": 1}]),
    refused("an unknown keyword", "Did you mean temperature?", temprature=1),
    refused("a parameter hidden in `extra`", "Give it as n=", extra={"n": 2}),
    refused("NaN in `extra`", "JSON", extra={"x": NAN}),
    refused("a set in `extra`", "JSON", extra={"x": {1}}),
    refused("tools that are no list", "tools", tools="x"),
    refused("a tool without a name", "name", tools=[{"type": "function"}]),
    Case(
        section="E",
        fault="a prompt far over 8192 tokens",
        prompt="word " * 40_000,
        verbs=BOTH,
        ends=Fails(kind=OverBudgetError, says=["8,192"]),
        n_requests=0,
    ),
    sent("temperature at its bounds", temperature=2),
    sent("a penalty at its bound", presence_penalty=-2.0),
    sent("max_tokens near its bound", max_tokens=8100),
    sent("four stops", stop=["a", "b", "c", "d"]),
    sent("None for a parameter", temperature=None),
    sent("an undocumented field in `extra`", extra={"seed": 1}),
    sent("an unknown model id", model="svc-next"),
    Case(
        section="E",
        fault="an unknown model id that the service does not know",
        params={"model": "svc-next"},
        answers=[[http(refusal("no such model"), status=404)]],
        verbs=BOTH,
        ends=Fails(kind=UnknownModelError, says=["svc models", "/v1"]),
    ),
]


def joined(fault: str, *pieces: str, text: str | None = None) -> Case:
    """Return a case of text cut into deltas."""
    body = b"".join(chunk(piece) for piece in pieces) + END
    return Case(
        section="F", fault=fault, answers=[stream(body)], ends=text or "".join(pieces)
    )


def escaped(fault: str, *contents: str, text: str) -> Case:
    """Return a case of text written as escapes of JSON."""
    body = b"".join(
        b'data: {"choices":[{"delta":{"content":"' + each.encode() + b'"}}]}\n\n'
        for each in contents
    )
    return Case(section="F", fault=fault, answers=[stream(body, END)], ends=text)


UNICODE = [
    joined("Thai cut before its vowel marks", "ก", "ำ", "ลั", "ง", "กิ", "น"),
    joined("combining marks on their own", "e", "\u0301", "o\u0308"),
    joined("an emoji of four joined by ZWJ", "👨", "\u200d", "👩", "\u200d👧"),
    joined("a flag cut in two", "🇹", "🇭"),
    joined("text that normalisation would change", "\u212b\ufb01", "\u1100\u1161"),
    joined("NUL in the text", "a\0b"),
    escaped("an emoji as a pair of escapes", "\\ud83d\\ude00", text="😀"),
    escaped("a pair cut over two deltas", "a\\ud83d", "\\ude00b", text="a😀b"),
    escaped("a lone first half", "a\\ud83d", "b", text="a\ufffdb"),
    escaped("a lone second half", "a", "\\ude00b", text="a\ufffdb"),
    escaped("a first half at the end", "a\\ud83d", text="a\ufffd"),
    Case(
        section="F",
        fault="a first half, then an error",
        answers=[
            stream(
                b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
                event({"error": {"message": "busy"}}),
            )
        ],
        ends=Fails(kind=ServerFaultError, says=["busy"], partial="a\ufffd"),
    ),
    Case(
        section="F",
        fault="a bad UTF-8 byte",
        answers=[stream(chunk("aXb").replace(b"X", b"\xff"), END)],
        ends="a\ufffdb",
    ),
    Case(
        section="F",
        fault="a bad UTF-8 byte in a whole reply",
        answers=[[GOOD.replace(b"Hello.", b"Hell\xff.")]],
        verbs=BOTH,
        ends="Hell\ufffd.",
    ),
    Case(
        section="F",
        fault="halves of two choices, interleaved",
        answers=[
            stream(
                b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
                b'data: {"choices":[{"index":1,"delta":{"content":"\\ud83d"}}]}\n\n'
                b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n'
                b'data: {"choices":[{"index":1,"delta":{"content":"\\ude01"}}]}\n\n',
                chunk(None, "stop") + chunk(None, "stop", index=1) + DONE,
            )
        ],
        params={"n": 2},
        ends="😀",
        check=lambda completion: completion.texts == ("😀", "😁"),
    ),
    Case(
        section="F",
        fault="a lone surrogate in a prompt",
        prompt="a\ud800b",
        verbs=BOTH,
        ends=Fails(kind=ParameterError, says=["position 1"]),
        n_requests=0,
    ),
    Case(
        section="F",
        fault="a lone surrogate in a stop sequence",
        params={"stop": "\udfff"},
        verbs=BOTH,
        ends=Fails(kind=ParameterError, says=["stop"]),
        n_requests=0,
    ),
    Case(
        section="F",
        fault="NUL in a prompt",
        prompt="a\0b",
        answers=[[GOOD]],
        verbs=BOTH,
    ),
]


def calls(fault: str, *deltas: object, want: list[tuple[str, str, str]]) -> Case:
    """Return a case of tool calls in pieces."""
    body = b"".join(
        event({"choices": [{"index": 0, "delta": {"tool_calls": each}}]}, is_ascii=True)
        for each in deltas
    )
    return Case(
        section="A",
        fault=f"tool calls: {fault}",
        answers=[stream(body + END)],
        ends="",
        check=lambda completion: (
            [
                (call.id, call.function.name, call.function.arguments)
                for call in completion.tool_calls
            ]
            == want
        ),
    )


def piece(
    arguments: str,
    index: int | None = None,
    call_id: str | None = None,
    name: str = "",
) -> dict[str, object]:
    """Return a piece of a tool call."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    fields = {"index": index, "id": call_id}
    known = {key: value for key, value in fields.items() if value is not None}
    return {**known, "function": function}


ONE, TWO = ("1", "f", '{"a":1}'), ("2", "g", "{}")
CALLS = [
    calls(
        "pieces by index",
        [piece("", 0, "1", "f")],
        [piece('{"a"', 0)],
        [piece(":1}", 0)],
        want=[ONE],
    ),
    calls(
        "interleaved",
        [piece("", 0, "1", "f")],
        [piece("", 1, "2", "g")],
        [piece('{"a"', 0)],
        [piece("{}", 1)],
        [piece(":1}", 0)],
        want=[ONE, TWO],
    ),
    calls(
        "without an index",
        [piece("", None, "1", "f")],
        [piece('{"a":1}')],
        [piece("{}", None, "2", "g")],
        want=[ONE, TWO],
    ),
    calls(
        "one index, new ids",
        [piece('{"a":1}', 0, "1", "f")],
        [piece("{}", 0, "2", "g")],
        want=[ONE, TWO],
    ),
    calls(
        "whole at once",
        [piece('{"a":1}', 0, "1", "f"), piece("{}", 1, "2", "g")],
        want=[ONE, TWO],
    ),
    calls(
        "an id only in the second piece",
        [piece('{"a"', 0, None, "f")],
        [piece(":1}", 0, "1")],
        want=[ONE],
    ),
    calls(
        "halves of an emoji in two pieces",
        [piece('{"a":"\ud83d', 0, "1", "f")],
        [piece('{"b":"\ud83d', 1, "2", "g")],
        [piece('\ude00"}', 0)],
        [piece('\ude01"}', 1)],
        want=[("1", "f", '{"a":"😀"}'), ("2", "g", '{"b":"😁"}')],
    ),
    calls(
        "half an emoji at the end",
        [piece('"a\ud83d', 0, "1", "f")],
        want=[("1", "f", '"a\ufffd')],
    ),
]

"""A key that is sent, echoed or mistyped shows nowhere: not whole, not in part."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.sync import Client
from svc_notebook.credentials import Key
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import BadRequestError, ParameterError

KEY = "svcsecret/ABCDEFGHIJ/TAILtailTAIL99"
PARTS = {KEY[at : at + 8].lower() for at in range(len(KEY) - 7)}
ESCAPED = KEY.replace("/", r"\/")
ECHOES = [
    KEY,
    KEY.upper(),
    KEY[-12:],
    KEY[8:22],
    KEY.replace("/", "%2F"),
    KEY.replace("/", "%252f"),
    ESCAPED,
    json.dumps(ESCAPED),
    f"{KEY}{KEY}",
    "x" * 695 + KEY,
]


def parts_in(text: str) -> list[str]:
    """Return the parts of the key that a text shows."""
    return [part for part in PARTS if part in text.lower()]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("status", [400, 200])
def test_an_echo_in_an_error_is_blotted_out(
    echo: str,
    status: int,
    kept: Any,  # noqa: ANN401 - the conftest's sink
) -> None:
    """Whole, cut, quoted or escaped: error, attributes and record are without it."""
    fault = {"message": f"bad key {echo}", "code": echo, "param": echo, "type": echo}
    script = [{"status": status, "body": json.dumps({"error": fault}), "times": None}]
    with (
        Emulator(script=script, keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY, sinks=[kept]) as client,
        pytest.raises(Exception, match="bad key") as caught,
    ):
        client.complete("Hi")

    assert parts_in(f"{caught.value} {vars(caught.value)} {kept.exchanges}") == []


def test_an_echo_escaped_as_json_is_read_before_it_is_hidden(
    serve: Callable[..., Any], client_of: Callable[..., Client]
) -> None:
    """A key with escaped slashes goes as a whole, and the words around it stay."""
    body = b'{"error": {"message": "No sk-secret\\u002dof-the-test, sorry"}}'
    head = b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = serve([head + body])

    with pytest.raises(BadRequestError, match=r"No \[key\], sorry"):
        client_of(server.base_url).complete("Hi")


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_echo_in_a_reply_reaches_no_record(
    is_streamed: bool,
    kept: Any,  # noqa: ANN401 - the conftest's sink
) -> None:
    """Id, model, finish reason, text and calls are kept with the key blotted out."""
    function = {"name": "look", "arguments": json.dumps({"key": KEY})}
    said: dict[str, Any] = {
        "content": f"Your key is {KEY}.",
        "tool_calls": [{"index": 0, "id": "c", "type": "function"}],
    }
    said["tool_calls"][0]["function"] = function
    choice = {"index": 0, "finish_reason": KEY}
    choice["delta" if is_streamed else "message"] = said
    reply = {"id": KEY, "model": KEY, "choices": [choice]}
    entry: dict[str, Any] = (
        {"events": [json.dumps(reply), "[DONE]"]} if is_streamed else {}
    )
    script = [entry or {"json": reply}]
    with (
        Emulator(script=script, keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY, sinks=[kept]) as client,
    ):
        completion = (
            client.stream("Hi").completion if is_streamed else client.complete("Hi")
        )

    [exchange] = kept.exchanges
    [got] = exchange.body.choices
    assert (exchange.body.id, exchange.body.model) == ("[key]", "[key]")
    assert (got.text, got.finish_reason) == ("Your key is [key].", "[key]")
    assert got.tool_calls[0].function.arguments == '{"key": "[key]"}'
    assert parts_in(f"{kept.exchanges} {completion!r} {completion.text}") == []


CALL_CUT = [
    {"index": 0, "id": "1", "function": {"name": "f", "arguments": KEY[:7]}},
    {"index": 0, "function": {"arguments": KEY[7:] + " sk-"}},
]


def test_an_echo_is_in_no_delta() -> None:
    """A key cut over several deltas, in text or arguments, shows in none of them."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": text, "tool_calls": [call]}}]}
        for text, call in zip(
            (f"It is {KEY[:9]}", KEY[9:] + "."), CALL_CUT, strict=True
        )
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    script = [{"events": [*map(json.dumps, events), "[DONE]"]}]
    deltas: list[Any] = []

    with (
        Emulator(script=script, keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY) as client,
    ):
        stream = client.stream("Hi")
        while not stream.is_done:
            deltas += stream.poll()
        completion = stream.completion

    said = "".join(delta.text or "" for delta in deltas)
    calls = "".join(call.arguments for delta in deltas for call in delta.calls)
    assert (said, calls) == ("It is [key].", "[key] sk-")
    assert completion.tool_calls[0].function.arguments == calls


ASKS: list[tuple[object, dict[str, Any]]] = [
    (f"My key is {KEY}", {}),
    ([{"role": "user", "content": json.dumps({"key": KEY})}], {}),
    ("Hi", {"user": KEY}),
    ("Hi", {"system": ESCAPED}),
    ("Hi", {"extra": {"key": KEY}}),
]


@pytest.mark.parametrize(("prompt", "params"), ASKS)
def test_a_request_that_holds_the_key_is_not_sent(
    prompt: Any,  # noqa: ANN401 - any prompt
    params: dict[str, Any],
    kept: Any,  # noqa: ANN401 - the conftest's sink
) -> None:
    """The user's own key in a request is refused, without showing it."""
    with (
        Emulator(keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY, sinks=[kept]) as client,
        pytest.raises(ParameterError, match="API key stands in the request") as caught,
    ):
        client.complete(prompt, **params)

    assert parts_in(f"{caught.value} {vars(caught.value)}") == []
    assert (len(emulator.requests), kept.exchanges) == (0, [])


def test_a_part_of_the_key_in_a_prompt_is_sent() -> None:
    """Only the whole key is refused; a word it shares with the prompt is not."""
    with (
        Emulator(keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY) as client,
    ):
        client.complete(f"What is {KEY[:9]}?", model="svc-instruct")

    assert len(emulator.requests) == 1


def test_hiding_takes_time_linear_in_the_text() -> None:
    """A text that begins like a key at every word is read once."""
    key = Key("sk-live-of-this-test-1234", source="test")

    got = key.hide("sk-live- " * 111_111)

    assert got == "[key] " * 111_111

"""The key shows nowhere: objects, logs, errors, tracebacks, the ledger's file."""

import asyncio
import copy
import gc
import inspect
import json
import logging
import pickle
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.sync_client import Client
from svc_notebook.credentials import Key, find_key
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, SvcError
from svc_notebook.ledger.store import Ledger

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]
KEY = "sk-secret-of-the-test"
BAD_KEYS = [
    "sk bad secret",
    "sk-secret\r\nX: y",
    "sk-\0secret",
    "sk-กุญแจsecret",
    "sk-secret\u200b",
    "sk-secret\x7f",
    " ",
]


def answer(body: str, status: int = 200) -> bytes:
    """Return a whole answer, whose headers quote the body."""
    raw = body.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n"
    return f"{head}X-Echo: {body[:99]}\r\n\r\n".encode() + raw


def shown_by(error: BaseException) -> str:
    """Return all that a verbose traceback shows, causes and locals included."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [
        f"{frame.filename} {frame.locals}"
        for each in _chain(shown)
        for frame in each.stack
        if frame.filename != __file__
    ]
    everything = "".join(shown.format(chain=True)) if not ours else ""
    return f"{ours} {everything} {error!r} {error} {vars(error)}"


def _chain(
    shown: traceback.TracebackException | None,
) -> list[traceback.TracebackException]:
    if shown is None:
        return []
    return [shown, *_chain(shown.__cause__), *_chain(shown.__context__)]


FAULT = {"message": f"Bad {KEY}", "type": KEY, "code": KEY, "param": KEY}
ECHOES = {
    "refusal": answer(json.dumps({"error": FAULT}), 401),
    "refusal with an escape": answer(f'{{"error": "Bad {KEY[:-1]}\\u0074"}}', 401),
    "refusal in words": answer(f"No {KEY}", 400),
    "page": answer(f"<html>{KEY}</html>"),
    "fault with status 200": answer(f'{{"error": "no {KEY}"}}'),
    "redirect": b"HTTP/1.1 302 X\r\nLocation: /?k=" + KEY.encode() + b"\r\n\r\n",
    "content type": f"HTTP/1.1 200 X\r\nContent-Type: {KEY}\r\n\r\nx".encode(),
    "not http": b"SSH " + KEY.encode() + b"\r\n",
    "cut short": b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n" + KEY.encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("name", ECHOES)
def test_errors_never_show_the_key(
    name: str,
    serve: Serve,
    client_of: ClientOf,
    kept: Any,  # noqa: ANN401 - the conftest's sink
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever a service quotes, error, locals, record and logs are without the key."""
    caplog.set_level(logging.DEBUG)
    server = serve([ECHOES[name]])
    client = client_of(server.base_url)

    with pytest.raises(SvcError) as caught:
        "".join(client.stream("Hi"))

    assert KEY in server.requests[0].decode()
    assert KEY not in shown_by(caught.value)
    assert KEY not in repr(kept.exchanges)
    assert KEY not in caplog.text
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:1/v1", "https://127.0.0.1:1/v1"]
)
def test_connection_errors_never_show_the_key(
    base_url: str, client_of: ClientOf, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that fails leaves no key in its error or in the logs."""
    caplog.set_level(logging.DEBUG)

    with pytest.raises(SvcError) as caught:
        client_of(base_url).complete("Hi")

    assert KEY not in shown_by(caught.value)
    assert KEY not in caplog.text


def quoting(*, is_streamed: bool) -> dict[str, Any]:
    """Return the script of a reply that quotes the key in each of its fields."""
    call = {
        "index": 0,
        "id": KEY,
        "type": "function",
        "function": {"name": KEY, "arguments": json.dumps({"key": KEY})},
    }
    said = {"content": f"Your key is {KEY}.", "tool_calls": [call]}
    whole = {"index": 0, "delta" if is_streamed else "message": said}
    reply = {"id": KEY, "model": KEY, "choices": [{**whole, "finish_reason": KEY}]}
    if not is_streamed:
        return {"json": reply}
    return {"events": [json.dumps(reply), "[DONE]"]}


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_reply_that_quotes_the_key_is_kept_without_it(
    is_streamed: bool, tmp_path: Path
) -> None:
    """Completion and ledger hold `[key]`, and the file's bytes hold no key."""
    path = tmp_path / "ledger.sqlite"
    script = [quoting(is_streamed=is_streamed)]
    with (
        Emulator(script=script, keys=[KEY]) as emulator,
        Ledger(path) as ledger,
        Client(base_url=emulator.base_url, api_key=KEY, sinks=[ledger]) as client,
    ):
        if is_streamed:
            completion = client.stream("Hi").completion
        else:
            completion = client.complete("Hi")

    body = completion.exchange.body
    assert body is not None
    assert (body.id, body.model) == ("[key]", "[key]")
    [choice] = body.choices
    assert (choice.text, choice.finish_reason) == ("Your key is [key].", "[key]")
    [call] = choice.tool_calls
    assert (call.id, call.function.name) == ("[key]", "[key]")
    assert call.function.arguments == '{"key": "[key]"}'
    assert KEY not in repr(completion)
    assert KEY.encode() not in b"".join(
        each.read_bytes() for each in tmp_path.glob("ledger*")
    )


def test_a_key_cut_over_deltas_is_replaced_when_the_reply_settles(
    serve: Serve, client_of: ClientOf
) -> None:
    """The text streams as it comes; the completion has `[key]` in place of the key."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": piece}}]}
        for piece in (f"It is {KEY[:9]}", KEY[9:] + ".")
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    server = serve([f"{head}{body}data: [DONE]\n\n".encode()])

    stream = client_of(server.base_url).stream("Hi")
    streamed = "".join(stream)

    assert streamed == f"It is {KEY}."
    assert stream.completion.text == "It is [key]."


def test_a_short_key_is_not_replaced() -> None:
    """A key of fewer than 8 characters may be an ordinary word, and stays."""
    assert Key("word", source="test").redact("a word") == "a word"


ASKS: list[tuple[object, dict[str, Any]]] = [
    (f"My key is {KEY}", {}),
    ([{"role": "user", "content": json.dumps({"key": KEY})}], {}),
    ("Hi", {"user": KEY}),
    ("Hi", {"system": KEY}),
    ("Hi", {"extra": {"key": KEY}}),
]


@pytest.mark.parametrize(("prompt", "params"), ASKS)
def test_a_request_that_contains_the_key_is_not_sent(
    prompt: Any,  # noqa: ANN401 - any prompt
    params: dict[str, Any],
    kept: Any,  # noqa: ANN401 - the conftest's sink
) -> None:
    """The user's own key in a request is refused, without showing it."""
    with (
        Emulator(keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY, sinks=[kept]) as client,
        pytest.raises(ParameterError, match="request contains the API key") as caught,
    ):
        client.complete(prompt, **params)

    assert KEY not in f"{caught.value} {vars(caught.value)}"
    assert (len(emulator.requests), kept.exchanges) == (0, [])


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{" + KEY.encode()],
)
def test_a_cancelled_request_never_shows_the_key(head: bytes, serve: Serve) -> None:
    """Cancelling while headers or body are awaited leaves no frame with headers."""
    arrived = threading.Event()
    server = serve([head, arrived.set, "silence"])

    async def ask() -> BaseException:
        client = AsyncClient(base_url=server.base_url, api_key=KEY)
        task = asyncio.create_task(client.complete("Hi", model="svc-instruct"))
        await asyncio.to_thread(arrived.wait)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as found:
            return found
        raise AssertionError

    error = asyncio.run(ask())

    assert KEY not in shown_by(error)
    assert "httpcore" not in shown_by(error)


def test_objects_never_show_the_key(emulator: Emulator) -> None:
    """No object of ours shows the key, however it is looked at."""
    key = Key(emulator.api_key, source="SVC_API_KEY")
    client = Client(base_url=emulator.base_url, key=key)
    stream = client.stream("Hi", model="svc-instruct")
    completion = stream.completion
    held = [key, client, client._path, stream, completion, completion.exchange]  # noqa: SLF001 - all of it

    shown = [
        text
        for each in held
        for text in (
            repr(each),
            str(each),
            f"{each}",
            f"{each!a}",
            repr(inspect.getmembers(each)),
            repr(getattr(each, "__dict__", "")),
            json.dumps(each, default=repr),
            repr(copy.copy(each)),
        )
    ]

    assert not [text for text in shown if emulator.api_key in text]
    assert repr(key) == "<API key (hidden) from SVC_API_KEY>"


def test_a_key_is_not_copied_or_stored() -> None:
    """A copy of a key is the key; pickling one is refused without showing it."""
    key = Key(KEY, source="test")

    with pytest.raises(MissingKeyError, match="not stored") as caught:
        pickle.dumps(key)
    with pytest.raises(MissingKeyError, match="not stored"):
        key.__getstate__()

    assert copy.copy(key) is copy.deepcopy(key) is key
    assert KEY not in shown_by(caught.value)


@pytest.mark.parametrize("value", BAD_KEYS)
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Key(value, source="test"),
        lambda value: find_key({"SVC_API_KEY": value}, base_url=None),
        lambda value: Client(base_url="https://svc.invalid/v1", api_key=value),
        lambda value: AsyncClient(base_url="https://svc.invalid/v1", api_key=value),
    ],
    ids=["key", "find_key", "client", "async_client"],
)
def test_a_key_that_cannot_be_sent_is_not_shown(
    value: str, make: Callable[[str], object]
) -> None:
    """A key that no header can carry is refused, and no frame of ours holds it."""
    with pytest.raises(MissingKeyError) as caught:
        make(value)

    assert "secret" not in shown_by(caught.value)


@pytest.mark.parametrize("empty", ["", "\n", '""', "Bearer "])
def test_an_empty_key_is_refused(empty: str) -> None:
    """An empty key is refused, and the message says where keys come from."""
    with pytest.raises(MissingKeyError, match="dashboard"):
        Key(empty, source="test")


@pytest.mark.parametrize(
    "value",
    [f" {KEY}\n", f"\r\n {KEY}\t", f"Bearer {KEY}", f"bearer  {KEY}", f"'{KEY}'"],
)
def test_a_pasted_key_is_cleaned(value: str, serve: Serve) -> None:
    """Blanks, quotes and "Bearer " around a pasted key are removed."""
    server = serve([answer("{}", 400)])
    client = Client(base_url=server.base_url, api_key=value)

    with pytest.raises(SvcError):
        client.complete("Hi", model="svc-instruct")

    assert f"Authorization: Bearer {KEY}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize(
    "address", ["http://svc.invalid/v1", "http://10.0.0.1/v1", "http://127.0.0.1.x/v1"]
)
def test_a_key_is_not_sent_in_clear(address: str) -> None:
    """Plain http to anything but this machine is refused."""
    with pytest.raises(SettingsError, match="unencrypted"):
        Client(base_url=address, api_key=KEY)


@pytest.mark.parametrize(
    "address",
    [f"https://{KEY}@svc.invalid/v1", f"https://svc.invalid/v1?key={KEY}", KEY],
)
def test_a_key_in_the_address_is_refused_unseen(address: str) -> None:
    """A key pasted where the address belongs is refused and not repeated."""
    with pytest.raises(SettingsError) as caught:
        Client(base_url=address, api_key="k")

    assert KEY not in str(caught.value)


def test_nothing_keeps_the_headers_alive(serve: Serve, client_of: ClientOf) -> None:
    """When an exchange is over, no request with its headers is left in memory."""
    server = serve([b""])

    with pytest.raises(SvcError):
        client_of(server.base_url).complete("Hi")
    gc.collect()

    left = [each for each in gc.get_objects() if type(each).__name__ == "Request"]
    assert [each for each in left if hasattr(each, "extensions")] == []

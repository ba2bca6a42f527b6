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
from hypothesis import given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.sync_client import Client
from svc_notebook.credentials import Key, StreamRedactor, find_key
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, SvcError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.chunk import Delta
from svc_notebook.session import isolated

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


def streamed(*deltas: dict[str, Any], finish_reason: str = "stop") -> dict[str, Any]:
    """Return the script of a stream with these deltas."""
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    chunks = [json.dumps({"choices": [choice]}) for choice in choices]
    return {"events": [*chunks, "[DONE]"]}


def call_piece(arguments: str) -> dict[str, Any]:
    """Return a delta with a piece of the arguments of a tool call."""
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


@pytest.mark.parametrize("n_letters", [1, 2, 9, 99])
def test_a_stream_never_shows_the_key(n_letters: int) -> None:
    """A key that a server echoes, however it is cut, is `[key]` as it streams."""
    text = f"It is {KEY}, as"
    pieces = [text[at : at + n_letters] for at in range(0, len(text), n_letters)]
    script = [streamed(*({"content": piece} for piece in pieces))]
    with Emulator(script=script, keys=[KEY]) as emulator, isolated():
        svc.use(endpoint=emulator)
        stream = svc.stream("Hi")

        assert "".join(stream) == "It is [key], as"
        assert stream.completion.text == "It is [key], as"


def test_a_stream_hides_the_key_in_reasoning_and_calls() -> None:
    """The key is hidden in what a model thinks, and in the arguments of its calls."""
    deltas = [
        *({"reasoning_content": piece} for piece in ("Is ", KEY[:5], f"{KEY[5:]}.")),
        *(call_piece(piece) for piece in ('{"key": "', KEY[:7], f'{KEY[7:]}"}}')),
    ]
    script = [streamed(*deltas, finish_reason="tool_calls")]
    with (
        Emulator(script=script, keys=[KEY]) as emulator,
        Client(base_url=emulator.base_url, api_key=KEY) as client,
    ):
        stream = client.stream("Hi")
        came = []
        while not stream.is_done:
            came += [each for each in stream.poll() if isinstance(each, Delta)]

    assert "".join(delta.reasoning for delta in came) == "Is [key]."
    pieces = [call.arguments for delta in came for call in delta.calls]
    assert "".join(pieces) == '{"key": "[key]"}'


@pytest.mark.parametrize("rest", ["", KEY[:5]])
def test_what_may_begin_a_key_is_shown_at_the_end(
    rest: str, serve: Serve, client_of: ClientOf
) -> None:
    """Text that looks like the start of the key is not lost, also if a reply breaks."""
    event = {"choices": [{"index": 0, "delta": {"content": f"It is {rest}"}}]}
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    server = serve([f"{head}data: {json.dumps(event)}\n\n".encode(), "reset"])
    shown: list[str] = []

    with pytest.raises(SvcError):
        shown.extend(client_of(server.base_url).stream("Hi"))

    assert "".join(shown) == f"It is {rest}"


@pytest.mark.slow
@given(
    st.lists(st.text("ab-sk", max_size=12), max_size=6),
    st.lists(st.text("ab-sk", min_size=8, max_size=10), min_size=1, max_size=3),
)
def test_a_text_in_pieces_is_redacted_as_the_whole(
    pieces: list[str], secrets: list[str]
) -> None:
    """However a text is cut, its pieces show what the redacted whole shows."""
    key, *others = (Key(secret, source="test") for secret in secrets)
    key.others = tuple(others)
    pieces = [
        piece for pair in zip(pieces, secrets * 6, strict=False) for piece in pair
    ]
    stream = StreamRedactor(key)

    shown = "".join([*map(stream.feed, pieces), stream.end()])

    assert shown == key.redact("".join(pieces))
    assert not [secret for secret in secrets if secret in shown]


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


def test_a_client_hides_the_keys_of_other_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service's key goes to no other server, and shows in no reply of one."""
    monkeypatch.setenv("SVC_API_KEY", KEY)
    script = [{"text": f"Is it {KEY}?"}]
    with (
        isolated(),
        Emulator(script=script) as emulator,
        svc.Client(base_url=emulator.base_url, api_key=emulator.api_key) as client,
    ):
        assert client.complete("Hi").text == "Is it [key]?"
        with pytest.raises(ParameterError, match="contains the API key"):
            client.complete(f"My key is {KEY}.")

    assert len(emulator.requests) == 1


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


@pytest.mark.parametrize("make", [svc.Client, svc.AsyncClient])
@pytest.mark.parametrize("name", ["api_key", "key"])
@pytest.mark.parametrize("address", [None, "http://10.0.0.5/v1"])
def test_a_key_given_to_a_client_makes_its_server_need_one(
    make: Callable[..., Any], name: str, address: str | None
) -> None:
    """It is not sent in clear text where the address was used without a key."""
    with isolated():
        svc.use(base_url="http://10.0.0.5/v1", key=False)

        assert make().settings.base_url == "http://10.0.0.5/v1"
        with pytest.raises(SettingsError, match="unencrypted") as caught:
            make(base_url=address, **{name: KEY})

    assert KEY not in shown_by(caught.value)


def test_the_key_of_a_client_is_known_everywhere(emulator: Emulator) -> None:
    """A text that contains it is refused where the kernel's own keys are."""
    Client(base_url=emulator.base_url, api_key=KEY)

    with pytest.raises(ParameterError, match="contains the API key"):
        svc.sweep(f"My key is {KEY}.", model=["a", "b"])


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

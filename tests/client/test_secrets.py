"""The key shows nowhere: objects, logs, errors, tracebacks with their locals."""

import asyncio
import copy
import gc
import logging
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.sync import Client
from svc_notebook.credentials import Key, find_key
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import MissingKeyError, SvcError

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]
KEY = "sk-secret-of-the-test"
BAD_KEYS = ["sk bad secret", "sk-secret\r\nX: y", "sk-\0secret", "sk-กุญแจsecret", " "]


def answer(body: str, status: int = 200) -> bytes:
    """Return a whole answer."""
    raw = body.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n"
    return f"{head}X-Echo: {body[:50]}\r\n\r\n".encode() + raw


def told(error: BaseException) -> str:
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


ECHOES = {
    "refusal": answer(f'{{"error": {{"message": "Bad {KEY}", "code": "{KEY}"}}}}', 401),
    "refusal in words": answer(f"No {KEY}", 400),
    "page": answer(f"<html>{KEY}</html>"),
    "fault with status 200": answer(f'{{"error": "no {KEY}"}}'),
    "redirect": b"HTTP/1.1 302 X\r\nLocation: /?k=" + KEY.encode() + b"\r\n\r\n",
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
    """Whatever a service echoes, error, locals, record and logs are without the key."""
    caplog.set_level(logging.DEBUG)
    server = serve([ECHOES[name]])
    client = client_of(server.base_url)

    with pytest.raises(SvcError) as caught:
        "".join(client.stream("Hi"))

    logs = [each for each in caplog.text.splitlines() if "X-Echo" not in each]
    assert KEY in server.requests[0].decode()
    assert KEY not in told(caught.value)
    assert KEY not in repr(kept.exchanges)
    assert not [line for line in logs if f"Bearer {KEY}" in line]
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

    assert KEY not in told(caught.value)
    assert KEY not in caplog.text


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

    assert KEY not in told(error)
    assert "httpcore" not in told(error)


def test_objects_never_show_the_key(emulator: Emulator) -> None:
    """No object of ours shows the key, however it is looked at."""
    key = Key(emulator.api_key, source="test")
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
            repr(getattr(each, "__dict__", "")),
        )
    ]

    assert not [text for text in shown if emulator.api_key in text]


def test_a_key_is_not_copied_or_stored() -> None:
    """A copy of a key is the key; pickling one is refused without showing it."""
    key = Key(KEY, source="test")

    with pytest.raises(MissingKeyError) as caught:
        pickle.dumps(key)

    assert copy.copy(key) is copy.deepcopy(key) is key
    assert KEY not in told(caught.value)


@pytest.mark.parametrize("value", BAD_KEYS)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_that_cannot_be_sent_is_not_shown(
    value: str, kind: Callable[..., object]
) -> None:
    """A key that no header can carry is refused, and no frame of ours holds it."""
    with pytest.raises(MissingKeyError) as caught:
        kind(base_url="https://svc.invalid/v1", api_key=value)

    assert value == " " or value not in told(caught.value)
    assert "secret" not in told(caught.value)


@pytest.mark.parametrize("value", BAD_KEYS)
def test_a_bad_key_of_the_environment_is_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad key in the environment is found before anything is sent, and not shown."""
    if "\0" in value:
        return  # no environment can hold it
    monkeypatch.setenv("SVC_API_KEY", value)
    client = Client(base_url="https://svc.invalid/v1")

    with pytest.raises(MissingKeyError) as caught:
        client.complete("Hi")

    assert "secret" not in told(caught.value)


@pytest.mark.parametrize("value", BAD_KEYS)
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Key(value, source="test"),
        lambda value: find_key({"SVC_API_KEY": value}),
    ],
    ids=["key", "find_key"],
)
def test_no_frame_holds_a_key_that_cannot_be_used(
    value: str, make: Callable[[str], Key]
) -> None:
    """A verbose traceback shows no local variable with the key that was refused."""
    with pytest.raises(MissingKeyError) as caught:
        make(value)

    assert "secret" not in told(caught.value)


@pytest.mark.parametrize("value", [f" {KEY}\n", f"Bearer {KEY}", f'"{KEY}"'])
def test_a_pasted_key_is_mended(value: str, serve: Serve) -> None:
    """Blanks, quotes and "Bearer " around a pasted key are taken off."""
    server = serve([answer("{}", 400)])
    client = Client(base_url=server.base_url, api_key=value)

    with pytest.raises(SvcError):
        client.complete("Hi", model="svc-instruct")

    assert f"Authorization: Bearer {KEY}\r\n".encode() in server.requests[0]


def test_nothing_keeps_the_headers_alive(serve: Serve, client_of: ClientOf) -> None:
    """When an exchange is over, no request with its headers is left in memory."""
    server = serve([b""])

    with pytest.raises(SvcError):
        client_of(server.base_url).complete("Hi")
    gc.collect()

    left = [each for each in gc.get_objects() if type(each).__name__ == "Request"]
    assert [each for each in left if hasattr(each, "extensions")] == []

"""What a user sees when a stream is wrong: over a real socket, through Client."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.sync import Client
from svc_notebook.errors import (
    DocumentError,
    ServerFaultError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
)

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]
DONE = b"data: [DONE]\n\n"


def chunk(text: str | None = None, finish: str | None = None, index: int = 0) -> bytes:
    """Return one event of a stream, as the document shows it."""
    delta = {} if text is None else {"content": text}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def stream_head(**headers: str) -> bytes:
    """Return the headers of a stream that ends when the connection does."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


WHOLE = b"""{"choices": [{"message": {"role": "assistant", "content": "Hello."},
    "finish_reason": "stop"}]}"""


def http(body: bytes, kind: str) -> bytes:
    """Return a whole answer with its length."""
    lines = [
        "HTTP/1.1 200 OK",
        f"Content-Length: {len(body)}",
        f"Content-Type: {kind}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def read(client: Client) -> tuple[str, SvcError | None]:
    """Stream a reply; return what was shown and how it failed."""
    shown = ""
    try:
        for text in client.stream("Hi"):
            shown += text
    except SvcError as error:
        return shown, error
    return shown, None


def test_stream_is_whole(serve: Serve, client_of: ClientOf) -> None:
    """A stream's deltas are joined, and its finish reason ends it."""
    server = serve([stream_head(), chunk("สวัส"), chunk("ดี"), chunk(None, "stop"), DONE])

    got = read(client_of(server.base_url))

    assert got == ("สวัสดี", None)


BROKEN: dict[str, list[bytes | str]] = {
    "clean end": [],
    "only DONE": [DONE],
    "inside an event": [chunk("more")[:-5]],
    "reset": ["reset"],
}


@pytest.mark.parametrize("name", BROKEN)
def test_cut_stream_keeps_its_text(
    name: str, serve: Serve, client_of: ClientOf
) -> None:
    """A stream without a finish reason is an error that carries what came."""
    server = serve([stream_head(), chunk("par"), chunk("tial"), 0.05, *BROKEN[name]])

    shown, error = read(client_of(server.base_url))

    assert shown == "partial"
    assert isinstance(error, StreamBrokenError)
    assert error.partial is not None
    assert error.partial.text == "partial"
    assert error.n_attempts == len(server.requests) == 1


def test_missing_last_http_chunk(serve: Serve, client_of: ClientOf) -> None:
    """A chunked body that stops before its last chunk is cut, and is not retried."""
    event = chunk("partial")
    piece = f"{len(event):x}\r\n".encode() + event + b"\r\n"
    server = serve([stream_head(Transfer_Encoding="chunked"), piece])

    shown, error = read(client_of(server.base_url))

    assert (shown, type(error), len(server.requests)) == (
        "partial",
        StreamBrokenError,
        1,
    )


def test_lost_before_the_first_event_is_asked_again(
    serve: Serve, client_of: ClientOf
) -> None:
    """A stream lost before anything was shown is asked again."""
    server = serve(
        [stream_head(Content_Length="100"), b": hi\n\n"],
        [stream_head(), chunk("ok", "stop"), DONE],
    )

    got = read(client_of(server.base_url))

    assert (got, len(server.requests)) == (("ok", None), 2)


@pytest.mark.parametrize("body", [b"", DONE, b": nothing\n\n"])
def test_empty_stream_is_an_error(
    body: bytes, serve: Serve, client_of: ClientOf
) -> None:
    """A stream without any text or finish reason is an empty reply, and an error."""
    server = serve([stream_head(), body])

    shown, error = read(client_of(server.base_url))

    assert shown == ""
    assert isinstance(error, StreamBrokenError)
    assert "empty reply" in str(error)
    assert error.partial is None


AFTER_DONE: dict[str, list[bytes | str]] = {
    "no end": ["silence"],
    "reset": ["reset"],
    "more": [chunk(" extra"), chunk("!", "stop")],
}


@pytest.mark.parametrize("name", AFTER_DONE)
def test_done_ends_the_stream_at_once(
    name: str, serve: Serve, client_of: ClientOf
) -> None:
    """After [DONE] nothing is waited for and nothing is shown."""
    server = serve(
        [stream_head(), chunk("all"), chunk(None, "stop"), DONE, *AFTER_DONE[name]]
    )

    got = read(client_of(server.base_url))

    assert got == ("all", None)


def test_finished_stream_without_done(serve: Serve, client_of: ClientOf) -> None:
    """A finish reason on every choice makes a stream whole, [DONE] or not."""
    server = serve([stream_head(), chunk("all"), chunk(None, "length"), "reset"])

    stream = client_of(server.base_url).stream("Hi")

    assert ("".join(stream), stream.completion.finish_reason) == ("all", "length")


IN_STREAM = {
    "plain": b'data: {"error":{"message":"overloaded","code":"busy"}}\n\n',
    "typed": b'event: error\ndata: {"message":"overloaded","code":"busy"}\n\n',
    "text": b'data: {"error":"overloaded"}\n\n',
    "bare": b"event: error\ndata: overloaded\n\n",
}


@pytest.mark.parametrize("name", IN_STREAM)
def test_error_inside_a_stream(name: str, serve: Serve, client_of: ClientOf) -> None:
    """An error object in a stream is the service's error, with what came."""
    server = serve([stream_head(), chunk("some"), IN_STREAM[name], "silence"])

    shown, error = read(client_of(server.base_url))

    assert shown == "some"
    assert isinstance(error, ServerFaultError)
    assert (error.status, "overloaded" in str(error)) == (200, True)
    assert error.partial is not None
    assert error.partial.text == "some"


@pytest.mark.parametrize("data", [b"oops", b"[1]", b'"text"', b"1", b"null"])
def test_event_that_is_no_chunk(data: bytes, serve: Serve, client_of: ClientOf) -> None:
    """An event that is no JSON object is an error of the answer; text is kept."""
    server = serve([stream_head(), chunk("some"), b"data: " + data + b"\n\n"])

    shown, error = read(client_of(server.base_url))

    assert (shown, type(error)) == ("some", DocumentError)
    assert error is not None
    assert error.partial is not None


def test_stream_answered_in_one_piece(serve: Serve, client_of: ClientOf) -> None:
    """A reply in one piece to a request for a stream is read as what it is."""
    server = serve([http(WHOLE, "application/json")])

    got = read(client_of(server.base_url))

    assert got == ("Hello.", None)


def test_stream_answered_by_html(serve: Serve, client_of: ClientOf) -> None:
    """A page of HTML is not a reply."""
    server = serve([http(b"<html>Hello", "text/event-stream")])

    shown, error = read(client_of(server.base_url))

    assert (shown, type(error)) == ("", DocumentError)


def test_gzip_stream(serve: Serve, client_of: ClientOf) -> None:
    """A compressed stream is opened."""
    body = gzip.compress(chunk("zip") + chunk(None, "stop") + DONE)
    server = serve([stream_head(Content_Encoding="gzip"), body])

    assert read(client_of(server.base_url)) == ("zip", None)


def test_cut_gzip_stream(serve: Serve, client_of: ClientOf) -> None:
    """A compressed stream that stops in the middle is cut short."""
    body = gzip.compress(chunk("zip") + chunk("zip") * 1000)
    server = serve([stream_head(Content_Encoding="gzip"), body[:-20]])

    _, error = read(client_of(server.base_url))

    assert isinstance(error, StreamBrokenError)


@pytest.mark.slow
def test_silence_in_a_stream(serve: Serve, client_of: ClientOf) -> None:
    """Silence ends at the idle deadline, with what came, and is not retried."""
    server = serve([stream_head(), chunk("some"), "silence"])
    client = client_of(server.base_url, idle_s=1.0)

    shown, error = read(client)

    assert shown == "some"
    assert isinstance(error, TimedOutError)
    assert (error.deadline, error.deadline_s, error.n_attempts) == ("idle", 1.0, 1)
    assert server.is_left.wait(60)


@pytest.mark.slow
def test_no_headers(serve: Serve, client_of: ClientOf) -> None:
    """A service that does not begin to answer is given up after the deadline."""
    server = serve(["silence"])

    _, error = read(client_of(server.base_url, first_byte_s=0.5))

    assert isinstance(error, TimedOutError)
    assert (error.deadline, error.n_attempts) == ("first_byte", 1)


def test_connection_is_used_again_after_a_stream(
    serve: Serve, client_of: ClientOf
) -> None:
    """A stream that ended well leaves its connection for the next request."""
    body = chunk("ok", "stop") + DONE
    server = serve([http(body, "text/event-stream"), "keep"])
    client = client_of(server.base_url)

    got = [read(client) for _ in range(3)]

    assert (got, server.n_connections) == ([("ok", None)] * 3, 1)


@pytest.mark.slow
def test_comments_are_silence(serve: Serve, client_of: ClientOf) -> None:
    """A stream of nothing but comments ends at the idle deadline."""
    server = serve([stream_head(), chunk("some"), *([0.05, b": ping\n\n"] * 200)])

    shown, error = read(client_of(server.base_url, idle_s=1.0))

    assert (shown, type(error)) == ("some", TimedOutError)


@pytest.mark.slow
def test_two_megabytes_in_one_event(serve: Serve, client_of: ClientOf) -> None:
    """One event of 2 MB arrives whole."""
    server = serve([stream_head(), chunk("ก" * 700_000, "stop"), DONE])

    assert read(client_of(server.base_url)) == ("ก" * 700_000, None)


@pytest.mark.slow
def test_twenty_thousand_deltas(serve: Serve, client_of: ClientOf) -> None:
    """20 000 deltas arrive whole."""
    body = b"".join(chunk(f"{at} ") for at in range(20_000))
    server = serve([stream_head(), body, chunk(None, "stop"), DONE])

    got = read(client_of(server.base_url))

    assert got == ("".join(f"{at} " for at in range(20_000)), None)

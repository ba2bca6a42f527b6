"""What a user sees when a body or a status is wrong: over a real socket."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.sync import Client
from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    ServerFaultError,
    TimedOutError,
    UnknownModelError,
)

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]


def http(body: bytes, *, status: int = 200, kind: str = "", **headers: str) -> bytes:
    """Return a whole answer with its length."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def whole(text: str = "Hello.") -> bytes:
    """Return a reply in one piece, as the document shows it."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    body = {"id": "c", "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


@pytest.mark.slow
def test_slow_whole_reply(serve: Serve, client_of: ClientOf) -> None:
    """A reply in one piece has one deadline for all of it."""
    server = serve([http(whole())[:-3], "silence"])
    client = client_of(server.base_url, whole_s=0.1, whole_token_s=0.001)

    with pytest.raises(TimedOutError) as caught:
        client.complete("Hi", max_tokens=100)

    assert (caught.value.deadline, caught.value.deadline_s) == ("whole", 0.2)


BAD_BODIES = {
    "broken": b'{"choices": [',
    "empty": b"",
    "array": b"[]",
    "null": b"null",
    "html": b"<html><script>alert(1)</script>",
    "no choices": b'{"id": "c"}',
    "empty choices": b'{"choices": []}',
    "no message": b'{"choices": [{"index": 0}]}',
    "choices a text": b'{"choices": "text"}',
    "choice a text": b'{"choices": ["text"]}',
    "content a number": b'{"choices": [{"message": {"content": 5}}]}',
    "calls a text": b'{"choices": [{"message": {"tool_calls": "x"}}]}',
    "nested": b"[" * 100_000,
    "huge number": b"1" * 5000,
    "control": b"\x1b[31m\x00",
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_reply_that_is_none(name: str, serve: Serve, client_of: ClientOf) -> None:
    """A body that is no reply is an error with status, type and printable head."""
    server = serve([http(BAD_BODIES[name], kind="text/x")])

    with pytest.raises(DocumentError) as caught:
        client_of(server.base_url).complete("Hi")

    error = caught.value
    assert (error.status, error.content_type) == (200, "text/x")
    assert error.head.isprintable()
    assert len(error.head) <= 800
    assert error.partial is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json; charset=x"])
def test_good_json_under_another_name(
    kind: str, serve: Serve, client_of: ClientOf
) -> None:
    """JSON is read whatever its content type says, with a BOM too."""
    server = serve([http(b"\xef\xbb\xbf" + whole(), kind=kind)])

    assert client_of(server.base_url).complete("Hi").text == "Hello."


def test_error_body_with_status_200(serve: Serve, client_of: ClientOf) -> None:
    """An error body with status 200 is raised."""
    server = serve([http(b'{"error": {"message": "no", "code": "c1"}}')])

    with pytest.raises(ServerFaultError) as caught:
        client_of(server.base_url).complete("Hi")

    assert (caught.value.status, caught.value.code) == (200, "c1")


STATUSES = {
    400: BadRequestError,
    401: AuthError,
    403: AuthError,
    404: UnknownModelError,
    405: BadRequestError,
    413: BadRequestError,
    418: BadRequestError,
    422: BadRequestError,
}


@pytest.mark.parametrize("status", STATUSES)
def test_refusal_is_not_repeated(
    status: int, serve: Serve, client_of: ClientOf
) -> None:
    """A refusal is raised at once, with the error body's fields."""
    body = {"error": {"message": "Why.", "type": "t", "param": "p", "code": "c"}}
    server = serve([http(json.dumps(body).encode(), status=status)])

    with pytest.raises(STATUSES[status]) as caught:
        client_of(server.base_url).complete("Hi")

    error = caught.value
    assert (error.status, error.type, error.param, error.code) == (
        status,
        "t",
        "p",
        "c",
    )
    assert "Why." in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
def test_server_fault_is_tried_three_times(
    status: int, serve: Serve, client_of: ClientOf
) -> None:
    """A fault of the server is asked three times; its page is never shown."""
    server = serve([http(b"<html>Bad gateway" * 100, status=status)])

    with pytest.raises(ServerFaultError) as caught:
        client_of(server.base_url).complete("Hi")

    assert (caught.value.n_attempts, len(server.requests)) == (3, 3)
    assert "<html>" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "busy"}',
        b'{"detail": "busy"}',
        b'{"detail": [{"loc": ["body", "n"], "msg": "busy"}]}',
        b'[{"error": {"message": "busy"}}]',
        b"busy",
        b'{"error": {"message": "busy", "code": 5, "type": null, "param": []}}',
        b'{"message": "busy"}',
        b"busy \xff\xfe",
        b'{"error": {"message": "busy \\ud800"}}',
    ],
)
def test_error_bodies_of_every_shape(
    body: bytes, serve: Serve, client_of: ClientOf
) -> None:
    """An error body of any shape is an error by its status, with what it said."""
    server = serve([http(body, status=400)])

    with pytest.raises(BadRequestError, match="busy") as caught:
        client_of(server.base_url).complete("Hi")

    assert str(caught.value).encode()


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b"5", b'{"error": {}}'])
def test_error_body_that_says_nothing(
    body: bytes, serve: Serve, client_of: ClientOf
) -> None:
    """An error without words is still an error by its status."""
    server = serve([http(body, status=400)])

    with pytest.raises(BadRequestError, match="status 400"):
        client_of(server.base_url).complete("Hi")


def test_error_message_of_a_megabyte(serve: Serve, client_of: ClientOf) -> None:
    """A long message is cut where it is shown."""
    body = json.dumps({"error": {"message": "x" * 1_000_000}}).encode()
    server = serve([http(body, status=400)])

    with pytest.raises(BadRequestError) as caught:
        client_of(server.base_url).complete("Hi")

    assert len(str(caught.value)) < 4000


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("to", ["/v1/x", "http://127.0.0.1:1/v1", "file:///etc"])
def test_redirect_is_refused(
    status: int, to: str, serve: Serve, client_of: ClientOf
) -> None:
    """A redirect is refused by name, and nothing is sent to where it points."""
    server = serve([http(b"", status=status, Location=to)])

    with pytest.raises(DocumentError, match="redirect") as caught:
        client_of(server.base_url).complete("Hi")

    assert caught.value.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "to",
    [
        "https://user:pa55@host/v1",
        "//user:pa55@host/v1",
        "https:///user:pa55@host/v1",
        "https:user:pa55@host/v1",
        "https://user:pa55/word@host/v1",
        "/v1?password=pa55",
    ],
)
def test_a_redirects_password_is_not_shown(
    to: str, serve: Serve, client_of: ClientOf
) -> None:
    """The error of a redirect shows host and path, never a user's password."""
    server = serve([http(b"", status=302, Location=to)])

    with pytest.raises(DocumentError, match="redirect") as caught:
        client_of(server.base_url).complete("Hi")

    assert "pa55" not in f"{caught.value} {vars(caught.value)}"
    if to.startswith("//"):
        assert "to //host/v1." in str(caught.value)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_body_that_cannot_be_opened(
    encoding: str, serve: Serve, client_of: ClientOf
) -> None:
    """A body that is not what its encoding says is an error of the answer."""
    server = serve([http(whole(), Content_Encoding=encoding)])

    with pytest.raises(DocumentError, match="decompressed"):
        client_of(server.base_url).complete("Hi")


@pytest.mark.slow
def test_large_reply(serve: Serve, client_of: ClientOf) -> None:
    """A reply of 20 MB is read."""
    server = serve([http(whole("x" * 20_000_000))])

    assert len(client_of(server.base_url).complete("Hi").text) == 20_000_000


@pytest.mark.slow
def test_bomb(serve: Serve, client_of: ClientOf) -> None:
    """A small body that opens to more than 64 MB is refused."""
    body = gzip.compress(b" " * 70_000_000)
    server = serve([http(body, Content_Encoding="gzip")])

    with pytest.raises(DocumentError, match="more than 67108864 bytes"):
        client_of(server.base_url).complete("Hi")


@pytest.mark.slow
def test_trickle_ends(serve: Serve, client_of: ClientOf) -> None:
    """A body that never ends, a few bytes at a time, ends by its deadline."""
    server = serve([http(b"x" * 1000)[:-900], *([0.02, b"x"] * 50)])

    with pytest.raises(TimedOutError) as caught:
        client_of(server.base_url, whole_s=0.2, whole_token_s=0.0).complete("Hi")

    assert caught.value.deadline == "whole"


@pytest.mark.slow
def test_total_deadline(serve: Serve, client_of: ClientOf) -> None:
    """The last deadline ends whatever the others allow."""
    server = serve(["silence"])

    with pytest.raises(TimedOutError) as caught:
        client_of(server.base_url, total_s=0.1).complete("Hi")

    assert (caught.value.deadline, caught.value.deadline_s) == ("total", 0.1)

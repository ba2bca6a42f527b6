"""What a user sees when a body, a status or a stream is wrong: over a real socket.

One of each kind, for the short loop; the tables in `tests/faults` have all of them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.sync_client import Client
from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    ServerFaultError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
    UnknownModelError,
)
from tests.faults.answers import DONE, END, chunk, head, http, refusal, reply

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]


def read(client: Client) -> tuple[str, SvcError | None]:
    """Stream a reply; return what was shown and how it failed."""
    shown = ""
    try:
        for text in client.stream("Hi"):
            shown += text
    except SvcError as error:
        return shown, error
    return shown, None


@pytest.mark.parametrize("body", [b'{"choices": [', b"", b"<html><script>", b"\x1b[3"])
def test_a_body_that_is_not_a_reply(
    body: bytes, serve: Serve, client_of: ClientOf
) -> None:
    """It is an error with status, type and the printable beginning of the body."""
    server = serve([http(body, kind="text/x")])

    with pytest.raises(DocumentError) as caught:
        client_of(server.base_url).complete("Hi")

    error = caught.value
    assert (error.status, error.content_type) == (200, "text/x")
    assert error.head.isprintable()
    assert error.partial is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json; charset=x"])
def test_good_json_under_another_name(
    kind: str, serve: Serve, client_of: ClientOf
) -> None:
    """JSON is read whatever its content type says, with a BOM too."""
    server = serve([http(b"\xef\xbb\xbf" + reply(), kind=kind)])

    assert client_of(server.base_url).complete("Hi").text == "Hello."


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, ServerFaultError),
        (401, AuthError),
        (404, UnknownModelError),
        (422, BadRequestError),
    ],
)
def test_a_refusal_is_not_repeated(
    status: int, kind: type[SvcError], serve: Serve, client_of: ClientOf
) -> None:
    """It is raised at once, with the error body's fields; also with status 200."""
    body = refusal("Why.", type="t", param="p", code="c")
    server = serve([http(body, status=status)])

    with pytest.raises(kind, match=r"Why\.") as caught:
        client_of(server.base_url).complete("Hi")

    error: Any = caught.value
    assert (error.type, error.param, error.code) == ("t", "p", "c")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 500, 529])
def test_a_server_fault_is_tried_three_times(
    status: int, serve: Serve, client_of: ClientOf
) -> None:
    """A page of HTML instead of an error body is never shown."""
    server = serve([http(b"<html>Bad gateway" * 100, status=status)])

    with pytest.raises(ServerFaultError) as caught:
        client_of(server.base_url).complete("Hi")

    assert (caught.value.n_attempts, len(server.requests)) == (3, 3)
    assert "<html>" not in str(caught.value)


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
def test_a_redirect_is_refused_without_its_password(
    to: str, serve: Serve, client_of: ClientOf
) -> None:
    """Nothing is sent there; the error shows host and path, never a password."""
    server = serve([http(b"", status=302, Location=to)])

    with pytest.raises(DocumentError, match="redirect") as caught:
        client_of(server.base_url).complete("Hi")

    assert "pa55" not in f"{caught.value} {vars(caught.value)}"
    assert len(server.requests) == 1
    if to.startswith("//"):
        assert "to //host/v1." in str(caught.value)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_body_that_cannot_be_decompressed(
    encoding: str, serve: Serve, client_of: ClientOf
) -> None:
    """A body that is not what its encoding says is an error of the answer."""
    server = serve([http(reply(), Content_Encoding=encoding)])

    with pytest.raises(DocumentError, match="decompressed"):
        client_of(server.base_url).complete("Hi")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timeouts", "deadline", "deadline_s"),
    [
        ({"whole_s": 0.1, "whole_token_s": 0.001}, "whole", 0.2),
        ({"total_s": 0.1}, "total", 0.1),
    ],
)
def test_a_reply_in_one_piece_has_one_deadline(
    timeouts: dict[str, float],
    deadline: str,
    deadline_s: float,
    serve: Serve,
    client_of: ClientOf,
) -> None:
    """It is for all of the reply, and the error has its name and length."""
    server = serve([http(reply())[:-3], "silence"])

    with pytest.raises(TimedOutError) as caught:
        client_of(server.base_url, **timeouts).complete("Hi", max_tokens=100)

    assert caught.value.deadline == deadline
    assert caught.value.deadline_s == pytest.approx(deadline_s)


@pytest.mark.slow
def test_no_headers(serve: Serve, client_of: ClientOf) -> None:
    """A service that does not begin to answer is given up after the deadline."""
    server = serve(["silence"])

    _, error = read(client_of(server.base_url, first_byte_s=0.5))

    assert isinstance(error, TimedOutError)
    assert (error.deadline, error.n_attempts) == ("first_byte", 1)


@pytest.mark.slow
def test_silence_in_a_stream(serve: Serve, client_of: ClientOf) -> None:
    """It ends at the idle deadline, with what came, and is not retried."""
    server = serve([head(), chunk("some"), "silence"])

    shown, error = read(client_of(server.base_url, idle_s=1.0))

    assert shown == "some"
    assert isinstance(error, TimedOutError)
    assert (error.deadline, error.deadline_s, error.n_attempts) == ("idle", 1.0, 1)
    assert server.wait_until_left() == []


@pytest.mark.parametrize("rest", [[DONE], ["reset"], [chunk("more")[:-5]]])
def test_a_cut_stream_keeps_its_text(
    rest: list[bytes | str], serve: Serve, client_of: ClientOf
) -> None:
    """A stream without a finish reason is an error that carries what came."""
    server = serve([head(), chunk("par"), chunk("tial"), 0.05, *rest])

    shown, error = read(client_of(server.base_url))

    assert shown == "partial"
    assert isinstance(error, StreamBrokenError)
    assert error.partial is not None
    assert error.partial.text == "partial"
    assert error.n_attempts == len(server.requests) == 1


def test_a_stream_lost_before_its_first_event_is_asked_again(
    serve: Serve, client_of: ClientOf
) -> None:
    """Nothing was shown, so nothing is shown twice."""
    server = serve(
        [head(Content_Length="100"), b": hi\n\n"], [head(), chunk("ok", "stop"), DONE]
    )

    assert read(client_of(server.base_url)) == ("ok", None)
    assert len(server.requests) == 2


@pytest.mark.parametrize("rest", [["silence"], [chunk(" extra"), chunk("!", "stop")]])
def test_done_ends_a_stream_at_once(
    rest: list[bytes | str], serve: Serve, client_of: ClientOf
) -> None:
    """After [DONE] nothing is waited for and nothing is shown."""
    server = serve([head(), chunk("สวัส"), chunk("ดี"), END, *rest])

    assert read(client_of(server.base_url)) == ("สวัสดี", None)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'data: {"error":{"message":"overloaded"}}\n\n', ServerFaultError),
        (b"event: error\ndata: overloaded\n\n", ServerFaultError),
        (b"data: oops\n\n", DocumentError),
    ],
)
def test_an_error_inside_a_stream(
    event: bytes, kind: type[SvcError], serve: Serve, client_of: ClientOf
) -> None:
    """It is raised with what came before it."""
    server = serve([head(), chunk("some"), event, "silence"])

    shown, error = read(client_of(server.base_url))

    assert (shown, type(error)) == ("some", kind)
    assert error is not None
    assert error.partial is not None
    assert error.partial.text == "some"


def test_a_connection_is_used_again_after_a_stream(
    serve: Serve, client_of: ClientOf
) -> None:
    """A stream that ended well leaves its connection for the next request."""
    body = chunk("ok", "stop") + DONE
    server = serve([http(body, kind="text/event-stream"), "keep"])
    client = client_of(server.base_url)

    got = [read(client) for _ in range(3)]

    assert (got, server.n_connections) == ([("ok", None)] * 3, 1)

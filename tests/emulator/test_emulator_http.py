"""HTTP/1.1 as the emulator speaks it: framing, order, and what ends a connection."""

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svc_notebook.emulator.emulator import Emulator

HEADERS = (
    "Host: x\r\nAuthorization: Bearer svc-emulator\r\nContent-Type: application/json"
)
WIRE_TIMEOUT_S = 60.0
REPLY = re.compile(rb"HTTP/1\.1 (\d+) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n")


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    """No waiting and no limits; for all tests of this file."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def _post(question: str, *more: str, **fields: object) -> bytes:
    """Write a request for a reply with the question in its error or text."""
    messages = [{"role": "user", "content": question}]
    body = json.dumps({"model": "svc-v2-8b-instruct", "messages": messages} | fields)
    head = ["POST /v1/chat/completions HTTP/1.1", HEADERS, *more]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode()


LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def _received(server: Emulator, *parts: bytes) -> bytes:
    """Send parts; read until the server closes the connection."""
    port = int(server.base_url.split(":")[2].removesuffix("/v1"))
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=WIRE_TIMEOUT_S) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            wire.sendall(part)
        while piece := wire.recv(65536):
            received += piece
    return received


def _statuses(received: bytes) -> list[int]:
    return [int(match[1]) for match in REPLY.finditer(received)]


def test_requests_in_a_row_are_answered_in_order(server: Emulator) -> None:
    """Three that arrive together get whole replies, one after the other."""
    asking = _post("Hello") + _post("Hello", temperature=9) + _post("Tea or coffee?")

    received = _received(server, asking + LAST)

    assert _statuses(received) == [200, 400, 200, 200]
    assert received.index(b"Hello!") < received.index(b"Tea.")


@pytest.mark.slow
def test_a_request_may_be_cut_at_any_byte(server: Emulator) -> None:
    """Head and body in two parts, wherever the first ends, are one request."""
    asking = _post("Tea or coffee?", "Connection: close")

    texts = [
        _received(server, asking[:at], asking[at:]).count(b'"content":"Tea."')
        for at in range(1, len(asking))
    ]

    assert texts == [1] * (len(asking) - 1)


@pytest.mark.parametrize("end", ["0\r\n\r\n", "0\r\nX-Trailer: 1\r\nHost: y\r\n\r\n"])
def test_a_body_in_chunks_is_joined(server: Emulator, end: str) -> None:
    """Trailers change nothing."""
    body = _post("Tea or coffee?").partition(b"\r\n\r\n")[2].decode()
    chunks = "".join(f"1\r\n{letter}\r\n" for letter in body)
    head = ["POST /v1/chat/completions HTTP/1.1", HEADERS, "Transfer-Encoding: chunked"]
    asking = "\r\n".join([*head, "", chunks + end]).encode()

    received = _received(server, asking + LAST)

    assert _statuses(received) == [200, 200]
    assert b'"content":"Tea."' in received


def test_a_client_that_waits_is_told_to_go_on(server: Emulator) -> None:
    """The reply follows on the same connection, which can be used again."""
    asking = _post("Hello", "Expect: 100-continue")
    head, _, body = asking.partition(b"\r\n\r\n")

    received = _received(server, head + b"\r\n\r\n", body, LAST)

    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert _statuses(received) == [100, 200, 200]


def test_a_stream_is_sent_in_chunks_or_up_to_the_end(server: Emulator) -> None:
    """A client of HTTP/1.0 knows no chunks; its connection closes after the reply."""
    asking = _post("Hello", stream=True)

    new = _received(server, asking + LAST)
    old = _received(server, asking.replace(b"HTTP/1.1", b"HTTP/1.0"))

    assert b"transfer-encoding: chunked\r\n" in new
    assert b"data: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n" in new
    assert b"transfer-encoding" not in old
    assert old.endswith(b"data: [DONE]\n\n")


def test_a_reply_to_head_has_no_body(server: Emulator) -> None:
    """It says how long the body would be; the next reply follows at once."""
    received = _received(server, LAST.replace(b"GET", b"HEAD"))

    assert re.search(rb"content-length: [1-9]", received)
    assert received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("entry", "end"),
    [
        ({"status": 204}, b"\r\n\r\n"),
        ({"body": "abc", "headers": {"content-length": "9"}}, b"\r\n\r\nabc"),
        ({"body": "abc", "headers": {"content-length": "1"}}, b"\r\n\r\nabc"),
        ({"body": ["ab", "", "c"]}, b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        ({"body": "abc", "headers": {"connection": "close"}}, b"0\r\n\r\n"),
        ({"body": "abc", "status": 599}, b"0\r\n\r\n"),
    ],
)
def test_a_script_decides_what_is_sent(entry: dict[str, Any], end: bytes) -> None:
    """A length that is wrong is sent, and ends the connection."""
    with Emulator(script=[entry]) as emulator:
        received = _received(emulator, _post("Hi", "Connection: close"))

    assert _statuses(received) == [entry.get("status", 200)]
    assert received.endswith(end)


def test_a_head_without_end_is_refused(server: Emulator) -> None:
    """Headers may take 64 kB."""
    asking = [b"GET / HTTP/1.1\r\nHost: x\r\n", *[b"A: " + b"b" * 1000 + b"\r\n"] * 70]

    assert _statuses(_received(server, b"".join(asking))) == [400]


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from([b"GET ", b"POST ", b"/", b" HTTP/1.1", b"\r\n", b"Host: x"])
        | st.sampled_from([b"Content-Length: 3", b"Transfer-Encoding: chunked", b"{}"])
        | st.binary(max_size=6),
        max_size=12,
    )
)
def test_no_bytes_bring_it_down(server: Emulator, parts: list[bytes]) -> None:
    """Whatever is sent, only what can be read is answered, and the next one, too."""
    port = int(server.base_url.split(":")[2].removesuffix("/v1"))
    with socket.create_connection(("127.0.0.1", port), timeout=WIRE_TIMEOUT_S) as wire:
        wire.sendall(b"".join(parts))
        wire.shutdown(socket.SHUT_WR)
        received = b""
        while piece := wire.recv(65536):
            received += piece

    assert set(_statuses(received)) <= {200, 400, 401, 404, 405}
    assert _statuses(_received(server, LAST)) == [200]

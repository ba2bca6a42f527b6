"""Nothing a client sends brings the emulator down or draws a status of 500."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svc_notebook.emulator.emulated_service import Service, Setup
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.emulator.http_server import HttpConnection
from svc_notebook.emulator.http_values import Request

BODY: dict[str, Any] = {
    "model": "svc-v2-8b-instruct",
    "messages": [{"role": "user", "content": "Tell me about rain."}],
}
HEADERS = (
    b"Host: x\r\nAuthorization: Bearer svc-emulator\r\n"
    b"Content-Type: application/json\r\n"
)
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEADERS
WIRE_TIMEOUT_S = 60.0
# More than a socket holds for a client that does not read.
LONG = {"when": {"is_streamed": True}, "text": ["word "] * 8000, "times": None}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """No waiting and no limits."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def _wire(emulator: Emulator) -> socket.socket:
    port = int(emulator.base_url.split(":")[2].removesuffix("/v1"))
    return socket.create_connection(("127.0.0.1", port), timeout=WIRE_TIMEOUT_S)


def _status_line(emulator: Emulator, sent: bytes) -> bytes:
    """Send bytes and read the first line of the answer, empty if none comes."""
    with _wire(emulator) as wire:
        wire.sendall(sent)
        received = b""
        while b"\r\n" not in received and (piece := wire.recv(65536)):
            received += piece
    return received.split(b"\r\n")[0]


def _is_alive(emulator: Emulator) -> bool:
    """Send the least request that the document allows."""
    with httpx.Client(trust_env=False, timeout=WIRE_TIMEOUT_S) as client:
        response = client.post(
            f"{emulator.base_url}/chat/completions",
            json=BODY,
            headers={"Authorization": f"Bearer {emulator.api_key}"},
        )
    return response.status_code == 200


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"\x00\xff\x01junk\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (POST + b"Content-Length: -1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (POST + b"Transfer-Encoding: x\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
        ),
        (
            POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 100 Continue",
        ),
        (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"OPTIONS * HTTP/1.1\r\n" + HEADERS + b"\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET http://x/ HTTP/1.1\r\n" + HEADERS + b"\r\n", b"HTTP/1.1 404 Not Found"),
        (b"CONNECT x:80 HTTP/1.1\r\n" + HEADERS + b"\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /%ff%00 HTTP/1.1\r\n" + HEADERS + b"\r\n", b"HTTP/1.1 404 Not Found"),
        (
            b"BREW /v1/chat/completions HTTP/1.1\r\n" + HEADERS + b"\r\n",
            b"HTTP/1.1 405 Method Not Allowed",
        ),
        (
            b"GET /v1/chat/completions HTTP/1.1\r\n"
            + HEADERS
            + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"HTTP/1.1 405 Method Not Allowed",
        ),
        (
            POST.replace(b"svc-emulator", b"\xff\xfe") + b"Content-Length: 0\r\n\r\n",
            b"HTTP/1.1 401 Unauthorized",
        ),
    ],
)
def test_odd_bytes_are_answered_and_survived(
    emulator: Emulator, sent: bytes, line: bytes
) -> None:
    """Junk, odd methods and odd framing get a status below 500."""
    assert _status_line(emulator, sent) == line
    assert _is_alive(emulator)


@pytest.mark.slow
def test_sixty_half_requests_delay_no_other(emulator: Emulator) -> None:
    """Clients that never finish their headers or bodies cost nothing."""
    wires = [_wire(emulator) for _ in range(60)]
    for at, wire in enumerate(wires):
        wire.sendall(POST[:60] if at % 2 else POST + b"Content-Length: 99\r\n\r\n{")

    assert _is_alive(emulator)
    for wire in wires:
        wire.close()
    assert _is_alive(emulator)


@pytest.mark.slow
def test_huge_bodies_are_refused_and_survived(emulator: Emulator) -> None:
    """30 MB are read to their end and refused."""
    with httpx.Client(trust_env=False, timeout=120) as client:
        response = client.post(
            f"{emulator.base_url}/chat/completions",
            content=b"x" * 30_000_000,
            headers={
                "Authorization": "Bearer svc-emulator",
                "Content-Type": "application/json",
            },
        )

    assert response.status_code == 400
    assert response.json()["error"]["message"] == "The request body is too long."
    assert _is_alive(emulator)


def test_a_body_that_says_it_is_endless_is_refused_at_once(emulator: Emulator) -> None:
    """Nothing of it is waited for; the connection ends with the refusal."""
    asking = POST + b"Content-Length: 99999999999999999999\r\n\r\n"
    with _wire(emulator) as wire:
        wire.sendall(asking)
        received = b""
        while piece := wire.recv(65536):
            received += piece

    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"The request body is too long." in received


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        POST + b"Content-Length: 9\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
    ],
)
def test_a_connection_without_a_whole_request_ends(sent: bytes) -> None:
    """Where nothing more comes, it is closed as an idle one is."""
    with Emulator(keep_alive_s=0.5) as emulator, _wire(emulator) as wire:
        wire.sendall(sent)
        while wire.recv(65536):
            pass

        assert wire.recv(1) == b""


@pytest.mark.slow
def test_a_request_that_trickles_in_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no connection open past the time of a request."""
    monkeypatch.setattr(HttpConnection, "request_timeout_s", 0.1)
    is_open = True
    with Emulator(keep_alive_s=30) as emulator, _wire(emulator) as wire:
        wire.settimeout(0.02)
        for _ in range(500):
            try:
                wire.sendall(b"G")
                is_open = wire.recv(1) != b""
            except TimeoutError:
                continue
            except OSError:
                is_open = False
            if not is_open:
                break

    assert not is_open


@pytest.mark.slow
def test_slow_readers_delay_no_other() -> None:
    """Clients that ask for much and read nothing cost only their connection."""
    asking = json.dumps(BODY | {"stream": True, "n": 8}).encode()
    with Emulator(script=[LONG], tokens_per_s=None) as emulator:
        wires = [_wire(emulator) for _ in range(4)]
        for wire in wires:
            wire.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(asking) + asking)

        assert _is_alive(emulator)
        for wire in wires:
            wire.close()
        assert emulator.wait_idle()


@pytest.mark.slow
def test_clients_that_leave_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written for a lost connection, which would warn in the user's log."""
    content = json.dumps(BODY | {"stream": True}).encode()
    with Emulator(script=[LONG]) as emulator:
        for _ in range(5):
            wire = _wire(emulator)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            wire.recv(1024)
            wire.close()
        is_idle = emulator.wait_idle()

    assert is_idle
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.slow
def test_many_streams_at_once_are_whole(emulator: Emulator) -> None:
    """Twenty streams side by side end with [DONE], all of them."""
    ends: list[str] = []

    def read() -> None:
        with httpx.Client(trust_env=False, timeout=120) as client:
            response = client.post(
                f"{emulator.base_url}/chat/completions",
                json=BODY | {"stream": True},
                headers={"Authorization": f"Bearer {emulator.api_key}"},
            )
        ends.append(response.text[-16:])

    readers = [threading.Thread(target=read) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()

    assert ends == ["\n\ndata: [DONE]\n\n"] * 20


def test_junk_behind_a_request_waits_for_its_reply(emulator: Emulator) -> None:
    """The request is answered whole; then the junk is refused, and that is all."""
    asking = json.dumps(BODY | {"stream": True}).encode()
    sent = POST + b"Content-Length: %d\r\n\r\n" % len(asking) + asking
    with _wire(emulator) as wire:
        wire.sendall(sent + b"\x00\xff\r\n\r\n")
        received = b""
        while piece := wire.recv(65536):
            received += piece

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.count(b"data: [DONE]") == 1
    assert received.count(b"HTTP/1.1 400 Bad Request\r\n") == 1


SERVICE = Service(Setup(clock=lambda: 0.0, now=lambda: 0.0, limits={}))
_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["user", "assistant", "tool", "system", "function"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("role", "content", "tool_calls", "id", "type", "function"),
                    *("name", "arguments", "parameters", "tool_call_id", "properties"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("model", "messages", "max_tokens", "temperature", "top_p", "n"),
                *("stream", "stop", "presence_penalty", "repetition_penalty"),
                *("user", "tools"),
            ]
        ),
        _VALUE,
        max_size=3,
    )
)
def test_no_value_draws_a_500(changed: dict[str, Any]) -> None:
    """Whatever JSON stands in a request, it is answered or refused."""
    request = Request(
        method="POST",
        path="/v1/chat/completions",
        headers={
            "authorization": "Bearer svc-emulator",
            "content-type": "application/json",
        },
        body=json.dumps(BODY | changed).encode(),
    )

    assert SERVICE.reply(request).status in (200, 400, 404)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_no_bytes_draw_a_500(body: bytes) -> None:
    """Whatever bytes stand for a body, they are refused."""
    request = Request(
        method="POST",
        path="/v1/chat/completions",
        headers={
            "authorization": "Bearer svc-emulator",
            "content-type": "application/json",
        },
        body=body,
    )

    assert SERVICE.reply(request).status == 400

"""`Emulator`: ready when entered, gone when closed, quiet in between."""

import asyncio
import errno
import gc
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import SettingsError

ROOT = Path(__file__).parents[2]
BODY = {
    "model": "svc-v2-8b-instruct",
    "messages": [{"role": "user", "content": "Tell me about rain."}],
}


def _client(emulator: Emulator, key: str | None = None) -> httpx.Client:
    return httpx.Client(
        base_url=emulator.base_url,
        headers={"Authorization": f"Bearer {key or emulator.api_key}"},
        trust_env=False,
    )


def _port(emulator: Emulator) -> int:
    return int(emulator.base_url.split(":")[2].removesuffix("/v1"))


def test_is_ready_when_entered_and_gone_when_left() -> None:
    """No thread and no port is left behind."""
    threads = set(threading.enumerate())
    with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        with _client(emulator) as client:
            status = client.post("/chat/completions", json=BODY).status_code
        port = _port(emulator)

    assert status == 200
    assert set(threading.enumerate()) <= threads
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


@pytest.mark.slow
def test_needs_nothing_of_the_usual_loop() -> None:
    """It starts and closes where the usual loop has no readers, as on Windows."""
    program = """
import asyncio
from svc_notebook.emulator.emulator import Emulator

class Loop(asyncio.SelectorEventLoop):
    def remove_reader(self, fd):
        raise NotImplementedError

asyncio.new_event_loop = asyncio.runners.events.new_event_loop = Loop
with Emulator() as emulator:
    print(bool(emulator.base_url))
"""

    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_can_be_started_again_after_closing() -> None:
    """Starting twice and closing twice do no harm."""
    emulator = Emulator().start()
    url = emulator.start().base_url
    emulator.close()
    emulator.close()

    with emulator, _client(emulator) as client:
        assert client.get("/").status_code == 404
    assert url.startswith("http://127.0.0.1:")
    assert repr(emulator) == "<Emulator: not running>"


def test_the_address_of_a_stopped_emulator_is_an_error() -> None:
    """The error says to start it."""
    with pytest.raises(SettingsError, match="not running; start it"):
        _ = Emulator().base_url


def test_every_response_is_marked(emulator: Emulator) -> None:
    """Replies, faults and the page carry the header, which says what it is worth."""
    with _client(emulator) as client:
        responses = [
            client.post("/chat/completions", json=BODY),
            client.post("/chat/completions", json=BODY | {"stream": True}),
            client.post("/chat/completions", content=b"{"),
            client.get("/"),
            client.get(emulator.base_url.removesuffix("v1")),
        ]

    assert [each.status_code for each in responses] == [200, 200, 400, 404, 200]
    marks = [each.headers["x-svc-emulator"] for each in responses]
    assert marks == ["no answer", "no answer", "1", "1", "1"]


def test_listens_on_one_address_only(emulator: Emulator) -> None:
    """Not even another loopback address of this machine is served."""
    with socket.socket() as wire:
        refused = wire.connect_ex(("127.0.0.2", _port(emulator)))

    assert refused == errno.ECONNREFUSED


def test_a_taken_port_is_a_clear_error(emulator: Emulator) -> None:
    """A second emulator on the same port says so, and leaves the first alone."""
    port = _port(emulator)

    with pytest.raises(SettingsError, match=f"Port {port} on 127.0.0.1 is taken"):
        Emulator(port=port).start()
    with _client(emulator) as client:
        assert client.get("/").status_code == 404


def test_its_keys_can_be_asked_for() -> None:
    """One that is served, one revoked, one without permission."""
    emulator = Emulator(keys=["a", "b"], revoked=["c"], forbidden=[])

    assert (emulator.api_key, emulator.revoked_key, emulator.forbidden_key) == (
        "a",
        "c",
        "",
    )


@pytest.mark.slow
def test_works_inside_a_running_loop() -> None:
    """Entered with `async with` and with `with`, a running loop does not mind."""

    async def ask() -> list[int]:
        statuses = []
        async with Emulator(tokens_per_s=None, first_token_s=0) as one:
            with Emulator(tokens_per_s=None, first_token_s=0) as two:
                for emulator in (one, two):
                    async with httpx.AsyncClient(trust_env=False) as client:
                        response = await client.post(
                            f"{emulator.base_url}/chat/completions",
                            json=BODY,
                            headers={"Authorization": f"Bearer {emulator.api_key}"},
                        )
                    statuses.append(response.status_code)
        return statuses

    assert asyncio.run(ask()) == [200, 200]


def test_touches_no_signal_handlers() -> None:
    """Ctrl-C stays the program's own."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    with Emulator():
        during = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    assert during == before


@pytest.mark.slow
def test_importing_it_loads_no_server_and_no_frames() -> None:
    """httptools, httpx, numpy and pandas come later or never."""
    program = (
        "import sys, svc_notebook.emulator.emulator;"
        "print([n for n in ('httptools', 'httpx', 'numpy', 'pandas')"
        " if n in sys.modules])"
    )

    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )

    assert (ended.stdout, ended.stderr) == ("[]\n", "")


@pytest.mark.slow
def test_is_quiet_and_ends_with_the_program() -> None:
    """Served, cut and left running, it prints nothing and holds nothing up."""
    body = json.dumps(BODY | {"stream": True})
    program = f"""
import http.client, logging, socket
logging.basicConfig(level=logging.INFO)
from svc_notebook.emulator.emulator import Emulator
emulator = Emulator(script=[{{"text": "x", "end": "reset"}}]).start()
port = int(emulator.base_url.split(":")[2].removesuffix("/v1"))
socket.create_connection(("127.0.0.1", port)).sendall(b"junk\\r\\n\\r\\n")
head = {{"Authorization": "Bearer svc-emulator", "Content-Type": "application/json"}}
for _ in range(2):
    there = http.client.HTTPConnection("127.0.0.1", port)
    there.request("POST", "/v1/chat/completions", {body!r}, head)
    there.getresponse().read(1)
print("done")
"""

    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=True,
    )

    assert (ended.stdout, ended.stderr) == ("done\n", "")


@pytest.mark.slow
def test_requests_can_be_read_back_without_keys(emulator: Emulator) -> None:
    """What was asked is kept; keys are not, wherever they were sent."""
    with _client(emulator) as client:
        client.post("/chat/completions", json=BODY)
        client.post(
            f"/chat/{emulator.api_key}",
            json={"a": emulator.api_key},
            headers={"X-Key": emulator.revoked_key},
        )
        client.post("/chat/completions", content=b"{")
    with _client(emulator, "sk-mine") as client:
        client.post("/chat/completions", json=BODY | {"user": "sk-mine"})

    asked = emulator.requests

    assert [(each.method, each.path, each.status) for each in asked] == [
        ("POST", "/v1/chat/completions", 200),
        ("POST", "/v1/chat/[key]", 404),
        ("POST", "/v1/chat/completions", 400),
        ("POST", "/v1/chat/completions", 401),
    ]
    assert [each.json for each in asked] == [
        BODY,
        {"a": "[key]"},
        None,
        BODY | {"user": "[key]"},
    ]
    assert {each.ended for each in asked} == {"whole"}
    for key in (emulator.api_key, emulator.revoked_key, "sk-mine"):
        assert key not in repr(asked)


@pytest.mark.slow
def test_connections_are_counted_and_told_apart(emulator: Emulator) -> None:
    """A kept connection serves several requests; a closed one is gone."""
    for _ in range(2):
        with _client(emulator) as client:
            client.post("/chat/completions", json=BODY)
            client.post("/chat/completions", json=BODY)
            n_open = emulator.n_connections

    ports = [each.client_port for each in emulator.requests]
    assert n_open >= 1
    assert ports[0] == ports[1] != ports[2] == ports[3]


@pytest.mark.slow
def test_idle_connections_are_closed_after_a_while() -> None:
    """How long they are kept can be set; the client sees the end."""
    with (
        Emulator(keep_alive_s=0.5) as emulator,
        socket.create_connection(("127.0.0.1", _port(emulator)), timeout=60) as wire,
    ):
        wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while piece := wire.recv(65536):
            received += piece

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_leaves_is_noticed() -> None:
    """Nothing more is sent for it, and the record says so."""
    with Emulator(tokens_per_s=1, first_token_s=0) as emulator:
        with (
            _client(emulator) as client,
            client.stream(
                "POST", "/chat/completions", json=BODY | {"stream": True}
            ) as response,
        ):
            next(response.iter_lines())

        assert emulator.wait_idle()
        (asked,) = emulator.requests
        assert (asked.ended, asked.is_cut_by_client) == ("client_left", True)
        assert asked.n_pieces < 20


@pytest.mark.slow
def test_closing_cuts_streams_at_once() -> None:
    """A slow stream does not hold the close up; its client sees the cut."""
    emulator = Emulator(tokens_per_s=0.01, first_token_s=0).start()
    with (
        _client(emulator) as client,
        client.stream(
            "POST", "/chat/completions", json=BODY | {"stream": True}
        ) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        emulator.close()

        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


@pytest.mark.slow
def test_closing_ends_connections_that_are_just_accepted() -> None:
    """A server that closes while clients connect answers none and leaves none open."""
    for _ in range(10):
        clients: list[socket.socket] = []
        emulator = Emulator().start()
        connecting = threading.Thread(
            target=_connect_until_refused, args=(_port(emulator), clients)
        )
        connecting.start()
        while not clients and connecting.is_alive():
            pass
        emulator.close()
        connecting.join()

        assert {_end_of(client) for client in clients} == {b""}
        gc.collect()  # a socket that the server left open is a warning, and so an error


def _end_of(client: socket.socket) -> bytes:
    """Read what a connection ends with; a server that left it open is waited for."""
    with client, suppress(ConnectionResetError):
        client.settimeout(10)
        return client.recv(1)
    return b""


def _connect_until_refused(port: int, clients: list[socket.socket]) -> None:
    with suppress(OSError):
        while len(clients) < 200:
            clients.append(socket.create_connection(("127.0.0.1", port)))


@pytest.mark.slow
def test_scripted_ends_reach_the_socket() -> None:
    """Cut, reset, no answer, raw bytes: the client sees each as what it is."""
    script: list[dict[str, object]] = [
        {"text": "a b c", "cut_after": 2},
        {"status": None},
        {"status": None, "end": "reset"},
        {"raw": "SSH-2.0-x\r\n"},
        {"text": "fine"},
    ]
    seen = []
    with Emulator(script=script) as emulator:
        for _ in script:
            with _client(emulator) as client:
                try:
                    response = client.post(
                        "/chat/completions", json=BODY | {"stream": True}
                    )
                    seen.append(str(response.status_code))
                except httpx.TransportError as error:
                    seen.append(type(error).__name__)
        ended = [each.ended for each in emulator.requests if emulator.wait_idle()]

    assert seen == [
        "RemoteProtocolError",
        "RemoteProtocolError",
        "ReadError",
        "RemoteProtocolError",
        "200",
    ]
    assert ended == ["cut", "cut", "cut", "cut", "whole"]


@pytest.mark.parametrize(
    ("limits", "statuses"),
    [
        (True, [200] * 5 + [429]),
        (False, [200] * 6),
        ({"svc-v2-8b-instruct": (2, 9)}, [200] * 2 + [429] * 4),
    ],
)
def test_limits_are_the_documents_or_the_users_or_none(
    limits: bool | dict[str, tuple[int, int]], statuses: list[int]
) -> None:
    """True, False, or a table of one's own; the clock stands still here."""
    with (
        Emulator(
            limits=limits, tokens_per_s=None, first_token_s=0, clock=lambda: 0.0
        ) as emulator,
        _client(emulator) as client,
    ):
        got = [client.post("/chat/completions", json=BODY) for _ in range(6)]

    assert [each.status_code for each in got] == statuses

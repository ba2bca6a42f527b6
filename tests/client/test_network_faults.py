"""What a user sees when the network is wrong, and what is asked again."""

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.client.request_pipeline import print_wait
from svc_notebook.client.sync_client import Client
from svc_notebook.client.tls import tls_context
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import (
    DocumentError,
    NoConnectionError,
    RateLimitError,
    SettingsError,
    StreamBrokenError,
    TimedOutError,
)
from svc_notebook.service.catalogue import Limit
from svc_notebook.settings import Settings
from svc_notebook.timeouts import Timeouts
from tests.faults.answers import GOOD, http, reply

Serve = Callable[..., Any]
ClientOf = Callable[..., Client]
Virtual = Any  # the conftest's VirtualTime
Kept = Any  # the conftest's Kept


@pytest.mark.parametrize("steps", [[], ["reset"]])
def test_closed_without_an_answer(
    steps: list[str], serve: Serve, client_of: ClientOf
) -> None:
    """A connection that is closed with no answer is tried again."""
    server = serve(steps, [GOOD])

    completion = client_of(server.base_url).complete("Hi")

    assert (completion.text, completion.exchange.n_attempts) == ("Hello.", 2)


def test_body_shorter_than_its_length(serve: Serve, client_of: ClientOf) -> None:
    """A body shorter than its Content-Length is asked for again, then an error."""
    server = serve([GOOD[:-3]])

    with pytest.raises(StreamBrokenError) as caught:
        client_of(server.base_url).complete("Hi")

    assert caught.value.n_attempts == 3


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000]
)
def test_something_that_is_not_http(
    answer: bytes, serve: Serve, client_of: ClientOf
) -> None:
    """What is not HTTP, or has endless headers, is one error, asked once."""
    server = serve([answer])

    with pytest.raises((DocumentError, NoConnectionError)) as caught:
        client_of(server.base_url).complete("Hi")

    assert str(caught.value.__context__) == "None"


def test_idle_connection_closed_by_the_server(
    serve: Serve, client_of: ClientOf
) -> None:
    """A kept connection that the server closes meanwhile goes unnoticed."""
    server = serve([GOOD, "keep", GOOD])
    client = client_of(server.base_url)

    texts = [client.complete("Hi").text for _ in range(3)]

    assert texts == ["Hello."] * 3


def test_connection_is_used_again(serve: Serve, client_of: ClientOf) -> None:
    """Requests one after another share one connection."""
    server = serve([GOOD, "keep"])
    client = client_of(server.base_url)

    texts = [client.complete("Hi").text for _ in range(3)]

    assert (texts, server.n_connections) == (["Hello."] * 3, 1)


def test_stale_bytes_are_not_the_next_answer(serve: Serve, client_of: ClientOf) -> None:
    """Bytes that came with the end of a reply never answer the next request."""
    stale = http(reply("stale"))
    server = serve([GOOD + stale, "keep"], [http(reply("fresh")), "keep"])
    client = client_of(server.base_url)

    texts = [client.complete("Hi").text for _ in range(2)]

    assert texts == ["Hello.", "fresh"]


def test_too_many_requests_waits_as_told(
    serve: Serve, client_of: ClientOf, virtual: Virtual
) -> None:
    """A 429 is asked again, never earlier than the service said."""
    server = serve([http(b"", status=429, Retry_After="7")], [GOOD])

    completion = client_of(server.base_url).complete("Hi")

    exchange = completion.exchange
    assert (exchange.n_attempts, exchange.n_refused) == (2, 1)
    assert exchange.retry_wait_s == pytest.approx(7.5, abs=0.5)
    assert sum(virtual.slept_s) >= 7.0


class Closed:
    """A stream that cannot be written, such as `| head` leaves behind."""

    def write(self, _: str) -> None:
        """Fail as a broken pipe does."""
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Closed()])
def test_a_wait_needs_no_standard_error(
    stream: object,
    serve: Serve,
    client_of: ClientOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wait that cannot be announced is waited all the same."""
    monkeypatch.setattr(sys, "stderr", stream)
    server = serve([http(b"", status=429, Retry_After="7")], [GOOD])

    assert client_of(server.base_url).complete("Hi", watch=print_wait).text == "Hello."


def test_a_watch_that_raises_fails_no_request(
    serve: Serve, client_of: ClientOf
) -> None:
    """What `watch` raises becomes a warning, and the reply comes."""
    server = serve([http(b"", status=429, Retry_After="7")], [GOOD])

    def watch(_: Waiting) -> None:
        raise ZeroDivisionError

    with pytest.warns(RuntimeWarning, match=r"watch= raised ZeroDivisionError"):
        text = client_of(server.base_url).complete("Hi", watch=watch).text

    assert text == "Hello."


def test_long_wait_is_raised_at_once(
    serve: Serve, client_of: ClientOf, virtual: Virtual
) -> None:
    """A wait of an hour is an error at once, with the wait on it."""
    server = serve([http(b"", status=429, Retry_After="3600")])

    with pytest.raises(RateLimitError) as caught:
        client_of(server.base_url).complete("Hi")

    assert (caught.value.retry_after_s, virtual.slept_s) == (3600.0, [])


def test_refused_connection(serve: Serve, client_of: ClientOf) -> None:
    """A refused connection names host and port."""
    server = serve([])
    base_url = server.base_url
    server.close()

    with pytest.raises(NoConnectionError, match=r"127\.0\.0\.1:\d+.*refused"):
        client_of(base_url).complete("Hi")


def test_an_ipv6_address_keeps_its_brackets(client_of: ClientOf) -> None:
    """An error shows host and port so that they can be told apart."""
    with pytest.raises(NoConnectionError, match=r"to \[::1\]:1: "):
        client_of("http://[::1]:1/v1").complete("Hi")


def test_requests_that_were_never_sent_take_no_place(
    serve: Serve, client_of: ClientOf, kept: Kept
) -> None:
    """However often a connection was refused, the limit is whole when it is there."""
    server = serve([])
    base_url = server.base_url
    server.close()
    client = client_of(base_url, model="svc-v2-70b-instruct")

    for _ in range(20):  # sixty tries in half a minute
        with pytest.raises(NoConnectionError):
            client.complete("Hi")

    assert [each.n_attempts for each in kept.exchanges] == [3] * 20
    assert max(each.queue_s for each in kept.exchanges) < 0.1


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The errors with which the next look-ups of a name fail, first one first."""
    errors: list[int] = []
    real = socket.getaddrinfo

    def look_up(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - the system's own
        if errors:
            raise socket.gaierror(errors.pop(0), "made up")
        return real(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return errors


def test_a_name_that_cannot_be_looked_up_now(
    serve: Serve, client_of: ClientOf, lookups: list[int]
) -> None:
    """A moment without DNS is waited out; if it lasts, the error says what failed."""
    client = client_of(serve([GOOD]).base_url.replace("127.0.0.1", "localhost"))
    lookups += [socket.EAI_AGAIN] * 2

    text = client.complete("Hi").text
    lookups += [socket.EAI_AGAIN] * 3
    with pytest.raises(NoConnectionError, match="name cannot be looked up now"):
        client.complete("Hi")

    assert text == "Hello."


def is_silent() -> socket.socket:
    """Return a listener that takes no connection: its backlog is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(3):
        with socket.socket() as full:
            full.setblocking(False)  # noqa: FBT003 - the socket's own
            full.connect_ex(listener.getsockname())
    return listener


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_first_address_that_does_not_answer(
    is_refused: bool,
    serve: Serve,
    client_of: ClientOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host is reached at its second address if its first one refuses or is silent."""
    server, listener = serve([GOOD]), is_silent()
    good = ("127.0.0.1", int(server.base_url.split(":")[2].split("/")[0]))
    bad = ("127.0.0.1", 1) if is_refused else listener.getsockname()

    def look_up(*_: object, **__: object) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, bad), (*kind, good)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    with listener:
        assert client_of("http://localhost:1/v1").complete("Hi").text == "Hello."


def test_no_such_host(client_of: ClientOf, lookups: list[int]) -> None:
    """A host that does not exist is named, and not tried again."""
    lookups += [socket.EAI_NONAME] * 3

    with pytest.raises(NoConnectionError, match=r"nowhere\.invalid:443.*no such host"):
        client_of("https://nowhere.invalid/v1").complete("Hi")

    assert len(lookups) == 2


def test_tls_to_a_plain_port(emulator: Emulator, client_of: ClientOf) -> None:
    """TLS to a port that does not speak it says so."""
    base_url = emulator.base_url.replace("http:", "https:")

    with pytest.raises(NoConnectionError, match="TLS"):
        client_of(base_url).complete("Hi")


@pytest.mark.slow
def test_dead_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that does not answer is named."""
    server = serve([])
    port = server.base_url.split(":")[2].split("/")[0]
    server.close()
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:pa55@127.0.0.1:{port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    with (
        Client(base_url="https://svc.invalid/v1", api_key="k") as client,
        pytest.raises(NoConnectionError, match=f"proxy http://127.0.0.1:{port}") as got,
    ):
        client.complete("Hi")

    assert "pa55" not in str(got.value)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """An untrusted certificate is named, with SSL_CERT_FILE as the way on."""
    command = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -batch"
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    subprocess.run(  # noqa: S603 - a tool of the system
        [str(shutil.which("openssl")), *command.split(), *files],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def accept() -> None:
        with (
            suppress(OSError),
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True) as secure,
        ):
            secure.recv(1)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()

    with (
        listener,
        Client(base_url=f"https://localhost:{port}/v1", api_key="k") as client,
        pytest.raises(NoConnectionError, match=r"not trusted.*SSL_CERT_FILE") as caught,
    ):
        client.complete("Hi")

    thread.join(60)
    assert "verify=False" not in str(caught.value)
    assert caught.value.n_attempts == 1


def test_certificates_that_cannot_be_read(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong SSL_CERT_FILE is named."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    tls_context.cache_clear()

    with pytest.raises(SettingsError, match="SSL_CERT_FILE"):
        client_of("https://127.0.0.1:1/v1").complete("Hi")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the socket there")
def test_half_open_connections_are_asked_whether_they_live(
    serve: Serve, client_of: ClientOf
) -> None:
    """Every connection is made with TCP keep-alive: lost after less than a minute."""
    server = serve([GOOD, "keep"])
    address = ("127.0.0.1", int(server.base_url.split(":")[2].split("/")[0]))
    tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    kind = (socket.AF_INET, socket.SOCK_STREAM)
    asked = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
    asked += [(socket.IPPROTO_TCP, name) for name in tcp]

    client_of(server.base_url).complete("Hi")

    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.fromfd(int(each.name), *kind) as opened:
            if opened.getpeername() == address:
                found.append([opened.getsockopt(*option) for option in asked])
    assert found == [[1, 20, 10, 3]]


def test_every_deadline_has_an_end_of_its_own() -> None:
    """Left alone, no part of an exchange waits longer than a quarter of an hour."""
    assert Timeouts() == Timeouts(
        connect_s=10,
        first_byte_s=60,
        idle_s=60,
        whole_s=60,
        whole_token_s=0.1,
        total_s=900,
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", ["https://127.0.0.1:{}/v1", "https://svc.example/v1"])
def test_a_handshake_that_never_ends(
    place: str, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS or a proxy that stays silent is given up, and its connection closed."""
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        client = client_of(place.format(port), connect_s=0.3)

        with pytest.raises(TimedOutError, match=str(port)):
            client.complete("Hi")

        with listener.accept()[0] as connection:
            connection.settimeout(60)
            while connection.recv(9999):  # ends when the client has left
                pass


def test_a_proxy_that_wants_a_login(
    serve: Serve, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's 407 is named, with where its name and password belong."""
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = serve([http(b"", status=407)])
    monkeypatch.setenv("https_proxy", server.base_url.removesuffix("/v1"))

    with pytest.raises(NoConnectionError, match="USER:PASSWORD@") as caught:
        client_of("https://svc.example/v1").complete("Hi")

    assert caught.value.n_attempts == 1


TOO_MANY = http(b"", status=429)


def test_refusals_are_waited_out_within_the_total(
    serve: Serve,
    client_of: ClientOf,
    virtual: Virtual,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two 429s in a row take seconds, not a minute, and a long wait is said."""
    server = serve([TOO_MANY], [TOO_MANY], [GOOD])

    completion = client_of(server.base_url, total_s=7.0).complete("Hi")

    assert (completion.text, completion.exchange.n_attempts) == ("Hello.", 3)
    assert 3 <= sum(virtual.slept_s) <= 7
    assert "waiting 2 s: trying again after a 429" in capsys.readouterr().err


def test_a_wait_for_a_minute_is_not_begun_if_it_is_too_long(
    serve: Serve, client_of: ClientOf, virtual: Virtual
) -> None:
    """Where a documented limit is full, the refusal is raised, not waited out."""
    server = serve([TOO_MANY])
    client = client_of(server.base_url, model="svc-v2-8b-instruct", total_s=7.0)

    with pytest.raises(RateLimitError):
        client.complete("Hi")

    assert len(server.requests) == 2
    assert sum(virtual.slept_s) <= 7


def test_the_total_bounds_the_wait_for_our_own_limit(
    serve: Serve, virtual: Virtual
) -> None:
    """A request that would wait longer is not sent, and the error says why."""
    server = serve([GOOD, "keep"])
    once = RateLimits(
        clock=virtual.clock, limit_of=lambda _: Limit(per_second=None, per_minute=1)
    )
    settings = Settings(
        base_url=server.base_url, model="m", timeouts=Timeouts(total_s=7.0)
    )
    with Client(
        settings, api_key="k", sinks=[], limits=once, runtime=virtual.runtime
    ) as client:
        client.complete("Hi")
        with pytest.raises(TimedOutError, match="would wait 60 s") as caught:
            client.complete("Hi")

    assert (caught.value.deadline, caught.value.n_attempts) == ("total", 0)
    assert (len(server.requests), virtual.slept_s) == (1, [])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts sockets there")
def test_cancelled_while_connecting() -> None:
    """Requests that are cancelled at any moment of connecting leave no socket open."""

    def n_sockets() -> int:
        return sum(
            path.readlink().name.startswith("socket:")
            for path in Path("/proc/self/fd").iterdir()
            if path.is_symlink()
        )

    async def scene(base_url: str) -> list[int]:
        settings = Settings(base_url=base_url, model="svc-instruct")
        async with AsyncClient(settings, api_key="k") as client:
            n_before = n_sockets()
            for n_steps in [*range(40)] * 5:
                task = asyncio.create_task(client.complete("Hi"))
                for _ in range(n_steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            return [n_before, n_sockets()]

    gc.disable()  # it would close what was left open
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=500) as listener:
            port = listener.getsockname()[1]
            n_before, n_after = asyncio.run(scene(f"http://localhost:{port}/v1"))
    finally:
        gc.enable()

    assert n_after == n_before

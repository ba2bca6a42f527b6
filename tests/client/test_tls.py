"""TLS, proxies, and both: what a request looks like at the other end."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.tls import tls_context
from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import NoConnectionError, SettingsError
from svc_notebook.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate"),
]
TEXT = "x" * 6_000_000  # more than the buffers on the way hold
BODY = json.dumps(
    {"choices": [{"index": 0, "message": {"content": TEXT}, "finish_reason": "stop"}]}
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate of localhost; its key is in the same file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -batch "
        f"-addext subjectAltName=DNS:localhost -keyout {path} -out {path}.crt"
    )
    subprocess.run(  # noqa: S603 - a tool of the system
        [str(shutil.which("openssl")), *command.split()],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


class Place:
    """A service and a proxy that keep the heads of the requests they get."""

    def __init__(self, certificate: Path) -> None:
        self.heads: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(certificate)

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer as the service, or join a client and the host that it names."""
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if head.startswith(b"CONNECT"):
                    await self._join(head.split()[1], reader, writer)
                    return
                length = head.lower().split(b"content-length:")[1].split()[0]
                await reader.readexactly(int(length))
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def _join(
        self, host: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        there = await asyncio.open_connection(*host.decode().split(":"))
        self.writers.append(there[1])

        async def copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
            while data := await one.read(2**16):
                other.write(data)
                await other.drain()
            other.transport.abort()

        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    @asynccontextmanager
    async def served(self, scheme: str) -> AsyncIterator[str]:
        """Listen, and give the address."""
        context = self.context if scheme == "https" else None
        server = await asyncio.start_server(
            self.answer, "127.0.0.1", 0, ssl=context, limit=2**20
        )
        async with server:
            yield f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
            for writer in self.writers:  # newer Pythons wait for them
                writer.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture
def place(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Trust the certificate, and let this machine be reached through a proxy."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("svc_notebook.client.connections.is_loopback", lambda _: False)
    tls_context.cache_clear()
    return Place(certificate)


async def ask_twice(base_url: str, **given: str) -> None:
    """Send two requests, one after the other, to an endpoint with these settings."""
    endpoint = Endpoint(name="lab", base_url=base_url, **given)  # type: ignore[arg-type]  # texts only
    settings = Settings(base_url=base_url, allow_http=True, endpoint=endpoint)
    async with AsyncClient(settings, api_key="k" * 20, sinks=()) as client:
        for _ in range(2):
            assert (await client.complete("Hi")).text == TEXT


def test_tls(place: Place) -> None:
    """Requests inside of TLS share a connection; a large reply is whole."""

    async def scene() -> None:
        async with place.served("https") as address:
            await ask_twice(address)

    asyncio.run(scene())

    assert len(place.heads) == 2
    assert b"Authorization: Bearer kkkk" in place.heads[1]


def test_a_private_certificate(
    place: Place, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trusted by the endpoint's `ca_file`; without, the error names that."""
    monkeypatch.delenv("SSL_CERT_FILE")
    tls_context.cache_clear()

    async def scene() -> None:
        async with place.served("https") as address:
            with pytest.raises(NoConnectionError, match=r"not trusted(.|\n)*ca_file"):
                await ask_twice(address)
            with pytest.raises(SettingsError, match=r"'/none.pem'(.|\n)*PEM format"):
                await ask_twice(address, ca_file="/none.pem")
            await ask_twice(address, ca_file=str(certificate))

    asyncio.run(scene())

    assert len(place.heads) == 2


def test_the_endpoints_own_proxy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used in place of the environment's, whatever NO_PROXY says."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")

    async def scene() -> None:
        async with place.served("http") as proxy:
            named = proxy.replace("://", "://user:pa55@")
            await ask_twice("http://svc.example", proxy=named)

    asyncio.run(scene())

    assert place.heads[0].startswith(b"POST http://svc.example/v1/chat")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_tunnel(scheme: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy sees a host, its own login and nothing else; it may use TLS, too."""

    async def scene() -> str:
        async with place.served(scheme) as proxy, place.served("https") as address:
            named = proxy.replace("://", "://user:pa%2055@")
            monkeypatch.setenv("https_proxy", named)
            await ask_twice(address)
            return address.removeprefix("https://")

    host = asyncio.run(scene()).encode()

    connect, *others = place.heads
    assert connect == (
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nAccept: */*\r\n"
        b"Proxy-Authorization: Basic dXNlcjpwYSA1NQ==\r\n\r\n" % (host, host)
    )
    assert len(others) == 2
    assert not any(b"Proxy-" in head for head in others)


def test_a_proxy_that_forwards(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS, a proxy gets the request with the whole address."""

    async def scene() -> None:
        async with place.served("http") as proxy:
            monkeypatch.setenv("http_proxy", proxy.replace("://", "://user:pa55@"))
            await ask_twice("http://svc.example")

    asyncio.run(scene())

    assert len(place.heads) == 2
    assert sorted(place.heads[1].splitlines()[:3]) == [
        b"Host: svc.example",
        b"POST http://svc.example/v1/chat/completions HTTP/1.1",
        b"Proxy-Authorization: Basic dXNlcjpwYTU1",
    ]

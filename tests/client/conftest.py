"""A server of raw bytes, virtual time, and a sink that keeps exchanges."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

import httpx
import pytest

from svc_notebook.client.exchange_record import Runtime
from svc_notebook.client.http import tls_context
from svc_notebook.client.portal import portal
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.sync import Client
from svc_notebook.exchange import Exchange
from svc_notebook.settings import Settings, Timeouts

Step = bytes | float | str | Callable[[], object]
KEY = "sk-secret-of-the-test"
WAIT_S = 60.0


class RawServer:
    """Answers each request on a connection with steps.

    A step is bytes to send, seconds to wait, a function to call, "keep" to wait for
    the next request on the connection, "reset" to reset it, or "silence" to send
    nothing more until the other side closes. After the last step it is closed. The
    last answer is given again and again.
    """

    def __init__(self, answers: Sequence[Sequence[Step]]) -> None:
        self.requests: list[bytes] = []
        self.n_connections = 0
        self.is_left = threading.Event()
        self._answers = list(answers)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def close(self) -> None:
        """Close everything and wait for the threads."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.n_connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=[connection])
            thread.daemon = True
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            while self._answer(connection):
                pass

    def _answer(self, connection: socket.socket) -> bool:
        request = _read_request(connection)
        if not request:
            return False
        with self._lock:
            self.requests.append(request)
            at = min(len(self.requests), len(self._answers)) - 1
            steps = self._answers[at]
        return any([self._do(connection, step) for step in steps])  # noqa: C419 - all

    def _do(self, connection: socket.socket, step: Step) -> bool:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif callable(step):
            step()
        elif step == "reset":
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
        elif step == "silence":
            connection.settimeout(WAIT_S)
            while connection.recv(1000):
                pass
            self.is_left.set()
        elif isinstance(step, float):
            threading.Event().wait(step)
        return step == "keep"


def _read_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        piece = connection.recv(65536)
        if not piece:
            return b""
        request += piece
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    ]
    while len(body) < sum(lengths):
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    """Start servers of raw bytes: `serve([steps of the first answer], ...)`."""
    servers: list[RawServer] = []

    def start(*answers: Sequence[Step]) -> RawServer:
        servers.append(RawServer(answers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class VirtualTime:
    """Time as it is, but sleeping skips it."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def clock(self) -> float:
        """Return the present."""
        return time.monotonic() + sum(self.slept_s)

    async def sleep(self, wait_s: float) -> None:
        """Let time pass."""
        self.slept_s.append(wait_s)

    @property
    def runtime(self) -> Runtime:
        """A runtime with this time, in which chance is always a half."""
        return Runtime(clock=self.clock, sleep=self.sleep, jitter=lambda: 0.5)


@pytest.fixture
def virtual() -> VirtualTime:
    """Time that passes at once."""
    return VirtualTime()


class Kept:
    """A sink that keeps exchanges."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange."""
        self.exchanges.append(exchange)


@pytest.fixture
def kept() -> Kept:
    """A sink that keeps exchanges."""
    return Kept()


OURS = (  # proxies, certificates and the connections kept are a transport's own
    "proxy",
    "certificate",
    "handshake",
    "half_open",
    "used_again",
    "idle_connection",
    "not_http",
    "looked_up",  # httpx does not say that a name may be found later
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Play the faults through httpx's own transport as well."""
    name, is_fault = metafunc.function.__name__, "_faults" in metafunc.module.__name__
    if is_fault and "client_of" in metafunc.fixturenames:
        through = [] if any(each in name for each in OURS) else [True]
        kinds = [False, *(pytest.param(x, marks=pytest.mark.slow) for x in through)]
        ids = ["ours", "through httpx"][: len(kinds)]
        metafunc.parametrize("client_of", kinds, ids=ids, indirect=True)


@pytest.fixture
def client_of(
    virtual: VirtualTime, kept: Kept, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Client]]:
    """Make clients of an address, with short deadlines and virtual waits."""
    clients: list[Client] = []
    transport = None
    if getattr(request, "param", False):
        limits = httpx.Limits(max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(tls_context(), limits=limits)

    def make(
        base_url: str, *, model: str = "svc-instruct", **timeouts: float
    ) -> Client:
        within = {"connect_s": 30.0, "first_byte_s": 30.0, "idle_s": 30.0, **timeouts}
        settings = Settings(base_url=base_url, model=model, timeouts=Timeouts(**within))
        client = Client(
            settings,
            api_key=KEY,
            sinks=[kept],
            limits=RateLimits(clock=virtual.clock),
            runtime=virtual.runtime,
            transport=transport,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
    if transport:
        portal().run(transport.aclose())

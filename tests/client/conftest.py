"""A server of raw bytes, virtual time, and a sink that keeps exchanges."""

import time
from collections.abc import Callable, Iterator, Sequence

import httpx
import pytest

from svc_notebook.client.clock import Runtime
from svc_notebook.client.event_loop import portal
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.sync_client import Client
from svc_notebook.client.tls import tls_context
from svc_notebook.exchange import Exchange
from svc_notebook.settings import Settings
from svc_notebook.timeouts import Timeouts
from tests.faults.case import Step
from tests.faults.server import RawServer

KEY = "sk-secret-of-the-test"


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
    "first_address",  # httpx looks names up in its own way
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

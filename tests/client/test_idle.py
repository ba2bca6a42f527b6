"""Idle connections: how many are kept, and which is taken."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.service.catalogue import Limit
from tests.faults.server import WAIT_S

REPLY = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}]}'
)


@pytest.mark.slow
def test_a_hundred_at_once_use_their_connections_again(
    serve: Callable[..., Any],
) -> None:
    """Requests that end together, as those of one ledger commit do, keep them all."""
    n_at_once = 100
    together = threading.Barrier(n_at_once)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(REPLY)
    server = serve([lambda: together.wait(WAIT_S), head + REPLY, "keep"])

    async def ask_all() -> None:
        known = Limit(per_second=1000, per_minute=10_000)
        limits = RateLimits(clock=time.monotonic, limit_of=lambda _: known)
        async with AsyncClient(
            base_url=server.base_url, api_key="k", sinks=(), limits=limits
        ) as client:
            for _ in range(2):
                asked = [client.complete("Hi", model="stub") for _ in range(n_at_once)]
                await asyncio.gather(*asked)

    asyncio.run(ask_all())

    assert server.n_connections == n_at_once

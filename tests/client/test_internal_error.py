"""A mistake of the package itself ends as an error of ours, and is recorded."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.clock import Runtime
from svc_notebook.errors import SvcError

Serve = Callable[..., Any]
GONE = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"


def test_an_internal_error_is_recorded(serve: Serve, kept: Any) -> None:  # noqa: ANN401 - a sink
    """A mistake of ours ends the exchange as our error: the place, not the words."""
    server = serve([GONE])

    async def sleep(_: float) -> None:
        raise ZeroDivisionError("secret words")

    async def ask() -> None:
        async with AsyncClient(
            base_url=server.base_url,
            api_key="k",
            sinks=[kept],
            runtime=Runtime(sleep=sleep),
        ) as client:
            await client.complete("Hi", model="svc-instruct")

    place = r"ZeroDivisionError, test_internal_error.py:\d+\)"
    with pytest.raises(SvcError, match=place) as caught:
        asyncio.run(ask())

    (exchange,) = kept.exchanges
    assert (exchange.status, exchange.n_attempts) == ("error", 1)
    assert caught.value.exchange_id == exchange.exchange_id
    assert caught.value.__context__ is None
    assert "secret" not in str(caught.value)

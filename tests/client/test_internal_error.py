"""A mistake of the package itself ends as an error of ours, and is recorded."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.attempts import Waiting
from svc_notebook.client.exchange_record import internal_error
from svc_notebook.errors import SvcError

Serve = Callable[..., Any]
GONE = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"


def test_an_internal_error_says_where_and_not_what() -> None:
    """The error names the kind and the place, and none of the foreign words."""
    try:
        int("secret words")
    except ValueError as problem:
        error = internal_error(problem)

    assert "ValueError, test_internal_error.py:" in str(error)
    assert "secret" not in str(error)


def test_an_internal_error_is_recorded(serve: Serve, kept: Any) -> None:  # noqa: ANN401 - a sink
    """A watcher that fails ends the exchange as an error of ours, told once."""
    server = serve([GONE])

    def watch(_: Waiting) -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        async with AsyncClient(
            base_url=server.base_url, api_key="k", sinks=[kept]
        ) as client:
            await client.complete("Hi", model="svc-instruct", watch=watch)

    with pytest.raises(SvcError, match="ZeroDivisionError") as caught:
        asyncio.run(ask())

    (exchange,) = kept.exchanges
    assert (exchange.status, exchange.n_attempts) == ("error", 1)
    assert caught.value.exchange_id == exchange.exchange_id
    assert caught.value.__context__ is None

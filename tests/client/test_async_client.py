"""The client for code that can await, on loops that come and go."""

import asyncio
import gc
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.clock import REAL
from svc_notebook.client.connections import HttpTransport
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Room
from svc_notebook.client.response import HttpAnswer
from svc_notebook.credentials import Key
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import SvcError
from svc_notebook.service.chunk import Delta
from svc_notebook.settings import Settings
from svc_notebook.timeouts import Timeouts

MODEL = "svc-instruct"
Serve = Callable[..., Any]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
SOME = b'data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n'


def client_of(emulator: Emulator) -> AsyncClient:
    """Return a client of the emulator."""
    settings = Settings(base_url=emulator.base_url, model=MODEL)
    return AsyncClient(settings, api_key=emulator.api_key)


def test_complete_and_stream(emulator: Emulator) -> None:
    """Both verbs can be awaited, and agree."""

    async def ask() -> tuple[str, str]:
        async with client_of(emulator) as client:
            completion = await client.complete("Hello", temperature=0)
            async with client.stream("Hello", temperature=0) as stream:
                text = "".join([piece async for piece in stream])
            return completion.text, text

    whole, streamed = asyncio.run(ask())

    assert whole == streamed != ""


def test_deltas_of_several_choices(emulator: Emulator) -> None:
    """`deltas` tells the choices apart by index."""

    async def ask() -> tuple[list[Delta], tuple[str, ...]]:
        async with client_of(emulator) as client:
            stream = client.stream("Hello", n=2, max_tokens=9)
            return [delta async for delta in stream.deltas()], stream.completion.texts

    deltas, texts = asyncio.run(ask())

    joined = ["".join(d.text or "" for d in deltas if d.index == at) for at in (0, 1)]
    assert tuple(joined) == texts


def test_one_client_on_several_loops(emulator: Emulator) -> None:
    """A client outlives the loop it was used on, and leaves nothing open there."""
    client = client_of(emulator)

    texts = [asyncio.run(client.complete(f"Hello {at}")).text for at in range(3)]
    gc.collect()  # an unclosed connection would warn here, and warnings are errors

    assert all(texts)


def test_dropped_stream_is_closed(serve: Serve) -> None:
    """A stream that is left in the middle closes its connection."""
    server = serve([HEAD, SOME, "silence"])

    async def ask() -> str:
        client = AsyncClient(base_url=server.base_url, api_key="k")
        async for text in client.stream("Hi", model=MODEL):
            return text
        return ""

    text = asyncio.run(ask())

    assert text == "some"
    assert server.wait_until_left() == []


@pytest.mark.slow
def test_a_request_cancelled_while_it_connects_takes_no_place(serve: Serve) -> None:
    """A request that was stopped before it was sent does not count for the limit."""
    server = serve(["silence"])  # never ends the TLS handshake

    async def ask() -> object:
        base_url = server.base_url.replace("http:", "https:")
        async with AsyncClient(Settings(base_url=base_url), api_key="k") as client:
            asked = client.complete("Hi", model="svc-v2-8b-instruct")
            task = asyncio.create_task(asked)
            while not server.n_connections:  # noqa: ASYNC110 - its thread counts
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return client.room("svc-v2-8b-instruct")

    assert asyncio.run(ask()) == Room(5, 50)


def test_cancelled_task_is_recorded(serve: Serve, kept: Any) -> None:  # noqa: ANN401 - a sink
    """Cancelling the task that waits closes the connection and records what came."""
    server = serve([HEAD, SOME, "silence"])

    async def ask() -> None:
        client = AsyncClient(base_url=server.base_url, api_key="k", sinks=[kept])
        started = asyncio.Event()

        async def read() -> None:
            async for _ in client.stream("Hi", model=MODEL):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())

    (exchange,) = kept.exchanges
    assert (exchange.status, exchange.choices[0].text) == ("cancelled", "some")
    assert server.wait_until_left() == []


def test_completion_before_the_end(emulator: Emulator) -> None:
    """A stream that has not ended has no completion."""
    stream = client_of(emulator).stream("Hello")

    with pytest.raises(SvcError, match="not ended"):
        _ = stream.completion


def test_a_stream_shows_how_far_it_is() -> None:
    """Before, during and after, a stream's repr is its state and a count."""
    script: list[dict[str, Any]] = [
        {"when": {"contains": "slowly"}, "text": ["Well, ", "yes."], "gap_s": 60},
        {"text": "Hello.", "times": None},
    ]

    async def ask() -> list[str]:
        with Emulator(script=script) as emulator:
            return await ask_of(emulator)

    async def ask_of(emulator: Emulator) -> list[str]:
        async with client_of(emulator) as client:
            ended, stopped = client.stream("Hello"), client.stream("Hello")
            shown = [repr(ended)]
            text = "".join([piece async for piece in ended])
            await stopped.aclose()
            shown += [repr(ended).replace(str(len(text)), "all"), repr(stopped)]
            stream = client.stream("Count slowly")
            await anext(stream)
            shown.append(repr(stream).partition(",")[0])
            await stream.aclose()
            return [*shown, repr(stream).partition(",")[0]]

    shown = [
        each.removeprefix("<AsyncCompletionStream: ") for each in asyncio.run(ask())
    ]

    assert shown == [
        "not started>",
        "ended, all characters so far>",
        "stopped, 0 characters so far>",
        "running",
        "stopped",
    ]


def test_a_stream_stays_on_its_loop(serve: Serve) -> None:
    """On another loop a stream is refused by name, and can be closed."""
    client = AsyncClient(base_url=serve([HEAD, SOME, "silence"]).base_url, api_key="k")
    stream = client.stream("Hello", model=MODEL)

    async def read() -> str:
        return await anext(stream)

    asyncio.run(read())
    with pytest.raises(SvcError, match="another event loop"):
        asyncio.run(read())
    asyncio.run(stream.aclose())

    assert "stopped" in repr(stream)


def test_an_answer_stopped_while_it_is_let_go(serve: Serve) -> None:
    """Cancelled at any step of letting go of an answer, its connection is closed."""
    body = b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = serve([head + body, "keep"])
    key = Key("k", source="the test")

    async def ask(n_steps: int) -> None:
        transport = HttpTransport(server.base_url, now=REAL.now)
        answer = await transport.send(
            b"{}",
            key=key,
            is_streamed=False,
            connect_s=60,
            within_s=60,
            on_sent=lambda: None,
        )
        assert isinstance(answer, HttpAnswer)
        while await answer.read(within_s=60):
            pass
        closing = asyncio.create_task(answer.close())
        for _ in range(n_steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await transport.aclose()

    async def ask_all() -> None:
        for n_steps in range(1, 9):
            await ask(n_steps)

    asyncio.run(ask_all())
    gc.collect()  # an open connection would be warned of here

    assert server.n_connections == 8


WHOLE = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},'
    b'"finish_reason":"stop"}]}'
)


class Counter:
    """A server of one process that answers 503 above some requests at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.n_here = self.most_here = self.n_refused = 0
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection."""
        self.tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, OSError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(await self._answer())
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _answer(self) -> bytes:
        status, body = b"200 OK", WHOLE
        self.n_here += 1
        self.most_here = max(self.most_here, self.n_here)
        if self.n_here > self._most:
            self.n_refused += 1
            status, body = b"503 Service Unavailable", b"{}"
        else:
            await asyncio.sleep(0.02)  # the time that a reply takes
        self.n_here -= 1
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d"
        return head % (status, len(body)) + b"\r\n\r\n" + body


def ask_all(server: Counter, n_requests: int, *, n_stopped: int = 0) -> RateLimits:
    """Ask a server at once with many requests, the first of which are stopped."""
    limits = RateLimits(clock=time.monotonic)

    async def ask() -> None:
        serving = await asyncio.start_server(server, "127.0.0.1", 0)
        port = serving.sockets[0].getsockname()[1]
        settings = Settings(base_url=f"http://127.0.0.1:{port}", model=MODEL)
        async with serving, AsyncClient(settings, api_key="k", limits=limits) as client:
            asks = (client.complete("Hi", max_tokens=None) for _ in range(n_requests))
            tasks = [asyncio.create_task(each) for each in asks]
            await asyncio.sleep(0)
            for task in tasks[:n_stopped]:
                task.cancel()
            await asyncio.gather(*tasks[n_stopped:])
        await asyncio.gather(*filter(None, server.tasks))

    asyncio.run(ask())
    return limits


@pytest.mark.slow
def test_requests_that_are_stopped_while_they_wait_hold_nobody_up() -> None:
    """Those behind them are answered, and their places are free again."""
    server = Counter(most=1000)

    limiter = ask_all(server, 60, n_stopped=30).of(MODEL)

    slots = [limiter.reserve() for _ in range(limiter.in_flight or 0)]
    assert [limiter.try_pass(slot).wait_s for slot in slots] == [0.0] * len(slots)


def test_the_deadline_of_a_stream_begins_when_it_is_read(
    emulator: Emulator,
    virtual: Any,  # noqa: ANN401 - the conftest's
    kept: Any,  # noqa: ANN401 - the conftest's
) -> None:
    """A stream that is made early and read late has all its time."""

    async def ask() -> str:
        settings = Settings(
            base_url=emulator.base_url, model=MODEL, timeouts=Timeouts(total_s=60)
        )
        async with AsyncClient(
            settings, api_key=emulator.api_key, sinks=[kept], runtime=virtual.runtime
        ) as client:
            stream = client.stream("Hi")
            virtual.slept_s.append(100.0)
            return "".join([text async for text in stream])

    assert asyncio.run(ask()) == kept.exchanges[0].choices[0].text

"""The client for code that can await, on loops that come and go."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.body import HttpAnswer
from svc_notebook.client.clock import utc_now
from svc_notebook.client.http import HttpTransport
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Room
from svc_notebook.credentials import Key
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import RateLimitError, ServerFaultError, SvcError
from svc_notebook.service.chunk import Delta
from svc_notebook.settings import Settings

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


def test_many_at_once(emulator: Emulator) -> None:
    """Sixty requests at once are answered, each with its own reply."""

    async def ask() -> list[str]:
        async with client_of(emulator) as client:
            completions = await asyncio.gather(
                *(client.complete(f"Say {at}.", user=str(at)) for at in range(60))
            )
            return [each.request.params["user"] for each in completions if each.text]

    assert asyncio.run(ask()) == [str(at) for at in range(60)]


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
    assert server.is_left.wait(5)


def test_a_request_cancelled_while_it_connects_takes_no_place(serve: Serve) -> None:
    """A request that was stopped before it was sent does not count for the limit."""
    server = serve(["silence"])  # never ends the TLS handshake

    async def ask() -> object:
        base_url = server.base_url.replace("http:", "https:")
        async with AsyncClient(base_url=base_url, api_key="k") as client:
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
    assert server.is_left.wait(5)


def test_completion_before_the_end(emulator: Emulator) -> None:
    """A stream that has not ended has no completion."""
    stream = client_of(emulator).stream("Hello")

    with pytest.raises(SvcError, match="not ended"):
        _ = stream.completion


def test_a_refused_model_stays_closed(serve: Serve, virtual: Any) -> None:  # noqa: ANN401 - a fixture
    """After the last try other requests still wait as long as the service asked."""
    server = serve([b"HTTP/1.1 429 X\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"])
    client = AsyncClient(
        base_url=server.base_url,
        api_key="k",
        limits=RateLimits(clock=virtual.clock),
        runtime=virtual.runtime,
    )

    with pytest.raises(RateLimitError) as caught:
        asyncio.run(client.complete("Hi", model=MODEL))

    assert caught.value.n_attempts == 3
    assert client.due(MODEL).wait_s == pytest.approx(9.0, abs=0.5)


def test_failing_calls_are_bounded(serve: Serve, virtual: Any) -> None:  # noqa: ANN401
    """Thirty failing calls make at most ninety requests."""
    server = serve([b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "keep"])

    async def ask() -> int:
        client = AsyncClient(
            base_url=server.base_url,
            api_key="k",
            limits=RateLimits(clock=virtual.clock),
            runtime=virtual.runtime,
        )
        calls = [client.complete("Hi", model=MODEL) for _ in range(30)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        return sum(isinstance(each, ServerFaultError) for each in failed)

    assert asyncio.run(ask()) == 30
    assert len(server.requests) == 90


def test_a_stream_shows_how_far_it_is(emulator: Emulator) -> None:
    """Before, during and after, a stream's repr is its state and a count."""

    async def ask() -> list[str]:
        async with client_of(emulator) as client:
            ended, stopped = client.stream("Hello"), client.stream("Hello")
            shown = [repr(ended)]
            text = "".join([piece async for piece in ended])
            await stopped.aclose()
            shown += [repr(ended).replace(str(len(text)), "all"), repr(stopped)]
            stream = client.stream("Hello")
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


def test_two_tasks_read_one_stream(emulator: Emulator) -> None:
    """Tasks that share a stream share its text, and both come to its end."""

    async def ask() -> tuple[int, int]:
        async with client_of(emulator) as client, client.stream("Hello") as stream:

            async def read() -> int:
                return sum([len(piece) async for piece in stream])

            async with asyncio.timeout(10):
                shown = await asyncio.gather(read(), read())
            return sum(shown), len(stream.completion.text)

    n_shown, n_chars = asyncio.run(ask())

    assert n_shown == n_chars > 0


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
        transport = HttpTransport(server.base_url, now=utc_now)
        answer = await transport.send(
            b"{}",
            key=key,
            is_streamed=False,
            connect_s=9,
            within_s=9,
            on_sent=lambda: None,
        )
        assert isinstance(answer, HttpAnswer)
        while await answer.read(within_s=9):
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

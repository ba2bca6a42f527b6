"""What the client costs in CPU, over real sockets.

`python tests/benchmarks/client_bench.py` prints microseconds of CPU a chunk, a
streamed event read, and a request at several concurrencies, beside raw asyncio
streams doing the same exchange. The server runs in a process of its own, so that
only the client is measured. It is no test: nothing fails.
"""

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.response import ReplyReader, ResponseHead
from svc_notebook.service.catalogue import Limit

N_CHUNKS = 20_000
N_REQUESTS = 500
MODEL = "svc-instruct"  # no limit is shown for it
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
END = CHUNK.replace(b"null", b'"stop"') + b"data: [DONE]\n\n"
WHOLE = (
    b'{"id":"c","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'
)

FAR_AWAY = Limit(per_second=10**6, per_minute=10**8)  # what is not known is found


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")


def answer(body: bytes, kind: str) -> bytes:
    """Return an answer that keeps the connection."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


STREAM = answer(CHUNK * N_CHUNKS + END, "text/event-stream")
REPLY = answer(WHOLE, "application/json")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        writer.write(STREAM if b'"stream":true' in body else REPLY)
        await writer.drain()


async def _serve_for_ever(pipe: Connection) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1000)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(pipe: Connection) -> None:
    asyncio.run(_serve_for_ever(pipe))


async def _raw(port: int, n_at_once: int) -> None:
    """Do the same exchange with nothing but asyncio's streams."""
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def work(n_requests: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(n_requests):
            writer.write(request)
            await reader.readexactly(len(REPLY))
        writer.close()

    share = N_REQUESTS // n_at_once
    await asyncio.gather(*(work(share) for _ in range(n_at_once)))


async def _ours(client: AsyncClient, n_at_once: int) -> None:
    async def work(n_requests: int) -> None:
        for _ in range(n_requests):
            await client.complete("Hi", model=MODEL)

    share = N_REQUESTS // n_at_once
    await asyncio.gather(*(work(share) for _ in range(n_at_once)))


async def _measure(port: int) -> None:
    client = AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        api_key="k",
        limits=RateLimits(clock=time.monotonic, limit_of=lambda _: FAR_AWAY),
        sinks=(),  # the user's ledger is left alone
    )
    async with client:
        await client.complete("Hi", model=MODEL)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        n_texts = 0
        async for _ in client.stream("Hi", model=MODEL):
            n_texts += 1
        cpu_s = time.process_time() - began_cpu_s
        wall_s = time.perf_counter() - began_s
        us = cpu_s / n_texts * 1e6
        say(f"stream of {n_texts} deltas: {wall_s:.2f} s, {us:.1f} us of CPU each")
        for n_at_once in (1, 16, 64, 250):
            began_cpu_s = time.process_time()
            await _ours(client, n_at_once)
            ours_s = time.process_time() - began_cpu_s
            began_cpu_s = time.process_time()
            await _raw(port, n_at_once)
            raw_s = time.process_time() - began_cpu_s
            say(
                f"{n_at_once:4} at once: {ours_s / N_REQUESTS * 1e6:6.0f} us of CPU a "
                f"request, raw asyncio {raw_s / N_REQUESTS * 1e6:4.0f}"
            )


def _measure_reading() -> None:
    reading = ReplyReader(ResponseHead(status=200), is_streamed=True, n_choices=1)
    body = CHUNK * N_CHUNKS + END
    began_s = time.process_time()
    for at in range(0, len(body), 4096):
        reading.feed(body[at : at + 4096])
    reading.body()
    us = (time.process_time() - began_s) / N_CHUNKS * 1e6
    say(f"reading alone: {us:.1f} us of CPU a chunk")


def main() -> None:
    """Measure and print."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=_server, args=[theirs], daemon=True
    )
    server.start()
    _measure_reading()
    asyncio.run(_measure(ours.recv()))
    server.terminate()


if __name__ == "__main__":
    main()

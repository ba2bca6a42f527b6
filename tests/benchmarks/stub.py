"""A stub of the service in a process of its own, too fast to be the bottleneck.

The model's name says what it does: `stub-chunks1000-wait0.1` sends 1000 chunks after
0.1 s; `gap0.005` waits 5 ms before each chunk. It counts requests and connections.
"""

import asyncio
import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from typing import ClassVar, Self

MODEL = re.compile(rb'"model": ?"([^"]*)"')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_OPTION = re.compile(r"(chunks|wait|gap)([\d.]+)")
_WHOLE = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'
)
_CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
_END = _CHUNK.replace(b"null", b'"stop"') + b"data: [DONE]\n\n"


def _answer(status: bytes, kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


_STREAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"
WHOLE = _answer(b"200 OK", b"application/json", _WHOLE)


@cache
def stream(n_chunks: int) -> bytes:
    """Return a streamed answer of so many chunks and an end."""
    return _answer(b"200 OK", b"text/event-stream", _CHUNK * n_chunks + _END)


@cache
def _options(model: bytes) -> dict[str, float]:
    return {name: float(value) for name, value in _OPTION.findall(model.decode())}


class _Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    counts: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._data = b""
        self.counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        found = LENGTH.search(head)
        if not end or (found and len(rest) < int(found[1])):
            return
        self._data = b""
        self.counts["requests"] += 1
        model = MODEL.search(rest)
        name = model[1] if model else b""
        options = _options(name)
        answer = WHOLE
        if b'"stream":true' in rest.replace(b" ", b""):
            answer = stream(int(options.get("chunks", 1)))
        wait_s, gap_s = options.get("wait", 0.0), options.get("gap", 0.0)
        self._loop.call_later(wait_s, self._write, answer, gap_s)

    def _write(self, answer: bytes, gap_s: float) -> None:
        """Write an answer, a stream one event at a time, as a service does."""
        if self._transport.is_closing():
            return
        end = answer.find(b"\n\n", 0) + 2 if answer.startswith(_STREAMED) else 0
        first, rest = (answer[:end], answer[end:]) if end else (answer, b"")
        self._transport.write(first)  # type: ignore[attr-defined]  # a socket's
        if rest:
            self._loop.call_soon(self._write_events, memoryview(rest), 0, gap_s)

    def _write_events(self, rest: memoryview, at: int, gap_s: float) -> None:
        if self._transport.is_closing() or at >= len(rest):
            return
        self._transport.write(rest[at : at + len(_CHUNK)])  # type: ignore[attr-defined]  # as above
        end = at + len(_CHUNK)
        if gap_s:
            self._loop.call_later(gap_s, self._write_events, rest, end, gap_s)
        else:
            self._loop.call_soon(self._write_events, rest, end, gap_s)


async def _serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=4096)
    pipe.send(server.sockets[0].getsockname()[1])
    stopped = asyncio.Event()

    def tell() -> None:
        if pipe.recv() is None:
            stopped.set()
        else:
            pipe.send(dict(_Connection.counts))
            _Connection.counts.clear()

    loop.add_reader(pipe.fileno(), tell)
    await stopped.wait()


def _run(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


class Stub:
    """The running stub."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.port: int = pipe.recv()

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Run the stub in its own process inside the block."""
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=_run, args=[there], daemon=True)
        process.start()
        try:
            yield cls(here)
        finally:
            here.send(None)
            process.join(5)

    def counts(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        self._pipe.send("counts")
        return dict(self._pipe.recv())

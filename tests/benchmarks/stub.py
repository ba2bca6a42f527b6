"""A stub of the service in a process of its own, too fast to be the bottleneck.

The model's name says what it does: `stub-chunks1000-wait0.1-second20-minute150` sends
1000 chunks, waits 0.1 s, and refuses what is above 20 requests in any second or 150
in any minute; `gap0.005` waits 5 ms before each chunk. With `slots200` it works on 200
requests at once, and the others wait; with `most50` it answers 503 above 50 at once. It
counts requests, refusals and
connections.
"""

import asyncio
import multiprocessing
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import inf
from multiprocessing.connection import Connection
from typing import ClassVar, Self

MODEL = re.compile(rb'"model": ?"([^"]*)"')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_OPTION = re.compile(r"(chunks|wait|gap|second|minute|slots|most)([\d.]+)")
_WHOLE = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'
)
_REFUSED = b'{"error":{"message":"Too many requests.","type":"rate_limit_error"}}'
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
REFUSED = _answer(b"429 Too Many Requests", b"application/json", _REFUSED)
OVERLOADED = _answer(b"503 Service Unavailable", b"application/json", _REFUSED)


@cache
def stream(n_chunks: int) -> bytes:
    """Return a streamed answer of so many chunks and an end."""
    return _answer(b"200 OK", b"text/event-stream", _CHUNK * n_chunks + _END)


@cache
def _options(model: bytes) -> dict[str, float]:
    return {name: float(value) for name, value in _OPTION.findall(model.decode())}


class _Window:
    """At most so many requests in any so many seconds."""

    def __init__(self) -> None:
        self._times: dict[float, deque[float]] = {1.0: deque(), 60.0: deque()}

    def takes(self, now_s: float, options: dict[str, float]) -> bool:
        """Count a request if it is allowed."""
        for span_s, name in ((1.0, "second"), (60.0, "minute")):
            times = self._times[span_s]
            while times and times[0] <= now_s - span_s:
                times.popleft()
            if name in options and len(times) >= options[name]:
                return False
        for times in self._times.values():
            times.append(now_s)
        return True


class _Work:
    """What a model works on: the others wait in a queue."""

    def __init__(self, n_slots: float) -> None:
        self._n_free = n_slots
        self._waiting: deque[Callable[[], object]] = deque()
        self.n_here = 0

    def begin(self, work: Callable[[], object]) -> None:
        """Begin a piece of work, at once or later."""
        self.n_here += 1
        if self._n_free > 0:
            self._n_free -= 1
            work()
        else:
            self._waiting.append(work)

    def end(self) -> None:
        """End a piece of work."""
        self.n_here -= 1
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._n_free += 1


class _Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    counts: ClassVar[Counter[str]] = Counter()
    windows: ClassVar[dict[bytes, _Window]] = {}
    works: ClassVar[dict[bytes, _Work]] = {}

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
        if "second" in options or "minute" in options:
            window = self.windows.setdefault(name, _Window())
            if not window.takes(self._loop.time(), options):
                self.counts["refused"] += 1
                answer = REFUSED
        # a refusal costs a service nothing, so it comes at once
        wait_s = 0.0 if answer is REFUSED else options.get("wait", 0.0)
        gap_s = options.get("gap", 0.0)
        if not {"slots", "most"} & options.keys():
            self._loop.call_later(wait_s, self._write, answer, gap_s)
            return
        work = self.works.setdefault(name, _Work(options.get("slots", inf)))
        if work.n_here >= options.get("most", inf):
            self.counts["refused"] += 1
            self._write(OVERLOADED, 0.0)
            return
        work.begin(lambda: self._loop.call_later(wait_s, self._end, work, answer))

    def _end(self, work: _Work, answer: bytes) -> None:
        work.end()
        self._write(answer, 0.0)

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

"""The clients that are measured beside each other, each with the same work.

A client's `work` does so many requests, so many of them in flight, in a loop that it
keeps. Each runs in a process of its own, so that none pays for another's imports.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.benchmarks import stub

PROMPT = "Say hello."
HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}


class Job(NamedTuple):
    """Work to measure."""

    model: str
    n_requests: int
    n_at_once: int
    is_streamed: bool = False


class Took(NamedTuple):
    """What a job cost."""

    cpu_s: float  # of the client's process, all threads
    wall_s: float


Ask = Callable[[], Awaitable[object]]


async def _share(job: Job, ask: Ask) -> None:
    """Do the requests of a job with so many tasks."""
    left = iter(range(job.n_requests))

    async def work() -> None:
        for _ in left:
            await ask()

    async with asyncio.TaskGroup() as group:
        for _ in range(job.n_at_once):
            group.create_task(work())


def _body(job: Job) -> dict[str, Any]:
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": job.model, "messages": messages, "stream": job.is_streamed}


class Ours:
    """`AsyncClient` of this package."""

    def __init__(self, port: int) -> None:
        from svc_notebook.client.async_client import AsyncClient  # noqa: PLC0415 - measured alone
        from svc_notebook.client.rate_limit import RateLimits  # noqa: PLC0415
        from svc_notebook.service.catalogue import Limit  # noqa: PLC0415

        far_away = Limit(per_second=10**6, per_minute=10**8)
        self._client = AsyncClient(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="k",
            limits=RateLimits(clock=time.monotonic, limit_of=lambda _: far_away),
            sinks=(),  # a sweep measures the ledger; the user's own is left alone
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def work(self, job: Job) -> None:
        """Do a job."""

        async def ask() -> None:
            if not job.is_streamed:
                await self._client.complete(PROMPT, model=job.model, max_tokens=None)
                return
            async for _ in self._client.stream(
                PROMPT, model=job.model, max_tokens=None
            ):
                pass

        await _share(job, ask)


class Sweep:
    """A sweep of this package: plan, limits, ledger on disk and progress included."""

    def __init__(self, port: int) -> None:
        self._folder = TemporaryDirectory()
        os.environ.update(
            SVC_BASE_URL=f"http://127.0.0.1:{port}/v1",
            SVC_API_KEY="k",
            SVC_LEDGER=f"{self._folder.name}/ledger.sqlite",
        )
        import svc_notebook as svc  # noqa: PLC0415 - measured alone

        self._svc = svc

    def do(self, job: Job) -> None:
        """Do a job; a sweep has a loop of its own."""
        run = self._svc.sweep(PROMPT, model=job.model, repeats=job.n_requests)
        run.in_flight = job.n_at_once
        run.run()


class OpenAi:
    """The `openai` SDK, async; with `is_aiohttp` through its aiohttp backend."""

    def __init__(self, port: int, *, is_aiohttp: bool = False) -> None:
        import openai  # noqa: PLC0415 - measured alone

        backend: dict[str, Any] = (
            {"http_client": openai.DefaultAioHttpClient()} if is_aiohttp else {}
        )
        self._client = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="k", **backend
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def work(self, job: Job) -> None:
        """Do a job."""

        async def ask() -> None:
            reply = await self._client.chat.completions.create(**_body(job))
            if job.is_streamed:
                async for _ in reply:
                    pass

        await _share(job, ask)


class AioHttp:
    """aiohttp, with nothing around it but JSON."""

    def __init__(self, port: int) -> None:
        import aiohttp  # noqa: PLC0415 - measured alone

        self._address = f"http://127.0.0.1:{port}/v1/chat/completions"
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def work(self, job: Job) -> None:
        """Do a job."""

        async def ask() -> None:
            async with self._session.post(
                self._address, json=_body(job), headers=HEADERS
            ) as reply:
                if not job.is_streamed:
                    await reply.json()
                    return
                async for _ in reply.content:
                    pass

        await _share(job, ask)


class Httpx:
    """httpx, with nothing around it but JSON and lines."""

    def __init__(self, port: int) -> None:
        import httpx  # noqa: PLC0415 - measured alone

        self._address = f"http://127.0.0.1:{port}/v1/chat/completions"
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(headers=HEADERS, limits=limits, timeout=60)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def work(self, job: Job) -> None:
        """Do a job."""

        async def ask() -> None:
            if not job.is_streamed:
                (await self._client.post(self._address, json=_body(job))).json()
                return
            async with self._client.stream(
                "POST", self._address, json=_body(job)
            ) as reply:
                async for _ in reply.aiter_lines():
                    pass

        await _share(job, ask)


class RawSocket:
    """A socket of asyncio; it looks at no byte of what it reads."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def work(self, job: Job) -> None:
        """Do a job, with a new connection for each task."""
        n_chunks = int(job.model.partition("chunks")[2].partition("-")[0] or 1)
        n_bytes = len(stub.stream(n_chunks) if job.is_streamed else stub.WHOLE)
        body = str(_body(job)).replace("'", '"').lower().encode()
        sent = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def ask() -> None:
            reader, writer = (
                free.pop()
                if free
                else await asyncio.open_connection("127.0.0.1", self._port)
            )
            writer.write(sent)
            n_left = n_bytes
            while n_left:
                n_left -= len(await reader.read(2**16))
            free.append((reader, writer))

        await _share(job, ask)
        for _, writer in free:
            writer.close()


CLIENTS: dict[str, Callable[[int], Any]] = {
    "ours": Ours,
    "ours, a sweep": Sweep,
    "openai": OpenAi,
    "openai with aiohttp": lambda port: OpenAi(port, is_aiohttp=True),
    "aiohttp": AioHttp,
    "httpx": Httpx,
    "raw socket": RawSocket,
}


def serve(name: str, port: int, pipe: Connection) -> None:
    """Do the jobs that come through a pipe, and answer what each took."""
    with asyncio.Runner() as runner:

        async def make() -> Any:  # noqa: ANN401 - one of the classes
            return CLIENTS[name](port)

        client = runner.run(make())
        pipe.send("ready")
        while (job := pipe.recv()) is not None:
            began_cpu_s, began_s = time.process_time(), time.perf_counter()
            if isinstance(client, Sweep):
                client.do(job)
            else:
                runner.run(client.work(job))
            took = Took(
                time.process_time() - began_cpu_s, time.perf_counter() - began_s
            )
            pipe.send(took)
        if hasattr(client, "close"):
            runner.run(client.close())

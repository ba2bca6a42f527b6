"""The limits in real time: those that are known, and those that have to be found.

`python tests/benchmarks/client_limits_bench.py` sends 150 requests, and then 300, at
20 a second and 150 a minute to the emulator, which counts for itself; then as many from
two kernels at once; it prints how many met a 429 and how long it took, divided by the
shortest time possible. It takes about four minutes. With `--unknown` it asks servers of
which nothing is known: one with these limits, one that answers 200 requests at once and
lets others wait, one that refuses more than 50 at once, and a slow one; it prints what
was found, and the replies of the last seconds divided by what the server can do. That
takes about eight minutes. It is no test: nothing fails.
"""

import asyncio
import multiprocessing
import os
import sys
import time
from tempfile import TemporaryDirectory

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import SvcError
from tests.benchmarks.stub import Stub

MODEL = "svc-v1.5-instruct"
PER_SECOND, PER_MINUTE = 20, 150


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def shortest_s(n_requests: int) -> float:
    """Return the shortest time in which so many requests may begin."""
    n_minutes, n_rest = divmod(n_requests - 1, PER_MINUTE)
    return 60.0 * n_minutes + n_rest // PER_SECOND


async def _ask(base_url: str, api_key: str, n_requests: int) -> int:
    async with AsyncClient(base_url=base_url, api_key=api_key, sinks=()) as client:

        async def ask(at: int) -> int:
            reply = await client.complete(f"Say {at}.", model=MODEL, max_tokens=3)
            return reply.exchange.n_refused

        return sum(await asyncio.gather(*map(ask, range(n_requests))))


def _in_a_kernel(given: tuple[str, str, int]) -> int:
    return asyncio.run(_ask(*given))


def measure(n_requests: int, n_kernels: int) -> None:
    """Send so many requests in all, from so many kernels."""
    limits = {MODEL: (PER_SECOND, PER_MINUTE)}
    with Emulator(tokens_per_s=None, first_token_s=0, limits=limits) as emulator:
        share = (emulator.base_url, emulator.api_key, n_requests // n_kernels)
        with multiprocessing.get_context("spawn").Pool(n_kernels) as pool:
            pool.map(len, [()] * n_kernels)  # they have started
            began_s = time.monotonic()
            n_refused = sum(pool.map(_in_a_kernel, [share] * n_kernels, chunksize=1))
            took_s = time.monotonic() - began_s
    best_s = shortest_s(n_requests)
    say(
        f"{n_requests} requests from {n_kernels} kernels: {n_refused} refused, "
        f"{took_s:.2f} s, {took_s / best_s:.3f} of the shortest ({best_s:.0f} s)"
    )


async def _ask_for(
    port: int, model: str, length_s: float, *, n_at_once: int | None = None
) -> tuple[list[float], RateLimits, int]:
    """Ask for so long; return when each reply came, the limits, and the failures.

    `n_at_once` requests are in flight; if None, as many as the client finds.
    """
    limits, times_s, n_failed = RateLimits(clock=time.monotonic), [], 0
    limiter, began_s = limits.of(model), time.monotonic()
    base_url = f"http://127.0.0.1:{port}/v1"
    async with AsyncClient(base_url=base_url, api_key="k", limits=limits) as client:

        async def work() -> None:
            nonlocal n_failed
            while time.monotonic() - began_s < length_s:
                try:
                    await client.complete("Hi", model=model, max_tokens=None)
                except SvcError:
                    n_failed += 1
                times_s.append(time.monotonic() - began_s)

        workers: set[asyncio.Task[None]] = set()
        while time.monotonic() - began_s < length_s:
            wanted = n_at_once or 2 * (limiter.in_flight or 1)
            workers |= {
                asyncio.create_task(work()) for _ in range(wanted - len(workers))
            }
            await asyncio.sleep(0.02)
        await asyncio.gather(*workers)
    return times_s, limits, n_failed


def find_in_flight(
    port: int, model: str, *, n_slots: int, reply_s: float, length_s: float = 20.0
) -> None:
    """Ask a server for so long, and compare the replies with what it can do."""

    def rate_of(times_s: list[float]) -> float:
        last_s = length_s / 4
        return sum(length_s - last_s < at <= length_s for at in times_s) / last_s

    times_s, limits, n_failed = asyncio.run(_ask_for(port, model, length_s))
    given_s, *_ = asyncio.run(
        _ask_for(port, f"{model}-given", length_s, n_at_once=n_slots)
    )
    rate, given, best = rate_of(times_s), rate_of(given_s), n_slots / reply_s
    say(
        f"{model}: {rate:.0f} replies a second after {0.75 * length_s:.0f} s, "
        f"{rate / best:.2f} of the server's {best:.0f}; with {n_slots} in flight at "
        f"once the client has {given:.0f}; {n_failed} failed; {limits.of(model).found}"
    )


def find_windows(stub: Stub, model: str) -> None:
    """Sweep 300 requests to a model whose limits are not known."""
    with TemporaryDirectory() as folder:
        os.environ.update(
            SVC_BASE_URL=f"http://127.0.0.1:{stub.port}/v1",
            SVC_API_KEY="k",
            SVC_LEDGER=f"{folder}/ledger.sqlite",
        )
        import svc_notebook as svc  # noqa: PLC0415 - it reads the environment

        run = svc.sweep("Say {{n}}.", rows=[{"n": n} for n in range(300)], model=model)
        run.confirm_above = None
        stub.counts()
        began_s = time.monotonic()
        run.run()
        took_s = time.monotonic() - began_s
        best_s = shortest_s(300)
        say(
            f"{model}: {stub.counts()['refused']} refused, {took_s:.2f} s, "
            f"{took_s / best_s:.3f} of the shortest ({best_s:.0f} s); "
            f"{run.manifest['found_limits'][model]}"
        )


def main() -> None:
    """Measure and print."""
    if "--unknown" in sys.argv[1:]:
        with Stub.running() as stub:
            find_in_flight(stub.port, "stub-wait0.1-slots200", n_slots=200, reply_s=0.1)
            find_in_flight(stub.port, "stub-wait0.5-slots200", n_slots=200, reply_s=0.5)
            find_in_flight(stub.port, "stub-wait0.1-most50", n_slots=50, reply_s=0.1)
            find_in_flight(
                stub.port, "stub-wait5-slots64", n_slots=64, reply_s=5, length_s=60
            )
            for reply_s in (0.005, 0.1, 3):
                model = f"stub-wait{reply_s}-second{PER_SECOND}-minute{PER_MINUTE}"
                find_windows(stub, model)
        return
    for n_kernels in (1, 2):
        for n_requests in (150, 300):
            measure(n_requests, n_kernels)


if __name__ == "__main__":
    main()

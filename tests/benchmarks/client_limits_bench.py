"""The limits in real time, against the emulator, which counts for itself.

`python tests/benchmarks/client_limits_bench.py` sends 150 requests, and then 300, at
20 a second and 150 a minute; then as many from two kernels at once; it prints how
many met a 429 and how long it took beside the shortest time possible. It takes about
four minutes. With `--unknown` it sends 300 requests, 16 at once, to a model with these
limits that the client does not know, in about 70 s. It is no test: nothing fails.
"""

import asyncio
import multiprocessing
import sys
import time

from svc_notebook.client.aio import AsyncClient
from svc_notebook.emulator.server import Emulator

MODEL = "svc-v1.5-instruct"
UNKNOWN = "svc-instruct"  # no limit of it is documented
PER_SECOND, PER_MINUTE = 20, 150


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def shortest_s(n_requests: int) -> float:
    """Return the shortest time in which so many requests may begin."""
    n_minutes, n_rest = divmod(n_requests - 1, PER_MINUTE)
    return 60.0 * n_minutes + n_rest // PER_SECOND


async def _ask(
    base_url: str, api_key: str, model: str, n_requests: int, n_at_once: int
) -> int:
    at_once = asyncio.Semaphore(n_at_once)
    async with AsyncClient(base_url=base_url, api_key=api_key) as client:

        async def ask(at: int) -> int:
            async with at_once:
                reply = await client.complete(f"Say {at}.", model=model, max_tokens=3)
            return reply.exchange.n_refused

        return sum(await asyncio.gather(*map(ask, range(n_requests))))


def _in_a_kernel(given: tuple[str, str, str, int, int]) -> int:
    return asyncio.run(_ask(*given))


def measure(
    n_requests: int, n_kernels: int, *, model: str = MODEL, n_at_once: int = 1000
) -> None:
    """Send so many requests in all, from so many kernels."""
    limits = {model: (PER_SECOND, PER_MINUTE)}
    with Emulator(tokens_per_s=None, first_token_s=0, limits=limits) as emulator:
        n_each = n_requests // n_kernels
        share = (emulator.base_url, emulator.api_key, model, n_each, n_at_once)
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


def main() -> None:
    """Measure and print."""
    if "--unknown" in sys.argv[1:]:
        measure(300, 1, model=UNKNOWN, n_at_once=16)
        return
    for n_kernels in (1, 2):
        for n_requests in (150, 300):
            measure(n_requests, n_kernels)


if __name__ == "__main__":
    main()

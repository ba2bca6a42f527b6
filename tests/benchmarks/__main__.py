"""The package beside other clients, in one table.

`python -m tests.benchmarks` measures all clients in shuffled rounds against one stub of
the service, each in a process of its own, and prints the medians of the ratios of each
round. It needs `pip install aiohttp openai httpx-aiohttp`; a client whose package is
missing is left out. `--rounds N` takes more rounds, 5 if left out. It is no test:
nothing fails.
"""

import argparse
import multiprocessing
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tests.benchmarks.clients import CLIENTS, Job, Took, serve
from tests.benchmarks.stub import Stub

NEEDS = {
    "openai": ["openai"],
    "openai with aiohttp": ["openai", "httpx_aiohttp"],
    "aiohttp": ["aiohttp"],
}
N_REQUESTS = 600
N_CHUNKS = 1000
LATENCY_S = 0.1


class Row(NamedTuple):
    """One figure of the table: a job, and the client that it is divided by."""

    what: str
    job: Job
    clients: tuple[str, ...]
    baseline: str
    goal: str


def _cpu(n_at_once: int) -> Job:
    return Job("stub", N_REQUESTS, n_at_once)


_PEERS = ("openai with aiohttp", "openai", "httpx")
ROWS = (
    Row("sweep, CPU a request", _cpu(64), ("ours, a sweep", *_PEERS), "aiohttp", "4"),
    Row("client, CPU a request", _cpu(64), ("ours", *_PEERS), "aiohttp", "2.5"),
    Row(
        f"stream, CPU of {N_CHUNKS} chunks",
        Job(f"stub-chunks{N_CHUNKS}", 10, 1, is_streamed=True),
        ("ours", "openai", "httpx", "aiohttp"),
        "raw socket",
        "4",
    ),
)
SWEEP_GOAL = "1.3"
SHARES = {16: "0.93", 64: "0.88", 256: "0.72"}
_LOADS = {
    "%load_ext svc_notebook": (
        "import IPython.core.interactiveshell as s; "
        "i = s.InteractiveShell.instance(); import time; t = time.process_time(); "
        "i.run_line_magic('load_ext', 'svc_notebook'); print(time.process_time() - t)"
    ),
    "import httpx": (
        "import IPython.core.interactiveshell as s; "
        "i = s.InteractiveShell.instance(); import time; t = time.process_time(); "
        "import httpx; print(time.process_time() - t)"
    ),
}


def say(line: str = "") -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def started(port: int) -> Iterator[dict[str, Connection]]:
    """Start the clients whose packages are installed."""
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name in CLIENTS:
        if not all(find_spec(package) for package in NEEDS.get(name, ())):
            continue
        here, there = spawn.Pipe()
        spawn.Process(target=serve, args=[name, port, there], daemon=True).start()
        pipes[name] = here
    for pipe in pipes.values():
        pipe.recv()
    try:
        yield pipes
    finally:
        for pipe in pipes.values():
            pipe.send(None)


def measure(
    pipes: Mapping[str, Connection], job: Job, names: tuple[str, ...], n_rounds: int
) -> dict[str, list[Took]]:
    """Do a job with each client in each round, in shuffled order."""
    order = random.Random(0)  # noqa: S311 - no secret
    took: dict[str, list[Took]] = {name: [] for name in names if name in pipes}
    for at in range(n_rounds + 1):
        for name in order.sample([*took], len(took)):
            pipes[name].send(job)
            found = pipes[name].recv()
            if at:  # the first round warms up
                took[name].append(found)
    return took


def ratios(took: dict[str, list[Took]], baseline: str) -> dict[str, float]:
    """Return the median over rounds of each client's CPU by the baseline's."""
    of_base = [each.cpu_s for each in took[baseline]]
    return {
        name: statistics.median(
            each.cpu_s / base for each, base in zip(found, of_base, strict=True)
        )
        for name, found in took.items()
    }


def _line(what: str, unit: str, goal: str, ours: float, others: str) -> str:
    return f"| {what} | {goal} {unit} | {ours:.2f} | {others or '-'} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    n_rounds = parser.parse_args().rounds
    say("| what | goal | here | others |\n|---|---|---|---|")
    with Stub.running() as stub, started(stub.port) as pipes:
        for row in ROWS:
            names = (*row.clients, row.baseline)
            by_name = ratios(measure(pipes, row.job, names, n_rounds), row.baseline)
            first, *rest = (name for name in by_name if name != row.baseline)
            others = ", ".join(f"{name} {by_name[name]:.1f}" for name in rest)
            say(_line(row.what, f"x {row.baseline}", row.goal, by_name[first], others))
        _say_growth(pipes, n_rounds)
        _say_shares(pipes, n_rounds)
        counts = stub.counts()
    _say_load(n_rounds)
    say(
        f"\nMedians of {n_rounds} rounds; {counts['requests']} requests on "
        f"{counts['connections']} connections. CPU is that of the client's process; "
        "a share is the throughput by the ideal, in flight / latency."
    )


def _say_growth(pipes: Mapping[str, Connection], n_rounds: int) -> None:
    many, few = (
        measure(pipes, _cpu(n), ("ours, a sweep",), n_rounds)["ours, a sweep"]
        for n in (256, 16)
    )
    pairs = zip(many, few, strict=True)
    ratio = statistics.median(one.cpu_s / other.cpu_s for one, other in pairs)
    what = "sweep, CPU at 256 in flight"
    say(_line(what, "x at 16", SWEEP_GOAL, ratio, ""))


def _say_shares(pipes: Mapping[str, Connection], n_rounds: int) -> None:
    for n_at_once, goal in SHARES.items():
        job = Job(f"stub-wait{LATENCY_S}", n_at_once * 10, n_at_once)
        names = ("ours", "aiohttp", "openai with aiohttp", "openai")
        ideal_s = job.n_requests * LATENCY_S / n_at_once
        shares = {
            name: statistics.median(ideal_s / each.wall_s for each in found)
            for name, found in measure(pipes, job, names, n_rounds).items()
        }
        ours = shares.pop("ours")
        others = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        what = f"throughput at {LATENCY_S * 1000:.0f} ms, {n_at_once} in flight"
        say(_line(what, "of the ideal", goal, ours, others))


def _say_load(n_rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in _LOADS}
    for _ in range(n_rounds):
        for name, code in _LOADS.items():
            command: list[Any] = [sys.executable, "-c", code]
            found = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
            took[name].append(float(found.stdout.split()[-1]))
    ext, plain = took.values()
    pairs = zip(ext, plain, strict=True)
    ratio = statistics.median(one / other for one, other in pairs)
    say(_line("%load_ext in a warm shell, CPU", "x import httpx", "0.5", ratio, ""))


if __name__ == "__main__":
    main()

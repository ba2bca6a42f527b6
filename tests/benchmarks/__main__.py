"""The package beside other clients, in one table.

`python -m tests.benchmarks` measures all clients in shuffled rounds against one stub of
the service, each in a process of its own, and prints the medians of the ratios of each
round; then what a cell, reading a large run, memory and the install take. A client
whose package is missing is left out, and the report says how to install it.
`--rounds N` takes more rounds, 5 if left out; `--only WORD` measures the rows that have
the word. It is no test: nothing fails.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

from tests.benchmarks import display_bench, install_size, sweep_bench
from tests.benchmarks.clients import CLIENTS, Job, Took, serve
from tests.benchmarks.stub import Stub
from tests.benchmarks.sweep_bench import Figure

NEEDS = {  # packages as pip calls them
    "openai": ("openai",),
    "openai with aiohttp": ("openai", "httpx-aiohttp"),
    "aiohttp": ("aiohttp",),
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
GROWTH, SHARE = "sweep, CPU at 256 in flight", "throughput"
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


def missing(client: str) -> list[str]:
    """Return the packages that a client needs and that are not installed."""
    packages = NEEDS.get(client, ())
    return [name for name in packages if not find_spec(name.replace("-", "_"))]


def say_missing() -> None:
    """Say which clients are left out, and the command that installs them."""
    left_out = [name for name in CLIENTS if missing(name)]
    if left_out:
        packages = dict.fromkeys(
            package for client in left_out for package in missing(client)
        )
        say(
            f"Left out, because they are not installed: {', '.join(left_out)}. "
            f"Install them with: python -m pip install {' '.join(packages)}\n"
        )


@contextmanager
def started(port: int) -> Iterator[dict[str, Connection]]:
    """Start the clients whose packages are installed."""
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name in CLIENTS:
        if missing(name):
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
            cost = pipes[name].recv()
            if at:  # the first round warms up
                took[name].append(cost)
    return took


def ratios(took: dict[str, list[Took]], baseline: str) -> dict[str, float]:
    """Return the median over rounds of each client's CPU by the baseline's."""
    return {
        name: statistics.median(
            cost.cpu_s / base.cpu_s
            for cost, base in zip(costs, took[baseline], strict=True)
        )
        for name, costs in took.items()
    }


def _line(what: str, unit: str, goal: str, ours: float, others: str) -> str:
    return f"| {what} | {goal} {unit} | {ours:.2f} | {others or '-'} |"


def _say(figure: Figure) -> None:
    say(_line(figure.what, figure.unit, figure.goal, figure.here, figure.others))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="WORD")
    options = parser.parse_args()
    say_missing()
    say("| what | goal | here | others |\n|---|---|---|---|")
    rows = [row for row in ROWS if options.only in row.what]
    with Stub.running() as stub:
        if any(
            options.only in what for what in (*(r.what for r in rows), GROWTH, SHARE)
        ):
            with started(stub.port) as pipes:
                _say_clients(pipes, rows, options.only, options.rounds)
        for what, measured in OTHERS.items():
            if options.only in what:
                measured(stub.port, options.rounds)
    say(
        f"\nMedians of {options.rounds} rounds. CPU is that of the client's process; "
        "a share is the throughput by the ideal, in flight / latency. A sweep writes "
        "its ledger to the disk, the client writes none."
    )


def _say_clients(
    pipes: Mapping[str, Connection], rows: list[Row], only: str, n_rounds: int
) -> None:
    for row in rows:
        if row.baseline not in pipes:
            say(f"| {row.what} | {row.goal} | - | {row.baseline} is not installed |")
            continue
        names = (*row.clients, row.baseline)
        by_name = ratios(measure(pipes, row.job, names, n_rounds), row.baseline)
        first, *rest = (name for name in by_name if name != row.baseline)
        others = ", ".join(f"{name} {by_name[name]:.1f}" for name in rest)
        say(_line(row.what, f"x {row.baseline}", row.goal, by_name[first], others))
    if only in GROWTH:
        _say_growth(pipes, n_rounds)
    if only in SHARE:
        _say_shares(pipes, n_rounds)


def _say_growth(pipes: Mapping[str, Connection], n_rounds: int) -> None:
    many, few = (
        measure(pipes, _cpu(n), ("ours, a sweep",), n_rounds)["ours, a sweep"]
        for n in (256, 16)
    )
    pairs = zip(many, few, strict=True)
    ratio = statistics.median(one.cpu_s / other.cpu_s for one, other in pairs)
    say(_line(GROWTH, "x at 16", SWEEP_GOAL, ratio, ""))


def _say_shares(pipes: Mapping[str, Connection], n_rounds: int) -> None:
    for n_at_once, goal in SHARES.items():
        job = Job(f"stub-wait{LATENCY_S}", n_at_once * 10, n_at_once)
        names = ("ours", "ours, a sweep", "aiohttp", "openai with aiohttp", "openai")
        ideal_s = job.n_requests * LATENCY_S / n_at_once
        shares = {
            name: statistics.median(ideal_s / cost.wall_s for cost in costs)
            for name, costs in measure(pipes, job, names, n_rounds).items()
        }
        ours = shares.pop("ours")
        others = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        what = f"{SHARE} at {LATENCY_S * 1000:.0f} ms, {n_at_once} in flight"
        say(_line(what, "of the ideal", goal, ours, others))


def _cpu_ratio(ours: str, plain: str, n_rounds: int) -> float:
    """Return the median ratio of the CPU that two scripts print: see `_cpu_of`."""
    pairs = zip(*_cpu_of(ours, plain, n_rounds), strict=True)
    return statistics.median(one / other for one, other in pairs)


def _cpu_of(ours: str, plain: str, n_rounds: int) -> tuple[list[float], list[float]]:
    """Return the CPU that two scripts print in each round, each in a process.

    What they import is compiled before, as pip does when it installs a package.
    """
    took: dict[str, list[float]] = {ours: [], plain: []}
    with TemporaryDirectory() as folder:
        compiled = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        compiled.pop("PYTHONDONTWRITEBYTECODE", None)
        for at in range(n_rounds + 1):
            for code, costs in took.items():
                cpu_s = float(_printed("-c", code, env=compiled))
                if at:  # the first round compiles
                    costs.append(cpu_s)
    return took[ours], took[plain]


def _printed(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Return the last word that a Python process prints."""
    command: list[Any] = [sys.executable, *arguments]
    ended = subprocess.run(  # noqa: S603 - our own words
        command, check=True, capture_output=True, text=True, env=env
    )
    return ended.stdout.splitlines()[-1]


def _say_load(_: int, n_rounds: int) -> None:
    ext, plain = _LOADS.values()
    ratio = _cpu_ratio(ext, plain, n_rounds)
    say(_line(LOAD, "x import httpx", "0.5", ratio, ""))


_SHELL = """
import os, time
os.environ.update(SVC_BASE_URL="http://127.0.0.1:{port}/v1", SVC_API_KEY="k")
os.environ.update(SVC_LEDGER=":memory:")
import IPython.core.interactiveshell as s
shell = s.InteractiveShell.instance()
"""
_FIRST_CELL = """
shell.run_line_magic("load_ext", "svc_notebook")
began_s = time.process_time()
shell.run_cell_magic("svc", "--model stub", "Say hello.")
print("\\n" + str(time.process_time() - began_s))
"""
_UNTIL_CONNECTING = """
import sys
import ipykernel.ipkernel, ipykernel.zmqshell

def report(event, arguments):
    if event == "socket.connect":
        print("\\n" + str(1000 * (time.process_time() - began_s)), flush=True)
        os._exit(0)

os.environ["SVC_BASE_URL"] = "https://127.0.0.1:{port}/v1"
sys.addaudithook(report)
"""
_CELL_UNTIL_CONNECTING = """
shell.run_line_magic("load_ext", "svc_notebook")
began_s = time.process_time()
shell.run_cell_magic("svc", "--model stub", "Say hello.")
"""
_HTTPX_UNTIL_CONNECTING = """
began_s = time.process_time()
import httpx
httpx.get("https://127.0.0.1:{port}/v1/models")
"""
_LATER_CELLS = """
import contextlib, io, json, socket
shell.run_line_magic("load_ext", "svc_notebook")
body = {{"model": "stub", "messages": [{{"role": "user", "content": "Say hello."}}]}}
body = json.dumps(body | {{"stream": True}}).encode()
head = b"POST /v1/chat/completions HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n"
server = socket.create_connection(("127.0.0.1", {port}))

def cell():
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_cell_magic("svc", "--model stub", "Say hello.")

def raw():
    server.sendall(head % len(body) + body)
    answer = b""
    while b"[DONE]" not in answer:
        answer += server.recv(65536)

def ms_each(job, n_times=200):
    began_s = time.process_time()
    for _ in range(n_times):
        job()
    return 1000 * (time.process_time() - began_s) / n_times

ms_each(cell, 20), ms_each(raw, 20)
print(ms_each(cell) - ms_each(raw))
"""
_FIRST_REQUEST = """
began_s = time.process_time()
import httpx
body = {{"model": "stub", "messages": [{{"role": "user", "content": "Say hello."}}]}}
httpx.post("http://127.0.0.1:{port}/v1/chat/completions", json=body).json()
print(time.process_time() - began_s)
"""


def _say_first_cell(port: int, n_rounds: int) -> None:
    ours, plain = (
        (_SHELL + code).format(port=port) for code in (_FIRST_CELL, _FIRST_REQUEST)
    )
    ratio = _cpu_ratio(ours, plain, n_rounds)
    say(_line(FIRST_CELL, "x httpx and one request", "1.3", ratio, ""))


def _say_until_connecting(port: int, n_rounds: int) -> None:
    ours, plain = (
        (_SHELL + _UNTIL_CONNECTING + code).format(port=port)
        for code in (_CELL_UNTIL_CONNECTING, _HTTPX_UNTIL_CONNECTING)
    )
    ours_ms, plain_ms = map(statistics.median, _cpu_of(ours, plain, n_rounds))
    beside = f"httpx {plain_ms:.0f}"
    say(_line(UNTIL_CONNECTING, "ms in a kernel, https", "150", ours_ms, beside))


def _say_later_cells(port: int, n_rounds: int) -> None:
    code = (_SHELL + _LATER_CELLS).format(port=port)
    ms = statistics.median(float(_printed("-c", code)) for _ in range(n_rounds))
    say(_line(LATER_CELLS, "ms over a raw socket", "1", ms, ""))


def _say_cell(port: int, n_rounds: int) -> None:
    took: dict[str, list[display_bench.CellCost]] = {"svc": [], "markdown": []}
    for _ in range(n_rounds):
        for how, costs in took.items():
            printed = _printed(display_bench.__file__, "--cell", how, str(port))
            costs.append(display_bench.CellCost(*json.loads(printed)))
    pairs = list(zip(*took.values(), strict=True))
    unit = f"x display(Markdown) {display_bench.UPDATES_PER_S} times/s"
    for name, field in (("CPU a chunk", 0), ("first visible text", 1)):
        ratio = statistics.median(ours[field] / plain[field] for ours, plain in pairs)
        ours_ms, plain_ms = (
            1000 * statistics.median(cost[field] for cost in costs)
            for costs in took.values()
        )
        beside = f"{ours_ms:.1f} ms, display(Markdown) {plain_ms:.1f} ms"
        say(_line(f"{CELL}, {name}", unit, "1", ratio, beside))
    gap_ms, plain_ms = (
        statistics.median(cost.longest_gap_s * 1000 for cost in costs)
        for costs in took.values()
    )
    what = f"{CELL}, longest gap while chunks arrive"
    say(_line(what, "ms", "150", gap_ms, f"display(Markdown) {plain_ms:.0f}"))


def _say_reading(_: int, __: int) -> None:
    for figure in sweep_bench.reading(25_000):
        _say(figure)


N_MEMORY, N_BEFORE = 100_000, 10_000


def _say_memory(_: int, __: int) -> None:
    """Look at the memory of a sweep from outside while it sends its requests."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    sizes: list[int] = []
    with Stub.running() as stub:
        client = spawn.Process(
            target=serve, args=["ours, a sweep", stub.port, there], daemon=True
        )
        client.start()
        here.recv()
        here.send(Job("stub", N_MEMORY, 64))
        memory, n_sent = psutil.Process(client.pid), 0
        while not here.poll(0.5):
            n_sent += stub.counts().get("requests", 0)
            if n_sent >= N_BEFORE:
                sizes.append(memory.memory_info().rss)
        here.recv()
        here.send(None)
    before_mb, most_mb = sizes[0] / 2**20, max(sizes) / 2**20
    grown = f"{before_mb:.0f} MB, then at most {most_mb:.0f}"
    say(_line(MEMORY, "x after 10 000 (flat)", "1.1", most_mb / before_mb, grown))


def _say_install(_: int, __: int) -> None:
    added = install_size.measured()
    most, n_most = install_size.MEGABYTES_AT_MOST, install_size.PACKAGES_AT_MOST
    beside = ", ".join(install_size.BESIDE)
    say(_line(INSTALL, f"packages beside {beside}", str(n_most), len(added), ""))
    say(_line(INSTALL, "MB", f"{most:.0f}", sum(added.values()), ""))


LOAD = "%load_ext in a warm shell, CPU"
FIRST_CELL = "first %%svc, CPU"
UNTIL_CONNECTING = "first %%svc, CPU until it connects"
LATER_CELLS = "later %%svc, CPU"
CELL = f"%%svc cell at {display_bench.CHUNKS_PER_S} chunks/s"
READING = "100 000 replies and a finished run"
MEMORY = "memory of a sweep of 100 000 requests, 64 in flight"
INSTALL = "install"
OTHERS: Mapping[str, Callable[[int, int], None]] = {
    LOAD: _say_load,
    FIRST_CELL: _say_first_cell,
    UNTIL_CONNECTING: _say_until_connecting,
    LATER_CELLS: _say_later_cells,
    CELL: _say_cell,
    READING: _say_reading,
    MEMORY: _say_memory,
    INSTALL: _say_install,
}
"""The rows without clients: what they are, and what measures and prints them."""


if __name__ == "__main__":
    main()

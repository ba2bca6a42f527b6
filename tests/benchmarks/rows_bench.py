"""How much memory a run with very many rows takes.

`python -m tests.benchmarks.rows_bench [N_ROWS]` writes 200 000 rows, or as many as
given, into Parquet files, sends one request for each to a stub that answers at once,
and writes the replies back in parts. It prints the memory of the process after a tenth
of the replies, at their end and after the parts; what grows with the rows shows.
`--list` gives the same rows as a list instead. It is no test: nothing fails.
"""

import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import psutil

from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run import plan_run
from tests.benchmarks.stub import Stub

N_ROWS = 200_000
ROWS_PER_FILE = 50_000
TEXT = "A review of some length, as people write them about a tea house. " * 8


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def memory_mb() -> float:
    """Return the memory of this process, in MB."""
    return float(psutil.Process().memory_info().rss) / 2**20


def texts(n_rows: int) -> Iterator[dict[str, object]]:
    """Return the rows, one by one."""
    return ({"id": at, "text": f"{TEXT}{at}"} for at in range(n_rows))


def write(folder: Path, n_rows: int) -> None:
    """Write the rows into Parquet files."""
    found = texts(n_rows)
    for at in range(0, n_rows, ROWS_PER_FILE):
        rows = pd.DataFrame(islice(found, ROWS_PER_FILE))
        rows.to_parquet(folder / f"rows-{at:08}.parquet")


def measure(folder: Path, n_rows: int, *, is_list: bool) -> None:
    """Send a run, and print the memory on the way."""
    given: object = [*texts(n_rows)] if is_list else folder / "*.parquet"
    with Stub.running() as stub:
        base_url = f"http://127.0.0.1:{stub.port}/v1"
        os.environ["SVC_BASE_URL"] = base_url
        settings = Settings(base_url=base_url, ledger=str(folder / "ledger.sqlite"))
        session = Session(settings)
        before_mb, began_s = memory_mb(), time.monotonic()
        run = plan_run(
            session, "Say {{text}}", rows=given, model="stub", name="rows", in_flight=32
        )
        took_s = time.monotonic() - began_s
        say(f"{len(run)} requests planned in {took_s:.1f} s: {memory_mb():.0f} MB "
            f"({before_mb:.0f} MB before)")  # fmt: skip
        first = True

        def look() -> None:
            nonlocal first
            if first and session.ledger.count() >= n_rows / 10:
                first = False
                say(f"after a tenth of the replies: {memory_mb():.0f} MB")

        began_s = time.monotonic()
        run.start(is_drawn=False).wait(tick=look)
        say(f"{n_rows / (time.monotonic() - began_s):.0f} requests/s; "
            f"at the end: {memory_mb():.0f} MB")  # fmt: skip
        say(f"{run.n_todo} missing; after looking at the run: {memory_mb():.0f} MB")
        run.write_parquet(folder / "replies")
        n_parts = len([*(folder / "replies").iterdir()])
        say(f"replies written in {n_parts} parts: {memory_mb():.0f} MB")
        session.close()


def main() -> None:
    """Measure and print."""
    os.environ["SVC_API_KEY"] = "key-of-the-benchmark"
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    n_rows = numbers[0] if numbers else N_ROWS
    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, n_rows)
        measure(folder, n_rows, is_list="--list" in sys.argv)


if __name__ == "__main__":
    main()

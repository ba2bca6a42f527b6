"""How many requests one, two and more workers of a cluster complete.

`python -m tests.benchmarks.cluster_bench [N_WORKERS ...]` asks a stub that answers in
100 ms, without any limit, through a Ray cluster on this machine (or that of
RAY_ADDRESS). Each worker has as many requests in flight as the others, so that a
worker more brings its share until the driver or this machine has no time left. For 0
workers this process sends, with as many in flight as the most workers together. The
time is that from the first request to the last reply, without the start of the
workers. It needs the extra `cluster`. It is no test: nothing fails.
"""

import os
import sys
import time
from tempfile import TemporaryDirectory
from typing import NamedTuple

from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run import plan_run
from tests.benchmarks.stub import Stub

MODEL = "stub-wait0.1"
IN_FLIGHT = 16  # of each worker: two cores have time for two of them
N_ROUNDS = 60
GOAL = 1.6  # times the requests of one, for two workers


class Measured(NamedTuple):
    """What so many workers complete: requests a second, and CPU seconds for each."""

    per_second: float
    cpu_s: float  # of this process, which bounds how many there can be


def measure(stub: Stub, n_workers: int, in_flight: int) -> Measured:
    """Send a run from so many workers; from this process for 0."""
    n_trials = in_flight * N_ROUNDS
    with TemporaryDirectory() as folder:
        base_url = f"http://127.0.0.1:{stub.port}/v1"
        os.environ["SVC_BASE_URL"] = base_url
        settings = Settings(base_url=base_url, ledger=f"{folder}/l.sqlite")
        session = Session(settings)
        rows = [str(number) for number in range(n_trials)]
        run = plan_run(session, "Say {{text}}", rows=rows, model=MODEL)
        run.in_flight = in_flight
        on = "ray" if n_workers else None
        run.start(on=on, workers=n_workers or None, is_drawn=False)
        began_s = time.process_time()
        run.wait()
        cpu_s = (time.process_time() - began_s) / n_trials
        found = [*session.ledger.read(texts=False)]
        session.close()
    began_at = min(each.started_at for each in found)
    ended_at = max(each.ended_at for each in found)
    return Measured(len(found) / (ended_at - began_at).total_seconds(), cpu_s)


def main() -> None:
    """Measure and print."""
    os.environ["SVC_API_KEY"] = "key-of-the-benchmark"
    counts = [int(count) for count in sys.argv[1:]] or [0, 1, 2, 4]
    with Stub.running() as stub:
        of_one = 0.0
        for n_workers in counts:
            in_flight = IN_FLIGHT * (n_workers or max(*counts, 1))
            per_second, cpu_s = measure(stub, n_workers, in_flight)
            of_one = per_second if n_workers == 1 else of_one
            times = per_second / of_one if of_one and n_workers else 0.0
            sys.stdout.write(
                f"{n_workers} workers: {per_second:.0f} requests/s of at most "
                f"{in_flight / 0.1:.0f}; "
                + (f"{times:.2f} times one (goal for 2: {GOAL}); " if times else "")
                + f"{cpu_s * 1000:.2f} ms of CPU a request here, "
                f"which allows {1 / cpu_s:.0f}/s\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()

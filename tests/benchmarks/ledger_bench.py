"""What the ledger costs in CPU: an append, and reading it into frames.

`python tests/benchmarks/ledger_bench.py [ROWS]` prints microseconds of CPU an append;
how long exchanges take to become a frame, beside `pandas.DataFrame` on ready lists of
the same values in the same columns, whose dtypes pandas infers; and reading the file
with and without texts. It is no test: nothing fails. Texts, tokens and times differ
from row to row, as they do; model, run and parameters do not.
"""

import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import REPLIES, exchange_batch
from svc_notebook.ledger.reply_frames import replies_df, replies_frame
from svc_notebook.ledger.usage import usage_df
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request

N_ROWS = 100_000
MODEL = "svc-v2-8b-instruct"
REPLY = "The sea is wide and blue, and it is never still. " * 12


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def exchange(number: int) -> Exchange:
    """Make an exchange of a sweep as it comes from the service."""
    started_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    n_tokens = 80 + number % 60
    usage = Usage(
        prompt_tokens=10, completion_tokens=n_tokens, total_tokens=10 + n_tokens
    )
    latency_s = 0.3 + number % 997 / 500
    return Exchange(
        exchange_id=f"{number:032x}",
        origin=Origin(kind="sweep", run="run-1", request_key=f"{number:016}", repeat=0),
        endpoint="https://service.test/v1",
        request=build_request(
            f"Describe sea number {number}.", model=MODEL, params={"temperature": 0.2}
        ),
        body=CompletionBody(
            id=f"c{number}",
            created=1_767_225_600 + number,
            model=MODEL,
            choices=(Choice(text=f"{number}. {REPLY}", finish_reason="stop"),),
            usage=usage,
        ),
        latency_s=latency_s,
        started_at=started_at,
        ended_at=started_at + timedelta(seconds=latency_s),
        est_prompt_tokens=9,
        est_completion_tokens=200 + number % 9,
    )


def cpu_s(work: Callable[[], object], n_times: int = 3) -> float:
    """Return the least CPU that work took, in seconds."""
    found = []
    for _ in range(n_times):
        began_s = time.process_time()
        work()
        found.append(time.process_time() - began_s)
    return min(found)


def main(n_rows: int) -> None:
    """Measure, and print the report."""
    exchanges = [exchange(number) for number in range(min(n_rows, N_ROWS))]
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite", session_id="bench")
        ledger.check()
        began_s = time.process_time()
        for at, each in enumerate(exchanges, start=1):
            receipt = ledger.add(each)
            if at % 64 == 0 or at == len(exchanges):  # as many as a sweep has at once
                receipt.result()
        append_s = time.process_time() - began_s
        say(f"append {append_s / len(exchanges) * 1e6:.1f} us of CPU")
        for number in range(len(exchanges), n_rows):
            ledger.add(exchange(number)).result()
        batch = exchange_batch(exchanges)
        lists = {column.name: column.read(batch) for column in REPLIES}
        ready_s = cpu_s(partial(pd.DataFrame, lists))
        made_s = cpu_s(partial(replies_frame, exchanges))
        say(
            f"{len(exchanges)} exchanges to a frame {made_s:.2f} s, ready lists "
            f"{ready_s:.2f} s: {made_s / ready_s:.2f} times"
        )
        del exchanges, batch, lists
        for texts in (False, True):
            began_s = time.process_time()
            replies_df(ledger, texts=texts)
            read_s = time.process_time() - began_s
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            say(
                f"{n_rows} rows read, texts={texts}: {read_s:.1f} s of CPU, "
                f"{peak_mb:.0f} MB at most so far"
            )
        say(f"usage_df: {cpu_s(lambda: usage_df(ledger), n_times=1):.1f} s of CPU")
        ledger.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else N_ROWS)

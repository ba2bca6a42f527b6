"""What a sweep costs, and whether it ends when it said it would.

`python tests/benchmarks/sweep_bench.py` asks four models at the emulator's real
limits and prints how long it took beside the computed time, and how many refusals
(429) there were; then what planning and asking cost in CPU and memory for very many
trials, and what reading a finished run costs, beside `pandas.DataFrame` on ready lists
of the same values. `--quick` leaves the real limits out, which take over two minutes;
`--frames` only reads a run. It is no test: nothing fails, but the last line of each
part says whether the target was met.
"""

import asyncio
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd

from svc_notebook.analysis.compare import compare
from svc_notebook.analysis.summary import summary_df
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.estimate import forecast
from svc_notebook.sweeps.grid import Grid, Trial
from svc_notebook.sweeps.plan import Plan, build_grid
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.scheduler import (
    Answered,
    Outcome,
    PendingTrials,
    Scheduler,
    blocks,
    by_model,
)

MODELS = [
    "svc-v1.5-instruct",
    "svc-v1.5x-70b-instruct",
    "svc-v2-8b-instruct",
    "svc-v2-70b-instruct",
]
PER_MODEL = 130
SLACK = 1.03


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def at_real_limits() -> None:
    """Ask four models as fast as their limits allow."""
    with (
        TemporaryDirectory() as folder,
        Emulator(tokens_per_s=None, first_token_s=0.3, text="filler") as emulator,
    ):
        os.environ.update(
            XDG_DATA_HOME=folder,
            SVC_BASE_URL=emulator.base_url,
            SVC_API_KEY=emulator.api_key,
        )
        session = Session(
            Settings(base_url=emulator.base_url, ledger=f"{folder}/ledger.sqlite")
        )
        run = plan_run(session, "Hi", model=MODELS, repeats=PER_MODEL)
        computed_s = forecast(run.grid.n_by_model)[0].last_sent_s or 0.0
        say(f"{len(run)} requests to {len(MODELS)} models: {computed_s:.1f} s computed")
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        run.run()
        took_s = time.monotonic() - began_s
        cpu_s = time.process_time() - began_cpu_s
        frame = run.replies_df()
        # a trial that is asked again after a 429 has another exchange
        n_refused = int(run.usage_df(include_emulated=True)["n_refused"].sum())
        session.close()
    say(f"took {took_s:.1f} s ({took_s / computed_s:.3f}), {cpu_s:.1f} s of CPU")
    is_met = took_s <= SLACK * computed_s and not n_refused
    n_ok = int((frame["status"] == "ok").sum())
    say(f"{n_ok} ok, {n_refused} refusals: {'met' if is_met else 'NOT MET'}")


class _AtOnce:
    """Answers at once, without a client."""

    def limiter(self, _model: str) -> None:
        pass

    async def send_trial(self, _cell: Trial) -> Outcome:
        return Answered()


def _pulled(grid: Grid) -> dict[str, PendingTrials]:
    def pull(model: str, combinations: object) -> Iterator[Trial]:
        order = blocks(combinations, repeats=grid.repeats, seed=1, model=model)  # type: ignore[arg-type]  # as by_model gives them
        return (grid.trial(*number) for number in order)

    return {
        model: PendingTrials(
            pull=pull(model, combinations), n_trials=len(combinations) * grid.repeats
        )
        for model, combinations in by_model(grid).items()
    }


def many_cells(n_rows: int) -> None:
    """Ask very many trials with nobody behind, and see what that takes."""
    tracemalloc.start()
    rows = [f"text number {number}" for number in range(n_rows)]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    began_s = time.process_time()
    grid = build_grid(
        "{{text}}", varied={"model": ["a", "b"], "temperature": [0, 1]}, rows=rows
    )
    trials = _pulled(grid)
    planned_s = time.process_time() - began_s
    scheduler = Scheduler(trials, _AtOnce(), clock=time.monotonic)
    asyncio.run(scheduler.run())
    asked_s = time.process_time() - began_s - planned_s
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    us = asked_s / len(grid) * 1e6
    say(
        f"{len(grid):8} trials: planned in {planned_s:.1f} s, {us:.0f} us of CPU each "
        f"(traced), {peak / 2**20:.1f} MB, {peak / len(grid):.0f} bytes a trial"
    )


def finished_run(session: Session, n_rows: int) -> Run:
    """Put the replies of a run into the ledger, and open the run again."""

    def opened() -> Run:
        return plan_run(
            session,
            "Describe {{text}}",
            model=MODELS[:2],
            rows=[f"sea number {number}" for number in range(n_rows)],
            temperature=[0, 1],
            name="finished",
        )

    run, began_at = opened(), datetime(2026, 1, 1, tzinfo=UTC)
    for at, trial in enumerate(run.grid):
        n_tokens = 80 + at % 60
        text = f"{at}. " + "The sea is wide and blue, and it is never still. " * 12
        started_at = began_at + timedelta(seconds=at)
        receipt = session.ledger.add(
            Exchange(
                exchange_id=f"{at:032x}",
                origin=Plan(
                    grid=run.grid,
                    name=run.name,
                    run_id=run.run_id,
                    seed=run.plan.seed,
                ).origin_of(trial),
                endpoint="https://service.test/v1",
                request=trial.request,
                body=CompletionBody(
                    id=f"c{at}",
                    created=1_767_225_600 + at,
                    model=trial.model,
                    choices=(Choice(text=text, finish_reason="stop"),),
                    usage=Usage(
                        prompt_tokens=9,
                        completion_tokens=n_tokens,
                        total_tokens=9 + n_tokens,
                    ),
                ),
                latency_s=0.3 + at % 997 / 500,
                started_at=started_at,
                ended_at=started_at + timedelta(seconds=1),
                est_prompt_tokens=9,
                est_completion_tokens=200,
            )
        )
        if at % 64 == 0:
            receipt.result()
    session.ledger.flush()
    return opened()


class Figure(NamedTuple):
    """One figure of the table: what it is, its goal, and what was measured."""

    what: str
    goal: str
    unit: str
    here: float
    others: str = ""


def least_cpu_s(work: Callable[[], Any], n_times: int = 3) -> float:
    """Return the least CPU that work took, in seconds."""
    found = []
    for _ in range(n_times):
        began_s = time.process_time()
        work()
        found.append(time.process_time() - began_s)
    return min(found)


def reading(n_rows: int) -> Iterator[Figure]:
    """Read a finished run in each way, beside what pandas takes."""
    with TemporaryDirectory() as folder:
        session = Session(
            Settings(
                base_url="https://service.test/v1", ledger=f"{folder}/ledger.sqlite"
            )
        )
        run = finished_run(session, n_rows)
        looked_s = least_cpu_s(lambda: (run.n_todo, repr(run)), n_times=1)
        n = f"{len(run):,} replies".replace(",", " ")
        yield Figure(f"finished run of {n}: n_todo, repr", "0.5", "s of CPU", looked_s)
        frame = run.replies_df()
        lists = {name: frame[name].tolist() for name in frame}
        ready_s = least_cpu_s(partial(pd.DataFrame, lists))
        del lists
        ways: tuple[tuple[str, str, Callable[[], Any]], ...] = (
            ("run.replies_df", "1.5", run.replies_df),
            ("svc.replies_df", "1.5", lambda: replies_df(session.ledger)),
            ("svc.summary_df", "0.2", partial(summary_df, frame)),
            ("run.plan_df", "1", run.plan_df),
            ("svc.compare", "0.5", partial(compare, frame)),
        )
        for name, goal, work in ways:
            ratio = least_cpu_s(work) / ready_s
            unit = "x pandas.DataFrame on ready lists"
            yield Figure(f"{n}: {name}, CPU", goal, unit, ratio)
        session.close()


def say_figures() -> None:
    """Print what reading a run costs."""
    for each in reading(25_000):
        say(f"{each.what}: {each.here:.2f} {each.unit} (goal {each.goal})")


def main() -> None:
    """Measure and print."""
    if "--frames" in sys.argv:
        say_figures()
        return
    for n_rows in (1_000, 25_000):
        many_cells(n_rows)
    say_figures()
    if "--quick" not in sys.argv:
        at_real_limits()


if __name__ == "__main__":
    main()

"""How often contrasts that few labels correct hold the truth, and how narrow they are.

`python -m tests.benchmarks.labels_bench [RUNS]` simulates studies (500, seeded) of two
models on 500 rows, with a judge's verdict of every reply and labels of 30 to 100 rows,
drawn at random. Judges find so many of the good replies (sensitivity) and of the bad
ones (specificity); one that is biased also calls 15 % of one model's bad replies good
that it would call bad. The table says how often the interval of
`svc.contrast(..., labels=...)` holds the true difference, and how wide it is compared
with that of the labels alone. It is no test: nothing fails. The page statistics.md has
the table.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

import svc_notebook as svc
from tests.benchmarks.coverage_bench import MODELS, SEED, asked, chances

N_RUNS, N_ROWS = 500, 500
N_LABELS = (30, 50, 100)
RATES = (0.7, 0.5)
BIAS = 0.15
JUDGES: dict[str, tuple[float, float, float]] = {
    f"{sensitivity}, {specificity}{', biased' if bias else ''}": (
        sensitivity,
        specificity,
        bias,
    )
    for (sensitivity, specificity), bias in product(
        ((0.6, 0.6), (0.6, 0.95), (0.8, 0.8), (0.9, 0.9), (0.95, 0.95)), (0.0, BIAS)
    )
}
"""Sensitivity, specificity, and how much one model is favoured."""


class Seen(NamedTuple):
    """What was seen in simulated studies.

    Attributes:
        held: The share of intervals that hold the truth.
        width: Their mean width, by that of the labels alone.
    """

    held: float
    width: float


def simulated(judge: str, n_labels: int, n_runs: int) -> Seen:
    """Simulate studies with a judge, and with labels of so many rows."""
    sensitivity, specificity, bias = JUDGES[judge]
    rng = np.random.default_rng([SEED, n_labels])
    df = asked(N_ROWS)
    is_old = (df["model"] == MODELS[0]).to_numpy(dtype=bool)
    row = df["row"].to_numpy(dtype=int)
    rate, truth = np.where(is_old, *RATES), RATES[0] - RATES[1]
    held, widths = [], []
    for _ in range(n_runs):
        is_good = rng.random(len(df)) < chances(rng, df, rate)
        wrongly = 1 - specificity * (1 - bias * is_old)
        df["score_judge"] = rng.random(len(df)) < np.where(
            is_good, sensitivity, wrongly
        )
        is_labelled = (rng.permutation(N_ROWS) < n_labels)[row]
        df["score_rated"] = np.where(is_labelled, is_good, np.nan)
        ends = [
            svc.contrast(df, "model", on, against=MODELS[1], labels=labels).df.iloc[0]
            for on, labels in (("judge", "rated"), ("rated", None))
        ]
        held.append(ends[0]["low"] <= truth <= ends[0]["high"])
        widths.append([one["high"] - one["low"] for one in ends])
    corrected, alone = np.mean(widths, axis=0)
    return Seen(float(np.mean(held)), float(corrected / alone))


def table(n_runs: int) -> str:
    """Simulate studies in two processes, and return their table."""
    cells = list(product(JUDGES, N_LABELS))
    with ProcessPoolExecutor(2) as pool:
        seen = dict(
            zip(
                cells,
                pool.map(simulated, *zip(*cells, strict=True), [n_runs] * len(cells)),
                strict=True,
            )
        )
    heads = " | ".join(f"{n} labels | width" for n in N_LABELS)
    lines = [f"| {n_runs} studies, judge | {heads} |"]
    lines += ["|---|" + "---|---|" * len(N_LABELS)]
    for judge in JUDGES:
        numbers = " | ".join(
            f"{seen[judge, n].held:.1%} | {seen[judge, n].width:.0%}".replace("%", " %")
            for n in N_LABELS
        )
        lines += [f"| {judge} | {numbers} |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS))

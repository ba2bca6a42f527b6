"""How often the intervals of a ranking hold the truth, in simulated studies.

`python -m tests.benchmarks.ranking_bench` prints the share of intervals of strengths
that hold the truth, which is meant to be 0.92 to 0.98, and how many studies have the
best candidate in their best set, 0.95 or more. A number after it is how many studies a
cell has, 500 if left out. It is no test: nothing fails.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations

import numpy as np
import pandas as pd

from svc_notebook.analysis.ranking import ranking
from svc_notebook.panels.compared_replies import MAX_COMPARED

N_STUDIES = 500
N_UNITS = (20, 30, 100)
STRENGTHS = {
    "2 alike": (0.0, 0.0),
    "2 unlike": (0.5, -0.5),
    "3 alike": (0.0, 0.0, 0.0),
    "3 unlike": (0.6, 0.0, -0.6),
    "4 alike": (0.0, 0.0, 0.0, 0.0),
    "4 unlike": (0.8, 0.3, 0.0, -1.1),
    "6 alike": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "6 unlike": (1.0, 0.6, 0.2, -0.2, -0.6, -1.0),
}
KINDS = {
    "all pairs": ("2", "3", "6"),
    "all pairs, ties": ("2", "3", "6"),
    "one pair, ties": ("3", "6"),
    "a rater's ten pairs": ("2", "3", "6"),
    "picks": ("3", "4", "6"),  # among four at most, as in a panel
}
TIES = 0.5  # how likely ties are (Davidson's nu)
RATERS_DIFFER = 0.7  # the standard deviation of a candidate's strength over raters
SEED = 7
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Rows = Iterator[tuple[int, int, str]]


def unit_of(kind: str, truth: Floats, random: np.random.Generator) -> Rows:
    """Return the comparisons of one unit: left, right and the winner."""
    every = list(combinations(range(len(truth)), 2))
    if kind == "picks":
        shown = random.permutation(len(truth))[:MAX_COMPARED]
        weights = np.exp(truth[shown])
        best = int(random.choice(shown, p=weights / weights.sum()))
        yield from ((best, int(other), "left") for other in shown if other != best)
        return
    if kind == "one pair, ties":
        every = [every[random.integers(len(every))]]
    if kind == "a rater's ten pairs":
        truth = truth + random.normal(0, RATERS_DIFFER, len(truth))
        every = [every[at] for at in random.integers(len(every), size=10)]
    for left, right in every:
        tie = TIES * np.exp((truth[left] + truth[right]) / 2) * kind.endswith("ties")
        weights = np.array([np.exp(truth[left]), np.exp(truth[right]), tie])
        side = int(random.random() * weights.sum() > weights[0])
        side += int(side and random.random() * weights[1:].sum() > weights[1])
        yield left, right, ("left", "right", "tie")[side]


def held(kind: str, name: str, n_units: int, n_studies: int) -> tuple[float, float]:
    """Return the shares of intervals, and of best sets, that hold the truth."""
    truth = np.array(STRENGTHS[name])
    inside, has_best = 0.0, 0
    random = np.random.default_rng(SEED)
    for _ in range(n_studies):
        rows = [
            (str(left), str(right), winner, unit)
            for unit in range(n_units)
            for left, right, winner in unit_of(kind, truth, random)
        ]
        pairs = pd.DataFrame(rows, columns=["left", "right", "winner", "row"])
        df = ranking(pairs).df
        centred = (truth - truth.mean())[df["candidate"].astype(int)]
        inside += float(((df["low"] <= centred) & (centred <= df["high"])).mean())
        has_best += bool(df["is_best"][df["candidate"] == "0"].any())
    return inside / n_studies, has_best / n_studies


def line(kind: str, name: str, n_studies: int) -> str:
    """Return a line of the table."""
    numbers = [held(kind, name, n_units, n_studies) for n_units in N_UNITS]
    cells = " | ".join(f"{share:.3f}, {best:.3f}" for share, best in numbers)
    return f"| {name}, {kind} | {cells} |"


def main() -> None:
    """Simulate and print."""
    n_studies = int(sys.argv[1]) if len(sys.argv) > 1 else N_STUDIES
    heads = " | ".join(f"{n_units} units" for n_units in N_UNITS)
    sys.stdout.write(
        f"| {n_studies} studies: held, best set | {heads} |\n{'|---' * 4}|\n"
    )
    rows = [
        (kind, name, n_studies)
        for kind, sizes in KINDS.items()
        for name in STRENGTHS
        # raters who differ make the strengths of all of them smaller, unless alike
        if name[0] in sizes and (name.endswith(" alike") or "rater" not in kind)
    ]
    with ProcessPoolExecutor() as workers:
        for text in workers.map(line, *zip(*rows, strict=True)):
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

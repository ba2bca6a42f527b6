"""How often checks of a model are wrong, and how soon they find that it got worse.

`python -m tests.benchmarks.recheck_bench [SERIES]` simulates series of checks (60,
seeded) of a run of 300 rows that a model gets right in 85 of 100 cases, and prints

- "false": in how many series of 50 checks of 40 rows a model that did not change is
  once said to have changed, of which 5 % at most are meant;
- "drop": in how many series a drop of 10 points is found by the third check of 80
  rows.

Rows differ in how hard they are: in some worlds the replies to a row are nearly always
the same ones, as at temperature 0, in others each reply is a draw. The first column has
how often one of two replies to a row is right and the other one is wrong.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from svc_notebook.analysis.change_rule import ChangeRule, CheckedReplies, change_of
from svc_notebook.analysis.statistics import Floats

N_SERIES, N_ROWS, N_WEEKS, N_OF_WEEK = 60, 300, 50, 40
N_LATER, N_OF_LATER = 3, 80
SEED = 20261128
RATE, DROP, ALARM, MARGIN = 0.85, 0.10, 0.05, 0.05
SPREADS = (15.0, 6.0, 3.0, 1.5)
"""How far the logits of rows spread: the further, the more alike are two replies."""
REPEATS = (1, 3)
_MANY = 200_000
_STEPS = 50


@cache
def centre(rate: float, spread: float) -> float:
    """Return the logit around which rows spread so that this share is right."""
    low, high = -60.0, 60.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        mean = chances(np.random.default_rng(SEED), _MANY, middle, spread).mean()
        low, high = (middle, high) if mean < rate else (low, middle)
    return (low + high) / 2


def chances(
    rng: np.random.Generator, n_rows: int, middle: float, spread: float
) -> Floats:
    """Return how likely the reply to each row is right."""
    logits = middle + spread * rng.normal(size=n_rows)
    right: Floats = 1 / (1 + np.exp(-logits))
    return right


def how_often_differs(spread: float) -> float:
    """Return how often one of two replies to a row is right and the other is not."""
    right = chances(np.random.default_rng(SEED), _MANY, centre(RATE, spread), spread)
    return float(2 * (right * (1 - right)).mean())


def series(
    spread: float, repeats: int, n_rows: int, drop: float
) -> Iterator[Iterator[CheckedReplies]]:
    """Yield one simulated series after another, each check by check."""
    rng = np.random.default_rng([SEED, round(10 * spread), repeats, n_rows])
    while True:
        logits = spread * rng.normal(size=N_ROWS)
        before, now = (
            1 / (1 + np.exp(-(logits + centre(rate, spread))))
            for rate in (RATE, RATE - drop)
        )
        yield _checks(rng, before, now, repeats, n_rows)


def _checks(
    rng: np.random.Generator, before: Floats, now: Floats, repeats: int, n_rows: int
) -> Iterator[CheckedReplies]:
    row = np.repeat(np.arange(N_ROWS), repeats)
    value = (rng.random(len(row)) < before[row]).astype(float)
    check = np.zeros(len(row), dtype=int)
    order = rng.permutation(N_ROWS)
    for number in range(1, N_WEEKS + 1):
        sent = order[np.arange((number - 1) * n_rows, number * n_rows) % N_ROWS]
        row = np.concatenate([row, sent])
        value = np.concatenate([value, rng.random(len(sent)) < now[sent]])
        check = np.concatenate([check, np.full(len(sent), number)])
        yield CheckedReplies(check, row, row, row, value)


def is_alarmed(
    checks: Iterator[CheckedReplies], n_checks: int, *, is_drop: bool
) -> bool:
    """Say whether one of the first checks says that the model has changed."""
    rule = ChangeRule(margin=MARGIN, tail=ALARM / 2)
    for checked, _ in zip(checks, range(n_checks), strict=False):
        change = change_of(checked, rule)
        if change.excess <= 1:  # as the verdict is, without its interval
            return not is_drop or change.sequence.value < 0
    return False


class Cell(NamedTuple):
    """What came out in a world, as shares."""

    false: float
    drop: float


def cell(spread: float, repeats: int, n_series: int) -> Cell:
    """Simulate a model that does not change, and one that gets worse."""
    same = series(spread, repeats, N_OF_WEEK, 0.0)
    worse = series(spread, repeats, N_OF_LATER, DROP)
    false = [is_alarmed(next(same), N_WEEKS, is_drop=False) for _ in range(n_series)]
    found = [is_alarmed(next(worse), N_LATER, is_drop=True) for _ in range(n_series)]
    return Cell(float(np.mean(false)), float(np.mean(found)))


def name_of(spread: float, repeats: int) -> str:
    """Return what a world is called in the table."""
    replies = "1 reply" if repeats == 1 else f"{repeats} replies"
    return f"two differ in {100 * how_often_differs(spread):.0f} %, {replies} a row"


def main() -> None:
    """Simulate and print."""
    n_series = int(sys.argv[1]) if len(sys.argv) > 1 else N_SERIES
    cases = list(product(SPREADS, REPEATS))
    with ProcessPoolExecutor(2) as pool:
        cells = list(
            pool.map(
                cell,
                [spread for spread, _ in cases],
                [repeats for _, repeats in cases],
                [n_series] * len(cases),
            )
        )
    lines = [f"| {n_series:,} series | false | drop |", "|---|---|---|"]
    lines += [
        f"| {name_of(*case)} | {100 * one.false:.1f} % | {100 * one.drop:.0f} % |"
        for case, one in zip(cases, cells, strict=True)
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

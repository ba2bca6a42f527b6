"""How often a question that ends is decided wrongly, and how soon it ends.

`python -m tests.benchmarks.decide_bench [STUDIES]` simulates studies (1000, seeded) of
2, 3 and 5 models that are looked at after each block of 40 rows, up to 2 400 rows, and
prints how many end in a false decision, of which 5 % at most are meant:

- "equal": no model is better, no margin is given, and one is called better;
- "at the margin": the dear model is better by exactly the margin, 5 points, and a cheap
  one is called at most that much worse.

The last columns are of a dear model that is better than the others by twice the margin:
the median of requests until it is chosen, and of how many of those of the fixed plan
that finds a difference of the margin in 8 of 10 studies. Rows differ in how hard they
are, and models differ by row; "units of five" are documents of five rows.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import combinations, product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from svc_notebook.analysis.sequential import BettingSequence
from svc_notebook.analysis.statistics import Floats
from svc_notebook.analysis.stopping_rule import chosen, unbeaten
from tests.benchmarks.coverage_bench import right

N_STUDIES, N_ROWS, BLOCK_ROWS = 1000, 2400, 40
SEED = 20261127
MARGIN, BEST, ALARM, POWER = 0.05, 0.8, 0.05, 0.8
VALUES, ROWS_OF_UNIT = (2, 3, 5), (1, 5)
DEAR = 0  # the number of the value that is better, if one is


class Ended(NamedTuple):
    """How a study ended: with which value, or None, and after how many requests."""

    value: int | None
    n_requests: int


def rates(n_values: int, gap: float) -> tuple[float, ...]:
    """Return the rate of the dear value, and those of the others."""
    return (BEST, *[BEST - gap] * (n_values - 1))


def units_of(
    rng: np.random.Generator, truth: tuple[float, ...], rows_of_unit: int, n_rows: int
) -> Floats:
    """Return the mean score of each unit (rows) with each value (columns)."""
    scores, _ = right(*truth)(rng, 1, n_rows // rows_of_unit, rows_of_unit)
    means: Floats = scores[:, 0].mean(axis=-1).T
    return means


def study(units: Floats, rows_of_unit: int, margin: float | None) -> Ended:
    """Decide about values, with a look after each block, as `run.decide` does."""
    n_units, n_values = units.shape
    tail = ALARM / 2 / len(list(combinations(range(n_values), 2)))
    costs = {value: float(value == DEAR) for value in range(n_values)}
    asked, n_requests, block = list(range(n_values)), 0, BLOCK_ROWS // rows_of_unit
    for end in range(block, n_units + 1, block):
        n_requests += block * rows_of_unit * len(asked)
        seen = units[:end]
        sequences = {
            (one, other): BettingSequence.of(seen[:, one] - seen[:, other])
            for one, other in combinations(asked, 2)
        }

        def is_above(one: int, other: int, null: float) -> bool:
            if one < other:
                return sequences[one, other].chances(null).above <= tail  # noqa: B023 - used at once
            return sequences[other, one].chances(-null).below <= tail  # noqa: B023 - used at once

        asked = unbeaten(asked, is_above)
        means = dict(enumerate(seen.mean(axis=0).tolist()))
        value = chosen(asked, is_above, margin=margin, costs=costs, means=means)
        if value is not None:
            return Ended(value, n_requests)
    return Ended(None, n_requests)


def studies(
    n_values: int, gap: float, rows_of_unit: int, *, margin: float | None
) -> Iterator[Ended]:
    """Yield how one simulated study after another ended."""
    rng = np.random.default_rng([SEED, n_values, rows_of_unit, round(1000 * gap)])
    truth = rates(n_values, gap)
    while True:
        yield study(units_of(rng, truth, rows_of_unit, N_ROWS), rows_of_unit, margin)


@cache
def n_fixed(n_values: int, rows_of_unit: int) -> int:
    """Return the requests of the plan that finds the margin in 8 of 10 studies."""
    rng = np.random.default_rng(SEED)
    units = units_of(rng, (BEST, BEST - MARGIN), rows_of_unit, 500_000)
    spread = float((units[:, 0] - units[:, 1]).std())
    n_pairs = n_values * (n_values - 1) // 2
    quantile = NormalDist().inv_cdf
    reach = quantile(1 - ALARM / 2 / n_pairs) + quantile(POWER)
    return int(np.ceil((reach * spread / MARGIN) ** 2)) * rows_of_unit * n_values


def name_of(n_values: int, rows_of_unit: int) -> str:
    """Return what a case is called in the table."""
    return f"{n_values} values{', units of five' if rows_of_unit > 1 else ''}"


class Cell(NamedTuple):
    """What came out for a number of values and a size of units, as shares."""

    equal: float
    at_the_margin: float
    found: float
    n_median: float
    n_fixed: int


def cell(n_values: int, rows_of_unit: int, n_studies: int) -> Cell:
    """Simulate all three truths."""

    def ended(gap: float, margin: float | None) -> list[Ended]:
        told = studies(n_values, gap, rows_of_unit, margin=margin)
        return [next(told) for _ in range(n_studies)]

    equal, at_the_margin = ended(0.0, None), ended(MARGIN, MARGIN)
    twice = ended(2 * MARGIN, MARGIN)
    return Cell(
        equal=float(np.mean([one.value is not None for one in equal])),
        at_the_margin=float(
            np.mean([one.value not in {None, DEAR} for one in at_the_margin])
        ),
        found=float(np.mean([one.value == DEAR for one in twice])),
        n_median=float(np.median([one.n_requests for one in twice])),
        n_fixed=n_fixed(n_values, rows_of_unit),
    )


def main() -> None:
    """Simulate and print."""
    n_studies = int(sys.argv[1]) if len(sys.argv) > 1 else N_STUDIES
    cases = list(product(ROWS_OF_UNIT, VALUES))
    with ProcessPoolExecutor(2) as pool:
        cells = list(
            pool.map(
                cell,
                [n_values for _, n_values in cases],
                [rows for rows, _ in cases],
                [n_studies] * len(cases),
            )
        )
    heads = "false, equal | false, at the margin | found, twice the margin"
    heads += " | requests, median | of the fixed plan"
    lines = [f"| {n_studies} studies | {heads} |", "|---" * 6 + "|"]
    for (rows, n_values), one in zip(cases, cells, strict=True):
        shares = (one.equal, one.at_the_margin, one.found)
        seen = " | ".join(f"{100 * share:.1f} %" for share in shares)
        ratio = f"{one.n_median / one.n_fixed:.2f} of {one.n_fixed:,}"
        lines.append(
            f"| {name_of(n_values, rows)} | {seen} | {one.n_median:,.0f} | {ratio} |"
        )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

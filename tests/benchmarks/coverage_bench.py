"""How often intervals hold what was planted, and how often nothing is called something.

`python tests/benchmarks/coverage_bench.py [RUNS]` simulates studies (4000, seeded) of
10 to 200 prompts with 1, 3 and 10 repeats and prints the share of intervals that hold
the truth; 0.93 to 0.99 is meant, and of false alarms, of which 0.05 are meant. With
4000 runs a share of 0.95 is seen as 0.943 to 0.957. With 400 it is seen as 0.93 to
0.97, so that chance alone takes about 4 of the 144 cases below 0.93. It is no test:
nothing fails. Prompts differ in how hard they are, and models differ by prompt, as they
do in real studies.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special

from svc_notebook.analysis.differences import paired, shares
from svc_notebook.analysis.statistics import (
    Floats,
    Prompts,
    means,
    rates,
)

N_RUNS = 4000
LEAST, MOST, ALARM = 0.93, 0.99, 0.05
REPEATS = (1, 3, 10)
PROMPTS = (10, 20, 50, 200)
SEED = 20260131
_PROMPT_SD, _MODEL_SD = 1.5, 0.7  # on the scale of logits
_NORMALS = np.random.default_rng(0).normal(size=200_000)
Draw = Callable[..., tuple[Any, list[float]]]
"""Draws runs: the values by model, run, prompt and repeat, and the true means."""
Tell = Callable[..., Any]
"""Tells of so many runs, prompts and repeats in which runs something is so."""


@cache
def logit_of(rate: float) -> float:
    """Return the logit around which prompts have this rate on average."""
    low, high = -20.0, 20.0
    spread = _NORMALS * np.hypot(_PROMPT_SD, _MODEL_SD)
    for _ in range(50):
        middle = (low + high) / 2
        is_low = float((1 / (1 + np.exp(-(middle + spread)))).mean()) < rate
        low, high = (middle, high) if is_low else (low, middle)
    return low


def right(*truth: float) -> Draw:
    """Return studies of models that are right so often."""

    def draw(rng: np.random.Generator, *size: int) -> tuple[Any, list[float]]:
        n_runs, n_prompts, n_repeats = size
        shape = len(truth), n_runs, n_prompts, 1
        logits = np.array([logit_of(rate) for rate in truth])[:, None, None, None]
        logits = logits + rng.normal(size=(1, *shape[1:])) * _PROMPT_SD
        chance = 1 / (1 + np.exp(-(logits + rng.normal(size=shape) * _MODEL_SD)))
        return rng.random((*shape[:3], n_repeats)) < chance, list(truth)

    return draw


def scored(*truth: float, is_skewed: bool = False) -> Draw:
    """Return studies of models with such mean scores; skewed ones are like seconds."""

    def draw(rng: np.random.Generator, *size: int) -> tuple[Any, list[float]]:
        shape = len(truth), *size
        prompt = rng.normal(size=(1, *shape[1:3], 1)) * 0.4
        model = rng.normal(size=(*shape[:3], 1)) * 0.2
        noise = prompt + model + rng.normal(size=shape) * 0.3
        centre = np.array(truth)[:, None, None, None]
        if is_skewed:
            variance = 0.4**2 + 0.2**2 + 0.3**2
            return centre * np.exp(noise - variance / 2), list(truth)
        return centre + noise, list(truth)

    return draw


def prompts_of(values: Any) -> Prompts:  # noqa: ANN401 - models, runs, prompts, repeats
    """Return what each prompt got; each model of each run is a group."""
    *_, n_prompts, n_repeats = values.shape
    group, prompt = np.divmod(np.arange(values.size) // n_repeats, n_prompts)
    n_groups = values.shape[0] * values.shape[1]
    return Prompts.of(values.ravel().astype(float), prompt, group, n_groups)


def holds(draw: Draw, *, is_rate: bool) -> Tell:
    """Return what tells in which runs the interval of a mean holds the truth."""

    def tell(rng: np.random.Generator, *size: int) -> Any:  # noqa: ANN401 - flags
        values, truth = draw(rng, *size)
        found = (rates if is_rate else means)(prompts_of(values))
        return (found.low <= truth[0]) & (truth[0] <= found.high)

    return tell


def compared(values: Any, *, is_rate: bool) -> Iterator[list[tuple[int, int, Any]]]:  # noqa: ANN401 - as above
    """Compare the models of each run in pairs, as `contrast_df` does."""
    n_models, n_runs, *_ = values.shape
    pairs = list(combinations(range(n_models), 2))
    by_prompt: Floats = values.mean(axis=3)
    steady = shares(prompts_of(values)).reshape(n_models, n_runs) if is_rate else None
    for run in range(n_runs):
        yield [
            (
                a,
                b,
                paired(
                    by_prompt[a, run] - by_prompt[b, run],
                    n_comparisons=len(pairs),
                    share=None if steady is None else steady[[a, b], run].mean(),
                ),
            )
            for a, b in pairs
        ]


def holds_all(draw: Draw, *, is_rate: bool) -> Tell:
    """Return what tells in which runs all intervals hold the differences at once."""

    def tell(rng: np.random.Generator, *size: int) -> Any:  # noqa: ANN401 - flags
        values, truth = draw(rng, *size)
        return [
            all(each.low <= truth[a] - truth[b] <= each.high for a, b, each in found)
            for found in compared(values, is_rate=is_rate)
        ]

    return tell


def alarms(draw: Draw, *, is_rate: bool) -> Tell:
    """Return what tells in which runs any p is below 0.05."""

    def tell(rng: np.random.Generator, *size: int) -> Any:  # noqa: ANN401 - flags
        values, _ = draw(rng, *size)
        return [
            any(each.p < ALARM for _, _, each in found)
            for found in compared(values, is_rate=is_rate)
        ]

    return tell


COVERED = {
    "mean": holds(scored(3.0), is_rate=False),
    "mean, skewed": holds(scored(3.0, is_skewed=True), is_rate=False),
    "rate 0.5": holds(right(0.5), is_rate=True),
    "rate 0.7": holds(right(0.7), is_rate=True),
    "rate 0.9": holds(right(0.9), is_rate=True),
    "3.0 against 2.8": holds_all(scored(3.0, 2.8), is_rate=False),
    "the same, skewed": holds_all(scored(3.0, 2.8, is_skewed=True), is_rate=False),
    "0.5 against 0.3": holds_all(right(0.5, 0.3), is_rate=True),
    "0.8 against 0.7": holds_all(right(0.8, 0.7), is_rate=True),
    "0.7 against 0.7": holds_all(right(0.7, 0.7), is_rate=True),
    "0.95 against 0.9": holds_all(right(0.95, 0.9), is_rate=True),
    "3 models, all 3 pairs": holds_all(right(0.8, 0.7, 0.5), is_rate=True),
}
ALARMS = {
    "2 means": alarms(scored(3.0, 3.0), is_rate=False),
    "2 rates of 0.7": alarms(right(0.7, 0.7), is_rate=True),
    "2 rates of 0.9": alarms(right(0.9, 0.9), is_rate=True),
    "4 rates of 0.7, any of 6": alarms(right(0.7, 0.7, 0.7, 0.7), is_rate=True),
}


def share(tell: Tell, n_prompts: int, n_repeats: int, n: int) -> float:
    """Return the share of simulated runs of which something is so."""
    rng = np.random.default_rng([SEED, n_prompts, n_repeats])
    return float(np.mean(tell(rng, n, n_prompts, n_repeats)))


def outcomes(n: int, more: float, fewer: float) -> Floats:
    """Return how likely so many prompts differ one way, and so many the other."""
    b, c = np.indices((n + 1, n + 1))
    rest = n - b - c
    ways = special.binom(n, b) * special.binom(n - b, c)
    found = ways * more**b * fewer**c * (1 - more - fewer) ** np.maximum(rest, 0)
    return np.where(rest < 0, 0.0, found)


def as_extreme(chance: Floats) -> Floats:
    """Return how likely as many or more differ one way, and no more the other."""
    return chance[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)


def least_held(truth: tuple[float, float], n: int) -> float:
    """Return how often any interval holds a difference of rates, each asked once.

    This is exact and for any interval that is monotone (Barnard 1947: what leaves out a
    difference does so, too, where more prompts differ that way, or fewer the other),
    treats both models alike and, whatever share of prompts differ, is wrong 0.05 of the
    time at most. It leaves out 0 wherever it leaves out what lies beyond.
    """
    prompt, *own = np.random.default_rng(SEED).normal(size=(3, len(_NORMALS)))
    first, second = (
        1 / (1 + np.exp(-(logit_of(rate) + prompt * _PROMPT_SD + each * _MODEL_SD)))
        for rate, each in zip(truth, own, strict=True)
    )
    chance = outcomes(
        n, float((first * (1 - second)).mean()), float((second * (1 - first)).mean())
    )
    shift = truth[0] - truth[1]
    some = np.linspace(0, (1 - shift) / 2, 200)
    wrong = [2 * as_extreme(outcomes(n, each, each)) for each in some]
    above = np.max(wrong, axis=0) <= ALARM
    wrong = [as_extreme(outcomes(n, each + shift, each).T) for each in some]
    below = np.max(wrong, axis=0) <= ALARM
    return 1 - float(chance[above].sum() + chance.T[below].sum())


def outside(held: dict[tuple[str, int, int], float]) -> Iterator[str]:
    """Say which cases lie outside what is meant, and of which nothing else can be."""
    for (name, n_repeats, n_prompts), seen in held.items():
        if LEAST <= seen <= MOST:
            continue
        line = f"outside: {name}, {n_prompts} prompts, repeats {n_repeats}: {seen:.3f}"
        if (name, n_repeats) == ("0.95 against 0.9", 1) and seen > MOST:
            least = least_held((0.95, 0.9), n_prompts)
            line += f"; no interval with 0.05 false alarms holds less than {least:.3f}"
        yield line


def main() -> None:
    """Simulate and print."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS
    held: dict[tuple[str, int, int], float] = {}
    for title, cases in (("held by intervals", COVERED), ("false alarms", ALARMS)):
        heads = (f"{n} prompts" for n in PROMPTS)
        lines = [f"\n| {title} | repeats | {' | '.join(heads)} |"]
        lines += ["|---|---|" + "---|" * len(PROMPTS)]
        for name, tell in cases.items():
            for n_repeats in REPEATS:
                found = [share(tell, n, n_repeats, n_runs) for n in PROMPTS]
                if cases is COVERED:
                    held |= {
                        (name, n_repeats, n): each
                        for n, each in zip(PROMPTS, found, strict=True)
                    }
                numbers = " | ".join(f"{each:.3f}" for each in found)
                lines += [f"| {name} | {n_repeats} | {numbers} |"]
        sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.write("".join(f"\n{line}" for line in outside(held)) + "\n")


if __name__ == "__main__":
    main()

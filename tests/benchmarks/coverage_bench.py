"""How often intervals hold what was planted, and how often nothing is called something.

`python -m tests.benchmarks.coverage_bench [RUNS]` simulates studies (4000, seeded) of
10 to 200 prompts with 1, 3 and 10 repeats and prints the share of intervals that hold
the truth; 0.93 to 0.99 is meant, and of false alarms, of which 0.05 are meant. With
4000 runs a share of 0.95 is seen as 0.943 to 0.957. With 400 it is seen as 0.93 to
0.97, so that chance alone takes about 4 of the 144 cases below 0.93. It is no test:
nothing fails. Prompts differ in how hard they are, and models differ by prompt, as they
do in real studies.

The last table is of studies as a user makes them, through `svc.contrast` and
`svc.summary_df`, with a tenth of the runs: rows of one document, rare differences,
unequal repeats, seconds, families, subgroups, margins, different rows. The page
statistics.md has it.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

import svc_notebook as svc
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


# Studies as a user makes them: a frame of replies, and a verb.

Study = Callable[[np.random.Generator, int], Iterator[bool]]
"""Yields for one study after another, of so many prompts, whether something is so."""
STUDY_PROMPTS = (20, 50, 200)
ROWS_BY_DOCUMENT, N_FIELDS, MARGIN, EASY, RARE = 5, 6, 0.1, 0.7, 0.04
MODELS = ("old", "new")


def asked(n_prompts: int, *, repeats: int = 1, n_temperatures: int = 1) -> pd.DataFrame:
    """Return the replies of two models, in documents of five rows and two languages."""
    row, model, temperature, _ = np.array(
        list(product(range(n_prompts), range(2), range(n_temperatures), range(repeats)))
    ).T
    source = pd.DataFrame(
        {
            "row": row,
            "document": row // ROWS_BY_DOCUMENT,
            "language": np.array(["th", "en"])[row % 2],
            "model": np.array(MODELS)[model],
            "temperature": temperature,
        }
    )
    return svc.as_replies(source)


def chances(
    rng: np.random.Generator,
    df: pd.DataFrame,
    rate: Any,  # noqa: ANN401 - for all rows, or for each
    *,
    by: str = "row",
    model_sd: float = _MODEL_SD,
) -> Any:  # noqa: ANN401 - an array
    """Return how likely each reply is right; models differ by `by`."""
    is_new = (df["model"] == "new").to_numpy(dtype=int)
    group = df[by].to_numpy(dtype=int)
    hard = rng.normal(size=group.max() + 1) * _PROMPT_SD
    own = rng.normal(size=(group.max() + 1, 2)) * model_sd
    centre = np.vectorize(logit_of)(rate)
    return 1 / (1 + np.exp(-(centre + hard[group] + own[group, is_new])))


def in_documents(*, unit: str | None) -> Study:
    """Yield false alarms of models that are equal, but not on one document."""

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        df = asked(n_prompts)
        while True:
            chance = chances(rng, df, 0.7, by="document", model_sd=1.5)
            df["score_right"] = rng.random(len(df)) < chance
            compared = svc.contrast_df(df, "model", "right", unit=unit)
            yield bool((compared["p"] < ALARM).any())

    return study


def of_rare_differences(*, by: str, unit: str | None) -> Study:
    """Yield whether a difference is held that few rows or whole documents have.

    Replies are the same at both temperatures, so that a row has four that look like
    repeats, and are none.
    """

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        df = asked(n_prompts, n_temperatures=2)
        row, group = (df[name].to_numpy(dtype=int) for name in ("row", by))
        is_new = (df["model"] == "new").to_numpy(dtype=bool)
        while True:
            is_easy = (rng.random(n_prompts) < EASY)[row]
            is_changed = (rng.random(n_prompts) < RARE)[group] & is_new
            df["score_right"] = is_easy & ~is_changed
            compared = svc.contrast_df(
                df, "model", "right", against="old", unit=unit
            ).iloc[0]
            yield bool(compared["low"] <= -EASY * RARE <= compared["high"])

    return study


def with_unequal_repeats(*, weight: Any) -> Study:  # noqa: ANN401 - a literal of ours
    """Yield whether a rate is held where easy rows were repeated more often."""

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        whole = asked(n_prompts, repeats=5)
        first = (whole["repeat"] == 0).to_numpy(dtype=bool)
        while True:
            chance = chances(rng, whole, 0.7)
            whole["score_right"] = rng.random(len(whole)) < chance
            df = whole[first | (chance > EASY)]
            row = svc.summary_df(df, "model", "right", weight=weight).iloc[0]
            yield bool(row["right_low"] <= 0.7 <= row["right_high"])

    return study


def of_seconds(*, prompt_sd: float, own_sd: float) -> Study:
    """Yield whether the difference of two means of seconds is held."""

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        df = asked(n_prompts)
        row = df["row"].to_numpy(dtype=int)
        is_new = (df["model"] == "new").to_numpy(dtype=int)
        mean = np.array([2.0, 3.0])[is_new] * np.exp(-(prompt_sd**2 + own_sd**2) / 2)
        while True:
            prompt = rng.normal(size=n_prompts)[row] * prompt_sd
            df["latency_s"] = mean * np.exp(prompt + rng.normal(size=len(df)) * own_sd)
            compared = svc.contrast_df(df, "model", "latency_s", against="old").iloc[0]
            yield bool(compared["low"] <= 1.0 <= compared["high"])

    return study


def of_a_family(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
    """Yield whether any of six fields, in which models are equal, is a false alarm."""
    df, names = asked(n_prompts), [f"field_{n}" for n in range(N_FIELDS)]
    while True:
        for name in names:
            df[f"score_{name}"] = rng.random(len(df)) < chances(rng, df, 0.8)
        yield bool((svc.contrast_df(df, "model", names)["p"] < ALARM).any())


def in_subgroups(th: tuple[float, float], en: tuple[float, float]) -> Study:
    """Yield whether the difference of the differences in two languages is held."""

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        df = asked(n_prompts)
        of_model = (df["model"] == "new").to_numpy(dtype=int)
        of_language = (df["language"] == "en").to_numpy(dtype=int)
        rate = np.array([th, en])[of_language, of_model]
        truth = (th[1] - th[0]) - (en[1] - en[0])
        while True:
            df["score_right"] = rng.random(len(df)) < chances(rng, df, rate)
            compared = svc.contrast_df(
                df, "model", "right", against="old", by="language", correct=None
            )
            [between] = compared[compared["is_between_groups"]].to_dict("records")
            sign = 1 if between["language"] == "th minus en" else -1
            yield bool(between["low"] <= sign * truth <= between["high"])

    return study


def at_the_margin(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
    """Yield whether a model that is worse by the margin is called not worse than it."""
    df = asked(n_prompts)
    rate = np.where(df["model"] == "new", 0.8 - MARGIN, 0.8)
    while True:
        df["score_right"] = rng.random(len(df)) < chances(rng, df, rate)
        compared = svc.contrast_df(
            df, "model", "right", against="old", margin=MARGIN, correct=None
        )
        yield bool(compared["verdict"].str.startswith("not worse").any())


def on_different_rows(*, is_rate: bool) -> Study:
    """Yield whether a difference is held of models that had different rows."""

    def study(rng: np.random.Generator, n_prompts: int) -> Iterator[bool]:
        df = asked(2 * n_prompts)
        is_new = (df["model"] == "new").to_numpy(dtype=int)
        df = df[df["row"].to_numpy(dtype=int) % 2 == is_new].reset_index(drop=True)
        is_new = (df["model"] == "new").to_numpy(dtype=int)
        while True:
            if is_rate:
                rate = np.array([0.9, 0.8])[is_new]
                df["score_x"] = rng.random(len(df)) < chances(rng, df, rate)
            else:
                noise = rng.normal(size=len(df)) * np.array([0.5, 1.0])[is_new]
                df["score_x"] = np.array([3.0, 2.9])[is_new] + noise
            compared = svc.contrast_df(
                df, "model", "x", against="old", paired=False
            ).iloc[0]
            yield bool(compared["low"] <= -0.1 <= compared["high"])

    return study


STUDIES: dict[str, tuple[str, Study]] = {
    'false alarms, 5 rows of a document, `unit="document"`': (
        "0.05",
        in_documents(unit="document"),
    ),
    "the same without `unit`": ("0.05", in_documents(unit=None)),
    "difference of rates held, 4 % of the rows": (
        "0.95",
        of_rare_differences(by="row", unit=None),
    ),
    'the same, 4 % of the documents, `unit="document"`': (
        "0.95",
        of_rare_differences(by="document", unit="document"),
    ),
    "rate held, easy rows repeated 5 times": (
        "0.95",
        with_unequal_repeats(weight="prompts"),
    ),
    'the same, `weight="replies"`': ("0.95", with_unequal_repeats(weight="replies")),
    "difference of seconds held": ("0.95", of_seconds(prompt_sd=0.4, own_sd=0.36)),
    "the same with a long tail": ("0.95", of_seconds(prompt_sd=0.7, own_sd=0.7)),
    "false alarms, any of 6 fields, one call": ("0.05", of_a_family),
    "difference of two subgroups held, none": (
        "0.95",
        in_subgroups((0.6, 0.8), (0.6, 0.8)),
    ),
    "difference of two subgroups held, 20 points": (
        "0.95",
        in_subgroups((0.6, 0.9), (0.7, 0.8)),
    ),
    '"not worse" at the margin': ("0.05", at_the_margin),
    "difference of rates held, different rows": (
        "0.95",
        on_different_rows(is_rate=True),
    ),
    "difference of means held, different rows": (
        "0.95",
        on_different_rows(is_rate=False),
    ),
}


def of_study(name: str, n_prompts: int, n_runs: int) -> float:
    """Return the share of simulated studies of which something is so."""
    rng = np.random.default_rng([SEED, n_prompts])
    told = STUDIES[name][1](rng, n_prompts)
    return float(np.mean([next(told) for _ in range(n_runs)]))


def studies_table(n_runs: int) -> str:
    """Simulate studies in two processes, and return their table."""
    cells = list(product(STUDIES, STUDY_PROMPTS))
    with ProcessPoolExecutor(2) as pool:
        seen = pool.map(of_study, *zip(*cells, strict=True), [n_runs] * len(cells))
        shares_seen = dict(zip(cells, seen, strict=True))
    heads = " | ".join(f"{n} rows" for n in STUDY_PROMPTS)
    lines = [f"| {n_runs} studies | meant | {heads} |"]
    lines += ["|---|---|" + "---|" * len(STUDY_PROMPTS)]
    for name, (meant, _) in STUDIES.items():
        numbers = " | ".join(f"{shares_seen[name, n]:.3f}" for n in STUDY_PROMPTS)
        lines += [f"| {name} | {meant} | {numbers} |"]
    return "\n".join(lines) + "\n"


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
    sys.stdout.write("".join(f"\n{line}" for line in outside(held)) + "\n\n")
    sys.stdout.write(studies_table(max(n_runs // 10, 1)))


if __name__ == "__main__":
    main()

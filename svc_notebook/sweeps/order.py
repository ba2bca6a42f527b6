"""The order in which the trials of a run are sent: shuffled, but always the same.

A trial is made when it is pulled, so a million of them need no room.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, islice, zip_longest
from random import Random

from .grid import Grid, Trial
from .resume import Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What is to be asked of a model, and how many requests that is."""

    # each is made when it is pulled; None for one that need not be asked
    pull: Iterator[Trial | None]
    n_trials: int


def seed_of(name: str) -> int:
    """Return the seed of a run of this name, so that it is the same after a restart."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


def by_model(grid: Grid) -> Mapping[str, Sequence[int]]:
    """Return the combinations of each model, in the order of the plan."""
    found: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    for combination in range(grid.n_combinations):
        found[grid.model_of(combination)].append(combination)
    return found


def blocks(
    combinations: Sequence[int],
    *,
    repeats: int,
    seed: int,
    model: str,
    block_of: Callable[[int], int] = lambda _: 0,
) -> Iterator[tuple[int, int]]:
    """Return combination and repeat of each trial of a model, in the order of asking.

    Each repeat of all combinations is shuffled by itself and for each model; where rows
    are read in blocks, each block of them.
    """
    for repeat in range(repeats):
        # text seeds are hashed by their content, so the order outlives this process
        chance = Random(f"{seed}/{repeat}/{model}")  # noqa: S311 - no secret
        for _, found in groupby(combinations, key=block_of):
            block = array("Q", found)
            chance.shuffle(block)
            for combination in block:
                yield combination, repeat


def todo_of(grid: Grid, settled: Settled, *, seed: int) -> dict[str, Trials]:
    """Return what is left to ask of each model."""

    def pull(model: str, combinations: Sequence[int]) -> Iterator[Trial | None]:
        for number in blocks(
            combinations,
            repeats=grid.repeats,
            seed=seed,
            model=model,
            block_of=grid.block_of,
        ):
            trial = grid.trial(*number)
            yield None if trial.key in settled else trial

    return {
        model: Trials(
            pull=pull(model, combinations),
            n_trials=len(combinations) * grid.repeats - settled.n_by_model[model],
        )
        for model, combinations in by_model(grid).items()
    }


_STEP = (5**0.5 - 1) / 2  # multiples of it are spread as evenly as can be


def pilot_order(grid: Grid, *, seed: int) -> Iterator[tuple[int, int]]:
    """Return combination and repeat of all trials, so that the first ones are balanced.

    Each condition has its turn, with the same row as far as possible; the rows are
    spread over all of them, and none is repeated before all have had their turn.
    """
    chance = Random(f"{seed}/pilot")  # noqa: S311 - no secret
    start = chance.random()

    def spread(combination: int) -> float:
        return (grid.place_of(combination)[0] * _STEP + start) % 1

    by_condition: dict[int, list[int]] = {}
    for combination in sorted(range(grid.n_combinations), key=spread):
        condition = grid.place_of(combination)[1]
        by_condition.setdefault(condition, []).append(combination)
    for repeat in range(grid.repeats):
        for each in zip_longest(*by_condition.values()):
            turn = [combination for combination in each if combination is not None]
            chance.shuffle(turn)
            yield from ((combination, repeat) for combination in turn)


def pilot_of(
    grid: Grid, settled: Settled, *, seed: int, first: int
) -> dict[str, Trials]:
    """Return what is left to ask of the first trials of a balanced order."""
    found: defaultdict[str, list[Trial]] = defaultdict(list)
    order = [*islice(pilot_order(grid, seed=seed), first)]
    # made in the order of the plan, in which rows in files are read
    trials = {number: grid.trial(*number) for number in sorted(order)}
    for trial in map(trials.__getitem__, order):
        if trial.key not in settled:
            found[trial.model].append(trial)
    return {
        model: Trials(pull=iter(each), n_trials=len(each))
        for model, each in found.items()
    }

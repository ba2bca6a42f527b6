"""The order in which the trials of a run are sent: shuffled, but always the same.

A trial is made when it is pulled, so a million of them need no memory.
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
class PendingTrials:
    """What is still to be sent to a model, and how many requests that is."""

    # a trial is made when it is pulled; None for one that need not be sent
    pull: Iterator[Trial | None]
    n_trials: int


def seed_of(name: str) -> int:
    """Return the seed of a run of this name, so that it is the same after a restart."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


def by_model(grid: Grid) -> Mapping[str, Sequence[int]]:
    """Return the combinations of each model, in the order of the plan."""
    combinations: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    for combination in range(grid.n_combinations):
        combinations[grid.model_of(combination)].append(combination)
    return combinations


def blocks(
    combinations: Sequence[int],
    *,
    repeats: int,
    seed: int,
    model: str,
    block_of: Callable[[int], int] = lambda _: 0,
) -> Iterator[tuple[int, int]]:
    """Return combination and repeat of each trial of a model, in the order of sending.

    Each repeat is shuffled separately for each model. Rows in files are shuffled within
    the blocks that are read together.
    """
    for repeat in range(repeats):
        # text seeds are hashed by their content, so the order outlives this process
        chance = Random(f"{seed}/{repeat}/{model}")  # noqa: S311 - no secret
        for _, in_block in groupby(combinations, key=block_of):
            block = array("Q", in_block)
            chance.shuffle(block)
            for combination in block:
                yield combination, repeat


def pending_of(grid: Grid, settled: Settled, *, seed: int) -> dict[str, PendingTrials]:
    """Return what is still to be sent to each model."""

    def pull(model: str, combinations: Sequence[int]) -> Iterator[Trial | None]:
        for combination, repeat in blocks(
            combinations,
            repeats=grid.repeats,
            seed=seed,
            model=model,
            block_of=grid.block_of,
        ):
            trial = grid.trial(combination, repeat)
            yield None if trial.key in settled else trial

    return {
        model: PendingTrials(
            pull=pull(model, combinations),
            n_trials=len(combinations) * grid.repeats - settled.n_by_model[model],
        )
        for model, combinations in by_model(grid).items()
    }


_GOLDEN = (5**0.5 - 1) / 2  # the fractions of its multiples are spread evenly


def pilot_order(grid: Grid, *, seed: int) -> Iterator[tuple[int, int]]:
    """Return combination and repeat of all trials, so that the first ones are balanced.

    Conditions take turns, with the same row as far as possible. The first rows are
    spread over all rows, and no repeat begins before every row was sent once.
    """
    chance = Random(f"{seed}/pilot")  # noqa: S311 - no secret
    start = chance.random()

    def spread(combination: int) -> float:
        return (grid.place_of(combination)[0] * _GOLDEN + start) % 1

    by_condition: dict[int, list[int]] = {}
    for combination in sorted(range(grid.n_combinations), key=spread):
        condition = grid.place_of(combination)[1]
        by_condition.setdefault(condition, []).append(combination)
    for repeat in range(grid.repeats):
        for combinations in zip_longest(*by_condition.values()):
            turn = [number for number in combinations if number is not None]
            chance.shuffle(turn)
            yield from ((number, repeat) for number in turn)


def pilot_of(
    grid: Grid, settled: Settled, *, seed: int, first: int
) -> dict[str, PendingTrials]:
    """Return what is still to be sent of the first trials of a balanced order."""
    pending: defaultdict[str, list[Trial]] = defaultdict(list)
    order = [*islice(pilot_order(grid, seed=seed), first)]
    # made in the order of the plan, in which rows in files are read
    trials = {place: grid.trial(*place) for place in sorted(order)}
    for trial in map(trials.__getitem__, order):
        if trial.key not in settled:
            pending[trial.model].append(trial)
    return {
        model: PendingTrials(pull=iter(of_model), n_trials=len(of_model))
        for model, of_model in pending.items()
    }
